// SPDX-License-Identifier: Apache-2.0
#include "core/engine/host_budget.h"

#include "core/base/checked.h"
#include "core/engine/core.h"

// What serving needs of the host budget beside the engine's own tables: a few small requests with
// their bodies, of which the server takes an eighth of the budget.
#define HOST_ROOM_BYTES (INT64_C(4) << 20)
// Of tables, for each token of the vocabulary (sampler) and block of a sequence (its id and, on
// each rank, its address); rounded up.
#define HOST_VOCAB_BYTES     40
#define HOST_SEQ_BLOCK_BYTES 16

uint32_t plm_core_extra_nodes(const struct plm_core *core, const struct plm_plan_limits *limits)
{
    if (plm_model_facts(core->model)->groups[0].window == 0)
        return 0;
    const int64_t nodes = limits->max_sequences * plm_limits_blocks_per_request(limits);
    return (uint32_t)plm_min_i64(nodes, PLM_POOL_BLOCKS_MAX);
}

// Host memory that the tables still to come take: of the scheduler, or of all, on a device of
// total_bytes.
static int64_t host_to_come(const struct plm_core *core, const struct plm_plan_limits *limits,
                            int64_t total_bytes, bool all)
{
    const struct plm_model_facts *facts = plm_model_facts(core->model);
    const int64_t blocks = limits->max_sequences * plm_limits_blocks_per_request(limits);
    int64_t bytes = blocks * HOST_SEQ_BLOCK_BYTES * facts->n_groups +
                    64 * ((int64_t)limits->batch_max_tokens + 8 * (int64_t)limits->max_sequences);
    if (!all)
        return bytes;
    int64_t pool = core->opts.max_total_tokens != 0
                       ? (int64_t)(core->opts.max_total_tokens / PLM_KV_BLOCK_TOKENS)
                       : blocks + blocks / 4;
    if (limits->max_blocks > 0)
        pool = plm_min_i64(pool, limits->max_blocks);
    int64_t fit = total_bytes / (int64_t)plm_kv_block_bytes(&facts->groups[0]);
    pool = plm_min_i64(pool, fit) + plm_core_extra_nodes(core, limits);
    return bytes + facts->n_vocab * (int64_t)HOST_VOCAB_BYTES + pool * PLM_HOST_BLOCK_BYTES;
}

// A limit, in whole MiB, that leaves requests room beside so many more bytes of tables, and a MiB.
static int64_t host_limit_beside(const struct plm_core *core, int64_t bytes)
{
    const int64_t mib = INT64_C(1) << 20;
    struct plm_host_stats host;
    plm_host_read(core->host, &host);
    return (host.used_bytes + bytes + HOST_ROOM_BYTES + 2 * mib - 1) / mib * mib;
}

int64_t plm_core_host_needs(const struct plm_core *core, int64_t total_bytes)
{
    const int64_t limit = (int64_t)core->opts.memory_limit_bytes;
    if (core->opts.max_total_tokens != 0) // a suggested size keeps to the budget
        return 0;
    if (limit != 0)
        total_bytes = plm_min_i64(total_bytes, limit);
    return host_limit_beside(core, host_to_come(core, &core->chosen, total_bytes, true));
}

// Whether `limit` leaves requests room beside `least` more bytes of tables; else names a limit that
// does, with `most` of them.
static int check_host(const struct plm_core *core, int64_t limit, int64_t least, int64_t most,
                      struct plm_error *err)
{
    struct plm_host_stats host;
    plm_host_read(core->host, &host);
    const int64_t needed = host.used_bytes + least + HOST_ROOM_BYTES;
    if (limit == 0 || needed <= limit)
        return PLM_OK;
    plm_fail(err, PLM_ERR_NOMEM_HOST,
             "the host budget does not hold the engine's own tables and the smallest requests; "
             "host_limit_bytes at least %lldMiB starts",
             (long long)(host_limit_beside(core, most) >> 20));
    if (err != NULL) {
        err->needed_bytes = needed;
        err->limit_bytes = limit;
    }
    return plm_fail_about(err, PLM_ERR_NOMEM_HOST, "host_limit_bytes");
}

int plm_core_preflight_host(const struct plm_core *core, int64_t total_bytes, struct plm_error *err)
{
    const plim_engine_opts *o = &core->opts;
    const struct plm_plan_limits limits = core->chosen;
    // A pinned size takes its tables for certain, and must fit the largest default, too.
    const bool pinned = o->max_total_tokens != 0;
    const int64_t to_come = host_to_come(core, &limits, total_bytes, true);
    const int64_t limit =
        o->host_limit_bytes == 0 && pinned ? PLM_HOST_LIMIT_MAX : (int64_t)o->host_limit_bytes;
    return check_host(core, limit, pinned ? to_come : 0, to_come, err);
}

int plm_core_seal_host(const struct plm_core *core, struct plm_error *err)
{
    const struct plm_plan *plan = &core->profile.plan;
    const int64_t to_come = host_to_come(core, &plan->in.limits, plan->in.T, false);
    int r = check_host(core, plan->host_limit, to_come, to_come, err);
    if (r == PLM_OK)
        plm_host_set_limit(core->host, plan->host_limit);
    return r;
}
