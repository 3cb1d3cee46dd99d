// SPDX-License-Identifier: Apache-2.0
// Conversions of narrow floats and exp, in the order of rounded operations of
// backends/panel/half.h and backends/cpu/arith.h. The conversions are exact on every driver: they
// use no subnormal, which a device may flush, and no rounding mode, which it may choose.
#ifndef PLM_SHADERS_FLOAT_GLSL
#define PLM_SHADERS_FLOAT_GLSL

#include "shaders/lib/base.glsl"

// Whether fma() is one operation with one rounding. Where it is not, a driver may take it apart and
// reorder what is left (Mesa does on llvmpipe: exp lost two digits so), and no decoration forbids
// that. So nothing calls fma() itself. The host sets this constant for drivers that fuse.
#define PLM_VK_SPEC_FUSED 100 // as in backends/vulkan/shaders.h
layout(constant_id = PLM_VK_SPEC_FUSED) const bool plm_fused = false;

#define PLM_FMA(type)                                                                              \
    type plm_fma(type x, type y, type z)                                                           \
    {                                                                                              \
        if (plm_fused)                                                                             \
            return fma(x, y, z);                                                                   \
        precise type product = x * y;                                                              \
        precise type sum = product + z;                                                            \
        return sum;                                                                                \
    }
PLM_FMA(float)
PLM_FMA(vec2)
PLM_FMA(vec4)

// float32 of the half with these bits; NaNs become quiet.
float plm_f16_to_f32(uint h)
{
    uint sign = (h & 0x8000u) << 16;
    uint mag = (h & 0x7fffu) << 13;
    if (mag < 0x00800000u) { // 0 or subnormal: 2^-14 * (1 + m) less 2^-14 is exact
        precise float m = uintBitsToFloat(0x38800000u | mag) - uintBitsToFloat(0x38800000u);
        return uintBitsToFloat(sign | floatBitsToUint(m));
    }
    if (mag >= 0x0f800000u) // infinity or NaN
        return uintBitsToFloat(sign | 0x70000000u | mag | (mag > 0x0f800000u ? 0x00400000u : 0u));
    return uintBitsToFloat(sign | (mag + 0x38000000u));
}

// Bits of the nearest half, ties to even; overflow gives infinity, NaNs stay NaNs.
uint plm_f32_to_f16(float f)
{
    uint u = floatBitsToUint(f), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u)
        return sign | 0x7e00u | (mag >> 13 & 0x1ffu);
    if (mag >= 0x477ff000u) // rounds to 65536 or more
        return sign | 0x7c00u;
    if (mag >= 0x38800000u)
        return sign | (mag - 0x38000000u + 0xfffu + (mag >> 13 & 1u)) >> 13;
    // Below 2^-14 the unit is 2^-24. What is below half of it is 0; 25 bits suffice to say so.
    uint shift = min(126u - (mag >> 23), 25u);
    uint m = (mag & 0x7fffffu) | 0x800000u;
    return sign | (m + (1u << (shift - 1u)) - 1u + (m >> shift & 1u)) >> shift;
}

float plm_bf16_to_f32(uint h)
{
    return uintBitsToFloat(h << 16);
}

// exp(x), x clamped to [-87, 88]; NaN gives NaN. See PLM_EXP_* in backends/cpu/arith.h.
float plm_exp(float x)
{
    // Written so that a NaN is kept: min and max may drop it.
    x = x < -87.0 ? -87.0 : x;
    x = x > 88.0 ? 88.0 : x;
    const float magic = 12582912.0; // 1.5 * 2^23: the sum's low bits are the rounded integer
    precise float t = plm_fma(x, uintBitsToFloat(0x3fb8aa3bu), magic); // log2(e)
    precise float n = t - magic;
    precise float r = plm_fma(n, -uintBitsToFloat(0x3f317200u), x); // ln(2), upper bits
    r = plm_fma(n, -uintBitsToFloat(0x35bfbe8eu), r);               // and what they lack
    precise float p = plm_fma(r, uintBitsToFloat(0x3ab511e6u), uintBitsToFloat(0x3c091d10u));
    p = plm_fma(r, p, uintBitsToFloat(0x3d2aac79u));
    p = plm_fma(r, p, uintBitsToFloat(0x3e2aaa49u));
    p = plm_fma(r, p, uintBitsToFloat(0x3efffffeu));
    precise float r2 = r * r;
    p = plm_fma(r2, p, r) + 1.0;
    precise float y = p * uintBitsToFloat((floatBitsToUint(t) << 23) + 0x3f800000u);
    return y;
}

// (gate / (1 + exp(-z))) * up, as enum plm_gate_fn says.
float plm_gate_mul(float gate, float up, uint gate_fn)
{
    precise float z = gate;
    if (gate_fn == PLM_GATE_GELU) {
        precise float square = gate * gate;
        z = gate * plm_fma(square, PLM_GELU_CUBIC, PLM_GELU_LINEAR);
    }
    precise float denominator = 1.0 + plm_exp(-z);
    precise float y = gate / denominator * up;
    return y;
}

#endif
