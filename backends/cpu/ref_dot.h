// SPDX-License-Identifier: Apache-2.0
// Reference: one output of a matrix product, shared by the ops that contain one.
#ifndef PLM_CPU_REF_DOT_H
#define PLM_CPU_REF_DOT_H

#include "backends/cpu/rows.h"
#include "backends/panel/layout.h"

// A re-laid weight and the format of what it is multiplied by.
struct plm_ref_weight {
    const uint8_t *panels;
    struct plm_panel p;
    uint32_t type; // enum plm_type
    uint32_t act;  // enum plm_act
    uint32_t n_in;
};

static inline struct plm_ref_weight plm_ref_weight_of(uint64_t address, uint32_t type, uint32_t act,
                                                      uint32_t n_in)
{
    return (struct plm_ref_weight){PLM_PTR(const uint8_t, address), plm_panel_of(type, n_in), type,
                                   act, n_in};
}

// Adds the product of a block with a record of 8-bit activations; scales: PLM_SCALES_x.
static inline float plm_ref_block_q8(uint8_t scales, const struct plm_row_block *block,
                                     const uint8_t *record, float acc)
{
    const int8_t *q = (const int8_t *)record;
    float dx, ds;
    int16_t s[2];
    memcpy(&dx, record + PLM_ACT_Q8_D, 4);
    memcpy(&ds, record + PLM_ACT_Q8_DS, 4);
    memcpy(s, record + PLM_ACT_Q8_S, 4);
    int32_t half[2] = {0, 0};
    for (uint32_t k = 0; k < 32; k++)
        half[k / 16] += block->q[k] * q[k];
    const float dot = (float)(half[0] * block->sc[0] + half[1] * block->sc[1]); // below 2^24
    if (scales == PLM_SCALES_D_M_HALVES) {
        const float mdot = (float)(block->mn[0] * s[0] + block->mn[1] * s[1]);
        return fmaf(fmaf(mdot, block->mw, dot * block->d), dx, acc);
    }
    acc = fmaf(dot, block->d * dx, acc);
    return block->has_mw ? fmaf(block->mw, ds, acc) : acc;
}

// Product of lane `lane` of a panel with one row of 8-bit activations.
static inline float plm_ref_dot_q8(const struct plm_ref_weight *w, const uint8_t *panel,
                                   uint32_t lane, const uint8_t *x)
{
    const uint8_t scales = plm_panel_type(w->type).scales;
    float acc = 0.0f;
    for (uint32_t b = 0; b < w->n_in / 32; b++) {
        struct plm_row_block block;
        plm_panel_read(w->type, &w->p, panel, lane, b, &block);
        acc = plm_ref_block_q8(scales, &block, x + (uint64_t)b * PLM_ACT_Q8_BLOCK_BYTES, acc);
    }
    return acc;
}

static inline float plm_ref_dot_f32(const struct plm_ref_weight *w, const uint8_t *panel,
                                    uint32_t lane, const float *x)
{
    float acc = 0.0f;
    for (uint32_t k = 0; k < w->n_in; k += 32) {
        float value[32];
        uint32_t n = w->n_in - k < 32 ? w->n_in - k : 32;
        plm_panel_decode(w->type, &w->p, panel, lane, k, n, value);
        for (uint32_t i = 0; i < n; i++)
            acc = fmaf(value[i], x[k + i], acc);
    }
    return acc;
}

// Output o of the product with row r of the activations at x; bias: optional address of float32.
static inline float plm_ref_dot(const struct plm_ref_weight *w, uint64_t x, uint32_t r, uint32_t o,
                                uint64_t bias)
{
    const uint8_t *panel = w->panels + o / PLM_PANEL_ROWS * w->p.panel_bytes;
    const uint8_t *row = PLM_PTR(const uint8_t, x) + r * PLM_ACT_ROW_BYTES(w->act, w->n_in);
    float acc = w->act == PLM_ACT_Q8 ? plm_ref_dot_q8(w, panel, o % PLM_PANEL_ROWS, row)
                                     : plm_ref_dot_f32(w, panel, o % PLM_PANEL_ROWS,
                                                       (const float *)(const void *)row);
    return bias != 0 ? acc + PLM_PTR(const float, bias)[o] : acc;
}

#endif
