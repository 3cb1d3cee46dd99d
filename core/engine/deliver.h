// SPDX-License-Identifier: Apache-2.0
// From sampled tokens to text (deliver.c).
#ifndef PLM_ENGINE_DELIVER_H
#define PLM_ENGINE_DELIVER_H

struct plim_engine;
struct plm_step_output;

// Chooses the tokens of a step and delivers what they mean: text, stop, end.
void plm_deliver(struct plim_engine *engine, const struct plm_step_output *step);

#endif
