// SPDX-License-Identifier: Apache-2.0
// matmul for many rows, bit-equal to matmul_lanes.comp: an invocation takes a tile of the 4 rows of
// a quad in PLM_PANELS panels x PLM_ROWS rows of activations, and walks all 32 lanes itself.
//
// A workgroup is WIDTH invocations: GROUPS groups of rows beside each other, WIDTH / GROUPS quads.
// With several groups, activations are staged in shared memory, which all quads read; with one
// there is nothing to share, no barrier either, and drivers for the CPU are fastest so.
#version 460
#include "shaders/lib/matmul.glsl"
#include "shaders/lib/quad.glsl"

layout(constant_id = 0) const uint PLM_ROWS = 1u;
layout(constant_id = 1) const uint PLM_PANELS = 1u;
layout(constant_id = 2) const uint GROUPS = 1u;
layout(constant_id = 3) const uint WIDTH = 32u;
layout(local_size_x_id = 3) in;

const uint PLM_SUMS = PLM_PANELS * PLM_ROWS;
#include "shaders/lib/carry.glsl"

const uint TILE_ROWS = GROUPS * PLM_ROWS;
const uint TILE_PANELS = WIDTH / GROUPS / 4u * PLM_PANELS;

// 16-byte words of a block of activations, and how many blocks of a lane are staged at once.
#if defined(PLM_ACTS_Q8)
#define BLOCK_WORDS 3u
#define STAGED      4u
#else
#define BLOCK_WORDS 8u
#define STAGED      1u
#endif

shared uvec4 staged[STAGED][BLOCK_WORDS][GROUPS > 1u ? TILE_ROWS : 1u];

// This workgroup's place, this invocation's in it, and what it reads.
uint first_row, first_panel, n_panels;
uint group, quad;
uint64_t row_at[PLM_ROWS];
#if PLM_W_BLOCK == 1
uint64_t panel_at[PLM_PANELS];
#else
plm_quad_panel panel_at[PLM_PANELS];
#endif

// Number of the row of the tile that is this invocation's r-th: groups are interleaved, so that they
// read neighbouring words of shared memory.
uint tile_row(uint r)
{
    return r * GROUPS + group;
}

// Number of this invocation's p-th panel.
uint tile_panel(uint p)
{
    return first_panel + p * (WIDTH / GROUPS / 4u) + quad / 4u;
}

// Address of a row of the tile; the last row again where there are fewer.
uint64_t address_of(uint row)
{
    return a.x + min(first_row + row, a.rows - 1u) * PLM_ACT_ROW_BYTES(a.act, a.n_in);
}

uvec4 load_word(uint64_t row, uint b, uint k)
{
#if defined(PLM_ACTS_Q8)
    // A record is 11 words of 4 bytes.
    uint64_t at = row + b * PLM_ACT_Q8_BLOCK_BYTES + k * 16u;
    uint last = k == BLOCK_WORDS - 1u ? 0u : plm_u32_at(at + 12u).v;
    return uvec4(plm_u32_at(at).v, plm_u32_at(at + 4u).v, plm_u32_at(at + 8u).v, last);
#else
    uint i = b * 32u + k * 4u;
    return floatBitsToUint(plm_load4(row, i, a.n_in, plm_aligned(row) && i + 4u <= a.n_in));
#endif
}

// Blocks b, b + 32, ... (n of them) of all rows of the tile.
void stage(uint b, uint n)
{
    const uint words = n * BLOCK_WORDS;
    barrier(); // what was there has been read
    for (uint i = gl_LocalInvocationIndex; i < words * TILE_ROWS; i += WIDTH) {
        uint row = i / words, block = i % words / BLOCK_WORDS, k = i % BLOCK_WORDS;
        staged[block][k][row] = load_word(address_of(row), b + block * 32u, k);
    }
    barrier();
}

#if defined(PLM_ACTS_Q8)
plm_record record_of(uint block, uint row)
{
    plm_record ret;
    uvec4 q[BLOCK_WORDS];
    [[unroll]] for (uint k = 0u; k < BLOCK_WORDS; k++)
        q[k] = staged[block][k][row];
    [[unroll]] for (uint i = 0u; i < 11u; i++)
        ret.word[i] = q[i / 4u][i % 4u];
    return ret;
}
#endif

#if PLM_W_BLOCK != 1
// Adds block b, which is the block-th of those staged.
void add_block(uint b, uint block, inout vec4 acc[PLM_SUMS])
{
    plm_quad w[PLM_PANELS];
    plm_quad_scales s[PLM_PANELS];
    [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
        w[p] = plm_quad_load(panel_at[p], b);
    [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
        s[p] = plm_quad_scales_of(w[p]);
#if defined(PLM_ACTS_Q8)
    [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++) {
        plm_record x;
        if (GROUPS > 1u)
            x = record_of(block, tile_row(r));
        else
            x = plm_record_load(row_at[r], b);
        [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
            acc[p * PLM_ROWS + r] = plm_quad_add_q8(w[p], s[p], x, acc[p * PLM_ROWS + r]);
    }
#else
    [[unroll]] for (uint g = 0u; g < 8u; g++) {
        vec4 x[PLM_ROWS];
        [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++)
            x[r] = uintBitsToFloat(GROUPS > 1u ? staged[block][g][tile_row(r)]
                                               : load_word(row_at[r], b, g));
        [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
            [[unroll]] for (int c = 0; c < 4; c++) {
                vec4 v = plm_quad_value(w[p], s[p], g, c);
                [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++)
                    acc[p * PLM_ROWS + r] = plm_fma(v, vec4(x[r][c]), acc[p * PLM_ROWS + r]);
            }
    }
#endif
}

#else

#if defined(PLM_MATH_F16)
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
PLM_FMA(f16vec4)
#define SUM    f16vec4
#define NUMBER float16_t
#else
#define SUM    vec4
#define NUMBER float
#endif

void add_four(uint b, uint block, uint g, inout SUM sum[PLM_SUMS])
{
    vec4 x[PLM_ROWS];
    [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++)
        x[r] = uintBitsToFloat(GROUPS > 1u ? staged[block][g][tile_row(r)]
                                           : load_word(row_at[r], b, g));
    [[unroll]] for (uint c = 0u; c < 4u; c++) {
        uint k = b * 32u + g * 4u + c;
        if (k >= a.n_in)
            break;
        [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++) {
            SUM w = SUM(plm_quad_value(panel_at[p], k));
            [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++)
                sum[p * PLM_ROWS + r] =
                    plm_fma(w, SUM(NUMBER(x[r][c])), sum[p * PLM_ROWS + r]);
        }
    }
}

void add_block(uint b, uint block, inout vec4 acc[PLM_SUMS])
{
    const uint n = min(8u, (a.n_in - b * 32u + 3u) / 4u);
#if defined(PLM_MATH_F16)
    f16vec4 sum[PLM_SUMS];
    [[unroll]] for (uint i = 0u; i < PLM_SUMS; i++)
        sum[i] = f16vec4(0.0);
    for (uint g = 0u; g < n; g++)
        add_four(b, block, g, sum);
    [[unroll]] for (uint i = 0u; i < PLM_SUMS; i++) {
        precise vec4 s = acc[i] + vec4(sum[i]);
        acc[i] = s;
    }
#else
    for (uint g = 0u; g < n; g++)
        add_four(b, block, g, acc);
#endif
}
#endif

// The products of this invocation's tile.
void products(out vec4 acc[PLM_SUMS])
{
    vec4 waiting[5][PLM_SUMS];
    const uint n_blocks = (a.n_in + 31u) / 32u;
    for (uint i = 0u; i < 32u; i++) {
        const uint lane = plm_lane(i);
        [[unroll]] for (uint p = 0u; p < PLM_SUMS; p++)
            acc[p] = vec4(0.0);
        for (uint b = lane; b < n_blocks; b += 32u * STAGED) {
            const uint n = min(STAGED, (n_blocks - b + 31u) / 32u);
            if (GROUPS > 1u)
                stage(b, n);
            for (uint k = 0u; k < n; k++)
                add_block(b + k * 32u, k, acc);
        }
        plm_carry(i, waiting, acc);
    }
}

void main()
{
    const uint parts = (a.rows + (TILE_ROWS - 1u)) / TILE_ROWS;
    n_panels = (a.n_out + (PLM_PANEL_ROWS - 1u)) / PLM_PANEL_ROWS;
    first_row = plm_group_index() % parts * TILE_ROWS;
    first_panel = plm_group_index() / parts * TILE_PANELS;
    group = gl_LocalInvocationIndex % GROUPS;
    quad = gl_LocalInvocationIndex / GROUPS;
    if (first_panel >= n_panels)
        return;
    // Without barriers, those beyond the last panel may leave.
    if (GROUPS == 1u && first_panel + quad / 4u >= n_panels)
        return;
    [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++)
        row_at[r] = address_of(tile_row(r));
    [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++) {
        uint64_t panel = a.weight + min(tile_panel(p), n_panels - 1u) * plm_panel_bytes(a.n_in);
#if PLM_W_BLOCK == 1
        panel_at[p] = panel + quad % 4u * PLM_QUAD_BYTES;
#else
        panel_at[p] = plm_quad_of(panel, quad % 4u, a.n_in);
#endif
    }
    vec4 acc[PLM_SUMS];
    products(acc);
    [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++) {
        [[unroll]] for (uint r = 0u; r < PLM_ROWS; r++)
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                plm_matmul_store(first_row + tile_row(r), tile_panel(p) * PLM_PANEL_ROWS + quad % 4u * 4u + c,
                      acc[p * PLM_ROWS + r][c]);
    }
}
