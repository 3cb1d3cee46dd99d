// SPDX-License-Identifier: Apache-2.0
// kv_write: a thread per element of K and the one of V beside it; row r has kv_heads * head_dim of
// them, of which block b stores part b % parts of row b / parts.
#include "kernels/lib/kv.cuh"
#include "kernels/lib/vec.cuh"

PLM_KERNEL(plm_kv_write, 256, 4, plm_kv_write_args)
{
    const uint32_t n = a.kv_heads * a.head_dim, parts = plm_parts(n), r = blockIdx.x / parts;
    const uint32_t i = blockIdx.x % parts * PLM_ROW_THREADS + threadIdx.x;
    plm_release();
    plm_await();
    if (i >= n)
        return;
    const uint64_t layer = ((const uint64_t *)a.slots)[r] + a.layer_offset;
    const uint32_t t = (uint32_t)((const int32_t *)a.pos)[r] % PLM_KV_BLOCK_TOKENS;
    const uint32_t h = i / a.head_dim, d = i % a.head_dim;
    const float k = ((const float *)a.k)[(uint64_t)r * a.ld_k + i];
    const float v = ((const float *)a.v)[(uint64_t)r * a.ld_v + i];
    plm_kv_store(layer, plm_kv_k(h, d, t, a.head_dim), a.kv_type, k);
    plm_kv_store(layer, plm_kv_v(h, d, t, a.kv_heads, a.head_dim), a.kv_type, v);
}
