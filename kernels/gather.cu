// SPDX-License-Identifier: Apache-2.0
// gather: block b copies piece b % pieces of row b / pieces.
#include "kernels/lib/vec.cuh"

PLM_KERNEL(plm_gather, 256, 4, plm_gather_args)
{
    const uint32_t pieces = plm_pieces(a.n), r = blockIdx.x / pieces;
    const uint32_t i = blockIdx.x % pieces * PLM_PIECE + threadIdx.x * 4;
    const bool wide = plm_aligned(a.src | a.dst | (uint64_t)a.n * 4);
    plm_release();
    plm_await();
    const uint64_t from = (uint64_t)((const int32_t *)a.index)[r] * a.n;
    plm_store_vec4((float *)a.dst + (uint64_t)r * a.n, i, a.n, wide,
                   plm_load_vec4((const float *)a.src + from, i, a.n, wide));
}
