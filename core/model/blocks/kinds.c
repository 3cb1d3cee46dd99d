// SPDX-License-Identifier: Apache-2.0
// The kinds of blocks, by what a layer's spec names.
#include "core/model/arch.h"

const struct plm_block_kind *plm_mixer_of(const struct plm_layer_spec *spec)
{
    static const struct plm_block_kind *const kinds[] = {
        [PLM_MIXER_ATTENTION] = &plm_block_attention,
    };
    return kinds[spec->mixer];
}

const struct plm_block_kind *plm_feed_forward_of(const struct plm_layer_spec *spec)
{
    static const struct plm_block_kind *const kinds[] = {
        [PLM_FEED_FORWARD_GATED] = &plm_block_gated,
    };
    return kinds[spec->feed_forward];
}
