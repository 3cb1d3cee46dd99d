// SPDX-License-Identifier: Apache-2.0
// kv_write: one invocation per element of K and of V beside it; row r has kv_heads * head_dim of
// them: workgroup w stores part w % parts of row w / parts.
#version 460
#include "shaders/lib/group.glsl"
#include "shaders/lib/rope.glsl"

PLM_ARGS(plm_kv_write_args);

void main()
{
    uint n = a.kv_heads * a.head_dim;
    uint parts = (n + (PLM_GROUP - 1u)) / PLM_GROUP;
    uint r = plm_group_index() / parts;
    uint i = plm_group_index() % parts * PLM_GROUP + gl_LocalInvocationIndex;
    if (r >= a.rows || i >= n)
        return;
    uint64_t layer = plm_u64_at(a.slots + uint64_t(r) * 8ul).v + a.layer_offset;
    uint t = uint(plm_i32_at(a.pos + uint64_t(r) * 4ul).v) % PLM_KV_BLOCK_TOKENS;
    uint h = i / a.head_dim, d = i % a.head_dim;
    float k = plm_f32_at(a.k + (uint64_t(r) * a.ld_k + i) * 4ul).v;
    float v = plm_f32_at(a.v + (uint64_t(r) * a.ld_v + i) * 4ul).v;
    plm_kv_store(layer, plm_kv_k(h, d, t, a.head_dim), a.kv_type, k);
    plm_kv_store(layer, plm_kv_v(h, d, t, a.kv_heads, a.head_dim), a.kv_type, v);
}
