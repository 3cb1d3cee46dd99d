// SPDX-License-Identifier: Apache-2.0
// Random cases of every op.
#include <math.h>
#include <string.h>

#include "tests/conformance/conf.h"

#define FIELD(op, name) offsetof(struct plm_##op##_args, name)

static const enum plm_type block_types[] = {PLM_TYPE_Q8_0, PLM_TYPE_Q4_0, PLM_TYPE_Q4_1,
                                            PLM_TYPE_Q4_K, PLM_TYPE_Q6_K};
static const enum plm_type plain_types[] = {PLM_TYPE_F32, PLM_TYPE_F16, PLM_TYPE_BF16};

static void fill_normal(float *x, uint64_t n, float scale, struct conf_rng *rng)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = conf_normal(rng) * scale;
}

static void set_args(struct conf_case *c, const void *args)
{
    memcpy(c->args, args, c->args_bytes);
}

// Few rows mostly, sometimes many; never a nice number only.
static uint32_t draw_rows(struct conf_rng *rng)
{
    return conf_below(rng, 8) == 0 ? conf_range(rng, 65, 150) : conf_range(rng, 1, 20);
}

// Random rows in the format of PLM_ACT_Q8, made by the reference (checked on its own).
static void fill_q8(uint8_t *dst, uint32_t rows, uint32_t n, struct conf_rng *rng)
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

static void make_matmul(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_matmul_args a = {.rows = draw_rows(rng), .add = conf_below(rng, 2)};
    a.act = conf_below(rng, 3) != 0 ? PLM_ACT_Q8 : PLM_ACT_F32;
    a.type = block_types[conf_below(rng, 5)];
    if (a.act == PLM_ACT_F32 && conf_below(rng, 2))
        a.type = plain_types[conf_below(rng, 3)];
    a.n_out = conf_range(rng, 1, 100);
    a.n_in = a.type == PLM_TYPE_Q4_K || a.type == PLM_TYPE_Q6_K ? 256 * conf_range(rng, 1, 4)
                                                                : 32 * conf_range(rng, 1, 20);
    if (a.type == PLM_TYPE_F32 || a.type == PLM_TYPE_F16 || a.type == PLM_TYPE_BF16)
        a.n_in = conf_range(rng, 1, 300);
    a.ld_dst = a.n_out + conf_below(rng, 5);
    conf_begin(c, PLM_OP_MATMUL, sizeof a);
    conf_weight(c, FIELD(matmul, weight), a.type, a.n_in, a.n_out, rng);
    uint64_t x_bytes = PLM_ACT_ROW_BYTES(a.act, a.n_in) * a.rows;
    void *x = conf_input(c, FIELD(matmul, x), x_bytes);
    if (a.act == PLM_ACT_Q8)
        fill_q8(x, a.rows, a.n_in, rng);
    else
        fill_normal(x, (uint64_t)a.rows * a.n_in, 1.0f, rng);
    float *dst = conf_inout(c, FIELD(matmul, dst), (uint64_t)a.rows * a.ld_dst * 4);
    memset(dst, 0xff, (uint64_t)a.rows * a.ld_dst * 4);
    if (a.add)
        fill_normal(dst, (uint64_t)a.rows * a.ld_dst, 1.0f, rng);
    if (conf_below(rng, 2))
        fill_normal(conf_input(c, FIELD(matmul, bias), (uint64_t)a.n_out * 4), a.n_out, 1.0f, rng);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "matmul type %u act %u rows %u n_in %u n_out %u add %u",
             a.type, a.act, a.rows, a.n_in, a.n_out, a.add);
}

static void make_get_rows(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_get_rows_args a = {.rows = draw_rows(rng), .scale = 1.0f};
    uint32_t pick = conf_below(rng, 8);
    a.type = pick < 5 ? block_types[pick] : plain_types[pick - 5];
    a.n_in = pick < 3   ? 32 * conf_range(rng, 1, 20)
             : pick < 5 ? 256 * conf_range(rng, 1, 3)
                        : conf_range(rng, 1, 200);
    a.n_out = conf_range(rng, 1, 100);
    if (conf_below(rng, 2))
        a.scale = 24.0f;
    conf_begin(c, PLM_OP_GET_ROWS, sizeof a);
    conf_weight(c, FIELD(get_rows, weight), a.type, a.n_in, a.n_out, rng);
    int32_t *tokens = conf_input(c, FIELD(get_rows, tokens), (uint64_t)a.rows * 4);
    for (uint32_t i = 0; i < a.rows; i++)
        tokens[i] = (int32_t)conf_below(rng, a.n_out);
    conf_output(c, FIELD(get_rows, dst), (uint64_t)a.rows * a.n_in * 4);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "get_rows type %u rows %u n_in %u n_out %u", a.type, a.rows,
             a.n_in, a.n_out);
}

// Values of very different size, now and then with zeros, infinities and NaNs.
static void fill_wild(float *x, uint64_t n, struct conf_rng *rng)
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

static void make_quantize(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_quantize_args a = {.rows = draw_rows(rng), .n = 32 * conf_range(rng, 1, 24)};
    conf_begin(c, PLM_OP_QUANTIZE, sizeof a);
    fill_wild(conf_input(c, FIELD(quantize, x), (uint64_t)a.rows * a.n * 4), (uint64_t)a.rows * a.n,
              rng);
    conf_output_bits(c, FIELD(quantize, dst), PLM_ACT_Q8_ROW_BYTES(a.n) * a.rows);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "quantize rows %u n %u", a.rows, a.n);
}

static void make_rms_norm(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_rms_norm_args a = {.rows = draw_rows(rng), .eps = 1e-5f};
    uint32_t outs = conf_range(rng, 1, 3);
    a.n = outs == 1 ? conf_range(rng, 1, 300) : 32 * conf_range(rng, 1, 20);
    uint64_t n = (uint64_t)a.rows * a.n;
    conf_begin(c, PLM_OP_RMS_NORM, sizeof a);
    fill_normal(conf_inout(c, FIELD(rms_norm, x), n * 4), n, 3.0f, rng);
    if (conf_below(rng, 2))
        fill_normal(conf_input(c, FIELD(rms_norm, residual), n * 4), n, 1.0f, rng);
    fill_normal(conf_input(c, FIELD(rms_norm, weight), (uint64_t)a.n * 4), a.n, 1.0f, rng);
    if (outs & 1)
        conf_output(c, FIELD(rms_norm, dst_f32), n * 4);
    if (outs & 2)
        conf_output_bits(c, FIELD(rms_norm, dst_q8), PLM_ACT_Q8_ROW_BYTES(a.n) * a.rows);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "rms_norm rows %u n %u outputs %u", a.rows, a.n, outs);
}

static void make_silu_mul(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_silu_mul_args a = {.rows = draw_rows(rng)};
    uint32_t outs = conf_range(rng, 1, 3);
    a.n = outs == 1 ? conf_range(rng, 1, 300) : 32 * conf_range(rng, 1, 20);
    a.ld = a.n + conf_below(rng, 40);
    uint64_t n = (uint64_t)a.rows * a.ld;
    conf_begin(c, PLM_OP_SILU_MUL, sizeof a);
    fill_wild(conf_input(c, FIELD(silu_mul, gate), n * 4), n, rng);
    fill_normal(conf_input(c, FIELD(silu_mul, up), n * 4), n, 1.0f, rng);
    if (outs & 1)
        conf_output(c, FIELD(silu_mul, dst_f32), (uint64_t)a.rows * a.n * 4);
    if (outs & 2)
        conf_output_bits(c, FIELD(silu_mul, dst_q8), PLM_ACT_Q8_ROW_BYTES(a.n) * a.rows);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "silu_mul rows %u n %u outputs %u", a.rows, a.n, outs);
}

static void make_rope_table(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_rope_table_args a = {.rows = draw_rows(rng), .dims = 2 * conf_range(rng, 1, 64)};
    conf_begin(c, PLM_OP_ROPE_TABLE, sizeof a);
    int32_t *pos = conf_input(c, FIELD(rope_table, pos), (uint64_t)a.rows * 4);
    for (uint32_t i = 0; i < a.rows; i++)
        pos[i] = (int32_t)conf_below(rng, conf_below(rng, 2) ? 4000 : 1u << 24);
    // From almost a whole turn down to hardly any, as bases give them; also none, and all bits.
    uint64_t *turns = conf_input(c, FIELD(rope_table, turns), (uint64_t)a.dims * 4);
    for (uint32_t i = 0; i < a.dims / 2; i++) {
        turns[i] = (uint64_t)conf_below(rng, UINT32_MAX) << 32;
        turns[i] |= conf_below(rng, UINT32_MAX);
        turns[i] >>= conf_below(rng, 64);
    }
    turns[0] = conf_below(rng, 2) ? 0 : UINT64_MAX;
    conf_output(c, FIELD(rope_table, dst), (uint64_t)a.rows * a.dims * 4);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "rope_table rows %u dims %u", a.rows, a.dims);
}

static void make_rope(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_rope_args a = {.rows = draw_rows(rng), .heads = conf_range(rng, 1, 5)};
    a.head_dim = 8 * conf_range(rng, 1, 16);
    a.dims = conf_below(rng, 2) ? a.head_dim : 2 * conf_range(rng, 1, a.head_dim / 2);
    a.ld = a.heads * a.head_dim + conf_below(rng, 9);
    a.mode = conf_below(rng, 2) ? PLM_ROPE_NEOX : PLM_ROPE_NORM;
    conf_begin(c, PLM_OP_ROPE, sizeof a);
    uint64_t n = (uint64_t)a.rows * a.ld;
    fill_normal(conf_inout(c, FIELD(rope, x), n * 4), n, 1.0f, rng);
    n = (uint64_t)a.rows * a.dims;
    fill_normal(conf_input(c, FIELD(rope, table), n * 4), n, 1.0f, rng);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "rope rows %u heads %u dim %u dims %u mode %u", a.rows,
             a.heads, a.head_dim, a.dims, a.mode);
}

// Blocks of a KV slab for `count` blocks of `layers` layers; slots in random order.
struct kv_shape {
    uint32_t kv_heads, head_dim, kv_type, layers;
    uint64_t layer_bytes, block_bytes;
};

static struct kv_shape draw_kv(struct conf_rng *rng)
{
    struct kv_shape s = {.kv_heads = conf_range(rng, 1, 3),
                         .head_dim = 8 * conf_range(rng, 1, 16),
                         .layers = conf_range(rng, 1, 3)};
    if (conf_below(rng, 2))
        s.head_dim = conf_below(rng, 3) ? 64 : conf_below(rng, 2) ? 128 : 256;
    s.kv_type = conf_below(rng, 3) ? PLM_TYPE_F16 : PLM_TYPE_F32;
    s.layer_bytes = (uint64_t)2 * s.kv_heads * PLM_KV_BLOCK_TOKENS * s.head_dim *
                    (s.kv_type == PLM_TYPE_F16 ? 2 : 4);
    s.block_bytes = s.layer_bytes * s.layers;
    return s;
}

// Tokens at distinct places of a slab: row r goes to block r / 16 shuffled, place r % 16 shuffled.
static void fill_slots(struct conf_case *c, size_t slots_field, size_t pos_field, int slab,
                       uint32_t rows, const struct kv_shape *s, struct conf_rng *rng)
{
    uint64_t *slots = conf_addresses(c, slots_field, rows, slab);
    int32_t *pos = conf_input(c, pos_field, (uint64_t)rows * 4);
    uint32_t blocks = (rows + 15) / 16, shift = conf_below(rng, 16), turn = conf_below(rng, blocks);
    for (uint32_t r = 0; r < rows; r++) {
        slots[r] = (uint64_t)((r / 16 + turn) % blocks) * s->block_bytes;
        pos[r] = (int32_t)(16 * conf_below(rng, 100) + (r + shift) % 16);
    }
}

static void make_kv_write(struct conf_case *c, struct conf_rng *rng)
{
    struct kv_shape s = draw_kv(rng);
    struct plm_kv_write_args a = {.rows = draw_rows(rng),
                                  .kv_heads = s.kv_heads,
                                  .head_dim = s.head_dim,
                                  .kv_type = s.kv_type};
    a.layer_offset = conf_below(rng, s.layers) * s.layer_bytes;
    a.ld_k = s.kv_heads * s.head_dim + conf_below(rng, 9);
    a.ld_v = s.kv_heads * s.head_dim + conf_below(rng, 9);
    conf_begin(c, PLM_OP_KV_WRITE, sizeof a);
    uint64_t slab = (a.rows + 15) / 16 * s.block_bytes;
    memset(conf_inout(c, UINT32_MAX, slab), 0xff, slab);
    c->buf[0].bits = true;
    fill_slots(c, FIELD(kv_write, slots), FIELD(kv_write, pos), 0, a.rows, &s, rng);
    uint64_t nk = (uint64_t)a.rows * a.ld_k, nv = (uint64_t)a.rows * a.ld_v;
    fill_wild(conf_input(c, FIELD(kv_write, k), nk * 4), nk, rng);
    fill_normal(conf_input(c, FIELD(kv_write, v), nv * 4), nv, 1.0f, rng);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "kv_write rows %u kv_heads %u dim %u type %u", a.rows,
             a.kv_heads, a.head_dim, a.kv_type);
}

static void make_rope_kv(struct conf_case *c, struct conf_rng *rng)
{
    struct kv_shape s = draw_kv(rng);
    struct plm_rope_kv_args a = {.rows = draw_rows(rng),
                                 .kv_heads = s.kv_heads,
                                 .head_dim = s.head_dim,
                                 .kv_type = s.kv_type};
    a.heads = s.kv_heads * conf_range(rng, 1, 4);
    a.layer_offset = conf_below(rng, s.layers) * s.layer_bytes;
    a.ld = a.heads * s.head_dim + conf_below(rng, 9);
    a.dims = conf_below(rng, 2) ? a.head_dim : 2 * conf_range(rng, 1, a.head_dim / 2);
    a.mode = conf_below(rng, 2) ? PLM_ROPE_NEOX : PLM_ROPE_NORM;
    conf_begin(c, PLM_OP_ROPE_KV, sizeof a);
    uint64_t slab = (a.rows + 15) / 16 * s.block_bytes, n = (uint64_t)a.rows * a.ld;
    memset(conf_inout(c, UINT32_MAX, slab), 0xff, slab);
    c->buf[0].bits = true;
    fill_slots(c, FIELD(rope_kv, slots), FIELD(rope_kv, pos), 0, a.rows, &s, rng);
    fill_normal(conf_inout(c, FIELD(rope_kv, q), n * 4), n, 1.0f, rng);
    fill_normal(conf_inout(c, FIELD(rope_kv, k), n * 4), n, 1.0f, rng);
    fill_normal(conf_input(c, FIELD(rope_kv, v), n * 4), n, 1.0f, rng);
    uint64_t table = (uint64_t)a.rows * a.dims;
    fill_normal(conf_input(c, FIELD(rope_kv, table), table * 4), table, 1.0f, rng);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "rope_kv rows %u heads %u:%u dim %u mode %u", a.rows,
             a.heads, a.kv_heads, a.head_dim, a.mode);
}

// K and V that the rows may not see stay NaN: a kernel that touches them shows.
static void fill_history(uint8_t *slab, const struct kv_shape *s, const uint64_t *table,
                         uint64_t layer_offset, uint32_t tokens, struct conf_rng *rng)
{
    for (uint32_t p = 0; p < tokens; p++) {
        uint8_t *layer = slab + table[p / 16] + layer_offset;
        for (uint32_t i = 0; i < s->kv_heads * s->head_dim; i++) {
            uint32_t h = i / s->head_dim, d = i % s->head_dim;
            uint64_t base = (uint64_t)h * 16 * s->head_dim;
            uint64_t at[2] = {base + (uint64_t)d * 16 + p % 16,
                              (uint64_t)(s->kv_heads + h) * 16 * s->head_dim +
                                  (uint64_t)(p % 16) * s->head_dim + d};
            for (int j = 0; j < 2; j++) {
                float v = conf_normal(rng);
                if (s->kv_type == PLM_TYPE_F32) {
                    memcpy(layer + at[j] * 4, &v, 4);
                } else {
                    uint16_t half =
                        (uint16_t)(conf_below(rng, 2) << 15 | conf_range(rng, 10, 16) << 10 |
                                   conf_below(rng, 1024));
                    memcpy(layer + at[j] * 2, &half, 2);
                }
            }
        }
    }
}

static void make_attention(struct conf_case *c, struct conf_rng *rng)
{
    struct kv_shape s = draw_kv(rng);
    uint32_t seqs = conf_range(rng, 1, 4), blocks = conf_range(rng, 1, 6), group;
    struct plm_attention_args a = {.kv_heads = s.kv_heads,
                                   .head_dim = s.head_dim,
                                   .kv_type = s.kv_type,
                                   .table_stride = blocks + conf_below(rng, 3)};
    group = conf_below(rng, 6) == 0 ? conf_range(rng, 13, 16) : conf_range(rng, 1, 7);
    a.heads = s.kv_heads * group;
    a.ld_q = a.heads * a.head_dim + conf_below(rng, 9);
    a.scale = 1.0f / sqrtf((float)a.head_dim);
    a.layer_offset = conf_below(rng, s.layers) * s.layer_bytes;
    conf_begin(c, PLM_OP_ATTENTION, sizeof a);
    uint64_t slab_bytes = (uint64_t)seqs * blocks * s.block_bytes;
    uint8_t *slab = conf_input(c, UINT32_MAX, slab_bytes);
    memset(slab, 0xff, slab_bytes);
    uint64_t *tables =
        conf_addresses(c, FIELD(attention, tables), (uint64_t)seqs * a.table_stride, 0);
    int32_t pos[200], seq[200];
    for (uint32_t q = 0; q < seqs; q++) {
        uint32_t tokens = conf_range(rng, 1, blocks * 16);
        for (uint32_t b = 0; b < a.table_stride; b++) // interleaved among the sequences
            tables[q * a.table_stride + b] = b < blocks ? (b * seqs + q) * s.block_bytes : 0;
        fill_history(slab, &s, tables + q * a.table_stride, a.layer_offset, tokens, rng);
        // A chunk at the end, a single token, or rows in any order.
        uint32_t rows = conf_below(rng, 2) ? 1 : conf_range(rng, 1, tokens < 45 ? tokens : 45);
        bool shuffled = conf_below(rng, 5) == 0;
        for (uint32_t r = 0; r < rows; r++) {
            seq[a.rows] = (int32_t)q;
            pos[a.rows++] = (int32_t)(shuffled ? conf_below(rng, tokens) : tokens - rows + r);
        }
    }
    memcpy(conf_input(c, FIELD(attention, pos), (uint64_t)a.rows * 4), pos, (uint64_t)a.rows * 4);
    memcpy(conf_input(c, FIELD(attention, seq), (uint64_t)a.rows * 4), seq, (uint64_t)a.rows * 4);
    uint64_t n = (uint64_t)a.rows * a.ld_q;
    fill_normal(conf_input(c, FIELD(attention, q), n * 4), n, 2.0f, rng);
    conf_output(c, FIELD(attention, dst), (uint64_t)a.rows * a.heads * a.head_dim * 4);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "attention rows %u seqs %u heads %u:%u dim %u type %u",
             a.rows, seqs, a.heads, a.kv_heads, a.head_dim, a.kv_type);
}

static void make_add(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_add_args a = {.rows = draw_rows(rng), .n = conf_range(rng, 1, 300)};
    uint64_t n = (uint64_t)a.rows * a.n;
    conf_begin(c, PLM_OP_ADD, sizeof a);
    fill_wild(conf_input(c, FIELD(add, a), n * 4), n, rng);
    fill_wild(conf_input(c, FIELD(add, b), n * 4), n, rng);
    conf_output(c, FIELD(add, dst), n * 4);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "add rows %u n %u", a.rows, a.n);
}

static void make_gather(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_gather_args a = {.rows = draw_rows(rng), .n = conf_range(rng, 1, 300)};
    uint32_t from = conf_range(rng, 1, 50);
    conf_begin(c, PLM_OP_GATHER, sizeof a);
    fill_wild(conf_input(c, FIELD(gather, src), (uint64_t)from * a.n * 4), (uint64_t)from * a.n,
              rng);
    int32_t *index = conf_input(c, FIELD(gather, index), (uint64_t)a.rows * 4);
    for (uint32_t i = 0; i < a.rows; i++)
        index[i] = (int32_t)conf_below(rng, from);
    conf_output(c, FIELD(gather, dst), (uint64_t)a.rows * a.n * 4);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "gather rows %u n %u", a.rows, a.n);
}

static void make_copy(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_copy_args a = {.n_words = conf_range(rng, 1, 600000)};
    conf_begin(c, PLM_OP_COPY, sizeof a);
    uint32_t *src = conf_input(c, FIELD(copy, src), a.n_words * 4);
    for (uint64_t i = 0; i < a.n_words; i++)
        src[i] = conf_u32(rng);
    conf_output(c, FIELD(copy, dst), a.n_words * 4);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "copy words %llu", (unsigned long long)a.n_words);
}

static void make_fill(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_fill_args a = {.n_words = conf_range(rng, 1, 600000), .seed = conf_u32(rng)};
    conf_begin(c, PLM_OP_FILL, sizeof a);
    conf_output(c, FIELD(fill, dst), a.n_words * 4);
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "fill words %llu", (unsigned long long)a.n_words);
}

static void make_verify(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_verify_args a = {.n_words = conf_range(rng, 1, 600000), .seed = conf_u32(rng)};
    conf_begin(c, PLM_OP_VERIFY, sizeof a);
    uint32_t *src = conf_input(c, FIELD(verify, src), a.n_words * 4);
    for (uint64_t i = 0; i < a.n_words; i++)
        src[i] = conf_u32(rng);
    uint32_t *count = conf_inout(c, FIELD(verify, count), 4);
    *count = 0;
    set_args(c, &a);
    snprintf(c->label, sizeof c->label, "verify words %llu", (unsigned long long)a.n_words);
}

void conf_make(struct conf_case *c, enum plm_op op, struct conf_rng *rng)
{
    switch (op) {
#define PLM_OP(NAME, name, units, tolerance)                                                       \
    case PLM_OP_##NAME:                                                                            \
        make_##name(c, rng);                                                                       \
        break;
#include "kernels/ops.def"
#undef PLM_OP
    default: break;
    }
    conf_ready(c);
}
