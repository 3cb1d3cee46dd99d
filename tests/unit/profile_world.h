// SPDX-License-Identifier: Apache-2.0
// A device that is a few numbers: what it gives, what it hides, what it takes late. The loop runs
// against it without any real part.
#ifndef PLM_TESTS_PROFILE_WORLD_H
#define PLM_TESTS_PROFILE_WORLD_H

#include "core/plan/profile.h"

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

enum call {
    CALL_READ,
    CALL_RUN,
    CALL_FORMAT,
    CALL_RESIZE,
    CALL_VERIFY,
    CALL_BALLAST,
    CALL_EMPTY,
    CALL_CAPS,
    CALL_REOPEN,
    CALL_ENCODE,
    CALL_CAPTURE,
    CALLS,
};

struct world {
    // The device.
    int64_t total, g, weights, context, foreign;
    int64_t hidden;       // reported free, but never given at submit
    int64_t lazy;         // taken for ever at the first run of each kind
    int64_t transient;    // taken by the driver during a run, given back after it
    int64_t keeps;        // of what is released, does not come back
    int64_t noise;        // readings alternate by this
    int64_t slow_above;   // what is held beyond this is slow memory, and not in use at the driver
    int64_t late_foreign; // a neighbour that comes once the pool is made
    bool process_use;
    // What the loop holds.
    int64_t ws, kv, ballast;
    struct plm_slab_rule rule;
    uint32_t blocks, max_blocks;
    struct plm_plan_limits limits;
    struct plm_plan_input in; // as asked
    bool sealed;
    // What happened.
    bool warm[PLM_STRESS_KINDS];
    int64_t lazy_taken, kept, peak_used;
    uint32_t calls[CALLS], runs[PLM_STRESS_KINDS];
    bool validating;
    uint32_t validations; // kv_verify calls
    uint32_t fail_validations;
    int fail_call_kind, fail_status; // the fail_nth call of a kind returns this status
    uint32_t fail_nth;
    uint32_t reads;
    bool repeats_in_validation;
    uint32_t longest_validated;
    // Phases.
    bool encoders, graphs;                             // the ops are there
    int64_t encoder_bytes;                             // taken while an encode runs
    int64_t graph_bytes;                               // taken for good by the capture
    int64_t captured;                                  // so far
    struct plm_stress_peaks peaks;                     // of load, tuning and capture
    uint32_t encodes[2], captures;                     // alone, and beside a decode
    int64_t (*min_of_ranks)(void *ctx, int64_t value); // NULL: one rank; ctx is the world
    void *rank;                                        // its own
};

// A card of 16 GiB with 4 GiB of weights; the budget binds.
struct world world_plain(void);
// Options for it; a block is 1 MiB.
struct plm_profile_opts world_options(void);
extern const struct plm_cost_table world_table;
int64_t world_held(const struct world *w); // by the loop
int64_t world_used(const struct world *w); // by everybody
int64_t world_up(int64_t value, int64_t g);
int world_read(void *world, struct plm_stress_reading *ret);
// Runs the loop and checks what must hold at its end, good or bad.
int world_start(struct world *w, struct plm_profile_opts opts, struct plm_profile *ret,
                struct plm_error *err);

#endif
