// SPDX-License-Identifier: Apache-2.0
// Work on one request by one thread, counted in steps, so that it ends: after a budget, or soon
// after nobody wants its result any more. What loops over foreign input reports its steps here; it
// needs no argument for that, as the meter of host memory (alloc.h) needs none.
#ifndef PLM_BASE_WORK_H
#define PLM_BASE_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

// A step is about a tenth of a microsecond of one core: an evaluated node of a template, a token of
// a text, or so many bytes that are only looked at.
#define PLM_WORK_BYTES_PER_STEP  64
#define PLM_WORK_BYTES_PER_TOKEN 4 // of text that is cut into tokens

// Of one call: about two seconds. The longest known chat of 100,000 tokens takes a tenth of it.
#define PLM_WORK_STEPS_MAX UINT64_C(20000000)

// Whether nobody wants the result any more; asked on the working thread, every few milliseconds.
typedef bool plm_cancelled_fn(void *ctx);

struct plm_work {
    uint64_t steps_left;
    uint64_t ask_at; // steps_left at which the question is due
    plm_cancelled_fn *cancelled;
    void *ctx;
    int status; // of the first refusal, which is that of all later ones
};

// The question of the calling thread's works from here on; NULL: none.
void plm_work_ask(plm_cancelled_fn *cancelled, void *ctx);
// From here to plm_work_stop() the thread's steps count against a budget; at most one at a time.
void plm_work_start(struct plm_work *work, uint64_t steps);
void plm_work_stop(void);

// Counts steps of the calling thread. PLM_OK, also where no work was started; CANCELLED; LIMIT.
int plm_work_step(uint64_t steps);
// The same with a sentence about it: "what" is what took the steps.
int plm_work_check(uint64_t steps, const char *what, struct plm_error *err);

#endif
