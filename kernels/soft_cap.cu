// SPDX-License-Identifier: Apache-2.0
// soft_cap: the rows are one line of rows * n elements, of which block b takes piece b.
#include "kernels/lib/act.cuh"

PLM_FN float capped(float x, float cap, float inverse)
{
    const float u = x * inverse, size = fabsf(u), z = u * u;
    float p = fmaf(z, PLM_TANH_P4, PLM_TANH_P3);
    p = fmaf(z, p, PLM_TANH_P2);
    p = fmaf(z, p, PLM_TANH_P1);
    p = fmaf(z, p, PLM_TANH_P0);
    const float near = fmaf(u * z, p, u);
    const float far = 1.0f - 2.0f / (1.0f + plm_exp(size + size));
    return (size < PLM_TANH_NEAR ? near : u < 0.0f ? -far : far) * cap + (x - x);
}

PLM_KERNEL(plm_soft_cap, 256, 4, plm_soft_cap_args)
{
    const uint64_t n = (uint64_t)a.rows * a.n, begin = (uint64_t)blockIdx.x * PLM_PIECE;
    float *x = (float *)a.x + begin;
    const uint32_t left = (uint32_t)(n - begin < PLM_PIECE ? n - begin : PLM_PIECE);
    const uint32_t i = threadIdx.x * 4;
    const bool wide = plm_aligned(a.x | (uint64_t)left * 4);
    const float inverse = 1.0f / a.cap;
    plm_release();
    plm_await();
    plm_vec4 y = plm_load_vec4(x, i, left, wide);
    for (int c = 0; c < 4; c++)
        y.v[c] = capped(y.v[c], a.cap, inverse);
    plm_store_vec4(x, i, left, wide, y);
}
