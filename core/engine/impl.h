// SPDX-License-Identifier: Apache-2.0
// What the files of the engine share above what is loaded (core.h). The engine is a function,
// plm_step(); a thread only drives it. Who may touch what:
//  - plm_core and the scheduler belong to the thread that steps (before READY: the one that
//    creates).
//  - engine.lock guards what others need: the inbox, the numbers that admission decides by, metrics
//    and refusals. It is held for moments, never over a forward.
//  - each request has a lock of its own for its events, and the ready list has one.
//    Neither is ever held while another lock is taken; nor is the recorder's, which may be taken
//    under any of them.
#ifndef PLM_ENGINE_IMPL_H
#define PLM_ENGINE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/engine/core.h"
#include "core/engine/recorder.h"
#include "core/plan/admit.h"
#include "core/plan/line.h"
#include "core/sched/sched.h"

// ---- requests (request.c, event.c) ----

struct plm_choice {
    struct plm_seq seq; // first: the scheduler hands out pointers to it
    struct plim_request *request;
    uint32_t index;
    uint32_t max_output;  // tokens after the prompt
    uint32_t completions; // TOKEN events
    uint32_t goal;        // as a candidate: tokens whose computing clears it
    bool live;            // no FINISH yet
    struct plm_detok detok;
    struct plm_buf held;           // text that may be the start of a stop string
    uint16_t begun[PLIM_STOP_MAX]; // bytes of each stop string that the text ends with
};

// The requests that have something to read, for a reader of many; fd is readable while there is
// one.
struct plm_ready {
    pthread_mutex_t lock; // never held while another lock is taken
    struct plim_request *head, *tail;
    int fd; // -1: not open
};

// Events from the engine to one reader. The writer appends records to `in`; the reader takes the
// whole buffer and walks it without the lock.
struct plm_events {
    const struct plm_clock *clock;
    struct plm_ready *ready; // that a request with something to read is put on
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
    // Ready list, under its lock.
    struct plim_request *ready_prev, *ready_next;
    bool is_ready;
    // Inbox and list of cancels, under engine.lock.
    struct plim_request *inbox_next, *cancel_next;
    enum plm_cancel cancel;

    // Fixed at submit.
    struct plm_sample_params params;
    struct plm_sample_bias *bias;
    struct plm_slice *stops;
    uint16_t *borders; // of each byte of the stop strings, in their order (request.c)
    uint32_t n_stops;
    uint32_t min_tokens;
    bool ignore_eos;
    bool include_stop;
    int32_t *stop_tokens; // those asked for, and behind them the model's own
    uint32_t n_stop_tokens;
    uint32_t n_masked; // both: what min_tokens masks
    uint32_t n_prompt;
    int64_t reserved_bytes; // charged for the caller; what it took is its own. The reader's
    struct plm_admit_request admit;
    uint64_t expected_tokens; // of its output, when it was admitted
    uint64_t record_id;       // of its record
    int64_t submit_ns;

    // The stepping thread's.
    struct plim_request *prev, *next; // of all that the engine holds
    int64_t admitted_ns, first_ns, last_ns;
    uint32_t n_live;
    uint32_t n_cached;
    uint32_t completions;
    bool began;
    bool ended;
    bool candidate;        // of the bisection
    uint64_t counted_at;   // the number of the last forecast that counted it
    uint64_t lost_with;    // the number of the last loss at which it had rows; 0: none
    bool admit_event_lost; // no host memory for ADMITTED: the request ends at its first token

    // DONE, written before events.done.
    int32_t finish;
    int32_t status;
    plim_error error;
    double queue_s, prefill_s, decode_s;

    uint32_t n; // choices
    struct plm_choice choices[];
};

int plm_ready_init(struct plm_ready *ready); // PLM_ERR_NOMEM_HOST: no lock, and nothing to finish
int plm_ready_open(struct plm_ready *ready, struct plm_error *err);
void plm_ready_finish(struct plm_ready *ready);
// The request whose turn it is, and takes it off the list; NULL: none has anything to read.
struct plim_request *plm_ready_take(struct plm_ready *ready);
// For good: the request's reader is gone.
void plm_ready_remove(struct plm_ready *ready, struct plim_request *request);
int plm_events_init(struct plm_events *events, struct plm_host *host, const struct plm_clock *clock,
                    struct plm_ready *ready);
// Bytes of one event with n_top alternatives and so much text.
size_t plm_events_bytes(uint32_t n_top, size_t text_len);
// Room for so many unread bytes, which can not be refused later. False: no host memory.
bool plm_events_reserve(struct plm_events *events, size_t bytes);
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

// ---- admission (admission.c) ----

// Checks a request, and reserves a place in the queue where the answer is yes; else the refusal is
// counted, remembered and described (err may be NULL).
int plm_admission_check(struct plim_engine *engine, const struct plm_admit_request *request,
                        struct plm_admit_result *result, plim_error *err);
// Gives a reserved place back.
void plm_admission_unreserve(struct plim_engine *engine, const struct plm_admit_request *request,
                             const struct plm_admit_result *result);
// A request no longer waits. Under engine->lock.
void plm_admission_leave_queue(struct plim_engine *engine, const struct plim_request *request);
// Counts a refusal for host memory that was found before or after admission.
void plm_admission_refused_host(struct plim_engine *engine, int status, const plim_error *err);
// Refusals of requests that are in already, from the stepping thread: one that waited too long, and
// one whose step the gate refuses.
void plm_admission_overdue(struct plim_engine *engine, const struct plim_request *request,
                           plim_error *err);
void plm_admission_refused_step(struct plim_engine *engine, const struct plim_request *request,
                                const struct plm_gate_result *gate, plim_error *err);
// Between steps: after a streak of refusals, reclaims what their term can use and asks for a fresh
// reading of the device.
void plm_admission_recheck(struct plim_engine *engine);

// ---- engine ----

#define PLM_REFUSALS   32 // kept for /v1/memory
#define PLM_NEIGHBOURS 32 // events of neighbours, also

// What the monitor sees of the device (monitor.c).
struct plm_monitor {
    struct plm_core *core;
    struct plm_recorder *recorder;
    pthread_mutex_t *lock;       // the engine's
    pthread_cond_t *engine_wake; // that its thread sleeps on
    // A thread of its own where the clock is the system's and steps are not the caller's; else
    // plm_monitor_poll, between steps.
    pthread_t thread;
    bool has_thread;
    int64_t polled_ns;
    // Held while a reading is taken and while slabs change hands, so that a reading and the ledger
    // beside it are of one moment; and while the device is exchanged.
    pthread_mutex_t device_lock;
    // Under the lock:
    pthread_cond_t wake; // stop or hurry
    bool stop;
    bool hurry;                        // the next reading is due at once
    uint64_t n_readings;               // taken so far; 0: `reading` is not set
    struct plm_stress_reading reading; // the last one
    bool fresh;                        // it was not taken yet
    int64_t foreign_bytes;             // of it
    int64_t noted_bytes;               // foreign bytes of the last event
    struct plm_report_neighbour events[PLM_NEIGHBOURS];
    uint64_t n_events;
};

// The bisection for the one request at which steps fail (bisect.c).
struct plm_bisect {
    struct plm_sched *sched;
    plim_metrics *counts;
    struct plim_request **candidates; // [max_sequences] by arrival
    uint32_t n;                       // 0: no bisection
    uint32_t n_probe;                 // the first ones, which alone have rows now
    uint32_t n_faulty;                // the first ones, once n is 0: they are to end
    bool one_by_one;                  // each failure costs the device: no halves
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

// Whether steps take what they took when the plan was proved.
struct plm_slow {
    bool on;          // they do not: memory of ours was pushed out
    bool gives;       // the cache is to give what it can
    uint32_t over;    // steps in a row that took far too long
    uint32_t calm;    // and that did not
    int64_t since_ns; // it is on
};

// How the KV cache follows the line (pressure.c).
struct plm_pressure {
    struct plm_line line;
    uint32_t line_blocks; // of the pool as the line left it
    struct plm_slow slow;
    uint64_t moved_blocks; // by evacuations
    bool disagrees;        // ledger and driver did at the last reading
};

// What is expected of those that run (report.c).
struct plm_forecast {
    double tokens_per_s; // smoothed
    uint64_t tokens;     // until the first running request ends
    uint64_t all_tokens; // that are expected until all of them have ended
    uint32_t requests;   // that the running sequences belonged to then
    double mean_output;  // of choices that ended, smoothed; 0: none has
    uint64_t n;          // forecasts so far
};

// Under engine.lock: what admission decides by, and what it refused (admission.c).
struct plm_admission {
    struct plm_admit_limits limits; // fixed at the start
    struct plm_admit_state state;
    uint32_t waiting; // submitted and not yet begun
    uint64_t waiting_tokens;
    uint64_t waiting_output; // that is expected of them
    uint64_t rejected_never, rejected_now, rejected_queue, rejected_context;
    struct plm_report_refusal refusals[PLM_REFUSALS];
    uint64_t n_refusals;
    uint64_t streak; // refusals for now since the last admission
    enum plm_admit_term streak_term;
    bool streak_asks; // for plm_admission_recheck()
};

// A step between its submit and what comes of it.
struct plm_inflight {
    struct plm_shape shape;
    struct plm_run run;
    struct plm_seq *const *seqs; // [shape.logits_rows] whose logits they are; NULL: nobody's
    struct plm_seq **kept;       // [max_sequences], where seqs lies while it is in flight; or NULL
    uint64_t attended;           // positions that its rows look at, summed
    int64_t begin_ns;
};

// One step ahead (inflight.c, step.c).
struct plm_ahead {
    struct plm_inflight slots[2];
    struct plm_inflight *current;    // the step that was submitted and not retired; NULL: none
    int32_t *source_rows;            // [max_sequences] of a chained step: the row before of each
    struct plm_sample_row *sampling; // [max_sequences] of a step; NULL: the device does not sample
    uint32_t waited;                 // sequences that waited when a step was last formed on its own
    bool left;                       // one has left since
    uint32_t n;                      // steps that were formed ahead since
};

struct plim_engine {
    struct plm_core *core;
    struct plm_sched *sched;
    struct plm_bisect bisect;
    struct plm_recover recover;
    int64_t stalled_ns;     // since when nothing runs although there is work; 0: it does
    uint32_t stalled_steps; // and for how many steps
    struct plm_gate gate;
    struct plm_pressure pressure;
    struct plm_buf text; // of one token
    struct plm_ahead ahead;
    struct plim_request *requests;
    struct plim_request *ended; // in this step; freed after it, since the batch points to them
    int64_t live_bytes;         // ledger at the seal, without blocks
    struct plm_forecast forecast;
    uint64_t next_order;
    struct plm_recorder *recorder;
    const char *incident; // of this step, to be told of at its end; NULL: none
    uint64_t n_marks;     // calls of plm_step, as the device was told
    plim_metrics counts;  // the stepping thread's; published after every step

    pthread_t thread;
    bool has_thread;
    bool manual;
    pthread_mutex_t turn; // manual: one step, or one sleep or wake in its caller's thread

    pthread_mutex_t lock;
    pthread_cond_t wake; // for the thread: the inbox is not empty, a reading came, or stop
    pthread_cond_t idle; // for drain: no request is left; for sleep and wake: the state changed
    struct plm_sleep sleep;
    struct plim_request *inbox_head, *inbox_tail;
    struct plim_request *cancels;
    bool stop;
    bool draining;
    uint32_t active; // submitted and not ended
    struct plm_admission admission;
    plim_metrics published;
    struct plm_monitor monitor;
    _Atomic int64_t last_step_ns; // 0: idle
    _Atomic uint32_t handles;     // requests that their callers have not freed
    _Atomic uint64_t trimmed;     // host bytes freed before the last trim

    struct plm_ready ready;
};

// An engine in an environment of the caller's; plim_engine_free() destroys its host. On failure
// that is left to the caller.
int plm_engine_create_in(const struct plm_engine_env *env, const plim_engine_opts *opts,
                         struct plim_engine **ret, plim_error *err);
// plim_engine_free(); returns the bytes of host memory that were not given back (a leak).
int64_t plm_engine_destroy(struct plim_engine *engine);
// finish.c
//
// Finishes a request: its sequences leave, its last event is DONE. error may be NULL.
void plm_request_finish(struct plim_engine *engine, struct plim_request *request,
                        enum plim_finish finish, int32_t status, const plim_error *error);
// The same for a fault of its own, with a message.
void plm_request_fail(struct plim_engine *engine, struct plim_request *request, int status,
                      const char *message);
// The same for a lack that may be over when the caller comes again: term names what lacks, or "".
void plm_request_fail_now(struct plim_engine *engine, struct plim_request *request, int status,
                          const char *term, const char *message);
// Ends the requests that a bisection found faulty, whose steps failed with `status`.
void plm_request_fail_faulty(struct plim_engine *engine, int status);
// Releases the engine's references to the requests that ended.
void plm_request_reap(struct plim_engine *engine);
// inflight.c
//
// Memory for steps of so many sequences: how their tokens are drawn where the device does that, and
// what those in flight need where the model runs ahead.
int plm_inflight_init(struct plm_ahead *ahead, const struct plm_core *core, uint32_t max_sequences);
// None is in flight. Also after an init that failed.
void plm_inflight_finish(struct plm_ahead *ahead, const struct plm_core *core);
// Waits for the step in flight, whose tokens nobody wants any more.
void plm_inflight_abandon(struct plm_ahead *ahead, struct plm_core *core);
// Copies whose rows they are, since the scheduler forms the next step before this one is retired.
void plm_inflight_keep(struct plm_inflight *step);
// A sequence leaves the scheduler: its rows in flight are nobody's.
void plm_inflight_forget(struct plm_ahead *ahead, const struct plm_seq *seq);
// output.c
//
// What a step left for sampling. NULL among seqs: nobody's row.
struct plm_step_output {
    const struct plm_run *run; // it has ended
    struct plm_seq *const *seqs;
    uint32_t rows;
    const struct plm_argmax_record *best; // of every row; NULL: the rows themselves are looked at
};
// Looks at all logits before any is used: nothing of a step with a wrong number is delivered.
// PLM_OK, NUMERIC, LOST. *ret_culprit: the one request whose logits are wrong where those of others
// are not, or NULL: a prompt that has no logits in this step may have spoilt all there are.
int plm_output_check(struct plm_core *core, struct plm_step_output *step,
                     struct plim_request **ret_culprit);
// Whether the device finds the next token of each of them without the host.
bool plm_output_is_drawn(const struct plm_core *core, struct plm_seq *const *seqs, uint32_t n);
// How the device is to draw a token of each: the next one, or with `ahead` the one after it, which
// is the same whatever the next one is. Rows that the host looks at are as good as any.
void plm_output_sampling(const struct plm_core *core, struct plm_seq *const *seqs, uint32_t n,
                         bool ahead, struct plm_sample_row *ret);
// The token that row i gives its choice. LOST: it could not be read.
int plm_output_token(struct plm_core *core, const struct plm_step_output *step, uint32_t i,
                     struct plm_sample_out *ret);
// step.c
//
// Waits for the step in flight and delivers it; what comes next finds none.
void plm_step_drain(struct plim_engine *engine);
// step.c: takes in what was submitted and cancelled, and runs one step. Returns whether there was
// work.
bool plm_step(struct plim_engine *engine, int64_t now_ns);
// deliver.c: chooses the tokens of a step and delivers what they mean: text, stop, end.
void plm_deliver(struct plim_engine *engine, const struct plm_step_output *step);
// report.c: copies the counters to where other threads read them.
void plm_step_publish(struct plim_engine *engine);
// All of them, and what is no counter; never waits for the engine's thread.
void plm_report_metrics(const struct plim_engine *engine, plim_metrics *ret);
// metrics.c: counts a request that ended.
void plm_count_finish(plim_metrics *m, enum plim_finish finish);

// ---- neighbours on the device ----

// monitor.c: reads the device at most every opts.monitor_ms, off the step path; the last reading
// and what it says of others are kept for all threads.
//
// lock and engine_wake are set and the monitor's own locks made. threaded: on a thread of its own,
// where the clock is the system's. PLM_ERR_IO: no thread.
int plm_monitor_start(struct plm_monitor *monitor, struct plm_core *core,
                      struct plm_recorder *recorder, bool threaded);
void plm_monitor_stop(struct plm_monitor *monitor);
// Between steps, where the monitor has no thread: takes a reading when one is due.
void plm_monitor_poll(struct plm_monitor *monitor, int64_t now_ns);
// The newest reading, once. False: none since the last call.
bool plm_monitor_take(struct plm_monitor *monitor, struct plm_stress_reading *ret);
// Between steps: asks for a reading before its time.
void plm_monitor_hurry(struct plm_monitor *monitor);

// pressure.c: between steps, makes the KV cache follow the line (core/plan/line.h). The first thing
// of every step; true if it changed the pool, which it leaves alone while the engine sleeps.
void plm_pressure_init(struct plim_engine *engine);
bool plm_pressure_step(struct plim_engine *engine, int64_t now_ns, bool asleep);
// Whether it has anything to do.
bool plm_pressure_due(struct plim_engine *engine, int64_t now_ns);
// Gives or takes slabs until the pool has `blocks` blocks, and counts them. Codes and the end of
// shrinking as of plm_kv_pool_resize.
int plm_pressure_resize(struct plim_engine *engine, uint32_t blocks);
// A forward of these rows, which looked at so many positions, took core->forward_ns. Where a driver
// pushes our memory out, nothing else may say so: several steps in a row that take far longer than
// the baseline are pressure, and end by themselves.
void plm_pressure_ran(struct plim_engine *engine, uint32_t rows, uint64_t attended);

// ---- faults ----

// bisect.c: whose fault it is. A step that fails is not delivered; since it is idempotent its
// requests, the candidates, are replayed: a probe of them alone, the others waiting. A probe that
// fails becomes the candidates; one that passes is cleared. Halves find the request in log2(n) + 1
// probes; where each failure costs the device, one by one costs a single one. Only that request
// ends; replayed ones go on with the same text.
//
// Memory for a bisection among so many sequences. PLM_ERR_NOMEM_HOST.
int plm_bisect_init(struct plm_bisect *bisect, struct plm_host *host, struct plm_sched *sched,
                    plim_metrics *counts, uint32_t max_sequences);
void plm_bisect_finish(struct plm_bisect *bisect, struct plm_host *host);
// A step failed with `status`, and culprit (may be NULL) is known to be the cause. Instead of
// plm_sched_commit.
void plm_bisect_failed(struct plm_bisect *bisect, int status, struct plim_request *culprit);
// The device was lost, for the loss-th time, in the step that was formed or before one. Of its
// requests those are faulty that were replayed alone, and, where the device was lost only just
// before (`again`), all that were in flight then, too. The others become candidates. Before
// plm_sched_park.
void plm_bisect_lost(struct plm_bisect *bisect, uint64_t loss, bool again);
// After both: a request whose fault it must be, for the caller to end; NULL: there is none left.
struct plim_request *plm_bisect_take_faulty(struct plm_bisect *bisect);
// A step of the bisection passed.
void plm_bisect_passed(struct plm_bisect *bisect);
// A candidate ended.
void plm_bisect_drop(struct plm_bisect *bisect, struct plim_request *request);
// The bisection has no rows to run: whether there is now a reason to form a step again.
bool plm_bisect_make_room(struct plm_bisect *bisect);
void plm_bisect_end(struct plm_bisect *bisect);

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
// Falls asleep or wakes where that was asked for; nothing is in flight. True: asleep, nothing may
// run.
bool plm_sleep_step(struct plim_engine *engine);

// ---- text of the public API (text.c, chat.c) ----

// Renders a chat body; the caller finishes *ret.
int plm_text_render(const struct plm_core *core, const char *json, size_t len,
                    struct plm_render *ret, plim_error *err);
// The prompt's tokens of a chat, text or list of ids. CONTEXT where it is longer than any context
// by its bytes alone; *ret_least tokens then, which it has at least.
int plm_text_prompt(const struct plm_core *core, const plim_request_opts *opts,
                    struct plm_tokens *ret, uint64_t *ret_least, plim_error *err);

#endif
