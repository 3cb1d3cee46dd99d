// SPDX-License-Identifier: Apache-2.0
// All kernels of one variant. Before including it define PLM_CPU_FN (names), OPS_TABLE and OPS_ISA,
// AT_FALLBACK (the attention for head sizes that are no multiple of VL), and include a vec_*.h.
#include "backends/cpu/rows_tmpl.h"

#include "backends/cpu/attention_tmpl.h"
#include "backends/cpu/matmul_tmpl.h"
// The rest is the reference's C, compiled for this instruction set.
#include "backends/cpu/ref_rope.c"
#include "backends/cpu/ref_rows.c"

extern const struct plm_cpu_kernels OPS_TABLE;
const struct plm_cpu_kernels OPS_TABLE = {
    .fn =
        {
#define PLM_OP(NAME, name, units, tolerance)          [PLM_OP_##NAME] = PLM_CPU_FN(name),
#define PLM_OP_OPTIONAL(NAME, name, units, tolerance) [PLM_OP_##NAME] = plm_ref_##name,
#include "kernels/ops.def"
#undef PLM_OP
        },
    .isa = OPS_ISA,
    .matmul = {{OPS_ISA, PLM_CPU_FN(matmul)},
               {OPS_ISA " small-cache", mm_small_cache},
               {OPS_ISA " long-runs", mm_long_runs}},
};
