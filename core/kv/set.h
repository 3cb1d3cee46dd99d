// SPDX-License-Identifier: Apache-2.0
// The pools of all groups of a model, as the scheduler and the prefix index see them: a sequence
// has a block table in each. A plain struct of pointers, which its maker keeps alive.
#ifndef PLM_KV_SET_H
#define PLM_KV_SET_H

#include "core/kv/group.h"
#include "core/kv/pool.h"

struct plm_kv_set {
    uint32_t n_groups;
    struct plm_kv_pool *pools[PLM_KV_GROUPS_MAX]; // the first is the main group's
    uint32_t windows[PLM_KV_GROUPS_MAX];          // as in struct plm_kv_group
};

#endif
