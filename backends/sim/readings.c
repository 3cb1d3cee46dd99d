// SPDX-License-Identifier: Apache-2.0
// What the driver says of its memory: the truth, late, or a lie.
#include <string.h>

#include "backends/sim/sim_internal.h"

// What was true so long ago; the oldest that is still known where that was before.
static struct plm_sim_sample seen(const struct plm_backend_device *dev)
{
    struct plm_sim_sample now = {.free_bytes = plm_sim_free_bytes(dev, NULL),
                                 .use_bytes = plm_sim_own_bytes(dev),
                                 .foreign_bytes = plm_sim_foreign_bytes(dev)};
    const int64_t then = plm_sim_now(dev) - dev->script.query_lag_ns;
    for (uint64_t i = dev->n_history; i > 0 && dev->n_history - i < PLM_SIM_HISTORY; i--) {
        now = dev->history[(i - 1) % PLM_SIM_HISTORY];
        if (now.at_ns <= then)
            break;
    }
    return now;
}

static void honest(struct plm_backend_device *dev, struct plm_mem_info *ret)
{
    const struct plm_sim_opts *script = &dev->script;
    const struct plm_sim_sample sample = seen(dev);
    memset(ret, 0, sizeof(*ret));
    for (uint32_t i = 0; i < dev->n_heaps; i++)
        ret->total_bytes = plm_sim_add(ret->total_bytes, dev->heap_bytes[i]);
    if (script->host_bytes > 0 && script->host_bytes < ret->total_bytes)
        ret->total_bytes = script->host_bytes;
    ret->free_bytes = sample.free_bytes;
    // A driver that lets others push us out advises what is left to us beside them.
    if (script->commit == PLM_COMMIT_SOFT && !script->unified)
        ret->budget_bytes = plm_sim_sub(ret->total_bytes, sample.foreign_bytes);
    if (!script->hides_process_use)
        ret->process_use_bytes = sample.use_bytes;
    ret->source = "script";
    ret->confidence = PLM_CONFIDENCE_HIGH;
    ret->n_cgroups = script->n_cgroups;
    for (uint32_t i = 0; i < ret->n_cgroups; i++) {
        ret->cgroups[i] = script->cgroups[i];
        ret->cgroups[i].current_bytes =
            plm_sim_add(ret->cgroups[i].current_bytes, sample.use_bytes);
    }
}

// Bends an honest reading; PLM_ERR_IO: there is none.
static int bend(struct plm_backend_device *dev, enum plm_sim_lie lie, struct plm_mem_info *info)
{
    const uint64_t fifth = info->total_bytes / 5;
    switch (lie) {
    case PLM_SIM_HONEST: break;
    case PLM_SIM_STALE:
        if (dev->stale.total_bytes > 0)
            *info = dev->stale;
        break;
    case PLM_SIM_FREE_ABOVE_TOTAL:
        info->free_bytes = info->total_bytes + dev->caps.granularity_bytes;
        break;
    case PLM_SIM_ALL_ZERO: info->total_bytes = info->free_bytes = info->budget_bytes = 0; break;
    case PLM_SIM_USE_ABOVE_TOTAL: info->process_use_bytes = UINT64_MAX - 4096; break;
    case PLM_SIM_QUERY_FAILS: return PLM_ERR_IO;
    case PLM_SIM_OSCILLATE:
        info->free_bytes = atomic_load(&dev->world->queries) % 2 == 0
                               ? plm_sim_sub(info->free_bytes, fifth)
                               : plm_sim_add(info->free_bytes, fifth);
        if (info->free_bytes > info->total_bytes)
            info->free_bytes = info->total_bytes;
        break;
    }
    return PLM_OK;
}

int plm_sim_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret)
{
    struct plm_mem_info info;
    struct plm_sim_state *state = &dev->world->state;
    plm_sim_lock(dev);
    const uint64_t query = atomic_fetch_add(&dev->world->queries, 1) + 1;
    plm_sim_happen(dev, PLM_SIM_AT_QUERY, query);
    int r = PLM_ERR_LOST;
    if (!plm_sim_is_lost(dev)) {
        honest(dev, &info);
        if (query > state->lie_until)
            state->lie = PLM_SIM_HONEST;
        if (state->lie == PLM_SIM_HONEST)
            dev->stale = info;
        r = bend(dev, state->lie, &info);
    }
    plm_sim_unlock(dev);
    if (r == PLM_OK)
        *ret = info;
    return r;
}
