// SPDX-License-Identifier: Apache-2.0
// Rows of activations, shared by the reference kernels and, recompiled for other
// instruction sets, by the fast ones.
#ifndef PLM_CPU_ROWS_H
#define PLM_CPU_ROWS_H

#include <stdbool.h>

#include "backends/cpu/arith.h"
#include "kernels/abi.h"

#define PLM_PTR(type, address) ((type *)(uintptr_t)(address))

// The scale of 32 floats as codes of 8 bits: 0 where all are tiny, NaN where one is not finite.
// *top: their largest magnitude.
static inline float plm_q8_scale(const float x[32], float *top)
{
    // Bit patterns of magnitudes order like the magnitudes, with infinities and NaNs on top.
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) {
        uint32_t mag = plm_f32_bits(x[i]) & 0x7fffffffu;
        bits = mag > bits ? mag : bits;
    }
    *top = plm_bits_f32(bits);
    if (bits >= 0x7f800000u)
        return plm_bits_f32(0x7fc00000u);
    return *top >= 1e-30f ? *top / 127.0f : 0.0f;
}

// Writes one record of PLM_ACT_Q8 from 32 floats.
static inline void plm_q8_store(uint8_t *record, const float x[32])
{
    float top;
    const float d = plm_q8_scale(x, &top), inverse = d > 0.0f ? 127.0f / top : 0.0f;
    int8_t *q = (int8_t *)record;
    int32_t sum[2] = {0, 0};
    if (inverse != 0.0f) {
        for (int h = 0; h < 2; h++)
            for (int i = h * 16; i < h * 16 + 16; i++) {
                // Rounded by magic: the low bits of the sum are the integer.
                uint32_t u = plm_f32_bits(x[i] * inverse + PLM_ROUND_MAGIC);
                int32_t v = (int32_t)(u - 0x4b400000u);
                q[i] = (int8_t)v;
                sum[h] += v;
            }
    } else {
        memset(q, 0, 32);
    }
    memcpy(record + PLM_ACT_Q8_D, &d, 4);
    int16_t s[2] = {(int16_t)sum[0], (int16_t)sum[1]};
    memcpy(record + PLM_ACT_Q8_S, s, 4);
    float ds = d * (float)(sum[0] + sum[1]);
    memcpy(record + PLM_ACT_Q8_DS, &ds, 4);
}

static inline float plm_gate_mul(float gate, float up, uint32_t gate_fn)
{
    const float z =
        gate_fn == PLM_GATE_GELU ? gate * fmaf(gate * gate, PLM_GELU_CUBIC, PLM_GELU_LINEAR) : gate;
    return gate / (1.0f + plm_expf(-z)) * up;
}

// 1 / sqrt(mean(x^2) + eps), summed over 16 lanes.
static inline float plm_norm_factor(const float *x, uint32_t n, float eps)
{
    float lane[16] = {0};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (uint32_t l = 0; l < 16; l++)
            lane[l] = fmaf(x[i + l], x[i + l], lane[l]);
    for (uint32_t l = 0; i + l < n; l++)
        lane[l] = fmaf(x[i + l], x[i + l], lane[l]);
    return 1.0f / sqrtf(plm_sum16(lane) / (float)n + eps);
}

// The norm of one head of k, or of q; norms is the address of a struct plm_head_norms, or 0.
static inline void plm_norm_head(float *x, uint32_t head_dim, uint64_t norms, bool is_k)
{
    if (norms == 0)
        return;
    const struct plm_head_norms *h = PLM_PTR(const struct plm_head_norms, norms);
    const float *weight = PLM_PTR(const float, is_k ? h->norm_k : h->norm_q);
    if (weight == NULL)
        return;
    const float factor = plm_norm_factor(x, head_dim, h->eps);
    for (uint32_t i = 0; i < head_dim; i++)
        x[i] = x[i] * factor * weight[i];
}

// Rotates one head; table is the row's (cos, sin) pairs.
static inline void plm_rope_head(float *x, const float *table, uint32_t dims, uint32_t mode)
{
    if (mode == PLM_ROPE_NEOX) {
        float *lo = x, *hi = x + dims / 2;
        for (uint32_t i = 0; i < dims / 2; i++) {
            float c = table[i * 2], s = table[i * 2 + 1], x0 = lo[i], x1 = hi[i];
            lo[i] = x0 * c - x1 * s;
            hi[i] = x0 * s + x1 * c;
        }
    } else {
        for (uint32_t i = 0; i < dims; i += 2) {
            float c = table[i], s = table[i + 1], x0 = x[i], x1 = x[i + 1];
            x[i] = x0 * c - x1 * s;
            x[i + 1] = x0 * s + x1 * c;
        }
    }
}

// Stores 32 elements of a head as codes, `step` apart, and their scale (kernels/abi.h).
static inline void plm_kv_store_q8(int8_t *codes, uint64_t step, uint16_t *scale,
                                   const float x[PLM_KV_Q8_BLOCK])
{
    float top;
    const float d = plm_q8_scale(x, &top);
    *scale = plm_f32_to_f16(d);
    for (int i = 0; i < PLM_KV_Q8_BLOCK; i++)
        codes[(uint64_t)i * step] = d > 0.0f ? (int8_t)roundf(x[i] / d) : 0;
}

// Stores one token's K or V in its head's part of a KV block: element d goes to at[d * step], the
// scale of elements 32 b .. 32 b + 31 to the scale_at + b * step of all scales.
static inline void plm_kv_store(uint8_t *part, uint64_t at, uint64_t scale_at, uint64_t step,
                                const float *x, uint32_t head_dim, uint32_t kv_type)
{
    if (kv_type == PLM_TYPE_Q8_0) {
        int8_t *codes = (int8_t *)part + at;
        uint16_t *scales = (uint16_t *)(void *)(part + PLM_KV_HEAD_ELEMENTS(head_dim)) + scale_at;
        for (uint32_t d = 0; d < head_dim; d += PLM_KV_Q8_BLOCK)
            plm_kv_store_q8(codes + d * step, step, scales + d / PLM_KV_Q8_BLOCK * step, x + d);
    } else if (kv_type == PLM_TYPE_F16) {
        uint16_t *out = (uint16_t *)(void *)part + at;
        for (uint32_t d = 0; d < head_dim; d++)
            out[d * step] = plm_f32_to_f16(x[d]);
    } else {
        float *out = (float *)(void *)part + at;
        for (uint32_t d = 0; d < head_dim; d++)
            out[d * step] = x[d];
    }
}

// block points to the layer in a KV block.
static inline void plm_k_store(uint8_t *block, uint32_t head, uint32_t place, const float *k,
                               uint32_t head_dim, uint32_t kv_type)
{
    plm_kv_store(block + head * PLM_KV_HEAD_BYTES(kv_type, head_dim), place, place,
                 PLM_KV_BLOCK_TOKENS, k, head_dim, kv_type);
}

static inline void plm_v_store(uint8_t *block, uint32_t kv_heads, uint32_t head, uint32_t place,
                               const float *v, uint32_t head_dim, uint32_t kv_type)
{
    plm_kv_store(block + (kv_heads + head) * PLM_KV_HEAD_BYTES(kv_type, head_dim),
                 (uint64_t)place * head_dim, (uint64_t)place * (head_dim / PLM_KV_Q8_BLOCK), 1, v,
                 head_dim, kv_type);
}

#endif
