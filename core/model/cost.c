// SPDX-License-Identifier: Apache-2.0
// What a step takes on a device: the ops that the device prefers, and the table of buffers that
// planner, admission and decoder share.
#include <string.h>

#include "core/base/checked.h"
#include "core/model/arch.h"

// Pairs of a row and a split whose partial attention is kept at once: a single row over 262,144
// tokens, or eight over 32,768. More rows and tokens fill a device without being split.
#define PARTIALS_MAX 1024u

// ---- what runs ----

const struct plm_weight *plm_model_head(const struct plm_model *model)
{
    const struct plm_weight *head = &model->outer[PLM_OUTER_HEAD];
    return plm_weight_there(head) ? head : &model->outer[PLM_OUTER_TOKEN_EMBD];
}

bool plm_model_device_argmax(const struct plm_model *model)
{
    return (model->on.prefers >> PLM_OP_ARGMAX & 1) != 0;
}

bool plm_model_samples(const struct plm_model *model)
{
    return (model->on.prefers >> PLM_OP_SAMPLE & 1) != 0 && plm_model_device_argmax(model) &&
           model->hp.n_vocab <= PLM_SAMPLE_VOCAB_MAX;
}

bool plm_model_runs_ahead(const struct plm_model *model)
{
    return model->on.ahead;
}

// In the trained context, of the layer with the most.
static uint64_t most_splits(const struct plm_model *model)
{
    uint64_t most = 0;
    for (uint32_t il = 0; il < model->hp.n_layer; il++) {
        const uint64_t n = plm_attention_splits(&model->layers[il].spec, model->hp.n_ctx_train);
        most = n > most ? n : most;
    }
    return most;
}

uint64_t plm_model_unsplit_context(const struct plm_model *model, uint32_t rows)
{
    if ((model->on.prefers >> PLM_OP_ATTENTION_SPLIT & 1) == 0 || rows > model->on.few_rows)
        return 0;
    // Layers with few splits in any context always attend in them; the others all end here.
    const uint64_t kept = model->on.partials / rows;
    return most_splits(model) <= kept ? UINT64_MAX : kept * PLM_ATTN_SPLIT_TOKENS + 1;
}

// ---- what it takes ----

struct activations {
    const struct plm_model *model;
    struct plm_cost_buffer *buffers;
};

// The input of each product, in the format that it reads.
static int add_input(void *ctx, struct plm_weight *w)
{
    const struct activations *a = ctx;
    if (!plm_weight_is_matrix(w) ||
        (w == &a->model->outer[PLM_OUTER_TOKEN_EMBD] && w != plm_model_head(a->model)))
        return PLM_OK;
    if (a->model->opts.float_activations || plm_act_of(w->tensor->type) == PLM_ACT_F32)
        plm_cost_grow(&a->buffers[PLM_BUF_ACT_F32], 4ull * w->n_in);
    else
        plm_cost_grow(&a->buffers[PLM_BUF_ACT_Q8], PLM_ACT_Q8_ROW_BYTES(w->n_in));
    return PLM_OK;
}

// Sizes of what the layers' blocks write are theirs.
void plm_model_fill_cost(struct plm_model *model)
{
    const struct plm_hparams *hp = &model->hp;
    const bool argmax = plm_model_device_argmax(model), samples = plm_model_samples(model);
    struct plm_cost_buffer buffers[PLM_BUFFERS] = {
        [PLM_BUF_CHAINED] = {.name = "chained tokens", .per_row = model->on.ahead ? 4 : 0},
        [PLM_BUF_X] = {.name = "residual stream", .per_row = 4ull * hp->n_embd},
        [PLM_BUF_SCRATCH] = {.name = "qkv, gate and up"},
        [PLM_BUF_ATTN] = {.name = "attention"},
        [PLM_BUF_ACT_Q8] = {.name = "8-bit activations"},
        [PLM_BUF_ACT_F32] = {.name = "float activations"},
        [PLM_BUF_BRANCH] = {.name = "output before its norm"},
        [PLM_BUF_PARTIAL] = {.name = "attention of splits"},
        [PLM_BUF_SELECTED] = {.name = "selected rows", .per_logits_row = 4ull * hp->n_embd},
        [PLM_BUF_LOGITS] = {.name = "logits", .per_logits_row = 4ull * hp->n_vocab},
        [PLM_BUF_BEST] = {.name = "best tokens",
                          .per_logits_row = argmax ? sizeof(struct plm_argmax_record) : 0},
        [PLM_BUF_GUARD] = {.name = "guard", .fixed = PLM_COST_GUARD_BYTES},
        [PLM_BUF_TOKENS] = {.name = "tokens", .per_row = 4},
        [PLM_BUF_POS] = {.name = "positions", .per_row = 4},
        [PLM_BUF_SEQ] = {.name = "sequences", .per_row = 4},
        [PLM_BUF_SLOTS] = {.name = "slots", .per_row = 8ull * model->facts.n_groups},
        [PLM_BUF_LOGITS_ROWS] = {.name = "logits rows", .per_logits_row = 4},
        [PLM_BUF_SAMPLING] = {.name = "sampling",
                              .per_logits_row = samples ? sizeof(struct plm_sample_row) : 0},
        [PLM_BUF_TABLES] = {.name = "block tables", .per_seq_block = 8ull * model->facts.n_groups},
    };
    for (uint32_t i = 0; i < PLM_ROPES_MAX; i++)
        buffers[PLM_BUF_ROPE + i] = (struct plm_cost_buffer){
            .name = "rope angles", .per_row = i < hp->n_ropes ? 4ull * hp->ropes[i].dims : 0};
    for (uint32_t il = 0; il < hp->n_layer; il++) {
        const struct plm_layer_spec *spec = &model->layers[il].spec;
        plm_mixer_of(spec)->buffers(model, spec, buffers);
        plm_feed_forward_of(spec)->buffers(model, spec, buffers);
    }
    plm_each_weight(model, add_input, &(struct activations){model, buffers});
    model->cost.n_buffers = PLM_BUFFERS;
    memcpy(model->cost.buffers, buffers, sizeof(buffers));
}

const struct plm_cost_table *plm_model_cost_table(const struct plm_model *model)
{
    return &model->cost;
}

uint64_t plm_model_results_bytes(const struct plm_model *model, const struct plm_shape *shape)
{
    uint64_t at[PLM_BUFFERS];
    plm_cost_layout(&model->cost, shape, at);
    return at[PLM_BUF_GUARD] + PLM_COST_GUARD_BYTES - at[PLM_BUF_BEST];
}

void plm_model_specialize(struct plm_model *model, const struct plm_caps *caps)
{
    const uint64_t splits = caps->few_rows * most_splits(model);
    const bool is_split = caps->prefers >> PLM_OP_ATTENTION_SPLIT & 1;
    struct plm_specialization *on = &model->on;
    on->prefers = caps->prefers;
    on->few_rows = caps->few_rows;
    on->ahead = caps->async && plm_model_device_argmax(model);
    on->partials = !is_split ? 0 : splits < PARTIALS_MAX ? (uint32_t)splits : PARTIALS_MAX;
    plm_model_fill_cost(model);
}
