// SPDX-License-Identifier: Apache-2.0
// rms_norm: one workgroup per row. Invocation t owns elements 4t .. 4t+3 of every piece and adds
// their squares in ascending order; the 256 sums are added by plm_group_sum.
#version 460
#extension GL_EXT_control_flow_attributes : require
#include "shaders/lib/float.glsl"
#include "shaders/lib/q8.glsl"
#include "shaders/lib/sum.glsl"

PLM_ARGS(plm_rms_norm_args);

// Pieces that stay in registers, so that a row of up to 8192 elements is read once and all of its
// loads are in flight together: a lone workgroup waits for memory and for nothing else.
#define HELD 8u

// x with the residual, which is stored back.
vec4 load_sum(uint64_t row, uint i, bool wide, vec4 x)
{
    if (a.residual == 0ul)
        return x;
    precise vec4 sum = x + plm_load4(a.residual + row, i, a.n, wide);
    plm_store4(a.x + row, i, a.n, wide, sum);
    return sum;
}

float add_squares(vec4 x, float squares)
{
    for (uint c = 0u; c < 4u; c++)
        squares = plm_fma(x[c], x[c], squares);
    return squares;
}

// One piece of the result. All invocations call it: the quantisation has barriers.
void store(uint r, uint i, bool wide, vec4 x, vec4 weight, float factor)
{
    precise vec4 y = x * factor * weight;
    uint64_t dst = a.dst_f32 + r * (uint64_t(a.n) * 4ul);
    if (i < a.n && a.dst_f32 != 0ul) {
        precise vec4 sum = y;
        if (a.add != 0u)
            sum = plm_load4(dst, i, a.n, wide) + y;
        plm_store4(dst, i, a.n, wide, sum);
    }
    if (a.dst_q8 != 0ul)
        plm_q8_store(i < a.n, plm_q8_record(a.dst_q8, r, a.n, i), y);
}

void main()
{
    uint r = plm_group_index();
    if (r >= a.rows)
        return;
    uint64_t row_bytes = uint64_t(a.n) * 4ul;
    uint64_t row = r * row_bytes;
    bool wide = plm_aligned(a.x | a.residual | a.weight | a.dst_f32 | row_bytes);
    uint first = gl_LocalInvocationIndex * 4u;

    vec4 held_x[HELD], held_weight[HELD];
    [[unroll]] for (uint p = 0u; p < HELD; p++) {
        uint i = p * PLM_PIECE + first;
        held_x[p] = i < a.n ? plm_load4(a.x + row, i, a.n, wide) : vec4(0.0);
        held_weight[p] = i < a.n ? plm_load4(a.weight, i, a.n, wide) : vec4(0.0);
    }
    float squares = 0.0;
    [[unroll]] for (uint p = 0u; p < HELD; p++) {
        uint i = p * PLM_PIECE + first;
        if (i < a.n) {
            held_x[p] = load_sum(row, i, wide, held_x[p]);
            squares = add_squares(held_x[p], squares);
        }
    }
    for (uint i = HELD * PLM_PIECE + first; i < a.n; i += PLM_PIECE)
        squares = add_squares(load_sum(row, i, wide, plm_load4(a.x + row, i, a.n, wide)), squares);
    precise float mean = plm_group_sum(squares) / float(a.n);
    precise float factor = 1.0 / sqrt(mean + a.eps);

    [[unroll]] for (uint p = 0u; p < HELD; p++)
        if (p * PLM_PIECE < a.n)
            store(r, p * PLM_PIECE + first, wide, held_x[p], held_weight[p], factor);
    for (uint piece = HELD * PLM_PIECE; piece < a.n; piece += PLM_PIECE) {
        uint i = piece + first; // read again by who has written it
        vec4 x = vec4(0.0), weight = vec4(0.0);
        if (i < a.n) {
            x = plm_load4(a.x + row, i, a.n, wide);
            weight = plm_load4(a.weight, i, a.n, wide);
        }
        store(r, i, wide, x, weight, factor);
    }
}
