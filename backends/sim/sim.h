// SPDX-License-Identifier: Apache-2.0
// The simulated device: a script of what a driver may do, around a backend that computes for real
// or around none. Without an inner backend it takes no time and has addresses but no bytes: copies
// in are dropped, copies out give zeros. Deterministic: what happens depends on the script and on
// how many calls of each kind were made, never on time or chance.
//
// Zero means "does not happen" in every field of the script, so that a test names only what it is
// about. Counts are 1-based: fail_alloc_nth = 1 fails the first allocation.
#ifndef PLM_SIM_SIM_H
#define PLM_SIM_SIM_H

#include <stdatomic.h>

#include "core/backend.h"

extern const struct plm_backend plm_sim_backend;

// ---- a virtual clock ----

// Time that moves only when it is told to: by plm_sim_clock_advance, by a sleep on it, and by
// submits (plm_sim_opts.submit_ns, dispatch_ns). Any thread.
struct plm_sim_clock {
    _Atomic int64_t now_ns;
};
// Starts at one second, since a clock that reads 0 hides mistakes.
void plm_sim_clock_init(struct plm_sim_clock *clock);
void plm_sim_clock_advance(struct plm_sim_clock *clock, int64_t ns);
// For plm_device_opts.clock and everything else that takes one; `clock` must outlive it.
struct plm_clock plm_sim_clock_source(struct plm_sim_clock *clock);

// ---- the world around the device ----

// What outlives one open device: counts go on over a reopen, so that "lost at the third submit"
// happens once. Owned by the test, which may read it at any time and set what is marked so. All
// zeros is a fresh world.
struct plm_sim_world {
    _Atomic uint64_t opens;
    _Atomic uint64_t queries;     // of query_free, and those that empty_cache makes
    _Atomic uint64_t allocs;      // calls, whatever they returned
    _Atomic uint64_t submits;     // calls, whatever they returned
    _Atomic uint64_t launches;    // dispatches appended
    _Atomic uint64_t taken_bytes; // in live slabs, in granules
    _Atomic uint64_t peak_taken_bytes;
    _Atomic uint64_t driver_bytes;  // context and code of the open device
    _Atomic uint64_t foreign_bytes; // settable: added to the scripted neighbours
    _Atomic uint32_t lose;          // settable: 1 loses the device at its next call
};

// ---- the script ----

// From the at_query-th query_free on, other processes hold so many bytes; until the first event
// none. Ascending by at_query.
struct plm_sim_event {
    uint64_t at_query;
    uint64_t foreign_bytes;
};

enum plm_sim_lie {
    PLM_SIM_HONEST,
    PLM_SIM_STALE,            // what was true at the query before the lie began
    PLM_SIM_FREE_ABOVE_TOTAL, // free = total + 1 granule
    PLM_SIM_ALL_ZERO,         // total = free = 0, as some drivers answer before they are ready
    PLM_SIM_USE_ABOVE_TOTAL,  // process use underflowed
    PLM_SIM_QUERY_FAILS,      // PLM_ERR_IO
};

struct plm_sim_opts {
    // Computes for real; its device_opts are those of the simulated device, with backend_opts from
    // here. It must be on unified memory (the CPU): slabs are address space that the simulated
    // device owns, and pages become real when they are written. NULL: no bytes.
    const struct plm_backend *inner;
    const void *inner_opts;
    struct plm_sim_world *world; // NULL: the device has one of its own
    struct plm_sim_clock *clock; // NULL: submits take no time

    uint64_t capacity_bytes;      // must be set
    uint64_t granularity_bytes;   // 0: 2 MiB
    uint64_t max_slab_bytes;      // larger: TOO_LARGE. 0: the capacity
    uint32_t max_slabs;           // 0: 65,536
    uint64_t context_bytes;       // taken at open, given back at close
    uint64_t kernel_bytes;        // taken when an op is first launched, or for all ops by warm_up
    uint64_t withheld_bytes;      // reported free but never given
    uint64_t shown_context_bytes; // what caps say of the context; 0: the truth
    enum plm_commit commit;
    bool unified;
    bool hides_process_use; // caps.reports_process_use is false

    // Levels above the process; the bytes of slabs and driver are added to what they hold.
    struct plm_cgroup cgroups[PLM_CGROUP_LEVELS];
    uint32_t n_cgroups;

    const struct plm_sim_event *events; // must outlive the device
    size_t n_events;
    enum plm_sim_lie lie;
    uint64_t lie_from_query; // 0: from the first
    uint64_t lie_to_query;   // last one; 0: for ever

    uint64_t fail_alloc_nth;         // OUT_OF_DEVICE
    uint64_t fail_alloc_times;       // so many in a row; 0: one
    uint64_t fail_alloc_above_bytes; // OUT_OF_DEVICE for every larger slab

    uint64_t fail_submit_nth;   // OUT_OF_DEVICE: nothing runs, the list stays
    uint64_t fail_submit_times; // so many in a row; 0: one
    uint64_t lost_submit_nth;   // LOST, until the device is reopened
    int64_t submit_ns;          // time of a submit on the virtual clock
    int64_t dispatch_ns;        // and of each dispatch in it
};

#endif
