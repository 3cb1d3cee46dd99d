// SPDX-License-Identifier: Apache-2.0
// An engine: a loaded core, a scheduler, and the thread that steps.
#include "core/engine/engine.h"

#include <errno.h>
#include <stdio.h>

#include "core/base/checked.h"
#include "core/base/thread.h"
#include "core/engine/bisect.h"
#include "core/engine/env.h"
#include "core/engine/error.h"
#include "core/engine/event.h"
#include "core/engine/finish.h"
#include "core/engine/histogram.h"
#include "core/engine/inflight.h"
#include "core/engine/load.h"
#include "core/engine/monitor.h"
#include "core/engine/opts.h"
#include "core/engine/pressure.h"
#include "core/engine/recorder.h"
#include "core/engine/report.h"
#include "core/engine/request.h"
#include "core/engine/sleep.h"
#include "core/engine/step.h"

// Freed since the last trim: below it a trim is not worth its time, and as much may stay resident.
#define TRIM_BYTES (UINT64_C(4) << 20)
// The same while requests run, whose threads a trim holds up when they allocate. Half of the
// smallest margin: what stays resident beside the budget must not use it up.
#define BUSY_TRIM_BYTES (UINT64_C(16) << 20)

#define IDLE_WAIT_MS 100 // how often an engine without work looks at its queue's deadlines

// ---- thread ----

// Returns what malloc keeps to the system, once much was freed since the last trim. Takes
// milliseconds and engine.lock: never call it within a step.
static void trim(plim_engine *engine)
{
    struct plm_host_stats host;
    plm_host_read(engine->core->host, &host);
    if (host.kept_bytes < TRIM_BYTES)
        return;
    pthread_mutex_lock(&engine->lock);
    const bool idle = engine->active == 0;
    pthread_mutex_unlock(&engine->lock);
    if (idle || host.kept_bytes >= BUSY_TRIM_BYTES)
        plm_host_trim(engine->core->host);
}

int plim_engine_host_charge(plim_engine *engine, int64_t bytes)
{
    if (engine == NULL || bytes < 0)
        return PLIM_ERR_INVALID;
    return plm_host_charge(engine->core->host, PLM_HOST_REQUEST, bytes);
}

void plim_engine_host_discharge(plim_engine *engine, int64_t bytes)
{
    if (engine == NULL || bytes <= 0)
        return;
    plm_host_discharge(engine->core->host, PLM_HOST_REQUEST, bytes);
    trim(engine); // a request that was refused never wakes the engine's thread
}

static void wait_for_work(plim_engine *engine)
{
    const struct timespec until = plm_deadline(engine->core->clock, IDLE_WAIT_MS);
    pthread_mutex_lock(&engine->lock);
    const bool asked = engine->sleep.state == PLM_DROWSY || engine->sleep.state == PLM_WAKING;
    if (!engine->stop && !asked && !engine->monitor.fresh && !engine->admission.streak_asks &&
        engine->inbox_head == NULL && engine->cancels == NULL) {
        // Without requests nothing can time out.
        if (engine->active == 0)
            pthread_cond_wait(&engine->wake, &engine->lock);
        else
            pthread_cond_timedwait(&engine->wake, &engine->lock, &until);
    }
    pthread_mutex_unlock(&engine->lock);
}

static bool stopping(plim_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    bool stop = engine->stop;
    pthread_mutex_unlock(&engine->lock);
    return stop;
}

static void *drive(void *arg)
{
    plim_engine *engine = arg;
    while (!stopping(engine)) {
        if (plm_step(engine, plm_now(engine->core->clock)))
            continue;
        trim(engine);
        wait_for_work(engine);
    }
    return NULL;
}

// Not beside a sleep or wake in another thread.
static bool step_by_hand(plim_engine *engine)
{
    pthread_mutex_lock(&engine->turn);
    const bool did = plm_step(engine, plm_now(engine->core->clock));
    pthread_mutex_unlock(&engine->turn);
    return did;
}

int plim_engine_step(plim_engine *engine, bool *worked)
{
    if (engine == NULL || !engine->manual)
        return PLIM_ERR_INVALID;
    bool did = step_by_hand(engine);
    if (!did)
        trim(engine);
    if (worked != NULL)
        *worked = did;
    return PLIM_OK;
}

// ---- life ----

static int init_locks(plim_engine *engine)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0)
        return PLM_ERR_NOMEM_HOST;
    bool ok = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
              pthread_mutex_init(&engine->lock, NULL) == 0 &&
              plm_ready_init(&engine->ready) == PLM_OK &&
              pthread_mutex_init(&engine->turn, NULL) == 0 &&
              pthread_mutex_init(&engine->monitor.device_lock, NULL) == 0 &&
              pthread_cond_init(&engine->wake, &attr) == 0 &&
              pthread_cond_init(&engine->idle, &attr) == 0 &&
              pthread_cond_init(&engine->monitor.wake, &attr) == 0;
    pthread_condattr_destroy(&attr);
    return ok ? PLM_OK : PLM_ERR_NOMEM_HOST;
}

static void init_counts(plim_engine *engine)
{
    plim_metrics *m = &engine->counts;
    plm_histogram_init(&m->time_to_first_token, false);
    plm_histogram_init(&m->inter_token, true);
    plm_histogram_init(&m->e2e, false);
    plm_histogram_init(&m->queue, false);
    plm_histogram_init(&m->prefill, false);
    plm_histogram_init(&m->decode, false);
}

// Room for the text of one token from the start: tokens of known vocabularies stay below 512 bytes,
// and where a longer one makes the buffer grow it keeps that size.
#define TOKEN_TEXT_BYTES 1024

// Of the main group, for each sequence that runs; 0: it is a full one.
static int64_t window_blocks(const struct plm_plan *plan)
{
    const uint32_t window = plm_plan_main_window(&plan->in);
    return window != 0 ? plm_kv_sequence_blocks(window, plan->in.limits.max_context) : 0;
}

static int make_scheduler(plim_engine *engine, struct plm_error *err)
{
    struct plm_core *core = engine->core;
    const struct plm_plan *plan = &core->profile.plan;
    const struct plm_sched_opts opts = {.max_sequences = plan->in.limits.max_sequences,
                                        .batch_max_tokens = plan->in.limits.batch_max_tokens,
                                        .prefill_chunk = core->opts.prefill_chunk,
                                        .max_context = plan->in.limits.max_context};
    struct plm_kv_pool_stats pool;
    struct plm_ledger_stats ledger;
    plm_kv_pool_read(core->pool, &pool);
    plm_ledger_read(core->rank.ledger, &ledger);
    // More choices than sequences run after each other, so their number alone refuses nobody.
    uint32_t choices = opts.max_sequences > PLIM_N_MAX ? opts.max_sequences : PLIM_N_MAX;
    engine->admission.limits =
        (struct plm_admit_limits){.max_context = opts.max_context,
                                  .max_sequences = opts.max_sequences,
                                  .choices_max = choices,
                                  .blocks_total = pool.total,
                                  .block_bytes = (int64_t)pool.block_bytes,
                                  .window_blocks = (uint32_t)window_blocks(plan),
                                  .queue_max = core->opts.queue_max,
                                  .queue_tokens_max = core->opts.queue_max_tokens,
                                  .queue_max_ms = core->opts.queue_timeout_ms,
                                  .host_limit = plan->host_limit};
    plm_request_host_limits(&engine->admission.limits);
    engine->live_bytes = ledger.by_class[PLM_MEM_WEIGHTS].live_bytes +
                         ledger.by_class[PLM_MEM_STATE].live_bytes +
                         ledger.by_class[PLM_MEM_ENCODER].live_bytes +
                         ledger.by_class[PLM_MEM_OTHER].live_bytes + core->windows_bytes;
    plm_gate_init(&engine->gate, plan, plm_model_cost_table(core->model));
    if (plm_sched_create(core->host, &opts, &core->kv, core->prefix, &engine->sched) != PLM_OK)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the scheduler's tables");
    if (plm_block_tables_init(&core->rank.block_tables, core->host, &opts, core->kv.n_groups) !=
        PLM_OK)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the tables of blocks");
    if (plm_bisect_init(&engine->bisect, core->host, engine->sched, &engine->counts,
                        opts.max_sequences) != PLM_OK)
        return plm_fail(err, PLM_ERR_NOMEM_HOST,
                        "no host memory for the candidates of a bisection");
    if (plm_inflight_init(&engine->ahead, core, opts.max_sequences) != PLM_OK)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a step ahead");
    if (!plm_buf_reserve(&engine->text, TOKEN_TEXT_BYTES))
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the text of a token");
    if (plm_recorder_create(core->host, &engine->recorder) != PLM_OK)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the engine's memory");
    return PLM_OK;
}

static int start(plim_engine *engine, struct plm_error *err)
{
    int r = make_scheduler(engine, err);
    if (r != PLM_OK)
        return r;
    r = plm_ready_open(&engine->ready, err);
    if (r != PLM_OK)
        return r;
    struct plm_host_stats host;
    plm_host_read(engine->core->host, &host);
    engine->admission.limits.host_idle = host.used_bytes;
    plm_pressure_init(engine);
    const uint32_t attempts = engine->core->profile.attempts;
    engine->counts.plan_shrinks = attempts > 1 ? attempts - 1 : 0;
    plm_step_publish(engine);
    r = plm_monitor_start(&engine->monitor, engine->core, engine->recorder, !engine->manual);
    if (r != PLM_OK)
        return plm_thread_fail(err, "the monitor of the device");
    if (!engine->manual) {
        if (!plm_thread_start(&engine->thread, 0, drive, engine))
            return plm_thread_fail(err, "the engine");
        engine->has_thread = true;
    }
    return PLM_OK;
}

// Without its core and its scheduler yet.
static plim_engine *engine_alloc(struct plm_core *core)
{
    plim_engine *engine = plm_calloc(core->host, PLM_HOST_OTHER, 1, sizeof(*engine));
    if (engine == NULL)
        return NULL;
    if (init_locks(engine) != PLM_OK) {
        plm_free(core->host, engine);
        return NULL;
    }
    engine->core = core;
    engine->monitor.lock = &engine->lock;
    engine->monitor.engine_wake = &engine->wake;
    engine->manual = core->opts.manual_step != 0;
    plm_buf_init(&engine->text, core->host, PLM_HOST_SCHED);
    init_counts(engine);
    return engine;
}

static void engine_stop(plim_engine *engine);

int plm_engine_create_in(const struct plm_engine_env *env, const plim_engine_opts *opts,
                         plim_engine **ret, plim_error *err)
{
    struct plm_core *core;
    struct plm_error why = {0};
    int r = plm_core_create(env, opts, &core, &why);
    if (r != PLM_OK)
        return plm_error_out(err, r, &why);
    plim_engine *engine = engine_alloc(core);
    if (engine == NULL) {
        plm_core_destroy(core);
        return plm_error_set(err, PLIM_ERR_NOMEM_HOST, NULL, "no host memory for an engine");
    }
    r = start(engine, &why);
    if (r != PLM_OK) {
        engine_stop(engine);
        return plm_error_out(err, r, &why);
    }
    const plim_progress ready = {.stage = "ready", .done = 1, .total = 1};
    if (opts->progress != NULL && !opts->progress(opts->progress_ctx, &ready)) {
        engine_stop(engine);
        return plm_error_out(err, plm_core_stopped(&why), &why);
    }
    *ret = engine;
    return PLIM_OK;
}

int plim_engine_create(const plim_engine_opts *opts, plim_engine **ret, plim_error *err)
{
    plim_engine_opts o;
    struct plm_engine_env env;
    plim_error error = PLIM_INIT(plim_error);
    if (ret != NULL)
        *ret = NULL;
    int r = plm_start_begin(opts, ret, &o, &env, &error);
    if (r == PLIM_OK) {
        r = plm_engine_create_in(&env, &o, ret, &error);
        if (r != PLIM_OK)
            plm_host_destroy(env.host);
    }
    return plm_error_give(err, r, &error);
}

static void cancel_all(plim_engine *engine)
{
    // What lies in the inbox becomes known to the scheduler first.
    struct plim_request *request = engine->inbox_head;
    for (; request != NULL; request = request->inbox_next) {
        request->next = engine->requests;
        if (engine->requests != NULL)
            engine->requests->prev = request;
        engine->requests = request;
    }
    engine->inbox_head = engine->inbox_tail = NULL;
    while (engine->requests != NULL)
        plm_request_finish(engine, engine->requests, PLIM_FINISH_CANCELLED, PLIM_ERR_CANCELLED,
                           NULL);
    plm_request_reap(engine);
}

static void engine_stop(plim_engine *engine)
{
    struct plm_core *core = engine->core;
    plm_monitor_stop(&engine->monitor);
    pthread_mutex_lock(&engine->lock);
    engine->stop = true;
    pthread_cond_broadcast(&engine->wake);
    pthread_mutex_unlock(&engine->lock);
    if (engine->has_thread)
        pthread_join(engine->thread, NULL);
    plm_inflight_abandon(&engine->ahead, core);
    if (engine->sched != NULL)
        cancel_all(engine);
    plm_sched_destroy(engine->sched);
    plm_block_tables_finish(&engine->core->rank.block_tables);
    plm_inflight_finish(&engine->ahead, core);
    plm_bisect_finish(&engine->bisect, core->host);
    plm_recorder_destroy(engine->recorder);
    plm_buf_finish(&engine->text);
    pthread_cond_destroy(&engine->wake);
    pthread_cond_destroy(&engine->idle);
    pthread_cond_destroy(&engine->monitor.wake);
    pthread_mutex_destroy(&engine->lock);
    plm_ready_finish(&engine->ready);
    pthread_mutex_destroy(&engine->turn);
    pthread_mutex_destroy(&engine->monitor.device_lock);
    plm_free(core->host, engine);
    plm_core_destroy(core);
}

int64_t plm_engine_destroy(struct plim_engine *engine)
{
    struct plm_host *host = engine->core->host;
    engine_stop(engine);
    return plm_host_destroy(host);
}

int plim_engine_free(plim_engine *engine)
{
    if (engine == NULL)
        return PLIM_OK;
    if (atomic_load(&engine->handles) > 0)
        return PLIM_ERR_BUSY;
    plm_engine_destroy(engine);
    return PLIM_OK;
}

// ---- drain ----

static bool drained(plim_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    bool done = engine->active == 0;
    pthread_mutex_unlock(&engine->lock);
    return done;
}

static int drain_by_steps(plim_engine *engine, int64_t timeout_ms)
{
    const struct plm_clock *clock = engine->core->clock;
    int64_t from = plm_now(clock);
    while (!drained(engine)) {
        if (timeout_ms >= 0 && plm_now(clock) - from >= timeout_ms * 1000000)
            return PLIM_ERR_TIMEOUT;
        step_by_hand(engine);
    }
    return PLIM_OK;
}

int plim_engine_drain(plim_engine *engine, int64_t timeout_ms)
{
    if (engine == NULL)
        return PLIM_ERR_INVALID;
    timeout_ms = plm_min_i64(timeout_ms, PLM_WAIT_MS_MAX);
    pthread_mutex_lock(&engine->lock);
    engine->draining = true;
    pthread_mutex_unlock(&engine->lock);
    plm_recorder_put(engine->recorder, &(struct plm_record){.kind = PLM_RECORD_DRAIN});
    if (engine->manual)
        return drain_by_steps(engine, timeout_ms);
    const struct timespec until = plm_deadline(engine->core->clock, plm_max_i64(timeout_ms, 0));
    pthread_mutex_lock(&engine->lock);
    int r = 0;
    while (engine->active > 0 && r != ETIMEDOUT)
        r = timeout_ms < 0 ? pthread_cond_wait(&engine->idle, &engine->lock)
                           : pthread_cond_timedwait(&engine->idle, &engine->lock, &until);
    bool done = engine->active == 0;
    pthread_mutex_unlock(&engine->lock);
    return done ? PLIM_OK : PLIM_ERR_TIMEOUT;
}

// ---- sleep and wake ----

// Waits until the state is none of the two or the time is over; holds engine->lock.
static void wait_while(struct plim_engine *engine, enum plm_sleep_state a, enum plm_sleep_state b,
                       int64_t timeout_ms)
{
    const struct timespec until =
        plm_deadline(engine->core->clock, plm_clamp_i64(timeout_ms, 0, PLM_WAIT_MS_MAX));
    int r = 0;
    while ((engine->sleep.state == a || engine->sleep.state == b) && r == 0)
        r = timeout_ms < 0 ? pthread_cond_wait(&engine->idle, &engine->lock)
                           : pthread_cond_timedwait(&engine->idle, &engine->lock, &until);
}

// Who steps by hand may be the one who asks; engine.turn keeps this and a step apart.
static void do_in_place(struct plim_engine *engine)
{
    if (!engine->manual)
        return;
    pthread_mutex_lock(&engine->turn);
    plm_step_drain(engine);
    plm_sleep_step(engine);
    pthread_mutex_unlock(&engine->turn);
}

static int fall_asleep(plim_engine *engine, int64_t timeout_ms, plim_error *err)
{
    if (engine == NULL)
        return plm_error_null(err, "engine");
    pthread_mutex_lock(&engine->lock);
    wait_while(engine, PLM_WAKING, PLM_WAKING, -1);
    if (engine->sleep.state == PLM_AWAKE)
        plm_sleep_enter(engine, PLM_DROWSY);
    pthread_mutex_unlock(&engine->lock);
    do_in_place(engine);
    pthread_mutex_lock(&engine->lock);
    if (!engine->manual || timeout_ms != 0)
        wait_while(engine, PLM_DROWSY, PLM_FALLING_ASLEEP, timeout_ms);
    // What has begun to give slabs back ends with that.
    wait_while(engine, PLM_FALLING_ASLEEP, PLM_FALLING_ASLEEP, -1);
    const enum plm_sleep_state state = engine->sleep.state;
    if (state == PLM_DROWSY)
        plm_sleep_enter(engine, PLM_AWAKE);
    pthread_mutex_unlock(&engine->lock);
    if (state == PLM_ASLEEP)
        return PLIM_OK;
    if (state != PLM_DROWSY)
        return plm_error_set(err, PLIM_ERR_CANCELLED, NULL,
                             "the sleep was taken back; the engine is awake");
    return plm_error_set(err, PLIM_ERR_TIMEOUT, NULL,
                         "requests were still running after %lld ms; the engine is awake",
                         (long long)timeout_ms);
}

int plim_engine_sleep(plim_engine *engine, int64_t timeout_ms, plim_error *err)
{
    plim_error error = PLIM_INIT(plim_error);
    return plm_error_give(err, fall_asleep(engine, timeout_ms, &error), &error);
}

int plim_engine_sleep_cancel(plim_engine *engine)
{
    if (engine == NULL)
        return PLIM_ERR_INVALID;
    pthread_mutex_lock(&engine->lock);
    if (engine->sleep.state == PLM_DROWSY)
        plm_sleep_enter(engine, PLM_AWAKE);
    pthread_mutex_unlock(&engine->lock);
    return PLIM_OK;
}

static int wake(plim_engine *engine, plim_error *err)
{
    if (engine == NULL)
        return plm_error_null(err, "engine");
    pthread_mutex_lock(&engine->lock);
    wait_while(engine, PLM_FALLING_ASLEEP, PLM_FALLING_ASLEEP, -1);
    if (engine->sleep.state == PLM_DROWSY) // somebody changed their mind
        plm_sleep_enter(engine, PLM_AWAKE);
    if (engine->sleep.state == PLM_AWAKE) {
        pthread_mutex_unlock(&engine->lock);
        return PLIM_OK;
    }
    plm_sleep_enter(engine, PLM_WAKING);
    pthread_mutex_unlock(&engine->lock);
    do_in_place(engine);
    pthread_mutex_lock(&engine->lock);
    wait_while(engine, PLM_WAKING, PLM_WAKING, -1);
    const int r = engine->sleep.wake_status;
    const struct plm_error why = engine->sleep.wake_error;
    pthread_mutex_unlock(&engine->lock);
    return r == PLM_OK ? PLIM_OK : plm_error_out(err, r, &why);
}

int plim_engine_wake(plim_engine *engine, plim_error *err)
{
    plim_error error = PLIM_INIT(plim_error);
    return plm_error_give(err, wake(engine, &error), &error);
}

// ---- events ----

plim_request *plim_engine_next_ready(plim_engine *engine)
{
    return engine == NULL ? NULL : plm_ready_take(&engine->ready);
}

int plim_engine_poll_fd(plim_engine *engine)
{
    return engine == NULL ? -1 : engine->ready.fd;
}
