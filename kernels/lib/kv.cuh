// SPDX-License-Identifier: Apache-2.0
// Stores to a block of the KV cache (kernels/abi.h).
#ifndef PLM_KERNELS_KV_CUH
#define PLM_KERNELS_KV_CUH

#include "kernels/lib/port.cuh"

// Where a token's K or V of a head goes: to its part of a block, element d `step` elements from
// element 0 and the scale of d / 32 as many scales from the first.
struct plm_kv_row {
    uint64_t part;
    uint32_t at, scale_at, step; // of element 0, in elements and in scales
    uint32_t kv_type, head_dim;
};

// K (v: V) of KV head h of the layer that begins at this address, for the token in place t.
PLM_FN plm_kv_row plm_kv_row_of(uint64_t layer, bool v, uint32_t h, uint32_t t, uint32_t kv_heads,
                                uint32_t head_dim, uint32_t kv_type)
{
    return {layer + (v ? kv_heads + h : h) * PLM_KV_HEAD_BYTES(kv_type, head_dim),
            v ? t * head_dim : t,
            v ? t * (head_dim / PLM_KV_Q8_BLOCK) : t,
            v ? 1u : PLM_KV_BLOCK_TOKENS,
            kv_type,
            head_dim};
}

// Stores element d of a cache of floats.
PLM_FN void plm_kv_store(const plm_kv_row &to, uint32_t d, float x)
{
    const uint32_t i = to.at + d * to.step;
    if (to.kv_type == PLM_TYPE_F16)
        ((uint16_t *)to.part)[i] = plm_half_bits(x);
    else
        ((float *)to.part)[i] = x;
}

// Stores 32 elements of a cache in PLM_TYPE_Q8_0 from d, a multiple of 32, on. All lanes of the
// warp call it, each with its element.
PLM_FN void plm_kv_store_group(const plm_kv_row &to, uint32_t d, float x)
{
    // Bit patterns of magnitudes order like the magnitudes, with infinities and NaNs on top.
    const uint32_t lane = threadIdx.x % PLM_WARP;
    uint32_t top = plm_bits(x) & 0x7fffffffu;
    for (int mask = 1; mask < PLM_WARP; mask *= 2) {
        const uint32_t other = plm_shuffle_xor(top, mask);
        top = other > top ? other : top;
    }
    const bool finite = top < 0x7f800000u, some = finite && plm_float(top) >= 1e-30f;
    const float scale = some ? plm_float(top) / 127.0f : 0.0f;
    const int code = some ? (int)roundf(x / scale) : 0;
    ((int8_t *)to.part)[to.at + (d + lane) * to.step] = (int8_t)code;
    if (lane == 0)
        ((uint16_t *)(to.part + PLM_KV_HEAD_ELEMENTS(to.head_dim)))
            [to.scale_at + d / PLM_KV_Q8_BLOCK * to.step] =
                plm_half_bits(finite ? scale : plm_float(0x7fc00000u));
}

#endif
