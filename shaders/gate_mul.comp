// SPDX-License-Identifier: Apache-2.0
// gate_mul: workgroup w takes piece w % pieces of row w / pieces.
#version 460
#include "shaders/lib/float.glsl"
#include "shaders/lib/q8.glsl"

PLM_ARGS(plm_gate_mul_args);

void main()
{
    uint r = plm_group_index() / plm_pieces(a.n);
    uint i = plm_group_index() % plm_pieces(a.n) * PLM_PIECE + gl_LocalInvocationIndex * 4u;
    bool live = r < a.rows && i < a.n;
    vec4 y = vec4(0.0);
    if (live) {
        uint64_t row = uint64_t(r) * a.ld * 4ul;
        bool wide = plm_aligned(a.gate | a.up | uint64_t(a.ld) * 4ul) && a.n % 4u == 0u;
        vec4 gate = plm_load4(a.gate + row, i, a.n, wide);
        vec4 up = plm_load4(a.up + row, i, a.n, wide);
        for (uint c = 0u; c < 4u; c++)
            y[c] = plm_gate_mul(gate[c], up[c], a.gate_fn);
    }
    if (live && a.dst_f32 != 0ul) {
        uint64_t row_bytes = uint64_t(a.n) * 4ul;
        plm_store4(a.dst_f32 + r * row_bytes, i, a.n, plm_aligned(a.dst_f32 | row_bytes), y);
    }
    if (a.dst_q8 != 0ul)
        plm_q8_store(live, plm_q8_record(a.dst_q8, r, a.n, i), y);
}
