// SPDX-License-Identifier: Apache-2.0
// The arithmetic of sampling, one text for the host's sampler, the CPU's reference and the kernels
// of CUDA and HIP, so that all of them draw the same token from the same logits. Probabilities are
// integers: their sums are exact, so no order of adding shows. Plain C that is C++, too.
//
// A token's *distance* is (largest logit - its own) * scale, scale being 1 / temperature; its
// *weight* is e^-distance in units of 2^-40, rounded to the nearest, ties to even. Sums of up to
// 2^20 weights (PLM_SAMPLE_VOCAB_MAX) stay below 2^61.
#ifndef PLM_KERNELS_SAMPLING_H
#define PLM_KERNELS_SAMPLING_H

#include "kernels/abi.h"

#ifdef PLM_KERNELS_PORT_CUH
#define PLM_SAMPLE_FN          PLM_FN
#define plm_sample_bits(x)     plm_bits(x)
#define plm_sample_float(bits) plm_float(bits)
#else
#include <string.h>
#define PLM_SAMPLE_FN static inline
PLM_SAMPLE_FN uint32_t plm_sample_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}
PLM_SAMPLE_FN float plm_sample_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
#endif

// At least 0, and not -0, so that the bits of distances lie in their order.
PLM_SAMPLE_FN float plm_sample_distance(float top, float x, float scale)
{
    return (top - x) * scale + 0.0f;
}

#define PLM_SAMPLE_EXP_MAX 87.0f // distances are cut here: e^-87 is more than 0, its weight is none

// e^-x for 0 <= x <= PLM_SAMPLE_EXP_MAX, relative error below 2e-7. Written out, without branches
// or fused products, so that it gives the same bits everywhere and vectorises: -x = n ln 2 + r, a
// polynomial in r, 2^n.
PLM_SAMPLE_FN float plm_sample_exp(float x)
{
    const float shifted = x * -1.44269504f + 12582912.0f; // 1.5 * 2^23: rounds to an integer
    const float n = shifted - 12582912.0f;
    float r = -x - n * 0.693359375f; // ln 2 in two parts
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f; // minimax coefficients of Cephes' expf
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * plm_sample_float((uint32_t)((int)n + 127) << 23);
}

// e in units of 2^-40, for 0 <= e < 2. Below 2^-17 a sum with 2^-17 rounds to such units; from
// there on a float has no finer ones.
PLM_SAMPLE_FN uint64_t plm_sample_fixed(float e)
{
    const float tiny = 7.62939453125e-6f; // 2^-17
    const uint32_t bits = plm_sample_bits(e);
    if (e < tiny)
        return plm_sample_bits(e + tiny) - plm_sample_bits(tiny);
    return (uint64_t)((bits & 0x7fffffu) | 0x800000u) << ((bits >> 23) - 110u);
}

PLM_SAMPLE_FN uint64_t plm_sample_weight(float distance)
{
    return plm_sample_fixed(
        plm_sample_exp(distance < PLM_SAMPLE_EXP_MAX ? distance : PLM_SAMPLE_EXP_MAX));
}

// The upper half of the product: with 64 random bits, that share of a mass.
PLM_SAMPLE_FN uint64_t plm_sample_mul_high(uint64_t a, uint64_t b)
{
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t low = a1 * b0 + (a0 * b0 >> 32), mid = a0 * b1 + (uint32_t)low;
    return a1 * b1 + (low >> 32) + (mid >> 32);
}

// The mass that the shortest prefix of the tokens by (distance, id) must reach, of `mass` that all
// of them have, so that they are those that top_p leaves: at least 1, since one token is kept.
PLM_SAMPLE_FN uint64_t plm_sample_bound(float top_p, uint64_t mass)
{
    const uint64_t bound =
        top_p < 1.0f ? plm_sample_mul_high((uint64_t)(top_p * 18446744073709551616.0f), mass)
                     : mass;
    return bound > 0 ? bound : 1;
}

#endif
