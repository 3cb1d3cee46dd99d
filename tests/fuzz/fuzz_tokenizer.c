// SPDX-License-Identifier: Apache-2.0
// A hostile vocabulary and a text. The input is text itself, so that a fuzzer's line dictionary and
// a person can write it: "MODEL PRE\n", then one entry a line, an empty line, and the text.
//
//     0..9 SCORE TEXT   a token of this type; SCORE is one character, N for NaN
//     m TEXT            a merge
//     b                 the 256 byte tokens of the model
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/tokenizer/tok_split.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/gguf_writer.h"

#define MAX_ENTRIES 2000

struct vocab {
    struct gguf_bytes tokens, merges, types, scores;
    uint64_t n_tokens, n_merges;
};

static void add_token(struct vocab *vocab, struct plm_slice text, uint32_t type, float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof(bits));
    gguf_put_str(&vocab->tokens, text);
    gguf_put_uint(&vocab->types, type, 4);
    gguf_put_uint(&vocab->scores, bits, 4);
    vocab->n_tokens++;
}

static void add_bytes(struct vocab *vocab, bool spm)
{
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        char text[8];
        size_t n = spm ? (size_t)snprintf(text, sizeof(text), "<0x%02X>", b)
                       : plm_utf8_encode(printable ? b : next++, text);
        add_token(vocab, (struct plm_slice){text, n}, spm ? 6 : 1, 0);
    }
}

static void add_entry(struct vocab *vocab, struct plm_slice line, bool spm)
{
    if (vocab->n_tokens + vocab->n_merges > MAX_ENTRIES)
        return;
    if (line.ptr[0] >= '0' && line.ptr[0] <= '9' && line.len >= 2) {
        float score = line.ptr[1] == 'N' ? NAN : -(float)line.ptr[1];
        add_token(vocab, (struct plm_slice){line.ptr + 2, line.len - 2},
                  (uint32_t)(line.ptr[0] - '0'), score);
    } else if (line.ptr[0] == 'm') {
        gguf_put_str(&vocab->merges, (struct plm_slice){line.ptr + 1, line.len - 1});
        vocab->n_merges++;
    } else if (line.ptr[0] == 'b') {
        add_bytes(vocab, spm);
    }
}

static struct plm_slice next_line(const char **at, const char *end)
{
    const char *begin = *at;
    const char *lf = memchr(begin, '\n', (size_t)(end - begin));
    *at = lf != NULL ? lf + 1 : end;
    return (struct plm_slice){begin, (size_t)((lf != NULL ? lf : end) - begin)};
}

static void put_list(struct gguf_writer *w, const char *key, enum plm_gguf_type type, uint64_t n,
                     const struct gguf_bytes *bytes)
{
    gguf_writer_key(w, (struct plm_slice){key, strlen(key)}, PLM_GGUF_ARRAY);
    gguf_put_uint(&w->keys, type, 4);
    gguf_put_uint(&w->keys, n, 8);
    gguf_put(&w->keys, bytes->ptr, bytes->len);
}

// Everything that goes with one way of encoding.
static void check_encode(struct plm_host *host, const struct plm_tokenizer *tokenizer, bool spm,
                         struct plm_slice text, unsigned flags)
{
    struct plm_tokens ids;
    struct plm_buf out;
    struct plm_detok detok;
    plm_tokens_init(&ids, host);
    plm_buf_init(&out, host, PLM_HOST_OTHER);
    int status = plm_tokenizer_encode(tokenizer, text, flags, &ids, NULL);
    bool valid = plm_utf8_valid_prefix(text.ptr, text.len) == text.len;
    if (valid ? status != PLM_OK : status != PLM_ERR_FORMAT || ids.n != 0)
        abort();
    if (valid && plm_tokenizer_least(tokenizer, text.len) > ids.n)
        abort();
    plm_detok_init(&detok, tokenizer, flags == 0, true);
    for (size_t i = 0; i < ids.n; i++) {
        size_t before = out.len;
        if (ids.ids[i] < 0 || ids.ids[i] >= plm_tokenizer_n_vocab(tokenizer))
            abort();
        if (flags == 0 && !spm && plm_tokenizer_is_control(tokenizer, ids.ids[i]))
            abort(); // SPM may give its unknown token
        plm_detok_push(&detok, ids.ids[i], &out);
        if (out.len > before &&
            plm_utf8_valid_prefix(out.data + before, out.len - before) != out.len - before)
            abort();
    }
    plm_detok_flush(&detok, &out);
    if (plm_tokenizer_decode(tokenizer, ids.ids, ids.n, false, &out) != PLM_OK)
        abort();
    plm_buf_finish(&out);
    plm_tokens_finish(&ids);
}

// The words of every rule cover the text, and none is empty.
static void check_words(struct plm_slice text)
{
    const struct plm_tok_rule *rule;
    if (plm_utf8_valid_prefix(text.ptr, text.len) != text.len)
        return;
    for (size_t i = 0; (rule = plm_tok_rule_at(i)) != NULL; i++) {
        struct plm_tok_pre pre;
        struct plm_tok_words words;
        struct plm_slice word;
        size_t at = 0;
        plm_tok_pre_init(&pre, rule);
        plm_tok_words_init(&words, &pre, text);
        while (plm_tok_words_next(&words, &word)) {
            if (word.len == 0 || word.ptr != text.ptr + at || word.len > text.len - at ||
                plm_utf8_valid_prefix(word.ptr, word.len) != word.len)
                abort();
            at += word.len;
        }
        if (at != text.len)
            abort();
    }
}

static void run(const unsigned char *bytes, size_t n, bool spm, struct plm_slice text)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *gguf = NULL;
    struct plm_tokenizer *tokenizer = NULL;
    struct plm_error err = {0};
    if (plm_gguf_open_memory(host, bytes, n, true, &gguf, &err) == PLM_OK) {
        int status = plm_tokenizer_create(host, gguf, &tokenizer, &err);
        if ((status == PLM_OK) != (tokenizer != NULL) || status == PLM_ERR_NOMEM_HOST ||
            status == PLM_ERR_INTERNAL)
            abort();
        if (status == PLM_OK) {
            check_encode(host, tokenizer, spm, text, 0);
            check_encode(host, tokenizer, spm, text,
                         PLM_ENCODE_PARSE_SPECIAL | PLM_ENCODE_ADD_SPECIAL);
        }
    }
    plm_tokenizer_destroy(tokenizer);
    plm_gguf_close(gguf);
    if (plm_host_destroy(host) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *at = (const char *)bytes;
    const char *end = at + n;
    if (n == 0 || n > 16384)
        return 0;
    struct plm_slice line = next_line(&at, end);
    const char *space = memchr(line.ptr, ' ', line.len);
    struct plm_slice model = {line.ptr, space != NULL ? (size_t)(space - line.ptr) : line.len};
    bool spm = plm_slice_eq_str(model, "llama");
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_key(&w, PLM_SLICE("tokenizer.ggml.model"), PLM_GGUF_STRING);
    gguf_put_str(&w.keys, model);
    if (space != NULL) {
        struct plm_slice rest = {space + 1, line.len - model.len - 1};
        gguf_writer_key(&w, spm ? PLM_SLICE("general.name") : PLM_SLICE("tokenizer.ggml.pre"),
                        PLM_GGUF_STRING);
        gguf_put_str(&w.keys, rest);
    }
    struct vocab vocab = {0};
    while (at < end && (line = next_line(&at, end)).len > 0)
        add_entry(&vocab, line, spm);
    put_list(&w, "tokenizer.ggml.tokens", PLM_GGUF_STRING, vocab.n_tokens, &vocab.tokens);
    put_list(&w, "tokenizer.ggml.token_type", PLM_GGUF_I32, vocab.n_tokens, &vocab.types);
    put_list(&w, "tokenizer.ggml.scores", PLM_GGUF_F32, vocab.n_tokens, &vocab.scores);
    put_list(&w, "tokenizer.ggml.merges", PLM_GGUF_STRING, vocab.n_merges, &vocab.merges);
    size_t size;
    const unsigned char *file = gguf_writer_bytes(&w, &size);
    check_words((struct plm_slice){at, (size_t)(end - at)});
    run(file, size, spm, (struct plm_slice){at, (size_t)(end - at)});
    gguf_writer_finish(&w);
    free(vocab.tokens.ptr);
    free(vocab.merges.ptr);
    free(vocab.types.ptr);
    free(vocab.scores.ptr);
    return 0;
}
