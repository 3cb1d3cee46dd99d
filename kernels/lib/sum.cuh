// SPDX-License-Identifier: Apache-2.0
// The sum over a block of 256 threads, in an order that depends on nothing: lanes of a warp in
// pairs, the eight warps in ascending order.
#ifndef PLM_KERNELS_SUM_CUH
#define PLM_KERNELS_SUM_CUH

#include "kernels/lib/vec.cuh"

#define PLM_ROW_WARPS (PLM_ROW_THREADS / PLM_WARP)

// All threads call it and get the sum. warps is of PLM_ROW_WARPS floats in shared memory, used here
// alone and once.
PLM_FN float plm_block_sum(float x, float *warps)
{
    for (int mask = PLM_WARP / 2; mask > 0; mask /= 2)
        x += plm_shuffle_xor(x, mask);
    if (threadIdx.x % PLM_WARP == 0)
        warps[threadIdx.x / PLM_WARP] = x;
    __syncthreads();
    float sum = warps[0];
    for (uint32_t w = 1; w < PLM_ROW_WARPS; w++)
        sum += warps[w];
    return sum;
}

#endif
