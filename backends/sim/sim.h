// SPDX-License-Identifier: Apache-2.0
// The simulated device: a script of what a driver may do, around a backend that computes for real
// or around none. Without an inner backend it has addresses but no bytes (caps.addresses_only): of
// what the host copies in, only the last small ranges read back as written, all else reads as
// zeros. Deterministic: what happens depends on the script, on how many calls of each kind were
// made, and on the clock of the device's options, never on chance.
//
// Zero means "does not happen" in every field of the script, so that a test names only what it is
// about. Counts are 1-based: the first allocation is number 1.
#ifndef PLM_SIM_SIM_H
#define PLM_SIM_SIM_H

#include <stdatomic.h>

#include "core/backend.h"

extern const struct plm_backend plm_sim_backend;

// ---- a virtual clock ----

// Time that moves only when it is told to: by plm_sim_clock_advance and by a sleep on it, which is
// how the device waits for what was submitted. Any thread.
struct plm_sim_clock {
    _Atomic int64_t now_ns;
};
// Starts at one second, since a clock that reads 0 hides mistakes.
void plm_sim_clock_init(struct plm_sim_clock *clock);
void plm_sim_clock_advance(struct plm_sim_clock *clock, int64_t ns);
// For plm_device_opts.clock and everything else that takes one; `clock` must outlive it.
struct plm_clock plm_sim_clock_source(struct plm_sim_clock *clock);

// ---- events ----

// Counts and times go on over a reopen; each event happens once.
enum plm_sim_when {
    PLM_SIM_AT_QUERY,  // the at-th query_free
    PLM_SIM_AT_ALLOC,  // the at-th allocation, before it is checked
    PLM_SIM_AT_SUBMIT, // the at-th submit, before it runs
    PLM_SIM_AT_STEP,   // the at-th step after READY
    PLM_SIM_AT_PHASE,  // enum plm_phase: where it is first entered
    PLM_SIM_AT_TIME,   // nanoseconds from the first open; seen at the next call
};

enum plm_sim_what {
    PLM_SIM_FOREIGN,      // other processes hold `value` bytes
    PLM_SIM_FOREIGN_BY,   // they take `value` bytes more; below 0: they give so many back
    PLM_SIM_HOST,         // unified: the host's view says that there are `value` bytes
    PLM_SIM_LIE,          // the next `value` readings are wrong as `lie` says; 0: all from here
    PLM_SIM_FAIL_ALLOCS,  // the next `value` allocations are OUT_OF_DEVICE
    PLM_SIM_FAIL_SUBMITS, // the next `value` submits are: nothing runs, the list stays
    PLM_SIM_LOST,         // the device is lost until it is reopened
    PLM_SIM_HANG,         // the next submit takes `value` ns longer
    PLM_SIM_SLOW,         // submits take `value` times as long from here; 1: as before
    PLM_SIM_OVERRUN,      // the next submit writes `value` bytes into the guard of the workspace
    PLM_SIM_TAKE, // the driver itself takes `value` bytes, or what there is; below 0: returns
};

enum plm_sim_lie {
    PLM_SIM_HONEST,
    PLM_SIM_STALE,            // what was true at the query before the lie began
    PLM_SIM_FREE_ABOVE_TOTAL, // free = total + 1 granule
    PLM_SIM_ALL_ZERO,         // total = free = 0, as some drivers answer before they are ready
    PLM_SIM_USE_ABOVE_TOTAL,  // process use underflowed
    PLM_SIM_QUERY_FAILS,      // PLM_ERR_IO
    PLM_SIM_OSCILLATE,        // free is a fifth of the total too high and too low, in turn
};

struct plm_sim_event {
    enum plm_sim_when when;
    uint64_t at;
    enum plm_sim_what what;
    int64_t value;
    enum plm_sim_lie lie; // of PLM_SIM_LIE
};

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
    _Atomic uint64_t graphs;      // that were made
    _Atomic uint64_t replays;     // submits of lists that a graph is there for
    _Atomic uint64_t taken_bytes; // in live slabs, in granules
    _Atomic uint64_t peak_taken_bytes;
    _Atomic uint64_t spilled_bytes; // of taken_bytes: slow memory beyond the capacity
    _Atomic uint64_t driver_bytes;  // context and code of the open device
    _Atomic uint64_t held_back;     // freed, but not given back yet
    _Atomic uint64_t foreign_bytes; // settable: added to the scripted neighbours
    _Atomic uint32_t lose;          // settable: 1 loses the device at its next call
    // What events left behind; the device's own.
    struct plm_sim_state {
        bool started;
        int64_t start_ns, time_seen; // time_seen: events before it have happened
        uint64_t step_seen;
        uint32_t phases_seen; // a bit each
        uint64_t foreign, host;
        enum plm_sim_lie lie;
        uint64_t lie_until; // last query of the lie
        uint64_t fail_allocs, fail_submits, slow, overrun;
        int64_t hang_ns;
    } state;
};

// ---- the script ----

#define PLM_SIM_HEAPS_MAX    8
#define PLM_SIM_VARIANTS_MAX 4

// What a step with the poison token in it does.
enum plm_sim_poison {
    PLM_SIM_POISON_NONE,
    PLM_SIM_POISON_NAN,
    PLM_SIM_POISON_HANG,
    PLM_SIM_POISON_LOST
};

struct plm_sim_opts {
    // Computes for real; its device_opts are those of the simulated device, with backend_opts from
    // here. It must be on unified memory (the CPU): slabs are address space that the simulated
    // device owns, and pages become real when they are written. NULL: no bytes.
    const struct plm_backend *inner;
    const void *inner_opts;
    bool panels;                 // no inner: weights lie in panels, else as in the file
    bool hides_slabs;            // their bytes are not host-visible, as on a card of its own
    bool async;                  // caps.async: copies in do not wait for lists that run
    struct plm_sim_world *world; // NULL: the device has one of its own

    uint64_t capacity_bytes;                    // of the first heap; must be set
    uint64_t heap_bytes[PLM_SIM_HEAPS_MAX - 1]; // further ones; slabs go to the first with room
    uint32_t n_heaps;                           // of heap_bytes
    uint64_t granularity_bytes;                 // 0: 2 MiB
    uint64_t max_slab_bytes;                    // larger: TOO_LARGE. 0: the largest heap
    uint32_t max_slabs;                         // 0: 65,536
    uint64_t context_bytes;                     // taken at open, given back at close
    uint64_t kernel_bytes;        // taken when an op is first launched, or for all ops by warm_up
    uint64_t graph_bytes;         // taken by each graph; 0: lists are not captured
    uint64_t unavailable_bytes;   // reported free but never given
    uint64_t shown_context_bytes; // what caps say of the context; 0: the truth
    enum plm_commit commit;
    bool unified;
    uint64_t host_bytes; // unified: what the host's view says there is; 0: the device's view only
    bool hides_process_use; // caps.reports_process_use is false

    // Levels above the process; the bytes of slabs and driver are added to what they hold. On
    // unified memory alloc keeps within them.
    struct plm_cgroup cgroups[PLM_CGROUP_LEVELS];
    uint32_t n_cgroups;

    const struct plm_sim_event *events; // must outlive the device
    size_t n_events;

    int64_t query_lag_ns; // readings are as old as this
    int64_t free_lag_ns;  // freed memory is back after this
    uint64_t keeps_bytes; // freed memory is kept back up to this, until empty_cache
    uint64_t leaks_bytes; // so much of what was freed does not come back at every empty_cache
    bool spills;          // what has no room is given as slow memory
    bool overcommits;     // alloc gives what is not there; submits fail meanwhile
    uint64_t fail_alloc_above_bytes; // OUT_OF_DEVICE for every larger slab

    enum plm_sim_poison poison;
    int32_t poison_token;

    int64_t submit_ns;   // time of a submit
    int64_t dispatch_ns; // and of each dispatch in it
    uint64_t prefers;    // plm_caps.prefers, and few_rows; 0: the inner backend's
    uint32_t few_rows;
    // Variants of products and of attention, for autotune: all give the same, and each takes so
    // much longer than dispatch_ns. 0 and 1: there is nothing to choose.
    uint32_t n_variants;
    int64_t variant_ns[PLM_SIM_VARIANTS_MAX];
};

#endif
