// SPDX-License-Identifier: Apache-2.0
// fill, copy and verify: words of 32 bits, up to terabytes. A thread goes over them in strides of
// the grid, 16 bytes at a time where the addresses allow it, and then over the words that are left.
#include "kernels/lib/vec.cuh"

#define THREADS 256
#define AT_ONCE 4 // loads of a thread on their way

struct words {
    uint64_t quads; // of 16 bytes
    uint64_t rest;  // the first word after them
    uint64_t first, stride;
};

PLM_FN words words_of(uint64_t n, bool wide)
{
    const uint64_t quads = wide ? n / 4 : 0;
    return {quads, quads * 4, (uint64_t)blockIdx.x * THREADS + threadIdx.x,
            (uint64_t)gridDim.x * THREADS};
}

// Differs between neighbouring words, between places 2^32 words apart and between seeds.
PLM_FN uint32_t fill_word(uint64_t address, uint32_t seed)
{
    return ((uint32_t)(address >> 2) ^ (uint32_t)(address >> 34)) * 0x9e3779b1u ^ seed;
}

PLM_FN uint4 fill_quad(uint64_t address, uint32_t seed)
{
    return make_uint4(fill_word(address, seed), fill_word(address + 4, seed),
                      fill_word(address + 8, seed), fill_word(address + 12, seed));
}

PLM_KERNEL(plm_fill, THREADS, 4, plm_fill_args)
{
    const words w = words_of(a.n_words, plm_aligned(a.dst));
    plm_release();
    plm_await();
    for (uint64_t i = w.first; i < w.quads; i += w.stride)
        *(uint4 *)(a.dst + i * 16) = fill_quad(a.dst + i * 16, a.seed);
    for (uint64_t i = w.rest + w.first; i < a.n_words; i += w.stride)
        *(uint32_t *)(a.dst + i * 4) = fill_word(a.dst + i * 4, a.seed);
}

PLM_KERNEL(plm_copy, THREADS, 4, plm_copy_args)
{
    const words w = words_of(a.n_words, plm_aligned(a.dst | a.src));
    plm_release();
    plm_await();
    for (uint64_t begin = w.first; begin < w.quads; begin += AT_ONCE * w.stride) {
        uint4 x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (begin + i * w.stride < w.quads)
                x[i] = plm_load16((const void *)(a.src + (begin + i * w.stride) * 16));
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (begin + i * w.stride < w.quads)
                *(uint4 *)(a.dst + (begin + i * w.stride) * 16) = x[i];
    }
    for (uint64_t i = w.rest + w.first; i < a.n_words; i += w.stride)
        *(uint32_t *)(a.dst + i * 4) = *(const uint32_t *)(a.src + i * 4);
}

PLM_KERNEL(plm_verify, THREADS, 4, plm_verify_args)
{
    const words w = words_of(a.n_words, plm_aligned(a.src));
    uint32_t wrong = 0;
    plm_release();
    plm_await();
    for (uint64_t begin = w.first; begin < w.quads; begin += AT_ONCE * w.stride) {
        uint4 x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (begin + i * w.stride < w.quads)
                x[i] = plm_load16((const void *)(a.src + (begin + i * w.stride) * 16));
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (begin + i * w.stride < w.quads) {
                const uint4 y = fill_quad(a.src + (begin + i * w.stride) * 16, a.seed);
                wrong += (x[i].x != y.x) + (x[i].y != y.y) + (x[i].z != y.z) + (x[i].w != y.w);
            }
    }
    for (uint64_t i = w.rest + w.first; i < a.n_words; i += w.stride)
        wrong += *(const uint32_t *)(a.src + i * 4) != fill_word(a.src + i * 4, a.seed);
    if (wrong != 0) // as good as never
        plm_atomic_add((uint32_t *)a.count, wrong);
}
