// SPDX-License-Identifier: Apache-2.0
// SentencePiece BPE: spaces become U+2581, and neighbours whose joint text is a token are merged in
// the order of that token's score. A character that is no token becomes the tokens of its bytes.
#include <string.h>

#include "core/base/utf8.h"
#include "core/tokenizer/tok.h"

#define SPACE       "\xE2\x96\x81" // U+2581
#define SPACE_BYTES 3u

// Orders floats as unsigned integers, the highest first. -0 counts as 0 and NaN as the lowest.
static uint32_t score_key(float score)
{
    score = score != score ? -__builtin_inff() : score + 0.0f;
    uint32_t bits;
    memcpy(&bits, &score, sizeof(bits));
    return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

static bool pair_of_text(const struct plm_tokenizer *tokenizer, const char *s, size_t n,
                         int32_t left, int32_t right, uint32_t *ret_key, int32_t *ret_id)
{
    (void)left;
    (void)right;
    int32_t id = plm_tok_vocab_find(&tokenizer->vocab, PLM_TOK_SPM, s, n);
    if (id < 0)
        return false;
    *ret_key = score_key(tokenizer->vocab.score[id]);
    *ret_id = id;
    return true;
}

static bool is_space_at(struct plm_slice text, size_t at)
{
    return text.len - at >= SPACE_BYTES && memcmp(text.ptr + at, SPACE, SPACE_BYTES) == 0;
}

// Whether a space stands behind something else.
static bool has_inner_space(struct plm_slice text)
{
    size_t at = 0;
    while (at < text.len && is_space_at(text, at))
        at += SPACE_BYTES;
    for (; at < text.len; at++)
        if (is_space_at(text, at))
            return true;
    return false;
}

// One symbol per character. False: not valid UTF-8.
static bool symbols_of_characters(const struct plm_tokenizer *tokenizer,
                                  struct plm_tok_symbols *symbols, struct plm_slice text)
{
    for (size_t at = 0; at < text.len;) {
        uint32_t cp;
        size_t len = plm_utf8_decode(text.ptr + at, text.len - at, &cp);
        if (len == 0)
            return false;
        symbols->id[at] = plm_tok_vocab_find(&tokenizer->vocab, PLM_TOK_SPM, text.ptr + at, len);
        symbols->len[at] = (uint32_t)len;
        at += len;
    }
    return true;
}

int plm_tok_spm_load(struct plm_tokenizer *tokenizer, struct plm_error *err)
{
    const struct plm_tok_vocab *vocab = &tokenizer->vocab;
    struct plm_tok_scratch scratch;
    plm_tok_scratch_init(&scratch, tokenizer->host);
    int status = PLM_OK;
    tokenizer->splits_at_space = true;
    for (int32_t id = 0; id < vocab->n && status == PLM_OK; id++) {
        struct plm_slice text = plm_tok_string(&vocab->text, id);
        if (plm_tok_vocab_find(vocab, PLM_TOK_SPM, text.ptr, text.len) != id)
            continue;
        if (has_inner_space(text))
            tokenizer->splits_at_space = false;
        if (!plm_tok_scratch_symbols(&scratch, text.len))
            status = PLM_ERR_NOMEM_HOST;
        else if (symbols_of_characters(tokenizer, &scratch.symbols, text))
            status = plm_tok_merge(tokenizer, &scratch, text.ptr, (uint32_t)text.len, pair_of_text);
        else
            continue;
        if (status == PLM_OK && scratch.symbols.len[0] == text.len)
            plm_tok_set_bit(tokenizer->whole, id);
    }
    plm_tok_scratch_finish(&scratch);
    return status == PLM_OK ? PLM_OK : plm_tok_no_memory(err);
}

static int append_bytes(const struct plm_tokenizer *tokenizer, struct plm_slice text,
                        struct plm_tokens *out)
{
    int32_t ids[4];
    for (size_t i = 0; i < text.len; i++) {
        ids[i] = tokenizer->vocab.byte_id[(unsigned char)text.ptr[i]];
        if (ids[i] < 0) // no byte tokens: the whole character is unknown
            return tokenizer->unk < 0 ? PLM_OK : plm_tokens_append(out, &tokenizer->unk, 1);
    }
    return plm_tokens_append(out, ids, text.len);
}

static int encode_word(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                       struct plm_slice word, struct plm_tokens *out)
{
    int32_t id = plm_tok_vocab_find(&tokenizer->vocab, PLM_TOK_SPM, word.ptr, word.len);
    if (id >= 0 && plm_tok_bit(tokenizer->whole, id))
        return plm_tokens_append(out, &id, 1);
    if (!plm_tok_scratch_symbols(scratch, word.len))
        return PLM_ERR_NOMEM_HOST;
    struct plm_tok_symbols *symbols = &scratch->symbols;
    if (!symbols_of_characters(tokenizer, symbols, word))
        return PLM_ERR_INTERNAL; // the caller has checked the text
    int status = plm_tok_merge(tokenizer, scratch, word.ptr, (uint32_t)word.len, pair_of_text);
    for (uint32_t i = 0; i < word.len && status == PLM_OK; i += symbols->len[i])
        status =
            symbols->id[i] >= 0
                ? plm_tokens_append(out, &symbols->id[i], 1)
                : append_bytes(tokenizer, (struct plm_slice){word.ptr + i, symbols->len[i]}, out);
    return status;
}

// Writes text with its spaces escaped to scratch->text. False: no memory.
static bool escape_spaces(struct plm_tok_scratch *scratch, struct plm_slice text, bool prefix)
{
    struct plm_buf *buf = &scratch->text;
    plm_buf_clear(buf);
    if (prefix)
        plm_buf_append(buf, SPACE, SPACE_BYTES);
    for (size_t at = 0; at < text.len;) {
        const char *space = memchr(text.ptr + at, ' ', text.len - at);
        size_t n = space != NULL ? (size_t)(space - text.ptr) - at : text.len - at;
        plm_buf_append(buf, text.ptr + at, n);
        if (space != NULL)
            plm_buf_append(buf, SPACE, SPACE_BYTES);
        at += n + (space != NULL);
    }
    return !buf->failed;
}

int plm_tok_spm_encode(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                       struct plm_slice text, bool prefix, struct plm_tokens *out,
                       struct plm_error *err)
{
    if (!escape_spaces(scratch, text, prefix))
        return plm_tok_no_memory(err);
    struct plm_slice all = {scratch->text.data, scratch->text.len};
    if (all.len >= UINT32_MAX)
        return plm_fail(err, PLM_ERR_LIMIT, "a text of %zu bytes is too long", all.len);
    for (size_t at = 0; at < all.len;) {
        size_t end = all.len;
        if (tokenizer->splits_at_space) {
            // Nothing merges over the start of a run of spaces, so words are merged one by one.
            end = at;
            while (end < all.len && is_space_at(all, end))
                end += SPACE_BYTES;
            while (end < all.len && !is_space_at(all, end))
                end++;
        }
        struct plm_slice word = {all.ptr + at, end - at};
        int status = plm_tok_work(word.len, err);
        if (status != PLM_OK)
            return status;
        status = encode_word(tokenizer, scratch, word, out);
        if (status != PLM_OK)
            return plm_fail(err, status, "the text could not be tokenized: %s",
                            plm_strstatus(status));
        at = end;
    }
    return PLM_OK;
}
