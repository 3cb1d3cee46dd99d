// SPDX-License-Identifier: Apache-2.0
// attention_merge: block b takes 512 elements of row b / pieces, four a thread: they are of one
// head, as head_dim is a multiple of 8.
#include "kernels/lib/splits.cuh"

#define THREADS 128
#define PIECE   (THREADS * 4)
#define AT_ONCE 8 // splits on their way at a time: the merge is serial, its loads are not

struct part {
    float2 state; // top, sum
    float2 out[2];
};

PLM_FN part load_part(const float *record, uint32_t at)
{
    part p;
    p.state = *(const float2 *)record;
    p.out[0] = *(const float2 *)(record + 2 + at);
    p.out[1] = *(const float2 *)(record + 4 + at);
    return p;
}

// Elements at .. at + 3 of a head whose first record this is, of n.
PLM_FN plm_vec4 merged(const float *record, uint32_t record_floats, uint32_t at, uint32_t n)
{
    const part first = load_part(record, at);
    float top = first.state.x, sum = first.state.y;
    plm_vec4 o = {first.out[0].x, first.out[0].y, first.out[1].x, first.out[1].y};
    for (uint32_t begin = 1; begin < n; begin += AT_ONCE) {
        part p[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            if (begin + i < n)
                p[i] = load_part(record + (uint64_t)(begin + i) * record_floats, at);
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            if (begin + i < n) {
                const plm_split_factors f = plm_merge_split(top, sum, p[i].state.x, p[i].state.y);
                for (int c = 0; c < 2; c++) {
                    o.v[2 * c] = plm_merge_output(o.v[2 * c], p[i].out[c].x, f);
                    o.v[2 * c + 1] = plm_merge_output(o.v[2 * c + 1], p[i].out[c].y, f);
                }
            }
    }
    for (int c = 0; c < 4; c++)
        o.v[c] = o.v[c] / sum;
    return o;
}

PLM_KERNEL(plm_attention_merge, THREADS, 4, plm_attention_merge_args)
{
    const uint32_t n = a.heads * a.head_dim, pieces = (n + (PIECE - 1)) / PIECE;
    const uint32_t r = blockIdx.x / pieces, i = blockIdx.x % pieces * PIECE + threadIdx.x * 4;
    const bool live = i < n;
    plm_release();
    plm_await();
    plm_vec4 x = {};
    if (live) {
        const uint32_t pos = (uint32_t)((const int32_t *)a.pos)[r];
        const uint32_t splits = pos / PLM_ATTN_SPLIT_TOKENS -
                                PLM_ATTN_FIRST(pos, a.window) / PLM_ATTN_SPLIT_TOKENS + 1;
        const uint64_t record = ((uint64_t)r * a.heads + i / a.head_dim) * a.splits;
        x = merged((const float *)a.partial + record * (a.head_dim + 2), a.head_dim + 2,
                   i % a.head_dim, splits);
    }
    if (a.dst_f32 != 0)
        plm_store_vec4((float *)a.dst_f32 + (uint64_t)r * n, i, n, plm_aligned(a.dst_f32), x);
    if (a.dst_q8 != 0)
        plm_q8_store(live, plm_q8_record(a.dst_q8, r, n, i), x);
}
