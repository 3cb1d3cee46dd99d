// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE: a word is a row of bytes, and merges join neighbours in the order of their rank.
#include <string.h>

#include "core/tokenizer/tok.h"

// Merges have a rank of 32 bits; the largest vocabularies in use have some 500,000.
#define MAX_MERGES (1u << 26)

static uint32_t rule_hash(int32_t left, int32_t right)
{
    // Fibonacci hashing of the pair; the high bits are the well mixed ones.
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    pair = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(pair >> 32);
}

static struct plm_tok_merge_rule *find_rule(const struct plm_tok_bpe *bpe, int32_t left,
                                            int32_t right)
{
    uint32_t slot = rule_hash(left, right) & bpe->rule_mask;
    struct plm_tok_merge_rule *rule = &bpe->rules[slot];
    while (rule->result >= 0 && (rule->left != left || rule->right != right)) {
        slot = (slot + 1) & bpe->rule_mask;
        rule = &bpe->rules[slot];
    }
    return rule;
}

static bool pair_of_bytes(const struct plm_tokenizer *tokenizer, const char *s, size_t n,
                          int32_t left, int32_t right, uint32_t *ret_key, int32_t *ret_id)
{
    (void)s;
    (void)n;
    const struct plm_tok_merge_rule *rule = find_rule(&tokenizer->bpe, left, right);
    if (rule->result < 0)
        return false;
    *ret_key = rule->rank;
    *ret_id = rule->result;
    return true;
}

// One line of the list, "left right" in the byte-level alphabet; buf has room for it.
static int load_merge(struct plm_tokenizer *tokenizer, struct plm_slice line, uint32_t rank,
                      char *buf, struct plm_error *err)
{
    const struct plm_tok_vocab *vocab = &tokenizer->vocab;
    const char *space = line.len > 1 ? memchr(line.ptr + 1, ' ', line.len - 1) : NULL;
    if (space == NULL)
        return plm_fail(err, PLM_ERR_FORMAT, "tokenizer.ggml.merges: entry %u is not a pair", rank);
    size_t cut = (size_t)(space - line.ptr);
    size_t n_left = plm_tok_byte_level_decode((struct plm_slice){line.ptr, cut}, buf);
    size_t n_right = plm_tok_byte_level_decode(
        (struct plm_slice){line.ptr + cut + 1, line.len - cut - 1}, buf + n_left);
    int32_t left = plm_tok_vocab_find(vocab, PLM_TOK_BPE, buf, n_left);
    int32_t right = plm_tok_vocab_find(vocab, PLM_TOK_BPE, buf + n_left, n_right);
    int32_t result = plm_tok_vocab_find(vocab, PLM_TOK_BPE, buf, n_left + n_right);
    if (left < 0 || right < 0 || result < 0)
        return plm_fail(err, PLM_ERR_FORMAT,
                        "tokenizer.ggml.merges: entry %u (%.*s) names or makes a token that is not "
                        "in the vocabulary",
                        rank, (int)(line.len < 64 ? line.len : 64), line.ptr);
    struct plm_tok_merge_rule *rule = find_rule(&tokenizer->bpe, left, right);
    if (rule->result < 0) // of equal pairs the first counts
        *rule = (struct plm_tok_merge_rule){left, right, result, rank};
    return PLM_OK;
}

static int load_merges(struct plm_tokenizer *tokenizer, const struct plm_gguf_array *merges,
                       char *buf, struct plm_error *err)
{
    struct plm_tok_bpe *bpe = &tokenizer->bpe;
    uint32_t n_rules = 16;
    while (n_rules < merges->count + merges->count / 2)
        n_rules *= 2;
    bpe->rules = plm_malloc(tokenizer->host, PLM_HOST_TOKENIZER, n_rules * sizeof(*bpe->rules));
    if (bpe->rules == NULL)
        return plm_tok_no_memory(err);
    for (uint32_t i = 0; i < n_rules; i++)
        bpe->rules[i].result = -1;
    bpe->rule_mask = n_rules - 1;
    int status = PLM_OK;
    for (uint32_t i = 0; i < merges->count && status == PLM_OK; i++)
        status = load_merge(tokenizer, merges->strs[i], i, buf, err);
    return status;
}

// Fills the symbols with the tokens of the bytes and returns their number. A byte without a token
// is dropped, and its neighbours become adjacent.
static uint32_t symbols_of_bytes(const struct plm_tokenizer *tokenizer,
                                 struct plm_tok_symbols *symbols, struct plm_slice word)
{
    uint32_t n = 0;
    for (size_t i = 0; i < word.len; i++) {
        int32_t id = tokenizer->vocab.byte_id[(unsigned char)word.ptr[i]];
        if (id < 0)
            continue;
        symbols->id[n] = id;
        symbols->len[n] = 1;
        n++;
    }
    return n;
}

static int find_whole_tokens(struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                             struct plm_error *err)
{
    for (int32_t id = 0; id < tokenizer->vocab.n; id++) {
        struct plm_slice piece = plm_tok_string(&tokenizer->vocab.piece, id);
        if (plm_tok_vocab_find(&tokenizer->vocab, PLM_TOK_BPE, piece.ptr, piece.len) != id)
            continue;
        if (!plm_tok_scratch_symbols(scratch, piece.len))
            return plm_tok_no_memory(err);
        uint32_t n = symbols_of_bytes(tokenizer, &scratch->symbols, piece);
        if (n != piece.len)
            continue;
        if (plm_tok_merge(tokenizer, scratch, piece.ptr, n, pair_of_bytes) != PLM_OK)
            return plm_tok_no_memory(err);
        if (scratch->symbols.len[0] == n && scratch->symbols.id[0] == id)
            plm_tok_set_bit(tokenizer->whole, id);
    }
    return PLM_OK;
}

int plm_tok_bpe_load(struct plm_tokenizer *tokenizer, const struct plm_gguf *gguf,
                     struct plm_error *err)
{
    static const char key[] = "tokenizer.ggml.merges";
    struct plm_gguf_array merges;
    int status = plm_gguf_array(gguf, key, &merges, err);
    if (status == PLM_ERR_NOT_FOUND)
        return plm_fail(err, PLM_ERR_FORMAT, "a vocabulary of the kind \"gpt2\" needs %s", key);
    if (status != PLM_OK)
        return status;
    if (merges.strs == NULL && merges.count > 0)
        return plm_fail(err, PLM_ERR_FORMAT, "%s is not a list of strings", key);
    if (merges.count > MAX_MERGES)
        return plm_fail(err, PLM_ERR_LIMIT, "%s has %llu entries; at most %u are supported", key,
                        (unsigned long long)merges.count, MAX_MERGES);
    size_t longest = 0;
    for (uint64_t i = 0; i < merges.count; i++)
        if (merges.strs[i].len > longest)
            longest = merges.strs[i].len;
    char *buf = plm_malloc(tokenizer->host, PLM_HOST_TOKENIZER, longest + 1);
    if (buf == NULL)
        return plm_tok_no_memory(err);
    status = load_merges(tokenizer, &merges, buf, err);
    plm_free(tokenizer->host, buf);
    if (status != PLM_OK)
        return status;
    struct plm_tok_scratch scratch;
    plm_tok_scratch_init(&scratch, tokenizer->host);
    status = find_whole_tokens(tokenizer, &scratch, err);
    plm_tok_scratch_finish(&scratch);
    return status;
}

void plm_tok_bpe_finish(struct plm_tok_bpe *bpe, struct plm_host *host)
{
    plm_free(host, bpe->rules);
}

static int encode_word(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                       struct plm_slice word, struct plm_tokens *out)
{
    int32_t id = plm_tok_vocab_find(&tokenizer->vocab, PLM_TOK_BPE, word.ptr, word.len);
    bool ignore_merges = plm_tok_rule_says(tokenizer, PLM_TOK_RULE_IGNORE_MERGES);
    if (id >= 0 && (ignore_merges || plm_tok_bit(tokenizer->whole, id)))
        return plm_tokens_append(out, &id, 1);
    if (!plm_tok_scratch_symbols(scratch, word.len))
        return PLM_ERR_NOMEM_HOST;
    struct plm_tok_symbols *symbols = &scratch->symbols;
    uint32_t n = symbols_of_bytes(tokenizer, symbols, word);
    int status = plm_tok_merge(tokenizer, scratch, word.ptr, n, pair_of_bytes);
    for (uint32_t i = 0; i < n && status == PLM_OK; i += symbols->len[i])
        status = plm_tokens_append(out, &symbols->id[i], 1);
    return status;
}

int plm_tok_bpe_encode(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                       struct plm_slice text, struct plm_tokens *out, struct plm_error *err)
{
    if (plm_tok_rule_says(tokenizer, PLM_TOK_RULE_NFC)) {
        int status = plm_tok_nfc(scratch, &text, err);
        if (status != PLM_OK)
            return status;
    }
    struct plm_tok_words words;
    struct plm_slice word;
    plm_tok_words_init(&words, &tokenizer->pre, text);
    while (plm_tok_words_next(&words, &word)) {
        int status = plm_tok_work(word.len, err);
        if (status != PLM_OK)
            return status;
        if (encode_word(tokenizer, scratch, word, out) != PLM_OK)
            return plm_tok_no_memory(err);
    }
    return PLM_OK;
}
