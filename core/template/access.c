// SPDX-License-Identifier: Apache-2.0
// Members, items, slices and `in`.
#include "core/template/text.h"

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
    default: break;
    }
    if (ret->kind != PLM_T_UNSET)
        return true;
    const struct plm_tfunc *func = plm_tpl_method(obj, name);
    if (func == NULL)
        return true;
    if (func->fn == NULL)
        return plm_tpl_fail(r, "'%s' of a %s is not supported", func->name, plm_tval_type(obj));
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
    __int128 i = plm_tnum_whole(key);
    i += i < 0 ? (__int128)n : 0;
    return i < 0 || i >= (__int128)n ? SIZE_MAX : (size_t)i;
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

#define FAR (INT64_MAX / 4) // beyond any sequence, and no sum of two overflows

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
        const __int128 bound_i = given[i] ? plm_tnum_whole(&bound[i]) : 0;
        v[i] = bound_i > FAR ? FAR : bound_i < -FAR ? -FAR : (int64_t)bound_i;
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

// The characters [start, start + n) of a string.
static bool substring(struct plm_trun *r, struct plm_tstr *s, size_t start, size_t n,
                      struct plm_tval *ret)
{
    size_t from = 0, to = 0;
    return (n == 0 ||
            (plm_tstr_offset(r, s, start, &from) && plm_tstr_offset(r, s, start + n, &to))) &&
           plm_tstr_val(plm_tstr_sub(r, s, from, to - from), ret);
}

bool plm_tpl_getslice(struct plm_trun *r, const struct plm_tval *obj,
                      const struct plm_tval bound[3], struct plm_tval *ret)
{
    const bool text = obj->kind == PLM_T_STR;
    struct plm_tlist *items;
    struct range3 x = {0};
    size_t n;
    if (obj->kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, obj);
    if (!text && obj->kind != PLM_T_LIST && obj->kind != PLM_T_TUPLE && obj->kind != PLM_T_RANGE)
        return plm_tpl_fail(r, "%s can not be sliced", plm_tval_type(obj));
    if (!plm_tpl_len(obj, &n) || !slice_indices(r, bound, n, &x))
        return false;
    if (text && x.step == 1)
        return substring(r, obj->str, (size_t)x.start, x.n, ret);
    struct plm_tlist *list = plm_tlist_new(r, x.n);
    struct plm_tstr *nothing = plm_tstr_copyz(r, "", PLM_ORIGIN_TEMPLATE);
    if (list == NULL || nothing == NULL || !plm_tpl_as_list(r, obj, &items) ||
        !plm_tpl_step(r, x.n / 8))
        return false;
    for (size_t i = 0; i < x.n; i++)
        list->v[list->n++] = items->v[x.start + (int64_t)i * x.step];
    list->user = items->user;
    list->parts = items->parts;
    if (!plm_tlist_val(list, obj->kind == PLM_T_TUPLE ? PLM_T_TUPLE : PLM_T_LIST, ret))
        return false;
    const struct plm_tval characters = *ret;
    return !text || plm_tpl_join(r, nothing, &characters, NULL, true, ret);
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
    default: break;
    }
    struct plm_titer *it;
    struct plm_tval v;
    if (!plm_tpl_iterable(in))
        return plm_tpl_fail(r, "'in' does not take %s", plm_tval_type(in));
    if (!plm_titer_init(r, in, &it))
        return false;
    while (!*ret && plm_titer_next(r, it, &v))
        if (!plm_tval_eq(r, &v, item, ret))
            return false;
    return r->status == PLM_OK;
}
