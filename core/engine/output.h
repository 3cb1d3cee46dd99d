// SPDX-License-Identifier: Apache-2.0
// What a step leaves: logits, records of the device, and the tokens that they give (output.c).
#ifndef PLM_ENGINE_OUTPUT_H
#define PLM_ENGINE_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sched/sample.h"
#include "core/sched/sched.h"

struct plim_request;
struct plm_core;
struct plm_run;

// The output of a step that ended. A NULL among seqs: the row's sequence has left.
struct plm_step_output {
    const struct plm_run *run; // it has ended
    struct plm_seq *const *seqs;
    uint32_t rows;
    const struct plm_argmax_record *best; // of every row; NULL: the rows themselves are looked at
};
// Checks all logits before any is used: nothing of a step with a value that is not finite is
// delivered. PLM_OK, NUMERIC, LOST. *ret_culprit: the only request with wrong logits while those of
// others are right; else NULL, since a prompt without logits in this step may have spoilt all.
int plm_output_check(struct plm_core *core, struct plm_step_output *step,
                     struct plim_request **ret_culprit);
// Whether the device samples the next token of all of them without the host.
bool plm_output_is_drawn(const struct plm_core *core, struct plm_seq *const *seqs, uint32_t n);
// Fills the parameters by which the device samples a token of each: the next one, or with `ahead`
// the one after it, whose parameters do not depend on the next one. Rows that the host samples are
// 0.
void plm_output_sampling(const struct plm_core *core, struct plm_seq *const *seqs, uint32_t n,
                         bool ahead, struct plm_sample_row *ret);
// Samples the token of row i. LOST: the row could not be read.
int plm_output_token(struct plm_core *core, const struct plm_step_output *step, uint32_t i,
                     struct plm_sample_out *ret);

#endif
