// SPDX-License-Identifier: Apache-2.0
// qwen3: as qwen2 without biases, but q and k are normed head by head, and heads may be wider than
// the embedding divided by their number.
#include "core/model/arch.h"

static int describe(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err)
{
    hp->ropes[0].mode = PLM_ROPE_NEOX;
    hp->layer.head_norms = PLM_REQUIRED;
    return plm_keys_refuse(keys, "attention.sliding_window", PLM_WINDOW_OF_SOME_LAYERS, err);
}

const struct plm_arch plm_arch_qwen3 = {.name = "qwen3", .describe = describe};
