// SPDX-License-Identifier: Apache-2.0
// matmul over the vectors of a vec_*.h, which is included before. A register tile is VL outputs by
// `rows` activation rows: the codes of a block are unpacked once per tile. `type` and `rows` are
// constants at every call, so each instance is straight code.
#include "backends/cpu/fn.h"
#include "backends/cpu/rows.h"
#include "backends/panel/layout.h"

#define HALF_BIAS(a, b) ((uint32_t)(uint16_t)(a) | (uint32_t)(uint16_t)(b) << 16)
#define EACH_ROW        VEC_UNROLL for (int r = 0; r < rows; r++)

// Where the operands of one tile lie.
struct mm_tile {
    const uint8_t *scales; // scale area of the panel
    const uint8_t *quants; // quant area, moved to the first lane
    const uint8_t *x;      // first row
    uint64_t x_bytes;      // row stride
    uint32_t scale_bytes;
    uint32_t quant_bytes;
    uint32_t n_in;
    uint32_t lane; // first lane of the tile in the panel
};

// How far ahead quants are asked for, into the second-level cache. Panels follow each other in
// memory, so this runs on into the next one. Measured on a Sapphire Rapids core with the weights
// out of its caches: a fifth faster than the hardware's own prefetching, and 4 KiB nearly as good.
#define MM_PREFETCH_BYTES 8192

VEC_FN void mm_prefetch(const uint8_t *q, const int lines)
{
    VEC_UNROLL for (int i = 0; i < lines; i++)
        __builtin_prefetch(q + MM_PREFETCH_BYTES + i * 64, 0, 2);
}

// Codes of one line: low and high nibbles.
#define MM_LINES_4(X)                                                                              \
    VEC_UNROLL for (int line = 0; line < 4; line++)                                                \
    {                                                                                              \
        vi codes = vi_load(q + line * 64);                                                         \
        vi lo = vi_and(codes, 0x0f0f0f0fu), hi = vi_and(vi_shr(codes, 4), 0x0f0f0f0fu);            \
        EACH_ROW dot[r] = vd4_dot(dot[r], lo, X + line * 4);                                       \
        EACH_ROW dot[r] = vd4_dot(dot[r], hi, X + line * 4 + 16);                                  \
    }

// Q8_0, Q4_0, Q4_1, Q4_K: one integer dot product per block.
VEC_FN void mm_block(uint32_t type, const int rows, const struct mm_tile *t, uint32_t b, vf dw,
                     vf mw, vf *acc)
{
    const uint8_t *q = t->quants + (uint64_t)b * t->quant_bytes;
    const uint8_t *x = t->x + (uint64_t)b * PLM_ACT_Q8_BLOCK_BYTES;
    const uint64_t ld = t->x_bytes;
    vi dot[VEC_TILE];
    mm_prefetch(q, type == PLM_TYPE_Q8_0 ? 8 : 4);
    if (type == PLM_TYPE_Q8_0) {
        const uint32_t bias = HALF_BIAS(-128, -128);
        EACH_ROW dot[r] = vd8_start(bias, x + r * ld + PLM_ACT_Q8_S);
        VEC_UNROLL for (int line = 0; line < 8; line++)
        {
            vi codes = vi_load(q + line * 64);
            EACH_ROW dot[r] = vd8_dot(dot[r], codes, x + r * ld + line * 4);
        }
        EACH_ROW dot[r] = vd8_end(dot[r], bias, x + r * ld + PLM_ACT_Q8_S);
    } else {
        const uint32_t bias = type == PLM_TYPE_Q4_0 ? HALF_BIAS(-8, -8) : 0;
        EACH_ROW dot[r] = vd4_start(bias, x + r * ld + PLM_ACT_Q8_S);
        MM_LINES_4(x + r * ld)
        EACH_ROW dot[r] = vd4_end(dot[r], bias, x + r * ld + PLM_ACT_Q8_S);
    }
    EACH_ROW
    {
        float dx;
        memcpy(&dx, x + r * ld + PLM_ACT_Q8_D, 4);
        acc[r] = vf_fma(vf_from_i(dot[r]), vf_mul(dw, vf_set1(dx)), acc[r]);
    }
    if (type == PLM_TYPE_Q4_1 || type == PLM_TYPE_Q4_K)
        EACH_ROW
        {
            float ds;
            memcpy(&ds, x + r * ld + PLM_ACT_Q8_DS, 4);
            acc[r] = vf_fma(mw, vf_set1(ds), acc[r]);
        }
}

// Q6_K: two dot products of 16, each with its integer scale; the sum is exact in float.
VEC_FN void mm_block_q6(const int rows, const struct mm_tile *t, uint32_t b, vf d, vf sc0, vf sc1,
                        vf *acc)
{
    const uint8_t *q = t->quants + (uint64_t)b * t->quant_bytes;
    const uint8_t *x = t->x + (uint64_t)b * PLM_ACT_Q8_BLOCK_BYTES;
    const uint64_t ld = t->x_bytes;
    vf sum[VEC_TILE];
    mm_prefetch(q, 6);
    EACH_ROW sum[r] = d; // for compilers that do not see that h starts at 0
    VEC_UNROLL for (int h = 0; h < 2; h++)
    {
        const uint32_t bias = h == 0 ? HALF_BIAS(-32, 0) : HALF_BIAS(0, -32);
        vi dot[VEC_TILE], high = vi_load(q + 256 + h * 64);
        EACH_ROW dot[r] = vd6_start(bias, x + r * ld + PLM_ACT_Q8_S);
        VEC_UNROLL for (int line = 0; line < 4; line++)
        {
            vi low = vi_and(vi_shr(vi_load(q + line * 64), h * 4), 0x0f0f0f0fu);
            vi top = line < 2 ? vi_shl(high, 4 - line * 2) : vi_shr(high, line * 2 - 4);
            vi codes = vi_or(low, vi_and(top, 0x30303030u));
            EACH_ROW dot[r] = vd6_dot(dot[r], codes, x + r * ld + h * 16 + line * 4);
        }
        EACH_ROW
        {
            vf f = vf_from_i(vd6_end(dot[r], bias, x + r * ld + PLM_ACT_Q8_S));
            sum[r] = h == 0 ? vf_mul(f, sc0) : vf_fma(f, sc1, sum[r]);
        }
    }
    EACH_ROW
    {
        float dx;
        memcpy(&dx, x + r * ld + PLM_ACT_Q8_D, 4);
        acc[r] = vf_fma(sum[r], vf_mul(d, vf_set1(dx)), acc[r]);
    }
}

// Scales of block b as the float products need them; *mw only for types with an offset, *sc0 and
// *sc1 only for Q6_K.
VEC_FN void mm_scales(uint32_t type, const struct mm_tile *t, uint32_t b, vf *dw, vf *mw, vf *sc0,
                      vf *sc1)
{
    const bool super = type == PLM_TYPE_Q4_K || type == PLM_TYPE_Q6_K;
    const uint8_t *s = t->scales + (uint64_t)(super ? b / 8 : b) * t->scale_bytes;
    const uint32_t sub = b % 8;
    *dw = vf_load_f16(s + t->lane * 2);
    *mw = *sc0 = *sc1 = *dw;
    if (type == PLM_TYPE_Q4_1 || type == PLM_TYPE_Q4_K)
        *mw = vf_load_f16(s + 32 + t->lane * 2);
    if (type == PLM_TYPE_Q4_K) {
        *dw = vf_mul(*dw, vf_load_u8(s + 64 + sub * 16 + t->lane));
        *mw = vf_neg(vf_mul(*mw, vf_load_u8(s + 192 + sub * 16 + t->lane)));
    }
    if (type == PLM_TYPE_Q6_K) {
        *sc0 = vf_load_i8(s + 32 + sub * 32 + t->lane);
        *sc1 = vf_load_i8(s + 32 + sub * 32 + 16 + t->lane);
    }
}

// One tile of 8-bit activations over all of n_in.
VEC_FN void mm_tile_q8(uint32_t type, const int rows, const struct mm_tile *t, vf *acc)
{
    EACH_ROW acc[r] = vf_set1(0.0f);
    for (uint32_t b = 0; b < t->n_in / 32; b++) {
        vf dw, mw, sc0, sc1;
        mm_scales(type, t, b, &dw, &mw, &sc0, &sc1);
        if (type == PLM_TYPE_Q6_K)
            mm_block_q6(rows, t, b, dw, sc0, sc1, acc);
        else
            mm_block(type, rows, t, b, dw, mw, acc);
    }
}

VEC_FN void mm_fma_rows(const int rows, const struct mm_tile *t, uint32_t k, vf w, vf *acc)
{
    EACH_ROW
    {
        float x;
        memcpy(&x, t->x + r * t->x_bytes + (uint64_t)k * 4, 4);
        acc[r] = vf_fma(w, vf_set1(x), acc[r]);
    }
}

// Float activations, weights without blocks.
VEC_FN void mm_tile_plain(uint32_t type, const int rows, const struct mm_tile *t, vf *acc)
{
    EACH_ROW acc[r] = vf_set1(0.0f);
    for (uint32_t k = 0; k < t->n_in; k++) {
        const uint8_t *w = t->quants + (uint64_t)k * t->quant_bytes;
        mm_prefetch(w, 1);
        vf v = type == PLM_TYPE_F32   ? vf_load(w)
               : type == PLM_TYPE_F16 ? vf_load_f16(w)
                                      : vf_load_bf16(w);
        mm_fma_rows(rows, t, k, v, acc);
    }
}

// Float activations, quantised weights: each element is decoded in registers. (d * sc) * q is
// exact, so the fused form rounds as the decoder of layout.h does.
VEC_FN void mm_tile_decoded(uint32_t type, const int rows, const struct mm_tile *t, vf *acc)
{
    const bool offset = type == PLM_TYPE_Q4_1 || type == PLM_TYPE_Q4_K;
    const vf zero = vf_set1(type == PLM_TYPE_Q8_0 ? 128.0f : type == PLM_TYPE_Q4_0 ? 8.0f : 32.0f);
    EACH_ROW acc[r] = vf_set1(0.0f);
    for (uint32_t b = 0; b < t->n_in / 32; b++) {
        vf dw, mw, sc0, sc1;
        const uint8_t *q = t->quants + (uint64_t)b * t->quant_bytes;
        mm_scales(type, t, b, &dw, &mw, &sc0, &sc1);
        for (int g = 0; g < 8; g++) {
            vi codes = vi_load(q + (type == PLM_TYPE_Q8_0 ? g : g % 4) * 64);
            if (type != PLM_TYPE_Q8_0)
                codes = vi_and(vi_shr(codes, g / 4 * 4), 0x0f0f0f0fu);
            vf factor = dw;
            if (type == PLM_TYPE_Q6_K) {
                vi high = vi_shr(vi_load(q + 256 + g / 4 * 64), g % 4 * 2);
                codes = vi_or(codes, vi_shl(vi_and(high, 0x03030303u), 4));
                factor = vf_mul(dw, g < 4 ? sc0 : sc1);
            }
            VEC_UNROLL for (int i = 0; i < 4; i++)
            {
                vf code = vf_from_i(vi_and(vi_shr(codes, i * 8), 0xffu));
                vf w = offset ? vf_fma(factor, code, mw) : vf_mul(factor, vf_sub(code, zero));
                mm_fma_rows(rows, t, b * 32 + (uint32_t)(g * 4 + i), w, acc);
            }
        }
    }
}

// Adds bias and old contents and stores n outputs of each row.
VEC_FN void mm_store(const struct plm_matmul_args *a, const int rows, uint32_t row, uint32_t o,
                     const vf *acc)
{
    const uint32_t n = a->n_out - o < VL ? a->n_out - o : VL;
    EACH_ROW
    {
        float *dst = PLM_PTR(float, a->dst) + (uint64_t)(row + (uint32_t)r) * a->ld_dst + o;
        vf v = acc[r];
        if (a->bias != 0)
            v = vf_add(v, vf_load_first(PLM_PTR(const float, a->bias) + o, n));
        if (a->add)
            v = vf_add(v, vf_load_first(dst, n));
        vf_store_first(dst, v, n);
    }
}

// `rows` rows from `row` on times panels [begin, end).
VEC_FN void mm_rows(uint32_t type, bool q8, const int rows, const struct plm_matmul_args *a,
                    struct mm_tile *t, uint32_t row, uint32_t begin, uint32_t end)
{
    const struct plm_panel p = plm_panel_of(type, a->n_in);
    const uint32_t lane_bytes = p.block != 1 ? 4 : p.quant_bytes / PLM_PANEL_ROWS;
    t->x = PLM_PTR(const uint8_t, a->x) + row * t->x_bytes;
    for (uint32_t panel = begin; panel < end; panel++) {
        t->scales = PLM_PTR(const uint8_t, a->weight) + panel * p.panel_bytes;
        for (t->lane = 0; t->lane < PLM_PANEL_ROWS; t->lane += VL) {
            const uint32_t o = panel * PLM_PANEL_ROWS + t->lane;
            vf acc[VEC_TILE];
            if (o >= a->n_out)
                break;
            t->quants = t->scales + p.quant_offset + t->lane * lane_bytes;
            if (q8)
                mm_tile_q8(type, rows, t, acc);
            else if (type == PLM_TYPE_F32 || type == PLM_TYPE_F16 || type == PLM_TYPE_BF16)
                mm_tile_plain(type, rows, t, acc);
            else
                mm_tile_decoded(type, rows, t, acc);
            mm_store(a, rows, row, o, acc);
        }
    }
}

// Rows [row, last) times panels [begin, end), in register tiles.
VEC_FN void mm_range(uint32_t type, bool q8, const struct plm_matmul_args *a, struct mm_tile *t,
                     uint32_t row, uint32_t last, uint32_t begin, uint32_t end)
{
    for (; last - row >= VEC_TILE; row += VEC_TILE)
        mm_rows(type, q8, VEC_TILE, a, t, row, begin, end);
#if VEC_TILE > 4
    if (last - row >= 4) {
        mm_rows(type, q8, 4, a, t, row, begin, end);
        row += 4;
    }
#endif
    if (last - row >= 2) {
        mm_rows(type, q8, 2, a, t, row, begin, end);
        row += 2;
    }
    if (last - row >= 1)
        mm_rows(type, q8, 1, a, t, row, begin, end);
}

// Cache blocking of a product: chunk_bytes of activation rows stay in the second-level cache while
// the panels pass by, group_bytes of panels in the first-level cache while the rows pass by.
struct mm_blocking {
    uint32_t chunk_bytes;
    uint32_t group_bytes;
};

VEC_FN void mm_panels(uint32_t type, bool q8, const struct plm_matmul_args *a,
                      struct mm_blocking blocking, uint32_t begin, uint32_t end)
{
    const struct plm_panel p = plm_panel_of(type, a->n_in);
    struct mm_tile t = {.x_bytes = PLM_ACT_ROW_BYTES(a->act, a->n_in),
                        .scale_bytes = p.scale_bytes,
                        .quant_bytes = p.quant_bytes,
                        .n_in = a->n_in};
    uint64_t chunk = blocking.chunk_bytes / t.x_bytes / VEC_TILE * VEC_TILE;
    uint64_t group = blocking.group_bytes / p.panel_bytes;
    chunk = chunk < VEC_TILE ? VEC_TILE : chunk;
    group = group < 1 ? 1 : group;
    for (uint32_t row = 0; row < a->rows; row += (uint32_t)chunk) {
        uint32_t last = a->rows - row < chunk ? a->rows : row + (uint32_t)chunk;
        for (uint32_t panel = begin; panel < end; panel += (uint32_t)group)
            mm_range(type, q8, a, &t, row, last, panel,
                     end - panel < group ? end : panel + (uint32_t)group);
    }
}

#define MM_INSTANCE(TYPE)                                                                          \
    static __attribute__((noinline)) void mm_run_##TYPE(const struct plm_matmul_args *a,           \
                                                        struct mm_blocking blocking,               \
                                                        uint32_t begin, uint32_t end)              \
    {                                                                                              \
        mm_panels(PLM_TYPE_##TYPE, false, a, blocking, begin, end);                                \
    }
#define MM_INSTANCE_Q8(TYPE)                                                                       \
    static __attribute__((noinline)) void mm_run_##TYPE##_q8(const struct plm_matmul_args *a,      \
                                                             struct mm_blocking blocking,          \
                                                             uint32_t begin, uint32_t end)         \
    {                                                                                              \
        mm_panels(PLM_TYPE_##TYPE, true, a, blocking, begin, end);                                 \
    }
#define MM_BLOCK_TYPES(X) X(Q8_0) X(Q4_0) X(Q4_1) X(Q4_K) X(Q6_K)
#define MM_PLAIN_TYPES(X) X(F32) X(F16) X(BF16)
MM_BLOCK_TYPES(MM_INSTANCE)
MM_PLAIN_TYPES(MM_INSTANCE)
MM_BLOCK_TYPES(MM_INSTANCE_Q8)

static void mm_run(const struct plm_matmul_args *a, struct mm_blocking blocking, uint32_t begin,
                   uint32_t end)
{
#define MM_CASE(TYPE)                                                                              \
    case PLM_TYPE_##TYPE:                                                                          \
        mm_run_##TYPE(a, blocking, begin, end);                                                    \
        break;
#define MM_CASE_Q8(TYPE)                                                                           \
    case PLM_TYPE_##TYPE: mm_run_##TYPE##_q8(a, blocking, begin, end); break;
    if (a->act == PLM_ACT_Q8) {
        switch (a->type) {
            MM_BLOCK_TYPES(MM_CASE_Q8)
        default: break;
        }
    } else {
        switch (a->type) {
            MM_BLOCK_TYPES(MM_CASE)
            MM_PLAIN_TYPES(MM_CASE)
        default: break;
        }
    }
}

// For caches as most have them: 1 MiB and more of the second level, 32 KiB and more of the first.
void PLM_CPU_FN(matmul)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    mm_run(args, (struct mm_blocking){768u << 10, 24u << 10}, begin, end);
}

// For a second level of 256 or 512 KiB, or one that is shared with a busy neighbour.
static void mm_small_cache(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    mm_run(args, (struct mm_blocking){160u << 10, 24u << 10}, begin, end);
}

// Longer runs of panels: fewer passes over the rows where the first level holds less of use.
static void mm_long_runs(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    mm_run(args, (struct mm_blocking){768u << 10, 96u << 10}, begin, end);
}
