// SPDX-License-Identifier: Apache-2.0
// Fault bisection (bisect.c). A step that fails is not delivered; since it is idempotent its
// requests, the candidates, are replayed: a probe of them alone, the others waiting. A probe that
// fails becomes the candidates; one that passes is cleared. Halves find the request in log2(n) + 1
// probes; where each failure costs the device, one by one costs a single one. Only that request
// ends; replayed ones go on with the same text.
#ifndef PLM_ENGINE_BISECT_H
#define PLM_ENGINE_BISECT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/plimsoll.h"
#include "core/sched/sched.h"

struct plim_request;

struct plm_bisect {
    struct plm_sched *sched;
    plim_metrics *counts;
    struct plim_request **candidates; // [max_sequences] by arrival
    uint32_t n;                       // 0: no bisection
    uint32_t n_probe;                 // the first ones, which alone have rows now
    uint32_t n_faulty;                // the first ones, once n is 0: they are to end
    bool one_by_one;                  // each failure costs the device: no halves
};

// Memory for a bisection among so many sequences. PLM_ERR_NOMEM_HOST.
int plm_bisect_init(struct plm_bisect *bisect, struct plm_host *host, struct plm_sched *sched,
                    plim_metrics *counts, uint32_t max_sequences);
void plm_bisect_finish(struct plm_bisect *bisect, struct plm_host *host);
// A step failed with `status`, and culprit (may be NULL) is known to be the cause. Instead of
// plm_sched_commit.
void plm_bisect_failed(struct plm_bisect *bisect, int status, struct plim_request *culprit);
// The device was lost, for the loss-th time, in the step that was formed or before one. Of its
// requests those are faulty that were replayed alone, and, where the device was lost only just
// before (`again`), all that were in flight then, too. The others become candidates. Before
// plm_sched_park.
void plm_bisect_lost(struct plm_bisect *bisect, uint64_t loss, bool again);
// After both: a request whose fault it must be, for the caller to end; NULL: there is none left.
struct plim_request *plm_bisect_take_faulty(struct plm_bisect *bisect);
// A step of the bisection passed.
void plm_bisect_passed(struct plm_bisect *bisect);
// A candidate ended.
void plm_bisect_drop(struct plm_bisect *bisect, struct plim_request *request);
// The bisection has no rows to run: whether there is now a reason to form a step again.
bool plm_bisect_make_room(struct plm_bisect *bisect);
void plm_bisect_end(struct plm_bisect *bisect);

#endif
