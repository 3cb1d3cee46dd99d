// SPDX-License-Identifier: Apache-2.0
// gate_mul: block b takes piece b % pieces of row b / pieces.
#include "kernels/lib/act.cuh"

PLM_KERNEL(plm_gate_mul, 256, 4, plm_gate_mul_args)
{
    const uint32_t pieces = plm_pieces(a.n), r = blockIdx.x / pieces;
    const uint32_t i = blockIdx.x % pieces * PLM_PIECE + threadIdx.x * 4;
    const uint64_t at = (uint64_t)r * a.ld, row_bytes = (uint64_t)a.n * 4;
    const bool wide = plm_aligned(a.gate | a.up | (uint64_t)a.ld * 4 | row_bytes);
    plm_release();
    plm_await();
    const plm_vec4 gate = plm_load_vec4((const float *)a.gate + at, i, a.n, wide);
    const plm_vec4 up = plm_load_vec4((const float *)a.up + at, i, a.n, wide);
    const plm_vec4 y = plm_gate_mul4(gate, up, a.gate_fn);
    if (a.dst_f32 != 0)
        plm_store_vec4((float *)(a.dst_f32 + r * row_bytes), i, a.n,
                       plm_aligned(a.dst_f32 | row_bytes), y);
    if (a.dst_q8 != 0)
        plm_q8_store(i < a.n, plm_q8_record(a.dst_q8, r, a.n, i), y);
}
