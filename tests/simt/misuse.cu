// SPDX-License-Identifier: Apache-2.0
// Kernels that do one thing right or wrong, for test_simt.c: from src to dst, in words. Of each
// pair the wrong one lacks what the right one has.
#include "kernels/lib/port.cuh"

#define SRC ((const uint32_t *)a.src)
#define DST ((uint32_t *)a.dst)

// ---- barriers ----

// Reverses the 128 words of a block, `rounds` times.
template <bool FILLED, bool FREED> PLM_FN void reverse(const struct plm_copy_args &a, int rounds)
{
    PLM_SHARED(uint32_t, words, 128);
    const uint32_t t = threadIdx.x;
    plm_await();
    uint32_t v = SRC[blockIdx.x * 128 + t];
    for (int i = 0; i < rounds; i++) {
        words[t] = v;
        if (FILLED)
            __syncthreads();
        v = words[127 - t];
        if (FREED)
            __syncthreads();
    }
    DST[blockIdx.x * 128 + t] = v;
}
PLM_KERNEL(reverse_right, 128, 1, plm_copy_args)
{
    reverse<true, true>(a, 3);
}
PLM_KERNEL(reverse_unfilled, 128, 1, plm_copy_args)
{
    reverse<false, true>(a, 3);
}
PLM_KERNEL(reverse_unfreed, 128, 1, plm_copy_args)
{
    reverse<true, false>(a, 3);
}

// Shared memory is no longer what the block before left there.
PLM_KERNEL(leftover, 128, 1, plm_copy_args)
{
    PLM_SHARED(uint32_t, words, 128);
    plm_await();
    DST[blockIdx.x * 128 + threadIdx.x] = words[threadIdx.x];
    words[threadIdx.x] = 7;
}

// Reverses the words of each warp.
template <bool SYNC> PLM_FN void reverse_warp(const struct plm_copy_args &a)
{
    PLM_SHARED(uint32_t, words, 128);
    const uint32_t t = threadIdx.x;
    plm_await();
    words[t] = SRC[t];
    if (SYNC)
        plm_warp_sync();
    DST[t] = words[t ^ 31];
}
PLM_KERNEL(warp_right, 128, 1, plm_copy_args)
{
    reverse_warp<true>(a);
}
PLM_KERNEL(warp_unsynced, 128, 1, plm_copy_args)
{
    reverse_warp<false>(a);
}

PLM_KERNEL(barriers_apart, 128, 1, plm_copy_args)
{
    plm_await();
    if (threadIdx.x < 64)
        __syncthreads();
    else
        __syncthreads();
    DST[threadIdx.x] = 1;
}
PLM_KERNEL(barrier_left_out, 128, 1, plm_copy_args)
{
    plm_await();
    if (threadIdx.x == 70)
        return;
    __syncthreads();
    DST[threadIdx.x] = 1;
}
PLM_KERNEL(lane_left_out, 128, 1, plm_copy_args)
{
    plm_await();
    if (threadIdx.x == 70)
        return;
    DST[threadIdx.x] = plm_shuffle(threadIdx.x, 0);
}
PLM_KERNEL(exchanges_apart, 128, 1, plm_copy_args)
{
    plm_await();
    if (threadIdx.x % 2)
        DST[threadIdx.x] = plm_shuffle(1, 0);
    else
        DST[threadIdx.x] = plm_shuffle(2, 0);
}

// One warp of a wave may take part in an exchange without the other.
PLM_KERNEL(exchange, 128, 1, plm_copy_args)
{
    plm_await();
    uint32_t v = SRC[threadIdx.x];
    if (threadIdx.x / 32 % 2 == 0)
        v = plm_shuffle_xor(v, 16) + 1000 * plm_shuffle(v, 40);
    DST[threadIdx.x] = v;
}

// ---- waiting for the kernels before ----

PLM_KERNEL(await_none, 128, 1, plm_copy_args)
{
    DST[threadIdx.x] = SRC[threadIdx.x];
}
PLM_KERNEL(await_one_lacks, 128, 1, plm_copy_args)
{
    if (threadIdx.x != 5)
        plm_await();
    DST[threadIdx.x] = SRC[threadIdx.x];
}
PLM_KERNEL(await_twice, 128, 1, plm_copy_args)
{
    plm_await();
    if (threadIdx.x == 5)
        plm_await();
    DST[threadIdx.x] = SRC[threadIdx.x];
}
PLM_KERNEL(await_last, 128, 1, plm_copy_args)
{
    const uint32_t v = SRC[threadIdx.x];
    plm_await();
    DST[threadIdx.x] = v;
}
PLM_KERNEL(await_after_load, 128, 1, plm_copy_args)
{
    const uint32_t v = plm_load4(&SRC[threadIdx.x]);
    plm_await();
    DST[threadIdx.x] = v;
}
PLM_KERNEL(await_after_store, 128, 1, plm_copy_args)
{
    if (threadIdx.x == 5)
        DST[threadIdx.x] = 1;
    plm_await();
    DST[threadIdx.x] = SRC[threadIdx.x];
}

// ---- copies ----

// Two groups, of which `waits` are waited for.
template <int UNDER_WAY, bool SYNC, bool END> PLM_FN void copy_groups(const struct plm_copy_args &a)
{
    PLM_SHARED(uint4, first, 128);
    PLM_SHARED(uint4, second, 128);
    const uint32_t t = threadIdx.x;
    plm_await();
    plm_copy16(&first[t], SRC + 4 * t);
    plm_copy_commit();
    plm_copy16(&second[t], SRC + 512 + 4 * t);
    plm_copy_commit();
    plm_copy_wait<UNDER_WAY>();
    if (SYNC)
        __syncthreads();
    ((uint4 *)a.dst)[t] = first[127 - t];
    ((uint4 *)a.dst)[128 + t] = second[127 - t];
    if (END)
        plm_copy_wait<0>();
}
PLM_KERNEL(copy_right, 128, 1, plm_copy_args)
{
    copy_groups<0, true, false>(a);
}
PLM_KERNEL(copy_one_of_two, 128, 1, plm_copy_args)
{
    copy_groups<1, true, true>(a);
}
PLM_KERNEL(copy_unsynced, 128, 1, plm_copy_args)
{
    copy_groups<0, false, false>(a);
}
PLM_KERNEL(copy_unfinished, 128, 1, plm_copy_args)
{
    copy_groups<1, true, false>(a);
}
PLM_KERNEL(copy_uncommitted, 128, 1, plm_copy_args)
{
    PLM_SHARED(uint4, words, 128);
    plm_await();
    plm_copy16(&words[threadIdx.x], SRC);
    plm_copy_wait<0>();
}
// Into what others still read.
PLM_KERNEL(copy_too_early, 128, 1, plm_copy_args)
{
    PLM_SHARED(uint4, words, 128);
    const uint32_t t = threadIdx.x;
    plm_await();
    words[t] = ((const uint4 *)a.src)[t];
    __syncthreads();
    const uint4 v = words[127 - t];
    plm_copy16(&words[t], SRC + 512 + 4 * t);
    plm_copy_commit();
    plm_copy_wait<0>();
    __syncthreads();
    ((uint4 *)a.dst)[t] = v;
    ((uint4 *)a.dst)[128 + t] = words[127 - t];
}
PLM_KERNEL(copy_outside, 128, 1, plm_copy_args)
{
    PLM_SHARED(uint4, words, 127);
    plm_await();
    plm_copy16(words + threadIdx.x, SRC + 4 * threadIdx.x);
    plm_copy_commit();
    plm_copy_wait<0>();
}
PLM_KERNEL(copy_unaligned, 128, 1, plm_copy_args)
{
    PLM_SHARED(uint4, words, 128);
    plm_await();
    plm_copy16(words + threadIdx.x, SRC + 4 * threadIdx.x + 2);
    plm_copy_commit();
    plm_copy_wait<0>();
}

// ---- memory ----

template <int BYTES> PLM_FN void use_shared(const struct plm_copy_args &a)
{
    PLM_SHARED(uint8_t, bytes, BYTES);
    PLM_SHARED(uint32_t, words, 128);
    plm_await();
    words[threadIdx.x] = bytes[BYTES - 1] = 1;
    DST[threadIdx.x] = words[threadIdx.x];
}
PLM_KERNEL(shared_full, 128, 1, plm_copy_args)
{
    use_shared<48 * 1024 - 512>(a);
}
PLM_KERNEL(shared_over, 128, 1, plm_copy_args)
{
    use_shared<48 * 1024 - 511>(a);
}
PLM_KERNEL(load_unaligned, 128, 1, plm_copy_args)
{
    plm_await();
    DST[threadIdx.x] = plm_load16(SRC + 1).x;
}
// Each block counts itself, in a grid of three dimensions.
PLM_KERNEL(count_blocks, 128, 1, plm_copy_args)
{
    plm_await();
    const uint32_t b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    plm_atomic_add(DST + b, 1);
    if (threadIdx.x == 0)
        plm_atomic_add(DST + b, blockDim.x * 1000);
}

// ---- products: A, then B by columns from src, C and D in dst ----

PLM_KERNEL(mma_s8, 128, 1, plm_copy_args)
{
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t *x = SRC + threadIdx.x / 32 * 192, *y = x + 128; // rows of 8 words
    int *c = (int *)a.dst + threadIdx.x / 32 * 128;
    const uint32_t u[4] = {x[g * 8 + t], x[(g + 8) * 8 + t], x[g * 8 + 4 + t],
                           x[(g + 8) * 8 + 4 + t]};
    const uint32_t v[2] = {y[g * 8 + t], y[g * 8 + 4 + t]};
    plm_await();
    int d[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t],
                c[(g + 8) * 8 + 2 * t + 1]};
    plm_mma_s8(d, u, v);
    for (int i = 0; i < 4; i++)
        c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
template <bool F16> PLM_FN void mma_16_of(const struct plm_copy_args &a)
{
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t *x = SRC + threadIdx.x / 32 * 192, *y = x + 128;
    float *c = (float *)a.dst + threadIdx.x / 32 * 128;
    const uint32_t u[4] = {x[g * 8 + t], x[(g + 8) * 8 + t], x[g * 8 + 4 + t],
                           x[(g + 8) * 8 + 4 + t]};
    const uint32_t v[2] = {y[g * 8 + t], y[g * 8 + 4 + t]};
    plm_await();
    float d[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t],
                  c[(g + 8) * 8 + 2 * t + 1]};
    if (F16)
        plm_mma_f16(d, u, v);
    else
        plm_mma_bf16(d, u, v);
    for (int i = 0; i < 4; i++)
        c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
PLM_KERNEL(mma_bf16, 128, 1, plm_copy_args)
{
    mma_16_of<false>(a);
}
PLM_KERNEL(mma_f16, 128, 1, plm_copy_args)
{
    mma_16_of<true>(a);
}
template <bool ROUNDED> PLM_FN void mma_tf32_of(const struct plm_copy_args &a)
{
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t *x = SRC + threadIdx.x / 32 * 192, *y = x + 128;
    float *c = (float *)a.dst + threadIdx.x / 32 * 128;
    uint32_t u[4] = {x[g * 8 + t], x[(g + 8) * 8 + t], x[g * 8 + t + 4], x[(g + 8) * 8 + t + 4]};
    const uint32_t v[2] = {y[g * 8 + t], y[g * 8 + t + 4]};
    for (int i = 0; i < 4; i++)
        u[i] = ROUNDED ? plm_tf32(plm_float(u[i])) : u[i];
    plm_await();
    float d[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t],
                  c[(g + 8) * 8 + 2 * t + 1]};
    plm_mma_tf32(d, u, v);
    for (int i = 0; i < 4; i++)
        c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
PLM_KERNEL(mma_tf32, 128, 1, plm_copy_args)
{
    mma_tf32_of<true>(a);
}
PLM_KERNEL(mma_unrounded, 128, 1, plm_copy_args)
{
    mma_tf32_of<false>(a);
}

// Four 8x8 matrices of halves per warp, as 32 rows of 16 bytes; elements of the fragments to dst as
// [matrix][row][column].
PLM_KERNEL(transpose, 128, 1, plm_copy_args)
{
    PLM_SHARED(uint4, rows, 128);
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    uint16_t *to = (uint16_t *)a.dst + warp * 256;
    uint32_t ret[4];
    plm_await();
    rows[threadIdx.x] = ((const uint4 *)a.src)[threadIdx.x];
    plm_warp_sync();
    plm_matrices_transposed(ret, &rows[threadIdx.x]);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t j = 0; j < 2; j++)
            to[(i * 8 + 2 * t + j) * 8 + g] = (uint16_t)(ret[i] >> 16 * j);
}

// The same, not transposed; the rows come by copies of four bytes.
PLM_KERNEL(straight, 128, 1, plm_copy_args)
{
    PLM_SHARED(uint4, rows, 128);
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    uint32_t ret[4];
    plm_await();
    for (uint32_t i = 0; i < 4; i++)
        plm_copy4((uint32_t *)rows + 128 * i + threadIdx.x, SRC + 128 * i + threadIdx.x);
    plm_copy_commit();
    plm_copy_wait<0>();
    __syncthreads();
    plm_matrices(ret, &rows[threadIdx.x]);
    for (uint32_t i = 0; i < 4; i++)
        DST[warp * 128 + (i * 8 + g) * 4 + t] = ret[i];
}

// ---- numbers ----

PLM_KERNEL(numbers, 32, 1, plm_copy_args)
{
    plm_await();
    const float x = plm_float(SRC[threadIdx.x]);
    uint32_t *to = DST + threadIdx.x * 8;
    to[0] = plm_tf32(x);
    to[1] = plm_bf16_bits(x);
    to[2] = plm_half_bits(x);
    to[3] = (uint32_t)plm_round(x);
    to[4] = plm_bits(plm_rsqrt_ieee(x));
    to[5] = (uint32_t)plm_dot4(5, 0x80ff7f02u, 0x7f03ff01u);
}
