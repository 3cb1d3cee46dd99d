// SPDX-License-Identifier: Apache-2.0
// attention_merge: the splits of a row, in ascending order; four neighbouring outputs each.
#version 460
#include "shaders/lib/q8.glsl"
#include "shaders/lib/splits.glsl"

PLM_ARGS(plm_attention_merge_args);

// Outputs element .. element + 3 of a row; they are of one head, whose size is a multiple of 8.
vec4 merged(uint row, uint element)
{
    const uint64_t record_bytes = (a.head_dim + 2u) * 4ul;
    const uint64_t out_offset = 8ul + element % a.head_dim * 4ul;
    const uint pos = plm_u32_at(a.pos + row * 4ul).v;
    const uint n = pos / PLM_ATTN_SPLIT_TOKENS -
                   PLM_ATTN_FIRST(pos, a.window) / PLM_ATTN_SPLIT_TOKENS + 1u;
    uint64_t at = a.partial +
                  (uint64_t(row) * a.heads + element / a.head_dim) * a.splits * record_bytes;
    vec2 state = plm_vec2_at(at).v; // top and sum
    vec4 o = vec4(plm_vec2_at(at + out_offset).v, plm_vec2_at(at + out_offset + 8ul).v);
    for (uint s = 1u; s < n; s++) {
        at += record_bytes;
        vec2 split = plm_vec2_at(at).v;
        vec4 out_ = vec4(plm_vec2_at(at + out_offset).v, plm_vec2_at(at + out_offset + 8ul).v);
        vec2 factor = plm_merge_split(state.x, state.y, split.x, split.y);
        for (uint c = 0u; c < 4u; c++)
            o[c] = plm_merge_output(o[c], out_[c], factor);
    }
    return o / state.y;
}

void main()
{
    const uint n = a.heads * a.head_dim, pieces = plm_pieces(n);
    const uint row = plm_group_index() / pieces;
    if (row >= a.rows)
        return;
    const uint i = plm_group_index() % pieces * PLM_PIECE + gl_LocalInvocationIndex * 4u;
    const bool live = i < n;
    vec4 v = live ? merged(row, i) : vec4(0.0);
    if (live && a.dst_f32 != 0ul)
        plm_store4(a.dst_f32 + row * (n * 4ul), i, n, true, v);
    if (a.dst_q8 != 0ul)
        plm_q8_store(live, plm_q8_record(a.dst_q8, row, n, i), v);
}
