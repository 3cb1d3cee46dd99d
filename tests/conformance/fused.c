// SPDX-License-Identifier: Apache-2.0
// Optional ops against the chains of ops that they stand for, on one target: bit-equal.
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/draw.h"

#define CASES 20

static void *copy_of(struct conf_case *c, size_t field, const void *src, uint64_t bytes)
{
    return memcpy(conf_input(c, field, bytes), src, bytes);
}

// The contents of a field's buffer in the case that is taken apart, or nothing where it has none.
static void same_input(struct conf_case *c, size_t field, struct conf_case *from, size_t from_field)
{
    const struct conf_buf *b = conf_at(from, from_field);
    if (b != NULL)
        copy_of(c, field, b->weight ? b->data : b->initial, b->bytes);
}

// Runs a step of a chain and returns a copy of its output, which the caller frees; NULL: failed.
static void *run_step(struct conf_target *t, struct conf_case *c, const void *args, size_t field,
                      struct conf_rng *rng)
{
    conf_set_args(c, args);
    conf_ready(c);
    const struct conf_buf *out = conf_at(c, field);
    void *ret = malloc(out->bytes + 1);
    if (ret != NULL && t->run(t, c, rng) == 0) {
        memcpy(ret, out->data, out->bytes);
    } else {
        free(ret);
        ret = NULL;
    }
    conf_end(c);
    return ret;
}

static bool equal(const struct conf_case *c, const char *what, const void *fused, const void *chain,
                  uint64_t bytes)
{
    const bool ok = fused != NULL && chain != NULL && memcmp(fused, chain, bytes) == 0;
    if (!ok)
        printf("FAIL %s: %s differs from its chain\n", c->label, what);
    return ok;
}

// ---- qkv ----

static float *product(struct conf_target *t, struct conf_case *from, size_t x, size_t weight,
                      size_t bias, struct plm_matmul_args a, struct conf_rng *rng)
{
    struct conf_case c;
    conf_begin(&c, PLM_OP_MATMUL, sizeof a);
    same_input(&c, FIELD(matmul, weight), from, weight);
    same_input(&c, FIELD(matmul, x), from, x);
    same_input(&c, FIELD(matmul, bias), from, bias);
    conf_output(&c, FIELD(matmul, dst), (uint64_t)a.rows * a.ld_dst * 4);
    return run_step(t, &c, &a, FIELD(matmul, dst), rng);
}

// q, k or v of all rows, `ld` elements apart; zeros where the launch has no such product. The
// caller frees it.
static float *qkv_product(struct conf_target *t, struct conf_case *from, size_t weight, size_t bias,
                          uint32_t heads, uint32_t ld, struct conf_rng *rng)
{
    const struct plm_qkv_args *q = (const void *)from->args;
    if (conf_at(from, weight) == NULL)
        return calloc((size_t)q->rows * ld, 4);
    return product(t, from, FIELD(qkv, x), weight, bias,
                   (struct plm_matmul_args){.type = PLM_KIND(q->kinds, 0),
                                            .act = PLM_KIND(q->kinds, 1),
                                            .rows = q->rows,
                                            .n_in = q->n_in,
                                            .n_out = heads * PLM_LOW(q->head_dim),
                                            .ld_dst = ld},
                   rng);
}

static void same_norms(struct conf_case *c, size_t field, struct conf_case *from, size_t from_field)
{
    const struct conf_buf *norms = conf_at(from, from_field);
    if (norms == NULL)
        return;
    const struct conf_buf *weights = &from->buf[norms->reloc];
    copy_of(c, UINT32_MAX, weights->initial, weights->bytes);
    uint64_t *words = conf_addresses(c, field, norms->bytes / 8, c->n_bufs - 1);
    memcpy(words, norms->initial, norms->bytes);
    c->buf[c->n_bufs - 1].relocs = norms->relocs;
}

// What follows the products: rope_kv on them, into a case that the caller ends.
static bool run_rope_kv(struct conf_target *t, struct conf_case *from, float *const x[3],
                        uint32_t ld, struct conf_case *c, struct conf_rng *rng)
{
    const struct plm_qkv_args *q = (const void *)from->args;
    const struct plm_rope_kv_args a = {.layer_offset = q->layer_offset,
                                       .rows = q->rows,
                                       .ld = ld,
                                       .heads = PLM_LOW(q->heads),
                                       .kv_heads = PLM_HIGH(q->heads),
                                       .head_dim = PLM_LOW(q->head_dim),
                                       .dims = PLM_HIGH(q->head_dim),
                                       .mode = PLM_KIND(q->kinds, 2),
                                       .kv_type = PLM_KIND(q->kinds, 3)};
    const struct conf_buf *slots = conf_at(from, FIELD(qkv, slots));
    const uint64_t bytes = (uint64_t)a.rows * ld * 4;
    conf_begin(c, PLM_OP_ROPE_KV, sizeof a);
    memcpy(conf_inout(c, UINT32_MAX, from->buf[0].bytes), from->buf[0].initial, from->buf[0].bytes);
    memcpy(conf_addresses(c, FIELD(rope_kv, slots), a.rows, 0), slots->initial, slots->bytes);
    same_input(c, FIELD(rope_kv, pos), from, FIELD(qkv, pos));
    same_input(c, FIELD(rope_kv, table), from, FIELD(qkv, table));
    same_norms(c, FIELD(rope_kv, norms), from, FIELD(qkv, norms));
    memcpy(conf_inout(c, FIELD(rope_kv, q), bytes), x[0], bytes);
    memcpy(conf_inout(c, FIELD(rope_kv, k), bytes), x[1], bytes);
    copy_of(c, FIELD(rope_kv, v), x[2], bytes);
    conf_set_args(c, &a);
    conf_ready(c);
    return t->run(t, c, rng) == 0;
}

// The rows of q, between which lies nobody's memory.
static bool q_agrees(const struct conf_case *c, const uint8_t *fused, const uint8_t *chain,
                     uint32_t ld)
{
    const struct plm_qkv_args *a = (const void *)c->args;
    const uint64_t bytes = (uint64_t)PLM_LOW(a->heads) * PLM_LOW(a->head_dim) * 4;
    bool ok = true;
    for (uint32_t r = 0; ok && r < a->rows; r++)
        ok = equal(c, "q", fused + (uint64_t)r * a->ld_q * 4, chain + (uint64_t)r * ld * 4, bytes);
    return ok;
}

// K or V in the slab: what the chain wrote, or where the launch has no such product, nothing.
static bool kv_agrees(const struct conf_case *c, const uint8_t *chain, bool is_v, bool there)
{
    const struct plm_qkv_args *q = (const void *)c->args;
    const uint64_t half =
        PLM_HIGH(q->heads) * PLM_KV_HEAD_BYTES(PLM_KIND(q->kinds, 3), PLM_LOW(q->head_dim));
    const uint64_t *slots = NULL;
    bool ok = true;
    for (int i = 0; i < c->n_bufs; i++)
        if (c->buf[i].field == FIELD(qkv, slots))
            slots = (const uint64_t *)(const void *)c->buf[i].initial;
    for (uint32_t r = 0; ok && r < q->rows; r++) {
        const uint64_t at = slots[r] + q->layer_offset + (is_v ? half : 0);
        ok = equal(c, is_v ? "v" : "k", c->buf[0].data + at,
                   there ? chain + at : c->buf[0].initial + at, half);
    }
    return ok;
}

static bool qkv_agrees(struct conf_target *t, struct conf_case *c, struct conf_rng *rng)
{
    static const size_t weights[] = {FIELD(qkv, weight_q), FIELD(qkv, weight_k),
                                     FIELD(qkv, weight_v)};
    static const size_t biases[] = {FIELD(qkv, bias_q), FIELD(qkv, bias_k), FIELD(qkv, bias_v)};
    const struct plm_qkv_args *a = (const void *)c->args;
    const uint32_t ld = PLM_LOW(a->heads) * PLM_LOW(a->head_dim); // of q, the longest
    float *x[3];
    struct conf_case chain = {0};
    bool ok = t->run(t, c, rng) == 0, has[3];
    for (int i = 0; i < 3; i++) {
        const uint32_t heads = i == 0 ? PLM_LOW(a->heads) : PLM_HIGH(a->heads);
        has[i] = conf_at(c, weights[i]) != NULL;
        x[i] = qkv_product(t, c, weights[i], biases[i], heads, ld, rng);
        ok = ok && x[i] != NULL;
    }
    ok = ok && run_rope_kv(t, c, x, ld, &chain, rng);
    if (ok && has[0])
        ok = q_agrees(c, conf_at(c, FIELD(qkv, q))->data, conf_at(&chain, FIELD(rope_kv, q))->data,
                      ld);
    ok = ok && kv_agrees(c, chain.buf[0].data, false, has[1]) &&
         kv_agrees(c, chain.buf[0].data, true, has[2]);
    conf_end(&chain);
    for (int i = 0; i < 3; i++)
        free(x[i]);
    return ok;
}

// ---- glu ----

static bool glu_agrees(struct conf_target *t, struct conf_case *c, struct conf_rng *rng)
{
    const struct plm_glu_args *a = (const void *)c->args;
    const uint64_t bytes = (uint64_t)a->rows * a->n_out * 4;
    const struct plm_matmul_args m = {.type = a->type,
                                      .act = a->act,
                                      .rows = a->rows,
                                      .n_in = a->n_in,
                                      .n_out = a->n_out,
                                      .ld_dst = a->n_out};
    const struct plm_gate_mul_args s = {
        .rows = a->rows, .n = a->n_out, .ld = a->n_out, .gate_fn = a->gate_fn};
    static const size_t fused[] = {FIELD(glu, dst_f32), FIELD(glu, dst_q8)};
    static const size_t chain[] = {FIELD(gate_mul, dst_f32), FIELD(gate_mul, dst_q8)};
    float *gate =
        product(t, c, FIELD(glu, x), FIELD(glu, weight_gate), FIELD(glu, bias_gate), m, rng);
    float *up = product(t, c, FIELD(glu, x), FIELD(glu, weight_up), FIELD(glu, bias_up), m, rng);
    bool ok = gate != NULL && up != NULL && t->run(t, c, rng) == 0;
    for (int i = 0; ok && i < 2; i++) {
        const struct conf_buf *out = conf_at(c, fused[i]);
        struct conf_case step;
        if (out == NULL)
            continue;
        conf_begin(&step, PLM_OP_GATE_MUL, sizeof s);
        copy_of(&step, FIELD(gate_mul, gate), gate, bytes);
        copy_of(&step, FIELD(gate_mul, up), up, bytes);
        conf_output(&step, chain[i], out->bytes);
        void *want = run_step(t, &step, &s, chain[i], rng);
        ok = equal(c, i == 0 ? "the result" : "the 8-bit result", out->data, want, out->bytes);
        free(want);
    }
    free(gate);
    free(up);
    return ok;
}

// ---- attention ----

// Whether each row sees part of one split alone.
static bool one_split(struct conf_case *c, const struct plm_attention_split_args *a)
{
    const int32_t *pos = (const void *)conf_at(c, FIELD(attention_split, pos))->data;
    for (uint32_t r = 0; r < a->rows; r++)
        if ((uint32_t)pos[r] / PLM_ATTN_SPLIT_TOKENS !=
            PLM_ATTN_FIRST((uint32_t)pos[r], a->window) / PLM_ATTN_SPLIT_TOKENS)
            return false;
    return true;
}

static float *attention(struct conf_target *t, struct conf_case *from,
                        const struct plm_attention_split_args *s, struct conf_rng *rng)
{
    const struct plm_attention_args a = {.layer_offset = s->layer_offset,
                                         .table_stride = s->table_stride,
                                         .rows = s->rows,
                                         .ld_q = s->ld_q,
                                         .heads = s->heads,
                                         .kv_heads = s->kv_heads,
                                         .head_dim = s->head_dim,
                                         .kv_type = s->kv_type,
                                         .scale = s->scale,
                                         .window = s->window};
    const struct conf_buf *tables = conf_at(from, FIELD(attention_split, tables));
    struct conf_case c;
    conf_begin(&c, PLM_OP_ATTENTION, sizeof a);
    copy_of(&c, UINT32_MAX, from->buf[0].initial, from->buf[0].bytes);
    memcpy(conf_addresses(&c, FIELD(attention, tables), tables->bytes / 8, 0), tables->initial,
           tables->bytes);
    same_input(&c, FIELD(attention, pos), from, FIELD(attention_split, pos));
    same_input(&c, FIELD(attention, seq), from, FIELD(attention_split, seq));
    same_input(&c, FIELD(attention, q), from, FIELD(attention_split, q));
    conf_output(&c, FIELD(attention, dst), (uint64_t)a.rows * a.heads * a.head_dim * 4);
    return run_step(t, &c, &a, FIELD(attention, dst), rng);
}

static void *merge(struct conf_target *t, struct conf_case *from,
                   const struct plm_attention_split_args *s, size_t field, uint64_t bytes,
                   struct conf_rng *rng)
{
    const struct plm_attention_merge_args a = {.rows = s->rows,
                                               .heads = s->heads,
                                               .head_dim = s->head_dim,
                                               .splits = s->splits,
                                               .window = s->window};
    const struct conf_buf *partial = conf_at(from, FIELD(attention_split, partial));
    struct conf_case c;
    conf_begin(&c, PLM_OP_ATTENTION_MERGE, sizeof a);
    copy_of(&c, FIELD(attention_merge, partial), partial->data, partial->bytes);
    same_input(&c, FIELD(attention_merge, pos), from, FIELD(attention_split, pos));
    conf_output(&c, field, bytes);
    return run_step(t, &c, &a, field, rng);
}

static void *quantized(struct conf_target *t, const float *x, uint32_t rows, uint32_t n,
                       struct conf_rng *rng)
{
    const struct plm_quantize_args a = {.rows = rows, .n = n};
    struct conf_case c;
    conf_begin(&c, PLM_OP_QUANTIZE, sizeof a);
    copy_of(&c, FIELD(quantize, x), x, (uint64_t)rows * n * 4);
    conf_output_q8(&c, FIELD(quantize, dst), rows, n);
    return run_step(t, &c, &a, FIELD(quantize, dst), rng);
}

static bool attention_agrees(struct conf_target *t, struct conf_case *c, struct conf_rng *rng)
{
    const struct plm_attention_split_args *a = (const void *)c->args;
    const uint32_t n = a->heads * a->head_dim;
    const uint64_t q8_bytes = PLM_ACT_Q8_ROW_BYTES(n) * a->rows;
    struct conf_buf whole = {.bytes = (uint64_t)a->rows * n * 4, .kind = CONF_FLOATS};
    // The CPU's attention does not cut the positions, so that there one split alone is the same.
    const double limit = t->bit_equal && !one_split(c, a) ? 1e-5 : 0.0;
    bool ok = t->run(t, c, rng) == 0;
    float *merged = ok ? merge(t, c, a, FIELD(attention_merge, dst_f32), whole.bytes, rng) : NULL;
    float *direct = ok ? attention(t, c, a, rng) : NULL;
    ok = merged != NULL && direct != NULL &&
         conf_same(c, &whole, (const uint8_t *)direct, (const uint8_t *)merged, limit, "the chain");
    if (ok && n % 32 == 0) {
        void *q8 = merge(t, c, a, FIELD(attention_merge, dst_q8), q8_bytes, rng);
        void *want = quantized(t, merged, a->rows, n, rng);
        ok = equal(c, "the 8-bit result", q8, want, q8_bytes);
        free(q8);
        free(want);
    }
    free(merged);
    free(direct);
    return ok;
}

int conf_fused(struct conf_target *t, enum plm_op op, struct conf_rng *rng)
{
    int failures = 0;
    for (int n = 0; n < CASES; n++) {
        struct conf_case c;
        conf_make(&c, op, rng);
        failures += !(op == PLM_OP_QKV   ? qkv_agrees(t, &c, rng)
                      : op == PLM_OP_GLU ? glu_agrees(t, &c, rng)
                                         : attention_agrees(t, &c, rng));
        conf_end(&c);
    }
    return failures;
}
