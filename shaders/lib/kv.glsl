// SPDX-License-Identifier: Apache-2.0
// Stores into a block of the KV cache (kernels/abi.h, PLM_KV_BLOCK_TOKENS), shared by rope_kv and
// qkv, which must be bit-equal. A part is what a block has of the K, or of the V, of one KV head.
// Tokens share words of it, and one dispatch stores many tokens. So a store is never wider than what
// its own token has there: bytes are memory locations of their own, and every device must have
// storageBuffer8BitAccess.
#ifndef PLM_SHADERS_KV_GLSL
#define PLM_SHADERS_KV_GLSL

#include "shaders/lib/float.glsl"
#include "shaders/lib/group.glsl"

// Where the part of KV head h begins in the layer's share of a block.
uint64_t plm_kv_part(uint64_t layer, bool is_k, uint h, uint kv_heads, uint head_dim, uint kv_type)
{
    return layer + (is_k ? h : kv_heads + h) * PLM_KV_HEAD_BYTES(kv_type, head_dim);
}

// The element of a part that is dimension d of the token in place t: K is transposed. The same holds
// of scales, of which a head has head_dim / PLM_KV_Q8_BLOCK.
uint plm_kv_element(bool is_k, uint d, uint t, uint head_dim)
{
    return is_k ? d * PLM_KV_BLOCK_TOKENS + t : t * head_dim + d;
}

// Stores an element in half or single precision.
void plm_kv_store(uint64_t part, uint element, uint kv_type, float x)
{
    if (kv_type == PLM_TYPE_F16)
        plm_u16_at(part + uint64_t(element) * 2ul).v = uint16_t(plm_f32_to_f16(x));
    else
        plm_f32_at(part + uint64_t(element) * 4ul).v = x;
}

#define PLM_KV_Q8_LANES (PLM_KV_Q8_BLOCK / 4) // neighbouring invocations, which share a scale

shared uint plm_kv_top[PLM_GROUP];

// Stores dimensions d .. d+3 of the token in place t as Q8_0. All invocations of the workgroup call
// it, those without elements with live = false; it may be called again at once.
void plm_kv_store_q8(bool live, uint64_t part, bool is_k, uint d, uint t, uint head_dim, vec4 x)
{
    uint i = gl_LocalInvocationIndex, first = i & ~(PLM_KV_Q8_LANES - 1u);
    // Bit patterns of magnitudes order like the magnitudes, with infinities and NaNs on top.
    uvec4 mag = floatBitsToUint(x) & 0x7fffffffu;
    plm_kv_top[i] = max(max(mag.x, mag.y), max(mag.z, mag.w));
    barrier();
    uint top = plm_kv_top[first];
    for (uint k = 1u; k < PLM_KV_Q8_LANES; k++)
        top = max(top, plm_kv_top[first + k]);
    barrier(); // before the next store
    if (!live)
        return;
    bool finite = top < 0x7f800000u;
    precise float scale = 0.0;
    ivec4 q = ivec4(0);
    if (finite && uintBitsToFloat(top) >= 1e-30) { // as kernels/abi.h says: no scale is subnormal
        scale = uintBitsToFloat(top) / 127.0;
        precise vec4 steps = abs(x) / scale;
        precise vec4 below = floor(steps);
        precise vec4 rest = steps - below; // exact
        q = ivec4(below) + ivec4(greaterThanEqual(rest, vec4(0.5)));
        q = mix(q, -q, lessThan(x, vec4(0.0)));
    }
    uvec4 byte = uvec4(q) & 0xffu;
    if (is_k)
        for (uint c = 0u; c < 4u; c++)
            plm_u8_at(part + plm_kv_element(true, d + c, t, head_dim)).v = uint8_t(byte[c]);
    else
        plm_u32_at(part + plm_kv_element(false, d, t, head_dim)).v =
            byte.x | byte.y << 8 | byte.z << 16 | byte.w << 24;
    if (i != first)
        return;
    uint64_t scales = part + PLM_KV_HEAD_ELEMENTS(head_dim);
    uint s = plm_kv_element(is_k, d / PLM_KV_Q8_BLOCK, t, head_dim / PLM_KV_Q8_BLOCK);
    plm_u16_at(scales + s * 2u).v = uint16_t(finite ? plm_f32_to_f16(scale) : 0x7e00u);
}

#endif
