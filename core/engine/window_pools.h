// SPDX-License-Identifier: Apache-2.0
// The pools of KV groups beside the main one (window_pools.c).
#ifndef PLM_ENGINE_WINDOW_POOLS_H
#define PLM_ENGINE_WINDOW_POOLS_H

struct plm_core;
struct plm_kv_group;
struct plm_plan_limits;
struct plm_plan_window;

// What the formula takes of such a group.
struct plm_plan_window plm_core_plan_window(const struct plm_kv_group *group);
// Takes the pools for these limits, as plm_plan_window_pool() says. They hold no slab before, nor
// after a failure.
int plm_core_take_windows(struct plm_core *core, const struct plm_plan_limits *limits);
// Gives their slabs back; nothing uses a block.
void plm_core_drop_windows(struct plm_core *core);

#endif
