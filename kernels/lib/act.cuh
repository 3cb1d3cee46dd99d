// SPDX-License-Identifier: Apache-2.0
// Activations: quantisation to PLM_ACT_Q8 (kernels/abi.h), exp and gates. One order of rounded
// operations, that of backends/cpu/arith.h and rows.h, wherever these are used: a fused op equals
// its chain bit for bit.
#ifndef PLM_KERNELS_ACT_CUH
#define PLM_KERNELS_ACT_CUH

#include "kernels/lib/vec.cuh"

// Address of the record with element i in row r of n elements.
PLM_FN uint8_t *plm_q8_record(uint64_t rows, uint32_t r, uint32_t n, uint32_t i)
{
    return (uint8_t *)(rows + r * PLM_ACT_Q8_ROW_BYTES(n) +
                       (uint64_t)(i / PLM_ACT_Q8_BLOCK) * PLM_ACT_Q8_BLOCK_BYTES);
}

// Eight neighbouring lanes (8j .. 8j+7) make one record: lane 8j + i has elements 4i .. 4i+3 of
// the block. All lanes of the warp call it; those that are not live store nothing.
PLM_FN void plm_q8_store(bool live, uint8_t *record, const plm_vec4 &x)
{
    // Bit patterns of magnitudes order like the magnitudes, with infinities and NaNs on top.
    uint32_t top = 0;
    for (int c = 0; c < 4; c++) {
        const uint32_t magnitude = plm_bits(x.v[c]) & 0x7fffffffu;
        top = magnitude > top ? magnitude : top;
    }
    for (int mask = 1; mask < 8; mask *= 2) {
        const uint32_t other = plm_shuffle_xor(top, mask);
        top = other > top ? other : top;
    }
    const float most = plm_float(top);
    const bool finite = top < 0x7f800000u;
    float d = 0.0f;
    uint32_t codes = 0;
    int sum = 0;
    if (finite && most >= 1e-30f) {
        const float inverse = 127.0f / most;
        d = most / 127.0f;
        for (int c = 0; c < 4; c++) {
            const int q = plm_round(x.v[c] * inverse);
            codes |= ((uint32_t)q & 0xffu) << 8 * c;
            sum += q;
        }
    }
    sum += plm_shuffle_xor(sum, 1);
    sum += plm_shuffle_xor(sum, 2);
    const int other = plm_shuffle_xor(sum, 4); // of the other half of 16
    if (!live)
        return;
    const uint32_t i = threadIdx.x % 8, nan = 0x7fc00000u;
    uint32_t *words = (uint32_t *)record;
    words[i] = codes;
    if (i == 0) {
        words[PLM_ACT_Q8_D / 4] = finite ? plm_bits(d) : nan;
        words[PLM_ACT_Q8_S / 4] = ((uint32_t)sum & 0xffffu) | (uint32_t)other << 16;
        words[PLM_ACT_Q8_DS / 4] = finite ? plm_bits(d * (float)(sum + other)) : nan;
    }
}

// exp(x), x clamped to [-87, 88]; NaN gives NaN. See PLM_EXP_* in backends/cpu/arith.h.
PLM_FN float plm_exp(float x)
{
    // Written so that a NaN is kept: fminf and fmaxf would drop it.
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float magic = 12582912.0f; // 1.5 * 2^23: the sum's low bits are the rounded integer
    const float t = fmaf(x, 0x1.715476p+0f, magic); // log2(e)
    const float n = t - magic;
    float r = fmaf(n, -0x1.62e4p-1f, x); // ln(2), upper bits
    r = fmaf(n, -0x1.7f7d1cp-20f, r);    // and what they lack
    float p = fmaf(r, 0x1.6a23ccp-10f, 0x1.123a20p-7f);
    p = fmaf(r, p, 0x1.5558f2p-5f);
    p = fmaf(r, p, 0x1.555492p-3f);
    p = fmaf(r, p, 0x1.fffffcp-2f);
    p = fmaf(r * r, p, r) + 1.0f;
    // The low bits of t are n: moved to the exponent they scale by 2^n. n is -126 .. 127.
    return p * plm_float((plm_bits(t) << 23) + 0x3f800000u);
}

// (gate / (1 + exp(-z))) * up, as enum plm_gate_fn says.
PLM_FN float plm_gate_mul(float gate, float up, uint32_t gate_fn)
{
    const float z = gate_fn == PLM_GATE_GELU
                        ? gate * fmaf(gate * gate, PLM_GELU_CUBIC, PLM_GELU_LINEAR)
                        : gate;
    return gate / (1.0f + plm_exp(-z)) * up;
}

PLM_FN plm_vec4 plm_gate_mul4(const plm_vec4 &gate, const plm_vec4 &up, uint32_t gate_fn)
{
    plm_vec4 y;
    for (int c = 0; c < 4; c++)
        y.v[c] = plm_gate_mul(gate.v[c], up.v[c], gate_fn);
    return y;
}

#endif
