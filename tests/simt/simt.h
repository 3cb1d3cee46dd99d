// SPDX-License-Identifier: Apache-2.0
// kernels/lib/port.cuh for the emulator: what kernels/*.cu use, as host C++. The running thread is
// simt_now; whatever waits for other threads is in launch.cc, the products of a warp in warp.cc.
#ifndef PLM_TESTS_SIMT_H
#define PLM_TESTS_SIMT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backends/panel/half.h"
#include "tests/simt/simt_run.h"

#define SIMT_SHARED_BYTES (48u << 10) // static shared memory of a block on every card

// ---- the running thread ----

struct simt_dim {
    uint32_t x, y, z;
};

struct simt_warp {
    uint32_t in[6][PLM_WARP]; // what each lane brought
    const void *row[PLM_WARP];
    uint32_t out[4][PLM_WARP]; // and what it takes away
    uint32_t arrived;          // lanes that wait for the others
};

struct simt_thread {
    struct simt_dim index;
    uint32_t lane; // of its warp
    struct simt_warp *warp;
};

// Where in a kernel: the caller's line, as default arguments. Threads that meet must meet at the
// same line: the compiler may copy code, so addresses do not tell.
#define SIMT_HERE  const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define SIMT_THERE file, line

extern struct simt_thread *simt_now;
extern struct simt_dim simt_block, simt_block_dim, simt_grid_dim;
extern uint64_t simt_serial; // of the running block
extern bool simt_guards;     // some memory may not be touched before plm_await

[[noreturn, gnu::format(printf, 1, 2)]] void simt_fail(const char *format, ...);
void simt_barrier(const char *file, int line);
void simt_await(const char *file, int line);
// Waits for the other lanes of the warp; the last one calls `combine` for all.
void simt_meet(const char *what, void (*combine)(struct simt_warp &), const char *file, int line);
void simt_touch(const char *what, const void *at, uint32_t bytes, const char *file, int line);
void simt_copy(const char *what, void *shared, const void *global, uint32_t bytes, const char *file,
               int line);
void simt_copy_commit(void);
void simt_copy_wait(uint32_t under_way);
void simt_register(struct simt_kernel *kernel);

#define threadIdx (simt_now->index)
#define blockIdx  simt_block
#define blockDim  simt_block_dim
#define gridDim   simt_grid_dim

inline void __syncthreads(SIMT_HERE)
{
    simt_barrier(SIMT_THERE);
}

// ---- declarations ----

#define PLM_FN [[maybe_unused]] static inline

#define PLM_KERNEL(name, threads, blocks, args)                                                    \
    static void name(const struct args &a);                                                        \
    static void simt_enter_##name(const void *a)                                                   \
    {                                                                                              \
        name(*(const struct args *)a);                                                             \
    }                                                                                              \
    static struct simt_kernel simt_kernel_##name = {                                               \
        #name, #args, sizeof(struct args), threads, simt_enter_##name, nullptr};                   \
    static const struct simt_registrar simt_registrar_##name(simt_kernel_##name);                  \
    static_assert(sizeof(struct args) <= 128, "arguments of " #name);                              \
    static_assert((threads) % PLM_WARP == 0 && (threads) <= 1024 && (blocks) > 0,                  \
                  "block of " #name);                                                              \
    static void name(const struct args &a)

struct simt_registrar {
    explicit simt_registrar(struct simt_kernel &kernel)
    {
        simt_register(&kernel);
    }
};

// One static array serves all blocks, which run one after the other; it is garbage again in each.
// The address sanitizer so watches its ends.
#define PLM_SHARED(type, name, n)                                                                  \
    alignas(16) static type name[n];                                                               \
    static uint64_t simt_serial_##name;                                                            \
    simt_shared(simt_serial_##name, name, sizeof name)

void simt_shared_begin(void *at, uint64_t bytes);

inline void simt_shared(uint64_t &serial, void *at, uint64_t bytes)
{
    if (serial != simt_serial) {
        serial = simt_serial;
        simt_shared_begin(at, bytes);
    }
}

// ---- vectors ----

#define SIMT_VECTOR2(name, type, align)                                                            \
    struct alignas(align) name {                                                                   \
        type x, y;                                                                                 \
    };                                                                                             \
    inline name make_##name(type x, type y)                                                        \
    {                                                                                              \
        return {x, y};                                                                             \
    }
#define SIMT_VECTOR4(name, type, align)                                                            \
    struct alignas(align) name {                                                                   \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    inline name make_##name(type x, type y, type z, type w)                                        \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
SIMT_VECTOR2(uint2, uint32_t, 8)
SIMT_VECTOR2(int2, int32_t, 8)
SIMT_VECTOR2(float2, float, 8)
SIMT_VECTOR4(uint4, uint32_t, 16)
SIMT_VECTOR4(int4, int32_t, 16)
SIMT_VECTOR4(float4, float, 16)
#undef SIMT_VECTOR2
#undef SIMT_VECTOR4

// ---- numbers ----

PLM_FN uint32_t plm_bits(float x)
{
    return plm_f32_bits(x);
}
PLM_FN float plm_float(uint32_t bits)
{
    return plm_bits_f32(bits);
}
PLM_FN float plm_half(uint16_t bits)
{
    return plm_f16_to_f32(bits);
}
PLM_FN uint16_t plm_half_bits(float x)
{
    return plm_f32_to_f16(x);
}
PLM_FN float plm_bf16(uint16_t bits)
{
    return plm_bf16_to_f32(bits);
}
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
// The product is exact in double, and so is the sum of what kernels add.
PLM_FN uint32_t plm_fma_halves(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t ret = 0;
    for (int i = 0; i < 32; i += 16) {
        const double x = plm_half((uint16_t)(a >> i)), y = plm_half((uint16_t)(b >> i));
        ret |= (uint32_t)plm_half_bits((float)(x * y + (double)plm_half((uint16_t)(c >> i)))) << i;
    }
    return ret;
}
// 10 bits of mantissa, to nearest, ties away from zero.
PLM_FN uint32_t plm_tf32(float x)
{
    const uint32_t u = plm_bits(x);
    return (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & 0xffffe000u;
}
PLM_FN uint32_t plm_keep(uint32_t v)
{
    return v;
}
// A NaN gives 0; what does not fit, the nearest that does.
PLM_FN int plm_round(float x)
{
    if (!(x > -0x1p31f && x < 0x1p31f))
        return x > 0 ? INT32_MAX : x < 0 ? INT32_MIN : 0;
    return (int)rintf(x);
}
PLM_FN float plm_rsqrt_ieee(float x)
{
    return 1.0f / sqrtf(x);
}

// ---- waiting, exchange ----

PLM_FN void plm_await(SIMT_HERE)
{
    simt_await(SIMT_THERE);
}
PLM_FN void plm_release()
{
}

PLM_FN void plm_warp_sync(SIMT_HERE)
{
    simt_meet("plm_warp_sync", nullptr, SIMT_THERE);
}

void simt_shuffle(struct simt_warp &w);

template <class T> PLM_FN T plm_shuffle(T v, int lane, SIMT_HERE)
{
    static_assert(sizeof v == 4, "plm_shuffle exchanges 32 bits");
    struct simt_warp &w = *simt_now->warp;
    memcpy(&w.in[0][simt_now->lane], &v, 4);
    w.in[1][simt_now->lane] = (uint32_t)lane % PLM_WARP;
    simt_meet("plm_shuffle", simt_shuffle, SIMT_THERE);
    memcpy(&v, &w.out[0][simt_now->lane], 4);
    return v;
}
template <class T> PLM_FN T plm_shuffle_xor(T v, int mask, SIMT_HERE)
{
    return plm_shuffle(v, (int)simt_now->lane ^ mask, SIMT_THERE);
}

PLM_FN uint32_t plm_atomic_add(uint32_t *p, uint32_t v, SIMT_HERE)
{
    simt_touch("plm_atomic_add", p, 4, SIMT_THERE);
    const uint32_t old = *p;
    *p += v;
    return old;
}
PLM_FN void plm_atomic_add(uint64_t *p, uint64_t v, SIMT_HERE)
{
    simt_touch("plm_atomic_add", p, 8, SIMT_THERE);
    *p += v;
}

// ---- copies and loads ----

PLM_FN void plm_copy16(void *shared, const void *global, SIMT_HERE)
{
    simt_copy("plm_copy16", shared, global, 16, SIMT_THERE);
}
PLM_FN void plm_copy4(void *shared, const void *global, SIMT_HERE)
{
    simt_copy("plm_copy4", shared, global, 4, SIMT_THERE);
}
PLM_FN void plm_copy16_near(void *shared, const void *global, SIMT_HERE)
{
    simt_copy("plm_copy16_near", shared, global, 16, SIMT_THERE);
}
PLM_FN void plm_copy_commit()
{
    simt_copy_commit();
}
template <int N> PLM_FN void plm_copy_wait()
{
    simt_copy_wait(N);
}

template <class T> PLM_FN T simt_load(const char *what, const void *p, const char *file, int line)
{
    T v;
    if (simt_guards || (uintptr_t)p % sizeof v != 0)
        simt_touch(what, p, sizeof v, file, line);
    memcpy(&v, p, sizeof v);
    return v;
}
PLM_FN uint4 plm_load16(const void *p, SIMT_HERE)
{
    return simt_load<uint4>("plm_load16", p, SIMT_THERE);
}
PLM_FN uint2 plm_load8(const void *p, SIMT_HERE)
{
    return simt_load<uint2>("plm_load8", p, SIMT_THERE);
}
PLM_FN uint32_t plm_load4(const void *p, SIMT_HERE)
{
    return simt_load<uint32_t>("plm_load4", p, SIMT_THERE);
}

// ---- products ----

PLM_FN uint32_t plm_permute(uint32_t a, uint32_t b, uint32_t select)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t ret = 0;
    for (int i = 0; i < 4; i++)
        ret |= (uint32_t)(bytes >> (select >> 8 * i & 7) * 8 & 0xff) << 8 * i;
    return ret;
}

PLM_FN int plm_dot4(int acc, uint32_t a, uint32_t b)
{
    for (int i = 0; i < 4; i++)
        acc += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return acc;
}

void simt_mma_s8(struct simt_warp &w);
void simt_mma_bf16(struct simt_warp &w);
void simt_mma_f16(struct simt_warp &w);
void simt_mma_tf32(struct simt_warp &w);
void simt_matrices(struct simt_warp &w);
void simt_transpose(struct simt_warp &w);

template <class T>
PLM_FN void simt_mma(const char *what, void (*combine)(struct simt_warp &), T (&d)[4],
                     const uint32_t (&a)[4], const uint32_t (&b)[2], const char *file, int line)
{
    struct simt_warp &w = *simt_now->warp;
    const uint32_t lane = simt_now->lane;
    for (int i = 0; i < 4; i++) {
        w.in[i][lane] = a[i];
        memcpy(&w.out[i][lane], &d[i], 4);
    }
    w.in[4][lane] = b[0];
    w.in[5][lane] = b[1];
    simt_meet(what, combine, file, line);
    for (int i = 0; i < 4; i++)
        memcpy(&d[i], &w.out[i][lane], 4);
}
PLM_FN void plm_mma_s8(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_HERE)
{
    simt_mma("plm_mma_s8", simt_mma_s8, d, a, b, SIMT_THERE);
}
PLM_FN void plm_mma_s8_half(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, SIMT_HERE)
{
    const uint32_t whole_a[4] = {a0, a1, 0, 0}, whole_b[2] = {b, 0};
    simt_mma("plm_mma_s8_half", simt_mma_s8, d, whole_a, whole_b, SIMT_THERE);
}
PLM_FN void plm_product_s8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_HERE)
{
    int sum[4] = {0, 0, 0, 0};
    simt_mma("plm_product_s8", simt_mma_s8, sum, a, b, SIMT_THERE);
    for (int i = 0; i < 4; i++) {
        if (sum[i] >= 1 << 22 || sum[i] <= -(1 << 22))
            simt_fail("plm_product_s8: %d is beyond 2^22", sum[i]);
        d[i] = (float)sum[i];
    }
}
// The float products of a sum are exact; they are added in double in ascending k, then the
// accumulator, and the sum is rounded once. No kernel may count on this or any order within it.
PLM_FN void plm_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_HERE)
{
    simt_mma("plm_mma_bf16", simt_mma_bf16, d, a, b, SIMT_THERE);
}
PLM_FN void plm_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_HERE)
{
    simt_mma("plm_mma_f16", simt_mma_f16, d, a, b, SIMT_THERE);
}
PLM_FN void plm_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_HERE)
{
    simt_mma("plm_mma_tf32", simt_mma_tf32, d, a, b, SIMT_THERE);
}

PLM_FN void plm_matrices(uint32_t (&ret)[4], const void *row, SIMT_HERE)
{
    struct simt_warp &w = *simt_now->warp;
    w.row[simt_now->lane] = row;
    simt_meet("plm_matrices", simt_matrices, SIMT_THERE);
    for (int i = 0; i < 4; i++)
        ret[i] = w.out[i][simt_now->lane];
}

PLM_FN void plm_matrices_transposed(uint32_t (&ret)[4], const void *row, SIMT_HERE)
{
    struct simt_warp &w = *simt_now->warp;
    w.row[simt_now->lane] = row;
    simt_meet("plm_matrices_transposed", simt_transpose, SIMT_THERE);
    for (int i = 0; i < 4; i++)
        ret[i] = w.out[i][simt_now->lane];
}

#endif
