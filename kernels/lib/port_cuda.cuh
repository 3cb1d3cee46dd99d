// SPDX-License-Identifier: Apache-2.0
// kernels/lib/port.cuh for nvcc, sm_80 and later.
#ifndef PLM_KERNELS_PORT_CUDA_CUH
#define PLM_KERNELS_PORT_CUDA_CUH

#define PLM_KERNEL(name, threads, blocks, args)                                                    \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ struct args a)
#define PLM_FN                     static __device__ __forceinline__
#define PLM_SHARED(type, name, n) __shared__ __align__(16) type name[n]

PLM_FN void plm_await()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

PLM_FN void plm_release()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

PLM_FN void plm_warp_sync() { __syncwarp(); }

template <class T> PLM_FN T plm_shuffle(T v, int lane) { return __shfl_sync(~0u, v, lane); }
template <class T> PLM_FN T plm_shuffle_xor(T v, int mask) { return __shfl_xor_sync(~0u, v, mask); }

PLM_FN uint32_t plm_atomic_add(uint32_t *p, uint32_t v) { return atomicAdd(p, v); }
// Shared memory adds 32 bits at once, but 64 in a loop until nobody came between.
PLM_FN void plm_atomic_add(uint64_t *p, uint64_t v)
{
    const uint32_t low = (uint32_t)v, old = atomicAdd((uint32_t *)p, low);
    const uint32_t high = (uint32_t)(v >> 32) + (old + low < old);
    if (high != 0)
        atomicAdd((uint32_t *)p + 1, high);
}

// ---- copies and loads ----

PLM_FN void plm_copy16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}

PLM_FN void plm_copy16_near(void *shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}

PLM_FN void plm_copy4(void *shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}

PLM_FN void plm_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N> PLM_FN void plm_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Relaxed, not .nc: nvcc 13.0 sinks those below griddepcontrol.wait.
PLM_FN uint4 plm_load16(const void *p)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

PLM_FN uint2 plm_load8(const void *p)
{
    uint2 v;
    asm volatile("ld.relaxed.gpu.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(p));
    return v;
}

PLM_FN uint32_t plm_load4(const void *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

// ---- products ----

PLM_FN int plm_dot4(int acc, uint32_t a, uint32_t b) { return __dp4a((int)a, (int)b, acc); }

// Of 255 registers.
#define PLM_MMA_SUMS 32

PLM_FN void plm_mma_s8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

PLM_FN void plm_mma_s8_half(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
}

// The sum begins with the bits of 1.5 * 2^23, of whose mantissa the lowest bit is 1: as a float, what is
// added to them is a difference from that. (Conversions would take two turns each.)
PLM_FN void plm_product_s8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    const uint32_t magic = 0x4b400000u;
    uint32_t sum[4];
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %10, %10, %10};"
        : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(magic));
#pragma unroll
    for (int i = 0; i < 4; i++)
        d[i] = __uint_as_float(sum[i]) - 12582912.0f;
}

PLM_FN void plm_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

PLM_FN void plm_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

PLM_FN void plm_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

PLM_FN uint32_t plm_tf32(float x)
{
    uint32_t v;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(v) : "f"(x));
    return v;
}

PLM_FN void plm_matrices(uint32_t (&ret)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(ret[0]), "=r"(ret[1]), "=r"(ret[2]), "=r"(ret[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

PLM_FN void plm_matrices_transposed(uint32_t (&ret)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(ret[0]), "=r"(ret[1]), "=r"(ret[2]), "=r"(ret[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

PLM_FN uint32_t plm_keep(uint32_t v)
{
    asm volatile("" : "+r"(v));
    return v;
}

// ---- numbers ----

PLM_FN uint32_t plm_bits(float x) { return __float_as_uint(x); }
PLM_FN float plm_float(uint32_t bits) { return __uint_as_float(bits); }
// The instruction takes the numbers as nibbles of 16 bits.
PLM_FN uint32_t plm_permute(uint32_t a, uint32_t b, uint32_t select)
{
    return __byte_perm(a, b, __byte_perm(select | select >> 4, 0, 0x20));
}

PLM_FN float plm_half(uint16_t bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

PLM_FN uint16_t plm_half_bits(float x)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

PLM_FN uint32_t plm_fma_halves(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

PLM_FN float plm_bf16(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }

PLM_FN uint16_t plm_bf16_bits(float x)
{
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

PLM_FN uint32_t plm_bf16x2(float low, float high)
{
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

PLM_FN int plm_round(float x) { return __float2int_rn(x); }
PLM_FN float plm_rsqrt_ieee(float x) { return __frcp_rn(__fsqrt_rn(x)); }

#endif
