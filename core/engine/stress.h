// SPDX-License-Identifier: Apache-2.0
// The stress of a start, and how other phases move the same memory and run the same steps
// (stress.c).
#ifndef PLM_ENGINE_STRESS_H
#define PLM_ENGINE_STRESS_H

#include <stdint.h>

#include "core/base/status.h"

struct plm_core;
struct plm_stress_ops;

// Checks from a reading and the model's numbers, before the load, whether a start can succeed.
int plm_core_preflight(struct plm_core *core, uint64_t weight_bytes, struct plm_error *err);
// The stress loop, into core->profile.
int plm_core_profile(struct plm_core *core, struct plm_error *err);
// What the stress works with: how other phases move the same memory and run the same steps.
void plm_core_stress_ops(struct plm_core *core, struct plm_stress_ops *ret);
// Captures graphs, writes and reads every slab of the pool, which must hold nothing, and runs the
// worst steps: for a device that was opened anew after READY.
int plm_core_validate(struct plm_core *core, struct plm_error *err);
// The same where only the pool is new: every slab, and a decode at full context over its blocks.
int plm_core_validate_pool(struct plm_core *core, struct plm_error *err);

#endif
