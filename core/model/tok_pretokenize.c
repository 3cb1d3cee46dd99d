// SPDX-License-Identifier: Apache-2.0
// Splitting text into the words inside which merging happens, by the regular expressions that the
// models were trained with.
#include "core/base/text.h"
#include "core/base/utf8.h"
#include "core/model/tok.h"

// The property White_Space. PCRE2's own \s also has U+180E, which is none since Unicode 6.3.
#define WS                                                                                         \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"

#define GPT2_CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"

static const char gpt2_rule[] = GPT2_CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^" WS
                                                  "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])|[" WS "]+";

// Each digit is cut out first, and what lies between digits is split by the rule of GPT-2. So a run
// of spaces before a digit is at the end of its part, and is not cut.
static const char smollm_rule[] = "\\p{N}|" GPT2_CONTRACTIONS "| ?\\p{L}+| ?[^" WS
                                  "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "\\p{N}])|[" WS "]+";

// Qwen 2 and Llama 3 differ in the number of digits that stay together.
#define CL100K_RULE(digits)                                                                        \
    "(?i:" GPT2_CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS                  \
    "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"

static const char qwen2_rule[] = CL100K_RULE("\\p{N}");
static const char llama_bpe_rule[] = CL100K_RULE("\\p{N}{1,3}");

static const struct {
    const char *name;
    const char *rule;
    bool nfc;
    bool ignore_merges;
    bool add_bos;
} rules[] = {
    // Files of GPT-NeoX have no name. Its tokenizer is GPT-2's behind NFC.
    {"", gpt2_rule, true, false, false},
    {"gpt-2", gpt2_rule, false, false, false},
    {"smollm", smollm_rule, false, false, false},
    {"qwen2", qwen2_rule, true, false, false},
    {"llama-bpe", llama_bpe_rule, false, true, true},
    {"llama3", llama_bpe_rule, false, true, true},   // older names of llama-bpe
    {"llama-v3", llama_bpe_rule, false, true, true}, //
};

// Backtracking of the interpreter. The rules nest none, so this is far more than they use.
#define HEAP_LIMIT_KIB (16 * 1024)
// A run of white space is walked back once per alternative, one count a character.
#define MATCH_LIMIT_BASE     1000000
#define MATCH_LIMIT_PER_BYTE 8

bool plm_tok_is_space(uint32_t cp)
{
    return (cp >= 0x9 && cp <= 0xD) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

static void *pcre_malloc(size_t bytes, void *host)
{
    return plm_malloc(host, PLM_HOST_TOKENIZER, bytes);
}

static void pcre_free(void *ptr, void *host)
{
    plm_free(host, ptr);
}

static int fail_rule(struct plm_slice name, struct plm_error *err)
{
    char names[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        if (rules[i].name[0] != '\0')
            plm_text_list(names, sizeof(names), &used, rules[i].name);
    }
    return plm_fail(err, PLM_ERR_UNSUPPORTED,
                    "tokenizer.ggml.pre \"%.*s\" is not supported (there are: %s)",
                    (int)(name.len < 64 ? name.len : 64), name.ptr, names);
}

int plm_tok_pre_init(struct plm_tok_pre *pre, struct plm_host *host, struct plm_slice name,
                     struct plm_error *err)
{
    size_t i = 0;
    while (i < sizeof(rules) / sizeof(*rules) && !plm_slice_eq_str(name, rules[i].name))
        i++;
    if (i == sizeof(rules) / sizeof(*rules))
        return fail_rule(name, err);
    pre->nfc = rules[i].nfc;
    pre->ignore_merges = rules[i].ignore_merges;
    pre->add_bos = rules[i].add_bos;
    pre->general = pcre2_general_context_create(pcre_malloc, pcre_free, host);
    if (pre->general == NULL)
        return plm_tok_no_memory(err);
    pcre2_compile_context *context = pcre2_compile_context_create(pre->general);
    if (context == NULL)
        return plm_tok_no_memory(err);
    int code = 0;
    size_t offset = 0;
    pre->code = pcre2_compile((PCRE2_SPTR)rules[i].rule, PCRE2_ZERO_TERMINATED,
                              PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (pre->code == NULL)
        // The rules are constants: memory is the only thing that can be missing.
        return plm_tok_no_memory(err);
    // Where executable memory is forbidden the interpreter matches instead.
    pcre2_jit_compile(pre->code, PCRE2_JIT_COMPLETE);
    return PLM_OK;
}

void plm_tok_pre_finish(struct plm_tok_pre *pre)
{
    pcre2_code_free(pre->code);
    pcre2_general_context_free(pre->general);
}

static bool prepare(const struct plm_tok_pre *pre, struct plm_tok_scratch *scratch, size_t n)
{
    if (scratch->match == NULL)
        scratch->match = pcre2_match_data_create(1, pre->general);
    if (scratch->match_context == NULL)
        scratch->match_context = pcre2_match_context_create(pre->general);
    if (scratch->match == NULL || scratch->match_context == NULL)
        return false;
    uint64_t limit = MATCH_LIMIT_BASE + (uint64_t)n * MATCH_LIMIT_PER_BYTE;
    pcre2_set_match_limit(scratch->match_context,
                          limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    pcre2_set_heap_limit(scratch->match_context, HEAP_LIMIT_KIB);
    return true;
}

int plm_tok_pre_next(const struct plm_tok_pre *pre, struct plm_tok_scratch *scratch,
                     struct plm_slice text, size_t from, size_t *ret_bytes, struct plm_error *err)
{
    if (from == 0 && !prepare(pre, scratch, text.len))
        return plm_tok_no_memory(err);
    int found = pcre2_match(pre->code, (PCRE2_SPTR)text.ptr, text.len, from, PCRE2_NO_UTF_CHECK,
                            scratch->match, scratch->match_context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found =
            pcre2_match(pre->code, (PCRE2_SPTR)text.ptr, text.len, from,
                        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch->match, scratch->match_context);
    if (found == PCRE2_ERROR_NOMEMORY)
        return plm_tok_no_memory(err);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        return plm_fail(err, PLM_ERR_LIMIT, "splitting the text at byte %zu hit limit %d of PCRE2",
                        from, found);
    size_t n = found >= 0 ? pcre2_get_ovector_pointer(scratch->match)[1] - from : 0;
    if (n == 0) { // every character belongs to some alternative; stay safe where one does not
        uint32_t cp;
        n = plm_utf8_decode(text.ptr + from, text.len - from, &cp);
        n = n > 0 ? n : 1;
    }
    *ret_bytes = n;
    return PLM_OK;
}

void plm_tok_scratch_finish(struct plm_tok_scratch *scratch)
{
    struct plm_host *host = scratch->host;
    plm_free(host, scratch->symbols.id);
    plm_free(host, scratch->symbols.len);
    plm_free(host, scratch->symbols.prev);
    plm_free(host, scratch->heap);
    plm_free(host, scratch->cps);
    plm_buf_finish(&scratch->text);
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->match_context);
}
