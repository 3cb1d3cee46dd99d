// SPDX-License-Identifier: Apache-2.0
// llvmpipe ends the loops of an invocation after 65,535 iterations, all of them together, and says
// nothing. So a case whose shader could loop longer is no case for it. The bounds follow the
// sources in shaders/, counted as if nothing were unrolled.
#include "core/base/checked.h"
#include "tests/conformance/conf.h"

// Of one piece of 1,024 elements, or of one block of 32 of a product for as many rows and panels as
// a tile has: loading, arithmetic and quantising it.
#define PIECE_LOOPS 32u
#define BLOCK_LOOPS 128u
// Sums over a workgroup, and setting out.
#define ONCE_LOOPS 512u
// Rows that a workgroup of attention takes.
#define TILE_ROWS 8u

static uint64_t row_loops(uint64_t n)
{
    return plm_div_ceil(n, 1024) * PIECE_LOOPS + ONCE_LOOPS;
}

// Tiles go through all blocks.
static uint64_t product_loops(uint64_t n_in)
{
    return plm_div_ceil(n_in, 32) * BLOCK_LOOPS + ONCE_LOOPS;
}

// 32 lanes share the blocks.
static uint64_t lanes_loops(uint64_t n_in)
{
    return plm_div_ceil(n_in, 1024) * BLOCK_LOOPS + ONCE_LOOPS;
}

// Scores, weights and outputs of a split: over dimensions, over its tokens thrice.
static uint64_t split_loops(uint32_t head_dim)
{
    return head_dim + 3 * PLM_ATTN_SPLIT_TOKENS;
}

// Rows of a tile may be of as many sequences, one after the other.
static uint64_t attention_loops(uint64_t splits, uint32_t head_dim)
{
    return TILE_ROWS * splits * split_loops(head_dim) + ONCE_LOOPS;
}

uint64_t conf_loops(enum plm_op op, const void *args)
{
    switch (op) {
    case PLM_OP_RMS_NORM: return row_loops(((const struct plm_rms_norm_args *)args)->n);
    case PLM_OP_MATMUL: return product_loops(((const struct plm_matmul_args *)args)->n_in);
    case PLM_OP_QKV: {
        const struct plm_qkv_args *a = args; // panels of a head, which may begin within one
        return (PLM_LOW(a->head_dim) / 16 + 1) * lanes_loops(a->n_in);
    }
    case PLM_OP_GLU: return lanes_loops(((const struct plm_glu_args *)args)->n_in) * 2;
    case PLM_OP_ATTENTION: {
        const struct plm_attention_args *a = args;
        const uint64_t tokens = (uint64_t)a->table_stride * PLM_KV_BLOCK_TOKENS;
        return attention_loops(plm_div_ceil(tokens, PLM_ATTN_SPLIT_TOKENS), a->head_dim);
    }
    case PLM_OP_ATTENTION_SPLIT:
        return attention_loops(1, ((const struct plm_attention_split_args *)args)->head_dim);
    case PLM_OP_ATTENTION_MERGE:
        return ((const struct plm_attention_merge_args *)args)->splits * PIECE_LOOPS + ONCE_LOOPS;
    case PLM_OP_ARGMAX: return row_loops(((const struct plm_argmax_args *)args)->n);
    // One piece of a row each, or 64 KiB.
    default: return PIECE_LOOPS + ONCE_LOOPS;
    }
}
