// SPDX-License-Identifier: Apache-2.0
// Outputs of a target against the reference's, by what they hold.
#include <float.h>
#include <math.h>
#include <string.h>

#include "backends/panel/half.h"
#include "tests/conformance/conf.h"

// What outputs are poisoned with. Where the reference leaves it, nobody may write; no op computes
// this NaN.
#define UNTOUCHED 0xffffffffu

struct diff {
    const struct conf_case *c;
    const struct conf_buf *b;
    const char *who;
    uint64_t wrong;
};

// Counts a difference, and prints the first ones.
static void differ(struct diff *d, const char *what, uint64_t i, double want, double got)
{
    if (d->wrong++ < 3)
        printf("FAIL %s: field %u %s %llu: reference %a, %s %a\n", d->c->label, d->b->field, what,
               (unsigned long long)i, want, d->who, got);
}

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static float load_f32(const uint8_t *p)
{
    float v;
    memcpy(&v, p, 4);
    return v;
}

static double size_of(double v)
{
    return isfinite(v) ? fabs(v) : 0.0;
}

static void compare_bits(struct diff *d, const uint8_t *want, const uint8_t *got, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (want[i] != got[i])
            differ(d, "byte", i, want[i], got[i]);
}

// Same value, or both NaN, or near.
static bool near(double want, double got, double room)
{
    return want == got || (isnan(want) && isnan(got)) || fabs(want - got) <= room;
}

static void compare_floats(struct diff *d, const uint8_t *want, const uint8_t *got, double limit)
{
    double top = 0.0;
    for (uint64_t i = 0; i + 4 <= d->b->bytes; i += 4)
        top = fmax(top, size_of((double)load_f32(want + i)));
    // A device may take a subnormal number for 0.
    const double room = limit > 0.0 ? limit * top + (double)FLT_MIN : 0.0;
    for (uint64_t i = 0; i + 4 <= d->b->bytes; i += 4) {
        double x = (double)load_f32(want + i), y = (double)load_f32(got + i);
        bool same = memcmp(want + i, got + i, 4) == 0;
        if (!same && (load_u32(want + i) == UNTOUCHED || !near(x, y, room)))
            differ(d, "word", i / 4, x, y);
    }
}

// Halves may also round to the other neighbour.
static void compare_halves(struct diff *d, const uint8_t *want, const uint8_t *got, double limit)
{
    double top = 0.0;
    if (limit < 0.0) {
        compare_bits(d, want, got, d->b->bytes);
        return;
    }
    for (uint64_t i = 0; i + 2 <= d->b->bytes; i += 2) {
        uint16_t h;
        memcpy(&h, want + i, 2);
        top = fmax(top, size_of((double)plm_f16_to_f32(h)));
    }
    for (uint64_t i = 0; i + 2 <= d->b->bytes; i += 2) {
        uint16_t a, b;
        memcpy(&a, want + i, 2);
        memcpy(&b, got + i, 2);
        double x = (double)plm_f16_to_f32(a), y = (double)plm_f16_to_f32(b);
        double ulp = ldexp(1.0, (x != 0.0 && isfinite(x) ? ilogb(x) : -14) - 10);
        double room = limit > 0.0 ? limit * top + ulp : 0.0;
        if (a != b && (a == (UNTOUCHED & 0xffffu) || !near(x, y, room)))
            differ(d, "half", i / 2, x, y);
    }
}

// One record: scales near, sums and product consistent with the codes, values within what the scale
// and one code can differ. *room: how many codes may differ, at most, from values within the limit.
static uint32_t compare_record(struct diff *d, uint64_t at, const uint8_t *want, const uint8_t *got,
                               double limit, double *room)
{
    float dw = load_f32(want + PLM_ACT_Q8_D), dg = load_f32(got + PLM_ACT_Q8_D);
    float ds = load_f32(got + PLM_ACT_Q8_DS);
    int16_t s[2];
    int32_t sum[2] = {0, 0};
    uint32_t off = 0;
    const double top = 127.0 * size_of((double)dw);
    memcpy(s, got + PLM_ACT_Q8_S, 4);
    for (int i = 0; i < 32; i++) {
        int w = (int8_t)want[i], g = (int8_t)got[i];
        sum[i / 16] += g;
        off += w != g;
        if (w != g && !(fabs((double)dw * w - (double)dg * g) <= limit * top + (double)dw * 1.01))
            differ(d, "code", at + (uint64_t)i, w, g);
    }
    if (!near((double)dw, (double)dg, limit * (double)fabsf(dw)))
        differ(d, "scale at", at, (double)dw, (double)dg);
    if (s[0] != sum[0] || s[1] != sum[1])
        differ(d, "sum at", at, sum[0] + sum[1], s[0] + s[1]);
    const double product = (double)(dg * (float)(sum[0] + sum[1])); // may be infinite
    if (!near(product, (double)ds, 1e-6 * size_of(product) + (double)FLT_MIN))
        differ(d, "d * sum at", at, product, (double)ds);
    // A value within limit * top of a boundary, on either side, may round to the other code; value
    // and scale can both be off.
    *room += 32.0 * 2.0 * 2.0 * limit * 127.0;
    return off;
}

static void compare_q8(struct diff *d, const uint8_t *want, const uint8_t *got, double limit)
{
    const uint64_t row = PLM_ACT_Q8_ROW_BYTES(d->b->n), used = d->b->n / 32 * 44ull;
    double room = 4.0;
    uint64_t off = 0;
    for (uint64_t at = 0; at < d->b->bytes; at += row) {
        for (uint64_t i = 0; i < used; i += PLM_ACT_Q8_BLOCK_BYTES)
            off += compare_record(d, at + i, want + at + i, got + at + i, limit, &room);
        compare_bits(d, want + at + used, got + at + used, row - used);
    }
    if ((double)off > room)
        differ(d, "codes that may differ, and do:", 0, room, (double)off);
}

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

// The 32 elements with one scale: as compare_record. Where the reference left the scale, all must
// be as it was.
static uint32_t compare_kv_block(struct diff *d, const uint8_t *want, const uint8_t *got,
                                 uint64_t code, uint64_t step, uint64_t scale, double limit,
                                 double *room)
{
    const uint16_t dw = load_u16(want + scale), dg = load_u16(got + scale);
    const double x = (double)plm_f16_to_f32(dw), y = (double)plm_f16_to_f32(dg);
    const bool untouched = dw == (UNTOUCHED & 0xffffu);
    const double ulp = ldexp(1.0, (x > 0x1p-14 && isfinite(x) ? ilogb(x) : -14) - 10);
    uint32_t off = 0;
    if (untouched ? dg != dw : !near(x, y, limit * size_of(x) + ulp))
        differ(d, "scale at", scale, x, y);
    for (uint64_t i = code; i < code + 32 * step; i += step) {
        const int w = (int8_t)want[i], g = (int8_t)got[i];
        off += w != g;
        if (w != g && (untouched || (w > g ? w - g : g - w) > 1))
            differ(d, "code", i, w, g);
    }
    // As of records; where the scale rounds to nothing, codes say nothing.
    *room += 32.0 * 2.0 * 2.0 * limit * 127.0;
    return x == 0.0 ? 0 : off;
}

static void compare_kv_q8(struct diff *d, const uint8_t *want, const uint8_t *got, double limit)
{
    const uint64_t dim = d->b->n, blocks = dim / 32, part = PLM_KV_HEAD_BYTES(PLM_TYPE_Q8_0, dim);
    double room = 4.0;
    uint64_t off = 0;
    for (uint64_t p = 0; p * part < d->b->bytes; p++) {
        const bool is_v = p / d->b->kv_heads % 2 != 0;
        const uint64_t at = p * part, scales = at + PLM_KV_HEAD_ELEMENTS(dim);
        for (uint64_t b = 0; b < 16 * blocks; b++) // V: by token, K: by part of the head
            off +=
                is_v ? compare_kv_block(d, want, got, at + b * 32, 1, scales + b * 2, limit, &room)
                     : compare_kv_block(d, want, got, at + b / 16 * 512 + b % 16, 16,
                                        scales + b * 2, limit, &room);
    }
    if ((double)off > room)
        differ(d, "codes that may differ, and do:", 0, room, (double)off);
}

// Index and value mean something where all numbers are finite.
static void compare_argmax(struct diff *d, const uint8_t *want, const uint8_t *got)
{
    for (uint64_t i = 0; i * sizeof(struct plm_argmax_record) < d->b->bytes; i++) {
        struct plm_argmax_record x, y;
        memcpy(&x, want + i * sizeof x, sizeof x);
        memcpy(&y, got + i * sizeof y, sizeof y);
        if (x.n_wrong != y.n_wrong)
            differ(d, "wrong numbers of row", i, x.n_wrong, y.n_wrong);
        else if (x.n_wrong == 0 && (x.index != y.index || !near((double)x.top, (double)y.top, 0)))
            differ(d, "index of row", i, x.index, y.index);
    }
}

bool conf_same(const struct conf_case *c, const struct conf_buf *b, const uint8_t *want,
               const uint8_t *got, double limit, const char *who)
{
    struct diff d = {c, b, who, 0};
    switch (b->kind) {
    case CONF_FLOATS: compare_floats(&d, want, got, limit); break;
    case CONF_HALVES: compare_halves(&d, want, got, limit); break;
    case CONF_BITS: compare_bits(&d, want, got, b->bytes); break;
    case CONF_ARGMAX: compare_argmax(&d, want, got); break;
    case CONF_KV_Q8:
        if (limit < 0.0)
            compare_bits(&d, want, got, b->bytes);
        else
            compare_kv_q8(&d, want, got, limit);
        break;
    case CONF_Q8:
        if (limit < 0.0)
            compare_bits(&d, want, got, b->bytes);
        else
            compare_q8(&d, want, got, limit);
        break;
    }
    return d.wrong == 0;
}
