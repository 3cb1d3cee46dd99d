// SPDX-License-Identifier: Apache-2.0
// Forwards on the core's workspace (forward.c). Whoever runs one works on the core, too.
#ifndef PLM_ENGINE_FORWARD_H
#define PLM_ENGINE_FORWARD_H

#include <stdint.h>

#include "core/engine/core.h"
#include "core/model/model.h"
#include "core/plan/profile.h"

// A forward that was submitted.
struct plm_run {
    uint64_t value; // of the timeline
    int64_t start_ns, cost;
    struct plm_forward_out out;
    uint64_t results_addr; // for plm_forward.chained of the next one; 0: it leaves no results
    // As results_addr for the host, once it ended; NULL: it leaves none.
    const struct plm_argmax_record *results;
    uint64_t guard_at; // from results on
};

// Takes the memory for results of steps up to this shape, in place of what there was; nothing where
// the model does not run ahead.
int plm_core_take_results(struct plm_core *core, const struct plm_shape *worst);
void plm_core_drop_results(struct plm_core *core);
// Submits one forward. While sealed, a submit that finds no room is made once more without the
// ballast, but not where tokens are chained; OUT_OF_DEVICE: nothing ran. The results of the last
// forward but two are overwritten.
int plm_core_submit(struct plm_core *core, const struct plm_forward *forward, struct plm_run *ret);
// Waits for it. TIMEOUT: it runs longer than the watchdog allows, and may still run. LOST also
// where its results did not come.
// *ret_used_bytes (may be NULL): workspace that it was seen to use; above cost() where the guard
// behind what kernels write was written. Looks at results alone where it leaves some, so that
// others may be submitted after it.
int plm_core_wait(struct plm_core *core, const struct plm_run *run, int64_t *ret_used_bytes);
// Row i of the logits for the host; NULL: the device was lost.
const float *plm_core_logits(struct plm_core *core, uint64_t logits, uint32_t i);
// The records of all rows of a step that ended and found them; NULL: the device was lost.
const struct plm_argmax_record *plm_core_best(struct plm_core *core, const struct plm_run *run,
                                              uint32_t rows);
// One dummy forward of this shape and spread (step->kind does not count) on core's workspace and
// pool, with plm_forward_flags; tuner: with TUNING. *ret as plm_core_submit.
int plm_core_dummy_step(struct plm_core *core, const struct plm_stress_step *step, unsigned flags,
                        const struct plm_tuner *tuner, struct plm_forward_out *ret,
                        struct plm_error *err);
// Gives the ballast back: room for such a submit.
void plm_core_drop_ballast(struct plm_core *core);

#endif
