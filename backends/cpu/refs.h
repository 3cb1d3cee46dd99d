// SPDX-License-Identifier: Apache-2.0
// The reference kernels, one per op of kernels/ops.def: void plm_ref_<name>(args, begin, end,
// scratch), see plm_cpu_kernel in kernels.h. They are the specification of the ops.
#ifndef PLM_CPU_REFS_H
#define PLM_CPU_REFS_H

#include "backends/cpu/kernels.h"

#define PLM_OP(NAME, name, units, tolerance) plm_cpu_kernel plm_ref_##name;
#include "kernels/ops.def"
#undef PLM_OP

#endif
