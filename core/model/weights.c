// SPDX-License-Identifier: Apache-2.0
// From declarations to weights: the tensors of a file, found by exact name and shape.
#include <stdio.h>
#include <string.h>

#include "core/gguf/types.h"
#include "core/model/arch.h"

// Declarations that are being bound: those around the layers, or of one block of a layer.
struct list {
    const struct plm_model *model;
    const struct plm_layer *layer; // NULL: around the layers
    uint32_t il;
    const struct plm_weight_decl *decls;
    uint32_t n;
    struct plm_weight *ret;
};

static uint32_t length(const struct list *l, enum plm_dim dim)
{
    const struct plm_layer_spec *s = l->layer != NULL ? &l->layer->spec : NULL;
    switch (dim) {
    case PLM_DIM_EMBD: return l->model->hp.n_embd;
    case PLM_DIM_VOCAB: return l->model->hp.n_vocab;
    case PLM_DIM_HEAD: return s->head_dim;
    case PLM_DIM_Q: return s->n_head * s->head_dim;
    case PLM_DIM_KV: return s->n_kv_head * s->head_dim;
    case PLM_DIM_FF: return s->n_ff;
    }
    return 0;
}

static enum plm_need need_of(const struct list *l, const struct plm_weight_decl *decl)
{
    const char *spec =
        l->layer != NULL ? (const char *)&l->layer->spec : (const char *)&l->model->hp;
    uint32_t need;
    if (decl->need == 0)
        return PLM_REQUIRED;
    memcpy(&need, spec + decl->need, sizeof(need));
    return (enum plm_need)need;
}

// Names are at most 63 bytes in the format; the longest of a declaration has 40.
#define NAME_BYTES 64

static const struct plm_gguf_tensor *find(const struct list *l, const char *pattern,
                                          char name[NAME_BYTES])
{
    // The patterns are literals of this module with at most one %u.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, NAME_BYTES, pattern, l->il);
#pragma GCC diagnostic pop
    return plm_gguf_tensor_find(l->model->gguf, name);
}

static int fail_type(const struct plm_gguf_tensor *t, bool vector, struct plm_error *err)
{
    char names[PLM_TYPE_NAMES_BYTES];
    plm_type_names(vector, names);
    return plm_fail(err, PLM_ERR_UNSUPPORTED,
                    "tensor %.*s has the type %s, which is not supported%s (there are: %s)",
                    (int)t->name.len, t->name.ptr, plm_type_name(t->type),
                    vector ? " for a vector" : "", names);
}

static int check(const struct plm_gguf_tensor *t, uint32_t n_in, uint32_t n_out, bool vector,
                 struct plm_error *err)
{
    if (t->ne[0] != n_in || t->ne[1] != n_out || t->ne[2] != 1 || t->ne[3] != 1)
        return plm_fail(err, PLM_ERR_FORMAT,
                        "tensor %.*s has the shape [%llu, %llu, %llu, %llu], not [%u, %u]",
                        (int)t->name.len, t->name.ptr, (unsigned long long)t->ne[0],
                        (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
                        (unsigned long long)t->ne[3], n_in, n_out);
    return plm_type_is_supported(t->type, vector) ? PLM_OK : fail_type(t, vector, err);
}

// Where weight i lies in a tensor that holds several: its first row and the rows of all.
static void place_in_fused(const struct list *l, uint32_t i, uint32_t *ret_first, uint32_t *ret_all)
{
    const bool vector = l->decls[i].kind == PLM_WEIGHT_VECTOR;
    uint32_t all = 0;
    for (uint32_t j = 0; j < l->n; j++) {
        const struct plm_weight_decl *d = &l->decls[j];
        if (j == i)
            *ret_first = all;
        if (d->fused != NULL && strcmp(d->fused, l->decls[i].fused) == 0)
            all += length(l, vector ? d->n_in : d->n_out);
    }
    *ret_all = all;
}

// The tensor that holds weight i beside others; NULL: it has one of its own.
static const struct plm_gguf_tensor *find_fused(const struct list *l, uint32_t i)
{
    char name[NAME_BYTES];
    const char *fused = l->decls[i].fused;
    if (fused == NULL)
        return NULL;
    for (uint32_t j = 0; j <= i; j++) {
        if (l->decls[j].fused != NULL && strcmp(l->decls[j].fused, fused) == 0)
            return find(l, l->decls[j].name, name) == NULL ? find(l, fused, name) : NULL;
    }
    return NULL;
}

static int bind_tensor(const struct list *l, uint32_t i, enum plm_need need, struct plm_error *err)
{
    const struct plm_weight_decl *d = &l->decls[i];
    const bool vector = d->kind == PLM_WEIGHT_VECTOR;
    char name[NAME_BYTES];
    struct plm_weight w = {.decl = d,
                           .layer = l->layer,
                           .tensor = find_fused(l, i),
                           .n_in = length(l, d->n_in),
                           .n_out = vector ? 1 : length(l, d->n_out)};
    uint32_t all = vector ? w.n_in : w.n_out;
    if (w.tensor != NULL)
        place_in_fused(l, i, &w.first, &all);
    else
        w.tensor = find(l, d->name, name);
    if (w.tensor == NULL)
        return need == PLM_OPTIONAL ? PLM_OK
                                    : plm_fail(err, PLM_ERR_FORMAT, "tensor %s is missing", name);
    int r = check(w.tensor, vector ? all : w.n_in, vector ? 1 : all, vector, err);
    if (r == PLM_OK)
        l->ret[i] = w;
    return r;
}

static int bind_list(const struct list *l, struct plm_error *err)
{
    int r = PLM_OK;
    for (uint32_t i = 0; r == PLM_OK && i < l->n; i++) {
        const struct plm_weight_decl *d = &l->decls[i];
        const enum plm_need need = need_of(l, d);
        if (need == PLM_ABSENT)
            continue;
        if (d->kind != PLM_WEIGHT_RECORD)
            r = bind_tensor(l, i, need, err);
        else if (d->record(l->layer, NULL))
            l->ret[i] = (struct plm_weight){
                .decl = d, .layer = l->layer, .n_in = d->record_bytes, .n_out = 1};
    }
    return r;
}

// ---- around the layers ----

static const struct plm_weight_decl phases = {
    .name = "the rope's phases", .kind = PLM_WEIGHT_PHASES, .weight_class = PLM_WEIGHT_VECTORS};

static int bind_phases(const struct plm_model *model, const struct plm_rope_spec *rope,
                       const char *factors, struct plm_weight *ret, struct plm_error *err)
{
    struct plm_weight w = {.decl = &phases, .n_in = rope->dims / 2, .n_out = 1};
    if (factors != NULL)
        w.tensor = plm_gguf_tensor_find(model->gguf, factors);
    *ret = w;
    return w.tensor != NULL ? check(w.tensor, w.n_in, 1, true, err) : PLM_OK;
}

static int bind_ropes(struct plm_model *model, struct plm_error *err)
{
    int r = PLM_OK;
    for (uint32_t i = 0; r == PLM_OK && i < model->hp.n_ropes; i++) {
        const struct plm_rope_spec *rope = &model->hp.ropes[i];
        r = bind_phases(model, rope, rope->factors, &model->ropes[i], err);
        if (r == PLM_OK && rope->long_factors != NULL)
            r = bind_phases(model, rope, rope->long_factors, &model->long_ropes[i], err);
        if (model->long_ropes[i].tensor == NULL)
            model->long_ropes[i] = (struct plm_weight){0};
    }
    return r;
}

// The vocabulary is as large as the embedding has rows.
static int count_vocab(struct plm_model *model, struct plm_error *err)
{
    const char *name = plm_outer_weights[PLM_OUTER_TOKEN_EMBD].name;
    const struct plm_gguf_tensor *t = plm_gguf_tensor_find(model->gguf, name);
    if (t == NULL)
        return plm_fail(err, PLM_ERR_FORMAT, "tensor %s is missing", name);
    if (t->ne[1] < 1 || t->ne[1] > 1u << 24)
        return plm_fail(err, PLM_ERR_FORMAT, "tensor %s has %llu rows", name,
                        (unsigned long long)t->ne[1]);
    model->hp.n_vocab = (uint32_t)t->ne[1];
    return PLM_OK;
}

// ---- all ----

static int make_room(struct plm_model *model, struct plm_error *err)
{
    uint32_t n = 2 * model->hp.n_ropes + PLM_OUTER_WEIGHTS;
    for (uint32_t il = 0; il < model->hp.n_layer; il++) {
        const struct plm_layer_spec *spec = &model->layers[il].spec;
        n += plm_mixer_of(spec)->n_weights + plm_feed_forward_of(spec)->n_weights;
    }
    model->weights = plm_calloc(model->host, PLM_HOST_MODEL, n, sizeof(*model->weights));
    if (model->weights == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for %u weights", n);
    model->n_weights = n;
    model->ropes = model->weights;
    model->long_ropes = model->ropes + model->hp.n_ropes;
    model->outer = model->long_ropes + model->hp.n_ropes;
    struct plm_weight *next = model->outer + PLM_OUTER_WEIGHTS;
    for (uint32_t il = 0; il < model->hp.n_layer; il++) {
        struct plm_layer *layer = &model->layers[il];
        layer->mixer = next;
        layer->feed_forward = next + plm_mixer_of(&layer->spec)->n_weights;
        next = layer->feed_forward + plm_feed_forward_of(&layer->spec)->n_weights;
    }
    return PLM_OK;
}

static int bind_block(struct plm_model *model, uint32_t il, const struct plm_block_kind *kind,
                      struct plm_weight *ret, struct plm_error *err)
{
    const struct list l = {.model = model,
                           .layer = &model->layers[il],
                           .il = il,
                           .decls = kind->weights,
                           .n = kind->n_weights,
                           .ret = ret};
    return bind_list(&l, err);
}

// Old converters stored the frequencies of rope as tensors; they follow from the keys.
static bool is_derived(struct plm_slice name)
{
    static const char suffix[] = "rot_embd.inv_freq";
    size_t n = sizeof(suffix) - 1;
    return name.len >= n && memcmp(name.ptr + name.len - n, suffix, n) == 0;
}

// Each tensor is counted by the weight that begins it.
static int count_one(void *ctx, struct plm_weight *weight)
{
    *(uint64_t *)ctx += weight->tensor != NULL && weight->first == 0;
    return PLM_OK;
}

static int bound_matches(void *ctx, struct plm_weight *weight)
{
    return weight->tensor == ctx ? PLM_ERR_LIMIT : PLM_OK; // stops the walk: found
}

static int check_all_bound(const struct plm_model *model, struct plm_error *err)
{
    uint64_t bound = 0, n = plm_gguf_n_tensors(model->gguf);
    plm_each_weight(model, count_one, &bound);
    if (bound == n)
        return PLM_OK;
    for (uint64_t i = 0; i < n; i++) {
        const struct plm_gguf_tensor *t = plm_gguf_tensor_at(model->gguf, i);
        if (!is_derived(t->name) &&
            plm_each_weight(model, bound_matches, (void *)(uintptr_t)t) == PLM_OK)
            return plm_fail(err, PLM_ERR_UNSUPPORTED,
                            "tensor %.*s is not part of the architecture %s as it is supported",
                            (int)t->name.len, t->name.ptr, model->arch->name);
    }
    return PLM_OK;
}

int plm_bind_weights(struct plm_model *model, struct plm_error *err)
{
    int r = count_vocab(model, err);
    if (r == PLM_OK)
        r = make_room(model, err);
    if (r == PLM_OK)
        r = bind_ropes(model, err);
    const struct list outer = {
        .model = model, .decls = plm_outer_weights, .n = PLM_OUTER_WEIGHTS, .ret = model->outer};
    if (r == PLM_OK)
        r = bind_list(&outer, err);
    for (uint32_t il = 0; r == PLM_OK && il < model->hp.n_layer; il++) {
        const struct plm_layer *layer = &model->layers[il];
        r = bind_block(model, il, plm_mixer_of(&layer->spec), layer->mixer, err);
        if (r == PLM_OK)
            r = bind_block(model, il, plm_feed_forward_of(&layer->spec), layer->feed_forward, err);
    }
    return r == PLM_OK ? check_all_bound(model, err) : r;
}

int plm_each_weight(const struct plm_model *model, int (*fn)(void *ctx, struct plm_weight *weight),
                    void *ctx)
{
    int r = PLM_OK;
    for (uint32_t i = 0; r == PLM_OK && i < model->n_weights; i++)
        r = plm_weight_there(&model->weights[i]) ? fn(ctx, &model->weights[i]) : PLM_OK;
    return r;
}

struct plm_slice plm_weight_name(const struct plm_weight *weight)
{
    if (weight->tensor != NULL)
        return weight->tensor->name;
    return (struct plm_slice){weight->decl->name, strlen(weight->decl->name)};
}
