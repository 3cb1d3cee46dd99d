// SPDX-License-Identifier: Apache-2.0
// qwen2: as llama, with biases on q, k and v, and rope on the halves of a head. Configurations may
// give a window to the layers from one on (max_window_layers); converters write no
// key of it, and a file with a window is refused.
#include "core/model/arch.h"

static int describe(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err)
{
    hp->head_bias = PLM_OPTIONAL;
    hp->ropes[0].mode = PLM_ROPE_NEOX;
    hp->layer.qkv_bias = PLM_REQUIRED;
    return plm_keys_refuse(keys, "attention.sliding_window", PLM_WINDOW_OF_SOME_LAYERS, err);
}

const struct plm_arch plm_arch_qwen2 = {.name = "qwen2", .describe = describe};
