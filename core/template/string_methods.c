// SPDX-License-Identifier: Apache-2.0
// Methods of strings.
#include <string.h>

#include <utf8proc.h>

#include "core/template/text.h"

static bool m_split(struct plm_trun *r, struct plm_tcall *c)
{
    return plm_tpl_split(r, c->self.str, c->a[0].kind == PLM_T_STR ? c->a[0].str : NULL, c->a[1].i,
                         c->func->aux == 1, c->ret);
}

static bool m_splitlines(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    return plm_tpl_splitlines(r, c->self.str, plm_tval_truth(&c->a[0]), &list) &&
           plm_tlist_val(list, PLM_T_LIST, c->ret);
}

static bool m_join(struct plm_trun *r, struct plm_tcall *c)
{
    return plm_tpl_join(r, c->self.str, &c->a[0], NULL, true, c->ret);
}

static bool m_format(struct plm_trun *r, struct plm_tcall *c)
{
    return plm_tpl_brace_format(r, c->self.str, c->args, c->ret);
}

static bool has_affix(const struct plm_tstr *s, const struct plm_tstr *affix, bool at_end)
{
    const char *p = plm_tstr_ptr(s);
    return affix->len == 0 ||
           (affix->len <= s->len &&
            memcmp(at_end ? p + s->len - affix->len : p, plm_tstr_ptr(affix), affix->len) == 0);
}

// startswith, endswith: one text, or any of a tuple.
static bool m_has_affix(struct plm_trun *r, struct plm_tcall *c)
{
    const bool tuple = c->a[0].kind == PLM_T_TUPLE;
    const struct plm_tval *affixes = tuple ? c->a[0].list->v : &c->a[0];
    const size_t n = tuple ? c->a[0].list->n : 1;
    bool found = false;
    for (size_t i = 0; !found && i < n; i++) {
        if (affixes[i].kind == PLM_T_UNDEF)
            return plm_tpl_fail_undef(r, &affixes[i]);
        if (affixes[i].kind != PLM_T_STR)
            return plm_tpl_fail(r, "%s() needs a string, not %s", c->func->name,
                                plm_tval_type(&affixes[i]));
        if (!plm_tpl_work(r, affixes[i].str->len))
            return false;
        found = has_affix(c->self.str, affixes[i].str, c->func->aux == 1);
    }
    *c->ret = plm_tval_bool(found);
    return true;
}

static bool m_remove_affix(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s = c->self.str, *affix = c->a[0].str;
    const bool at_end = c->func->aux == 1;
    const size_t n = has_affix(s, affix, at_end) ? affix->len : 0;
    return plm_tpl_work(r, affix->len) &&
           plm_tstr_val(plm_tstr_sub(r, s, at_end ? 0 : n, s->len - n), c->ret);
}

enum { FIND_RIGHT = 1, FIND_MUST = 2 };

static bool m_find(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s = c->self.str;
    const struct plm_slice needle = plm_tstr_slice(c->a[0].str);
    size_t hit = SIZE_MAX;
    if (!plm_tpl_work(r, s->len))
        return false;
    if (!(c->func->aux & FIND_RIGHT))
        hit = plm_tstr_find(s, needle, 0);
    else if (!plm_tstr_rfind(r, s, needle, s->len, &hit))
        return false;
    if (hit == SIZE_MAX && (c->func->aux & FIND_MUST))
        return plm_tpl_fail(r, "%s(): not found", c->func->name);
    struct plm_tstr *before = hit == SIZE_MAX ? NULL : plm_tstr_sub(r, s, 0, hit);
    *c->ret = plm_tval_int(before == NULL ? -1 : (int64_t)plm_tstr_chars(before));
    return hit == SIZE_MAX || before != NULL;
}

static bool m_count(struct plm_trun *r, struct plm_tcall *c)
{
    const struct plm_slice needle = plm_tstr_slice(c->a[0].str);
    int64_t n = 0;
    if (!plm_tpl_work(r, c->self.str->len))
        return false;
    if (needle.len == 0)
        n = (int64_t)plm_tstr_chars(c->self.str) + 1;
    for (size_t at = 0; needle.len > 0; n++) {
        at = plm_tstr_find(c->self.str, needle, at);
        if (at == SIZE_MAX)
            break;
        at += needle.len;
    }
    *c->ret = plm_tval_int(n);
    return true;
}

enum { CP_ALPHA = 1, CP_DECIMAL = 2, CP_SUPER = 4, CP_NUMERIC = 8, CP_SPACE = 16, CP_ASCII = 32 };

// The classes that a character is in.
static int classes_of(uint32_t cp)
{
    const utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)cp);
    const bool super = cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || cp == 0x2070 ||
                       (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089);
    const bool numeric = cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
    return (cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO ? CP_ALPHA : 0) |
           (cat == UTF8PROC_CATEGORY_ND ? CP_DECIMAL : 0) | (super ? CP_SUPER : 0) |
           (numeric ? CP_NUMERIC : 0) | (plm_cp_is_space(cp) ? CP_SPACE : 0) |
           (cp < 0x80 ? CP_ASCII : 0);
}

// Whether each character is in one of the classes aux.
static bool m_all(struct plm_trun *r, struct plm_tcall *c)
{
    const struct plm_tstr *s = c->self.str;
    const char *p = plm_tstr_ptr(s);
    bool all = s->len > 0 || c->func->aux == CP_ASCII;
    for (size_t i = 0; all && i < s->len;) {
        uint32_t cp;
        i += plm_tstr_next(p + i, p + s->len, &cp);
        all = (classes_of(cp) & c->func->aux) != 0;
    }
    *c->ret = plm_tval_bool(all);
    return plm_tpl_work(r, s->len);
}

static const struct plm_tfunc str_methods[] = {
    {"capitalize", "", plm_text_casing, PLM_CASE_CAPITALIZE},
    {"casefold", "", plm_text_casing, PLM_CASE_FOLD},
    {"center", "/width:i,fill:s=", plm_text_pad, 0},
    {"count", "/sub:s", m_count, 0},
    {"encode", "*", NULL, 0},
    {"endswith", "/suffix", m_has_affix, 1},
    {"expandtabs", "*", NULL, 0},
    {"find", "/sub:s", m_find, 0},
    {"format", "*", m_format, 0},
    {"format_map", "*", NULL, 0},
    {"index", "/sub:s", m_find, FIND_MUST},
    {"isalnum", "", m_all, CP_ALPHA | CP_DECIMAL | CP_NUMERIC},
    {"isalpha", "", m_all, CP_ALPHA},
    {"isascii", "", m_all, CP_ASCII},
    {"isdecimal", "", m_all, CP_DECIMAL},
    {"isdigit", "", m_all, CP_DECIMAL | CP_SUPER},
    {"isidentifier", "", NULL, 0},
    {"islower", "*", NULL, 0},
    {"isnumeric", "", m_all, CP_DECIMAL | CP_NUMERIC},
    {"isprintable", "", NULL, 0},
    {"isspace", "", m_all, CP_SPACE},
    {"istitle", "", NULL, 0},
    {"isupper", "*", NULL, 0},
    {"join", "/iterable", m_join, 0},
    {"ljust", "/width:i,fill:s=", plm_text_pad, '<'},
    {"lower", "", plm_text_casing, PLM_CASE_LOWER},
    {"lstrip", "/chars:s=", plm_text_strip, 1},
    {"maketrans", "*", NULL, 0},
    {"partition", "*", NULL, 0},
    {"removeprefix", "/prefix:s", m_remove_affix, 0},
    {"removesuffix", "/suffix:s", m_remove_affix, 1},
    {"replace", "/old:s,new:s,count:i=-1", plm_text_replace, 0},
    {"rfind", "/sub:s", m_find, FIND_RIGHT},
    {"rindex", "/sub:s", m_find, FIND_RIGHT | FIND_MUST},
    {"rjust", "/width:i,fill:s=", plm_text_pad, '>'},
    {"rpartition", "*", NULL, 0},
    {"rsplit", "sep:s=,maxsplit:i=-1", m_split, 1},
    {"rstrip", "/chars:s=", plm_text_strip, 2},
    {"split", "sep:s=,maxsplit:i=-1", m_split, 0},
    {"splitlines", "keepends=", m_splitlines, 0},
    {"startswith", "/prefix", m_has_affix, 0},
    {"strip", "/chars:s=", plm_text_strip, 3},
    {"swapcase", "", plm_text_casing, PLM_CASE_SWAP},
    {"title", "", plm_text_casing, PLM_CASE_TITLE},
    {"translate", "*", NULL, 0},
    {"upper", "", plm_text_casing, PLM_CASE_UPPER},
    {"zfill", "*", NULL, 0},
};

const struct plm_tfunc *plm_tpl_str_method(struct plm_slice name)
{
    return PLM_FIND_FUNC(str_methods, name);
}
