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

// a << left, or >> -left.
VEC_FN vi mm_shift(vi a, const int left)
{
    return left == 0 ? a : left > 0 ? vi_shl(a, left) : vi_shr(a, -left);
}

// The values of inputs 4g .. 4g+3 of a block, before the zero is taken from them, a byte each.
// Compilers see that neighbouring groups load the same lines.
VEC_FN vi mm_values(uint32_t type, const uint8_t *q, const int g)
{
    static const uint32_t iq4[] = {PLM_LEVELS_IQ4}, e2m1[] = {PLM_LEVELS_E2M1};
    const struct plm_panel_type w = plm_panel_type(type);
    if (w.codes == PLM_CODES_BYTES)
        return vi_load(q + g * 64);
    if (w.codes == PLM_CODES_PAIRS || w.codes == PLM_CODES_PAIRS_1) {
        vi pairs = vi_and(mm_shift(vi_load(q + g / 4 * 64), -(g % 4 * 2)), 0x03030303u);
        return w.codes == PLM_CODES_PAIRS
                   ? pairs
                   : vi_or(pairs, vi_and(mm_shift(vi_load(q + 128), 2 - g), 0x04040404u));
    }
    vi codes = vi_and(mm_shift(vi_load(q + g % 4 * 64), -(g & 4)), 0x0f0f0f0fu);
    if (w.codes == PLM_CODES_NIBBLES_1)
        codes = vi_or(codes, vi_and(mm_shift(vi_load(q + 256), 4 - g), 0x10101010u));
    if (w.codes == PLM_CODES_NIBBLES_2)
        codes = vi_or(codes,
                      vi_and(mm_shift(vi_load(q + 256 + g / 4 * 64), 4 - g % 4 * 2), 0x30303030u));
    if (w.values == PLM_VALUES_IQ4)
        return vi_lookup(codes, iq4);
    return w.values == PLM_VALUES_E2M1 ? vi_lookup(codes, e2m1) : codes;
}

// The family of dot products of vec_*.h that holds the type's values: below 16, 64 or 256.
VEC_FN int mm_family(uint32_t type)
{
    const struct plm_panel_type w = plm_panel_type(type);
    if (w.codes == PLM_CODES_BYTES || w.values == PLM_VALUES_IQ4)
        return 8;
    return w.codes <= PLM_CODES_NIBBLES && w.values == PLM_VALUES_LINEAR ? 4 : 6;
}
VEC_FN vi mm_dot_start(uint32_t type, uint32_t bias, const void *sums)
{
    const int family = mm_family(type);
    return family == 8   ? vd8_start(bias, sums)
           : family == 6 ? vd6_start(bias, sums)
                         : vd4_start(bias, sums);
}
VEC_FN vi mm_dot(uint32_t type, vi acc, vi w, const void *x)
{
    const int family = mm_family(type);
    return family == 8 ? vd8_dot(acc, w, x) : family == 6 ? vd6_dot(acc, w, x) : vd4_dot(acc, w, x);
}
VEC_FN vi mm_dot_end(uint32_t type, vi acc, uint32_t bias, const void *sums)
{
    const int family = mm_family(type);
    return family == 8   ? vd8_end(acc, bias, sums)
           : family == 6 ? vd6_end(acc, bias, sums)
                         : vd4_end(acc, bias, sums);
}

// The scales of a block as the float products need them: the factors of layout.md.
struct mm_scales {
    vf dw;
    vf mw;    // types with a minimum
    vi sc[2]; // types with a factor per 16 inputs
    vi mn;    // types with a minimum per 16 inputs: in the low and in the high half of a lane
};

VEC_FN struct mm_scales mm_scales_of(uint32_t type, const struct mm_tile *t, uint32_t b)
{
    const struct plm_panel_type w = plm_panel_type(type);
    const uint8_t *s = t->scales + (uint64_t)(b / (w.block / 32u)) * t->scale_bytes;
    const uint32_t sub = b % 8;
    struct mm_scales ret;
    ret.dw = w.scales == PLM_SCALES_E8M0 ? vf_load_e8m0(s + t->lane) : vf_load_f16(s + t->lane * 2);
    ret.mw = ret.dw; // for compilers that do not see what is unused
    ret.sc[0] = ret.sc[1] = ret.mn = vi_zero();
    if (PLM_SCALES_HAVE_M(w.scales) || w.scales == PLM_SCALES_D_M_HALVES)
        ret.mw = vf_load_f16(s + 32 + t->lane * 2);
    if (w.scales == PLM_SCALES_D_M_SUB) {
        ret.dw = vf_mul(ret.dw, vf_load_u8(s + 64 + sub * 16 + t->lane));
        ret.mw = vf_neg(vf_mul(ret.mw, vf_load_u8(s + 192 + sub * 16 + t->lane)));
    }
    if (w.scales == PLM_SCALES_D_SUB)
        ret.dw = vf_mul(ret.dw, vf_load_i8(s + 32 + sub * 16 + t->lane));
    if (w.scales == PLM_SCALES_D_HALVES) {
        ret.sc[0] = vi_load_i8(s + 32 + sub * 32 + t->lane);
        ret.sc[1] = vi_load_i8(s + 32 + sub * 32 + 16 + t->lane);
    }
    if (w.scales == PLM_SCALES_D_M_HALVES) {
        const vi first = vi_load_u8(s + 64 + sub * 32 + t->lane);
        const vi second = vi_load_u8(s + 64 + sub * 32 + 16 + t->lane);
        ret.sc[0] = vi_and(first, 15);
        ret.sc[1] = vi_and(second, 15);
        ret.mn = vi_or(vi_shr(first, 4), vi_shl(vi_shr(second, 4), 16));
        ret.mw = vf_neg(ret.mw);
    }
    return ret;
}

VEC_FN vf mm_act_scale(const uint8_t *record, uint32_t at)
{
    float f;
    memcpy(&f, record + at, 4);
    return vf_set1(f);
}

// One integer dot product per block.
VEC_FN void mm_block(uint32_t type, const int rows, const struct mm_tile *t, uint32_t b, vf *acc)
{
    const struct plm_panel_type w = plm_panel_type(type);
    const uint32_t bias = HALF_BIAS(-w.zero, -w.zero);
    const uint8_t *q = t->quants + (uint64_t)b * t->quant_bytes;
    const uint8_t *x = t->x + (uint64_t)b * PLM_ACT_Q8_BLOCK_BYTES;
    const uint64_t ld = t->x_bytes;
    const struct mm_scales s = mm_scales_of(type, t, b);
    vi dot[VEC_TILE];
    mm_prefetch(q, w.codes);
    EACH_ROW dot[r] = mm_dot_start(type, bias, x + r * ld + PLM_ACT_Q8_S);
    VEC_UNROLL for (int i = 0; i < 8; i++)
    {
        const int g = w.codes == PLM_CODES_BYTES ? i : i / 2 + i % 2 * 4; // line by line
        const vi values = mm_values(type, q, g);
        EACH_ROW dot[r] = mm_dot(type, dot[r], values, x + r * ld + g * 4);
    }
    EACH_ROW
    {
        const uint8_t *record = x + r * ld;
        dot[r] = mm_dot_end(type, dot[r], bias, record + PLM_ACT_Q8_S);
        acc[r] =
            vf_fma(vf_from_i(dot[r]), vf_mul(s.dw, mm_act_scale(record, PLM_ACT_Q8_D)), acc[r]);
        if (PLM_SCALES_HAVE_M(w.scales))
            acc[r] = vf_fma(s.mw, mm_act_scale(record, PLM_ACT_Q8_DS), acc[r]);
    }
}

// Two dot products of 16, each with its integer factor; the sum is exact in float. Six bits.
VEC_FN void mm_block_halves(uint32_t type, const int rows, const struct mm_tile *t, uint32_t b,
                            vf *acc)
{
    const struct plm_panel_type w = plm_panel_type(type);
    const uint8_t *q = t->quants + (uint64_t)b * t->quant_bytes;
    const uint8_t *x = t->x + (uint64_t)b * PLM_ACT_Q8_BLOCK_BYTES;
    const uint64_t ld = t->x_bytes;
    const struct mm_scales s = mm_scales_of(type, t, b);
    const vf sc[2] = {vf_from_i(s.sc[0]), vf_from_i(s.sc[1])};
    vf sum[VEC_TILE];
    mm_prefetch(q, w.codes);
    EACH_ROW sum[r] = s.dw; // for compilers that do not see that h starts at 0
    VEC_UNROLL for (int h = 0; h < 2; h++)
    {
        const uint32_t bias = h == 0 ? HALF_BIAS(-w.zero, 0) : HALF_BIAS(0, -w.zero);
        vi dot[VEC_TILE];
        EACH_ROW dot[r] = mm_dot_start(type, bias, x + r * ld + PLM_ACT_Q8_S);
        VEC_UNROLL for (int g = h * 4; g < h * 4 + 4; g++)
        {
            const vi values = mm_values(type, q, g);
            EACH_ROW dot[r] = mm_dot(type, dot[r], values, x + r * ld + g * 4);
        }
        EACH_ROW
        {
            vf f = vf_from_i(mm_dot_end(type, dot[r], bias, x + r * ld + PLM_ACT_Q8_S));
            sum[r] = h == 0 ? vf_mul(f, sc[0]) : vf_fma(f, sc[1], sum[r]);
        }
    }
    EACH_ROW
    {
        vf dx = mm_act_scale(x + r * ld, PLM_ACT_Q8_D);
        acc[r] = vf_fma(sum[r], vf_mul(s.dw, dx), acc[r]);
    }
}

// The same with codes of up to three bits: a half's dot product fits in 16 bits, and so does what
// the zero takes from it, so the factors are applied by integer products of 16 bits.
VEC_FN void mm_block_pairs(uint32_t type, const int rows, const struct mm_tile *t, uint32_t b,
                           vf *acc)
{
    const struct plm_panel_type w = plm_panel_type(type);
    const uint8_t *q = t->quants + (uint64_t)b * t->quant_bytes;
    const uint8_t *x = t->x + (uint64_t)b * PLM_ACT_Q8_BLOCK_BYTES;
    const uint64_t ld = t->x_bytes;
    const struct mm_scales s = mm_scales_of(type, t, b);
    const vi sc[2] = {vi_and(s.sc[0], 0xffff), vi_and(s.sc[1], 0xffff)};
    vi sum[VEC_TILE];
    mm_prefetch(q, w.codes);
    EACH_ROW sum[r] = vi_zero();
    if (w.zero == 4) { // -4 sc of both halves
        const vi low = vi_and(vi_sub(vi_zero(), vi_shl(s.sc[0], 2)), 0xffff);
        const vi zeros = vi_or(low, vi_shl(vi_sub(vi_zero(), vi_shl(s.sc[1], 2)), 16));
        EACH_ROW sum[r] = vi_madd(sum[r], zeros, vi_set1_mem(x + r * ld + PLM_ACT_Q8_S));
    }
    VEC_UNROLL for (int h = 0; h < 2; h++)
    {
        vi dot[VEC_TILE];
        EACH_ROW dot[r] = mm_dot_start(type, 0, x + r * ld + PLM_ACT_Q8_S);
        VEC_UNROLL for (int g = h * 4; g < h * 4 + 4; g++)
        {
            const vi values = mm_values(type, q, g);
            EACH_ROW dot[r] = mm_dot(type, dot[r], values, x + r * ld + g * 4);
        }
        EACH_ROW sum[r] =
            vi_madd(sum[r], mm_dot_end(type, dot[r], 0, x + r * ld + PLM_ACT_Q8_S), sc[h]);
    }
    EACH_ROW
    {
        const uint8_t *record = x + r * ld;
        const vf dx = mm_act_scale(record, PLM_ACT_Q8_D);
        if (w.scales == PLM_SCALES_D_M_HALVES) {
            const vf mdot = vf_from_i(vi_madd(vi_zero(), s.mn, vi_set1_mem(record + PLM_ACT_Q8_S)));
            const vf both = vf_fma(mdot, s.mw, vf_mul(vf_from_i(sum[r]), s.dw));
            acc[r] = vf_fma(both, dx, acc[r]);
        } else {
            acc[r] = vf_fma(vf_from_i(sum[r]), vf_mul(s.dw, dx), acc[r]);
        }
    }
}

// One tile of 8-bit activations over all of n_in.
VEC_FN void mm_tile_q8(uint32_t type, const int rows, const struct mm_tile *t, vf *acc)
{
    const struct plm_panel_type w = plm_panel_type(type);
    EACH_ROW acc[r] = vf_set1(0.0f);
    for (uint32_t b = 0; b < t->n_in / 32; b++) {
        if (w.codes == PLM_CODES_PAIRS || w.codes == PLM_CODES_PAIRS_1)
            mm_block_pairs(type, rows, t, b, acc);
        else if (w.scales == PLM_SCALES_D_HALVES)
            mm_block_halves(type, rows, t, b, acc);
        else
            mm_block(type, rows, t, b, acc);
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

// Factor and minimum of half h of a block.
VEC_FN void mm_half(uint32_t type, const struct mm_scales *s, const int h, vf *ret_d, vf *ret_m)
{
    const uint8_t scales = plm_panel_type(type).scales;
    const bool halves = scales == PLM_SCALES_D_HALVES || scales == PLM_SCALES_D_M_HALVES;
    *ret_d = halves ? vf_mul(s->dw, vf_from_i(s->sc[h])) : s->dw;
    *ret_m = scales == PLM_SCALES_D_M_HALVES
                 ? vf_mul(s->mw, vf_from_i(vi_and(mm_shift(s->mn, -16 * h), 0xffff)))
                 : s->mw;
}

// Float activations, quantised weights: each element is decoded in registers. (d * sc) * q is
// exact, so the fused form rounds as the decoder of layout.h does.
VEC_FN void mm_tile_decoded(uint32_t type, const int rows, const struct mm_tile *t, vf *acc)
{
    const struct plm_panel_type w = plm_panel_type(type);
    const vf zero = vf_set1((float)w.zero);
    const bool offset = PLM_SCALES_HAVE_M(w.scales) || w.scales == PLM_SCALES_D_M_HALVES;
    EACH_ROW acc[r] = vf_set1(0.0f);
    for (uint32_t b = 0; b < t->n_in / 32; b++) {
        const uint8_t *q = t->quants + (uint64_t)b * t->quant_bytes;
        const struct mm_scales s = mm_scales_of(type, t, b);
        VEC_UNROLL for (int g = 0; g < 8; g++)
        {
            const vi values = mm_values(type, q, g);
            vf d, m;
            mm_half(type, &s, g / 4, &d, &m);
            VEC_UNROLL for (int i = 0; i < 4; i++)
            {
                vf value = vf_from_i(vi_and(vi_shr(values, i * 8), 0xffu));
                vf v = offset ? vf_fma(d, value, m) : vf_mul(d, vf_sub(value, zero));
                mm_fma_rows(rows, t, b * 32 + (uint32_t)(g * 4 + i), v, acc);
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
            else if (p.block == 1)
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
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_WITH_KERNELS_##BACKENDS(MM_INSTANCE(NAME) PLM_QUANTISED_##CODES(MM_INSTANCE_Q8(NAME)))
#include "kernels/types.def"

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
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_QUANTISED_##CODES(PLM_WITH_KERNELS_##BACKENDS(MM_CASE_Q8(NAME)))
#include "kernels/types.def"
        default: break;
        }
    } else {
        switch (a->type) {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_WITH_KERNELS_##BACKENDS(MM_CASE(NAME))
#include "kernels/types.def"
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
