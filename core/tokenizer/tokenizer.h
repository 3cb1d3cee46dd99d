// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, for byte-level BPE ("gpt2") and SPM ("llama") vocabularies that lie
// in a GGUF file. Immutable after creation: any number of threads may encode at once.
#ifndef PLM_TOKENIZER_H
#define PLM_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/span.h"
#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "core/tokenizer/tokens.h"

struct plm_tokenizer;

enum plm_encode_flags {
    PLM_ENCODE_ADD_SPECIAL = 1,   // what the vocabulary wants around a prompt (BOS, EOS)
    PLM_ENCODE_PARSE_SPECIAL = 2, // text that spells a control token becomes that token
};

// Copies what it needs from gguf, which may be closed afterwards. PLM_ERR_UNSUPPORTED names the
// tokenizer model or pre-tokenizer; PLM_ERR_FORMAT what is inconsistent in the vocabulary.
int plm_tokenizer_create(struct plm_host *host, const struct plm_gguf *gguf,
                         struct plm_tokenizer **ret, struct plm_error *err);
void plm_tokenizer_destroy(struct plm_tokenizer *tokenizer);

// Appends the ids of text (valid UTF-8, may hold NUL; PLM_ERR_FORMAT otherwise).
int plm_tokenizer_encode(const struct plm_tokenizer *tokenizer, struct plm_slice text,
                         unsigned flags, struct plm_tokens *out, struct plm_error *err);

// A number of tokens that no text of so many bytes falls below, without looking at it; 0 where the
// vocabulary has tokens that swallow any amount of text.
uint64_t plm_tokenizer_least(const struct plm_tokenizer *tokenizer, uint64_t text_bytes);

// Encodes text whose spans cover it in order: control tokens are parsed in trusted spans only. A
// control token may not straddle a border; ordinary merges may.
int plm_tokenizer_encode_spans(const struct plm_tokenizer *tokenizer, struct plm_slice text,
                               const struct plm_span *spans, size_t n_spans, unsigned flags,
                               struct plm_tokens *out, struct plm_error *err);

int32_t plm_tokenizer_n_vocab(const struct plm_tokenizer *tokenizer);
// Special ids that the file names beyond its vocabulary and that are not used here (padding, say);
// those that are used fail the load. *at: where to look from, 0 at first; false: there is no more.
#define PLM_TOKENIZER_KEY_MAX 64
bool plm_tokenizer_stray_id(const struct plm_tokenizer *tokenizer, const struct plm_gguf *gguf,
                            uint64_t *at, char name[PLM_TOKENIZER_KEY_MAX], uint32_t *ret_id);
int32_t plm_tokenizer_bos(const struct plm_tokenizer *tokenizer); // -1: none
int32_t plm_tokenizer_eos(const struct plm_tokenizer *tokenizer); // -1: none
bool plm_tokenizer_adds_bos(const struct plm_tokenizer *tokenizer);
// Whether generation ends at id: eos, eot, eom keys and the well-known end-of-turn texts.
bool plm_tokenizer_is_eog(const struct plm_tokenizer *tokenizer, int32_t id);
bool plm_tokenizer_is_control(const struct plm_tokenizer *tokenizer, int32_t id);
// The bytes that id decodes to (for SPM with U+2581 as a space), special tokens by their text.
// Valid as long as the tokenizer; empty for ids out of range.
struct plm_slice plm_tokenizer_piece(const struct plm_tokenizer *tokenizer, int32_t id);

// Appends the bytes of ids. With skip_control, control tokens give nothing. The first space of SPM
// text, which encoding added, is dropped.
int plm_tokenizer_decode(const struct plm_tokenizer *tokenizer, const int32_t *ids, size_t n,
                         bool skip_control, struct plm_buf *out);

// Streaming: bytes of an unfinished character are held back until it is complete; bytes that can
// not become one are replaced by U+FFFD, so that the output is always valid UTF-8.
struct plm_detok {
    const struct plm_tokenizer *tokenizer;
    bool skip_control;
    bool at_start; // SPM: the next leading space is the one that encoding adds
    char held[4];
    uint8_t n_held;
};

void plm_detok_init(struct plm_detok *detok, const struct plm_tokenizer *tokenizer,
                    bool skip_control, bool at_start);
// Appends the text that id completes (maybe nothing).
void plm_detok_push(struct plm_detok *detok, int32_t id, struct plm_buf *out);
// Appends U+FFFD for what is still held: for whoever must not lose that there was something. An
// answer ends before it.
void plm_detok_flush(struct plm_detok *detok, struct plm_buf *out);

#endif
