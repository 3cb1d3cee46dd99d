// SPDX-License-Identifier: Apache-2.0
// Steps in flight: submitted, and not waited for yet (inflight.c).
#ifndef PLM_ENGINE_INFLIGHT_H
#define PLM_ENGINE_INFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/engine/forward.h"
#include "core/sched/sample.h"
#include "core/sched/sched.h"

// A step between its submit and its retirement.
struct plm_inflight {
    struct plm_shape shape;
    struct plm_run run;
    struct plm_seq *const *seqs; // [shape.logits_rows], one a row of logits; NULL: it has left
    struct plm_seq **kept;       // [max_sequences], where seqs lies while it is in flight; or NULL
    uint64_t attended;           // positions that its rows look at, summed
    int64_t begin_ns;
};

// One step ahead.
struct plm_ahead {
    struct plm_inflight slots[2];
    struct plm_inflight *current;    // the step that was submitted and not retired; NULL: none
    int32_t *source_rows;            // [max_sequences] of a chained step: the row before of each
    struct plm_sample_row *sampling; // [max_sequences] of a step; NULL: the device does not sample
    uint32_t waited;                 // sequences that waited when a step was last formed on its own
    bool left;                       // one has left since
    uint32_t n;                      // steps that were formed ahead since
};

// Allocates for steps of max_sequences: sampling parameters where the device samples, and the lists
// of steps in flight where the model runs ahead.
int plm_inflight_init(struct plm_ahead *ahead, const struct plm_core *core, uint32_t max_sequences);
// Call it with no step in flight; also after an init that failed.
void plm_inflight_finish(struct plm_ahead *ahead, const struct plm_core *core);
// Waits for the step in flight and drops its tokens.
void plm_inflight_abandon(struct plm_ahead *ahead, struct plm_core *core);
// Copies the list of sequences, since the scheduler forms the next step before this one is retired.
void plm_inflight_keep(struct plm_inflight *step);
// Erases a sequence that leaves the scheduler from the steps in flight.
void plm_inflight_forget(struct plm_ahead *ahead, const struct plm_seq *seq);

#endif
