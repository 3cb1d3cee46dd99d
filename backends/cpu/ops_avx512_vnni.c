// SPDX-License-Identifier: Apache-2.0
#define PLM_CPU_FN(name) plm_avx512_vnni_##name
#define OPS_TABLE        plm_cpu_kernels_avx512_vnni
#define OPS_ISA          "avx512-vnni"
#define AT_FALLBACK      plm_avx2_attention

#include "backends/cpu/kernels.h"

plm_cpu_kernel AT_FALLBACK;

#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/ops_tmpl.h"
