// SPDX-License-Identifier: Apache-2.0
// Products of panels with a few rows of activations: what matmul, qkv and glu share. A workgroup of
// 4 quads x 32 lanes; an invocation takes the 4 rows of its quad and every 32nd block of 32 inputs,
// for PLM_ROWS rows of activations and PLM_PANELS panels at once, so that a weight is read and
// unpacked once and a row's words are shared by all panels. The 32 lanes are then added in pairs
// (l and l + 16, + 8, + 4, + 2, + 1). A result depends on nothing but its weight row and its row.
//
// Modules define one of PLM_ACTS_Q8 and PLM_ACTS_F32; with PLM_MATH_F16 the latter multiplies and
// adds the 32 products of a block in half precision, a numerics class of its own.
#ifndef PLM_SHADERS_LANES_GLSL
#define PLM_SHADERS_LANES_GLSL

#define PLM_GROUP 128

#include "shaders/lib/group.glsl"
#include "shaders/lib/quad.glsl"

#if defined(PLM_MATH_F16)
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif

layout(constant_id = 0) const uint PLM_ROWS = 1u;
layout(constant_id = 1) const uint PLM_PANELS = 1u;
// Blocks of a lane whose weights are loaded together: bytes in flight are what fills a GPU.
layout(constant_id = 2) const uint PLM_AHEAD = 1u;

// A pair is a panel and a row of activations: number panel * PLM_ROWS + row.
const uint PLM_PAIRS = PLM_PANELS * PLM_ROWS;

// The sum of output row o (0 .. 15) of a pair; called by one invocation of the workgroup for each.
// The including module says what becomes of it.
void plm_emit(uint pair, uint o, float sum);

#if PLM_W_BLOCK != 1
void plm_add_block(plm_quad w[PLM_PANELS], uint64_t row[PLM_ROWS], uint b,
                   inout vec4 acc[PLM_PAIRS])
{
    plm_quad_scales s[PLM_PANELS];
    [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
        s[p] = plm_quad_scales_of(w[p]);
#if defined(PLM_ACTS_Q8)
    [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++) {
        plm_record x = plm_record_load(row[r], b);
        [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
            acc[p * PLM_ROWS + r] = plm_quad_add_q8(w[p], s[p], x, acc[p * PLM_ROWS + r]);
    }
#else
    [[unroll]] for (uint g = 0u; g < 8u; g++) {
        vec4 x[PLM_ROWS];
        [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++)
            x[r] = plm_vec4_at(row[r] + b * 128u + g * 16u).v;
        [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
            [[unroll]] for (int c = 0; c < 4; c++) {
                vec4 v = plm_quad_value(w[p], s[p], g, c);
                [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++) {
                    precise vec4 sum = plm_fma(v, vec4(x[r][c]), acc[p * PLM_ROWS + r]);
                    acc[p * PLM_ROWS + r] = sum;
                }
            }
    }
#endif
}

// Adds this invocation's blocks to acc.
void plm_add_lane(uint64_t panel[PLM_PANELS], uint64_t row[PLM_ROWS], uint n_in,
                  inout vec4 acc[PLM_PAIRS])
{
    const uint quad = gl_LocalInvocationIndex % 4u, n = n_in / 32u;
    plm_quad_panel at[PLM_PANELS];
    [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
        at[p] = plm_quad_of(panel[p], quad, n_in);
    uint b = gl_LocalInvocationIndex / 4u;
    if (PLM_AHEAD > 1u)
        for (; b + 32u * (PLM_AHEAD - 1u) < n; b += 32u * PLM_AHEAD) {
            plm_quad w[PLM_AHEAD][PLM_PANELS];
            [[unroll]] for (uint i = 0u; i < PLM_AHEAD; i++)
                [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
                    w[i][p] = plm_quad_load(at[p], b + i * 32u);
            [[unroll]] for (uint i = 0u; i < PLM_AHEAD; i++)
                plm_add_block(w[i], row, b + i * 32u, acc);
        }
    for (; b < n; b += 32u) {
        plm_quad w[PLM_PANELS];
        [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
            w[p] = plm_quad_load(at[p], b);
        plm_add_block(w, row, b, acc);
    }
}

#else

#if defined(PLM_MATH_F16)
PLM_FMA(f16vec4)
#define PLM_SUM    f16vec4
#define PLM_NUMBER float16_t
#else
#define PLM_SUM    vec4
#define PLM_NUMBER float
#endif

// Adds elements k .. k+3 of every row to sum; those from n_in on are not there.
void plm_add_four(uint64_t line[PLM_PANELS], uint64_t row[PLM_ROWS], uint k, uint n_in, bool wide,
                  inout PLM_SUM sum[PLM_PAIRS])
{
    vec4 x[PLM_ROWS];
    [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++)
        x[r] = plm_load4(row[r], k, n_in, wide);
    [[unroll]] for (uint c = 0u; c < 4u; c++) {
        if (!wide && k + c >= n_in)
            break;
        [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++) {
            PLM_SUM w = PLM_SUM(plm_quad_value(line[p], k + c));
            [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++) {
                precise PLM_SUM s = plm_fma(w, PLM_SUM(PLM_NUMBER(x[r][c])), sum[p * PLM_ROWS + r]);
                sum[p * PLM_ROWS + r] = s;
            }
        }
    }
}

void plm_add_lane(uint64_t panel[PLM_PANELS], uint64_t row[PLM_ROWS], uint n_in,
                  inout vec4 acc[PLM_PAIRS])
{
    uint64_t line[PLM_PANELS];
    [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
        line[p] = panel[p] + gl_LocalInvocationIndex % 4u * PLM_QUAD_BYTES;
    const bool wide = n_in % 4u == 0u && plm_aligned(row[0]);
    for (uint k = gl_LocalInvocationIndex / 4u * 32u; k < n_in; k += 1024u) {
#if defined(PLM_MATH_F16)
        f16vec4 sum[PLM_PAIRS];
        [[unroll]] for (uint i = 0u; i < PLM_PAIRS; i++)
            sum[i] = f16vec4(0.0);
        for (uint e = k; e < min(k + 32u, n_in); e += 4u)
            plm_add_four(line, row, e, n_in, wide, sum);
        [[unroll]] for (uint i = 0u; i < PLM_PAIRS; i++) {
            precise vec4 s = acc[i] + vec4(sum[i]);
            acc[i] = s;
        }
#else
        if (wide && k + 32u <= n_in) { // all its loads may be under way at once
            [[unroll]] for (uint e = 0u; e < 32u; e += 4u)
                plm_add_four(line, row, k + e, n_in, true, acc);
        } else {
            for (uint e = k; e < min(k + 32u, n_in); e += 4u)
                plm_add_four(line, row, e, n_in, wide, acc);
        }
#endif
    }
}
#endif

// Lanes are brought together for so many pairs at a time, through 8 KiB at most. The stride keeps
// two pairs that a subgroup of 32 reads in different banks.
const uint PLM_TOGETHER = PLM_PAIRS < 4u ? PLM_PAIRS : 4u;
#define PLM_PAIR_STRIDE (32 * PLM_PANEL_ROWS + PLM_PANEL_ROWS)
shared float plm_lane_sums[PLM_TOGETHER * PLM_PAIR_STRIDE];

float plm_sum32(uint at)
{
    precise float v[16];
    [[unroll]] for (uint l = 0u; l < 16u; l++)
        v[l] = plm_lane_sums[at + l * PLM_PANEL_ROWS] +
               plm_lane_sums[at + (l + 16u) * PLM_PANEL_ROWS];
    [[unroll]] for (uint l = 0u; l < 8u; l++)
        v[l] = v[l] + v[l + 8u];
    [[unroll]] for (uint l = 0u; l < 4u; l++)
        v[l] = v[l] + v[l + 4u];
    precise float sum = (v[0] + v[2]) + (v[1] + v[3]);
    return sum;
}

// The products of all pairs, handed to plm_emit. x: activations of rows rows, of which this takes
// those from first on (the last one again where there are fewer). All invocations call it; between
// two calls they meet at a barrier.
void plm_products(uint64_t panel[PLM_PANELS], uint64_t x, uint first, uint rows, uint n_in)
{
    vec4 acc[PLM_PAIRS];
    uint64_t row[PLM_ROWS];
    [[unroll]] for (uint i = 0u; i < PLM_PAIRS; i++)
        acc[i] = vec4(0.0);
#if defined(PLM_ACTS_Q8)
    const uint64_t row_bytes = PLM_ACT_Q8_ROW_BYTES(n_in);
#else
    const uint64_t row_bytes = uint64_t(n_in) * 4ul;
#endif
    [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++)
        row[r] = x + min(first + r, rows - 1u) * row_bytes;
    plm_add_lane(panel, row, n_in, acc);
    const uint t = gl_LocalInvocationIndex;
    [[unroll]] for (uint i = 0u; i < PLM_PAIRS; i += PLM_TOGETHER) {
        if (i > 0u)
            barrier(); // what was there has been read
        [[unroll]] for (uint k = 0u; k < PLM_TOGETHER; k++)
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                plm_lane_sums[k * PLM_PAIR_STRIDE + t * 4u + c] = acc[i + k][c];
        barrier();
        if (t < PLM_TOGETHER * PLM_PANEL_ROWS)
            plm_emit(i + t / PLM_PANEL_ROWS, t % PLM_PANEL_ROWS,
                     plm_sum32(t / PLM_PANEL_ROWS * PLM_PAIR_STRIDE + t % PLM_PANEL_ROWS));
    }
}

#endif
