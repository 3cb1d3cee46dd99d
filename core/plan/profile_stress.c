// SPDX-License-Identifier: Apache-2.0
// Steps 2 and 3 of the loop: the probe pool, and the real forwards that find the peaks.
#include "core/base/checked.h"
#include "core/plan/profile_impl.h"

#define FULL_ROUNDS 2 // measured rounds with prove_full

static void note_pass(struct plm_loop *l, const struct plm_stress_step *step, int64_t ns,
                      bool validation)
{
    struct plm_plan_input now = l->in;
    int64_t seen = plm_loop_read(l, &now) == PLM_OK ? plm_loop_watched(&now) : 0;
    if (!validation && !(step->flags & PLM_STRESS_COLD))
        l->peak = plm_max_i64(l->peak, seen);
    if (l->res->n_passes >= PLM_PROFILE_PASSES)
        return;
    l->res->passes[l->res->n_passes++] =
        (struct plm_profile_pass){.step = *step,
                                  .cost = plm_cost(l->opts->cost, &step->shape),
                                  .own_drv = seen,
                                  .ns = ns,
                                  .validation = validation};
}

int plm_loop_pass(struct plm_loop *l, enum plm_stress_kind kind, unsigned flags, bool validation)
{
    struct plm_stress_step step;
    plm_profile_step(l->opts, &l->in.limits, kind, flags, &step);
    int64_t start = plm_now(l->opts->clock);
    int r = l->ops->run(l->ops->ctx, &step, l->err);
    if (r == PLM_OK)
        note_pass(l, &step, plm_now(l->opts->clock) - start, validation);
    plm_loop_advance(l, validation ? "validate" : "stress");
    return plm_loop_agree(l, r);
}

// The encoders' worst case; a rank without encoders agrees with those that have some.
static int encode(struct plm_loop *l, bool beside_decode)
{
    int r = PLM_OK;
    if (l->ops->encode != NULL)
        r = l->ops->encode(l->ops->ctx, beside_decode, l->err);
    return plm_loop_agree(l, r);
}

// What the process has more after it is the graphs', and what a driver takes with the first one.
static int capture(struct plm_loop *l)
{
    struct plm_plan_input before = l->in, after = l->in;
    int r = PLM_OK;
    if (l->ops->capture != NULL)
        r = plm_loop_read(l, &before);
    if (l->ops->capture != NULL && r == PLM_OK)
        r = l->ops->capture(l->ops->ctx, l->err);
    if (l->ops->capture != NULL && r == PLM_OK)
        r = plm_loop_read(l, &after);
    if (r == PLM_OK)
        l->res->graph_bytes += plm_max_i64(0, plm_loop_watched(&after) - plm_loop_watched(&before));
    return plm_loop_agree(l, r);
}

// Runs everything once, so that what is taken once is not measured as a peak of serving.
static int cold_passes(struct plm_loop *l)
{
    const unsigned flags = PLM_STRESS_COLD | PLM_STRESS_REPEAT_BLOCKS;
    bool whole = !l->opts->host_pays || l->opts->prove_full;
    int r = PLM_OK;
    for (int kind = 0; kind < PLM_STRESS_KINDS && r == PLM_OK; kind++) {
        bool full = kind == PLM_STRESS_FULL_CHUNK || kind == PLM_STRESS_FULL_DECODE;
        if (full && !whole)
            continue;
        r = plm_loop_pass(l, (enum plm_stress_kind)kind, flags, false);
    }
    if (r == PLM_OK)
        r = encode(l, false);
    return r == PLM_OK ? capture(l) : r;
}

// The cold passes. What foreign grew by over them is the driver's for good (lazy code, local
// memory, graphs), where it does not say so itself.
static int cold_pass(struct plm_loop *l)
{
    struct plm_plan_input before = l->in, after = l->in;
    int r = plm_loop_agree(l, plm_loop_read(l, &before));
    if (r == PLM_OK)
        r = cold_passes(l);
    if (r == PLM_OK)
        r = plm_loop_agree(l, plm_loop_read(l, &after));
    if (r == PLM_OK && after.process_use == PLM_PLAN_UNKNOWN)
        l->calls += plm_max_i64(0, plm_loop_watched(&after) - plm_loop_watched(&before));
    return r;
}

// Small beside large, long beside short: fragmentation shows under mixed load only. The second
// round runs backwards.
static int mixed_round(struct plm_loop *l, int round)
{
    static const enum plm_stress_kind order[PLM_STRESS_KINDS] = {
        PLM_STRESS_DECODE, PLM_STRESS_FULL_CHUNK, PLM_STRESS_MANY_SHORT, PLM_STRESS_FULL_DECODE,
        PLM_STRESS_PREFILL};
    int r = PLM_OK;
    for (int i = 0; i < PLM_STRESS_KINDS && r == PLM_OK; i++) {
        int at = round % 2 == 0 ? i : PLM_STRESS_KINDS - 1 - i;
        r = plm_loop_pass(l, order[at], PLM_STRESS_REPEAT_BLOCKS, false);
        if (r == PLM_OK && order[at] == PLM_STRESS_DECODE)
            r = encode(l, true);
    }
    return r == PLM_OK ? encode(l, false) : r;
}

static int stress_once(struct plm_loop *l)
{
    bool pinned = plm_loop_pinned(l);
    int rounds = l->opts->prove_full && !pinned ? FULL_ROUNDS : 1;
    int64_t peak = 0;
    l->done = 0;
    l->total = (uint64_t)(rounds + (pinned ? 0 : 1)) * PLM_STRESS_KINDS;
    l->peak = -1;
    // A pinned size needs no measure, only a net; but what is captured serves it, too.
    int r = pinned ? capture(l) : cold_pass(l);
    if (r != PLM_OK)
        return r;
    if (l->ops->watch != NULL)
        l->ops->watch(l->ops->ctx, true, NULL);
    for (int i = 0; i < rounds && r == PLM_OK; i++)
        r = mixed_round(l, i);
    if (l->ops->watch != NULL) {
        l->ops->watch(l->ops->ctx, false, &peak);
        l->peak = plm_max_i64(l->peak, plm_round_up_i64(peak, l->in.g));
    }
    l->stressed |= r == PLM_OK;
    if (r == PLM_OK)
        l->res->stressed = l->in.limits;
    return r;
}

static int take_probe(struct plm_loop *l, int64_t blocks)
{
    blocks = plm_max_i64(1, plm_loop_min(l, blocks));
    struct plm_slab_rule rule = plm_slab_rule(blocks * l->in.block_bytes, l->in.block_bytes,
                                              l->in.g, l->in.max_slab_bytes, l->in.max_slabs);
    int r = plm_loop_pool_take(l, &rule, (uint32_t)blocks);
    if (r != PLM_OK && !plm_loop_can_retry(l, r))
        plm_loop_fail(l, r, "the probe's KV pool could not be made");
    return plm_loop_agree(l, r);
}

int plm_loop_capture(struct plm_loop *l)
{
    if (plm_loop_min(l, l->ops->capture == NULL) != 0)
        return PLM_OK; // no rank has graphs
    int r = take_probe(l, 1);
    if (r == PLM_OK)
        r = capture(l);
    plm_loop_pool_resize(l, 0);
    return r;
}

// The probe pool: what fits beside margin and host memory, since the stress must not be what kills
// the process. A stress that failed gets a quarter of it.
static int probe(struct plm_loop *l, int attempt)
{
    struct plm_plan plan;
    int r = plm_loop_plan(l, &plan);
    if (r != PLM_OK)
        return r;
    int64_t want = plm_profile_probe_blocks(&l->in.limits) >> (2 * attempt);
    want = plm_max_i64(plm_loop_least_blocks(l),
                       plm_min_i64(want, plm_slab_fit(&plan.slabs, plan.budget)));
    r = take_probe(l, want);
    l->res->probe_blocks = l->blocks;
    return r;
}

static int probe_and_stress(struct plm_loop *l, int attempt)
{
    plm_loop_progress(l, "probe", 0, 1);
    int r = probe(l, attempt);
    plm_loop_progress(l, "probe", 1, 1);
    return r == PLM_OK ? stress_once(l) : r;
}

int plm_loop_stress(struct plm_loop *l)
{
    struct plm_plan plan;
    int64_t start = plm_now(l->opts->clock);
    int r = probe_and_stress(l, 0);
    for (int i = 1; i <= PLM_PROFILE_RETRIES && plm_loop_can_retry(l, r); i++) {
        if (r == PLM_ERR_LOST && (r = plm_loop_reopen(l)) != PLM_OK)
            break;
        r = probe_and_stress(l, i);
    }
    l->res->stress_ns = plm_now(l->opts->clock) - start;
    if (!plm_loop_no_room(r) || l->last_word)
        return r;
    int now = plm_loop_read(l, &l->in);
    if (now == PLM_OK)
        now = plm_plan_compute(&l->in, &plan, l->err);
    if ((now = plm_loop_agree(l, now)) != PLM_OK)
        return now;
    return plm_loop_fail_by_trial(l, &plan, "the stress ran out of device memory");
}

int plm_loop_stress_small(struct plm_loop *l)
{
    int r = take_probe(l, 1);
    if (r == PLM_OK)
        r = stress_once(l);
    plm_loop_pool_resize(l, 0);
    return r;
}
