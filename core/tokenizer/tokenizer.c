// SPDX-License-Identifier: Apache-2.0
// Creation, and the outer half of encoding: special tokens cut the text into stretches, which the
// vocabulary's kind encodes.
#include "core/tokenizer/tokenizer.h"

#include <string.h>

#include "core/base/utf8.h"
#include "core/tokenizer/tok.h"

// Offsets inside a stretch are uint32, and escaping spaces makes it up to three times as long.
#define MAX_TEXT_BYTES (1u << 30)

// The value of a key, or what *ret holds already where the file has none.
static int optional_bool(const struct plm_gguf *gguf, const char *key, bool *ret,
                         struct plm_error *err)
{
    int status = plm_gguf_bool(gguf, key, ret, err);
    return status == PLM_ERR_NOT_FOUND ? PLM_OK : status;
}

static int optional_str(const struct plm_gguf *gguf, const char *key, struct plm_slice *ret,
                        struct plm_error *err)
{
    int status = plm_gguf_str(gguf, key, ret, err);
    return status == PLM_ERR_NOT_FOUND ? PLM_OK : status;
}

static int optional_id(const struct plm_tokenizer *tokenizer, const struct plm_gguf *gguf,
                       const char *key, int32_t *ret, struct plm_error *err)
{
    uint32_t id;
    int status = plm_gguf_u32(gguf, key, &id, err);
    if (status == PLM_ERR_NOT_FOUND)
        return PLM_OK;
    if (status != PLM_OK)
        return status;
    if (id >= (uint32_t)tokenizer->vocab.n)
        return plm_fail(err, PLM_ERR_FORMAT, "%s is %u, but there are %d tokens", key, id,
                        tokenizer->vocab.n);
    *ret = (int32_t)id;
    return PLM_OK;
}

static bool contains_ignoring_case(struct plm_slice text, const char *word)
{
    size_t n = strlen(word);
    for (size_t at = 0; at + n <= text.len; at++) {
        size_t i = 0;
        while (i < n) {
            char c = text.ptr[at + i];
            if ((c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c) != word[i])
                break;
            i++;
        }
        if (i == n)
            return true;
    }
    return false;
}

// The chat tokens of Phi-3 swallow the white space behind them. The format has no field for that,
// so the model is known by its architecture or its name; its later BPE vocabularies are not meant.
static int find_rstrip(const struct plm_tokenizer *tokenizer, const struct plm_gguf *gguf,
                       bool *ret, struct plm_error *err)
{
    struct plm_slice architecture = {"", 0};
    struct plm_slice name = {"", 0};
    int status = optional_str(gguf, "general.architecture", &architecture, err);
    if (status == PLM_OK)
        status = optional_str(gguf, "general.name", &name, err);
    if (status == PLM_OK)
        *ret = tokenizer->kind == PLM_TOK_SPM &&
               (plm_slice_eq_str(architecture, "phi3") || contains_ignoring_case(name, "phi-3") ||
                contains_ignoring_case(name, "phi3"));
    return status;
}

static int load_kind(struct plm_tokenizer *tokenizer, const struct plm_gguf *gguf,
                     struct plm_error *err)
{
    static const char key[] = "tokenizer.ggml.model";
    struct plm_slice model;
    int status = plm_gguf_str(gguf, key, &model, err);
    if (status == PLM_ERR_NOT_FOUND)
        return plm_fail(err, PLM_ERR_FORMAT, "the file has no tokenizer (%s is missing)", key);
    if (status != PLM_OK)
        return status;
    if (plm_slice_eq_str(model, "llama")) {
        tokenizer->kind = PLM_TOK_SPM;
        return PLM_OK;
    }
    if (!plm_slice_eq_str(model, "gpt2"))
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "%s \"%.*s\" is not supported (there are: gpt2, llama)", key,
                        (int)(model.len < 64 ? model.len : 64), model.ptr);
    tokenizer->kind = PLM_TOK_BPE;
    struct plm_slice pre = {"", 0};
    status = optional_str(gguf, "tokenizer.ggml.pre", &pre, err);
    const struct plm_tok_rule *rule = NULL;
    if (status == PLM_OK)
        status = plm_tok_rule_find(pre, &rule, err);
    if (status == PLM_OK)
        plm_tok_pre_init(&tokenizer->pre, rule);
    return status;
}

static int load_ids(struct plm_tokenizer *tokenizer, const struct plm_gguf *gguf, int32_t *ret_eot,
                    int32_t *ret_eom, struct plm_error *err)
{
    bool spm = tokenizer->kind == PLM_TOK_SPM;
    // Where the keys are missing, the ids that SentencePiece gives by default.
    tokenizer->unk = spm ? 0 : -1;
    tokenizer->bos = spm && tokenizer->vocab.n > 1 ? 1 : -1;
    tokenizer->eos = spm && tokenizer->vocab.n > 2 ? 2 : -1;
    tokenizer->add_bos = spm || plm_tok_rule_says(tokenizer, PLM_TOK_RULE_ADD_BOS);
    tokenizer->add_eos = false;
    tokenizer->space_prefix = spm;
    int status = optional_id(tokenizer, gguf, "tokenizer.ggml.bos_token_id", &tokenizer->bos, err);
    if (status == PLM_OK)
        status = optional_id(tokenizer, gguf, "tokenizer.ggml.eos_token_id", &tokenizer->eos, err);
    if (status == PLM_OK)
        status =
            optional_id(tokenizer, gguf, "tokenizer.ggml.unknown_token_id", &tokenizer->unk, err);
    if (status == PLM_OK)
        status = optional_id(tokenizer, gguf, "tokenizer.ggml.eot_token_id", ret_eot, err);
    if (status == PLM_OK)
        status = optional_id(tokenizer, gguf, "tokenizer.ggml.eom_token_id", ret_eom, err);
    if (status == PLM_OK)
        status = optional_bool(gguf, "tokenizer.ggml.add_bos_token", &tokenizer->add_bos, err);
    if (status == PLM_OK)
        status = optional_bool(gguf, "tokenizer.ggml.add_eos_token", &tokenizer->add_eos, err);
    if (status == PLM_OK)
        status =
            optional_bool(gguf, "tokenizer.ggml.add_space_prefix", &tokenizer->space_prefix, err);
    return status;
}

// The token that is spelled so, if it is one that text is searched for.
static int32_t find_special(const struct plm_tokenizer *tokenizer, struct plm_slice text)
{
    const struct plm_tok_special *item =
        plm_tok_specials_match(&tokenizer->specials, &tokenizer->vocab, text, text.len);
    if (item == NULL || plm_tok_string(&tokenizer->vocab.text, item->id).len != text.len)
        return -1;
    return item->id;
}

static void mark_eog(struct plm_tokenizer *tokenizer, int32_t id)
{
    if (id >= 0)
        plm_tok_set_bit(tokenizer->eog, id);
}

static int find_eog(struct plm_tokenizer *tokenizer, int32_t eot, int32_t eom,
                    struct plm_error *err)
{
    tokenizer->eog =
        plm_calloc(tokenizer->host, PLM_HOST_TOKENIZER, (size_t)tokenizer->vocab.n / 8 + 1, 1);
    if (tokenizer->eog == NULL)
        return plm_tok_no_memory(err);
    // In the harmony format <|end|> ends a message and not the turn.
    bool harmony = find_special(tokenizer, PLM_SLICE("<|return|>")) >= 0 &&
                   find_special(tokenizer, PLM_SLICE("<|call|>")) >= 0;
    for (uint32_t i = 0; i < tokenizer->specials.n; i++) {
        int32_t id = tokenizer->specials.items[i].id;
        struct plm_slice text = plm_tok_string(&tokenizer->vocab.text, id);
        if (plm_tok_ends_turn(text) && !(harmony && plm_slice_eq_str(text, "<|end|>")))
            mark_eog(tokenizer, id);
    }
    mark_eog(tokenizer, tokenizer->eos);
    mark_eog(tokenizer, eot);
    mark_eog(tokenizer, eom);
    return PLM_OK;
}

// NFC makes no text shorter than a quarter: what composes best, three letters of Hangul in nine
// bytes, becomes three bytes.
#define NFC_SHRINKS 4

static void find_most_bytes(struct plm_tokenizer *tokenizer)
{
    uint64_t most = 4; // a character that is unknown
    for (uint32_t i = 0; i < tokenizer->specials.n; i++) {
        if (tokenizer->specials.items[i].rstrip)
            return;
    }
    for (int byte = 0; byte < 256; byte++) { // text without tokens disappears
        if (tokenizer->vocab.byte_id[byte] < 0 &&
            (tokenizer->kind == PLM_TOK_BPE || tokenizer->unk < 0))
            return;
    }
    for (int32_t id = 0; id < tokenizer->vocab.n; id++) {
        // Never shorter than what it is found by: in SPM a space is spelled with three bytes.
        uint64_t len = plm_tok_string(&tokenizer->vocab.text, id).len;
        most = len > most ? len : most;
    }
    bool nfc = plm_tok_rule_says(tokenizer, PLM_TOK_RULE_NFC);
    tokenizer->most_bytes = nfc ? most * NFC_SHRINKS : most;
}

uint64_t plm_tokenizer_least(const struct plm_tokenizer *tokenizer, uint64_t text_bytes)
{
    return tokenizer->most_bytes > 0 ? text_bytes / tokenizer->most_bytes : 0;
}

static int load(struct plm_tokenizer *tokenizer, const struct plm_gguf *gguf, struct plm_error *err)
{
    int32_t eot = -1;
    int32_t eom = -1;
    bool rstrip = false;
    int status = load_kind(tokenizer, gguf, err);
    if (status == PLM_OK)
        status = plm_tok_vocab_load(&tokenizer->vocab, tokenizer->kind, tokenizer->host, gguf, err);
    if (status == PLM_OK)
        status = load_ids(tokenizer, gguf, &eot, &eom, err);
    if (status == PLM_OK)
        status = find_rstrip(tokenizer, gguf, &rstrip, err);
    if (status == PLM_OK)
        status = plm_tok_specials_build(&tokenizer->specials, &tokenizer->vocab, tokenizer->host,
                                        rstrip, err);
    if (status == PLM_OK)
        status = find_eog(tokenizer, eot, eom, err);
    if (status != PLM_OK)
        return status;
    tokenizer->whole =
        plm_calloc(tokenizer->host, PLM_HOST_TOKENIZER, (size_t)tokenizer->vocab.n / 8 + 1, 1);
    if (tokenizer->whole == NULL)
        return plm_tok_no_memory(err);
    status = tokenizer->kind == PLM_TOK_BPE ? plm_tok_bpe_load(tokenizer, gguf, err)
                                            : plm_tok_spm_load(tokenizer, err);
    if (status == PLM_OK)
        find_most_bytes(tokenizer);
    return status;
}

int plm_tokenizer_create(struct plm_host *host, const struct plm_gguf *gguf,
                         struct plm_tokenizer **ret, struct plm_error *err)
{
    struct plm_tokenizer *tokenizer = plm_calloc(host, PLM_HOST_TOKENIZER, 1, sizeof(*tokenizer));
    if (tokenizer == NULL)
        return plm_tok_no_memory(err);
    tokenizer->host = host;
    int status = load(tokenizer, gguf, err);
    if (status != PLM_OK) {
        plm_tokenizer_destroy(tokenizer);
        return status;
    }
    *ret = tokenizer;
    return PLM_OK;
}

void plm_tokenizer_destroy(struct plm_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    struct plm_host *host = tokenizer->host;
    plm_tok_vocab_finish(&tokenizer->vocab, host);
    plm_tok_specials_finish(&tokenizer->specials, host);
    plm_tok_bpe_finish(&tokenizer->bpe, host);
    plm_free(host, tokenizer->whole);
    plm_free(host, tokenizer->eog);
    plm_free(host, tokenizer);
}

static int encode_stretch(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                          struct plm_slice text, struct plm_tokens *out, struct plm_error *err)
{
    if (text.len == 0)
        return PLM_OK; // between two special tokens
    return tokenizer->kind == PLM_TOK_BPE
               ? plm_tok_bpe_encode(tokenizer, scratch, text, out, err)
               : plm_tok_spm_encode(tokenizer, scratch, text, tokenizer->space_prefix, out, err);
}

static size_t skip_white_space(struct plm_slice text, size_t at)
{
    while (at < text.len) {
        uint32_t cp;
        size_t n = plm_utf8_decode(text.ptr + at, text.len - at, &cp);
        if (n == 0 || !plm_tok_is_space(cp))
            break;
        at += n;
    }
    return at;
}

// Cuts the text at special tokens.
static int encode_parts(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                        struct plm_slice text, const struct plm_span *spans, struct plm_tokens *out,
                        struct plm_error *err)
{
    const struct plm_tok_specials *specials = &tokenizer->specials;
    size_t begin = 0; // of the stretch since the last special token
    for (size_t at = 0; at < text.len;) {
        unsigned char byte = (unsigned char)text.ptr[at];
        if (specials->first[byte] == specials->first[byte + 1]) {
            at++;
            continue;
        }
        while (spans->end <= at) // the last span ends at text.len, beyond at
            spans++;
        const struct plm_tok_special *item = plm_tok_specials_match(
            specials, &tokenizer->vocab, (struct plm_slice){text.ptr + at, text.len - at},
            spans->trusted ? spans->end - at : 0);
        if (item == NULL) {
            at++;
            continue;
        }
        int status = encode_stretch(tokenizer, scratch,
                                    (struct plm_slice){text.ptr + begin, at - begin}, out, err);
        if (status != PLM_OK)
            return status;
        if (plm_tokens_append(out, &item->id, 1) != PLM_OK)
            return plm_tok_no_memory(err);
        at += plm_tok_string(&tokenizer->vocab.text, item->id).len;
        if (item->rstrip)
            at = skip_white_space(text, at);
        begin = at;
    }
    if (begin == text.len)
        return PLM_OK;
    return encode_stretch(tokenizer, scratch,
                          (struct plm_slice){text.ptr + begin, text.len - begin}, out, err);
}

int plm_tokenizer_encode_spans(const struct plm_tokenizer *tokenizer, struct plm_slice text,
                               const struct plm_span *spans, size_t n_spans, unsigned flags,
                               struct plm_tokens *out, struct plm_error *err)
{
    size_t covered = 0;
    for (size_t i = 0; i < n_spans; i++) {
        if (spans[i].begin != covered || spans[i].end < covered)
            return plm_fail(err, PLM_ERR_INVALID, "span %zu does not go on at byte %zu", i,
                            covered);
        covered = spans[i].end;
    }
    if (covered != text.len)
        return plm_fail(err, PLM_ERR_INVALID, "the spans cover %zu of %zu bytes", covered,
                        text.len);
    if (text.len > MAX_TEXT_BYTES)
        return plm_fail(err, PLM_ERR_LIMIT, "a text of %zu bytes is too long", text.len);
    size_t valid = plm_utf8_valid_prefix(text.ptr, text.len);
    if (valid != text.len)
        return plm_fail(err, PLM_ERR_FORMAT, "the text is not valid UTF-8 at byte %zu", valid);

    size_t before = out->n;
    int status = PLM_OK;
    if ((flags & PLM_ENCODE_ADD_SPECIAL) && tokenizer->add_bos && tokenizer->bos >= 0 &&
        plm_tokens_append(out, &tokenizer->bos, 1) != PLM_OK)
        status = plm_tok_no_memory(err);
    struct plm_tok_scratch scratch;
    plm_tok_scratch_init(&scratch, tokenizer->host);
    if (status == PLM_OK)
        status = encode_parts(tokenizer, &scratch, text, spans, out, err);
    plm_tok_scratch_finish(&scratch);
    if (status == PLM_OK && (flags & PLM_ENCODE_ADD_SPECIAL) && tokenizer->add_eos &&
        tokenizer->eos >= 0 && plm_tokens_append(out, &tokenizer->eos, 1) != PLM_OK)
        status = plm_tok_no_memory(err);
    if (status != PLM_OK)
        out->n = before;
    return status;
}

int plm_tokenizer_encode(const struct plm_tokenizer *tokenizer, struct plm_slice text,
                         unsigned flags, struct plm_tokens *out, struct plm_error *err)
{
    struct plm_span span = {0, text.len, (flags & PLM_ENCODE_PARSE_SPECIAL) != 0};
    return plm_tokenizer_encode_spans(tokenizer, text, &span, 1, flags, out, err);
}

int32_t plm_tokenizer_n_vocab(const struct plm_tokenizer *tokenizer)
{
    return tokenizer->vocab.n;
}

// "tokenizer.ggml.WHAT_token_id".
static bool is_special_key(const char *name)
{
    static const char prefix[] = "tokenizer.ggml.", suffix[] = "_token_id";
    const size_t n = strlen(name);
    return n > sizeof(prefix) + sizeof(suffix) - 2 &&
           strncmp(name, prefix, sizeof(prefix) - 1) == 0 &&
           strcmp(name + n - (sizeof(suffix) - 1), suffix) == 0;
}

bool plm_tokenizer_stray_id(const struct plm_tokenizer *tokenizer, const struct plm_gguf *gguf,
                            uint64_t *at, char name[PLM_TOKENIZER_KEY_MAX], uint32_t *ret_id)
{
    for (; *at < plm_gguf_n_keys(gguf); ++*at) {
        const struct plm_slice key = plm_gguf_key_name(gguf, *at);
        if (key.len >= PLM_TOKENIZER_KEY_MAX)
            continue;
        memcpy(name, key.ptr, key.len);
        name[key.len] = '\0';
        if (is_special_key(name) && plm_gguf_u32(gguf, name, ret_id, NULL) == PLM_OK &&
            *ret_id >= (uint32_t)tokenizer->vocab.n) {
            ++*at;
            return true;
        }
    }
    return false;
}

int32_t plm_tokenizer_bos(const struct plm_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t plm_tokenizer_eos(const struct plm_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

bool plm_tokenizer_adds_bos(const struct plm_tokenizer *tokenizer)
{
    return tokenizer->add_bos && tokenizer->bos >= 0;
}

static bool in_range(const struct plm_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->vocab.n;
}

bool plm_tokenizer_is_eog(const struct plm_tokenizer *tokenizer, int32_t id)
{
    return in_range(tokenizer, id) && plm_tok_bit(tokenizer->eog, id);
}

bool plm_tokenizer_is_control(const struct plm_tokenizer *tokenizer, int32_t id)
{
    return in_range(tokenizer, id) && (tokenizer->vocab.type[id] == PLM_TOK_TYPE_CONTROL ||
                                       tokenizer->vocab.type[id] == PLM_TOK_TYPE_UNKNOWN);
}

struct plm_slice plm_tokenizer_piece(const struct plm_tokenizer *tokenizer, int32_t id)
{
    return in_range(tokenizer, id) ? plm_tok_string(&tokenizer->vocab.piece, id)
                                   : (struct plm_slice){"", 0};
}
