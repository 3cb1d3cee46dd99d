// SPDX-License-Identifier: Apache-2.0
// What the files of the tokenizer share: the vocabulary, the merging engine and the scratch memory
// of one encode call. Everything but struct plm_tok_scratch is immutable after creation.
#ifndef PLM_TOKENIZER_TOK_H
#define PLM_TOKENIZER_TOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/work.h"
#include "core/gguf/gguf.h"
#include "core/tokenizer/tok_split.h"
#include "core/tokenizer/tokenizer.h"

enum plm_tok_kind {
    PLM_TOK_BPE,
    PLM_TOK_SPM,
};

// tokenizer.ggml.token_type, with the numbers of the file format.
enum plm_tok_type {
    PLM_TOK_TYPE_UNDEFINED,
    PLM_TOK_TYPE_NORMAL,
    PLM_TOK_TYPE_UNKNOWN,
    PLM_TOK_TYPE_CONTROL,
    PLM_TOK_TYPE_USER_DEFINED,
    PLM_TOK_TYPE_UNUSED,
    PLM_TOK_TYPE_BYTE,
    PLM_TOK_TYPES,
};

// One string per token, back to back: string i is [at[i], at[i + 1]).
struct plm_tok_strings {
    char *bytes;
    uint32_t *at;
};

static inline struct plm_slice plm_tok_string(const struct plm_tok_strings *strings, int32_t id)
{
    uint32_t begin = strings->at[id];
    return (struct plm_slice){strings->bytes + begin, strings->at[id + 1] - begin};
}

struct plm_tok_slot {
    uint32_t id_plus_1; // 0: empty
    uint32_t tag;       // other bits of the hash, so that few strings are compared
};

struct plm_tok_vocab {
    int32_t n;
    struct plm_tok_strings text;  // as the vocabulary spells it
    struct plm_tok_strings piece; // as it decodes
    uint8_t *type;                // enum plm_tok_type
    float *score;                 // SPM only
    // Open addressing: the tokens that merging may give, by piece (BPE) or text (SPM).
    struct plm_tok_slot *slots;
    uint32_t slot_mask;
    uint32_t longest;     // bytes of the longest string in slots
    int32_t byte_id[256]; // the token of a byte, -1: none
};

int plm_tok_vocab_load(struct plm_tok_vocab *vocab, enum plm_tok_kind kind, struct plm_host *host,
                       const struct plm_gguf *gguf, struct plm_error *err);
void plm_tok_vocab_finish(struct plm_tok_vocab *vocab, struct plm_host *host);
// The token that merging may give and that is spelled by n bytes at s, or -1.
int32_t plm_tok_vocab_find(const struct plm_tok_vocab *vocab, enum plm_tok_kind kind, const char *s,
                           size_t n);
// Appends what a byte-level text ("Ġhello") stands for; characters outside the alphabet stay as
// they are. out has room for text.len bytes. Returns the bytes written.
size_t plm_tok_byte_level_decode(struct plm_slice text, char *out);

// Tokens that are found in the text before anything else, sorted by text so that a walk narrows the
// range byte by byte.
struct plm_tok_special {
    int32_t id;
    bool control; // found only where control tokens are allowed
    bool rstrip;  // swallows the white space behind it
};

struct plm_tok_specials {
    struct plm_tok_special *items;
    uint32_t n;
    uint32_t first[257]; // items whose text starts with byte b are [first[b], first[b + 1])
};

int plm_tok_specials_build(struct plm_tok_specials *specials, const struct plm_tok_vocab *vocab,
                           struct plm_host *host, bool rstrip_chat, struct plm_error *err);
void plm_tok_specials_finish(struct plm_tok_specials *specials, struct plm_host *host);
// The longest special token at the start of text; control tokens only up to control_bytes. NULL:
// none.
const struct plm_tok_special *plm_tok_specials_match(const struct plm_tok_specials *specials,
                                                     const struct plm_tok_vocab *vocab,
                                                     struct plm_slice text, size_t control_bytes);

// Whether a token of this text is known to end a turn: files often name only one of them.
bool plm_tok_ends_turn(struct plm_slice text);

// The symbols of one merging problem, indexed by the byte offset at which a symbol starts.
// len[i] = 0: no symbol starts at i (any more). id -1: not in the vocabulary (SPM only).
struct plm_tok_symbols {
    int32_t *id;
    uint32_t *len;
    uint32_t *prev; // offset of the symbol before it
};

// Scratch memory of one encode call.
struct plm_tok_scratch {
    struct plm_host *host;
    struct plm_tok_symbols symbols;
    uint32_t symbols_cap;
    uint64_t *heap; // merge key << 32 | offset of the left symbol
    size_t heap_n;
    size_t heap_cap;
    struct plm_buf text; // the stretch in the form that is merged
    int32_t *cps;        // code points of a stretch that is being normalized
    size_t cps_cap;
};

void plm_tok_scratch_init(struct plm_tok_scratch *scratch, struct plm_host *host);
void plm_tok_scratch_finish(struct plm_tok_scratch *scratch);
// Room for symbols at offsets 0 to n - 1. False: no memory.
bool plm_tok_scratch_symbols(struct plm_tok_scratch *scratch, size_t n);

// Whether two neighbours, which span n bytes at s, may be merged: fills the key (lower keys merge
// first) and the id of the result.
typedef bool plm_tok_pair_fn(const struct plm_tokenizer *tokenizer, const char *s, size_t n,
                             int32_t left, int32_t right, uint32_t *ret_key, int32_t *ret_id);

// Merges the symbols over s[0, n) until no pair is left: always the lowest key, the leftmost first
// among equals. The symbols cover s without gaps. PLM_OK or PLM_ERR_NOMEM_HOST.
int plm_tok_merge(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                  const char *s, uint32_t n, plm_tok_pair_fn *pair);

static inline bool plm_tok_bit(const uint8_t *bits, int32_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

static inline void plm_tok_set_bit(uint8_t *bits, int32_t i)
{
    bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << (i % 8));
}

static inline int plm_tok_no_memory(struct plm_error *err)
{
    return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the tokenizer");
}

// Byte-level BPE.
struct plm_tok_merge_rule {
    int32_t left;
    int32_t right;
    int32_t result; // -1: an empty slot
    uint32_t rank;
};

struct plm_tok_bpe {
    struct plm_tok_merge_rule *rules; // open addressing
    uint32_t rule_mask;
};

int plm_tok_bpe_load(struct plm_tokenizer *tokenizer, const struct plm_gguf *gguf,
                     struct plm_error *err);
void plm_tok_bpe_finish(struct plm_tok_bpe *bpe, struct plm_host *host);
// Appends the ids of one stretch without special tokens.
int plm_tok_bpe_encode(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                       struct plm_slice text, struct plm_tokens *out, struct plm_error *err);

int plm_tok_spm_load(struct plm_tokenizer *tokenizer, struct plm_error *err);
// Appends the ids of one stretch; prefix: with a space before it.
int plm_tok_spm_encode(const struct plm_tokenizer *tokenizer, struct plm_tok_scratch *scratch,
                       struct plm_slice text, bool prefix, struct plm_tokens *out,
                       struct plm_error *err);

// Replaces *text by its NFC form, in scratch->text, where that differs.
int plm_tok_nfc(struct plm_tok_scratch *scratch, struct plm_slice *text, struct plm_error *err);

// Counts a word against the work of the thread.
static inline int plm_tok_work(size_t word_bytes, struct plm_error *err)
{
    return plm_work_check(1 + word_bytes / PLM_WORK_BYTES_PER_TOKEN, "cutting the text into tokens",
                          err);
}

struct plm_tokenizer {
    struct plm_host *host;
    enum plm_tok_kind kind;
    struct plm_tok_vocab vocab;
    struct plm_tok_specials specials;
    struct plm_tok_bpe bpe;
    struct plm_tok_pre pre; // SPM: without a rule
    uint8_t *whole;         // bit per token: merging its characters gives just this token
    bool add_bos;
    bool add_eos;
    bool space_prefix;    // SPM: encoding puts a space before a stretch
    bool splits_at_space; // SPM: no token has a space behind another character
    int32_t bos;          // -1: none, as for the two below
    int32_t eos;
    int32_t unk;
    uint8_t *eog;        // bit per token
    uint64_t most_bytes; // of text that one token can stand for; 0: no bound is known
};

static inline bool plm_tok_rule_says(const struct plm_tokenizer *tokenizer,
                                     enum plm_tok_rule_flags flag)
{
    return tokenizer->pre.rule != NULL && (tokenizer->pre.rule->flags & flag) != 0;
}

#endif
