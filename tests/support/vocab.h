// SPDX-License-Identifier: Apache-2.0
// Tiny hand-made vocabularies for tests and fuzzers, as keys of a GGUF file.
#ifndef PLM_TESTS_VOCAB_H
#define PLM_TESTS_VOCAB_H

#include "tests/support/gguf_writer.h"

#define VOCAB_MAX 1024 // tokens

// Byte-level BPE. Ids: the bytes 0 to 255, then what each merge gives (in their order, equal
// results once), then the special tokens below.
enum vocab_bpe_special {
    VOCAB_BPE_START,  // <|im_start|>, control
    VOCAB_BPE_END,    // <|im_end|>, control
    VOCAB_BPE_END_2,  // <|im_end|><|x|>, control: longer than the one before
    VOCAB_BPE_TOOL,   // <tool>, user-defined
    VOCAB_BPE_SPACES, // four spaces, user-defined
    VOCAB_BPE_FILLER, // [PADn] with its id, user-defined
    VOCAB_BPE_SPECIALS,
};

struct vocab_merge {
    const char *left; // plain bytes, not the byte-level alphabet
    const char *right;
};

struct vocab_bpe {
    const char *pre; // NULL: no key
    const struct vocab_merge *merges;
    size_t n_merges;
    int missing_byte; // gets a text that no byte has; -1: none
};

// Writes the keys; returns the id of VOCAB_BPE_START.
int32_t vocab_bpe_write(struct gguf_writer *w, const struct vocab_bpe *vocab);

// SPM. Ids: <unk>, <s>, </s>, the 256 byte tokens from 3, the pieces from 259, then <|user|>
// (control), <tool> (user-defined), and the added ones (user-defined).
#define VOCAB_SPM_BYTES  3
#define VOCAB_SPM_PIECES 259

struct vocab_piece {
    const char *text; // with U+2581 for spaces
    float score;
};

struct vocab_spm {
    const char *architecture;
    const struct vocab_piece *pieces;
    size_t n_pieces;
    bool no_bytes;  // the byte tokens are called something else
    bool no_prefix; // no space is put before a text
    const char *const *added;
    size_t n_added;
};

// Writes the keys; returns the id of <|user|>.
int32_t vocab_spm_write(struct gguf_writer *w, const struct vocab_spm *vocab);

#endif
