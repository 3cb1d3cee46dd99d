// SPDX-License-Identifier: Apache-2.0
// Vectors as plain C arrays, for the compiler to vectorise; see vec_avx512.h.
#ifndef PLM_CPU_VEC_PORTABLE_H
#define PLM_CPU_VEC_PORTABLE_H

#include "backends/cpu/arith.h"

#define VL          16
#define VEC_TILE    2
#define VEC_QUERIES 1
#define VEC_SCORES  4 // query heads whose scores are computed together

typedef struct {
    float l[VL];
} vf;
typedef struct {
    int32_t l[VL];
} vi;

#define VEC_FN     static inline
#define VEC_UNROLL // tiles live in memory: without intrinsics unrolling only bloats
#define VEC_EACH(type, expr)                                                                       \
    type ret;                                                                                      \
    for (int i = 0; i < VL; i++)                                                                   \
        ret.l[i] = (expr);                                                                         \
    return ret

VEC_FN vf vf_load(const void *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
VEC_FN void vf_store(void *p, vf v)
{
    memcpy(p, &v, sizeof v);
}
VEC_FN vf vf_load_f16(const void *p)
{
    uint16_t h[VL];
    memcpy(h, p, sizeof h);
    VEC_EACH(vf, plm_f16_to_f32(h[i]));
}
VEC_FN vf vf_load_bf16(const void *p)
{
    uint16_t h[VL];
    memcpy(h, p, sizeof h);
    VEC_EACH(vf, plm_bf16_to_f32(h[i]));
}
VEC_FN vf vf_load_u8(const void *p)
{
    VEC_EACH(vf, (float)((const uint8_t *)p)[i]);
}
VEC_FN vf vf_load_i8(const void *p)
{
    VEC_EACH(vf, (float)((const int8_t *)p)[i]);
}
VEC_FN vf vf_load_e8m0(const void *p)
{
    VEC_EACH(vf, plm_e8m0_half(((const uint8_t *)p)[i]));
}
VEC_FN vf vf_set1(float x)
{
    VEC_EACH(vf, x);
}
VEC_FN vf vf_fma(vf a, vf b, vf c)
{
    VEC_EACH(vf, fmaf(a.l[i], b.l[i], c.l[i]));
}
VEC_FN vf vf_mul(vf a, vf b)
{
    VEC_EACH(vf, a.l[i] * b.l[i]);
}
VEC_FN vf vf_add(vf a, vf b)
{
    VEC_EACH(vf, a.l[i] + b.l[i]);
}
VEC_FN vf vf_sub(vf a, vf b)
{
    VEC_EACH(vf, a.l[i] - b.l[i]);
}
VEC_FN vf vf_div(vf a, vf b)
{
    VEC_EACH(vf, a.l[i] / b.l[i]);
}
VEC_FN vf vf_neg(vf a)
{
    VEC_EACH(vf, -a.l[i]);
}
VEC_FN vf vf_max(vf a, vf b)
{
    VEC_EACH(vf, a.l[i] > b.l[i] ? a.l[i] : b.l[i]);
}
VEC_FN vf vf_min(vf a, vf b)
{
    VEC_EACH(vf, a.l[i] < b.l[i] ? a.l[i] : b.l[i]);
}
VEC_FN vf vf_first(vf a, vf b, int n)
{
    VEC_EACH(vf, i < n ? a.l[i] : b.l[i]);
}
VEC_FN float vf_top(vf a)
{
    float top = a.l[0];
    for (int i = 1; i < VL; i++)
        top = a.l[i] > top ? a.l[i] : top;
    return top;
}
VEC_FN void vf_store_first(float *p, vf v, uint32_t n)
{
    memcpy(p, &v, n * sizeof *p);
}
VEC_FN vf vf_load_first(const float *p, uint32_t n)
{
    vf v = {{0}};
    memcpy(&v, p, n * sizeof *p);
    return v;
}
VEC_FN vf vf_from_i(vi a)
{
    VEC_EACH(vf, (float)a.l[i]);
}
VEC_FN vf vf_pow2(vf t)
{
    VEC_EACH(vf, plm_bits_f32((plm_f32_bits(t.l[i]) << 23) + 0x3f800000u));
}

VEC_FN vi vi_magnitude(vf a)
{
    VEC_EACH(vi, (int32_t)(plm_f32_bits(a.l[i]) & 0x7fffffffu));
}
VEC_FN vi vi_max(vi a, vi b) // of magnitudes: the sign bit is clear
{
    VEC_EACH(vi, a.l[i] > b.l[i] ? a.l[i] : b.l[i]);
}
VEC_FN uint32_t vi_top(vi a)
{
    int32_t top = a.l[0];
    for (int i = 1; i < VL; i++)
        top = a.l[i] > top ? a.l[i] : top;
    return (uint32_t)top;
}
VEC_FN int32_t vf_store_i8(void *p, vf a)
{
    int8_t q[VL];
    int32_t sum = 0;
    for (int i = 0; i < VL; i++) {
        int32_t v = (int32_t)(plm_f32_bits(a.l[i] + PLM_ROUND_MAGIC) - 0x4b400000u);
        q[i] = (int8_t)v;
        sum += v;
    }
    memcpy(p, q, sizeof q);
    return sum;
}

VEC_FN vi vi_load(const void *p)
{
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}
VEC_FN vi vi_and(vi a, uint32_t mask)
{
    VEC_EACH(vi, (int32_t)((uint32_t)a.l[i] & mask));
}
VEC_FN vi vi_or(vi a, vi b)
{
    VEC_EACH(vi, a.l[i] | b.l[i]);
}
VEC_FN vi vi_shr(vi a, int n)
{
    VEC_EACH(vi, (int32_t)((uint32_t)a.l[i] >> n));
}
VEC_FN vi vi_shl(vi a, int n)
{
    VEC_EACH(vi, (int32_t)((uint32_t)a.l[i] << n));
}

VEC_FN vi vi_zero(void)
{
    VEC_EACH(vi, 0);
}
VEC_FN vi vi_sub(vi a, vi b)
{
    VEC_EACH(vi, a.l[i] - b.l[i]);
}
VEC_FN vi vi_load_i8(const void *p)
{
    VEC_EACH(vi, ((const int8_t *)p)[i]);
}
VEC_FN vi vi_load_u8(const void *p)
{
    VEC_EACH(vi, ((const uint8_t *)p)[i]);
}
VEC_FN vi vi_lookup(vi codes, const uint32_t table[4])
{
    uint8_t levels[16], bytes[VL * 4];
    memcpy(levels, table, sizeof levels);
    memcpy(bytes, &codes, sizeof bytes);
    for (int i = 0; i < VL * 4; i++)
        bytes[i] = levels[bytes[i]];
    memcpy(&codes, bytes, sizeof bytes);
    return codes;
}
VEC_FN vi vi_madd(vi acc, vi a, vi b)
{
    VEC_EACH(vi, acc.l[i] + (int16_t)a.l[i] * (int16_t)b.l[i] +
                     (int16_t)((uint32_t)a.l[i] >> 16) * (int16_t)((uint32_t)b.l[i] >> 16));
}
VEC_FN vi vi_set1_mem(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    VEC_EACH(vi, v);
}

VEC_FN vi vd4_start(uint32_t bias, const void *sums)
{
    int16_t s[2];
    memcpy(s, sums, 4);
    int32_t v = (int16_t)bias * s[0] + (int16_t)(bias >> 16) * s[1];
    VEC_EACH(vi, v);
}
// The byte order within a lane does not matter as long as codes and activations share it.
VEC_FN vi vd4_dot(vi acc, vi w, const void *x)
{
    int8_t xq[4];
    uint8_t wq[VL * 4];
    memcpy(xq, x, 4);
    memcpy(wq, &w, sizeof wq);
    VEC_EACH(vi, acc.l[i] + wq[i * 4] * xq[0] + wq[i * 4 + 1] * xq[1] + wq[i * 4 + 2] * xq[2] +
                     wq[i * 4 + 3] * xq[3]);
}
VEC_FN vi vd4_end(vi acc, uint32_t bias, const void *sums)
{
    (void)bias;
    (void)sums;
    return acc;
}
#define vd6_start vd4_start
#define vd6_dot   vd4_dot
#define vd6_end   vd4_end
#define vd8_start vd4_start
#define vd8_dot   vd4_dot
#define vd8_end   vd4_end

#endif
