// SPDX-License-Identifier: Apache-2.0
// The plan: pure arithmetic from one snapshot to the size of the KV pool and the load line. Signed
// 64-bit bytes throughout; every line of the formula is a named field. Sees numbers only.
#ifndef PLM_PLAN_PLAN_H
#define PLM_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/mem/slabs.h"
#include "core/plan/cost.h"

#define PLM_PLAN_CGROUPS_MAX 8
#define PLM_PLAN_WINDOWS_MAX 3 // KV groups beside the main one

// Bounds of what is accepted, far above any machine, so that no sum or product can wrap.
#define PLM_PLAN_BYTES_MAX       (INT64_C(1) << 56)
#define PLM_PLAN_BLOCK_BYTES_MAX (INT64_C(1) << 31)
#define PLM_PLAN_G_MAX           (INT64_C(1) << 30)

// Margin: clamp(U / 256, 32 MiB, 256 MiB) covers what a driver takes late and unseen; the default
// host budget is clamp(U / 16, 64 MiB, 256 MiB); page tables take 8 bytes for 4 KiB.
#define PLM_MARGIN_SHARE   256
#define PLM_MARGIN_MIN     (INT64_C(32) << 20)
#define PLM_MARGIN_MAX     (INT64_C(256) << 20)
#define PLM_HOST_SHARE     16
#define PLM_HOST_LIMIT_MIN (INT64_C(64) << 20)
#define PLM_HOST_LIMIT_MAX (INT64_C(256) << 20)
// Host tables of one KV block: the pool's and the prefix index's, rounded up.
#define PLM_HOST_BLOCK_BYTES 192
#define PLM_PAGE_TABLE_UNIT  512

#define PLM_PLAN_UNKNOWN  INT64_C(-1) // process_use, prefix_cache_blocks: not known, not given
#define PLM_PLAN_NO_LIMIT INT64_C(0)  // operator_limit, host_limit, pinned_tokens: not given

// What serving allows. The worst shape of a step follows from it (plm_limits_shape).
struct plm_plan_limits {
    uint32_t batch_max_tokens; // rows of one step
    uint32_t max_sequences;    // sequences of one step, and its logits rows
    uint32_t max_context;      // tokens of one request
    // Hybrid models: recurrent states kept for cached prefixes, beside one per sequence; else 0.
    uint32_t state_checkpoints;
    // KV groups with a window: windows kept for cached prefixes, beside one per sequence; else 0.
    uint32_t cached_windows;
    // Blocks of the pool at most, where nothing was asked for (core/engine/defaults.c); 0: no
    // limit.
    uint32_t max_blocks;
};

struct plm_plan_cgroup {
    int64_t limit;
    int64_t current;
    int64_t reclaimable;
};

// A KV group with a window beside the main one.
struct plm_plan_window {
    uint32_t window; // tokens
    int64_t block_bytes;
};

struct plm_plan_input {
    // The snapshot S, taken with the probe pool in place.
    int64_t g;             // granularity of the device
    int64_t T;             // total
    int64_t F;             // free (negative only in re-planned inputs)
    int64_t O;             // our bytes as the driver took them
    int64_t K;             // of them the probe KV
    int64_t process_use;   // of this process, or PLM_PLAN_UNKNOWN
    int64_t context_bytes; // own_drv where process use is unknown: an open device ...
    int64_t driver_calls;  // ... plus the sum over our driver calls of max(0, foreign grown)
    int64_t unheld;        // sum over encoder processes of max(0, reserved - already held)
    int64_t operator_limit;
    uint32_t n_cgroups; // unified memory only
    struct plm_plan_cgroup cgroups[PLM_PLAN_CGROUPS_MAX];
    int64_t growth;   // measured beyond own_drv(S) over the mixed passes
    int64_t withheld; // reported free, never given
    bool unified;     // device memory is host memory: the host term applies
    int64_t host_limit;
    // What the program around the engine takes of host memory beside the host limit: a server's
    // connections.
    int64_t host_caller;
    double memory_fraction; // 0 < f <= 1
    // The pool.
    struct plm_plan_limits limits;
    int64_t state_bytes; // of one recurrent state (its pool is in O already); else 0
    // KV groups beside the main one: their pools are in O already, as what serving allows asks.
    uint32_t n_windows;
    struct plm_plan_window windows[PLM_PLAN_WINDOWS_MAX];
    uint32_t window;             // of the main group, in tokens; 0: it is a full one
    int64_t block_bytes;         // of the main group
    int64_t max_slab_bytes;      // of the driver; 0: no limit
    uint32_t max_slabs;          // of the driver; 0: no limit
    int64_t prefix_cache_blocks; // PLM_PLAN_UNKNOWN: a quarter of what the sequences need
    int64_t pinned_tokens;       // --max-total-tokens
};

enum plm_plan_term {
    PLM_TERM_DEVICE,   // T - foreign - unheld
    PLM_TERM_OPERATOR, // --memory-limit
    PLM_TERM_CGROUP,
    PLM_TERM_BUDGET,  // blocks: what the budget holds
    PLM_TERM_CAP,     // blocks: what the sequences and the prefix cache can use
    PLM_TERM_DEFAULT, // blocks: the size where nothing was asked for
    PLM_TERM_PIN,     // blocks: --max-total-tokens
    PLM_TERM_RANKS,   // blocks: another rank has less
    PLM_TERM_RESIZE,  // blocks: the device gave less than planned
    PLM_TERM_SHRINK,  // blocks: validation failed and was retried
    PLM_TERMS,
};
const char *plm_plan_term_name(enum plm_plan_term term);

// A pool of blocks in slabs.
struct plm_plan_pool {
    int64_t blocks;
    struct plm_slab_rule slabs;
    int64_t bytes; // of its slabs
};

// Immutable once it is sealed. Field names are those of the formula.
struct plm_plan {
    struct plm_plan_input in;
    int64_t foreign;
    int64_t own_drv;
    int64_t room;
    int64_t resident;
    struct plm_plan_pool windows[PLM_PLAN_WINDOWS_MAX]; // of in.windows; they are in resident
    int64_t windows_bytes;                              // of all of them
    int64_t growth;
    int64_t U;
    int64_t margin;
    int64_t withheld;
    int64_t ballast;
    int64_t host_limit;
    int64_t host; // what is still to come of host limit and caller, and page tables
    int64_t budget;
    // max_sequences x ceil(max_context / 16) + prefix_cache_blocks, or max_blocks. Where the main
    // group has a window: plm_plan_window_least() in place of the product.
    int64_t blocks_cap;
    int64_t prefix_cache_blocks;
    int64_t blocks;
    int64_t kv_bytes; // of the slabs that hold them
    int64_t line;
    struct plm_slab_rule slabs;
    enum plm_plan_term room_binds;
    uint32_t room_cgroup; // the level, where room_binds is CGROUP
    enum plm_plan_term blocks_bind;
};

// Allocations that hold its blocks.
static inline int64_t plm_plan_slab_count(const struct plm_plan *plan)
{
    const int64_t each = plan->slabs.slab_blocks;
    return each > 0 ? plan->blocks / each + (plan->blocks % each != 0) : 0;
}

// The worst shape that serving allows: rows, sequences, logits rows and context at their limits.
static inline struct plm_shape plm_limits_shape(const struct plm_plan_limits *limits)
{
    uint32_t rows = limits->batch_max_tokens;
    if (rows < limits->max_sequences)
        rows = limits->max_sequences; // a decode of all sequences is one step
    return (struct plm_shape){.rows = rows,
                              .seqs = limits->max_sequences,
                              .logits_rows = limits->max_sequences,
                              .ctx = limits->max_context};
}
// Whether no limit on shapes is above that of most.
bool plm_limits_within(const struct plm_plan_limits *limits, const struct plm_plan_limits *most);
// ceil(max_context / 16)
int64_t plm_limits_blocks_per_request(const struct plm_plan_limits *limits);
// The window of the main group; 0: it has none, or one that holds a whole context.
uint32_t plm_plan_main_window(const struct plm_plan_input *in);
// Blocks of the main group: those of one longest request that runs alone, and the fewest with which
// serving starts (one per sequence; with a window those of all windows beside a step).
int64_t plm_plan_request_blocks(const struct plm_plan_input *in);
int64_t plm_plan_least_blocks(const struct plm_plan_input *in);

// window_pools.c: blocks of a group with a window under these limits: max_sequences x
// plm_kv_sequence_blocks(), and those of the chunks of one step; and what cached prefixes get.
int64_t plm_plan_window_least(const struct plm_plan_limits *limits, uint32_t window);
int64_t plm_plan_window_cached(const struct plm_plan_limits *limits, uint32_t window);
// The pool of such a group on a device of granularity g, and the bytes of all of in->windows.
void plm_plan_window_pool(const struct plm_plan_window *window,
                          const struct plm_plan_limits *limits, int64_t g, int64_t max_slab_bytes,
                          struct plm_plan_pool *ret);
int64_t plm_plan_window_bytes(const struct plm_plan_input *in,
                              const struct plm_plan_limits *limits);

// PLM_OK, or INVALID with the field's name: a fraction that is 0, above 1 or NaN, a negative size.
int plm_plan_check(const struct plm_plan_input *in, struct plm_error *err);
// The formula. PLM_OK; INVALID as above; INTERNAL: resident is negative (O < K). The budget may be
// negative and blocks then 0: whether that is enough is plm_plan_enough's question.
int plm_plan_compute(const struct plm_plan_input *in, struct plm_plan *ret, struct plm_error *err);
// Sets the number of blocks and what follows from it (kv_bytes, line); the slab rule stays.
void plm_plan_set_blocks(struct plm_plan *plan, int64_t blocks, enum plm_plan_term why);
// Start needs plm_plan_least_blocks(); a pinned size needs its blocks within the budget.
// *ret_missing (may be NULL): bytes short, 0 if enough.
bool plm_plan_enough(const struct plm_plan *plan, int64_t *ret_missing);
// Whether one request of max_context tokens finishes: its blocks are in the pool
// (plm_plan_request_blocks).
bool plm_plan_one_finishes(const struct plm_plan *plan);
// Blocks after a failed validation: missing = failed_bytes - free_bytes, at least 0 (both 0 after a
// failed submit or LOST); min(blocks - ceil((missing + slab) / block bytes), floor(0.95 x blocks)).
int64_t plm_plan_shrink(const struct plm_plan *plan, int64_t failed_bytes, int64_t free_bytes);

// Bytes that an arena needs which hands out and takes back at run time (encoder outputs, adapters):
// what was live at its peak under mixed load, and twice what the holes between live ranges took
// then, since another mix may leave other holes. extent >= live.
int64_t plm_plan_arena_bytes(int64_t peak_live, int64_t peak_extent);
// A phase that is over when serving begins (load, tuning, graph capture) is no term of the sum, but
// its peak must have had room. PLM_OK, or OUT_OF_DEVICE with both numbers.
int plm_plan_check_peak(const struct plm_plan *plan, const char *phase, int64_t peak,
                        struct plm_error *err);
// Bytes of the pool of recurrent states under these limits, in units of g.
int64_t plm_plan_state_pool(const struct plm_plan_input *in, const struct plm_plan_limits *limits);

// The same snapshot with other limits: the workspace in O changes by what cost() says and the pool
// of states with the sequences, in units of g. Pure; how suggestions are verified.
int plm_plan_replan(const struct plm_plan_input *in, const struct plm_cost_table *table,
                    const struct plm_plan_limits *limits, struct plm_plan *ret,
                    struct plm_error *err);
// The largest max_context, a multiple of 16 and at most that of the input, for which a replan has
// the blocks of one whole request and one block per sequence; 0: none.
uint32_t plm_plan_fit_context(const struct plm_plan_input *in, const struct plm_cost_table *table);
// Caps at most those of the input for which the same holds: the context is lowered, and before it,
// where a model has windows or keeps recurrent states, what of them is kept for cached prefixes and
// then the sequences (with windows only as far as the context is shorter than some of them). False:
// none.
bool plm_plan_fit_limits(const struct plm_plan_input *in, const struct plm_cost_table *table,
                         struct plm_plan_limits *ret);

// Values that were re-planned and start; 0: no value of this knob alone helps. Each is lower than
// what was asked for, but for memory_limit, memory_fraction, and max_total_tokens where fewer
// blocks than plm_plan_least_blocks() were asked for.
struct plm_plan_knobs {
    uint32_t ctx_size;
    uint32_t max_sequences;
    uint32_t batch_max_tokens;
    int64_t memory_limit;            // at least this, where the operator's limit binds
    int64_t host_limit;              // at most this, where the host term counts
    int64_t max_total_tokens;        // at most (or at least) this, where the size is pinned
    uint32_t size_ctx;               // with this context, where the one asked for is longer
    double memory_fraction;          // at least this, where it is below 1
    struct plm_plan_limits together; // all three at once, where none of them alone helps
    int64_t missing;                 // bytes that the limits asked for lack
};
void plm_plan_suggest(const struct plm_plan_input *in, const struct plm_cost_table *table,
                      struct plm_plan_knobs *ret);
// What is said where no value of a knob was found that starts.
#define PLM_PLAN_NO_KNOB                                                                           \
    "no --ctx-size, --parallel or -b helps: free memory on the device, lower --host-limit where "  \
    "it counts, or use a smaller model"
// One message that names each knob with its value. Returns OUT_OF_DEVICE. what: the beginning of
// the sentence ("validation failed 4 times").
int plm_plan_fail(const struct plm_plan_input *in, const struct plm_cost_table *table,
                  const char *what, struct plm_error *err);

// An input for a device on which nothing is loaded yet: O is made of the slabs that a start would
// take. For refusing before a load, and for dry runs.
struct plm_plan_estimate {
    int64_t weight_bytes;
    int64_t other_bytes; // staging ring, encoders, anything else resident
};
// `in` holds a reading with nothing of ours in it (O = K = 0) and the limits; fills O.
void plm_plan_estimate(struct plm_plan_input *in, const struct plm_cost_table *table,
                       const struct plm_plan_estimate *estimate);

#endif
