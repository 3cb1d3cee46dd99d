// SPDX-License-Identifier: Apache-2.0
// argmax: a block a row, with 32 KiB of it on their way at a time. One processor then reads 128k
// logits in about 7 us (counted, not measured): 0.4 % of a step of an 8B model, and rows of a batch
// lie on processors of their own. More blocks a row would need a counter that somebody zeroes.
#include "kernels/lib/vec.cuh"

#define THREADS 256
#define AT_ONCE 8 // loads of 16 bytes of a thread

struct best {
    float top;
    uint32_t index;
    uint32_t n_wrong;
};

PLM_FN void take(best &b, float x, uint32_t i)
{
    b.n_wrong += (plm_bits(x) & 0x7f800000u) == 0x7f800000u;
    if (x > b.top || (x == b.top && i < b.index)) {
        b.top = x;
        b.index = i;
    }
}

PLM_FN void merge(best &b, float top, uint32_t index, uint32_t n_wrong)
{
    b.n_wrong += n_wrong;
    if (top > b.top || (top == b.top && index < b.index)) {
        b.top = top;
        b.index = index;
    }
}

// Of n floats, this thread's share. The first ones up to an aligned address and the last ones are
// taken one by one.
PLM_FN best share(const float *row, uint32_t n)
{
    best b = {plm_float(0xff800000u), ~0u, 0};
    const uint32_t ahead = (uint32_t)(0 - (uint64_t)row / 4) % 4;
    const uint32_t head = ahead < n ? ahead : n, quads = (n - head) / 4;
    const float *body = row + head;
    if (threadIdx.x < head)
        take(b, row[threadIdx.x], threadIdx.x);
    for (uint32_t begin = threadIdx.x; begin < quads; begin += AT_ONCE * THREADS) {
        plm_vec4 x[AT_ONCE];
#pragma unroll
        for (uint32_t p = 0; p < AT_ONCE; p++)
            if (begin + p * THREADS < quads)
                x[p] = *(const plm_vec4 *)(body + (uint64_t)(begin + p * THREADS) * 4);
#pragma unroll
        for (uint32_t p = 0; p < AT_ONCE; p++)
            if (begin + p * THREADS < quads)
                for (uint32_t c = 0; c < 4; c++)
                    take(b, x[p].v[c], head + (begin + p * THREADS) * 4 + c);
    }
    const uint32_t last = head + quads * 4 + threadIdx.x;
    if (last < n)
        take(b, row[last], last);
    return b;
}

PLM_KERNEL(plm_argmax, THREADS, 1, plm_argmax_args)
{
    PLM_SHARED(best, warps, THREADS / PLM_WARP);
    plm_release();
    plm_await();
    best b = share((const float *)a.x + (uint64_t)blockIdx.x * a.n, a.n);
    for (int mask = PLM_WARP / 2; mask > 0; mask /= 2)
        merge(b, plm_shuffle_xor(b.top, mask), plm_shuffle_xor(b.index, mask),
              plm_shuffle_xor(b.n_wrong, mask));
    if (threadIdx.x % PLM_WARP == 0)
        warps[threadIdx.x / PLM_WARP] = b;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / PLM_WARP; w++)
            merge(b, warps[w].top, warps[w].index, warps[w].n_wrong);
        plm_argmax_record *record = (plm_argmax_record *)a.dst + blockIdx.x;
        record->index = b.index < a.n ? (int32_t)b.index : 0; // nothing was larger than -inf
        record->top = b.top;
        record->n_wrong = b.n_wrong;
        record->pad = 0;
    }
}
