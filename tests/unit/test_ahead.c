// SPDX-License-Identifier: Apache-2.0
// One step ahead of the host: on an asynchronous device the next decode is submitted before anybody
// looked at the one that runs, and nothing else differs. Texts are those of a device that waits,
// what fails is found and computed again, and what ends, leaves or arrives drains the step in
// flight first. On a simulated device that computes.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "tests/support/suite.h"

#define MIB    (UINT64_C(1) << 20)
#define SEQS   6u
#define POISON 77
#define WORDS  40u // longest answer

// ---- a device that counts ----

static struct plm_backend counting;
static uint64_t submitted, waited;    // values of the timeline
static uint64_t most_inflight, ahead; // lists in flight at once; submits while one was

static int count_submit(struct plm_backend_device *dev, uint64_t *ret_value)
{
    const bool busy = submitted > waited;
    const int r = plm_sim_backend.submit(dev, ret_value);
    if (r == PLM_OK) {
        submitted = *ret_value;
        ahead += busy;
        most_inflight = submitted - waited > most_inflight ? submitted - waited : most_inflight;
    }
    return r;
}

static int count_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns)
{
    waited = value > waited ? value : waited;
    return plm_sim_backend.wait(dev, value, timeout_ns);
}

// Results of steps that do not reach the host: of which of those that leave any (from 0 on), and
// whether all of them or the record of one row.
static struct {
    bool on;
    uint64_t from, times;
    int32_t row; // below 0: all
} keeps_back;
static uint64_t left_results;

static int count_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units,
                        const void *args, size_t args_bytes)
{
    struct plm_copy_args part;
    const uint64_t record = sizeof(struct plm_argmax_record) / 4;
    if (op != PLM_OP_COPY || !keeps_back.on || left_results++ - keeps_back.from >= keeps_back.times)
        return plm_sim_backend.launch(dev, op, units, args, args_bytes);
    if (keeps_back.row < 0)
        return PLM_OK;
    memcpy(&part, args, sizeof(part));
    const uint64_t before = (uint64_t)keeps_back.row * record, words = part.n_words;
    part.n_words = before;
    int r = before > 0 ? plm_sim_backend.launch(dev, op, units, &part, sizeof(part)) : PLM_OK;
    part.src += (before + record) * 4;
    part.dst += (before + record) * 4;
    part.n_words = words - before - record;
    if (r == PLM_OK)
        r = plm_sim_backend.launch(dev, op, units, &part, sizeof(part));
    return r;
}

static int count_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes)
{
    waited = submitted; // it is ordered after all there is
    return plm_sim_backend.copy_out(dev, dst, src, bytes);
}

static uint64_t copies_in; // transfers to the device

static int count_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src,
                         uint64_t bytes)
{
    copies_in++;
    return plm_sim_backend.copy_in(dev, dst, src, bytes);
}

// What lies between the parts is the backend's to write.
static int count_copy_in_parts(struct plm_backend_device *dev, uint64_t dst,
                               const struct plm_copy_part *parts, uint32_t n)
{
    static const unsigned char rest[256] = {0xEE, 1, 0xEE, 0xEE};
    uint64_t end = 0;
    int r = PLM_OK;
    copies_in++;
    for (uint32_t i = 0; i < n && r == PLM_OK; i++) {
        if (parts[i].at > end)
            r = plm_sim_backend.copy_in(dev, dst + end, rest, parts[i].at - end);
        if (r == PLM_OK)
            r = plm_sim_backend.copy_in(dev, dst + parts[i].at, parts[i].src, parts[i].bytes);
        end = parts[i].at + parts[i].bytes;
    }
    return r;
}

static int count_open(const struct plm_device_opts *o, struct plm_backend_device **ret,
                      struct plm_error *err)
{
    submitted = waited = 0;
    return plm_sim_backend.open(o, ret, err);
}

// ---- an engine ----

static struct plm_sim_opts script;
static struct plm_sim_world world;
static struct plm_sim_clock sim_clock;
static struct plm_clock clock_source;
static plim_engine_opts opts;
static plim_error err = PLIM_INIT(plim_error);
static uint64_t prefers = PLM_GPU_PREFERS; // of the device

static void init(bool async)
{
    memset(&world, 0, sizeof(world));
    plm_sim_clock_init(&sim_clock);
    clock_source = plm_sim_clock_source(&sim_clock);
    counting = plm_sim_backend;
    counting.open = count_open;
    memset(&keeps_back, 0, sizeof(keeps_back));
    left_results = 0;
    counting.launch = count_launch;
    counting.submit = count_submit;
    counting.wait = count_wait;
    counting.copy_out = count_copy_out;
    counting.copy_in = count_copy_in;
    counting.copy_in_parts = count_copy_in_parts;
    script = (struct plm_sim_opts){.inner = &plm_cpu_backend,
                                   .world = &world,
                                   .capacity_bytes = 256 * MIB,
                                   .granularity_bytes = 64 << 10,
                                   .hides_slabs = true,
                                   .async = async,
                                   .prefers = prefers,
                                   .few_rows = PLM_VULKAN_FEW_ROWS,
                                   .submit_ns = 1000000,
                                   .poison_token = POISON};
    plim_engine_opts_init(&opts);
    opts.model_path = TEST_MODELS "/llama-tied-q4_1.gguf";
    opts.threads = 1;
    opts.ctx_size = 128;
    opts.batch_max_tokens = 32;
    opts.max_sequences = SEQS;
    opts.manual_step = 1;
    opts.monitor_ms = 0;
    opts.queue_timeout_ms = 0;
}

static plim_engine *start(void)
{
    plim_engine_opts read;
    plim_engine *engine = NULL;
    ck_assert_int_eq(plm_opts_read(&opts, &read, NULL), PLIM_OK);
    const struct plm_engine_env env = {.host = plm_host_create(0),
                                       .clock = &clock_source,
                                       .backend = &counting,
                                       .backend_opts = &script,
                                       .seed = 1};
    const int r = plm_engine_create_in(&env, &read, &engine, &err);
    ck_assert_msg(r == PLIM_OK, "create: %d %s", r, err.message);
    most_inflight = ahead = copies_in = 0;
    return engine;
}

static void end(plim_engine *engine)
{
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(engine->core->pool, &pool);
    ck_assert_uint_eq(pool.used, 0);
    ck_assert_uint_eq(engine->counts.audit_excess, 0);
    ck_assert_int_eq(plm_engine_destroy(engine), 0);
}

// ---- requests ----

struct ask {
    uint32_t prompt, max, n;
    int32_t first;                   // token of the prompt
    float temperature, top_p, min_p; // top_p 0: off
    uint32_t top_k;
    uint32_t min_tokens, from_step;
    bool heeds_eos, logprobs;
};

struct heard {
    plim_request *request;
    int32_t tokens[4][WORDS];
    uint32_t n[4];
    int32_t finish[4];
    int status; // 1: not ended
};

static void submit(plim_engine *engine, const struct ask *ask, struct heard *to)
{
    int32_t prompt[128];
    plim_request_opts q;
    for (uint32_t i = 0; i < ask->prompt; i++)
        prompt[i] = i == 0 ? ask->first : (int32_t)((ask->first * 5u + i * 11u) % 70u);
    memset(to, 0, sizeof(*to));
    to->status = 1;
    plim_request_opts_init(&q);
    q.tokens = prompt;
    q.n_tokens = ask->prompt;
    q.max_tokens = ask->max;
    q.n = ask->n > 0 ? ask->n : 1;
    q.ignore_eos = !ask->heeds_eos;
    q.temperature = ask->temperature;
    q.top_p = ask->top_p > 0 ? ask->top_p : 1.0f;
    q.min_p = ask->min_p;
    q.top_k = ask->top_k;
    q.has_seed = 1;
    q.seed = 9;
    q.min_tokens = ask->min_tokens;
    q.logprobs = ask->logprobs;
    ck_assert_msg(plim_request_submit(engine, &q, &to->request, &err) == PLIM_OK, "%s",
                  err.message);
}

static void listen(struct heard *to)
{
    plim_event e = PLIM_INIT(plim_event);
    while (to->request != NULL && plim_request_next(to->request, 0, &e) == PLIM_OK) {
        if (e.type == PLIM_EVENT_TOKEN)
            to->tokens[e.choice][to->n[e.choice]++] = e.token;
        if (e.type == PLIM_EVENT_FINISH)
            to->finish[e.choice] = e.finish;
        if (e.type == PLIM_EVENT_DONE)
            to->status = e.status;
    }
}

// Serves them all, each from its step on; cancel: the step at which the first one is cancelled.
static void serve(plim_engine *engine, const struct ask *asks, uint32_t n, uint32_t cancel,
                  struct heard *heard)
{
    uint32_t open = n;
    memset(heard, 0, n * sizeof(*heard));
    for (uint32_t step = 0; open > 0; step++) {
        ck_assert_uint_lt(step, 5000);
        for (uint32_t i = 0; i < n; i++) {
            if (asks[i].from_step == step)
                submit(engine, &asks[i], &heard[i]);
        }
        if (cancel > 0 && step == cancel)
            plim_request_cancel(heard[0].request);
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        for (uint32_t i = 0; i < n; i++) {
            const bool was_open = heard[i].request != NULL;
            listen(&heard[i]);
            if (was_open && heard[i].status != 1) {
                plim_request_free(heard[i].request);
                heard[i].request = NULL;
                open--;
            }
        }
    }
}

static void same(const struct heard *a, const struct heard *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(a[i].status, b[i].status);
        for (int c = 0; c < 4; c++) {
            ck_assert_uint_eq(a[i].n[c], b[i].n[c]);
            ck_assert_int_eq(a[i].finish[c], b[i].finish[c]);
            ck_assert_mem_eq(a[i].tokens[c], b[i].tokens[c], a[i].n[c] * sizeof(int32_t));
        }
    }
}

// The same on a device that waits.
static void serve_waiting(const struct ask *asks, uint32_t n, struct heard *heard)
{
    init(false);
    plim_engine *engine = start();
    serve(engine, asks, n, 0, heard);
    ck_assert_uint_eq(most_inflight, 1);
    end(engine);
}

// ---- tests ----

START_TEST(texts_are_those_of_a_device_that_waits)
{
    // Every length of a prompt around a block's end, and of an answer.
    for (uint32_t p = 1; p <= 34; p += 3) {
        struct ask asks[SEQS];
        struct heard want[SEQS], got[SEQS];
        for (uint32_t i = 0; i < SEQS; i++)
            asks[i] = (struct ask){
                .prompt = p + i, .max = 1 + (p * 7 + i * 13) % 39, .first = (int32_t)(p + 3 * i)};
        serve_waiting(asks, SEQS, want);
        init(true);
        plim_engine *engine = start();
        serve(engine, asks, SEQS, 0, got);
        same(want, got, SEQS);
        ck_assert_uint_eq(most_inflight, 2);
        end(engine);
    }
}
END_TEST

START_TEST(a_decode_never_waits_for_the_host)
{
    const struct ask ask = {.prompt = 20, .max = 40, .first = 4};
    struct heard heard;
    init(true);
    plim_engine *engine = start();
    serve(engine, &ask, 1, 0, &heard);
    ck_assert_int_eq(heard.status, PLIM_OK);
    // The prompt gives the first token, 39 decodes the others: all but the first of those were
    // submitted while the one before ran, and no row was computed for nothing.
    ck_assert_uint_eq(ahead, 38);
    ck_assert_uint_eq(engine->counts.steps, 40);
    ck_assert_uint_eq(copies_in, 40); // what a step needs comes at once
    end(engine);
}
END_TEST

// Where the device draws, what chance decides runs ahead, too, and is what the host would draw.
START_TEST(chance_runs_ahead_where_the_device_draws)
{
    const struct ask asks[] = {
        {.prompt = 20, .max = 40, .first = 4, .temperature = 1.0f},
        {.prompt = 3, .max = 40, .first = 7, .temperature = 1.5f, .top_p = 0.7f},
        {.prompt = 9, .max = 40, .first = 8, .temperature = 0.8f, .top_p = 0.95f, .top_k = 40},
        {.prompt = 17, .max = 40, .first = 9, .temperature = 2.0f, .min_p = 0.1f},
        {.prompt = 30, .max = 40, .first = 2}};
    struct heard want[5], got[5], alone;
    prefers = PLM_GPU_PREFERS;
    serve_waiting(asks, 5, want);
    prefers = PLM_CUDA_PREFERS;
    init(true);
    plim_engine *engine = start();
    serve(engine, asks, 5, 0, got);
    same(want, got, 5);
    ck_assert_uint_gt(ahead, 36);
    end(engine);
    for (uint32_t i = 0; i < 5; i++) {
        init(true);
        engine = start();
        serve(engine, &asks[i], 1, 0, &alone);
        same(&want[i], &alone, 1);
        ck_assert_uint_eq(ahead, 38);
        end(engine);
    }
    prefers = PLM_GPU_PREFERS;
}
END_TEST

// Requests that need a row of logits, sample, end by a token of the model, or have several choices.
START_TEST(other_requests_are_served_as_ever)
{
    const struct ask asks[] = {
        {.prompt = 9, .max = 30, .first = 5, .temperature = 0.9f},
        {.prompt = 4, .max = 30, .first = 6, .from_step = 3},
        {.prompt = 7, .max = 20, .first = 7, .logprobs = true},
        {.prompt = 5, .max = 35, .first = 8, .min_tokens = 6, .heeds_eos = true},
        {.prompt = 18, .max = 25, .first = 9, .n = 3, .from_step = 9},
        {.prompt = 33, .max = 12, .first = 10, .from_step = 14}};
    struct heard want[6], got[6];
    // Each alone, and all together.
    for (uint32_t i = 0; i < 7; i++) {
        prefers = PLM_GPU_PREFERS;
        struct ask one = asks[i % 6];
        one.from_step = 0;
        const struct ask *some = i < 6 ? &one : asks;
        const uint32_t n = i < 6 ? 1 : 6;
        serve_waiting(some, n, want);
        for (int draws = 0; draws < 2; draws++) {
            prefers = draws ? PLM_CUDA_PREFERS : PLM_GPU_PREFERS;
            init(true);
            plim_engine *engine = start();
            serve(engine, some, n, 0, got);
            same(want, got, n);
            end(engine);
        }
    }
}
END_TEST

// The end-of-generation token is seen one step late: the extra row is thrown away, and who falls
// asleep with nothing but such rows in flight waits for them.
START_TEST(an_end_throws_one_row_away)
{
    struct ask asks[SEQS];
    struct heard want[SEQS], got[SEQS];
    uint32_t stops = 0, sleeps = 0;
    for (int32_t round = 0; round < 8; round++) {
        for (uint32_t i = 0; i < SEQS; i++)
            asks[i] = (struct ask){
                .prompt = 3 + i, .max = 40, .first = round * 8 + (int32_t)i, .heeds_eos = true};
        serve_waiting(asks, SEQS, want);
        init(true);
        plim_engine *engine = start();
        serve(engine, asks, SEQS, 0, got);
        same(want, got, SEQS);
        end(engine);
        for (uint32_t i = 0; i < SEQS; i++) {
            if (got[i].finish[0] != PLIM_FINISH_STOP)
                continue;
            init(true);
            engine = start();
            serve(engine, &asks[i], 1, 0, got);
            same(want + i, got, 1);
            stops++;
            sleeps += engine->ahead.current != NULL;
            ck_assert_int_eq(plim_engine_sleep(engine, 0, &err), PLIM_OK);
            ck_assert_ptr_null(engine->ahead.current);
            ck_assert_uint_eq(waited, submitted);
            end(engine);
            break;
        }
    }
    ck_assert_uint_gt(stops, 0);
    ck_assert_uint_gt(sleeps, 0);
}
END_TEST

START_TEST(a_request_may_leave_at_any_step)
{
    const struct ask asks[] = {{.prompt = 9, .max = 40, .first = 5},
                               {.prompt = 5, .max = 30, .first = 6},
                               {.prompt = 14, .max = 30, .first = 7}};
    struct heard want[3], got[3];
    serve_waiting(asks, 3, want);
    for (uint32_t cancel = 1; cancel < 30; cancel++) {
        init(true);
        plim_engine *engine = start();
        serve(engine, asks, 3, cancel, got);
        ck_assert_int_eq(got[0].status, PLIM_ERR_CANCELLED);
        same(want + 1, got + 1, 2);
        end(engine);
    }
}
END_TEST

// A pool that is too small for all of them: blocks run out, and the youngest are preempted.
START_TEST(a_small_pool_preempts_as_ever)
{
    struct ask asks[SEQS];
    struct heard want[SEQS], got[SEQS];
    for (uint32_t i = 0; i < SEQS; i++)
        asks[i] = (struct ask){.prompt = 20 + i, .max = 40, .first = (int32_t)i};
    serve_waiting(asks, SEQS, want);
    init(true);
    opts.max_total_tokens = 16 * 16;
    opts.prefix_cache = 0;
    plim_engine *engine = start();
    serve(engine, asks, SEQS, 0, got);
    same(want, got, SEQS);
    ck_assert_uint_gt(engine->counts.preemptions, 0);
    ck_assert_uint_gt(ahead, 0);
    end(engine);
}
END_TEST

START_TEST(more_than_run_at_once_wait_their_turn)
{
    struct ask asks[3 * SEQS];
    struct heard want[3 * SEQS], got[3 * SEQS];
    for (uint32_t i = 0; i < 3 * SEQS; i++)
        asks[i] = (struct ask){
            .prompt = 3 + i, .max = 5 + 3 * i % 17, .first = (int32_t)i, .from_step = i / 2};
    serve_waiting(asks, 3 * SEQS, want);
    init(true);
    plim_engine *engine = start();
    serve(engine, asks, 3 * SEQS, 0, got);
    same(want, got, 3 * SEQS);
    ck_assert_uint_gt(ahead, 0);
    end(engine);
}
END_TEST

// The device is lost at each submit of a run in turn, and refuses each in turn.
START_TEST(any_submit_may_fail)
{
    const struct ask asks[] = {{.prompt = 9, .max = 12, .first = 5},
                               {.prompt = 5, .max = 12, .first = 6, .from_step = 4}};
    struct heard want[2], got[2];
    serve_waiting(asks, 2, want);
    init(true);
    plim_engine *engine = start();
    const uint64_t first = world.submits;
    serve(engine, asks, 2, 0, got);
    const uint64_t last = world.submits;
    end(engine);
    for (uint64_t at = first + 1; at <= last; at++) {
        for (int lost = 0; lost < 2; lost++) {
            const struct plm_sim_event event = {.when = PLM_SIM_AT_SUBMIT,
                                                .at = at,
                                                .what = lost ? PLM_SIM_LOST : PLM_SIM_FAIL_SUBMITS,
                                                .value = 1};
            init(true);
            script.events = &event;
            script.n_events = 1;
            engine = start();
            serve(engine, asks, 2, 0, got);
            same(want, got, 2);
            ck_assert_uint_eq(engine->counts.losses, (uint64_t)lost);
            end(engine);
        }
    }
}
END_TEST

// Results of any step may be lost: the device is opened again, and nobody notices.
START_TEST(results_that_do_not_come_are_a_loss)
{
    const struct ask asks[] = {{.prompt = 9, .max = 12, .first = 5},
                               {.prompt = 5, .max = 12, .first = 6, .from_step = 4}};
    struct heard want[2], got[2];
    serve_waiting(asks, 2, want);
    for (uint64_t at = 0; at < 13; at++) {
        init(true);
        plim_engine *engine = start();
        keeps_back.on = true;
        keeps_back.from = at;
        keeps_back.times = 1;
        keeps_back.row = -1;
        serve(engine, asks, 2, 0, got);
        ck_assert_uint_gt(left_results, at);
        same(want, got, 2);
        ck_assert_uint_eq(engine->counts.losses, 1);
        end(engine);
    }
}
END_TEST

// A device that never delivers is given up, and says so.
START_TEST(results_that_never_come_end_the_engine)
{
    const struct ask asks[] = {{.prompt = 9, .max = 12, .first = 5},
                               {.prompt = 5, .max = 12, .first = 6}};
    struct heard got[2];
    init(true);
    plim_engine *engine = start();
    keeps_back.on = true;
    keeps_back.times = UINT64_MAX;
    keeps_back.row = -1;
    serve(engine, asks, 2, 0, got);
    ck_assert_int_eq(got[0].status, PLIM_ERR_LOST);
    ck_assert_int_eq(got[1].status, PLIM_ERR_LOST);
    ck_assert_uint_eq(got[0].n[0] + got[1].n[0], 0);
    end(engine);
}
END_TEST

// The record of one row alone is lost: that request ends, and the other one goes on with the same
// text.
START_TEST(a_record_that_does_not_come_is_a_wrong_row)
{
    const struct ask asks[] = {{.prompt = 9, .max = 20, .first = 5},
                               {.prompt = 9, .max = 20, .first = 6}};
    struct heard want[2], got[2];
    serve_waiting(asks, 2, want);
    init(true);
    plim_engine *engine = start();
    keeps_back.on = true;
    keeps_back.from = 6;
    keeps_back.times = 1;
    keeps_back.row = 1;
    serve(engine, asks, 2, 0, got);
    same(want, got, 1);
    ck_assert_int_eq(got[1].status, PLIM_ERR_NUMERIC);
    ck_assert_uint_eq(got[1].n[0], 6);
    ck_assert_mem_eq(got[1].tokens[0], want[1].tokens[0], 6 * sizeof(int32_t));
    ck_assert_uint_eq(engine->counts.losses, 0);
    end(engine);
}
END_TEST

START_TEST(a_hang_is_a_loss)
{
    const struct ask ask = {.prompt = 9, .max = 20, .first = 5};
    struct heard want, got;
    serve_waiting(&ask, 1, &want);
    init(true);
    plim_engine *engine = start();
    const uint64_t first = world.submits;
    end(engine);
    for (uint64_t at = first + 2; at < first + 12; at++) {
        const struct plm_sim_event hang = {.when = PLM_SIM_AT_SUBMIT,
                                           .at = at,
                                           .what = PLM_SIM_HANG,
                                           .value = INT64_C(3600000000000)};
        init(true);
        script.events = &hang;
        script.n_events = 1;
        opts.watchdog_ms = 500;
        engine = start();
        serve(engine, &ask, 1, 0, &got);
        same(&want, &got, 1);
        ck_assert_uint_eq(engine->counts.losses, 1);
        end(engine);
    }
}
END_TEST

// NaN for all rows of a step with the poison token in it: the request with that prompt ends,
// whoever is in flight beside it goes on with the same text.
START_TEST(wrong_numbers_end_the_one_whose_they_are)
{
    const struct ask asks[] = {{.prompt = 9, .max = 30, .first = 5},
                               {.prompt = 5, .max = 30, .first = 6},
                               {.prompt = 6, .max = 12, .first = POISON, .from_step = 11}};
    struct heard want[2], got[3];
    serve_waiting(asks, 2, want);
    init(true);
    script.poison = PLM_SIM_POISON_NAN;
    plim_engine *engine = start();
    serve(engine, asks, 3, 0, got);
    same(want, got, 2);
    ck_assert_int_eq(got[2].status, PLIM_ERR_NUMERIC);
    end(engine);
}
END_TEST

// Sleep and wake, while a step is in flight and while all wait.
START_TEST(a_sleep_drains_the_step_in_flight)
{
    const struct ask ask = {.prompt = 9, .max = 30, .first = 5};
    struct heard want, got;
    serve_waiting(&ask, 1, &want);
    init(true);
    plim_engine *engine = start();
    submit(engine, &ask, &got);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
    ck_assert_ptr_nonnull(engine->ahead.current);
    ck_assert_int_eq(plim_engine_sleep(engine, 0, &err), PLIM_ERR_TIMEOUT); // it runs
    while (got.status == 1) {
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        listen(&got);
    }
    same(&want, &got, 1);
    plim_request_free(got.request);
    while (engine->ahead.current != NULL)
        plim_engine_step(engine, NULL);
    ck_assert_int_eq(plim_engine_sleep(engine, 0, &err), PLIM_OK);
    ck_assert_int_eq(plim_engine_wake(engine, &err), PLIM_OK);
    serve(engine, &ask, 1, 0, &got);
    same(&want, &got, 1);
    end(engine);
}
END_TEST

START_TEST(an_engine_may_end_with_a_step_in_flight)
{
    const struct ask ask = {.prompt = 9, .max = 30, .first = 5};
    struct heard got;
    init(true);
    plim_engine *engine = start();
    submit(engine, &ask, &got);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
    ck_assert_ptr_nonnull(engine->ahead.current);
    plim_request_free(got.request);
    ck_assert_int_eq(plm_engine_destroy(engine), 0);
}
END_TEST

// A graph is there for both kinds of decode.
START_TEST(steps_ahead_are_replays)
{
    const struct ask ask = {.prompt = 20, .max = 40, .first = 4};
    struct heard heard;
    init(true);
    script.graph_bytes = 64 << 10;
    plim_engine *engine = start();
    const uint64_t graphs = world.graphs, submits = world.submits, replays = world.replays;
    serve(engine, &ask, 1, 0, &heard);
    ck_assert_uint_eq(world.graphs, graphs);
    ck_assert_uint_eq(world.submits - submits, 40);
    ck_assert_uint_ge(world.replays - replays, 39); // all but the prompt
    ck_assert_uint_eq(ahead, 38);
    end(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ahead");
    TCase *tcase = tcase_create("ahead");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, texts_are_those_of_a_device_that_waits);
    tcase_add_test(tcase, a_decode_never_waits_for_the_host);
    tcase_add_test(tcase, chance_runs_ahead_where_the_device_draws);
    tcase_add_test(tcase, other_requests_are_served_as_ever);
    tcase_add_test(tcase, an_end_throws_one_row_away);
    tcase_add_test(tcase, a_request_may_leave_at_any_step);
    tcase_add_test(tcase, a_small_pool_preempts_as_ever);
    tcase_add_test(tcase, more_than_run_at_once_wait_their_turn);
    tcase_add_test(tcase, any_submit_may_fail);
    tcase_add_test(tcase, results_that_do_not_come_are_a_loss);
    tcase_add_test(tcase, results_that_never_come_end_the_engine);
    tcase_add_test(tcase, a_record_that_does_not_come_is_a_wrong_row);
    tcase_add_test(tcase, a_hang_is_a_loss);
    tcase_add_test(tcase, wrong_numbers_end_the_one_whose_they_are);
    tcase_add_test(tcase, a_sleep_drains_the_step_in_flight);
    tcase_add_test(tcase, an_engine_may_end_with_a_step_in_flight);
    tcase_add_test(tcase, steps_ahead_are_replays);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
