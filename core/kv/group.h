// SPDX-License-Identifier: Apache-2.0
// A KV group: the layers that keep the same kind of history. A sequence has one block table per
// group. Today there is one kind, full attention; windows and recurrent state come beside it.
#ifndef PLM_KV_GROUP_H
#define PLM_KV_GROUP_H

#include <stdint.h>

#include "kernels/abi.h"

#define PLM_KV_GROUPS_MAX 4

struct plm_kv_group {
    uint32_t n_layers;
    uint32_t kv_heads;
    uint32_t head_dim;
    enum plm_type type; // PLM_TYPE_F16, or PLM_TYPE_F32 for tests
};

// K and V of 16 tokens of one layer. They lie together: see struct plm_rope_kv_args.
static inline uint64_t plm_kv_layer_bytes(const struct plm_kv_group *group)
{
    uint64_t element = group->type == PLM_TYPE_F32 ? 4 : 2;
    return 2 * element * PLM_KV_BLOCK_TOKENS * group->kv_heads * group->head_dim;
}

static inline uint64_t plm_kv_block_bytes(const struct plm_kv_group *group)
{
    return plm_kv_layer_bytes(group) * group->n_layers;
}

#endif
