// SPDX-License-Identifier: Apache-2.0
// What the files of the engine share. The engine is a function, plm_step(); a thread only drives
// it. Who may touch what:
//  - plm_core and the scheduler belong to the thread that steps (before READY: the one that
//    creates).
//  - engine.lock guards what others need: the inbox, the numbers that the door judges by, metrics
//    and refusals. It is held for moments, never over a forward.
//  - each request has a lock of its own for its events; engine.ready_lock guards the ready list.
//    Neither is ever held while another lock is taken; nor is the ring's, which may be taken under
//    any of them.
#ifndef PLM_ENGINE_IMPL_H
#define PLM_ENGINE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/device.h"
#include "core/engine/ring.h"
#include "core/kv/pool.h"
#include "core/kv/prefix.h"
#include "core/mem/arena.h"
#include "core/mem/ledger.h"
#include "core/model/model.h"
#include "core/model/template.h"
#include "core/model/tokenizer.h"
#include "core/plan/admit.h"
#include "core/plan/certificate.h"
#include "core/plan/line.h"
#include "core/plan/profile.h"
#include "core/plan/report.h"
#include "core/plan/tuning.h"
#include "core/plimsoll.h"
#include "core/sched/sample.h"
#include "core/sched/sched.h"

// ---- how the public API answers (answer.c, histogram.c): the ground floor ----

// Fills a public error (may be NULL) from an internal one; returns status.
int plm_error_out(plim_error *ret, int status, const struct plm_error *err);
int plm_error_set(plim_error *ret, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
// What is said where a task of the calling thread ends with `status`, which is returned if it is
// not NOMEM_HOST: NOMEM_NEVER if the task and `extra_bytes` that its caller holds do not fit on an
// idle engine either. Stops the meter.
int plm_error_host(const struct plim_engine *engine, int status, const struct plm_host_meter *meter,
                   uint64_t extra_bytes, plim_error *err);
// Writes to a caller's buffer by the rule of plimsoll.h.
int plm_text_out(const char *text, size_t len, char *out, size_t cap, size_t *need);
// The same with what was written to buf, which it finishes.
int plm_buf_out(struct plm_buf *buf, char *out, size_t cap, size_t *need);
// Between two times; 0 where one of them was never reached.
double plm_seconds(int64_t from_ns, int64_t to_ns);
void plm_histogram_init(plim_histogram *h, bool tokens);
void plm_histogram_add(plim_histogram *h, double seconds);

// ---- what is loaded: load.c, forward.c, graphs.c, residency.c, stress.c, tune.c; core.c above
// ----

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

// What steps took when the plan was proved, by width: with little to attend to, and with much
// (residency.c). Attended: positions that the rows of a step look at, summed.
#define PLM_PACE_WIDTHS 12 // each four times the one before: up to 4 M rows
struct plm_pace {
    struct plm_pace_width {
        uint32_t rows;
        uint64_t near_attended, far_attended;
        int64_t near_ns, far_ns;
    } widths[PLM_PACE_WIDTHS]; // ascending
    uint32_t n;                // 0: steps are not watched
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
    struct plm_template *chat; // NULL: the model has none
    struct plm_weight_sizes weight_sizes;
    struct plm_arena *weights;
    struct plm_arena *workspace;
    struct plm_arena *ballast;
    bool keeps_ballast; // also while it serves
    bool serving;       // READY was reached
    uint64_t resubmits; // lists that were submitted twice
    uint64_t workspace_addr;
    int64_t workspace_bytes;
    struct plm_shape worst; // that it is for
    int64_t forward_ns;     // of the last forward that ran
    int64_t landed_ns;      // when it ended
    struct plm_pace pace;
    struct plm_kv_pool *pool;
    struct plm_prefix *prefix;
    struct plm_sampler *sampler;
    struct plm_tune *tune; // NULL: nothing was chosen
    struct plm_profile profile;
    struct plm_profile proved; // what the certificate says: profile, or that of an earlier start
    int64_t driver_calls;      // foreign's growth over load and warm-up, where use is unknown
    struct plm_cert_key key;   // of that certificate; n is 0 where there is none
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
int plm_core_foresee(struct plm_core *core, uint64_t weight_bytes, struct plm_error *err);
// Tells opts.progress.
void plm_core_progress(const struct plm_core *core, const char *stage, uint64_t done,
                       uint64_t total);
// Opens the device that the options name.
int plm_core_open_device(struct plm_core *core, struct plm_error *err);
// Takes the arena of the weights and fills it from the file; every kernel has run once then.
int plm_core_take_weights(struct plm_core *core, struct plm_error *err);
// Closes the device, which is lost or hung, opens it again and loads the weights; workspace,
// weights and ballast of before are given up. The pool must hold no slab. May be called again after
// a failure.
int plm_core_reopen(struct plm_core *core, struct plm_error *err);
// The same of the host's budget, on a device of total_bytes.
int plm_core_foresee_host(const struct plm_core *core, int64_t total_bytes, struct plm_error *err);
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
// Times steps on the proved pool, into core->pace.
void plm_core_pace(struct plm_core *core);
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
    uint64_t results_addr; // for plm_forward.carry of the next one; 0: it leaves no results
    // As results_addr for the host, once it landed; NULL: it leaves none.
    const struct plm_argmax_record *results;
    uint64_t guard_at; // from results on
};

// Takes the memory for results of steps up to this shape, in place of what there was; nothing where
// the model does not run ahead.
int plm_core_take_results(struct plm_core *core, const struct plm_shape *worst);
void plm_core_drop_results(struct plm_core *core);
// Submits one forward. While sealed, a submit that finds no room is made once more without the
// ballast, but not with carry; OUT_OF_DEVICE: nothing ran. The results of the last forward but two
// are overwritten.
int plm_core_submit(struct plm_core *core, const struct plm_forward *forward, struct plm_run *ret);
// Waits for it. TIMEOUT: it runs longer than the watchdog allows, and may still run. LOST also
// where its results did not come.
// *ret_used_bytes (may be NULL): workspace that it was seen to use; above cost() where the guard
// behind the last buffer was written. Looks at results alone where it leaves some, so that others
// may be submitted after it.
int plm_core_land(struct plm_core *core, const struct plm_run *run, int64_t *ret_used_bytes);
// Both.
int plm_core_forward(struct plm_core *core, const struct plm_forward *forward, struct plm_run *ret,
                     int64_t *ret_used_bytes);
// Row i of the logits for the host; NULL: the device was lost.
const float *plm_core_logits(struct plm_core *core, uint64_t logits, uint32_t i);
// The records of all rows of a step that landed and found them; NULL: the device was lost.
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

// ---- requests (request.c, event.c) ----

struct plm_choice {
    struct plm_seq seq; // first: the scheduler hands out pointers to it
    struct plim_request *request;
    uint32_t index;
    uint32_t cap_tokens;  // of seq.tokens
    uint32_t max_output;  // tokens after the prompt
    uint32_t completions; // TOKEN events
    uint32_t goal;        // as a suspect: tokens whose computing clears it
    bool live;            // no FINISH yet
    struct plm_detok detok;
    struct plm_buf held; // text that may be the start of a stop string
};

// Events from the engine to one reader. The writer appends records to `in`; the reader takes the
// whole buffer and walks it without the lock.
struct plm_events {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool waiting; // the reader sleeps on cond
    bool done;    // DONE is set below and nothing more comes
    struct plm_buf in;
    // The reader's:
    struct plm_buf out;
    size_t out_at;
    bool done_taken;
};

enum plm_cancel {
    PLM_CANCEL_NONE,
    PLM_CANCEL_ASKED, // was put into the list of cancels
    PLM_CANCEL_LATE,  // the request is over: nothing to do
};

struct plim_request {
    struct plim_engine *engine;
    atomic_uint refs; // the caller's and the engine's
    void *user;
    struct plm_events events;
    // Ready list, under engine.ready_lock.
    struct plim_request *ready_prev, *ready_next;
    bool is_ready;
    // Inbox and list of cancels, under engine.lock.
    struct plim_request *inbox_next, *cancel_next;
    enum plm_cancel cancel;

    // Fixed at submit.
    struct plm_sample_params params;
    struct plm_sample_bias *bias;
    struct plm_slice *stops;
    uint32_t n_stops;
    uint32_t longest_stop;
    uint32_t min_tokens;
    bool ignore_eos;
    uint32_t n_prompt;
    struct plm_admit_request admit;
    uint64_t ring_id; // of its record
    int64_t submit_ns;

    // The stepping thread's.
    struct plim_request *prev, *next; // of all that the engine holds
    int64_t admitted_ns, first_ns, last_ns;
    uint32_t n_live;
    uint32_t n_cached;
    uint32_t completions;
    bool began;
    bool ended;
    bool suspect;       // in the search
    uint64_t lost_with; // the number of the last loss at which it had rows; 0: none
    bool unheard;       // there was no host memory to say ADMITTED: ends at its first token

    // DONE, written before events.done.
    int32_t finish;
    int32_t status;
    plim_error error;
    double queue_s, prefill_s, decode_s;

    uint32_t n; // choices
    struct plm_choice choices[];
};

int plm_events_init(struct plm_events *events, struct plm_host *host);
void plm_events_finish(struct plm_events *events);
// One event. False: no host memory; nothing was added.
bool plm_events_admitted(struct plim_request *request);
bool plm_events_token(struct plim_request *request, uint32_t choice, struct plm_slice text,
                      const struct plm_sample_out *out);
bool plm_events_finish_choice(struct plim_request *request, uint32_t choice,
                              enum plim_finish finish, struct plm_slice text);
// The last event; the fields of DONE are set.
void plm_events_done(struct plim_request *request);
void plm_request_unref(struct plim_request *request);

// What a request takes of the host budget.
void plm_request_host_limits(struct plm_admit_limits *limits);

// ---- the door (door.c) ----

// Judges, and reserves a place in the queue where the answer is yes; else the refusal is counted,
// remembered and described (err may be NULL).
int plm_door_judge(struct plim_engine *engine, const struct plm_admit_request *request,
                   struct plm_admit_result *result, plim_error *err);
// Gives a reserved place back.
void plm_door_unreserve(struct plim_engine *engine, uint32_t prompt_tokens);
// Counts a refusal for host memory that was found before or after the door.
void plm_door_refused_host(struct plim_engine *engine, int status, const plim_error *err);
// Refusals of requests that are in already, from the stepping thread: one that waited too long, and
// one whose step the gate refuses.
void plm_door_overdue(struct plim_engine *engine, const struct plim_request *request,
                      plim_error *err);
void plm_door_refused_step(struct plim_engine *engine, const struct plim_request *request,
                           const struct plm_gate_result *gate, plim_error *err);
// Between steps: after a streak of refusals, reclaims what their term can use and asks for a fresh
// reading of the device.
void plm_door_relook(struct plim_engine *engine);

// ---- engine ----

#define PLM_REFUSALS   32 // kept for /v1/memory
#define PLM_NEIGHBOURS 32 // events of neighbours, also

// What the monitor sees of the device (monitor.c).
struct plm_monitor {
    // A thread of its own where the clock is the system's and steps are not the caller's; else
    // plm_monitor_poll, between steps.
    pthread_t thread;
    bool has_thread;
    int64_t polled_ns;
    // Held while a reading is taken and while slabs change hands, so that a reading and the ledger
    // beside it are of one moment; and while the device is exchanged.
    pthread_mutex_t device_lock;
    // Under engine.lock:
    pthread_cond_t wake; // stop or hurry
    bool stop;
    bool hurry;                        // the next reading is due at once
    uint64_t n_readings;               // taken so far; 0: `reading` is not set
    struct plm_stress_reading reading; // the last one
    int64_t foreign_bytes;             // of it
    int64_t noted_bytes;               // foreign bytes of the last event
    struct plm_report_neighbour events[PLM_NEIGHBOURS];
    uint64_t n_events;
};

// The search for the one request at which steps fail (poison.c).
struct plm_search {
    struct plim_request **suspects; // [max_sequences] by arrival
    uint32_t n;                     // 0: no search
    uint32_t n_probe;               // the first ones, which alone have rows now
    bool one_by_one;                // each failure costs the device: no halves
};

// The device's losses, and what a refused submit asks for (recover.c).
struct plm_recover {
    bool down;        // the device is being reopened; requests are parked
    bool loaded;      // it is open again, with the weights on it
    bool gone;        // given up: the engine takes and runs nothing any more
    uint32_t streak;  // losses in a row, each soon after the device came back from the one before
    int64_t up_ns;    // when it last came back
    int64_t down_ns;  // when it was lost
    int64_t retry_ns; // the next try is not before
    int64_t pause_ns; // between tries
    uint32_t refused; // steps in a row whose submit was refused twice
    uint32_t refused_waits; // of them, those with nothing left to give back
    uint32_t rows_max;      // of the next step after that; 0: no limit
    int64_t ballast_ns;     // it is not taken again before
};

// Who sleeps has no KV cache (sleep.c).
enum plm_sleep_state {
    PLM_AWAKE,
    PLM_DROWSY,         // takes nothing new; sleeps once nothing is under way
    PLM_FALLING_ASLEEP, // the stepping thread gives the slabs back
    PLM_ASLEEP,
    PLM_WAKING, // it is to take them again
};
struct plm_sleep {
    enum plm_sleep_state state;
    int wake_status; // of the last wake
    struct plm_error wake_error;
};

// Whether steps take what they took when the plan was proved (residency.c).
struct plm_slow {
    bool on;          // they do not: memory of ours was pushed out
    bool gives;       // the cache is to give what it can
    uint32_t over;    // steps in a row that took far too long
    uint32_t calm;    // and that did not
    int64_t since_ns; // it is on
};

// A step between its submit and what comes of it.
struct plm_flight {
    struct plm_shape shape;
    struct plm_run run;
    struct plm_seq *const *seqs; // [shape.logits_rows] whose logits they are; NULL: nobody's
    struct plm_seq **kept;       // [max_sequences], where seqs lies while it is in the air; or NULL
    uint64_t attended;           // positions that its rows look at, summed
    int64_t begin_ns;
};

struct plim_engine {
    struct plm_core *core;
    struct plm_sched *sched;
    struct plm_search search;
    struct plm_recover recover;
    int64_t stalled_ns;     // since when nothing runs although there is work; 0: it does
    uint32_t stalled_steps; // and for how many steps
    struct plm_gate gate;
    struct plm_admit_limits limits;
    struct plm_line line;
    uint32_t line_blocks; // of the pool as the line left it
    struct plm_slow slow;
    uint64_t moved_blocks; // by evacuations
    bool disagrees;        // ledger and driver did at the last reading
    struct plm_buf text;   // of one token
    // One step ahead (flight.c, step.c).
    struct plm_flight flights[2];
    struct plm_flight *air;          // the one that was not looked at yet; NULL: none
    int32_t *picks;                  // [max_sequences], or NULL
    struct plm_sample_row *sampling; // [max_sequences] of a step; NULL: the device does not sample
    uint32_t waited;                 // sequences that waited when a step was last formed on its own
    bool left;                       // one has left since
    struct plim_request *requests;
    struct plim_request *ended; // in this step; freed after it, since the batch points to them
    int64_t live_bytes;         // ledger at the seal, without blocks
    double tokens_per_s;        // smoothed
    uint64_t forecast_tokens;   // until the first running request ends
    uint64_t next_order;
    struct plm_ring *ring;
    const char *incident; // of this step, to be told of at its end; NULL: none
    uint64_t n_marks;     // calls of plm_step, as the device was told
    plim_metrics counts;  // the stepping thread's; published after every step

    pthread_t thread;
    bool has_thread;
    bool manual;
    pthread_mutex_t turn; // manual: one step, or one sleep or wake in its caller's thread

    pthread_mutex_t lock;
    pthread_cond_t wake; // for the thread: the inbox is not empty, a reading came, or stop
    bool has_reading;    // that the thread has not judged yet
    pthread_cond_t idle; // for drain: no request is left; for sleep and wake: the state changed
    struct plm_sleep sleep;
    struct plim_request *inbox_head, *inbox_tail;
    struct plim_request *cancels;
    bool stop;
    bool draining;
    uint32_t waiting; // submitted and not yet begun
    uint64_t waiting_tokens;
    uint32_t active; // submitted and not ended
    struct plm_admit_state state;
    plim_metrics published;
    uint64_t rejected_never, rejected_now, rejected_queue, rejected_context;
    struct plm_report_refusal refusals[PLM_REFUSALS];
    uint64_t n_refusals;
    uint64_t streak; // refusals for now since the last admission
    enum plm_admit_term streak_term;
    bool streak_asks; // for plm_door_relook()
    struct plm_monitor monitor;
    _Atomic int64_t last_step_ns; // 0: idle
    _Atomic uint64_t trimmed;     // host bytes freed before the last trim

    pthread_mutex_t ready_lock;
    struct plim_request *ready_head, *ready_tail;
    int ready_fd;
};

// How every start begins: reads the options, whose errors name the field, and makes an environment
// with a host of its own, which the caller destroys. ret: the caller's place for the result.
int plm_start_begin(const plim_engine_opts *opts, const void *ret, plim_engine_opts *ret_opts,
                    struct plm_engine_env *ret_env, plim_error *err);
// An engine in an environment of the caller's; plim_engine_free() destroys its host. On failure
// that is left to the caller.
int plm_engine_create_in(const struct plm_engine_env *env, const plim_engine_opts *opts,
                         struct plim_engine **ret, plim_error *err);
// A plan in such an environment; plim_plan_free() destroys its host. The core is made and
// destroyed.
int plm_plan_create_in(const struct plm_engine_env *env, const plim_engine_opts *opts,
                       struct plim_plan **ret, plim_error *err);
// plim_engine_free(); returns the bytes of host memory that were not given back (a leak).
int64_t plm_engine_destroy(struct plim_engine *engine);
// end.c
//
// Ends a request: its sequences leave, its last event is DONE. error may be NULL.
void plm_step_end_request(struct plim_engine *engine, struct plim_request *request,
                          enum plim_finish finish, int32_t status, const plim_error *error);
// The same for a fault of its own, with a message.
void plm_step_fail(struct plim_engine *engine, struct plim_request *request, int status,
                   const char *message);
// Gives up the engine's hold on the requests that ended.
void plm_step_bury(struct plim_engine *engine);
// flight.c
//
// Memory for steps of so many sequences: how their tokens are drawn where the device does that, and
// what those in the air need where the model runs ahead.
int plm_flights_init(struct plim_engine *engine, uint32_t max_sequences);
// None is in the air. Also after an init that failed.
void plm_flights_finish(struct plim_engine *engine);
// Copies whose rows they are, since the scheduler forms on before the step lands.
void plm_flight_keep(struct plm_flight *flight);
// A sequence leaves the scheduler: its rows in the air are nobody's.
void plm_flights_forget(struct plim_engine *engine, const struct plm_seq *seq);
// harvest.c
//
// What a step left for sampling. NULL among seqs: nobody's row.
struct plm_harvest {
    const struct plm_run *run; // landed
    struct plm_seq *const *seqs;
    uint32_t rows;
    const struct plm_argmax_record *best; // of every row; NULL: the rows themselves are looked at
};
// Looks at all logits before any is used: nothing of a step with a wrong number is delivered.
// PLM_OK, NUMERIC, LOST. *ret_culprit: the one request whose logits are wrong where those of others
// are not, or NULL: a prompt that has no logits in this step may have spoilt all there are.
int plm_harvest_check(struct plim_engine *engine, struct plm_harvest *harvest,
                      struct plim_request **ret_culprit);
// Whether the device finds the next token of each of them without the host.
bool plm_harvest_is_drawn(const struct plim_engine *engine, struct plm_seq *const *seqs,
                          uint32_t n);
// How the device is to draw a token of each: the next one, or with `ahead` the one after it, which
// is the same whatever the next one is. Rows that the host looks at are as good as any.
void plm_harvest_sampling(const struct plim_engine *engine, struct plm_seq *const *seqs, uint32_t n,
                          bool ahead, struct plm_sample_row *ret);
// Chooses the tokens and delivers them.
void plm_harvest_sample(struct plim_engine *engine, const struct plm_harvest *harvest);
// step.c
//
// Waits for a step in the air and delivers it; what comes next finds none.
void plm_step_land(struct plim_engine *engine);
// step.c: takes in what was submitted and cancelled, and runs one step. Returns whether there was
// work.
bool plm_step(struct plim_engine *engine, int64_t now_ns);
// deliver.c: what a sampled token means for its choice: text, stop, end.
void plm_step_token(struct plim_engine *engine, struct plm_choice *choice,
                    const struct plm_sample_out *out, int64_t now_ns);
// report.c: copies the counters to where other threads read them.
void plm_step_publish(struct plim_engine *engine);

// ---- neighbours on the device ----

// monitor.c: reads the device at most every opts.monitor_ms, off the step path; the last reading
// and what it says of others are kept for all threads.
int plm_monitor_start(struct plim_engine *engine); // PLM_ERR_IO: no thread
void plm_monitor_stop(struct plim_engine *engine);
// Between steps, where the monitor has no thread: takes a reading when one is due.
void plm_monitor_poll(struct plim_engine *engine, int64_t now_ns);
// The newest reading, once. False: none since the last call.
bool plm_monitor_take(struct plim_engine *engine, struct plm_stress_reading *ret);
// Between steps: asks for a reading before its time.
void plm_monitor_hurry(struct plim_engine *engine);

// pressure.c: between steps, makes the KV cache follow the line (core/plan/line.h). The first thing
// of every step; true if it changed the pool, which it leaves alone while the engine sleeps.
void plm_pressure_init(struct plim_engine *engine);
bool plm_pressure_step(struct plim_engine *engine, int64_t now_ns, bool asleep);
// Whether it has anything to do.
bool plm_pressure_due(struct plim_engine *engine, int64_t now_ns);
// Gives or takes slabs until the pool has `blocks` blocks, and counts them. Codes and the end of
// shrinking as of plm_kv_pool_resize.
int plm_pressure_resize(struct plim_engine *engine, uint32_t blocks);

// residency.c: a forward of these rows, which looked at so many positions, took core->forward_ns.
// Where a driver pushes our memory out, nothing else may say so: several steps in a row that take
// far longer than when the plan was proved are pressure, and end by themselves.
void plm_residency_step(struct plim_engine *engine, uint32_t rows, uint64_t attended);

// ---- faults ----

// poison.c: whose fault it is. A step that fails is not delivered; since it is idempotent its
// requests, the suspects, are replayed: a probe of them alone, the others waiting. A probe that
// fails becomes the suspects; one that passes is cleared. Halves find the request in log2(n) + 1
// probes; where each failure costs the device, one by one costs a single one. Only that request
// ends; replayed ones go on with the same text.
//
// A step failed with `status`, and culprit (may be NULL) is known to be the cause. Instead of
// plm_sched_commit.
void plm_search_failed(struct plim_engine *engine, int status, struct plim_request *culprit);
// The device was lost, for the counts.losses-th time, in the step that was formed or before one. Of
// its requests those end whose fault it must be: one that was replayed alone, and, where the device
// was lost only just before (`again`), all that were in flight then, too. The others become
// suspects. Before plm_sched_park.
void plm_search_lost(struct plim_engine *engine, int status, bool again);
// A step of the search passed.
void plm_search_passed(struct plim_engine *engine);
// A suspect ended.
void plm_search_drop(struct plim_engine *engine, struct plim_request *request);
// The search has no rows to run: whether there is now a reason to form a step again.
bool plm_search_make_room(struct plim_engine *engine);
void plm_search_end(struct plim_engine *engine);

// recover.c: a device that is gone or has no room.
//
// Before each step: whether there is a device to run it on. Reopens a lost one, with pauses.
bool plm_recover_ready(struct plim_engine *engine, int64_t now_ns);
// The device was lost, or hangs (TIMEOUT), in the step that was formed. At a second loss within a
// minute those that were in flight at both fail; a third one ends the engine.
void plm_recover_lost(struct plim_engine *engine, int status);
// The step's submit was refused, and once more without the ballast.
void plm_recover_refused(struct plim_engine *engine, const struct plm_shape *shape);
// A step ran.
void plm_recover_ran(struct plim_engine *engine);

// sleep.c: enters a state and tells all who wait for one. Under engine->lock.
void plm_sleep_enter(struct plim_engine *engine, enum plm_sleep_state state);
// Falls asleep or wakes where that was asked for; nothing is in the air. True: asleep, nothing may
// run.
bool plm_sleep_step(struct plim_engine *engine);

void plm_ready_push(struct plim_request *request);
void plm_ready_remove(struct plim_request *request);

// ---- plans (plan.c) ----

// The plan of a core that is ready, as JSON or as a table.
void plm_core_write_plan(const struct plm_core *core, bool json, struct plm_buf *buf);

// ---- text of the public API (text.c, chat.c) ----

// Renders a chat body; the caller finishes *ret.
int plm_text_render(const struct plm_core *core, const char *json, size_t len,
                    struct plm_render *ret, plim_error *err);
// The prompt's tokens of a chat, text or list of ids. CONTEXT where it is longer than any context
// by its bytes alone; *ret_least tokens then, which it has at least.
int plm_text_prompt(const struct plm_core *core, const plim_request_opts *opts,
                    struct plm_tokens *ret, uint64_t *ret_least, plim_error *err);

#endif
