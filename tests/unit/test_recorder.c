// SPDX-License-Identifier: Apache-2.0
// What the engine remembers is a world that can be read: sizes, ends, faults, and, where the
// recorder has forgotten its beginning, what still runs.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/sim/world.h"
#include "core/engine/engine.h"
#include "core/engine/recorder.h"
#include "core/engine/request.h"
#include "tests/support/suite.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

struct scene {
    struct plm_sim_clock virtual_clock;
    struct plm_clock clock;
    struct plm_sim_opts device;
    plim_engine *engine;
    uint32_t incidents;
    char reason[32];
    struct plm_host *host;
    struct plm_world *world; // of the last incident
};

static void on_incident(void *ctx, const char *reason, const char *text, size_t len)
{
    struct scene *s = ctx;
    struct plm_error err = {0};
    s->incidents++;
    snprintf(s->reason, sizeof(s->reason), "%s", reason);
    plm_world_free(s->world);
    if (plm_world_parse(s->host, text, len, &s->world, &err) != PLM_OK)
        ck_abort_msg("%s\n%.*s", err.msg, (int)len, text);
}

static void begin(struct scene *s)
{
    *s = (struct scene){.device = {.capacity_bytes = UINT64_C(512) << 20}};
    plim_engine_opts o;
    plim_error err = PLIM_INIT(plim_error);
    plm_sim_clock_init(&s->virtual_clock);
    s->clock = plm_sim_clock_source(&s->virtual_clock);
    s->host = plm_host_create(0);
    plim_engine_opts_init(&o);
    o.model_path = TEST_MODELS "/llama-tied-q4_1.gguf";
    o.ctx_size = 128;
    o.batch_max_tokens = 64;
    o.max_sequences = 4;
    o.prefill_chunk = 64;
    o.manual_step = 1;
    o.incident = on_incident;
    o.incident_ctx = s;
    const struct plm_engine_env env = {.host = plm_host_create(0),
                                       .clock = &s->clock,
                                       .backend = &plm_sim_backend,
                                       .backend_opts = &s->device,
                                       .seed = 1};
    if (plm_engine_create_in(&env, &o, &s->engine, &err) != PLIM_OK)
        ck_abort_msg("%s", err.message);
}

static void end(struct scene *s)
{
    ck_assert_int_eq(plm_engine_destroy(s->engine), 0);
    plm_world_free(s->world);
    ck_assert_int_eq(plm_host_destroy(s->host), 0);
}

static plim_request *submit(struct scene *s, uint32_t n_prompt, uint32_t max, uint64_t seed)
{
    static const int32_t tokens[64];
    plim_request_opts q;
    plim_request *request;
    plim_request_opts_init(&q);
    q.tokens = tokens;
    q.n_tokens = n_prompt;
    q.max_tokens = max;
    q.ignore_eos = 1;
    q.has_seed = 1;
    q.seed = seed;
    ck_assert_int_eq(plim_request_submit(s->engine, &q, &request, NULL), PLIM_OK);
    return request;
}

static void step(struct scene *s, int n)
{
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(plim_engine_step(s->engine, NULL), PLIM_OK);
}

START_TEST(a_world_holds_what_happened)
{
    struct scene s;
    begin(&s);
    plim_request *stays = submit(&s, 20, 30, 7), *leaves = submit(&s, 9, 30, 8);
    step(&s, 3);
    plim_request_free(leaves);
    step(&s, 2);
    plm_incident(s.engine, "a test");
    plm_incident(s.engine, "another one"); // of one step: the first counts
    step(&s, 1);
    ck_assert_uint_eq(s.incidents, 1);
    ck_assert_str_eq(s.reason, "a test");
    const struct plm_world *w = s.world;
    ck_assert_uint_eq(w->device.capacity_bytes, UINT64_C(512) << 20);
    ck_assert_uint_eq(w->n_requests, 2);
    ck_assert_uint_eq(w->requests[0].prompt, 20);
    ck_assert_uint_eq(w->requests[0].max, 30);
    ck_assert_uint_eq(w->requests[0].seed, 7);
    ck_assert_uint_eq(w->requests[0].at_step, 0);
    ck_assert_uint_eq(w->requests[0].leave_step, 0);
    ck_assert_uint_eq(w->requests[1].prompt, 9);
    ck_assert_uint_eq(w->requests[1].leave_step, 4);
    plim_request_free(stays);
    end(&s);
}
END_TEST

START_TEST(what_still_runs_outlives_its_record)
{
    struct scene s;
    begin(&s);
    plim_request *old = submit(&s, 30, 90, 1);
    // Each leaves two records or three, and the recorder has room for 1,024.
    for (uint32_t i = 0; i < 700; i++) {
        plim_request *request = submit(&s, 2, 1, 100 + i);
        if (i % 16 == 0)
            step(&s, 1);
        else
            plim_request_cancel(request);
        plim_request_free(request);
    }
    step(&s, 1);
    plm_incident(s.engine, "late");
    step(&s, 1);
    const struct plm_world *w = s.world;
    ck_assert_uint_gt(w->n_requests, 300);
    ck_assert_uint_lt(w->n_requests, 700);
    ck_assert_uint_eq(w->requests[0].seed, 1);
    ck_assert_uint_eq(w->requests[0].prompt, 30);
    ck_assert_uint_eq(w->requests[0].at_step, 0);
    plim_request_free(old);
    end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recorder");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, a_world_holds_what_happened);
    tcase_add_test(all, what_still_runs_outlives_its_record);
    suite_add_tcase(suite, all);
    return suite_run(suite);
}
