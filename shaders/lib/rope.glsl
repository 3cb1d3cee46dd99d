// SPDX-License-Identifier: Apache-2.0
// Rotation of pairs and the store into a KV block, shared by rope_kv and qkv, which must be bit-equal.
#ifndef PLM_SHADERS_ROPE_GLSL
#define PLM_SHADERS_ROPE_GLSL

#include "shaders/lib/float.glsl"

// The elements of pair p of a head: head_dim / 2 (rounded up) pairs, of which the first dims / 2
// are rotated. The second may be head_dim, which is none, where head_dim is odd.
uvec2 plm_rope_pair(uint p, uint dims, uint mode)
{
    if (mode == PLM_ROPE_NEOX && p < dims / 2u)
        return uvec2(p, p + dims / 2u);
    return uvec2(p * 2u, p * 2u + 1u);
}

// x rotated by table entry p of a row (cos, sin).
vec2 plm_rope_rotate(vec2 x, uint64_t table_row, uint p)
{
    vec2 t = plm_vec2_at(table_row + uint64_t(p) * 8ul).v;
    precise float lo = x.x * t.x - x.y * t.y;
    precise float hi = x.x * t.y + x.y * t.x;
    return vec2(lo, hi);
}

// Stores an element of the layer's part of a KV block.
void plm_kv_store(uint64_t layer, uint64_t element, uint kv_type, float x)
{
    if (kv_type == PLM_TYPE_F16)
        plm_u16_at(layer + element * 2ul).v = uint16_t(plm_f32_to_f16(x));
    else
        plm_f32_at(layer + element * 4ul).v = x;
}

// Places of dimension d of KV head h for the token in place t of its block: K transposed
// [kv_heads][head_dim][16], then V [kv_heads][16][head_dim].
uint64_t plm_kv_k(uint h, uint d, uint t, uint head_dim)
{
    return (uint64_t(h) * head_dim + d) * PLM_KV_BLOCK_TOKENS + t;
}

uint64_t plm_kv_v(uint h, uint d, uint t, uint kv_heads, uint head_dim)
{
    return ((uint64_t(kv_heads) + h) * PLM_KV_BLOCK_TOKENS + t) * head_dim + d;
}

#endif
