// SPDX-License-Identifier: Apache-2.0
// Headers of models of real shapes, without their weights: what a plan is made from. Each has the
// hyper-parameters, tensors and types of the published model, and a generated vocabulary of its
// size: every byte, every pair of bytes with the merge that makes it, triples, control tokens.
#ifndef PLM_TESTS_GGUF_SHAPES_H
#define PLM_TESTS_GGUF_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gguf_mix {
    GGUF_MIX_F16,
    GGUF_MIX_Q4_K_M, // Q4_K with Q6_K where that mix spends more bits
    GGUF_MIX_Q4_K,   // pure, the head as well
    GGUF_MIX_Q8_0,
    GGUF_MIX_Q4_0,
    GGUF_MIX_BF16,
    GGUF_MIXES,
};

struct gguf_shape {
    const char *name; // "llama-3.1-8b"
    const char *arch;
    const char *pre; // the vocabulary's pre-tokenizer
    uint32_t n_layer, n_embd, n_head, n_head_kv, n_ff;
    uint32_t n_vocab; // at least 513
    uint32_t n_ctx;
    float rope_base;
    bool qkv_bias;
    bool rope_freqs;
    bool tied;           // the head is the embedding
    uint32_t head_dim;   // 0: n_embd / n_head
    uint32_t window;     // 0: none
    uint32_t full_every; // one layer of so many has no window; 0: there is no such key
    bool head_norms;     // of q and k
    bool norms_after;    // of both blocks
    bool fused;          // q, k and v in one tensor, gate and up in one
    // Scaling of the rope: "linear", "yarn"; NULL: none.
    const char *rope_scaling;
    float rope_factor;
    uint32_t original_ctx;
    float temperature; // of attention; 0: there is no such key
};

extern const struct gguf_shape gguf_shapes[];
extern const size_t gguf_n_shapes;
extern const char *const gguf_mix_names[GGUF_MIXES]; // "f16", "q4_k_m"

// Writes the header to path. False on an error of the system.
bool gguf_shape_save(const struct gguf_shape *shape, enum gguf_mix mix, const char *path);
// With weights that mean nothing (gguf_weights.h): a model to measure speed with.
bool gguf_shape_save_weights(const struct gguf_shape *shape, enum gguf_mix mix, const char *path);

#endif
