// SPDX-License-Identifier: Apache-2.0
// Faults after READY, on a simulated device that computes with the CPU's kernels: a lost or hanging
// device, refused submits, steps that give no numbers. Each time the innocent get the text and the
// log-probabilities of an undisturbed run, bit for bit, and only the request at fault ends.
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "core/engine/watch.h"
#include "tests/support/suite.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

#define MIB    (UINT64_C(1) << 20)
#define SECOND INT64_C(1000000000)
#define OUT    24u // tokens of an answer
#define N      8u  // requests at once
#define POISON 77  // the token that a faulty step holds

// ---- a device that fails on purpose ----

// What a step with the poison token in it does; the last one: what the next step does, once.
enum harm { HARMLESS, ALL_NAN, OWN_ROW, LOSES, HANGS, BREAKS, ALL_ONCE };

// Between the engine and the simulated device: counts submits of serving and spoils them.
static struct {
    enum harm harm;
    uint64_t submits;     // since arm()
    uint64_t lose_at;     // the submit of that number loses the device; 0: none
    uint64_t refuse_from; // submits of these numbers are refused
    uint64_t refuse_to;   // 0: none
    uint32_t n_vocab;
    struct plm_get_rows_args rows; // of the open list
    struct plm_matmul_args head;
    bool hung;
} fault;

static struct plm_sim_clock sim_clock;
static struct plm_sim_world world;
static struct plm_backend faulty;

static int launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units, const void *args,
                  size_t args_bytes)
{
    if (op == PLM_OP_GET_ROWS)
        memcpy(&fault.rows, args, sizeof(fault.rows));
    if (op == PLM_OP_MATMUL) {
        struct plm_matmul_args a;
        memcpy(&a, args, sizeof(a));
        if (a.n_out == fault.n_vocab)
            fault.head = a;
    }
    return plm_sim_backend.launch(dev, op, units, args, args_bytes);
}

// The row of the poison token in the open list, or -1.
static int64_t poison_row(void)
{
    const int32_t *tokens = (const int32_t *)(uintptr_t)fault.rows.tokens;
    for (uint32_t i = 0; i < fault.rows.rows; i++) {
        if (tokens[i] == POISON)
            return i;
    }
    return -1;
}

static void spoil_logits(uint32_t first, uint32_t n)
{
    float *logits = (float *)(uintptr_t)fault.head.dst;
    for (uint32_t r = first; r < fault.head.rows && r - first < n; r++)
        logits[(size_t)r * fault.head.ld_dst + 5] = r % 2 == 0 ? NAN : INFINITY;
}

// The prompt's own row: its last one, since decode rows come first.
static void spoil(void)
{
    if (fault.harm == OWN_ROW && fault.head.rows > 0)
        spoil_logits(fault.head.rows - 1, 1);
    else
        spoil_logits(0, UINT32_MAX);
    if (fault.harm == ALL_ONCE)
        fault.harm = HARMLESS;
}

static int submit(struct plm_backend_device *dev, uint64_t *ret_value)
{
    const uint64_t call = ++fault.submits;
    const bool poison = fault.harm == ALL_ONCE || (fault.harm != HARMLESS && poison_row() >= 0);
    if (call >= fault.refuse_from && call <= fault.refuse_to)
        return PLM_ERR_OUT_OF_DEVICE;
    memset(&fault.rows, 0, sizeof(fault.rows)); // of the next list
    if (poison && fault.harm == BREAKS)
        return PLM_ERR_INTERNAL;
    if (call == fault.lose_at || (poison && fault.harm == LOSES))
        atomic_store(&world.lose, 1);
    int r = plm_sim_backend.submit(dev, ret_value);
    fault.hung = poison && fault.harm == HANGS;
    if (r == PLM_OK && poison)
        spoil();
    memset(&fault.head, 0, sizeof(fault.head));
    return r;
}

static int wait_for(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns)
{
    if (!fault.hung)
        return plm_sim_backend.wait(dev, value, timeout_ns);
    ck_assert_int_gt(timeout_ns, 0);
    plm_sim_clock_advance(&sim_clock, timeout_ns);
    fault.hung = false;
    return PLM_ERR_TIMEOUT;
}

static void arm(enum harm harm)
{
    fault.harm = harm;
    fault.submits = fault.lose_at = fault.refuse_from = fault.refuse_to = 0;
}

// ---- an engine on it ----

static struct plm_sim_opts script;
static struct plm_clock clock_source;
static char last_log[512];

static void keep_log(void *ctx, int level, const char *line)
{
    (void)ctx, (void)level;
    snprintf(last_log, sizeof(last_log), "%s", line);
    if (getenv("VERBOSE"))
        fprintf(stderr, "%s\n", line);
}

static void base_opts(plim_engine_opts *o)
{
    plim_engine_opts_init(o);
    o->model_path = TEST_MODELS "/llama-tied-q4_1.gguf";
    o->threads = 1;
    o->ctx_size = 512;
    o->batch_max_tokens = 64;
    o->max_sequences = 64; // some slabs of KV
    o->manual_step = 1;
    o->monitor_ms = 0;
    o->queue_timeout_ms = 0;
    o->watchdog_ms = 5000;
    o->log = keep_log;
    script = (struct plm_sim_opts){.inner = &plm_cpu_backend,
                                   .world = &world,
                                   .capacity_bytes = 256 * MIB,
                                   .submit_ns = 1000000};
    memset(&world, 0, sizeof(world));
    arm(HARMLESS);
}

// A start on it; on failure the host is destroyed, and with it every byte was given back.
static int try_start(const plim_engine_opts *o, plim_engine **ret, plim_error *err)
{
    plim_engine_opts read;
    plm_sim_clock_init(&sim_clock);
    clock_source = plm_sim_clock_source(&sim_clock);
    faulty = plm_sim_backend;
    faulty.launch = launch;
    faulty.submit = submit;
    faulty.wait = wait_for;
    ck_assert_int_eq(plm_opts_read(o, &read, NULL), PLIM_OK);
    const struct plm_engine_env env = {.host = plm_host_create(0),
                                       .clock = &clock_source,
                                       .backend = &faulty,
                                       .backend_opts = &script,
                                       .seed = 1};
    int r = plm_engine_create_in(&env, &read, ret, err);
    if (r != PLIM_OK)
        ck_assert_int_eq(plm_host_destroy(env.host), 0);
    return r;
}

static plim_engine *create(const plim_engine_opts *o)
{
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    int r = try_start(o, &engine, &err);
    if (r != PLIM_OK)
        ck_abort_msg("create: %d %s", r, err.message);
    plim_model_info info = PLIM_INIT(plim_model_info);
    plim_engine_model(engine, &info);
    fault.n_vocab = info.n_vocab;
    return engine;
}

static plim_metrics metrics(const plim_engine *engine)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &m);
    return m;
}

// ---- requests ----

struct answer {
    plim_request *request;
    uint32_t choice; // that is kept
    uint32_t n;
    int32_t token[OUT];
    float logprob[OUT];
    char text[512];
    size_t text_len;
    bool done;
    int status;
    int32_t finish;
};

// Prompts of 5 to 61 tokens; the first 32 of the longer ones are the same. Without the poison
// token, but for where it is asked for.
static plim_request *ask_n(plim_engine *engine, uint32_t i, bool poison, uint32_t n)
{
    int32_t tokens[64];
    plim_request_opts q;
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plim_request_opts_init(&q);
    q.n_tokens = 5 + 8 * (i % N);
    for (uint32_t t = 0; t < q.n_tokens; t++) {
        tokens[t] = (int32_t)((t < 32 ? t * 31 : t * 7 + i * 13) % 250);
        tokens[t] += tokens[t] == POISON;
    }
    if (poison)
        tokens[q.n_tokens - 2] = POISON;
    q.tokens = tokens;
    q.max_tokens = OUT - i;
    q.n = n;
    q.ignore_eos = 1;
    q.has_seed = 1;
    q.seed = 100 + i;
    q.temperature = 0.8f;
    q.logprobs = 1;
    // A sampled answer must not hold the poison.
    const plim_logit_bias never = {POISON, -100.0f};
    q.logit_bias = &never;
    q.n_logit_bias = 1;
    if (plim_request_submit(engine, &q, &request, &err) != PLIM_OK)
        ck_abort_msg("submit: %s", err.message);
    return request;
}

static plim_request *ask(plim_engine *engine, uint32_t i, bool poison)
{
    return ask_n(engine, i, poison, 1);
}

static void collect(struct answer *a)
{
    plim_event e = PLIM_INIT(plim_event);
    while (plim_request_next(a->request, 0, &e) == PLIM_OK) {
        ck_assert(!a->done);
        if (e.choice != a->choice && e.type != PLIM_EVENT_DONE)
            continue;
        if (e.type == PLIM_EVENT_TOKEN) {
            ck_assert_uint_lt(a->n, OUT);
            a->token[a->n] = e.token;
            a->logprob[a->n++] = e.logprob;
        }
        if (e.type == PLIM_EVENT_TOKEN || e.type == PLIM_EVENT_FINISH) {
            ck_assert_uint_lt(a->text_len + e.text_len, sizeof(a->text));
            memcpy(a->text + a->text_len, e.text, e.text_len);
            a->text_len += e.text_len;
        }
        if (e.type == PLIM_EVENT_DONE) {
            a->done = true;
            a->status = e.status;
            a->finish = e.finish;
        }
    }
}

static void begin(plim_engine *engine, struct answer *answers, uint32_t n, uint32_t poison)
{
    memset(answers, 0, n * sizeof(*answers));
    for (uint32_t i = 0; i < n; i++)
        answers[i].request = ask(engine, i, i == poison);
}

static bool all_done(struct answer *answers, uint32_t n)
{
    bool done = true;
    for (uint32_t i = 0; i < n; i++) {
        collect(&answers[i]);
        done = done && answers[i].done;
    }
    return done;
}

static void step(plim_engine *engine, uint32_t n)
{
    while (n-- > 0)
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
}

static void finish(plim_engine *engine, struct answer *answers, uint32_t n)
{
    for (int i = 0; !all_done(answers, n); i++) {
        ck_assert_int_lt(i, 20000);
        step(engine, 1);
    }
    for (uint32_t i = 0; i < n; i++)
        plim_request_free(answers[i].request);
    step(engine, 1);
    // Nothing is left behind, whatever happened.
    struct plm_sched_stats sched;
    struct plm_kv_pool_stats pool;
    plm_sched_read(engine->sched, &sched);
    plm_kv_pool_read(engine->core->pool, &pool);
    ck_assert_uint_eq(sched.running + sched.paused + sched.queued + sched.forks, 0);
    ck_assert_uint_eq(pool.used, 0);
    ck_assert_uint_eq(engine->bisect.n, 0);
    ck_assert_uint_eq(metrics(engine).allocations_in_step, 0);
}

#define NOBODY UINT32_MAX

// The answers of a run in which nothing happens.
static const struct answer *undisturbed(void)
{
    static struct answer answers[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    begin(engine, answers, N, NOBODY);
    finish(engine, answers, N);
    plim_engine_free(engine);
    for (uint32_t i = 0; i < N; i++) {
        ck_assert_int_eq(answers[i].status, PLIM_OK);
        ck_assert_uint_eq(answers[i].n, OUT - i);
    }
    return answers;
}

static void same(const struct answer *got, const struct answer *want)
{
    ck_assert_int_eq(got->status, PLIM_OK);
    ck_assert_uint_eq(got->n, want->n);
    ck_assert_mem_eq(got->token, want->token, want->n * sizeof(*want->token));
    ck_assert_mem_eq(got->logprob, want->logprob, want->n * sizeof(*want->logprob));
    ck_assert_uint_eq(got->text_len, want->text_len);
    ck_assert_mem_eq(got->text, want->text, want->text_len);
}

// All but one have the undisturbed answer.
static void others_same(const struct answer *got, const struct answer *want, uint32_t but)
{
    for (uint32_t i = 0; i < N; i++) {
        if (i != but)
            same(&got[i], &want[i]);
    }
}

// ---- a lost device ----

// Whichever submit loses the device, every stream goes on with the same text.
START_TEST(streams_go_on_after_a_loss_at_any_submit)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    uint64_t losses = 0;
    for (uint64_t at = 1;; at++) {
        arm(HARMLESS);
        fault.lose_at = at;
        begin(engine, got, N, NOBODY);
        finish(engine, got, N);
        others_same(got, want, NOBODY);
        if (fault.submits < at)
            break;
        losses++;
        plm_sim_clock_advance(&sim_clock, 61 * SECOND); // the next loss is one of its own
    }
    ck_assert_uint_gt(losses, 20);
    const plim_metrics m = metrics(engine);
    ck_assert_uint_eq(m.losses, losses);
    ck_assert_uint_eq(m.reopened, losses);
    ck_assert_uint_eq(atomic_load(&world.opens), 1 + losses);
    ck_assert_uint_eq(m.poisoned, 0);
    ck_assert(m.ready && !m.lost && m.sealed);
    ck_assert_uint_eq(m.blocks_total, (uint64_t)engine->core->profile.plan.blocks);
    plim_engine_free(engine);
}
END_TEST

START_TEST(a_loss_while_idle_is_repaired_before_the_next_request)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    atomic_store(&world.lose, 1);
    step(engine, 1);
    ck_assert_uint_eq(metrics(engine).losses, 1);
    step(engine, 10);
    ck_assert_uint_eq(metrics(engine).reopened, 1);
    ck_assert(metrics(engine).ready);
    begin(engine, got, N, NOBODY);
    finish(engine, got, N);
    others_same(got, want, NOBODY);
    plim_engine_free(engine);
}
END_TEST

static void until_tokens(plim_engine *engine, struct answer *answers, uint32_t n, uint32_t tokens)
{
    for (int i = 0; i < 1000; i++) {
        bool all = true;
        all_done(answers, n);
        for (uint32_t a = 0; a < n; a++)
            all = all && answers[a].n >= tokens;
        if (all)
            return;
        step(engine, 1);
    }
    ck_abort_msg("no progress");
}

// In flight at both losses: 0 to 3. The others came between them.
START_TEST(a_second_loss_soon_after_fails_who_was_in_flight_at_both)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    begin(engine, got, 4, NOBODY);
    until_tokens(engine, got, 4, 3);
    fault.lose_at = fault.submits + 1;
    until_tokens(engine, got, 4, 6);
    memset(&got[4], 0, 4 * sizeof(*got));
    for (uint32_t i = 4; i < N; i++)
        got[i].request = ask(engine, i, false);
    until_tokens(engine, got, N, 8);
    plm_sim_clock_advance(&sim_clock, 50 * SECOND);
    fault.lose_at = fault.submits + 1;
    finish(engine, got, N);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(got[i].status, PLIM_ERR_LOST);
        ck_assert_int_eq(got[i].finish, PLIM_FINISH_ERROR);
        // What was delivered before is right.
        ck_assert_mem_eq(got[i].token, want[i].token, got[i].n * sizeof(*got[i].token));
    }
    for (uint32_t i = 4; i < N; i++)
        same(&got[i], &want[i]);
    ck_assert_uint_eq(metrics(engine).losses, 2);
    ck_assert(metrics(engine).ready);
    plim_engine_free(engine);
}
END_TEST

START_TEST(a_third_loss_ends_the_engine)
{
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    for (int loss = 0; loss < 3; loss++) {
        ck_assert(metrics(engine).ready);
        ck_assert(!metrics(engine).lost);
        memset(got, 0, sizeof(got));
        got[0].request = ask(engine, 0, false);
        until_tokens(engine, got, 1, 2);
        fault.lose_at = fault.submits + 1;
        finish(engine, got, 1);
        ck_assert_int_eq(got[0].status, loss == 2 ? PLIM_ERR_LOST : PLIM_OK);
    }
    const plim_metrics m = metrics(engine);
    ck_assert(m.lost && !m.ready && m.draining);
    ck_assert_uint_eq(m.losses, 3);
    plim_request_opts q;
    plim_request *request = NULL;
    plim_request_opts_init(&q);
    q.prompt = "x";
    q.prompt_len = 1;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, NULL), PLIM_ERR_CLOSED);
    ck_assert_int_eq(plim_engine_drain(engine, 0), PLIM_OK);
    bool worked = true;
    ck_assert_int_eq(plim_engine_step(engine, &worked), PLIM_OK);
    ck_assert(!worked);
    plim_engine_free(engine);
}
END_TEST

// Neighbours took the room while the device was away: requests wait until they leave, as many
// blocks as there are will do, and there is an end to waiting.
START_TEST(a_device_without_room_is_waited_for)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    const uint64_t blocks = metrics(engine).blocks_total;
    begin(engine, got, N, NOBODY);
    until_tokens(engine, got, N, 2);
    atomic_store(&world.foreign_bytes, 255 * MIB);
    atomic_store(&world.lose, 1);
    step(engine, 40);
    ck_assert(!metrics(engine).ready);
    ck_assert(!metrics(engine).lost);
    // Those who come meanwhile are sent elsewhere, since nobody can tell for how long.
    plim_request_opts q;
    plim_request *request = NULL;
    plim_request_opts_init(&q);
    q.prompt = "x";
    q.prompt_len = 1;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, NULL), PLIM_ERR_NOMEM_NOW);
    all_done(got, N);
    for (uint32_t i = 0; i < N; i++)
        ck_assert(!got[i].done);
    atomic_store(&world.foreign_bytes, 0);
    finish(engine, got, N);
    others_same(got, want, NOBODY);
    ck_assert_uint_eq(metrics(engine).blocks_total, blocks);
    ck_assert_uint_eq(metrics(engine).reopened, 1);

    // Room for half of the cache beside the margin; then for the least that is of use, without it.
    const uint64_t held = atomic_load(&world.taken_bytes);
    const uint64_t kv = (uint64_t)metrics(engine).kv_bytes;
    const uint64_t margin = (uint64_t)metrics(engine).margin_bytes;
    const struct {
        uint64_t room, at_least, at_most;
    } cases[] = {{held + margin - kv / 2, blocks / 3, blocks / 2}, {held - kv / 2, 64, 64}};
    for (int i = 0; i < 2; i++) {
        plm_sim_clock_advance(&sim_clock, 61 * SECOND);
        begin(engine, got, N, NOBODY);
        until_tokens(engine, got, N, 2);
        atomic_store(&world.foreign_bytes, 256 * MIB - cases[i].room);
        atomic_store(&world.lose, 1);
        finish(engine, got, N);
        others_same(got, want, NOBODY);
        ck_assert_uint_ge(metrics(engine).blocks_total, cases[i].at_least);
        ck_assert_uint_le(metrics(engine).blocks_total, cases[i].at_most);
    }

    plm_sim_clock_advance(&sim_clock, 61 * SECOND);
    begin(engine, got, N, NOBODY);
    until_tokens(engine, got, N, 2);
    atomic_store(&world.foreign_bytes, 255 * MIB);
    atomic_store(&world.lose, 1);
    const int64_t from = plm_now(&clock_source);
    finish(engine, got, N);
    ck_assert_int_ge(plm_now(&clock_source) - from, 120 * SECOND);
    ck_assert_int_lt(plm_now(&clock_source) - from, 140 * SECOND);
    for (uint32_t i = 0; i < N; i++)
        ck_assert_int_eq(got[i].status, PLIM_ERR_LOST);
    ck_assert(metrics(engine).lost);
    plim_engine_free(engine);
}
END_TEST

// Those who wait can leave.
START_TEST(clients_can_leave_while_the_device_is_away)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    begin(engine, got, N, NOBODY);
    until_tokens(engine, got, N, 2);
    atomic_store(&world.foreign_bytes, 255 * MIB);
    atomic_store(&world.lose, 1);
    step(engine, 10);
    plim_request_cancel(got[3].request);
    step(engine, 1);
    collect(&got[3]);
    ck_assert(got[3].done);
    ck_assert_int_eq(got[3].status, PLIM_ERR_CANCELLED);
    atomic_store(&world.foreign_bytes, 0);
    finish(engine, got, N);
    others_same(got, want, 3);
    plim_engine_free(engine);
}
END_TEST

// Choices of one request share their prompt, before and after; each one goes on.
START_TEST(choices_go_on_after_a_loss)
{
    struct answer want[3] = {0}, got[2] = {0};
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    for (uint32_t c = 0; c < 3; c++) {
        want[c] = (struct answer){.request = ask_n(engine, 6, false, 3), .choice = c};
        finish(engine, &want[c], 1);
    }
    for (uint64_t at = 1; at < 24; at++) {
        got[0] = (struct answer){.choice = (uint32_t)at % 3};
        arm(HARMLESS);
        fault.lose_at = at;
        got[0].request = ask_n(engine, 6, false, 3);
        got[1] = (struct answer){.request = ask(engine, 3, false)};
        finish(engine, got, 2);
        same(&got[0], &want[at % 3]);
        ck_assert_int_eq(got[1].status, PLM_OK);
        plm_sim_clock_advance(&sim_clock, 61 * SECOND);
    }
    ck_assert_uint_gt(metrics(engine).losses, 15);
    plim_engine_free(engine);
}
END_TEST

// A device that is lost while the engine sleeps is brought back when it wakes, not before.
START_TEST(a_loss_asleep_is_repaired_awake)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    ck_assert_int_eq(plim_engine_sleep(engine, 0, NULL), PLIM_OK);
    ck_assert_int_eq(metrics(engine).kv_bytes, 0);
    atomic_store(&world.lose, 1);
    step(engine, 10);
    ck_assert_uint_eq(metrics(engine).reopened, 0);
    ck_assert(metrics(engine).asleep);
    plim_engine_wake(engine, NULL); // OK or LOST, awake in either case
    step(engine, 10);
    begin(engine, got, N, NOBODY);
    finish(engine, got, N);
    others_same(got, want, NOBODY);
    ck_assert_uint_eq(metrics(engine).losses, 1);
    ck_assert(metrics(engine).ready && !metrics(engine).asleep);
    ck_assert_uint_eq(metrics(engine).blocks_total, (uint64_t)engine->core->profile.plan.blocks);
    plim_engine_free(engine);
}
END_TEST

// A start that loses the device at any of its submits comes to the plan of one that does not.
START_TEST(a_start_survives_a_loss)
{
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    const uint64_t submits = fault.submits;
    const int64_t blocks = engine->core->profile.plan.blocks;
    plim_engine_free(engine);
    ck_assert_uint_gt(submits, 5);
    uint32_t same_plan = 0;
    for (uint64_t at = 1; at <= submits; at++) {
        base_opts(&o);
        fault.lose_at = at;
        engine = create(&o);
        ck_assert_uint_eq(atomic_load(&world.opens), 2);
        // A loss in the validation is answered by a smaller size, one in the stress is not.
        ck_assert_int_le(engine->core->profile.plan.blocks, blocks);
        same_plan += engine->core->profile.plan.blocks == blocks;
        struct answer got = {.request = ask(engine, 1, false)};
        finish(engine, &got, 1);
        ck_assert_int_eq(got.status, PLIM_OK);
        plim_engine_free(engine);
    }
    ck_assert_uint_gt(same_plan, submits / 3);
}
END_TEST

// ---- whose fault it is ----

// Halves find one among n in log2(n) + 1 replays, wherever it stands; nobody else ends.
static void find_poison(enum harm harm, int status, uint64_t losses)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    for (uint32_t poison = 0; poison < N; poison++) {
        const plim_metrics before = metrics(engine);
        arm(harm);
        begin(engine, got, N, poison);
        finish(engine, got, N);
        others_same(got, want, poison);
        ck_assert_int_eq(got[poison].status, status);
        ck_assert_int_eq(got[poison].finish, PLIM_FINISH_ERROR);
        ck_assert_uint_eq(got[poison].n, 0);
        const plim_metrics m = metrics(engine);
        ck_assert_uint_eq(m.poisoned, before.poisoned + 1);
        ck_assert_uint_eq(m.losses, before.losses + losses);
        ck_assert_uint_le(m.replays, before.replays + (losses > 0 ? N : 4));
        ck_assert(m.ready);
        plm_sim_clock_advance(&sim_clock, 61 * SECOND);
    }
    plim_engine_free(engine);
}

START_TEST(nan_in_all_rows_is_traced_by_halves)
{
    find_poison(ALL_NAN, PLIM_ERR_NUMERIC, 0);
}
END_TEST

START_TEST(a_step_that_fails_is_traced_by_halves)
{
    find_poison(BREAKS, PLIM_ERR_INTERNAL, 0);
}
END_TEST

START_TEST(a_request_that_loses_the_device_ends_alone)
{
    find_poison(LOSES, PLIM_ERR_LOST, 2);
}
END_TEST

START_TEST(a_request_that_hangs_the_device_ends_alone)
{
    find_poison(HANGS, PLIM_ERR_TIMEOUT, 2);
}
END_TEST

// A device that hangs in any submit of a start ends it, and the error names the stage and the step.
START_TEST(a_start_that_hangs_ends_and_says_where)
{
    static const char *const stages[] = {"tune", "stress", "validate"};
    unsigned seen[3] = {0};
    plim_engine_opts o;
    plim_engine *engine = NULL;
    for (uint64_t at = 1; engine == NULL; at++) {
        struct plm_sim_event hang = {
            .when = PLM_SIM_AT_SUBMIT, .at = at, .what = PLM_SIM_HANG, .value = INT64_C(1) << 60};
        plim_error err = PLIM_INIT(plim_error);
        base_opts(&o);
        o.watchdog_ms = _i == 0 ? 5000 : 0;
        script.n_variants = 3;
        script.events = &hang;
        script.n_events = 1;
        int r = try_start(&o, &engine, &err);
        if (r == PLIM_OK) { // so many submits has no start
            ck_assert_uint_lt(world.submits, at);
            break;
        }
        ck_assert_msg(r == PLIM_ERR_TIMEOUT, "submit %llu: %d %s", (unsigned long long)at, r,
                      err.message);
        ck_assert_msg(strstr(err.message, _i == 0 ? "longer than 50 s" : "longer than 600 s") !=
                          NULL,
                      "%s", err.message);
        ck_assert_str_eq(last_log, err.message); // said before the device is closed
        ck_assert_int_lt(plm_now(&clock_source), INT64_C(700) * 1000000000);
        for (size_t i = 0; i < 3; i++) {
            char stage[48];
            snprintf(stage, sizeof(stage), "in its stage \"%s\"", stages[i]);
            seen[i] += strstr(err.message, stage) != NULL;
        }
        ck_assert_uint_eq(world.taken_bytes, 0);
    }
    ck_assert_msg(seen[0] > 0 && seen[1] > 0 && seen[2] > 0, "tune %u, stress %u, validate %u",
                  seen[0], seen[1], seen[2]);
    plim_engine_free(engine);
}
END_TEST

// A row that alone is no number says whose it is: no replay.
START_TEST(nan_in_one_row_is_known_at_once)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    begin(engine, got, N, NOBODY);
    until_tokens(engine, got, N, 2);
    plim_request_free(got[0].request);
    got[0] = (struct answer){.request = ask(engine, 1, true)}; // shares nothing
    arm(OWN_ROW);
    finish(engine, got, N);
    ck_assert_int_eq(got[0].status, PLIM_ERR_NUMERIC);
    others_same(got, want, 0);
    ck_assert_uint_eq(metrics(engine).replays, 0);
    ck_assert_uint_eq(metrics(engine).poisoned, 1);
    plim_engine_free(engine);
}
END_TEST

// A fault that does not come again is nobody's.
START_TEST(a_passing_fault_ends_nobody)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    begin(engine, got, N, NOBODY);
    until_tokens(engine, got, N, 2);
    arm(ALL_ONCE);
    finish(engine, got, N);
    others_same(got, want, NOBODY);
    ck_assert_uint_eq(metrics(engine).poisoned, 0);
    ck_assert_uint_le(metrics(engine).replays, 4);
    plim_engine_free(engine);
}
END_TEST

// Suspects that leave while they are sought among, the probe's and others.
START_TEST(candidates_can_leave)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    for (uint32_t leaver = 0; leaver < N; leaver++) {
        arm(HARMLESS);
        begin(engine, got, N, NOBODY);
        until_tokens(engine, got, N, 2);
        arm(ALL_ONCE);
        step(engine, 1);
        ck_assert_uint_eq(engine->bisect.n, N);
        plim_request_cancel(got[leaver].request);
        finish(engine, got, N);
        ck_assert_int_eq(got[leaver].status, PLIM_ERR_CANCELLED);
        others_same(got, want, leaver);
    }
    plim_engine_free(engine);
}
END_TEST

// Blocks of the prefix cache with numbers that are none: who shares them is computed without them,
// and nobody after.
START_TEST(bad_blocks_of_the_prefix_cache_are_forgotten)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    begin(engine, got, N, NOBODY);
    finish(engine, got, N);
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(engine->core->pool, &pool);
    ck_assert_uint_gt(pool.cached, 2);
    const uint64_t n_halves = pool.block_bytes / 2;
    for (uint32_t b = 0; b < pool.total; b++) {
        uint16_t *halves = (uint16_t *)(uintptr_t)plm_kv_pool_addr(engine->core->pool, b);
        for (uint64_t i = 0; i < n_halves; i++)
            halves[i] = 0x7E00; // NaN
    }
    memset(got, 0, sizeof(got));
    got[0].request = ask(engine, 7, false);
    finish(engine, got, 1);
    same(&got[0], &want[7]);
    const uint64_t replays = metrics(engine).replays;
    ck_assert_uint_eq(replays, 1);
    ck_assert_uint_eq(metrics(engine).poisoned, 0);
    memset(got, 0, sizeof(got));
    got[0].request = ask(engine, 6, false);
    finish(engine, got, 1);
    same(&got[0], &want[6]);
    ck_assert_uint_eq(metrics(engine).replays, replays);
    plim_engine_free(engine);
}
END_TEST

// ---- refused submits ----

START_TEST(a_refused_submit_is_made_again_without_the_ballast)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    script.commit = PLM_COMMIT_SOFT;
    plim_engine *engine = create(&o);
    const int64_t ballast = metrics(engine).ballast_bytes;
    ck_assert_int_gt(ballast, 0);
    begin(engine, got, N, NOBODY);
    until_tokens(engine, got, N, 2);
    fault.refuse_from = fault.refuse_to = fault.submits + 1;
    step(engine, 1);
    ck_assert_uint_eq(metrics(engine).resubmits, 1);
    ck_assert_int_eq(metrics(engine).ballast_bytes, 0);
    const uint64_t taken = atomic_load(&world.taken_bytes);
    step(engine, 1); // it is there again
    ck_assert_int_eq(metrics(engine).ballast_bytes, ballast);
    ck_assert_uint_gt(atomic_load(&world.taken_bytes), taken);
    finish(engine, got, N);
    others_same(got, want, NOBODY);
    ck_assert_uint_eq(metrics(engine).resubmits, 1);
    plim_engine_free(engine);
}
END_TEST

// However long it refuses, short of for ever, all come to their ends.
START_TEST(refused_submits_delay_and_end_nobody)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    for (uint64_t times = 1; times <= 20; times++) {
        arm(HARMLESS);
        plim_engine *engine = create(&o);
        begin(engine, got, N, NOBODY);
        until_tokens(engine, got, N, 2);
        fault.refuse_from = fault.submits + 1;
        fault.refuse_to = fault.submits + times;
        finish(engine, got, N);
        others_same(got, want, NOBODY);
        ck_assert_uint_eq(metrics(engine).resubmits, (times + 1) / 2);
        plim_engine_free(engine);
    }
}
END_TEST

// At the last resort one ends, the youngest, and the others wait on.
START_TEST(a_device_without_room_ends_one_at_a_time)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    begin(engine, got, N, NOBODY);
    until_tokens(engine, got, N, 2);
    fault.refuse_from = fault.submits + 1;
    fault.refuse_to = UINT64_MAX;
    uint32_t ended = 0;
    for (int i = 0; i < 1000 && ended == 0; i++) {
        step(engine, 1);
        all_done(got, N);
        for (uint32_t a = 0; a < N; a++)
            ended += got[a].done;
    }
    ck_assert_uint_eq(ended, 1);
    fault.refuse_to = 0;
    finish(engine, got, N);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < N; i++) {
        if (got[i].status == PLIM_ERR_NOMEM_NOW)
            refused++;
        else
            same(&got[i], &want[i]);
    }
    ck_assert_uint_eq(refused, 1);
    plim_engine_free(engine);
}
END_TEST

// A device that gives out more than it has, and a neighbour that wants its memory now: slabs go
// back until submits pass again, and nobody ends.
START_TEST(an_overcommitted_device_gets_its_memory_back)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    script.commit = PLM_COMMIT_SOFT;
    script.overcommits = true;
    plim_engine *engine = create(&o);
    const uint64_t kv = (uint64_t)metrics(engine).kv_bytes;
    begin(engine, got, N, NOBODY);
    until_tokens(engine, got, N, 2);
    // All of the margin, and half of the cache.
    const uint64_t held = atomic_load(&world.taken_bytes);
    const uint64_t foreign = 256 * MIB - held + (uint64_t)metrics(engine).ballast_bytes + kv / 2;
    atomic_store(&world.foreign_bytes, foreign);
    finish(engine, got, N);
    others_same(got, want, NOBODY);
    ck_assert_uint_ge(metrics(engine).resubmits, 1);
    ck_assert_uint_le(atomic_load(&world.taken_bytes) - (uint64_t)metrics(engine).ballast_bytes,
                      256 * MIB - foreign);
    plim_engine_free(engine);
}
END_TEST

// ---- no progress ----

// A scheduler that forms no step although there is work: what holds it back is let go.
START_TEST(a_stall_is_broken)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    begin(engine, got, N, NOBODY);
    until_tokens(engine, got, N, 2);
    plm_sched_restrict(engine->sched, true); // and nobody is selected
    step(engine, 2);
    ck_assert_int_gt(metrics(engine).last_step_time_ns, 0);
    plm_sim_clock_advance(&sim_clock, 5 * SECOND);
    step(engine, 1);
    ck_assert_int_ge(metrics(engine).last_step_age_ns, 5 * SECOND);
    ck_assert_uint_eq(metrics(engine).stalls, 0);
    plm_sim_clock_advance(&sim_clock, 6 * SECOND);
    finish(engine, got, N);
    others_same(got, want, NOBODY);
    ck_assert_uint_eq(metrics(engine).stalls, 1);
    ck_assert_int_eq(metrics(engine).last_step_age_ns, 0);
    plim_engine_free(engine);
}
END_TEST

// ---- threads ----

struct reader {
    plim_engine *engine;
    atomic_bool stop;
};

static void *read_all(void *arg)
{
    struct reader *reader = arg;
    static char json[1 << 16];
    while (!atomic_load(&reader->stop)) {
        size_t need;
        metrics(reader->engine);
        struct plm_stress_reading reading;
        plm_core_read(reader->engine->core, &reading);
        plim_engine_memory_json(reader->engine, json, sizeof(json), &need);
    }
    return NULL;
}

// Others read metrics, memory and the device while it is exchanged.
START_TEST(readers_see_a_device_or_none)
{
    const struct answer *want = undisturbed();
    struct answer got[N];
    plim_engine_opts o;
    pthread_t thread;
    base_opts(&o);
    plim_engine *engine = create(&o);
    struct reader reader = {.engine = engine};
    ck_assert_int_eq(pthread_create(&thread, NULL, read_all, &reader), 0);
    for (int i = 0; i < 3; i++) {
        arm(HARMLESS);
        fault.lose_at = 10 + (uint64_t)i;
        begin(engine, got, N, NOBODY);
        finish(engine, got, N);
        others_same(got, want, NOBODY);
        plm_sim_clock_advance(&sim_clock, 61 * SECOND);
    }
    atomic_store(&reader.stop, true);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(metrics(engine).reopened, 3);
    plim_engine_free(engine);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("faults");
    TCase *tc = tcase_create("faults");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, streams_go_on_after_a_loss_at_any_submit);
    tcase_add_test(tc, a_loss_while_idle_is_repaired_before_the_next_request);
    tcase_add_test(tc, a_second_loss_soon_after_fails_who_was_in_flight_at_both);
    tcase_add_test(tc, a_third_loss_ends_the_engine);
    tcase_add_test(tc, a_device_without_room_is_waited_for);
    tcase_add_test(tc, clients_can_leave_while_the_device_is_away);
    tcase_add_test(tc, choices_go_on_after_a_loss);
    tcase_add_test(tc, a_loss_asleep_is_repaired_awake);
    tcase_add_test(tc, a_start_survives_a_loss);
    tcase_add_test(tc, nan_in_all_rows_is_traced_by_halves);
    tcase_add_test(tc, a_step_that_fails_is_traced_by_halves);
    tcase_add_test(tc, a_request_that_loses_the_device_ends_alone);
    tcase_add_test(tc, a_request_that_hangs_the_device_ends_alone);
    tcase_add_loop_test(tc, a_start_that_hangs_ends_and_says_where, 0, 2);
    tcase_add_test(tc, nan_in_one_row_is_known_at_once);
    tcase_add_test(tc, a_passing_fault_ends_nobody);
    tcase_add_test(tc, candidates_can_leave);
    tcase_add_test(tc, bad_blocks_of_the_prefix_cache_are_forgotten);
    tcase_add_test(tc, a_refused_submit_is_made_again_without_the_ballast);
    tcase_add_test(tc, refused_submits_delay_and_end_nobody);
    tcase_add_test(tc, a_device_without_room_ends_one_at_a_time);
    tcase_add_test(tc, an_overcommitted_device_gets_its_memory_back);
    tcase_add_test(tc, a_stall_is_broken);
    tcase_add_test(tc, readers_see_a_device_or_none);
    suite_add_tcase(suite, tc);
    return suite;
}

int main(void)
{
    return suite_run(make_suite());
}
