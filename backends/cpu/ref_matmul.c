// SPDX-License-Identifier: Apache-2.0
// Reference: matmul.
#include "backends/cpu/ref_dot.h"
#include "backends/cpu/refs.h"

void plm_ref_matmul(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_matmul_args *a = args;
    const struct plm_ref_weight w = plm_ref_weight_of(a->weight, a->type, a->act, a->n_in);
    for (uint32_t o = begin * PLM_PANEL_ROWS; o < end * PLM_PANEL_ROWS && o < a->n_out; o++)
        for (uint32_t r = 0; r < a->rows; r++) {
            float *dst = PLM_PTR(float, a->dst) + (uint64_t)r * a->ld_dst + o;
            float acc = plm_ref_dot(&w, a->x, r, o, a->bias);
            *dst = a->add ? acc + *dst : acc;
        }
}
