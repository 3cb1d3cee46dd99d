// SPDX-License-Identifier: Apache-2.0
// An engine on a simulated device whose neighbours take and give memory, under a virtual clock: the
// KV cache yields or holds, keeps its floor, comes back, sleeps and wakes, and no request notices
// anything but time. Where texts are compared, the device computes for real.
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "tests/support/suite.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

#define MIB   (INT64_C(1) << 20)
#define SLABS 12u

struct rig {
    struct plm_sim_clock clock;
    struct plm_clock source;
    struct plm_sim_world world;
    struct plm_sim_opts sim;
    struct plm_sim_event event; // to be set while the engine runs
    struct plm_engine_env env;
    const struct plm_backend *backend; // NULL: the simulated one as it is
    plim_engine_opts opts;
    char path[512];
    plim_engine *engine;
    plim_error err;
    uint32_t blocks; // planned
};

static void rig_init(struct rig *rig, enum plim_neighbours mode)
{
    memset(rig, 0, sizeof(*rig));
    rig->err.struct_size = sizeof(rig->err);
    rig->event = (struct plm_sim_event){.when = PLM_SIM_AT_ALLOC, .at = UINT64_MAX};
    plm_sim_clock_init(&rig->clock);
    rig->source = plm_sim_clock_source(&rig->clock);
    rig->sim = (struct plm_sim_opts){.world = &rig->world,
                                     .capacity_bytes = 1024 * MIB,
                                     .granularity_bytes = 64 * 1024,
                                     .context_bytes = 20 * MIB,
                                     .commit = PLM_COMMIT_HARD,
                                     .events = &rig->event,
                                     .n_events = 1,
                                     .submit_ns = 1000000};
    snprintf(rig->path, sizeof(rig->path), "%s/llama-tied-q4_1.gguf", TEST_MODELS);
    plim_engine_opts_init(&rig->opts);
    rig->opts.model_path = rig->path;
    rig->opts.threads = 1;
    rig->opts.ctx_size = 512;
    rig->opts.batch_max_tokens = 512;
    rig->opts.max_sequences = 8;
    rig->opts.manual_step = 1;
    rig->opts.neighbours = mode;
    rig->opts.queue_timeout_ms = 0;
}

static int rig_start(struct rig *rig)
{
    rig->env =
        (struct plm_engine_env){.host = plm_host_create(0),
                                .clock = &rig->source,
                                .backend = rig->backend != NULL ? rig->backend : &plm_sim_backend,
                                .backend_opts = &rig->sim,
                                .seed = 5};
    plim_engine_opts read;
    int r = plm_opts_read(&rig->opts, &read, &rig->err);
    if (r == PLM_OK)
        r = plm_engine_create_in(&rig->env, &read, &rig->engine, &rig->err);
    if (r != PLM_OK)
        plm_host_destroy(rig->env.host);
    else
        rig->blocks = (uint32_t)rig->engine->core->profile.plan.blocks;
    return r;
}

// A pool of SLABS slabs of 2 MiB.
static void start(struct rig *rig)
{
    struct plm_kv_pool_stats pool;
    rig->opts.max_total_tokens = 512; // to learn what a block takes
    const uint32_t max_sequences = rig->opts.max_sequences;
    rig->opts.max_sequences = 1;
    ck_assert_int_eq(rig_start(rig), PLM_OK);
    plm_kv_pool_read(rig->engine->core->pool, &pool);
    plim_engine_free(rig->engine);
    memset(&rig->world, 0, sizeof(rig->world));
    plm_sim_clock_init(&rig->clock);
    rig->opts.max_sequences = max_sequences;
    rig->opts.max_total_tokens = 2 * MIB / pool.block_bytes * SLABS * PLM_KV_BLOCK_TOKENS;
    if (rig_start(rig) != PLM_OK)
        ck_abort_msg("%s", rig->err.message);
    plm_kv_pool_read(rig->engine->core->pool, &pool);
    ck_assert_uint_eq(pool.slabs, SLABS);
}

static plim_metrics metrics(const struct rig *rig)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(rig->engine, &m);
    ck_assert_uint_eq(m.allocations_in_step, 0);
    ck_assert_uint_eq(m.ledger_mismatches, 0);
    ck_assert_uint_eq(m.blocks_used + m.blocks_cached + m.blocks_free, m.blocks_total);
    ck_assert_int_le(m.used_bytes - m.ballast_bytes, m.limit_bytes);
    return m;
}

static int64_t free_bytes(const struct rig *rig)
{
    return (int64_t)(rig->sim.capacity_bytes - rig->world.taken_bytes - rig->world.driver_bytes -
                     rig->world.foreign_bytes);
}

// The neighbour leaves so much free.
static void leave(struct rig *rig, int64_t bytes)
{
    rig->world.foreign_bytes = rig->sim.capacity_bytes - rig->world.taken_bytes -
                               rig->world.driver_bytes - (uint64_t)bytes;
}

static void seconds(struct rig *rig, int n)
{
    while (n-- > 0) {
        bool worked = true;
        plm_sim_clock_advance(&rig->clock, 1000000000);
        // As the engine's thread does: on, as long as there is something to do.
        for (int i = 0; worked && i < 50; i++)
            ck_assert_int_eq(plim_engine_step(rig->engine, &worked), PLIM_OK);
    }
}

// ---- requests ----

static int32_t prompt[512];

static plim_request *submit_choices(plim_engine *engine, uint32_t n, uint32_t n_prompt,
                                    uint32_t max_tokens, uint32_t seed, plim_error *err)
{
    plim_request_opts q;
    plim_request *request = NULL;
    plim_error unheard = PLIM_INIT(plim_error);
    for (uint32_t i = 0; i < 512; i++)
        prompt[i] = (int32_t)((i * 31 + seed * 17 + i * i % 7) % 250);
    plim_request_opts_init(&q);
    q.tokens = prompt;
    q.n_tokens = n_prompt;
    q.n = n;
    q.max_tokens = max_tokens;
    q.ignore_eos = 1;
    q.has_seed = 1;
    q.seed = seed;
    err = err != NULL ? err : &unheard;
    int r = plim_request_submit(engine, &q, &request, err);
    ck_assert_int_eq(r, request != NULL ? PLIM_OK : err->status);
    return request;
}

static plim_request *submit_to(plim_engine *engine, uint32_t n_prompt, uint32_t max_tokens,
                               uint32_t seed, plim_error *err)
{
    return submit_choices(engine, 1, n_prompt, max_tokens, seed, err);
}

struct answer {
    uint32_t n;
    int32_t tokens[512];
    bool done;
    int status;
};

static void collect(plim_request *request, struct answer *a)
{
    plim_event e = PLIM_INIT(plim_event);
    while (plim_request_next(request, 0, &e) == PLIM_OK) {
        if (e.type == PLIM_EVENT_TOKEN)
            a->tokens[a->n++] = e.token;
        a->done = a->done || e.type == PLIM_EVENT_DONE;
        if (e.type == PLIM_EVENT_DONE)
            a->status = e.status;
    }
}

// ---- hold ----

START_TEST(hold_keeps_what_the_plan_holds)
{
    struct rig rig;
    char json[16384];
    size_t need;
    rig_init(&rig, PLIM_NEIGHBOURS_AUTO); // the device commits hard
    start(&rig);
    const plim_metrics before = metrics(&rig);
    ck_assert_int_eq(before.limit_bytes, rig.engine->core->profile.plan.line);
    leave(&rig, 0);
    seconds(&rig, 5);
    plim_metrics m = metrics(&rig);
    ck_assert_uint_eq(m.blocks_total, rig.blocks);
    ck_assert_uint_eq(m.shrinks, 0);
    ck_assert_int_eq(m.limit_bytes, before.limit_bytes);
    ck_assert_int_eq(m.largest_free_bytes, 0);
    ck_assert_int_ge(m.foreign_bytes, (int64_t)rig.world.foreign_bytes);
    // Said once, with what changed.
    ck_assert_int_eq(plim_engine_memory_json(rig.engine, json, sizeof(json), &need), PLIM_OK);
    const char *events = strstr(json, "\"neighbours\":[{");
    ck_assert_ptr_nonnull(events);
    ck_assert_ptr_null(strstr(events + 20, "\"change_bytes\"") != NULL
                           ? strstr(strstr(events + 20, "\"change_bytes\"") + 1, "\"change_bytes\"")
                           : NULL);
    plim_engine_free(rig.engine);
}
END_TEST

// ---- pushed out ----

// Steps one request of 300 tokens to its end on a device whose submits take so many times as long
// between two of its steps; *ret_least blocks there were meanwhile.
static void run_slow(struct rig *rig, int64_t factor, int from, int to, uint64_t *ret_least)
{
    struct answer a = {0};
    plim_request *request = submit_to(rig->engine, 100, 300, 1, NULL);
    ck_assert_ptr_nonnull(request);
    *ret_least = metrics(rig).blocks_total;
    for (int i = 0; i < 400 && !a.done; i++) {
        if (i == from || i == to)
            rig->event = (struct plm_sim_event){.when = PLM_SIM_AT_SUBMIT,
                                                .at = rig->world.submits + 1,
                                                .what = PLM_SIM_SLOW,
                                                .value = i == from ? factor : 1};
        ck_assert_int_eq(plim_engine_step(rig->engine, NULL), PLIM_OK);
        if (metrics(rig).blocks_total < *ret_least)
            *ret_least = metrics(rig).blocks_total;
        collect(request, &a);
    }
    ck_assert_int_eq(a.status, PLIM_OK);
    ck_assert_uint_eq(a.n, 300);
    plim_request_free(request);
}

// A rig whose driver may push us out.
static void rig_init_soft(struct rig *rig, enum plim_neighbours mode)
{
    rig_init(rig, mode);
    rig->sim.commit = PLM_COMMIT_SOFT;
    rig->sim.submit_ns = 5000000;
}

START_TEST(steps_that_become_slow_are_pressure)
{
    struct rig rig;
    char json[16384];
    size_t need;
    uint64_t least;
    rig_init_soft(&rig, PLIM_NEIGHBOURS_AUTO);
    start(&rig);
    ck_assert_uint_gt(rig.engine->core->baseline.n, 2);
    run_slow(&rig, 3, 20, 120, &least); // a card that is shared
    ck_assert_uint_eq(metrics(&rig).slow_steps, 0);
    ck_assert_uint_eq(least, rig.blocks);
    run_slow(&rig, 10, 20, 27, &least); // too few in a row
    ck_assert_uint_eq(metrics(&rig).slow_steps, 7);
    ck_assert_uint_eq(metrics(&rig).slowdowns, 0);
    ck_assert_uint_eq(least, rig.blocks);
    run_slow(&rig, 10, 20, 400, &least);
    plim_metrics m = metrics(&rig);
    ck_assert_uint_eq(m.slowdowns, 1);
    ck_assert(m.slow);
    ck_assert_uint_gt(m.slow_steps, 200);
    ck_assert_uint_le(least, 2 * rig.blocks / SLABS);
    ck_assert_uint_eq(m.blocks_total, least);
    ck_assert_int_eq(plim_engine_memory_json(rig.engine, json, sizeof(json), &need), PLIM_OK);
    ck_assert_ptr_nonnull(strstr(json, "\"slowdowns\":1"));
    ck_assert_ptr_nonnull(strstr(json, "\"slow\":1"));
    // Readings that see nothing do not bring it back; steps that take what they took do.
    seconds(&rig, 20);
    ck_assert_uint_eq(metrics(&rig).blocks_total, least);
    run_slow(&rig, 1, 0, 0, &least);
    ck_assert(!metrics(&rig).slow);
    seconds(&rig, 20);
    m = metrics(&rig);
    ck_assert_uint_eq(m.blocks_total, rig.blocks);
    ck_assert_uint_eq(m.slowdowns, 1);
    plim_engine_free(rig.engine);
}
END_TEST

START_TEST(who_holds_says_so_and_keeps_its_cache)
{
    struct rig rig;
    uint64_t least;
    rig_init_soft(&rig, PLIM_NEIGHBOURS_HOLD);
    start(&rig);
    run_slow(&rig, 10, 20, 400, &least);
    ck_assert(metrics(&rig).slow);
    ck_assert_uint_eq(least, rig.blocks);
    plim_engine_free(rig.engine);
}
END_TEST

// Where nobody can take what we hold, where it is the host's memory, and where no step takes any
// time, time tells nothing.
START_TEST(elsewhere_a_slow_step_is_only_slow)
{
    struct rig rig;
    uint64_t least;
    rig_init_soft(&rig, PLIM_NEIGHBOURS_YIELD);
    if (_i == 0)
        rig.sim.commit = PLM_COMMIT_HARD;
    else if (_i == 1)
        rig.sim.unified = true;
    else
        rig.sim.submit_ns = 0;
    start(&rig);
    ck_assert_int_eq(rig.engine->core->baseline.n > 0, _i == 2);
    run_slow(&rig, 10, 20, 400, &least);
    ck_assert_uint_eq(metrics(&rig).slow_steps, 0);
    ck_assert_uint_eq(least, rig.blocks);
    plim_engine_free(rig.engine);
}
END_TEST

// ---- yield ----

START_TEST(yield_gives_what_the_margin_lacks_and_takes_it_back)
{
    struct rig rig;
    rig_init(&rig, PLIM_NEIGHBOURS_YIELD);
    start(&rig);
    const struct plm_plan *plan = &rig.engine->core->profile.plan;
    seconds(&rig, 5);
    ck_assert_uint_eq(metrics(&rig).blocks_total, rig.blocks);
    leave(&rig, plan->margin - 12 * MIB);
    seconds(&rig, 1);
    plim_metrics m = metrics(&rig);
    ck_assert_uint_lt(m.blocks_total, rig.blocks);
    ck_assert_int_ge(free_bytes(&rig), plan->margin);
    ck_assert_int_lt(free_bytes(&rig), plan->margin + 4 * MIB);
    ck_assert_int_eq(m.limit_bytes, m.used_bytes);
    ck_assert_uint_gt(m.shrinks, 0);
    const uint64_t low = m.blocks_total;
    seconds(&rig, 10);
    ck_assert_uint_eq(metrics(&rig).blocks_total, low);
    // The floor: the blocks of one request, in whole slabs.
    for (int i = 0; i < 10; i++) {
        leave(&rig, 0);
        seconds(&rig, 1);
    }
    m = metrics(&rig);
    ck_assert_uint_ge(m.blocks_total, 32);
    ck_assert_uint_le(m.blocks_total, rig.blocks / SLABS);
    // One of the whole context still finishes; one beyond the pool of now, but not of the plan, is
    // told to come later; one beyond the plan, never.
    plim_error err = PLIM_INIT(plim_error);
    struct answer a = {0};
    plim_request *request = submit_to(rig.engine, 400, 112, 1, NULL);
    ck_assert_ptr_nonnull(request);
    for (int i = 0; i < 200 && !a.done; i++) {
        plim_engine_step(rig.engine, NULL);
        collect(request, &a);
    }
    ck_assert_int_eq(a.status, PLIM_OK);
    ck_assert_uint_eq(a.n, 112);
    plim_request_free(request);
    ck_assert_ptr_null(submit_to(rig.engine, 400, 200, 1, &err));
    ck_assert_int_eq(err.status, PLIM_ERR_CONTEXT);
    // Relief comes back after readings that agree, to the whole plan.
    rig.world.foreign_bytes = 0;
    seconds(&rig, 2);
    ck_assert_uint_eq(metrics(&rig).blocks_total, m.blocks_total);
    seconds(&rig, 20);
    m = metrics(&rig);
    ck_assert_uint_eq(m.blocks_total, rig.blocks);
    ck_assert_uint_ge(m.grows, SLABS - 1);
    ck_assert_int_eq(m.limit_bytes, plan->line);
    plim_engine_free(rig.engine);
}
END_TEST

START_TEST(a_refused_slab_means_stay)
{
    struct rig rig;
    struct answer a = {0};
    rig_init(&rig, PLIM_NEIGHBOURS_YIELD);
    start(&rig);
    leave(&rig, rig.engine->core->profile.plan.margin - 20 * MIB);
    seconds(&rig, 1);
    const uint64_t low = metrics(&rig).blocks_total;
    // There seems to be room, but the driver gives none.
    rig.world.foreign_bytes = 0;
    rig.event = (struct plm_sim_event){.when = PLM_SIM_AT_ALLOC,
                                       .at = rig.world.allocs + 1,
                                       .what = PLM_SIM_FAIL_ALLOCS,
                                       .value = 3};
    plim_request *request = submit_to(rig.engine, 100, 50, 1, NULL);
    for (int i = 0; i < 12; i++) {
        plm_sim_clock_advance(&rig.clock, 1000000000);
        plim_engine_step(rig.engine, NULL);
        collect(request, &a);
        if (i < 8)
            ck_assert_uint_eq(metrics(&rig).blocks_total, low);
    }
    ck_assert_uint_gt(rig.world.allocs, rig.event.at);
    for (int i = 0; i < 100 && !a.done; i++) {
        plim_engine_step(rig.engine, NULL);
        collect(request, &a);
    }
    ck_assert_int_eq(a.status, PLIM_OK);
    plim_request_free(request);
    seconds(&rig, 60);
    ck_assert_uint_eq(metrics(&rig).blocks_total, rig.blocks);
    plim_engine_free(rig.engine);
}
END_TEST

START_TEST(lies_move_nothing_up)
{
    static const enum plm_sim_lie lies[] = {PLM_SIM_STALE,       PLM_SIM_FREE_ABOVE_TOTAL,
                                            PLM_SIM_ALL_ZERO,    PLM_SIM_USE_ABOVE_TOTAL,
                                            PLM_SIM_QUERY_FAILS, PLM_SIM_OSCILLATE};
    struct rig rig;
    rig_init(&rig, PLIM_NEIGHBOURS_YIELD);
    start(&rig);
    const int64_t margin = rig.engine->core->profile.plan.margin;
    leave(&rig, margin - 12 * MIB);
    seconds(&rig, 1);
    const uint64_t low = metrics(&rig).blocks_total;
    // Of the truth, nothing speaks for more; a lie about free memory does.
    rig.event = (struct plm_sim_event){.when = PLM_SIM_AT_QUERY,
                                       .at = rig.world.queries + 1,
                                       .what = PLM_SIM_LIE,
                                       .lie = lies[_i]};
    if (lies[_i] == PLM_SIM_OSCILLATE)
        leave(&rig, 300 * MIB);
    for (int i = 0; i < 60; i++) {
        seconds(&rig, 1);
        ck_assert_uint_le(metrics(&rig).blocks_total, low);
        ck_assert_uint_ge(metrics(&rig).blocks_total, 32);
    }
    plim_engine_free(rig.engine);
}
END_TEST

// ---- texts ----

#define REQUESTS 20u
#define OUTPUT   130u

static void run_all(struct rig *rig, bool squeeze, struct answer *answers)
{
    plim_request *requests[REQUESTS];
    uint32_t done = 0, turn = 0;
    memset(answers, 0, REQUESTS * sizeof(*answers));
    const int64_t margin = rig->engine->core->profile.plan.margin;
    // Cached prompts fill the pool first, so that what runs lies everywhere.
    for (uint32_t i = 0; i < rig->blocks / 31 + 1; i++) {
        plim_request *filler = submit_to(rig->engine, 497, 1, 100 + i, NULL);
        struct answer a = {0};
        for (int k = 0; k < 50 && !a.done; k++) {
            plim_engine_step(rig->engine, NULL);
            collect(filler, &a);
        }
        ck_assert_int_eq(a.status, PLIM_OK);
        plim_request_free(filler);
    }
    for (uint32_t i = 0; i < REQUESTS; i++)
        requests[i] = submit_to(rig->engine, 300 - 10 * i, OUTPUT, i, NULL);
    for (int step = 0; step < 20000 && done < REQUESTS; step++) {
        if (squeeze && step % 10 == 0) { // in, out, half, out ...
            turn++;
            leave(rig, turn % 2 == 0 ? 600 * MIB : turn % 4 == 1 ? 0 : margin - 15 * MIB);
            if (turn % 4 == 0)
                seconds(rig, 4);
        }
        if (squeeze)
            plm_sim_clock_advance(&rig->clock, 500000000);
        plim_engine_step(rig->engine, NULL);
        metrics(rig);
        done = 0;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            collect(requests[i], &answers[i]);
            done += answers[i].done;
        }
    }
    ck_assert_uint_eq(done, REQUESTS);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        ck_assert_int_eq(answers[i].status, PLIM_OK);
        ck_assert_uint_eq(answers[i].n, OUTPUT);
        plim_request_free(requests[i]);
    }
}

START_TEST(a_squeezed_cache_does_not_show_in_the_text)
{
    static struct answer want[REQUESTS], got[REQUESTS];
    struct rig rig;
    rig_init(&rig, PLIM_NEIGHBOURS_YIELD);
    rig.sim.inner = &plm_cpu_backend;
    rig.opts.kv_f32 = 1;
    rig.opts.max_sequences = 16; // more than the floor holds
    start(&rig);
    run_all(&rig, false, want);
    ck_assert_uint_eq(metrics(&rig).shrinks, 0);
    plim_engine_free(rig.engine);

    rig_init(&rig, PLIM_NEIGHBOURS_YIELD);
    rig.sim.inner = &plm_cpu_backend;
    rig.opts.kv_f32 = 1;
    rig.opts.max_sequences = 16; // more than the floor holds
    start(&rig);
    run_all(&rig, true, got);
    const plim_metrics m = metrics(&rig);
    ck_assert_uint_ge(m.shrinks, 2 * SLABS - 4);
    ck_assert_uint_gt(m.grows, SLABS / 2);
    ck_assert_uint_gt(rig.engine->pressure.moved_blocks, 100);
    ck_assert_uint_gt(m.preemptions, 0);
    plim_engine_free(rig.engine);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        ck_assert_uint_eq(got[i].n, want[i].n);
        ck_assert_int_eq(memcmp(got[i].tokens, want[i].tokens, sizeof(want[i].tokens)), 0);
    }
}
END_TEST

// ---- sleep and wake ----

START_TEST(fifty_nights_make_the_same_plan)
{
    struct rig rig;
    char first[16384], again[16384];
    size_t need;
    rig_init(&rig, _i == 0 ? PLIM_NEIGHBOURS_HOLD : PLIM_NEIGHBOURS_YIELD);
    start(&rig);
    const int64_t awake = free_bytes(&rig);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(plim_engine_sleep(rig.engine, 0, &rig.err), PLIM_OK);
        ck_assert_int_eq(plim_engine_sleep(rig.engine, 0, &rig.err), PLIM_OK);
        plim_metrics m = metrics(&rig);
        ck_assert(m.asleep);
        ck_assert_uint_eq(m.blocks_total, 0);
        // Seen at the driver.
        ck_assert_int_ge(free_bytes(&rig) - awake, (int64_t)SLABS * 2 * MIB);
        seconds(&rig, 5);
        ck_assert_uint_eq(metrics(&rig).blocks_total, 0);
        ck_assert_int_eq(plim_engine_wake(rig.engine, &rig.err), PLIM_OK);
        ck_assert_int_eq(plim_engine_wake(rig.engine, &rig.err), PLIM_OK);
        m = metrics(&rig);
        ck_assert(!m.asleep);
        ck_assert_uint_eq(m.blocks_total, rig.blocks);
        ck_assert_uint_eq(m.validated_blocks, rig.blocks);
        ck_assert_int_eq(free_bytes(&rig), awake);
        ck_assert(m.last_wake_s > 0);
        ck_assert_int_eq(
            plim_engine_plan_json(rig.engine, i == 0 ? first : again, sizeof(first), &need),
            PLIM_OK);
        // The plan itself; beside it, the report counts peaks.
        if (i > 0)
            ck_assert_int_eq(strncmp(first, again, (size_t)(strstr(first, "phase_peaks") - first)),
                             0);
        struct answer a = {0};
        plim_request *request = submit_to(rig.engine, 50, 5, 1, NULL);
        for (int k = 0; k < 20 && !a.done; k++) {
            plim_engine_step(rig.engine, NULL);
            collect(request, &a);
        }
        ck_assert_int_eq(a.status, PLIM_OK);
        plim_request_free(request);
    }
    const plim_metrics m = metrics(&rig);
    ck_assert_uint_eq(m.shrinks, 50 * SLABS);
    ck_assert_uint_eq(m.grows, 50 * SLABS);
    plim_engine_free(rig.engine);
}
END_TEST

// A neighbour that takes what is freed at once.
static _Atomic uint64_t *greedy_for; // its bytes; NULL: it sleeps

static void free_greedily(struct plm_backend_device *dev, struct plm_slab *slab)
{
    const uint64_t bytes = slab->taken_bytes;
    plm_sim_backend.free(dev, slab);
    if (greedy_for != NULL)
        *greedy_for += bytes;
}

static unsigned n_lacking; // lines about bytes that did not come back

static void count_lacking(void *ctx, int level, const char *line)
{
    (void)ctx, (void)level;
    n_lacking += strstr(line, "did not come back") != NULL;
}

// What others take is said to lack only where nothing tells it from ours.
START_TEST(asleep_what_others_take_is_not_missed)
{
    struct plm_backend greedy = plm_sim_backend;
    greedy.free = free_greedily;
    for (int hidden = 0; hidden < 2; hidden++) {
        struct rig rig;
        rig_init(&rig, PLIM_NEIGHBOURS_HOLD);
        rig.backend = &greedy;
        rig.sim.unified = hidden == 0; // as the CPU: it knows the process's use
        rig.sim.hides_process_use = hidden == 1;
        rig.opts.log = count_lacking;
        start(&rig);
        greedy_for = &rig.world.foreign_bytes;
        n_lacking = 0;
        ck_assert_int_eq(plim_engine_sleep(rig.engine, 0, &rig.err), PLIM_OK);
        ck_assert_uint_gt(rig.world.foreign_bytes, 0);
        ck_assert_uint_eq(n_lacking, (unsigned)hidden);
        greedy_for = NULL;
        plim_engine_free(rig.engine);
    }
}
END_TEST

START_TEST(who_comes_to_a_sleeper_waits_or_is_told)
{
    struct rig rig;
    plim_error err = PLIM_INIT(plim_error);
    struct answer running = {0}, queued = {0};
    rig_init(&rig, PLIM_NEIGHBOURS_HOLD);
    start(&rig);
    plim_request *first[9];
    for (uint32_t i = 0; i < 9; i++) // one more than runs at once
        first[i] = submit_to(rig.engine, 30, 40, i, NULL);
    for (int i = 0; i < 3; i++)
        plim_engine_step(rig.engine, NULL);
    ck_assert_uint_eq(metrics(&rig).running, 8);
    // Not while they run, and nothing has changed by the try.
    ck_assert_int_eq(plim_engine_sleep(rig.engine, 0, &err), PLIM_ERR_TIMEOUT);
    ck_assert(!metrics(&rig).asleep);
    for (uint32_t i = 0; i < 8; i++) {
        if (i > 0)
            plim_request_free(first[i]); // leaves
    }
    for (int i = 0; i < 100 && !running.done; i++) {
        plim_engine_step(rig.engine, NULL);
        collect(first[0], &running);
    }
    ck_assert_int_eq(running.status, PLIM_OK);
    plim_request_free(first[8]);
    plim_engine_step(rig.engine, NULL);
    plim_request *waits = submit_to(rig.engine, 30, 10, 50, NULL); // in the inbox
    ck_assert_int_eq(plim_engine_sleep(rig.engine, 0, &err), PLIM_OK);
    ck_assert_ptr_null(submit_to(rig.engine, 30, 10, 51, &err));
    ck_assert_int_eq(err.status, PLIM_ERR_NOMEM_NOW);
    ck_assert_str_eq(err.term, "asleep");
    ck_assert_int_ge(err.retry_after_s, 1);
    ck_assert_ptr_null(submit_to(rig.engine, 500, 100, 51, &err)); // never, asleep or not
    ck_assert_int_eq(err.status, PLIM_ERR_CONTEXT);
    for (int i = 0; i < 2000; i++) { // a long night is no stall
        plm_sim_clock_advance(&rig.clock, 1000000000);
        plim_engine_step(rig.engine, NULL);
        collect(waits, &queued);
        ck_assert(!queued.done && queued.n == 0);
    }
    ck_assert_int_eq(plim_engine_wake(rig.engine, &err), PLIM_OK);
    for (int i = 0; i < 100 && !queued.done; i++) {
        plim_engine_step(rig.engine, NULL);
        collect(waits, &queued);
    }
    ck_assert_int_eq(queued.status, PLIM_OK);
    ck_assert_uint_eq(queued.n, 10);
    ck_assert_uint_eq(metrics(&rig).stalls, 0);
    plim_request_free(waits);
    plim_request_free(first[0]);
    plim_engine_free(rig.engine);
}
END_TEST

// The second and third choice of a request in the queue have not begun, either.
START_TEST(choices_in_the_queue_sleep_too)
{
    struct rig rig;
    struct answer queued = {0};
    plim_request *first[8];
    rig_init(&rig, PLIM_NEIGHBOURS_HOLD);
    start(&rig);
    for (uint32_t i = 0; i < 8; i++)
        first[i] = submit_to(rig.engine, 30, 20, i, NULL);
    plim_request *waits = submit_choices(rig.engine, 3, 30, 10, 50, NULL);
    for (int i = 0; i < 3; i++)
        plim_engine_step(rig.engine, NULL);
    ck_assert_uint_eq(metrics(&rig).running, 8);
    ck_assert_uint_eq(metrics(&rig).waiting, 1);
    rig.engine->sleep.state = PLM_DROWSY; // as from a thread that waits
    for (int i = 0; i < 2000 && rig.engine->sleep.state != PLM_ASLEEP; i++) {
        plim_engine_step(rig.engine, NULL);
        collect(waits, &queued);
        ck_assert(!queued.done);
    }
    ck_assert_int_eq(rig.engine->sleep.state, PLM_ASLEEP);
    ck_assert_int_eq(plim_engine_wake(rig.engine, &rig.err), PLIM_OK);
    for (int i = 0; i < 100 && !queued.done; i++) {
        plim_engine_step(rig.engine, NULL);
        collect(waits, &queued);
    }
    ck_assert_int_eq(queued.status, PLIM_OK);
    ck_assert_uint_eq(queued.n, 30);
    ck_assert_uint_eq(metrics(&rig).stalls, 0);
    ck_assert_uint_eq(metrics(&rig).waiting, 0);
    for (uint32_t i = 0; i < 8; i++)
        plim_request_free(first[i]);
    plim_request_free(waits);
    plim_engine_free(rig.engine);
}
END_TEST

START_TEST(a_wake_takes_what_there_is_or_sleeps_on)
{
    struct rig rig;
    plim_error err = PLIM_INIT(plim_error);
    rig_init(&rig, PLIM_NEIGHBOURS_HOLD);
    start(&rig);
    ck_assert_int_eq(plim_engine_sleep(rig.engine, 0, &err), PLIM_OK);
    leave(&rig, MIB); // less than a slab
    ck_assert_int_eq(plim_engine_wake(rig.engine, &err), PLIM_ERR_OUT_OF_DEVICE);
    ck_assert_int_gt(err.needed_bytes, err.limit_bytes);
    plim_metrics m = metrics(&rig);
    ck_assert(m.asleep);
    ck_assert_uint_eq(m.blocks_total, 0);
    leave(&rig, 7 * MIB);
    ck_assert_int_eq(plim_engine_wake(rig.engine, &err), PLIM_OK);
    m = metrics(&rig);
    ck_assert(!m.asleep);
    ck_assert_uint_eq(m.blocks_total, rig.blocks / SLABS * 3);
    seconds(&rig, 10);
    ck_assert_uint_eq(metrics(&rig).blocks_total, rig.blocks / SLABS * 3);
    rig.world.foreign_bytes = 0;
    seconds(&rig, 30);
    ck_assert_uint_eq(metrics(&rig).blocks_total, rig.blocks);
    plim_engine_free(rig.engine);
}
END_TEST

// ---- the ledger and the driver ----

struct taker {
    struct rig *rig;
    uint64_t bytes;
};

static bool take_at_validate(void *ctx, const plim_progress *p)
{
    struct taker *t = ctx;
    if (strcmp(p->stage, "resize") == 0 && p->done == p->total)
        t->rig->world.driver_bytes += t->bytes;
    return true;
}

START_TEST(what_the_ledger_does_not_know_fails_the_start)
{
    struct rig rig;
    struct taker taker = {.rig = &rig};
    rig_init(&rig, PLIM_NEIGHBOURS_HOLD);
    rig.opts.progress = take_at_validate;
    rig.opts.progress_ctx = &taker;
    taker.bytes = 20 * MIB; // drivers take that much
    ck_assert_int_eq(rig_start(&rig), PLM_OK);
    plim_engine_free(rig.engine);
    memset(&rig.world, 0, sizeof(rig.world));
    taker.bytes = 200 * MIB;
    ck_assert_int_eq(rig_start(&rig), PLM_ERR_INTERNAL);
    ck_assert_int_gt(rig.err.needed_bytes, rig.err.limit_bytes + 160 * MIB);
    ck_assert_ptr_nonnull(strstr(rig.err.message, "ledger"));
    // Where the driver can not tell whose bytes they are, they are a neighbour's.
    memset(&rig.world, 0, sizeof(rig.world));
    rig.sim.hides_process_use = true;
    ck_assert_int_eq(rig_start(&rig), PLM_OK);
    plim_engine_free(rig.engine);
}
END_TEST

START_TEST(what_it_does_not_know_later_is_counted)
{
    struct rig rig;
    plim_metrics m = PLIM_INIT(plim_metrics);
    rig_init(&rig, PLIM_NEIGHBOURS_HOLD);
    start(&rig);
    for (int i = 0; i < 2; i++) {
        rig.world.driver_bytes += 200 * MIB;
        seconds(&rig, 5);
        plim_engine_metrics(rig.engine, &m);
        ck_assert_uint_eq(m.ledger_mismatches, (uint64_t)i + 1);
        rig.world.driver_bytes -= 200 * MIB;
        seconds(&rig, 5);
    }
    plim_engine_free(rig.engine);
}
END_TEST

// ---- with threads, on the machine itself ----

static void *sleep_long(void *arg)
{
    static plim_error err = PLIM_INIT(plim_error);
    return (void *)(intptr_t)plim_engine_sleep(arg, 60000, &err);
}

static void *sleep_without_end(void *arg)
{
    static plim_error err = PLIM_INIT(plim_error);
    return (void *)(intptr_t)plim_engine_sleep(arg, -1, &err);
}

static bool waits_to_sleep(plim_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    const bool waits = engine->sleep.state == PLM_DROWSY;
    pthread_mutex_unlock(&engine->lock);
    return waits;
}

// Whoever asked for the sleep may leave before it came, or somebody may need the engine: what runs
// and what comes then notices nothing.
START_TEST(a_sleep_that_waits_can_be_taken_back)
{
    struct rig rig;
    struct answer a = {0};
    pthread_t sleeper;
    void *result;
    rig_init(&rig, PLIM_NEIGHBOURS_HOLD);
    start(&rig);
    ck_assert_int_eq(plim_engine_sleep_cancel(NULL), PLIM_ERR_INVALID);
    ck_assert_int_eq(plim_engine_sleep_cancel(rig.engine), PLIM_OK); // none sleeps
    plim_request *request = submit_to(rig.engine, 30, 40, 1, NULL);
    plim_engine_step(rig.engine, NULL);
    ck_assert_uint_eq(metrics(&rig).running, 1); // and goes on with the next step alone
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_create(&sleeper, NULL, sleep_without_end, rig.engine), 0);
        while (!waits_to_sleep(rig.engine))
            usleep(1000);
        ck_assert_ptr_null(submit_to(rig.engine, 10, 1, 9, &rig.err));
        ck_assert_str_eq(rig.err.term, "asleep");
        ck_assert_int_eq(i == 0 ? plim_engine_sleep_cancel(rig.engine)
                                : plim_engine_wake(rig.engine, &rig.err),
                         PLIM_OK);
        pthread_join(sleeper, &result);
        ck_assert_int_eq((int)(intptr_t)result, PLIM_ERR_CANCELLED);
        plim_request *other = submit_to(rig.engine, 10, 1, 9, &rig.err);
        ck_assert_ptr_nonnull(other);
        plim_request_free(other);
    }
    for (int i = 0; i < 100 && !a.done; i++) {
        plim_engine_step(rig.engine, NULL);
        collect(request, &a);
    }
    ck_assert_int_eq(a.status, PLIM_OK);
    ck_assert_uint_eq(a.n, 40);
    plim_request_free(request);
    plim_engine_step(rig.engine, NULL);
    // One that has come stays.
    ck_assert_int_eq(plim_engine_sleep(rig.engine, 0, &rig.err), PLIM_OK);
    ck_assert_int_eq(plim_engine_sleep_cancel(rig.engine), PLIM_OK);
    ck_assert(metrics(&rig).asleep);
    plim_engine_free(rig.engine);
}
END_TEST

START_TEST(an_engine_of_its_own_thread_sleeps_and_wakes)
{
    struct rig rig;
    plim_engine *engine = NULL;
    pthread_t sleeper;
    void *result;
    struct answer a = {0};
    rig_init(&rig, PLIM_NEIGHBOURS_AUTO); // the CPU's memory can be taken: yield
    rig.opts.manual_step = 0;
    rig.opts.monitor_ms = 5;
    rig.opts.memory_limit_bytes = 512 * MIB;
    ck_assert_int_eq(plim_engine_create(&rig.opts, &engine, &rig.err), PLIM_OK);
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &m);
    const uint64_t blocks = m.blocks_total;
    for (int i = 0; i < 3; i++) {
        plim_request *request = submit_to(engine, 100, 300, (uint32_t)i, NULL);
        plim_event e = PLIM_INIT(plim_event);
        ck_assert_int_eq(plim_request_next(request, 60000, &e), PLIM_OK); // it has begun
        ck_assert_int_eq(pthread_create(&sleeper, NULL, sleep_long, engine), 0);
        memset(&a, 0, sizeof(a));
        while (!a.done) {
            while (plim_request_next(request, 60000, &e) == PLIM_OK && e.type != PLIM_EVENT_DONE)
                a.n += e.type == PLIM_EVENT_TOKEN;
            a.done = true;
        }
        ck_assert_uint_eq(a.n, 300); // sleep waited for it
        pthread_join(sleeper, &result);
        ck_assert_int_eq((int)(intptr_t)result, PLIM_OK);
        plim_engine_metrics(engine, &m);
        ck_assert(m.asleep);
        ck_assert_uint_eq(m.blocks_total, 0);
        ck_assert_int_eq(plim_engine_wake(engine, &rig.err), PLIM_OK);
        plim_request_free(request);
    }
    usleep(100000); // some readings of an idle engine on a busy machine
    plim_engine_metrics(engine, &m);
    ck_assert_uint_eq(m.blocks_total, blocks);
    ck_assert_int_gt(m.largest_free_bytes, 0);
    ck_assert_uint_gt(m.foreign_bytes, 0);
    plim_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("neighbours");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, hold_keeps_what_the_plan_holds);
    tcase_add_test(tc, steps_that_become_slow_are_pressure);
    tcase_add_test(tc, who_holds_says_so_and_keeps_its_cache);
    tcase_add_loop_test(tc, elsewhere_a_slow_step_is_only_slow, 0, 3);
    tcase_add_test(tc, yield_gives_what_the_margin_lacks_and_takes_it_back);
    tcase_add_test(tc, a_refused_slab_means_stay);
    tcase_add_loop_test(tc, lies_move_nothing_up, 0, 6);
    tcase_add_test(tc, a_squeezed_cache_does_not_show_in_the_text);
    tcase_add_loop_test(tc, fifty_nights_make_the_same_plan, 0, 2);
    tcase_add_test(tc, asleep_what_others_take_is_not_missed);
    tcase_add_test(tc, who_comes_to_a_sleeper_waits_or_is_told);
    tcase_add_test(tc, choices_in_the_queue_sleep_too);
    tcase_add_test(tc, a_wake_takes_what_there_is_or_sleeps_on);
    tcase_add_test(tc, what_the_ledger_does_not_know_fails_the_start);
    tcase_add_test(tc, what_it_does_not_know_later_is_counted);
    tcase_add_test(tc, a_sleep_that_waits_can_be_taken_back);
    tcase_add_test(tc, an_engine_of_its_own_thread_sleeps_and_wakes);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
