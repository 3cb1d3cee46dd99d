// SPDX-License-Identifier: Apache-2.0
// rope_kv: a warp has a head of q, or one of k and that of v beside it; a row has heads + kv_heads of
// them. A lane has every 32nd pair of the head.
#include "kernels/lib/kv.cuh"
#include "kernels/lib/rope.cuh"

#define WARPS 8u // of a block: kernels.def counts the grid with it

PLM_KERNEL(plm_rope_kv, WARPS *PLM_WARP, 4, plm_rope_kv_args)
{
    const uint32_t units = a.heads + a.kv_heads, pairs = (a.head_dim + 1) / 2;
    const uint32_t unit = blockIdx.x * WARPS + threadIdx.x / PLM_WARP;
    const uint32_t r = unit / units, i = unit % units;
    const bool is_k = i >= a.heads;
    const uint32_t h = is_k ? i - a.heads : i;
    plm_release();
    plm_await();
    if (r >= a.rows)
        return;
    const uint64_t begin = (uint64_t)r * a.ld + h * a.head_dim;
    float *x = (float *)(is_k ? a.k : a.q) + begin;
    const float *v = (const float *)a.v + begin, *angles = (const float *)a.table + (uint64_t)r * a.dims;
    const plm_head_norm norm = plm_head_norm_of(a.norms, is_k);
    const float factor = norm.weight != nullptr ? plm_head_factor(x, a.head_dim, norm.eps) : 1.0f;
    plm_kv_row to[2] = {}; // of k and v
    if (is_k) {
        const uint64_t layer = ((const uint64_t *)a.slots)[r] + a.layer_offset;
        const uint32_t t = (uint32_t)((const int32_t *)a.pos)[r] % PLM_KV_BLOCK_TOKENS;
        for (int j = 0; j < 2; j++)
            to[j] = plm_kv_row_of(layer, j != 0, h, t, a.kv_heads, a.head_dim, a.kv_type);
    }
    const bool codes = a.kv_type == PLM_TYPE_Q8_0;
    for (uint32_t p = threadIdx.x % PLM_WARP; p < pairs; p += PLM_WARP) {
        const plm_pair at = plm_rope_pair(p, a.dims, a.mode);
        const bool two = at.hi < a.head_dim;
        float y[2] = {x[at.lo], two ? x[at.hi] : 0.0f};
        if (norm.weight != nullptr) {
            y[0] = y[0] * factor * norm.weight[at.lo];
            y[1] = two ? y[1] * factor * norm.weight[at.hi] : 0.0f;
        }
        if (p < a.dims / 2)
            plm_rope_rotate(y[0], y[1], angles, p);
        for (uint32_t c = 0; c < (two ? 2u : 1u); c++) {
            const uint32_t d = c == 0 ? at.lo : at.hi;
            x[d] = y[c];
            if (is_k && !codes) {
                plm_kv_store(to[0], d, y[c]);
                plm_kv_store(to[1], d, v[d]);
            }
        }
    }
    if (!is_k || !codes)
        return;
    plm_warp_sync(); // x has what other lanes stored
    for (uint32_t d = 0; d < a.head_dim; d += PLM_KV_Q8_BLOCK) {
        plm_kv_store_group(to[0], d, x[d + threadIdx.x % PLM_WARP]);
        plm_kv_store_group(to[1], d, v[d + threadIdx.x % PLM_WARP]);
    }
}
