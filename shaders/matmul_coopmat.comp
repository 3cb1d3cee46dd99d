// SPDX-License-Identifier: Apache-2.0
// matmul for many rows of 8-bit activations by cooperative matrices of 16 x 16 x 32, bit-equal to
// the others: 32 is one block, so a product of matrices is the exact integer dot products of one
// block, to which the class's arithmetic is applied; lanes are visited as in matmul_tile.comp.
// Four subgroups of 32 take a panel each, for 32 rows of activations. Weights are unpacked to signed
// bytes in shared memory. Not for types with two factors a block, which need the dots of both halves.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "shaders/lib/matmul.glsl"
#include "shaders/lib/quad.glsl"

#define WIDTH       128u
#define TILE_PANELS 4u
#define TILE_OUTS   64u // rows of the panels
#define TILE_ROWS   32u // of activations, two matrices
#define STAGED      4u  // blocks of a lane at once

layout(local_size_x = 128) in;

// Vectors of sums of an invocation: 8 of 256 elements of each of two matrices.
const uint PLM_SUMS = 4u;
#include "shaders/lib/carry.glsl"

// A row of 32 bytes, padded: rows that are read together lie in different banks.
#define ROW_WORDS 12u
shared uint codes[STAGED * TILE_OUTS * ROW_WORDS];
shared uint acts[STAGED * TILE_ROWS * ROW_WORDS]; // records of 11 words
shared vec4 factors[STAGED * TILE_OUTS / 4u];     // dw
#if defined(PLM_W_HAS_OFFSET)
shared vec4 offsets[STAGED * TILE_OUTS / 4u]; // mw
#endif
// A subgroup's product, by columns: what is one matrix's for the device is numbers for us.
#define COLUMN 20u
shared int dots[TILE_PANELS * 16u * COLUMN];

uint first_row, first_panel, n_panels;

uint64_t panel_at(uint p)
{
    return a.weight + min(first_panel + p, n_panels - 1u) * plm_panel_bytes(a.n_in);
}

// Inputs 4g .. 4g+3 of a quad's rows in block b, as signed bytes less the type's zero.
uvec4 signed_codes(uint64_t quants, uint b, uint g)
{
    uint64_t block = quants + b * PLM_W_QUANT_BYTES;
#if PLM_W_CODES == PLM_CODES_BYTES
    return plm_words4(block + g * 64u) ^ 0x80808080u;
#else
    uvec4 q = plm_words4(block + (g & 3u) * 64u) >> (g & 4u) & 0x0f0f0f0fu;
#if PLM_W_ZERO != 0
    // Each byte less the zero, with nothing borrowed from its neighbour.
    q = (q | 0x80808080u) - PLM_W_ZERO * 0x01010101u ^ 0x80808080u;
#endif
    return q;
#endif
}

// Unpacks blocks b, b + 32, ... (n of them) of the weights: an invocation takes one line.
void stage_weights(uint b, uint n)
{
    for (uint i = gl_LocalInvocationIndex; i < n * TILE_PANELS * 32u; i += WIDTH) {
        uint block = i / (TILE_PANELS * 32u), p = i / 32u % TILE_PANELS;
        uint quad = i % 4u, g = i / 4u % 8u;
        plm_quad_panel at = plm_quad_of(panel_at(p), quad, a.n_in);
        uvec4 q = signed_codes(at.quants, b + block * 32u, g);
        uint row = block * TILE_OUTS + p * 16u + quad * 4u;
        [[unroll]] for (uint c = 0u; c < 4u; c++)
            codes[(row + c) * ROW_WORDS + g] = q[c];
        if (g != 0u)
            continue;
        plm_quad_scales s = plm_quad_scales_of(plm_quad_load(at, b + block * 32u));
        factors[row / 4u] = s.d;
#if defined(PLM_W_HAS_OFFSET)
        offsets[row / 4u] = s.m;
#endif
    }
}

void stage_acts(uint b, uint n)
{
    for (uint i = gl_LocalInvocationIndex; i < n * TILE_ROWS * 11u; i += WIDTH) {
        uint word = i % 11u, block = i / 11u % n, row = i / (11u * n);
        uint64_t at = a.x + min(first_row + row, a.rows - 1u) * PLM_ACT_Q8_ROW_BYTES(a.n_in) +
                      (b + block * 32u) * PLM_ACT_Q8_BLOCK_BYTES + word * 4u;
        acts[(block * TILE_ROWS + row) * ROW_WORDS + word] = plm_u32_at(at).v;
    }
}

// The class's arithmetic on this invocation's 8 dots of one matrix: column n, rows half * 8 ...
void add_dots(uint block, uint matrix, inout vec4 acc[PLM_SUMS])
{
    const uint n = gl_SubgroupInvocationID % 16u, rows = gl_SubgroupInvocationID / 16u * 8u;
    const uint record = (block * TILE_ROWS + matrix * 16u + n) * ROW_WORDS;
    const float dx = uintBitsToFloat(acts[record + PLM_ACT_Q8_D / 4]);
    const float ds = uintBitsToFloat(acts[record + PLM_ACT_Q8_DS / 4]);
    [[unroll]] for (uint v = 0u; v < 2u; v++) {
        uint at = (gl_SubgroupID * 16u + n) * COLUMN + rows + v * 4u;
        uint quad = (block * TILE_OUTS + gl_SubgroupID * 16u + rows) / 4u + v;
        vec4 dot = vec4(dots[at], dots[at + 1u], dots[at + 2u], dots[at + 3u]);
        precise vec4 factor = factors[quad] * dx;
        precise vec4 sum = plm_fma(dot, factor, acc[matrix * 2u + v]);
#if defined(PLM_W_HAS_OFFSET)
        sum = plm_fma(offsets[quad], vec4(ds), sum);
#endif
        acc[matrix * 2u + v] = sum;
    }
}

void add_block(uint block, inout vec4 acc[PLM_SUMS])
{
    coopmat<int8_t, gl_ScopeSubgroup, 16, 32, gl_MatrixUseA> w;
    coopmat<int8_t, gl_ScopeSubgroup, 32, 16, gl_MatrixUseB> x;
    coopMatLoad(w, codes, (block * TILE_OUTS + gl_SubgroupID * 16u) * ROW_WORDS, ROW_WORDS,
                gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint matrix = 0u; matrix < 2u; matrix++) {
        coopmat<int32_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> product =
            coopmat<int32_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0);
        coopMatLoad(x, acts, (block * TILE_ROWS + matrix * 16u) * ROW_WORDS, ROW_WORDS,
                    gl_CooperativeMatrixLayoutColumnMajor);
        product = coopMatMulAdd(w, x, product);
        coopMatStore(product, dots, gl_SubgroupID * 16u * COLUMN, COLUMN,
                     gl_CooperativeMatrixLayoutColumnMajor);
        subgroupBarrier();
        add_dots(block, matrix, acc);
        subgroupBarrier();
    }
}

void main()
{
    const uint parts = (a.rows + (TILE_ROWS - 1u)) / TILE_ROWS, n_blocks = a.n_in / 32u;
    n_panels = (a.n_out + (PLM_PANEL_ROWS - 1u)) / PLM_PANEL_ROWS;
    first_row = plm_group_index() % parts * TILE_ROWS;
    first_panel = plm_group_index() / parts * TILE_PANELS;
    if (first_panel >= n_panels)
        return;
    vec4 acc[PLM_SUMS], waiting[5][PLM_SUMS];
    for (uint i = 0u; i < 32u; i++) {
        [[unroll]] for (uint p = 0u; p < PLM_SUMS; p++)
            acc[p] = vec4(0.0);
        for (uint b = plm_lane(i); b < n_blocks; b += 32u * STAGED) {
            const uint n = min(STAGED, (n_blocks - b + 31u) / 32u);
            barrier(); // what was there has been read
            stage_weights(b, n);
            stage_acts(b, n);
            barrier();
            for (uint k = 0u; k < n; k++)
                add_block(k, acc);
        }
        plm_carry(i, waiting, acc);
    }
    const uint n = gl_SubgroupInvocationID % 16u, rows = gl_SubgroupInvocationID / 16u * 8u;
    [[unroll]] for (uint p = 0u; p < PLM_SUMS; p++)
        [[unroll]] for (uint c = 0u; c < 4u; c++)
            plm_matmul_store(first_row + p / 2u * 16u + n,
                             (first_panel + gl_SubgroupID) * PLM_PANEL_ROWS + rows + p % 2u * 4u + c,
                             acc[p][c]);
}
