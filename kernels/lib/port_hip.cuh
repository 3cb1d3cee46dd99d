// SPDX-License-Identifier: Apache-2.0
// kernels/lib/port.cuh for hipcc: gfx9 (waves of 64) and gfx10 and later (of 32). Matrix products are
// made of shuffles and scalar instructions: right on every card, without its matrix cores.
#ifndef PLM_KERNELS_PORT_HIP_CUH
#define PLM_KERNELS_PORT_HIP_CUH

#include <hip/hip_runtime.h>

#define PLM_KERNEL(name, threads, blocks, args)                                                    \
    extern "C" __global__ void __launch_bounds__(threads) name(const struct args a)
#define PLM_FN                     static __device__ __forceinline__
#define PLM_SHARED(type, name, n) __shared__ __align__(16) type name[n]

PLM_FN void plm_await() {} // kernels of a stream run one after the other
PLM_FN void plm_release() {}

// A wave runs in step; only the compiler has to be told that memory changed.
PLM_FN void plm_warp_sync()
{
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}

template <class T> PLM_FN T plm_shuffle(T v, int lane) { return __shfl(v, lane, PLM_WARP); }
template <class T> PLM_FN T plm_shuffle_xor(T v, int mask) { return __shfl_xor(v, mask, PLM_WARP); }

PLM_FN uint32_t plm_atomic_add(uint32_t *p, uint32_t v) { return atomicAdd(p, v); }
PLM_FN void plm_atomic_add(uint64_t *p, uint64_t v) { atomicAdd((unsigned long long *)p, (unsigned long long)v); }

// ---- copies and loads ----

PLM_FN void plm_copy16(void *shared, const void *global)
{
    *(uint4 *)shared = *(const uint4 *)global;
}
PLM_FN void plm_copy16_near(void *shared, const void *global) { plm_copy16(shared, global); }
PLM_FN void plm_copy4(void *shared, const void *global)
{
    *(uint32_t *)shared = *(const uint32_t *)global;
}
PLM_FN void plm_copy_commit() {}
template <int N> PLM_FN void plm_copy_wait() {}

PLM_FN uint4 plm_load16(const void *p)
{
    typedef uint32_t words __attribute__((ext_vector_type(4)));
    const words v = __builtin_nontemporal_load((const words *)p);
    return make_uint4(v.x, v.y, v.z, v.w);
}
PLM_FN uint2 plm_load8(const void *p)
{
    typedef uint32_t words __attribute__((ext_vector_type(2)));
    const words v = __builtin_nontemporal_load((const words *)p);
    return make_uint2(v.x, v.y);
}
PLM_FN uint32_t plm_load4(const void *p) { return __builtin_nontemporal_load((const uint32_t *)p); }

PLM_FN uint32_t plm_keep(uint32_t v)
{
    asm volatile("" : "+v"(v));
    return v;
}

// ---- numbers ----

PLM_FN uint32_t plm_bits(float x) { return __float_as_uint(x); }
PLM_FN float plm_float(uint32_t bits) { return __uint_as_float(bits); }
PLM_FN uint32_t plm_permute(uint32_t a, uint32_t b, uint32_t select) { return __builtin_amdgcn_perm(b, a, select); }

PLM_FN float plm_half(uint16_t bits)
{
    _Float16 h;
    __builtin_memcpy(&h, &bits, 2);
    return (float)h;
}
PLM_FN uint16_t plm_half_bits(float x)
{
    const _Float16 h = (_Float16)x;
    uint16_t bits;
    __builtin_memcpy(&bits, &h, 2);
    return bits;
}
PLM_FN uint32_t plm_fma_halves(uint32_t a, uint32_t b, uint32_t c)
{
    _Float16 x[2], y[2], z[2];
    __builtin_memcpy(x, &a, 4);
    __builtin_memcpy(y, &b, 4);
    __builtin_memcpy(z, &c, 4);
    for (int i = 0; i < 2; i++)
        z[i] = __builtin_fmaf16(x[i], y[i], z[i]);
    __builtin_memcpy(&c, z, 4);
    return c;
}
PLM_FN float plm_bf16(uint16_t bits) { return plm_float((uint32_t)bits << 16); }
PLM_FN uint16_t plm_bf16_bits(float x)
{
    const uint32_t u = plm_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) // a NaN stays one
        return (uint16_t)(u >> 16 | 64);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
PLM_FN uint32_t plm_bf16x2(float low, float high)
{
    return plm_bf16_bits(low) | (uint32_t)plm_bf16_bits(high) << 16;
}
PLM_FN int plm_round(float x) { return __float2int_rn(x); }
// __fsqrt_rn is the hardware's approximation here; sqrtf and / are correctly rounded.
PLM_FN float plm_rsqrt_ieee(float x) { return 1.0f / sqrtf(x); }

// ---- products ----

PLM_FN int plm_dot4(int acc, uint32_t a, uint32_t b)
{
#if __has_builtin(__builtin_amdgcn_sdot4) && (defined(__gfx906__) || defined(__gfx908__) ||       \
                                              defined(__gfx90a__) || defined(__gfx1030__))
    return __builtin_amdgcn_sdot4((int)a, (int)b, acc, false);
#else
    for (int i = 0; i < 4; i++)
        acc += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return acc;
#endif
}

// The words of a fragment of A and B that output d[2i + j] is made of lie in the quads g and 2t + j:
// each is fetched from there.
// The inner loop stays one: unrolled, hipcc fetches the words of a whole tile's products first, and
// 256 registers do not hold them.
#define PLM_MMA_WORDS(d, a, b, step)                                                               \
    const int lane = (int)(threadIdx.x % PLM_WARP), g4 = lane & ~3, t8 = lane % 4 * 8;             \
    for (int half = 0; half < 2; half++)                                                           \
        _Pragma("unroll 1") for (int q = 0; q < 4; q++) {                                          \
            const uint32_t a0 = plm_shuffle(a[2 * half], g4 + q);                                  \
            const uint32_t a1 = plm_shuffle(a[2 * half + 1], g4 + q);                              \
            const uint32_t b0 = plm_shuffle(b[half], t8 + q);                                      \
            const uint32_t b1 = plm_shuffle(b[half], t8 + 4 + q);                                  \
            d[0] = step(d[0], a0, b0);                                                             \
            d[1] = step(d[1], a0, b1);                                                             \
            d[2] = step(d[2], a1, b0);                                                             \
            d[3] = step(d[3], a1, b1);                                                             \
        }

// Of 256 registers, of which the products below take more than instructions would.
#define PLM_MMA_SUMS 16

PLM_FN void plm_mma_s8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    PLM_MMA_WORDS(d, a, b, plm_dot4)
}

PLM_FN void plm_mma_s8_half(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    const uint32_t whole_a[4] = {a0, a1, 0, 0}, whole_b[2] = {b, 0};
    plm_mma_s8(d, whole_a, whole_b);
}

PLM_FN void plm_product_s8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    int sum[4] = {0, 0, 0, 0};
    plm_mma_s8(sum, a, b);
    for (int i = 0; i < 4; i++)
        d[i] = (float)sum[i];
}

PLM_FN float plm_fma_bf16x2(float acc, uint32_t a, uint32_t b)
{
    acc = fmaf(plm_float(a << 16), plm_float(b << 16), acc);
    return fmaf(plm_float(a & 0xffff0000u), plm_float(b & 0xffff0000u), acc);
}
PLM_FN void plm_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    PLM_MMA_WORDS(d, a, b, plm_fma_bf16x2)
}

PLM_FN float plm_fma_f16x2(float acc, uint32_t a, uint32_t b)
{
    acc = fmaf(plm_half((uint16_t)a), plm_half((uint16_t)b), acc);
    return fmaf(plm_half((uint16_t)(a >> 16)), plm_half((uint16_t)(b >> 16)), acc);
}
PLM_FN void plm_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    PLM_MMA_WORDS(d, a, b, plm_fma_f16x2)
}

PLM_FN float plm_fma_tf32(float acc, uint32_t a, uint32_t b)
{
    return fmaf(plm_float(a), plm_float(b), acc);
}
PLM_FN void plm_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    PLM_MMA_WORDS(d, a, b, plm_fma_tf32)
}

// 10 bits of mantissa, to nearest, ties away from zero.
PLM_FN uint32_t plm_tf32(float x)
{
    const uint32_t u = plm_bits(x);
    return (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & 0xffffe000u;
}

// The address that another lane of the warp has.
PLM_FN uint64_t plm_shuffle_address(const void *row, int lane)
{
    const uint64_t at = (uint64_t)row;
    return (uint64_t)plm_shuffle((uint32_t)at, lane) |
           (uint64_t)plm_shuffle((uint32_t)(at >> 32), lane) << 32;
}

PLM_FN void plm_matrices(uint32_t (&ret)[4], const void *row)
{
    const int lane = (int)(threadIdx.x % PLM_WARP), g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++)
        ret[i] = ((const uint32_t *)plm_shuffle_address(row, 8 * i + g))[t];
}

PLM_FN void plm_matrices_transposed(uint32_t (&ret)[4], const void *row)
{
    const int lane = (int)(threadIdx.x % PLM_WARP), g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        const uint64_t low = plm_shuffle_address(row, 8 * i + 2 * t);
        const uint64_t high = plm_shuffle_address(row, 8 * i + 2 * t + 1);
        ret[i] = ((const uint16_t *)low)[g] | (uint32_t)((const uint16_t *)high)[g] << 16;
    }
}

#endif
