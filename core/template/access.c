// SPDX-License-Identifier: Apache-2.0
// Members, items, slices and `in`.
#include "core/template/run.h"

#include <string.h>

const struct plm_slice *plm_tpl_keep(struct plm_trun *r, struct plm_slice s)
{
    // The bytes too: those of a string may move when something is appended to its buffer.
    struct plm_slice *kept = plm_tpl_alloc(r, sizeof(*kept) + s.len);
    if (kept == NULL)
        return NULL;
    *kept = (struct plm_slice){(char *)(kept + 1), s.len};
    if (s.len > 0)
        memcpy(kept + 1, s.ptr, s.len);
    return kept;
}

static bool macro_attr(struct plm_trun *r, const struct plm_tmacro *macro, struct plm_slice name,
                       struct plm_tval *ret)
{
    const struct plm_tnode *node = macro->node;
    if (plm_slice_eq_str(name, "name"))
        return plm_tstr_val(plm_tstr_view(r, node->name.ptr, node->name.len, false), ret);
    if (plm_slice_eq_str(name, "arguments")) {
        struct plm_tlist *list = plm_tlist_new(r, node->n_params);
        if (list == NULL)
            return false;
        for (uint32_t i = 0; i < node->n_params; i++, list->n++)
            if (!plm_tstr_val(
                    plm_tstr_view(r, node->params[i].name.ptr, node->params[i].name.len, false),
                    &list->v[i]))
                return false;
        return plm_tlist_val(list, PLM_T_TUPLE, ret);
    }
    static const char *const flags[] = {"catch_varargs", "catch_kwargs", "caller"};
    for (int i = 0; i < 3; i++)
        if (plm_slice_eq_str(name, flags[i]))
            *ret = plm_tval_bool(node->uses >> i & 1);
    return true;
}

static bool number_attr(const struct plm_tval *obj, struct plm_slice name, struct plm_tval *ret)
{
    bool is_float = obj->kind == PLM_T_FLOAT;
    if (plm_slice_eq_str(name, "real") || (plm_slice_eq_str(name, "numerator") && !is_float))
        *ret = obj->kind == PLM_T_BOOL ? plm_tval_int(obj->b) : *obj;
    else if (plm_slice_eq_str(name, "imag"))
        *ret = is_float ? plm_tval_float(0.0) : plm_tval_int(0);
    else if (plm_slice_eq_str(name, "denominator") && !is_float)
        *ret = plm_tval_int(1);
    return true;
}

// What Python's getattr finds: methods and properties. UNSET when there is none.
static bool python_attr(struct plm_trun *r, const struct plm_tval *obj, struct plm_slice name,
                        struct plm_tval *ret)
{
    *ret = (struct plm_tval){.kind = PLM_T_UNSET};
    switch (obj->kind) {
    case PLM_T_LOOP:
        if (!plm_tpl_loop_attr(r, obj->loop, name, ret))
            return false;
        break;
    case PLM_T_SPACE: {
        const struct plm_tval *v = plm_tdict_find(obj->dict, name);
        if (v != NULL)
            *ret = *v;
        return true;
    }
    case PLM_T_MACRO: return macro_attr(r, obj->macro, name, ret);
    case PLM_T_BOOL:
    case PLM_T_INT:
    case PLM_T_BIG:
    case PLM_T_FLOAT: return number_attr(obj, name, ret);
    case PLM_T_CYCLER:
        if (plm_slice_eq_str(name, "current"))
            *ret = obj->cycler->items->v[obj->cycler->at];
        break;
    default: break;
    }
    if (ret->kind != PLM_T_UNSET)
        return true;
    const struct plm_tfunc *func = plm_tpl_method(obj, name);
    if (func == NULL)
        return true;
    struct plm_tmethod *method = plm_tpl_alloc(r, sizeof(*method));
    if (method == NULL)
        return false;
    *method = (struct plm_tmethod){*obj, func};
    *ret = (struct plm_tval){.kind = PLM_T_METHOD, .method = method};
    return true;
}

bool plm_tpl_getattr(struct plm_trun *r, const struct plm_tval *obj, const struct plm_slice *name,
                     struct plm_tval *ret)
{
    struct plm_tval v;
    if (obj->kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, obj);
    if (!python_attr(r, obj, *name, &v))
        return false;
    if (v.kind == PLM_T_UNSET && obj->kind == PLM_T_DICT) {
        const struct plm_tval *item = plm_tdict_find(obj->dict, *name);
        if (item != NULL)
            v = *item;
    }
    *ret = v.kind == PLM_T_UNSET ? plm_tval_undef(name) : v;
    return true;
}

// Index into n items, Python's way; SIZE_MAX when it is outside.
static size_t wrap_index(const struct plm_tval *key, size_t n)
{
    if (key->kind == PLM_T_BIG)
        return SIZE_MAX;
    int64_t i = plm_tval_small(key);
    if (i < 0)
        i += (int64_t)n;
    return i < 0 || (uint64_t)i >= n ? SIZE_MAX : (size_t)i;
}

static bool item_at(struct plm_trun *r, const struct plm_tval *obj, const struct plm_tval *key,
                    struct plm_tval *ret)
{
    size_t n, i;
    switch (obj->kind) {
    case PLM_T_LIST:
    case PLM_T_TUPLE:
        i = wrap_index(key, obj->list->n);
        if (i != SIZE_MAX)
            *ret = obj->list->v[i];
        return true;
    case PLM_T_RANGE:
        i = wrap_index(key, (size_t)obj->range->n);
        if (i != SIZE_MAX)
            *ret = plm_tval_int(obj->range->start + (int64_t)i * obj->range->step);
        return true;
    case PLM_T_STR:
        n = plm_tstr_chars(obj->str);
        i = wrap_index(key, n);
        if (i == SIZE_MAX)
            return true;
        size_t off;
        if (!plm_tstr_offset(r, obj->str, i, &off))
            return false;
        uint32_t cp;
        const char *p = plm_tstr_ptr(obj->str);
        size_t len = plm_tstr_next(p + off, p + obj->str->len, &cp);
        return plm_tstr_val(plm_tstr_sub(r, obj->str, off, len), ret);
    default: return true;
    }
}

bool plm_tpl_getitem(struct plm_trun *r, const struct plm_tval *obj, const struct plm_tval *key,
                     struct plm_tval *ret)
{
    struct plm_tval v = {.kind = PLM_T_UNSET};
    if (obj->kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, obj);
    if (obj->kind == PLM_T_DICT) {
        struct plm_tval *item = NULL;
        if (plm_tval_hashable(key) && !plm_tdict_get(r, obj->dict, key, &item))
            return false;
        if (item != NULL)
            v = *item;
    } else if (plm_tval_is_int(key) && !item_at(r, obj, key, &v)) {
        return false;
    }
    if (v.kind == PLM_T_UNSET && key->kind == PLM_T_STR &&
        !python_attr(r, obj, plm_tstr_slice(key->str), &v))
        return false;
    if (v.kind == PLM_T_UNSET) {
        const struct plm_slice *name = NULL;
        if (key->kind == PLM_T_STR) {
            struct plm_slice text = plm_tstr_slice(key->str);
            text.len = text.len < 200 ? text.len : 200; // for a message only
            name = plm_tpl_keep(r, text);
            if (name == NULL)
                return false;
        }
        v = plm_tval_undef(name);
    }
    *ret = v;
    return true;
}

struct range3 {
    int64_t start, step;
    size_t n;
};

// Python's slice.indices().
static bool slice_indices(struct plm_trun *r, const struct plm_tval bound[3], size_t len,
                          struct range3 *ret)
{
    int64_t v[3];
    bool given[3];
    for (int i = 0; i < 3; i++) {
        given[i] = bound[i].kind != PLM_T_UNSET && bound[i].kind != PLM_T_NONE;
        if (given[i] && bound[i].kind == PLM_T_UNDEF)
            return plm_tpl_fail_undef(r, &bound[i]);
        if (given[i] && !plm_tval_is_int(&bound[i]))
            return plm_tpl_fail(r, "bounds of a slice must be integers or none, not %s",
                                plm_tval_type(&bound[i]));
        if (!given[i])
            v[i] = 0;
        else if (bound[i].kind == PLM_T_BIG)
            v[i] = plm_tbig_negative(&bound[i]) ? INT64_MIN / 4 : INT64_MAX / 4;
        else
            v[i] = plm_tval_small(&bound[i]);
        if (v[i] > INT64_MAX / 4)
            v[i] = INT64_MAX / 4;
        if (v[i] < INT64_MIN / 4)
            v[i] = INT64_MIN / 4;
    }
    int64_t step = given[2] ? v[2] : 1;
    int64_t n = (int64_t)len;
    if (step == 0)
        return plm_tpl_fail(r, "step of a slice is zero");
    int64_t lo = step < 0 ? -1 : 0;
    int64_t hi = step < 0 ? n - 1 : n;
    for (int i = 0; i < 2; i++) {
        if (!given[i]) {
            v[i] = (i == 0) == (step > 0) ? lo : hi;
            continue;
        }
        if (v[i] < 0)
            v[i] += n;
        v[i] = v[i] < lo ? lo : v[i] > hi ? hi : v[i];
    }
    int64_t span = step > 0 ? v[1] - v[0] : v[0] - v[1];
    int64_t stride = step > 0 ? step : -step;
    *ret = (struct range3){v[0], step, span <= 0 ? 0 : (size_t)((span - 1) / stride + 1)};
    return true;
}

static bool slice_str(struct plm_trun *r, struct plm_tstr *s, const struct range3 *x,
                      struct plm_tval *ret)
{
    size_t at, to;
    if (x->n == 0)
        return plm_tstr_val(plm_tstr_sub(r, s, 0, 0), ret);
    if (!plm_tstr_offset(r, s, (size_t)x->start, &at))
        return false;
    if (x->step == 1)
        return plm_tstr_offset(r, s, (size_t)x->start + x->n, &to) &&
               plm_tstr_val(plm_tstr_sub(r, s, at, to - at), ret);
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL || !plm_tpl_work(r, s->len))
        return false;
    for (size_t i = 0; i < x->n; i++) {
        const char *p = plm_tstr_ptr(s);
        uint32_t cp;
        size_t len = plm_tstr_next(p + at, p + s->len, &cp);
        if (!plm_tpl_step(r, 1) || !plm_tbuf_add_part(r, buf, s, at, len))
            return false;
        for (int64_t k = 0; i + 1 < x->n && k < (x->step > 0 ? x->step : -x->step); k++) {
            p = plm_tstr_ptr(s);
            if (x->step > 0)
                at += plm_tstr_next(p + at, p + s->len, &cp);
            else
                at -= plm_tstr_prev(p, p + at, &cp);
        }
    }
    return plm_tbuf_value(r, buf, ret);
}

bool plm_tpl_getslice(struct plm_trun *r, const struct plm_tval *obj,
                      const struct plm_tval bound[3], struct plm_tval *ret)
{
    struct plm_tval whole = *obj;
    struct range3 x;
    if (obj->kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, obj);
    if (obj->kind == PLM_T_RANGE) {
        whole.kind = PLM_T_LIST;
        if (!plm_tpl_to_list(r, obj, &whole.list))
            return false;
    }
    if (whole.kind == PLM_T_STR)
        return slice_indices(r, bound, plm_tstr_chars(obj->str), &x) &&
               slice_str(r, obj->str, &x, ret);
    if (whole.kind != PLM_T_LIST && whole.kind != PLM_T_TUPLE)
        return plm_tpl_fail(r, "%s can not be sliced", plm_tval_type(obj));
    if (!slice_indices(r, bound, whole.list->n, &x) || !plm_tpl_step(r, x.n / 8))
        return false;
    struct plm_tlist *list = plm_tlist_new(r, x.n);
    if (list == NULL)
        return false;
    for (size_t i = 0; i < x.n; i++)
        list->v[list->n++] = whole.list->v[x.start + (int64_t)i * x.step];
    list->user = whole.list->user;
    list->parts = whole.list->parts;
    return plm_tlist_val(list, whole.kind, ret);
}

bool plm_tpl_contains(struct plm_trun *r, const struct plm_tval *item, const struct plm_tval *in,
                      bool *ret)
{
    struct plm_tval *found;
    *ret = false;
    switch (in->kind) {
    case PLM_T_UNDEF: return true;
    case PLM_T_STR:
        if (item->kind != PLM_T_STR)
            return plm_tpl_fail(r, "'in' a string needs a string, not %s", plm_tval_type(item));
        *ret = plm_tstr_find(in->str, plm_tstr_slice(item->str), 0) != SIZE_MAX;
        return plm_tpl_work(r, in->str->len);
    case PLM_T_DICT:
        if (!plm_tdict_get(r, in->dict, item, &found))
            return false;
        *ret = found != NULL;
        return true;
    case PLM_T_LIST:
    case PLM_T_TUPLE:
        for (size_t i = 0; !*ret && i < in->list->n; i++)
            if (!plm_tval_eq(r, &in->list->v[i], item, ret))
                return false;
        return true;
    default: break;
    }
    struct plm_titer *it;
    bool done = false;
    if (!plm_tpl_iterable(in))
        return plm_tpl_fail(r, "'in' does not take %s", plm_tval_type(in));
    if (!plm_titer_init(r, in, &it))
        return false;
    while (!*ret) {
        struct plm_tval v;
        if (!plm_titer_next(r, it, &v, &done))
            return false;
        if (done)
            break;
        if (!plm_tval_eq(r, &v, item, ret))
            return false;
    }
    return true;
}
