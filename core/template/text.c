// SPDX-License-Identifier: Apache-2.0
// Operations on text that filters and methods share.
#include "core/template/text.h"

#include <string.h>

bool plm_text_casing(struct plm_trun *r, struct plm_tcall *c)
{
    return plm_tpl_casing(r, c->self.str, (enum plm_tcasing)c->func->aux, c->ret);
}

// Whether a character is in a set; in white space where set is NULL.
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

bool plm_text_strip(struct plm_trun *r, struct plm_tcall *c)
{
    const struct plm_tstr *set = c->a[0].kind == PLM_T_STR ? c->a[0].str : NULL;
    struct plm_tstr *s = c->self.str;
    const char *begin = plm_tstr_ptr(s);
    const char *from = begin;
    const char *to = begin + s->len;
    for (int side = 1; side <= 2; side++) {
        while ((c->func->aux & side) && from < to) {
            uint32_t cp;
            size_t n = side == 1 ? plm_tstr_next(from, to, &cp) : plm_tstr_prev(from, to, &cp);
            if (set != NULL && !plm_tpl_work(r, set->len))
                return false;
            if (!in_set(cp, set))
                break;
            from += side == 1 ? n : 0;
            to -= side == 2 ? n : 0;
        }
    }
    return plm_tpl_work(r, s->len - (size_t)(to - from)) &&
           plm_tstr_val(plm_tstr_sub(r, s, (size_t)(from - begin), (size_t)(to - from)), c->ret);
}

bool plm_text_replace(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s = c->self.str, *old = c->a[0].str, *new = c->a[1].str;
    uint64_t left = c->a[2].i < 0 ? UINT64_MAX : (uint64_t)c->a[2].i;
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
    return plm_tbuf_add_part(r, buf, s, from, s->len - from) && plm_tbuf_value(r, buf, c->ret);
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
        bool ok = i == pad || (fill == NULL ? plm_tbuf_addz(r, buf, " ", PLM_ORIGIN_TEMPLATE)
                                            : plm_tbuf_add_str(r, buf, fill));
        if (!ok)
            return false;
    }
    return plm_tpl_step(r, (uint64_t)pad / 8) && plm_tbuf_value(r, buf, ret);
}

bool plm_text_pad(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *fill = c->a[1].kind == PLM_T_STR ? c->a[1].str : NULL;
    if (fill != NULL && plm_tstr_chars(fill) != 1)
        return plm_tpl_fail(r, "%s(): the fill must be one character", c->func->name);
    return plm_tpl_pad(r, c->self.str, c->a[0].i, fill, c->func->aux, c->ret);
}

// Adds the bytes [from, to) of a string to a list.
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

bool plm_tpl_join(struct plm_trun *r, struct plm_tstr *sep, const struct plm_tval *items,
                  const struct plm_tlist *path, bool strict, struct plm_tval *ret)
{
    struct plm_titer *it;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL || !plm_titer_init(r, items, &it))
        return false;
    struct plm_tval v;
    for (bool first = true; plm_titer_next(r, it, &v); first = false) {
        if (!plm_tpl_follow(r, path, NULL, &v))
            return false;
        if (strict && v.kind != PLM_T_STR)
            return plm_tpl_fail(r, "join() needs strings, not %s", plm_tval_type(&v));
        if ((!first && !plm_tbuf_add_str(r, buf, sep)) || !plm_tval_print(r, buf, &v))
            return false;
    }
    if (r->status != PLM_OK)
        return false;
    return plm_tbuf_value(r, buf, ret);
}

static bool split_at(struct plm_trun *r, struct plm_tstr *s, struct plm_slice sep, uint64_t max,
                     bool from_right, struct plm_tlist *list)
{
    size_t from = 0;
    size_t to = s->len;
    for (; max > 0; max--) {
        size_t hit;
        if (from_right ? !plm_tstr_rfind(r, s, sep, to, &hit)
                       : (hit = plm_tstr_find(s, sep, from), false))
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
    if (!add_sub(r, list, s, from, to))
        return false;
    if (from_right)
        plm_tlist_reverse(list);
    return true;
}

// Where the run of white space, or of other characters, at `at` ends.
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

static bool split_space(struct plm_trun *r, struct plm_tstr *s, uint64_t max,
                        struct plm_tlist *list)
{
    for (size_t at = skip_class(s, 0, true); at < s->len; max--) {
        size_t end = max == 0 ? s->len : skip_class(s, at, false);
        if (!add_sub(r, list, s, at, end))
            return false;
        at = skip_class(s, end, true);
    }
    return true;
}

bool plm_tpl_split(struct plm_trun *r, struct plm_tstr *s, const struct plm_tstr *sep, int64_t max,
                   bool from_right, struct plm_tval *ret)
{
    struct plm_tlist *list = plm_tlist_new(r, 0);
    uint64_t n = max < 0 ? UINT64_MAX : (uint64_t)max;
    if (list == NULL || !plm_tpl_work(r, s->len))
        return false;
    list->user = plm_tstr_any_user(s);
    if (sep == NULL && from_right && max >= 0)
        return plm_tpl_fail(r, "rsplit() at white space with a maximum is not supported");
    if (sep != NULL && sep->len == 0)
        return plm_tpl_fail(r, "split() by an empty string");
    return (sep == NULL ? split_space(r, s, n, list)
                        : split_at(r, s, plm_tstr_slice(sep), n, from_right, list)) &&
           plm_tlist_val(list, PLM_T_LIST, ret);
}
