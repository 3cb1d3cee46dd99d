// SPDX-License-Identifier: Apache-2.0
// Places in a block of the KV cache (kernels/abi.h, plm_rope_kv_args) and the store of an element.
#ifndef PLM_KERNELS_KV_CUH
#define PLM_KERNELS_KV_CUH

#include "kernels/lib/port.cuh"

// Elements from the layer's start in a block to dimension d of KV head h for the token in place t:
// K transposed [kv_heads][head_dim][16], then V [kv_heads][16][head_dim].
PLM_FN uint64_t plm_kv_k(uint32_t h, uint32_t d, uint32_t t, uint32_t head_dim)
{
    return ((uint64_t)h * head_dim + d) * PLM_KV_BLOCK_TOKENS + t;
}

PLM_FN uint64_t plm_kv_v(uint32_t h, uint32_t d, uint32_t t, uint32_t kv_heads, uint32_t head_dim)
{
    return ((uint64_t)(kv_heads + h) * PLM_KV_BLOCK_TOKENS + t) * head_dim + d;
}

// Stores an element of the layer that begins at this address.
PLM_FN void plm_kv_store(uint64_t layer, uint64_t element, uint32_t kv_type, float x)
{
    if (kv_type == PLM_TYPE_F16)
        ((uint16_t *)layer)[element] = plm_half_bits(x);
    else
        ((float *)layer)[element] = x;
}

#endif
