// SPDX-License-Identifier: Apache-2.0
// A backend that stands between the engine and the simulated device and keeps its own books: what
// is held, its peaks under the phases that the engine names, and what was taken when. The engine's
// ledger and counters are compared with it.
#ifndef PLM_TESTS_WORLDS_OBSERVE_H
#define PLM_TESTS_WORLDS_OBSERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/sim/sim.h"

struct observer {
    struct plm_sim_world world; // the simulated device's own counts
    int64_t held_bytes, peak_held_bytes;
    int64_t phase_peak_bytes[PLM_PHASES];
    enum plm_phase phase;
    bool serving;         // READY
    bool recording;       // a list is open: a step is under way
    bool warming;         // kernels run once
    uint64_t late_allocs; // slabs taken meanwhile, after READY
    bool lost;            // until it is opened again
    uint64_t losses;      // times that it was
    uint64_t refused;     // submits that were refused for memory
    uint64_t opens;
};

// Open it as the backend below. One observed device at a time and process.
extern struct plm_backend observed_backend; // filled by observe()
// From here on `observer` keeps the books of this backend.
void observe(struct observer *observer, const struct plm_backend *backend);
// What nobody holds of the device; below 0 where it is over-committed.
int64_t observed_left(const struct observer *observer, const struct plm_sim_opts *device);

#endif
