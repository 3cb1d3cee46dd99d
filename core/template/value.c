// SPDX-License-Identifier: Apache-2.0
// What values are: types, truth, equality, order, hashes.
#include "core/template/value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/base/utf8.h"
#include "core/template/run.h"

enum {
    NEST_MAX = 200, // of lists and objects in one another, for comparing and printing
};

const char *plm_tval_type(const struct plm_tval *v)
{
    static const char *const names[] = {
        [PLM_T_UNSET] = "nothing", [PLM_T_UNDEF] = "undefined", [PLM_T_NONE] = "none",
        [PLM_T_BOOL] = "bool",     [PLM_T_INT] = "int",         [PLM_T_UINT] = "int",
        [PLM_T_FLOAT] = "float",   [PLM_T_STR] = "string",      [PLM_T_LIST] = "list",
        [PLM_T_TUPLE] = "tuple",   [PLM_T_DICT] = "object",     [PLM_T_VIEW] = "view",
        [PLM_T_RANGE] = "range",   [PLM_T_ITER] = "generator",  [PLM_T_FUNC] = "function",
        [PLM_T_METHOD] = "method", [PLM_T_MACRO] = "macro",     [PLM_T_SPACE] = "namespace",
        [PLM_T_LOOP] = "loop",
    };
    return names[v->kind];
}

bool plm_tval_truth(const struct plm_tval *v)
{
    switch (v->kind) {
    case PLM_T_UNSET:
    case PLM_T_UNDEF:
    case PLM_T_NONE: return false;
    case PLM_T_BOOL: return v->b;
    case PLM_T_INT: return v->i != 0;
    case PLM_T_FLOAT: return v->d != 0.0;
    case PLM_T_STR: return v->str->len > 0;
    case PLM_T_LIST:
    case PLM_T_TUPLE: return v->list->n > 0;
    case PLM_T_DICT: return v->dict->live > 0;
    case PLM_T_VIEW: return v->view->dict->live > 0;
    case PLM_T_RANGE: return v->range->n > 0;
    default: return true;
    }
}

static bool enter(struct plm_trun *r)
{
    if (++r->depth > r->limits.depth + NEST_MAX)
        return plm_tpl_fail_limit(r, "depth");
    return plm_tpl_step(r, 1);
}

static bool eq_lists(struct plm_trun *r, const struct plm_tlist *a, const struct plm_tlist *b,
                     bool *ret)
{
    *ret = a->n == b->n;
    for (size_t i = 0; *ret && i < a->n && i < b->n; i++)
        if (!plm_tval_eq(r, &a->v[i], &b->v[i], ret))
            return false;
    return true;
}

static bool eq_dicts(struct plm_trun *r, const struct plm_tdict *a, const struct plm_tdict *b,
                     bool *ret)
{
    *ret = a->live == b->live;
    for (size_t i = 0; *ret && i < a->n; i++) {
        struct plm_tval *other;
        if (a->entries[i].key.kind == PLM_T_UNSET)
            continue;
        if (!plm_tdict_get(r, b, &a->entries[i].key, &other))
            return false;
        *ret = other != NULL;
        if (other != NULL && !plm_tval_eq(r, &a->entries[i].value, other, ret))
            return false;
    }
    return true;
}

static int cmp_numbers(const struct plm_tval *a, const struct plm_tval *b, bool *nan)
{
    if (a->kind != PLM_T_FLOAT && b->kind != PLM_T_FLOAT) {
        __int128 x = plm_tnum_whole(a), y = plm_tnum_whole(b);
        return x < y ? -1 : x > y;
    }
    // long double holds every integer exactly where it has 64 bits of mantissa; elsewhere the last
    // digits of huge integers compare as rounded.
    long double x = a->kind == PLM_T_FLOAT ? a->d : (long double)plm_tnum_whole(a);
    long double y = b->kind == PLM_T_FLOAT ? b->d : (long double)plm_tnum_whole(b);
    *nan = isnan(x) || isnan(y);
    return x < y ? -1 : x > y;
}

static bool eq_inner(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b,
                     bool *ret)
{
    if (plm_tval_is_number(a) && plm_tval_is_number(b)) {
        bool nan = false;
        int c = cmp_numbers(a, b, &nan);
        *ret = c == 0 && !nan;
        return true;
    }
    *ret = false;
    if (a->kind != b->kind)
        return true;
    switch (a->kind) {
    case PLM_T_UNSET:
    case PLM_T_UNDEF:
    case PLM_T_NONE: *ret = true; return true;
    case PLM_T_STR:
        *ret = plm_slice_eq(plm_tstr_slice(a->str), plm_tstr_slice(b->str));
        return plm_tpl_work(r, *ret ? a->str->len : 0);
    case PLM_T_LIST:
    case PLM_T_TUPLE: return eq_lists(r, a->list, b->list, ret);
    case PLM_T_DICT: return eq_dicts(r, a->dict, b->dict, ret);
    case PLM_T_RANGE:
        *ret = a->range->n == b->range->n &&
               (a->range->n == 0 || (a->range->start == b->range->start &&
                                     (a->range->n == 1 || a->range->step == b->range->step)));
        return true;
    case PLM_T_METHOD: // two look-ups of the same method are equal, as in Python
        *ret = a->method->func == b->method->func && a->method->self.kind == b->method->self.kind &&
               a->method->self.str == b->method->self.str;
        return true;
    default: *ret = a->str == b->str; return true; // identity
    }
}

bool plm_tval_eq(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b, bool *ret)
{
    bool ok = enter(r) && eq_inner(r, a, b, ret);
    r->depth--;
    return ok;
}

static bool cmp_inner(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b,
                      int *ret, bool *ret_nan, const char *op)
{
    if (plm_tval_is_number(a) && plm_tval_is_number(b)) {
        *ret = cmp_numbers(a, b, ret_nan);
        return true;
    }
    if (a->kind == PLM_T_STR && b->kind == PLM_T_STR) {
        *ret = plm_tstr_cmp(a->str, b->str);
        return plm_tpl_work(r, a->str->len < b->str->len ? a->str->len : b->str->len);
    }
    if (a->kind == b->kind && (a->kind == PLM_T_LIST || a->kind == PLM_T_TUPLE)) {
        for (size_t i = 0; i < a->list->n && i < b->list->n; i++) {
            bool eq;
            if (!plm_tval_eq(r, &a->list->v[i], &b->list->v[i], &eq))
                return false;
            if (!eq)
                return plm_tval_cmp(r, &a->list->v[i], &b->list->v[i], ret, ret_nan, op);
        }
        *ret = a->list->n < b->list->n ? -1 : a->list->n > b->list->n;
        return true;
    }
    if (a->kind == PLM_T_UNDEF || b->kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, a->kind == PLM_T_UNDEF ? a : b);
    return plm_tpl_fail(r, "'%s' does not order %s and %s", op, plm_tval_type(a), plm_tval_type(b));
}

bool plm_tval_cmp(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b, int *ret,
                  bool *ret_nan, const char *op)
{
    bool ok = enter(r) && cmp_inner(r, a, b, ret, ret_nan, op);
    r->depth--;
    return ok;
}

uint64_t plm_tstr_hash(struct plm_slice s)
{
    return XXH3_64bits(s.ptr, s.len);
}

bool plm_tval_hashable(const struct plm_tval *v)
{
    if (v->kind == PLM_T_TUPLE) {
        for (size_t i = 0; i < v->list->n; i++)
            if (!plm_tval_hashable(&v->list->v[i]))
                return false;
        return true;
    }
    return v->kind != PLM_T_LIST && v->kind != PLM_T_DICT && v->kind != PLM_T_VIEW;
}

bool plm_tval_hash(struct plm_trun *r, const struct plm_tval *v, uint64_t *ret)
{
    switch (v->kind) {
    case PLM_T_NONE:
    case PLM_T_UNDEF: *ret = v->kind; return true;
    case PLM_T_BOOL:
    case PLM_T_INT:
    case PLM_T_UINT: *ret = (uint64_t)plm_tnum_whole(v) * 0x9E3779B97F4A7C15U; return true;
    case PLM_T_FLOAT: {
        // Equal numbers of different types must meet.
        struct plm_tval i;
        if (v->d >= -0x1p63 && v->d < 0x1p64 && v->d == trunc(v->d) &&
            plm_tnum_fits((__int128)v->d, &i))
            return plm_tval_hash(r, &i, ret);
        *ret = XXH3_64bits(&v->d, sizeof(v->d));
        return true;
    }
    case PLM_T_STR:
        *ret = plm_tstr_hash(plm_tstr_slice(v->str));
        return plm_tpl_work(r, v->str->len);
    case PLM_T_TUPLE:
        *ret = 0x345678;
        for (size_t i = 0; i < v->list->n; i++) {
            uint64_t h;
            if (!plm_tpl_step(r, 1) || !plm_tval_hash(r, &v->list->v[i], &h))
                return false;
            *ret = (*ret ^ h) * 0x100000001B3U;
        }
        return true;
    case PLM_T_LIST:
    case PLM_T_DICT:
    case PLM_T_VIEW: return plm_tpl_fail(r, "%s can not be a key", plm_tval_type(v));
    default: *ret = (uint64_t)(uintptr_t)v->str * 0x9E3779B97F4A7C15U; return true;
    }
}
