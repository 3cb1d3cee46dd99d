// SPDX-License-Identifier: Apache-2.0
// What the files of the loop share: profile.c (workspace, target, order of the steps),
// profile_read.c (readings, ranks), profile_stress.c (probe and stress), profile_prove.c (resize,
// validation, shrink).
//
// Several ranks walk the loop in lockstep: whatever happens to one of them, all make the same calls
// of min_of_ranks in the same order. So every step that may fail on one rank alone ends in
// plm_loop_agree(), and every branch that makes such calls depends on agreed values only.
#ifndef PLM_PLAN_PROFILE_IMPL_H
#define PLM_PLAN_PROFILE_IMPL_H

#include "core/plan/profile.h"

struct plm_loop {
    const struct plm_profile_opts *opts;
    const struct plm_stress_ops *ops;
    struct plm_profile *res;
    struct plm_error *err;
    struct plm_plan_input in; // as of the last snapshot
    int64_t peak;             // own_drv (or foreign) over the measured passes, -1: none yet
    int64_t calls;            // foreign's growth over the cold pass, where process use is unknown
    int64_t failed_bytes;     // of the last slab that was refused in this attempt, 0: none
    int64_t failed_free;      // reported free then
    int64_t slow_bytes;       // that this attempt found not to be on the device
    // What an earlier start measured, while it stands for a stress of this one; else NULL.
    const struct plm_profile *measured;
    uint32_t blocks;      // of the pool now
    uint64_t done, total; // progress of the stage
    bool stressed;        // all passes ran once, on every rank
    bool lost;            // this rank's device, at the last agreement
    bool gone;            // another rank is
    bool trial;           // of a value to suggest: nothing is suggested in turn
    bool last_word;       // err says why; no retry can help
};

// ---- profile_read.c ----

void plm_loop_progress(const struct plm_loop *l, const char *stage, uint64_t done, uint64_t total);
void plm_loop_advance(struct plm_loop *l, const char *stage);
bool plm_loop_no_room(int status);
// What a smaller size or a new device may cure.
bool plm_loop_can_retry(const struct plm_loop *l, int status);
int plm_loop_fail(struct plm_loop *l, int status, const char *what);
bool plm_loop_pinned(const struct plm_loop *l);
uint32_t plm_loop_least_blocks(const struct plm_loop *l);

// The smallest of all ranks' values, which are at least 0; 0 also where a rank is gone.
int64_t plm_loop_min(struct plm_loop *l, int64_t value);
// The worst of all ranks' results: this rank's own where none is worse.
int plm_loop_agree(struct plm_loop *l, int status);

void plm_loop_put_reading(struct plm_plan_input *in, const struct plm_stress_reading *reading);
int plm_loop_read(struct plm_loop *l, struct plm_plan_input *in);
// Idle, caches emptied, two readings equal within g, into l->in. Where they never are, the worse of
// the last two counts.
int plm_loop_snapshot(struct plm_loop *l);
// Waits as long as a driver's readings lag.
void plm_loop_pause(const struct plm_loop *l);
// What the monitor watches: own_drv, or foreign where the process's use is unknown.
int64_t plm_loop_watched(const struct plm_plan_input *in);

// ---- profile.c ----

// The pool: empty, or with the slabs of a rule. PLM_OK also where the device gave less, as long as
// that is one block per sequence.
int plm_loop_pool_resize(struct plm_loop *l, uint32_t blocks);
int plm_loop_pool_take(struct plm_loop *l, const struct plm_slab_rule *rule, uint32_t blocks);
// Takes the workspace for the limits in l->in; where the device has no room for it, for lower ones.
int plm_loop_take_workspace(struct plm_loop *l);
// Takes a snapshot and plans; lowers the limits until one whole request finishes.
int plm_loop_plan(struct plm_loop *l, struct plm_plan *ret);
// From the workspace to a proved pool beside its ballast.
int plm_loop_whole(struct plm_loop *l, struct plm_plan *plan);
// Reopens a device that was lost; its ranks give back pool and ballast and take the workspace
// again.
int plm_loop_reopen(struct plm_loop *l);

// ---- profile_stress.c, profile_prove.c ----

int plm_loop_pass(struct plm_loop *l, enum plm_stress_kind kind, unsigned flags, bool validation);
int plm_loop_stress(struct plm_loop *l);
// The same with one block, for the limits as they are.
int plm_loop_stress_small(struct plm_loop *l);
// Captures graphs over a pool that is taken for it and given back: on a device without stress.
int plm_loop_capture(struct plm_loop *l);
int plm_loop_prove(struct plm_loop *l, struct plm_plan *plan);
// What the planner can not know, on a device that gives less than it says, is tried: the last word
// names values that passed here.
int plm_loop_fail_by_trial(struct plm_loop *l, const struct plm_plan *failed, const char *what);
// A plan from what an earlier start measured, validated once. PLM_OK with *ret_taken false where it
// did not hold; everything but the workspace is given back then.
int plm_loop_take_certified(struct plm_loop *l, struct plm_plan *ret, bool *ret_taken);

#endif
