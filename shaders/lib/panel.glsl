// SPDX-License-Identifier: Apache-2.0
// Weight panels of 16 rows (kernels/layout.md, backends/panel/layout.h) of the one type that the
// module is compiled for, whose words of kernels/types.def the build gives as PLM_W_x.
#ifndef PLM_SHADERS_PANEL_GLSL
#define PLM_SHADERS_PANEL_GLSL

#include "shaders/lib/float.glsl"

#define PLM_PANEL_ROWS 16

// PLM_W_BLOCK: inputs that share a scale record of PLM_W_SCALE_BYTES for 16 rows. QUANT_BYTES: quants
// of 16 rows and 32 inputs (floats: one input). PLM_W_ZERO: what is taken from the value of a code.
#if PLM_W_CODES == PLM_CODES_ELEMENTS
#define PLM_W_QUANT_BYTES (PLM_PANEL_ROWS * PLM_W_FILE_BYTES)
#else
#define PLM_W_QUANT_BYTES (PLM_W_CODES * 64)
#endif
// Of a block of 32: whether it has a minimum that meets its sum, two that meet those of its halves, and
// two factors.
#if PLM_SCALES_HAVE_M(PLM_W_SCALES)
#define PLM_W_HAS_OFFSET
#endif
#if PLM_W_SCALES == PLM_SCALES_D_M_HALVES
#define PLM_W_HAS_MINIMA
#endif
#if PLM_W_SCALES == PLM_SCALES_D_HALVES || defined(PLM_W_HAS_MINIMA)
#define PLM_W_HAS_HALVES
#endif

// Offset of the quant area in a panel, and the panel's bytes.
uint64_t plm_panel_quant_offset(uint n_in)
{
    return (uint64_t(n_in / PLM_W_BLOCK) * PLM_W_SCALE_BYTES + 63ul) & ~63ul;
}

uint64_t plm_panel_bytes(uint n_in)
{
    const uint step = PLM_W_BLOCK == 1 ? 1u : 32u;
    uint64_t quants = uint64_t(n_in / step) * PLM_W_QUANT_BYTES;
    return plm_panel_quant_offset(n_in) + ((quants + 63ul) & ~63ul);
}

#if PLM_W_BLOCK == 1

// Element k of a lane.
float plm_panel_value(uint64_t panel, uint lane, uint k)
{
    uint64_t line = panel + uint64_t(k) * PLM_W_QUANT_BYTES;
#if defined(PLM_WEIGHT_F32)
    return plm_f32_at(line + lane * 4u).v;
#elif defined(PLM_WEIGHT_F16)
    return plm_f16_to_f32(uint(plm_u16_at(line + lane * 2u).v));
#else
    return plm_bf16_to_f32(uint(plm_u16_at(line + lane * 2u).v));
#endif
}

#else

// The scales of one block of 32 of a lane. An element's value is (d * sc[k / 16]) * q + mw * mn[k / 16],
// q being the value of its code less PLM_W_ZERO; sc and mn are 1 where the type has no such factors, mw
// there where PLM_W_HAS_OFFSET or PLM_W_HAS_MINIMA is defined.
struct plm_scales {
    float d;
    ivec2 sc;
    float mw;
    ivec2 mn;
};

float plm_panel_half(uint64_t at)
{
    return plm_f16_to_f32(uint(plm_u16_at(at).v));
}

// 2^(e - 128), as plm_e8m0_half of backends/panel/half.h, without arithmetic that may flush it to 0.
float plm_e8m0_half(uint e)
{
    return uintBitsToFloat(e == 255u ? 0x7f800000u : e >= 2u ? (e - 1u) << 23 : 0x00200000u << e);
}

// Scales of block b of 32 inputs of a lane; panel is the address of the panel's first byte.
plm_scales plm_panel_scales(uint64_t panel, uint lane, uint b)
{
    uint64_t s = panel + uint64_t(b / (PLM_W_BLOCK / 32)) * PLM_W_SCALE_BYTES;
#if PLM_W_SCALES == PLM_SCALES_E8M0
    return plm_scales(plm_e8m0_half(uint(plm_u8_at(s + lane).v)), ivec2(1), 0.0, ivec2(1));
#else
    plm_scales ret = plm_scales(plm_panel_half(s + lane * 2u), ivec2(1), 0.0, ivec2(1));
#if defined(PLM_W_HAS_OFFSET) || defined(PLM_W_HAS_MINIMA)
    ret.mw = plm_panel_half(s + 32u + lane * 2u);
#endif
    uint sub = b % 8u;
    // Products with factors are exact.
#if PLM_W_SCALES == PLM_SCALES_D_M_SUB
    precise float d = ret.d * float(uint(plm_u8_at(s + 64u + sub * 16u + lane).v));
    precise float mw = -(ret.mw * float(uint(plm_u8_at(s + 192u + sub * 16u + lane).v)));
    ret.d = d;
    ret.mw = mw;
#elif PLM_W_SCALES == PLM_SCALES_D_SUB
    precise float d = ret.d * float(int(plm_i8_at(s + 32u + sub * 16u + lane).v));
    ret.d = d;
#elif PLM_W_SCALES == PLM_SCALES_D_HALVES
    ret.sc.x = int(plm_i8_at(s + 32u + sub * 32u + lane).v);
    ret.sc.y = int(plm_i8_at(s + 48u + sub * 32u + lane).v);
#elif PLM_W_SCALES == PLM_SCALES_D_M_HALVES
    ivec2 both = ivec2(uint(plm_u8_at(s + 64u + sub * 32u + lane).v),
                       uint(plm_u8_at(s + 80u + sub * 32u + lane).v));
    ret.sc = both & 15;
    ret.mn = both >> 4;
    ret.mw = -ret.mw;
#endif
    return ret;
#endif
}

// What codes stand for, each component four of them, a byte each.
uvec4 plm_code_values(uvec4 codes)
{
#if PLM_W_VALUES == PLM_VALUES_LINEAR
    return codes;
#else
#if PLM_W_VALUES == PLM_VALUES_IQ4
    const uvec4 levels = uvec4(PLM_LEVELS_IQ4);
#else
    const uvec4 levels = uvec4(PLM_LEVELS_E2M1);
#endif
    uvec4 ret = uvec4(0u);
    for (uint c = 0u; c < 32u; c += 8u) {
        uvec4 code = codes >> c;
        bvec4 odd = notEqual(code & 4u, uvec4(0u)), upper = notEqual(code & 8u, uvec4(0u));
        uvec4 four = mix(mix(uvec4(levels.x), uvec4(levels.y), odd),
                         mix(uvec4(levels.z), uvec4(levels.w), odd), upper);
        ret |= (four >> (code & 3u) * 8u & 0xffu) << c;
    }
    return ret;
#endif
}

// The values of inputs 4g .. 4g+3 (g: 0 .. 7) of a lane in a block of 32, before PLM_W_ZERO is taken
// from them, a byte each; quants is the address of the block's quants.
uint plm_panel_codes(uint64_t quants, uint lane, uint g)
{
    uint64_t line = quants + lane * 4u;
#if PLM_W_CODES == PLM_CODES_BYTES
    return plm_u32_at(line + g * 64u).v;
#elif PLM_W_CODES == PLM_CODES_PAIRS || PLM_W_CODES == PLM_CODES_PAIRS_1
    uint codes = plm_u32_at(line + (g >> 2) * 64u).v >> (g & 3u) * 2u & 0x03030303u;
#if PLM_W_CODES == PLM_CODES_PAIRS_1
    codes |= (plm_u32_at(line + 128u).v >> g & 0x01010101u) << 2;
#endif
    return codes;
#else
    uint codes = plm_u32_at(line + (g & 3u) * 64u).v >> (g & 4u) & 0x0f0f0f0fu;
#if PLM_W_CODES == PLM_CODES_NIBBLES_1
    codes |= (plm_u32_at(line + 256u).v >> g & 0x01010101u) << 4;
#elif PLM_W_CODES == PLM_CODES_NIBBLES_2
    codes |= (plm_u32_at(line + 256u + (g >> 2) * 64u).v >> (g & 3u) * 2u & 0x03030303u) << 4;
#endif
    return plm_code_values(uvec4(codes)).x;
#endif
}

// The values of inputs 4g .. 4g+3, rounded as kernels/layout.md says.
vec4 plm_panel_values(plm_scales s, uint codes, uint g)
{
    ivec4 q = ivec4(uvec4(codes, codes >> 8, codes >> 16, codes >> 24) & 0xffu) - PLM_W_ZERO;
    precise float d = s.d * float(g < 4u ? s.sc.x : s.sc.y); // exact
    precise vec4 x = d * vec4(q);
#if defined(PLM_W_HAS_OFFSET)
    x = x + s.mw;
#elif defined(PLM_W_HAS_MINIMA)
    precise float m = s.mw * float(g < 4u ? s.mn.x : s.mn.y); // exact
    x = x + m;
#endif
    return x;
}

#endif

#endif
