// SPDX-License-Identifier: Apache-2.0
// What a start plans with: what was asked for, and what is chosen where nothing was (defaults.c).
#ifndef PLM_ENGINE_DEFAULTS_H
#define PLM_ENGINE_DEFAULTS_H

#include <stdint.h>

struct plm_caps;
struct plm_core;
struct plm_profile_opts;
struct plm_stress_reading;

// Sequences of a step where no number was asked for.
#define PLM_DEFAULT_SEQUENCES 8

// Fills core->chosen with the limits asked for, and where none were, with sensible ones for a
// device with this reading; what we hold ourselves does not matter. Call it before
// plm_core_profile_opts.
void plm_core_choose(struct plm_core *core, const struct plm_caps *caps,
                     const struct plm_stress_reading *reading);
// Fills the profile loop's options for a device with these capabilities and slabs_used slabs of
// ours.
void plm_core_profile_opts(const struct plm_core *core, const struct plm_caps *caps,
                           uint64_t slabs_used, struct plm_profile_opts *ret);

#endif
