// SPDX-License-Identifier: Apache-2.0
// JSON to values: the context of a render, `from_json`.
#include <json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json_tree.h"
#include "core/template/filters.h"

static bool text_value(struct plm_trun *r, const char *p, size_t n, uint32_t origin, bool copy,
                       struct plm_tval *ret)
{
    if (!copy)
        return plm_tstr_val(plm_tstr_view(r, p, n, origin), ret);
    struct plm_tbuf *buf = plm_tbuf_new(r);
    return buf != NULL && plm_tbuf_add(r, buf, p, n, origin) && plm_tbuf_value(r, buf, ret);
}

static bool convert(struct plm_trun *r, struct json_object *obj, uint32_t origin, bool copy,
                    struct plm_tval *ret);

static bool convert_array(struct plm_trun *r, struct json_object *obj, uint32_t origin, bool copy,
                          struct plm_tval *ret)
{
    size_t n = json_object_array_length(obj);
    struct plm_tlist *list = plm_tlist_new(r, n);
    if (list == NULL)
        return false;
    list->user = origin != PLM_ORIGIN_TEMPLATE;
    for (; list->n < n; list->n++)
        if (!convert(r, json_object_array_get_idx(obj, list->n), origin, copy, &list->v[list->n]))
            return false;
    return plm_tlist_val(list, PLM_T_LIST, ret);
}

static bool convert_object(struct plm_trun *r, struct json_object *obj, uint32_t origin, bool copy,
                           struct plm_tval *ret)
{
    struct plm_tdict *dict = plm_tdict_new(r);
    if (dict == NULL)
        return false;
    dict->user = origin != PLM_ORIGIN_TEMPLATE;
    struct json_object_iterator it = json_object_iter_begin(obj);
    struct json_object_iterator end = json_object_iter_end(obj);
    for (; !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *name = json_object_iter_peek_name(&it);
        struct plm_tval key, value;
        if (!text_value(r, name, strlen(name), origin, copy, &key) ||
            !convert(r, json_object_iter_peek_value(&it), origin, copy, &value) ||
            !plm_tdict_set(r, dict, key, value))
            return false;
    }
    *ret = (struct plm_tval){.kind = PLM_T_DICT, .dict = dict};
    return true;
}

static bool convert_inner(struct plm_trun *r, struct json_object *obj, uint32_t origin, bool copy,
                          struct plm_tval *ret)
{
    switch (json_object_get_type(obj)) {
    case json_type_null: *ret = plm_tval_none(); return true;
    case json_type_boolean: *ret = plm_tval_bool(json_object_get_boolean(obj)); return true;
    case json_type_double: *ret = plm_tval_float(json_object_get_double(obj)); return true;
    case json_type_int: {
        int64_t i = json_object_get_int64(obj);
        uint64_t u = json_object_get_uint64(obj);
        if (i == INT64_MAX && u > (uint64_t)INT64_MAX)
            return plm_tnum_fits(u, ret);
        *ret = plm_tval_int(i);
        return true;
    }
    case json_type_string:
        return text_value(r, json_object_get_string(obj), (size_t)json_object_get_string_len(obj),
                          origin, copy, ret);
    case json_type_array: return convert_array(r, obj, origin, copy, ret);
    case json_type_object: return convert_object(r, obj, origin, copy, ret);
    }
    return plm_tpl_fail(r, "unknown type of JSON value");
}

static bool convert(struct plm_trun *r, struct json_object *obj, uint32_t origin, bool copy,
                    struct plm_tval *ret)
{
    if (!plm_tpl_step(r, 1) || !plm_tpl_enter(r) || !convert_inner(r, obj, origin, copy, ret))
        return false;
    r->depth--;
    return true;
}

bool plm_tpl_from_object(struct plm_trun *r, struct json_object *obj, uint32_t origin,
                         struct plm_tval *ret)
{
    return convert(r, obj, origin, false, ret);
}

bool plm_tpl_parse_json(struct plm_trun *r, const struct plm_tstr *text, struct plm_tval *ret,
                        struct plm_error *ret_why)
{
    struct plm_json_tree tree;
    struct plm_json_cost cost = {0};
    if (!plm_tpl_step(r, text->len / 8))
        return false;
    const struct plm_slice json = plm_tstr_slice(text);
    // The tree lives while it is converted, so it counts as the render's own memory does.
    int status = plm_json_measure(json, PLM_JSON_TREE_NODES_MAX, &cost, ret_why);
    if (status == PLM_OK &&
        !plm_tarena_may_add(&r->arena, (uint64_t)(cost.tree_bytes + cost.parse_bytes)))
        return plm_tpl_fail_memory(r);
    plm_json_tree_init(&tree, r->tmpl->host, PLM_HOST_TEMPLATE);
    if (status == PLM_OK)
        status = plm_json_tree_parse(&tree, json, &tree.root, ret_why);
    bool ok = true;
    if (status == PLM_OK)
        ok = convert(r, tree.root, plm_tstr_origin(text), true, ret);
    else if (status == PLM_ERR_NOMEM_HOST) {
        r->arena.over_limit = false;
        ok = plm_tpl_fail_memory(r);
    } else if (status == PLM_ERR_CANCELLED) {
        if (r->status == PLM_OK)
            r->status = plm_fail(r->err, status, "%s", ret_why->msg);
        ok = false;
    }
    ret_why->status = status;
    plm_json_tree_finish(&tree);
    return ok;
}

bool plm_tpl_from_json(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_error why = {0};
    if (c->self.kind != PLM_T_STR)
        return plm_tpl_fail(r, "from_json needs a string, not %s", plm_tval_type(&c->self));
    if (!plm_tpl_parse_json(r, c->self.str, c->ret, &why))
        return false;
    if (why.status == PLM_ERR_LIMIT && r->status == PLM_OK)
        r->status = plm_fail(r->err, PLM_ERR_LIMIT, "chat template, line %u: from_json: %.300s",
                             (unsigned)r->line, why.msg);
    return why.status == PLM_OK || plm_tpl_fail(r, "from_json: %.200s", why.msg);
}
