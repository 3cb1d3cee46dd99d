// SPDX-License-Identifier: Apache-2.0
// The weight layout p16 (kernels/layout.md): its sizes, and the decoder that reference kernels read
// it through. Every device whose class ends in "p16" holds weights so.
#ifndef PLM_PANEL_LAYOUT_H
#define PLM_PANEL_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "backends/panel/half.h"
#include "kernels/abi.h"

#define PLM_PANEL_ROWS 16

// Sizes of one panel of a type. block: inputs that share a scale record.
struct plm_panel_type {
    uint16_t block;       // 1, 32 or 256
    uint16_t file_bytes;  // of one block of one row in the file
    uint16_t scale_bytes; // scale record of 16 rows
    uint16_t quant_bytes; // quants of 16 rows and min(block, 32) inputs
};

// Whether the type can be a weight; fills ret.
static inline bool plm_panel_type_of(uint32_t type, struct plm_panel_type *ret)
{
    switch (type) {
    case PLM_TYPE_F32: *ret = (struct plm_panel_type){1, 4, 0, 64}; return true;
    case PLM_TYPE_F16:
    case PLM_TYPE_BF16: *ret = (struct plm_panel_type){1, 2, 0, 32}; return true;
    case PLM_TYPE_Q8_0: *ret = (struct plm_panel_type){32, 34, 32, 512}; return true;
    case PLM_TYPE_Q4_0: *ret = (struct plm_panel_type){32, 18, 32, 256}; return true;
    case PLM_TYPE_Q4_1: *ret = (struct plm_panel_type){32, 20, 64, 256}; return true;
    case PLM_TYPE_Q4_K: *ret = (struct plm_panel_type){256, 144, 320, 256}; return true;
    case PLM_TYPE_Q6_K: *ret = (struct plm_panel_type){256, 210, 288, 384}; return true;
    default: return false;
    }
}

// Where the areas of a panel lie.
struct plm_panel {
    uint64_t panel_bytes;
    uint64_t quant_offset; // of the quant area from the panel's start
    uint32_t scale_bytes;
    uint32_t quant_bytes;
    uint32_t block;
};

static inline struct plm_panel plm_panel_of(uint32_t type, uint32_t n_in)
{
    struct plm_panel_type t = {1, 0, 0, 0};
    plm_panel_type_of(type, &t);
    struct plm_panel p = {0, 0, t.scale_bytes, t.quant_bytes, t.block};
    uint64_t steps = t.block == 1 ? n_in : n_in / 32;
    p.quant_offset = ((uint64_t)(n_in / t.block) * t.scale_bytes + 63) / 64 * 64;
    p.panel_bytes = p.quant_offset + (steps * t.quant_bytes + 63) / 64 * 64;
    return p;
}

static inline uint16_t plm_load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

// Code of element k (0 .. 31) of a lane in a block of 4-bit quants.
static inline uint32_t plm_panel_q4(const uint8_t *quants, uint32_t lane, uint32_t k)
{
    uint32_t byte = quants[(k / 4 % 4) * 64 + lane * 4 + k % 4];
    return k < 16 ? byte & 15 : byte >> 4;
}

static inline uint32_t plm_panel_q6(const uint8_t *quants, uint32_t lane, uint32_t k)
{
    uint32_t g = k / 4;
    uint32_t high = quants[256 + (g / 4) * 64 + lane * 4 + k % 4] >> (g % 4 * 2);
    return plm_panel_q4(quants, lane, k) | (high & 3) << 4;
}

// One block of 32 of one row as the matrix product sees it: value of element k =
// dw[k / 16] * q[k] + mw (dw is exact, so each value is rounded as layout.md says).
struct plm_row_block {
    int32_t q[32];
    float d;       // the factor of the float product
    int32_t sc[2]; // integer sub-scales (1 where there are none)
    float mw;
    bool has_mw;
};

// Reads block b (of 32 inputs) of a lane; panel points to the panel's first byte.
static inline void plm_panel_read(uint32_t type, const struct plm_panel *p, const uint8_t *panel,
                                  uint32_t lane, uint32_t b, struct plm_row_block *ret)
{
    const uint8_t *s = panel + (uint64_t)(b / (p->block / 32)) * p->scale_bytes;
    const uint8_t *q = panel + p->quant_offset + (uint64_t)b * p->quant_bytes;
    uint32_t sub = b % 8;
    float d = plm_f16_to_f32(plm_load_u16(s + lane * 2));
    *ret = (struct plm_row_block){.d = d, .sc = {1, 1}};
    switch (type) {
    case PLM_TYPE_Q8_0:
        for (uint32_t k = 0; k < 32; k++)
            ret->q[k] = (int32_t)q[(k / 4) * 64 + lane * 4 + k % 4] - 128;
        break;
    case PLM_TYPE_Q4_0:
        for (uint32_t k = 0; k < 32; k++)
            ret->q[k] = (int32_t)plm_panel_q4(q, lane, k) - 8;
        break;
    case PLM_TYPE_Q4_1:
    case PLM_TYPE_Q4_K:
        for (uint32_t k = 0; k < 32; k++)
            ret->q[k] = (int32_t)plm_panel_q4(q, lane, k);
        ret->has_mw = true;
        ret->mw = plm_f16_to_f32(plm_load_u16(s + 32 + lane * 2));
        if (type == PLM_TYPE_Q4_K) {
            ret->d = d * (float)s[64 + sub * 16 + lane];
            ret->mw = -(ret->mw * (float)s[192 + sub * 16 + lane]);
        }
        break;
    default: // PLM_TYPE_Q6_K
        for (uint32_t k = 0; k < 32; k++)
            ret->q[k] = (int32_t)plm_panel_q6(q, lane, k) - 32;
        for (uint32_t i = 0; i < 2; i++)
            ret->sc[i] = (int8_t)s[32 + (sub * 2 + i) * 16 + lane];
        break;
    }
}

// Decodes elements [k0, k0 + n) of a lane, which lie within one block of 32, to float32.
static inline void plm_panel_decode(uint32_t type, const struct plm_panel *p, const uint8_t *panel,
                                    uint32_t lane, uint32_t k0, uint32_t n, float *out)
{
    if (p->block == 1) {
        for (uint32_t k = 0; k < n; k++) {
            const uint8_t *e = panel + (uint64_t)(k0 + k) * p->quant_bytes;
            if (type == PLM_TYPE_F32)
                memcpy(&out[k], e + lane * 4, 4);
            else if (type == PLM_TYPE_F16)
                out[k] = plm_f16_to_f32(plm_load_u16(e + lane * 2));
            else
                out[k] = plm_bf16_to_f32(plm_load_u16(e + lane * 2));
        }
        return;
    }
    struct plm_row_block w;
    plm_panel_read(type, p, panel, lane, k0 / 32, &w);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t e = (k0 + k) % 32;
        out[k] = (w.d * (float)w.sc[e / 16]) * (float)w.q[e];
        if (w.has_mw)
            out[k] += w.mw;
    }
}

#endif
