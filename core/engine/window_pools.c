// SPDX-License-Identifier: Apache-2.0
// The pools of KV groups beside the main one. What serving allows decides their size, so they are
// taken with the workspace and stay as they are while it serves.
#include "core/engine/window_pools.h"

#include "core/engine/core.h"
#include "core/plan/plan.h"

struct plm_plan_window plm_core_plan_window(const struct plm_kv_group *group)
{
    return (struct plm_plan_window){.window = group->window,
                                    .block_bytes = (int64_t)plm_kv_block_bytes(group)};
}

static void count_bytes(struct plm_core *core)
{
    struct plm_kv_pool_stats stats;
    int64_t bytes = 0;
    for (uint32_t g = 1; g < core->kv.n_groups; g++) {
        plm_kv_pool_read(core->kv.pools[g], &stats);
        bytes += (int64_t)stats.held_bytes;
    }
    atomic_store(&core->windows_bytes, bytes);
}

void plm_core_drop_windows(struct plm_core *core)
{
    for (uint32_t g = 1; g < core->kv.n_groups; g++)
        plm_kv_pool_resize(core->kv.pools[g], 0, NULL);
    count_bytes(core);
}

// A pool as the plan says; it holds no slab.
static int take(struct plm_kv_pool *pool, const struct plm_plan_pool *plan)
{
    const uint32_t blocks = (uint32_t)plan->blocks;
    struct plm_kv_pool_stats stats;
    int r = PLM_OK;
    plm_kv_pool_read(pool, &stats);
    if (plan->slabs.slab_blocks == 0)
        return PLM_ERR_TOO_LARGE;
    if (stats.slab_blocks != plan->slabs.slab_blocks || stats.max_blocks != blocks)
        r = plm_kv_pool_format(pool, plan->slabs.slab_blocks, blocks);
    return r == PLM_OK ? plm_kv_pool_resize(pool, blocks, NULL) : r;
}

int plm_core_take_windows(struct plm_core *core, const struct plm_plan_limits *limits)
{
    const struct plm_kv_group *groups = plm_model_facts(core->model)->groups;
    const struct plm_caps *caps = plm_device_caps(core->rank.device);
    struct plm_plan_pool plan;
    int r = PLM_OK;
    for (uint32_t g = 1; g < core->kv.n_groups && r == PLM_OK; g++) {
        const struct plm_plan_window window = plm_core_plan_window(&groups[g]);
        plm_plan_window_pool(&window, limits, (int64_t)caps->granularity_bytes,
                             (int64_t)caps->max_slab_bytes, &plan);
        r = take(core->kv.pools[g], &plan);
    }
    count_bytes(core);
    if (r != PLM_OK)
        plm_core_drop_windows(core);
    return r;
}
