// SPDX-License-Identifier: Apache-2.0
#include "core/model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/text.h"
#include "core/model/arch.h"

static const struct plm_arch *const archs[] = {
#define X(name) &plm_arch_##name,
    PLM_ARCHS(X)
#undef X
};

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
    return model->arch == NULL ? fail_arch(name, err) : PLM_OK;
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
    f->n_head = hp->layer.n_head;
    f->n_ff = hp->layer.n_ff;
    f->n_ctx_train = hp->n_ctx_train;
    f->short_context = hp->ropes[0].short_context;
    f->file_bytes = plm_gguf_file_bytes(model->gguf);
    gather_sampling(model->gguf, &f->sampling);
    uint64_t by_type[64] = {0}; // type numbers of the format are below 64
    for (uint64_t i = 0; i < plm_gguf_n_tensors(model->gguf); i++) {
        const struct plm_gguf_tensor *t = plm_gguf_tensor_at(model->gguf, i);
        f->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        if ((unsigned)t->type < 64 && (by_type[t->type] += t->bytes) >= by_type[f->main_type])
            f->main_type = t->type;
    }
}

// ---- layers ----

int plm_layer_spec_check(const struct plm_layer_spec *spec, const char *arch, struct plm_error *err)
{
    const struct plm_layer_spec *plain = &plm_layer_spec_plain;
    static const struct {
        size_t field;
        const char *what;
    } unbuilt[] = {
#define UNBUILT(name, what) {offsetof(struct plm_layer_spec, name), what}
        UNBUILT(kv_layer, "K and V of another layer"),
        UNBUILT(v_is_k, "V that is K"),
        UNBUILT(output_gate, "a gate of attention's output"),
        UNBUILT(sinks, "attention sinks"),
        UNBUILT(attn_soft_cap, "a soft cap of attention's scores"),
        UNBUILT(attn_norm_before, "attention without a norm before it"),
        UNBUILT(ff_norm_before, "a feed-forward without a norm before it"),
        UNBUILT(residual_scale, "a scale of what a block adds"),
        UNBUILT(output_scale, "a scale of a layer's output"),
        UNBUILT(n_layer_embedding, "an embedding of each layer"),
#undef UNBUILT
    };
    for (size_t i = 0; i < sizeof(unbuilt) / sizeof(unbuilt[0]); i++) {
        const size_t at = unbuilt[i].field;
        if (memcmp((const char *)spec + at, (const char *)plain + at, sizeof(uint32_t)) != 0)
            return plm_fail(err, PLM_ERR_UNSUPPORTED, "%s: %s is not supported", arch,
                            unbuilt[i].what);
    }
    return PLM_OK;
}

static int make_layers(struct plm_model *model, struct plm_error *err)
{
    const struct plm_hparams *hp = &model->hp;
    int r = PLM_OK;
    model->layers = plm_calloc(model->host, PLM_HOST_MODEL, hp->n_layer, sizeof(*model->layers));
    if (model->layers == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for %u layers", hp->n_layer);
    for (uint32_t il = 0; r == PLM_OK && il < hp->n_layer; il++) {
        struct plm_layer_spec *spec = &model->layers[il].spec;
        *spec = hp->layer;
        if (model->arch->layer != NULL)
            model->arch->layer(hp, il, spec);
        r = plm_layer_spec_check(spec, model->arch->name, err);
    }
    return r;
}

static bool same_group(const struct plm_kv_group *a, const struct plm_kv_group *b)
{
    return a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->window == b->window;
}

// What a sequence of the trained context keeps.
static uint64_t group_bytes(const struct plm_model *model, const struct plm_kv_group *group)
{
    const uint32_t context = model->hp.n_ctx_train;
    return plm_kv_sequence_blocks(group->window, context) * plm_kv_block_bytes(group);
}

// The group that takes what memory is left is the first one: the full one, or in a model without
// one the window group with the most bytes.
static uint32_t main_group(const struct plm_model *model)
{
    const struct plm_model_facts *f = &model->facts;
    uint32_t best = 0;
    for (uint32_t g = 0; g < f->n_groups; g++) {
        if (f->groups[g].window == 0)
            return g;
        if (group_bytes(model, &f->groups[g]) > group_bytes(model, &f->groups[best]))
            best = g;
    }
    return best;
}

static int add_to_group(struct plm_model *model, struct plm_layer *layer, struct plm_error *err)
{
    struct plm_model_facts *f = &model->facts;
    const struct plm_layer_spec *s = &layer->spec;
    const enum plm_type type = model->opts.kv_type;
    if (type == PLM_TYPE_Q8_0 && s->head_dim % PLM_KV_Q8_BLOCK != 0)
        return plm_fail_about(err,
                              plm_fail(err, PLM_ERR_UNSUPPORTED,
                                       "kv_type q8_0 takes heads of a multiple of %d elements, but "
                                       "a layer of this model has head_dim %u",
                                       PLM_KV_Q8_BLOCK, s->head_dim),
                              "kv_type");
    const struct plm_kv_group own = {.kv_heads = s->n_kv_head,
                                     .head_dim = s->head_dim,
                                     .type = type,
                                     .window = plm_kv_window(s->window, model->hp.n_ctx_train)};
    uint32_t g = 0;
    while (g < f->n_groups && !same_group(&f->groups[g], &own))
        g++;
    if (g == PLM_KV_GROUPS_MAX)
        return plm_fail(err, PLM_ERR_UNSUPPORTED, "%s: layers with K and V of more than %d kinds",
                        model->arch->name, PLM_KV_GROUPS_MAX);
    for (uint32_t i = 0; g == f->n_groups && own.window == 0 && i < f->n_groups; i++) {
        if (f->groups[i].window == 0)
            return plm_fail(err, PLM_ERR_UNSUPPORTED,
                            "%s: layers without a window whose heads of K and V differ are not "
                            "supported",
                            model->arch->name);
    }
    if (g == f->n_groups)
        f->groups[f->n_groups++] = own;
    layer->group = g;
    layer->kv_offset = f->groups[g].n_layers++ * plm_kv_layer_bytes(&own);
    return PLM_OK;
}

// Layers whose K and V have the same form and window share a group.
static int make_groups(struct plm_model *model, struct plm_error *err)
{
    struct plm_model_facts *f = &model->facts;
    int r = PLM_OK;
    for (uint32_t il = 0; r == PLM_OK && il < model->hp.n_layer; il++)
        r = add_to_group(model, &model->layers[il], err);
    if (r != PLM_OK)
        return r;
    const uint32_t first = main_group(model);
    const struct plm_kv_group moved = f->groups[0];
    f->groups[0] = f->groups[first];
    f->groups[first] = moved;
    for (uint32_t il = 0; il < model->hp.n_layer; il++) {
        uint32_t *group = &model->layers[il].group;
        *group = *group == first ? 0 : *group == 0 ? first : *group;
    }
    return PLM_OK;
}

static bool same_types(const struct plm_weight *a, const struct plm_weight *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if ((a[i].tensor == NULL) != (b[i].tensor == NULL) ||
            (a[i].tensor != NULL && a[i].tensor->type != b[i].tensor->type))
            return false;
    }
    return true;
}

static bool same_kind(const struct plm_layer *a, const struct plm_layer *b)
{
    return memcmp(&a->spec, &b->spec, sizeof(a->spec)) == 0 &&
           same_types(a->mixer, b->mixer, plm_mixer_of(&a->spec)->n_weights) &&
           same_types(a->feed_forward, b->feed_forward, plm_feed_forward_of(&a->spec)->n_weights);
}

static void mark_kinds(struct plm_model *model)
{
    for (uint32_t il = 0; il < model->hp.n_layer; il++) {
        struct plm_layer *layer = &model->layers[il];
        layer->first_of_kind = true;
        for (uint32_t i = 0; i < il && layer->first_of_kind; i++)
            layer->first_of_kind =
                !model->layers[i].first_of_kind || !same_kind(&model->layers[i], layer);
    }
}

// ---- needs and workspace ----

static int add_type(void *ctx, struct plm_weight *weight)
{
    if (plm_weight_is_matrix(weight))
        *(uint64_t *)ctx |= UINT64_C(1) << weight->tensor->type;
    return PLM_OK;
}

void plm_model_needs(const struct plm_model *model, struct plm_kernel_needs *ret)
{
    *ret = (struct plm_kernel_needs){.float_acts = model->opts.float_activations};
    plm_each_weight(model, add_type, &ret->weight_types);
    for (uint32_t i = 0; i < model->facts.n_groups; i++)
        ret->kv_types |= UINT64_C(1) << model->facts.groups[i].type;
    for (uint32_t il = 0; il < model->hp.n_layer; il++) {
        const struct plm_layer_spec *s = &model->layers[il].spec;
        const uint32_t sharing = s->n_head / s->n_kv_head;
        ret->head_groups |= UINT64_C(1) << (sharing < 63 ? sharing : 63);
    }
}

// ---- a model ----

static int build(struct plm_model *model, struct plm_error *err)
{
    int r = read_arch(model, err);
    if (r != PLM_OK)
        return r;
    const struct plm_keys keys = {.gguf = model->gguf, .arch = model->arch->name};
    if ((r = plm_hparams_read(&keys, &model->hp, err)) ||
        (r = model->arch->describe(&keys, &model->hp, err)) || (r = make_layers(model, err)) ||
        (r = plm_bind_weights(model, err)) || (r = make_groups(model, err)))
        return r;
    mark_kinds(model);
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
    plm_free(model->host, model->weights);
    plm_free(model->host, model->layers);
    plm_free(model->host, model);
}

const struct plm_model_facts *plm_model_facts(const struct plm_model *model)
{
    return &model->facts;
}

void plm_model_set_context(struct plm_model *model, uint32_t context)
{
    model->context = context;
}
