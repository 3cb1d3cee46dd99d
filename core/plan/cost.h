// SPDX-License-Identifier: Apache-2.0
// The one cost function. A model describes its workspace as a table of buffers whose sizes are
// linear in the shape of a step; cost() is the sum, and the graph lays its buffers out with the
// same table, so that what is planned, admitted and used can not differ. Pure; numbers only.
#ifndef PLM_PLAN_COST_H
#define PLM_PLAN_COST_H

#include <stdint.h>

// What a step's memory depends on.
struct plm_shape {
    uint32_t rows;        // tokens of the step: prefill chunks and decode rows together
    uint32_t seqs;        // sequences in the step
    uint32_t logits_rows; // rows that reach the LM head
    uint32_t ctx;         // longest context of any sequence, its rows of this step included
};

// Bytes of one buffer: fixed + rows * per_row + seqs * per_seq + logits_rows * per_logits_row +
// seqs * ceil(ctx / 16) * per_seq_block, rounded up to PLM_COST_ALIGN.
struct plm_cost_buffer {
    const char *name;
    uint64_t fixed;
    uint64_t per_row;
    uint64_t per_seq;
    uint64_t per_logits_row;
    uint64_t per_seq_block;
};

#define PLM_COST_ALIGN       256 // bytes; the strictest alignment of a device address range we meet
#define PLM_COST_BUFFERS_MAX 32

// Behind the buffers that kernels write lies one of this size that none writes: bytes that changed
// in it after a step were used beyond what cost() gave the others. One alignment unit, so it lies
// right behind. Buffers that only the host writes follow.
#define PLM_COST_GUARD_BYTES PLM_COST_ALIGN

struct plm_cost_table {
    uint32_t n_buffers;
    struct plm_cost_buffer buffers[PLM_COST_BUFFERS_MAX];
};

// Bytes of workspace for a step of this shape; monotone in every field, saturating at INT64_MAX.
int64_t plm_cost(const struct plm_cost_table *table, const struct plm_shape *shape);
// The same, and the offset of each buffer from the start of the workspace (n_buffers entries).
int64_t plm_cost_layout(const struct plm_cost_table *table, const struct plm_shape *shape,
                        uint64_t *ret_offsets);

#endif
