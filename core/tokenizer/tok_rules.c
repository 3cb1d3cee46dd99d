// SPDX-License-Identifier: Apache-2.0
// The rules by which models split text, each line beside the expression that their makers publish.
// A further name is one line in the table at the end; a shape of word that nothing here describes
// is one more function in tok_scan.c.
#include "core/base/text.h"
#include "core/tokenizer/tok_split.h"

#define N(array) (sizeof(array) / sizeof(*(array)))

// The script Han: Scripts.txt of Unicode 15.0, the version of utf8proc 2.8.
static const uint32_t han_items[][2] = {
    {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
    {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
    {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D},
    {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2F800, 0x2FA1D}, {0x30000, 0x3134A},
    {0x31350, 0x323AF},
};

// [一-龥぀-ゟ゠-ヿ] of DeepSeek V3: Hiragana, Katakana, ideographs.
static const uint32_t cjk_items[][2] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};

// [一-龥ࠀ-一가-퟿] of DeepSeek's first models; the second range does start at U+0800.
static const uint32_t wide_cjk_items[][2] = {{0x800, 0x9FA5}, {0xAC00, 0xD7FF}};

// [!-/:-~！-／：-～‘-‟　-。] of DeepSeek LLM; between ":" and "~" there are letters, too.
static const uint32_t sign_items[][2] = {
    {0x21, 0x2F},     {0x3A, 0x7E},     {0x2018, 0x201F},
    {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E},
};

// The letters that DeepSeek LLM lists, range by range: most of those that have a case. In copies of
// the list that went through NFC, U+1F7D, U+1FBE, U+1FD3, U+1FDB, U+2126 and U+212A are other
// letters, which turns three ranges around and makes one far too wide.
static const uint32_t listed_letter_items[][2] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x377},     {0x37B, 0x37D},
    {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},     {0x38C, 0x38C},
    {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
    {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
    {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
    {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
    {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
    {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

static const struct plm_tok_ranges han = {han_items, N(han_items)};
static const struct plm_tok_ranges cjk = {cjk_items, N(cjk_items)};
static const struct plm_tok_ranges wide_cjk = {wide_cjk_items, N(wide_cjk_items)};
static const struct plm_tok_ranges signs = {sign_items, N(sign_items)};
static const struct plm_tok_ranges listed = {listed_letter_items, N(listed_letter_items)};

enum {
    LETTER = PLM_TOK_LETTER,
    MARK = PLM_TOK_MARK,
    NUMBER = PLM_TOK_NUMBER,
    PUNCT = PLM_TOK_PUNCT,
    SYMBOL = PLM_TOK_SYMBOL,
    BLANK = PLM_TOK_BLANK,
    EOL = PLM_TOK_LINE_END,
    SPACE = PLM_TOK_SPACE,
    SLASH = PLM_TOK_SLASH,
};

// Fields of an alternative: its shape first, then its classes.
#define RUN             .scan = plm_tok_scan_run
#define CONTRACTION     .scan = plm_tok_scan_contraction
#define LINE_END        .scan = plm_tok_scan_line_end
#define BLANKS          .scan = plm_tok_scan_blanks
#define LEAD(kinds)     .lead.any = (kinds)
#define LEAD_BUT(kinds) .lead.any = PLM_TOK_ANY, .lead.none = (kinds)
#define BODY(kinds)     .body.any = (kinds)
#define BODY_BUT(kinds) .body.any = PLM_TOK_ANY, .body.none = (kinds)
#define BODY_IN(ranges) .body.within = &(ranges)
#define TAIL(kinds)     .tail.any = (kinds)
#define UP_TO(n)        .most = (n)
// Words that end where capitals begin: [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+,
// or the same with + and *.
#define CASED                                                                                      \
    .scan = plm_tok_scan_cased, .body.any = PLM_TOK_UPPER | PLM_TOK_UNCASED | MARK,                \
    .lower.any = PLM_TOK_LOWER | PLM_TOK_UNCASED | MARK
#define CASED_BUT(ranges) CASED, .body.except = &(ranges), .lower.except = &(ranges)

static const struct plm_tok_stage digit = {{{RUN, BODY(NUMBER), UP_TO(1)}}};        // \p{N}
static const struct plm_tok_stage three_digits = {{{RUN, BODY(NUMBER), UP_TO(3)}}}; // \p{N}{1,3}

static const struct plm_tok_stage gpt2 = {{
    {CONTRACTION},                                         // 's|'t|'re|'ve|'m|'ll|'d
    {RUN, LEAD(SPACE), BODY(LETTER)},                      //  ?\p{L}+
    {RUN, LEAD(SPACE), BODY(NUMBER)},                      //  ?\p{N}+
    {RUN, LEAD(SPACE), BODY_BUT(BLANK | LETTER | NUMBER)}, //  ?[^\s\p{L}\p{N}]+
    {BLANKS},                                              // \s+(?!\S)|\s+
}};

// Punctuation is \p{P} and that of ASCII. Runs of digits are cut by threes; what is left is a word.
static const struct plm_tok_stage falcon_signs = {{{RUN, BODY(PUNCT | PLM_TOK_ASCII_PUNCT)}}};
static const struct plm_tok_stage falcon_digits = {{{RUN, BODY(PLM_TOK_ASCII_DIGIT), UP_TO(3)}}};

static const struct plm_tok_stage llama3 = {{
    {CONTRACTION, .any_case = true},                      // (?i:'s|'t|'re|'ve|'m|'ll|'d)
    {RUN, LEAD_BUT(EOL | LETTER | NUMBER), BODY(LETTER)}, // [^\r\n\p{L}\p{N}]?\p{L}+
    {RUN, BODY(NUMBER), UP_TO(3)},                        // \p{N}{1,3}
    {RUN, LEAD(SPACE), BODY_BUT(BLANK | LETTER | NUMBER), TAIL(EOL)}, //  ?[^\s\p{L}\p{N}]+[\r\n]*
    {LINE_END},                                                       // \s*[\r\n]+
    {BLANKS},                                                         // \s+(?!\S)|\s+
}};

// As Llama 3, but each digit is a word.
static const struct plm_tok_stage qwen2 = {{
    {CONTRACTION, .any_case = true},
    {RUN, LEAD_BUT(EOL | LETTER | NUMBER), BODY(LETTER)},
    {RUN, BODY(NUMBER), UP_TO(1)}, // \p{N}
    {RUN, LEAD(SPACE), BODY_BUT(BLANK | LETTER | NUMBER), TAIL(EOL)},
    {LINE_END},
    {BLANKS},
}};

// As Qwen 2, but marks belong to words.
static const struct plm_tok_stage qwen35 = {{
    {CONTRACTION, .any_case = true},
    {RUN, LEAD_BUT(EOL | LETTER | NUMBER), BODY(LETTER | MARK)}, // [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+
    {RUN, BODY(NUMBER), UP_TO(1)},
    //  ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*
    {RUN, LEAD(SPACE), BODY_BUT(BLANK | LETTER | MARK | NUMBER), TAIL(EOL)},
    {LINE_END},
    {BLANKS},
}};

static const struct plm_tok_stage gpt4o = {{
    // [^\r\n\p{L}\p{N}]?, a cased word, (?i:'s|'t|'re|'ve|'m|'ll|'d)?
    {CASED, LEAD_BUT(EOL | LETTER | NUMBER), .contraction = true},
    {RUN, BODY(NUMBER), UP_TO(3)},
    //  ?[^\s\p{L}\p{N}]+[\r\n/]*
    {RUN, LEAD(SPACE), BODY_BUT(BLANK | LETTER | NUMBER), TAIL(EOL | SLASH)},
    {LINE_END},
    {BLANKS},
}};

// As GPT-4o, but contractions are nothing special and each digit is a word.
static const struct plm_tok_stage tekken = {{
    {CASED, LEAD_BUT(EOL | LETTER | NUMBER)},
    {RUN, BODY(NUMBER), UP_TO(1)},
    {RUN, LEAD(SPACE), BODY_BUT(BLANK | LETTER | NUMBER), TAIL(EOL | SLASH)},
    {LINE_END},
    {BLANKS},
}};

// As GPT-4o, but Han is apart: classes of cased words end in &&[^\p{Han}].
static const struct plm_tok_stage kimi_k2 = {{
    {RUN, BODY_IN(han)}, // [\p{Han}]+
    {CASED_BUT(han), LEAD_BUT(EOL | LETTER | NUMBER), .contraction = true},
    {RUN, BODY(NUMBER), UP_TO(3)},
    {RUN, LEAD(SPACE), BODY_BUT(BLANK | LETTER | NUMBER), TAIL(EOL)},
    {LINE_END},
    {BLANKS},
}};

static const struct plm_tok_stage one_line_end = {{{RUN, BODY(EOL), UP_TO(1)}}};        // [\r\n]
static const struct plm_tok_stage coder_letters = {{{RUN, LEAD(BLANK), BODY(LETTER)}}}; // \s?\p{L}+
static const struct plm_tok_stage coder_signs = {{{RUN, LEAD(BLANK), BODY(PUNCT)}}};    // \s?\p{P}+
static const struct plm_tok_stage llm_letters = {
    {{RUN, LEAD(BLANK), BODY_IN(listed)}}};                                           // \s?[...]+
static const struct plm_tok_stage llm_signs = {{{RUN, LEAD(BLANK), BODY_IN(signs)}}}; // \s?[...]+
static const struct plm_tok_stage final_blanks = {{{.scan = plm_tok_scan_final_blanks}}}; // \s+$
static const struct plm_tok_stage wide_cjk_run = {{{RUN, BODY_IN(wide_cjk)}}};            // [...]+
static const struct plm_tok_stage cjk_run = {{{RUN, BODY_IN(cjk)}}};                      // [...]+

static const struct plm_tok_stage deepseek_v3 = {{
    // One of the 32 signs of ASCII and [A-Za-z]+
    {RUN, LEAD(PLM_TOK_ASCII_PUNCT), .needs_lead = true, BODY(PLM_TOK_ASCII_ALPHA)},
    // [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
    {RUN, LEAD_BUT(EOL | LETTER | PUNCT | SYMBOL), BODY(LETTER | MARK)},
    {RUN, LEAD(SPACE), BODY(PUNCT | SYMBOL), TAIL(EOL)}, //  ?[\p{P}\p{S}]+[\r\n]*
    {LINE_END},
    {BLANKS},
}};

#define NFC           PLM_TOK_RULE_NFC
#define IGNORE_MERGES PLM_TOK_RULE_IGNORE_MERGES
#define ADD_BOS       PLM_TOK_RULE_ADD_BOS

static const struct plm_tok_rule rules[] = {
    {"", {&gpt2}, NFC}, // GPT-NeoX, whose files have no name
    {"gpt-2", {&gpt2}, 0},
    {"mpt", {&gpt2}, NFC},
    {"smollm", {&digit, &gpt2}, 0},
    {"starcoder", {&digit, &gpt2}, 0},
    {"refact", {&digit, &gpt2}, 0},
    {"falcon", {&falcon_signs, &gpt2, &falcon_digits}, 0},
    {"llama-bpe", {&llama3}, IGNORE_MERGES | ADD_BOS},
    {"llama3", {&llama3}, IGNORE_MERGES | ADD_BOS},   // an older name of it
    {"llama-v3", {&llama3}, IGNORE_MERGES | ADD_BOS}, // and another
    {"smaug-bpe", {&llama3}, IGNORE_MERGES},          // also SmolLM3
    {"dbrx", {&llama3}, IGNORE_MERGES},
    {"glm4", {&llama3}, IGNORE_MERGES},
    {"chatglm-bpe", {&llama3}, IGNORE_MERGES},
    {"qwen2", {&qwen2}, NFC},
    {"deepseek-r1-qwen", {&qwen2}, NFC},
    {"qwen35", {&qwen35}, NFC},
    {"gpt-4o", {&gpt4o}, IGNORE_MERGES},
    {"llama4", {&gpt4o}, IGNORE_MERGES},
    {"tekken", {&tekken}, IGNORE_MERGES | ADD_BOS},
    {"kimi-k2", {&kimi_k2}, IGNORE_MERGES},
    {"deepseek-llm",
     {&one_line_end, &llm_letters, &llm_signs, &final_blanks, &wide_cjk_run, &digit},
     0},
    {"deepseek-coder", {&one_line_end, &coder_letters, &coder_signs, &wide_cjk_run, &digit}, 0},
    {"deepseek-v3", {&three_digits, &cjk_run, &deepseek_v3}, 0},
};

const struct plm_tok_rule *plm_tok_rule_at(size_t i)
{
    return i < N(rules) ? &rules[i] : NULL;
}

int plm_tok_rule_find(struct plm_slice name, const struct plm_tok_rule **ret, struct plm_error *err)
{
    char names[320] = "";
    size_t used = 0;
    for (size_t i = 0; i < N(rules); i++) {
        if (plm_slice_eq_str(name, rules[i].name)) {
            *ret = &rules[i];
            return PLM_OK;
        }
        if (rules[i].name[0] != '\0')
            plm_text_list(names, sizeof(names), &used, rules[i].name);
    }
    return plm_fail(err, PLM_ERR_UNSUPPORTED,
                    "tokenizer.ggml.pre \"%.*s\" is not supported (there are: %s)",
                    (int)(name.len < 64 ? name.len : 64), name.ptr, names);
}
