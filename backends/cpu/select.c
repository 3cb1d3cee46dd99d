// SPDX-License-Identifier: Apache-2.0
// Chooses the kernels for this machine.
#include "backends/cpu/isa.h"
#include "backends/cpu/refs.h"

static const struct plm_cpu_kernels reference = {
    .fn =
        {
#define PLM_OP(NAME, name, units, tolerance) [PLM_OP_##NAME] = plm_ref_##name,
#include "kernels/ops.def"
#undef PLM_OP
        },
    .isa = "reference",
};

enum plm_cpu_isa plm_cpu_isa_best(void)
{
    return PLM_CPU_ISA_PORTABLE;
}

const struct plm_cpu_kernels *plm_cpu_kernels_select(uint32_t isa_max,
                                                     enum plm_kernel_choice choice)
{
    (void)isa_max;
    (void)choice;
    return &reference;
}
