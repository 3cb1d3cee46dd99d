// SPDX-License-Identifier: Apache-2.0
// Norms of heads and the rotation of their pairs: shared by rope_kv and qkv, which must be
// bit-equal.
#ifndef PLM_KERNELS_ROPE_CUH
#define PLM_KERNELS_ROPE_CUH

#include "kernels/lib/port.cuh"

struct plm_pair {
    uint32_t lo, hi;
};

// The elements of pair p of a head: head_dim / 2 (rounded up) pairs, of which the first dims / 2
// are rotated. hi may be head_dim, which is none, where head_dim is odd.
PLM_FN plm_pair plm_rope_pair(uint32_t p, uint32_t dims, uint32_t mode)
{
    if (mode == PLM_ROPE_NEOX && p < dims / 2)
        return {p, p + dims / 2};
    return {2 * p, 2 * p + 1};
}

// Turns (lo, hi) by entry p of a row of the table.
PLM_FN void plm_rope_rotate(float &lo, float &hi, const float *table_row, uint32_t p)
{
    const float c = table_row[2 * p], s = table_row[2 * p + 1], x0 = lo, x1 = hi;
    lo = x0 * c - x1 * s;
    hi = x0 * s + x1 * c;
}

// The norm of a head: its weights (nullptr: there is none) and eps.
struct plm_head_norm {
    const float *weight;
    float eps;
};

// That of the heads of k, or of q, from the address of a struct plm_head_norms, or 0.
PLM_FN plm_head_norm plm_head_norm_of(uint64_t norms, bool k)
{
    if (norms == 0)
        return {nullptr, 0.0f};
    const plm_head_norms *h = (const plm_head_norms *)norms;
    return {(const float *)(k ? h->norm_k : h->norm_q), h->eps};
}

// What the norm multiplies a head with beside its weights. All lanes of a warp call it and get it.
PLM_FN float plm_head_factor(const float *head, uint32_t head_dim, float eps)
{
    float squares = 0.0f;
    for (uint32_t i = threadIdx.x % PLM_WARP; i < head_dim; i += PLM_WARP)
        squares = fmaf(head[i], head[i], squares);
    for (int mask = PLM_WARP / 2; mask > 0; mask /= 2)
        squares += plm_shuffle_xor(squares, mask);
    return plm_rsqrt_ieee(squares / (float)head_dim + eps);
}

#endif
