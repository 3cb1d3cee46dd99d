// SPDX-License-Identifier: Apache-2.0
// phi3: Phi 3, 3.5 and 4. As llama, with rope on the halves of a part of a head; q, k and v in one
// tensor, gate and up in one. Long-context files have two sets of rope factors (longrope). All
// layers have the window of the key: Phi-3-mini-4k says 2,047 of its context of 4,096.
#include "core/model/arch.h"

static int describe(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err)
{
    hp->ropes[0].mode = PLM_ROPE_NEOX;
    int r = plm_attention_read_window(keys, &hp->layer.window, err);
    return r == PLM_OK ? plm_rope_read_long(keys, &hp->ropes[0], err) : r;
}

const struct plm_arch plm_arch_phi3 = {.name = "phi3", .describe = describe};
