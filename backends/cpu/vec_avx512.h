// SPDX-License-Identifier: Apache-2.0
// Vectors for AVX-512, with or without VNNI. Same names as vec_avx2.h and vec_portable.h; each does
// lane by lane what arith.h does for one float.
#ifndef PLM_CPU_VEC_AVX512_H
#define PLM_CPU_VEC_AVX512_H

#include <immintrin.h>

#include "backends/cpu/arith.h"

#define VL          16 // float lanes
#define VEC_TILE    8  // activation rows per register tile
#define VEC_QUERIES 6  // query heads per register tile of attention
#define VEC_SCORES  12 // query heads whose scores are computed together

typedef __m512 vf;
typedef __m512i vi;

#define VEC_FN     static inline __attribute__((always_inline))
#define VEC_UNROLL PLM_UNROLL

VEC_FN vf vf_load(const void *p)
{
    return _mm512_loadu_ps(p);
}
VEC_FN void vf_store(void *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
VEC_FN vf vf_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
VEC_FN vf vf_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
// 16 bytes to floats.
VEC_FN vf vf_load_u8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p)));
}
VEC_FN vf vf_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}
// 2^(e - 128) of 16 bytes e, as plm_e8m0_half.
VEC_FN vf vf_load_e8m0(const void *p)
{
    __m512i power = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(p)), 23);
    power = _mm512_max_epu32(power, _mm512_set1_epi32(0x00400000));
    return _mm512_mul_ps(_mm512_castsi512_ps(power), _mm512_set1_ps(0.5f));
}
VEC_FN vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
VEC_FN vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
VEC_FN vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
VEC_FN vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
VEC_FN vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
VEC_FN vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
VEC_FN vf vf_neg(vf a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
// a > b ? a : b, so b where one is a NaN.
VEC_FN vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
VEC_FN vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
// Lanes below n of a, the others of b.
VEC_FN vf vf_first(vf a, vf b, int n)
{
    n = n < 0 ? 0 : n > VL ? VL : n;
    return _mm512_mask_blend_ps((__mmask16)((1u << n) - 1u), b, a);
}
VEC_FN float vf_top(vf a)
{
    return _mm512_reduce_max_ps(a);
}
// The first n lanes to p.
VEC_FN void vf_store_first(float *p, vf v, uint32_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), v);
}
VEC_FN vf vf_load_first(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
}
VEC_FN vf vf_from_i(vi a)
{
    return _mm512_cvtepi32_ps(a);
}
// Adds the low bits of t, an integer rounded by PLM_ROUND_MAGIC, to the exponent: 2^n.
VEC_FN vf vf_pow2(vf t)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23),
                                                _mm512_set1_epi32(0x3f800000)));
}

// The largest bit pattern of the magnitudes.
VEC_FN vi vi_magnitude(vf a)
{
    return _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff));
}
VEC_FN vi vi_max(vi a, vi b)
{
    return _mm512_max_epu32(a, b);
}
VEC_FN uint32_t vi_top(vi a)
{
    return _mm512_reduce_max_epu32(a);
}
// Rounds to nearest, ties to even, stores VL int8 (|a| <= 127) and returns their sum.
VEC_FN int32_t vf_store_i8(void *p, vf a)
{
    __m128i b = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a));
    _mm_storeu_si128(p, b);
    __m128i s = _mm_sad_epu8(_mm_xor_si128(b, _mm_set1_epi8(-128)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(s) + _mm_extract_epi16(s, 4) - 16 * 128;
}

// Codes: VL lanes of 4 bytes.
VEC_FN vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
VEC_FN vi vi_and(vi a, uint32_t mask)
{
    return _mm512_and_si512(a, _mm512_set1_epi32((int)mask));
}
VEC_FN vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}
VEC_FN vi vi_shr(vi a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}
VEC_FN vi vi_shl(vi a, int n)
{
    return _mm512_slli_epi32(a, (unsigned)n);
}
VEC_FN vi vi_zero(void)
{
    return _mm512_setzero_si512();
}
VEC_FN vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
// 16 bytes, widened with their signs.
VEC_FN vi vi_load_i8(const void *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(p));
}
VEC_FN vi vi_load_u8(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}
// Each byte (below 16) replaced by that byte of the table.
VEC_FN vi vi_lookup(vi codes, const uint32_t table[4])
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), codes);
}
VEC_FN vi vi_set1_mem(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

// Exact dot products of unsigned codes (4 bytes a lane) with 4 broadcast activations, one family
// per width of the code. `bias` are two 16-bit factors for the half sums at `sums`.
#ifdef __AVX512VNNI__
// acc + the products of the low and of the high 16 bits of a lane.
VEC_FN vi vi_madd(vi acc, vi a, vi b)
{
    return _mm512_dpwssd_epi32(acc, a, b);
}
VEC_FN vi vd_start(uint32_t bias, const void *sums)
{
    if (bias == 0)
        return _mm512_setzero_si512();
    return _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_set1_epi32((int)bias),
                               vi_set1_mem(sums));
}
VEC_FN vi vd_dot(vi acc, vi w, const void *x)
{
    return _mm512_dpbusd_epi32(acc, w, vi_set1_mem(x));
}
VEC_FN vi vd_end(vi acc, uint32_t bias, const void *sums)
{
    (void)bias;
    (void)sums;
    return acc;
}
#define vd4_start vd_start
#define vd4_dot   vd_dot
#define vd4_end   vd_end
#define vd6_start vd_start
#define vd6_dot   vd_dot
#define vd6_end   vd_end
#define vd8_start vd_start
#define vd8_dot   vd_dot
#define vd8_end   vd_end
#else
VEC_FN vi vi_madd(vi acc, vi a, vi b)
{
    return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
}
VEC_FN vi vd4_start(uint32_t bias, const void *sums)
{
    (void)bias;
    (void)sums;
    return _mm512_setzero_si512();
}
// 8 groups of codes up to 15: at most 8 * 2 * 15 * 127 = 30480 in 16 bits.
VEC_FN vi vd4_dot(vi acc, vi w, const void *x)
{
    return _mm512_add_epi16(acc, _mm512_maddubs_epi16(w, vi_set1_mem(x)));
}
VEC_FN vi vd_bias(vi acc, uint32_t bias, const void *sums)
{
    if (bias == 0)
        return acc;
    return _mm512_add_epi32(acc,
                            _mm512_madd_epi16(_mm512_set1_epi32((int)bias), vi_set1_mem(sums)));
}
VEC_FN vi vd4_end(vi acc, uint32_t bias, const void *sums)
{
    return vd_bias(_mm512_madd_epi16(acc, _mm512_set1_epi16(1)), bias, sums);
}
// Codes up to 63: a pair is at most 2 * 63 * 127 = 16002, so pairs are widened at once.
#define vd6_start vd4_start
VEC_FN vi vd6_dot(vi acc, vi w, const void *x)
{
    return _mm512_add_epi32(
        acc, _mm512_madd_epi16(_mm512_maddubs_epi16(w, vi_set1_mem(x)), _mm512_set1_epi16(1)));
}
#define vd6_end   vd_bias
// Codes up to 255 are made signed: |w| <= 128, |x| <= 127, so a pair is at most 32512.
#define vd8_start vd4_start
VEC_FN vi vd8_dot(vi acc, vi w, const void *x)
{
    vi s = _mm512_xor_si512(w, _mm512_set1_epi8(-128)), xv = vi_set1_mem(x);
    xv = _mm512_mask_sub_epi8(xv, _mm512_movepi8_mask(s), _mm512_setzero_si512(), xv);
    return _mm512_add_epi32(
        acc, _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_abs_epi8(s), xv), _mm512_set1_epi16(1)));
}
VEC_FN vi vd8_end(vi acc, uint32_t bias, const void *sums)
{
    (void)bias;
    (void)sums;
    return acc;
}
#endif

#endif
