// SPDX-License-Identifier: Apache-2.0
// Reference: rms_norm, quantize, gate_mul.
#include "backends/cpu/fn.h"
#include "backends/cpu/rows.h"

void PLM_CPU_FN(quantize)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_quantize_args *a = args;
    for (uint32_t r = begin; r < end; r++) {
        const float *x = PLM_PTR(const float, a->x) + (uint64_t)r * a->n;
        uint8_t *dst = PLM_PTR(uint8_t, a->dst) + r * PLM_ACT_Q8_ROW_BYTES(a->n);
        for (uint32_t b = 0; b < a->n / 32; b++)
            plm_q8_store(dst + b * PLM_ACT_Q8_BLOCK_BYTES, x + b * 32);
    }
}

void PLM_CPU_FN(rms_norm)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_rms_norm_args *a = args;
    const float *weight = PLM_PTR(const float, a->weight);
    for (uint32_t r = begin; r < end; r++) {
        float *x = PLM_PTR(float, a->x) + (uint64_t)r * a->n;
        const float *residual =
            a->residual != 0 ? PLM_PTR(const float, a->residual) + (uint64_t)r * a->n : NULL;
        for (uint32_t i = 0; residual != NULL && i < a->n; i++)
            x[i] += residual[i];
        const float factor = plm_norm_factor(x, a->n, a->eps);
        if (a->dst_f32 != 0) {
            float *y = PLM_PTR(float, a->dst_f32) + (uint64_t)r * a->n;
            for (uint32_t i = 0; i < a->n; i++) {
                const float normed = x[i] * factor * weight[i];
                y[i] = a->add ? y[i] + normed : normed;
            }
        }
        if (a->dst_q8 != 0) {
            uint8_t *q8 = PLM_PTR(uint8_t, a->dst_q8) + r * PLM_ACT_Q8_ROW_BYTES(a->n);
            for (uint32_t b = 0; b < a->n / 32; b++) {
                float y[32];
                for (uint32_t i = 0; i < 32; i++)
                    y[i] = x[b * 32 + i] * factor * weight[b * 32 + i];
                plm_q8_store(q8 + b * PLM_ACT_Q8_BLOCK_BYTES, y);
            }
        }
    }
}

void PLM_CPU_FN(gate_mul)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_gate_mul_args *a = args;
    for (uint32_t r = begin; r < end; r++) {
        const float *gate = PLM_PTR(const float, a->gate) + (uint64_t)r * a->ld;
        const float *up = PLM_PTR(const float, a->up) + (uint64_t)r * a->ld;
        if (a->dst_f32 != 0) {
            float *y = PLM_PTR(float, a->dst_f32) + (uint64_t)r * a->n;
            for (uint32_t i = 0; i < a->n; i++)
                y[i] = plm_gate_mul(gate[i], up[i], a->gate_fn);
        }
        if (a->dst_q8 != 0) {
            uint8_t *q8 = PLM_PTR(uint8_t, a->dst_q8) + r * PLM_ACT_Q8_ROW_BYTES(a->n);
            for (uint32_t b = 0; b < a->n / 32; b++) {
                float y[32];
                for (uint32_t i = 0; i < 32; i++)
                    y[i] = plm_gate_mul(gate[b * 32 + i], up[b * 32 + i], a->gate_fn);
                plm_q8_store(q8 + b * PLM_ACT_Q8_BLOCK_BYTES, y);
            }
        }
    }
}
