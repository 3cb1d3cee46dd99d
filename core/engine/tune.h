// SPDX-License-Identifier: Apache-2.0
// Autotune: which variants of ops run (tune.c), and again on a device that was reopened (tuned.c).
#ifndef PLM_ENGINE_TUNE_H
#define PLM_ENGINE_TUNE_H

#include <stdint.h>

#include "core/backend.h"
#include "core/base/status.h"
#include "core/plan/tuning.h"
#include "kernels/abi.h"

struct plm_core;
struct plm_device;

// What autotune chose.
struct plm_tune {
    struct plm_tuning found;
    // The arguments behind found.entries, for a device that is opened again.
    struct {
        enum plm_op op;
        uint32_t index;
        union {
            struct plm_matmul_args matmul;
            struct plm_attention_args attention;
        } args;
    } made[PLM_TUNING_ENTRIES_MAX];
};

// Chooses variants of ops, from opts.tuning or by timing them. Before the profile; leaves
// no device memory behind. What can not be tuned runs as it would without: only LOST and NOMEM_HOST
// fail.
int plm_core_tune(struct plm_core *core, struct plm_error *err);
// Chooses the same again on a device that was reopened.
void plm_tune_again(const struct plm_tune *tune, struct plm_device *device);

#endif
