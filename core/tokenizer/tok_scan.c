// SPDX-License-Identifier: Apache-2.0
// Kinds of characters, and the shapes of words that alternatives of rules scan.
#include <utf8proc.h>

#include "core/base/utf8.h"
#include "core/tokenizer/tok_split.h"

bool plm_tok_is_space(uint32_t cp)
{
    return (cp >= 0x9 && cp <= 0xD) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

static uint16_t ascii_kinds(uint32_t cp)
{
    bool digit = cp >= '0' && cp <= '9';
    bool alpha = (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
    bool printable = cp > ' ' && cp < 0x7F;
    return (uint16_t)((cp == '\r' || cp == '\n' ? PLM_TOK_LINE_END : 0) |
                      (cp == ' ' ? PLM_TOK_SPACE : 0) | (cp == '/' ? PLM_TOK_SLASH : 0) |
                      (alpha ? PLM_TOK_ASCII_ALPHA : 0) | (digit ? PLM_TOK_ASCII_DIGIT : 0) |
                      (printable && !digit && !alpha ? PLM_TOK_ASCII_PUNCT : 0));
}

uint16_t plm_tok_kinds(uint32_t cp)
{
    static const uint16_t by_category[] = {
        [UTF8PROC_CATEGORY_LU] = PLM_TOK_UPPER,   [UTF8PROC_CATEGORY_LT] = PLM_TOK_UPPER,
        [UTF8PROC_CATEGORY_LL] = PLM_TOK_LOWER,   [UTF8PROC_CATEGORY_LM] = PLM_TOK_UNCASED,
        [UTF8PROC_CATEGORY_LO] = PLM_TOK_UNCASED, [UTF8PROC_CATEGORY_MN] = PLM_TOK_MARK,
        [UTF8PROC_CATEGORY_MC] = PLM_TOK_MARK,    [UTF8PROC_CATEGORY_ME] = PLM_TOK_MARK,
        [UTF8PROC_CATEGORY_ND] = PLM_TOK_NUMBER,  [UTF8PROC_CATEGORY_NL] = PLM_TOK_NUMBER,
        [UTF8PROC_CATEGORY_NO] = PLM_TOK_NUMBER,  [UTF8PROC_CATEGORY_PC] = PLM_TOK_PUNCT,
        [UTF8PROC_CATEGORY_PD] = PLM_TOK_PUNCT,   [UTF8PROC_CATEGORY_PS] = PLM_TOK_PUNCT,
        [UTF8PROC_CATEGORY_PE] = PLM_TOK_PUNCT,   [UTF8PROC_CATEGORY_PI] = PLM_TOK_PUNCT,
        [UTF8PROC_CATEGORY_PF] = PLM_TOK_PUNCT,   [UTF8PROC_CATEGORY_PO] = PLM_TOK_PUNCT,
        [UTF8PROC_CATEGORY_SM] = PLM_TOK_SYMBOL,  [UTF8PROC_CATEGORY_SC] = PLM_TOK_SYMBOL,
        [UTF8PROC_CATEGORY_SK] = PLM_TOK_SYMBOL,  [UTF8PROC_CATEGORY_SO] = PLM_TOK_SYMBOL,
        [UTF8PROC_CATEGORY_ZS] = PLM_TOK_OTHER,   [UTF8PROC_CATEGORY_ZL] = PLM_TOK_OTHER,
        [UTF8PROC_CATEGORY_ZP] = PLM_TOK_OTHER,   [UTF8PROC_CATEGORY_CC] = PLM_TOK_OTHER,
        [UTF8PROC_CATEGORY_CF] = PLM_TOK_OTHER,   [UTF8PROC_CATEGORY_CS] = PLM_TOK_OTHER,
        [UTF8PROC_CATEGORY_CO] = PLM_TOK_OTHER,   [UTF8PROC_CATEGORY_CN] = PLM_TOK_OTHER,
    };
    uint16_t kinds = by_category[utf8proc_category((utf8proc_int32_t)cp)];
    if (kinds == PLM_TOK_OTHER && plm_tok_is_space(cp))
        kinds |= PLM_TOK_BLANK;
    return cp < 0x80 ? kinds | ascii_kinds(cp) : kinds;
}

struct character {
    uint32_t cp;
    uint16_t kinds;
    uint16_t bytes; // 0: the view ends
};

static inline struct character character_at(const struct plm_tok_view *view, size_t at)
{
    if (at >= view->end)
        return (struct character){0};
    uint32_t cp = (unsigned char)view->text[at];
    if (cp < 0x80)
        return (struct character){cp, view->ascii[cp], 1};
    size_t n = plm_utf8_decode(view->text + at, view->end - at, &cp);
    if (n == 0)
        return (struct character){cp, PLM_TOK_OTHER, 1};
    return (struct character){cp, plm_tok_kinds(cp), (uint16_t)n};
}

static bool in_ranges(const struct plm_tok_ranges *ranges, uint32_t cp)
{
    uint32_t lo = 0;
    uint32_t hi = ranges->n;
    while (lo < hi) { // the first range that does not end before cp
        uint32_t mid = lo + (hi - lo) / 2;
        if (ranges->items[mid][1] < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < ranges->n && ranges->items[lo][0] <= cp;
}

static inline bool is_in(const struct plm_tok_class *class, const struct character *c)
{
    if ((c->kinds & class->any) != 0 && (c->kinds & class->none) == 0)
        return class->except == NULL || !in_ranges(class->except, c->cp);
    return class->within != NULL && c->bytes > 0 && in_ranges(class->within, c->cp);
}

// The end of the run of characters of a class that starts at offset at; at: there is none. The run
// has at most so many characters; most = 0: any number.
static size_t skip(const struct plm_tok_class *class, const struct plm_tok_view *view, size_t at,
                   uint32_t most)
{
    for (uint32_t n = 0; most == 0 || n < most; n++) {
        struct character c = character_at(view, at);
        if (!is_in(class, &c))
            break;
        at += c.bytes;
    }
    return at;
}

// The bytes of the lead that stands at offset at; 0: there is none.
static size_t lead_bytes(const struct plm_tok_alt *alt, const struct plm_tok_view *view, size_t at)
{
    struct character c = character_at(view, at);
    return is_in(&alt->lead, &c) ? c.bytes : 0;
}

size_t plm_tok_scan_run(const struct plm_tok_alt *alt, const struct plm_tok_view *view, size_t at)
{
    // A lead may be of the body's class, too: where nothing follows it, it is the body.
    size_t lead = lead_bytes(alt, view, at);
    size_t body = at + lead;
    size_t end = skip(&alt->body, view, body, alt->most);
    if (end == body && lead > 0 && !alt->needs_lead) {
        body = at;
        end = skip(&alt->body, view, body, alt->most);
    }
    if (end == body || (lead == 0 && alt->needs_lead))
        return 0;
    return skip(&alt->tail, view, end, 0) - at;
}

// The bytes of the contraction that starts at offset at; 0: there is none.
static size_t contraction(const struct plm_tok_view *view, size_t at, bool any_case)
{
    static const char endings[][3] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (at == view->end || view->text[at] != '\'')
        return 0;
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
        size_t end = at + 1;
        const char *letter = endings[i];
        for (; *letter != '\0'; letter++) {
            struct character c = character_at(view, end);
            uint32_t lower = any_case && (c.kinds & PLM_TOK_ASCII_ALPHA) ? c.cp | 0x20 : c.cp;
            // U+017F is the only other letter that case folding makes one of these.
            if (any_case && c.cp == 0x17F)
                lower = 's';
            if (c.bytes == 0 || lower != (unsigned char)*letter)
                break;
            end += c.bytes;
        }
        if (*letter == '\0')
            return end - at;
    }
    return 0;
}

size_t plm_tok_scan_contraction(const struct plm_tok_alt *alt, const struct plm_tok_view *view,
                                size_t at)
{
    return contraction(view, at, alt->any_case);
}

// The end of body* lower+ from offset at on; at: there is no lower+. A character may be of both
// classes.
static size_t skip_lower(const struct plm_tok_alt *alt, const struct plm_tok_view *view, size_t at)
{
    size_t end = at;
    size_t both_end = at; // behind the last character of the run that is of both classes
    struct character c;
    for (; c = character_at(view, end), is_in(&alt->body, &c); end += c.bytes)
        if (is_in(&alt->lower, &c))
            both_end = end + c.bytes;
    // Without lower case behind it, the run gives back what follows its last character of both.
    return is_in(&alt->lower, &c) ? skip(&alt->lower, view, end, 0) : both_end;
}

size_t plm_tok_scan_cased(const struct plm_tok_alt *alt, const struct plm_tok_view *view, size_t at)
{
    // Lower case is looked for first, with a lead and without, and then capitals alone.
    const size_t lead = lead_bytes(alt, view, at);
    for (int with_lower = 1; with_lower >= 0; with_lower--) {
        for (int with_lead = lead > 0; with_lead >= 0; with_lead--) {
            size_t body = at + (with_lead ? lead : 0);
            size_t end = with_lower ? skip_lower(alt, view, body) : skip(&alt->body, view, body, 0);
            if (end > body)
                return end - at + (alt->contraction ? contraction(view, end, true) : 0);
        }
    }
    return 0;
}

size_t plm_tok_scan_line_end(const struct plm_tok_alt *alt, const struct plm_tok_view *view,
                             size_t at)
{
    (void)alt;
    size_t line_end = at; // behind the last one of the run
    struct character c;
    for (size_t end = at; c = character_at(view, end), (c.kinds & PLM_TOK_BLANK) != 0;) {
        end += c.bytes;
        if (c.kinds & PLM_TOK_LINE_END)
            line_end = end;
    }
    return line_end - at;
}

size_t plm_tok_scan_blanks(const struct plm_tok_alt *alt, const struct plm_tok_view *view,
                           size_t at)
{
    (void)alt;
    size_t end = at;
    size_t last = at; // where the last one starts
    struct character c;
    for (; c = character_at(view, end), (c.kinds & PLM_TOK_BLANK) != 0; end += c.bytes)
        last = end;
    // The last one goes with the word that follows, unless it is the only one.
    return (end < view->end && last > at ? last : end) - at;
}

size_t plm_tok_scan_final_blanks(const struct plm_tok_alt *alt, const struct plm_tok_view *view,
                                 size_t at)
{
    (void)alt;
    // Inside a run there is nothing that was not found at its start, and looking again at each of
    // its characters would take quadratic time.
    if (at > view->begin) {
        size_t before = at - 1;
        while (before > view->begin && ((unsigned char)view->text[before] & 0xC0) == 0x80)
            before--;
        if (character_at(view, before).kinds & PLM_TOK_BLANK)
            return 0;
    }
    const struct plm_tok_class blank = {.any = PLM_TOK_BLANK};
    size_t end = skip(&blank, view, at, 0);
    return end == view->end ? end - at : 0;
}
