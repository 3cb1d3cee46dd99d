// SPDX-License-Identifier: Apache-2.0
// qwen2: as llama, with biases on q, k and v, and rope on the halves of a head.
#include "core/model/arch.h"

static int check(const struct plm_gguf *gguf, struct plm_error *err)
{
    return plm_refuse_key(gguf, "qwen2.attention.sliding_window", "sliding-window attention", err);
}

static int tensors(struct plm_model *model, struct plm_error *err)
{
    int r = plm_take_frame(model, err);
    if (r == PLM_OK)
        r = plm_take_vector(model, "output.bias", 0, model->hp.n_vocab, PLM_OPTIONAL,
                            &model->output_bias, err);
    return r;
}

static int layer_tensors(struct plm_model *model, uint32_t il, struct plm_error *err)
{
    const struct plm_hparams *hp = &model->hp;
    struct plm_layer *l = &model->layers[il];
    const uint32_t n_q = hp->n_head * hp->head_dim, n_kv = hp->n_kv_head * hp->head_dim;
    int r = plm_take_block(model, il, err);
    if (r == PLM_OK)
        r = plm_take_vector(model, "blk.%u.attn_q.bias", il, n_q, PLM_REQUIRED, &l->attn_q_bias,
                            err);
    if (r == PLM_OK)
        r = plm_take_vector(model, "blk.%u.attn_k.bias", il, n_kv, PLM_REQUIRED, &l->attn_k_bias,
                            err);
    if (r == PLM_OK)
        r = plm_take_vector(model, "blk.%u.attn_v.bias", il, n_kv, PLM_REQUIRED, &l->attn_v_bias,
                            err);
    return r;
}

const struct plm_arch plm_arch_qwen2 = {
    .name = "qwen2",
    .rope_mode = PLM_ROPE_NEOX,
    .check = check,
    .tensors = tensors,
    .layer_tensors = layer_tensors,
};
