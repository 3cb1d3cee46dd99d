// SPDX-License-Identifier: Apache-2.0
// From names to weights: each tensor of a file is taken once, by its exact name and shape, and a
// tensor that nobody takes is an error, since ignoring weights gives wrong answers silently.
#include <stdio.h>

#include "core/model/arch.h"
#include "core/model/types.h"

static int fail_type(const struct plm_gguf_tensor *t, bool vector, struct plm_error *err)
{
    char names[PLM_TYPE_NAMES_BYTES];
    plm_type_names(vector, names);
    return plm_fail(err, PLM_ERR_UNSUPPORTED,
                    "tensor %.*s has the type %s, which is not supported%s (there are: %s)",
                    (int)t->name.len, t->name.ptr, plm_type_name(t->type),
                    vector ? " for a vector" : "", names);
}

// Names are at most 63 bytes in the format; the longest here has 40.
#define NAME_BYTES 64

static int find(struct plm_model *model, const char *pattern, uint32_t il, enum plm_need need,
                const struct plm_gguf_tensor **ret, struct plm_error *err)
{
    char name[NAME_BYTES];
    // The patterns are literals of this module with at most one %u.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, sizeof(name), pattern, il);
#pragma GCC diagnostic pop
    *ret = plm_gguf_tensor_find(model->gguf, name);
    if (*ret == NULL && need == PLM_REQUIRED)
        return plm_fail(err, PLM_ERR_FORMAT, "tensor %s is missing", name);
    return PLM_OK;
}

static int check_shape(const struct plm_gguf_tensor *t, uint32_t n_in, uint32_t n_out,
                       struct plm_error *err)
{
    if (t->ne[0] == n_in && t->ne[1] == n_out && t->ne[2] == 1 && t->ne[3] == 1)
        return PLM_OK;
    return plm_fail(
        err, PLM_ERR_FORMAT, "tensor %.*s has the shape [%llu, %llu, %llu, %llu], not [%u, %u]",
        (int)t->name.len, t->name.ptr, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
        (unsigned long long)t->ne[2], (unsigned long long)t->ne[3], n_in, n_out);
}

static int take(struct plm_model *model, const char *pattern, uint32_t il, uint32_t n_in,
                uint32_t n_out, bool vector, enum plm_need need, struct plm_weight *ret,
                struct plm_error *err)
{
    const struct plm_gguf_tensor *t;
    int r = find(model, pattern, il, need, &t, err);
    if (r == PLM_OK && t != NULL)
        r = check_shape(t, n_in, n_out, err);
    if (r != PLM_OK)
        return r;
    if (t != NULL && !plm_type_is_supported(t->type, vector))
        return fail_type(t, vector, err);
    *ret = (struct plm_weight){.tensor = t, .n_in = n_in, .n_out = n_out, .vector = vector};
    return PLM_OK;
}

int plm_take_matrix(struct plm_model *model, const char *name, uint32_t il, uint32_t n_in,
                    uint32_t n_out, enum plm_need need, struct plm_weight *ret,
                    struct plm_error *err)
{
    return take(model, name, il, n_in, n_out, false, need, ret, err);
}

int plm_take_vector(struct plm_model *model, const char *name, uint32_t il, uint32_t n,
                    enum plm_need need, struct plm_weight *ret, struct plm_error *err)
{
    return take(model, name, il, n, 1, true, need, ret, err);
}

int plm_take_frame(struct plm_model *model, struct plm_error *err)
{
    struct plm_hparams *hp = &model->hp;
    const struct plm_gguf_tensor *t;
    int r = find(model, "token_embd.weight", 0, PLM_REQUIRED, &t, err);
    if (r != PLM_OK)
        return r;
    if (t->ne[1] < 1 || t->ne[1] > 1u << 24)
        return plm_fail(err, PLM_ERR_FORMAT, "tensor token_embd.weight has %llu rows",
                        (unsigned long long)t->ne[1]);
    hp->n_vocab = (uint32_t)t->ne[1];
    model->rope = (struct plm_weight){.n_in = hp->rope_dims / 2, .n_out = 1, .vector = true};
    r = plm_take_matrix(model, "token_embd.weight", 0, hp->n_embd, hp->n_vocab, PLM_REQUIRED,
                        &model->token_embd, err);
    if (r == PLM_OK)
        r = plm_take_vector(model, "output_norm.weight", 0, hp->n_embd, PLM_REQUIRED,
                            &model->output_norm, err);
    if (r == PLM_OK)
        r = plm_take_matrix(model, "output.weight", 0, hp->n_embd, hp->n_vocab, PLM_OPTIONAL,
                            &model->output, err);
    return r;
}

int plm_take_block(struct plm_model *model, uint32_t il, struct plm_error *err)
{
    const struct plm_hparams *hp = &model->hp;
    struct plm_layer *l = &model->layers[il];
    const uint32_t n_q = hp->n_head * hp->head_dim, n_kv = hp->n_kv_head * hp->head_dim;
    const struct {
        const char *name;
        uint32_t n_in, n_out;
        struct plm_weight *ret;
    } matrices[] = {
        {"blk.%u.attn_q.weight", hp->n_embd, n_q, &l->attn_q},
        {"blk.%u.attn_k.weight", hp->n_embd, n_kv, &l->attn_k},
        {"blk.%u.attn_v.weight", hp->n_embd, n_kv, &l->attn_v},
        {"blk.%u.attn_output.weight", n_q, hp->n_embd, &l->attn_output},
        {"blk.%u.ffn_gate.weight", hp->n_embd, hp->n_ff, &l->ffn_gate},
        {"blk.%u.ffn_up.weight", hp->n_embd, hp->n_ff, &l->ffn_up},
        {"blk.%u.ffn_down.weight", hp->n_ff, hp->n_embd, &l->ffn_down},
    };
    int r = plm_take_vector(model, "blk.%u.attn_norm.weight", il, hp->n_embd, PLM_REQUIRED,
                            &l->attn_norm, err);
    if (r == PLM_OK)
        r = plm_take_vector(model, "blk.%u.ffn_norm.weight", il, hp->n_embd, PLM_REQUIRED,
                            &l->ffn_norm, err);
    for (size_t i = 0; r == PLM_OK && i < sizeof(matrices) / sizeof(matrices[0]); i++)
        r = plm_take_matrix(model, matrices[i].name, il, matrices[i].n_in, matrices[i].n_out,
                            PLM_REQUIRED, matrices[i].ret, err);
    return r;
}

int plm_each_weight(struct plm_model *model, int (*fn)(void *ctx, struct plm_weight *weight),
                    void *ctx)
{
    struct plm_weight *frame[] = {&model->token_embd, &model->output_norm, &model->output,
                                  &model->output_bias};
    int r = fn(ctx, &model->rope);
    for (size_t i = 0; r == PLM_OK && i < sizeof(frame) / sizeof(frame[0]); i++)
        r = plm_weight_there(frame[i]) ? fn(ctx, frame[i]) : PLM_OK;
    for (uint32_t il = 0; r == PLM_OK && il < model->hp.n_layer; il++) {
        struct plm_layer *l = &model->layers[il];
        struct plm_weight *block[] = {
            &l->attn_norm,        &l->attn_q,        &l->attn_k,      &l->attn_v,
            &l->attn_output,      &l->attn_q_bias,   &l->attn_k_bias, &l->attn_v_bias,
            &l->attn_output_bias, &l->ffn_norm,      &l->ffn_gate,    &l->ffn_up,
            &l->ffn_down,         &l->ffn_gate_bias, &l->ffn_up_bias, &l->ffn_down_bias};
        for (size_t i = 0; r == PLM_OK && i < sizeof(block) / sizeof(block[0]); i++)
            r = plm_weight_there(block[i]) ? fn(ctx, block[i]) : PLM_OK;
    }
    return r;
}
