// SPDX-License-Identifier: Apache-2.0
#include "core/plan/cost.h"

#include <stdbool.h>
#include <stddef.h>

#include "core/base/checked.h"
#include "kernels/abi.h"

static bool add_product(uint64_t *sum, uint64_t n, uint64_t each)
{
    uint64_t bytes;
    return plm_mul_u64(n, each, &bytes) && plm_add_u64(*sum, bytes, sum);
}

// False when the size does not fit.
static bool buffer_bytes(const struct plm_cost_buffer *b, const struct plm_shape *shape,
                         uint64_t *ret)
{
    uint64_t blocks = plm_div_ceil(shape->ctx, PLM_KV_BLOCK_TOKENS) * (uint64_t)shape->seqs;
    uint64_t sum = b->fixed;
    if (!add_product(&sum, shape->rows, b->per_row) ||
        !add_product(&sum, shape->seqs, b->per_seq) ||
        !add_product(&sum, shape->logits_rows, b->per_logits_row) ||
        !add_product(&sum, blocks, b->per_seq_block) || sum > INT64_MAX)
        return false;
    *ret = plm_round_up(sum, PLM_COST_ALIGN);
    return true;
}

int64_t plm_cost_layout(const struct plm_cost_table *table, const struct plm_shape *shape,
                        uint64_t *ret_offsets)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < table->n_buffers; i++) {
        uint64_t bytes;
        if (ret_offsets != NULL)
            ret_offsets[i] = at;
        if (!buffer_bytes(&table->buffers[i], shape, &bytes) || !plm_add_u64(at, bytes, &at) ||
            at > INT64_MAX)
            return INT64_MAX;
    }
    return (int64_t)at;
}

int64_t plm_cost(const struct plm_cost_table *table, const struct plm_shape *shape)
{
    return plm_cost_layout(table, shape, NULL);
}
