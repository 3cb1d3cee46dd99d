// SPDX-License-Identifier: Apache-2.0
// llama: SmolLM2, Llama 1 to 3, Mistral, with its window where the file has the key. Pre-RMSNorm,
// grouped-query attention, rope on adjacent pairs, SwiGLU; optional biases; tied or untied head;
// optional rope_freqs.
#include "core/model/arch.h"

static int describe(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err)
{
    hp->ropes[0].mode = PLM_ROPE_NORM;
    hp->ropes[0].factors = "rope_freqs.weight";
    hp->layer.qkv_bias = PLM_OPTIONAL;
    hp->layer.output_bias = PLM_OPTIONAL;
    hp->layer.ff_bias = PLM_OPTIONAL;
    return plm_attention_read_window(keys, &hp->layer.window, err);
}

const struct plm_arch plm_arch_llama = {.name = "llama", .describe = describe};
