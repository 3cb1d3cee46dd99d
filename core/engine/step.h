// SPDX-License-Identifier: Apache-2.0
// One step of the engine (step.c).
#ifndef PLM_ENGINE_STEP_H
#define PLM_ENGINE_STEP_H

#include <stdbool.h>
#include <stdint.h>

struct plim_engine;

// Waits for the step in flight and delivers it; what comes next finds none.
void plm_step_drain(struct plim_engine *engine);
// Takes in what was submitted and cancelled, and runs one step. Returns whether there was
// work.
bool plm_step(struct plim_engine *engine, int64_t now_ns);

#endif
