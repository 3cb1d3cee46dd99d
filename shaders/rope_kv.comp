// SPDX-License-Identifier: Apache-2.0
// rope_kv: 32 invocations have a head of q, or one of k and that of v beside it; a row has heads +
// kv_heads of them. An invocation has every 32nd pair of the head. In Q8_0, what is stored has one
// scale for 32 elements: k is staged, and an invocation then stores four neighbours at a time.
#version 460
#include "shaders/lib/head.glsl"
#include "shaders/lib/kv.glsl"
#include "shaders/lib/rope.glsl"

PLM_ARGS(plm_rope_kv_args);

const uint HEADS = PLM_GROUP / PLM_HEAD_LANES; // of a workgroup

#if defined(PLM_KV_Q8_0)
#define KV_TYPE  PLM_TYPE_Q8_0
#define HEAD_MAX 256u // elements of a head (kernels/abi.h)
shared float staged[HEADS][HEAD_MAX];
#elif defined(PLM_KV_F32)
#define KV_TYPE PLM_TYPE_F32
#else
#define KV_TYPE PLM_TYPE_F16
#endif

// What this invocation has a share of.
uint mine, lane; // head of the workgroup, invocation of the head
uint row, h;     // h: of q, or of k and v
bool live, is_k;
uint64_t begin; // in bytes from a.q, a.k and a.v

void locate()
{
    mine = gl_LocalInvocationIndex / PLM_HEAD_LANES;
    lane = gl_LocalInvocationIndex % PLM_HEAD_LANES;
    uint units = a.heads + a.kv_heads, unit = plm_group_index() * HEADS + mine;
    uint i = unit % units;
    row = unit / units;
    live = row < a.rows;
    is_k = i >= a.heads;
    h = is_k ? i - a.heads : i;
    begin = (uint64_t(row) * a.ld + h * a.head_dim) * 4ul;
}

// Where the row's token goes: its part of k or v, and its place there.
uint64_t part_of(bool k)
{
    uint64_t layer = plm_u64_at(a.slots + uint64_t(row) * 8ul).v + a.layer_offset;
    return plm_kv_part(layer, k, h, a.kv_heads, a.head_dim, KV_TYPE);
}

uint place()
{
    return uint(plm_i32_at(a.pos + uint64_t(row) * 4ul).v) % PLM_KV_BLOCK_TOKENS;
}

#if defined(PLM_KV_Q8_0)
void keep(uint d, float k)
{
    staged[mine][d] = k;
}

void store_kept()
{
    barrier();
    bool stores = live && is_k;
    uint t = stores ? place() : 0u;
    uint64_t k = stores ? part_of(true) : 0ul, v = stores ? part_of(false) : 0ul;
    for (uint b = 0u; b < a.head_dim; b += PLM_HEAD_LANES * 4u) {
        uint d = b + lane * 4u;
        bool there = stores && d < a.head_dim;
        vec4 x = vec4(0.0), y = vec4(0.0);
        for (uint c = 0u; there && c < 4u; c++) {
            x[c] = staged[mine][d + c];
            y[c] = plm_f32_at(a.v + begin + (d + c) * 4u).v;
        }
        plm_kv_store_q8(there, k, true, d, t, a.head_dim, x);
        plm_kv_store_q8(there, v, false, d, t, a.head_dim, y);
    }
}
#else
void keep(uint d, float k)
{
    uint t = place();
    plm_kv_store(part_of(true), plm_kv_element(true, d, t, a.head_dim), KV_TYPE, k);
    plm_kv_store(part_of(false), plm_kv_element(false, d, t, a.head_dim), KV_TYPE,
                 plm_f32_at(a.v + begin + d * 4u).v);
}

void store_kept()
{
}
#endif

// Norm and rope of this invocation's pairs, in place.
void turn(uint64_t x, uint64_t weight)
{
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
                keep(at[c], y[c]);
        }
    }
}

void main()
{
    locate();
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
    if (live)
        turn(x, weight);
    store_kept();
}
