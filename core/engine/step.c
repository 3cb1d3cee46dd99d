// SPDX-License-Identifier: Apache-2.0
// One step: takes in what arrived, forms a batch, asks the gate, runs it, samples, delivers. On
// asynchronous devices decodes run one step ahead of the host.
#include "core/engine/step.h"

#include "core/base/checked.h"
#include "core/base/fault_seed.h"
#include "core/engine/admission.h"
#include "core/engine/bisect.h"
#include "core/engine/deliver.h"
#include "core/engine/engine.h"
#include "core/engine/event.h"
#include "core/engine/finish.h"
#include "core/engine/forward.h"
#include "core/engine/histogram.h"
#include "core/engine/inflight.h"
#include "core/engine/output.h"
#include "core/engine/pressure.h"
#include "core/engine/recorder.h"
#include "core/engine/recover.h"
#include "core/engine/report.h"
#include "core/engine/request.h"
#include "core/engine/sleep.h"

// ---- arrivals ----

static void take_one(struct plim_engine *engine, struct plim_request *request)
{
    request->next = engine->requests;
    request->prev = NULL;
    if (engine->requests != NULL)
        engine->requests->prev = request;
    engine->requests = request;
    for (uint32_t i = 0; i < request->n; i++)
        plm_sched_add(engine->sched, &request->choices[i].seq);
}

static bool take_arrivals(struct plim_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    struct plim_request *request = engine->inbox_head, *cancel = engine->cancels;
    engine->inbox_head = engine->inbox_tail = NULL;
    engine->cancels = NULL;
    pthread_mutex_unlock(&engine->lock);
    bool any = request != NULL || cancel != NULL;
    while (request != NULL) {
        struct plim_request *next = request->inbox_next;
        take_one(engine, request);
        request = next;
    }
    while (cancel != NULL) {
        struct plim_request *next = cancel->cancel_next;
        plm_request_finish(engine, cancel, PLIM_FINISH_CANCELLED, PLIM_ERR_CANCELLED, NULL);
        if (PLM_FAULT_SEED(LEAK))
            plm_kv_pool_alloc(engine->core->pool);
        cancel = next;
    }
    return any;
}

static void time_out(struct plim_engine *engine, int64_t now_ns)
{
    const int64_t limit_ns = (int64_t)engine->core->opts.queue_timeout_ms * 1000000;
    struct plm_seq *head;
    while (limit_ns > 0 && (head = plm_sched_queue_head(engine->sched)) != NULL) {
        struct plim_request *request = ((struct plm_choice *)head)->request;
        if (now_ns - request->submit_ns < limit_ns)
            return;
        plim_error error;
        plm_admission_overdue(engine, request, &error);
        plm_request_finish(engine, request, PLIM_FINISH_ERROR, PLIM_ERR_NOMEM_NOW, &error);
    }
}

static void admitted(void *ctx, struct plm_seq *seq)
{
    struct plim_engine *engine = ctx;
    struct plim_request *request = ((struct plm_choice *)seq)->request;
    if (seq->parent != NULL)
        return;
    request->began = true;
    request->admitted_ns = plm_now(engine->core->clock);
    request->n_cached = seq->n_cached;
    engine->counts.prompt_tokens += request->n_prompt;
    engine->counts.cached_tokens += seq->n_cached;
    if (seq->use_cache) {
        engine->counts.prefix_queries += request->n_prompt;
        engine->counts.prefix_hits += seq->n_cached;
    }
    plm_histogram_add(&engine->counts.queue, plm_seconds(request->submit_ns, request->admitted_ns));
    pthread_mutex_lock(&engine->lock);
    plm_admission_leave_queue(engine, request);
    pthread_mutex_unlock(&engine->lock);
    request->admit_event_lost = !plm_events_admitted(request);
    plm_recorder_put(engine->recorder, &(struct plm_record){.kind = PLM_RECORD_ADMIT,
                                                            .value = (int64_t)request->record_id});
}

// ---- a batch ----

static void gate_step(struct plim_engine *engine, const struct plm_batch *batch,
                      struct plm_gate_result *ret)
{
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(engine->core->pool, &pool);
    // The blocks of this step are taken already; nothing has been written to them.
    const struct plm_gate_step step = {.shape = batch->shape,
                                       .prefill_rows = batch->prefill_rows,
                                       .live_bytes = engine->live_bytes +
                                                     (int64_t)(pool.used * pool.block_bytes),
                                       .blocks_needed = 0,
                                       .blocks_free = pool.free,
                                       .blocks_cached = pool.cached};
    plm_gate_check(&engine->gate, &step, ret);
}

static void refuse_step(struct plim_engine *engine, const struct plm_gate_result *gate)
{
    struct plm_seq *seq = plm_sched_youngest(engine->sched);
    struct plim_request *request = ((struct plm_choice *)seq)->request;
    plim_error error;
    plm_admission_refused_step(engine, request, gate, &error);
    plm_request_finish(engine, request, PLIM_FINISH_ERROR, PLIM_ERR_NOMEM_NOW, &error);
}

// Its next token needs a block more than the pool has.
static void end_stuck(struct plim_engine *engine, const struct plm_seq *seq)
{
    struct plim_request *request = ((const struct plm_choice *)seq)->request;
    plim_error error;
    plm_admission_outgrown(engine, request, (uint32_t)plm_kv_blocks(seq->n_tokens + UINT64_C(1)),
                           &error);
    plm_request_finish(engine, request, PLIM_FINISH_ERROR, PLIM_ERR_NOMEM_NEVER, &error);
}

// Forms a batch that the gate admits. rows 0: nothing to run.
static void form(struct plim_engine *engine, struct plm_batch *batch)
{
    const struct plm_sched_hook hook = {.admitted = admitted, .ctx = engine};
    uint32_t rows_max = engine->recover.rows_max;
    for (;;) {
        struct plm_gate_result gate;
        plm_sched_form(engine->sched, rows_max, &hook, batch);
        struct plm_seq *stuck = plm_sched_stuck(engine->sched);
        if (stuck != NULL) {
            end_stuck(engine, stuck);
            continue;
        }
        if (batch->shape.rows == 0) {
            if (plm_bisect_make_room(&engine->bisect))
                continue;
            return;
        }
        gate_step(engine, batch, &gate);
        struct plm_sched_stats stats;
        switch (gate.answer) {
        case PLM_GATE_GO: return;
        case PLM_GATE_CUT:
            if (gate.rows_max < batch->shape.rows) {
                rows_max = gate.rows_max;
                continue;
            }
            break;
        case PLM_GATE_RECLAIM:
            plm_sched_read(engine->sched, &stats);
            if (stats.running > 1) {
                plm_sched_preempt(engine->sched, plm_sched_youngest(engine->sched));
                continue;
            }
            break;
        case PLM_GATE_REFUSE: break;
        }
        refuse_step(engine, &gate);
    }
}

static void audit(struct plim_engine *engine, const struct plm_shape *shape, int64_t used)
{
    const int64_t excess = plm_gate_audit(&engine->gate, shape, used);
    if (excess <= 0)
        return;
    plm_logf(&engine->core->log, PLM_LOG_ERROR,
             "a forward of %u rows used %lld bytes more than planned (a defect; the plan now "
             "counts them)",
             shape->rows, (long long)excess);
    plm_recorder_put(engine->recorder,
                     &(struct plm_record){.kind = PLM_RECORD_OVERRUN, .value = excess});
    plm_incident(engine, "audit");
}

static uint64_t attended(const struct plm_batch *batch)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < batch->shape.rows; i++)
        n += (uint64_t)batch->pos[i] + 1;
    return n;
}

// Submits a batch. before (may be NULL): the batch follows this step without the host, and its
// tokens are numbers of that one's rows.
static int submit_step(struct plim_engine *engine, const struct plm_batch *batch,
                       const struct plm_inflight *before, struct plm_inflight *step)
{
    struct plm_core *core = engine->core;
    struct plm_forward forward = {.shape = batch->shape,
                                  .flags =
                                      batch->shape.logits_rows == 0 ? PLM_FORWARD_SKIP_HEAD : 0,
                                  .workspace = core->rank.workspace_addr,
                                  .reserve = (uint64_t)engine->gate.floor_bytes,
                                  .tokens = batch->tokens,
                                  .pos = batch->pos,
                                  .seq = batch->seq,
                                  .table_stride = batch->table_stride,
                                  .logits_rows = batch->logits_rows};
    plm_block_tables_fill(&core->rank.block_tables, &core->kv, batch);
    for (uint32_t g = 0; g < core->kv.n_groups; g++) {
        forward.slots[g] = core->rank.block_tables.slots[g];
        forward.tables[g] = core->rank.block_tables.tables[g];
    }
    for (uint32_t i = 0; before != NULL && i < batch->shape.rows; i++)
        engine->ahead.source_rows[i] =
            batch->tokens[i] * (int32_t)(sizeof(struct plm_argmax_record) / 4);
    if (before != NULL) {
        forward.chained = before->run.results_addr;
        forward.source_rows = engine->ahead.source_rows;
    }
    if (engine->ahead.sampling != NULL) {
        plm_output_sampling(core, batch->logits_seqs, batch->shape.logits_rows, before != NULL,
                            engine->ahead.sampling);
        forward.sampling = engine->ahead.sampling;
    }
    step->shape = batch->shape;
    step->seqs = batch->logits_seqs;
    step->attended = core->baseline.n > 0 ? attended(batch) : 0;
    plm_device_step_begin(core->rank.device);
    if (PLM_FAULT_SEED(ALLOC))
        plm_device_alloc(core->rank.device, PLM_SLAB_DEVICE, 64, &(struct plm_slab){0});
    const int r = plm_core_submit(core, &forward, &step->run);
    plm_device_step_end(core->rank.device);
    return r;
}

static int wait_step(struct plim_engine *engine, const struct plm_inflight *step)
{
    int64_t used = 0;
    plm_device_step_begin(engine->core->rank.device);
    const int r = plm_core_wait(engine->core, &step->run, &used);
    plm_device_step_end(engine->core->rank.device);
    if (r == PLM_OK) {
        plm_pressure_ran(engine, step->shape.rows, step->attended);
        audit(engine, &step->shape, used);
    }
    return r;
}

// ---- a step that ran ----

static void measure(struct plim_engine *engine, uint64_t tokens, int64_t from_ns, int64_t to_ns)
{
    if (tokens == 0 || to_ns <= from_ns)
        return;
    double rate = (double)tokens * 1e9 / (double)(to_ns - from_ns);
    // Follows within about twenty steps: forecasts need the trend, not the last step.
    engine->forecast.tokens_per_s = engine->forecast.tokens_per_s > 0
                                        ? 0.95 * engine->forecast.tokens_per_s + 0.05 * rate
                                        : rate;
}

// The batch ran: its rows are in the cache, and its logits become tokens.
static void deliver(struct plim_engine *engine, const struct plm_step_output *out, int64_t from_ns)
{
    const uint64_t before = engine->counts.generated_tokens;
    plm_sched_commit(engine->sched);
    plm_deliver(engine, out);
    engine->counts.steps++;
    const int64_t end_ns = plm_now(engine->core->clock);
    engine->counts.last_step_time_ns = end_ns;
    atomic_store(&engine->last_step_ns, end_ns);
    measure(engine, engine->counts.generated_tokens - before, from_ns, end_ns);
    plm_recover_ran(engine);
    plm_bisect_passed(&engine->bisect);
}

// The batch failed. Only the request whose fault it is ends.
static void recover(struct plim_engine *engine, const struct plm_shape *shape, int status,
                    struct plim_request *culprit)
{
    plm_logf(&engine->core->log, PLM_LOG_WARN, "a forward of %u rows failed: %s", shape->rows,
             plm_strstatus(status));
    switch (status) {
    case PLM_ERR_OUT_OF_DEVICE:
        plm_recorder_put(engine->recorder, &(struct plm_record){.kind = PLM_RECORD_NO_ROOM});
        plm_recover_refused(engine, shape);
        break;
    case PLM_ERR_LOST:
    case PLM_ERR_TIMEOUT: plm_recover_lost(engine, status); break;
    default:
        plm_bisect_failed(&engine->bisect, status, culprit);
        plm_request_fail_faulty(engine, status);
    }
}

// Ends a step that was submitted, or could not be (status). Returns whether it is delivered.
static bool retire(struct plim_engine *engine, const struct plm_inflight *step, int status)
{
    // One that was submitted while another was in flight begins where that ended.
    const int64_t from_ns = plm_max_i64(step->begin_ns, engine->counts.last_step_time_ns);
    struct plim_request *culprit = NULL;
    struct plm_step_output output = {
        .run = &step->run, .seqs = step->seqs, .rows = step->shape.logits_rows};
    if (status == PLM_OK)
        status = wait_step(engine, step);
    if (status == PLM_OK)
        status = plm_output_check(engine->core, &output, &culprit);
    if (status == PLM_OK)
        deliver(engine, &output, from_ns);
    else
        recover(engine, &step->shape, status, culprit);
    return status == PLM_OK;
}

// ---- one step ahead ----
//
// Where the device is asynchronous, a step of decodes whose tokens it finds or draws itself is left
// in flight: the next call submits the step after it, which takes its tokens on the device, before
// it looks at what came of the first. So the device does not wait for the host. A sequence that
// ends has computed one row too many, whose result is nobody's and whose block is free when its
// sequence has left: whoever gets it writes it later, since lists run in their order. Whatever else
// is to be done (a sleep, a resize, a new request) drains the step in flight first.

static bool has_inflight(const struct plim_engine *engine)
{
    return engine->ahead.current != NULL;
}

static uint32_t waiting(const struct plim_engine *engine)
{
    struct plm_sched_stats s;
    plm_sched_read(engine->sched, &s);
    return s.queued + s.paused + s.forks;
}

static bool may_run_ahead(const struct plim_engine *engine, const struct plm_batch *batch)
{
    return engine->ahead.slots[0].kept != NULL && batch->prefill_rows == 0 &&
           engine->bisect.n == 0 && engine->recover.rows_max == 0 &&
           batch->shape.logits_rows == batch->shape.rows &&
           plm_output_is_drawn(engine->core, batch->logits_seqs, batch->shape.rows);
}

void plm_step_drain(struct plim_engine *engine)
{
    struct plm_inflight *step = engine->ahead.current;
    if (step == NULL)
        return;
    retire(engine, step, PLM_OK);
    engine->ahead.current = NULL;
}

// Whether a sequence goes on whatever its next token is.
static bool goes_on(void *ctx, const struct plm_seq *seq)
{
    const struct plm_choice *choice = (const struct plm_choice *)seq;
    (void)ctx;
    return choice->live && choice->completions + 1 < choice->max_output;
}

// Steps ahead after which those who wait are looked at again: others may have run long enough since
// to give way.
#define AHEAD_MAX 16

// Whether somebody waits who may get a row in the next step: one who came since a step was formed
// on its own, or anybody where a sequence left, and now and then.
static bool is_wanted(const struct plim_engine *engine)
{
    const uint32_t n = waiting(engine);
    return n > engine->ahead.waited ||
           (n > 0 && (engine->ahead.left || engine->ahead.n >= AHEAD_MAX));
}

// Submits the step after the one in flight. False: there is none, and nothing is pending.
static bool submit_ahead(struct plim_engine *engine, const struct plm_inflight *now,
                         struct plm_inflight *next)
{
    const struct plm_sched_ahead ahead = {.goes_on = goes_on};
    const uint32_t rows = now->shape.logits_rows;
    struct plm_batch batch;
    struct plm_gate_result gate;
    if (now->run.results_addr == 0 || engine->bisect.n > 0 || is_wanted(engine) ||
        !plm_output_is_drawn(engine->core, now->seqs, rows) ||
        !plm_sched_form_ahead(engine->sched, now->seqs, rows, &ahead, &batch))
        return false;
    gate_step(engine, &batch, &gate);
    if (gate.answer == PLM_GATE_GO && submit_step(engine, &batch, now, next) == PLM_OK) {
        plm_inflight_keep(next);
        engine->ahead.n++;
        return true;
    }
    plm_sched_drop_ahead(engine->sched);
    return false;
}

// Submits one more step, and retires the one before it.
static void run_ahead(struct plim_engine *engine, int64_t now_ns)
{
    struct plm_inflight *now = engine->ahead.current;
    struct plm_inflight *next =
        now == &engine->ahead.slots[0] ? &engine->ahead.slots[1] : &engine->ahead.slots[0];
    next->begin_ns = now_ns;
    const bool ahead = submit_ahead(engine, now, next);
    if (!ahead)
        next->shape = (struct plm_shape){0};
    const bool well = retire(engine, now, PLM_OK);
    engine->ahead.current = ahead && well ? next : NULL;
    if (!ahead || well || engine->recover.down || engine->recover.gone)
        return;
    // The chained step computed with tokens of a failed one: it is waited for and dropped.
    const int r = plm_core_wait(engine->core, &next->run, NULL);
    if (r != PLM_OK)
        plm_recover_lost(engine, r);
}

// ---- a step on its own ----

static void run(struct plim_engine *engine, const struct plm_batch *batch, int64_t now_ns)
{
    struct plm_inflight *step = &engine->ahead.slots[0];
    step->begin_ns = now_ns;
    const int r = submit_step(engine, batch, NULL, step);
    engine->ahead.left = false;
    engine->ahead.n = 0;
    engine->ahead.waited = waiting(engine);
    if (r == PLM_OK && may_run_ahead(engine, batch)) {
        plm_inflight_keep(step);
        engine->ahead.current = step;
    } else {
        retire(engine, step, r);
    }
}

// ---- a step that does not run ----

// Work without a step, by steps and by time: far beyond what any order of things needs.
#define STALL_STEPS 1000u
#define STALL_NS    INT64_C(10000000000)

// Whether there is anything to compute; if so, the time without a step counts from now at the
// latest.
static bool note_work(struct plim_engine *engine, int64_t now_ns)
{
    struct plm_sched_stats s;
    int64_t idle = 0;
    plm_sched_read(engine->sched, &s);
    const bool any = s.running + s.queued + s.paused + s.forks > 0;
    if (any)
        atomic_compare_exchange_strong(&engine->last_step_ns, &idle, now_ns);
    else
        atomic_store(&engine->last_step_ns, 0);
    return any;
}

// Breaks a stall, in which nothing ran for long although there is work: ends a bisection, which may
// hold sequences back; then preempts the youngest; where none runs, ends the youngest request.
static void break_stall(struct plim_engine *engine)
{
    struct plm_seq *seq = plm_sched_youngest(engine->sched);
    struct plim_request *youngest = engine->requests;
    engine->counts.stalls++;
    plm_logf(&engine->core->log, PLM_LOG_ERROR, "there is work, but no step could be formed");
    plm_bisect_end(&engine->bisect);
    if (seq != NULL) {
        plm_sched_preempt(engine->sched, seq);
        return;
    }
    for (struct plim_request *r = engine->requests; r != NULL; r = r->next) {
        if (r->choices[0].seq.order > youngest->choices[0].seq.order)
            youngest = r;
    }
    if (youngest != NULL)
        plm_request_fail(engine, youngest, PLIM_ERR_NOMEM_NOW, "the engine made no progress");
}

// There were no rows.
static void watch_stall(struct plim_engine *engine, int64_t now_ns)
{
    if (engine->stalled_steps++ == 0)
        engine->stalled_ns = now_ns;
    if (engine->stalled_steps < STALL_STEPS && now_ns - engine->stalled_ns < STALL_NS)
        return;
    engine->stalled_steps = 0;
    break_stall(engine);
}

// ---- the step ----

static bool work(struct plim_engine *engine, int64_t now_ns, bool asleep)
{
    struct plm_batch batch;
    const bool arrived = take_arrivals(engine);
    time_out(engine, now_ns);
    if (asleep) {
        atomic_store(&engine->last_step_ns, 0);
        return arrived;
    }
    note_work(engine, now_ns);
    if (!plm_recover_ready(engine, now_ns))
        return engine->recover.down || arrived;
    if (has_inflight(engine)) {
        run_ahead(engine, now_ns);
        return true;
    }
    form(engine, &batch);
    if (batch.shape.rows > 0) {
        engine->stalled_steps = 0;
        run(engine, &batch, now_ns);
        return true;
    }
    if (note_work(engine, now_ns))
        watch_stall(engine, now_ns);
    else
        engine->stalled_steps = 0;
    return arrived;
}

// What is done between steps may move or take the blocks that a step in flight works with.
static bool must_drain(struct plim_engine *engine, int64_t now_ns)
{
    pthread_mutex_lock(&engine->lock);
    const bool sleeps = engine->sleep.state != PLM_AWAKE;
    pthread_mutex_unlock(&engine->lock);
    return sleeps || plm_pressure_due(engine, now_ns);
}

bool plm_step(struct plim_engine *engine, int64_t now_ns)
{
    plm_device_mark(engine->core->rank.device, PLM_PHASE_SERVE, ++engine->n_marks);
    plm_recorder_step(engine->recorder, engine->n_marks, now_ns);
    plm_admission_recheck(engine);
    if (has_inflight(engine) && must_drain(engine, now_ns))
        plm_step_drain(engine);
    const bool asleep = plm_sleep_step(engine);
    const bool resized = plm_pressure_step(engine, now_ns, asleep);
    const bool worked = work(engine, now_ns, asleep);
    plm_incident_tell(engine);
    plm_step_publish(engine);
    plm_request_reap(engine);
    return worked || resized;
}
