// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/sim_internal.h"
#include "core/base/checked.h"

#define PANEL_ROWS 16

// Elements and bytes of one block of a type, as GGUF stores it.
struct block {
    uint32_t elements;
    uint32_t bytes;
};

static struct block block_of(enum plm_type type)
{
    switch (type) {
    case PLM_TYPE_F32: return (struct block){1, 4};
    case PLM_TYPE_F16:
    case PLM_TYPE_BF16: return (struct block){1, 2};
    case PLM_TYPE_Q4_0: return (struct block){32, 18};
    case PLM_TYPE_Q4_1: return (struct block){32, 20};
    case PLM_TYPE_Q8_0: return (struct block){32, 34};
    case PLM_TYPE_Q4_K: return (struct block){256, 144};
    case PLM_TYPE_Q6_K: return (struct block){256, 210};
    default: return (struct block){0, 0};
    }
}

int plm_sim_weight_layout(enum plm_type type, uint32_t n_in, uint32_t n_out,
                          struct plm_weight_layout *ret)
{
    struct block block = block_of(type);
    if (block.elements == 0 || n_in % block.elements != 0)
        return PLM_ERR_UNSUPPORTED;
    uint64_t row = (uint64_t)n_in / block.elements * block.bytes;
    if (row > UINT32_MAX)
        return PLM_ERR_LIMIT;
    ret->bytes = row * plm_round_up(n_out, PANEL_ROWS);
    ret->step_bytes = row * PANEL_ROWS;
    ret->row_step = PANEL_ROWS;
    ret->row_bytes_in = (uint32_t)row;
    return PLM_OK;
}
