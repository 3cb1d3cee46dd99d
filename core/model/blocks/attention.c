// SPDX-License-Identifier: Apache-2.0
// Grouped-query attention over the KV cache. In steps of few rows, where the device prefers it, the
// products of q, k and v, rope and the write to the cache are one dispatch for each type among the
// weights, and long contexts are attended in splits.
#include <math.h>

#include "core/base/checked.h"
#include "core/model/pass.h"

enum {
    NORM,
    Q,
    K,
    V,
    OUTPUT,
    Q_BIAS,
    K_BIAS,
    V_BIAS,
    OUTPUT_BIAS,
    NORM_AFTER,
    Q_NORM,
    K_NORM,
    HEAD_NORMS,
    N_WEIGHTS
};

#define MATRIX      .kind = PLM_WEIGHT_MATRIX, .weight_class = PLM_WEIGHT_ATTENTION
#define VECTOR      .kind = PLM_WEIGHT_VECTOR, .weight_class = PLM_WEIGHT_VECTORS
#define NEED(field) .need = offsetof(struct plm_layer_spec, field)

static bool fill_head_norms(const struct plm_layer *layer, void *ret);

static const struct plm_weight_decl weights[N_WEIGHTS] = {
    [NORM] = {"blk.%u.attn_norm.weight", VECTOR, .n_in = PLM_DIM_EMBD, NEED(attn_norm_before)},
    // Fused files keep the rows of q, then k, then v.
    [Q] = {"blk.%u.attn_q.weight", .fused = "blk.%u.attn_qkv.weight", MATRIX, .n_in = PLM_DIM_EMBD,
           .n_out = PLM_DIM_Q},
    [K] = {"blk.%u.attn_k.weight", .fused = "blk.%u.attn_qkv.weight", MATRIX, .n_in = PLM_DIM_EMBD,
           .n_out = PLM_DIM_KV},
    [V] = {"blk.%u.attn_v.weight", .fused = "blk.%u.attn_qkv.weight", MATRIX, .n_in = PLM_DIM_EMBD,
           .n_out = PLM_DIM_KV},
    [OUTPUT] = {"blk.%u.attn_output.weight", MATRIX, .n_in = PLM_DIM_Q, .n_out = PLM_DIM_EMBD},
    [Q_BIAS] = {"blk.%u.attn_q.bias", .fused = "blk.%u.attn_qkv.bias", VECTOR, .n_in = PLM_DIM_Q,
                NEED(qkv_bias)},
    [K_BIAS] = {"blk.%u.attn_k.bias", .fused = "blk.%u.attn_qkv.bias", VECTOR, .n_in = PLM_DIM_KV,
                NEED(qkv_bias)},
    [V_BIAS] = {"blk.%u.attn_v.bias", .fused = "blk.%u.attn_qkv.bias", VECTOR, .n_in = PLM_DIM_KV,
                NEED(qkv_bias)},
    [OUTPUT_BIAS] = {"blk.%u.attn_output.bias", VECTOR, .n_in = PLM_DIM_EMBD, NEED(output_bias)},
    [NORM_AFTER] = {"blk.%u.post_attention_norm.weight", VECTOR, .n_in = PLM_DIM_EMBD,
                    NEED(attn_norm_after)},
    [Q_NORM] = {"blk.%u.attn_q_norm.weight", VECTOR, .n_in = PLM_DIM_HEAD, NEED(head_norms)},
    [K_NORM] = {"blk.%u.attn_k_norm.weight", VECTOR, .n_in = PLM_DIM_HEAD, NEED(head_norms)},
    [HEAD_NORMS] = {"the norms of heads", .kind = PLM_WEIGHT_RECORD,
                    .weight_class = PLM_WEIGHT_VECTORS, NEED(head_norms),
                    .record_bytes = sizeof(struct plm_head_norms), .record = fill_head_norms},
};

static bool fill_head_norms(const struct plm_layer *layer, void *ret)
{
    const struct plm_weight *q = &layer->mixer[Q_NORM], *k = &layer->mixer[K_NORM];
    if (ret != NULL)
        *(struct plm_head_norms *)ret = (struct plm_head_norms){
            .norm_q = q->addr, .norm_k = k->addr, .eps = layer->spec.norm_eps};
    return plm_weight_there(q) || plm_weight_there(k);
}

// ---- keys ----

static int read_head_dim(const struct plm_keys *keys, const struct plm_hparams *hp,
                         struct plm_layer_spec *spec, struct plm_error *err)
{
    const struct plm_int_key length = {
        "attention.key_length", offsetof(struct plm_layer_spec, head_dim), 1, 256, PLM_OPTIONAL};
    int r = plm_keys_ints(keys, &length, 1, spec, err);
    if (r != PLM_OK)
        return r;
    if (spec->head_dim == 0 && hp->n_embd % spec->n_head != 0)
        return plm_fail(err, PLM_ERR_FORMAT, "%s.embedding_length %u is no multiple of %u heads",
                        keys->arch, hp->n_embd, spec->n_head);
    if (spec->head_dim == 0)
        spec->head_dim = hp->n_embd / spec->n_head;
    if (spec->head_dim == 0 || spec->head_dim % 8 != 0 || spec->head_dim > 256)
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "%s: heads of %u elements (a multiple of 8 up to 256 is supported)",
                        keys->arch, spec->head_dim);
    char key[PLM_KEY_BYTES];
    uint32_t value_length = spec->head_dim;
    plm_key_name(keys, "attention.value_length", key);
    r = plm_gguf_u32(keys->gguf, key, &value_length, err);
    if (r != PLM_OK && r != PLM_ERR_NOT_FOUND)
        return r;
    if (value_length != spec->head_dim)
        return plm_fail(err, PLM_ERR_UNSUPPORTED, "key %s is %u, but keys have %u elements", key,
                        value_length, spec->head_dim);
    return PLM_OK;
}

static int read_keys(const struct plm_keys *keys, const struct plm_hparams *hp,
                     struct plm_layer_spec *ret, struct plm_error *err)
{
    static const struct plm_int_key ints[] = {
        {"attention.head_count", offsetof(struct plm_layer_spec, n_head), 1, 4096, PLM_REQUIRED},
        {"attention.head_count_kv", offsetof(struct plm_layer_spec, n_kv_head), 1, 4096,
         PLM_OPTIONAL},
    };
    int r = plm_keys_ints(keys, ints, sizeof(ints) / sizeof(ints[0]), ret, err);
    if (r != PLM_OK)
        return r;
    if (ret->n_kv_head == 0)
        ret->n_kv_head = ret->n_head;
    if (ret->n_head % ret->n_kv_head != 0)
        return plm_fail(err, PLM_ERR_FORMAT,
                        "%s.attention.head_count is %u, no multiple of head_count_kv %u",
                        keys->arch, ret->n_head, ret->n_kv_head);
    r = read_head_dim(keys, hp, ret, err);
    if (r != PLM_OK)
        return r;
    ret->attn_scale = 1.0f / sqrtf((float)ret->head_dim);
    return plm_keys_float(keys, "attention.scale", &ret->attn_scale, err);
}

int plm_attention_read_window(const struct plm_keys *keys, uint32_t *ret, struct plm_error *err)
{
    static const struct plm_int_key window = {"attention.sliding_window", 0, 0, INT32_MAX,
                                              PLM_OPTIONAL};
    return plm_keys_ints(keys, &window, 1, ret, err);
}

// ---- workspace ----

static uint64_t q_elements(const struct plm_layer_spec *s)
{
    return (uint64_t)s->n_head * s->head_dim;
}

static void buffers(const struct plm_model *model, const struct plm_layer_spec *s,
                    struct plm_cost_buffer *ret)
{
    const uint64_t qkv = q_elements(s) + 2ull * s->n_kv_head * s->head_dim;
    // Largest score, sum and output of each head (plm_attention_split_args).
    const uint64_t partial = model->on.partials * 4ull * s->n_head * (s->head_dim + 2);
    plm_cost_grow(&ret[PLM_BUF_SCRATCH], 4 * qkv);
    plm_cost_grow(&ret[PLM_BUF_ATTN], 4 * q_elements(s));
    if (s->attn_norm_after != PLM_ABSENT)
        plm_cost_grow(&ret[PLM_BUF_BRANCH], 4ull * model->hp.n_embd);
    if (ret[PLM_BUF_PARTIAL].fixed < partial)
        ret[PLM_BUF_PARTIAL].fixed = partial;
}

// ---- q, k and v ----

static uint32_t kv_type(const struct plm_pass *p, const struct plm_layer *layer)
{
    return p->model->facts.groups[layer->group].type;
}

// The layer's rope: of a layer that rotates nothing no elements and no angles.
static const struct plm_rope_spec *rope_of(const struct plm_pass *p, const struct plm_layer *layer)
{
    static const struct plm_rope_spec none = {0};
    return layer->spec.rope == PLM_ROPE_NONE ? &none : &p->model->hp.ropes[layer->spec.rope];
}

static uint64_t angles_of_k(const struct plm_pass *p, const struct plm_layer *layer)
{
    return layer->spec.rope == PLM_ROPE_NONE ? 0 : p->at[PLM_BUF_ROPE + layer->spec.rope];
}

static uint64_t angles_of_q(const struct plm_pass *p, const struct plm_layer *layer)
{
    const uint32_t rope = layer->spec.q_rope;
    return rope == 0 ? angles_of_k(p, layer) : p->at[PLM_BUF_ROPE + rope];
}

// A rope of its own takes q a launch of its own.
static void rotate(struct plm_pass *p, const struct plm_layer *layer,
                   const struct plm_rope_kv_args *both)
{
    struct plm_rope_kv_args q = *both, kv = *both;
    if (layer->spec.q_rope == 0) {
        PLM_LAUNCH(p, rope_kv, both);
        return;
    }
    q.table = angles_of_q(p, layer);
    q.kv_heads = 0;
    kv.heads = 0;
    PLM_LAUNCH(p, rope_kv, &q);
    PLM_LAUNCH(p, rope_kv, &kv);
}

// q, k and v side by side in the scratch, rotated; k and v also go to the cache.
static void project_apart(struct plm_pass *p, const struct plm_layer *layer)
{
    const struct plm_layer_spec *s = &layer->spec;
    const struct plm_weight *w = layer->mixer;
    const uint32_t n_q = s->n_head * s->head_dim, n_kv = s->n_kv_head * s->head_dim;
    const uint32_t ld = n_q + 2 * n_kv;
    const uint64_t q = p->at[PLM_BUF_SCRATCH], k = q + 4ull * n_q, v = k + 4ull * n_kv;
    plm_pass_product(p, &w[Q], &w[Q_BIAS], plm_pass_input(p, &w[Q]), q, ld, false);
    plm_pass_product(p, &w[K], &w[K_BIAS], plm_pass_input(p, &w[K]), k, ld, false);
    plm_pass_product(p, &w[V], &w[V_BIAS], plm_pass_input(p, &w[V]), v, ld, false);
    plm_pass_barrier(p);
    const struct plm_rope_kv_args a = {.q = q,
                                       .k = k,
                                       .v = v,
                                       .table = angles_of_k(p, layer),
                                       .slots = plm_pass_slots(p, layer->group),
                                       .pos = p->at[PLM_BUF_POS],
                                       .norms = layer->mixer[HEAD_NORMS].addr,
                                       .layer_offset = layer->kv_offset,
                                       .rows = p->rows,
                                       .ld = ld,
                                       .heads = s->n_head,
                                       .kv_heads = s->n_kv_head,
                                       .head_dim = s->head_dim,
                                       .dims = rope_of(p, layer)->dims,
                                       .mode = rope_of(p, layer)->mode,
                                       .kv_type = kv_type(p, layer)};
    rotate(p, layer, &a);
}

// Row stride of q: rows of it alone, or of q, k and v.
static uint32_t ld_q(const struct plm_pass *p, const struct plm_layer_spec *s)
{
    return (s->n_head + (plm_pass_uses(p, PLM_OP_QKV) ? 0 : 2 * s->n_kv_head)) * s->head_dim;
}

// The same with q alone in the scratch: one launch for each type among the weights, and one for q
// where it has a rope of its own.
static void project_fused(struct plm_pass *p, const struct plm_layer *layer)
{
    const struct plm_layer_spec *s = &layer->spec;
    const struct plm_weight *w = &layer->mixer[Q], *bias = &layer->mixer[Q_BIAS];
    for (int i = 0, done = 0; i < 3; i++) {
        if (done >> i & 1)
            continue;
        const enum plm_type type = w[i].tensor->type;
        const enum plm_act act = plm_pass_act(p, &w[i]);
        struct plm_qkv_args a = {.x = plm_pass_input(p, &w[i]),
                                 .q = p->at[PLM_BUF_SCRATCH],
                                 .table = i == 0 ? angles_of_q(p, layer) : angles_of_k(p, layer),
                                 .slots = plm_pass_slots(p, layer->group),
                                 .pos = p->at[PLM_BUF_POS],
                                 .norms = layer->mixer[HEAD_NORMS].addr,
                                 .layer_offset = layer->kv_offset,
                                 .rows = p->rows,
                                 .n_in = w[i].n_in,
                                 .ld_q = ld_q(p, s),
                                 .heads = PLM_PAIR(s->n_head, s->n_kv_head),
                                 .head_dim = PLM_PAIR(s->head_dim, rope_of(p, layer)->dims),
                                 .kinds = PLM_KINDS((uint32_t)type, (uint32_t)act,
                                                    rope_of(p, layer)->mode, kv_type(p, layer))};
        uint64_t *const weight[] = {&a.weight_q, &a.weight_k, &a.weight_v};
        uint64_t *const bias_of[] = {&a.bias_q, &a.bias_k, &a.bias_v};
        for (int j = i; j < 3; j++) {
            if (w[j].tensor->type != type || (s->q_rope != 0 && i == 0 && j > 0))
                continue;
            *weight[j] = w[j].addr;
            *bias_of[j] = bias[j].addr;
            done |= 1 << j;
        }
        PLM_LAUNCH(p, qkv, &a);
    }
}

static void project(struct plm_pass *p, const struct plm_layer *layer)
{
    const struct plm_weight *w = layer->mixer;
    const struct plm_weight *const readers[] = {&w[Q], &w[K], &w[V]};
    plm_pass_norm(p, &w[NORM], readers, 3);
    if (plm_pass_uses(p, PLM_OP_QKV))
        project_fused(p, layer);
    else
        project_apart(p, layer);
    plm_pass_barrier(p);
}

// ---- attention ----

// Of all rows in one piece, as float32, or if q8 as 8-bit activations.
static void attend_unsplit(struct plm_pass *p, const struct plm_layer *layer, bool q8)
{
    const struct plm_layer_spec *s = &layer->spec;
    const struct plm_attention_args a = {.q = p->at[PLM_BUF_SCRATCH],
                                         .dst = p->at[PLM_BUF_ATTN],
                                         .pos = p->at[PLM_BUF_POS],
                                         .seq = p->at[PLM_BUF_SEQ],
                                         .tables = plm_pass_tables(p, layer->group),
                                         .layer_offset = layer->kv_offset,
                                         .table_stride = p->forward->table_stride,
                                         .rows = p->rows,
                                         .ld_q = ld_q(p, s),
                                         .heads = s->n_head,
                                         .kv_heads = s->n_kv_head,
                                         .head_dim = s->head_dim,
                                         .kv_type = kv_type(p, layer),
                                         .scale = s->attn_scale,
                                         .window = s->window};
    PLM_LAUNCH_TUNED(p, ATTENTION, attention, &a);
    if (!q8)
        return;
    const struct plm_quantize_args q = {
        .x = a.dst, .dst = p->at[PLM_BUF_ACT_Q8], .rows = p->rows, .n = s->n_head * s->head_dim};
    plm_pass_barrier(p);
    PLM_LAUNCH(p, quantize, &q);
}

static void attend_split(struct plm_pass *p, const struct plm_layer *layer, uint32_t splits,
                         bool q8)
{
    const struct plm_layer_spec *s = &layer->spec;
    const struct plm_attention_split_args a = {.q = p->at[PLM_BUF_SCRATCH],
                                               .partial = p->at[PLM_BUF_PARTIAL],
                                               .pos = p->at[PLM_BUF_POS],
                                               .seq = p->at[PLM_BUF_SEQ],
                                               .tables = plm_pass_tables(p, layer->group),
                                               .layer_offset = layer->kv_offset,
                                               .table_stride = p->forward->table_stride,
                                               .rows = p->rows,
                                               .ld_q = ld_q(p, s),
                                               .heads = s->n_head,
                                               .kv_heads = s->n_kv_head,
                                               .head_dim = s->head_dim,
                                               .kv_type = kv_type(p, layer),
                                               .splits = splits,
                                               .scale = s->attn_scale,
                                               .window = s->window};
    const struct plm_attention_merge_args m = {.partial = a.partial,
                                               .pos = a.pos,
                                               .dst_f32 = q8 ? 0 : p->at[PLM_BUF_ATTN],
                                               .dst_q8 = q8 ? p->at[PLM_BUF_ACT_Q8] : 0,
                                               .rows = p->rows,
                                               .heads = s->n_head,
                                               .head_dim = s->head_dim,
                                               .splits = splits,
                                               .window = s->window};
    PLM_LAUNCH(p, attention_split, &a);
    plm_pass_barrier(p);
    PLM_LAUNCH(p, attention_merge, &m);
}

static void append(struct plm_pass *p, const struct plm_layer *layer)
{
    const struct plm_weight *w = layer->mixer;
    const uint32_t splits = (uint32_t)plm_attention_splits(&layer->spec, p->forward->shape.ctx);
    const bool q8 = plm_pass_act(p, &w[OUTPUT]) == PLM_ACT_Q8;
    project(p, layer);
    if (plm_pass_uses(p, PLM_OP_ATTENTION_SPLIT) && (uint64_t)p->rows * splits <= p->on.partials)
        attend_split(p, layer, splits, q8);
    else
        attend_unsplit(p, layer, q8);
    plm_pass_barrier(p);
    plm_pass_output(p, &w[OUTPUT], &w[OUTPUT_BIAS], &w[NORM_AFTER],
                    p->at[q8 ? PLM_BUF_ACT_Q8 : PLM_BUF_ATTN]);
}

const struct plm_block_kind plm_block_attention = {.weights = weights,
                                                   .n_weights = N_WEIGHTS,
                                                   .read = read_keys,
                                                   .buffers = buffers,
                                                   .append = append};
