// SPDX-License-Identifier: Apache-2.0
// Readings of the device, and what several ranks agree on.
#include <string.h>

#include "core/base/checked.h"
#include "core/plan/profile_impl.h"

#define READ_PAUSE_NS INT64_C(2000000)  // between two readings: drivers lag by milliseconds
#define LAG_PAUSE_NS  INT64_C(10000000) // some by a fraction of a second, and say so (sees_us)

// ---- the loop's facts ----

void plm_loop_progress(const struct plm_loop *l, const char *stage, uint64_t done, uint64_t total)
{
    if (l->ops->progress != NULL)
        l->ops->progress(l->ops->ctx, stage, done, total);
}

void plm_loop_advance(struct plm_loop *l, const char *stage)
{
    plm_loop_progress(l, stage, ++l->done, l->total);
}

bool plm_loop_no_room(int status)
{
    return status == PLM_ERR_OUT_OF_DEVICE || status == PLM_ERR_TOO_LARGE;
}

bool plm_loop_can_retry(const struct plm_loop *l, int status)
{
    return !l->last_word && (plm_loop_no_room(status) || status == PLM_ERR_LOST);
}

int plm_loop_fail(struct plm_loop *l, int status, const char *what)
{
    return plm_fail(l->err, status, "%s: %s", what, plm_strstatus(status));
}

bool plm_loop_pinned(const struct plm_loop *l)
{
    return l->in.pinned_tokens != PLM_PLAN_NO_LIMIT;
}

uint32_t plm_loop_least_blocks(const struct plm_loop *l)
{
    return (uint32_t)plm_plan_least_blocks(&l->in);
}

// ---- ranks ----

// How bad a result is; what ranks compare.
enum severity { FATAL, LOST, NO_ROOM, GOOD };

static enum severity severity(int status)
{
    if (status == PLM_OK)
        return GOOD;
    if (plm_loop_no_room(status))
        return NO_ROOM;
    return status == PLM_ERR_LOST ? LOST : FATAL;
}

int64_t plm_loop_min(struct plm_loop *l, int64_t value)
{
    if (l->ops->min_of_ranks == NULL)
        return value;
    const int64_t least = l->ops->min_of_ranks(l->ops->ctx, value);
    if (least != PLM_RANK_GONE)
        return least;
    if (!l->gone)
        plm_fail(l->err, PLM_ERR_LOST, "another rank is gone");
    l->gone = l->last_word = true;
    return 0;
}

int plm_loop_agree(struct plm_loop *l, int status)
{
    const enum severity mine = severity(status);
    l->lost = mine == LOST;
    if (l->ops->min_of_ranks == NULL)
        return status;
    const int64_t worst = plm_loop_min(l, (int64_t)mine);
    if (l->gone)
        return PLM_ERR_LOST;
    if (worst == (int64_t)mine)
        return status;
    switch (worst) {
    case NO_ROOM: return plm_fail(l->err, PLM_ERR_OUT_OF_DEVICE, "another rank has no room");
    case LOST: return plm_fail(l->err, PLM_ERR_LOST, "another rank lost its device");
    default: return plm_fail(l->err, PLM_ERR_CANCELLED, "another rank failed");
    }
}

// ---- readings ----

void plm_loop_put_reading(struct plm_plan_input *in, const struct plm_stress_reading *r)
{
    in->T = r->T;
    in->F = r->F;
    in->O = r->O;
    in->K = r->K;
    in->process_use = r->process_use;
    in->n_cgroups = r->n_cgroups;
    memcpy(in->cgroups, r->cgroups, sizeof(in->cgroups));
    // The margin lies outside the line, whether it is free or held as ballast.
    in->O -= r->ballast;
    in->F += r->ballast;
    if (in->process_use != PLM_PLAN_UNKNOWN)
        in->process_use -= r->ballast;
    for (uint32_t i = 0; i < in->n_cgroups; i++)
        in->cgroups[i].current -= r->ballast;
}

int plm_loop_read(struct plm_loop *l, struct plm_plan_input *in)
{
    struct plm_stress_reading r;
    int status = l->ops->read(l->ops->ctx, &r);
    if (status != PLM_OK)
        return plm_loop_fail(l, status, "the device's memory could not be read");
    plm_loop_put_reading(in, &r);
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

static void pause_ns(const struct plm_loop *l, int64_t ns)
{
    l->opts->clock->sleep_ns(l->opts->clock->ctx, ns);
}

void plm_loop_pause(const struct plm_loop *l)
{
    pause_ns(l, READ_PAUSE_NS);
}

// A reading that has less in use than we hold is older than our last allocation.
static bool sees_us(const struct plm_plan_input *in)
{
    const int64_t use = in->process_use != PLM_PLAN_UNKNOWN ? in->process_use : in->T - in->F;
    return use > in->O - in->g;
}

int plm_loop_snapshot(struct plm_loop *l)
{
    struct plm_plan_input before = l->in;
    int r = l->ops->empty_cache(l->ops->ctx);
    if (r != PLM_OK)
        return plm_loop_fail(l, r, "the caches could not be emptied");
    if ((r = plm_loop_read(l, &before)) != PLM_OK)
        return r;
    l->res->settled = false;
    for (l->res->reads = 1; l->res->reads < PLM_PROFILE_READS; before = l->in) {
        pause_ns(l, sees_us(&before) ? READ_PAUSE_NS : LAG_PAUSE_NS);
        if ((r = plm_loop_read(l, &l->in)) != PLM_OK)
            return r;
        l->res->reads++;
        l->res->settled = equal_within_g(&before, &l->in) && sees_us(&l->in);
        // Also within g: which of the two came last must not matter to the plan.
        if (l->res->settled || l->res->reads == PLM_PROFILE_READS)
            take_worse(&l->in, &before);
        if (l->res->settled)
            return PLM_OK;
    }
    plm_logf(l->opts->log, PLM_LOG_WARN,
             "memory readings did not settle in %d tries; the lower one is used",
             PLM_PROFILE_READS);
    return PLM_OK;
}

int64_t plm_loop_watched(const struct plm_plan_input *in)
{
    int64_t bytes =
        in->process_use != PLM_PLAN_UNKNOWN ? in->process_use - in->O : in->T - in->F - in->O;
    return plm_round_up_i64(bytes, in->g);
}
