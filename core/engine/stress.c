// SPDX-License-Identifier: Apache-2.0
// What the stress loop asks for, the steps it runs and the memory it moves: struct plm_stress_ops
// over the real model, device and pool.
#include "core/engine/stress.h"

#include <string.h>

#include "core/base/checked.h"
#include "core/engine/baseline.h"
#include "core/engine/certify.h"
#include "core/engine/defaults.h"
#include "core/engine/forward.h"
#include "core/engine/graphs.h"
#include "core/engine/host_budget.h"
#include "core/engine/load.h"
#include "core/engine/residency.h"
#include "core/engine/watch.h"
#include "core/engine/window_pools.h"

// ---- steps ----

// The most work that a request can ask of the sampler: all tokens sorted, 20 alternatives. One row
// is enough, since all rows use the same scratch one after the other.
static int sample_heaviest(struct plm_core *core, uint64_t logits, struct plm_error *err)
{
    const struct plm_sample_params params = {.temperature = 2.0f,
                                             .top_p = 0.999999f,
                                             .repeat_penalty = 1.1f,
                                             .logprobs = true,
                                             .top_logprobs = PLM_SAMPLE_TOP_MAX};
    const struct plm_sample_in in = {.logits = plm_core_logits(core, logits, 0), .params = &params};
    struct plm_sample_out out;
    if (in.logits == NULL)
        return plm_fail(err, PLM_ERR_LOST, "the device was lost while logits were read");
    // Dummy tokens may drive a model anywhere; that its logits are finite is not asked here.
    plm_sampler_draw(core->sampler, &in, &out);
    return PLM_OK;
}

// Where the peaks of a stress step belong. A validation is a phase of its own.
static void enter(struct plm_core *core, enum plm_phase phase)
{
    if (core->phase != PLM_PHASE_VALIDATE && core->phase != phase)
        plm_core_phase(core, phase);
}

static enum plm_phase step_phase(enum plm_stress_kind kind)
{
    const bool decodes = kind == PLM_STRESS_DECODE || kind == PLM_STRESS_FULL_DECODE;
    return decodes ? PLM_PHASE_DECODE : PLM_PHASE_PREFILL;
}

static int run_step(void *ctx, const struct plm_stress_step *step, struct plm_error *err)
{
    struct plm_core *core = ctx;
    struct plm_forward_out out = {0};
    if (core->stopped)
        return plm_core_stopped(err);
    enter(core, step_phase(step->kind));
    int r = plm_core_dummy_step(core, step,
                                step->flags & PLM_STRESS_FEW_LAYERS ? PLM_FORWARD_FEW_LAYERS : 0,
                                NULL, &out, err);
    if (r == PLM_ERR_TIMEOUT)
        return plm_fail(err, r, "the %s forward of %u rows and %u sequences at context %u",
                        plm_stress_kind_name(step->kind), step->shape.rows, step->shape.seqs,
                        step->shape.ctx);
    if (r != PLM_OK || !(step->flags & PLM_STRESS_SAMPLE) || out.logits == 0)
        return r;
    enter(core, PLM_PHASE_SAMPLE);
    return sample_heaviest(core, out.logits, err);
}

// ---- memory ----

static int empty_cache(void *ctx)
{
    struct plm_core *core = ctx;
    struct plm_mem_info info;
    uint64_t released;
    return plm_device_empty_cache(core->rank.device, &released, &info);
}

static int kv_format(void *ctx, uint32_t slab_blocks, uint32_t max_blocks)
{
    struct plm_core *core = ctx;
    int r = plm_kv_pool_resize(core->pool, 0, NULL);
    // What was given back may be on its way yet, or kept: the new pool must find it there.
    if (r == PLM_OK)
        r = empty_cache(core);
    return r == PLM_OK ? plm_kv_pool_format(core->pool, slab_blocks, max_blocks) : r;
}

// Slab by slab, since a large pool takes long where pages must be had one by one.
static int kv_resize(void *ctx, uint32_t blocks, uint32_t *ret_blocks, int64_t *ret_failed_bytes)
{
    struct plm_core *core = ctx;
    struct plm_kv_pool_stats pool;
    uint64_t failed = 0;
    uint32_t before;
    int r;
    plm_kv_pool_read(core->pool, &pool);
    do {
        before = pool.total;
        uint32_t next = blocks;
        if (blocks > before && blocks - before > pool.slab_blocks)
            next = before - before % pool.slab_blocks + pool.slab_blocks;
        // What is stopped takes no more, but still gives back.
        r = core->stopped && next > before ? PLM_ERR_CANCELLED
                                           : plm_kv_pool_resize(core->pool, next, &failed);
        plm_kv_pool_read(core->pool, &pool);
        if (core->phase == PLM_PHASE_RESIZE && pool.total > before && pool.total < blocks)
            plm_core_progress(core, "resize", pool.total * pool.block_bytes,
                              blocks * pool.block_bytes);
    } while (r == PLM_OK && pool.total < blocks && pool.total != before);
    *ret_blocks = pool.total;
    *ret_failed_bytes = (int64_t)failed;
    return r;
}

static int verify_slab(struct plm_core *core, uint64_t addr, uint64_t bytes, uint32_t seed,
                       uint32_t *ret_wrong)
{
    const uint32_t zero = 0;
    const struct plm_fill_args fill = {.dst = addr, .n_words = bytes / 4, .seed = seed};
    // The counter lies at the start of the workspace, which is idle now.
    const struct plm_verify_args verify = {
        .src = addr, .n_words = bytes / 4, .count = core->rank.workspace_addr, .seed = seed};
    int r = plm_device_copy_in(core->rank.device, core->rank.workspace_addr, &zero, sizeof(zero));
    if (r == PLM_OK)
        r = plm_launch_fill(core->rank.device, &fill);
    if (r == PLM_OK)
        r = plm_device_barrier(core->rank.device);
    if (r == PLM_OK)
        r = plm_launch_verify(core->rank.device, &verify);
    r = plm_device_run(core->rank.device, r);
    if (r == PLM_OK)
        r = plm_device_copy_out(core->rank.device, ret_wrong, core->rank.workspace_addr,
                                sizeof(*ret_wrong));
    return r;
}

static int verify_pool(struct plm_core *core, const struct plm_kv_pool *kv, struct plm_error *err)
{
    struct plm_kv_pool_stats pool;
    uint32_t first, blocks;
    plm_kv_pool_read(kv, &pool);
    for (uint32_t i = 0; plm_kv_pool_slab(kv, i, &first, &blocks); i++) {
        uint32_t wrong = 0;
        int r = verify_slab(core, plm_kv_pool_addr(kv, first), blocks * pool.block_bytes, i + 1,
                            &wrong);
        if (r != PLM_OK)
            return plm_fail(err, r, "slab %u of the KV cache could not be written: %s", i,
                            plm_strstatus(r));
        if (wrong != 0)
            return plm_fail(
                err, PLM_ERR_INTERNAL,
                "slab %u of the KV cache does not keep what is written: %u words differ", i, wrong);
    }
    return PLM_OK;
}

static int kv_verify(void *ctx, struct plm_error *err)
{
    struct plm_core *core = ctx;
    int r = PLM_OK;
    if (core->stopped)
        return plm_core_stopped(err);
    plm_core_phase(core, PLM_PHASE_VALIDATE);
    for (uint32_t g = 0; g < core->kv.n_groups && r == PLM_OK; g++)
        r = verify_pool(core, core->kv.pools[g], err);
    return r;
}

static int take_ballast(void *ctx, int64_t bytes)
{
    struct plm_core *core = ctx;
    plm_core_drop_ballast(core);
    if (bytes <= 0)
        return PLM_OK;
    int r = plm_arena_create(core->host, core->rank.device, core->rank.ledger, PLM_MEM_BALLAST, 0,
                             &core->rank.ballast);
    // Nothing lies in it, so it may be in as many pieces as the driver's largest slab asks for.
    const struct plm_caps *caps = plm_device_caps(core->rank.device);
    const uint64_t g = caps->granularity_bytes, whole = caps->max_slab_bytes / g * g;
    const int64_t most = (int64_t)(whole > 0 ? whole : caps->max_slab_bytes);
    for (; r == PLM_OK && bytes > 0; bytes -= most)
        r = plm_arena_reserve(core->rank.ballast, (uint64_t)plm_min_i64(bytes, most));
    if (r != PLM_OK)
        plm_core_drop_ballast(core);
    return r;
}

// Logits are read in place where the host sees the workspace.
static int host_logits(struct plm_core *core)
{
    if (core->logits_row != NULL ||
        plm_arena_host(core->rank.workspace, core->rank.workspace_addr) != NULL)
        return PLM_OK;
    core->logits_row = plm_calloc(core->host, PLM_HOST_SCHED, plm_model_facts(core->model)->n_vocab,
                                  sizeof(float));
    if (plm_model_device_argmax(core->model))
        core->best =
            plm_calloc(core->host, PLM_HOST_SCHED, core->opts.max_sequences, sizeof(*core->best));
    const bool has_best = core->best != NULL || !plm_model_device_argmax(core->model);
    return core->logits_row != NULL && has_best ? PLM_OK : PLM_ERR_NOMEM_HOST;
}

static int set_limits(void *ctx, const struct plm_plan_limits *limits)
{
    struct plm_core *core = ctx;
    struct plm_shape shape = plm_limits_shape(limits);
    int64_t bytes = plm_cost(plm_model_cost_table(core->model), &shape);
    int r = core->stopped ? PLM_ERR_CANCELLED : PLM_OK;
    if (r != PLM_OK)
        return r;
    if (core->rank.workspace != NULL || core->windows_bytes > 0) {
        plm_arena_destroy(core->rank.workspace);
        core->rank.workspace = NULL;
        plm_core_drop_windows(core);
        r = empty_cache(core);
    }
    if (r == PLM_OK)
        r = plm_core_take_windows(core, limits);
    if (r == PLM_OK)
        r = plm_arena_create(core->host, core->rank.device, core->rank.ledger, PLM_MEM_WORKSPACE, 0,
                             &core->rank.workspace);
    if (r == PLM_OK)
        r = plm_arena_alloc(core->rank.workspace, (uint64_t)bytes, PLM_COST_ALIGN,
                            &core->rank.workspace_addr);
    if (r == PLM_OK)
        r = plm_core_take_results(core, &shape);
    if (r == PLM_OK)
        r = host_logits(core);
    if (r != PLM_OK)
        plm_core_drop_windows(core);
    core->rank.workspace_bytes = bytes;
    core->worst = shape;
    return r;
}

static void phase_peaks(void *ctx, struct plm_stress_peaks *ret)
{
    const struct plm_core *core = ctx;
    struct plm_ledger_stats ledger;
    plm_ledger_read(core->rank.ledger, &ledger);
    *ret = (struct plm_stress_peaks){.load = ledger.phase_peak_bytes[PLM_PHASE_LOAD],
                                     .tune = ledger.phase_peak_bytes[PLM_PHASE_TUNE],
                                     .capture = ledger.phase_peak_bytes[PLM_PHASE_CAPTURE]};
}

static void seal(void *ctx)
{
    struct plm_core *core = ctx;
    if (plm_core_may_lose_memory(plm_device_caps(core->rank.device)))
        plm_core_take_baseline(core);
    plm_device_seal(core->rank.device, true);
}

static int reopen(void *ctx, struct plm_error *err)
{
    return plm_core_reopen(ctx, err);
}

static void report(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    struct plm_core *core = ctx;
    // A retry comes back from a validation. Other stages enter their phases step by step.
    if (done == 0 && strcmp(stage, "probe") == 0)
        plm_core_phase(core, PLM_PHASE_PROBE);
    else if (done == 0 && strcmp(stage, "resize") == 0)
        plm_core_phase(core, PLM_PHASE_RESIZE);
    plm_core_progress(core, stage, done, total);
}

// ---- the loop ----

static void profile_opts(const struct plm_core *core, struct plm_profile_opts *ret)
{
    struct plm_device_counters c;
    plm_device_counters(core->rank.device, &c);
    plm_core_profile_opts(core, plm_device_caps(core->rank.device), c.allocs - c.frees, ret);
}

int plm_core_preflight(struct plm_core *core, uint64_t weight_bytes, struct plm_error *err)
{
    struct plm_profile_opts opts;
    struct plm_stress_reading reading;
    int r = plm_core_read(core, &reading);
    if (r != PLM_OK)
        return plm_fail(err, r, "the device's memory could not be read: %s", plm_strstatus(r));
    plm_core_choose(core, plm_device_caps(core->rank.device), &reading);
    profile_opts(core, &opts);
    opts.host_needs = plm_core_host_needs(core, reading.T);
    return plm_profile_preflight(&opts, &reading, (int64_t)weight_bytes, err);
}

void plm_core_stress_ops(struct plm_core *core, struct plm_stress_ops *ret)
{
    *ret = (struct plm_stress_ops){.ctx = core,
                                   .read = plm_core_read,
                                   .run = run_step,
                                   .kv_format = kv_format,
                                   .kv_resize = kv_resize,
                                   .kv_verify = kv_verify,
                                   .ballast = take_ballast,
                                   .empty_cache = empty_cache,
                                   .set_limits = set_limits,
                                   .seal = seal,
                                   .watch = plm_core_watch,
                                   .reopen = reopen,
                                   .phase_peaks = phase_peaks,
                                   .progress = report};
    if (plm_core_may_lose_memory(plm_device_caps(core->rank.device)))
        ret->slow_bytes = plm_core_slow_bytes;
    if (plm_device_caps(core->rank.device)->graphs)
        ret->capture = plm_core_capture;
}

static int run_kind(struct plm_core *core, enum plm_stress_kind kind, struct plm_error *err)
{
    struct plm_profile_opts opts;
    struct plm_stress_step step;
    profile_opts(core, &opts);
    plm_profile_step(&opts, &core->profile.plan.in.limits, kind, 0, &step);
    return run_step(core, &step, err);
}

int plm_core_validate(struct plm_core *core, struct plm_error *err)
{
    int r = plm_device_caps(core->rank.device)->graphs ? plm_core_capture(core, err) : PLM_OK;
    if (r == PLM_OK)
        r = kv_verify(core, err);
    if (r == PLM_OK)
        r = run_kind(core, PLM_STRESS_PREFILL, err);
    if (r == PLM_OK)
        r = run_kind(core, PLM_STRESS_FULL_CHUNK, err);
    return r == PLM_OK ? run_kind(core, PLM_STRESS_FULL_DECODE, err) : r;
}

int plm_core_validate_pool(struct plm_core *core, struct plm_error *err)
{
    int r = kv_verify(core, err);
    return r == PLM_OK ? run_kind(core, PLM_STRESS_FULL_DECODE, err) : r;
}

// The planned context decides between short and long factors of rope, once: what the cache holds
// stays right when a neighbour makes the context shorter later.
static void choose_rope(struct plm_core *core)
{
    const uint32_t context = core->profile.plan.in.limits.max_context;
    const uint32_t limit = plm_model_facts(core->model)->short_context;
    plm_model_set_context(core->model, context);
    if (limit > 0)
        plm_logf(&core->log, PLM_LOG_INFO,
                 "contexts of up to %u tokens take the rope's %s factors (its limit is %u)%s",
                 context, context > limit ? "long" : "short", limit,
                 core->profile.context_lowered && context <= limit &&
                         core->profile.asked_context > limit
                     ? ": the context asked for would take the long ones"
                     : "");
}

int plm_core_profile(struct plm_core *core, struct plm_error *err)
{
    struct plm_stress_ops ops;
    struct plm_profile_opts opts;
    struct plm_stress_reading reading;
    plm_core_phase(core, PLM_PHASE_PROBE);
    plm_core_stress_ops(core, &ops);
    // A neighbour that was there while the model was loaded may be gone.
    if (plm_core_read(core, &reading) == PLM_OK)
        plm_core_choose(core, plm_device_caps(core->rank.device), &reading);
    profile_opts(core, &opts);
    core->keeps_ballast = opts.keep_ballast;
    struct plm_profile certified;
    if (plm_core_certified(core, &certified))
        opts.certified = &certified;
    int r = plm_profile_run(&opts, &ops, &core->profile, err);
    if (r != PLM_OK)
        return r;
    core->proved = core->profile.certified ? certified : core->profile;
    choose_rope(core);
    return PLM_OK;
}
