// SPDX-License-Identifier: Apache-2.0
// Models with windows as an engine serves them: a prefix whose window is cached and one whose
// window was evicted give the text that it is without a cache, and a context of many windows holds
// the blocks of one.
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/kv/group.h"
#include "core/plimsoll.h"
#include "tests/support/suite.h"

// Of both kinds, a full group beside a window and windows alone, the window is 24.
static const char *const models[] = {"gemma3-q8_0.gguf", "mistral-window-f32.gguf"};
#define N_MODELS ((int)(sizeof(models) / sizeof(models[0])))
#define WINDOW   24u
#define CTX      (10 * WINDOW)
#define OUT      20u

static int32_t text[400];

struct answer {
    int32_t token[OUT];
    float logprob[OUT];
    uint32_t n, cached;
};

static plim_engine *create(const char *model, bool prefix_cache)
{
    static char path[512];
    plim_engine_opts o;
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    snprintf(path, sizeof(path), "%s/%s", TEST_MODELS, model);
    plim_engine_opts_init(&o);
    o.model_path = path;
    o.threads = 1;
    o.ctx_size = CTX;
    o.batch_max_tokens = 64;
    o.max_sequences = 2;
    o.max_total_tokens = 4 * CTX;
    o.prefix_cache = prefix_cache;
    o.manual_step = 1;
    o.memory_limit_bytes = UINT64_C(512) << 20;
    ck_assert_msg(plim_engine_create(&o, &engine, &err) == PLIM_OK, "%s", err.message);
    for (uint32_t i = 0; i < 400; i++)
        text[i] = (int32_t)((i * 37 + i * i % 11) % 250);
    return engine;
}

static plim_request *submit(plim_engine *engine, const int32_t *tokens, uint32_t n, uint32_t max)
{
    plim_request_opts q;
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plim_request_opts_init(&q);
    q.tokens = tokens;
    q.n_tokens = n;
    q.max_tokens = max;
    q.ignore_eos = 1;
    q.temperature = 0;
    q.logprobs = 1;
    ck_assert_msg(plim_request_submit(engine, &q, &request, &err) == PLIM_OK, "%s", err.message);
    return request;
}

// Takes what is there. True: it is done.
static bool collect(plim_request *request, struct answer *a)
{
    plim_event e = PLIM_INIT(plim_event);
    while (plim_request_next(request, 0, &e) == PLIM_OK) {
        if (e.type == PLIM_EVENT_TOKEN && a->n < OUT) {
            a->token[a->n] = e.token;
            a->logprob[a->n++] = e.logprob;
        }
        if (e.type != PLIM_EVENT_DONE)
            continue;
        ck_assert_int_eq(e.status, PLIM_OK);
        a->cached = e.cached_tokens;
        return true;
    }
    return false;
}

static void ask(plim_engine *engine, const int32_t *tokens, uint32_t n, struct answer *a)
{
    plim_request *request = submit(engine, tokens, n, OUT);
    memset(a, 0, sizeof(*a));
    while (!collect(request, a))
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
    plim_request_free(request);
}

static void same(const struct answer *a, const struct answer *b)
{
    ck_assert_uint_eq(a->n, b->n);
    ck_assert_mem_eq(a->token, b->token, sizeof(a->token));
    ck_assert_mem_eq(a->logprob, b->logprob, sizeof(a->logprob));
}

// ---- hits ----

static void others(plim_engine *engine)
{
    struct answer a;
    for (uint32_t i = 1; i <= 12; i++)
        ask(engine, text + 5 * i, 150, &a);
}

// A prompt, and one that shares its first 100 tokens: the window at token 96 was left behind by the
// first one, and is cached. After others had their turn the blocks of windows are theirs: a hit
// ends before them, though the full group may still have the blocks.
START_TEST(a_hit_ends_where_a_window_is_cached)
{
    int32_t shared[180];
    struct answer want[2], got;
    plim_engine *engine = create(models[_i], false);
    for (uint32_t i = 0; i < 180; i++)
        shared[i] = text[i < 100 ? i : i + 150];
    ask(engine, text, 200, &want[0]);
    ask(engine, shared, 180, &want[1]);
    plim_engine_free(engine);

    engine = create(models[_i], true);
    ask(engine, text, 200, &got);
    ck_assert_uint_eq(got.cached, 0);
    same(&want[0], &got);
    ask(engine, text, 200, &got);
    ck_assert_uint_eq(got.cached, 192);
    same(&want[0], &got);
    ask(engine, shared, 180, &got);
    ck_assert_uint_eq(got.cached, 96);
    same(&want[1], &got);
    others(engine);
    ask(engine, shared, 180, &got);
    ck_assert_uint_lt(got.cached, 96);
    same(&want[1], &got);
    ask(engine, text, 200, &got);
    ck_assert_uint_lt(got.cached, 192);
    same(&want[0], &got);
    plim_engine_free(engine);
}
END_TEST

// ---- what is held ----

typedef int report(const plim_engine *engine, char *out, size_t cap, size_t *need);

static json_object *read_json(const plim_engine *engine, report *get)
{
    static char out[1 << 16];
    size_t need = 0;
    ck_assert_int_eq(get(engine, out, sizeof(out), &need), PLIM_OK);
    json_object *object = json_tokener_parse(out);
    ck_assert_ptr_nonnull(object);
    return object;
}

static json_object *member(json_object *object, const char *name)
{
    json_object *v = NULL;
    ck_assert_msg(json_object_object_get_ex(object, name, &v), "there is no %s", name);
    return v;
}

// Blocks of the group with a window that the memory report, which GET /v1/memory answers with,
// counts as used, and of the one without; 0: there is no such group.
static void used_blocks(const plim_engine *engine, uint32_t ret[2])
{
    json_object *json = read_json(engine, plim_engine_memory_json);
    json_object *groups = member(json_object_array_get_idx(member(json, "devices"), 0), "groups");
    ret[0] = ret[1] = 0;
    for (size_t i = 0; i < json_object_array_length(groups); i++) {
        json_object *group = json_object_array_get_idx(groups, i);
        const bool full = json_object_get_int(member(group, "window")) == 0;
        ret[full] = (uint32_t)json_object_get_int(member(group, "used"));
    }
    json_object_put(json);
}

// Blocks that the plan gives to windows.
static uint32_t planned_blocks(const plim_engine *engine)
{
    json_object *json = read_json(engine, plim_engine_plan_json), *plan = member(json, "plan");
    json_object *windows = member(plan, "windows");
    uint32_t n = (uint32_t)json_object_get_int(member(plan, "blocks"));
    if (json_object_array_length(windows) > 0) {
        json_object *window = json_object_array_get_idx(windows, 0);
        ck_assert_int_eq(json_object_get_int(member(window, "window")), WINDOW);
        n = (uint32_t)json_object_get_int(member(window, "blocks"));
    } else {
        ck_assert_int_eq(json_object_get_int(member(plan, "window")), WINDOW);
    }
    json_object_put(json);
    return n;
}

// While a prompt is read its chunk is there, too; then a sequence has its window, however long the
// text is, and the full group has it all.
START_TEST(a_context_of_ten_windows_holds_one)
{
    const uint32_t prompt = 100, each = plm_kv_sequence_blocks(WINDOW, CTX), chunk = 64 / 16;
    plim_engine *engine = create(models[_i], false);
    uint32_t used[2], most = 0;
    struct answer a = {0};
    ck_assert_uint_eq(each, 4);
    // Two sequences and a step; with windows alone what was asked for, which is four contexts.
    ck_assert_uint_eq(planned_blocks(engine), _i == 0 ? 2 * each + chunk : 4 * CTX / 16);
    plim_request *request = submit(engine, text, prompt, CTX - prompt);
    for (uint32_t steps = 0; !collect(request, &a); steps++) {
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        used_blocks(engine, used);
        ck_assert_uint_le(used[0], steps < 3 ? each + chunk : each);
        most = used[1] > most ? used[1] : most;
    }
    ck_assert_uint_eq(most, _i == 0 ? CTX / 16 : 0);
    used_blocks(engine, used);
    ck_assert(used[0] == 0 && used[1] == 0);
    plim_request_free(request);
    plim_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_windows");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, a_hit_ends_where_a_window_is_cached, 0, N_MODELS);
    tcase_add_loop_test(tc, a_context_of_ten_windows_holds_one, 0, N_MODELS);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
