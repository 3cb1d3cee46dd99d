// SPDX-License-Identifier: Apache-2.0
// A KV group: the layers that keep the same kind of history. A sequence has one block table per
// group, and blocks of each group come from a pool of their own. A group sees all history, or a
// window of it: then blocks that lie wholly before the window are given up as the sequence goes on.
//
// Group 0 is the main one: the full group, or in a model without one a window group. Its pool takes
// the memory that the plan finds; the pools of further groups have a size that follows from what
// serving allows (core/plan/plan.h).
#ifndef PLM_KV_GROUP_H
#define PLM_KV_GROUP_H

#include <stdint.h>

#include "kernels/abi.h"

#define PLM_KV_GROUPS_MAX 4

struct plm_kv_group {
    uint32_t n_layers;
    uint32_t kv_heads;
    uint32_t head_dim;
    enum plm_type type; // PLM_TYPE_F16 or PLM_TYPE_Q8_0, or PLM_TYPE_F32 for tests
    uint32_t window;    // tokens that a row sees, itself among them; 0: all before it
};

static inline const char *plm_kv_type_name(enum plm_type type)
{
    return type == PLM_TYPE_Q8_0 ? "q8_0" : type == PLM_TYPE_F32 ? "f32" : "f16";
}

// One token's row of K, and of V, in one layer.
static inline uint64_t plm_kv_k_row_bytes(const struct plm_kv_group *group)
{
    return group->kv_heads * PLM_KV_HEAD_BYTES(group->type, group->head_dim) / PLM_KV_BLOCK_TOKENS;
}

static inline uint64_t plm_kv_v_row_bytes(const struct plm_kv_group *group)
{
    return plm_kv_k_row_bytes(group);
}

// K and V of 16 tokens of one layer. They lie together: see struct plm_rope_kv_args.
static inline uint64_t plm_kv_layer_bytes(const struct plm_kv_group *group)
{
    return PLM_KV_BLOCK_TOKENS * (plm_kv_k_row_bytes(group) + plm_kv_v_row_bytes(group));
}

static inline uint64_t plm_kv_block_bytes(const struct plm_kv_group *group)
{
    return plm_kv_layer_bytes(group) * group->n_layers;
}

// Blocks that so many tokens fill or begin.
static inline uint64_t plm_kv_blocks(uint64_t tokens)
{
    return tokens / PLM_KV_BLOCK_TOKENS + (tokens % PLM_KV_BLOCK_TOKENS != 0);
}

// The window that a group has where requests are at most max_context tokens: one that holds a whole
// context is none (0), as nothing ever leaves it.
static inline uint32_t plm_kv_window(uint32_t window, uint32_t max_context)
{
    return window < max_context ? window : 0;
}

// Leading blocks that no row at position `tokens` or later sees.
static inline uint32_t plm_kv_first_block(uint32_t window, uint32_t tokens)
{
    return window == 0 || tokens < window ? 0 : (tokens - window + 1) / PLM_KV_BLOCK_TOKENS;
}

// Blocks that the window of one row touches at most: ceil((window - 1) / 16) + 1.
static inline uint32_t plm_kv_window_blocks(uint32_t window)
{
    return (uint32_t)((window + UINT64_C(14)) / PLM_KV_BLOCK_TOKENS) + 1;
}

// Blocks of a window group that one running sequence keeps for itself: its window's, and one more
// while a step that is formed ahead begins a new block; never more than a whole context. A step
// beside it takes a block more for each 16 rows of prompts.
static inline uint32_t plm_kv_sequence_blocks(uint32_t window, uint32_t max_context)
{
    const uint32_t whole = (uint32_t)plm_kv_blocks(max_context);
    return plm_kv_window(window, max_context) != 0 && plm_kv_window_blocks(window) < whole
               ? plm_kv_window_blocks(window) + 1
               : whole;
}

// Blocks of a window group that so many running sequences of `each` and a step with so many rows of
// prompts need: what the plan gives a pool, and what admission and the scheduler count. Up to 2^32
// sequences and rows it stays within 64 bits.
static inline uint64_t plm_kv_windows_need(uint64_t sequences, uint32_t each, uint64_t rows)
{
    return sequences * each + plm_kv_blocks(rows);
}

#endif
