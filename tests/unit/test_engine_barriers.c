// SPDX-License-Identifier: Apache-2.0
// Barriers of all lists that an engine hands to a device, from its start to its end: what tunes,
// what fills and verifies the KV cache, forwards of one and of many sequences, and what finds
// tokens. Its device is the CPU with every optional op (tests/support/barriers.h).
#include <check.h>
#include <stdio.h>

#include "core/plimsoll.h"
#include "tests/support/barriers.h"
#include "tests/support/runner.h"
#include "tests/support/suite.h"

// In place of the library's list: the engine opens what is watched.
static struct plm_backend watched;
const struct plm_backend *const plm_backends[] = {&watched, NULL};

#define REQUESTS 5u
#define TOKENS   6u

static plim_request *submit(plim_engine *engine, uint32_t i)
{
    static int32_t prompt[64 + REQUESTS];
    plim_request_opts q;
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    for (int32_t k = 0; k < (int32_t)(sizeof(prompt) / sizeof(prompt[0])); k++)
        prompt[k] = k * 37 % 250;
    plim_request_opts_init(&q);
    q.tokens = prompt;
    q.n_tokens = 64 + i; // the same beginning: blocks are shared
    q.max_tokens = TOKENS;
    q.ignore_eos = 1;
    q.logprobs = i == 1;
    q.temperature = i < 3 ? 0.0f : 1.0f;
    q.n = i == 4 ? 2 : 1;
    ck_assert_msg(plim_request_submit(engine, &q, &request, &err) == PLIM_OK, "%s", err.message);
    return request;
}

// A whole life of an engine.
static struct barriers_seen live(uint64_t prefers, uint32_t drop)
{
    plim_engine_opts o;
    plim_engine *engine = NULL;
    plim_request *requests[REQUESTS];
    plim_error err = PLIM_INIT(plim_error);
    uint32_t tokens = 0;
    watched = *barriers_watch(runner_fused_cpu(prefers), drop);
    plim_engine_opts_init(&o);
    o.model_path = TEST_MODELS "/llama-tied-q4_0.gguf";
    o.device = "cpu";
    o.threads = 2;
    o.ctx_size = 128;
    o.batch_max_tokens = 64;
    o.max_sequences = 8;
    o.manual_step = 1;
    ck_assert_msg(plim_engine_create(&o, &engine, &err) == PLIM_OK, "%s", err.message);
    for (uint32_t i = 0; i < REQUESTS; i++)
        requests[i] = submit(engine, i);
    for (uint32_t steps = 0; steps < 200; steps++)
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        plim_event e = PLIM_INIT(plim_event);
        while (plim_request_next(requests[i], 0, &e) == PLIM_OK)
            tokens += e.type == PLIM_EVENT_TOKEN;
        plim_request_free(requests[i]);
    }
    plim_engine_free(engine);
    ck_assert_uint_eq(tokens, (REQUESTS + 1) * TOKENS);
    return barriers_seen();
}

static const enum plm_op own[] = {PLM_OP_FILL, PLM_OP_VERIFY, PLM_OP_QKV, PLM_OP_ATTENTION_MERGE};
// What devices prefer, and how they find tokens then.
static const struct {
    uint64_t prefers;
    enum plm_op finds;
} kinds[] = {{PLM_GPU_PREFERS, PLM_OP_ARGMAX}, {PLM_CUDA_PREFERS, PLM_OP_SAMPLE}};

START_TEST(no_list_of_an_engine_lacks_a_barrier)
{
    const struct barriers_seen seen = live(kinds[_i].prefers, BARRIERS_NONE);
    ck_assert_msg(seen.missing == 0, "%s", seen.first);
    ck_assert_uint_gt(seen.launched[kinds[_i].finds], 0);
    for (uint32_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        ck_assert_msg(seen.launched[own[i]] > 0, "op %d was not launched", (int)own[i]);
    printf("%d lists, %d dispatches, %d barriers\n", (int)seen.lists, (int)seen.launches,
           (int)seen.barriers);
}
END_TEST

// The one between filling a slab and verifying it is the first of its list.
START_TEST(the_check_of_a_slab_needs_its_barrier)
{
    ck_assert_uint_gt(live(PLM_GPU_PREFERS, 0).missed[PLM_OP_VERIFY], 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_barriers");
    TCase *tcase = tcase_create("engine_barriers");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, no_list_of_an_engine_lacks_a_barrier, 0,
                        sizeof(kinds) / sizeof(kinds[0]));
    tcase_add_test(tcase, the_check_of_a_slab_needs_its_barrier);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
