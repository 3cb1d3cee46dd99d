// SPDX-License-Identifier: Apache-2.0
// Text operations that filters and methods share.
#include <string.h>

#include "core/template/run.h"

static bool in_set(uint32_t cp, const struct plm_tstr *set)
{
    if (set == NULL)
        return plm_cp_is_space(cp);
    const char *p = plm_tstr_ptr(set);
    const char *end = p + set->len;
    while (p < end) {
        uint32_t c;
        p += plm_tstr_next(p, end, &c);
        if (c == cp)
            return true;
    }
    return false;
}

bool plm_tpl_strip(struct plm_trun *r, struct plm_tstr *s, const struct plm_tval *chars, int sides,
                   struct plm_tval *ret)
{
    struct plm_tstr *set = NULL;
    if (chars->kind != PLM_T_UNSET && chars->kind != PLM_T_NONE && !plm_tpl_arg_str(r, chars, &set))
        return false;
    const char *begin = plm_tstr_ptr(s);
    const char *from = begin;
    const char *to = begin + s->len;
    uint32_t cp;
    while ((sides & 1) && from < to) {
        size_t n = plm_tstr_next(from, to, &cp);
        if (set != NULL && !plm_tpl_work(r, set->len))
            return false;
        if (!in_set(cp, set))
            break;
        from += n;
    }
    while ((sides & 2) && to > from) {
        size_t n = plm_tstr_prev(from, to, &cp);
        if (set != NULL && !plm_tpl_work(r, set->len))
            return false;
        if (!in_set(cp, set))
            break;
        to -= n;
    }
    size_t taken = s->len - (size_t)(to - from);
    return plm_tpl_work(r, taken) &&
           plm_tstr_val(plm_tstr_sub(r, s, (size_t)(from - begin), (size_t)(to - from)), ret);
}

bool plm_tpl_replace(struct plm_trun *r, struct plm_tstr *s, struct plm_tstr *old,
                     struct plm_tstr *new, int64_t count, struct plm_tval *ret)
{
    uint64_t left = count < 0 ? UINT64_MAX : (uint64_t)count;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    size_t from = 0; // up to here everything is in buf
    size_t at = 0;   // the search goes on from here
    if (buf == NULL || !plm_tpl_work(r, s->len))
        return false;
    for (; left > 0; left--) {
        size_t hit = plm_tstr_find(s, plm_tstr_slice(old), at);
        if (hit == SIZE_MAX)
            break;
        if (!plm_tpl_step(r, 1) || !plm_tbuf_add_part(r, buf, s, from, hit - from) ||
            !plm_tbuf_add_str(r, buf, new))
            return false;
        from = hit + old->len;
        at = from;
        if (old->len > 0)
            continue;
        if (from == s->len) // an empty pattern matches before each character and at the end
            break;
        uint32_t cp;
        const char *p = plm_tstr_ptr(s);
        at += plm_tstr_next(p + from, p + s->len, &cp);
    }
    if (from == 0 && buf->len == 0)
        return plm_tstr_val(plm_tstr_sub(r, s, 0, s->len), ret);
    return plm_tbuf_add_part(r, buf, s, from, s->len - from) && plm_tbuf_value(r, buf, ret);
}

static bool add_sub(struct plm_trun *r, struct plm_tlist *list, const struct plm_tstr *s,
                    size_t from, size_t to)
{
    struct plm_tval v;
    return plm_tpl_step(r, 1) && plm_tstr_val(plm_tstr_sub(r, s, from, to - from), &v) &&
           plm_tlist_add(r, list, v);
}

bool plm_tpl_splitlines(struct plm_trun *r, struct plm_tstr *s, bool keep_ends,
                        struct plm_tlist **ret)
{
    struct plm_tlist *list = plm_tlist_new(r, 0);
    if (list == NULL || !plm_tpl_work(r, s->len))
        return false;
    const char *p = plm_tstr_ptr(s);
    size_t from = 0;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        size_t n = plm_tstr_next(p + i, p + s->len, &cp);
        bool end = (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 ||
                   cp == 0x2028 || cp == 0x2029;
        if (!end) {
            i += n;
            continue;
        }
        if (cp == '\r' && i + 1 < s->len && p[i + 1] == '\n')
            n = 2;
        if (!add_sub(r, list, s, from, keep_ends ? i + n : i))
            return false;
        i += n;
        from = i;
    }
    if (from < s->len && !add_sub(r, list, s, from, s->len))
        return false;
    *ret = list;
    return true;
}

bool plm_tpl_pad(struct plm_trun *r, struct plm_tstr *s, int64_t width, struct plm_tstr *fill,
                 int how, struct plm_tval *ret)
{
    int64_t n = (int64_t)plm_tstr_chars(s);
    if (width <= n)
        return plm_tstr_val(plm_tstr_sub(r, s, 0, s->len), ret);
    if ((uint64_t)(width - n) > r->limits.output_bytes)
        return plm_tpl_fail_limit(r, "output bytes");
    int64_t pad = width - n;
    // str.center() puts the odd one to the left when the width is odd; format() to the right.
    int64_t left = how == '>'   ? pad
                   : how == '<' ? 0
                   : how == '^' ? pad / 2
                                : pad / 2 + (pad & width & 1);
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL)
        return false;
    for (int64_t i = 0; i <= pad; i++) {
        if (i == left && !plm_tbuf_add_str(r, buf, s))
            return false;
        bool ok = i == pad || (fill == NULL ? plm_tbuf_addz(r, buf, " ", false)
                                            : plm_tbuf_add_str(r, buf, fill));
        if (!ok)
            return false;
    }
    return plm_tpl_step(r, (uint64_t)pad / 8) && plm_tbuf_value(r, buf, ret);
}

bool plm_tpl_join(struct plm_trun *r, struct plm_tstr *sep, const struct plm_tval *items,
                  const struct plm_tlist *path, bool strict, struct plm_tval *ret)
{
    struct plm_titer *it;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL || !plm_titer_init(r, items, &it))
        return false;
    for (bool first = true;; first = false) {
        struct plm_tval v;
        bool done;
        if (!plm_titer_next(r, it, &v, &done))
            return false;
        if (done)
            break;
        for (size_t i = 0; path != NULL && i < path->n; i++)
            if (!plm_tpl_getitem(r, &v, &path->v[i], &v))
                return false;
        if (strict && v.kind != PLM_T_STR)
            return plm_tpl_fail(r, "join() needs strings, not %s", plm_tval_type(&v));
        if ((!first && !plm_tbuf_add_str(r, buf, sep)) || !plm_tval_print(r, buf, &v))
            return false;
    }
    return plm_tbuf_value(r, buf, ret);
}

// Offset of the last needle that ends at or before `to`; SIZE_MAX when there is none.
static bool find_last(struct plm_trun *r, const struct plm_tstr *s, struct plm_slice needle,
                      size_t to, size_t *ret)
{
    const char *p = plm_tstr_ptr(s);
    size_t cost = 0;
    *ret = SIZE_MAX;
    for (size_t i = needle.len > to ? 0 : to - needle.len + 1; i-- > 0;) {
        if (needle.len == 0 || memcmp(p + i, needle.ptr, needle.len) == 0) {
            *ret = i;
            break;
        }
        cost += needle.len;
        if (cost > 65536) { // often enough for the limit, rarely enough for the speed
            if (!plm_tpl_work(r, cost))
                return false;
            cost = 0;
        }
    }
    return true;
}

bool plm_tpl_rfind(struct plm_trun *r, const struct plm_tstr *s, const struct plm_tstr *needle,
                   size_t to, size_t *ret)
{
    return find_last(r, s, plm_tstr_slice(needle), to, ret);
}

static void reverse(struct plm_tlist *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        struct plm_tval v = list->v[i];
        list->v[i] = list->v[list->n - 1 - i];
        list->v[list->n - 1 - i] = v;
    }
}

static bool split_at(struct plm_trun *r, struct plm_tstr *s, struct plm_slice sep, uint64_t max,
                     bool from_right, struct plm_tlist *list)
{
    size_t from = 0;
    size_t to = s->len;
    for (; max > 0; max--) {
        size_t hit = SIZE_MAX;
        if (!from_right)
            hit = plm_tstr_find(s, sep, from);
        else if (!find_last(r, s, sep, to, &hit))
            return false;
        if (hit == SIZE_MAX)
            break;
        if (!(from_right ? add_sub(r, list, s, hit + sep.len, to) : add_sub(r, list, s, from, hit)))
            return false;
        if (from_right)
            to = hit;
        else
            from = hit + sep.len;
    }
    return add_sub(r, list, s, from, to);
}

static size_t skip_class(const struct plm_tstr *s, size_t at, bool space)
{
    const char *p = plm_tstr_ptr(s);
    while (at < s->len) {
        uint32_t cp;
        size_t n = plm_tstr_next(p + at, p + s->len, &cp);
        if (plm_cp_is_space(cp) != space)
            break;
        at += n;
    }
    return at;
}

static size_t skip_back(const struct plm_tstr *s, size_t at, bool space)
{
    const char *p = plm_tstr_ptr(s);
    while (at > 0) {
        uint32_t cp;
        size_t n = plm_tstr_prev(p, p + at, &cp);
        if (plm_cp_is_space(cp) != space)
            break;
        at -= n;
    }
    return at;
}

static bool split_space(struct plm_trun *r, struct plm_tstr *s, uint64_t max, bool from_right,
                        struct plm_tlist *list)
{
    size_t from = skip_class(s, 0, true);
    size_t to = from_right ? skip_back(s, s->len, true) : s->len;
    if (from_right)
        from = 0;
    while (from < to) {
        bool last = max == 0;
        size_t cut;
        if (from_right) {
            cut = last ? 0 : skip_back(s, to, false);
            if (!add_sub(r, list, s, cut, to))
                return false;
            to = last ? 0 : skip_back(s, cut, true);
        } else {
            cut = last ? skip_back(s, s->len, true) : skip_class(s, from, false);
            if (!add_sub(r, list, s, from, last ? s->len : cut))
                return false;
            from = last ? to : skip_class(s, cut, true);
        }
        max--;
    }
    return true;
}

bool plm_tpl_split(struct plm_trun *r, struct plm_tstr *s, const struct plm_tval *sep, int64_t max,
                   bool from_right, struct plm_tval *ret)
{
    struct plm_tlist *list = plm_tlist_new(r, 0);
    uint64_t n = max < 0 ? UINT64_MAX : (uint64_t)max;
    struct plm_tstr *by;
    if (list == NULL || !plm_tpl_work(r, s->len))
        return false;
    list->user = plm_tstr_any_user(s);
    if (sep->kind == PLM_T_UNSET || sep->kind == PLM_T_NONE) {
        if (!split_space(r, s, n, from_right, list))
            return false;
    } else {
        if (!plm_tpl_arg_str(r, sep, &by))
            return false;
        if (by->len == 0)
            return plm_tpl_fail(r, "split() by an empty string");
        if (!split_at(r, s, plm_tstr_slice(by), n, from_right, list))
            return false;
    }
    if (from_right)
        reverse(list);
    return plm_tlist_val(list, PLM_T_LIST, ret);
}
