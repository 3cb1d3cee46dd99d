// SPDX-License-Identifier: Apache-2.0
// A truncated prompt answers as its end alone does.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plimsoll.h"
#include "tests/support/suite.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

enum {
    CONTEXT = 512, // tokens
    KEPT = 40,
    ANSWER = 24,
};

static const char *const models[] = {"llama-tied-q4_1.gguf", "qwen2-untied-q4_1.gguf"};
static plim_engine *engine;
static plim_model_info info;

static void set_up(const char *model)
{
    static char path[512];
    plim_engine_opts o;
    plim_error err = PLIM_INIT(plim_error);
    snprintf(path, sizeof(path), "%s/%s", TEST_MODELS, model);
    plim_engine_opts_init(&o);
    o.model_path = path;
    o.threads = 1;
    o.ctx_size = CONTEXT;
    o.manual_step = 1;
    o.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    o.memory_limit_bytes = UINT64_C(512) << 20;
    ck_assert_msg(plim_engine_create(&o, &engine, &err) == PLIM_OK, "%s", err.message);
    info = (plim_model_info)PLIM_INIT(plim_model_info);
    ck_assert_int_eq(plim_engine_model(engine, &info), PLIM_OK);
}

static plim_request_opts greedy(void)
{
    plim_request_opts q;
    plim_request_opts_init(&q);
    q.max_tokens = ANSWER;
    q.ignore_eos = 1;
    q.temperature = 0;
    return q;
}

// Runs a request to its end, and gives its tokens.
static void answer(const plim_request_opts *q, int32_t ret[ANSWER])
{
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plim_event e = PLIM_INIT(plim_event);
    uint32_t n = 0;
    bool done = false;
    ck_assert_msg(plim_request_submit(engine, q, &request, &err) == PLIM_OK, "%s", err.message);
    for (int i = 0; i < 10000 && !done; i++) {
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        while (plim_request_next(request, 0, &e) == PLIM_OK) {
            if (e.type == PLIM_EVENT_TOKEN) {
                ck_assert_uint_lt(n, ANSWER);
                ret[n++] = e.token;
            }
            done = done || e.type == PLIM_EVENT_DONE;
        }
    }
    ck_assert(done);
    ck_assert_uint_eq(n, ANSWER);
    plim_request_free(request);
}

static void same_answers(const plim_request_opts *a, const plim_request_opts *b)
{
    int32_t x[ANSWER], y[ANSWER];
    answer(a, x);
    answer(b, y);
    ck_assert_mem_eq(x, y, sizeof(x));
}

START_TEST(of_tokens_the_last_are_read)
{
    static int32_t tokens[CONTEXT + 100];
    plim_request_opts end = greedy(), whole = greedy();
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    set_up(models[_i]);
    for (uint32_t i = 0; i < CONTEXT + 100; i++)
        tokens[i] = (int32_t)((i * 37 + i * i % 11) % 250);
    end.tokens = tokens + CONTEXT + 100 - KEPT;
    end.n_tokens = KEPT;
    whole.tokens = tokens + 300;
    whole.n_tokens = CONTEXT + 100 - 300;
    whole.truncate_prompt = KEPT;
    same_answers(&end, &whole);
    // What is left out may be beyond the context, what stays may not.
    whole.tokens = tokens;
    whole.n_tokens = CONTEXT + 100;
    same_answers(&end, &whole);
    whole.truncate_prompt = CONTEXT + 50;
    ck_assert_int_eq(plim_request_submit(engine, &whole, &request, &err), PLIM_ERR_CONTEXT);
    ck_assert_int_eq(err.n_prompt_tokens, CONTEXT + 50);
    // A prompt that is shorter stays as it is.
    end.truncate_prompt = KEPT + 1;
    whole = end;
    whole.truncate_prompt = 0;
    same_answers(&end, &whole);
    plim_engine_free(engine);
}
END_TEST

// The tokenizer's BOS stays before the last tokens of a text.
START_TEST(of_a_text_the_end_is_read)
{
    static char text[4096];
    plim_request_opts end = greedy(), whole = greedy();
    size_t n = 0;
    set_up(models[_i]);
    for (size_t i = 0; i < sizeof(text) - 1; i++)
        text[i] = "the sea, ten of them. "[i * 7 % 22];
    plim_tokenize(engine, text, strlen(text), true, true, NULL, 0, &n, NULL);
    ck_assert_uint_gt(n, CONTEXT);
    int32_t *ids = calloc(n, sizeof(*ids));
    ck_assert_ptr_nonnull(ids);
    ck_assert_int_eq(plim_tokenize(engine, text, strlen(text), true, true, ids, n, &n, NULL),
                     PLIM_OK);
    if (info.adds_bos)
        ids[n - KEPT] = info.bos;
    end.tokens = ids + n - KEPT;
    end.n_tokens = KEPT;
    whole.prompt = text;
    whole.prompt_len = strlen(text);
    whole.truncate_prompt = KEPT;
    same_answers(&end, &whole);
    free(ids);
    plim_engine_free(engine);
}
END_TEST

// A conversation brings its own BOS, so nothing but its end stays.
START_TEST(of_a_conversation_the_end_is_read)
{
    static const char chat[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"the sea, the sea, the sea, the sea, the "
        "sea, and ten of the islands that lie in it\"}]}";
    static char text[4096];
    plim_request_opts end = greedy(), whole = greedy();
    size_t n = 0;
    set_up(models[_i]);
    int32_t ids[1024];
    ck_assert_int_eq(plim_chat_render(engine, chat, strlen(chat), text, sizeof(text), NULL, NULL),
                     PLIM_OK);
    ck_assert_int_eq(plim_tokenize(engine, text, strlen(text), false, true, ids, 1024, &n, NULL),
                     PLIM_OK);
    ck_assert_uint_gt(n, KEPT);
    end.tokens = ids + n - KEPT;
    end.n_tokens = KEPT;
    whole.chat_json = chat;
    whole.chat_json_len = strlen(chat);
    whole.truncate_prompt = KEPT;
    same_answers(&end, &whole);
    plim_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("truncate");
    TCase *tc = tcase_create("truncate");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, of_tokens_the_last_are_read, 0, 2);
    tcase_add_loop_test(tc, of_a_text_the_end_is_read, 0, 2);
    tcase_add_loop_test(tc, of_a_conversation_the_end_is_read, 0, 2);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
