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

// What a step left for sampling. NULL among seqs: nobody's row.
struct plm_step_output {
    const struct plm_run *run; // it has ended
    struct plm_seq *const *seqs;
    uint32_t rows;
    const struct plm_argmax_record *best; // of every row; NULL: the rows themselves are looked at
};
// Looks at all logits before any is used: nothing of a step with a wrong number is delivered.
// PLM_OK, NUMERIC, LOST. *ret_culprit: the one request whose logits are wrong where those of others
// are not, or NULL: a prompt that has no logits in this step may have spoilt all there are.
int plm_output_check(struct plm_core *core, struct plm_step_output *step,
                     struct plim_request **ret_culprit);
// Whether the device finds the next token of each of them without the host.
bool plm_output_is_drawn(const struct plm_core *core, struct plm_seq *const *seqs, uint32_t n);
// How the device is to draw a token of each: the next one, or with `ahead` the one after it, which
// is the same whatever the next one is. Rows that the host looks at are as good as any.
void plm_output_sampling(const struct plm_core *core, struct plm_seq *const *seqs, uint32_t n,
                         bool ahead, struct plm_sample_row *ret);
// The token that row i gives its choice. LOST: it could not be read.
int plm_output_token(struct plm_core *core, const struct plm_step_output *step, uint32_t i,
                     struct plm_sample_out *ret);

#endif
