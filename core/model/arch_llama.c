// SPDX-License-Identifier: Apache-2.0
// llama: SmolLM2, Llama 1 to 3, Mistral without its window. Pre-RMSNorm, grouped-query attention,
// rope on adjacent pairs, SwiGLU; optional biases; tied or untied head; optional rope_freqs.
#include "core/model/arch.h"

static int check(const struct plm_gguf *gguf, struct plm_error *err)
{
    int r = plm_refuse_key(gguf, "llama.expert_count", "a mixture of experts", err);
    if (r == PLM_OK)
        r = plm_refuse_key(gguf, "llama.attention.sliding_window", "sliding-window attention", err);
    return r;
}

static int tensors(struct plm_model *model, struct plm_error *err)
{
    int r = plm_take_frame(model, err);
    if (r == PLM_OK)
        r = plm_take_vector(model, "rope_freqs.weight", 0, model->hp.rope_dims / 2, PLM_OPTIONAL,
                            &model->rope, err);
    return r;
}

static int layer_tensors(struct plm_model *model, uint32_t il, struct plm_error *err)
{
    const struct plm_hparams *hp = &model->hp;
    struct plm_layer *l = &model->layers[il];
    const struct {
        const char *name;
        uint32_t n;
        struct plm_weight *ret;
    } biases[] = {
        {"blk.%u.attn_q.bias", hp->n_head * hp->head_dim, &l->attn_q_bias},
        {"blk.%u.attn_k.bias", hp->n_kv_head * hp->head_dim, &l->attn_k_bias},
        {"blk.%u.attn_v.bias", hp->n_kv_head * hp->head_dim, &l->attn_v_bias},
        {"blk.%u.attn_output.bias", hp->n_embd, &l->attn_output_bias},
        {"blk.%u.ffn_gate.bias", hp->n_ff, &l->ffn_gate_bias},
        {"blk.%u.ffn_up.bias", hp->n_ff, &l->ffn_up_bias},
        {"blk.%u.ffn_down.bias", hp->n_embd, &l->ffn_down_bias},
    };
    int r = plm_take_block(model, il, err);
    for (size_t i = 0; r == PLM_OK && i < sizeof(biases) / sizeof(biases[0]); i++)
        r = plm_take_vector(model, biases[i].name, il, biases[i].n, PLM_OPTIONAL, biases[i].ret,
                            err);
    return r;
}

const struct plm_arch plm_arch_llama = {
    .name = "llama",
    .rope_mode = PLM_ROPE_NORM,
    .check = check,
    .tensors = tensors,
    .layer_tensors = layer_tensors,
};
