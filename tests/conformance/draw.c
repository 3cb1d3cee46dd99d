// SPDX-License-Identifier: Apache-2.0
// Random shapes, values, activations and KV blocks, that cases are made of.
#include "tests/conformance/draw.h"

#include <math.h>
#include <string.h>

#include "backends/panel/layout.h"

static uint64_t drawn_types, drawn_kv_types;

void conf_draw_types(uint64_t types, uint64_t kv_types)
{
    drawn_types = types;
    drawn_kv_types = kv_types;
}

// One of the drawn types, quantised ones or floats.
static enum plm_type draw_among(bool quantised, struct conf_rng *rng)
{
    uint32_t list[64], n = 0;
    for (uint32_t t = 0; t < 64; t++)
        if ((drawn_types >> t & 1) != 0 && (plm_panel_type(t).block != 1) == quantised)
            list[n++] = t;
    return (enum plm_type)list[conf_below(rng, n)];
}

enum plm_type conf_draw_type(uint32_t act, struct conf_rng *rng)
{
    return draw_among(act != PLM_ACT_F32 || conf_below(rng, 2) == 0, rng);
}

uint32_t conf_draw_n_in(enum plm_type type, struct conf_rng *rng)
{
    const uint32_t block = plm_panel_type(type).block;
    if (block == 1)
        return conf_range(rng, 1, 300);
    // Now and then more than 32 blocks of 32, which a device may spread over as many lanes.
    bool large = conf_below(rng, 6) == 0;
    return block == 256 ? 256 * (large ? conf_range(rng, 5, 9) : conf_range(rng, 1, 4))
                        : 32 * (large ? conf_range(rng, 30, 70) : conf_range(rng, 1, 20));
}

void conf_draw_acts(struct conf_case *c, size_t field, uint32_t act, uint32_t rows, uint32_t n_in,
                    struct conf_rng *rng)
{
    void *x = conf_input(c, field, PLM_ACT_ROW_BYTES(act, n_in) * rows);
    if (act == PLM_ACT_Q8)
        conf_fill_q8(x, rows, n_in, rng);
    else
        conf_fill_normal(x, (uint64_t)rows * n_in, 1.0f, rng);
}

void conf_fill_normal(float *x, uint64_t n, float scale, struct conf_rng *rng)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = conf_normal(rng) * scale;
}

void conf_set_args(struct conf_case *c, const void *args)
{
    memcpy(c->args, args, c->args_bytes);
}

uint32_t conf_draw_rows(struct conf_rng *rng)
{
    return conf_below(rng, 8) == 0 ? conf_range(rng, 65, 150) : conf_range(rng, 1, 20);
}

void conf_fill_q8(uint8_t *dst, uint32_t rows, uint32_t n, struct conf_rng *rng)
{
    for (uint32_t r = 0; r < rows; r++) {
        uint8_t *row = dst + r * PLM_ACT_Q8_ROW_BYTES(n);
        memset(row, 0xff, PLM_ACT_Q8_ROW_BYTES(n));
        for (uint32_t b = 0; b < n / 32; b++) {
            uint8_t *record = row + b * PLM_ACT_Q8_BLOCK_BYTES;
            int16_t s[2] = {0, 0};
            bool extreme = conf_below(rng, 8) == 0; // all at the ends of the range
            for (uint32_t i = 0; i < 32; i++) {
                int32_t q = (int32_t)conf_range(rng, 0, 254) - 127;
                if (extreme)
                    q = q < 0 ? -127 : 127;
                record[i] = (uint8_t)(int8_t)q;
                s[i / 16] = (int16_t)(s[i / 16] + q);
            }
            float d = fabsf(conf_normal(rng)) * 0.01f, ds = d * (float)(s[0] + s[1]);
            memcpy(record + PLM_ACT_Q8_D, &d, 4);
            memcpy(record + PLM_ACT_Q8_S, s, 4);
            memcpy(record + PLM_ACT_Q8_DS, &ds, 4);
        }
    }
}

void conf_fill_wild(float *x, uint64_t n, struct conf_rng *rng)
{
    static const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-38f, 1e-44f, 3e38f};
    uint32_t mode = conf_below(rng, 6);
    for (uint64_t i = 0; i < n; i++) {
        if (i % 32 == 0)
            mode = conf_below(rng, 24);
        x[i] = conf_normal(rng);
        if (mode == 0)
            x[i] = special[conf_below(rng, 8)];
        else if (mode == 1)
            x[i] = 0.0f;
        else if (mode < 5)
            x[i] *= ldexpf(1.0f, (int)conf_range(rng, 0, 40) - 20);
        else if (mode == 5)
            x[i] *= 1e-33f;
    }
}

uint32_t conf_draw_rope_dims(uint32_t head_dim, struct conf_rng *rng)
{
    return conf_below(rng, 2) ? head_dim : 2 * conf_range(rng, 0, head_dim / 2);
}

struct conf_kv_shape conf_draw_kv(struct conf_rng *rng)
{
    struct conf_kv_shape s = {.kv_heads = conf_range(rng, 1, 3),
                              .head_dim = 8 * conf_range(rng, 1, 16),
                              .layers = conf_range(rng, 1, 3)};
    if (conf_below(rng, 2))
        s.head_dim = conf_below(rng, 3) ? 64 : conf_below(rng, 2) ? 128 : 256;
    s.kv_type = conf_below(rng, 3) ? PLM_TYPE_F16 : PLM_TYPE_F32;
    if (conf_below(rng, 3) == 0 && (drawn_kv_types >> PLM_TYPE_Q8_0 & 1) != 0) {
        s.kv_type = PLM_TYPE_Q8_0;
        s.head_dim = (s.head_dim + 31) / 32 * 32;
    }
    s.layer_bytes = 2 * s.kv_heads * PLM_KV_HEAD_BYTES(s.kv_type, s.head_dim);
    s.block_bytes = s.layer_bytes * s.layers;
    return s;
}

void conf_draw_norms(struct conf_case *c, size_t field, uint32_t head_dim, struct conf_rng *rng)
{
    // The weights of q, then those of k, behind a gap: an offset of 0 is none.
    const uint64_t gap = 16, bytes = 4 * (uint64_t)head_dim;
    const uint32_t there = conf_below(rng, 2) ? 0 : conf_range(rng, 1, 3);
    if (there == 0)
        return;
    float *weights = conf_input(c, UINT32_MAX, gap + 2 * bytes);
    const int at = c->n_bufs - 1;
    conf_fill_normal(weights, (gap + 2 * bytes) / 4, 1.0f, rng);
    uint64_t *words = conf_addresses(c, field, sizeof(struct plm_head_norms) / 8, at);
    c->buf[c->n_bufs - 1].relocs = 2;
    const struct plm_head_norms norms = {.norm_q = there & 1 ? gap : 0,
                                         .norm_k = there & 2 ? gap + bytes : 0,
                                         .eps = conf_below(rng, 2) ? 1e-6f : 0.1f};
    memcpy(words, &norms, sizeof norms);
}

// Row r goes to block r / 16 shuffled, place r % 16 shuffled.
void conf_fill_slots(struct conf_case *c, size_t slots_field, size_t pos_field, int slab,
                     uint32_t rows, const struct conf_kv_shape *s, struct conf_rng *rng)
{
    uint64_t *slots = conf_addresses(c, slots_field, rows, slab);
    int32_t *pos = conf_input(c, pos_field, (uint64_t)rows * 4);
    uint32_t blocks = (rows + 15) / 16, shift = conf_below(rng, 16), turn = conf_below(rng, blocks);
    for (uint32_t r = 0; r < rows; r++) {
        slots[r] = (uint64_t)((r / 16 + turn) % blocks) * s->block_bytes;
        pos[r] = (int32_t)(16 * conf_below(rng, 100) + (r + shift) % 16);
    }
}

// Random bytes of one element, or of one scale.
static void fill_element(uint8_t *part, const struct conf_kv_shape *s, uint64_t at,
                         struct conf_rng *rng)
{
    const float v = conf_normal(rng);
    const uint16_t half = (uint16_t)(conf_below(rng, 2) << 15 | conf_range(rng, 10, 16) << 10 |
                                     conf_below(rng, 1024));
    if (s->kv_type == PLM_TYPE_F32)
        memcpy(part + at * 4, &v, 4);
    else if (s->kv_type == PLM_TYPE_F16)
        memcpy(part + at * 2, &half, 2);
    else
        part[at] = (uint8_t)(int8_t)((int32_t)conf_range(rng, 0, 254) - 127);
}

static void fill_scale(uint8_t *part, const struct conf_kv_shape *s, uint64_t at,
                       struct conf_rng *rng)
{
    // Now and then a subnormal half.
    const uint16_t half = conf_below(rng, 50) == 0 ? (uint16_t)conf_below(rng, 1024)
                                                   : plm_f32_to_f16(fabsf(conf_normal(rng)) / 64);
    memcpy(part + PLM_KV_HEAD_ELEMENTS(s->head_dim) + at * 2, &half, 2);
}

void conf_fill_history(uint8_t *slab, const struct conf_kv_shape *s, const uint64_t *table,
                       uint64_t layer_offset, uint32_t begin, uint32_t end, struct conf_rng *rng)
{
    const uint64_t head_bytes = PLM_KV_HEAD_BYTES(s->kv_type, s->head_dim);
    for (uint32_t p = begin; p < end; p++) {
        uint8_t *layer = slab + table[p / 16] + layer_offset;
        for (uint32_t i = 0; i < s->kv_heads * s->head_dim; i++) {
            uint32_t h = i / s->head_dim, d = i % s->head_dim;
            uint8_t *k = layer + h * head_bytes, *v = k + s->kv_heads * head_bytes;
            fill_element(k, s, (uint64_t)d * 16 + p % 16, rng);
            fill_element(v, s, (uint64_t)(p % 16) * s->head_dim + d, rng);
            if (s->kv_type != PLM_TYPE_Q8_0 || d % 32 != 0)
                continue;
            fill_scale(k, s, (uint64_t)d / 32 * 16 + p % 16, rng);
            fill_scale(v, s, ((uint64_t)(p % 16) * s->head_dim + d) / 32, rng);
        }
    }
}

void conf_slab(struct conf_case *c, const struct conf_kv_shape *s)
{
    struct conf_buf *b = &c->buf[0];
    b->kind = s->kv_type == PLM_TYPE_F16    ? CONF_HALVES
              : s->kv_type == PLM_TYPE_Q8_0 ? CONF_KV_Q8
                                            : CONF_FLOATS;
    b->n = s->head_dim;
    b->kv_heads = s->kv_heads;
}
