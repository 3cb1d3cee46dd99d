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
    struct plm_panel_type t;
    if (!plm_panel_type_of(type, &t))
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

// Blocks of 32 whose scales (n_scales halves) come first; bias is xored into the codes.
static void pack_32(const struct plm_pack_row *r, uint32_t n_scales, uint32_t lines, uint32_t bias)
{
    uint32_t file_bytes = n_scales * 2 + lines * 4;
    for (uint32_t b = 0; b < r->n_in / 32; b++) {
        const uint8_t *src = r->src + (uint64_t)b * file_bytes;
        uint8_t *scales = r->panel + (uint64_t)b * r->p.scale_bytes + r->lane * 2;
        uint8_t *quants = r->panel + r->p.quant_offset + (uint64_t)b * r->p.quant_bytes;
        for (uint32_t i = 0; i < n_scales; i++)
            memcpy(scales + i * 32, src + i * 2, 2);
        // A line's 4 bytes of a lane are 4 neighbouring bytes of the file for Q8_0 and, because
        // the file too pairs inputs k and k + 16 in one byte, for Q4_0 and Q4_1.
        for (uint32_t line = 0; line < lines; line++) {
            uint32_t word;
            memcpy(&word, src + n_scales * 2 + line * 4, 4);
            word ^= bias;
            memcpy(quants + line * 64 + r->lane * 4, &word, 4);
        }
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

// Block of 256 in the file: f16 d, f16 dmin, 12 bytes with 8 scales and 8 minima of 6 bits, then
// 4 runs of 32 bytes with the sub-blocks 2c (low nibbles) and 2c + 1 (high nibbles).
static void pack_q4_k(const struct plm_pack_row *r)
{
    for (uint32_t b = 0; b < r->n_in / 256; b++) {
        const uint8_t *src = r->src + (uint64_t)b * 144, *packed = src + 4, *codes = src + 16;
        uint8_t *s = r->panel + (uint64_t)b * r->p.scale_bytes;
        memcpy(s + r->lane * 2, src, 2);
        memcpy(s + 32 + r->lane * 2, src + 2, 2);
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t sc, mn;
            if (j < 4) {
                sc = packed[j] & 63u;
                mn = packed[j + 4] & 63u;
            } else { // the top 2 bits lie above the codes of sub-blocks j - 4
                sc = (packed[j + 4] & 15u) | (uint32_t)(packed[j - 4] >> 6) << 4;
                mn = (uint32_t)(packed[j + 4] >> 4) | (uint32_t)(packed[j] >> 6) << 4;
            }
            s[64 + j * 16 + r->lane] = (uint8_t)sc;
            s[192 + j * 16 + r->lane] = (uint8_t)mn;
            uint8_t *quants =
                r->panel + r->p.quant_offset + ((uint64_t)b * 8 + j) * r->p.quant_bytes;
            for (uint32_t line = 0; line < 4; line++) {
                uint32_t first = load_word(codes + j / 2 * 32 + line * 4) >> (j % 2 * 4);
                uint32_t second = load_word(codes + j / 2 * 32 + 16 + line * 4) >> (j % 2 * 4);
                store_word(quants + line * 64 + r->lane * 4,
                           (first & 0x0f0f0f0fu) | (second & 0x0f0f0f0fu) << 4);
            }
        }
    }
}

// Block of 256 in the file: 128 bytes of low 4 bits, 64 bytes of high 2 bits, 16 int8 scales,
// f16 d. Each half of 128 inputs has four runs of 32: runs 0 and 1 are the low nibbles of its 64
// bytes, runs 2 and 3 the high ones; bits 2i of its 32 high bytes belong to run i.
static void pack_q6_k(const struct plm_pack_row *r)
{
    for (uint32_t b = 0; b < r->n_in / 256; b++) {
        const uint8_t *src = r->src + (uint64_t)b * 210;
        uint8_t *s = r->panel + (uint64_t)b * r->p.scale_bytes;
        memcpy(s + r->lane * 2, src + 208, 2);
        for (uint32_t i = 0; i < 16; i++)
            s[32 + i * 16 + r->lane] = src[192 + i];
        for (uint32_t j = 0; j < 8; j++) {
            const uint8_t *low = src + j / 4 * 64 + j % 2 * 32;
            const uint8_t *high = src + 128 + j / 4 * 32;
            uint32_t run = j % 4;
            uint8_t *quants = r->panel + r->p.quant_offset +
                              ((uint64_t)b * 8 + j) * r->p.quant_bytes + r->lane * 4;
            uint32_t top[2] = {0, 0};
            for (uint32_t line = 0; line < 4; line++) {
                uint32_t first = load_word(low + line * 4) >> (run / 2 * 4) & 0x0f0f0f0fu;
                uint32_t second = load_word(low + 16 + line * 4) >> (run / 2 * 4) & 0x0f0f0f0fu;
                store_word(quants + line * 64, first | second << 4);
                for (uint32_t i = 0; i < 2; i++)
                    top[i] |= (load_word(high + i * 16 + line * 4) >> (run * 2) & 0x03030303u)
                              << (line * 2);
            }
            store_word(quants + 256, top[0]);
            store_word(quants + 320, top[1]);
        }
    }
}

void plm_panel_weight_pack(enum plm_type type, uint32_t n_in, uint32_t n_out, uint32_t first,
                           uint32_t rows, const void *src, void *dst)
{
    (void)n_out; // a panel is padded whether or not it is the last one,
    (void)first; // and lies alike wherever it stands
    struct plm_panel_type t = {1, 0, 0, 0};
    plm_panel_type_of(type, &t);
    struct plm_panel p = plm_panel_of(type, n_in);
    uint64_t row_bytes = (uint64_t)(n_in / t.block) * t.file_bytes;
    for (uint32_t i = 0; i < rows; i++) {
        uint8_t *panel = (uint8_t *)dst + i / PLM_PANEL_ROWS * p.panel_bytes;
        // Padding rows of the last panel, and the bytes that round an area up, are zero.
        if (i % PLM_PANEL_ROWS == 0)
            memset(panel, 0, p.panel_bytes);
        struct plm_pack_row r = {(const uint8_t *)src + i * row_bytes, panel, i % PLM_PANEL_ROWS,
                                 n_in, p};
        switch (type) {
        case PLM_TYPE_Q8_0: pack_32(&r, 1, 8, 0x80808080u); break;
        case PLM_TYPE_Q4_0: pack_32(&r, 1, 4, 0); break;
        case PLM_TYPE_Q4_1: pack_32(&r, 2, 4, 0); break;
        case PLM_TYPE_Q4_K: pack_q4_k(&r); break;
        case PLM_TYPE_Q6_K: pack_q6_k(&r); break;
        default: pack_plain(&r, type == PLM_TYPE_F32 ? 4 : 2); break;
        }
    }
}
