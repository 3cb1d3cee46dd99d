// SPDX-License-Identifier: Apache-2.0
// rope_kv: a row's work is the rotated pairs of q (heads * dims / 2), then all pairs of k and v
// (kv_heads * ceil(head_dim / 2)): workgroup w does part w % parts of row w / parts.
#version 460
#include "shaders/lib/group.glsl"
#include "shaders/lib/rope.glsl"

PLM_ARGS(plm_rope_kv_args);

void rope_pair(uint64_t head, uint64_t table, uint p)
{
    uvec2 at = plm_rope_pair(p, a.dims, a.mode);
    plm_f32_at lo = plm_f32_at(head + at.x * 4u), hi = plm_f32_at(head + at.y * 4u);
    vec2 x = plm_rope_rotate(vec2(lo.v, hi.v), table, p);
    lo.v = x.x;
    hi.v = x.y;
}

void main()
{
    uint half_dims = a.dims / 2u, kv_pairs = (a.head_dim + 1u) / 2u;
    uint q_work = a.heads * half_dims, work = q_work + a.kv_heads * kv_pairs;
    uint parts = (work + (PLM_GROUP - 1u)) / PLM_GROUP;
    uint r = plm_group_index() / parts;
    uint i = plm_group_index() % parts * PLM_GROUP + gl_LocalInvocationIndex;
    if (r >= a.rows || i >= work)
        return;
    uint64_t row = uint64_t(r) * a.ld * 4ul;
    uint64_t table = a.table + uint64_t(r) * a.dims * 4ul;
    if (i < q_work) {
        rope_pair(a.q + row + i / half_dims * a.head_dim * 4u, table, i % half_dims);
        return;
    }
    uint h = (i - q_work) / kv_pairs, p = (i - q_work) % kv_pairs;
    uint64_t k = a.k + row + h * a.head_dim * 4u, v = a.v + row + h * a.head_dim * 4u;
    if (p < half_dims)
        rope_pair(k, table, p);
    uint64_t layer = plm_u64_at(a.slots + uint64_t(r) * 8ul).v + a.layer_offset;
    uint t = uint(plm_i32_at(a.pos + uint64_t(r) * 4ul).v) % PLM_KV_BLOCK_TOKENS;
    uvec2 at = plm_rope_pair(p, a.dims, a.mode);
    for (uint c = 0u; c < 2u; c++) {
        uint d = at[c];
        if (d >= a.head_dim)
            break;
        plm_kv_store(layer, plm_kv_k(h, d, t, a.head_dim), a.kv_type, plm_f32_at(k + d * 4u).v);
        plm_kv_store(layer, plm_kv_v(h, d, t, a.kv_heads, a.head_dim), a.kv_type,
                     plm_f32_at(v + d * 4u).v);
    }
}
