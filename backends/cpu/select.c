// SPDX-License-Identifier: Apache-2.0
// Chooses the kernels for this machine.
#include "backends/cpu/isa.h"
#include "backends/cpu/refs.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

extern const struct plm_cpu_kernels plm_cpu_kernels_portable, plm_cpu_kernels_avx2,
    plm_cpu_kernels_avx512, plm_cpu_kernels_avx512_vnni;

static const struct plm_cpu_kernels reference = {
    .fn =
        {
#define PLM_OP(NAME, name, units, tolerance) [PLM_OP_##NAME] = plm_ref_##name,
#include "kernels/ops.def"
#undef PLM_OP
        },
    .isa = "reference",
};

#if defined(__x86_64__)
// Not a word of __builtin_cpu_supports in clang 14: leaf 1, register C, bit 29.
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
}
#endif

enum plm_cpu_isa plm_cpu_isa_best(void)
{
#if defined(__x86_64__)
    // The compiler's run-time support also asks whether the system saves the wide registers.
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
        return PLM_CPU_ISA_PORTABLE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return PLM_CPU_ISA_AVX2;
    if (!__builtin_cpu_supports("avx512vnni"))
        return PLM_CPU_ISA_AVX512;
    return PLM_CPU_ISA_AVX512_VNNI;
#else
    return PLM_CPU_ISA_PORTABLE;
#endif
}

const struct plm_cpu_kernels *plm_cpu_kernels_select(uint32_t isa_max,
                                                     enum plm_kernel_choice choice)
{
    uint32_t isa = plm_cpu_isa_best();
    if (choice == PLM_KERNELS_REFERENCE)
        return &reference;
    if (isa_max != PLM_CPU_ISA_NO_CAP && isa_max < isa)
        isa = isa_max;
#if defined(__x86_64__)
    switch (isa) {
    case PLM_CPU_ISA_AVX512_VNNI: return &plm_cpu_kernels_avx512_vnni;
    case PLM_CPU_ISA_AVX512: return &plm_cpu_kernels_avx512;
    case PLM_CPU_ISA_AVX2: return &plm_cpu_kernels_avx2;
    default: break;
    }
#endif
    return &plm_cpu_kernels_portable;
}

uint32_t plm_cpu_variants(const struct plm_cpu_kernels *kernels, enum plm_op op,
                          struct plm_cpu_variant ret[PLM_CPU_VARIANTS])
{
    uint32_t n = 0;
    ret[n++] = (struct plm_cpu_variant){kernels->isa, kernels->fn[op]};
    if (kernels == &reference || (op != PLM_OP_MATMUL && op != PLM_OP_ATTENTION))
        return n;
    for (int i = 1; op == PLM_OP_MATMUL && i < PLM_CPU_WALKS; i++)
        ret[n++] = kernels->matmul[i];
#if defined(__x86_64__)
    if (kernels == &plm_cpu_kernels_avx512_vnni || kernels == &plm_cpu_kernels_avx512)
        ret[n++] = (struct plm_cpu_variant){plm_cpu_kernels_avx2.isa, plm_cpu_kernels_avx2.fn[op]};
#endif
    return n;
}
