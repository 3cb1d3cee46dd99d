// SPDX-License-Identifier: Apache-2.0
// The forward of a decoder-only transformer: what llama and qwen2 share is all of it but rope's
// pairs and the biases, which are data. Appends launches; barriers stand between dependent ones.
#include "core/model/arch.h"

// Dispatches of one layer at most (with both activation formats), and of frame and head.
#define LAYER_DISPATCHES 16
#define FRAME_DISPATCHES 8

// One step on its way through the layers. `rows` and `x` change once: in the last layer, when only
// the rows that need logits go on.
struct pass {
    const struct plm_model *model;
    struct plm_device *device;
    const struct plm_forward *forward;
    uint64_t at[PLM_BUFFERS]; // device addresses of the buffers
    uint64_t x;
    uint32_t rows;
    int result; // the first failure; later launches are skipped
};

static void did(struct pass *p, int result)
{
    if (p->result == PLM_OK)
        p->result = result;
}

static void barrier(struct pass *p)
{
    did(p, plm_device_barrier(p->device));
}

static bool tuning(const struct pass *p)
{
    return (p->forward->flags & PLM_FORWARD_TUNING) != 0;
}

static int offer(struct pass *p, enum plm_op op, const void *args)
{
    return p->forward->tuner->offer(p->forward->tuner->ctx, op, args);
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
    if (p->result == PLM_OK)
        did(p, plm_launch_rms_norm(p->device, &a));
    barrier(p);
}

// dst (+)= w * act, where act lies in the buffer of the format that w wants; f32 overrides where
// float activations lie.
static void product(struct pass *p, const struct plm_weight *w, const struct plm_weight *bias,
                    uint64_t f32, uint64_t dst, uint32_t ld_dst, bool add)
{
    enum plm_act act = act_of(p, w);
    const struct plm_matmul_args a = {.weight = w->addr,
                                      .x = act == PLM_ACT_Q8 ? p->at[PLM_BUF_ACT_Q8] : f32,
                                      .dst = dst,
                                      .bias = bias->addr,
                                      .type = w->tensor->type,
                                      .act = act,
                                      .rows = p->rows,
                                      .n_in = w->n_in,
                                      .n_out = w->n_out,
                                      .ld_dst = ld_dst,
                                      .add = add};
    if (p->result == PLM_OK)
        did(p, tuning(p) ? offer(p, PLM_OP_MATMUL, &a) : plm_launch_matmul(p->device, &a));
}

static void inputs(struct pass *p)
{
    const struct plm_forward *f = p->forward;
    const struct plm_shape *s = &f->shape;
    const struct {
        enum plm_buffer buffer;
        const void *src;
        uint64_t bytes;
    } copies[] = {
        {PLM_BUF_TOKENS, f->tokens, 4ull * s->rows},
        {PLM_BUF_POS, f->pos, 4ull * s->rows},
        {PLM_BUF_SEQ, f->seq, 4ull * s->rows},
        {PLM_BUF_SLOTS, f->slots, 8ull * s->rows},
        {PLM_BUF_TABLES, f->tables, 8ull * s->seqs * f->table_stride},
        {PLM_BUF_LOGITS_ROWS, f->logits_rows, 4ull * s->logits_rows},
    };
    for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]); i++) {
        if (copies[i].bytes > 0 && p->result == PLM_OK)
            did(p, plm_device_copy_in(p->device, p->at[copies[i].buffer], copies[i].src,
                                      copies[i].bytes));
    }
}

static void embed(struct pass *p)
{
    const struct plm_model *m = p->model;
    const struct plm_get_rows_args rows = {.weight = m->token_embd.addr,
                                           .tokens = p->at[PLM_BUF_TOKENS],
                                           .dst = p->x,
                                           .type = m->token_embd.tensor->type,
                                           .rows = p->rows,
                                           .n_in = m->token_embd.n_in,
                                           .n_out = m->token_embd.n_out,
                                           .scale = 1.0f};
    const struct plm_rope_table_args rope = {.pos = p->at[PLM_BUF_POS],
                                             .turns = m->rope.addr,
                                             .dst = p->at[PLM_BUF_ROPE],
                                             .rows = p->rows,
                                             .dims = m->hp.rope_dims};
    if (p->result == PLM_OK)
        did(p, plm_launch_get_rows(p->device, &rows));
    if (p->result == PLM_OK)
        did(p, plm_launch_rope_table(p->device, &rope));
    barrier(p);
}

// q, k and v side by side in WIDE, rotated; k and v also go to the cache.
static void project_qkv(struct pass *p, const struct plm_layer *l, uint64_t layer_offset)
{
    const struct plm_hparams *hp = &p->model->hp;
    const struct plm_weight *const weights[] = {&l->attn_q, &l->attn_k, &l->attn_v};
    const uint32_t n_q = hp->n_head * hp->head_dim, n_kv = hp->n_kv_head * hp->head_dim;
    const uint32_t ld = n_q + 2 * n_kv;
    const uint64_t q = p->at[PLM_BUF_WIDE], k = q + 4ull * n_q, v = k + 4ull * n_kv;
    norm(p, &l->attn_norm, needs(p, weights, 3));
    product(p, &l->attn_q, &l->attn_q_bias, p->at[PLM_BUF_ACT_F32], q, ld, false);
    product(p, &l->attn_k, &l->attn_k_bias, p->at[PLM_BUF_ACT_F32], k, ld, false);
    product(p, &l->attn_v, &l->attn_v_bias, p->at[PLM_BUF_ACT_F32], v, ld, false);
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
    if (p->result == PLM_OK)
        did(p, plm_launch_rope_kv(p->device, &a));
    barrier(p);
}

static void attend(struct pass *p, const struct plm_layer *l, uint64_t layer_offset)
{
    const struct plm_hparams *hp = &p->model->hp;
    const uint32_t n_q = hp->n_head * hp->head_dim;
    const struct plm_attention_args a = {.q = p->at[PLM_BUF_WIDE],
                                         .dst = p->at[PLM_BUF_ATTN],
                                         .pos = p->at[PLM_BUF_POS],
                                         .seq = p->at[PLM_BUF_SEQ],
                                         .tables = p->at[PLM_BUF_TABLES],
                                         .layer_offset = layer_offset,
                                         .table_stride = p->forward->table_stride,
                                         .rows = p->rows,
                                         .ld_q = n_q + 2 * hp->n_kv_head * hp->head_dim,
                                         .heads = hp->n_head,
                                         .kv_heads = hp->n_kv_head,
                                         .head_dim = hp->head_dim,
                                         .kv_type = p->model->facts.groups[0].type,
                                         .scale = hp->attn_scale};
    if (p->result == PLM_OK)
        did(p, tuning(p) ? offer(p, PLM_OP_ATTENTION, &a) : plm_launch_attention(p->device, &a));
    barrier(p);
    if (act_of(p, &l->attn_output) == PLM_ACT_Q8) {
        const struct plm_quantize_args q = {
            .x = p->at[PLM_BUF_ATTN], .dst = p->at[PLM_BUF_ACT_Q8], .rows = p->rows, .n = n_q};
        if (p->result == PLM_OK)
            did(p, plm_launch_quantize(p->device, &q));
        barrier(p);
    }
    product(p, &l->attn_output, &l->attn_output_bias, p->at[PLM_BUF_ATTN], p->x, hp->n_embd, true);
    barrier(p);
}

static void feed_forward(struct pass *p, const struct plm_layer *l)
{
    const struct plm_hparams *hp = &p->model->hp;
    const struct plm_weight *const in[] = {&l->ffn_gate, &l->ffn_up};
    const struct plm_weight *const out[] = {&l->ffn_down};
    const uint64_t gate = p->at[PLM_BUF_WIDE], up = gate + 4ull * hp->n_ff;
    norm(p, &l->ffn_norm, needs(p, in, 2));
    product(p, &l->ffn_gate, &l->ffn_gate_bias, p->at[PLM_BUF_ACT_F32], gate, 2 * hp->n_ff, false);
    product(p, &l->ffn_up, &l->ffn_up_bias, p->at[PLM_BUF_ACT_F32], up, 2 * hp->n_ff, false);
    barrier(p);
    struct act_needs need = needs(p, out, 1);
    const struct plm_silu_mul_args a = {.gate = gate,
                                        .up = up,
                                        .dst_f32 = need.f32,
                                        .dst_q8 = need.q8,
                                        .rows = p->rows,
                                        .n = hp->n_ff,
                                        .ld = 2 * hp->n_ff};
    if (p->result == PLM_OK)
        did(p, plm_launch_silu_mul(p->device, &a));
    barrier(p);
    product(p, &l->ffn_down, &l->ffn_down_bias, p->at[PLM_BUF_ACT_F32], p->x, hp->n_embd, true);
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
    if (p->result == PLM_OK)
        did(p, plm_launch_gather(p->device, &a));
    barrier(p);
    p->x = a.dst;
    p->rows = a.rows;
}

static void head(struct pass *p)
{
    const struct plm_model *m = p->model;
    const struct plm_weight *w = plm_weight_there(&m->output) ? &m->output : &m->token_embd;
    norm(p, &m->output_norm, needs(p, &w, 1));
    product(p, w, &m->output_bias, p->at[PLM_BUF_ACT_F32], p->at[PLM_BUF_LOGITS], m->hp.n_vocab,
            false);
    barrier(p);
}

// With FEW_LAYERS the stress runs one layer of each place; their peaks are those of all.
static bool skips(const struct pass *p, uint32_t il)
{
    uint32_t n = p->model->hp.n_layer;
    return (p->forward->flags & PLM_FORWARD_FEW_LAYERS) && il != 0 && il != n / 2 && il != n - 1;
}

int plm_model_forward(struct plm_model *model, struct plm_device *device,
                      const struct plm_forward *forward, uint64_t *ret_logits)
{
    struct pass p = {
        .model = model, .device = device, .forward = forward, .rows = forward->shape.rows};
    plm_cost_layout(&model->cost, &forward->shape, p.at);
    for (int i = 0; i < PLM_BUFFERS; i++)
        p.at[i] += forward->workspace;
    p.x = p.at[PLM_BUF_X];
    const bool wants_logits =
        forward->shape.logits_rows > 0 && !(forward->flags & PLM_FORWARD_SKIP_HEAD);
    const uint64_t layer_bytes = plm_kv_layer_bytes(&model->facts.groups[0]);
    inputs(&p);
    embed(&p);
    for (uint32_t il = 0; il < model->hp.n_layer; il++) {
        const struct plm_layer *l = &model->layers[il];
        if (skips(&p, il))
            continue;
        project_qkv(&p, l, il * layer_bytes);
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
    if (p.result == PLM_OK)
        *ret_logits = wants_logits ? p.at[PLM_BUF_LOGITS] : 0;
    return p.result;
}

uint32_t plm_model_max_dispatches(const struct plm_model *model)
{
    return model->hp.n_layer * LAYER_DISPATCHES + FRAME_DISPATCHES;
}
