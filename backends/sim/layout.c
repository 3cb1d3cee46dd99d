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
#define PLM_TENSOR_TYPE(NAME, name, id, block_, bytes_, CODES, VALUES, zero, SCALES, BACKENDS)     \
    case PLM_TYPE_##NAME:                                                                          \
        return PLM_BACKENDS_##BACKENDS != PLM_BACKENDS_NONE ? (struct block){block_, bytes_}       \
                                                            : (struct block){0, 0};
#include "kernels/types.def"
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
