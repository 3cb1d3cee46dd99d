// SPDX-License-Identifier: Apache-2.0
#include "core/base/work.h"

// Some ten milliseconds: rarely enough that asking costs nothing, often enough for a client who
// left.
#define STEPS_PER_QUESTION 100000

static _Thread_local struct plm_work *thread_work;
static _Thread_local plm_cancelled_fn *thread_cancelled;
static _Thread_local void *thread_ctx;

void plm_work_ask(plm_cancelled_fn *cancelled, void *ctx)
{
    thread_cancelled = cancelled;
    thread_ctx = ctx;
}

void plm_work_start(struct plm_work *work, uint64_t steps)
{
    *work = (struct plm_work){
        .steps_left = steps, .ask_at = steps, .cancelled = thread_cancelled, .ctx = thread_ctx};
    thread_work = work;
}

void plm_work_stop(void)
{
    thread_work = NULL;
}

int plm_work_step(uint64_t steps)
{
    struct plm_work *work = thread_work;
    if (work == NULL || work->status != PLM_OK)
        return work == NULL ? PLM_OK : work->status;
    if (steps > work->steps_left) {
        work->steps_left = 0;
        return work->status = PLM_ERR_LIMIT;
    }
    work->steps_left -= steps;
    if (work->steps_left > work->ask_at)
        return PLM_OK;
    work->ask_at =
        work->steps_left > STEPS_PER_QUESTION ? work->steps_left - STEPS_PER_QUESTION : 0;
    if (work->cancelled != NULL && work->cancelled(work->ctx))
        work->status = PLM_ERR_CANCELLED;
    return work->status;
}

int plm_work_check(uint64_t steps, const char *what, struct plm_error *err)
{
    const int r = plm_work_step(steps);
    if (r == PLM_ERR_CANCELLED)
        return plm_fail(err, r, "the caller cancelled");
    return r == PLM_OK ? PLM_OK
                       : plm_fail(err, r, "%s takes more than %llu steps of work", what,
                                  (unsigned long long)PLM_WORK_STEPS_MAX);
}
