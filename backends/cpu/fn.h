// SPDX-License-Identifier: Apache-2.0
// Names of kernels. The reference files compile as plm_ref_<op>; a variant file defines PLM_CPU_FN
// and includes them again, so that the compiler vectorises the same C for its instruction set. The
// language fixes the result: nothing is contracted or reordered. Optional ops (ops.def) have their
// references alone: no CPU prefers them.
#ifndef PLM_CPU_FN_H
#define PLM_CPU_FN_H

#include "backends/cpu/refs.h"

#ifndef PLM_CPU_FN
#define PLM_CPU_FN(name) plm_ref_##name
#else
#define PLM_OP(NAME, name, units, tolerance) plm_cpu_kernel PLM_CPU_FN(name);
#define PLM_OP_OPTIONAL(NAME, name, units, tolerance)
#include "kernels/ops.def"
#undef PLM_OP
#endif

#endif
