// SPDX-License-Identifier: Apache-2.0
// Splits text into the words inside which merging happens. The makers of models publish a
// pre-tokenizer as regular expressions; here a rule is data (tok_rules.c): stages of alternatives,
// each of which scans one shape of word (tok_scan.c). Splitting allocates nothing, can not fail,
// and takes time linear in the text.
#ifndef PLM_TOKENIZER_TOK_SPLIT_H
#define PLM_TOKENIZER_TOK_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/status.h"

// What a character is. It has one of the first eight bits, by its general category, and any of the
// others.
enum plm_tok_kind_bits {
    PLM_TOK_UPPER = 1 << 0,   // \p{Lu} and \p{Lt}
    PLM_TOK_LOWER = 1 << 1,   // \p{Ll}
    PLM_TOK_UNCASED = 1 << 2, // \p{Lm} and \p{Lo}
    PLM_TOK_MARK = 1 << 3,    // \p{M}
    PLM_TOK_NUMBER = 1 << 4,  // \p{N}
    PLM_TOK_PUNCT = 1 << 5,   // \p{P}
    PLM_TOK_SYMBOL = 1 << 6,  // \p{S}
    PLM_TOK_OTHER = 1 << 7,   // \p{Z} and \p{C}

    PLM_TOK_BLANK = 1 << 8,        // \s, the property White_Space
    PLM_TOK_LINE_END = 1 << 9,     // [\r\n]
    PLM_TOK_SPACE = 1 << 10,       // U+0020
    PLM_TOK_SLASH = 1 << 11,       // "/"
    PLM_TOK_ASCII_ALPHA = 1 << 12, // [A-Za-z]
    PLM_TOK_ASCII_DIGIT = 1 << 13, // [0-9]
    PLM_TOK_ASCII_PUNCT = 1 << 14, // the 32 printable ones that are neither letter nor digit

    PLM_TOK_LETTER = PLM_TOK_UPPER | PLM_TOK_LOWER | PLM_TOK_UNCASED, // \p{L}
    PLM_TOK_ANY = 0xFF,
};

// Ranges of code points, both ends included, in ascending order.
struct plm_tok_ranges {
    const uint32_t (*items)[2];
    uint32_t n;
};

// A class of characters: those of any of these kinds, of none of those, and outside "except"; and
// those within ranges. All zero: no character.
struct plm_tok_class {
    uint16_t any;
    uint16_t none;
    const struct plm_tok_ranges *except; // may be NULL
    const struct plm_tok_ranges *within; // may be NULL
};

// A piece of text that is scanned as if nothing stood around it. Valid UTF-8.
struct plm_tok_view {
    const char *text;
    size_t begin;
    size_t end;
    const uint16_t *ascii; // kinds of the first 128 characters
};

struct plm_tok_alt;
// The length of the word that starts at offset at of the view, which is before its end; 0: none.
typedef size_t plm_tok_scan_fn(const struct plm_tok_alt *alt, const struct plm_tok_view *view,
                               size_t at);

// One alternative of a rule's expression.
struct plm_tok_alt {
    plm_tok_scan_fn *scan;
    struct plm_tok_class lead; // one character before the body, where there is one
    struct plm_tok_class body;
    struct plm_tok_class lower; // plm_tok_scan_cased: what may follow the body
    struct plm_tok_class tail;  // any number behind the body
    uint32_t most;              // characters of the body; 0: any number
    bool needs_lead;
    bool any_case;    // plm_tok_scan_contraction
    bool contraction; // plm_tok_scan_cased: a contraction may end the word
};

// lead? body{1,most} tail*
plm_tok_scan_fn plm_tok_scan_run;
// lead? body* lower+, or else lead? body+ lower*
plm_tok_scan_fn plm_tok_scan_cased;
// 's|'t|'re|'ve|'m|'ll|'d
plm_tok_scan_fn plm_tok_scan_contraction;
// \s*[\r\n]+
plm_tok_scan_fn plm_tok_scan_line_end;
// \s+(?!\S)|\s+
plm_tok_scan_fn plm_tok_scan_blanks;
// \s+$
plm_tok_scan_fn plm_tok_scan_final_blanks;

// The kinds of a character, by the tables of utf8proc.
uint16_t plm_tok_kinds(uint32_t cp);
// Whether cp has the property White_Space.
bool plm_tok_is_space(uint32_t cp);

#define PLM_TOK_ALTS_MAX   6
#define PLM_TOK_STAGES_MAX 6

// The first alternative that finds a word decides; behind the last one stand zeros.
struct plm_tok_stage {
    struct plm_tok_alt alts[PLM_TOK_ALTS_MAX];
};

enum plm_tok_rule_flags {
    PLM_TOK_RULE_NFC = 1,           // the text is normalized first
    PLM_TOK_RULE_IGNORE_MERGES = 2, // a word that is a token is that token, whatever the merges say
    PLM_TOK_RULE_ADD_BOS = 4,       // where the file does not say
};

// Each stage cuts the pieces that it gets into what it finds and what lies between that. Both go to
// the next stage; the pieces of the last one are the words.
struct plm_tok_rule {
    const char *name; // of tokenizer.ggml.pre; "": the file has no such key
    const struct plm_tok_stage *stages[PLM_TOK_STAGES_MAX]; // behind the last one stand NULLs
    unsigned flags;
};

// Rule i; NULL behind the last one.
const struct plm_tok_rule *plm_tok_rule_at(size_t i);
// PLM_ERR_UNSUPPORTED says which names there are.
int plm_tok_rule_find(struct plm_slice name, const struct plm_tok_rule **ret,
                      struct plm_error *err);

// A rule that is ready for use. Immutable after plm_tok_pre_init.
struct plm_tok_pre {
    const struct plm_tok_rule *rule;
    uint16_t ascii[128];
};

void plm_tok_pre_init(struct plm_tok_pre *pre, const struct plm_tok_rule *rule);

// A walk over the words of one text.
struct plm_tok_words {
    const struct plm_tok_pre *pre;
    struct plm_slice text;
    size_t at;
    // What each stage found last; up to begin lies what it did not find. begin = end: it found
    // nothing in its piece, which ends there.
    struct {
        size_t begin;
        size_t end;
    } found[PLM_TOK_STAGES_MAX];
};

// text is valid UTF-8 and outlives the walk.
void plm_tok_words_init(struct plm_tok_words *words, const struct plm_tok_pre *pre,
                        struct plm_slice text);
// The next word, never an empty one; the words cover the text. False: there is none.
bool plm_tok_words_next(struct plm_tok_words *words, struct plm_slice *ret);

#endif
