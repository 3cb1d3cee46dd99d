// SPDX-License-Identifier: Apache-2.0
// Case of text, full mappings: one character may become several.
#include <utf8proc.h>

#include "core/base/utf8.h"
#include "core/template/run.h"

// Characters whose upper or title case is more than one character: the unconditional part of the
// Unicode Character Database's SpecialCasing, by code point.
static const struct special {
    uint16_t cp;
    uint16_t upper[3];
    uint16_t title[3];
} specials[] = {
    {0xDF, {0x53, 0x53, 0}, {0x53, 0x73, 0}},
    {0x149, {0x2BC, 0x4E, 0}, {0x2BC, 0x4E, 0}},
    {0x1F0, {0x4A, 0x30C, 0}, {0x4A, 0x30C, 0}},
    {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x3B0, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552, 0}, {0x535, 0x582, 0}},
    {0x1E96, {0x48, 0x331, 0}, {0x48, 0x331, 0}},
    {0x1E97, {0x54, 0x308, 0}, {0x54, 0x308, 0}},
    {0x1E98, {0x57, 0x30A, 0}, {0x57, 0x30A, 0}},
    {0x1E99, {0x59, 0x30A, 0}, {0x59, 0x30A, 0}},
    {0x1E9A, {0x41, 0x2BE, 0}, {0x41, 0x2BE, 0}},
    {0x1F50, {0x3A5, 0x313, 0}, {0x3A5, 0x313, 0}},
    {0x1F52, {0x3A5, 0x313, 0x300}, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}, {0x3A5, 0x313, 0x342}},
    {0x1F80, {0x1F08, 0x399, 0}, {0x1F88, 0, 0}},
    {0x1F81, {0x1F09, 0x399, 0}, {0x1F89, 0, 0}},
    {0x1F82, {0x1F0A, 0x399, 0}, {0x1F8A, 0, 0}},
    {0x1F83, {0x1F0B, 0x399, 0}, {0x1F8B, 0, 0}},
    {0x1F84, {0x1F0C, 0x399, 0}, {0x1F8C, 0, 0}},
    {0x1F85, {0x1F0D, 0x399, 0}, {0x1F8D, 0, 0}},
    {0x1F86, {0x1F0E, 0x399, 0}, {0x1F8E, 0, 0}},
    {0x1F87, {0x1F0F, 0x399, 0}, {0x1F8F, 0, 0}},
    {0x1F88, {0x1F08, 0x399, 0}, {0x1F88, 0, 0}},
    {0x1F89, {0x1F09, 0x399, 0}, {0x1F89, 0, 0}},
    {0x1F8A, {0x1F0A, 0x399, 0}, {0x1F8A, 0, 0}},
    {0x1F8B, {0x1F0B, 0x399, 0}, {0x1F8B, 0, 0}},
    {0x1F8C, {0x1F0C, 0x399, 0}, {0x1F8C, 0, 0}},
    {0x1F8D, {0x1F0D, 0x399, 0}, {0x1F8D, 0, 0}},
    {0x1F8E, {0x1F0E, 0x399, 0}, {0x1F8E, 0, 0}},
    {0x1F8F, {0x1F0F, 0x399, 0}, {0x1F8F, 0, 0}},
    {0x1F90, {0x1F28, 0x399, 0}, {0x1F98, 0, 0}},
    {0x1F91, {0x1F29, 0x399, 0}, {0x1F99, 0, 0}},
    {0x1F92, {0x1F2A, 0x399, 0}, {0x1F9A, 0, 0}},
    {0x1F93, {0x1F2B, 0x399, 0}, {0x1F9B, 0, 0}},
    {0x1F94, {0x1F2C, 0x399, 0}, {0x1F9C, 0, 0}},
    {0x1F95, {0x1F2D, 0x399, 0}, {0x1F9D, 0, 0}},
    {0x1F96, {0x1F2E, 0x399, 0}, {0x1F9E, 0, 0}},
    {0x1F97, {0x1F2F, 0x399, 0}, {0x1F9F, 0, 0}},
    {0x1F98, {0x1F28, 0x399, 0}, {0x1F98, 0, 0}},
    {0x1F99, {0x1F29, 0x399, 0}, {0x1F99, 0, 0}},
    {0x1F9A, {0x1F2A, 0x399, 0}, {0x1F9A, 0, 0}},
    {0x1F9B, {0x1F2B, 0x399, 0}, {0x1F9B, 0, 0}},
    {0x1F9C, {0x1F2C, 0x399, 0}, {0x1F9C, 0, 0}},
    {0x1F9D, {0x1F2D, 0x399, 0}, {0x1F9D, 0, 0}},
    {0x1F9E, {0x1F2E, 0x399, 0}, {0x1F9E, 0, 0}},
    {0x1F9F, {0x1F2F, 0x399, 0}, {0x1F9F, 0, 0}},
    {0x1FA0, {0x1F68, 0x399, 0}, {0x1FA8, 0, 0}},
    {0x1FA1, {0x1F69, 0x399, 0}, {0x1FA9, 0, 0}},
    {0x1FA2, {0x1F6A, 0x399, 0}, {0x1FAA, 0, 0}},
    {0x1FA3, {0x1F6B, 0x399, 0}, {0x1FAB, 0, 0}},
    {0x1FA4, {0x1F6C, 0x399, 0}, {0x1FAC, 0, 0}},
    {0x1FA5, {0x1F6D, 0x399, 0}, {0x1FAD, 0, 0}},
    {0x1FA6, {0x1F6E, 0x399, 0}, {0x1FAE, 0, 0}},
    {0x1FA7, {0x1F6F, 0x399, 0}, {0x1FAF, 0, 0}},
    {0x1FA8, {0x1F68, 0x399, 0}, {0x1FA8, 0, 0}},
    {0x1FA9, {0x1F69, 0x399, 0}, {0x1FA9, 0, 0}},
    {0x1FAA, {0x1F6A, 0x399, 0}, {0x1FAA, 0, 0}},
    {0x1FAB, {0x1F6B, 0x399, 0}, {0x1FAB, 0, 0}},
    {0x1FAC, {0x1F6C, 0x399, 0}, {0x1FAC, 0, 0}},
    {0x1FAD, {0x1F6D, 0x399, 0}, {0x1FAD, 0, 0}},
    {0x1FAE, {0x1F6E, 0x399, 0}, {0x1FAE, 0, 0}},
    {0x1FAF, {0x1F6F, 0x399, 0}, {0x1FAF, 0, 0}},
    {0x1FB2, {0x1FBA, 0x399, 0}, {0x1FBA, 0x345, 0}},
    {0x1FB3, {0x391, 0x399, 0}, {0x1FBC, 0, 0}},
    {0x1FB4, {0x386, 0x399, 0}, {0x386, 0x345, 0}},
    {0x1FB6, {0x391, 0x342, 0}, {0x391, 0x342, 0}},
    {0x1FB7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}},
    {0x1FBC, {0x391, 0x399, 0}, {0x1FBC, 0, 0}},
    {0x1FC2, {0x1FCA, 0x399, 0}, {0x1FCA, 0x345, 0}},
    {0x1FC3, {0x397, 0x399, 0}, {0x1FCC, 0, 0}},
    {0x1FC4, {0x389, 0x399, 0}, {0x389, 0x345, 0}},
    {0x1FC6, {0x397, 0x342, 0}, {0x397, 0x342, 0}},
    {0x1FC7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}},
    {0x1FCC, {0x397, 0x399, 0}, {0x1FCC, 0, 0}},
    {0x1FD2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342, 0}, {0x399, 0x342, 0}},
    {0x1FD7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313, 0}, {0x3A1, 0x313, 0}},
    {0x1FE6, {0x3A5, 0x342, 0}, {0x3A5, 0x342, 0}},
    {0x1FE7, {0x3A5, 0x308, 0x342}, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x399, 0}, {0x1FFA, 0x345, 0}},
    {0x1FF3, {0x3A9, 0x399, 0}, {0x1FFC, 0, 0}},
    {0x1FF4, {0x38F, 0x399, 0}, {0x38F, 0x345, 0}},
    {0x1FF6, {0x3A9, 0x342, 0}, {0x3A9, 0x342, 0}},
    {0x1FF7, {0x3A9, 0x342, 0x399}, {0x3A9, 0x342, 0x345}},
    {0x1FFC, {0x3A9, 0x399, 0}, {0x1FFC, 0, 0}},
    {0xFB00, {0x46, 0x46, 0}, {0x46, 0x66, 0}},
    {0xFB01, {0x46, 0x49, 0}, {0x46, 0x69, 0}},
    {0xFB02, {0x46, 0x4C, 0}, {0x46, 0x6C, 0}},
    {0xFB03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
    {0xFB04, {0x46, 0x46, 0x4C}, {0x46, 0x66, 0x6C}},
    {0xFB05, {0x53, 0x54, 0}, {0x53, 0x74, 0}},
    {0xFB06, {0x53, 0x54, 0}, {0x53, 0x74, 0}},
    {0xFB13, {0x544, 0x546, 0}, {0x544, 0x576, 0}},
    {0xFB14, {0x544, 0x535, 0}, {0x544, 0x565, 0}},
    {0xFB15, {0x544, 0x53B, 0}, {0x544, 0x56B, 0}},
    {0xFB16, {0x54E, 0x546, 0}, {0x54E, 0x576, 0}},
    {0xFB17, {0x544, 0x53D, 0}, {0x544, 0x56D, 0}},
};

static const struct special *special_of(uint32_t cp)
{
    size_t lo = 0;
    size_t hi = sizeof(specials) / sizeof(specials[0]);
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (specials[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < sizeof(specials) / sizeof(specials[0]) && specials[lo].cp == cp ? &specials[lo]
                                                                                : NULL;
}

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

enum { TO_UPPER, TO_LOWER, TO_TITLE, TO_FOLD };

static size_t map_cp(const struct plm_tstr *s, size_t at, uint32_t cp, int to, char out[16])
{
    if (to == TO_FOLD) {
        utf8proc_int32_t folded[4];
        int last = 0;
        utf8proc_ssize_t n =
            utf8proc_decompose_char((utf8proc_int32_t)cp, folded, 4, UTF8PROC_CASEFOLD, &last);
        size_t used = 0;
        for (utf8proc_ssize_t i = 0; i < n && i < 4; i++)
            used += plm_utf8_encode((uint32_t)folded[i], out + used);
        return used;
    }
    const struct special *special = to == TO_LOWER ? NULL : special_of(cp);
    if (special != NULL) {
        const uint16_t *m = to == TO_UPPER ? special->upper : special->title;
        size_t n = 0;
        for (int i = 0; i < 3 && m[i] != 0; i++)
            n += plm_utf8_encode(m[i], out + n);
        return n;
    }
    if (to == TO_LOWER && cp == 0x130) { // I with a dot
        size_t n = plm_utf8_encode('i', out);
        return n + plm_utf8_encode(0x307, out + n);
    }
    if (to == TO_LOWER && cp == 0x3A3)
        return plm_utf8_encode(is_final_sigma(s, at) ? 0x3C2 : 0x3C3, out);
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    c = to == TO_UPPER   ? utf8proc_toupper(c)
        : to == TO_LOWER ? utf8proc_tolower(c)
                         : utf8proc_totitle(c);
    return plm_utf8_encode((uint32_t)c, out);
}

static int direction(enum plm_tcasing how, uint32_t cp, bool first, bool in_word)
{
    switch (how) {
    case PLM_CASE_UPPER: return TO_UPPER;
    case PLM_CASE_LOWER: return TO_LOWER;
    case PLM_CASE_FOLD: return TO_FOLD;
    case PLM_CASE_CAPITALIZE: return first ? TO_TITLE : TO_LOWER;
    case PLM_CASE_TITLE: return in_word ? TO_LOWER : TO_TITLE;
    default:
        return utf8proc_tolower((utf8proc_int32_t)cp) != (utf8proc_int32_t)cp ? TO_LOWER : TO_UPPER;
    }
}

bool plm_tpl_casing(struct plm_trun *r, struct plm_tstr *s, enum plm_tcasing how,
                    struct plm_tval *ret)
{
    struct plm_tbuf *buf = plm_tbuf_new(r);
    bool in_word = false;
    if (buf == NULL || !plm_tbuf_reserve(r, buf, s->len) || !plm_tpl_step(r, s->len / 16))
        return false;
    for (size_t i = 0; i < s->len;) {
        const char *p = plm_tstr_ptr(s);
        uint32_t cp;
        char out[16];
        size_t n = plm_tstr_next(p + i, p + s->len, &cp);
        int to = direction(how, cp, i == 0, in_word);
        size_t out_n = map_cp(s, i, cp, to, out);
        in_word = is_cased(cp);
        if (!plm_tbuf_add(r, buf, out, out_n, plm_tstr_origin_at(s, i)))
            return false;
        i += n;
    }
    return plm_tbuf_value(r, buf, ret);
}
