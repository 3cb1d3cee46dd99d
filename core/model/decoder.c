// SPDX-License-Identifier: Apache-2.0
// The forward of a decoder-only transformer: embedding, layers, head. What a layer does its blocks
// append (blocks/). Barriers stand between launches that depend on each other.
//
// Steps of few rows use the optional ops that the device prefers: a layer is then norm, qkv,
// attention_split, attention_merge, output, norm, glu and down, eight dispatches, each of which
// reads what the one before it wrote. Types that differ among q, k and v cost one more each.
#include <stddef.h>

#include "core/base/checked.h"
#include "core/model/pass.h"

const struct plm_weight_decl plm_outer_weights[PLM_OUTER_WEIGHTS] = {
    [PLM_OUTER_TOKEN_EMBD] = {.name = "token_embd.weight",
                              .kind = PLM_WEIGHT_MATRIX,
                              .weight_class = PLM_WEIGHT_TOKEN_EMBD,
                              .n_in = PLM_DIM_EMBD,
                              .n_out = PLM_DIM_VOCAB},
    [PLM_OUTER_NORM] = {.name = "output_norm.weight",
                        .kind = PLM_WEIGHT_VECTOR,
                        .weight_class = PLM_WEIGHT_VECTORS,
                        .n_in = PLM_DIM_EMBD},
    [PLM_OUTER_HEAD] = {.name = "output.weight",
                        .kind = PLM_WEIGHT_MATRIX,
                        .weight_class = PLM_WEIGHT_HEAD,
                        .n_in = PLM_DIM_EMBD,
                        .n_out = PLM_DIM_VOCAB,
                        .need = offsetof(struct plm_hparams, head)},
    [PLM_OUTER_HEAD_BIAS] = {.name = "output.bias",
                             .kind = PLM_WEIGHT_VECTOR,
                             .weight_class = PLM_WEIGHT_VECTORS,
                             .n_in = PLM_DIM_VOCAB,
                             .need = offsetof(struct plm_hparams, head_bias)},
};

// ---- what blocks append with (pass.h) ----

void plm_pass_did(struct plm_pass *p, int result)
{
    if (p->result == PLM_OK)
        p->result = result;
}

bool plm_pass_ready(struct plm_pass *p)
{
    if (p->device == NULL) {
        p->counted++;
        return false;
    }
    if (p->depends && p->result == PLM_OK)
        plm_pass_did(p, plm_device_barrier(p->device));
    p->depends = false;
    return p->result == PLM_OK;
}

void plm_pass_norm(struct plm_pass *p, const struct plm_weight *norm,
                   const struct plm_weight *const *readers, size_t n)
{
    struct plm_rms_norm_args a = {.x = p->x,
                                  .weight = norm->addr,
                                  .rows = p->rows,
                                  .n = p->model->hp.n_embd,
                                  .eps = p->model->hp.rms_eps};
    for (size_t i = 0; i < n; i++) {
        if (plm_pass_act(p, readers[i]) == PLM_ACT_Q8)
            a.dst_q8 = p->at[PLM_BUF_ACT_Q8];
        else
            a.dst_f32 = p->at[PLM_BUF_ACT_F32];
    }
    PLM_LAUNCH(p, rms_norm, &a);
    plm_pass_barrier(p);
}

void plm_pass_product(struct plm_pass *p, const struct plm_weight *w, const struct plm_weight *bias,
                      uint64_t x, uint64_t dst, uint32_t ld_dst, bool add)
{
    const struct plm_matmul_args a = {.weight = w->addr,
                                      .x = x,
                                      .dst = dst,
                                      .bias = bias->addr,
                                      .type = w->tensor->type,
                                      .act = plm_pass_act(p, w),
                                      .rows = p->rows,
                                      .n_in = w->n_in,
                                      .n_out = w->n_out,
                                      .ld_dst = ld_dst,
                                      .add = add};
    PLM_LAUNCH_TUNED(p, MATMUL, matmul, &a);
}

void plm_pass_output(struct plm_pass *p, const struct plm_weight *w, const struct plm_weight *bias,
                     const struct plm_weight *norm, uint64_t x)
{
    const bool normed = plm_weight_there(norm);
    const struct plm_rms_norm_args a = {.x = p->at[PLM_BUF_BRANCH],
                                        .weight = norm->addr,
                                        .dst_f32 = p->x,
                                        .rows = p->rows,
                                        .n = p->model->hp.n_embd,
                                        .eps = p->model->hp.rms_eps,
                                        .add = 1};
    plm_pass_product(p, w, bias, x, normed ? a.x : p->x, p->model->hp.n_embd, !normed);
    plm_pass_barrier(p);
    if (!normed)
        return;
    PLM_LAUNCH(p, rms_norm, &a);
    plm_pass_barrier(p);
}

// ---- a step's inputs ----

// What the host gives to a step, in the order of its buffers; guard and sampling may be NULL. A new
// input is one more line here and in the cost table.
static void inputs(struct plm_pass *p)
{
    const struct plm_forward *f = p->forward;
    const struct plm_shape *s = &f->shape;
    const struct {
        enum plm_buffer buffer;
        const void *src;
        uint64_t bytes;
        const uint64_t *const *by_group; // of those behind the first
    } all[] = {
        {PLM_BUF_GUARD, f->guard, f->guard != NULL ? PLM_COST_GUARD_BYTES : 0, NULL},
        {PLM_BUF_TOKENS, f->chained != 0 ? f->source_rows : f->tokens, 4ull * s->rows, NULL},
        {PLM_BUF_POS, f->pos, 4ull * s->rows, NULL},
        {PLM_BUF_SEQ, f->seq, 4ull * s->rows, NULL},
        {PLM_BUF_SLOTS, f->slots[0], 8ull * s->rows, f->slots},
        {PLM_BUF_LOGITS_ROWS, f->logits_rows, 4ull * s->logits_rows, NULL},
        {PLM_BUF_SAMPLING, f->sampling,
         f->sampling != NULL ? sizeof(struct plm_sample_row) * s->logits_rows : 0, NULL},
        {PLM_BUF_TABLES, f->tables[0], 8ull * s->seqs * f->table_stride, f->tables},
    };
    struct plm_copy_part parts[sizeof(all) / sizeof(all[0]) + 2 * PLM_KV_GROUPS_MAX];
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const uint64_t at = p->at[all[i].buffer] - p->at[PLM_BUF_GUARD], bytes = all[i].bytes;
        if (bytes > 0)
            parts[n++] = (struct plm_copy_part){.src = all[i].src, .at = at, .bytes = bytes};
        for (uint32_t g = 1; all[i].by_group != NULL && g < p->model->facts.n_groups; g++)
            parts[n++] = (struct plm_copy_part){
                .src = all[i].by_group[g], .at = at + bytes * g, .bytes = bytes};
    }
    plm_pass_did(p, plm_device_copy_in_parts(p->device, p->at[PLM_BUF_GUARD], parts, n));
}

// ---- embedding ----

// Where the step's tokens are.
static uint64_t tokens(const struct plm_pass *p)
{
    return p->at[p->forward->chained != 0 ? PLM_BUF_CHAINED : PLM_BUF_TOKENS];
}

// The tokens that the step before found, without the host: index is the first word of a record.
static void chain_tokens(struct plm_pass *p)
{
    const struct plm_gather_args a = {.src = p->forward->chained,
                                      .index = p->at[PLM_BUF_TOKENS],
                                      .dst = tokens(p),
                                      .rows = p->rows,
                                      .n = 1};
    _Static_assert(offsetof(struct plm_argmax_record, index) == 0, "source rows point at it");
    if (p->forward->chained == 0)
        return;
    PLM_LAUNCH(p, gather, &a);
    plm_pass_barrier(p);
}

// The embeddings of the tokens, and the angles of their positions.
static void embed(struct plm_pass *p)
{
    const struct plm_model *m = p->model;
    const struct plm_weight *embedding = &m->outer[PLM_OUTER_TOKEN_EMBD];
    const struct plm_get_rows_args rows = {.weight = embedding->addr,
                                           .tokens = tokens(p),
                                           .dst = p->x,
                                           .type = embedding->tensor->type,
                                           .rows = p->rows,
                                           .n_in = embedding->n_in,
                                           .n_out = embedding->n_out,
                                           .scale = m->hp.embd_scale};
    PLM_LAUNCH(p, get_rows, &rows);
    for (uint32_t i = 0; i < m->hp.n_ropes; i++) {
        const struct plm_rope_spec *rope = &m->hp.ropes[i];
        const uint64_t increments = plm_rope_weight(m, i)->addr;
        const struct plm_rope_table_args a = {
            .pos = p->at[PLM_BUF_POS],
            .increments = increments,
            .dst = p->at[PLM_BUF_ROPE + i],
            .scales = rope->n_scales > 0 ? increments + plm_rope_increments_bytes(rope) : 0,
            .rows = p->rows,
            .dims = rope->dims,
            .scale = rope->magnitude,
            .scale_span = rope->scale_span};
        PLM_LAUNCH(p, rope_table, &a);
    }
    plm_pass_barrier(p);
}

// ---- head ----

// From here on only the rows whose logits are wanted.
static void select_rows(struct plm_pass *p)
{
    const struct plm_gather_args a = {.src = p->x,
                                      .index = p->at[PLM_BUF_LOGITS_ROWS],
                                      .dst = p->at[PLM_BUF_SELECTED],
                                      .rows = p->forward->shape.logits_rows,
                                      .n = p->model->hp.n_embd};
    PLM_LAUNCH(p, gather, &a);
    plm_pass_barrier(p);
    p->x = a.dst;
    p->rows = a.rows;
}

// What the host looks at after the step, copied to where later steps do not write.
static void leave_results(struct plm_pass *p)
{
    const struct plm_copy_args a = {.src = p->at[PLM_BUF_BEST],
                                    .dst = p->forward->results,
                                    .n_words =
                                        plm_model_results_bytes(p->model, &p->forward->shape) / 4};
    if (p->forward->results == 0)
        return;
    plm_pass_barrier(p);
    PLM_LAUNCH(p, copy, &a);
}

// The logits, and the tokens that follow from them where the device finds or draws them.
static void head(struct plm_pass *p)
{
    const struct plm_model *m = p->model;
    const struct plm_weight *w = plm_model_head(m);
    const struct plm_argmax_args best = {.x = p->at[PLM_BUF_LOGITS],
                                         .dst = p->at[PLM_BUF_BEST],
                                         .rows = p->rows,
                                         .n = m->hp.n_vocab};
    const struct plm_sample_args token = {.x = best.x,
                                          .params = p->at[PLM_BUF_SAMPLING],
                                          .dst = best.dst,
                                          .rows = best.rows,
                                          .n = best.n};
    plm_pass_norm(p, &m->outer[PLM_OUTER_NORM], &w, 1);
    plm_pass_product(p, w, &m->outer[PLM_OUTER_HEAD_BIAS], plm_pass_input(p, w), best.x,
                     m->hp.n_vocab, false);
    if (m->hp.logit_soft_cap > 0) {
        const struct plm_soft_cap_args cap = {
            .x = best.x, .rows = best.rows, .n = best.n, .cap = m->hp.logit_soft_cap};
        plm_pass_barrier(p);
        PLM_LAUNCH(p, soft_cap, &cap);
    }
    if ((p->on.prefers >> PLM_OP_ARGMAX & 1) == 0)
        return;
    plm_pass_barrier(p);
    if (p->forward->sampling != NULL)
        PLM_LAUNCH(p, sample, &token);
    else
        PLM_LAUNCH(p, argmax, &best);
    leave_results(p);
}

// ---- a step ----

static void enter(const struct plm_pass *p, uint32_t part)
{
    const struct plm_parts *parts = p->forward->parts;
    if (parts != NULL)
        parts->enter(parts->ctx, part);
}

// With FEW_LAYERS the stress runs one layer of each kind and the last one, which selects rows;
// their peaks are those of all.
static bool skips(const struct plm_pass *p, uint32_t il)
{
    return (p->forward->flags & PLM_FORWARD_FEW_LAYERS) && !p->model->layers[il].first_of_kind &&
           il != p->model->hp.n_layer - 1;
}

static bool wants_logits(const struct plm_forward *forward)
{
    return forward->shape.logits_rows > 0 && !(forward->flags & PLM_FORWARD_SKIP_HEAD);
}

static void append(struct plm_pass *p)
{
    const struct plm_model *model = p->model;
    const uint32_t n = model->hp.n_layer;
    enter(p, 0);
    chain_tokens(p);
    embed(p);
    for (uint32_t il = 0; il < n; il++) {
        const struct plm_layer *layer = &model->layers[il];
        if (skips(p, il))
            continue;
        enter(p, il + 1);
        plm_mixer_of(&layer->spec)->append(p, layer);
        if (il == n - 1) {
            // Beyond this point the last layer matters to the logits alone.
            if (!wants_logits(p->forward))
                break;
            enter(p, n + 1);
            select_rows(p);
            enter(p, il + 1);
        }
        plm_feed_forward_of(&layer->spec)->append(p, layer);
    }
    enter(p, n + 1);
    if (wants_logits(p->forward))
        head(p);
}

int plm_model_forward(struct plm_model *model, struct plm_device *device,
                      const struct plm_forward *forward, struct plm_forward_out *ret)
{
    struct plm_pass p = {.model = model,
                         .on = model->on,
                         .device = device,
                         .forward = forward,
                         .rows = forward->shape.rows};
    plm_cost_layout(&model->cost, &forward->shape, p.at);
    for (int i = 0; i < PLM_BUFFERS; i++)
        p.at[i] += forward->workspace + (i >= PLM_BUF_GUARD ? forward->reserve : 0);
    p.x = p.at[PLM_BUF_X];
    inputs(&p);
    append(&p);
    const bool logits = wants_logits(forward), best = logits && plm_model_device_argmax(model);
    *ret = (struct plm_forward_out){.logits = logits ? p.at[PLM_BUF_LOGITS] : 0,
                                    .best = best ? p.at[PLM_BUF_BEST] : 0,
                                    .guard = p.at[PLM_BUF_GUARD]};
    return p.result;
}

// Launches of a whole step with these optional ops.
static uint32_t count(const struct plm_model *model, uint64_t prefers)
{
    static const struct plm_sample_row sampling = {0};
    const struct plm_forward forward = {.shape = {.rows = 1, .seqs = 1, .logits_rows = 1, .ctx = 1},
                                        .sampling = &sampling,
                                        .chained = 1,
                                        .results = 1};
    struct plm_pass p = {.model = model,
                         .on = {.prefers = prefers, .few_rows = 1, .partials = 1},
                         .forward = &forward,
                         .rows = 1};
    append(&p);
    return p.counted;
}

uint32_t plm_model_max_dispatches(const struct plm_model *model)
{
    static const enum plm_op optional[] = {
#define PLM_OP(NAME, name, units, tolerance)
#define PLM_OP_OPTIONAL(NAME, name, units, tolerance) PLM_OP_##NAME,
#include "kernels/ops.def"
#undef PLM_OP
    };
    const uint32_t n = sizeof(optional) / sizeof(optional[0]);
    uint32_t most = 0;
    for (uint32_t set = 0; set < 1u << n; set++) {
        uint64_t prefers = 0;
        for (uint32_t i = 0; i < n; i++)
            prefers |= (uint64_t)(set >> i & 1) << optional[i];
        const uint32_t counted = count(model, prefers);
        most = counted > most ? counted : most;
    }
    return most;
}
