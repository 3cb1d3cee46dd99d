// SPDX-License-Identifier: Apache-2.0
// Makes the KV cache follow the line between steps (pressure.c).
#ifndef PLM_ENGINE_PRESSURE_H
#define PLM_ENGINE_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/plan/line.h"

struct plim_engine;

// Whether steps take much longer than the baseline.
struct plm_slow {
    bool on;          // memory of ours was pushed out
    bool gives;       // the cache must free what is not in use
    uint32_t over;    // slow steps in a row
    uint32_t calm;    // normal steps in a row
    int64_t since_ns; // when it came on
};

// How the KV cache follows the line.
struct plm_pressure {
    struct plm_line line;
    uint32_t line_blocks; // size of the pool when the line last set it
    struct plm_slow slow;
    uint64_t moved_blocks; // by evacuations
    bool disagrees;        // ledger and driver did at the last reading
};

void plm_pressure_init(struct plim_engine *engine);
// The first thing of every step: true if it changed the pool, which it leaves alone while the
// engine sleeps.
bool plm_pressure_step(struct plim_engine *engine, int64_t now_ns, bool asleep);
// Whether plm_pressure_step() has anything to do.
bool plm_pressure_due(struct plim_engine *engine, int64_t now_ns);
// Gives or takes slabs until the pool has `blocks` blocks, and counts them. Codes and the end of
// shrinking as of plm_kv_pool_resize.
int plm_pressure_resize(struct plim_engine *engine, uint32_t blocks);
// A forward of these rows, which looked at so many positions, took core->forward_ns. Where a driver
// pushes our memory out, nothing else may say so: several steps in a row that take far longer than
// the baseline are pressure, and end by themselves.
void plm_pressure_ran(struct plim_engine *engine, uint32_t rows, uint64_t attended);

#endif
