// SPDX-License-Identifier: Apache-2.0
// get_rows: block b decodes piece b % pieces of row b / pieces, four inputs a thread.
#include "kernels/lib/panel.cuh"

// Inputs i .. i+3 of a lane; zeros beyond the row's end.
template <uint32_t TYPE>
PLM_FN plm_vec4 values(const uint8_t *panel, uint32_t lane, uint32_t i, uint32_t n_in)
{
    typedef plm_layout<TYPE> l;
    if constexpr (l::block == 1) {
        plm_vec4 x = {};
        for (uint32_t c = 0; c < 4; c++)
            if (i + c < n_in)
                x.v[c] = plm_panel_float<TYPE>(panel + (uint64_t)(i + c) * l::quant_bytes, lane);
        return x;
    } else {
        const uint32_t b = i / 32, g = i / 4 % 8;
        const uint8_t *record = panel + (uint64_t)(i / l::block) * l::scale_bytes;
        const uint8_t *quants =
            panel + plm_panel_quant_offset<TYPE>(n_in) + (uint64_t)b * l::quant_bytes;
        return plm_panel_values<TYPE>(plm_panel_scales<TYPE>(record, lane, b),
                                      plm_panel_codes<TYPE>(quants, lane, g), g);
    }
}

template <uint32_t TYPE> PLM_FN void get_rows(const struct plm_get_rows_args &a)
{
    const uint32_t pieces = plm_pieces(a.n_in), r = blockIdx.x / pieces;
    const uint32_t i = blockIdx.x % pieces * PLM_PIECE + threadIdx.x * 4;
    plm_release();
    plm_await();
    if (i >= a.n_in)
        return;
    const uint32_t token = (uint32_t)((const int32_t *)a.tokens)[r];
    const uint8_t *panel =
        (const uint8_t *)a.weight + token / PLM_PANEL_ROWS * plm_panel_bytes<TYPE>(a.n_in);
    plm_vec4 x = values<TYPE>(panel, token % PLM_PANEL_ROWS, i, a.n_in);
    for (int c = 0; c < 4; c++)
        x.v[c] *= a.scale;
    plm_store_vec4((float *)a.dst + (uint64_t)r * a.n_in, i, a.n_in,
                   plm_aligned(a.dst | (uint64_t)a.n_in * 4), x);
}

#define GET_ROWS(name, TYPE)                                                                       \
    PLM_KERNEL(plm_get_rows_##name, 256, 4, plm_get_rows_args)                                     \
    {                                                                                              \
        get_rows<PLM_TYPE_##TYPE>(a);                                                              \
    }
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_ON_GPU_##BACKENDS(GET_ROWS(name, NAME))
#include "kernels/types.def"
