// SPDX-License-Identifier: Apache-2.0
// Re-lays weights from the order of the file to panels of 16 rows (kernels/layout.md).
#include "backends/panel/pack.h"

#include <string.h>

#include "backends/panel/layout.h"
#include "core/base/checked.h"

// A row in the file, and where its codes go.
struct plm_pack_row {
    const uint8_t *src; // first block of the row
    uint8_t *panel;
    uint32_t lane;
    uint32_t n_in;
    struct plm_panel p;
};

int plm_panel_weight_layout(enum plm_type type, uint32_t n_in, uint32_t n_out,
                            struct plm_weight_layout *ret)
{
    const struct plm_panel_type t = plm_panel_type(type);
    if (t.block == 0)
        return PLM_ERR_UNSUPPORTED;
    if (n_in == 0 || n_out == 0 || n_in % t.block != 0)
        return PLM_ERR_INVALID;
    uint64_t row_bytes = (uint64_t)(n_in / t.block) * t.file_bytes;
    uint64_t panels = ((uint64_t)n_out + PLM_PANEL_ROWS - 1) / PLM_PANEL_ROWS;
    uint64_t panel_bytes = plm_panel_of(type, n_in).panel_bytes;
    uint64_t bytes;
    if (row_bytes > UINT32_MAX || !plm_mul_u64(panels, panel_bytes, &bytes) || bytes > INT64_MAX)
        return PLM_ERR_INVALID;
    *ret = (struct plm_weight_layout){.bytes = bytes,
                                      .step_bytes = panel_bytes,
                                      .row_step = PLM_PANEL_ROWS,
                                      .row_bytes_in = (uint32_t)row_bytes};
    return PLM_OK;
}

static void pack_plain(const struct plm_pack_row *r, uint32_t elem_bytes)
{
    for (uint32_t k = 0; k < r->n_in; k++) {
        uint8_t *dst = r->panel + ((uint64_t)k * PLM_PANEL_ROWS + r->lane) * elem_bytes;
        memcpy(dst, r->src + (uint64_t)k * elem_bytes, elem_bytes);
    }
}

// Four neighbouring codes of a lane are one 32-bit word, in the file as in a line.
static inline uint32_t load_word(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static inline void store_word(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, 4);
}

// ---- from the file ----

// Each unpacker reads one block of 32 of the file, the j-th of its block of 256 where the type has
// such: the codes of inputs 4g .. 4g+3 as the bytes of groups[g].
typedef void unpack_fn(const uint8_t *src, uint32_t j, uint32_t groups[8]);

// 16 bytes whose low nibbles are inputs 0 .. 15 and whose high ones are 16 .. 31.
static void unpack_nibbles(const uint8_t *q, uint32_t groups[8])
{
    for (uint32_t g = 0; g < 4; g++) {
        const uint32_t word = load_word(q + g * 4);
        groups[g] = word & 0x0f0f0f0fu;
        groups[g + 4] = word >> 4 & 0x0f0f0f0fu;
    }
}

static void unpack_q8_0(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    (void)j;
    for (uint32_t g = 0; g < 8; g++)
        groups[g] = load_word(src + 2 + g * 4) ^ 0x80808080u;
}

static void unpack_q4_0(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    (void)j;
    unpack_nibbles(src + 2, groups);
}

static void unpack_q4_1(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    (void)j;
    unpack_nibbles(src + 4, groups);
}

// 4 runs of 32 bytes with the sub-blocks 2c (low nibbles) and 2c + 1 (high nibbles).
static void unpack_runs(const uint8_t *q, uint32_t j, uint32_t groups[8])
{
    for (uint32_t g = 0; g < 8; g++)
        groups[g] = load_word(q + j / 2 * 32 + g * 4) >> (j % 2 * 4) & 0x0f0f0f0fu;
}

// Block of 256: f16 d, f16 dmin, 12 bytes of scales and minima, then the runs.
static void unpack_q4_k(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    unpack_runs(src + 16, j, groups);
}

// Block of 256: 128 bytes of low 4 bits, 64 bytes of high 2 bits, 16 int8 scales, f16 d. Each half
// of 128 inputs has four runs of 32: runs 0 and 1 are the low nibbles of its 64 bytes, runs 2 and 3
// the high ones; bits 2i of its 32 high bytes belong to run i.
static void unpack_q6_k(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    const uint8_t *low = src + j / 4 * 64 + j % 2 * 32, *high = src + 128 + j / 4 * 32;
    const uint32_t run = j % 4;
    for (uint32_t g = 0; g < 8; g++)
        groups[g] = (load_word(low + g * 4) >> (run / 2 * 4) & 0x0f0f0f0fu) |
                    (load_word(high + g * 4) >> (run * 2) & 0x03030303u) << 4;
}

// ---- to a panel ----

// Stores the codes of a block of 32 inputs of a row; quants: of the block, moved to the lane.
static inline void store_codes(uint8_t codes, const uint32_t groups[8], uint8_t *quants)
{
    if (codes == PLM_CODES_BYTES) {
        for (uint32_t g = 0; g < 8; g++)
            store_word(quants + g * 64, groups[g]);
        return;
    }
    for (uint32_t g = 0; g < 4; g++)
        store_word(quants + g * 64, (groups[g] & 0x0f0f0f0fu) | (groups[g + 4] & 0x0f0f0f0fu) << 4);
    if (codes == PLM_CODES_NIBBLES_2)
        for (uint32_t h = 0; h < 2; h++) {
            uint32_t high = 0;
            for (uint32_t t = 0; t < 4; t++)
                high |= (groups[h * 4 + t] >> 4 & 0x03030303u) << t * 2;
            store_word(quants + 256 + h * 64, high);
        }
}

// 12 bytes with 8 scales and 8 minima of 6 bits.
static void store_k_scales(const uint8_t *packed, uint8_t *s, uint32_t lane)
{
    for (uint32_t j = 0; j < 8; j++) {
        uint32_t sc, mn;
        if (j < 4) {
            sc = packed[j] & 63u;
            mn = packed[j + 4] & 63u;
        } else { // the top 2 bits lie above the codes of sub-blocks j - 4
            sc = (packed[j + 4] & 15u) | (uint32_t)(packed[j - 4] >> 6) << 4;
            mn = (uint32_t)(packed[j + 4] >> 4) | (uint32_t)(packed[j] >> 6) << 4;
        }
        s[64 + j * 16 + lane] = (uint8_t)sc;
        s[192 + j * 16 + lane] = (uint8_t)mn;
    }
}

// Stores the scales of a block of the file (src) into its record.
static void store_scales(uint8_t scales, const uint8_t *src, uint8_t *record, uint32_t lane)
{
    switch (scales) {
    case PLM_SCALES_D_M:
    case PLM_SCALES_D_M_SUB:
        memcpy(record + lane * 2, src, 2);
        memcpy(record + 32 + lane * 2, src + 2, 2);
        if (scales == PLM_SCALES_D_M_SUB)
            store_k_scales(src + 4, record, lane);
        break;
    case PLM_SCALES_D_HALVES:
        memcpy(record + lane * 2, src + 208, 2);
        for (uint32_t i = 0; i < 16; i++)
            record[32 + i * 16 + lane] = src[192 + i];
        break;
    default: memcpy(record + lane * 2, src, 2); break; // PLM_SCALES_D
    }
}

// A row of blocks. Inlined once per type, so that its words are constants.
static inline __attribute__((always_inline)) void pack_blocks(enum plm_type type, unpack_fn *unpack,
                                                              const struct plm_pack_row *r)
{
    const struct plm_panel_type t = plm_panel_type(type);
    uint8_t *quants = r->panel + r->p.quant_offset + r->lane * 4;
    for (uint32_t b = 0; b < r->n_in / t.block; b++) {
        const uint8_t *src = r->src + (uint64_t)b * t.file_bytes;
        store_scales(t.scales, src, r->panel + (uint64_t)b * t.scale_bytes, r->lane);
        for (uint32_t j = 0; j < t.block / 32u; j++, quants += t.quant_bytes) {
            uint32_t groups[8];
            unpack(src, j, groups);
            store_codes(t.codes, groups, quants);
        }
    }
}

void plm_panel_weight_pack(enum plm_type type, uint32_t n_in, uint32_t n_out, uint32_t first,
                           uint32_t rows, const void *src, void *dst)
{
    (void)n_out; // a panel is padded whether or not it is the last one,
    (void)first; // and lies alike wherever it stands
    const struct plm_panel_type t = plm_panel_type(type);
    const struct plm_panel p = plm_panel_of(type, n_in);
    uint64_t row_bytes = (uint64_t)(n_in / t.block) * t.file_bytes;
    for (uint32_t i = 0; i < rows; i++) {
        uint8_t *panel = (uint8_t *)dst + i / PLM_PANEL_ROWS * p.panel_bytes;
        // Padding rows of the last panel, and the bytes that round an area up, are zero.
        if (i % PLM_PANEL_ROWS == 0)
            memset(panel, 0, p.panel_bytes);
        struct plm_pack_row r = {(const uint8_t *)src + i * row_bytes, panel, i % PLM_PANEL_ROWS,
                                 n_in, p};
        switch (type) {
        case PLM_TYPE_Q8_0: pack_blocks(PLM_TYPE_Q8_0, unpack_q8_0, &r); break;
        case PLM_TYPE_Q4_0: pack_blocks(PLM_TYPE_Q4_0, unpack_q4_0, &r); break;
        case PLM_TYPE_Q4_1: pack_blocks(PLM_TYPE_Q4_1, unpack_q4_1, &r); break;
        case PLM_TYPE_Q4_K: pack_blocks(PLM_TYPE_Q4_K, unpack_q4_k, &r); break;
        case PLM_TYPE_Q6_K: pack_blocks(PLM_TYPE_Q6_K, unpack_q6_k, &r); break;
        default: pack_plain(&r, t.file_bytes); break;
        }
    }
}
