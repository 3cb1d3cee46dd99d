// SPDX-License-Identifier: Apache-2.0
// The stress-then-resize loop, the same for every backend: probe, stress, target, resize, validate,
// seal. It runs real forwards through struct plm_stress_ops, which the engine passes in, and knows
// no backend. Before it the engine has opened the device, loaded the weights, warmed up the kernels
// and started the encoders; the loop itself takes workspace, pool and ballast.
#ifndef PLM_PLAN_PROFILE_H
#define PLM_PLAN_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/plan/cost.h"
#include "core/plan/plan.h"

// What one forward of the stress does. Rows are spread over the sequences so that each ends at
// position ctx - 1: EVEN gives all the same number (the first ones one more), else sequence 0 takes
// rows - (seqs - 1) and the others one each. Positions before a sequence's rows count as there.
enum plm_stress_kind {
    PLM_STRESS_PREFILL,     // one chunk of batch_max_tokens rows from position 0
    PLM_STRESS_MANY_SHORT,  // batch_max_tokens rows of max_sequences short prompts, EVEN
    PLM_STRESS_DECODE,      // one row each of max_sequences
    PLM_STRESS_FULL_CHUNK,  // the worst shape: the last chunk at full context beside decode rows
    PLM_STRESS_FULL_DECODE, // one row each at full context
    PLM_STRESS_KINDS,
};
const char *plm_stress_kind_name(enum plm_stress_kind kind);

enum plm_stress_flags {
    PLM_STRESS_EVEN = 1,
    // Tables may name a physical block more than once. Without it sequence 0 owns all its blocks;
    // the others may share what is left.
    PLM_STRESS_REPEAT_BLOCKS = 2,
    PLM_STRESS_SAMPLE = 4,     // the heaviest sampler on every logits row: full sort, logprobs
    PLM_STRESS_FEW_LAYERS = 8, // first, middle and last layer and the head are enough
    PLM_STRESS_COLD = 16,      // discarded pass
};

struct plm_stress_step {
    enum plm_stress_kind kind;
    unsigned flags;
    struct plm_shape shape;
};

// A reading with our own account taken at the same moment.
struct plm_stress_reading {
    int64_t T, F;        // clamped
    int64_t O, K;        // ledger: held bytes of all classes, and of the KV pool
    int64_t ballast;     // of O: head-room that is held
    int64_t process_use; // or PLM_PLAN_UNKNOWN
    uint32_t n_cgroups;
    struct plm_plan_cgroup cgroups[PLM_PLAN_CGROUPS_MAX];
};

// Most bytes of ours in the phases that end before serving begins; 0: nothing was done in it.
struct plm_stress_peaks {
    int64_t load, tune, capture;
};

#define PLM_RANK_GONE INT64_MIN // of min_of_ranks: a rank ended without a word

// Codes: PLM_OK, OUT_OF_DEVICE, LOST, or anything else, which ends the loop. Entries marked
// optional may be NULL.
struct plm_stress_ops {
    void *ctx;
    int (*read)(void *ctx, struct plm_stress_reading *ret);
    // Runs the step and waits for it.
    int (*run)(void *ctx, const struct plm_stress_step *step, struct plm_error *err);
    // Empties the pool and sets its slabs; then grows or shrinks it. resize stores the blocks there
    // are, and on OUT_OF_DEVICE the bytes of the slab that was refused.
    int (*kv_format)(void *ctx, uint32_t slab_blocks, uint32_t max_blocks);
    int (*kv_resize)(void *ctx, uint32_t blocks, uint32_t *ret_blocks, int64_t *ret_failed_bytes);
    // Writes and reads every slab.
    int (*kv_verify)(void *ctx, struct plm_error *err);
    // Optional, where a driver may give or leave us slow memory without a word: stores the bytes of
    // ours that read as if they were not on the device.
    int (*slow_bytes)(void *ctx, int64_t *ret_bytes);
    // Takes ballast of this many bytes in place of what is held; 0 frees it.
    int (*ballast)(void *ctx, int64_t bytes);
    int (*empty_cache)(void *ctx);
    // Takes the workspace for these limits, plm_cost of plm_limits_shape, in place of what there
    // was. The first call of the loop; later ones lower the limits. Hybrid models: and the pool of
    // states, plm_plan_state_pool.
    int (*set_limits)(void *ctx, const struct plm_plan_limits *limits);
    // Seals the device; the last call of a loop that succeeds.
    void (*seal)(void *ctx);
    // Optional: the monitor samples process_use - O (foreign, where process use is unknown) every
    // ms between on and off; off stores the largest sample. Without it the loop reads after each
    // pass.
    void (*watch)(void *ctx, bool on, int64_t *ret_peak);
    // Optional: closes, reopens and reloads after LOST, with the pool empty and no ballast.
    int (*reopen)(void *ctx, struct plm_error *err);
    // Optional, several ranks: waits for all of them and returns the smallest of their values, or
    // PLM_RANK_GONE where one will never come (then always, without waiting). All ranks run the
    // loop with the same options and call it equally often.
    int64_t (*min_of_ranks)(void *ctx, int64_t value);
    // Optional: encoders' worst case, alone or beside a decode; graph capture of the fixed buckets.
    int (*encode)(void *ctx, bool beside_decode, struct plm_error *err);
    int (*capture)(void *ctx, struct plm_error *err);
    // Optional: the peaks of the phases that are checks of their own.
    void (*phase_peaks)(void *ctx, struct plm_stress_peaks *ret);
    // Optional: stage ("probe", "stress", "resize", "validate", "ready"), done of total: passes,
    // and of "resize" bytes, which the pool's slabs count on their way (kv_resize).
    void (*progress)(void *ctx, const char *stage, uint64_t done, uint64_t total);
};

struct plm_profile_opts {
    // Everything of the plan's input that is not read from the device: g, context_bytes,
    // driver_calls, unheld, operator_limit, withheld, unified, host_limit, memory_fraction, limits,
    // block_bytes, slab limits, prefix_cache_blocks, pinned_tokens.
    struct plm_plan_input in;
    // A host limit that holds the engine's own tables whatever their size comes to; 0: any does.
    // Where the plan's does not, values are suggested beside this one.
    int64_t host_needs;
    const struct plm_cost_table *cost;
    const struct plm_clock *clock;
    const struct plm_log *log;
    bool prove_full;   // whole model in every pass, two measured rounds
    bool keep_ballast; // soft-commit GPUs: the ballast stays after the seal
    // CPU, where no driver can grow behind a forward: without prove_full passes run few layers, the
    // cold pass leaves out those at full context, and chunks there keep to PLM_PROFILE_WORK.
    bool host_pays;
    // What an earlier start under the same key measured, or NULL: it stands for the stress, the
    // formula runs again with the readings and memory limits of now, and the size that comes out is
    // validated once. Where that fails, or the limits are beyond those that were stressed then, the
    // whole loop runs.
    const struct plm_profile *certified;
};

// Rows x context of a chunk at full context where host_pays: 128 rows at 8,192. Beyond it a start
// would take minutes, and the same buffers are met at full rows by PREFILL and at full context
// here.
#define PLM_PROFILE_WORK (INT64_C(1) << 20)

#define PLM_PROFILE_RETRIES 3  // 4 attempts
#define PLM_PROFILE_READS   50 // tries for two equal readings
#define PLM_PROFILE_PASSES  32 // evidence that is kept

struct plm_profile_pass {
    struct plm_stress_step step;
    int64_t cost;
    int64_t own_drv; // largest seen in it
    int64_t ns;
    bool validation;
};

struct plm_profile {
    struct plm_plan plan;
    uint32_t probe_blocks;
    uint32_t attempts; // validations run
    uint32_t reads;    // until two were equal
    bool settled;      // they became so
    bool context_lowered;
    uint32_t asked_context;          // before it was lowered
    bool certified;                  // an earlier start stressed it, this one planned and validated
    struct plm_plan_limits stressed; // the stress ran under these: its measures hold up to them
    int64_t not_returned;            // most bytes that a release did not bring back at the driver
    int64_t slow_bytes;              // most bytes that a validation found to be slow memory
    int64_t graph_bytes;             // by which the process grew over the capture of graphs
    int64_t stress_ns, validate_ns, total_ns;
    uint32_t n_passes;
    struct plm_profile_pass passes[PLM_PROFILE_PASSES];
};

// The step of a kind under these limits; flags as given, and what the kind asks for.
void plm_profile_step(const struct plm_profile_opts *opts, const struct plm_plan_limits *limits,
                      enum plm_stress_kind kind, unsigned flags, struct plm_stress_step *ret);
// Blocks of the probe pool: max(ceil(batch_max_tokens / 16) + max_sequences, 512).
uint32_t plm_profile_probe_blocks(const struct plm_plan_limits *limits);
// Judges before anything is loaded whether a start can succeed at all: a reading with nothing of
// ours in it, and the bytes of the weights. PLM_OK, INVALID, or OUT_OF_DEVICE with the message that
// names each knob.
int plm_profile_preflight(const struct plm_profile_opts *opts,
                          const struct plm_stress_reading *reading, int64_t weight_bytes,
                          struct plm_error *err);
// What it says where nothing fits, of an input with the reading and our bytes in it.
int plm_profile_fail(const struct plm_profile_opts *opts, const struct plm_plan_input *in,
                     struct plm_error *err);
// The room by the formula when a device reads so; 0 where it can not be computed.
int64_t plm_profile_room(const struct plm_profile_opts *opts,
                         const struct plm_stress_reading *reading);
// Runs the loop. On failure the pool is empty, no ballast is held, nothing is sealed, and err has
// one message that names each knob with a value that was re-planned, or tried where the device
// gives less than it says. With several ranks all end well, with one size and the same limits, or
// none does.
int plm_profile_run(const struct plm_profile_opts *opts, const struct plm_stress_ops *ops,
                    struct plm_profile *ret, struct plm_error *err);

#endif
