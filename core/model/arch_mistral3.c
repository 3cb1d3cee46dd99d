// SPDX-License-Identifier: Apache-2.0
// mistral3: Ministral 3 and its kin. As llama, with yarn. Where the file has a temperature of
// attention, q grows by 1 + temperature * ln(1 + floor(position / original context)).
#include "core/base/checked.h"
#include "core/model/arch.h"

enum { OF_K, OF_Q }; // ropes

static int read_temperature(const struct plm_keys *keys, struct plm_hparams *hp,
                            struct plm_error *err)
{
    static const struct plm_int_key original = {"rope.scaling.original_context_length",
                                                offsetof(struct plm_rope_spec, scale_span), 1,
                                                1u << 24, PLM_REQUIRED};
    struct plm_rope_spec rope = hp->ropes[OF_K];
    int r = plm_keys_float(keys, "attention.temperature_scale", &rope.temperature, err);
    if (r != PLM_OK || rope.temperature == 0)
        return r;
    r = plm_keys_ints(keys, &original, 1, &rope, err);
    if (r != PLM_OK || hp->n_ctx_train <= rope.scale_span)
        return r; // it does not grow within the original context
    // The rope's table carries the growth, so elements that it leaves alone would have none.
    if (rope.dims < hp->layer.head_dim)
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "%s: a temperature of attention with %u of %u elements rotated is not "
                        "supported",
                        keys->arch, rope.dims, hp->layer.head_dim);
    rope.n_scales = (uint32_t)plm_div_ceil(hp->n_ctx_train, rope.scale_span);
    if (rope.n_scales > PLM_ROPE_SCALES_MAX)
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "%s: the context is more than %d times the original context of %u tokens",
                        keys->arch, PLM_ROPE_SCALES_MAX, rope.scale_span);
    hp->ropes[OF_Q] = rope;
    hp->n_ropes = 2;
    hp->layer.q_rope = OF_Q;
    return PLM_OK;
}

static int describe(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err)
{
    hp->ropes[OF_K].mode = PLM_ROPE_NORM;
    const int r = plm_attention_read_window(keys, &hp->layer.window, err);
    return r == PLM_OK ? read_temperature(keys, hp, err) : r;
}

const struct plm_arch plm_arch_mistral3 = {.name = "mistral3", .describe = describe};
