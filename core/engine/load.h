// SPDX-License-Identifier: Apache-2.0
// The device and the weights on it: at the start, and again when the device was lost (load.c).
#ifndef PLM_ENGINE_LOAD_H
#define PLM_ENGINE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/backend.h"
#include "core/base/status.h"

struct plm_core;

// Opens the device that the options name.
int plm_core_open_device(struct plm_core *core, struct plm_error *err);
// Takes the arena of the weights and fills it from the file; every kernel has run once then.
int plm_core_take_weights(struct plm_core *core, struct plm_error *err);
// Closes the device, which is lost or hung, opens it again and loads the weights; workspace,
// weights and ballast of before are given up. The pool must hold no slab. May be called again after
// a failure.
int plm_core_reopen(struct plm_core *core, struct plm_error *err);
// Enters a phase: the ledger keeps its peaks under it, and the backend is notified.
void plm_core_phase(struct plm_core *core, enum plm_phase phase);
// Reports to opts.progress. False: the callback stopped the start, which ends with the error of
// plm_core_stopped(): CANCELLED.
bool plm_core_progress(struct plm_core *core, const char *stage, uint64_t done, uint64_t total);
int plm_core_stopped(struct plm_error *err);

#endif
