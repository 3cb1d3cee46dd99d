// SPDX-License-Identifier: Apache-2.0
// Rotation of pairs, shared by rope_kv and qkv, which must be bit-equal.
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

#endif
