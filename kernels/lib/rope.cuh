// SPDX-License-Identifier: Apache-2.0
// Rotation of the pairs of a head: shared by rope, rope_kv and qkv, which must be bit-equal.
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

// The same for pair p, which is a rotated one, of a head in memory.
PLM_FN void plm_rope_in_place(float *head, const float *table_row, uint32_t p, uint32_t dims,
                              uint32_t mode)
{
    const plm_pair at = plm_rope_pair(p, dims, mode);
    float lo = head[at.lo], hi = head[at.hi];
    plm_rope_rotate(lo, hi, table_row, p);
    head[at.lo] = lo;
    head[at.hi] = hi;
}

#endif
