// SPDX-License-Identifier: Apache-2.0
// rope_kv: a row's work is the rotated pairs of q (heads * dims / 2), then all pairs of k and v
// (kv_heads * ceil(head_dim / 2)), a thread each: block b does part b % parts of row b / parts.
#include "kernels/lib/kv.cuh"
#include "kernels/lib/rope.cuh"
#include "kernels/lib/vec.cuh"

// Pair p of KV head h of row r.
PLM_FN void kv_pair(const struct plm_rope_kv_args &a, const float *table, uint32_t r, uint32_t h,
                    uint32_t p)
{
    const uint64_t row = (uint64_t)r * a.ld + h * a.head_dim;
    float *k = (float *)a.k + row;
    const float *v = (const float *)a.v + row;
    if (p < a.dims / 2)
        plm_rope_in_place(k, table, p, a.dims, a.mode);
    const uint64_t layer = ((const uint64_t *)a.slots)[r] + a.layer_offset;
    const uint32_t t = (uint32_t)((const int32_t *)a.pos)[r] % PLM_KV_BLOCK_TOKENS;
    const plm_pair at = plm_rope_pair(p, a.dims, a.mode);
    for (uint32_t c = 0; c < 2; c++) {
        const uint32_t d = c == 0 ? at.lo : at.hi;
        if (d < a.head_dim) {
            plm_kv_store(layer, plm_kv_k(h, d, t, a.head_dim), a.kv_type, k[d]);
            plm_kv_store(layer, plm_kv_v(h, d, t, a.kv_heads, a.head_dim), a.kv_type, v[d]);
        }
    }
}

PLM_KERNEL(plm_rope_kv, 256, 4, plm_rope_kv_args)
{
    const uint32_t half_dims = a.dims / 2, kv_pairs = (a.head_dim + 1) / 2;
    const uint32_t q_pairs = a.heads * half_dims, pairs = q_pairs + a.kv_heads * kv_pairs;
    const uint32_t parts = plm_parts(pairs), r = blockIdx.x / parts;
    const uint32_t i = blockIdx.x % parts * PLM_ROW_THREADS + threadIdx.x;
    const float *table = (const float *)a.table + (uint64_t)r * a.dims;
    plm_release();
    plm_await();
    if (i < q_pairs) {
        float *q = (float *)a.q + (uint64_t)r * a.ld + i / half_dims * a.head_dim;
        plm_rope_in_place(q, table, i % half_dims, a.dims, a.mode);
    } else if (i < pairs) {
        kv_pair(a, table, r, (i - q_pairs) / kv_pairs, (i - q_pairs) % kv_pairs);
    }
}
