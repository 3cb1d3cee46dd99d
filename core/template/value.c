// SPDX-License-Identifier: Apache-2.0
// What values are to each other, and how they print.
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

// Python's choice: single quotes unless the text has some and no double ones.
static char quote_of(const struct plm_tstr *s)
{
    const char *p = plm_tstr_ptr(s);
    bool single = s->len > 0 && memchr(p, '\'', s->len) != NULL;
    return single && memchr(p, '"', s->len) == NULL ? '"' : '\'';
}

static void escape_cp(uint32_t cp, char out[12])
{
    switch (cp) {
    case '\n': strcpy(out, "\\n"); return;
    case '\r': strcpy(out, "\\r"); return;
    case '\t': strcpy(out, "\\t"); return;
    default: break;
    }
    if (cp <= 0xFF)
        snprintf(out, 12, "\\x%02x", (unsigned)cp);
    else if (cp <= 0xFFFF)
        snprintf(out, 12, "\\u%04x", (unsigned)cp);
    else
        snprintf(out, 12, "\\U%08x", (unsigned)cp);
}

static bool repr_str(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tstr *s)
{
    const char q[2] = {quote_of(s), '\0'};
    bool user = plm_tstr_any_user(s);
    if ((s->markup && !plm_tbuf_addz(r, buf, "Markup(", user)) || !plm_tbuf_addz(r, buf, q, user))
        return false;
    size_t from = 0;
    for (size_t i = 0; i < s->len;) {
        const char *p = plm_tstr_ptr(s);
        uint32_t cp = (unsigned char)p[i];
        size_t n = cp < 0x80 ? 1 : plm_tstr_next(p + i, p + s->len, &cp);
        char esc[12] = "";
        if (cp == '\\' || cp == (uint32_t)q[0])
            snprintf(esc, sizeof(esc), "\\%c", (char)cp);
        else if (!plm_cp_is_printable(cp))
            escape_cp(cp, esc);
        if (esc[0] != '\0') {
            if (!plm_tbuf_add_part(r, buf, s, from, i - from) ||
                !plm_tbuf_addz(r, buf, esc, plm_tstr_origin_at(s, i)))
                return false;
            from = i + n;
        }
        i += n;
    }
    return plm_tbuf_add_part(r, buf, s, from, s->len - from) && plm_tbuf_addz(r, buf, q, user) &&
           (!s->markup || plm_tbuf_addz(r, buf, ")", user));
}

static bool repr_list(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v)
{
    const struct plm_tlist *list = v->list;
    bool tuple = v->kind == PLM_T_TUPLE;
    bool user = list->user;
    if (list->parts)
        r->printed_parts = true;
    if (!plm_tbuf_addz(r, buf, tuple ? "(" : "[", user))
        return false;
    for (size_t i = 0; i < list->n; i++)
        if ((i > 0 && !plm_tbuf_addz(r, buf, ", ", user)) ||
            !plm_tval_repr(r, buf, &list->v[i], user))
            return false;
    if (tuple && list->n == 1 && !plm_tbuf_addz(r, buf, ",", user))
        return false;
    return plm_tbuf_addz(r, buf, tuple ? ")" : "]", user);
}

static bool repr_dict(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tdict *dict)
{
    bool user = dict->user;
    bool first = true;
    if (dict->args)
        r->printed_args = true;
    if (!plm_tbuf_addz(r, buf, "{", user))
        return false;
    for (size_t i = 0; i < dict->n; i++) {
        const struct plm_tentry *e = &dict->entries[i];
        if (e->key.kind == PLM_T_UNSET)
            continue;
        if ((!first && !plm_tbuf_addz(r, buf, ", ", user)) ||
            !plm_tval_repr(r, buf, &e->key, user) || !plm_tbuf_addz(r, buf, ": ", user) ||
            !plm_tval_repr(r, buf, &e->value, user))
            return false;
        first = false;
    }
    return plm_tbuf_addz(r, buf, "}", user);
}

static bool repr_view(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v)
{
    static const char *const names[] = {"dict_keys(", "dict_values(", "dict_items("};
    struct plm_tlist *list;
    struct plm_tval as_list = {.kind = PLM_T_LIST};
    if (!plm_tpl_to_list(r, v, &list))
        return false;
    as_list.list = list;
    return plm_tbuf_addz(r, buf, names[v->view->what], list->user) &&
           plm_tval_repr(r, buf, &as_list, list->user) && plm_tbuf_addz(r, buf, ")", list->user);
}

static bool repr_number(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v,
                        bool user)
{
    char text[40];
    if (v->kind == PLM_T_FLOAT)
        plm_tnum_repr(v->d, text);
    else if (v->kind == PLM_T_UINT)
        snprintf(text, sizeof(text), "%llu", (unsigned long long)v->u);
    else
        snprintf(text, sizeof(text), "%lld", (long long)v->i);
    return plm_tbuf_addz(r, buf, text, user);
}

static bool repr_other(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v,
                       bool user)
{
    char text[96];
    const struct plm_trange *range = v->range;
    if (v->kind == PLM_T_RANGE && range->step == 1)
        snprintf(text, sizeof(text), "range(%lld, %lld)", (long long)range->start,
                 (long long)range->stop);
    else if (v->kind == PLM_T_RANGE)
        snprintf(text, sizeof(text), "range(%lld, %lld, %lld)", (long long)range->start,
                 (long long)range->stop, (long long)range->step);
    else
        snprintf(text, sizeof(text), "<%s>", plm_tval_type(v));
    return plm_tbuf_addz(r, buf, text, user);
}

static bool repr_inner(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v,
                       bool user)
{
    switch (v->kind) {
    case PLM_T_UNSET:
    case PLM_T_UNDEF: return plm_tbuf_addz(r, buf, "Undefined", user);
    case PLM_T_NONE: return plm_tbuf_addz(r, buf, "None", user);
    case PLM_T_BOOL: return plm_tbuf_addz(r, buf, v->b ? "True" : "False", user);
    case PLM_T_INT:
    case PLM_T_UINT:
    case PLM_T_FLOAT: return repr_number(r, buf, v, user);
    case PLM_T_STR: return repr_str(r, buf, v->str);
    case PLM_T_LIST:
    case PLM_T_TUPLE: return repr_list(r, buf, v);
    case PLM_T_DICT: return repr_dict(r, buf, v->dict);
    case PLM_T_VIEW: return repr_view(r, buf, v);
    default: return repr_other(r, buf, v, user);
    }
}

bool plm_tval_repr(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v, bool user)
{
    bool ok = enter(r) && repr_inner(r, buf, v, user);
    r->depth--;
    return ok;
}

bool plm_tval_print(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v)
{
    if (v->kind == PLM_T_STR)
        return plm_tbuf_add_str(r, buf, v->str);
    if (v->kind == PLM_T_UNDEF)
        return true;
    return plm_tval_repr(r, buf, v, false);
}

bool plm_tval_text(struct plm_trun *r, struct plm_tval *v)
{
    if (v->kind == PLM_T_STR)
        return true;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    return buf != NULL && plm_tval_print(r, buf, v) && plm_tbuf_value(r, buf, v);
}
