// SPDX-License-Identifier: Apache-2.0
#include "core/plan/profile.h"

#include <stddef.h>

#include "core/base/checked.h"
#include "core/base/text.h"
#include "core/plan/profile_impl.h"
#include "kernels/abi.h"

#define LIMITS_TRIES 8 // lowerings of the limits; two are the rule
// Of measure_small: no smaller batch or context is ever suggested.
#define SMALL_BATCH   16
#define SMALL_CONTEXT PLM_KV_BLOCK_TOKENS

// ---- pool and workspace ----

int plm_loop_pool_resize(struct plm_loop *l, uint32_t blocks)
{
    struct plm_plan_input now = l->in;
    int64_t failed = 0;
    int r = l->ops->kv_resize(l->ops->ctx, blocks, &l->blocks, &failed);
    if (plm_loop_no_room(r) && failed > 0) {
        l->failed_bytes = failed;
        l->failed_free = plm_loop_read(l, &now) == PLM_OK ? now.F : 0;
    }
    return r;
}

int plm_loop_pool_take(struct plm_loop *l, const struct plm_slab_rule *rule, uint32_t blocks)
{
    int r = plm_loop_pool_resize(l, 0);
    if (r == PLM_OK)
        r = l->ops->kv_format(l->ops->ctx, rule->slab_blocks, blocks);
    if (r == PLM_OK)
        r = plm_loop_pool_resize(l, blocks);
    return plm_loop_no_room(r) && l->blocks >= plm_loop_least_blocks(l) ? PLM_OK : r;
}

// Load, tuning and capture are over when serving begins: each had room at its peak, or this plan is
// not one that can be started again.
static int check_peaks(struct plm_loop *l, const struct plm_plan *plan)
{
    struct plm_stress_peaks peaks = {0};
    if (l->ops->phase_peaks == NULL)
        return PLM_OK;
    l->ops->phase_peaks(l->ops->ctx, &peaks);
    int r = plm_plan_check_peak(plan, "the load", peaks.load, l->err);
    if (r == PLM_OK)
        r = plm_plan_check_peak(plan, "the tuning", peaks.tune, l->err);
    if (r == PLM_OK)
        r = plm_plan_check_peak(plan, "the capture of graphs", peaks.capture, l->err);
    l->last_word |= r != PLM_OK; // a smaller pool changes none of them
    return r;
}

// In place of this start's own measures, those of an earlier one. What the driver had taken by the
// end of its stress and has not yet taken now is to come: it is put where it will show.
static int put_measured(struct plm_loop *l)
{
    const struct plm_plan *then = &l->measured->plan;
    struct plm_plan_input *in = &l->in;
    struct plm_plan now;
    in->growth = then->in.growth;
    in->driver_calls = l->opts->in.driver_calls;
    int r = plm_plan_compute(in, &now, l->err);
    if (r != PLM_OK)
        return r;
    const int64_t to_come = plm_max_i64(0, then->own_drv - now.own_drv);
    in->F -= to_come;
    if (in->process_use != PLM_PLAN_UNKNOWN)
        in->process_use += to_come;
    else
        in->driver_calls += to_come;
    for (uint32_t i = 0; i < in->n_cgroups; i++)
        in->cgroups[i].current += to_come;
    return PLM_OK;
}

static int plan_once(struct plm_loop *l, struct plm_plan *ret)
{
    int r = plm_loop_snapshot(l);
    if (r != PLM_OK)
        return r;
    l->in.driver_calls = l->opts->in.driver_calls + l->calls;
    l->in.growth = l->peak < 0 ? 0 : plm_max_i64(0, l->peak - plm_loop_watched(&l->in));
    if (l->measured != NULL && (r = put_measured(l)) != PLM_OK)
        return r;
    r = plm_plan_compute(&l->in, ret, l->err);
    return r == PLM_OK ? check_peaks(l, ret) : r;
}

// Runs the stress under the smallest limits, so that what a driver takes late is in the snapshot
// from which values are suggested; the limits asked for are then planned again from it.
// OUT_OF_DEVICE: even that does not run.
static int measure_small(struct plm_loop *l)
{
    const struct plm_plan_input asked = l->in;
    struct plm_plan plan;
    struct plm_error *err = l->err;
    l->err = NULL;
    plm_loop_pool_resize(l, 0);
    l->in.limits.batch_max_tokens =
        (uint32_t)plm_min_i64(SMALL_BATCH, asked.limits.batch_max_tokens);
    l->in.limits.max_sequences = 1;
    l->in.limits.state_checkpoints = l->in.limits.cached_windows = 0;
    l->in.limits.max_context = (uint32_t)plm_min_i64(SMALL_CONTEXT, asked.limits.max_context);
    int r = plm_loop_agree(l, l->ops->set_limits(l->ops->ctx, &l->in.limits));
    if (r == PLM_OK)
        r = plm_loop_stress_small(l);
    if (r == PLM_OK)
        r = plm_loop_agree(l, plan_once(l, &plan));
    if (r == PLM_OK)
        r = plm_plan_replan(&l->in, l->opts->cost, &asked.limits, &plan, NULL);
    l->in = r == PLM_OK ? plan.in : asked;
    l->err = err;
    return r;
}

static int fail_plan(struct plm_loop *l, const char *what)
{
    if (l->trial)
        return PLM_ERR_OUT_OF_DEVICE;
    int r = !l->stressed && !l->gone ? measure_small(l) : PLM_OK;
    if (l->gone)
        return PLM_ERR_LOST;
    l->last_word = true;
    if (plm_loop_no_room(r))
        return plm_fail(l->err, PLM_ERR_OUT_OF_DEVICE,
                        "%s, and what the driver takes for a step of %d tokens is missing, too: "
                        "free memory on the device or use a smaller model",
                        what, SMALL_BATCH);
    return plm_plan_fail(&l->in, l->opts->cost, what, l->err);
}

// Lowers the limits in l->in to what fits on all ranks. False: nothing does, or nothing is lower.
static bool lower_limits(struct plm_loop *l)
{
    struct plm_plan_limits *limits = &l->in.limits, fit = {0};
    const struct plm_plan_limits before = *limits;
    if (!plm_plan_fit_limits(&l->in, l->opts->cost, &fit))
        fit = (struct plm_plan_limits){0};
    fit.max_context = (uint32_t)plm_loop_min(l, fit.max_context);
    fit.max_sequences = (uint32_t)plm_loop_min(l, fit.max_sequences);
    fit.state_checkpoints = (uint32_t)plm_loop_min(l, fit.state_checkpoints);
    fit.cached_windows = (uint32_t)plm_loop_min(l, fit.cached_windows);
    if (fit.max_context == 0 || fit.max_sequences == 0)
        return false;
    limits->max_context = fit.max_context;
    limits->max_sequences = fit.max_sequences;
    limits->state_checkpoints = fit.state_checkpoints;
    limits->cached_windows = fit.cached_windows;
    return fit.max_context < before.max_context || fit.max_sequences < before.max_sequences ||
           fit.state_checkpoints < before.state_checkpoints ||
           fit.cached_windows < before.cached_windows;
}

int plm_loop_take_workspace(struct plm_loop *l)
{
    for (int i = 0; i < LIMITS_TRIES; i++) {
        const int taken = l->ops->set_limits(l->ops->ctx, &l->in.limits);
        if (taken != PLM_OK && !plm_loop_can_retry(l, taken))
            plm_loop_fail(l, taken, "no memory for the workspace");
        int r = plm_loop_agree(l, taken);
        if (!plm_loop_no_room(r))
            return r;
        r = plm_loop_agree(l, plm_loop_snapshot(l));
        if (r != PLM_OK)
            return r;
        if (taken != PLM_OK)
            plm_plan_estimate(&l->in, l->opts->cost, &(struct plm_plan_estimate){0});
        const uint32_t asked = l->in.limits.max_context;
        if (lower_limits(l))
            continue;
        // Where the device gives less than it says, halving ends the search.
        l->in.limits.max_context = asked / 2 / PLM_KV_BLOCK_TOKENS * PLM_KV_BLOCK_TOKENS;
        if (l->in.limits.max_context == 0 || l->gone) {
            l->in.limits.max_context = asked;
            break;
        }
    }
    return fail_plan(l, "the workspace does not fit");
}

int plm_loop_plan(struct plm_loop *l, struct plm_plan *ret)
{
    for (int i = 0; i < LIMITS_TRIES; i++) {
        int r = plm_loop_agree(l, plan_once(l, ret));
        if (r != PLM_OK)
            return r;
        bool good = plm_plan_enough(ret, NULL) && plm_plan_one_finishes(ret);
        if (plm_loop_min(l, good) != 0)
            return PLM_OK;
        if (!lower_limits(l))
            break;
        if ((r = plm_loop_take_workspace(l)) != PLM_OK)
            return r;
    }
    return fail_plan(l, plm_loop_pinned(l) ? "max_total_tokens does not fit"
                                           : "weights, workspace and one KV block per "
                                             "sequence do not fit");
}

int plm_loop_reopen(struct plm_loop *l)
{
    int r = PLM_OK;
    l->ops->ballast(l->ops->ctx, 0);
    plm_loop_pool_resize(l, 0);
    if (l->lost) {
        l->res->graph_bytes = 0;
        r = l->ops->reopen != NULL ? l->ops->reopen(l->ops->ctx, l->err) : PLM_ERR_LOST;
        l->calls = 0; // the new context pays again
        l->last_word |= r != PLM_OK;
    }
    r = plm_loop_agree(l, r);
    return r == PLM_OK ? plm_loop_take_workspace(l) : r;
}

// ---- the loop ----

int plm_loop_whole(struct plm_loop *l, struct plm_plan *plan)
{
    l->in.limits = l->opts->in.limits;
    int r = plm_loop_take_workspace(l);
    if (r == PLM_OK)
        r = plm_loop_stress(l);
    if (r == PLM_OK)
        r = plm_loop_plan(l, plan);
    return r == PLM_OK ? plm_loop_prove(l, plan) : r;
}

static int run(struct plm_loop *l, struct plm_plan *plan)
{
    bool taken = false;
    int r = PLM_OK;
    if (plm_loop_min(l, l->opts->certified != NULL) != 0)
        r = plm_loop_take_certified(l, plan, &taken);
    if (r == PLM_OK && !taken)
        r = plm_loop_whole(l, plan);
    if (r == PLM_OK && !l->opts->keep_ballast)
        r = l->ops->ballast(l->ops->ctx, 0);
    return plm_loop_agree(l, r);
}

static int check(const struct plm_profile_opts *opts, struct plm_error *err)
{
    struct plm_plan_input in = opts->in;
    in.T = in.F = in.O = in.K = in.growth = 0;
    in.n_cgroups = 0;
    in.process_use = PLM_PLAN_UNKNOWN;
    return plm_plan_check(&in, err);
}

int plm_profile_preflight(const struct plm_profile_opts *opts,
                          const struct plm_stress_reading *reading, int64_t weight_bytes,
                          struct plm_error *err)
{
    struct plm_plan_input in = opts->in;
    struct plm_plan_limits limits;
    struct plm_plan plan;
    plm_loop_put_reading(&in, reading);
    plm_plan_estimate(&in, opts->cost, &(struct plm_plan_estimate){.weight_bytes = weight_bytes});
    int r = plm_plan_compute(&in, &plan, err);
    if (r != PLM_OK || plm_plan_enough(&plan, NULL) ||
        plm_plan_fit_limits(&in, opts->cost, &limits))
        return r;
    return plm_profile_fail(opts, &in, err);
}

int plm_profile_fail(const struct plm_profile_opts *opts, const struct plm_plan_input *in,
                     struct plm_error *err)
{
    const char *what = in->pinned_tokens != PLM_PLAN_NO_LIMIT ? "max_total_tokens does not fit"
                                                              : "the model does not fit";
    struct plm_plan_input other = *in;
    struct plm_plan plan;
    char beside[160];
    if (plm_plan_compute(in, &plan, NULL) != PLM_OK || plan.host_limit >= opts->host_needs)
        return plm_plan_fail(in, opts->cost, what, err);
    other.host_limit = opts->host_needs;
    plm_snprintf(beside, sizeof(beside),
                 "with host_limit_bytes at least %lldMiB for the engine's own tables, %s",
                 (long long)(opts->host_needs >> 20), what);
    return plm_plan_fail(&other, opts->cost, beside, err);
}

int64_t plm_profile_room(const struct plm_profile_opts *opts,
                         const struct plm_stress_reading *reading)
{
    struct plm_plan_input in = opts->in;
    struct plm_plan plan;
    plm_loop_put_reading(&in, reading);
    return plm_plan_compute(&in, &plan, NULL) == PLM_OK ? plm_max_i64(0, plan.room) : 0;
}

static void log_lowered(const struct plm_profile_opts *opts, const struct plm_plan_limits *limits)
{
    const struct plm_plan_limits *asked = &opts->in.limits;
    if (limits->cached_windows < asked->cached_windows)
        plm_logf(opts->log, PLM_LOG_WARN, "windows kept for prefixes are lowered from %u to %u",
                 asked->cached_windows, limits->cached_windows);
    if (limits->state_checkpoints < asked->state_checkpoints)
        plm_logf(opts->log, PLM_LOG_WARN, "states kept for prefixes are lowered from %u to %u",
                 asked->state_checkpoints, limits->state_checkpoints);
    if (limits->max_sequences < asked->max_sequences)
        plm_logf(opts->log, PLM_LOG_WARN, "sequences at once are lowered from %u to %u",
                 asked->max_sequences, limits->max_sequences);
    if (limits->max_context < asked->max_context)
        plm_logf(opts->log, PLM_LOG_WARN,
                 "the context is lowered from %u to %u tokens, so that one request always finishes",
                 asked->max_context, limits->max_context);
}

int plm_profile_run(const struct plm_profile_opts *opts, const struct plm_stress_ops *ops,
                    struct plm_profile *ret, struct plm_error *err)
{
    struct plm_profile res = {.asked_context = opts->in.limits.max_context};
    struct plm_plan plan = {0};
    struct plm_loop l = {
        .opts = opts, .ops = ops, .res = &res, .err = err, .in = opts->in, .peak = -1};
    int64_t start = plm_now(opts->clock);
    int r = check(opts, err);
    if (r != PLM_OK)
        return r; // the same on every rank
    if (err != NULL)
        err->status = PLM_OK;
    if ((r = run(&l, &plan)) != PLM_OK) {
        ops->ballast(ops->ctx, 0);
        plm_loop_pool_resize(&l, 0);
        // Whatever failed without a word of its own still gets one.
        return err != NULL && err->status == r ? r : plm_loop_fail(&l, r, "the memory plan failed");
    }
    ops->seal(ops->ctx);
    res.plan = plan;
    res.context_lowered = plan.in.limits.max_context < res.asked_context;
    res.total_ns = plm_now(opts->clock) - start;
    log_lowered(opts, &plan.in.limits);
    plm_loop_progress(&l, "ready", 1, 1);
    *ret = res;
    return PLM_OK;
}
