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

// A type as kernels/types.def describes it, and the sizes of its panels.
struct plm_panel_type {
    uint16_t block;       // inputs that share a scale record: 1, 32 or 256; 0: no type of weights
    uint16_t file_bytes;  // of one block of one row in the file
    uint16_t scale_bytes; // scale record of 16 rows
    uint16_t quant_bytes; // quants of 16 rows and min(block, 32) inputs
    uint8_t codes;        // PLM_CODES_x
    uint8_t values;       // PLM_VALUES_x
    uint8_t scales;       // PLM_SCALES_x
    uint8_t backends;     // PLM_BACKENDS_x
    int32_t zero;         // what is taken from the value of a code
};

// Always inlined: where the type is a constant, so are all its words.
static inline __attribute__((always_inline)) struct plm_panel_type plm_panel_type(uint32_t type)
{
    switch (type) {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    case PLM_TYPE_##NAME:                                                                          \
        return (struct plm_panel_type){PLM_BACKENDS_##BACKENDS != PLM_BACKENDS_NONE ? block : 0,   \
                                       bytes,                                                      \
                                       PLM_SCALE_BYTES_##SCALES,                                   \
                                       PLM_CODES_##CODES == PLM_CODES_ELEMENTS                     \
                                           ? PLM_PANEL_ROWS * bytes                                \
                                           : PLM_CODES_##CODES * 64,                               \
                                       PLM_CODES_##CODES,                                          \
                                       PLM_VALUES_##VALUES,                                        \
                                       PLM_SCALES_##SCALES,                                        \
                                       PLM_BACKENDS_##BACKENDS,                                    \
                                       zero};
#include "kernels/types.def"
    default: return (struct plm_panel_type){.block = 0};
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
    const struct plm_panel_type t = plm_panel_type(type);
    struct plm_panel p = {0, 0, t.scale_bytes, t.quant_bytes, t.block};
    if (t.block == 0)
        return p;
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

// Code of element k (0 .. 31) of a lane in a block of 32; codes: PLM_CODES_x.
static inline uint32_t plm_panel_code(uint8_t codes, const uint8_t *quants, uint32_t lane,
                                      uint32_t k)
{
    const uint32_t g = k / 4;
    const uint8_t *line = quants + lane * 4 + k % 4;
    switch (codes) {
    case PLM_CODES_BYTES: return line[g * 64];
    case PLM_CODES_PAIRS: return line[g / 4 * 64] >> g % 4 * 2 & 3;
    case PLM_CODES_PAIRS_1:
        return (line[g / 4 * 64] >> g % 4 * 2 & 3u) | (line[128] >> g & 1u) << 2;
    default: break;
    }
    const uint32_t low = line[g % 4 * 64] >> (g & 4) & 15;
    if (codes == PLM_CODES_NIBBLES_1)
        return low | (line[256] >> g & 1u) << 4;
    if (codes == PLM_CODES_NIBBLES_2)
        return low | (line[256 + g / 4 * 64] >> g % 4 * 2 & 3u) << 4;
    return low;
}

// What a code stands for, before the type's zero is taken from it; values: PLM_VALUES_x.
static inline int32_t plm_panel_value(uint8_t values, uint32_t code)
{
    static const uint32_t iq4[] = {PLM_LEVELS_IQ4}, e2m1[] = {PLM_LEVELS_E2M1};
    if (values == PLM_VALUES_LINEAR)
        return (int32_t)code;
    const uint32_t *levels = values == PLM_VALUES_IQ4 ? iq4 : e2m1;
    return (int32_t)(levels[code / 4] >> code % 4 * 8 & 0xffu);
}

// One block of 32 of one row as the matrix product sees it: value of element k =
// (d * sc[k / 16]) * q[k] + mw * mn[k / 16]. The products with sc and mn are exact, so each value
// is rounded as layout.md says.
struct plm_row_block {
    int32_t q[32];
    float d, mw;          // the factors of the float product
    int32_t sc[2], mn[2]; // integer factors (1 where there are none)
    bool has_mw;
};

// Fills in the scales of block b (of 32 inputs) of a lane; s points to the block's scale record.
static inline void plm_panel_scales(uint8_t scales, const uint8_t *s, uint32_t lane, uint32_t b,
                                    struct plm_row_block *ret)
{
    const uint32_t sub = b % 8;
    ret->d = scales == PLM_SCALES_E8M0 ? plm_e8m0_half(s[lane])
                                       : plm_f16_to_f32(plm_load_u16(s + lane * 2));
    ret->sc[0] = ret->sc[1] = ret->mn[0] = ret->mn[1] = 1;
    ret->has_mw = PLM_SCALES_HAVE_M(scales) || scales == PLM_SCALES_D_M_HALVES;
    ret->mw = ret->has_mw ? plm_f16_to_f32(plm_load_u16(s + 32 + lane * 2)) : 0.0f;
    switch (scales) {
    case PLM_SCALES_D_M_SUB:
        ret->d *= (float)s[64 + sub * 16 + lane];
        ret->mw = -(ret->mw * (float)s[192 + sub * 16 + lane]);
        break;
    case PLM_SCALES_D_SUB: ret->d *= (float)(int8_t)s[32 + sub * 16 + lane]; break;
    case PLM_SCALES_D_HALVES:
        for (uint32_t h = 0; h < 2; h++)
            ret->sc[h] = (int8_t)s[32 + (sub * 2 + h) * 16 + lane];
        break;
    case PLM_SCALES_D_M_HALVES:
        ret->mw = -ret->mw;
        for (uint32_t h = 0; h < 2; h++) {
            const uint8_t both = s[64 + (sub * 2 + h) * 16 + lane];
            ret->sc[h] = both & 15;
            ret->mn[h] = both >> 4;
        }
        break;
    default: break;
    }
}

// Reads block b (of 32 inputs) of a lane; panel points to the panel's first byte.
static inline void plm_panel_read(uint32_t type, const struct plm_panel *p, const uint8_t *panel,
                                  uint32_t lane, uint32_t b, struct plm_row_block *ret)
{
    const struct plm_panel_type t = plm_panel_type(type);
    const uint8_t *s = panel + (uint64_t)(b / (p->block / 32)) * p->scale_bytes;
    const uint8_t *q = panel + p->quant_offset + (uint64_t)b * p->quant_bytes;
    plm_panel_scales(t.scales, s, lane, b, ret);
    for (uint32_t k = 0; k < 32; k++)
        ret->q[k] = plm_panel_value(t.values, plm_panel_code(t.codes, q, lane, k)) - t.zero;
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
            out[k] += w.mw * (float)w.mn[e / 16];
    }
}

#endif
