// SPDX-License-Identifier: Apache-2.0
// rms_norm, quantize, gate_mul over the vectors of a vec_*.h, which is included before.
#include "backends/cpu/fn.h"
#include "backends/cpu/rows.h"

#define Q8_PARTS (PLM_ACT_Q8_BLOCK / VL)

// plm_expf, lane by lane.
VEC_FN vf vf_exp(vf x)
{
    const vf magic = vf_set1(PLM_ROUND_MAGIC);
    x = vf_max(vf_set1(PLM_EXP_MIN), x);
    x = vf_min(vf_set1(PLM_EXP_MAX), x);
    vf t = vf_fma(x, vf_set1(PLM_EXP_LOG2E), magic);
    vf n = vf_sub(t, magic);
    vf r = vf_fma(n, vf_set1(-PLM_EXP_LN2HI), x);
    r = vf_fma(n, vf_set1(-PLM_EXP_LN2LO), r);
    vf p = vf_fma(r, vf_set1(PLM_EXP_P4), vf_set1(PLM_EXP_P3));
    p = vf_fma(r, p, vf_set1(PLM_EXP_P2));
    p = vf_fma(r, p, vf_set1(PLM_EXP_P1));
    p = vf_fma(r, p, vf_set1(PLM_EXP_P0));
    p = vf_add(vf_fma(vf_mul(r, r), p, r), vf_set1(1.0f));
    return vf_mul(p, vf_pow2(t));
}

// plm_q8_store with the block in vectors.
VEC_FN void q8_store(uint8_t *q, const vf x[Q8_PARTS])
{
    vi most = vi_magnitude(x[0]);
    VEC_UNROLL for (int i = 1; i < Q8_PARTS; i++) most = vi_max(most, vi_magnitude(x[i]));
    const uint32_t top = vi_top(most);
    const float a = plm_bits_f32(top);
    float d = 0.0f, ds = 0.0f;
    int32_t sum[2] = {0, 0};
    if (top < 0x7f800000u && a >= 1e-30f) {
        const vf inverse = vf_set1(127.0f / a);
        d = a / 127.0f;
        VEC_UNROLL for (int i = 0; i < Q8_PARTS; i++) sum[i * VL / 16] +=
            vf_store_i8(q + i * VL, vf_mul(x[i], inverse));
        ds = d * (float)(sum[0] + sum[1]);
    } else {
        memset(q, 0, 32);
        d = ds = top >= 0x7f800000u ? plm_bits_f32(0x7fc00000u) : 0.0f;
    }
    int16_t s[2] = {(int16_t)sum[0], (int16_t)sum[1]};
    memcpy(q + PLM_ACT_Q8_D, &d, 4);
    memcpy(q + PLM_ACT_Q8_S, s, 4);
    memcpy(q + PLM_ACT_Q8_DS, &ds, 4);
}

void PLM_CPU_FN(quantize)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_quantize_args *a = args;
    for (uint32_t r = begin; r < end; r++) {
        const float *x = PLM_PTR(const float, a->x) + (uint64_t)r * a->n;
        uint8_t *dst = PLM_PTR(uint8_t, a->dst) + r * PLM_ACT_Q8_ROW_BYTES(a->n);
        for (uint32_t b = 0; b < a->n / 32; b++) {
            vf v[Q8_PARTS];
            VEC_UNROLL for (int i = 0; i < Q8_PARTS; i++) v[i] = vf_load(x + b * 32 + i * VL);
            q8_store(dst + b * PLM_ACT_Q8_BLOCK_BYTES, v);
        }
    }
}

// Adds the residual, and returns what x is multiplied by.
VEC_FN float norm_factor(float *x, const float *residual, uint32_t n, float eps)
{
    float lane[16];
    vf acc[16 / VL];
    VEC_UNROLL for (int i = 0; i < 16 / VL; i++) acc[i] = vf_set1(0.0f);
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16)
        VEC_UNROLL for (int i = 0; i < 16 / VL; i++)
        {
            vf v = vf_load(x + k + i * VL);
            if (residual != NULL) {
                v = vf_add(v, vf_load(residual + k + i * VL));
                vf_store(x + k + i * VL, v);
            }
            acc[i] = vf_fma(v, v, acc[i]);
        }
    VEC_UNROLL for (int i = 0; i < 16 / VL; i++) vf_store(lane + i * VL, acc[i]);
    for (uint32_t l = 0; k + l < n; l++) {
        if (residual != NULL)
            x[k + l] += residual[k + l];
        lane[l] = fmaf(x[k + l], x[k + l], lane[l]);
    }
    return 1.0f / sqrtf(plm_sum16(lane) / (float)n + eps);
}

VEC_FN void norm_row(const struct plm_rms_norm_args *a, uint32_t r)
{
    const float *weight = PLM_PTR(const float, a->weight);
    float *x = PLM_PTR(float, a->x) + (uint64_t)r * a->n;
    const float *residual =
        a->residual != 0 ? PLM_PTR(const float, a->residual) + (uint64_t)r * a->n : NULL;
    const float factor = norm_factor(x, residual, a->n, a->eps);
    const vf f = vf_set1(factor);
    if (a->dst_f32 != 0) {
        float *y = PLM_PTR(float, a->dst_f32) + (uint64_t)r * a->n;
        uint32_t k = 0;
        for (; k + VL <= a->n; k += VL) {
            const vf normed = vf_mul(vf_mul(vf_load(x + k), f), vf_load(weight + k));
            vf_store(y + k, a->add ? vf_add(vf_load(y + k), normed) : normed);
        }
        for (; k < a->n; k++) {
            const float normed = x[k] * factor * weight[k];
            y[k] = a->add ? y[k] + normed : normed;
        }
    }
    if (a->dst_q8 != 0) {
        uint8_t *q8 = PLM_PTR(uint8_t, a->dst_q8) + r * PLM_ACT_Q8_ROW_BYTES(a->n);
        for (uint32_t b = 0; b < a->n / 32; b++) {
            vf v[Q8_PARTS];
            VEC_UNROLL for (int i = 0; i < Q8_PARTS; i++)
            {
                uint32_t k = b * 32 + (uint32_t)(i * VL);
                v[i] = vf_mul(vf_mul(vf_load(x + k), f), vf_load(weight + k));
            }
            q8_store(q8 + b * PLM_ACT_Q8_BLOCK_BYTES, v);
        }
    }
}

void PLM_CPU_FN(rms_norm)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    for (uint32_t r = begin; r < end; r++)
        norm_row(args, r);
}

// plm_gate_mul, lane by lane.
VEC_FN vf gate_vec(vf gate, vf up, const bool gelu)
{
    vf z = gate;
    if (gelu)
        z = vf_mul(gate,
                   vf_fma(vf_mul(gate, gate), vf_set1(PLM_GELU_CUBIC), vf_set1(PLM_GELU_LINEAR)));
    return vf_mul(vf_div(gate, vf_add(vf_set1(1.0f), vf_exp(vf_neg(z)))), up);
}

VEC_FN void gate_rows(const struct plm_gate_mul_args *a, uint32_t begin, uint32_t end,
                      const bool gelu)
{
    for (uint32_t r = begin; r < end; r++) {
        const float *gate = PLM_PTR(const float, a->gate) + (uint64_t)r * a->ld;
        const float *up = PLM_PTR(const float, a->up) + (uint64_t)r * a->ld;
        if (a->dst_f32 != 0) {
            float *y = PLM_PTR(float, a->dst_f32) + (uint64_t)r * a->n;
            for (uint32_t k = 0; k < a->n; k += VL) {
                uint32_t n = a->n - k < VL ? a->n - k : VL;
                vf v = gate_vec(vf_load_first(gate + k, n), vf_load_first(up + k, n), gelu);
                vf_store_first(y + k, v, n);
            }
        }
        if (a->dst_q8 != 0) {
            uint8_t *q8 = PLM_PTR(uint8_t, a->dst_q8) + r * PLM_ACT_Q8_ROW_BYTES(a->n);
            for (uint32_t b = 0; b < a->n / 32; b++) {
                vf v[Q8_PARTS];
                VEC_UNROLL for (int i = 0; i < Q8_PARTS; i++)
                {
                    uint32_t k = b * 32 + (uint32_t)(i * VL);
                    v[i] = gate_vec(vf_load(gate + k), vf_load(up + k), gelu);
                }
                q8_store(q8 + b * PLM_ACT_Q8_BLOCK_BYTES, v);
            }
        }
    }
}

void PLM_CPU_FN(gate_mul)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_gate_mul_args *a = args;
    if (a->gate_fn == PLM_GATE_GELU)
        gate_rows(a, begin, end, true);
    else
        gate_rows(a, begin, end, false);
}
