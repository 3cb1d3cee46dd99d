// SPDX-License-Identifier: Apache-2.0
// Weights as products read them: by quads, which are 4 neighbouring rows of a panel, with loads of
// 16 bytes. Components of vectors are the rows of a quad.
#ifndef PLM_SHADERS_QUAD_GLSL
#define PLM_SHADERS_QUAD_GLSL

#include "shaders/lib/panel.glsl"

#extension GL_EXT_control_flow_attributes : require
#if defined(PLM_DOT)
#extension GL_EXT_spirv_intrinsics : require
#endif

// Loads in components of 64 bits: a GPU loads the same bytes at once, a driver for the CPU takes
// components one by one.
uvec2 plm_words2(uint64_t at)
{
    return unpackUint2x32(plm_u64_at(at).v);
}

uvec4 plm_words4(uint64_t at)
{
    u64vec2 v = plm_u64vec2_at(at).v;
    return uvec4(unpackUint2x32(v.x), unpackUint2x32(v.y));
}

#if PLM_W_BLOCK == 1

#define PLM_QUAD_BYTES (PLM_W_QUANT_BYTES / 4) // of a line of one input

// Element k of the rows of a quad; line is the address of its bytes in the panel's first line.
vec4 plm_quad_value(uint64_t line, uint k)
{
#if defined(PLM_WEIGHT_F32)
    return uintBitsToFloat(plm_words4(line + k * PLM_W_QUANT_BYTES));
#elif defined(PLM_WEIGHT_F16)
    // Half the instructions of plm_f16_to_f32, which would cost more than the loads. A driver that
    // flushes subnormal halves loses less than 2^-14 of an element.
    uvec2 h = plm_words2(line + k * PLM_W_QUANT_BYTES);
    return vec4(unpackHalf2x16(h.x), unpackHalf2x16(h.y));
#else
    uvec2 h = plm_words2(line + k * PLM_W_QUANT_BYTES);
    return uintBitsToFloat(uvec4(h.x << 16, h.x & 0xffff0000u, h.y << 16, h.y & 0xffff0000u));
#endif
}

#else

#define PLM_QUAD_LINES (PLM_W_QUANT_BYTES / 64)

// One block of 32 inputs as it lies in memory.
struct plm_quad {
    uvec4 line[PLM_QUAD_LINES];
    uvec2 d; // four halves; E8M0: four bytes
#if defined(PLM_W_HAS_OFFSET) || defined(PLM_W_HAS_MINIMA)
    uvec2 m;
#endif
#if PLM_W_BLOCK == 256
    uvec2 sub; // factors, a byte per row: D_M_SUB: sc and mn, D_SUB: sc, else those of both halves
#endif
};

// The areas of a panel, moved to the quad's bytes in a line and in a row of 16 halves.
struct plm_quad_panel {
    uint64_t scales;
    uint64_t quants;
    uint quad;
};

plm_quad_panel plm_quad_of(uint64_t panel, uint quad, uint n_in)
{
    return plm_quad_panel(panel + quad * 8u, panel + plm_panel_quant_offset(n_in) + quad * 16u,
                          quad);
}

plm_quad plm_quad_load(plm_quad_panel p, uint b)
{
    plm_quad w;
    uint64_t quants = p.quants + b * PLM_W_QUANT_BYTES;
    [[unroll]] for (uint i = 0u; i < PLM_QUAD_LINES; i++)
        w.line[i] = plm_words4(quants + i * 64u);
    uint64_t scales = p.scales + b / (PLM_W_BLOCK / 32) * PLM_W_SCALE_BYTES;
#if PLM_W_SCALES == PLM_SCALES_E8M0
    w.d = uvec2(plm_u32_at(scales - p.quad * 4u).v, 0u);
#else
    w.d = plm_words2(scales);
#endif
#if defined(PLM_W_HAS_OFFSET) || defined(PLM_W_HAS_MINIMA)
    w.m = plm_words2(scales + 32u);
#endif
#if PLM_W_BLOCK == 256
    // The records of factors: 16 bytes each, after the halves.
    uint64_t sub = scales - p.quad * 4u + b % 8u * 16u;
#if PLM_W_SCALES == PLM_SCALES_D_M_SUB
    w.sub = uvec2(plm_u32_at(sub + 64u).v, plm_u32_at(sub + 192u).v);
#elif PLM_W_SCALES == PLM_SCALES_D_SUB
    w.sub = uvec2(plm_u32_at(sub + 32u).v, 0u);
#elif PLM_W_SCALES == PLM_SCALES_D_M_HALVES
    sub += b % 8u * 16u;
    w.sub = uvec2(plm_u32_at(sub + 64u).v, plm_u32_at(sub + 80u).v);
#else
    sub += b % 8u * 16u;
    w.sub = uvec2(plm_u32_at(sub + 32u).v, plm_u32_at(sub + 48u).v);
#endif
#endif
    return w;
}

// The factors of a block: dw and mw of kernels/layout.md, and the integer factors of its halves.
struct plm_quad_scales {
    vec4 d;
#if defined(PLM_W_HAS_OFFSET) || defined(PLM_W_HAS_MINIMA)
    vec4 m;
#endif
#if defined(PLM_W_HAS_HALVES)
    ivec4 sc[2];
#endif
#if defined(PLM_W_HAS_MINIMA)
    ivec4 mn[2];
#endif
};

vec4 plm_quad_halves(uvec2 h)
{
    return vec4(plm_f16_to_f32(h.x & 0xffffu), plm_f16_to_f32(h.x >> 16),
                plm_f16_to_f32(h.y & 0xffffu), plm_f16_to_f32(h.y >> 16));
}

uvec4 plm_quad_bytes(uint bytes)
{
    return uvec4(bytes, bytes >> 8, bytes >> 16, bytes >> 24) & 0xffu;
}

plm_quad_scales plm_quad_scales_of(plm_quad w)
{
    plm_quad_scales s;
#if PLM_W_SCALES == PLM_SCALES_E8M0
    const uvec4 e = plm_quad_bytes(w.d.x);
    precise vec4 d = vec4(plm_e8m0_half(e.x), plm_e8m0_half(e.y), plm_e8m0_half(e.z), plm_e8m0_half(e.w));
#else
    precise vec4 d = plm_quad_halves(w.d);
#endif
#if PLM_W_SCALES == PLM_SCALES_D_M_SUB
    d = d * vec4(plm_quad_bytes(w.sub.x));
    precise vec4 m = -(plm_quad_halves(w.m) * vec4(plm_quad_bytes(w.sub.y)));
    s.m = m;
#elif defined(PLM_W_HAS_OFFSET)
    s.m = plm_quad_halves(w.m);
#elif PLM_W_SCALES == PLM_SCALES_D_SUB
    d = d * vec4(ivec4(plm_quad_bytes(w.sub.x) << 24) >> 24);
#elif PLM_W_SCALES == PLM_SCALES_D_HALVES
    s.sc[0] = ivec4(plm_quad_bytes(w.sub.x) << 24) >> 24;
    s.sc[1] = ivec4(plm_quad_bytes(w.sub.y) << 24) >> 24;
#elif defined(PLM_W_HAS_MINIMA)
    s.sc[0] = ivec4(plm_quad_bytes(w.sub.x & 0x0f0f0f0fu));
    s.sc[1] = ivec4(plm_quad_bytes(w.sub.y & 0x0f0f0f0fu));
    s.mn[0] = ivec4(plm_quad_bytes(w.sub.x >> 4 & 0x0f0f0f0fu));
    s.mn[1] = ivec4(plm_quad_bytes(w.sub.y >> 4 & 0x0f0f0f0fu));
    s.m = -plm_quad_halves(w.m);
#endif
    s.d = d;
    return s;
}

// Types whose zero is 128 multiply signed bytes, from which the zero has been taken, all others the
// unsigned values of their codes.
#define PLM_W_SIGNED (PLM_W_ZERO == 128)

// Inputs 4g .. 4g+3 of the rows as such bytes. g is a constant where this is called.
uvec4 plm_quad_codes(plm_quad w, uint g)
{
#if PLM_W_CODES == PLM_CODES_BYTES
    uvec4 codes = w.line[g];
#elif PLM_W_CODES == PLM_CODES_PAIRS || PLM_W_CODES == PLM_CODES_PAIRS_1
    uvec4 codes = w.line[g / 4u] >> (g & 3u) * 2u & 0x03030303u;
#else
    uvec4 codes = w.line[g & 3u] >> (g & 4u) & 0x0f0f0f0fu;
#endif
#if PLM_W_CODES == PLM_CODES_PAIRS_1
    codes |= (w.line[2] >> g & 0x01010101u) << 2;
#elif PLM_W_CODES == PLM_CODES_NIBBLES_1
    codes |= (w.line[4] >> g & 0x01010101u) << 4;
#elif PLM_W_CODES == PLM_CODES_NIBBLES_2
    codes |= (w.line[4u + g / 4u] >> (g & 3u) * 2u & 0x03030303u) << 4;
#endif
    codes = plm_code_values(codes);
#if PLM_W_SIGNED
    codes ^= 0x80808080u;
#endif
    return codes;
}

#if defined(PLM_DOT)
// OpSDot; capabilities DotProduct and DotProductInput4x8BitPacked; 0: PackedVectorFormat4x8Bit.
spirv_instruction(capabilities = [6019, 6018], id = 4450)
int plm_sdot(uint a, uint b, spirv_literal int format);
#endif

// sum + the rows' codes times the bytes of x.
ivec4 plm_quad_dot(uvec4 codes, uint x, ivec4 sum)
{
#if defined(PLM_DOT)
    return sum + ivec4(plm_sdot(codes.x, x, 0), plm_sdot(codes.y, x, 0), plm_sdot(codes.z, x, 0),
                       plm_sdot(codes.w, x, 0));
#else
    [[unroll]] for (int c = 0; c < 4; c++) {
#if PLM_W_SIGNED
        sum += bitfieldExtract(ivec4(codes), c * 8, 8) * bitfieldExtract(int(x), c * 8, 8);
#else
        sum += ivec4(codes >> c * 8 & 0xffu) * bitfieldExtract(int(x), c * 8, 8);
#endif
    }
    return sum;
#endif
}

// One block of PLM_ACT_Q8: q, d, both sums, ds.
struct plm_record {
    uint word[11];
};

// Record b of a row. A record is 44 bytes, so every second one begins amid 8 bytes: the loads begin
// before it there, and end after it elsewhere (within the row, which is a multiple of 64 bytes).
plm_record plm_record_load(uint64_t row, uint b)
{
    const bool odd = (b & 1u) != 0u;
    uint64_t at = row + (b * PLM_ACT_Q8_BLOCK_BYTES & ~7u);
    uint word[12];
    [[unroll]] for (uint i = 0u; i < 6u; i++) {
        uvec2 pair = plm_words2(at + i * 8u);
        word[i * 2u] = pair.x;
        word[i * 2u + 1u] = pair.y;
    }
    plm_record ret;
    [[unroll]] for (uint i = 0u; i < 11u; i++)
        ret.word[i] = odd ? word[i + 1u] : word[i];
    return ret;
}

// acc + the block's terms, in the order of the numerics class.
vec4 plm_quad_add_q8(plm_quad w, plm_quad_scales s, plm_record x, vec4 acc)
{
    ivec4 dot[2] = ivec4[2](ivec4(0), ivec4(0)); // of the halves of 16
    [[unroll]] for (uint g = 0u; g < 8u; g++)
        dot[g / 4u] = plm_quad_dot(plm_quad_codes(w, g), x.word[g], dot[g / 4u]);
    const int s2 = int(x.word[PLM_ACT_Q8_S / 4]);
    const ivec2 sums = ivec2(bitfieldExtract(s2, 0, 16), s2 >> 16);
#if PLM_W_ZERO != 0 && !PLM_W_SIGNED
    dot[0] -= PLM_W_ZERO * sums.x;
    dot[1] -= PLM_W_ZERO * sums.y;
#endif
#if defined(PLM_W_HAS_HALVES)
    vec4 all = vec4(s.sc[0] * dot[0] + s.sc[1] * dot[1]);
#else
    vec4 all = vec4(dot[0] + dot[1]);
#endif
    const float dx = uintBitsToFloat(x.word[PLM_ACT_Q8_D / 4]);
#if defined(PLM_W_HAS_MINIMA)
    vec4 minima = vec4(s.mn[0] * sums.x + s.mn[1] * sums.y);
    precise vec4 both = all * s.d;
    both = plm_fma(minima, s.m, both);
    precise vec4 ret = plm_fma(both, vec4(dx), acc);
#else
    precise vec4 factor = s.d * dx;
    precise vec4 ret = plm_fma(all, factor, acc);
#endif
#if defined(PLM_W_HAS_OFFSET)
    ret = plm_fma(s.m, vec4(uintBitsToFloat(x.word[PLM_ACT_Q8_DS / 4])), ret);
#endif
    return ret;
}

// Element 4g + c of the rows, rounded as kernels/layout.md says; c is a constant.
vec4 plm_quad_value(plm_quad w, plm_quad_scales s, uint g, int c)
{
    uvec4 codes = plm_quad_codes(w, g);
#if PLM_W_SIGNED
    ivec4 q = bitfieldExtract(ivec4(codes), c * 8, 8);
#else
    ivec4 q = ivec4(codes >> c * 8 & 0xffu) - PLM_W_ZERO;
#endif
    precise vec4 x = s.d;
#if defined(PLM_W_HAS_HALVES)
    x = x * vec4(s.sc[g / 4u]);
#endif
    x = x * vec4(q);
#if defined(PLM_W_HAS_OFFSET)
    x = x + s.m;
#elif defined(PLM_W_HAS_MINIMA)
    precise vec4 m = s.m * vec4(s.mn[g / 4u]);
    x = x + m;
#endif
    return x;
}

#endif

#endif
