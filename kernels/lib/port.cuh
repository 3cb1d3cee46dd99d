// SPDX-License-Identifier: Apache-2.0
// What kernels of CUDA and HIP use beyond plain C++: entry points, shared memory, exchange within a
// warp, asynchronous copies, matrix products. Three sets of definitions: nvcc's, hipcc's, and
// those of the emulator in which the same sources are tested on the host (tests/simt). No kernel
// asks which of them it is compiled for.
//
// A *warp* is 32 threads everywhere. Where the hardware's waves have 64, a wave is two warps side by
// side, and every exchange stays within 32. Blocks are one-dimensional.
//
// The lib's functions and constants are named plm_x and PLM_X; threadIdx, blockIdx, blockDim,
// gridDim and __syncthreads() are used as they are, and so is #pragma unroll: before a loop that
// must vanish, because arrays in registers are indexed by its counter.
#ifndef PLM_KERNELS_PORT_CUH
#define PLM_KERNELS_PORT_CUH

#include "kernels/abi.h"

#define PLM_WARP 32

#if defined(PLM_SIMT)
#define PLM_MMA_SUMS 16
#include "simt.h"
#elif defined(__HIP__)
#include "kernels/lib/port_hip.cuh"
#else
#include "kernels/lib/port_cuda.cuh"
#endif

// Every set defines:
//
// PLM_KERNEL(name, threads, blocks, args)   head of an entry point over `const struct args &a` of at
//     most 128 bytes, for blocks of that many threads of which at least `blocks` share a processor
// PLM_FN                                     head of any other function
// PLM_SHARED(type, name, n)                  an array in the block's memory, aligned to 16 bytes;
//     holds garbage at first
//
// plm_await()     waits until the kernels before have ended and their writes are seen. Every thread of
//     every kernel calls it exactly once, before it reads or writes anything but weights.
// plm_release()   lets the next kernel begin (as far as its plm_await). A hint.
//
// plm_warp_sync()                            barrier and fence of a warp
// plm_shuffle(v, lane), plm_shuffle_xor(v, mask)   v of another lane of the warp (32-bit types)
// plm_atomic_add(uint32_t *, uint32_t)       returns what was there
// plm_atomic_add(uint64_t *, uint64_t)       whole once all threads have met: a reader between may see half
//
// plm_copy16(shared, global)                 begins a copy of 16 bytes, both aligned to 16
// plm_copy16_near(shared, global)            the same through the first cache level: other warps of the block
//     read the lines, too
// plm_copy4(shared, global)                  the same of 4 bytes, both aligned to 4
// plm_copy_commit()                          ends a group of copies of this thread
// plm_copy_wait<N>()                         until at most N groups of this thread are under way; other
//     threads see them after a barrier
//
// plm_load16(p), plm_load8(p), plm_load4(p)  uint4, uint2, uint32_t through no cache level that weights would flush
//
// plm_dot4(acc, a, b)                        acc + the four products of signed bytes
// plm_mma_s8(d, a, b)                        int d[4] += A * B: m16n8k32 of signed bytes
// plm_mma_s8_half(d, a0, a1, b)              its first half of k: m16n8k16
// plm_product_s8(d, a, b)                    float d[4] = A * B, of the same: exact below 2^22
// plm_mma_bf16(d, a, b), plm_mma_f16(d, a, b)   float d[4] += A * B: m16n8k16
// plm_mma_tf32(d, a, b)                      float d[4] += A * B: m16n8k8, operands plm_tf32()
//     Fragments as PTX has them, with g = lane / 4 and t = lane % 4: d[0..3] is (g, 2t), (g, 2t+1),
//     (g+8, 2t), (g+8, 2t+1). s8: a[0..3] holds k 4t..4t+3 of row g, of row g+8, k 16+4t.. of g, of
//     g+8; b[0..1] k 4t.. and 16+4t.. of column g. bf16, f16: a as s8 with pairs k 2t,2t+1 and 8+2t,..;
//     tf32: a[0..3] is (g, t), (g+8, t), (g, t+4), (g+8, t+4); b[0..1] is (t, g), (t+4, g).
// PLM_MMA_SUMS                               how many d of such products a thread can hold beside the
//     fragments of four A: a multiple of 8
// plm_tf32(x)                                x rounded to TF32, as bits
// plm_matrices(ret[4], row)                  four 8x8 matrices of 16-bit elements from shared memory: lane
//     8i + j gives the address of the 16 bytes of row j of matrix i; ret[i] holds elements (g, 2t) and
//     (g, 2t+1) of matrix i
// plm_matrices_transposed(ret[4], row)       four 8x8 matrices of 16-bit elements from shared memory,
//     transposed: lane 8i + j gives the address of the 16 bytes of row j of matrix i; ret[i] holds
//     elements (2t, g) and (2t+1, g) of matrix i
//
// plm_half(bits), plm_half_bits(x)           float of binary16, and back, to nearest even
// plm_bf16(bits), plm_bf16_bits(x)           the same for bfloat16
// plm_bf16x2(low, high)                      the bits of two, high in the upper half
// plm_fma_halves(a, b, c)                    a * b + c of both halves of a word, each rounded once
// plm_keep(v)                                v, a uint32_t that compilers hold in a register where they
//     would rather compute it again at each use
// plm_bits(x), plm_float(bits)               float as bits and back
// plm_permute(a, b, select)                  byte i: of the 8 bytes of a, then b, that whose number, below 8,
//     is byte i of select
// plm_round(x)                               to the nearest int, ties to even
// plm_rsqrt_ieee(x)                          1 / sqrt(x), both correctly rounded
// fmaf, fmaxf, fabsf                         of the platform. No product is fused unless fmaf says so

#endif
