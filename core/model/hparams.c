// SPDX-License-Identifier: Apache-2.0
// The constants that all architectures share.
#include "core/base/checked.h"
#include "core/model/arch.h"

// Limits: far above any published model, low enough that no product of two of them leaves 32 bits
// where the kernels use 32 bits, nor one of three 64 bits anywhere.
static const struct plm_int_key sizes[] = {
    {"context_length", offsetof(struct plm_hparams, n_ctx_train), 1, 1u << 24, PLM_REQUIRED},
    {"embedding_length", offsetof(struct plm_hparams, n_embd), 1, 1u << 17, PLM_REQUIRED},
    {"block_count", offsetof(struct plm_hparams, n_layer), 1, 1024, PLM_REQUIRED},
};

const struct plm_layer_spec plm_layer_spec_plain = {.attn_norm_before = PLM_REQUIRED,
                                                    .ff_norm_before = PLM_REQUIRED,
                                                    .residual_scale = 1.0f,
                                                    .output_scale = 1.0f};

int plm_hparams_read(const struct plm_keys *keys, struct plm_hparams *ret, struct plm_error *err)
{
    struct plm_hparams hp = {
        .embd_scale = 1.0f, .head = PLM_OPTIONAL, .n_ropes = 1, .layer = plm_layer_spec_plain};
    int r;
    if ((r = plm_keys_refuse(keys, "expert_count", "a mixture of experts", err)) ||
        (r = plm_keys_ints(keys, sizes, sizeof(sizes) / sizeof(sizes[0]), &hp, err)) ||
        (r = plm_keys_float(keys, "attention.layer_norm_rms_epsilon", &hp.rms_eps, err)) ||
        (r = plm_mixer_of(&hp.layer)->read(keys, &hp, &hp.layer, err)) ||
        (r = plm_feed_forward_of(&hp.layer)->read(keys, &hp, &hp.layer, err)) ||
        (r = plm_rope_read(keys, hp.layer.head_dim, &hp.ropes[0], err)))
        return r;
    hp.layer.norm_eps = hp.rms_eps;
    if (hp.rms_eps == 0)
        return plm_fail(err, PLM_ERR_FORMAT, "key %s.attention.layer_norm_rms_epsilon is missing",
                        keys->arch);
    *ret = hp;
    return PLM_OK;
}
