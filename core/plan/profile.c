// SPDX-License-Identifier: Apache-2.0
#include "core/plan/profile.h"

#include <stddef.h>
#include <string.h>

#include "core/base/checked.h"
#include "kernels/abi.h"

#define READ_PAUSE_NS INT64_C(2000000) // between two readings: drivers lag by milliseconds
#define FULL_ROUNDS   2                // measured rounds with prove_full
#define CONTEXT_TRIES 8                // lowerings of the context; two are the rule

struct loop {
    const struct plm_profile_opts *opts;
    const struct plm_stress_ops *ops;
    struct plm_profile *res;
    struct plm_error *err;
    struct plm_plan_input in; // as of the last snapshot
    int64_t peak;             // own_drv (or foreign) over the measured passes, -1: none yet
    uint32_t blocks;          // of the pool now
    uint64_t done, total;     // progress of the stage
    bool planned;             // err has the planner's last word: no retry can help
};

// ---- the loop's facts ----

static void progress(const struct loop *l, const char *stage, uint64_t done, uint64_t total)
{
    if (l->ops->progress != NULL)
        l->ops->progress(l->ops->ctx, stage, done, total);
}

static void advance(struct loop *l, const char *stage)
{
    progress(l, stage, ++l->done, l->total);
}

static bool no_room(int r)
{
    return r == PLM_ERR_OUT_OF_DEVICE || r == PLM_ERR_TOO_LARGE;
}

// What a smaller size or a new device may cure.
static bool can_retry(int r)
{
    return no_room(r) || r == PLM_ERR_LOST;
}

static int64_t min_of_ranks(const struct loop *l, int64_t value)
{
    return l->ops->min_of_ranks != NULL ? l->ops->min_of_ranks(l->ops->ctx, value) : value;
}

static bool pinned(const struct loop *l)
{
    return l->in.pinned_tokens != PLM_PLAN_NO_LIMIT;
}

static uint32_t least_blocks(const struct loop *l)
{
    return l->in.caps.max_sequences;
}

static int fail(struct loop *l, int r, const char *what)
{
    return plm_fail(l->err, r, "%s: %s", what, plm_strstatus(r));
}

// ---- readings ----

static void put_reading(struct plm_plan_input *in, const struct plm_stress_reading *r)
{
    in->T = r->T;
    in->F = r->F;
    in->O = r->O;
    in->K = r->K;
    in->process_use = r->process_use;
    in->n_cgroups = r->n_cgroups;
    memcpy(in->cgroups, r->cgroups, sizeof(in->cgroups));
}

static int read_into(struct loop *l, struct plm_plan_input *in)
{
    struct plm_stress_reading r;
    int status = l->ops->read(l->ops->ctx, &r);
    if (status != PLM_OK)
        return fail(l, status, "the device's memory could not be read");
    put_reading(in, &r);
    return PLM_OK;
}

static bool near(int64_t a, int64_t b, int64_t g)
{
    return a - b < g && b - a < g;
}

static bool equal_within_g(const struct plm_plan_input *a, const struct plm_plan_input *b)
{
    if (a->n_cgroups != b->n_cgroups || a->O != b->O || !near(a->T, b->T, a->g) ||
        !near(a->F, b->F, a->g) || !near(a->process_use, b->process_use, a->g))
        return false;
    for (uint32_t i = 0; i < a->n_cgroups; i++) {
        const struct plm_plan_cgroup *x = &a->cgroups[i], *y = &b->cgroups[i];
        if (x->limit != y->limit || !near(x->current, y->current, a->g) ||
            !near(x->reclaimable, y->reclaimable, a->g))
            return false;
    }
    return true;
}

// Of two readings that disagree, the one that promises less.
static void take_worse(struct plm_plan_input *in, const struct plm_plan_input *other)
{
    in->F = plm_min_i64(in->F, other->F);
    in->process_use = plm_max_i64(in->process_use, other->process_use);
    for (uint32_t i = 0; i < in->n_cgroups && i < other->n_cgroups; i++) {
        in->cgroups[i].current = plm_max_i64(in->cgroups[i].current, other->cgroups[i].current);
        in->cgroups[i].reclaimable =
            plm_min_i64(in->cgroups[i].reclaimable, other->cgroups[i].reclaimable);
    }
}

// The snapshot: idle, caches emptied, two readings equal within g. Where they never are, the worse
// of the last two counts.
static int snapshot(struct loop *l)
{
    struct plm_plan_input before = l->in;
    int r = l->ops->empty_cache(l->ops->ctx);
    if (r != PLM_OK)
        return fail(l, r, "the caches could not be emptied");
    if ((r = read_into(l, &before)) != PLM_OK)
        return r;
    l->res->settled = false;
    for (l->res->reads = 1; l->res->reads < PLM_PROFILE_READS; before = l->in) {
        l->opts->clock->sleep_ns(l->opts->clock->ctx, READ_PAUSE_NS);
        if ((r = read_into(l, &l->in)) != PLM_OK)
            return r;
        l->res->reads++;
        if (equal_within_g(&before, &l->in)) {
            l->res->settled = true;
            return PLM_OK;
        }
        if (l->res->reads == PLM_PROFILE_READS)
            take_worse(&l->in, &before);
    }
    plm_logf(l->opts->log, PLM_LOG_WARN,
             "memory readings did not settle in %d tries; the lower one is used",
             PLM_PROFILE_READS);
    return PLM_OK;
}

// What the monitor watches: own_drv, or foreign where the process's use is unknown.
static int64_t watched(const struct plm_plan_input *in)
{
    int64_t bytes =
        in->process_use != PLM_PLAN_UNKNOWN ? in->process_use - in->O : in->T - in->F - in->O;
    return plm_round_up_i64(bytes, in->g);
}

// ---- passes ----

static void note_pass(struct loop *l, const struct plm_stress_step *step, int64_t ns,
                      bool validation)
{
    struct plm_plan_input now = l->in;
    int64_t seen = read_into(l, &now) == PLM_OK ? watched(&now) : 0;
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

static int pass(struct loop *l, enum plm_stress_kind kind, unsigned flags, bool validation)
{
    struct plm_stress_step step;
    plm_profile_step(l->opts, &l->in.caps, kind, flags, &step);
    int64_t start = plm_now(l->opts->clock);
    int r = l->ops->run(l->ops->ctx, &step, l->err);
    if (r == PLM_OK)
        note_pass(l, &step, plm_now(l->opts->clock) - start, validation);
    advance(l, validation ? "validate" : "stress");
    return r;
}

static int encode(struct loop *l, bool beside_decode)
{
    return l->ops->encode != NULL ? l->ops->encode(l->ops->ctx, beside_decode, l->err) : PLM_OK;
}

// Runs everything once, so that what is taken once is not measured as a peak of serving.
static int cold_pass(struct loop *l)
{
    const unsigned flags = PLM_STRESS_COLD | PLM_STRESS_REPEAT_BLOCKS;
    bool whole = !l->opts->host_pays || l->opts->prove_full;
    int r = PLM_OK;
    for (int kind = 0; kind < PLM_STRESS_KINDS && r == PLM_OK; kind++) {
        bool full = kind == PLM_STRESS_FULL_CHUNK || kind == PLM_STRESS_FULL_DECODE;
        if (full && !whole)
            continue;
        r = pass(l, (enum plm_stress_kind)kind, flags, false);
    }
    if (r == PLM_OK)
        r = encode(l, false);
    if (r == PLM_OK && l->ops->capture != NULL)
        r = l->ops->capture(l->ops->ctx, l->err);
    return r;
}

// Small beside large, long beside short: fragmentation shows under mixed load only. The second
// round runs backwards.
static int mixed_round(struct loop *l, int round)
{
    static const enum plm_stress_kind order[PLM_STRESS_KINDS] = {
        PLM_STRESS_DECODE, PLM_STRESS_FULL_CHUNK, PLM_STRESS_MANY_SHORT, PLM_STRESS_FULL_DECODE,
        PLM_STRESS_PREFILL};
    int r = PLM_OK;
    for (int i = 0; i < PLM_STRESS_KINDS && r == PLM_OK; i++) {
        int at = round % 2 == 0 ? i : PLM_STRESS_KINDS - 1 - i;
        r = pass(l, order[at], PLM_STRESS_REPEAT_BLOCKS, false);
        if (r == PLM_OK && order[at] == PLM_STRESS_DECODE)
            r = encode(l, true);
    }
    return r == PLM_OK ? encode(l, false) : r;
}

static int stress_once(struct loop *l)
{
    int rounds = l->opts->prove_full && !pinned(l) ? FULL_ROUNDS : 1;
    int64_t peak = 0;
    l->done = 0;
    l->total = (uint64_t)(rounds + (pinned(l) ? 0 : 1)) * PLM_STRESS_KINDS;
    l->peak = -1;
    int r = pinned(l) ? PLM_OK : cold_pass(l); // a pinned size needs no measure, only a net
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
    return r;
}

// ---- pool and workspace ----

static int pool_resize(struct loop *l, uint32_t blocks)
{
    int64_t failed = 0;
    return l->ops->kv_resize(l->ops->ctx, blocks, &l->blocks, &failed);
}

// Takes a pool of this size with the slabs of the rule. PLM_OK also where the device gave less, as
// long as that is one block per sequence.
static int pool_take(struct loop *l, const struct plm_slab_rule *rule, uint32_t blocks)
{
    int r = pool_resize(l, 0);
    if (r == PLM_OK)
        r = l->ops->kv_format(l->ops->ctx, rule->slab_blocks, blocks);
    if (r == PLM_OK)
        r = pool_resize(l, blocks);
    return no_room(r) && l->blocks >= least_blocks(l) ? PLM_OK : r;
}

static int compute(struct loop *l, struct plm_plan *ret)
{
    return plm_plan_compute(&l->in, ret, l->err);
}

static int fail_plan(struct loop *l, const char *what)
{
    l->planned = true;
    return plm_plan_fail(&l->in, l->opts->cost, what, l->err);
}

// Takes the workspace for the caps in l->in; where the device has no room for it, for the longest
// context for which it has.
static int take_workspace(struct loop *l)
{
    for (int i = 0; i < CONTEXT_TRIES; i++) {
        int taken = l->ops->set_caps(l->ops->ctx, &l->in.caps);
        if (taken != PLM_OK && !no_room(taken))
            return fail(l, taken, "no memory for the workspace");
        if (min_of_ranks(l, taken == PLM_OK) != 0)
            return PLM_OK;
        int r = snapshot(l);
        if (r != PLM_OK)
            return r;
        if (taken != PLM_OK)
            plm_plan_estimate(&l->in, l->opts->cost, &(struct plm_plan_estimate){0});
        uint32_t context = plm_plan_fit_context(&l->in, l->opts->cost);
        context = (uint32_t)min_of_ranks(l, context);
        // Where the device gives less than it says, halving ends the search.
        if (context >= l->in.caps.max_context)
            context = l->in.caps.max_context / 2 / PLM_KV_BLOCK_TOKENS * PLM_KV_BLOCK_TOKENS;
        if (context == 0)
            break;
        l->in.caps.max_context = context;
    }
    return fail_plan(l, "the workspace does not fit");
}

// Takes a snapshot and plans; lowers the context until one whole request finishes. With growth the
// stress has been run, else what is known without it counts.
static int plan_from_snapshot(struct loop *l, struct plm_plan *ret)
{
    for (int i = 0; i < CONTEXT_TRIES; i++) {
        int r = snapshot(l);
        if (r != PLM_OK)
            return r;
        l->in.growth = l->peak < 0 ? 0 : plm_max_i64(0, l->peak - watched(&l->in));
        if ((r = compute(l, ret)) != PLM_OK)
            return r;
        bool good = plm_plan_enough(ret, NULL) && plm_plan_one_finishes(ret);
        if (min_of_ranks(l, good) != 0)
            return PLM_OK;
        uint32_t context = plm_plan_fit_context(&l->in, l->opts->cost);
        context = (uint32_t)min_of_ranks(l, context);
        if (context == 0 || context >= l->in.caps.max_context)
            break;
        l->in.caps.max_context = context;
        if ((r = take_workspace(l)) != PLM_OK)
            return r;
    }
    return fail_plan(l, pinned(l) ? "--max-total-tokens does not fit"
                                  : "weights, workspace and one KV block per sequence do not fit");
}

// ---- step 2 and 3: probe and stress ----

static int probe(struct loop *l)
{
    struct plm_plan plan;
    int r = plan_from_snapshot(l, &plan);
    if (r != PLM_OK)
        return r;
    int64_t want = plm_profile_probe_blocks(&l->in.caps);
    // What fits beside margin and host memory: the stress must not be what kills the process.
    want = plm_max_i64(least_blocks(l), plm_min_i64(want, plm_slab_fit(&plan.slabs, plan.budget)));
    struct plm_slab_rule rule = plm_slab_rule(want * l->in.block_bytes, l->in.block_bytes, l->in.g,
                                              l->in.max_slab_bytes, l->in.max_slabs);
    r = pool_take(l, &rule, (uint32_t)want);
    l->res->probe_blocks = l->blocks;
    return r == PLM_OK || can_retry(r) ? r : fail(l, r, "the probe's KV pool could not be made");
}

// The device gives less than the formula says. What is suggested then must start where not even one
// block per sequence is left.
static int give_up(struct loop *l, const struct plm_plan *plan, const char *what)
{
    int64_t left = plm_slab_pool_bytes(&plan->slabs, least_blocks(l)) - 1;
    int64_t less = plm_max_i64(0, plan->budget - left);
    l->in = plan->in;
    l->in.F -= less;
    for (uint32_t i = 0; i < l->in.n_cgroups; i++)
        l->in.cgroups[i].current += less;
    // Under the operator's limit it shows as more that the driver took.
    if (l->in.process_use != PLM_PLAN_UNKNOWN)
        l->in.process_use += less + plan->host_limit;
    else
        l->in.context_bytes += less + plan->host_limit;
    return fail_plan(l, what);
}

static int reopen(struct loop *l)
{
    if (l->ops->reopen == NULL)
        return PLM_ERR_LOST;
    l->ops->ballast(l->ops->ctx, 0);
    pool_resize(l, 0);
    int r = l->ops->reopen(l->ops->ctx, l->err);
    return r == PLM_OK ? take_workspace(l) : r;
}

static int probe_and_stress(struct loop *l)
{
    progress(l, "probe", 0, 1);
    int r = probe(l);
    progress(l, "probe", 1, 1);
    return r == PLM_OK ? stress_once(l) : r;
}

static int stress(struct loop *l)
{
    struct plm_plan plan;
    int64_t start = plm_now(l->opts->clock);
    int r = probe_and_stress(l);
    for (int i = 0; i < PLM_PROFILE_RETRIES && can_retry(r) && !l->planned; i++) {
        if (r == PLM_ERR_LOST && (r = reopen(l)) != PLM_OK)
            break;
        r = probe_and_stress(l);
    }
    l->res->stress_ns = plm_now(l->opts->clock) - start;
    if (!no_room(r) || l->planned || read_into(l, &l->in) != PLM_OK || compute(l, &plan) != PLM_OK)
        return r;
    return give_up(l, &plan, "the stress ran out of device memory");
}

// ---- step 5: resize ----

// The plan for fewer blocks; a context that no longer fits is lowered with them.
static int settle_for(struct loop *l, struct plm_plan *plan, int64_t blocks, enum plm_plan_term why)
{
    plm_plan_set_blocks(plan, blocks, why);
    if (plan->blocks < least_blocks(l))
        return PLM_ERR_OUT_OF_DEVICE;
    if (plm_plan_one_finishes(plan))
        return PLM_OK;
    struct plm_plan lower;
    struct plm_plan_caps caps = plan->in.caps;
    caps.max_context = (uint32_t)plan->blocks * PLM_KV_BLOCK_TOKENS;
    int r = plm_plan_replan(&plan->in, l->opts->cost, &caps, &lower, l->err);
    if (r == PLM_OK)
        r = l->ops->set_caps(l->ops->ctx, &caps);
    if (r != PLM_OK)
        return r;
    lower.slabs = plan->slabs;
    plm_plan_set_blocks(&lower, blocks, why);
    l->in = lower.in;
    *plan = lower;
    return PLM_OK;
}

// Takes the ballast, giving back slabs until it fits.
static int take_ballast(struct loop *l, const struct plm_plan *plan)
{
    for (;;) {
        int r = l->ops->ballast(l->ops->ctx, plan->ballast);
        if (!no_room(r))
            return r;
        uint32_t step = plan->slabs.slab_blocks;
        if (pinned(l) || l->blocks < step + least_blocks(l))
            return PLM_ERR_OUT_OF_DEVICE;
        r = pool_resize(l, l->blocks - step);
        if (r != PLM_OK && !no_room(r))
            return r;
    }
}

static int resize(struct loop *l, struct plm_plan *plan)
{
    progress(l, "resize", 0, 1);
    int64_t agreed = min_of_ranks(l, plan->blocks);
    if (agreed < plan->blocks)
        plm_plan_set_blocks(plan, agreed, PLM_TERM_RANKS);
    int r = pool_take(l, &plan->slabs, (uint32_t)plan->blocks);
    if (r == PLM_OK && pinned(l) && l->blocks < plan->blocks)
        r = PLM_ERR_OUT_OF_DEVICE;
    if (r == PLM_OK)
        r = take_ballast(l, plan);
    agreed = min_of_ranks(l, r == PLM_OK ? l->blocks : 0);
    if (r == PLM_OK && agreed < l->blocks)
        r = pool_resize(l, (uint32_t)agreed);
    if (r == PLM_OK && l->blocks < plan->blocks)
        r = settle_for(l, plan, l->blocks, PLM_TERM_RESIZE);
    progress(l, "resize", 1, 1);
    return r;
}

// ---- step 6: validate ----

static int validate_once(struct loop *l)
{
    static const enum plm_stress_kind kinds[] = {PLM_STRESS_PREFILL, PLM_STRESS_FULL_CHUNK,
                                                 PLM_STRESS_FULL_DECODE};
    l->done = 0;
    l->total = 1 + sizeof(kinds) / sizeof(*kinds);
    int r = l->ops->kv_verify(l->ops->ctx, l->err);
    advance(l, "validate");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && r == PLM_OK; i++)
        r = pass(l, kinds[i], 0, true);
    return r;
}

// Gives blocks back and checks that the driver's free rose by what was released: *ret_lacking bytes
// did not come back.
static int release_to(struct loop *l, int64_t blocks, int64_t *ret_lacking)
{
    struct plm_plan_input before = l->in, after = l->in;
    int64_t lacking = 0;
    int r = read_into(l, &before);
    if (r == PLM_OK)
        r = l->ops->ballast(l->ops->ctx, 0);
    if (r == PLM_OK && blocks < l->blocks)
        r = pool_resize(l, (uint32_t)blocks);
    if (r == PLM_OK)
        r = l->ops->empty_cache(l->ops->ctx);
    for (int i = 0; i < PLM_PROFILE_READS && r == PLM_OK; i++) {
        r = read_into(l, &after);
        lacking = (before.O - after.O) - (after.F - before.F);
        if (lacking < l->in.g)
            break;
        l->opts->clock->sleep_ns(l->opts->clock->ctx, READ_PAUSE_NS);
    }
    *ret_lacking = lacking < l->in.g ? 0 : lacking;
    return r;
}

// After a failed validation: a smaller plan, agreed by all ranks.
static int shrink(struct loop *l, struct plm_plan *plan, int status)
{
    int64_t lacking = 0;
    int64_t blocks = min_of_ranks(l, plm_plan_shrink(plan, 0, 0));
    if (blocks < least_blocks(l))
        return PLM_ERR_OUT_OF_DEVICE;
    int r = status == PLM_ERR_LOST ? reopen(l) : release_to(l, blocks, &lacking);
    if (r != PLM_OK)
        return r;
    if (lacking > 0) {
        // Somebody else has it, or the driver keeps it: it is not there to be planned with.
        l->res->not_returned = plm_max_i64(l->res->not_returned, lacking);
        plm_logf(l->opts->log, PLM_LOG_WARN, "%lld bytes that were released did not come back",
                 (long long)lacking);
        blocks -= (int64_t)plm_div_ceil((uint64_t)lacking, (uint64_t)plan->in.block_bytes);
    }
    blocks = min_of_ranks(l, plm_max_i64(0, blocks));
    return settle_for(l, plan, blocks, PLM_TERM_SHRINK);
}

static int prove(struct loop *l, struct plm_plan *plan)
{
    int64_t start = plm_now(l->opts->clock);
    int r = PLM_OK;
    for (int attempt = 0; attempt <= PLM_PROFILE_RETRIES; attempt++) {
        l->res->attempts++;
        r = resize(l, plan);
        if (r == PLM_OK)
            r = validate_once(l);
        // All ranks go on, or all shrink.
        if (min_of_ranks(l, r == PLM_OK) != 0 || (r != PLM_OK && !can_retry(r)))
            break;
        plm_logf(l->opts->log, PLM_LOG_WARN, "validation with %lld blocks failed: %s",
                 (long long)plan->blocks, plm_strstatus(r));
        if (pinned(l)) {
            r = no_room(r) ? fail_plan(l, "--max-total-tokens does not pass its validation") : r;
            break;
        }
        if (attempt == PLM_PROFILE_RETRIES)
            r = give_up(l, plan, "validation failed 4 times");
        else if (no_room(r = shrink(l, plan, r)))
            r = give_up(l, plan, "validation failed and no smaller size is left");
        if (r != PLM_OK)
            break;
    }
    l->res->validate_ns = plm_now(l->opts->clock) - start;
    return r;
}

// ---- the loop ----

static int run(struct loop *l, struct plm_plan *plan)
{
    int r = take_workspace(l);
    if (r == PLM_OK)
        r = stress(l);
    if (r == PLM_OK)
        r = plan_from_snapshot(l, plan);
    if (r == PLM_OK)
        r = prove(l, plan);
    if (r == PLM_OK && !l->opts->keep_ballast)
        r = l->ops->ballast(l->ops->ctx, 0);
    return r;
}

static int check(const struct plm_profile_opts *opts, struct plm_error *err)
{
    struct plm_plan_input in = opts->in;
    in.T = in.F = in.O = in.K = in.growth = 0;
    in.n_cgroups = 0;
    in.process_use = PLM_PLAN_UNKNOWN;
    return plm_plan_check(&in, err);
}

int plm_profile_foresee(const struct plm_profile_opts *opts,
                        const struct plm_stress_reading *reading, int64_t weight_bytes,
                        struct plm_error *err)
{
    struct plm_plan_input in = opts->in;
    struct plm_plan plan;
    put_reading(&in, reading);
    plm_plan_estimate(&in, opts->cost, &(struct plm_plan_estimate){.weight_bytes = weight_bytes});
    int r = plm_plan_compute(&in, &plan, err);
    if (r != PLM_OK || plm_plan_enough(&plan, NULL) || plm_plan_fit_context(&in, opts->cost) > 0)
        return r;
    bool size_given = in.pinned_tokens != PLM_PLAN_NO_LIMIT;
    return plm_plan_fail(&in, opts->cost,
                         size_given ? "--max-total-tokens does not fit" : "the model does not fit",
                         err);
}

int plm_profile_run(const struct plm_profile_opts *opts, const struct plm_stress_ops *ops,
                    struct plm_profile *ret, struct plm_error *err)
{
    struct plm_profile res = {.asked_context = opts->in.caps.max_context};
    struct plm_plan plan = {0};
    struct loop l = {.opts = opts, .ops = ops, .res = &res, .err = err, .in = opts->in, .peak = -1};
    int64_t start = plm_now(opts->clock);
    int r = check(opts, err);
    if (r != PLM_OK)
        return r;
    if (err != NULL)
        err->status = PLM_OK;
    if ((r = run(&l, &plan)) != PLM_OK) {
        ops->ballast(ops->ctx, 0);
        pool_resize(&l, 0);
        // Whatever failed without a word of its own still gets one.
        return err != NULL && err->status == r ? r : fail(&l, r, "the memory plan failed");
    }
    ops->seal(ops->ctx);
    res.plan = plan;
    res.context_lowered = plan.in.caps.max_context < res.asked_context;
    res.total_ns = plm_now(opts->clock) - start;
    if (res.context_lowered)
        plm_logf(opts->log, PLM_LOG_WARN,
                 "the context is lowered from %u to %u tokens, so that one request always finishes",
                 res.asked_context, plan.in.caps.max_context);
    progress(&l, "ready", 1, 1);
    *ret = res;
    return PLM_OK;
}
