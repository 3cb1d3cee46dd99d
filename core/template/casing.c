// SPDX-License-Identifier: Apache-2.0
// Case of text, full mappings: one character may become several.
#include <string.h>

#include <utf8proc.h>

#include "core/base/utf8.h"
#include "core/template/text.h"

static bool is_cased(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
           utf8proc_toupper((utf8proc_int32_t)cp) != (utf8proc_int32_t)cp ||
           utf8proc_tolower((utf8proc_int32_t)cp) != (utf8proc_int32_t)cp;
}

// Characters that a word's case looks through.
static bool is_case_ignorable(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default:
        return cp == '\'' || cp == '.' || cp == ':' || cp == 0xB7 || cp == 0x2018 || cp == 0x2019 ||
               cp == 0x2024 || cp == 0x2027;
    }
}

// Whether the capital sigma at `at` ends a word.
static bool is_final_sigma(const struct plm_tstr *s, size_t at)
{
    const char *p = plm_tstr_ptr(s);
    uint32_t cp = 0;
    bool before = false;
    for (size_t i = at; i > 0;) {
        i -= plm_tstr_prev(p, p + i, &cp);
        if (is_case_ignorable(cp))
            continue;
        before = is_cased(cp);
        break;
    }
    if (!before)
        return false;
    for (size_t i = at + 2; i < s->len;) { // a sigma is two bytes
        i += plm_tstr_next(p + i, p + s->len, &cp);
        if (!is_case_ignorable(cp))
            return !is_cased(cp);
    }
    return true;
}

enum direction { TO_UPPER, TO_LOWER, TO_TITLE, TO_FOLD };

// utf8proc folds case by the full mappings, but changes it by those of one character to one. The
// characters whose upper case is several (U+00DF, ligatures, Greek with an iota below) are those
// that fold to several letters, and their upper case is the upper case of these letters.
static size_t map_several(utf8proc_int32_t cp, enum direction to, char out[16])
{
    utf8proc_int32_t folded[4];
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(cp, folded, 4, UTF8PROC_CASEFOLD, &last);
    size_t used = 0;
    if (to != TO_FOLD && (n < 2 || n > 3 || utf8proc_category(cp) == UTF8PROC_CATEGORY_LU))
        return 0;
    bool raised = false; // a title has one capital
    for (utf8proc_ssize_t i = 0; i < n && i < 4; i++) {
        utf8proc_int32_t c = folded[i], up = utf8proc_toupper(c);
        if (to == TO_UPPER || (to == TO_TITLE && !raised)) {
            raised = raised || up != c;
            c = up;
        } else if (to == TO_TITLE && c == 0x3B9) {
            c = 0x345; // an iota stays below its letter
        }
        used += plm_utf8_encode((uint32_t)c, out + used);
    }
    return used;
}

static size_t map_cp(const struct plm_tstr *s, size_t at, uint32_t cp, enum direction to,
                     char out[16])
{
    utf8proc_int32_t c = (utf8proc_int32_t)cp, title = utf8proc_totitle(c);
    if (to == TO_LOWER && cp == 0x130) { // I with a dot
        size_t n = plm_utf8_encode('i', out);
        return n + plm_utf8_encode(0x307, out + n);
    }
    if (to == TO_LOWER && cp == 0x3A3)
        return plm_utf8_encode(is_final_sigma(s, at) ? 0x3C2 : 0x3C3, out);
    // Characters of title case exist for some that would become several.
    if (to != TO_LOWER && !(to == TO_TITLE && utf8proc_category(title) == UTF8PROC_CATEGORY_LT)) {
        size_t n = map_several(c, to, out);
        if (n > 0)
            return n;
    }
    c = to == TO_UPPER ? utf8proc_toupper(c) : to == TO_LOWER ? utf8proc_tolower(c) : title;
    return plm_utf8_encode((uint32_t)c, out);
}

static enum direction direction_of(enum plm_tcasing how, uint32_t cp, bool first, bool in_word)
{
    switch (how) {
    case PLM_CASE_UPPER: return TO_UPPER;
    case PLM_CASE_LOWER: return TO_LOWER;
    case PLM_CASE_FOLD: return TO_FOLD;
    case PLM_CASE_CAPITALIZE: return first ? TO_TITLE : TO_LOWER;
    case PLM_CASE_TITLE: return in_word ? TO_LOWER : TO_TITLE;
    case PLM_CASE_WORDS: return in_word ? TO_LOWER : TO_UPPER;
    default:
        return utf8proc_tolower((utf8proc_int32_t)cp) != (utf8proc_int32_t)cp ? TO_LOWER : TO_UPPER;
    }
}

bool plm_tpl_casing(struct plm_trun *r, struct plm_tstr *s, enum plm_tcasing how,
                    struct plm_tval *ret)
{
    struct plm_tbuf *buf = plm_tbuf_new(r);
    bool in_word = false;
    if (buf == NULL || !plm_tbuf_reserve(r, buf, s->len) || !plm_tpl_work(r, s->len))
        return false;
    for (size_t i = 0; i < s->len;) {
        const char *p = plm_tstr_ptr(s);
        uint32_t cp;
        char out[16];
        size_t n = plm_tstr_next(p + i, p + s->len, &cp);
        size_t out_n = map_cp(s, i, cp, direction_of(how, cp, i == 0, in_word), out);
        in_word = how != PLM_CASE_WORDS
                      ? is_cased(cp)
                      : !plm_cp_is_space(cp) && (cp >= 0x80 || strchr("-({[<", (int)cp) == NULL);
        if (!plm_tbuf_add(r, buf, out, out_n, plm_tstr_origin_at(s, i)))
            return false;
        i += n;
    }
    if (!plm_tbuf_value(r, buf, ret))
        return false;
    ret->str->markup = s->markup && how != PLM_CASE_WORDS;
    return true;
}
