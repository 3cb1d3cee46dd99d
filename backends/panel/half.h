// SPDX-License-Identifier: Apache-2.0
// Conversions between float32 and the 16-bit floats, bit by bit as the hardware makes them. They
// belong to the layout of weights: scales and plain elements are 16-bit floats.
#ifndef PLM_PANEL_HALF_H
#define PLM_PANEL_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t plm_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float plm_bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

// Exact. Subnormals are scaled by an exact multiplication.
static inline float plm_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t mag = (uint32_t)(h & 0x7fffu) << 13;
    if (mag >= 0x0f800000u) // infinity or NaN; NaNs become quiet, as the hardware makes them
        return plm_bits_f32(sign | 0x70000000u | mag | (mag > 0x0f800000u ? 0x00400000u : 0));
    // 0x1p112 moves the exponent from half's bias to float's; it also normalises subnormals.
    return plm_bits_f32(sign | plm_f32_bits(plm_bits_f32(mag) * 0x1p112f));
}

// Round to nearest, ties to even; overflow gives infinity. NaNs stay NaNs.
static inline uint16_t plm_f32_to_f16(float f)
{
    uint32_t u = plm_f32_bits(f), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x1ffu));
    if (mag >= 0x477ff000u) // rounds to 65536 or more
        return (uint16_t)(sign | 0x7c00u);
    if (mag < 0x38800000u) // below 2^-14: adding 0.5 leaves the rounded subnormal in the low bits
        return (uint16_t)(sign | (plm_f32_bits(plm_bits_f32(mag) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | ((mag - 0x38000000u + 0xfffu + (mag >> 13 & 1)) >> 13));
}

// 2^(e - 128), which is exact as a subnormal, too; infinity for 255.
static inline float plm_e8m0_half(uint8_t e)
{
    const uint32_t power = (uint32_t)e << 23; // 2^(e - 127) but for e = 0
    return plm_bits_f32(power > 0x00400000u ? power : 0x00400000u) * 0.5f;
}

static inline float plm_bf16_to_f32(uint16_t h)
{
    return plm_bits_f32((uint32_t)h << 16);
}

#endif
