// SPDX-License-Identifier: Apache-2.0
// What the plan's formula takes from a device's capabilities and from what was asked for. It needs
// no device, so that dry plans and choices by default take the same.
#include "core/engine/core.h"

// Slabs that the KV pool leaves to others: workspace, ballast, staging, and what is to come.
#define OTHER_SLABS 16u

// Slabs that the driver still gives for the KV pool; 0 would mean no limit.
static uint32_t slabs_left(const struct plm_caps *caps, uint64_t used)
{
    used += OTHER_SLABS;
    return caps->max_slabs > used ? (uint32_t)(caps->max_slabs - used) : 1;
}

void plm_core_profile_opts(const struct plm_core *core, const struct plm_caps *caps,
                           uint64_t slabs_used, struct plm_profile_opts *ret)
{
    const struct plm_model_facts *facts = plm_model_facts(core->model);
    const plim_engine_opts *o = &core->opts;
    *ret = (struct plm_profile_opts){
        .in = {.g = (int64_t)caps->granularity_bytes,
               .context_bytes = (int64_t)caps->context_bytes,
               .driver_calls = core->driver_calls,
               .operator_limit = (int64_t)o->memory_limit_bytes,
               .withheld = (int64_t)caps->withheld_bytes,
               .unified = caps->unified,
               .host_limit = (int64_t)o->host_limit_bytes,
               .host_caller = (int64_t)o->host_caller_bytes,
               .memory_fraction = o->memory_fraction,
               .caps = core->chosen,
               .block_bytes = (int64_t)plm_kv_block_bytes(&facts->groups[0]),
               .max_slab_bytes = (int64_t)caps->max_slab_bytes,
               .max_slabs = slabs_left(caps, slabs_used),
               .prefix_cache_blocks = o->prefix_cache ? PLM_PLAN_UNKNOWN : 0,
               .pinned_tokens = (int64_t)o->max_total_tokens},
        .cost = plm_model_cost_table(core->model),
        .clock = core->clock,
        .log = &core->log,
        .prove_full = o->prove_full != 0,
        .keep_ballast = plm_core_may_lose_memory(caps),
        .host_pays = caps->unified};
}
