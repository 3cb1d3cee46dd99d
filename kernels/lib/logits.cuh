// SPDX-License-Identifier: Apache-2.0
// A block goes over a row of logits, 32 KiB of it on their way at a time: every thread takes its
// share, 16 bytes at each load. And the best of a row, which argmax and sample begin with.
#ifndef PLM_KERNELS_LOGITS_CUH
#define PLM_KERNELS_LOGITS_CUH

#include "kernels/lib/vec.cuh"

#define PLM_LOGITS_THREADS 256u
#define PLM_LOGITS_LOADS   8u // of 16 bytes, of a thread in a span
#define PLM_LOGITS_SPAN    (PLM_LOGITS_THREADS * PLM_LOGITS_LOADS * 4u)

// A row of n floats that may begin at any float: the first ones up to an aligned address belong to
// the first span, the last ones that fill no 16 bytes to the last.
struct plm_logits {
    const float *row;
    uint32_t n, head, quads, spans;
};

PLM_FN plm_logits plm_logits_of(const float *row, uint32_t n)
{
    const uint32_t ahead = (uint32_t)(0 - (uint64_t)row / 4) % 4, head = ahead < n ? ahead : n;
    const uint32_t quads = (n - head) / 4;
    const uint32_t spans = (quads * 4 + PLM_LOGITS_SPAN - 1) / PLM_LOGITS_SPAN;
    return {row, n, head, quads, spans > 0 ? spans : 1};
}

// Where span `i` begins; that of the last one's successor is the end.
PLM_FN uint32_t plm_logits_begin(const plm_logits &l, uint32_t i)
{
    return i == 0 ? 0 : i == l.spans ? l.n : l.head + i * PLM_LOGITS_SPAN;
}

// Calls fn(x, i) for each of the thread's share, and end(span) in all threads after each span.
// AT_ONCE: loads of a thread that are under way together, eight in all of a span. What computes long
// on each takes fewer: each needs its condition until then.
template <uint32_t AT_ONCE, class Fn, class End>
PLM_FN void plm_logits_each(const plm_logits &l, Fn fn, End end)
{
    const float *body = l.row + l.head;
    if (threadIdx.x < l.head)
        fn(l.row[threadIdx.x], threadIdx.x);
    for (uint32_t span = 0; span < l.spans; span++) {
        const uint32_t first = span * (PLM_LOGITS_SPAN / 4) + threadIdx.x;
#pragma unroll 1
        for (uint32_t part = 0; part < PLM_LOGITS_LOADS; part += AT_ONCE) {
            const uint32_t begin = first + part * PLM_LOGITS_THREADS;
            plm_vec4 x[AT_ONCE];
#pragma unroll
            for (uint32_t p = 0; p < AT_ONCE; p++)
                if (begin + p * PLM_LOGITS_THREADS < l.quads)
                    x[p] = *(const plm_vec4 *)(body + (uint64_t)(begin + p * PLM_LOGITS_THREADS) * 4);
#pragma unroll
            for (uint32_t p = 0; p < AT_ONCE; p++)
                if (begin + p * PLM_LOGITS_THREADS < l.quads)
#pragma unroll
                    for (uint32_t c = 0; c < 4; c++)
                        fn(x[p].v[c], l.head + (begin + p * PLM_LOGITS_THREADS) * 4 + c);
        }
        const uint32_t last = l.head + l.quads * 4 + threadIdx.x;
        if (span + 1 == l.spans && last < l.n)
            fn(l.row[last], last);
        end(span);
    }
}

// ---- the best ----

struct plm_best {
    float top;
    uint32_t index;
    uint32_t n_wrong;
};

PLM_FN void plm_best_merge(plm_best &b, float top, uint32_t index, uint32_t n_wrong)
{
    b.n_wrong += n_wrong;
    if (top > b.top || (top == b.top && index < b.index)) {
        b.top = top;
        b.index = index;
    }
}

// Of the thread's share.
PLM_FN plm_best plm_best_own(const plm_logits &l)
{
    plm_best b = {plm_float(0xff800000u), ~0u, 0};
    plm_logits_each<8>(
        l,
        [&](float x, uint32_t i) {
            plm_best_merge(b, x, i, (plm_bits(x) & 0x7f800000u) == 0x7f800000u);
        },
        [](uint32_t) {});
    return b;
}

// Of the block's threads, to all of them. warps: shared memory for as many as the block has warps.
PLM_FN plm_best plm_best_of_all(plm_best b, plm_best *warps)
{
    for (int mask = PLM_WARP / 2; mask > 0; mask /= 2)
        plm_best_merge(b, plm_shuffle_xor(b.top, mask), plm_shuffle_xor(b.index, mask),
                       plm_shuffle_xor(b.n_wrong, mask));
    if (threadIdx.x % PLM_WARP == 0)
        warps[threadIdx.x / PLM_WARP] = b;
    __syncthreads();
    b = warps[0];
    for (uint32_t w = 1; w < PLM_LOGITS_THREADS / PLM_WARP; w++)
        plm_best_merge(b, warps[w].top, warps[w].index, warps[w].n_wrong);
    return b;
}

// Thread 0 writes the record. index: what stands for the row; beyond it where nothing was larger
// than minus infinity.
PLM_FN void plm_best_write(plm_argmax_record *record, const plm_best &b, uint32_t index, uint32_t n)
{
    if (threadIdx.x != 0)
        return;
    record->index = index < n ? (int32_t)index : 0;
    record->top = b.top;
    record->n_wrong = b.n_wrong;
    record->pad = 0;
}

#endif
