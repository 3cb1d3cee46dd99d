// SPDX-License-Identifier: Apache-2.0
// Reference: matmul.
#include "backends/panel/layout.h"
#include "backends/cpu/refs.h"
#include "backends/cpu/rows.h"

// Product of lane `lane` of a panel with one row of 8-bit activations.
static float dot_q8(const struct plm_matmul_args *a, const struct plm_panel *p,
                    const uint8_t *panel, uint32_t lane, const uint8_t *x)
{
    float acc = 0.0f;
    for (uint32_t b = 0; b < a->n_in / 32; b++) {
        const uint8_t *record = x + (uint64_t)b * PLM_ACT_Q8_BLOCK_BYTES;
        const int8_t *q = (const int8_t *)record;
        struct plm_row_block w;
        float dx, ds;
        plm_panel_read(a->type, p, panel, lane, b, &w);
        memcpy(&dx, record + PLM_ACT_Q8_D, 4);
        memcpy(&ds, record + PLM_ACT_Q8_DS, 4);
        int32_t half[2] = {0, 0};
        for (uint32_t k = 0; k < 32; k++)
            half[k / 16] += w.q[k] * q[k];
        float dot = (float)(half[0] + half[1]);
        if (a->type == PLM_TYPE_Q6_K) // exact as well: below 2^24
            dot = fmaf((float)half[1], (float)w.sc[1], (float)half[0] * (float)w.sc[0]);
        acc = fmaf(dot, w.d * dx, acc);
        if (w.has_mw)
            acc = fmaf(w.mw, ds, acc);
    }
    return acc;
}

static float dot_f32(const struct plm_matmul_args *a, const struct plm_panel *p,
                     const uint8_t *panel, uint32_t lane, const float *x)
{
    float acc = 0.0f;
    for (uint32_t k = 0; k < a->n_in; k += 32) {
        float w[32];
        uint32_t n = a->n_in - k < 32 ? a->n_in - k : 32;
        plm_panel_decode(a->type, p, panel, lane, k, n, w);
        for (uint32_t i = 0; i < n; i++)
            acc = fmaf(w[i], x[k + i], acc);
    }
    return acc;
}

void plm_ref_matmul(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_matmul_args *a = args;
    const struct plm_panel p = plm_panel_of(a->type, a->n_in);
    const uint64_t x_bytes = PLM_ACT_ROW_BYTES(a->act, a->n_in);
    for (uint32_t o = begin * PLM_PANEL_ROWS; o < end * PLM_PANEL_ROWS && o < a->n_out; o++) {
        const uint8_t *panel =
            PLM_PTR(const uint8_t, a->weight) + o / PLM_PANEL_ROWS * p.panel_bytes;
        for (uint32_t r = 0; r < a->rows; r++) {
            const uint8_t *x = PLM_PTR(const uint8_t, a->x) + r * x_bytes;
            float *dst = PLM_PTR(float, a->dst) + (uint64_t)r * a->ld_dst + o;
            float acc = a->act == PLM_ACT_Q8
                            ? dot_q8(a, &p, panel, o % PLM_PANEL_ROWS, x)
                            : dot_f32(a, &p, panel, o % PLM_PANEL_ROWS, (const float *)x);
            if (a->bias != 0)
                acc += PLM_PTR(const float, a->bias)[o];
            *dst = a->add ? acc + *dst : acc;
        }
    }
}
