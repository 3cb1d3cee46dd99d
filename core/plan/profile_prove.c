// SPDX-License-Identifier: Apache-2.0
// Steps 5 and 6 of the loop: the pool at its planned size beside the ballast, the validation, and
// what follows where it fails.
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/text.h"
#include "core/plan/profile_impl.h"
#include "kernels/abi.h"

#define MIB (INT64_C(1) << 20)

// ---- resize ----

// The plan for fewer blocks, which all ranks agreed on; a context that no longer fits is lowered
// with them.
static int settle_for(struct plm_loop *l, struct plm_plan *plan, int64_t blocks,
                      enum plm_plan_term why)
{
    plm_plan_set_blocks(plan, blocks, why);
    if (plan->blocks < plm_loop_least_blocks(l))
        return PLM_ERR_OUT_OF_DEVICE;
    if (plm_plan_one_finishes(plan))
        return PLM_OK;
    struct plm_plan lower = *plan;
    l->in = plan->in;
    l->in.limits.max_context = (uint32_t)plan->blocks * PLM_KV_BLOCK_TOKENS;
    int r = plm_loop_take_workspace(l); // may lower them further
    if (r == PLM_OK)
        r = plm_plan_replan(&plan->in, l->opts->cost, &l->in.limits, &lower, l->err);
    if ((r = plm_loop_agree(l, r)) != PLM_OK)
        return r;
    lower.slabs = plan->slabs;
    plm_plan_set_blocks(&lower, blocks, why);
    l->in = lower.in;
    *plan = lower;
    return PLM_OK;
}

// Takes the ballast, giving back slabs until it fits.
static int take_ballast(struct plm_loop *l, const struct plm_plan *plan)
{
    struct plm_plan_input now = l->in;
    for (;;) {
        int r = l->ops->ballast(l->ops->ctx, plan->ballast);
        if (!plm_loop_no_room(r))
            return r;
        uint32_t step = plan->slabs.slab_blocks;
        if (plm_loop_pinned(l) || l->blocks < step + plm_loop_least_blocks(l)) {
            l->failed_bytes = plan->ballast;
            l->failed_free = plm_loop_read(l, &now) == PLM_OK ? now.F : 0;
            return PLM_ERR_OUT_OF_DEVICE;
        }
        r = plm_loop_pool_resize(l, l->blocks - step);
        if (r != PLM_OK && !plm_loop_no_room(r))
            return r;
    }
}

// All pools become as small as the smallest is. Where a short last slab is refused, one becomes
// smaller still, and the others follow.
static int level_pools(struct plm_loop *l)
{
    int64_t agreed = plm_loop_min(l, l->blocks);
    for (;;) {
        int r = agreed < l->blocks ? plm_loop_pool_resize(l, (uint32_t)agreed) : PLM_OK;
        r = plm_loop_agree(l, plm_loop_no_room(r) ? PLM_OK : r);
        const int64_t least = plm_loop_min(l, l->blocks);
        if (r != PLM_OK || least == agreed)
            return r;
        agreed = least;
    }
}

static int resize(struct plm_loop *l, struct plm_plan *plan)
{
    plm_loop_progress(l, "resize", 0, (uint64_t)plan->kv_bytes);
    l->failed_bytes = l->failed_free = l->slow_bytes = 0;
    int64_t agreed = plm_loop_min(l, plan->blocks);
    if (agreed < plan->blocks)
        plm_plan_set_blocks(plan, agreed, PLM_TERM_RANKS);
    int r = plm_loop_pool_take(l, &plan->slabs, (uint32_t)plan->blocks);
    if (r == PLM_OK && plm_loop_pinned(l) && l->blocks < plan->blocks)
        r = PLM_ERR_OUT_OF_DEVICE;
    if (r == PLM_OK)
        r = take_ballast(l, plan);
    if ((r = plm_loop_agree(l, r)) == PLM_OK)
        r = level_pools(l);
    if (r == PLM_OK && l->blocks < plan->blocks)
        r = settle_for(l, plan, l->blocks, PLM_TERM_RESIZE);
    plm_loop_progress(l, "resize", (uint64_t)plan->kv_bytes, (uint64_t)plan->kv_bytes);
    return r;
}

// ---- validate ----

// Slow memory is given without an error: what reads as if it were not on the device does not count
// as taken.
static int check_speed(struct plm_loop *l)
{
    int r = PLM_OK;
    if (l->ops->slow_bytes != NULL)
        r = l->ops->slow_bytes(l->ops->ctx, &l->slow_bytes);
    if (r == PLM_OK && l->slow_bytes > 0) {
        l->res->slow_bytes = plm_max_i64(l->res->slow_bytes, l->slow_bytes);
        l->failed_bytes = l->slow_bytes;
        r = plm_fail(l->err, PLM_ERR_OUT_OF_DEVICE,
                     "%lld bytes of what was taken are slow memory, not the device's",
                     (long long)l->slow_bytes);
        plm_logf(l->opts->log, PLM_LOG_WARN,
                 "%lld MiB of what was taken are slow memory, not the device's",
                 (long long)(l->slow_bytes / MIB));
    }
    return plm_loop_agree(l, r);
}

static int validate_once(struct plm_loop *l)
{
    static const enum plm_stress_kind kinds[] = {PLM_STRESS_PREFILL, PLM_STRESS_FULL_CHUNK,
                                                 PLM_STRESS_FULL_DECODE};
    l->done = 0;
    l->total = 1 + sizeof(kinds) / sizeof(*kinds);
    int r = plm_loop_agree(l, l->ops->kv_verify(l->ops->ctx, l->err));
    if (r == PLM_OK)
        r = check_speed(l);
    plm_loop_advance(l, "validate");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && r == PLM_OK; i++)
        r = plm_loop_pass(l, kinds[i], 0, true);
    return r;
}

// ---- shrink ----

// Gives blocks back and checks that the driver's free rose by what was released: *ret_lacking bytes
// did not come back.
static int release_to(struct plm_loop *l, int64_t blocks, int64_t *ret_lacking)
{
    struct plm_plan_input before = l->in, after = l->in;
    int64_t lacking = 0;
    int r = plm_loop_read(l, &before);
    if (r == PLM_OK)
        r = l->ops->ballast(l->ops->ctx, 0);
    if (r == PLM_OK && blocks < l->blocks)
        r = plm_loop_pool_resize(l, (uint32_t)blocks);
    if (plm_loop_no_room(
            r)) // of a short last slab: the pool is smaller still, and taken anew later
        r = PLM_OK;
    if (r == PLM_OK)
        r = l->ops->empty_cache(l->ops->ctx);
    for (int i = 0; i < PLM_PROFILE_READS && r == PLM_OK; i++) {
        r = plm_loop_read(l, &after);
        // What was slow was not the device's, and does not go back to it.
        lacking = (before.O - after.O) - (after.F - before.F) - l->slow_bytes;
        if (lacking < l->in.g)
            break;
        plm_loop_pause(l);
    }
    *ret_lacking = lacking < l->in.g ? 0 : lacking;
    return r;
}

// After a failed validation: a smaller plan, agreed by all ranks. A pinned size is kept; it gets
// here with a device that was lost.
static int shrink(struct plm_loop *l, struct plm_plan *plan, int status)
{
    int64_t lacking = 0;
    int64_t blocks = plm_plan_shrink(plan, l->failed_bytes, l->failed_free);
    blocks = plm_loop_min(l, plm_loop_pinned(l) ? plan->blocks : blocks);
    if (blocks < plm_loop_least_blocks(l))
        return PLM_ERR_OUT_OF_DEVICE;
    int r = status == PLM_ERR_LOST ? plm_loop_reopen(l)
                                   : plm_loop_agree(l, release_to(l, blocks, &lacking));
    if (r == PLM_OK && status == PLM_ERR_LOST)
        r = plm_loop_capture(l);
    if (r != PLM_OK || plm_loop_pinned(l))
        return r;
    if (lacking > 0) {
        // Somebody else has it, or the driver keeps it: it is not there to be planned with.
        l->res->not_returned = plm_max_i64(l->res->not_returned, lacking);
        plm_logf(l->opts->log, PLM_LOG_WARN, "%lld bytes that were released did not come back",
                 (long long)lacking);
        blocks -= (int64_t)plm_div_ceil((uint64_t)lacking, (uint64_t)plan->in.block_bytes);
    }
    blocks = plm_loop_min(l, plm_max_i64(0, blocks));
    return settle_for(l, plan, blocks, PLM_TERM_SHRINK);
}

// ---- what starts on a device that gives less than it says ----

// Runs the loop with other options, as a start would; everything is given back after it.
static bool starts(struct plm_loop *l, const struct plm_plan_input *in, struct plm_plan *ret)
{
    struct plm_profile_opts opts = *l->opts;
    struct plm_profile res = {0};
    struct plm_loop trial = {.opts = &opts,
                             .ops = l->ops,
                             .res = &res,
                             .in = *in,
                             .peak = -1,
                             .calls = l->calls,
                             .trial = true};
    opts.in = *in;
    l->ops->ballast(l->ops->ctx, 0);
    plm_loop_pool_resize(l, 0);
    int r = plm_loop_whole(&trial, ret);
    l->ops->ballast(l->ops->ctx, 0);
    plm_loop_pool_resize(l, 0);
    return plm_loop_agree(l, r) == PLM_OK;
}

// The limits as they are, with as many blocks as the stress ran with, or with one per sequence.
static bool find_size(struct plm_loop *l, const struct plm_plan *failed, struct plm_plan *ret)
{
    const int64_t most = plm_loop_min(l, failed->blocks);
    const int64_t least = plm_plan_least_blocks(&failed->in);
    const int64_t sizes[] = {plm_loop_min(l, l->res->probe_blocks), least};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct plm_plan_input in = l->opts->in;
        if (sizes[i] >= most || sizes[i] < least)
            continue;
        in.pinned_tokens = sizes[i] * PLM_KV_BLOCK_TOKENS;
        in.limits.max_context = (uint32_t)plm_min_i64(in.limits.max_context, in.pinned_tokens);
        if (starts(l, &in, ret))
            return true;
    }
    return false;
}

// One sequence, a small batch, and the longest context that starts, halved from what was planned.
static bool find_limits(struct plm_loop *l, const struct plm_plan *failed, struct plm_plan *ret)
{
    struct plm_plan_input in = l->opts->in;
    in.limits.max_sequences = 1;
    in.limits.state_checkpoints = in.limits.cached_windows = 0;
    in.limits.batch_max_tokens = (uint32_t)plm_min_i64(32, in.limits.batch_max_tokens);
    for (uint32_t context = failed->in.limits.max_context; context >= PLM_KV_BLOCK_TOKENS;
         context /= 2) {
        in.limits.max_context = context / PLM_KV_BLOCK_TOKENS * PLM_KV_BLOCK_TOKENS;
        if (starts(l, &in, ret))
            return true;
    }
    return false;
}

// The fraction of the budget, in hundredths, that holds no more blocks than were proved; 0: none.
static double find_fraction(struct plm_loop *l, const struct plm_plan *failed,
                            const struct plm_plan *proved)
{
    struct plm_plan_input in = l->opts->in;
    struct plm_plan plan;
    if (plm_loop_pinned(l))
        return 0;
    double share = (double)proved->kv_bytes / (double)plm_max_i64(1, failed->budget);
    share *= in.memory_fraction;
    double fraction = (double)plm_loop_min(l, share < 1 ? (int64_t)(share * 100) : 0) / 100;
    in.memory_fraction = fraction;
    return fraction > 0 && starts(l, &in, &plan) ? fraction : 0;
}

// Writes the options that start here, and the bytes that they take.
static bool find_knobs(struct plm_loop *l, const struct plm_plan *failed, char *out, size_t cap,
                       struct plm_plan *ret)
{
    const uint32_t asked = l->opts->in.limits.max_context;
    if (find_size(l, failed, ret)) {
        const double fraction = find_fraction(l, failed, ret);
        int n = snprintf(out, cap, "this starts: max_total_tokens %lld",
                         (long long)ret->in.pinned_tokens);
        if (ret->in.pinned_tokens < asked)
            n +=
                snprintf(out + n, cap - (size_t)n, " with ctx_size %u", ret->in.limits.max_context);
        if (fraction > 0)
            plm_snprintf(out + n, cap - (size_t)n, "; so does memory_fraction %.2f", fraction);
        return true;
    }
    if (!find_limits(l, failed, ret))
        return false;
    snprintf(out, cap, "this starts: ctx_size %u with max_sequences 1 and batch_max_tokens %u",
             ret->in.limits.max_context, ret->in.limits.batch_max_tokens);
    return true;
}

int plm_loop_fail_by_trial(struct plm_loop *l, const struct plm_plan *failed, const char *what)
{
    struct plm_plan proved = {0};
    char knobs[160] = PLM_PLAN_NO_KNOB;
    if (l->trial)
        return PLM_ERR_OUT_OF_DEVICE;
    const bool found = find_knobs(l, failed, knobs, sizeof(knobs), &proved);
    if (l->gone)
        return PLM_ERR_LOST;
    l->last_word = true;
    if (!found)
        proved = (struct plm_plan){0};
    plm_fail(l->err, PLM_ERR_OUT_OF_DEVICE,
             "%s: the device reports room for %lld KV blocks but does not give it, up to %lldMiB "
             "are missing; %s",
             what, (long long)failed->blocks, (long long)((failed->line - proved.line) / MIB),
             knobs);
    if (l->err != NULL) {
        l->err->needed_bytes = failed->line + failed->margin;
        l->err->limit_bytes = proved.line + proved.margin;
    }
    return plm_fail_about(l->err, PLM_ERR_OUT_OF_DEVICE,
                          !found                                      ? NULL
                          : strstr(knobs, "max_total_tokens") != NULL ? "max_total_tokens"
                                                                      : "ctx_size");
}

// ---- prove ----

int plm_loop_prove(struct plm_loop *l, struct plm_plan *plan)
{
    int64_t start = plm_now(l->opts->clock);
    int r = PLM_OK;
    for (int attempt = 0; attempt <= PLM_PROFILE_RETRIES; attempt++) {
        l->res->attempts++;
        r = resize(l, plan);
        if (r == PLM_OK)
            r = validate_once(l);
        if (r == PLM_OK || !plm_loop_can_retry(l, r))
            break;
        plm_logf(l->opts->log, PLM_LOG_WARN, "validation with %lld blocks failed: %s",
                 (long long)plan->blocks, plm_strstatus(r));
        const bool lost = r == PLM_ERR_LOST;
        if (plm_loop_pinned(l) && !lost)
            r = plm_loop_fail_by_trial(l, plan, "max_total_tokens does not pass its validation");
        else if (attempt == PLM_PROFILE_RETRIES)
            r = lost ? plm_loop_fail(l, r, "validation failed 4 times")
                     : plm_loop_fail_by_trial(l, plan, "validation failed 4 times");
        else if (plm_loop_no_room(r = shrink(l, plan, r)) && !l->last_word)
            r = plm_loop_fail_by_trial(l, plan, "validation failed and no smaller size is left");
        if (r != PLM_OK)
            break;
    }
    l->res->validate_ns = plm_now(l->opts->clock) - start;
    return r;
}

// ---- what an earlier start measured ----

// Whether its stress ran under limits at least as high, on every rank.
static int check_stressed(struct plm_loop *l, const struct plm_plan_limits *limits)
{
    const struct plm_plan_limits *then = &l->measured->stressed;
    const bool holds = plm_limits_within(limits, then);
    if (!holds)
        plm_fail(l->err, PLM_ERR_UNSUPPORTED,
                 "it was measured for %u sequences of %u tokens, and there is room for %u of %u",
                 then->max_sequences, then->max_context, limits->max_sequences,
                 limits->max_context);
    return plm_loop_min(l, holds) != 0 ? PLM_OK : PLM_ERR_UNSUPPORTED;
}

// The formula with its measures and the room of now. Graphs are captured under the limits that came
// out, and then they are in the snapshot.
static int plan_measured(struct plm_loop *l, struct plm_plan *ret)
{
    l->in.limits = l->opts->in.limits;
    int r = plm_loop_take_workspace(l);
    if (r == PLM_OK)
        r = plm_loop_plan(l, ret);
    if (r == PLM_OK)
        r = check_stressed(l, &ret->in.limits);
    if (r == PLM_OK && plm_loop_min(l, l->ops->capture == NULL) == 0) {
        r = plm_loop_capture(l);
        if (r == PLM_OK)
            r = plm_loop_plan(l, ret);
    }
    return r;
}

// The snapshot from after the forwards, so that what they made the driver take is in it; the
// ballast is held still, and not counted.
static void plan_again(struct plm_loop *l, struct plm_plan *plan)
{
    struct plm_plan_input now = l->in;
    struct plm_plan again;
    if (plm_loop_read(l, &now) != PLM_OK)
        return;
    if (plm_plan_compute(&now, &again, NULL) != PLM_OK)
        return;
    again.slabs = plan->slabs;
    plm_plan_set_blocks(&again, plan->blocks, plan->blocks_bind);
    if (again.line == plan->line && again.margin == plan->margin &&
        again.room_binds == plan->room_binds)
        *plan = again;
}

// All of the pool beside its ballast; nothing is settled for here.
static int take_measured(struct plm_loop *l, struct plm_plan *plan)
{
    const int64_t agreed = plm_loop_min(l, plan->blocks);
    if (agreed < plan->blocks)
        plm_plan_set_blocks(plan, agreed, PLM_TERM_RANKS);
    plm_loop_progress(l, "resize", 0, (uint64_t)plan->kv_bytes);
    int r = plm_loop_pool_take(l, &plan->slabs, (uint32_t)plan->blocks);
    if (r == PLM_OK && l->blocks < plan->blocks)
        r = plm_fail(l->err, PLM_ERR_OUT_OF_DEVICE, "the device gave %u of %lld blocks", l->blocks,
                     (long long)plan->blocks);
    if (r == PLM_OK)
        r = l->ops->ballast(l->ops->ctx, plan->ballast);
    plm_loop_progress(l, "resize", (uint64_t)plan->kv_bytes, (uint64_t)plan->kv_bytes);
    return plm_loop_agree(l, r);
}

// Where the device gave less than the formula says, it will do so again, and by how much depends on
// the size: the same steps down lead to what a start without a certificate would get.
static bool gave_less(struct plm_loop *l)
{
    const enum plm_plan_term bind = l->measured->plan.blocks_bind;
    return plm_loop_min(l, bind != PLM_TERM_RESIZE && bind != PLM_TERM_SHRINK) == 0;
}

static int prove_measured(struct plm_loop *l, struct plm_plan *plan)
{
    int r = plan_measured(l, plan);
    if (r == PLM_OK && gave_less(l))
        r = plm_loop_prove(l, plan);
    else if (r == PLM_OK) {
        l->res->attempts = 1;
        r = take_measured(l, plan);
        if (r == PLM_OK)
            r = validate_once(l);
    }
    if (r == PLM_OK)
        plan_again(l, plan);
    return r;
}

int plm_loop_take_certified(struct plm_loop *l, struct plm_plan *ret, bool *ret_taken)
{
    const struct plm_profile fresh = *l->res;
    int64_t start = plm_now(l->opts->clock);
    struct plm_error why = {0}, *err = l->err;
    // What goes wrong is not the start's, and nothing is suggested: the whole loop follows.
    l->err = &why;
    l->trial = true;
    l->measured = l->opts->certified;
    int r = prove_measured(l, ret);
    l->err = err;
    l->trial = false;
    l->measured = NULL;
    l->res->validate_ns = plm_now(l->opts->clock) - start;
    *ret_taken = r == PLM_OK;
    if (r == PLM_OK) {
        plm_logf(l->opts->log, PLM_LOG_INFO,
                 "what an earlier start measured holds: planned and validated anew");
        l->res->certified = true;
        l->res->probe_blocks = l->opts->certified->probe_blocks;
        l->res->stressed = l->opts->certified->stressed;
        return PLM_OK;
    }
    // A device that hangs will do so again, and who stopped the start wants no other one.
    if (r == PLM_ERR_TIMEOUT || (r == PLM_ERR_CANCELLED && l->ops->min_of_ranks == NULL))
        return plm_fail(err, r, "%s", why.msg[0] != '\0' ? why.msg : plm_strstatus(r));
    plm_logf(l->opts->log, r == PLM_ERR_UNSUPPORTED ? PLM_LOG_INFO : PLM_LOG_WARN,
             "the plan of an earlier start does not hold, it is made anew: %s",
             why.msg[0] != '\0' ? why.msg : plm_strstatus(r));
    l->ops->ballast(l->ops->ctx, 0);
    plm_loop_pool_resize(l, 0);
    *l->res = fresh;
    if (l->gone)
        return plm_fail(err, PLM_ERR_LOST, "another rank is gone");
    l->last_word = false;
    return r == PLM_ERR_LOST ? plm_loop_reopen(l) : PLM_OK;
}
