// SPDX-License-Identifier: Apache-2.0
// What an engine stands on once it is loaded: device, model, weights, workspace, KV pool and the
// plan that was proved; forwards on them. One thread at a time. The files that include no more than
// this know of no request: core.c above load.c, forward.c, graphs.c, stress.c, tune.c and
// watch.c; opts.c and plan.c.
#ifndef PLM_ENGINE_CORE_H
#define PLM_ENGINE_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/device.h"
#include "core/kv/pool.h"
#include "core/kv/prefix.h"
#include "core/mem/arena.h"
#include "core/mem/ledger.h"
#include "core/model/chat.h"
#include "core/model/model.h"
#include "core/model/tokenizer.h"
#include "core/plan/certificate.h"
#include "core/plan/profile.h"
#include "core/plan/report.h"
#include "core/plan/tuning.h"
#include "core/plimsoll.h"
#include "core/sched/sample.h"
#include "core/template/template.h"

// ---- chat templates (chat.c) ----

struct plm_core;
// Finds what core->chat reads, into core->chat_form. PLM_OK or NOMEM_HOST.
int plm_text_probe(struct plm_core *core, struct plm_error *err);

// ---- how the public API answers (answer.c, histogram.c): the ground floor ----

// Fills a public error (may be NULL) from an internal one; returns status.
int plm_error_out(plim_error *ret, int status, const struct plm_error *err);
int plm_error_set(plim_error *ret, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
// Argument `param` is NULL and must not be: INVALID, said.
int plm_error_null(plim_error *ret, const char *param);
// Gives what a call made of a failure to its caller, whose plim_error may be NULL, or of another
// version, and need not be initialised but for its size; `error` is of this one. Every failure gets
// a sentence. Returns status; OK: nothing is written.
int plm_error_give(plim_error *ret, int status, plim_error *error);
// Structs of the public API that begin with struct_size, whose caller may be of another version:
// whether a size can be one; fills what the caller's has room for, but its struct_size (INVALID: it
// has no size); sets it up with its size, then what `full` says of it; and copies options over the
// defaults in *ret (INVALID, or UNSUPPORTED for newer ones that are set). init: who sets them up.
bool plm_struct_sized(size_t bytes);
int plm_struct_out(void *ret, const void *full, size_t full_bytes);
void plm_struct_init(void *ret, size_t ret_bytes, const void *full, size_t full_bytes);
int plm_struct_in(void *ret, size_t full_bytes, const void *opts, const char *init,
                  plim_error *err);
// What is said where a task of the calling thread ends with `status`, which is returned if it is
// not NOMEM_HOST: NOMEM_NEVER if the task and `extra_bytes` that its caller holds do not fit on an
// idle engine either. Stops the meter.
struct plm_admit_limits;
int plm_error_host(const struct plm_admit_limits *limits, int status,
                   const struct plm_host_meter *meter, uint64_t extra_bytes, plim_error *err);
// Whether there is a buffer where one is announced.
int plm_text_place(const char *out, size_t cap, plim_error *err);
// Writes to a caller's buffer by the rule of plimsoll.h.
int plm_text_out(const char *text, size_t len, char *out, size_t cap, size_t *need);
// The same with what was written to buf, which it finishes.
int plm_buf_out(struct plm_buf *buf, char *out, size_t cap, size_t *need);
// Between two times; 0 where one of them was never reached.
double plm_seconds(int64_t from_ns, int64_t to_ns);
void plm_histogram_init(plim_histogram *h, bool tokens);
void plm_histogram_add(plim_histogram *h, double seconds);

// ---- what is loaded ----

// The monitor thread of the stress.
struct plm_watch {
    pthread_t thread;
    atomic_bool stop;
    bool runs;
    int64_t peak; // the thread's, until it is joined
};

// What autotune chose (tune.c, tuned.c).
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

// The step-time baseline: what steps took when the plan was proved, by width: with little to attend
// to, and with much (baseline.c). Attended: positions that the rows of a step look at, summed.
#define PLM_BASELINE_WIDTHS 12 // each four times the one before: up to 4 M rows
struct plm_baseline {
    struct plm_baseline_width {
        uint32_t rows;
        uint64_t near_attended, far_attended;
        int64_t near_ns, far_ns;
    } widths[PLM_BASELINE_WIDTHS]; // ascending
    uint32_t n;                    // 0: steps are not watched
};

// What an engine stands on, from its creator: a program that embeds it gets the system's; tests and
// simulations bring their own. Everything in it outlives the engine.
struct plm_engine_env {
    struct plm_host *host;
    const struct plm_clock *clock;     // NULL: the system's
    const struct plm_backend *backend; // NULL: the one that opts->device names
    const void *backend_opts;          // of that backend (plm_device_opts.backend_opts)
    uint64_t seed; // of what must not be guessed (prefix keys, default seeds); 0: a random one
};

struct plm_core {
    struct plm_engine_env env;
    struct plm_host *host; // of env, as is the clock
    const struct plm_clock *clock;
    struct plm_log log;
    plim_engine_opts opts; // strings are valid while it is being created only
    char device_id[32];
    enum plm_phase phase;
    struct plm_device *device;
    struct plm_ledger *ledger;
    struct plm_gguf *gguf;
    struct plm_model *model;
    struct plm_tokenizer *tokenizer;
    struct plm_template *chat;            // NULL: the model has none, or one that can not be used:
    char chat_fault[PLM_ERROR_MSG_BYTES]; // why, or ""
    struct plm_chat_form chat_form;       // what it reads
    struct plm_weight_sizes weight_sizes;
    struct plm_arena *weights;
    struct plm_arena *workspace;
    struct plm_arena *ballast;
    bool keeps_ballast; // also while it serves
    bool stopped;       // by opts.progress: the start goes no further
    const char *stage;  // of the start, as last told to opts.progress; static text
    bool serving;       // READY was reached
    uint64_t resubmits; // lists that were submitted twice
    uint64_t workspace_addr;
    int64_t workspace_bytes;
    struct plm_shape worst; // that it is for
    int64_t forward_ns;     // of the last forward that ran
    int64_t ended_ns;       // when it ended
    struct plm_baseline baseline;
    struct plm_kv_pool *pool;
    struct plm_prefix *prefix;
    struct plm_sampler *sampler;
    struct plm_tune *tune; // NULL: nothing was chosen
    struct plm_profile profile;
    struct plm_profile proved;   // what the certificate says: profile, or that of an earlier start
    struct plm_plan_caps chosen; // as asked, or by default (plm_core_choose)
    int64_t driver_calls;        // foreign's growth over load and warm-up, where use is unknown
    struct plm_cert_key key;     // of that certificate; n is 0 where there is none
    struct plm_watch watch;
    // Where the host does not see the workspace; else NULL.
    float *logits_row;              // [n_vocab]
    struct plm_argmax_record *best; // [opts.max_sequences], where forwards find them
    // Where the model runs ahead: results of three steps, one after the other, that the host sees.
    struct plm_slab results;
    uint32_t results_next; // which of them the next step writes
    uint64_t logits_at; // device address of what is in logits_row; 0: nothing of the last forward
    int32_t *eog;       // tokens that end generation
    uint32_t n_eog;
    char file_name[128];
    _Atomic uint64_t n_seeds; // drawn from env.seed
};

// Opens the model's files and no device: what a plan without one needs. On failure nothing is left.
int plm_core_open(const struct plm_engine_env *env, const plim_engine_opts *opts,
                  struct plm_core **ret, struct plm_error *err);
// Opens, loads, stresses, sizes and seals. On failure nothing is left.
int plm_core_create(const struct plm_engine_env *env, const plim_engine_opts *opts,
                    struct plm_core **ret, struct plm_error *err);
void plm_core_destroy(struct plm_core *core); // NULL is allowed
// Judges from a reading and the model's numbers, before the load, whether a start can succeed.
int plm_core_preflight(struct plm_core *core, uint64_t weight_bytes, struct plm_error *err);
// Tells opts.progress. False: it has stopped the start; what is under way ends with CANCELLED,
// which plm_core_stopped says.
bool plm_core_progress(struct plm_core *core, const char *stage, uint64_t done, uint64_t total);
int plm_core_stopped(struct plm_error *err);
// Opens the device that the options name.
int plm_core_open_device(struct plm_core *core, struct plm_error *err);
// Takes the arena of the weights and fills it from the file; every kernel has run once then.
int plm_core_take_weights(struct plm_core *core, struct plm_error *err);
// Closes the device, which is lost or hung, opens it again and loads the weights; workspace,
// weights and ballast of before are given up. The pool must hold no slab. May be called again after
// a failure.
int plm_core_reopen(struct plm_core *core, struct plm_error *err);
// The same of the host's budget, on a device of total_bytes.
int plm_core_preflight_host(const struct plm_core *core, int64_t total_bytes,
                            struct plm_error *err);
// Sequences of a step where no number was asked for.
#define PLM_DEFAULT_SEQUENCES 8
// Fills core->chosen: what was asked for, and where nothing was, what is sensible on a device that
// reads so; what we hold ourselves does not matter. Before the call below.
void plm_core_choose(struct plm_core *core, const struct plm_caps *caps,
                     const struct plm_stress_reading *reading);
// What the loop is told of a device with these capabilities and so many slabs of ours on it.
void plm_core_profile_opts(const struct plm_core *core, const struct plm_caps *caps,
                           uint64_t slabs_used, struct plm_profile_opts *ret);
// A seed that nobody can guess; in a simulation the next one of the environment's.
uint64_t plm_core_seed(struct plm_core *core);
// Enters a phase: peaks are kept under it, and the backend hears of it.
void plm_core_phase(struct plm_core *core, enum plm_phase phase);
// Chooses variants of ops, from opts.tuning or by timing them (tune.c). Before the profile; leaves
// no device memory behind. What can not be tuned runs as it would without: only LOST and NOMEM_HOST
// fail.
int plm_core_tune(struct plm_core *core, struct plm_error *err);
// tuned.c: chooses the same again on a device that was reopened.
void plm_core_tune_again(struct plm_core *core);
void plm_core_tune_destroy(struct plm_core *core);
// The stress loop, into core->profile.
int plm_core_profile(struct plm_core *core, struct plm_error *err);
// The `read` of struct plm_stress_ops; ctx is the core. Any thread.
int plm_core_read(void *ctx, struct plm_stress_reading *ret);
// Whether ledger and driver agree on what this process holds, beside the driver's own as measured:
// 0, or by how many bytes the driver says more (or, below 0, less). A reading that can not be, or
// one that does not know this process, tells nothing: 0.
int64_t plm_core_mismatch(const struct plm_core *core, const struct plm_stress_reading *reading);
// graphs.c: graphs of the decodes that the workspace is for; the pool has a block. The `capture` of
// struct plm_stress_ops, where the device makes graphs; ctx is the core.
int plm_core_capture(void *ctx, struct plm_error *err);
// What the stress works with: how other phases move the same memory and run the same steps.
void plm_core_stress_ops(struct plm_core *core, struct plm_stress_ops *ret);
// Captures graphs, writes and reads every slab of the pool, which must hold nothing, and runs the
// worst steps: for a device that was opened anew after READY.
int plm_core_validate(struct plm_core *core, struct plm_error *err);
// The same where only the pool is new: every slab, and a decode at full context over its blocks.
int plm_core_validate_pool(struct plm_core *core, struct plm_error *err);
// residency.c: bytes of ours that read as if they were slow memory, not the device's; 0 where
// nothing could be told. The `slow_bytes` of struct plm_stress_ops; ctx is the core, whose
// workspace is overwritten.
int plm_core_slow_bytes(void *ctx, int64_t *ret_bytes);
// baseline.c: times steps on the proved pool, into core->baseline. What can not be timed is not
// watched.
void plm_core_take_baseline(struct plm_core *core);
// What such a step took then. 0: nothing so wide or so long was timed, or nothing takes time here.
int64_t plm_baseline_ns(const struct plm_baseline *baseline, uint32_t rows, uint64_t attends);
// Whether others can take what such a device gave us: what is in host memory is not the question.
bool plm_core_may_lose_memory(const struct plm_caps *caps);
// Reads opts.certificate. False where there is none that holds for this start, and says why.
bool plm_core_certified(struct plm_core *core, struct plm_profile *ret);
// The `watch` of struct plm_stress_ops; ctx is the core.
void plm_core_watch(void *ctx, bool on, int64_t *ret_peak);
// forward.c: a forward that was submitted.
struct plm_run {
    uint64_t value; // of the timeline
    int64_t start_ns, cost;
    struct plm_forward_out out;
    uint64_t results_addr; // for plm_forward.chained of the next one; 0: it leaves no results
    // As results_addr for the host, once it ended; NULL: it leaves none.
    const struct plm_argmax_record *results;
    uint64_t guard_at; // from results on
};

// Takes the memory for results of steps up to this shape, in place of what there was; nothing where
// the model does not run ahead.
int plm_core_take_results(struct plm_core *core, const struct plm_shape *worst);
void plm_core_drop_results(struct plm_core *core);
// Submits one forward. While sealed, a submit that finds no room is made once more without the
// ballast, but not where tokens are chained; OUT_OF_DEVICE: nothing ran. The results of the last
// forward but two are overwritten.
int plm_core_submit(struct plm_core *core, const struct plm_forward *forward, struct plm_run *ret);
// Waits for it. TIMEOUT: it runs longer than the watchdog allows, and may still run. LOST also
// where its results did not come.
// *ret_used_bytes (may be NULL): workspace that it was seen to use; above cost() where the guard
// behind what kernels write was written. Looks at results alone where it leaves some, so that
// others may be submitted after it.
int plm_core_wait(struct plm_core *core, const struct plm_run *run, int64_t *ret_used_bytes);
// Both.
int plm_core_forward(struct plm_core *core, const struct plm_forward *forward, struct plm_run *ret,
                     int64_t *ret_used_bytes);
// Row i of the logits for the host; NULL: the device was lost.
const float *plm_core_logits(struct plm_core *core, uint64_t logits, uint32_t i);
// The records of all rows of a step that ended and found them; NULL: the device was lost.
const struct plm_argmax_record *plm_core_best(struct plm_core *core, const struct plm_run *run,
                                              uint32_t rows);
// One dummy forward of this shape and spread (step->kind does not count) on core's workspace and
// pool, with plm_forward_flags; tuner: with TUNING. *ret as plm_core_forward.
int plm_core_dummy_step(struct plm_core *core, const struct plm_stress_step *step, unsigned flags,
                        const struct plm_tuner *tuner, struct plm_forward_out *ret,
                        struct plm_error *err);
// Gives the ballast back: room for such a submit.
void plm_core_drop_ballast(struct plm_core *core);
// Copies foreign options over the defaults; INVALID names the field.
int plm_opts_read(const plim_engine_opts *opts, plim_engine_opts *ret, plim_error *err);
// Judges limits against each other that only model and device tell, before the load: INVALID names
// both with their values. block_bytes: of one KV block.
int plm_opts_judge(const plim_engine_opts *opts, bool unified, uint64_t block_bytes,
                   struct plm_error *err);
void plm_core_report_head(const struct plm_core *core, const struct plm_caps *caps,
                          const struct plm_ledger_stats *ledger, struct plm_report_head *ret);

// ---- starts and plans (opts.c, plan.c) ----

// How every start begins: reads the options, whose errors name the field, and makes an environment
// with a host of its own, which the caller destroys. ret: the caller's place for the result.
int plm_start_begin(const plim_engine_opts *opts, const void *ret, plim_engine_opts *ret_opts,
                    struct plm_engine_env *ret_env, plim_error *err);
// A plan in an environment of the caller's; plim_plan_free() destroys its host. The core is made
// and destroyed.
int plm_plan_create_in(const struct plm_engine_env *env, const plim_engine_opts *opts,
                       struct plim_plan **ret, plim_error *err);
// The plan of a core that is ready, as JSON or as a table.
void plm_core_write_plan(const struct plm_core *core, bool json, struct plm_buf *buf);

#endif
