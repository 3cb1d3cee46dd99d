// SPDX-License-Identifier: Apache-2.0
// add: the rows are one line of rows * n elements, of which block b takes piece b.
#include "kernels/lib/vec.cuh"

PLM_KERNEL(plm_add, 256, 4, plm_add_args)
{
    const uint64_t n = (uint64_t)a.rows * a.n, begin = (uint64_t)blockIdx.x * PLM_PIECE;
    const float *x = (const float *)a.a + begin, *y = (const float *)a.b + begin;
    const uint32_t left = (uint32_t)(n - begin < PLM_PIECE ? n - begin : PLM_PIECE);
    const uint32_t i = threadIdx.x * 4;
    const bool wide = plm_aligned(a.a | a.b | a.dst | (uint64_t)left * 4);
    plm_release();
    plm_await();
    const plm_vec4 sum = plm_add4(plm_load_vec4(x, i, left, wide), plm_load_vec4(y, i, left, wide));
    plm_store_vec4((float *)a.dst + begin, i, left, wide, sum);
}
