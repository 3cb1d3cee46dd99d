// SPDX-License-Identifier: Apache-2.0
// rope_kv: 32 invocations have a head of q, or one of k and that of v beside it; a row has heads +
// kv_heads of them. An invocation has every 32nd pair of the head.
#version 460
#include "shaders/lib/head.glsl"
#include "shaders/lib/rope.glsl"

PLM_ARGS(plm_rope_kv_args);

const uint HEADS = PLM_GROUP / PLM_HEAD_LANES; // of a workgroup

void store_kv(uint row, uint h, uint d, float k, float v)
{
    uint64_t layer = plm_u64_at(a.slots + uint64_t(row) * 8ul).v + a.layer_offset;
    uint t = uint(plm_i32_at(a.pos + uint64_t(row) * 4ul).v) % PLM_KV_BLOCK_TOKENS;
    plm_kv_store(layer, plm_kv_k(h, d, t, a.head_dim), a.kv_type, k);
    plm_kv_store(layer, plm_kv_v(h, d, t, a.kv_heads, a.head_dim), a.kv_type, v);
}

void main()
{
    uint mine = gl_LocalInvocationIndex / PLM_HEAD_LANES;
    uint lane = gl_LocalInvocationIndex % PLM_HEAD_LANES;
    uint units = a.heads + a.kv_heads, unit = plm_group_index() * HEADS + mine;
    uint row = unit / units, i = unit % units;
    bool live = row < a.rows, is_k = i >= a.heads;
    uint h = is_k ? i - a.heads : i;
    uint64_t begin = (uint64_t(row) * a.ld + h * a.head_dim) * 4ul;
    uint64_t x = (is_k ? a.k : a.q) + begin;
    uint64_t weight = plm_head_norm(a.norms, is_k);
    if (a.norms != 0ul) {
        float squares = 0.0;
        for (uint d = lane; live && d < a.head_dim; d += PLM_HEAD_LANES) {
            float e = plm_f32_at(x + d * 4u).v;
            squares = plm_fma(e, e, squares);
        }
        plm_head_sum(squares, a.head_dim, plm_head_norms_at(a.norms).v.eps);
    }
    if (!live)
        return;
    uint64_t table = a.table + uint64_t(row) * a.dims * 4ul;
    for (uint p = lane; p < (a.head_dim + 1u) / 2u; p += PLM_HEAD_LANES) {
        uvec2 at = plm_rope_pair(p, a.dims, a.mode);
        vec2 y = vec2(0.0);
        for (uint c = 0u; c < 2u && at[c] < a.head_dim; c++) {
            y[c] = plm_f32_at(x + at[c] * 4u).v;
            if (weight != 0ul)
                y[c] = plm_head_normed(y[c], mine, weight, at[c]);
        }
        if (p < a.dims / 2u)
            y = plm_rope_rotate(y, table, p);
        for (uint c = 0u; c < 2u && at[c] < a.head_dim; c++) {
            plm_f32_at(x + at[c] * 4u).v = y[c];
            if (is_k)
                store_kv(row, h, at[c], y[c], plm_f32_at(a.v + begin + at[c] * 4u).v);
        }
    }
}
