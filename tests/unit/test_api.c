// SPDX-License-Identifier: Apache-2.0
// What the public API promises of sizes, of a start that is stopped and of an engine that is freed.
#include <check.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plimsoll.h"
#include "tests/support/suite.h"

static void base_opts(plim_engine_opts *o)
{
    plim_engine_opts_init(o);
    o->model_path = TEST_MODELS "/llama-tied-q4_0.gguf";
    o->threads = 1;
    o->ctx_size = 128;
    o->batch_max_tokens = 16;
    o->max_sequences = 2;
    o->manual_step = 1;
}

static plim_engine *create(const plim_engine_opts *o)
{
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    const int r = plim_engine_create(o, &engine, &err);
    ck_assert_msg(r == PLIM_OK, "create: %d %s", r, err.message);
    return engine;
}

static plim_request *ask(plim_engine *engine)
{
    plim_request_opts o;
    plim_request *request = NULL;
    plim_request_opts_init(&o);
    o.prompt = "hello";
    o.prompt_len = 5;
    o.max_tokens = 4;
    o.ignore_eos = 1;
    ck_assert_int_eq(plim_request_submit(engine, &o, &request, NULL), PLIM_OK);
    return request;
}

static void step(plim_engine *engine, int n)
{
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
}

// ---- sizes ----

START_TEST(version_is_a_number_too)
{
    int major = 0, minor = 0, patch = 0;
    ck_assert_int_eq(sscanf(plim_version(), "%d.%d.%d", &major, &minor, &patch), 3);
    ck_assert_uint_eq(plim_version_number(), (unsigned)(major * 1000000 + minor * 1000 + patch));
    ck_assert_uint_eq(plim_version_number(), PLIM_VERSION_NUMBER);
}
END_TEST

START_TEST(an_event_without_size_takes_none)
{
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    plim_request *request = ask(engine);
    step(engine, 8);
    static const uint32_t sizes[] = {0, 1, 7, PLIM_STRUCT_MAX + 1};
    int types[16], n = 0;
    for (;;) {
        plim_event e = PLIM_INIT(plim_event);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            plim_event bad = {.struct_size = sizes[i], .type = 77};
            ck_assert_int_eq(plim_request_next(request, 0, &bad), PLIM_ERR_INVALID);
            ck_assert_int_eq(bad.type, 77);
        }
        ck_assert_int_eq(plim_request_next(request, 0, &e), PLIM_OK);
        types[n++] = e.type;
        if (e.type == PLIM_EVENT_DONE)
            break;
    }
    ck_assert_int_eq(n, 7); // none was lost
    ck_assert_int_eq(types[0], PLIM_EVENT_ADMITTED);
    for (int i = 1; i <= 4; i++)
        ck_assert_int_eq(types[i], PLIM_EVENT_TOKEN);
    ck_assert_int_eq(types[5], PLIM_EVENT_FINISH);
    plim_request_free(request);
    ck_assert_int_eq(plim_engine_free(engine), PLIM_OK);
}
END_TEST

START_TEST(facts_and_metrics_without_size_are_not_written)
{
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    plim_metrics m = {.running = 77};
    plim_model_info info = {.n_vocab = 77};
    ck_assert_int_eq(plim_engine_metrics(engine, &m), PLIM_ERR_INVALID);
    ck_assert_int_eq(plim_engine_model(engine, &info), PLIM_ERR_INVALID);
    ck_assert_uint_eq(m.running, 77);
    ck_assert_uint_eq(info.n_vocab, 77);
    ck_assert_int_eq(plim_engine_free(engine), PLIM_OK);
}
END_TEST

// What the library may write of an error whose size is said to be so.
static void check_error(uint32_t size, size_t written)
{
    union {
        plim_error error;
        unsigned char bytes[sizeof(plim_error)];
    } u;
    plim_engine *engine;
    plim_engine_opts o;
    base_opts(&o);
    o.model_path = NULL;
    memset(u.bytes, 0xA5, sizeof(u.bytes));
    u.error.struct_size = size;
    ck_assert_int_eq(plim_engine_create(&o, &engine, &u.error), PLIM_ERR_INVALID);
    for (size_t i = written; i < sizeof(u.bytes); i++)
        ck_assert_msg(i < sizeof(u.error.struct_size) || u.bytes[i] == 0xA5, "size %u: byte %zu",
                      size, i);
    ck_assert_uint_eq(u.error.struct_size, size);
    if (written >= offsetof(plim_error, retry_after_s)) {
        ck_assert_int_eq(u.error.status, PLIM_ERR_INVALID);
        ck_assert_str_eq(u.error.param, "model_path");
        ck_assert_ptr_nonnull(strstr(u.error.message, "model"));
    }
}

START_TEST(errors_keep_to_their_size)
{
    check_error(0, offsetof(plim_error, retry_after_s));
    check_error(1, 0);
    check_error(7, 0);
    check_error(40, 40);
    check_error(offsetof(plim_error, n_ctx), offsetof(plim_error, n_ctx));
    check_error(sizeof(plim_error), sizeof(plim_error));
    check_error(sizeof(plim_error) + 100, sizeof(plim_error));
    check_error(UINT32_MAX, 0); // whatever that is, it is no size
}
END_TEST

START_TEST(newer_options_are_taken_where_nobody_sets_them)
{
    struct {
        plim_engine_opts opts;
        uint64_t newer[2];
    } later;
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    memset(&later, 0xA5, sizeof(later));
    plim_engine_opts_init_sized(&later.opts, sizeof(later));
    ck_assert_uint_eq(later.opts.struct_size, sizeof(later));
    ck_assert_uint_eq(later.newer[0] | later.newer[1], 0);
    base_opts(&later.opts);
    later.opts.struct_size = sizeof(later);
    later.newer[1] = 1;
    ck_assert_int_eq(plim_engine_create(&later.opts, &engine, &err), PLIM_ERR_UNSUPPORTED);
    ck_assert_ptr_null(engine);
    ck_assert_ptr_nonnull(strstr(err.message, "newer than this library"));
    later.newer[1] = 0;
    ck_assert_int_eq(plim_engine_create(&later.opts, &engine, &err), PLIM_OK);
    ck_assert_int_eq(plim_engine_free(engine), PLIM_OK);
}
END_TEST

// ---- metrics by name ----

static const char *const metric_names[] = {
#include "metrics.inc"
};

#define N_METRICS (sizeof(metric_names) / sizeof(metric_names[0]))

static double value_of(const plim_metric *list, const char *name)
{
    for (size_t i = 0; i < N_METRICS; i++) {
        if (strcmp(list[i].name, name) == 0)
            return list[i].value;
    }
    ck_abort_msg("no %s", name);
}

START_TEST(every_field_of_the_metrics_has_its_name)
{
    plim_engine_opts o;
    plim_metric list[N_METRICS];
    plim_metrics m = PLIM_INIT(plim_metrics);
    size_t n = 0;
    base_opts(&o);
    plim_engine *engine = create(&o);
    plim_request *request = ask(engine);
    step(engine, 8);
    plim_request_free(request);
    ck_assert_int_eq(plim_engine_metric_list(engine, NULL, 0, &n), PLIM_ERR_LIMIT);
    ck_assert_uint_eq(n, N_METRICS);
    ck_assert_int_eq(plim_engine_metric_list(engine, list, N_METRICS, &n), PLIM_OK);
    ck_assert_int_eq(plim_engine_metrics(engine, &m), PLIM_OK);
    for (size_t i = 0; i < N_METRICS; i++)
        ck_assert_str_eq(list[i].name, metric_names[i]);
    ck_assert_uint_eq(m.finished_length, 1);
    ck_assert_double_eq(value_of(list, "finished_length"), 1.0);
    ck_assert_double_eq(value_of(list, "generated_tokens"), 4.0);
    ck_assert_double_eq(value_of(list, "e2e_count"), 1.0);
    ck_assert_double_eq(value_of(list, "e2e_sum_s"), m.e2e.sum_s);
    ck_assert_double_eq(value_of(list, "kv_bytes"), (double)m.kv_bytes);
    ck_assert_double_eq(value_of(list, "ready"), 1.0);
    ck_assert_double_eq(value_of(list, "kv_usage"), m.kv_usage);
    ck_assert_double_gt(value_of(list, "weights_bytes"), 0.0);
    ck_assert_int_eq(plim_engine_free(engine), PLIM_OK);
}
END_TEST

// ---- a start that is stopped ----

struct stopper {
    unsigned calls, stop_at;
    char stage[32]; // of the call that stopped
};

static bool stop(void *ctx, const plim_progress *p)
{
    struct stopper *s = ctx;
    snprintf(s->stage, sizeof(s->stage), "%s", p->stage);
    return s->calls++ != s->stop_at;
}

// Stops at each call of progress in turn until none is left; which stages that were.
static unsigned stop_everywhere(plim_engine_opts *o, bool plan, char *stages, size_t cap)
{
    struct stopper s;
    o->progress = stop;
    o->progress_ctx = &s;
    stages[0] = '\0';
    for (unsigned at = 0;; at++) {
        plim_engine *engine = (void *)o;
        plim_plan *made = (void *)o;
        plim_error err = PLIM_INIT(plim_error);
        s = (struct stopper){.stop_at = at};
        const int r =
            plan ? plim_plan_create(o, &made, &err) : plim_engine_create(o, &engine, &err);
        if (r == PLIM_OK) {
            ck_assert_uint_le(s.calls, at);
            plim_plan_free(plan ? made : NULL);
            plim_engine_free(plan ? NULL : engine);
            return at;
        }
        ck_assert_msg(r == PLIM_ERR_CANCELLED, "%s: %d %s", s.stage, r, err.message);
        ck_assert_int_eq(err.status, PLIM_ERR_CANCELLED);
        ck_assert_ptr_nonnull(strstr(err.message, "stopped"));
        ck_assert_ptr_null(plan ? (void *)made : (void *)engine);
        ck_assert_uint_eq(s.calls, at + 1); // and nothing more is told
        if (strstr(stages, s.stage) == NULL && strlen(stages) + strlen(s.stage) + 2 < cap) {
            strcat(stages, s.stage);
            strcat(stages, " ");
        }
    }
}

START_TEST(progress_stops_a_start_at_every_stage)
{
    static const char *const devices[] = {"cpu", "sim:" TEST_WORLD};
    static const char *const all[] = {"load",   "kernels",  "probe", "stress",
                                      "resize", "validate", "ready"};
    char stages[256];
    for (int plan = 0; plan < 2; plan++) {
        plim_engine_opts o;
        base_opts(&o);
        o.device = devices[_i];
        const unsigned n = stop_everywhere(&o, plan == 1, stages, sizeof(stages));
        ck_assert_uint_ge(n, 7);
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
            ck_assert_msg(strstr(stages, all[i]) != NULL, "never stopped at %s: %s", all[i],
                          stages);
        printf("%s: stopped at %u calls of progress: %s\n", devices[_i], n, stages);
    }
}
END_TEST

// ---- errors of a start ----

// Sets one thing wrong; the field that the error must be about, and the status.
struct wrong {
    const char *param;
    int status;
    void (*set)(plim_engine_opts *o);
};

static void no_file(plim_engine_opts *o)
{
    o->model_path = "/nonexistent.gguf";
}

static void no_model(plim_engine_opts *o)
{
    o->model_path = TEST_WORLD; // a file, but none of a model
}

static void no_device(plim_engine_opts *o)
{
    o->device = "abacus:0";
}

static void bad_template(plim_engine_opts *o)
{
    o->chat_template = "{% if %}";
}

static void long_context(plim_engine_opts *o)
{
    o->ctx_size = 1 << 30;
}

static void little_memory(plim_engine_opts *o)
{
    o->memory_limit_bytes = 1 << 20;
}

static void little_host(plim_engine_opts *o)
{
    o->host_limit_bytes = 1 << 20;
}

static void small_pin(plim_engine_opts *o)
{
    o->ctx_size = 0;
    o->max_total_tokens = 1;
}

static void half_fraction(plim_engine_opts *o)
{
    o->memory_fraction = -1;
}

static const struct wrong wrongs[] = {
    {"model_path", PLIM_ERR_NOT_FOUND, no_file},
    {"model_path", PLIM_ERR_FORMAT, no_model},
    {"device", PLIM_ERR_NOT_FOUND, no_device},
    {"chat_template", PLIM_ERR_FORMAT, bad_template},
    {"ctx_size", PLIM_ERR_INVALID, long_context},
    {"memory_limit_bytes", PLIM_ERR_OUT_OF_DEVICE, little_memory},
    {"host_limit_bytes", PLIM_ERR_NOMEM_HOST, little_host},
    {"max_total_tokens", PLIM_ERR_OUT_OF_DEVICE, small_pin},
    {"memory_fraction", PLIM_ERR_INVALID, half_fraction},
};

START_TEST(errors_of_a_start_speak_of_fields)
{
    static const char *const flags[] = {"--", "-m ", "-c ", "-b ", "-np "}; // of the command
    const struct wrong *w = &wrongs[_i];
    plim_engine_opts o;
    base_opts(&o);
    w->set(&o);
    for (int plan = 0; plan < 2; plan++) {
        plim_engine *engine = (void *)&o;
        plim_plan *made = (void *)&o;
        plim_error err = PLIM_INIT(plim_error);
        const int r =
            plan ? plim_plan_create(&o, &made, &err) : plim_engine_create(&o, &engine, &err);
        ck_assert_msg(r == w->status, "%s: %d %s", w->param, r, err.message);
        ck_assert_msg(strcmp(err.param, w->param) == 0, "%s, not %s: %s", err.param, w->param,
                      err.message);
        ck_assert_ptr_null(plan ? (void *)made : (void *)engine);
        for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
            ck_assert_msg(strstr(err.message, flags[i]) == NULL, "%s: %s", flags[i], err.message);
    }
}
END_TEST

// ---- ends ----

START_TEST(cancelled_says_so_in_a_sentence)
{
    plim_engine_opts o;
    base_opts(&o);
    plim_engine *engine = create(&o);
    for (int begun = 0; begun < 2; begun++) {
        plim_request *request = ask(engine);
        plim_event e = PLIM_INIT(plim_event);
        step(engine, begun);
        plim_request_cancel(request);
        step(engine, 2);
        while (plim_request_next(request, 0, &e) == PLIM_OK && e.type != PLIM_EVENT_DONE)
            ;
        ck_assert_int_eq(e.type, PLIM_EVENT_DONE);
        ck_assert_int_eq(e.status, PLIM_ERR_CANCELLED);
        ck_assert_int_eq(e.error->status, PLIM_ERR_CANCELLED);
        ck_assert_uint_eq(e.error->struct_size, sizeof(plim_error));
        ck_assert_str_eq(e.error->message, "the request was cancelled by its caller");
        plim_request_free(request);
    }
    ck_assert_int_eq(plim_engine_free(engine), PLIM_OK);
}
END_TEST

START_TEST(an_engine_with_requests_is_busy)
{
    plim_engine_opts o;
    plim_event e = PLIM_INIT(plim_event);
    base_opts(&o);
    o.manual_step = (uint32_t)_i;
    plim_engine *engine = create(&o);
    plim_request *first = ask(engine), *second = ask(engine);
    ck_assert_int_eq(plim_engine_free(engine), PLIM_ERR_BUSY);
    if (o.manual_step)
        step(engine, 8);
    do
        ck_assert_int_eq(plim_request_next(first, -1, &e), PLIM_OK); // it goes on
    while (e.type != PLIM_EVENT_DONE);
    ck_assert_int_eq(e.status, PLIM_OK);
    ck_assert_int_eq(plim_engine_free(engine), PLIM_ERR_BUSY); // done, but held
    plim_request_free(first);
    ck_assert_int_eq(plim_engine_free(engine), PLIM_ERR_BUSY);
    plim_request_free(second);
    ck_assert_int_eq(plim_engine_free(engine), PLIM_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("api");
    TCase *sizes = tcase_create("sizes"), *life = tcase_create("life");
    tcase_add_test(sizes, version_is_a_number_too);
    tcase_add_test(sizes, an_event_without_size_takes_none);
    tcase_add_test(sizes, facts_and_metrics_without_size_are_not_written);
    tcase_add_test(sizes, errors_keep_to_their_size);
    tcase_add_test(sizes, newer_options_are_taken_where_nobody_sets_them);
    tcase_add_test(sizes, every_field_of_the_metrics_has_its_name);
    tcase_set_timeout(life, 120);
    tcase_add_loop_test(life, progress_stops_a_start_at_every_stage, 0, 2);
    tcase_add_loop_test(life, errors_of_a_start_speak_of_fields, 0,
                        (int)(sizeof(wrongs) / sizeof(wrongs[0])));
    tcase_add_test(life, cancelled_says_so_in_a_sentence);
    tcase_add_loop_test(life, an_engine_with_requests_is_busy, 0, 2);
    suite_add_tcase(suite, sizes);
    suite_add_tcase(suite, life);
    return suite_run(suite);
}
