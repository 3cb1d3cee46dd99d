// SPDX-License-Identifier: Apache-2.0
// Random cases of attention and of the optional ops.
#include <math.h>
#include <string.h>

#include "tests/conformance/draw.h"

// ---- attention ----

// Contexts within a block or a few; rarely, over more than one split.
static uint32_t draw_blocks(const struct conf_kv_shape *s, struct conf_rng *rng)
{
    const bool small = s->kv_heads * s->head_dim <= 128;
    return small && conf_below(rng, 3) == 0 ? conf_range(rng, 14, CONF_CONTEXT_MAX / 16)
                                            : conf_range(rng, 1, 6);
}

// Windows of few tokens, of whole blocks or splits and one beside, and wider than the context.
static uint32_t draw_window(uint32_t tokens, struct conf_rng *rng)
{
    const uint32_t unit = conf_below(rng, 2) ? PLM_KV_BLOCK_TOKENS : PLM_ATTN_SPLIT_TOKENS;
    switch (conf_below(rng, 8)) {
    case 0: return conf_range(rng, 1, 3);
    case 1: return unit * conf_range(rng, 1, 2) + conf_below(rng, 3) - 1;
    case 2:
    case 3: return conf_range(rng, 1, tokens + 20);
    default: return 0;
    }
}

// No memory: what a row does not see is not read.
#define NOWHERE (UINT64_C(1) << 45)

// The table of a sequence, and K and V of what some of its rows see. The rest stays NaN, and blocks
// that no row sees part of have no address.
static void fill_seen(uint8_t *slab, const struct conf_kv_shape *s, uint64_t *table,
                      const struct plm_attention_args *a, const int32_t *pos, uint32_t rows,
                      struct conf_rng *rng)
{
    bool seen[CONF_CONTEXT_MAX + PLM_KV_BLOCK_TOKENS] = {false};
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t p = PLM_ATTN_FIRST((uint32_t)pos[r], a->window); p <= (uint32_t)pos[r]; p++)
            seen[p] = true;
    for (uint32_t b = 0; b < a->table_stride; b++) {
        bool any = false;
        for (uint32_t p = b * 16; b * 16 < CONF_CONTEXT_MAX && p < (b + 1) * 16; p++) {
            if (seen[p])
                conf_fill_history(slab, s, table, a->layer_offset, p, p + 1, rng);
            any = any || seen[p];
        }
        if (!any)
            table[b] = NOWHERE;
    }
}

// Inputs of attention, whose fields attention_split has in the same places.
static struct plm_attention_args draw_attention(struct conf_case *c, struct conf_rng *rng)
{
    struct conf_kv_shape s = conf_draw_kv(rng);
    uint32_t seqs = conf_range(rng, 1, 4), blocks = draw_blocks(&s, rng), group;
    struct plm_attention_args a = {.kv_heads = s.kv_heads,
                                   .head_dim = s.head_dim,
                                   .kv_type = s.kv_type,
                                   .table_stride = blocks + conf_below(rng, 3)};
    group = conf_below(rng, 6) == 0 ? conf_range(rng, 13, 16) : conf_range(rng, 1, 7);
    a.heads = s.kv_heads * group;
    a.ld_q = a.heads * a.head_dim + conf_below(rng, 9);
    a.scale = 1.0f / sqrtf((float)a.head_dim);
    a.layer_offset = conf_below(rng, s.layers) * s.layer_bytes;
    a.window = draw_window(blocks * 16, rng);
    uint64_t slab_bytes = (uint64_t)seqs * blocks * s.block_bytes;
    uint8_t *slab = conf_input(c, UINT32_MAX, slab_bytes);
    memset(slab, 0xff, slab_bytes);
    uint64_t *tables =
        conf_addresses(c, FIELD(attention, tables), (uint64_t)seqs * a.table_stride, 0);
    int32_t pos[200], seq[200];
    for (uint32_t q = 0; q < seqs; q++) {
        uint32_t tokens = conf_range(rng, 1, blocks * 16);
        for (uint32_t b = 0; b < a.table_stride; b++) // interleaved among the sequences
            tables[q * a.table_stride + b] = b < blocks ? (b * seqs + q) * s.block_bytes : NOWHERE;
        // A chunk at the end, a single token, or rows in any order.
        uint32_t rows = conf_below(rng, 2) ? 1 : conf_range(rng, 1, tokens < 45 ? tokens : 45);
        bool shuffled = conf_below(rng, 5) == 0;
        for (uint32_t r = 0; r < rows; r++) {
            seq[a.rows] = (int32_t)q;
            pos[a.rows++] = (int32_t)(shuffled ? conf_below(rng, tokens) : tokens - rows + r);
        }
        fill_seen(slab, &s, tables + q * a.table_stride, &a, pos + a.rows - rows, rows, rng);
    }
    memcpy(conf_input(c, FIELD(attention, pos), (uint64_t)a.rows * 4), pos, (uint64_t)a.rows * 4);
    memcpy(conf_input(c, FIELD(attention, seq), (uint64_t)a.rows * 4), seq, (uint64_t)a.rows * 4);
    uint64_t n = (uint64_t)a.rows * a.ld_q;
    conf_fill_normal(conf_input(c, FIELD(attention, q), n * 4), n, 2.0f, rng);
    snprintf(c->label, sizeof c->label, "%s rows %u blocks %u window %u heads %u:%u dim %u type %u",
             conf_op_name(c->op), a.rows, blocks, a.window, a.heads, a.kv_heads, a.head_dim,
             a.kv_type);
    return a;
}

void conf_make_attention(struct conf_case *c, struct conf_rng *rng)
{
    conf_begin(c, PLM_OP_ATTENTION, sizeof(struct plm_attention_args));
    struct plm_attention_args a = draw_attention(c, rng);
    conf_output(c, FIELD(attention, dst), (uint64_t)a.rows * a.heads * a.head_dim * 4);
    conf_set_args(c, &a);
}

#define SAME_PLACE(name)                                                                           \
    _Static_assert(FIELD(attention, name) == FIELD(attention_split, name), "fields of attention")
SAME_PLACE(q);
SAME_PLACE(pos);
SAME_PLACE(seq);
SAME_PLACE(tables);

void conf_make_attention_split(struct conf_case *c, struct conf_rng *rng)
{
    conf_begin(c, PLM_OP_ATTENTION_SPLIT, sizeof(struct plm_attention_split_args));
    const struct plm_attention_args a = draw_attention(c, rng);
    const uint32_t splits =
        (uint32_t)PLM_ATTN_SPANNED(PLM_ATTN_SPLIT_TOKENS, a.table_stride * 16, a.window);
    const struct plm_attention_split_args s = {.layer_offset = a.layer_offset,
                                               .table_stride = a.table_stride,
                                               .rows = a.rows,
                                               .ld_q = a.ld_q,
                                               .heads = a.heads,
                                               .kv_heads = a.kv_heads,
                                               .head_dim = a.head_dim,
                                               .kv_type = a.kv_type,
                                               .splits = splits + conf_below(rng, 2),
                                               .scale = a.scale,
                                               .window = a.window};
    conf_output(c, FIELD(attention_split, partial),
                (uint64_t)a.rows * a.heads * s.splits * (a.head_dim + 2) * 4);
    conf_set_args(c, &s);
}

// Records as attention_split leaves them; those of later splits stay NaN.
static void fill_partial(float *partial, const int32_t *pos,
                         const struct plm_attention_merge_args *a, struct conf_rng *rng)
{
    for (uint32_t u = 0; u < a->rows * a->heads; u++)
        for (uint32_t s = 0; s < a->splits; s++, partial += a->head_dim + 2) {
            memset(partial, 0xff, (uint64_t)(a->head_dim + 2) * 4);
            const uint32_t at = (uint32_t)pos[u / a->heads];
            const uint32_t first = PLM_ATTN_FIRST(at, a->window) / PLM_ATTN_SPLIT_TOKENS;
            if (first + s > at / PLM_ATTN_SPLIT_TOKENS)
                continue;
            partial[0] = conf_normal(rng) * 3.0f;
            partial[1] = 1.0f + (float)conf_below(rng, 100);
            conf_fill_normal(partial + 2, a->head_dim, partial[1], rng);
        }
}

void conf_make_attention_merge(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_attention_merge_args a = {.rows = conf_range(rng, 1, 20),
                                         .heads = conf_range(rng, 1, 16),
                                         .head_dim = 8 * conf_range(rng, 1, 16),
                                         .splits = conf_range(rng, 1, 6)};
    uint32_t outs = conf_range(rng, 1, 3), context = a.splits * PLM_ATTN_SPLIT_TOKENS;
    a.window = draw_window(context, rng);
    a.splits = (uint32_t)PLM_ATTN_SPANNED(PLM_ATTN_SPLIT_TOKENS, context, a.window);
    if (outs & 2)
        a.heads = 4 * conf_range(rng, 1, 4);
    conf_begin(c, PLM_OP_ATTENTION_MERGE, sizeof a);
    int32_t *pos = conf_input(c, FIELD(attention_merge, pos), (uint64_t)a.rows * 4);
    for (uint32_t r = 0; r < a.rows; r++)
        pos[r] = (int32_t)conf_below(rng, context);
    const uint64_t n = (uint64_t)a.heads * a.head_dim;
    float *partial = conf_input(c, FIELD(attention_merge, partial),
                                (uint64_t)a.rows * a.heads * a.splits * (a.head_dim + 2) * 4);
    fill_partial(partial, pos, &a, rng);
    if (outs & 1)
        conf_output(c, FIELD(attention_merge, dst_f32), a.rows * n * 4);
    if (outs & 2)
        conf_output_q8(c, FIELD(attention_merge, dst_q8), a.rows, (uint32_t)n);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label,
             "attention_merge rows %u heads %u dim %u splits %u window %u", a.rows, a.heads,
             a.head_dim, a.splits, a.window);
}

// ---- products and what follows ----

static uint32_t draw_few_rows(struct conf_rng *rng)
{
    return conf_below(rng, 8) == 0 ? conf_range(rng, 17, 40) : conf_range(rng, 1, 10);
}

static void draw_bias(struct conf_case *c, size_t field, uint32_t n, struct conf_rng *rng)
{
    if (conf_below(rng, 2))
        conf_fill_normal(conf_input(c, field, (uint64_t)n * 4), n, 1.0f, rng);
}

// The products that a launch has: all, or some where the types differ.
static void draw_qkv_weights(struct conf_case *c, const struct plm_qkv_args *a,
                             struct conf_rng *rng)
{
    static const size_t weights[] = {FIELD(qkv, weight_q), FIELD(qkv, weight_k),
                                     FIELD(qkv, weight_v)};
    static const size_t biases[] = {FIELD(qkv, bias_q), FIELD(qkv, bias_k), FIELD(qkv, bias_v)};
    const uint32_t there = conf_below(rng, 2) ? 7 : conf_range(rng, 1, 7);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t heads = i == 0 ? PLM_LOW(a->heads) : PLM_HIGH(a->heads);
        if ((there >> i & 1) == 0)
            continue;
        conf_weight(c, weights[i], PLM_KIND(a->kinds, 0), a->n_in, heads * PLM_LOW(a->head_dim),
                    rng);
        draw_bias(c, biases[i], heads * PLM_LOW(a->head_dim), rng);
    }
}

void conf_make_qkv(struct conf_case *c, struct conf_rng *rng)
{
    struct conf_kv_shape s = conf_draw_kv(rng);
    const uint32_t act = conf_below(rng, 3) != 0 ? PLM_ACT_Q8 : PLM_ACT_F32;
    const enum plm_type type = conf_draw_type(act, rng);
    const uint32_t heads = s.kv_heads * conf_range(rng, 1, 3);
    const uint32_t dims = conf_draw_rope_dims(s.head_dim, rng);
    struct plm_qkv_args a = {.rows = draw_few_rows(rng),
                             .n_in = conf_draw_n_in(type, rng),
                             .ld_q = heads * s.head_dim + conf_below(rng, 9),
                             .heads = PLM_PAIR(heads, s.kv_heads),
                             .head_dim = PLM_PAIR(s.head_dim, dims)};
    a.layer_offset = conf_below(rng, s.layers) * s.layer_bytes;
    a.kinds = PLM_KINDS((uint32_t)type, act, conf_below(rng, 2), s.kv_type);
    conf_begin(c, PLM_OP_QKV, sizeof a);
    uint64_t slab = (a.rows + 15) / 16 * s.block_bytes;
    memset(conf_inout(c, UINT32_MAX, slab), 0xff, slab);
    conf_slab(c, &s);
    conf_fill_slots(c, FIELD(qkv, slots), FIELD(qkv, pos), 0, a.rows, &s, rng);
    conf_draw_acts(c, FIELD(qkv, x), act, a.rows, a.n_in, rng);
    uint64_t table = (uint64_t)a.rows * dims;
    conf_fill_normal(conf_input(c, FIELD(qkv, table), table * 4), table, 1.0f, rng);
    // Whole rows are poisoned: what lies between them is nobody's.
    conf_output(c, FIELD(qkv, q), (uint64_t)a.rows * a.ld_q * 4);
    draw_qkv_weights(c, &a, rng);
    conf_draw_norms(c, FIELD(qkv, norms), s.head_dim, rng);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label,
             "qkv rows %u n_in %u heads %u:%u dim %u:%u kinds %#x norms %d", a.rows, a.n_in, heads,
             s.kv_heads, s.head_dim, dims, a.kinds, conf_at(c, FIELD(qkv, norms)) != NULL);
}

void conf_make_glu(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_glu_args a = {.rows = draw_few_rows(rng), .gate_fn = conf_below(rng, 2)};
    uint32_t outs = conf_range(rng, 1, 3);
    a.act = conf_below(rng, 3) != 0 ? PLM_ACT_Q8 : PLM_ACT_F32;
    a.type = conf_draw_type(a.act, rng);
    a.n_in = conf_draw_n_in(a.type, rng);
    a.n_out = outs == 1 ? conf_range(rng, 1, 150) : 32 * conf_range(rng, 1, 6);
    conf_begin(c, PLM_OP_GLU, sizeof a);
    conf_weight(c, FIELD(glu, weight_gate), a.type, a.n_in, a.n_out, rng);
    conf_weight(c, FIELD(glu, weight_up), a.type, a.n_in, a.n_out, rng);
    draw_bias(c, FIELD(glu, bias_gate), a.n_out, rng);
    draw_bias(c, FIELD(glu, bias_up), a.n_out, rng);
    conf_draw_acts(c, FIELD(glu, x), a.act, a.rows, a.n_in, rng);
    if (outs & 1)
        conf_output(c, FIELD(glu, dst_f32), (uint64_t)a.rows * a.n_out * 4);
    if (outs & 2)
        conf_output_q8(c, FIELD(glu, dst_q8), a.rows, a.n_out);
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label,
             "glu type %u act %u rows %u n_in %u n_out %u outputs %u gate %u", a.type, a.act,
             a.rows, a.n_in, a.n_out, outs, a.gate_fn);
}

// ---- argmax ----

void conf_make_argmax(struct conf_case *c, struct conf_rng *rng)
{
    struct plm_argmax_args a = {.rows = conf_draw_rows(rng), .n = conf_range(rng, 1, 3000)};
    conf_begin(c, PLM_OP_ARGMAX, sizeof a);
    float *x = conf_input(c, FIELD(argmax, x), (uint64_t)a.rows * a.n * 4);
    for (uint32_t r = 0; r < a.rows; r++, x += a.n) {
        conf_fill_normal(x, a.n, 4.0f, rng);
        uint32_t mode = conf_below(rng, 4);
        for (uint32_t i = 0; mode == 0 && i < a.n; i++)
            x[i] = (float)(int32_t)x[i] * 0.0f; // equal, of either sign
        for (uint32_t i = 0; mode == 1 && i < a.n; i++)
            x[i] = floorf(x[i]); // many are the largest
        for (uint32_t i = conf_below(rng, 3); mode == 2 && i > 0; i--)
            x[conf_below(rng, a.n)] = conf_below(rng, 2)   ? NAN
                                      : conf_below(rng, 2) ? INFINITY
                                                           : -INFINITY;
    }
    conf_output(c, FIELD(argmax, dst), (uint64_t)a.rows * sizeof(struct plm_argmax_record));
    c->buf[c->n_bufs - 1].kind = CONF_ARGMAX;
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "argmax rows %u n %u", a.rows, a.n);
}

// ---- sample ----

// One row's parameters: each filter on or off, mild or extreme.
static struct plm_sample_row draw_sample_row(uint32_t n, struct conf_rng *rng)
{
    static const float top_p[] = {1e-30f, 0.1f, 0.5f, 0.95f, 0.999f, 0.99999994f};
    static const float cut[] = {0.0f, -0.0f, 0.7f, 3.0f, 12.0f};
    const uint32_t top_k[] = {1, 2, 40, 64, 255, 256, 257, conf_range(rng, 1, n), n, n + 9};
    struct plm_sample_row p = {.u = (uint64_t)conf_u32(rng) << 32 | conf_u32(rng),
                               .scale = expf(conf_normal(rng)),
                               .cut = PLM_SAMPLE_NO_CUT,
                               .top_p = 1.0f};
    switch (conf_below(rng, 8)) {
    case 0: p.u = 0; break;
    case 1: p.u = UINT64_MAX; break;
    case 2: p.scale = conf_below(rng, 2) ? 0.0f : 99999.0f; break;
    default: break;
    }
    if (conf_below(rng, 2))
        p.top_p = top_p[conf_below(rng, sizeof top_p / sizeof top_p[0])];
    if (conf_below(rng, 2))
        p.top_k = top_k[conf_below(rng, sizeof top_k / sizeof top_k[0])];
    if (conf_below(rng, 3) == 0)
        p.cut = cut[conf_below(rng, sizeof cut / sizeof cut[0])];
    return p;
}

// Rows of a vocabulary of few tokens, of more than a block gathers, and of more than it has at
// once.
void conf_make_sample(struct conf_case *c, struct conf_rng *rng)
{
    static const uint32_t most[] = {9, 600, 5000, 20000};
    struct plm_sample_args a = {.n = conf_range(rng, 1, most[conf_below(rng, 4)])};
    a.rows = a.n > 600 ? conf_range(rng, 1, 3) : conf_draw_rows(rng) % 16 + 1;
    conf_begin(c, PLM_OP_SAMPLE, sizeof a);
    float *x = conf_input(c, FIELD(sample, x), (uint64_t)a.rows * a.n * 4);
    for (uint32_t r = 0; r < a.rows; r++, x += a.n) {
        const uint32_t mode = conf_below(rng, 8);
        conf_fill_normal(x, a.n, mode < 4 ? 0.2f : 4.0f, rng); // flat or peaked
        for (uint32_t i = 0; mode == 0 && i < a.n; i++)
            x[i] = (float)(int32_t)x[i] * 0.0f; // equal, of either sign
        for (uint32_t i = 0; (mode == 1 || mode == 4) && i < a.n; i++)
            x[i] = floorf(x[i] * 4.0f); // many at each distance
        for (uint32_t i = conf_below(rng, 3); mode == 5 && i > 0; i--)
            x[conf_below(rng, a.n)] = conf_below(rng, 2) ? NAN : INFINITY;
    }
    struct plm_sample_row *p =
        conf_input(c, FIELD(sample, params), (uint64_t)a.rows * sizeof(struct plm_sample_row));
    for (uint32_t r = 0; r < a.rows; r++)
        p[r] = draw_sample_row(a.n, rng);
    conf_output(c, FIELD(sample, dst), (uint64_t)a.rows * sizeof(struct plm_argmax_record));
    c->buf[c->n_bufs - 1].kind = CONF_ARGMAX;
    conf_set_args(c, &a);
    snprintf(c->label, sizeof c->label, "sample rows %u n %u, first: scale %g cut %g p %g k %u",
             a.rows, a.n, (double)p->scale, (double)p->cut, (double)p->top_p, p->top_k);
}
