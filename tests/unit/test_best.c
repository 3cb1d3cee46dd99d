// SPDX-License-Identifier: Apache-2.0
// Greedy tokens that the device finds: the same as the sampler's, without a row being read; whoever
// needs the row gets it, and wrong numbers are seen without it. On a simulated device that computes
// and whose memory the host does not see.
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "tests/support/suite.h"

#define TOKENS 12u
#define POISON 77

static struct plm_backend counting;
static uint64_t row_bytes, rows_read; // copies of a row of logits or more

static int copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes)
{
    rows_read += row_bytes > 0 && bytes >= row_bytes;
    return plm_sim_backend.copy_out(dev, dst, src, bytes);
}

static struct plm_sim_opts script;
static struct plm_sim_world world;
static struct plm_sim_clock sim_clock;
static struct plm_clock clock_source;

static plim_engine *create(uint64_t prefers, enum plm_sim_poison poison)
{
    plim_engine_opts o, read;
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    memset(&world, 0, sizeof(world));
    plm_sim_clock_init(&sim_clock);
    clock_source = plm_sim_clock_source(&sim_clock);
    counting = plm_sim_backend;
    counting.copy_out = copy_out;
    script = (struct plm_sim_opts){.inner = &plm_cpu_backend,
                                   .world = &world,
                                   .capacity_bytes = UINT64_C(256) << 20,
                                   .hides_slabs = true,
                                   .prefers = prefers,
                                   .few_rows = PLM_VULKAN_FEW_ROWS,
                                   .poison = poison,
                                   .poison_token = POISON};
    plim_engine_opts_init(&o);
    o.model_path = TEST_MODELS "/llama-tied-q4_1.gguf";
    o.threads = 1;
    o.ctx_size = 128;
    o.batch_max_tokens = 32;
    o.max_sequences = 4;
    o.manual_step = 1;
    o.monitor_ms = 0;
    ck_assert_int_eq(plm_opts_read(&o, &read, NULL), PLIM_OK);
    const struct plm_engine_env env = {.host = plm_host_create(0),
                                       .clock = &clock_source,
                                       .backend = &counting,
                                       .backend_opts = &script,
                                       .seed = 1};
    row_bytes = 0;
    const int r = plm_engine_create_in(&env, &read, &engine, &err);
    ck_assert_msg(r == PLIM_OK, "create: %d %s", r, err.message);
    row_bytes = 4ull * plm_model_facts(engine->core->model)->n_vocab;
    rows_read = 0;
    return engine;
}

// What a request asks beyond the best token.
enum wish { NOTHING, LOGPROBS, PENALTY, BANS, WARMTH, WISHES };

// Returns the status that it ended with.
static int run(plim_engine *engine, enum wish wish, int32_t first, int32_t token[TOKENS])
{
    const int32_t prompt[] = {first, 9, 30, 2};
    plim_request_opts q;
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plim_event e = PLIM_INIT(plim_event);
    int status = 1;
    plim_request_opts_init(&q);
    q.tokens = prompt;
    q.n_tokens = 4;
    q.max_tokens = TOKENS;
    q.ignore_eos = 1;
    q.temperature = wish == WARMTH ? 0.8f : 0.0f;
    q.has_seed = 1;
    q.seed = 5;
    q.logprobs = wish == LOGPROBS;
    q.repeat_penalty = wish == PENALTY ? 1.3f : 1.0f;
    q.min_tokens = wish == BANS ? 3 : 0;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_OK);
    for (uint32_t n = 0, steps = 0; status == 1 && steps < 1000; steps++) {
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        while (plim_request_next(request, 0, &e) == PLIM_OK) {
            if (e.type == PLIM_EVENT_TOKEN && n < TOKENS)
                token[n++] = e.token;
            if (e.type == PLIM_EVENT_DONE)
                status = e.status;
        }
    }
    plim_request_free(request);
    return status;
}

START_TEST(tokens_are_the_samplers)
{
    int32_t want[WISHES][TOKENS], got[TOKENS];
    plim_engine *engine = create(0, PLM_SIM_POISON_NONE);
    for (int w = 0; w < WISHES; w++)
        ck_assert_int_eq(run(engine, (enum wish)w, 5, want[w]), PLIM_OK);
    ck_assert_uint_gt(rows_read, 0);
    plim_engine_free(engine);
    engine = create(PLM_GPU_PREFERS, PLM_SIM_POISON_NONE);
    for (int w = 0; w < WISHES; w++) {
        // Tokens that are banned for three steps need their rows; later ones do not.
        static const uint64_t rows[WISHES] = {
            [LOGPROBS] = TOKENS, [PENALTY] = TOKENS, [BANS] = 3, [WARMTH] = TOKENS};
        rows_read = 0;
        ck_assert_int_eq(run(engine, (enum wish)w, 5, got), PLIM_OK);
        ck_assert_mem_eq(got, want[w], sizeof(got));
        ck_assert_uint_eq(rows_read, rows[w]);
    }
    plim_engine_free(engine);
}
END_TEST

START_TEST(wrong_numbers_are_seen)
{
    int32_t token[TOKENS];
    plim_engine *engine = create(PLM_GPU_PREFERS, PLM_SIM_POISON_NAN);
    ck_assert_int_eq(run(engine, NOTHING, POISON, token), PLIM_ERR_NUMERIC);
    ck_assert_int_eq(run(engine, NOTHING, 5, token), PLIM_OK);
    plim_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("best");
    TCase *tcase = tcase_create("best");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, tokens_are_the_samplers);
    tcase_add_test(tcase, wrong_numbers_are_seen);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
