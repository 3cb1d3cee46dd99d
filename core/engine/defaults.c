// SPDX-License-Identifier: Apache-2.0
// What a start plans with. It needs no device, so that dry plans take the same.
#include "core/engine/defaults.h"

#include "core/base/checked.h"
#include "core/engine/core.h"
#include "core/engine/residency.h"
#include "core/engine/window_pools.h"

// ---- what the formula takes from capabilities and options ----

// Slabs reserved for everything but the KV pool: workspace, ballast, staging, later growth.
#define OTHER_SLABS 16u
// And to the pool of each further group.
#define GROUP_SLABS (PLM_SLABS_PER_POOL + 1u)

// Slabs that the driver has left for the KV pool, at least 1: 0 would mean no limit.
static uint32_t slabs_left(const struct plm_caps *caps, uint64_t used, uint32_t n_groups)
{
    used += OTHER_SLABS + GROUP_SLABS * (n_groups - 1);
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
               .withheld = (int64_t)caps->unavailable_bytes,
               .unified = caps->unified,
               .host_limit = (int64_t)o->host_limit_bytes,
               .host_caller = (int64_t)o->host_caller_bytes,
               .memory_fraction = o->memory_fraction,
               .limits = core->chosen,
               .window = facts->groups[0].window,
               .block_bytes = (int64_t)plm_kv_block_bytes(&facts->groups[0]),
               .max_slab_bytes = (int64_t)caps->max_slab_bytes,
               .max_slabs = slabs_left(caps, slabs_used, facts->n_groups),
               .prefix_cache_blocks = o->prefix_cache ? PLM_PLAN_UNKNOWN : 0,
               .pinned_tokens = (int64_t)o->max_total_tokens},
        .cost = plm_model_cost_table(core->model),
        .clock = core->clock,
        .log = &core->log,
        .prove_full = o->prove_full != 0,
        .keep_ballast = plm_core_may_lose_memory(caps),
        .host_pays = caps->unified};
    for (uint32_t g = 1; g < facts->n_groups; g++)
        ret->in.windows[ret->in.n_windows++] = plm_core_plan_window(&facts->groups[g]);
}

// ---- what is chosen where nothing was asked for ----
//
// Where the device's memory is the machine's, a model must not take what all other programs live
// on; the choice goes into the plan's limits, so that the formula and all that is derived from it
// (dry plans, suggestions) know of it.

// Tokens of a request. Models are trained for 32,768 and more, which few chats come near, and each
// of the sequences would get it.
#define DEFAULT_CONTEXT 8192
// The KV cache at most, of what is free but for what we hold ourselves: the rest is for the weights
// and for others.
#define DEFAULT_SHARE 4
// In which it is rounded down, so that starts with nearly the same free memory choose the same.
#define DEFAULT_UNIT (INT64_C(64) << 20)

// Of the sequences that run, so many have a cached prefix beside them: the part of the KV cache
// that a prefix cache is planned with elsewhere, too (core/plan/plan.c).
#define CACHED_WINDOWS_SHARE 4

static uint32_t cached_windows(const struct plm_core *core)
{
    const struct plm_model_facts *facts = plm_model_facts(core->model);
    bool any = false;
    for (uint32_t g = 0; g < facts->n_groups; g++)
        any |= facts->groups[g].window != 0;
    return any && core->opts.prefix_cache
               ? (uint32_t)plm_div_ceil(core->opts.max_sequences, CACHED_WINDOWS_SHARE)
               : 0;
}

// Whether a size of the KV cache follows from what was asked: a limit, a size, or sequences and
// their length.
static bool size_was_asked(const plim_engine_opts *o)
{
    return o->max_total_tokens != 0 || o->memory_limit_bytes != 0 || o->memory_fraction < 1 ||
           (o->ctx_size != 0 && o->max_sequences != PLM_DEFAULT_SEQUENCES);
}

void plm_core_choose(struct plm_core *core, const struct plm_caps *caps,
                     const struct plm_stress_reading *reading)
{
    const plim_engine_opts *o = &core->opts;
    const struct plm_model_facts *facts = plm_model_facts(core->model);
    struct plm_plan_limits *chosen = &core->chosen;
    struct plm_profile_opts opts;
    *chosen = (struct plm_plan_limits){.batch_max_tokens = o->batch_max_tokens,
                                       .max_sequences = o->max_sequences,
                                       .max_context = o->ctx_size,
                                       .cached_windows = cached_windows(core)};
    if (o->ctx_size == 0)
        chosen->max_context = caps->unified && facts->n_ctx_train > DEFAULT_CONTEXT
                                  ? DEFAULT_CONTEXT
                                  : facts->n_ctx_train;
    if (!caps->unified || size_was_asked(o))
        return;
    plm_core_profile_opts(core, caps, 0, &opts);
    int64_t bytes = plm_profile_room(&opts, reading) / DEFAULT_SHARE;
    if (bytes > DEFAULT_UNIT)
        bytes -= bytes % DEFAULT_UNIT;
    // One request of the whole context always finishes, and serving starts.
    opts.in.limits = *chosen;
    int64_t blocks = bytes / opts.in.block_bytes;
    blocks = plm_max_i64(blocks, plm_plan_request_blocks(&opts.in));
    blocks = plm_max_i64(blocks, plm_plan_least_blocks(&opts.in));
    chosen->max_blocks = (uint32_t)plm_min_i64(blocks, PLM_POOL_BLOCKS_MAX);
}
