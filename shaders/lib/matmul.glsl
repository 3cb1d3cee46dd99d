// SPDX-License-Identifier: Apache-2.0
// How every kernel of matmul ends: the bias, then what dst held.
#ifndef PLM_SHADERS_MATMUL_GLSL
#define PLM_SHADERS_MATMUL_GLSL

#include "shaders/lib/base.glsl"

PLM_ARGS(plm_matmul_args);

// Stores the product of a row of activations and a row of the weight, if there are both.
void plm_matmul_store(uint row, uint out_row, float sum)
{
    if (row >= a.rows || out_row >= a.n_out)
        return;
    precise float y = sum;
    if (a.bias != 0ul)
        y = y + plm_f32_at(a.bias + uint64_t(out_row) * 4ul).v;
    plm_f32_at dst = plm_f32_at(a.dst + (uint64_t(row) * a.ld_dst + out_row) * 4ul);
    if (a.add != 0u)
        y = y + dst.v;
    dst.v = y;
}

#endif
