// SPDX-License-Identifier: Apache-2.0
// The engine on a GPU, of the backend that DEVICE names: a request's tokens and log-probabilities
// are the same bit for bit alone and among others, in chunks of 32 and of 512, and whether its
// tokens were found by the device or by the sampler.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plimsoll.h"

#define PROMPT 270u // more than one split of attention
#define OTHERS 15u
#define TOKENS 12u

struct answer {
    uint32_t n;
    int32_t token[TOKENS];
    float logprob[TOKENS];
    bool done;
};

// 77: there is no driver, which is not this test's matter.
static plim_engine *create(uint32_t chunk)
{
    plim_engine_opts o;
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plim_engine_opts_init(&o);
    o.model_path = TEST_MODELS "/llama-k256-q4_k_m.gguf";
    o.device = DEVICE;
    o.ctx_size = 320;
    o.batch_max_tokens = chunk;
    o.prefill_chunk = chunk;
    o.max_sequences = OTHERS + 1;
    o.prefix_cache = 0;
    o.manual_step = 1;
    o.memory_limit_bytes = (uint64_t)LIMIT_MIB << 20;
    const int r = plim_engine_create(&o, &engine, &err);
    if (r == PLIM_ERR_NOT_FOUND || r == PLIM_ERR_UNSUPPORTED) {
        printf("no device: %s\n", err.message);
        exit(77);
    }
    ck_assert_msg(r == PLIM_OK, "create: %d %s", r, err.message);
    return engine;
}

// Request i: its own prompt and length; logprobs need the row, greedy ones without do not.
static plim_request *submit(plim_engine *engine, uint32_t i, bool logprobs)
{
    static int32_t prompt[PROMPT + OTHERS];
    plim_request_opts q;
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    for (uint32_t k = 0; k < PROMPT + OTHERS; k++)
        prompt[k] = (int32_t)((k * 37 + k * k % 11) % 250);
    plim_request_opts_init(&q);
    q.tokens = prompt + i;
    q.n_tokens = i == 0 ? PROMPT : 3 + 2 * i;
    q.max_tokens = TOKENS;
    q.ignore_eos = 1;
    q.logprobs = logprobs;
    q.temperature = 0.0f;
    const int r = plim_request_submit(engine, &q, &request, &err);
    ck_assert_msg(r == PLIM_OK, "submit: %d %s", r, err.message);
    return request;
}

static void collect(plim_request *request, struct answer *a)
{
    plim_event e = PLIM_INIT(plim_event);
    while (plim_request_next(request, 0, &e) == PLIM_OK) {
        if (e.type == PLIM_EVENT_TOKEN) {
            ck_assert_uint_lt(a->n, TOKENS);
            a->token[a->n] = e.token;
            a->logprob[a->n++] = e.logprob;
        }
        if (e.type == PLIM_EVENT_DONE) {
            ck_assert_int_eq(e.status, PLIM_OK);
            a->done = true;
        }
    }
}

// Request 0, beside `others` more that come first.
static void run(plim_engine *engine, uint32_t others, bool logprobs, struct answer *ret)
{
    plim_request *all[OTHERS + 1];
    struct answer rest[OTHERS + 1] = {0};
    for (uint32_t i = others + 1; i-- > 0;)
        all[i] = submit(engine, i, logprobs);
    for (uint32_t left = others + 1, steps = 0; left > 0 && steps < 10000; steps++) {
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        left = 0;
        for (uint32_t i = 0; i <= others; i++) {
            collect(all[i], &rest[i]);
            left += !rest[i].done;
        }
    }
    for (uint32_t i = 0; i <= others; i++)
        plim_request_free(all[i]);
    *ret = rest[0];
    ck_assert(ret->done);
    ck_assert_uint_eq(ret->n, TOKENS);
}

static void same(const struct answer *a, const struct answer *b, bool logprobs, const char *what)
{
    ck_assert_msg(memcmp(a->token, b->token, sizeof(a->token)) == 0, "%s: another text", what);
    ck_assert_msg(!logprobs || memcmp(a->logprob, b->logprob, sizeof(a->logprob)) == 0,
                  "%s: other log-probabilities", what);
}

START_TEST(neither_batch_nor_chunks_show)
{
    struct answer want, found, got;
    plim_engine *engine = create(512);
    run(engine, 0, true, &want);
    run(engine, 0, false, &found);
    same(&want, &found, false, "found by the device");
    run(engine, OTHERS, true, &got);
    same(&want, &got, true, "among 15 others");
    run(engine, OTHERS, false, &got);
    same(&found, &got, false, "among 15 others, found by the device");
    plim_engine_free(engine);
    engine = create(32);
    run(engine, 0, true, &got);
    same(&want, &got, true, "in chunks of 32");
    run(engine, OTHERS, true, &got);
    same(&want, &got, true, "in chunks of 32, among 15 others");
    plim_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create(DEVICE "_engine");
    TCase *tcase = tcase_create("engine");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, neither_batch_nor_chunks_show);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); // 77 is this program's own
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
