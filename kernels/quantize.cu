// SPDX-License-Identifier: Apache-2.0
// quantize: block b takes piece b % pieces of row b / pieces.
#include "kernels/lib/act.cuh"

PLM_KERNEL(plm_quantize, 256, 4, plm_quantize_args)
{
    const uint32_t pieces = plm_pieces(a.n), r = blockIdx.x / pieces;
    const uint32_t i = blockIdx.x % pieces * PLM_PIECE + threadIdx.x * 4;
    plm_release();
    plm_await();
    const float *row = (const float *)a.x + (uint64_t)r * a.n;
    plm_q8_store(i < a.n, plm_q8_record(a.dst, r, a.n, i),
                 plm_load_vec4(row, i, a.n, plm_aligned(a.x)));
}
