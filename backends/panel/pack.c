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

// Bits 4g .. 4g+3 of 32, each above the nibble of its input.
static void unpack_fifth_bits(const uint8_t *qh, uint32_t groups[8])
{
    const uint32_t bits = load_word(qh);
    for (uint32_t g = 0; g < 8; g++) // the product moves bit i of four to the bottom of byte i
        groups[g] |= ((bits >> g * 4 & 15u) * 0x00204081u & 0x01010101u) << 4;
}

// f16 d, 32 fifth bits, nibbles; Q5_1: f16 d, f16 m before them.
static void unpack_q5_0(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    (void)j;
    unpack_nibbles(src + 6, groups);
    unpack_fifth_bits(src + 2, groups);
}

static void unpack_q5_1(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    (void)j;
    unpack_nibbles(src + 8, groups);
    unpack_fifth_bits(src + 4, groups);
}

// u8 e, nibbles.
static void unpack_mxfp4(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    (void)j;
    unpack_nibbles(src + 1, groups);
}

// As Q4_K, with 32 bytes before the runs whose bits j are the fifth bits of sub-block j.
static void unpack_q5_k(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    unpack_runs(src + 48, j, groups);
    for (uint32_t g = 0; g < 8; g++)
        groups[g] |= (load_word(src + 16 + g * 4) >> j & 0x01010101u) << 4;
}

// Two halves of 32 bytes, each with four runs: bits 2i of its bytes are run i.
static void unpack_pairs(const uint8_t *q, uint32_t j, uint32_t groups[8])
{
    for (uint32_t g = 0; g < 8; g++)
        groups[g] = load_word(q + j / 4 * 32 + g * 4) >> j % 4 * 2 & 0x03030303u;
}

// Block of 256: 16 bytes of scales and minima, 64 bytes of codes, f16 d, f16 dmin.
static void unpack_q2_k(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    unpack_pairs(src + 16, j, groups);
}

// Block of 256: 32 bytes whose bits j are the third bits of sub-block j, 64 bytes with the others,
// 12 bytes of scales, f16 d.
static void unpack_q3_k(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    unpack_pairs(src + 32, j, groups);
    for (uint32_t g = 0; g < 8; g++)
        groups[g] |= (load_word(src + g * 4) >> j & 0x01010101u) << 2;
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

// Block of 256: f16 d, the high 2 bits of 8 scales, their low 4 bits, 8 blocks of nibbles.
static void unpack_iq4_xs(const uint8_t *src, uint32_t j, uint32_t groups[8])
{
    unpack_nibbles(src + 8 + j * 16, groups);
}

// ---- to a panel ----

// Bits `from` and up of the codes, which are `width` wide, of n groups next to each other.
static inline uint32_t gather(const uint32_t *groups, uint32_t n, uint32_t from, uint32_t width)
{
    const uint32_t mask = width == 1 ? 0x01010101u : 0x03030303u;
    uint32_t word = 0;
    for (uint32_t t = 0; t < n; t++)
        word |= (groups[t] >> from & mask) << t * width;
    return word;
}

// Stores the codes of a block of 32 inputs of a row; quants: of the block, moved to the lane.
static inline void store_codes(uint8_t codes, const uint32_t groups[8], uint8_t *quants)
{
    if (codes == PLM_CODES_BYTES) {
        for (uint32_t g = 0; g < 8; g++)
            store_word(quants + g * 64, groups[g]);
        return;
    }
    if (codes == PLM_CODES_PAIRS || codes == PLM_CODES_PAIRS_1) {
        for (uint32_t h = 0; h < 2; h++)
            store_word(quants + h * 64, gather(groups + h * 4, 4, 0, 2));
        if (codes == PLM_CODES_PAIRS_1)
            store_word(quants + 128, gather(groups, 8, 2, 1));
        return;
    }
    for (uint32_t g = 0; g < 4; g++)
        store_word(quants + g * 64, (groups[g] & 0x0f0f0f0fu) | (groups[g + 4] & 0x0f0f0f0fu) << 4);
    if (codes == PLM_CODES_NIBBLES_1)
        store_word(quants + 256, gather(groups, 8, 4, 1));
    if (codes == PLM_CODES_NIBBLES_2)
        for (uint32_t h = 0; h < 2; h++)
            store_word(quants + 256 + h * 64, gather(groups + h * 4, 4, 4, 2));
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

// 12 bytes with 16 scales of 6 bits, 32 too large: their low 4 bits in the nibbles of 8 bytes, the
// others in pairs of bits of 4.
static void store_q3_scales(const uint8_t *packed, uint8_t *s, uint32_t lane)
{
    for (uint32_t i = 0; i < 16; i++) {
        const int32_t low = packed[i % 8] >> i / 8 * 4 & 15;
        const int32_t high = packed[8 + i % 4] >> i / 4 * 2 & 3;
        s[32 + i * 16 + lane] = (uint8_t)(low + high * 16 - 32);
    }
}

// Stores the scales of a block of the file (src) into its record.
static inline void store_scales(enum plm_type type, const uint8_t *src, uint8_t *record,
                                uint32_t lane)
{
    // Where the file has d; m or dmin follows it.
    const uint8_t *d = src + (type == PLM_TYPE_Q6_K   ? 208
                              : type == PLM_TYPE_Q3_K ? 108
                              : type == PLM_TYPE_Q2_K ? 80
                                                      : 0);
    const uint8_t scales = plm_panel_type(type).scales;
    if (scales == PLM_SCALES_E8M0) {
        record[lane] = src[0];
        return;
    }
    memcpy(record + lane * 2, d, 2);
    if (PLM_SCALES_HAVE_M(scales) || scales == PLM_SCALES_D_M_HALVES)
        memcpy(record + 32 + lane * 2, d + 2, 2);
    if (scales == PLM_SCALES_D_M_SUB)
        store_k_scales(src + 4, record, lane);
    if (scales == PLM_SCALES_D_M_HALVES)
        for (uint32_t i = 0; i < 16; i++)
            record[64 + i * 16 + lane] = src[i];
    if (scales == PLM_SCALES_D_SUB)
        for (uint32_t j = 0; j < 8; j++) {
            const int32_t low = src[4 + j / 2] >> j % 2 * 4 & 15;
            const int32_t high = src[2 + j / 4] >> j % 4 * 2 & 3;
            record[32 + j * 16 + lane] = (uint8_t)(low + high * 16 - 32);
        }
    if (type == PLM_TYPE_Q3_K)
        store_q3_scales(src + 96, record, lane);
    if (type == PLM_TYPE_Q6_K)
        for (uint32_t i = 0; i < 16; i++)
            record[32 + i * 16 + lane] = src[192 + i];
}

// A row of blocks. Inlined once per type, so that its words are constants.
static inline __attribute__((always_inline)) void pack_blocks(enum plm_type type, unpack_fn *unpack,
                                                              const struct plm_pack_row *r)
{
    const struct plm_panel_type t = plm_panel_type(type);
    uint8_t *quants = r->panel + r->p.quant_offset + r->lane * 4;
    for (uint32_t b = 0; b < r->n_in / t.block; b++) {
        const uint8_t *src = r->src + (uint64_t)b * t.file_bytes;
        store_scales(type, src, r->panel + (uint64_t)b * t.scale_bytes, r->lane);
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
        case PLM_TYPE_Q5_0: pack_blocks(PLM_TYPE_Q5_0, unpack_q5_0, &r); break;
        case PLM_TYPE_Q5_1: pack_blocks(PLM_TYPE_Q5_1, unpack_q5_1, &r); break;
        case PLM_TYPE_Q2_K: pack_blocks(PLM_TYPE_Q2_K, unpack_q2_k, &r); break;
        case PLM_TYPE_Q3_K: pack_blocks(PLM_TYPE_Q3_K, unpack_q3_k, &r); break;
        case PLM_TYPE_Q5_K: pack_blocks(PLM_TYPE_Q5_K, unpack_q5_k, &r); break;
        case PLM_TYPE_Q6_K: pack_blocks(PLM_TYPE_Q6_K, unpack_q6_k, &r); break;
        case PLM_TYPE_IQ4_NL: pack_blocks(PLM_TYPE_IQ4_NL, unpack_q4_0, &r); break;
        case PLM_TYPE_IQ4_XS: pack_blocks(PLM_TYPE_IQ4_XS, unpack_iq4_xs, &r); break;
        case PLM_TYPE_MXFP4: pack_blocks(PLM_TYPE_MXFP4, unpack_mxfp4, &r); break;
        default: pack_plain(&r, t.file_bytes); break;
        }
    }
}
