// SPDX-License-Identifier: Apache-2.0
#define PLM_CPU_FN(name) plm_portable_##name
#define OPS_TABLE        plm_cpu_kernels_portable
#define OPS_ISA          "portable"
#define AT_FALLBACK      plm_ref_attention

#include "backends/cpu/kernels.h"

plm_cpu_kernel AT_FALLBACK;

#include "backends/cpu/vec_portable.h"

#include "backends/cpu/ops_tmpl.h"
