// SPDX-License-Identifier: Apache-2.0
// mistral3: Ministral 3 and its kin. As llama, with yarn. Files with a temperature of attention
// scale q by 1 + scale * ln(1 + floor(position / original context)), which is 1 up to that context:
// so far they serve, and their trained context is said to be no longer.
#include "core/model/arch.h"

static int limit_context(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err)
{
    static const struct plm_int_key original = {"rope.scaling.original_context_length", 0, 1,
                                                1u << 24, PLM_REQUIRED};
    float temperature_scale = 0;
    uint32_t context = 0;
    int r = plm_keys_float(keys, "attention.temperature_scale", &temperature_scale, err);
    if (r != PLM_OK || temperature_scale == 0)
        return r;
    r = plm_keys_ints(keys, &original, 1, &context, err);
    if (r == PLM_OK && context < hp->n_ctx_train)
        hp->n_ctx_train = context;
    return r;
}

static int describe(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err)
{
    hp->ropes[0].mode = PLM_ROPE_NORM;
    int r = plm_keys_refuse(keys, "expert_count", "a mixture of experts", err);
    if (r == PLM_OK)
        r = plm_attention_read_window(keys, &hp->layer.window, err);
    return r == PLM_OK ? limit_context(keys, hp, err) : r;
}

const struct plm_arch plm_arch_mistral3 = {.name = "mistral3", .describe = describe};
