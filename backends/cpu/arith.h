// SPDX-License-Identifier: Apache-2.0
// Scalar arithmetic that every kernel variant shares. Each function has one fixed order of rounded
// operations (fused multiply-adds are written out), so the vector forms in vec_*.h are bit-equal.
#ifndef PLM_CPU_ARITH_H
#define PLM_CPU_ARITH_H

#include <math.h>
#include <stdint.h>

#include "backends/panel/half.h"

// Loops over register tiles must vanish, or the tiles live in memory. Not so where every access is
// checked: unrolled, that takes the compiler minutes.
#if defined(__clang__)
#if __has_feature(address_sanitizer)
#define PLM_UNROLL
#else
#define PLM_UNROLL _Pragma("unroll")
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define PLM_UNROLL
#else
#define PLM_UNROLL _Pragma("GCC unroll 16")
#endif

// Adding and taking away 1.5 * 2^23 rounds |x| < 2^22 to the nearest integer, ties to even.
#define PLM_ROUND_MAGIC 12582912.0f

// exp(x) for the range kernels need: clamped to [-87, 88], so results are normal floats and never 0
// or infinite; NaN gives NaN. exp = 2^n * exp(r), |r| <= ln(2)/2; exp(r) = 1 + r + r^2 P(r) with P
// of degree 4 fitted for the least relative error (0.06 units of the last place before rounding).
#define PLM_EXP_MIN   (-87.0f)
#define PLM_EXP_MAX   88.0f
#define PLM_EXP_LOG2E 0x1.715476p+0f
#define PLM_EXP_LN2HI 0x1.62e4p-1f // few bits: n * LN2HI is exact
#define PLM_EXP_LN2LO 0x1.7f7d1cp-20f
#define PLM_EXP_P0    0x1.fffffcp-2f
#define PLM_EXP_P1    0x1.555492p-3f
#define PLM_EXP_P2    0x1.5558f2p-5f
#define PLM_EXP_P3    0x1.123a20p-7f
#define PLM_EXP_P4    0x1.6a23ccp-10f

static inline float plm_expf(float x)
{
    x = x < PLM_EXP_MIN ? PLM_EXP_MIN : x;
    x = x > PLM_EXP_MAX ? PLM_EXP_MAX : x;
    float t = fmaf(x, PLM_EXP_LOG2E, PLM_ROUND_MAGIC);
    float n = t - PLM_ROUND_MAGIC;
    float r = fmaf(n, -PLM_EXP_LN2HI, x);
    r = fmaf(n, -PLM_EXP_LN2LO, r);
    float p = fmaf(r, PLM_EXP_P4, PLM_EXP_P3);
    p = fmaf(r, p, PLM_EXP_P2);
    p = fmaf(r, p, PLM_EXP_P1);
    p = fmaf(r, p, PLM_EXP_P0);
    p = fmaf(r * r, p, r) + 1.0f;
    // The low bits of t are n: moved to the exponent they scale by 2^n. n is -126 .. 127.
    return p * plm_bits_f32((plm_f32_bits(t) << 23) + 0x3f800000u);
}

// The order in which 16 partial sums are added everywhere.
static inline float plm_sum16(const float lane[16])
{
    float a[8];
    for (int i = 0; i < 8; i++)
        a[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        a[i] += a[i + 4];
    return (a[0] + a[2]) + (a[1] + a[3]);
}

#endif
