// SPDX-License-Identifier: Apache-2.0
// Reads the tokens of a GGUF file and indexes those that merging may give.
#include <string.h>
#include <xxhash.h>

#include "core/base/checked.h"
#include "core/base/utf8.h"
#include "core/tokenizer/tok.h"

// Ids are int32 and offsets uint32. The largest vocabularies in use have some 300,000 tokens and a
// few MB of text.
#define MAX_TOKENS     (1 << 24)
#define MAX_TEXT_BYTES (1u << 30)

// The byte-level alphabet of GPT-2: printable bytes of Latin-1 stand for themselves, the 68 others
// for U+0100 and up, in order.
#define BYTE_LEVEL_END 0x144

static bool byte_is_itself(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

// The byte that cp stands for, or -1.
static int byte_level_byte(uint32_t cp)
{
    if (cp < 0x100)
        return byte_is_itself(cp) ? (int)cp : -1;
    if (cp >= BYTE_LEVEL_END)
        return -1;
    // 33 bytes 0x00-0x20, 34 bytes 0x7F-0xA0, and 0xAD, in this order.
    uint32_t i = cp - 0x100;
    return (int)(i < 33 ? i : i < 67 ? 0x7F + (i - 33) : 0xAD);
}

size_t plm_tok_byte_level_decode(struct plm_slice text, char *out)
{
    size_t n = 0;
    for (size_t at = 0; at < text.len;) {
        uint32_t cp;
        size_t len = plm_utf8_decode(text.ptr + at, text.len - at, &cp);
        int byte = len > 0 ? byte_level_byte(cp) : -1;
        if (byte >= 0) {
            out[n++] = (char)byte;
        } else {
            len = len > 0 ? len : 1;
            memcpy(out + n, text.ptr + at, len);
            n += len;
        }
        at += len;
    }
    return n;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

// The byte of "<0xNN>", or -1.
static int byte_token(struct plm_slice text)
{
    if (text.len != 6 || memcmp(text.ptr, "<0x", 3) != 0 || text.ptr[5] != '>')
        return -1;
    int high = hex_digit(text.ptr[3]);
    int low = hex_digit(text.ptr[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static size_t unescape_spaces(struct plm_slice text, char *out)
{
    size_t n = 0;
    for (size_t at = 0; at < text.len;) {
        if (text.len - at >= 3 && memcmp(text.ptr + at, "\xE2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            at += 3;
        } else {
            out[n++] = text.ptr[at++];
        }
    }
    return n;
}

// What the token is found by; out has room for text.len bytes. A user-defined token of SPM is
// looked for in text whose spaces are still spaces, but some files spell it with U+2581.
static size_t make_text(enum plm_tok_kind kind, enum plm_tok_type type, struct plm_slice text,
                        char *out)
{
    if (kind == PLM_TOK_SPM && type == PLM_TOK_TYPE_USER_DEFINED)
        return unescape_spaces(text, out);
    if (text.len > 0)
        memcpy(out, text.ptr, text.len);
    return text.len;
}

// What the token decodes to; out has room for text.len bytes.
static size_t make_piece(enum plm_tok_kind kind, enum plm_tok_type type, struct plm_slice text,
                         char *out)
{
    if (type == PLM_TOK_TYPE_UNKNOWN || type == PLM_TOK_TYPE_CONTROL ||
        type == PLM_TOK_TYPE_USER_DEFINED) {
        if (text.len > 0)
            memcpy(out, text.ptr, text.len);
        return text.len;
    }
    if (kind == PLM_TOK_BPE)
        return plm_tok_byte_level_decode(text, out);
    int byte = type == PLM_TOK_TYPE_BYTE ? byte_token(text) : -1;
    if (byte >= 0) {
        out[0] = (char)byte;
        return 1;
    }
    return unescape_spaces(text, out);
}

static int load_types(struct plm_tok_vocab *vocab, struct plm_host *host,
                      const struct plm_gguf *gguf, struct plm_error *err)
{
    static const char key[] = "tokenizer.ggml.token_type";
    vocab->type = plm_malloc(host, PLM_HOST_TOKENIZER, (size_t)vocab->n);
    if (vocab->type == NULL)
        return plm_tok_no_memory(err);
    memset(vocab->type, PLM_TOK_TYPE_NORMAL, (size_t)vocab->n);
    struct plm_gguf_array types;
    int status = plm_gguf_array(gguf, key, &types, err);
    if (status == PLM_ERR_NOT_FOUND)
        return PLM_OK;
    if (status != PLM_OK)
        return status;
    if (types.count != (uint64_t)vocab->n)
        return plm_fail(err, PLM_ERR_FORMAT, "%s has %llu entries for %d tokens", key,
                        (unsigned long long)types.count, vocab->n);
    for (int32_t i = 0; i < vocab->n; i++) {
        int64_t type;
        if (!plm_gguf_array_i64(&types, (uint64_t)i, &type) || type < 0 || type >= PLM_TOK_TYPES)
            return plm_fail(err, PLM_ERR_FORMAT, "%s: entry %d is not a token type", key, i);
        vocab->type[i] = (uint8_t)type;
    }
    return PLM_OK;
}

// Some files give a control token the type "user-defined", which would let any user's text spell
// it. The usual ones are known by their spelling. A normal token that looks like one stays normal.
static void retype_control(struct plm_tok_vocab *vocab, const struct plm_gguf_array *tokens)
{
    static const char *const texts[] = {
        "</s>",         "<|fim_prefix|>", "<|fim_suffix|>",  "<|fim_middle|>", "<fim_prefix>",
        "<fim_suffix>", "<fim_middle>",   "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>",
    };
    for (int32_t i = 0; i < vocab->n; i++) {
        if (vocab->type[i] != PLM_TOK_TYPE_USER_DEFINED)
            continue;
        bool control = plm_tok_ends_turn(tokens->strs[i]);
        for (size_t j = 0; j < sizeof(texts) / sizeof(*texts); j++)
            control = control || plm_slice_eq_str(tokens->strs[i], texts[j]);
        if (control)
            vocab->type[i] = PLM_TOK_TYPE_CONTROL;
    }
}

static int load_scores(struct plm_tok_vocab *vocab, struct plm_host *host,
                       const struct plm_gguf *gguf, struct plm_error *err)
{
    static const char key[] = "tokenizer.ggml.scores";
    struct plm_gguf_array scores;
    int status = plm_gguf_array(gguf, key, &scores, err);
    if (status == PLM_ERR_NOT_FOUND)
        return plm_fail(err, PLM_ERR_FORMAT, "a vocabulary of the kind \"llama\" needs %s", key);
    if (status != PLM_OK)
        return status;
    if (scores.count != (uint64_t)vocab->n)
        return plm_fail(err, PLM_ERR_FORMAT, "%s has %llu entries for %d tokens", key,
                        (unsigned long long)scores.count, vocab->n);
    vocab->score = plm_malloc(host, PLM_HOST_TOKENIZER, (size_t)vocab->n * sizeof(float));
    if (vocab->score == NULL)
        return plm_tok_no_memory(err);
    for (int32_t i = 0; i < vocab->n; i++)
        if (!plm_gguf_array_f32(&scores, (uint64_t)i, &vocab->score[i]))
            return plm_fail(err, PLM_ERR_FORMAT, "%s: entry %d is not a number", key, i);
    return PLM_OK;
}

static int load_strings(struct plm_tok_vocab *vocab, enum plm_tok_kind kind, struct plm_host *host,
                        const struct plm_gguf_array *tokens, struct plm_error *err)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < vocab->n; i++)
        if (!plm_add_u64(bytes, tokens->strs[i].len, &bytes) || bytes > MAX_TEXT_BYTES)
            return plm_fail(err, PLM_ERR_LIMIT, "the tokens have more than %u bytes of text",
                            MAX_TEXT_BYTES);
    size_t ends = ((size_t)vocab->n + 1) * sizeof(uint32_t);
    vocab->text.bytes = plm_malloc(host, PLM_HOST_TOKENIZER, bytes + 1);
    vocab->text.at = plm_malloc(host, PLM_HOST_TOKENIZER, ends);
    vocab->piece.bytes = plm_malloc(host, PLM_HOST_TOKENIZER, bytes + 1);
    vocab->piece.at = plm_malloc(host, PLM_HOST_TOKENIZER, ends);
    if (vocab->text.bytes == NULL || vocab->text.at == NULL || vocab->piece.bytes == NULL ||
        vocab->piece.at == NULL)
        return plm_tok_no_memory(err);
    uint32_t text_n = 0;
    uint32_t piece_n = 0;
    for (int32_t i = 0; i < vocab->n; i++) {
        const enum plm_tok_type type = (enum plm_tok_type)vocab->type[i];
        char *at = vocab->text.bytes + text_n;
        vocab->text.at[i] = text_n;
        vocab->piece.at[i] = piece_n;
        text_n += (uint32_t)make_text(kind, type, tokens->strs[i], at);
        const struct plm_slice text = {at, text_n - vocab->text.at[i]};
        piece_n += (uint32_t)make_piece(kind, type, text, vocab->piece.bytes + piece_n);
    }
    vocab->text.at[vocab->n] = text_n;
    vocab->piece.at[vocab->n] = piece_n;
    return PLM_OK;
}

static struct plm_slice index_key(const struct plm_tok_vocab *vocab, enum plm_tok_kind kind,
                                  int32_t id)
{
    return plm_tok_string(kind == PLM_TOK_BPE ? &vocab->piece : &vocab->text, id);
}

// The slot of the string: the one that holds it, or the empty one where it belongs.
static struct plm_tok_slot *find_slot(const struct plm_tok_vocab *vocab, enum plm_tok_kind kind,
                                      uint64_t hash, const char *s, size_t n)
{
    uint32_t i = (uint32_t)hash & vocab->slot_mask;
    uint32_t tag = (uint32_t)(hash >> 32);
    for (;; i = (i + 1) & vocab->slot_mask) {
        struct plm_tok_slot *slot = &vocab->slots[i];
        if (slot->id_plus_1 == 0)
            return slot;
        if (slot->tag != tag)
            continue;
        struct plm_slice key = index_key(vocab, kind, (int32_t)(slot->id_plus_1 - 1));
        if (key.len == n && memcmp(key.ptr, s, n) == 0)
            return slot;
    }
}

int32_t plm_tok_vocab_find(const struct plm_tok_vocab *vocab, enum plm_tok_kind kind, const char *s,
                           size_t n)
{
    if (n > vocab->longest)
        return -1;
    return (int32_t)find_slot(vocab, kind, XXH3_64bits(s, n), s, n)->id_plus_1 - 1;
}

// Of tokens that are spelled alike the first counts, and an ordinary one before a user-defined one,
// which is found in the text before merging starts.
static void index_tokens(struct plm_tok_vocab *vocab, enum plm_tok_kind kind, bool user_defined)
{
    for (int32_t i = 0; i < vocab->n; i++) {
        uint8_t type = vocab->type[i];
        if (type == PLM_TOK_TYPE_CONTROL || type == PLM_TOK_TYPE_UNKNOWN ||
            (type == PLM_TOK_TYPE_BYTE && kind == PLM_TOK_SPM) ||
            (type == PLM_TOK_TYPE_USER_DEFINED) != user_defined)
            continue;
        struct plm_slice key = index_key(vocab, kind, i);
        if (key.len == 0)
            continue;
        uint64_t hash = XXH3_64bits(key.ptr, key.len);
        struct plm_tok_slot *slot = find_slot(vocab, kind, hash, key.ptr, key.len);
        if (slot->id_plus_1 == 0)
            *slot = (struct plm_tok_slot){(uint32_t)i + 1, (uint32_t)(hash >> 32)};
        if (key.len > vocab->longest)
            vocab->longest = (uint32_t)key.len;
    }
}

static void find_byte_tokens(struct plm_tok_vocab *vocab, enum plm_tok_kind kind)
{
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        vocab->byte_id[byte] = kind == PLM_TOK_BPE ? plm_tok_vocab_find(vocab, kind, &c, 1) : -1;
    }
    if (kind == PLM_TOK_BPE)
        return;
    for (int32_t i = 0; i < vocab->n; i++) {
        int byte =
            vocab->type[i] == PLM_TOK_TYPE_BYTE ? byte_token(plm_tok_string(&vocab->text, i)) : -1;
        if (byte >= 0 && vocab->byte_id[byte] < 0)
            vocab->byte_id[byte] = i;
    }
}

int plm_tok_vocab_load(struct plm_tok_vocab *vocab, enum plm_tok_kind kind, struct plm_host *host,
                       const struct plm_gguf *gguf, struct plm_error *err)
{
    static const char key[] = "tokenizer.ggml.tokens";
    struct plm_gguf_array tokens;
    int status = plm_gguf_array(gguf, key, &tokens, err);
    if (status == PLM_ERR_NOT_FOUND)
        return plm_fail(err, PLM_ERR_FORMAT, "the vocabulary has no %s", key);
    if (status != PLM_OK)
        return status;
    if (tokens.strs == NULL || tokens.count == 0)
        return plm_fail(err, PLM_ERR_FORMAT, "%s is not a list of strings", key);
    if (tokens.count > MAX_TOKENS)
        return plm_fail(err, PLM_ERR_LIMIT, "%s has %llu tokens; at most %d are supported", key,
                        (unsigned long long)tokens.count, MAX_TOKENS);
    vocab->n = (int32_t)tokens.count;
    status = load_types(vocab, host, gguf, err);
    if (status == PLM_OK)
        retype_control(vocab, &tokens);
    if (status == PLM_OK && kind == PLM_TOK_SPM)
        status = load_scores(vocab, host, gguf, err);
    if (status == PLM_OK)
        status = load_strings(vocab, kind, host, &tokens, err);
    if (status != PLM_OK)
        return status;
    uint32_t n_slots = 16;
    while (n_slots < (uint32_t)vocab->n + (uint32_t)vocab->n / 2)
        n_slots *= 2;
    vocab->slots = plm_calloc(host, PLM_HOST_TOKENIZER, n_slots, sizeof(*vocab->slots));
    if (vocab->slots == NULL)
        return plm_tok_no_memory(err);
    vocab->slot_mask = n_slots - 1;
    index_tokens(vocab, kind, false);
    index_tokens(vocab, kind, true);
    find_byte_tokens(vocab, kind);
    return PLM_OK;
}

void plm_tok_vocab_finish(struct plm_tok_vocab *vocab, struct plm_host *host)
{
    plm_free(host, vocab->text.bytes);
    plm_free(host, vocab->text.at);
    plm_free(host, vocab->piece.bytes);
    plm_free(host, vocab->piece.at);
    plm_free(host, vocab->type);
    plm_free(host, vocab->score);
    plm_free(host, vocab->slots);
}
