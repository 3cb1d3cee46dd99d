// SPDX-License-Identifier: Apache-2.0
// smollm3: as llama, but every fourth layer rotates nothing. No key says so; it is the
// architecture's.
#include "core/model/arch.h"

#define STEP 4

static int describe(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err)
{
    hp->ropes[0].mode = PLM_ROPE_NORM;
    return plm_keys_refuse(keys, "attention.sliding_window", PLM_WINDOW_OF_SOME_LAYERS, err);
}

static void layer(const struct plm_hparams *hp, uint32_t il, struct plm_layer_spec *spec)
{
    (void)hp;
    if (il % STEP == STEP - 1)
        spec->rope = PLM_ROPE_NONE;
}

const struct plm_arch plm_arch_smollm3 = {.name = "smollm3", .describe = describe, .layer = layer};
