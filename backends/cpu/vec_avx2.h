// SPDX-License-Identifier: Apache-2.0
// Vectors for AVX2, FMA and F16C; see vec_avx512.h.
#ifndef PLM_CPU_VEC_AVX2_H
#define PLM_CPU_VEC_AVX2_H

#include <immintrin.h>

#include "backends/cpu/arith.h"

#define VL          8
#define VEC_TILE    4
#define VEC_QUERIES 2
#define VEC_SCORES  4 // query heads whose scores are computed together

typedef __m256 vf;
typedef __m256i vi;

#define VEC_FN     static inline __attribute__((always_inline))
#define VEC_UNROLL PLM_UNROLL

VEC_FN vf vf_load(const void *p)
{
    return _mm256_loadu_ps(p);
}
VEC_FN void vf_store(void *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
VEC_FN vf vf_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
VEC_FN vf vf_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
VEC_FN vf vf_load_u8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)));
}
VEC_FN vf vf_load_i8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}
VEC_FN vf vf_load_e8m0(const void *p)
{
    __m256i power = _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)), 23);
    power = _mm256_max_epu32(power, _mm256_set1_epi32(0x00400000));
    return _mm256_mul_ps(_mm256_castsi256_ps(power), _mm256_set1_ps(0.5f));
}
VEC_FN vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
VEC_FN vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
VEC_FN vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
VEC_FN vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
VEC_FN vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
VEC_FN vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
VEC_FN vf vf_neg(vf a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}
VEC_FN vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
VEC_FN vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
VEC_FN vi vi_first_mask(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VEC_FN vf vf_first(vf a, vf b, int n)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(vi_first_mask(n)));
}
VEC_FN float vf_top(vf a)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}
VEC_FN void vf_store_first(float *p, vf v, uint32_t n)
{
    _mm256_maskstore_ps(p, vi_first_mask((int)n), v);
}
VEC_FN vf vf_load_first(const float *p, uint32_t n)
{
    return _mm256_maskload_ps(p, vi_first_mask((int)n));
}
VEC_FN vf vf_from_i(vi a)
{
    return _mm256_cvtepi32_ps(a);
}
VEC_FN vf vf_pow2(vf t)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
                                                _mm256_set1_epi32(0x3f800000)));
}

VEC_FN vi vi_magnitude(vf a)
{
    return _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
}
VEC_FN vi vi_max(vi a, vi b)
{
    return _mm256_max_epu32(a, b);
}
VEC_FN uint32_t vi_top(vi a)
{
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}
VEC_FN int32_t vf_store_i8(void *p, vf a)
{
    __m256i v = _mm256_cvtps_epi32(a);
    __m128i b = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    b = _mm_packs_epi16(b, b);
    _mm_storel_epi64(p, b);
    __m128i s = _mm_sad_epu8(_mm_xor_si128(b, _mm_set1_epi8(-128)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(s) - 8 * 128;
}

VEC_FN vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
VEC_FN vi vi_and(vi a, uint32_t mask)
{
    return _mm256_and_si256(a, _mm256_set1_epi32((int)mask));
}
VEC_FN vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}
VEC_FN vi vi_shr(vi a, int n)
{
    return _mm256_srli_epi32(a, n);
}
VEC_FN vi vi_shl(vi a, int n)
{
    return _mm256_slli_epi32(a, n);
}
VEC_FN vi vi_zero(void)
{
    return _mm256_setzero_si256();
}
VEC_FN vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
VEC_FN vi vi_load_i8(const void *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p));
}
VEC_FN vi vi_load_u8(const void *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
}
VEC_FN vi vi_lookup(vi codes, const uint32_t table[4])
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)),
                               codes);
}
VEC_FN vi vi_madd(vi acc, vi a, vi b)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}
VEC_FN vi vi_set1_mem(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}

VEC_FN vi vd4_start(uint32_t bias, const void *sums)
{
    (void)bias;
    (void)sums;
    return _mm256_setzero_si256();
}
// 8 groups of codes up to 15: at most 8 * 2 * 15 * 127 = 30480 in 16 bits.
VEC_FN vi vd4_dot(vi acc, vi w, const void *x)
{
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, vi_set1_mem(x)));
}
VEC_FN vi vd_bias(vi acc, uint32_t bias, const void *sums)
{
    if (bias == 0)
        return acc;
    return _mm256_add_epi32(acc,
                            _mm256_madd_epi16(_mm256_set1_epi32((int)bias), vi_set1_mem(sums)));
}
VEC_FN vi vd4_end(vi acc, uint32_t bias, const void *sums)
{
    return vd_bias(_mm256_madd_epi16(acc, _mm256_set1_epi16(1)), bias, sums);
}
// Codes up to 63: a pair is at most 2 * 63 * 127 = 16002, so pairs are widened at once.
#define vd6_start vd4_start
VEC_FN vi vd6_dot(vi acc, vi w, const void *x)
{
    return _mm256_add_epi32(
        acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, vi_set1_mem(x)), _mm256_set1_epi16(1)));
}
#define vd6_end vd_bias
// Codes up to 255 are made signed: |w| <= 128, |x| <= 127, so a pair is at most 32512.
#define vd8_start vd4_start
VEC_FN vi vd8_dot(vi acc, vi w, const void *x)
{
    vi s = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    vi xv = _mm256_sign_epi8(vi_set1_mem(x), s);
    return _mm256_add_epi32(
        acc, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(s), xv), _mm256_set1_epi16(1)));
}
VEC_FN vi vd8_end(vi acc, uint32_t bias, const void *sums)
{
    (void)bias;
    (void)sums;
    return acc;
}

#endif
