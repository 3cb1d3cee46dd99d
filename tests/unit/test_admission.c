// SPDX-License-Identifier: Apache-2.0
// Admission to a whole engine, on a simulated device that computes, with a virtual clock: offers
// are honoured, refusals leave nothing behind and say when to come back, queued requests whose
// client left are never computed, and a wall clock that jumps by hours changes nothing but what
// people read.
#include <check.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/base/random.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "tests/support/suite.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

#define MIB  (UINT64_C(1) << 20)
#define MS   INT64_C(1000000)
#define HOUR (INT64_C(3600) * 1000 * MS)
#define CTX  512u

static struct plm_sim_clock sim_clock;
static struct plm_sim_world world;
static struct plm_sim_opts script;
static struct plm_clock clock_source;
static uint64_t wall_calls;

// An hour ahead, an hour behind, and so on.
static int64_t jumping_wall(void *ctx)
{
    (void)ctx;
    return INT64_C(1800000000) * 1000 * MS + (wall_calls++ % 2 == 0 ? HOUR : -HOUR);
}

static void base_opts(plim_engine_opts *o)
{
    plim_engine_opts_init(o);
    o->model_path = TEST_MODELS "/llama-tied-q4_1.gguf";
    o->threads = 1;
    o->ctx_size = CTX;
    o->batch_max_tokens = 64;
    o->max_sequences = 4;
    o->max_total_tokens = 2 * CTX;
    o->manual_step = 1;
    o->monitor_ms = 0;
    o->autotune = 0;
    script = (struct plm_sim_opts){.inner = &plm_cpu_backend,
                                   .world = &world,
                                   .capacity_bytes = 256 * MIB,
                                   .submit_ns = 100 * MS};
    memset(&world, 0, sizeof(world));
}

static plim_engine *create(const plim_engine_opts *o)
{
    plim_engine_opts read;
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plm_sim_clock_init(&sim_clock);
    clock_source = plm_sim_clock_source(&sim_clock);
    clock_source.wall_ns = jumping_wall;
    ck_assert_int_eq(plm_opts_read(o, &read, NULL), PLIM_OK);
    const struct plm_engine_env env = {.host = plm_host_create(0),
                                       .clock = &clock_source,
                                       .backend = &plm_sim_backend,
                                       .backend_opts = &script,
                                       .seed = 1};
    int r = plm_engine_create_in(&env, &read, &engine, &err);
    if (r != PLIM_OK)
        ck_abort_msg("create: %d %s", r, err.message);
    return engine;
}

static plim_metrics metrics(const plim_engine *engine)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &m);
    return m;
}

static int32_t tokens[2 * CTX];
static uint32_t ask_top, ask_token_bytes;

static int ask(plim_engine *engine, uint32_t n_prompt, uint32_t n_out, uint32_t n,
               plim_request **ret, plim_error *err)
{
    plim_request_opts q;
    plim_request_opts_init(&q);
    for (uint32_t i = 0; i < n_prompt && i < 2 * CTX; i++)
        tokens[i] = (int32_t)((i * 37 + i % 11) % 250);
    q.tokens = tokens;
    q.n_tokens = n_prompt;
    q.max_tokens = n_out;
    q.n = n;
    q.ignore_eos = 1;
    q.cache_prompt = 0;
    q.top_logprobs = ask_top;
    q.host_token_bytes = ask_token_bytes;
    *err = (plim_error)PLIM_INIT(plim_error);
    *ret = NULL;
    return plim_request_submit(engine, &q, ret, err);
}

static plim_request *must_ask(plim_engine *engine, uint32_t n_prompt, uint32_t n_out)
{
    plim_request *request;
    plim_error err = PLIM_INIT(plim_error);
    int r = ask(engine, n_prompt, n_out, 1, &request, &err);
    if (r != PLIM_OK)
        ck_abort_msg("submit: %d %s", r, err.message);
    return request;
}

// The last event of a request that is over; its status.
static int outcome(plim_request *request, plim_event *ret)
{
    plim_event e = PLIM_INIT(plim_event);
    while (plim_request_next(request, 0, &e) == PLIM_OK) {
        *ret = e;
        if (e.type == PLIM_EVENT_DONE)
            return e.status;
    }
    return PLIM_ERR_TIMEOUT;
}

static void step(plim_engine *engine, uint32_t n)
{
    while (n-- > 0)
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
}

// ---- offers ----

static uint32_t draw(uint64_t *at, uint32_t below)
{
    return (uint32_t)(plm_random_uniform(77, 1, (*at)++, 0) * (float)below) % below;
}

static void check_refusal(int r, const plim_error *err)
{
    ck_assert(r == PLIM_ERR_CONTEXT || r == PLIM_ERR_NOMEM_NEVER || r == PLIM_ERR_NOMEM_NOW ||
              r == PLIM_ERR_QUEUE_FULL || r == PLIM_ERR_NOMEM_HOST);
    ck_assert_int_gt(err->needed_bytes, err->limit_bytes);
    ck_assert_str_ne(err->term, "");
    const bool now = r != PLIM_ERR_CONTEXT && r != PLIM_ERR_NOMEM_NEVER;
    ck_assert_int_eq(err->retry_after_s > 0, now);
}

// Whatever an engine is doing: what a refusal offers is let in when it is asked for at once.
START_TEST(every_offer_is_honoured)
{
    plim_engine_opts o;
    plim_request *held[16] = {NULL};
    uint64_t at = (uint64_t)_i << 32;
    uint32_t offers = 0, refusals = 0;
    int64_t charged = 0;
    base_opts(&o);
    o.queue_max = 1 + (uint32_t)_i % 3;
    o.queue_max_tokens = _i == 2 ? 600 : 0;
    plim_engine *engine = create(&o);
    held[0] = must_ask(engine, 10, 5);
    step(engine, 10); // buffers that are kept find their sizes
    plim_request_free(held[0]);
    held[0] = NULL;
    const plim_metrics idle = metrics(engine);
    for (uint32_t turn = 0; turn < 1500; turn++) {
        plim_request **slot = &held[draw(&at, 16)], *request;
        plim_error err = PLIM_INIT(plim_error);
        plim_request_free(*slot);
        *slot = NULL;
        step(engine, draw(&at, 3));
        plim_engine_host_discharge(engine, charged);
        charged = 0;
        if (draw(&at, 3) == 0) { // somebody else's bodies
            const plim_metrics m = metrics(engine);
            const int64_t left = m.host_limit_bytes - m.host_used_bytes - draw(&at, 60000);
            if (left > 0 && plim_engine_host_charge(engine, left) == PLIM_OK)
                charged = left;
        }
        ask_top = draw(&at, 4) == 0 ? draw(&at, 21) : 0;
        ask_token_bytes = draw(&at, 4) == 0 ? draw(&at, 6000) : 0;
        int r =
            ask(engine, 1 + draw(&at, CTX + 100), 1 + draw(&at, CTX), 1 + draw(&at, 6), slot, &err);
        if (r == PLIM_OK)
            continue;
        refusals++;
        check_refusal(r, &err);
        if (err.offer_prompt_tokens == 0)
            continue;
        offers++;
        plim_error again = PLIM_INIT(plim_error);
        r = ask(engine, (uint32_t)err.offer_prompt_tokens, (uint32_t)err.offer_max_tokens,
                (uint32_t)err.offer_n, &request, &again);
        if (r != PLIM_OK)
            ck_abort_msg("turn %u: %s; offered %lld + %lld x %lld: %d %s", turn, err.message,
                         (long long)err.offer_prompt_tokens, (long long)err.offer_max_tokens,
                         (long long)err.offer_n, r, again.message);
        *slot = request;
    }
    ck_assert_uint_gt(refusals, 300);
    ck_assert_uint_gt(offers, 100);
    plim_engine_host_discharge(engine, charged);
    for (uint32_t i = 0; i < 16; i++)
        plim_request_free(held[i]);
    step(engine, 2);
    ck_assert_int_eq(metrics(engine).host_used_bytes, idle.host_used_bytes);
    plim_engine_free(engine);
}
END_TEST

// ---- what runs has what it needs ----

// Others take the host budget to its last byte.
static int64_t eat(plim_engine *engine)
{
    int64_t eaten = 0;
    for (int64_t bytes = INT64_C(1) << 30; bytes > 0;) {
        if (plim_engine_host_charge(engine, bytes) == PLIM_OK)
            eaten += bytes;
        else
            bytes /= 2;
    }
    return eaten;
}

// Several choices with everything that a token can bring, read in every step or far behind. The
// budget is gone right after the submit, before the request runs.
START_TEST(a_running_request_needs_nothing_of_the_rest_of_the_budget)
{
    plim_engine_opts o;
    plim_request_opts q;
    plim_request *request;
    static const plim_text stops[] = {{"never to be seen", 16}, {"\n\n\n\n\n\n\n\n", 8}};
    uint32_t n_tokens[4] = {0}, finishes = 0;
    base_opts(&o);
    plim_engine *engine = create(&o);
    const plim_metrics idle = metrics(engine);
    plim_request_opts_init(&q);
    for (uint32_t i = 0; i < 40; i++)
        tokens[i] = (int32_t)(i * 7 % 250);
    q.tokens = tokens;
    q.n_tokens = 40;
    q.n = 4;
    q.max_tokens = 200;
    q.ignore_eos = 1;
    q.top_logprobs = 20;
    q.stop = stops;
    q.n_stop = 2;
    q.host_answer_bytes = 10000;
    q.host_token_bytes = 300;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, NULL), PLIM_OK);
    const int64_t eaten = eat(engine);
    ck_assert_int_eq(metrics(engine).host_used_bytes, idle.host_limit_bytes);
    plim_event e = PLIM_INIT(plim_event);
    for (uint32_t i = 0; e.type != PLIM_EVENT_DONE; i++) {
        ck_assert_uint_lt(i, 2000);
        step(engine, _i == 0 ? 1 : 190);
        while (e.type != PLIM_EVENT_DONE && plim_request_next(request, 0, &e) == PLIM_OK) {
            n_tokens[e.choice] += e.type == PLIM_EVENT_TOKEN;
            finishes += e.type == PLIM_EVENT_FINISH;
            ck_assert(e.type != PLIM_EVENT_TOKEN || e.n_top == 20);
        }
    }
    ck_assert_int_eq(e.status, PLIM_OK);
    ck_assert_uint_eq(finishes, 4);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(n_tokens[i], 200);
    // What the caller has for the answer is there, too, and its own once it took it.
    const int64_t taken = _i == 0 ? plim_request_take_reserved(request) : 0;
    ck_assert_int_eq(taken, _i == 0 ? 10000 + 4 * 200 * 300 : 0);
    ck_assert(_i != 0 || plim_request_take_reserved(request) == 0);
    plim_request_free(request);
    step(engine, 1);
    plim_engine_host_discharge(engine, eaten + taken);
    ck_assert_int_eq(metrics(engine).host_used_bytes, idle.host_used_bytes);
    plim_engine_free(engine);
}
END_TEST

// What the caller needs is judged with the rest: never, where an idle engine has not so much, with
// an offer that is accepted.
START_TEST(admission_counts_what_the_caller_needs)
{
    plim_engine_opts o;
    plim_request *request, *held;
    plim_error err;
    base_opts(&o);
    plim_engine *engine = create(&o);
    const plim_metrics idle = metrics(engine);
    const int64_t room = idle.host_limit_bytes - idle.host_used_bytes;
    ask_token_bytes = (uint32_t)(room / 150);
    ck_assert_int_eq(ask(engine, 10, 200, 1, &request, &err), PLIM_ERR_NOMEM_NEVER);
    ck_assert_str_eq(err.term, "host");
    ck_assert_int_ge(err.offer_max_tokens, 140);
    ck_assert_int_lt(err.offer_max_tokens, 150);
    ck_assert_int_eq(ask(engine, 10, (uint32_t)err.offer_max_tokens, 1, &held, &err), PLIM_OK);
    ck_assert_int_eq(ask(engine, 10, 100, 1, &request, &err), PLIM_ERR_NOMEM_NOW);
    ck_assert_str_eq(err.term, "host");
    ck_assert_int_ge(err.retry_after_s, 1);
    plim_request_free(held);
    step(engine, 1);
    // An open end leaves others room.
    ask_token_bytes = (uint32_t)(room / 1200);
    held = must_ask(engine, 10, 0);
    ck_assert_int_le(metrics(engine).host_used_bytes - idle.host_used_bytes, room / 4);
    request = must_ask(engine, 10, 0);
    plim_request_free(held);
    plim_request_free(request);
    step(engine, 1);
    plim_engine_free(engine);
}
END_TEST

// ---- nothing is left ----

struct base {
    int64_t host, held, live;
    uint64_t used;
};

static struct base base_of(const plim_engine *engine)
{
    struct plm_ledger_stats ledger;
    plm_ledger_read(engine->core->rank.ledger, &ledger);
    const plim_metrics m = metrics(engine);
    return (struct base){m.host_used_bytes, ledger.held_bytes, ledger.live_bytes, m.blocks_used};
}

static void refuse_100(plim_engine *engine, int want, const char *term, uint32_t n_prompt,
                       uint32_t n_out, uint32_t n)
{
    const struct base before = base_of(engine);
    for (uint32_t i = 0; i < 100; i++) {
        plim_request *request;
        plim_error err = PLIM_INIT(plim_error);
        int r = ask(engine, n_prompt, n_out, n, &request, &err);
        ck_assert_msg(r == want && strcmp(err.term, term) == 0, "%d %s: %s", r, err.term,
                      err.message);
        ck_assert_ptr_null(request);
        check_refusal(r, &err);
        const struct base after = base_of(engine);
        ck_assert_mem_eq(&after, &before, sizeof(after));
    }
}

START_TEST(a_hundred_refusals_of_each_kind_leave_nothing)
{
    plim_engine_opts o;
    plim_request *running[4], *waiting;
    base_opts(&o);
    o.queue_max = 1;
    o.queue_max_tokens = 300;
    o.queue_timeout_ms = 0;
    plim_engine *engine = create(&o);
    refuse_100(engine, PLIM_ERR_CONTEXT, "context", CTX + 50, 1, 1);
    refuse_100(engine, PLIM_ERR_CONTEXT, "context", 100, CTX, 1);
    refuse_100(engine, PLIM_ERR_NOMEM_NEVER, "kv", 100, 400, 8);
    for (uint32_t i = 0; i < 4; i++) {
        running[i] = must_ask(engine, 20, 200);
        step(engine, 1);
    }
    refuse_100(engine, PLIM_ERR_QUEUE_FULL, "queue_tokens", 301, 1, 1);
    waiting = must_ask(engine, 100, 10);
    refuse_100(engine, PLIM_ERR_QUEUE_FULL, "queue", 20, 10, 1);
    const plim_metrics m = metrics(engine);
    const int64_t left = m.host_limit_bytes - m.host_used_bytes - 200;
    ck_assert_int_eq(plim_engine_host_charge(engine, INT64_MAX), PLIM_ERR_NOMEM_HOST);
    ck_assert_int_eq(plim_engine_host_charge(engine, left), PLIM_OK);
    refuse_100(engine, PLIM_ERR_NOMEM_HOST, "host", 200, 10, 1); // not even its tokens
    refuse_100(engine, PLIM_ERR_NOMEM_NOW, "host", 5, 10, 1);    // tokens, but not the request
    plim_engine_host_discharge(engine, left);
    for (uint32_t i = 0; i < 4; i++)
        plim_request_free(running[i]);
    plim_request_free(waiting);
    step(engine, 1);
    ck_assert_int_eq(plim_engine_sleep(engine, 0, NULL), PLIM_OK);
    refuse_100(engine, PLIM_ERR_NOMEM_NOW, "asleep", 20, 10, 1);
    ck_assert_int_eq(plim_engine_wake(engine, NULL), PLIM_OK);
    plim_request *request = must_ask(engine, 20, 10);
    plim_event e;
    step(engine, 12);
    ck_assert_int_eq(outcome(request, &e), PLIM_OK);
    plim_request_free(request);
    plim_engine_free(engine);
}
END_TEST

// ---- cancels and time ----

START_TEST(who_left_in_the_queue_is_never_computed)
{
    plim_engine_opts o;
    plim_event e;
    base_opts(&o);
    o.max_sequences = 1;
    plim_engine *engine = create(&o);
    plim_request *first = must_ask(engine, 100, 50);
    step(engine, 3);
    plim_request *queued = must_ask(engine, 90, 50);
    step(engine, 1);
    plim_request *inbox = must_ask(engine, 80, 50);
    plim_request *freed = must_ask(engine, 70, 50);
    plim_request_cancel(queued);
    plim_request_cancel(inbox);
    plim_request_free(freed);
    step(engine, 1);
    ck_assert_int_eq(outcome(queued, &e), PLIM_ERR_CANCELLED);
    ck_assert_int_eq(outcome(inbox, &e), PLIM_ERR_CANCELLED);
    const plim_metrics m = metrics(engine);
    ck_assert_uint_eq(m.prompt_tokens, 100);
    ck_assert_uint_eq(m.waiting, 0);
    ck_assert_uint_eq(m.running, 1);
    while (outcome(first, &e) == PLIM_ERR_TIMEOUT)
        step(engine, 1);
    ck_assert_int_eq(e.status, PLIM_OK); // a cancel touches nobody else
    plim_request_free(first);
    plim_request_free(queued);
    plim_request_free(inbox);
    plim_engine_free(engine);
}
END_TEST

// One token a step of 100 ms: ten a second, and the first to end has so many to go.
START_TEST(retry_after_is_the_forecast)
{
    plim_engine_opts o;
    plim_request *request;
    plim_error err = PLIM_INIT(plim_error);
    base_opts(&o);
    o.max_sequences = 1;
    o.queue_max = 1;
    plim_engine *engine = create(&o);
    plim_request *first = must_ask(engine, 10, 300), *second;
    step(engine, 160); // the rate follows
    second = must_ask(engine, 10, 10);
    ck_assert_int_eq(ask(engine, 10, 10, 1, &request, &err), PLIM_ERR_QUEUE_FULL);
    ck_assert_int_ge(err.retry_after_s, 13);
    ck_assert_int_le(err.retry_after_s, 16); // the forecast is renewed every 16 steps
    plim_request_free(first);
    plim_request_free(second);
    plim_engine_free(engine);
}
END_TEST

// Ten tokens a second, and two seconds of patience: whoever would wait longer is told so at once.
START_TEST(who_can_not_start_in_time_does_not_wait)
{
    plim_engine_opts o;
    plim_request *request;
    plim_error err;
    base_opts(&o);
    o.max_sequences = 1;
    o.queue_timeout_ms = 2000;
    plim_engine *engine = create(&o);
    plim_request *first = must_ask(engine, 10, 100);
    step(engine, 32); // the forecast is renewed every 16 steps
    ck_assert_int_eq(ask(engine, 10, 10, 1, &request, &err), PLIM_ERR_QUEUE_FULL);
    ck_assert_str_eq(err.term, "wait");
    ck_assert_int_ge(err.needed_bytes, 6); // 68 tokens to go
    ck_assert_int_le(err.needed_bytes, 8);
    ck_assert_int_eq(err.limit_bytes, 2);
    ck_assert_int_ge(err.retry_after_s, 4);
    ck_assert_int_le(err.retry_after_s, 6);
    ck_assert_uint_eq(metrics(engine).waiting, 0);
    step(engine, 56); // 1.2 s to go
    plim_request *second = must_ask(engine, 10, 10);
    plim_event e;
    step(engine, 30);
    ck_assert_int_eq(outcome(second, &e), PLIM_OK);
    plim_request_free(first);
    plim_request_free(second);
    plim_engine_free(engine);
}
END_TEST

static void check_times(const plim_histogram *h)
{
    ck_assert(h->sum_s >= 0 && h->sum_s < 600);
    ck_assert_uint_eq(h->count[PLIM_HISTOGRAM_BUCKETS], 0);
}

START_TEST(a_wall_clock_that_jumps_changes_no_deadline)
{
    plim_engine_opts o;
    plim_event e;
    plim_error err = PLIM_INIT(plim_error);
    plim_request *third;
    base_opts(&o);
    o.max_sequences = 1;
    o.queue_max = 1;
    o.queue_timeout_ms = 2000;
    plim_engine *engine = create(&o);
    plim_request *first = must_ask(engine, 10, 60), *second;
    step(engine, 1);
    second = must_ask(engine, 10, 10);
    step(engine, 19); // 1.9 s
    ck_assert_int_eq(outcome(second, &e), PLIM_ERR_TIMEOUT);
    step(engine, 3);
    ck_assert_int_eq(outcome(second, &e), PLIM_ERR_NOMEM_NOW);
    ck_assert_str_eq(e.error->term, "sequences");
    ck_assert_int_gt(e.error->needed_bytes, e.error->limit_bytes);
    ck_assert_int_ge(e.error->retry_after_s, 1);
    ck_assert_int_le(e.error->retry_after_s, 10);
    ck_assert(e.queue_s >= 1.9 && e.queue_s < 2.5);
    plim_request_free(second);
    ck_assert_int_eq(ask(engine, 10, 10, 1, &third, &err), PLIM_ERR_QUEUE_FULL);
    ck_assert_str_eq(err.term, "wait"); // 4 s to go
    int64_t from = plm_now(&clock_source);
    ck_assert_int_eq(plim_engine_drain(engine, 500), PLIM_ERR_TIMEOUT);
    ck_assert_int_ge(plm_now(&clock_source) - from, 500 * MS);
    ck_assert_int_le(plm_now(&clock_source) - from, 700 * MS);
    ck_assert_int_eq(plim_engine_drain(engine, 100000), PLIM_OK);
    ck_assert_int_eq(outcome(first, &e), PLIM_OK);
    ck_assert(e.queue_s >= 0 && e.queue_s < 1);
    ck_assert(e.prefill_s >= 0 && e.prefill_s < 1);
    ck_assert(e.decode_s >= 5.5 && e.decode_s < 6.5); // 59 tokens, 100 ms each
    const plim_metrics m = metrics(engine);
    check_times(&m.e2e);
    check_times(&m.queue);
    check_times(&m.time_to_first_token);
    check_times(&m.inter_token);
    check_times(&m.decode);
    ck_assert_int_eq(m.last_step_age_ns, 0);
    ck_assert_int_le(m.last_step_time_ns, plm_now(&clock_source));
    plim_request_free(first);
    plim_engine_free(engine);
}
END_TEST

// ---- a streak ----

static uint64_t readings(plim_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    uint64_t n = engine->monitor.n_readings;
    pthread_mutex_unlock(&engine->lock);
    return n;
}

START_TEST(a_streak_of_refusals_takes_a_fresh_reading)
{
    plim_engine_opts o;
    plim_request *request, *held[2];
    plim_error err = PLIM_INIT(plim_error);
    base_opts(&o);
    o.max_sequences = 1;
    o.queue_max = 1;
    o.monitor_ms = 3600000;
    plim_engine *engine = create(&o);
    held[0] = must_ask(engine, 10, 400);
    step(engine, 1);
    held[1] = must_ask(engine, 10, 10);
    const uint64_t before = readings(engine);
    for (uint32_t i = 0; i < 7; i++)
        ck_assert_int_eq(ask(engine, 10, 10, 1, &request, &err), PLIM_ERR_QUEUE_FULL);
    step(engine, 2);
    ck_assert_uint_eq(readings(engine), before);                                     // not yet
    ck_assert_int_eq(ask(engine, CTX + 1, 10, 1, &request, &err), PLIM_ERR_CONTEXT); // nor for this
    step(engine, 1);
    ck_assert_uint_eq(readings(engine), before);
    ck_assert_int_eq(ask(engine, 10, 10, 1, &request, &err), PLIM_ERR_QUEUE_FULL);
    step(engine, 1);
    ck_assert_uint_eq(readings(engine), before + 1);
    plim_request_free(held[1]); // an admission ends the streak
    step(engine, 1);
    held[1] = must_ask(engine, 10, 10);
    for (uint32_t i = 0; i < 7; i++)
        ck_assert_int_eq(ask(engine, 10, 10, 1, &request, &err), PLIM_ERR_QUEUE_FULL);
    step(engine, 1);
    ck_assert_uint_eq(readings(engine), before + 1);
    plim_request_free(held[0]);
    plim_request_free(held[1]);
    plim_engine_free(engine);
}
END_TEST

// ---- what is shown ----

START_TEST(the_memory_report_shows_refusals_and_adds_up)
{
    static char text[65536];
    plim_engine_opts o;
    plim_request *request;
    plim_error err = PLIM_INIT(plim_error);
    size_t need;
    base_opts(&o);
    plim_engine *engine = create(&o);
    for (uint32_t i = 0; i < 40; i++)
        ck_assert_int_eq(ask(engine, 100, CTX, 1, &request, &err), PLIM_ERR_CONTEXT);
    ck_assert_int_eq(plim_engine_memory_json(engine, text, sizeof(text), &need), PLIM_OK);
    struct json_object *o1 = json_tokener_parse(text), *list, *one, *v, *offer;
    ck_assert_ptr_nonnull(o1);
    ck_assert(json_object_object_get_ex(o1, "refusals", &list));
    ck_assert_uint_eq(json_object_array_length(list), 32); // the last ones
    one = json_object_array_get_idx(list, 31);
    ck_assert(json_object_object_get_ex(one, "term", &v));
    ck_assert_str_eq(json_object_get_string(v), "context");
    ck_assert(json_object_object_get_ex(one, "offer", &offer));
    ck_assert(json_object_object_get_ex(offer, "max_tokens", &v));
    ck_assert_int_eq(json_object_get_int64(v), CTX - 100);
    // Times are what the clock struct says, jumps and all.
    ck_assert(json_object_object_get_ex(one, "time", &v));
    int64_t off = json_object_get_int64(v) - 1800000000;
    ck_assert(off == 3600 || off == -3600);
    ck_assert(json_object_object_get_ex(o1, "counters", &v));
    ck_assert(json_object_object_get_ex(v, "refused_context", &one));
    ck_assert_int_eq(json_object_get_int64(one), 40);
    json_object_put(o1);
    plim_engine_free(engine);
}
END_TEST

// json-c corrupts this character when it comes as an escape.
START_TEST(a_chat_with_escaped_pairs_is_read_right)
{
    plim_engine_opts o;
    char out[512];
    size_t need;
    static const char chat[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\ud876\\udc00z\\\\ud83d\"}]}";
    base_opts(&o);
    o.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    plim_engine *engine = create(&o);
    const int64_t idle = metrics(engine).host_used_bytes;
    ck_assert_int_eq(
        plim_chat_render(engine, chat, sizeof(chat) - 1, out, sizeof(out), &need, NULL), PLIM_OK);
    ck_assert_str_eq(out, "a\xF0\xAD\xA0\x80z\\ud83d");
    ck_assert_int_eq(metrics(engine).host_used_bytes, idle);
    plim_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("admission");
    TCase *tc = tcase_create("admission");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, every_offer_is_honoured, 0, 4);
    tcase_add_loop_test(tc, a_running_request_needs_nothing_of_the_rest_of_the_budget, 0, 2);
    tcase_add_test(tc, admission_counts_what_the_caller_needs);
    tcase_add_test(tc, a_hundred_refusals_of_each_kind_leave_nothing);
    tcase_add_test(tc, who_left_in_the_queue_is_never_computed);
    tcase_add_test(tc, who_can_not_start_in_time_does_not_wait);
    tcase_add_test(tc, retry_after_is_the_forecast);
    tcase_add_test(tc, a_wall_clock_that_jumps_changes_no_deadline);
    tcase_add_test(tc, a_streak_of_refusals_takes_a_fresh_reading);
    tcase_add_test(tc, the_memory_report_shows_refusals_and_adds_up);
    tcase_add_test(tc, a_chat_with_escaped_pairs_is_read_right);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
