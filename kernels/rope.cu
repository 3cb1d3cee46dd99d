// SPDX-License-Identifier: Apache-2.0
// rope: a thread per pair; row r has heads * dims / 2 of them, of which block b takes part b %
// parts of row b / parts.
#include "kernels/lib/rope.cuh"
#include "kernels/lib/vec.cuh"

PLM_KERNEL(plm_rope, 256, 4, plm_rope_args)
{
    const uint32_t half_dims = a.dims / 2, pairs = a.heads * half_dims, parts = plm_parts(pairs);
    const uint32_t r = blockIdx.x / parts;
    const uint32_t i = blockIdx.x % parts * PLM_ROW_THREADS + threadIdx.x;
    plm_release();
    plm_await();
    if (i >= pairs)
        return;
    float *head = (float *)a.x + (uint64_t)r * a.ld + i / half_dims * a.head_dim;
    plm_rope_in_place(head, (const float *)a.table + (uint64_t)r * a.dims, i % half_dims, a.dims,
                      a.mode);
}
