// SPDX-License-Identifier: Apache-2.0
// Methods of strings.
#include <string.h>

#include <utf8proc.h>

#include "core/template/filters.h"

static bool m_casing(struct plm_trun *r, struct plm_tcall *c)
{
    return plm_tpl_casing(r, c->self.str, (enum plm_tcasing)c->func->aux, c->ret);
}

static bool m_strip(struct plm_trun *r, struct plm_tcall *c)
{
    return plm_tpl_strip(r, c->self.str, &c->a[0], c->func->aux, c->ret);
}

static bool m_split(struct plm_trun *r, struct plm_tcall *c)
{
    int64_t max;
    return plm_tpl_arg_int(r, &c->a[1], -1, &max) &&
           plm_tpl_split(r, c->self.str, &c->a[0], max, c->func->aux == 1, c->ret);
}

static bool m_splitlines(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    return plm_tpl_splitlines(r, c->self.str, plm_tval_truth(&c->a[0]), &list) &&
           plm_tlist_val(list, PLM_T_LIST, c->ret);
}

static bool m_replace(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *old, *new;
    int64_t count;
    return plm_tpl_arg_str(r, &c->a[0], &old) && plm_tpl_arg_str(r, &c->a[1], &new) &&
           plm_tpl_arg_int(r, &c->a[2], -1, &count) &&
           plm_tpl_replace(r, c->self.str, old, new, count, c->ret);
}

static bool m_join(struct plm_trun *r, struct plm_tcall *c)
{
    return plm_tpl_join(r, c->self.str, &c->a[0], NULL, true, c->ret);
}

static bool m_format(struct plm_trun *r, struct plm_tcall *c)
{
    return plm_tpl_brace_format(r, c->self.str, c->args, c->ret);
}

// The part of the string between the characters a[1] and a[2]: byte offsets, and the number of
// characters before it. Returns false when start lies beyond the end.
struct window {
    size_t from;
    size_t to;
    size_t first_char;
    bool valid;
};

static bool window_of(struct plm_trun *r, struct plm_tcall *c, struct window *ret)
{
    int64_t n = (int64_t)plm_tstr_chars(c->self.str);
    int64_t start, end;
    if (!plm_tpl_arg_int(r, &c->a[1], 0, &start) || !plm_tpl_arg_int(r, &c->a[2], n, &end) ||
        !plm_tpl_work(r, c->self.str->len))
        return false;
    start = start < 0 ? start + n : start;
    end = end < 0 ? end + n : end;
    start = start < 0 ? 0 : start;
    end = end < 0 ? 0 : end > n ? n : end;
    ret->valid = start <= n && start <= end;
    if (!ret->valid)
        return true;
    ret->first_char = (size_t)start;
    return plm_tstr_offset(r, c->self.str, (size_t)start, &ret->from) &&
           plm_tstr_offset(r, c->self.str, (size_t)end, &ret->to);
}

static bool affix_matches(const struct plm_tstr *s, const struct window *w,
                          const struct plm_tstr *affix, bool at_end)
{
    if (!w->valid || affix->len > w->to - w->from)
        return false;
    size_t at = at_end ? w->to - affix->len : w->from;
    return affix->len == 0 || memcmp(plm_tstr_ptr(s) + at, plm_tstr_ptr(affix), affix->len) == 0;
}

static bool m_affix(struct plm_trun *r, struct plm_tcall *c)
{
    struct window w;
    struct plm_tstr *affix;
    bool found = false;
    bool tuple = c->a[0].kind == PLM_T_TUPLE;
    size_t n = tuple ? c->a[0].list->n : 1;
    if (c->a[1].kind == PLM_T_UNSET && c->a[2].kind == PLM_T_UNSET)
        w = (struct window){0, c->self.str->len, 0, true};
    else if (!window_of(r, c, &w))
        return false;
    for (size_t i = 0; !found && i < n; i++) {
        if (!plm_tpl_arg_str(r, tuple ? &c->a[0].list->v[i] : &c->a[0], &affix) ||
            !plm_tpl_work(r, affix->len))
            return false;
        found = affix_matches(c->self.str, &w, affix, c->func->aux == 1);
    }
    *c->ret = plm_tval_bool(found);
    return true;
}

static size_t chars_between(const struct plm_tstr *s, size_t from, size_t to)
{
    const char *p = plm_tstr_ptr(s);
    size_t n = 0;
    for (; from < to; n++) {
        uint32_t cp;
        from += plm_tstr_next(p + from, p + s->len, &cp);
    }
    return n;
}

enum { FIND_RIGHT = 1, FIND_MUST = 2 };

static bool m_find(struct plm_trun *r, struct plm_tcall *c)
{
    struct window w;
    struct plm_tstr *needle;
    size_t hit = SIZE_MAX;
    if (!plm_tpl_arg_str(r, &c->a[0], &needle) || !window_of(r, c, &w))
        return false;
    if (w.valid && (c->func->aux & FIND_RIGHT)) {
        if (!plm_tpl_rfind(r, c->self.str, needle, w.to, &hit))
            return false;
    } else if (w.valid) {
        hit = plm_tstr_find(c->self.str, plm_tstr_slice(needle), w.from);
    }
    bool found = hit != SIZE_MAX && hit >= w.from && hit + needle->len <= w.to;
    if (!found && (c->func->aux & FIND_MUST))
        return plm_tpl_fail(r, "%s(): not found", c->func->name);
    *c->ret = plm_tval_int(found ? (int64_t)(w.first_char + chars_between(c->self.str, w.from, hit))
                                 : -1);
    return true;
}

static bool m_count(struct plm_trun *r, struct plm_tcall *c)
{
    struct window w;
    struct plm_tstr *needle;
    int64_t n = 0;
    if (!plm_tpl_arg_str(r, &c->a[0], &needle) || !window_of(r, c, &w))
        return false;
    if (w.valid && needle->len == 0) {
        n = (int64_t)chars_between(c->self.str, w.from, w.to) + 1;
    } else if (w.valid) {
        for (size_t at = w.from;; n++) {
            at = plm_tstr_find(c->self.str, plm_tstr_slice(needle), at);
            if (at == SIZE_MAX || at + needle->len > w.to)
                break;
            at += needle->len;
        }
    }
    *c->ret = plm_tval_int(n);
    return true;
}

static bool m_partition(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s = c->self.str;
    struct plm_tstr *sep;
    struct plm_tlist *list = plm_tlist_new(r, 3);
    bool right = c->func->aux == 1;
    size_t hit = SIZE_MAX;
    if (list == NULL || !plm_tpl_arg_str(r, &c->a[0], &sep) || !plm_tpl_work(r, s->len))
        return false;
    if (sep->len == 0)
        return plm_tpl_fail(r, "%s() by an empty string", c->func->name);
    if (!right)
        hit = plm_tstr_find(s, plm_tstr_slice(sep), 0);
    else if (!plm_tpl_rfind(r, s, sep, s->len, &hit))
        return false;
    bool found = hit != SIZE_MAX;
    size_t before = found ? hit : right ? 0 : s->len;
    size_t mid = found ? sep->len : 0;
    list->n = 3;
    return plm_tstr_val(plm_tstr_sub(r, s, 0, before), &list->v[0]) &&
           plm_tstr_val(plm_tstr_sub(r, s, before, mid), &list->v[1]) &&
           plm_tstr_val(plm_tstr_sub(r, s, before + mid, s->len - before - mid), &list->v[2]) &&
           plm_tlist_val(list, PLM_T_TUPLE, c->ret);
}

static bool m_remove_affix(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s = c->self.str;
    struct plm_tstr *affix;
    bool at_end = c->func->aux == 1;
    if (!plm_tpl_arg_str(r, &c->a[0], &affix) || !plm_tpl_work(r, affix->len))
        return false;
    struct window w = {0, s->len, 0, true};
    size_t n = affix_matches(s, &w, affix, at_end) ? affix->len : 0;
    return plm_tstr_val(plm_tstr_sub(r, s, at_end ? 0 : n, s->len - n), c->ret);
}

static bool m_pad(struct plm_trun *r, struct plm_tcall *c)
{
    int64_t width;
    struct plm_tstr *fill = NULL;
    if (!plm_tpl_arg_int(r, &c->a[0], 0, &width) ||
        (c->a[1].kind != PLM_T_UNSET && !plm_tpl_arg_str(r, &c->a[1], &fill)))
        return false;
    if (fill != NULL && plm_tstr_chars(fill) != 1)
        return plm_tpl_fail(r, "%s(): the fill must be one character", c->func->name);
    return plm_tpl_pad(r, c->self.str, width, fill, c->func->aux, c->ret);
}

static bool m_zfill(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s = c->self.str;
    struct plm_tstr *zero = plm_tstr_copyz(r, "0", false);
    int64_t width;
    if (zero == NULL || !plm_tpl_arg_int(r, &c->a[0], 0, &width))
        return false;
    size_t sign =
        s->len > 0 && strchr("+-", plm_tstr_ptr(s)[0]) != NULL && plm_tstr_ptr(s)[0] != '\0';
    struct plm_tstr *head = plm_tstr_sub(r, s, 0, sign);
    struct plm_tstr *rest = plm_tstr_sub(r, s, sign, s->len - sign);
    struct plm_tval v;
    return head != NULL && rest != NULL &&
           plm_tpl_pad(r, rest, width - (int64_t)sign, zero, '>', &v) &&
           plm_tstr_concat(r, head, v.str, c->ret);
}

static bool m_encode(struct plm_trun *r, struct plm_tcall *c)
{
    if (c->a[0].kind != PLM_T_UNSET) {
        struct plm_tstr *name;
        if (!plm_tpl_arg_str(r, &c->a[0], &name))
            return false;
        if (!plm_tstr_is(name, "utf-8") && !plm_tstr_is(name, "utf8") &&
            !plm_tstr_is(name, "UTF-8"))
            return plm_tpl_fail(r, "encode() knows UTF-8 only");
    }
    if (!plm_tstr_val(plm_tstr_sub(r, c->self.str, 0, c->self.str->len), c->ret))
        return false;
    c->ret->kind = PLM_T_BYTES;
    return true;
}

enum {
    CP_ALPHA,
    CP_DIGIT,
    CP_ALNUM,
    CP_SPACE,
    CP_ASCII,
    CP_PRINTABLE,
    CP_DECIMAL,
    CP_NUMERIC,
    CP_IDENTIFIER,
};

static bool cp_is(uint32_t cp, int what, bool first)
{
    utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)cp);
    bool alpha = cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
    bool decimal = cat == UTF8PROC_CATEGORY_ND;
    bool super = cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || cp == 0x2070 ||
                 (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089);
    switch (what) {
    case CP_ALPHA: return alpha;
    case CP_DIGIT: return decimal || super;
    case CP_DECIMAL: return decimal;
    case CP_NUMERIC: return decimal || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
    case CP_ALNUM:
        return alpha || decimal || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
    case CP_SPACE: return plm_cp_is_space(cp);
    case CP_ASCII: return cp < 0x80;
    case CP_IDENTIFIER: return alpha || cp == '_' || (decimal && !first);
    default: return plm_cp_is_printable(cp);
    }
}

static bool m_all(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s = c->self.str;
    const char *p = plm_tstr_ptr(s);
    int what = c->func->aux;
    bool all = s->len > 0 || what == CP_ASCII || what == CP_PRINTABLE;
    for (size_t i = 0; all && i < s->len;) {
        uint32_t cp;
        bool first = i == 0;
        i += plm_tstr_next(p + i, p + s->len, &cp);
        all = cp_is(cp, what, first);
    }
    *c->ret = plm_tval_bool(all);
    return plm_tpl_work(r, s->len);
}

// islower, isupper, istitle.
static bool m_is_case(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s = c->self.str;
    const char *p = plm_tstr_ptr(s);
    bool any = false;
    bool ok = true;
    bool in_word = false;
    for (size_t i = 0; ok && i < s->len;) {
        uint32_t cp;
        i += plm_tstr_next(p + i, p + s->len, &cp);
        utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)cp);
        utf8proc_int32_t up = utf8proc_toupper((utf8proc_int32_t)cp);
        utf8proc_int32_t low = utf8proc_tolower((utf8proc_int32_t)cp);
        bool title = cat == UTF8PROC_CATEGORY_LT;
        bool lower = cat == UTF8PROC_CATEGORY_LL || (!title && up != (utf8proc_int32_t)cp);
        bool upper = cat == UTF8PROC_CATEGORY_LU || (!title && low != (utf8proc_int32_t)cp);
        bool cased = lower || upper || title;
        any |= cased;
        if (c->func->aux == PLM_CASE_TITLE)
            ok = !cased || (in_word ? lower : upper || title);
        else if (cased)
            ok = c->func->aux == PLM_CASE_LOWER ? lower : upper;
        in_word = cased;
    }
    *c->ret = plm_tval_bool(ok && any);
    return plm_tpl_work(r, s->len);
}

static bool m_expandtabs(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s = c->self.str;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    int64_t size;
    int64_t column = 0;
    if (buf == NULL || !plm_tpl_arg_int(r, &c->a[0], 8, &size))
        return false;
    for (size_t i = 0; i < s->len;) {
        const char *p = plm_tstr_ptr(s);
        uint32_t cp;
        size_t n = plm_tstr_next(p + i, p + s->len, &cp);
        if (cp != '\t') {
            if (!plm_tbuf_add_part(r, buf, s, i, n))
                return false;
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        } else if (size > 0) {
            int64_t stop = size - column % size;
            column += stop;
            for (int64_t k = 0; k < stop; k++)
                if (!plm_tbuf_addz(r, buf, " ", plm_tstr_origin_at(s, i)))
                    return false;
        }
        i += n;
    }
    return plm_tpl_step(r, buf->len / 16) && plm_tbuf_value(r, buf, c->ret);
}

static const struct plm_tfunc str_methods[] = {
    {"capitalize", "", m_casing, PLM_CASE_CAPITALIZE},
    {"casefold", "", m_casing, PLM_CASE_FOLD},
    {"center", "/width|fill", m_pad, 0},
    {"count", "/sub|start,end", m_count, 0},
    {"encode", "|encoding,errors", m_encode, 0},
    {"endswith", "/suffix|start,end", m_affix, 1},
    {"expandtabs", "|tabsize", m_expandtabs, 0},
    {"find", "/sub|start,end", m_find, 0},
    {"format", "*", m_format, 0},
    {"index", "/sub|start,end", m_find, FIND_MUST},
    {"isalnum", "", m_all, CP_ALNUM},
    {"isalpha", "", m_all, CP_ALPHA},
    {"isascii", "", m_all, CP_ASCII},
    {"isdecimal", "", m_all, CP_DECIMAL},
    {"isdigit", "", m_all, CP_DIGIT},
    {"isidentifier", "", m_all, CP_IDENTIFIER},
    {"islower", "", m_is_case, PLM_CASE_LOWER},
    {"isnumeric", "", m_all, CP_NUMERIC},
    {"isprintable", "", m_all, CP_PRINTABLE},
    {"isspace", "", m_all, CP_SPACE},
    {"istitle", "", m_is_case, PLM_CASE_TITLE},
    {"isupper", "", m_is_case, PLM_CASE_UPPER},
    {"join", "/iterable", m_join, 0},
    {"ljust", "/width|fill", m_pad, '<'},
    {"lower", "", m_casing, PLM_CASE_LOWER},
    {"lstrip", "/|chars", m_strip, 1},
    {"partition", "/sep", m_partition, 0},
    {"removeprefix", "/prefix", m_remove_affix, 0},
    {"removesuffix", "/suffix", m_remove_affix, 1},
    {"replace", "/old,new|count", m_replace, 0},
    {"rfind", "/sub|start,end", m_find, FIND_RIGHT},
    {"rindex", "/sub|start,end", m_find, FIND_RIGHT | FIND_MUST},
    {"rjust", "/width|fill", m_pad, '>'},
    {"rpartition", "/sep", m_partition, 1},
    {"rsplit", "|sep,maxsplit", m_split, 1},
    {"rstrip", "/|chars", m_strip, 2},
    {"split", "|sep,maxsplit", m_split, 0},
    {"splitlines", "|keepends", m_splitlines, 0},
    {"startswith", "/prefix|start,end", m_affix, 0},
    {"strip", "/|chars", m_strip, 3},
    {"swapcase", "", m_casing, PLM_CASE_SWAP},
    {"title", "", m_casing, PLM_CASE_TITLE},
    {"upper", "", m_casing, PLM_CASE_UPPER},
    {"zfill", "/width", m_zfill, 0},
};

const struct plm_tfunc *plm_tpl_str_method(struct plm_slice name)
{
    return plm_tpl_find_func(str_methods, sizeof(str_methods) / sizeof(str_methods[0]), name);
}
