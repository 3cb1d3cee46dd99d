// SPDX-License-Identifier: Apache-2.0
// A world's device behind a real backend: Vulkan above the fault layer, CUDA and HIP above the fake
// drivers, whose null mode (tests/support/null_script.h) asks the simulated device. So memory,
// budgets, failures and losses are the world's, and all host code of the backend is its own.
// Weights are not read, as there are no bytes. One at a time and process.
#ifndef PLM_TESTS_WORLDS_SCRIPTED_H
#define PLM_TESTS_WORLDS_SCRIPTED_H

#include "backends/sim/world.h"
#include "tests/worlds/observe.h"

enum scripted_there { SCRIPTED_READY, SCRIPTED_ABSENT, SCRIPTED_BROKEN };

// Whether the backend of that name, and the layer or the fake driver are there; why not in *why.
enum scripted_there scripted_prepare(const char *backend, char why[512]);
// What of the world this backend can not be shown; NULL: all of it can. Static text.
const char *scripted_lacks(const struct plm_world *world);

// The backend to open, with no options of its own. What is passed must outlive it.
const struct plm_backend *scripted_begin(const struct plm_sim_opts *device,
                                         const struct plm_clock *clock,
                                         const struct observer *observer);
// The device is closed. False: there was no host memory, or some is left.
bool scripted_end(void);

#endif
