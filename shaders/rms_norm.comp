// SPDX-License-Identifier: Apache-2.0
// rms_norm: one workgroup per row. Invocation t owns elements 4t .. 4t+3 of every piece and adds
// their squares in ascending order; the 256 sums are added by plm_group_sum.
#version 460
#include "shaders/lib/float.glsl"
#include "shaders/lib/q8.glsl"
#include "shaders/lib/sum.glsl"

PLM_ARGS(plm_rms_norm_args);

void main()
{
    uint r = plm_group_index();
    if (r >= a.rows)
        return;
    uint64_t row_bytes = uint64_t(a.n) * 4ul;
    uint64_t row = r * row_bytes;
    bool wide = plm_aligned(a.x | a.residual | a.weight | a.dst_f32 | row_bytes);
    uint first = gl_LocalInvocationIndex * 4u;

    precise float squares = 0.0;
    for (uint i = first; i < a.n; i += PLM_PIECE) {
        precise vec4 x = plm_load4(a.x + row, i, a.n, wide);
        if (a.residual != 0ul) {
            x = x + plm_load4(a.residual + row, i, a.n, wide);
            plm_store4(a.x + row, i, a.n, wide, x);
        }
        for (uint c = 0u; c < 4u; c++)
            squares = plm_fma(x[c], x[c], squares);
    }
    precise float mean = plm_group_sum(squares) / float(a.n);
    precise float factor = 1.0 / sqrt(mean + a.eps);

    // Every invocation goes through all pieces: the quantisation has barriers. An invocation reads
    // what it has written itself.
    for (uint piece = 0u; piece < a.n; piece += PLM_PIECE) {
        uint i = piece + first;
        bool live = i < a.n;
        precise vec4 y = vec4(0.0);
        if (live)
            y = plm_load4(a.x + row, i, a.n, wide) * factor *
                plm_load4(a.weight, i, a.n, wide);
        if (live && a.dst_f32 != 0ul)
            plm_store4(a.dst_f32 + row, i, a.n, wide, y);
        if (a.dst_q8 != 0ul)
            plm_q8_store(live, plm_q8_record(a.dst_q8, r, a.n, i), y);
    }
}
