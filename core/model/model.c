// SPDX-License-Identifier: Apache-2.0
#include "core/model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/text.h"
#include "core/model/arch.h"

static const struct plm_arch *const archs[] = {&plm_arch_llama, &plm_arch_qwen2};

static const struct plm_arch *find_arch(struct plm_slice name)
{
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++) {
        if (plm_slice_eq_str(name, archs[i]->name))
            return archs[i];
    }
    return NULL;
}

static int fail_arch(struct plm_slice name, struct plm_error *err)
{
    char names[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
        plm_text_list(names, sizeof(names), &used, archs[i]->name);
    return plm_fail(err, PLM_ERR_UNSUPPORTED,
                    "architecture \"%.*s\" is not supported (there are: %s)",
                    (int)plm_min_i64((int64_t)name.len, 40), name.ptr, names);
}

static int read_arch(struct plm_model *model, struct plm_error *err)
{
    struct plm_slice name;
    int r = plm_gguf_str(model->gguf, "general.architecture", &name, err);
    if (r != PLM_OK)
        return r == PLM_ERR_NOT_FOUND
                   ? plm_fail(err, PLM_ERR_FORMAT, "key general.architecture is missing")
                   : r;
    model->arch = find_arch(name);
    if (model->arch == NULL)
        return fail_arch(name, err);
    return model->arch->check(model->gguf, err);
}

// Old converters stored the frequencies of rope as tensors; they follow from the keys.
static bool is_derived(struct plm_slice name)
{
    static const char suffix[] = "rot_embd.inv_freq";
    size_t n = sizeof(suffix) - 1;
    return name.len >= n && memcmp(name.ptr + name.len - n, suffix, n) == 0;
}

static int count_one(void *ctx, struct plm_weight *weight)
{
    *(uint64_t *)ctx += plm_weight_there(weight);
    return PLM_OK;
}

static int taken_matches(void *ctx, struct plm_weight *weight)
{
    return weight->tensor == ctx ? PLM_ERR_LIMIT : PLM_OK; // stops the walk: found
}

// Every tensor of the file was taken.
static int check_all_taken(struct plm_model *model, struct plm_error *err)
{
    uint64_t taken = 0, n = plm_gguf_n_tensors(model->gguf);
    plm_each_weight(model, count_one, &taken);
    if (taken == n)
        return PLM_OK;
    for (uint64_t i = 0; i < n; i++) {
        const struct plm_gguf_tensor *t = plm_gguf_tensor_at(model->gguf, i);
        if (!is_derived(t->name) &&
            plm_each_weight(model, taken_matches, (void *)(uintptr_t)t) == PLM_OK)
            return plm_fail(err, PLM_ERR_UNSUPPORTED,
                            "tensor %.*s is not part of the architecture %s as it is supported",
                            (int)t->name.len, t->name.ptr, model->arch->name);
    }
    return PLM_OK;
}

// A value that is no number at all counts as said by nobody: it is advice, and the model runs
// without.
static void gather_sampling(const struct plm_gguf *gguf, struct plm_model_sampling *ret)
{
    uint32_t top_k = 0;
    *ret = (struct plm_model_sampling){NAN, NAN, NAN, NAN, -1};
    plm_gguf_f32(gguf, "general.sampling.temp", &ret->temperature, NULL);
    plm_gguf_f32(gguf, "general.sampling.top_p", &ret->top_p, NULL);
    plm_gguf_f32(gguf, "general.sampling.min_p", &ret->min_p, NULL);
    plm_gguf_f32(gguf, "general.sampling.penalty_repeat", &ret->repeat_penalty, NULL);
    if (plm_gguf_u32(gguf, "general.sampling.top_k", &top_k, NULL) == PLM_OK && top_k <= INT32_MAX)
        ret->top_k = (int32_t)top_k;
}

static void gather_facts(struct plm_model *model)
{
    const struct plm_hparams *hp = &model->hp;
    struct plm_model_facts *f = &model->facts;
    snprintf(f->arch, sizeof(f->arch), "%s", model->arch->name);
    struct plm_slice name;
    if (plm_gguf_str(model->gguf, "general.name", &name, NULL) == PLM_OK)
        snprintf(f->name, sizeof(f->name), "%.*s",
                 (int)plm_min_i64((int64_t)name.len, (int64_t)sizeof(f->name) - 1), name.ptr);
    f->n_vocab = hp->n_vocab;
    f->n_embd = hp->n_embd;
    f->n_layer = hp->n_layer;
    f->n_head = hp->n_head;
    f->n_ff = hp->n_ff;
    f->n_ctx_train = hp->n_ctx_train;
    f->file_bytes = plm_gguf_file_bytes(model->gguf);
    gather_sampling(model->gguf, &f->sampling);
    uint64_t by_type[64] = {0}; // type numbers of the format are below 64
    for (uint64_t i = 0; i < plm_gguf_n_tensors(model->gguf); i++) {
        const struct plm_gguf_tensor *t = plm_gguf_tensor_at(model->gguf, i);
        f->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        if ((unsigned)t->type < 64 && (by_type[t->type] += t->bytes) >= by_type[f->main_type])
            f->main_type = t->type;
    }
    f->n_groups = 1;
    f->groups[0] = (struct plm_kv_group){.n_layers = hp->n_layer,
                                         .kv_heads = hp->n_kv_head,
                                         .head_dim = hp->head_dim,
                                         .type = model->opts.kv_f32 ? PLM_TYPE_F32 : PLM_TYPE_F16};
}

static int add_type(void *ctx, struct plm_weight *weight)
{
    if (!weight->vector)
        *(uint64_t *)ctx |= UINT64_C(1) << weight->tensor->type;
    return PLM_OK;
}

void plm_model_needs(const struct plm_model *model, struct plm_kernel_needs *ret)
{
    *ret = (struct plm_kernel_needs){.float_acts = model->opts.float_activations};
    // Only reads: the walk leaves the model alone.
    plm_each_weight((struct plm_model *)(uintptr_t)model, add_type, &ret->weight_types);
    for (uint32_t i = 0; i < model->facts.n_groups; i++)
        ret->kv_types |= UINT64_C(1) << model->facts.groups[i].type;
    const uint32_t group = model->hp.n_head / model->hp.n_kv_head;
    ret->head_groups = UINT64_C(1) << (group < 63 ? group : 63);
}

static int wants_f32(void *ctx, struct plm_weight *weight)
{
    *(bool *)ctx |= !weight->vector && plm_act_of(weight->tensor->type) == PLM_ACT_F32;
    return PLM_OK;
}

// The workspace. ROPE, X and the rest are what decoder.c reads and writes; see enum plm_buffer.
void plm_model_fill_cost(struct plm_model *model)
{
    const struct plm_hparams *hp = &model->hp;
    const uint64_t n_q = (uint64_t)hp->n_head * hp->head_dim;
    const uint64_t qkv = n_q + 2ull * hp->n_kv_head * hp->head_dim;
    const uint64_t wide = (uint64_t)plm_max_i64((int64_t)qkv, 2ll * hp->n_ff);
    uint32_t n_act = hp->n_embd > hp->n_ff ? hp->n_embd : hp->n_ff;
    if (n_q > n_act)
        n_act = (uint32_t)n_q;
    // Largest score, sum and output of each head (plm_attention_split_args).
    const uint64_t partial = 4ull * hp->n_head * (hp->head_dim + 2);
    bool f32 = model->opts.float_activations;
    plm_each_weight(model, wants_f32, &f32);
    const struct plm_cost_buffer buffers[PLM_BUFFERS] = {
        [PLM_BUF_CHAINED] = {.name = "chained tokens", .per_row = model->ahead ? 4 : 0},
        [PLM_BUF_ROPE] = {.name = "rope angles", .per_row = 4ull * hp->rope_dims},
        [PLM_BUF_X] = {.name = "residual stream", .per_row = 4ull * hp->n_embd},
        [PLM_BUF_WIDE] = {.name = "qkv, gate and up", .per_row = 4 * wide},
        [PLM_BUF_ATTN] = {.name = "attention", .per_row = 4 * n_q},
        [PLM_BUF_ACT_Q8] = {.name = "8-bit activations", .per_row = PLM_ACT_Q8_ROW_BYTES(n_act)},
        [PLM_BUF_ACT_F32] = {.name = "float activations", .per_row = f32 ? 4ull * n_act : 0},
        [PLM_BUF_PARTIAL] = {.name = "attention of splits", .fixed = model->partials * partial},
        [PLM_BUF_SELECTED] = {.name = "selected rows", .per_logits_row = 4ull * hp->n_embd},
        [PLM_BUF_LOGITS] = {.name = "logits", .per_logits_row = 4ull * hp->n_vocab},
        [PLM_BUF_BEST] = {.name = "best tokens",
                          .per_logits_row = plm_model_device_argmax(model)
                                                ? sizeof(struct plm_argmax_record)
                                                : 0},
        [PLM_BUF_GUARD] = {.name = "guard", .fixed = PLM_COST_GUARD_BYTES},
        [PLM_BUF_TOKENS] = {.name = "tokens", .per_row = 4},
        [PLM_BUF_POS] = {.name = "positions", .per_row = 4},
        [PLM_BUF_SEQ] = {.name = "sequences", .per_row = 4},
        [PLM_BUF_SLOTS] = {.name = "slots", .per_row = 8},
        [PLM_BUF_LOGITS_ROWS] = {.name = "logits rows", .per_logits_row = 4},
        [PLM_BUF_SAMPLING] = {.name = "sampling",
                              .per_logits_row =
                                  plm_model_samples(model) ? sizeof(struct plm_sample_row) : 0},
        [PLM_BUF_TABLES] = {.name = "block tables", .per_seq_block = 8},
    };
    model->cost.n_buffers = PLM_BUFFERS;
    memcpy(model->cost.buffers, buffers, sizeof(buffers));
}

static int build(struct plm_model *model, struct plm_error *err)
{
    int r = read_arch(model, err);
    if (r == PLM_OK)
        r = plm_hparams_read(model->gguf, model->arch, &model->hp, err);
    if (r != PLM_OK)
        return r;
    model->layers =
        plm_calloc(model->host, PLM_HOST_MODEL, model->hp.n_layer, sizeof(*model->layers));
    if (model->layers == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for %u layers", model->hp.n_layer);
    r = model->arch->tensors(model, err);
    for (uint32_t il = 0; r == PLM_OK && il < model->hp.n_layer; il++)
        r = model->arch->layer_tensors(model, il, err);
    if (r == PLM_OK)
        r = check_all_taken(model, err);
    if (r != PLM_OK)
        return r;
    gather_facts(model);
    plm_model_fill_cost(model);
    return PLM_OK;
}

int plm_model_create(struct plm_host *host, const struct plm_gguf *gguf,
                     const struct plm_model_opts *opts, struct plm_model **ret,
                     struct plm_error *err)
{
    struct plm_model *model = plm_calloc(host, PLM_HOST_MODEL, 1, sizeof(*model));
    if (model == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a model");
    model->host = host;
    model->gguf = gguf;
    model->opts = *opts;
    int r = build(model, err);
    if (r != PLM_OK) {
        plm_model_destroy(model);
        return r;
    }
    *ret = model;
    return PLM_OK;
}

void plm_model_destroy(struct plm_model *model)
{
    if (model == NULL)
        return;
    plm_free(model->host, model->layers);
    plm_free(model->host, model);
}

const struct plm_model_facts *plm_model_facts(const struct plm_model *model)
{
    return &model->facts;
}

const struct plm_cost_table *plm_model_cost_table(const struct plm_model *model)
{
    return &model->cost;
}

bool plm_model_device_argmax(const struct plm_model *model)
{
    return (model->prefers >> PLM_OP_ARGMAX & 1) != 0;
}

bool plm_model_samples(const struct plm_model *model)
{
    return (model->prefers >> PLM_OP_SAMPLE & 1) != 0 && plm_model_device_argmax(model) &&
           model->hp.n_vocab <= PLM_SAMPLE_VOCAB_MAX;
}

bool plm_model_runs_ahead(const struct plm_model *model)
{
    return model->ahead;
}

uint64_t plm_model_results_bytes(const struct plm_model *model, const struct plm_shape *shape)
{
    uint64_t at[PLM_BUFFERS];
    plm_cost_layout(&model->cost, shape, at);
    return at[PLM_BUF_GUARD] + PLM_COST_GUARD_BYTES - at[PLM_BUF_BEST];
}
