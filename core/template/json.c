// SPDX-License-Identifier: Apache-2.0
// JSON in and out: the context of a render, `tojson`, `from_json`.
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
    list->user = origin != PLM_BY_TEMPLATE;
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
    dict->user = origin != PLM_BY_TEMPLATE;
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

struct writer {
    struct plm_trun *r;
    struct plm_tbuf *buf;
    bool ascii;
    bool sort;
    bool pretty;
    struct plm_tstr *indent;
    struct plm_tstr *item_sep;
    struct plm_tstr *key_sep;
    size_t level;
};

static bool put(struct writer *w, const char *s, uint32_t origin)
{
    return plm_tbuf_addz(w->r, w->buf, s, origin);
}

static void escape(uint32_t cp, char out[16])
{
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    const char *hit = cp < 0x80 ? memchr(from, (int)cp, sizeof(from) - 1) : NULL;
    if (hit != NULL)
        snprintf(out, 16, "\\%c", to[hit - from]);
    else if (cp < 0x10000)
        snprintf(out, 16, "\\u%04x", (unsigned)cp);
    else
        snprintf(out, 16, "\\u%04x\\u%04x", 0xD800 + (unsigned)((cp - 0x10000) >> 10),
                 0xDC00 + (unsigned)((cp - 0x10000) & 0x3FF));
}

static bool put_string(struct writer *w, const struct plm_tstr *s, bool user)
{
    user = user || plm_tstr_any_user(s);
    size_t from = 0;
    if (!put(w, "\"", user))
        return false;
    for (size_t i = 0; i < s->len;) {
        const char *p = plm_tstr_ptr(s);
        uint32_t cp = (unsigned char)p[i];
        size_t n = cp < 0x80 ? 1 : plm_tstr_next(p + i, p + s->len, &cp);
        if (cp < 0x20 || cp == '"' || cp == '\\' || (w->ascii && cp >= 0x7F)) {
            char out[16];
            escape(cp, out);
            if (!plm_tbuf_add_part(w->r, w->buf, s, from, i - from) ||
                !put(w, out, plm_tstr_origin_at(s, i)))
                return false;
            from = i + n;
        }
        i += n;
    }
    return plm_tbuf_add_part(w->r, w->buf, s, from, s->len - from) && put(w, "\"", user);
}

static bool put_number(struct writer *w, const struct plm_tval *v, bool user)
{
    if (v->kind == PLM_T_FLOAT && !isfinite(v->d))
        return put(w, isnan(v->d) ? "NaN" : v->d < 0 ? "-Infinity" : "Infinity", user);
    return plm_tval_repr(w->r, w->buf, v, user);
}

static bool new_line(struct writer *w, bool user)
{
    if (!w->pretty)
        return true;
    if (!put(w, "\n", user))
        return false;
    for (size_t i = 0; i < w->level; i++)
        if (!plm_tbuf_add_str(w->r, w->buf, w->indent))
            return false;
    return true;
}

// A separator of the template's, written as what it separates.
static bool put_sep(struct writer *w, const struct plm_tstr *s, bool user)
{
    return plm_tbuf_add(w->r, w->buf, plm_tstr_ptr(s), s->len, user || plm_tstr_any_user(s));
}

static bool put_value(struct writer *w, const struct plm_tval *v, bool user);

static bool put_list(struct writer *w, const struct plm_tlist *list)
{
    if (list->parts)
        w->r->printed_parts = true;
    if (list->n == 0)
        return put(w, "[]", list->user);
    if (!put(w, "[", list->user))
        return false;
    w->level++;
    for (size_t i = 0; i < list->n; i++)
        if ((i > 0 && !put_sep(w, w->item_sep, list->user)) || !new_line(w, list->user) ||
            !put_value(w, &list->v[i], list->user))
            return false;
    w->level--;
    return new_line(w, list->user) && put(w, "]", list->user);
}

static bool put_key(struct writer *w, const struct plm_tval *key, bool user)
{
    switch (key->kind) {
    case PLM_T_STR: return put_string(w, key->str, user);
    case PLM_T_BOOL:
    case PLM_T_NONE:
    case PLM_T_INT:
    case PLM_T_UINT:
    case PLM_T_FLOAT: return put(w, "\"", user) && put_value(w, key, user) && put(w, "\"", user);
    default: return plm_tpl_fail(w->r, "tojson: %s can not be a key", plm_tval_type(key));
    }
}

static bool put_dict(struct writer *w, const struct plm_tdict *dict)
{
    struct plm_tval *keys = plm_tpl_array(w->r, dict->live + 1, sizeof(*keys));
    struct plm_tval *values = plm_tpl_array(w->r, dict->live + 1, sizeof(*values));
    size_t n = 0;
    if (keys == NULL || values == NULL)
        return false;
    for (size_t i = 0; i < dict->n; i++)
        if (dict->entries[i].key.kind != PLM_T_UNSET) {
            keys[n] = dict->entries[i].key;
            values[n++] = dict->entries[i].value;
        }
    if (w->sort && !plm_tlist_sort(w->r, values, keys, n, false))
        return false;
    if (n == 0)
        return put(w, "{}", dict->user);
    if (!put(w, "{", dict->user))
        return false;
    w->level++;
    for (size_t i = 0; i < n; i++)
        if ((i > 0 && !put_sep(w, w->item_sep, dict->user)) || !new_line(w, dict->user) ||
            !put_key(w, &keys[i], dict->user) || !put_sep(w, w->key_sep, dict->user) ||
            !put_value(w, &values[i], dict->user))
            return false;
    w->level--;
    return new_line(w, dict->user) && put(w, "}", dict->user);
}

static bool put_inner(struct writer *w, const struct plm_tval *v, bool user)
{
    switch (v->kind) {
    case PLM_T_NONE: return put(w, "null", user);
    case PLM_T_BOOL: return put(w, v->b ? "true" : "false", user);
    case PLM_T_INT:
    case PLM_T_UINT:
    case PLM_T_FLOAT: return put_number(w, v, user);
    case PLM_T_STR: return put_string(w, v->str, user);
    case PLM_T_LIST:
    case PLM_T_TUPLE: return put_list(w, v->list);
    case PLM_T_DICT: return put_dict(w, v->dict);
    case PLM_T_ITER: { // some templates count on it
        struct plm_tlist *list;
        return plm_tpl_to_list(w->r, v, &list) && put_list(w, list);
    }
    case PLM_T_UNDEF: return plm_tpl_fail_undef(w->r, v);
    default: return plm_tpl_fail(w->r, "tojson: %s has no JSON form", plm_tval_type(v));
    }
}

static bool put_value(struct writer *w, const struct plm_tval *v, bool user)
{
    if (!plm_tpl_enter(w->r) || !put_inner(w, v, user))
        return false;
    w->r->depth--;
    return true;
}

static bool given(const struct plm_tval *v)
{
    return v->kind != PLM_T_UNSET && v->kind != PLM_T_NONE;
}

bool plm_tpl_tojson(struct plm_trun *r, struct plm_tcall *c)
{
    struct writer w = {.r = r, .buf = plm_tbuf_new(r)};
    w.ascii = plm_tval_truth(&c->a[0]);
    w.pretty = given(&c->a[1]);
    w.sort = plm_tval_truth(&c->a[3]);
    w.item_sep = plm_tstr_copyz(r, w.pretty ? "," : ", ", PLM_BY_TEMPLATE);
    w.key_sep = plm_tstr_copyz(r, ": ", PLM_BY_TEMPLATE);
    if (w.buf == NULL || w.item_sep == NULL || w.key_sep == NULL ||
        (w.pretty && !plm_tpl_indent_of(r, &c->a[1], 0, &w.indent)))
        return false;
    if (given(&c->a[2])) {
        struct plm_tlist *seps;
        if (!plm_tpl_as_list(r, &c->a[2], &seps))
            return false;
        if (seps->n != 2 || seps->v[0].kind != PLM_T_STR || seps->v[1].kind != PLM_T_STR)
            return plm_tpl_fail(r, "tojson: separators must be two strings");
        w.item_sep = seps->v[0].str;
        w.key_sep = seps->v[1].str;
    }
    return put_value(&w, &c->self, false) && plm_tbuf_value(r, w.buf, c->ret);
}
