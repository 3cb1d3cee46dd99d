// SPDX-License-Identifier: Apache-2.0
// Graphs of decodes, on a simulated device that takes memory for each: all are made before the
// seal, every decode that serving asks for is a replay, the plan holds what they take, and a device
// that is opened anew has them again.
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/sim/sim.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "core/engine/request.h"
#include "core/model/arch.h"
#include "tests/support/gguf_shapes.h"
#include "tests/support/suite.h"

#define MIB     (UINT64_C(1) << 20)
#define CONTEXT (20 * MIB)
#define GRAPH   (3 * MIB)
#define SEQS    20u

// Longer than so many rows may be split: both kinds of attention decode.
static const struct gguf_shape shape = {.name = "graphs",
                                        .arch = "llama",
                                        .pre = "llama-bpe",
                                        .n_layer = 2,
                                        .n_embd = 256,
                                        .n_head = 4,
                                        .n_head_kv = 2,
                                        .n_ff = 512,
                                        .n_vocab = 2048,
                                        .n_ctx = 32768,
                                        .rope_base = 10000.0f};
static char path[] = "/tmp/graphs.XXXXXX", windows_path[] = "/tmp/graphs.XXXXXX";

static struct plm_sim_clock sim_clock;
static struct plm_clock clock_source;
static struct plm_sim_world world;
static struct plm_sim_opts script;
static plim_engine_opts opts;
static plim_error err = PLIM_INIT(plim_error);

static void write_one(const struct gguf_shape *s, char *ret)
{
    const int fd = mkstemp(ret);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert(gguf_shape_save(s, GGUF_MIX_F16, ret));
}

// The other one has windows alone: no row sees more than five splits.
static void write_models(void)
{
    struct gguf_shape windows = shape;
    windows.window = 1000;
    write_one(&shape, path);
    write_one(&windows, windows_path);
}

static void remove_models(void)
{
    unlink(path);
    unlink(windows_path);
}

static void init(void)
{
    memset(&world, 0, sizeof(world));
    plm_sim_clock_init(&sim_clock);
    clock_source = plm_sim_clock_source(&sim_clock);
    script = (struct plm_sim_opts){.world = &world,
                                   .capacity_bytes = 448 * MIB,
                                   .granularity_bytes = 64 << 10,
                                   .context_bytes = CONTEXT,
                                   .graph_bytes = GRAPH,
                                   .prefers = PLM_GPU_PREFERS,
                                   .few_rows = 16};
    plim_engine_opts_init(&opts);
    opts.model_path = path;
    opts.batch_max_tokens = 64;
    opts.max_sequences = SEQS;
    opts.ctx_size = 20480;
    opts.manual_step = 1;
    opts.monitor_ms = 0;
    opts.queue_timeout_ms = 0;
}

static plim_engine *start(void)
{
    plim_engine_opts read;
    plim_engine *engine = NULL;
    struct plm_host *host = plm_host_create(0);
    const struct plm_engine_env env = {.host = host,
                                       .clock = &clock_source,
                                       .backend = &plm_sim_backend,
                                       .backend_opts = &script,
                                       .seed = 1};
    ck_assert_int_eq(plm_opts_read(&opts, &read, NULL), PLIM_OK);
    if (plm_engine_create_in(&env, &read, &engine, &err) != PLIM_OK)
        plm_host_destroy(host);
    return engine;
}

static plim_engine *start_well(void)
{
    plim_engine *engine = start();
    ck_assert_msg(engine != NULL, "%s", err.message);
    return engine;
}

static plim_request *ask(plim_engine *engine, uint32_t n_prompt, uint32_t max_tokens)
{
    static int32_t prompt[20480];
    plim_request_opts q;
    plim_request *request = NULL;
    plim_request_opts_init(&q);
    q.tokens = prompt;
    q.n_tokens = n_prompt;
    q.max_tokens = max_tokens;
    q.ignore_eos = 1;
    q.temperature = 0;
    q.cache_prompt = 0;
    ck_assert_msg(plim_request_submit(engine, &q, &request, &err) == PLIM_OK, "%s", err.message);
    return request;
}

// Steps until every sequence ended; returns the decodes that were no replay of a graph.
static uint64_t serve(plim_engine *engine, plim_request **requests, uint32_t n)
{
    uint64_t others = 0;
    for (uint32_t steps = 0; engine->requests != NULL || steps < 2; steps++) {
        bool decodes = engine->requests != NULL && world.lose == 0 && !engine->recover.down;
        struct plm_seq *seq;
        for (uint32_t i = 0; (seq = plm_sched_running_at(engine->sched, i)) != NULL; i++)
            decodes &= seq->n_tokens - seq->n_computed == 1;
        decodes &= plm_sched_queue_head(engine->sched) == NULL;
        const uint64_t submits = world.submits, replays = world.replays;
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        if (decodes)
            others += (world.submits - submits) - (world.replays - replays);
        ck_assert_uint_lt(steps, 10000);
    }
    for (uint32_t i = 0; i < n; i++)
        plim_request_free(requests[i]);
    return others;
}

START_TEST(every_decode_is_a_replay)
{
    init();
    plim_engine *engine = start_well();
    const uint64_t made = world.graphs;
    // Split, whole at a long context, and more rows than are few.
    ck_assert_uint_eq(made, 3);
    for (uint32_t n = 1; n <= SEQS; n++) {
        plim_request *requests[SEQS];
        const uint64_t replays = world.replays;
        for (uint32_t i = 0; i < n; i++)
            requests[i] = ask(engine, 3, 4);
        ck_assert_uint_eq(serve(engine, requests, n), 0);
        ck_assert_uint_gt(world.replays, replays);
    }
    // Sixteen rows over more than sixty-four splits.
    plim_request *requests[16] = {ask(engine, 16380, 20)};
    for (uint32_t i = 1; i < 16; i++)
        requests[i] = ask(engine, 3, 300);
    ck_assert_uint_eq(serve(engine, requests, 16), 0);
    ck_assert_uint_eq(world.graphs, made);
    plim_engine_free(engine);
}
END_TEST

// However long the context is: there is no graph for it, and less memory for what is attended in
// pieces.
START_TEST(windows_are_always_split)
{
    init();
    plim_engine *engine = start_well();
    const struct plm_cost_table *table = plm_model_cost_table(engine->core->model);
    const uint64_t full = table->buffers[PLM_BUF_PARTIAL].fixed;
    ck_assert_uint_eq(plm_model_unsplit_context(engine->core->model, 16), 64 * 256 + 1);
    ck_assert_uint_eq(plm_model_unsplit_context(engine->core->model, 8), UINT64_MAX);
    plim_engine_free(engine);
    init();
    opts.model_path = windows_path;
    engine = start_well();
    table = plm_model_cost_table(engine->core->model);
    ck_assert_uint_eq(plm_model_unsplit_context(engine->core->model, 16), UINT64_MAX);
    ck_assert_uint_eq(plm_model_unsplit_context(engine->core->model, 17), 0);
    // 16 rows of 5 splits in place of the 1,024 that are kept at most.
    ck_assert_uint_eq(table->buffers[PLM_BUF_PARTIAL].fixed * 1024, full * 16 * 5);
    ck_assert_uint_eq(world.graphs, 2);
    plim_request *requests[16] = {ask(engine, 16380, 20)};
    for (uint32_t i = 1; i < 16; i++)
        requests[i] = ask(engine, 3, 300);
    ck_assert_uint_eq(serve(engine, requests, 16), 0);
    ck_assert_uint_eq(world.graphs, 2);
    plim_engine_free(engine);
}
END_TEST

// What is measured, whatever a reading says of the process.
START_TEST(the_plan_holds_what_graphs_take)
{
    init();
    plim_engine *engine = start_well();
    const struct plm_profile *p = &engine->core->profile;
    ck_assert_int_eq(p->graph_bytes, (int64_t)(3 * GRAPH));
    ck_assert_int_eq(p->plan.own_drv, (int64_t)(CONTEXT + 3 * GRAPH));
    const int64_t line = p->plan.line, blocks = p->plan.blocks;
    plim_engine_free(engine);
    init();
    script.graph_bytes = 0;
    engine = start_well();
    p = &engine->core->profile;
    ck_assert_uint_eq(world.graphs, 0);
    ck_assert_int_eq(p->graph_bytes, 0);
    ck_assert_int_eq(p->plan.own_drv, (int64_t)CONTEXT);
    ck_assert_int_gt(p->plan.line, line);
    ck_assert_int_gt(p->plan.blocks, blocks);
    plim_engine_free(engine);
}
END_TEST

static char *certificate_of(const plim_engine *engine)
{
    size_t need = 0;
    plim_engine_certificate(engine, NULL, 0, &need);
    char *text = malloc(need + 1);
    ck_assert_int_eq(plim_engine_certificate(engine, text, need + 1, &need), PLIM_OK);
    return text;
}

// A start that measures nothing has its graphs all the same, and so has one of a pinned size.
START_TEST(starts_without_stress_capture)
{
    init();
    plim_engine *engine = start_well();
    char *certificate = certificate_of(engine);
    const struct plm_plan plan = engine->core->profile.plan;
    plim_engine_free(engine);
    init();
    opts.certificate = certificate;
    opts.certificate_len = strlen(certificate);
    engine = start_well();
    ck_assert(engine->core->profile.certified);
    ck_assert_uint_eq(world.graphs, 3);
    ck_assert_int_eq(engine->core->profile.plan.blocks, plan.blocks);
    ck_assert_int_eq(engine->core->profile.plan.line, plan.line);
    plim_engine_free(engine);
    free(certificate);
    init();
    opts.max_total_tokens = 32768;
    engine = start_well();
    ck_assert_uint_eq(world.graphs, 3);
    plim_engine_free(engine);
}
END_TEST

START_TEST(a_reopened_device_has_its_graphs_again)
{
    init();
    plim_engine *engine = start_well();
    plim_request *request = ask(engine, 3, 40);
    for (int i = 0; i < 10; i++)
        plim_engine_step(engine, NULL);
    world.lose = 1;
    ck_assert_uint_eq(serve(engine, NULL, 0), 0);
    plim_request_free(request);
    ck_assert_uint_eq(engine->counts.reopened, 1);
    ck_assert_uint_eq(world.graphs, 6);
    request = ask(engine, 3, 10);
    ck_assert_uint_eq(serve(engine, &request, 1), 0);
    ck_assert_uint_eq(world.graphs, 6);
    plim_engine_free(engine);
}
END_TEST

START_TEST(a_loss_while_the_size_is_proved_is_survived)
{
    init();
    plim_engine *engine = start_well();
    const uint64_t submits = world.submits;
    plim_engine_free(engine);
    // Each submit of the start in turn; the last ones are the validation's.
    for (uint64_t at = 1; at <= submits; at++) {
        const struct plm_sim_event lost = {
            .when = PLM_SIM_AT_SUBMIT, .at = at, .what = PLM_SIM_LOST};
        init();
        script.events = &lost;
        script.n_events = 1;
        engine = start();
        if (engine == NULL) // in the tuning, before the loop
            continue;
        plim_request *request = ask(engine, 3, 5);
        ck_assert_uint_eq(serve(engine, &request, 1), 0);
        ck_assert_int_eq(engine->core->profile.graph_bytes, (int64_t)(3 * GRAPH));
        plim_engine_free(engine);
    }
}
END_TEST

START_TEST(graphs_that_never_fit_end_the_start)
{
    init();
    script.graph_bytes = 4096 * MIB;
    ck_assert_ptr_null(start());
    ck_assert_int_eq(err.status, PLIM_ERR_OUT_OF_DEVICE);
    ck_assert_uint_eq(world.graphs, 0);
}
END_TEST

START_TEST(nothing_is_captured_after_the_seal)
{
    init();
    plim_engine *engine = start_well();
    struct plm_device *device = engine->core->rank.device;
    const struct plm_fill_args fill = {.dst = engine->core->rank.workspace_addr, .n_words = 1};
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_OK);
    ck_assert_int_eq(plm_device_capture(device), PLM_ERR_SEALED);
    plm_device_seal(device, false);
    ck_assert_int_eq(plm_device_capture(device), PLM_OK);
    ck_assert_int_eq(plm_device_run(device, PLM_OK), PLM_OK); // the list was left open
    ck_assert_uint_eq(world.graphs, 4);
    plm_device_seal(device, true);
    plim_engine_free(engine);
    init();
    script.graph_bytes = 0;
    engine = start_well();
    plm_device_seal(engine->core->rank.device, false);
    ck_assert_int_eq(plm_device_capture(engine->core->rank.device), PLM_ERR_UNSUPPORTED);
    plim_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graphs");
    TCase *tcase = tcase_create("graphs");
    tcase_set_timeout(tcase, 120);
    tcase_add_unchecked_fixture(tcase, write_models, remove_models);
    tcase_add_test(tcase, every_decode_is_a_replay);
    tcase_add_test(tcase, windows_are_always_split);
    tcase_add_test(tcase, the_plan_holds_what_graphs_take);
    tcase_add_test(tcase, starts_without_stress_capture);
    tcase_add_test(tcase, a_reopened_device_has_its_graphs_again);
    tcase_add_test(tcase, a_loss_while_the_size_is_proved_is_survived);
    tcase_add_test(tcase, graphs_that_never_fit_end_the_start);
    tcase_add_test(tcase, nothing_is_captured_after_the_seal);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
