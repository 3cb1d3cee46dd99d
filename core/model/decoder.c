// SPDX-License-Identifier: Apache-2.0
// The forward of a decoder-only transformer: what llama and qwen2 share is all of it but rope's
// pairs and the biases, which are data. Appends launches; barriers stand between dependent ones.
//
// Steps of few rows take the optional ops that the device prefers: a layer is then norm, qkv,
// attention_split, attention_merge, output, norm, glu and down, eight dispatches, each of which
// reads what the one before it wrote. Types that differ among q, k and v cost one more each.
#include "core/model/arch.h"

#include <stddef.h>

#include "core/base/checked.h"

// Dispatches of one layer at most (separate ones), and of frame and head.
#define LAYER_DISPATCHES 13
#define FRAME_DISPATCHES 8

// Pairs of a row and a split whose partial attention is kept at once: a single row over 262,144
// tokens, or eight over 32,768. More rows and tokens fill a device without being split.
#define PARTIALS_MAX 1024u

// One step on its way through the layers. `rows` and `x` change once: in the last layer, when only
// the rows that need logits go on.
struct pass {
    const struct plm_model *model;
    struct plm_device *device;
    const struct plm_forward *forward;
    uint64_t at[PLM_BUFFERS]; // device addresses of the buffers
    uint64_t x;
    uint32_t rows;
    bool depends; // what comes next reads what was appended since the last barrier
    int result;   // the first failure; later launches are skipped
};

static void did(struct pass *p, int result)
{
    if (p->result == PLM_OK)
        p->result = result;
}

static void barrier(struct pass *p)
{
    p->depends = true;
}

// Before a launch: the barrier, if it needs one.
static bool ready(struct pass *p)
{
    if (p->depends && p->result == PLM_OK)
        did(p, plm_device_barrier(p->device));
    p->depends = false;
    return p->result == PLM_OK;
}

#define LAUNCH(p, name, args)                                                                      \
    do {                                                                                           \
        if (ready(p))                                                                              \
            did(p, plm_launch_##name((p)->device, args));                                          \
    } while (0)

static bool tuning(const struct pass *p)
{
    return (p->forward->flags & PLM_FORWARD_TUNING) != 0;
}

static void offer(struct pass *p, enum plm_op op, const void *args)
{
    if (ready(p))
        did(p, p->forward->tuner->offer(p->forward->tuner->ctx, op, args));
}

// Whether this step, as many rows as it has now, takes an optional op.
static bool takes(const struct pass *p, enum plm_op op)
{
    return (p->model->prefers >> op & 1) != 0 && p->rows <= p->model->few_rows;
}

static enum plm_act act_of(const struct pass *p, const struct plm_weight *w)
{
    return p->model->opts.float_activations ? PLM_ACT_F32 : plm_act_of(w->tensor->type);
}

// Which formats the products of a list need. A file may mix types, so it can be both.
struct act_needs {
    uint64_t f32; // address of the buffer to fill, or 0
    uint64_t q8;
};

static struct act_needs needs(const struct pass *p, const struct plm_weight *const *weights,
                              size_t n)
{
    struct act_needs need = {0, 0};
    for (size_t i = 0; i < n; i++) {
        if (act_of(p, weights[i]) == PLM_ACT_Q8)
            need.q8 = p->at[PLM_BUF_ACT_Q8];
        else
            need.f32 = p->at[PLM_BUF_ACT_F32];
    }
    return need;
}

static void norm(struct pass *p, const struct plm_weight *weight, struct act_needs need)
{
    const struct plm_rms_norm_args a = {.x = p->x,
                                        .weight = weight->addr,
                                        .dst_f32 = need.f32,
                                        .dst_q8 = need.q8,
                                        .rows = p->rows,
                                        .n = p->model->hp.n_embd,
                                        .eps = p->model->hp.rms_eps};
    LAUNCH(p, rms_norm, &a);
    barrier(p);
}

// Where norms and activations leave what a product with w reads.
static uint64_t input_of(const struct pass *p, const struct plm_weight *w)
{
    return p->at[act_of(p, w) == PLM_ACT_Q8 ? PLM_BUF_ACT_Q8 : PLM_BUF_ACT_F32];
}

// dst (+)= w * x, x in the format that w wants.
static void product(struct pass *p, const struct plm_weight *w, const struct plm_weight *bias,
                    uint64_t x, uint64_t dst, uint32_t ld_dst, bool add)
{
    const struct plm_matmul_args a = {.weight = w->addr,
                                      .x = x,
                                      .dst = dst,
                                      .bias = bias->addr,
                                      .type = w->tensor->type,
                                      .act = act_of(p, w),
                                      .rows = p->rows,
                                      .n_in = w->n_in,
                                      .n_out = w->n_out,
                                      .ld_dst = ld_dst,
                                      .add = add};
    if (tuning(p))
        offer(p, PLM_OP_MATMUL, &a);
    else
        LAUNCH(p, matmul, &a);
}

// What the host gives to a step, in the order of its buffers; guard and sampling may be NULL. A new
// input is one more line here and in the cost table.
static void inputs(struct pass *p)
{
    const struct plm_forward *f = p->forward;
    const struct plm_shape *s = &f->shape;
    const struct {
        enum plm_buffer buffer;
        const void *src;
        uint64_t bytes;
    } all[] = {
        {PLM_BUF_GUARD, f->guard, f->guard != NULL ? PLM_COST_GUARD_BYTES : 0},
        {PLM_BUF_TOKENS, f->chained != 0 ? f->source_rows : f->tokens, 4ull * s->rows},
        {PLM_BUF_POS, f->pos, 4ull * s->rows},
        {PLM_BUF_SEQ, f->seq, 4ull * s->rows},
        {PLM_BUF_SLOTS, f->slots, 8ull * s->rows},
        {PLM_BUF_LOGITS_ROWS, f->logits_rows, 4ull * s->logits_rows},
        {PLM_BUF_SAMPLING, f->sampling,
         f->sampling != NULL ? sizeof(struct plm_sample_row) * s->logits_rows : 0},
        {PLM_BUF_TABLES, f->tables, 8ull * s->seqs * f->table_stride},
    };
    struct plm_copy_part parts[sizeof(all) / sizeof(all[0])];
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].bytes > 0)
            parts[n++] = (struct plm_copy_part){.src = all[i].src,
                                                .at = p->at[all[i].buffer] - p->at[PLM_BUF_GUARD],
                                                .bytes = all[i].bytes};
    }
    did(p, plm_device_copy_in_parts(p->device, p->at[PLM_BUF_GUARD], parts, n));
}

// Where the step's tokens are.
static uint64_t tokens(const struct pass *p)
{
    return p->at[p->forward->chained != 0 ? PLM_BUF_CHAINED : PLM_BUF_TOKENS];
}

// The tokens that the step before found, without the host: index is the first word of a record.
static void chain_tokens(struct pass *p)
{
    const struct plm_gather_args a = {.src = p->forward->chained,
                                      .index = p->at[PLM_BUF_TOKENS],
                                      .dst = tokens(p),
                                      .rows = p->rows,
                                      .n = 1};
    _Static_assert(offsetof(struct plm_argmax_record, index) == 0, "source rows point at it");
    if (p->forward->chained == 0)
        return;
    LAUNCH(p, gather, &a);
    barrier(p);
}

static void embed(struct pass *p)
{
    const struct plm_model *m = p->model;
    const struct plm_get_rows_args rows = {.weight = m->token_embd.addr,
                                           .tokens = tokens(p),
                                           .dst = p->x,
                                           .type = m->token_embd.tensor->type,
                                           .rows = p->rows,
                                           .n_in = m->token_embd.n_in,
                                           .n_out = m->token_embd.n_out,
                                           .scale = 1.0f};
    const struct plm_rope_table_args rope = {.pos = p->at[PLM_BUF_POS],
                                             .increments = m->rope.addr,
                                             .dst = p->at[PLM_BUF_ROPE],
                                             .rows = p->rows,
                                             .dims = m->hp.rope_dims};
    LAUNCH(p, get_rows, &rows);
    LAUNCH(p, rope_table, &rope);
    barrier(p);
}

// q, k and v side by side in WIDE, rotated; k and v also go to the cache.
static void project_apart(struct pass *p, const struct plm_layer *l, uint64_t layer_offset)
{
    const struct plm_hparams *hp = &p->model->hp;
    const uint32_t n_q = hp->n_head * hp->head_dim, n_kv = hp->n_kv_head * hp->head_dim;
    const uint32_t ld = n_q + 2 * n_kv;
    const uint64_t q = p->at[PLM_BUF_WIDE], k = q + 4ull * n_q, v = k + 4ull * n_kv;
    product(p, &l->attn_q, &l->attn_q_bias, input_of(p, &l->attn_q), q, ld, false);
    product(p, &l->attn_k, &l->attn_k_bias, input_of(p, &l->attn_k), k, ld, false);
    product(p, &l->attn_v, &l->attn_v_bias, input_of(p, &l->attn_v), v, ld, false);
    barrier(p);
    const struct plm_rope_kv_args a = {.q = q,
                                       .k = k,
                                       .v = v,
                                       .table = p->at[PLM_BUF_ROPE],
                                       .slots = p->at[PLM_BUF_SLOTS],
                                       .pos = p->at[PLM_BUF_POS],
                                       .layer_offset = layer_offset,
                                       .rows = p->rows,
                                       .ld = ld,
                                       .heads = hp->n_head,
                                       .kv_heads = hp->n_kv_head,
                                       .head_dim = hp->head_dim,
                                       .dims = hp->rope_dims,
                                       .mode = hp->rope_mode,
                                       .kv_type = p->model->facts.groups[0].type};
    LAUNCH(p, rope_kv, &a);
}

// Where the caller finds q: rows of it alone, or of q, k and v.
static uint32_t ld_q(const struct pass *p)
{
    const struct plm_hparams *hp = &p->model->hp;
    return (hp->n_head + (takes(p, PLM_OP_QKV) ? 0 : 2 * hp->n_kv_head)) * hp->head_dim;
}

// The same with q alone in WIDE: one launch for each type among the weights.
static void project_fused(struct pass *p, const struct plm_layer *l, uint64_t layer_offset)
{
    const struct plm_hparams *hp = &p->model->hp;
    const struct plm_weight *const weights[] = {&l->attn_q, &l->attn_k, &l->attn_v};
    const struct plm_weight *const biases[] = {&l->attn_q_bias, &l->attn_k_bias, &l->attn_v_bias};
    for (int i = 0, done = 0; i < 3; i++) {
        if (done >> i & 1)
            continue;
        const enum plm_type type = weights[i]->tensor->type;
        const enum plm_act act = act_of(p, weights[i]);
        struct plm_qkv_args a = {.x = input_of(p, weights[i]),
                                 .q = p->at[PLM_BUF_WIDE],
                                 .table = p->at[PLM_BUF_ROPE],
                                 .slots = p->at[PLM_BUF_SLOTS],
                                 .pos = p->at[PLM_BUF_POS],
                                 .layer_offset = layer_offset,
                                 .rows = p->rows,
                                 .n_in = hp->n_embd,
                                 .ld_q = ld_q(p),
                                 .heads = PLM_PAIR(hp->n_head, hp->n_kv_head),
                                 .head_dim = PLM_PAIR(hp->head_dim, hp->rope_dims),
                                 .kinds = PLM_KINDS((uint32_t)type, (uint32_t)act, hp->rope_mode,
                                                    (uint32_t)p->model->facts.groups[0].type)};
        uint64_t *const weight[] = {&a.weight_q, &a.weight_k, &a.weight_v};
        uint64_t *const bias[] = {&a.bias_q, &a.bias_k, &a.bias_v};
        for (int j = i; j < 3; j++) {
            if (weights[j]->tensor->type != type)
                continue;
            *weight[j] = weights[j]->addr;
            *bias[j] = biases[j]->addr;
            done |= 1 << j;
        }
        LAUNCH(p, qkv, &a);
    }
}

static void project(struct pass *p, const struct plm_layer *l, uint64_t layer_offset)
{
    const struct plm_weight *const weights[] = {&l->attn_q, &l->attn_k, &l->attn_v};
    norm(p, &l->attn_norm, needs(p, weights, 3));
    if (takes(p, PLM_OP_QKV))
        project_fused(p, l, layer_offset);
    else
        project_apart(p, l, layer_offset);
    barrier(p);
}

// Attention of all rows into ATTN, or if q8 as 8-bit activations.
static void attend_whole(struct pass *p, uint64_t layer_offset, bool q8)
{
    const struct plm_hparams *hp = &p->model->hp;
    const struct plm_attention_args a = {.q = p->at[PLM_BUF_WIDE],
                                         .dst = p->at[PLM_BUF_ATTN],
                                         .pos = p->at[PLM_BUF_POS],
                                         .seq = p->at[PLM_BUF_SEQ],
                                         .tables = p->at[PLM_BUF_TABLES],
                                         .layer_offset = layer_offset,
                                         .table_stride = p->forward->table_stride,
                                         .rows = p->rows,
                                         .ld_q = ld_q(p),
                                         .heads = hp->n_head,
                                         .kv_heads = hp->n_kv_head,
                                         .head_dim = hp->head_dim,
                                         .kv_type = p->model->facts.groups[0].type,
                                         .scale = hp->attn_scale};
    if (tuning(p))
        offer(p, PLM_OP_ATTENTION, &a);
    else
        LAUNCH(p, attention, &a);
    if (!q8)
        return;
    const struct plm_quantize_args q = {
        .x = a.dst, .dst = p->at[PLM_BUF_ACT_Q8], .rows = p->rows, .n = hp->n_head * hp->head_dim};
    barrier(p);
    LAUNCH(p, quantize, &q);
}

static void attend_split(struct pass *p, uint64_t layer_offset, uint32_t splits, bool q8)
{
    const struct plm_hparams *hp = &p->model->hp;
    const struct plm_attention_split_args a = {.q = p->at[PLM_BUF_WIDE],
                                               .partial = p->at[PLM_BUF_PARTIAL],
                                               .pos = p->at[PLM_BUF_POS],
                                               .seq = p->at[PLM_BUF_SEQ],
                                               .tables = p->at[PLM_BUF_TABLES],
                                               .layer_offset = layer_offset,
                                               .table_stride = p->forward->table_stride,
                                               .rows = p->rows,
                                               .ld_q = ld_q(p),
                                               .heads = hp->n_head,
                                               .kv_heads = hp->n_kv_head,
                                               .head_dim = hp->head_dim,
                                               .kv_type = p->model->facts.groups[0].type,
                                               .splits = splits,
                                               .scale = hp->attn_scale};
    const struct plm_attention_merge_args m = {.partial = a.partial,
                                               .pos = a.pos,
                                               .dst_f32 = q8 ? 0 : p->at[PLM_BUF_ATTN],
                                               .dst_q8 = q8 ? p->at[PLM_BUF_ACT_Q8] : 0,
                                               .rows = p->rows,
                                               .heads = hp->n_head,
                                               .head_dim = hp->head_dim,
                                               .splits = splits};
    LAUNCH(p, attention_split, &a);
    barrier(p);
    LAUNCH(p, attention_merge, &m);
}

static void attend(struct pass *p, const struct plm_layer *l, uint64_t layer_offset)
{
    const uint32_t splits = (uint32_t)plm_div_ceil(p->forward->shape.ctx, PLM_ATTN_SPLIT_TOKENS);
    const bool q8 = act_of(p, &l->attn_output) == PLM_ACT_Q8;
    if (takes(p, PLM_OP_ATTENTION_SPLIT) && (uint64_t)p->rows * splits <= p->model->partials)
        attend_split(p, layer_offset, splits, q8);
    else
        attend_whole(p, layer_offset, q8);
    barrier(p);
    product(p, &l->attn_output, &l->attn_output_bias, p->at[q8 ? PLM_BUF_ACT_Q8 : PLM_BUF_ATTN],
            p->x, p->model->hp.n_embd, true);
    barrier(p);
}

// Gate and up into WIDE, and their activation; returns where the down product finds it.
static uint64_t gate_apart(struct pass *p, const struct plm_layer *l)
{
    const uint32_t n_ff = p->model->hp.n_ff;
    const bool q8 = act_of(p, &l->ffn_down) == PLM_ACT_Q8;
    const uint64_t dst = input_of(p, &l->ffn_down);
    const struct plm_gate_mul_args a = {.gate = p->at[PLM_BUF_WIDE],
                                        .up = p->at[PLM_BUF_WIDE] + 4ull * n_ff,
                                        .dst_f32 = q8 ? 0 : dst,
                                        .dst_q8 = q8 ? dst : 0,
                                        .rows = p->rows,
                                        .n = n_ff,
                                        .ld = 2 * n_ff};
    product(p, &l->ffn_gate, &l->ffn_gate_bias, input_of(p, &l->ffn_gate), a.gate, a.ld, false);
    product(p, &l->ffn_up, &l->ffn_up_bias, input_of(p, &l->ffn_up), a.up, a.ld, false);
    barrier(p);
    LAUNCH(p, gate_mul, &a);
    return dst;
}

// The same in one launch. Its units read all of their input while others write, so the result lies
// in WIDE, which is larger than either format of it.
static uint64_t gate_fused(struct pass *p, const struct plm_layer *l)
{
    const bool q8 = act_of(p, &l->ffn_down) == PLM_ACT_Q8;
    const uint64_t dst = p->at[PLM_BUF_WIDE];
    const struct plm_glu_args a = {.weight_gate = l->ffn_gate.addr,
                                   .weight_up = l->ffn_up.addr,
                                   .bias_gate = l->ffn_gate_bias.addr,
                                   .bias_up = l->ffn_up_bias.addr,
                                   .x = input_of(p, &l->ffn_gate),
                                   .dst_f32 = q8 ? 0 : dst,
                                   .dst_q8 = q8 ? dst : 0,
                                   .type = l->ffn_gate.tensor->type,
                                   .act = act_of(p, &l->ffn_gate),
                                   .rows = p->rows,
                                   .n_in = l->ffn_gate.n_in,
                                   .n_out = l->ffn_gate.n_out};
    LAUNCH(p, glu, &a);
    return dst;
}

static void feed_forward(struct pass *p, const struct plm_layer *l)
{
    const struct plm_weight *const in[] = {&l->ffn_gate, &l->ffn_up};
    const bool fused = takes(p, PLM_OP_GLU) && l->ffn_gate.tensor->type == l->ffn_up.tensor->type;
    norm(p, &l->ffn_norm, needs(p, in, 2));
    const uint64_t x = fused ? gate_fused(p, l) : gate_apart(p, l);
    barrier(p);
    product(p, &l->ffn_down, &l->ffn_down_bias, x, p->x, p->model->hp.n_embd, true);
    barrier(p);
}

// From here on only the rows whose logits are wanted.
static void select_rows(struct pass *p)
{
    const struct plm_gather_args a = {.src = p->x,
                                      .index = p->at[PLM_BUF_LOGITS_ROWS],
                                      .dst = p->at[PLM_BUF_SELECTED],
                                      .rows = p->forward->shape.logits_rows,
                                      .n = p->model->hp.n_embd};
    LAUNCH(p, gather, &a);
    barrier(p);
    p->x = a.dst;
    p->rows = a.rows;
}

// What the host looks at after the step, copied to where later steps do not write.
static void leave_results(struct pass *p)
{
    const struct plm_copy_args a = {.src = p->at[PLM_BUF_BEST],
                                    .dst = p->forward->results,
                                    .n_words =
                                        plm_model_results_bytes(p->model, &p->forward->shape) / 4};
    if (p->forward->results == 0)
        return;
    barrier(p);
    LAUNCH(p, copy, &a);
}

// The logits, and the tokens that follow from them where the device finds or draws them.
static void head(struct pass *p)
{
    const struct plm_model *m = p->model;
    const struct plm_weight *w = plm_weight_there(&m->output) ? &m->output : &m->token_embd;
    const struct plm_argmax_args best = {.x = p->at[PLM_BUF_LOGITS],
                                         .dst = p->at[PLM_BUF_BEST],
                                         .rows = p->rows,
                                         .n = m->hp.n_vocab};
    const struct plm_sample_args token = {.x = best.x,
                                          .params = p->at[PLM_BUF_SAMPLING],
                                          .dst = best.dst,
                                          .rows = best.rows,
                                          .n = best.n};
    norm(p, &m->output_norm, needs(p, &w, 1));
    product(p, w, &m->output_bias, input_of(p, w), best.x, m->hp.n_vocab, false);
    if (!plm_model_device_argmax(m))
        return;
    barrier(p);
    if (p->forward->sampling != NULL)
        LAUNCH(p, sample, &token);
    else
        LAUNCH(p, argmax, &best);
    leave_results(p);
}

// With FEW_LAYERS the stress runs one layer of each place; their peaks are those of all.
static bool skips(const struct pass *p, uint32_t il)
{
    uint32_t n = p->model->hp.n_layer;
    return (p->forward->flags & PLM_FORWARD_FEW_LAYERS) && il != 0 && il != n / 2 && il != n - 1;
}

int plm_model_forward(struct plm_model *model, struct plm_device *device,
                      const struct plm_forward *forward, struct plm_forward_out *ret)
{
    struct pass p = {
        .model = model, .device = device, .forward = forward, .rows = forward->shape.rows};
    plm_cost_layout(&model->cost, &forward->shape, p.at);
    for (int i = 0; i < PLM_BUFFERS; i++)
        p.at[i] += forward->workspace + (i >= PLM_BUF_GUARD ? forward->reserve : 0);
    p.x = p.at[PLM_BUF_X];
    const bool wants_logits =
        forward->shape.logits_rows > 0 && !(forward->flags & PLM_FORWARD_SKIP_HEAD);
    const uint64_t layer_bytes = plm_kv_layer_bytes(&model->facts.groups[0]);
    inputs(&p);
    chain_tokens(&p);
    embed(&p);
    for (uint32_t il = 0; il < model->hp.n_layer; il++) {
        const struct plm_layer *l = &model->layers[il];
        if (skips(&p, il))
            continue;
        project(&p, l, il * layer_bytes);
        attend(&p, l, il * layer_bytes);
        if (il == model->hp.n_layer - 1) {
            // Beyond this point the last layer matters to the logits alone.
            if (!wants_logits)
                break;
            select_rows(&p);
        }
        feed_forward(&p, l);
    }
    if (wants_logits)
        head(&p);
    const bool has_best = wants_logits && plm_model_device_argmax(model);
    *ret = (struct plm_forward_out){.logits = wants_logits ? p.at[PLM_BUF_LOGITS] : 0,
                                    .best = has_best ? p.at[PLM_BUF_BEST] : 0,
                                    .guard = p.at[PLM_BUF_GUARD]};
    return p.result;
}

uint64_t plm_model_unsplit_context(const struct plm_model *model, uint32_t rows)
{
    if ((model->prefers >> PLM_OP_ATTENTION_SPLIT & 1) == 0 || rows > model->few_rows)
        return 0;
    return (uint64_t)(model->partials / rows) * PLM_ATTN_SPLIT_TOKENS + 1;
}

uint32_t plm_model_max_dispatches(const struct plm_model *model)
{
    return model->hp.n_layer * LAYER_DISPATCHES + FRAME_DISPATCHES;
}

static uint64_t splits_of(uint64_t tokens)
{
    return plm_div_ceil(tokens, PLM_ATTN_SPLIT_TOKENS);
}

void plm_model_specialize(struct plm_model *model, const struct plm_caps *caps)
{
    const uint64_t splits = caps->few_rows * splits_of(model->hp.n_ctx_train);
    const bool is_split = caps->prefers >> PLM_OP_ATTENTION_SPLIT & 1;
    model->prefers = caps->prefers;
    model->few_rows = caps->few_rows;
    model->ahead = caps->async && plm_model_device_argmax(model);
    model->partials = !is_split ? 0 : splits < PARTIALS_MAX ? (uint32_t)splits : PARTIALS_MAX;
    plm_model_fill_cost(model);
}
