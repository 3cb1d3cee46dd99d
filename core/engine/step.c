// SPDX-License-Identifier: Apache-2.0
// One step: take in what arrived, form a batch, ask the gate, run, sample, deliver.
#include <string.h>

#include "core/base/checked.h"
#include "core/base/plant.h"
#include "core/engine/impl.h"

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
        plm_step_end_request(engine, cancel, PLIM_FINISH_CANCELLED, PLIM_ERR_CANCELLED, NULL);
        if (PLM_PLANT(LEAK))
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
        plm_door_overdue(engine, request, &error);
        plm_step_end_request(engine, request, PLIM_FINISH_ERROR, PLIM_ERR_NOMEM_NOW, &error);
    }
}

static void admitted(void *ctx, struct plm_seq *seq)
{
    struct plim_engine *engine = ctx;
    struct plim_request *request = ((struct plm_choice *)seq)->request;
    if (seq->leader != NULL)
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
    engine->waiting--;
    engine->waiting_tokens -= request->n_prompt;
    pthread_mutex_unlock(&engine->lock);
    request->unheard = !plm_events_admitted(request);
    plm_ring_put(engine->ring, &(struct plm_ring_record){.kind = PLM_RING_ADMIT,
                                                         .value = (int64_t)request->ring_id});
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
    plm_door_refused_step(engine, request, gate, &error);
    plm_step_end_request(engine, request, PLIM_FINISH_ERROR, PLIM_ERR_NOMEM_NOW, &error);
}

// Forms a batch that the gate lets pass. rows 0: nothing to run.
static void form(struct plim_engine *engine, struct plm_batch *batch)
{
    const struct plm_sched_hook hook = {.admitted = admitted, .ctx = engine};
    uint32_t rows_max = engine->recover.rows_max;
    for (;;) {
        struct plm_gate_result gate;
        plm_sched_form(engine->sched, rows_max, &hook, batch);
        struct plm_seq *stuck = plm_sched_stuck(engine->sched);
        if (stuck != NULL) {
            plm_step_fail(engine, ((struct plm_choice *)stuck)->request, PLIM_ERR_NOMEM_NEVER,
                          "the KV cache is smaller than this request alone");
            continue;
        }
        if (batch->shape.rows == 0) {
            if (plm_search_make_room(engine))
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

static int forward(struct plim_engine *engine, const struct plm_batch *batch,
                   struct plm_forward_out *ret)
{
    struct plm_core *core = engine->core;
    const struct plm_forward forward = {
        .shape = batch->shape,
        .flags = batch->shape.logits_rows == 0 ? PLM_FORWARD_SKIP_HEAD : 0,
        .workspace = core->workspace_addr,
        .tokens = batch->tokens,
        .pos = batch->pos,
        .seq = batch->seq,
        .slots = batch->slots,
        .tables = batch->tables,
        .table_stride = batch->table_stride,
        .logits_rows = batch->logits_rows};
    int64_t used = 0;
    plm_device_step_begin(core->device);
    if (PLM_PLANT(ALLOC))
        plm_device_alloc(core->device, PLM_SLAB_DEVICE, 64, &(struct plm_slab){0});
    int r = plm_core_forward(core, &forward, ret, &used);
    plm_device_step_end(core->device);
    if (r == PLM_OK)
        plm_residency_step(engine, batch);
    int64_t excess = r == PLM_OK ? plm_gate_audit(&engine->gate, &batch->shape, used) : 0;
    if (excess > 0) {
        plm_logf(&core->log, PLM_LOG_ERROR,
                 "a forward of %u rows used %lld bytes more than planned (a defect; the plan now "
                 "counts them)",
                 batch->shape.rows, (long long)excess);
        plm_ring_put(engine->ring,
                     &(struct plm_ring_record){.kind = PLM_RING_OVERRUN, .value = excess});
        plm_incident(engine, "audit");
    }
    return r;
}

// ---- the logits ----

// What a step left for sampling.
struct harvest {
    const struct plm_batch *batch;
    struct plm_forward_out out;
    const struct plm_argmax_record *best; // of every row; NULL: the rows themselves are looked at
};

// Row i; NULL: the device is lost since.
static const float *row_of(struct plim_engine *engine, const struct harvest *h, uint32_t i)
{
    return plm_core_logits(engine->core, h->out.logits, i);
}

// PLM_OK, LOST, or NUMERIC where a number of the row is none.
static int check_row(struct plim_engine *engine, const struct harvest *h, uint32_t i)
{
    if (h->best != NULL)
        return h->best[i].n_wrong == 0 ? PLM_OK : PLM_ERR_NUMERIC;
    const float *row = row_of(engine, h, i);
    if (row == NULL)
        return PLM_ERR_LOST;
    const uint32_t n_vocab = plm_model_facts(engine->core->model)->n_vocab;
    return plm_sample_finite(row, n_vocab) ? PLM_OK : PLM_ERR_NUMERIC;
}

// Looks at all logits before any is used: nothing of a step with a wrong number is delivered.
// *ret_culprit: the one request whose logits are wrong where those of others are not, or NULL: a
// prompt that has no logits in this step may have spoilt all there are.
static int check(struct plim_engine *engine, struct harvest *h, struct plim_request **ret_culprit)
{
    const uint32_t rows = h->batch->shape.logits_rows;
    struct plim_request *wrong = NULL;
    bool several = false, any_right = false;
    if (h->out.best != 0) {
        h->best = plm_core_best(engine->core, h->out.best, rows);
        if (h->best == NULL)
            return PLM_ERR_LOST;
    }
    for (uint32_t i = 0; i < rows; i++) {
        struct plim_request *request = ((struct plm_choice *)h->batch->logits_seqs[i])->request;
        int r = check_row(engine, h, i);
        if (r == PLM_OK) {
            any_right = true;
            continue;
        }
        if (r != PLM_ERR_NUMERIC)
            return r;
        several = several || (wrong != NULL && wrong != request);
        wrong = request;
    }
    *ret_culprit = several || !any_right ? NULL : wrong;
    return wrong == NULL ? PLM_OK : PLM_ERR_NUMERIC;
}

// The token that row i gives a choice. LOST: it could not be read.
static int sample(struct plim_engine *engine, const struct harvest *h, uint32_t i,
                  struct plm_sample_out *out)
{
    const struct plm_choice *choice = (const struct plm_choice *)h->batch->logits_seqs[i];
    const struct plim_request *request = choice->request;
    const struct plm_seq *seq = &choice->seq;
    struct plm_sample_in in = {.params = &request->params,
                               .prompt = seq->tokens,
                               .n_prompt = seq->n_prompt,
                               .output = seq->tokens + seq->n_prompt,
                               .n_output = seq->n_tokens - seq->n_prompt,
                               .choice = choice->index};
    if (in.n_output < request->min_tokens) {
        in.banned = engine->core->eog;
        in.n_banned = engine->core->n_eog;
    }
    if (h->best != NULL && plm_sample_is_argmax(&in)) {
        *out = (struct plm_sample_out){.token = h->best[i].index};
        return PLM_OK;
    }
    in.logits = row_of(engine, h, i);
    return in.logits != NULL ? plm_sampler_draw(engine->core->sampler, &in, out) : PLM_ERR_LOST;
}

static void sample_rows(struct plim_engine *engine, const struct harvest *h)
{
    for (uint32_t i = 0; i < h->batch->shape.logits_rows; i++) {
        struct plm_choice *choice = (struct plm_choice *)h->batch->logits_seqs[i];
        struct plm_sample_out out;
        // An earlier row of this step may have ended the whole request.
        if (!choice->live)
            continue;
        int r = sample(engine, h, i, &out);
        if (r == PLM_ERR_LOST)
            return; // the next step finds it so, and computes these again
        if (r == PLM_OK)
            plm_step_token(engine, choice, &out, plm_now(engine->core->clock));
        else
            plm_step_fail(engine, choice->request, r, "no token can be chosen");
    }
}

// ---- a step that ran ----

static void measure(struct plim_engine *engine, uint64_t tokens, int64_t from_ns, int64_t to_ns)
{
    if (tokens == 0 || to_ns <= from_ns)
        return;
    double rate = (double)tokens * 1e9 / (double)(to_ns - from_ns);
    // Follows within about twenty steps: forecasts need the trend, not the last step.
    engine->tokens_per_s =
        engine->tokens_per_s > 0 ? 0.95 * engine->tokens_per_s + 0.05 * rate : rate;
}

// The batch ran: its rows are in the cache, and its logits become tokens.
static void deliver(struct plim_engine *engine, const struct harvest *h, int64_t from_ns)
{
    const uint64_t before = engine->counts.generated_tokens;
    plm_sched_commit(engine->sched);
    sample_rows(engine, h);
    engine->counts.steps++;
    const int64_t end_ns = plm_now(engine->core->clock);
    engine->counts.last_step_time_ns = end_ns;
    atomic_store(&engine->last_step_ns, end_ns);
    measure(engine, engine->counts.generated_tokens - before, from_ns, end_ns);
    plm_recover_ran(engine);
    plm_search_passed(engine);
}

// The batch did not run, or not well. Nobody ends but the one whose fault it is.
static void recover(struct plim_engine *engine, const struct plm_batch *batch, int status,
                    struct plim_request *culprit)
{
    plm_logf(&engine->core->log, PLM_LOG_WARN, "a forward of %u rows failed: %s", batch->shape.rows,
             plm_strstatus(status));
    switch (status) {
    case PLM_ERR_OUT_OF_DEVICE:
        plm_ring_put(engine->ring, &(struct plm_ring_record){.kind = PLM_RING_NO_ROOM});
        plm_recover_refused(engine, &batch->shape);
        break;
    case PLM_ERR_LOST:
    case PLM_ERR_TIMEOUT: plm_recover_lost(engine, status); break;
    default: plm_search_failed(engine, status, culprit);
    }
}

static void run(struct plim_engine *engine, const struct plm_batch *batch, int64_t now_ns)
{
    struct plim_request *culprit = NULL;
    struct harvest harvest = {.batch = batch};
    int r = forward(engine, batch, &harvest.out);
    if (r == PLM_OK)
        r = check(engine, &harvest, &culprit);
    if (r == PLM_OK)
        deliver(engine, &harvest, now_ns);
    else
        recover(engine, batch, r, culprit);
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
    const bool any = s.running + s.queued + s.paused + s.followers > 0;
    if (any)
        atomic_compare_exchange_strong(&engine->last_step_ns, &idle, now_ns);
    else
        atomic_store(&engine->last_step_ns, 0);
    return any;
}

// Nothing has run for long although there is work, and nothing says why. What a search holds back
// is let go; then the youngest give their blocks back, and when none has any, end.
static void break_stall(struct plim_engine *engine)
{
    struct plm_seq *seq = plm_sched_youngest(engine->sched);
    struct plim_request *youngest = engine->requests;
    engine->counts.stalls++;
    plm_logf(&engine->core->log, PLM_LOG_ERROR, "there is work, but no step could be formed");
    plm_search_end(engine);
    if (seq != NULL) {
        plm_sched_preempt(engine->sched, seq);
        return;
    }
    for (struct plim_request *r = engine->requests; r != NULL; r = r->next) {
        if (r->choices[0].seq.order > youngest->choices[0].seq.order)
            youngest = r;
    }
    if (youngest != NULL)
        plm_step_fail(engine, youngest, PLIM_ERR_NOMEM_NOW, "the engine made no progress");
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

bool plm_step(struct plim_engine *engine, int64_t now_ns)
{
    plm_device_mark(engine->core->device, PLM_PHASE_SERVE, ++engine->n_marks);
    plm_ring_step(engine->ring, engine->n_marks, now_ns);
    plm_door_relook(engine);
    const bool asleep = plm_sleep_step(engine);
    const bool resized = plm_pressure_step(engine, now_ns, asleep);
    const bool worked = work(engine, now_ns, asleep);
    plm_incident_tell(engine);
    plm_step_publish(engine);
    plm_step_bury(engine);
    return worked || resized;
}
