// SPDX-License-Identifier: Apache-2.0
// Random cases of every op.
#include <math.h>
#include <string.h>

#include "tests/conformance/draw.h"

// Edges of the tiles in which devices compute products of many rows.
static uint32_t conf_draw_edge(struct conf_rng *rng)
{
    static const uint32_t edges[] = {65, 95, 96, 97, 127, 128, 129, 200};
    return edges[conf_below(rng, sizeof edges / sizeof edges[0])];
}

static void conf_make_matmul(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_matmul_args a = {.rows = conf_draw_rows(rng), .add = conf_below(rng, 2)};
    a.act = conf_below(rng, 3) != 0 ? PLM_ACT_Q8 : PLM_ACT_F32;
    a.type = conf_draw_type(a.act, rng);
    a.n_out = conf_range(rng, 1, 100);
    if (conf_below(rng, 5) == 0) {
        a.rows = conf_draw_edge(rng);
        a.n_out = conf_draw_edge(rng);
        if (a.act == PLM_ACT_F32) // what devices have such tiles for
            a.type = conf_below(rng, 3) != 0 ? PLM_TYPE_BF16 : PLM_TYPE_F16;
    }
    a.n_in = conf_draw_n_in(a.type, rng);
    a.ld_dst = a.n_out + conf_below(rng, 5);
    conf_begin(c, PLM_OP_MATMUL, sizeof a);
    conf_weight(c, FIELD(matmul, weight), a.type, a.n_in, a.n_out, rng);
    conf_draw_acts(c, FIELD(matmul, x), a.act, a.rows, a.n_in, rng);
    float *dst = conf_inout(c, FIELD(matmul, dst), (uint64_t)a.rows * a.ld_dst * 4);
    memset(dst, 0xff, (uint64_t)a.rows * a.ld_dst * 4);
    if (a.add)
        conf_fill_normal(dst, (uint64_t)a.rows * a.ld_dst, 1.0f, rng);
    if (conf_below(rng, 2))
        conf_fill_normal(conf_input(c, FIELD(matmul, bias), (uint64_t)a.n_out * 4), a.n_out, 1.0f,
                         rng);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "matmul type %u act %u rows %u n_in %u n_out %u add %u",
             a.type, a.act, a.rows, a.n_in, a.n_out, a.add);
}

static void conf_make_get_rows(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_get_rows_args a = {.rows = conf_draw_rows(rng), .scale = 1.0f};
    a.type = conf_draw_type(PLM_ACT_F32, rng);
    a.n_in = conf_draw_n_in(a.type, rng);
    a.n_out = conf_range(rng, 1, 100);
    if (conf_below(rng, 2))
        a.scale = 24.0f;
    conf_begin(c, PLM_OP_GET_ROWS, sizeof a);
    conf_weight(c, FIELD(get_rows, weight), a.type, a.n_in, a.n_out, rng);
    int32_t *tokens = conf_input(c, FIELD(get_rows, tokens), (uint64_t)a.rows * 4);
    for (uint32_t i = 0; i < a.rows; i++)
        tokens[i] = (int32_t)conf_below(rng, a.n_out);
    conf_output(c, FIELD(get_rows, dst), (uint64_t)a.rows * a.n_in * 4);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "get_rows type %u rows %u n_in %u n_out %u", a.type, a.rows,
             a.n_in, a.n_out);
}

// Elements of a row, a multiple of `of`: now and then more than 1,024, which devices cut.
static uint32_t conf_draw_n(uint32_t of, struct conf_rng *rng)
{
    if (conf_below(rng, 8) == 0)
        return of * conf_range(rng, 1025 / of + 1, 2200 / of);
    return of * conf_range(rng, 1, of == 1 ? 300 : 20);
}

static void conf_make_quantize(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_quantize_args a = {.rows = conf_draw_rows(rng), .n = conf_draw_n(32, rng)};
    conf_begin(c, PLM_OP_QUANTIZE, sizeof a);
    conf_fill_wild(conf_input(c, FIELD(quantize, x), (uint64_t)a.rows * a.n * 4),
                   (uint64_t)a.rows * a.n, rng);
    conf_output_q8(c, FIELD(quantize, dst), a.rows, a.n);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "quantize rows %u n %u", a.rows, a.n);
}

static void conf_make_rms_norm(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_rms_norm_args a = {.rows = conf_draw_rows(rng), .eps = 1e-5f};
    uint32_t outs = conf_range(rng, 1, 3);
    a.add = outs & 1 ? conf_below(rng, 2) : 0;
    a.n = conf_draw_n(outs == 1 ? 1 : 32, rng);
    if (conf_below(rng, 8) == 0) { // more than a device may keep in registers
        a.rows = conf_range(rng, 1, 2);
        a.n = outs == 1 ? conf_range(rng, 8193, 9300) : 32 * conf_range(rng, 257, 290);
    }
    uint64_t n = (uint64_t)a.rows * a.n;
    conf_begin(c, PLM_OP_RMS_NORM, sizeof a);
    conf_fill_normal(conf_inout(c, FIELD(rms_norm, x), n * 4), n, 3.0f, rng);
    if (conf_below(rng, 2))
        conf_fill_normal(conf_input(c, FIELD(rms_norm, residual), n * 4), n, 1.0f, rng);
    conf_fill_normal(conf_input(c, FIELD(rms_norm, weight), (uint64_t)a.n * 4), a.n, 1.0f, rng);
    if (a.add)
        conf_fill_normal(conf_inout(c, FIELD(rms_norm, dst_f32), n * 4), n, 1.0f, rng);
    else if (outs & 1)
        conf_output(c, FIELD(rms_norm, dst_f32), n * 4);
    if (outs & 2)
        conf_output_q8(c, FIELD(rms_norm, dst_q8), a.rows, a.n);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "rms_norm rows %u n %u outputs %u add %u", a.rows, a.n,
             outs, a.add);
}

static void conf_make_gate_mul(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_gate_mul_args a = {.rows = conf_draw_rows(rng), .gate_fn = conf_below(rng, 2)};
    uint32_t outs = conf_range(rng, 1, 3);
    a.n = conf_draw_n(outs == 1 ? 1 : 32, rng);
    a.ld = a.n + conf_below(rng, 40);
    uint64_t n = (uint64_t)a.rows * a.ld;
    conf_begin(c, PLM_OP_GATE_MUL, sizeof a);
    conf_fill_wild(conf_input(c, FIELD(gate_mul, gate), n * 4), n, rng);
    conf_fill_normal(conf_input(c, FIELD(gate_mul, up), n * 4), n, 1.0f, rng);
    if (outs & 1)
        conf_output(c, FIELD(gate_mul, dst_f32), (uint64_t)a.rows * a.n * 4);
    if (outs & 2)
        conf_output_q8(c, FIELD(gate_mul, dst_q8), a.rows, a.n);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "gate_mul rows %u n %u outputs %u gate %u", a.rows, a.n,
             outs, a.gate_fn);
}

static void conf_make_rope_table(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_rope_table_args a = {.rows = conf_draw_rows(rng),
                                    .dims = 2 * conf_range(rng, 1, 64)};
    if (conf_below(rng, 2))
        a.scale = 1.0f + 0.1f * conf_normal(rng);
    conf_begin(c, PLM_OP_ROPE_TABLE, sizeof a);
    int32_t *pos = conf_input(c, FIELD(rope_table, pos), (uint64_t)a.rows * 4);
    for (uint32_t i = 0; i < a.rows; i++)
        pos[i] = (int32_t)conf_below(rng, conf_below(rng, 2) ? 4000 : 1u << 24);
    // From almost a whole turn down to hardly any, as bases give them; also none, and all bits.
    uint64_t *increments = conf_input(c, FIELD(rope_table, increments), (uint64_t)a.dims * 4);
    for (uint32_t i = 0; i < a.dims / 2; i++) {
        increments[i] = (uint64_t)conf_below(rng, UINT32_MAX) << 32;
        increments[i] |= conf_below(rng, UINT32_MAX);
        increments[i] >>= conf_below(rng, 64);
    }
    increments[0] = conf_below(rng, 2) ? 0 : UINT64_MAX;
    if (conf_below(rng, 2)) {
        // As many as the positions need, and of some positions the last before the next one.
        uint32_t last = 0;
        a.scale_span = conf_range(rng, 1000, 1u << 20);
        for (uint32_t i = 0; i < a.rows; i++) {
            if (conf_below(rng, 4) == 0)
                pos[i] = (int32_t)((uint32_t)pos[i] / a.scale_span * a.scale_span +
                                   (conf_below(rng, 2) ? a.scale_span - 1 : 0));
            last = (uint32_t)pos[i] / a.scale_span > last ? (uint32_t)pos[i] / a.scale_span : last;
        }
        float *scales = conf_input(c, FIELD(rope_table, scales), (last + 1) * 4);
        for (uint32_t i = 0; i <= last; i++)
            scales[i] = 1.0f + 0.5f * conf_normal(rng);
    }
    conf_output(c, FIELD(rope_table, dst), (uint64_t)a.rows * a.dims * 4);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "rope_table rows %u dims %u scale %g span %u", a.rows,
             a.dims, (double)a.scale, a.scale_span);
}

static void conf_make_rope_kv(struct conf_case *c, struct conf_rng *rng)
{
    struct conf_kv_shape s = conf_draw_kv(rng);
    struct plm_rope_kv_args a = {.rows = conf_draw_rows(rng),
                                 .kv_heads = s.kv_heads,
                                 .head_dim = s.head_dim,
                                 .kv_type = s.kv_type};
    a.heads = s.kv_heads * conf_range(rng, 1, 4);
    a.layer_offset = conf_below(rng, s.layers) * s.layer_bytes;
    a.ld = a.heads * s.head_dim + conf_below(rng, 9);
    const uint32_t part = conf_below(rng, 6); // sometimes q alone, or k and v
    a.heads = part == 0 ? 0 : a.heads;
    a.kv_heads = part == 1 ? 0 : a.kv_heads;
    a.dims = conf_draw_rope_dims(a.head_dim, rng);
    a.mode = conf_below(rng, 2) ? PLM_ROPE_NEOX : PLM_ROPE_NORM;
    conf_begin(c, PLM_OP_ROPE_KV, sizeof a);
    uint64_t slab = (a.rows + 15) / 16 * s.block_bytes, n = (uint64_t)a.rows * a.ld;
    memset(conf_inout(c, UINT32_MAX, slab), 0xff, slab);
    conf_slab(c, &s);
    conf_fill_slots(c, FIELD(rope_kv, slots), FIELD(rope_kv, pos), 0, a.rows, &s, rng);
    conf_fill_normal(conf_inout(c, FIELD(rope_kv, q), n * 4), n, 1.0f, rng);
    conf_fill_normal(conf_inout(c, FIELD(rope_kv, k), n * 4), n, 1.0f, rng);
    float *v = conf_input(c, FIELD(rope_kv, v), n * 4);
    if (s.kv_type == PLM_TYPE_Q8_0 && conf_below(rng, 2))
        conf_fill_wild(v, n, rng);
    else
        conf_fill_normal(v, n, 1.0f, rng);
    uint64_t table = (uint64_t)a.rows * a.dims;
    conf_fill_normal(conf_input(c, FIELD(rope_kv, table), table * 4), table, 1.0f, rng);
    conf_draw_norms(c, FIELD(rope_kv, norms), a.head_dim, rng);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label,
             "rope_kv rows %u heads %u:%u dim %u:%u mode %u type %u norms %d", a.rows, a.heads,
             a.kv_heads, a.head_dim, a.dims, a.mode, a.kv_type,
             conf_at(c, FIELD(rope_kv, norms)) != NULL);
}

static void conf_make_add(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_add_args a = {.rows = conf_draw_rows(rng), .n = conf_draw_n(1, rng)};
    uint64_t n = (uint64_t)a.rows * a.n;
    conf_begin(c, PLM_OP_ADD, sizeof a);
    conf_fill_wild(conf_input(c, FIELD(add, a), n * 4), n, rng);
    conf_fill_wild(conf_input(c, FIELD(add, b), n * 4), n, rng);
    conf_output(c, FIELD(add, dst), n * 4);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "add rows %u n %u", a.rows, a.n);
}

static void conf_make_soft_cap(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_soft_cap_args a = {.rows = conf_range(rng, 1, 6), .n = conf_range(rng, 1, 5000)};
    a.cap = conf_below(rng, 2) ? 30.0f : expf(conf_normal(rng));
    const uint64_t n = (uint64_t)a.rows * a.n;
    conf_begin(c, PLM_OP_SOFT_CAP, sizeof a);
    float *x = conf_inout(c, FIELD(soft_cap, x), n * 4);
    conf_fill_wild(x, n, rng);
    for (uint64_t i = 0; i < n; i += 1 + conf_below(rng, 3)) // about the end of the polynomial, too
        x[i] = conf_normal(rng) * a.cap;
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "soft_cap rows %u n %u cap %g", a.rows, a.n, (double)a.cap);
}

static void conf_make_gather(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_gather_args a = {.rows = conf_draw_rows(rng), .n = conf_draw_n(1, rng)};
    uint32_t from = conf_range(rng, 1, 50);
    conf_begin(c, PLM_OP_GATHER, sizeof a);
    conf_fill_wild(conf_input(c, FIELD(gather, src), (uint64_t)from * a.n * 4),
                   (uint64_t)from * a.n, rng);
    int32_t *index = conf_input(c, FIELD(gather, index), (uint64_t)a.rows * 4);
    for (uint32_t i = 0; i < a.rows; i++)
        index[i] = (int32_t)conf_below(rng, from);
    conf_output(c, FIELD(gather, dst), (uint64_t)a.rows * a.n * 4);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "gather rows %u n %u", a.rows, a.n);
}

static void conf_make_copy(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_copy_args a = {.n_words = conf_range(rng, 1, 600000)};
    conf_begin(c, PLM_OP_COPY, sizeof a);
    uint32_t *src = conf_input(c, FIELD(copy, src), a.n_words * 4);
    for (uint64_t i = 0; i < a.n_words; i++)
        src[i] = conf_u32(rng);
    conf_output(c, FIELD(copy, dst), a.n_words * 4);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "copy words %llu", (unsigned long long)a.n_words);
}

static void conf_make_fill(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_fill_args a = {.n_words = conf_range(rng, 1, 600000), .seed = conf_u32(rng)};
    conf_begin(c, PLM_OP_FILL, sizeof a);
    conf_output(c, FIELD(fill, dst), a.n_words * 4);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "fill words %llu", (unsigned long long)a.n_words);
}

static void conf_make_verify(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_verify_args a = {.n_words = conf_range(rng, 1, 600000), .seed = conf_u32(rng)};
    conf_begin(c, PLM_OP_VERIFY, sizeof a);
    uint32_t *src = conf_input(c, FIELD(verify, src), a.n_words * 4);
    for (uint64_t i = 0; i < a.n_words; i++)
        src[i] = conf_u32(rng);
    uint32_t *count = conf_inout(c, FIELD(verify, count), 4);
    *count = 0;
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "verify words %llu", (unsigned long long)a.n_words);
}

void conf_make(struct conf_case *c, enum plm_op op, struct conf_rng *rng)
{
    switch (op) {
#define PLM_OP(NAME, name, units, tolerance)                                                       \
    case PLM_OP_##NAME:                                                                            \
        conf_make_##name(c, rng);                                                                  \
        break;
#include "kernels/ops.def"
#undef PLM_OP
    default: break;
    }
    conf_ready(c);
}
