// SPDX-License-Identifier: Apache-2.0
// The engine on tiny models, through the public API: text and log-probabilities of a request are
// the same bit for bit whatever runs beside it and however it was computed; cancels, failures of
// host memory, and many threads at once leave nothing behind.
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/utf8.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "core/model/arch.h"
#include "tests/support/suite.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

#define OUT_MAX 128u

static const struct model {
    const char *file;
    uint32_t kv_type; // enum plim_kv_type
} models[] = {{"llama-tied-q4_1.gguf", PLIM_KV_F16},    {"qwen2-untied-q4_1.gguf", PLIM_KV_F16},
              {"llama-rope3-q8_0.gguf", PLIM_KV_F16},   {"gemma3-q8_0.gguf", PLIM_KV_F16},
              {"llama-k256-q4_k_m.gguf", PLIM_KV_Q8_0}, {"gemma3-q8_0.gguf", PLIM_KV_Q8_0},
              {"mistral-window-f32.gguf", PLIM_KV_F16}};
#define N_MODELS ((int)(sizeof(models) / sizeof(models[0])))

static void base_opts(plim_engine_opts *o, const struct model *model)
{
    static char path[3][512];
    static int turn;
    turn = (turn + 1) % 3;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", TEST_MODELS, model->file);
    plim_engine_opts_init(o);
    o->model_path = path[turn];
    o->kv_type = model->kv_type;
    o->threads = 1;
    o->ctx_size = 512;
    o->batch_max_tokens = 64;
    o->max_sequences = 8;
    o->manual_step = 1;
    o->memory_limit_bytes = UINT64_C(512) << 20;
}

static plim_engine *create(const plim_engine_opts *o)
{
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    int r = plim_engine_create(o, &engine, &err);
    if (r != PLIM_OK)
        ck_abort_msg("create: %d %s", r, err.message);
    return engine;
}

// ---- one request and what came of it ----

struct answer {
    uint32_t n;
    int32_t token[OUT_MAX];
    float logprob[OUT_MAX];
    plim_logprob top[OUT_MAX][3];
    char text[2048];
    size_t text_len;
    int finish;
    int status;
    uint32_t cached;
    uint32_t finishes;
    bool admitted, done;
};

// Takes what is there; one choice is kept.
static void collect(plim_request *request, uint32_t choice, struct answer *a)
{
    plim_event e = PLIM_INIT(plim_event);
    int r;
    while ((r = plim_request_next(request, 0, &e)) == PLIM_OK) {
        ck_assert(!a->done);
        ck_assert(a->admitted || e.type == PLIM_EVENT_ADMITTED || e.type == PLIM_EVENT_DONE);
        if (e.type == PLIM_EVENT_ADMITTED)
            a->admitted = true;
        if ((e.type == PLIM_EVENT_TOKEN || e.type == PLIM_EVENT_FINISH) && e.choice == choice) {
            ck_assert_uint_lt(a->text_len + e.text_len, sizeof(a->text));
            memcpy(a->text + a->text_len, e.text, e.text_len);
            a->text_len += e.text_len;
        }
        if (e.type == PLIM_EVENT_TOKEN && e.choice == choice) {
            ck_assert_uint_lt(a->n, OUT_MAX);
            a->token[a->n] = e.token;
            a->logprob[a->n] = e.logprob;
            if (e.n_top == 3)
                memcpy(a->top[a->n], e.top, sizeof(a->top[0]));
            a->n++;
        }
        if (e.type == PLIM_EVENT_FINISH) {
            a->finishes++;
            if (e.choice == choice)
                a->finish = e.finish;
        }
        if (e.type == PLIM_EVENT_DONE) {
            a->done = true;
            a->status = e.status;
            a->cached = e.cached_tokens;
        }
    }
    ck_assert_int_eq(r, a->done ? PLIM_ERR_CLOSED : PLIM_ERR_TIMEOUT);
}

static void run_until_done(plim_engine *engine, plim_request *request, uint32_t choice,
                           struct answer *a)
{
    memset(a, 0, sizeof(*a));
    for (int i = 0; i < 100000 && !a->done; i++) {
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        collect(request, choice, a);
    }
    ck_assert(a->done);
}

static int32_t prompt_tokens[400];

static void prompt_opts(plim_request_opts *q, uint32_t n_prompt)
{
    for (uint32_t i = 0; i < 400; i++)
        prompt_tokens[i] = (int32_t)((i * 37 + i * i % 11) % 250);
    plim_request_opts_init(q);
    q->tokens = prompt_tokens;
    q->n_tokens = n_prompt;
    q->max_tokens = 40;
    q->ignore_eos = 1;
    q->has_seed = 1;
    q->seed = 4711;
    q->temperature = 0.9f;
    q->logprobs = 1;
    q->top_logprobs = 3;
}

static plim_request *submit(plim_engine *engine, const plim_request_opts *q)
{
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    int r = plim_request_submit(engine, q, &request, &err);
    if (r != PLIM_OK)
        ck_abort_msg("submit: %d %s", r, err.message);
    return request;
}

static void same_answer(const struct answer *a, const struct answer *b, const char *what)
{
    if (a->n != b->n || a->text_len != b->text_len || a->finish != b->finish ||
        memcmp(a->token, b->token, sizeof(a->token)) != 0 ||
        memcmp(a->logprob, b->logprob, sizeof(a->logprob)) != 0 ||
        memcmp(a->top, b->top, sizeof(a->top)) != 0 || memcmp(a->text, b->text, a->text_len) != 0)
        ck_abort_msg("%s: another answer (%u and %u tokens)", what, a->n, b->n);
}

// The probe with nothing beside it, on an engine of its own.
static void alone(const plim_engine_opts *o, const plim_request_opts *q, struct answer *a)
{
    plim_engine *engine = create(o);
    plim_request *request = submit(engine, q);
    run_until_done(engine, request, 0, a);
    ck_assert_int_eq(a->status, PLIM_OK);
    plim_request_free(request);
    plim_engine_free(engine);
}

// ---- equality ----

START_TEST(chunks_do_not_show)
{
    static const uint32_t chunks[] = {1, 7, 32, 512};
    plim_engine_opts o;
    plim_request_opts q;
    struct answer want, got;
    base_opts(&o, &models[_i]);
    prompt_opts(&q, 301);
    alone(&o, &q, &want);
    ck_assert_uint_eq(want.n, 40);
    ck_assert_int_eq(want.finish, PLIM_FINISH_LENGTH);
    for (uint32_t c = 0; c < 4; c++) {
        o.batch_max_tokens = 512;
        o.prefill_chunk = chunks[c];
        alone(&o, &q, &got);
        same_answer(&want, &got, "chunk");
    }
    o.threads = 2;
    alone(&o, &q, &got);
    same_answer(&want, &got, "two threads");
}
END_TEST

START_TEST(neighbours_do_not_show)
{
    plim_engine_opts o;
    plim_request_opts q, other;
    struct answer want, got;
    plim_request *others[15];
    base_opts(&o, &models[_i]);
    prompt_opts(&q, 100);
    alone(&o, &q, &want);
    o.max_sequences = 16;
    plim_engine *engine = create(&o);
    plim_request *request = NULL;
    for (uint32_t i = 0; i < 15; i++) {
        prompt_opts(&other, 20 + 17 * i);
        other.tokens = prompt_tokens + i;
        other.seed = i;
        other.max_tokens = 10 + 5 * i;
        others[i] = submit(engine, &other);
        if (i == 7)
            request = submit(engine, &q);
        for (uint32_t s = 0; s < i; s++)
            plim_engine_step(engine, NULL);
    }
    run_until_done(engine, request, 0, &got);
    same_answer(&want, &got, "among 15 others");
    for (uint32_t i = 0; i < 15; i++)
        plim_request_free(others[i]); // some are still running
    plim_request_free(request);
    plim_engine_free(engine);
}
END_TEST

START_TEST(the_prefix_cache_does_not_show)
{
    plim_engine_opts o;
    plim_request_opts q;
    struct answer want, got;
    base_opts(&o, &models[_i]);
    prompt_opts(&q, 200);
    o.prefix_cache = 0;
    alone(&o, &q, &want);
    o.prefix_cache = 1;
    plim_engine *engine = create(&o);
    for (uint32_t turn = 0; turn < 4; turn++) {
        q.cache_prompt = turn != 3;
        q.cache_salt = turn == 2 ? "somebody else" : NULL;
        plim_request *request = submit(engine, &q);
        run_until_done(engine, request, 0, &got);
        same_answer(&want, &got, "prefix cache");
        ck_assert_uint_eq(got.cached, turn == 1 ? 192 : 0);
        plim_request_free(request);
    }
    plim_engine_free(engine);
}
END_TEST

START_TEST(preemption_does_not_show)
{
    plim_engine_opts o;
    plim_request_opts q, other;
    struct answer want, got;
    plim_request *others[3];
    base_opts(&o, &models[_i]);
    prompt_opts(&q, 60);
    q.max_tokens = 100;
    alone(&o, &q, &want);
    o.max_total_tokens = 512; // one longest request
    o.prefix_cache = _i % 2;
    plim_engine *engine = create(&o);
    for (uint32_t i = 0; i < 3; i++) {
        prompt_opts(&other, 60 + i);
        other.tokens = prompt_tokens + 7 * (i + 1);
        other.max_tokens = 120;
        others[i] = submit(engine, &other);
    }
    plim_request *request = submit(engine, &q); // the youngest gives way
    run_until_done(engine, request, 0, &got);
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &m);
    ck_assert_uint_gt(m.preemptions, 0);
    same_answer(&want, &got, "preempted");
    for (uint32_t i = 0; i < 3; i++)
        plim_request_free(others[i]);
    plim_request_free(request);
    plim_engine_free(engine);
}
END_TEST

START_TEST(choices_are_what_they_would_be_alone)
{
    plim_engine_opts o;
    plim_request_opts q;
    struct answer want, got, third;
    base_opts(&o, &models[_i]);
    prompt_opts(&q, 97);
    alone(&o, &q, &want);
    q.n = 4;
    for (uint32_t choice = 0; choice < 3; choice += 2) {
        plim_engine *engine = create(&o);
        plim_request *request = submit(engine, &q);
        run_until_done(engine, request, choice, choice == 0 ? &got : &third);
        ck_assert_uint_eq((choice == 0 ? &got : &third)->finishes, 4);
        plim_request_free(request);
        plim_engine_free(engine);
    }
    same_answer(&want, &got, "first of four choices");
    ck_assert_mem_ne(third.token, got.token, sizeof(got.token));
    ck_assert_float_eq(third.logprob[0] - third.top[0][0].logprob,
                       third.logprob[0] - got.top[0][0].logprob); // the same first distribution
}
END_TEST

// ---- text ----

START_TEST(stop_strings_are_cut_off)
{
    plim_engine_opts o;
    plim_request_opts q;
    struct answer whole, got;
    base_opts(&o, &models[0]);
    prompt_opts(&q, 50);
    alone(&o, &q, &whole);
    ck_assert_uint_gt(whole.text_len, 20);
    // Every stretch of the answer as a stop string: the text ends right before its first place.
    for (size_t at = 0; at + 3 < whole.text_len; at += 5) {
        size_t len = 1 + at % 3;
        if (((unsigned char)whole.text[at] & 0xC0) == 0x80 ||
            ((unsigned char)whole.text[at + len] & 0xC0) == 0x80)
            continue;
        const plim_text stops[] = {{"not in any answer", 17}, {whole.text + at, len}};
        q.stop = stops;
        q.n_stop = 2;
        alone(&o, &q, &got);
        const char *hit = memmem(whole.text, whole.text_len, stops[1].ptr, len);
        ck_assert_uint_eq(got.text_len, (size_t)(hit - whole.text));
        ck_assert_mem_eq(got.text, whole.text, got.text_len);
        ck_assert_int_eq(got.finish, PLIM_FINISH_STOP);
    }
    // A tail that might have become a stop string comes with the end.
    char longer[64];
    memcpy(longer, whole.text + whole.text_len - 3, 3);
    memcpy(longer + 3, "zzz", 3);
    const plim_text tail[] = {{longer, 6}};
    if (((unsigned char)longer[0] & 0xC0) != 0x80) {
        q.stop = tail;
        q.n_stop = 1;
        alone(&o, &q, &got);
        same_answer(&whole, &got, "held back");
    }
}
END_TEST

// How many of the tokens come before the first of this id.
static uint32_t before_token(const struct answer *a, int32_t token)
{
    uint32_t n = 0;
    while (n < a->n && a->token[n] != token)
        n++;
    return n;
}

START_TEST(stop_tokens_end_an_answer)
{
    plim_engine_opts o;
    plim_request_opts q;
    struct answer whole, got;
    base_opts(&o, &models[0]);
    prompt_opts(&q, 50);
    alone(&o, &q, &whole);
    const int32_t never = 0, stop = whole.token[9];
    const int32_t stops[] = {never == stop ? 1 : never, stop};
    const uint32_t at = before_token(&whole, stop);
    q.stop_tokens = stops;
    q.n_stop_tokens = 2;
    alone(&o, &q, &got); // ignore_eos is set and leaves them
    ck_assert_uint_le(got.n, at);
    ck_assert_uint_eq(got.n,
                      before_token(&whole, stops[0]) < at ? before_token(&whole, stops[0]) : at);
    ck_assert_int_eq(got.finish, PLIM_FINISH_STOP);
    ck_assert_mem_eq(got.text, whole.text, got.text_len);
    // As a part of the answer.
    q.stop_tokens = &stop;
    q.n_stop_tokens = 1;
    q.include_stop = 1;
    alone(&o, &q, &got);
    ck_assert_uint_eq(got.n, at + 1);
    ck_assert_int_eq(got.token[at], stop);
    ck_assert_int_eq(got.finish, PLIM_FINISH_STOP);
    // Masked as the end-of-generation token is.
    q.min_tokens = at + 5;
    alone(&o, &q, &got);
    ck_assert_uint_ge(got.n, at + 5);
    ck_assert_int_ne(got.token[at], stop);
    // A stop string, with itself.
    const plim_text text = {whole.text, plm_utf8_valid_prefix(whole.text, 5)};
    prompt_opts(&q, 50);
    q.stop = &text;
    q.n_stop = 1;
    q.include_stop = 1;
    alone(&o, &q, &got);
    ck_assert_uint_eq(got.text_len, text.len);
    ck_assert_mem_eq(got.text, whole.text, text.len);
    plim_engine *engine = create(&o);
    plim_request *request;
    plim_error err = PLIM_INIT(plim_error);
    const int32_t beyond = 1 << 30;
    q.stop_tokens = &beyond;
    q.n_stop_tokens = 1;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_INVALID);
    ck_assert_str_eq(err.param, "stop_tokens");
    q.n_stop_tokens = PLIM_STOP_TOKENS_MAX + 1;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_INVALID);
    q.stop_tokens = NULL;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_INVALID);
    plim_engine_free(engine);
}
END_TEST

// The id of the token that is this one byte.
static int32_t token_of_byte(plim_engine *engine, char byte)
{
    plim_model_info info = PLIM_INIT(plim_model_info);
    plim_engine_model(engine, &info);
    for (int32_t id = 0; id < (int32_t)info.n_vocab; id++) {
        char bytes[8];
        size_t need = 0;
        if (plim_token_bytes(engine, id, bytes, sizeof(bytes), &need) == PLIM_OK && need == 1 &&
            bytes[0] == byte)
            return id;
    }
    ck_abort_msg("no token is the byte %02x", (unsigned char)byte);
    return -1;
}

// However an answer ends, half a character at its end is no text; its tokens are there and count.
START_TEST(a_text_ends_before_half_a_character)
{
    plim_engine_opts o;
    plim_request_opts q;
    struct answer got;
    base_opts(&o, &models[0]);
    plim_engine *engine = create(&o);
    // Of three lead bytes in a row, two can not go on, and the third might.
    const plim_logit_bias lead = {token_of_byte(engine, '\xE4'), 100};
    const plim_text stop = {"\xEF\xBF\xBDz", 4};
    for (uint32_t n = 1; n <= 3; n++) {
        for (int with_stop = 0; with_stop < 2; with_stop++) {
            prompt_opts(&q, 50);
            q.logit_bias = &lead;
            q.n_logit_bias = 1;
            q.max_tokens = n;
            q.n = 2;
            q.stop = &stop;
            q.n_stop = (size_t)with_stop;
            plim_request *request = submit(engine, &q);
            run_until_done(engine, request, 1, &got);
            ck_assert_int_eq(got.status, PLIM_OK);
            ck_assert_int_eq(got.finish, PLIM_FINISH_LENGTH);
            ck_assert_uint_eq(got.n, n);
            ck_assert_int_eq(got.token[n - 1], lead.token);
            ck_assert_uint_eq(got.text_len, 3 * (n - 1));
            ck_assert_mem_eq(got.text, "\xEF\xBF\xBD\xEF\xBF\xBD", got.text_len);
            plim_request_free(request);
        }
    }
    plim_engine_free(engine);
}
END_TEST

START_TEST(generation_ends_where_it_should)
{
    plim_engine_opts o;
    plim_request_opts q;
    struct answer a;
    base_opts(&o, &models[0]);
    prompt_opts(&q, 30);
    plim_engine *engine = create(&o);
    const plim_logit_bias eos = {.token = 318, .bias = 100.0f};
    q.logit_bias = &eos;
    q.n_logit_bias = 1;
    q.ignore_eos = 0;
    plim_request *request = submit(engine, &q);
    run_until_done(engine, request, 0, &a);
    ck_assert_int_eq(a.finish, PLIM_FINISH_STOP);
    ck_assert_uint_eq(a.n, 0);
    plim_request_free(request);
    q.min_tokens = 5;
    request = submit(engine, &q);
    run_until_done(engine, request, 0, &a);
    ck_assert_int_eq(a.finish, PLIM_FINISH_STOP);
    ck_assert_uint_eq(a.n, 5);
    plim_request_free(request);
    q.min_tokens = 0;
    q.ignore_eos = 1;
    request = submit(engine, &q);
    run_until_done(engine, request, 0, &a);
    ck_assert_int_eq(a.finish, PLIM_FINISH_LENGTH);
    ck_assert_uint_eq(a.n, 40);
    plim_request_free(request);
    q.n_logit_bias = 0;
    q.max_tokens = 0; // to the end of the context
    q.tokens = prompt_tokens;
    q.n_tokens = 400;
    request = submit(engine, &q);
    run_until_done(engine, request, 0, &a);
    ck_assert_int_eq(a.finish, PLIM_FINISH_LENGTH);
    ck_assert_uint_eq(a.n, 512 - 400);
    plim_request_free(request);
    plim_engine_free(engine);
}
END_TEST

// ---- admission ----

START_TEST(bad_requests_are_refused_by_name)
{
    static const plim_logit_bias bad_token = {320, 1}, bad_bias = {1, 200};
    static const plim_text empty = {"", 0}, broken = {"\xFF", 1};
    plim_engine_opts o;
    plim_request_opts q;
    plim_error err = PLIM_INIT(plim_error);
    plim_request *request = NULL;
    base_opts(&o, &models[0]);
    plim_engine *engine = create(&o);
#define BAD(field_, set, want)                                                                     \
    do {                                                                                           \
        prompt_opts(&q, 10);                                                                       \
        set;                                                                                       \
        ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), want);                   \
        ck_assert_str_eq(err.param, field_);                                                       \
        ck_assert_int_eq(err.status, want);                                                        \
        ck_assert(err.message[0] != '\0');                                                         \
    } while (0)
    BAD("temperature", q.temperature = NAN, PLIM_ERR_INVALID);
    BAD("temperature", q.temperature = -1, PLIM_ERR_INVALID);
    BAD("top_p", q.top_p = 1.5f, PLIM_ERR_INVALID);
    BAD("min_p", q.min_p = -0.1f, PLIM_ERR_INVALID);
    BAD("repeat_penalty", q.repeat_penalty = 0, PLIM_ERR_INVALID);
    BAD("frequency_penalty", q.frequency_penalty = 3, PLIM_ERR_INVALID);
    BAD("presence_penalty", q.presence_penalty = INFINITY, PLIM_ERR_INVALID);
    BAD("top_logprobs", q.top_logprobs = 21, PLIM_ERR_INVALID);
    BAD("n", q.n = 0, PLIM_ERR_INVALID);
    BAD("n", q.n = 129, PLIM_ERR_INVALID);
    BAD("min_tokens", q.min_tokens = 41, PLIM_ERR_INVALID);
    BAD("logit_bias", (q.logit_bias = &bad_token, q.n_logit_bias = 1), PLIM_ERR_INVALID);
    BAD("logit_bias", (q.logit_bias = &bad_bias, q.n_logit_bias = 1), PLIM_ERR_INVALID);
    BAD("stop[0]", (q.stop = &empty, q.n_stop = 1), PLIM_ERR_INVALID);
    BAD("stop[0]", (q.stop = &broken, q.n_stop = 1), PLIM_ERR_INVALID);
    BAD("stop", (q.stop = &broken, q.n_stop = 17), PLIM_ERR_INVALID);
    BAD("bad_words[0]", (q.bad_words = &empty, q.n_bad_words = 1), PLIM_ERR_INVALID);
    BAD("bad_words[0]", (q.bad_words = &broken, q.n_bad_words = 1), PLIM_ERR_INVALID);
    BAD("bad_words", (q.bad_words = &broken, q.n_bad_words = 65), PLIM_ERR_INVALID);
    BAD("bad_words", q.n_bad_words = 1, PLIM_ERR_INVALID);
    BAD("prompt", q.prompt = "two prompts", PLIM_ERR_INVALID);
    BAD("prompt", (q.tokens = NULL, q.n_tokens = 0), PLIM_ERR_INVALID);
    BAD("prompt", q.tokens = NULL, PLIM_ERR_INVALID);
    BAD("logit_bias", q.n_logit_bias = 1, PLIM_ERR_INVALID);
    BAD("stop", q.n_stop = 1, PLIM_ERR_INVALID);
    BAD("prompt", (prompt_tokens[3] = 320), PLIM_ERR_INVALID);
    BAD("prompt", (prompt_tokens[3] = -1), PLIM_ERR_INVALID);
    BAD("struct_size", q.struct_size = 0, PLIM_ERR_INVALID);
#undef BAD
    ck_assert_ptr_null(request);
    prompt_opts(&q, 10);
    static int32_t longer[600];
    q.tokens = longer;
    q.n_tokens = 600;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_CONTEXT);
    ck_assert_int_eq(err.n_prompt_tokens, 600);
    ck_assert_int_eq(err.n_ctx, 512);
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &m);
    ck_assert_uint_eq(m.rejected_context, 1);
    ck_assert_uint_eq(m.waiting, 0);
    plim_engine_free(engine);
}
END_TEST

START_TEST(the_queue_is_bounded)
{
    plim_engine_opts o;
    plim_request_opts q;
    plim_error err = PLIM_INIT(plim_error);
    plim_request *requests[8];
    base_opts(&o, &models[0]);
    o.queue_max = 3;
    plim_engine *engine = create(&o);
    prompt_opts(&q, 10);
    for (uint32_t i = 0; i < 3; i++)
        requests[i] = submit(engine, &q);
    ck_assert_int_eq(plim_request_submit(engine, &q, &requests[3], &err), PLIM_ERR_QUEUE_FULL);
    ck_assert_int_ge(err.retry_after_s, 1);
    plim_engine_step(engine, NULL);
    requests[3] = submit(engine, &q); // those before have begun
    ck_assert_int_eq(plim_engine_drain(engine, 0), PLIM_ERR_TIMEOUT);
    ck_assert_int_eq(plim_request_submit(engine, &q, &requests[4], &err), PLIM_ERR_CLOSED);
    ck_assert_int_eq(plim_engine_drain(engine, -1), PLIM_OK);
    for (uint32_t i = 0; i < 4; i++) {
        struct answer a = {0};
        collect(requests[i], 0, &a);
        ck_assert(a.done && a.status == PLIM_OK);
        plim_request_free(requests[i]);
    }
    plim_engine_free(engine);
}
END_TEST

START_TEST(cancel_frees_blocks_in_every_state)
{
    plim_engine_opts o;
    plim_request_opts q;
    base_opts(&o, &models[0]);
    o.max_sequences = 2;
    plim_engine *engine = create(&o);
    plim_metrics m = PLIM_INIT(plim_metrics);
    for (uint32_t steps = 0; steps < 12; steps++) {
        struct answer a[4];
        plim_request *requests[4];
        memset(a, 0, sizeof(a));
        for (uint32_t i = 0; i < 4; i++) {
            prompt_opts(&q, 90);
            q.n = 1 + i;
            requests[i] = submit(engine, &q);
        }
        for (uint32_t s = 0; s < steps; s++)
            plim_engine_step(engine, NULL);
        for (uint32_t i = 0; i < 4; i++) {
            plim_request_cancel(requests[i]);
            plim_request_cancel(requests[i]);
        }
        plim_engine_step(engine, NULL);
        for (uint32_t i = 0; i < 4; i++) {
            collect(requests[i], 0, &a[i]);
            ck_assert(a[i].done);
            ck_assert_int_eq(a[i].status, PLIM_ERR_CANCELLED);
            plim_request_cancel(requests[i]); // late: nothing to do
            plim_request_free(requests[i]);
        }
        plim_engine_metrics(engine, &m);
        ck_assert_uint_eq(m.blocks_used, 0);
        ck_assert_uint_eq(m.running + m.waiting + m.preempted, 0);
        ck_assert_uint_eq(m.allocations_in_step, 0);
    }
    plim_engine_free(engine);
}
END_TEST

START_TEST(waiting_too_long_is_a_refusal)
{
    plim_engine_opts o;
    plim_request_opts q;
    struct answer a = {0};
    base_opts(&o, &models[0]);
    o.max_sequences = 1;
    o.queue_timeout_ms = 1;
    plim_engine *engine = create(&o);
    prompt_opts(&q, 100);
    q.max_tokens = 100;
    plim_request *first = submit(engine, &q);
    plim_engine_step(engine, NULL);
    plim_request *second = submit(engine, &q);
    const struct plm_clock *clock = plm_clock_system();
    int64_t from = plm_now(clock);
    while (plm_now(clock) - from < 5000000)
        clock->sleep_ns(clock->ctx, 1000000);
    plim_engine_step(engine, NULL);
    collect(second, 0, &a);
    ck_assert(a.done && !a.admitted);
    ck_assert_int_eq(a.status, PLIM_ERR_NOMEM_NOW);
    plim_request_free(first);
    plim_request_free(second);
    plim_engine_free(engine);
}
END_TEST

// ---- the ready list ----

START_TEST(one_loop_serves_all)
{
    plim_engine_opts o;
    plim_request_opts q;
    base_opts(&o, &models[0]);
    o.manual_step = 0;
    plim_engine *engine = create(&o);
    prompt_opts(&q, 40);
    static struct answer answers[12];
    plim_request *requests[12];
    memset(answers, 0, sizeof(answers));
    for (uint32_t i = 0; i < 12; i++) {
        q.user = &answers[i];
        requests[i] = submit(engine, &q);
    }
    uint32_t done = 0;
    while (done < 12) {
        plim_request *r = plim_engine_next_ready(engine);
        if (r == NULL)
            continue;
        struct answer *a = plim_request_user(r);
        bool before = a->done; // a request may be named once more with nothing left to read
        collect(r, 0, a);
        done += a->done && !before;
    }
    for (uint32_t i = 0; i < 12; i++) {
        same_answer(&answers[0], &answers[i], "the same request twelve times");
        plim_request_free(requests[i]);
    }
    plim_engine_free(engine);
}
END_TEST

// ---- threads ----

struct hammer {
    plim_engine *engine;
    uint32_t seed;
    uint32_t done, cancelled, refused;
};

static void *hammer(void *arg)
{
    struct hammer *h = arg;
    static const char salt[] = "salt";
    for (uint32_t i = 0; i < 25; i++) {
        plim_request_opts q;
        plim_request *request;
        plim_event e = PLIM_INIT(plim_event);
        plim_request_opts_init(&q);
        q.prompt = "winter water, scale";
        q.prompt_len = 4 + (h->seed + i) % 15;
        q.max_tokens = 3 + i % 20;
        q.n = 1 + i % 3;
        q.cache_salt = i % 4 == 0 ? salt : NULL;
        const struct plm_clock *clock = plm_clock_system();
        int r;
        while ((r = plim_request_submit(h->engine, &q, &request, NULL)) == PLIM_ERR_QUEUE_FULL) {
            h->refused++;
            clock->sleep_ns(clock->ctx, 200000);
        }
        ck_assert_int_eq(r, PLIM_OK);
        uint32_t events = 0, leave_after = (h->seed + i) % 5 == 0 ? i % 4 : UINT32_MAX;
        while (plim_request_next(request, -1, &e) == PLIM_OK && e.type != PLIM_EVENT_DONE) {
            if (events++ == leave_after)
                plim_request_cancel(request);
        }
        ck_assert_int_eq(e.type, PLIM_EVENT_DONE);
        if (e.status == PLIM_ERR_CANCELLED)
            h->cancelled++;
        else
            h->done++;
        plim_metrics m = PLIM_INIT(plim_metrics);
        plim_engine_metrics(h->engine, &m);
        char json[64];
        size_t need;
        plim_engine_memory_json(h->engine, json, sizeof(json), &need);
        plim_request_free(request);
    }
    return NULL;
}

static bool yes(void *ctx)
{
    ++*(int *)ctx;
    return true;
}

// What a caller no longer wants ends at once, whichever call it is in.
START_TEST(work_ends_when_nobody_wants_it)
{
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
    plim_engine_opts o;
    plim_request_opts q;
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    char text[64];
    size_t n;
    int asked = 0;
    base_opts(&o, &models[0]);
    plim_engine *engine = create(&o);
    plim_request_opts_init(&q);
    q.prompt = "hello there";
    q.prompt_len = strlen(q.prompt);
    q.max_tokens = 1;
    plim_thread_cancellable(yes, &asked);
    ck_assert_int_eq(plim_tokenize(engine, "hello", 5, true, true, NULL, 0, &n, &err),
                     PLIM_ERR_CANCELLED);
    ck_assert_str_eq(err.message, "the caller cancelled");
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_CANCELLED);
    ck_assert_ptr_null(request);
    ck_assert_int_eq(plim_chat_render(engine, chat, strlen(chat), text, sizeof(text), &n, &err),
                     PLIM_ERR_CANCELLED);
    ck_assert_int_ge(asked, 3);
    plim_thread_cancellable(NULL, NULL);
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_OK);
    plim_request_free(request);
    plim_engine_free(engine);
}
END_TEST

START_TEST(many_threads_submit_and_cancel)
{
    plim_engine_opts o;
    base_opts(&o, &models[0]);
    o.manual_step = 0;
    o.queue_max = 4;
    plim_engine *engine = create(&o);
    pthread_t threads[6];
    struct hammer hammers[6];
    for (uint32_t t = 0; t < 6; t++) {
        hammers[t] = (struct hammer){.engine = engine, .seed = t};
        ck_assert_int_eq(pthread_create(&threads[t], NULL, hammer, &hammers[t]), 0);
    }
    uint32_t total = 0;
    for (uint32_t t = 0; t < 6; t++) {
        pthread_join(threads[t], NULL);
        total += hammers[t].done + hammers[t].cancelled;
        ck_assert_uint_gt(hammers[t].done, 0);
    }
    ck_assert_uint_eq(total, 6 * 25);
    ck_assert_int_eq(plim_engine_drain(engine, 10000), PLIM_OK);
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &m);
    ck_assert_uint_eq(m.blocks_used, 0);
    ck_assert_uint_eq(m.running + m.waiting, 0);
    plim_engine_free(engine);
}
END_TEST

// ---- failures of host memory ----

START_TEST(submit_survives_every_failed_allocation)
{
    plim_engine_opts o;
    plim_request_opts q;
    base_opts(&o, &models[0]);
    o.batch_max_tokens = 8; // the prompt takes several steps, so failures fall between them
    plim_engine *engine = create(&o);
    struct plm_host *host = engine->core->host;
    static const plim_text stop = {"zz", 2};
    static const plim_logit_bias bias = {1, 1};
    uint32_t failed = 0, served = 0;
    for (uint64_t n = 1; served < 3; n++) {
        struct plm_host_stats before, after;
        plim_request *request = NULL;
        struct answer a = {0};
        plim_error err = PLIM_INIT(plim_error);
        plim_request_opts_init(&q);
        q.prompt = "a prompt that is cut into many tokens, and so takes several steps";
        q.prompt_len = strlen(q.prompt);
        q.max_tokens = 30;
        q.n = 2;
        q.ignore_eos = 1;
        q.stop = &stop;
        q.n_stop = 1;
        q.logit_bias = &bias;
        q.n_logit_bias = 1;
        plm_host_read(host, &before);
        plm_host_fail_nth(host, n, 0);
        int r = plim_request_submit(engine, &q, &request, &err);
        if (r != PLIM_OK) {
            plm_host_fail_nth(host, 0, 0);
            ck_assert_int_eq(r, PLIM_ERR_NOMEM_HOST);
            ck_assert_ptr_null(request);
            failed++;
        } else { // fails while it runs, or not at all
            run_until_done(engine, request, 0, &a);
            plm_host_fail_nth(host, 0, 0);
            ck_assert(a.status == PLIM_OK || a.status == PLIM_ERR_NOMEM_HOST);
            served += a.status == PLIM_OK;
            failed += a.status != PLIM_OK;
            plim_request_free(request);
        }
        plim_engine_step(engine, NULL);
        plm_host_read(host, &after);
        // Buffers that the engine keeps may have grown; requests leave nothing.
        ck_assert_int_eq(after.owner_bytes[PLM_HOST_REQUEST], before.owner_bytes[PLM_HOST_REQUEST]);
        plim_metrics m = PLIM_INIT(plim_metrics);
        plim_engine_metrics(engine, &m);
        ck_assert_uint_eq(m.blocks_used, 0);
        ck_assert_uint_lt(n, 1000);
    }
    ck_assert_uint_gt(failed, 5);
    plim_engine_free(engine);
}
END_TEST

static char *many_messages(uint32_t n, size_t *ret_len)
{
    static const char one[] = "{\"role\":\"user\",\"content\":\"a\"},";
    static const char head[] = "{\"messages\":[",
                      tail[] = "{\"role\":\"user\",\"content\":\"a\"}]}";
    char *text = malloc(sizeof(head) + sizeof(tail) + n * sizeof(one)), *at = text;
    ck_assert_ptr_nonnull(text);
    at += sprintf(at, "%s", head);
    for (uint32_t i = 0; i < n; i++)
        at += sprintf(at, "%s", one);
    at += sprintf(at, "%s", tail);
    *ret_len = (size_t)(at - text);
    return text;
}

// What is too large for an idle engine is NEVER, what is too large beside others is NOW.
START_TEST(host_memory_tells_never_from_now)
{
    plim_engine_opts o;
    plim_request_opts q;
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plim_metrics m = PLIM_INIT(plim_metrics);
    size_t len;
    base_opts(&o, &models[0]);
    o.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    plim_engine *engine = create(&o);
    plim_engine_metrics(engine, &m);
    const int64_t idle = m.host_used_bytes;
    ck_assert_int_eq(m.host_idle_bytes, idle);
    char *chat = many_messages(50000, &len);
    plim_request_opts_init(&q);
    q.chat_json = chat;
    q.chat_json_len = len;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_NOMEM_NEVER);
    ck_assert_str_eq(err.term, "host");
    ck_assert_str_eq(err.param, "messages");
    ck_assert_int_eq(err.limit_bytes, m.host_limit_bytes);
    ck_assert_int_gt(err.needed_bytes, err.limit_bytes);
    ck_assert_int_eq(err.retry_after_s, 0);
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, NULL), PLIM_ERR_NOMEM_NEVER);
    free(chat);
    // About a third of the budget: by itself it is only too long.
    chat = many_messages(15000, &len);
    q.chat_json = chat;
    q.chat_json_len = len;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_CONTEXT);
    ck_assert_int_eq(plim_engine_host_charge(engine, m.host_limit_bytes / 10 * 9 - idle), PLIM_OK);
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_NOMEM_HOST);
    ck_assert_str_eq(err.term, "host");
    ck_assert_int_gt(err.needed_bytes, err.limit_bytes);
    ck_assert_int_gt(err.alone_bytes, idle);
    ck_assert_int_le(err.alone_bytes, err.limit_bytes);
    ck_assert_int_ge(err.retry_after_s, 1);
    // What the caller holds for it counts.
    q.host_charged_bytes = (uint64_t)m.host_limit_bytes / 10 * 9;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_NOMEM_NEVER);
    free(chat);
    plim_engine_host_discharge(engine, m.host_limit_bytes / 10 * 9 - idle);
    plim_engine_metrics(engine, &m);
    ck_assert_int_eq(m.host_used_bytes, idle);
    ck_assert_uint_eq(m.rejected_never, 3);
    ck_assert_uint_eq(m.rejected_now, 1);
    plim_engine_free(engine);
}
END_TEST

// A prompt beyond any context is told so without being tokenized.
START_TEST(too_long_is_said_before_tokens_are_held)
{
    plim_engine_opts o;
    plim_request_opts q;
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    const size_t len = 16 << 20;
    base_opts(&o, &models[0]);
    plim_engine *engine = create(&o);
    char *text = malloc(len);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < len; i++)
        text[i] = "the sea "[i % 8];
    plim_request_opts_init(&q);
    q.prompt = text;
    q.prompt_len = len;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_CONTEXT);
    ck_assert_str_eq(err.term, "context");
    ck_assert_int_gt(err.n_prompt_tokens, err.n_ctx);
    ck_assert_int_eq(err.n_ctx, 512);
    ck_assert_ptr_nonnull(strstr(err.message, "at least"));
    ck_assert_int_gt(err.offer_prompt_tokens, 0);
    // Never more than there are.
    size_t n = 0;
    q.prompt_len = 100000;
    ck_assert_int_eq(plim_request_submit(engine, &q, &request, &err), PLIM_ERR_CONTEXT);
    plim_tokenize(engine, text, q.prompt_len, true, true, NULL, 0, &n, NULL);
    ck_assert_int_le(err.n_prompt_tokens, (int64_t)n);
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &m);
    ck_assert_uint_eq(m.rejected_context, 2);
    free(text);
    plim_engine_free(engine);
}
END_TEST

START_TEST(create_names_what_is_wrong)
{
    plim_engine_opts o;
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    base_opts(&o, &models[0]);
    o.model_path = "/nowhere/model.gguf";
    ck_assert_int_lt(plim_engine_create(&o, &engine, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.message, "/nowhere/model.gguf"));
    base_opts(&o, &models[0]);
    o.memory_fraction = NAN;
    ck_assert_int_eq(plim_engine_create(&o, &engine, &err), PLIM_ERR_INVALID);
    ck_assert_str_eq(err.param, "memory_fraction");
    o.memory_fraction = 1.5;
    ck_assert_int_eq(plim_engine_create(&o, &engine, &err), PLIM_ERR_INVALID);
    base_opts(&o, &models[0]);
    o.ctx_size = 100000;
    ck_assert_int_eq(plim_engine_create(&o, &engine, &err), PLIM_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "100000"));
    base_opts(&o, &models[0]);
    o.device = "abacus";
    ck_assert_int_lt(plim_engine_create(&o, &engine, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.message, "abacus"));
    base_opts(&o, &models[0]);
    o.host_limit_bytes = 10000;
    ck_assert_int_eq(plim_engine_create(&o, &engine, &err), PLIM_ERR_NOMEM_HOST);
    ck_assert_ptr_nonnull(strstr(err.message, "host_limit_bytes at least "));
    ck_assert_int_gt(err.needed_bytes, err.limit_bytes);
    ck_assert_ptr_null(engine);
}
END_TEST

// The n-th host allocation of a start fails, for every n up to the last.
START_TEST(create_survives_every_failed_allocation)
{
    plim_engine_opts o, read;
    base_opts(&o, &models[0]);
    ck_assert_int_eq(plm_opts_read(&o, &read, NULL), PLIM_OK);
    for (uint64_t n = 1;; n++) {
        struct plm_host *host = plm_host_create(0);
        plim_engine *engine = NULL;
        plim_error err = PLIM_INIT(plim_error);
        plm_host_fail_nth(host, n, 0);
        const struct plm_engine_env env = {.host = host};
        int r = plm_engine_create_in(&env, &read, &engine, &err);
        plm_host_fail_nth(host, 0, 0);
        if (r == PLIM_OK) {
            struct plm_host_stats stats;
            plm_host_read(host, &stats);
            plim_engine_free(engine); // destroys the host
            if (n > stats.allocations) {
                ck_assert_uint_gt(n, 100);
                return;
            }
            continue; // one that can be done without
        }
        ck_assert_ptr_null(engine);
        if (r != PLM_ERR_NOMEM_HOST)
            ck_abort_msg("allocation %llu: %d %s", (unsigned long long)n, r, err.message);
        ck_assert_int_eq(plm_host_destroy(host), 0);
        ck_assert_uint_lt(n, 100000);
    }
}
END_TEST

// ---- logits that are no numbers ----

// A copy of an untied model whose embedding of one token is NaN.
static void poison_model(const char *path, int32_t token)
{
    char from[512];
    snprintf(from, sizeof(from), "%s/%s", TEST_MODELS, "qwen2-untied-q4_1.gguf");
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *gguf;
    ck_assert_int_eq(plm_gguf_open(host, from, &gguf, NULL), PLM_OK);
    const struct plm_gguf_tensor *t = plm_gguf_tensor_find(gguf, "token_embd.weight");
    uint64_t row = t->bytes / t->ne[1], offset = t->offset + row * (uint64_t)token;
    plm_gguf_close(gguf);
    plm_host_destroy(host);
    FILE *in = fopen(from, "rb"), *out = fopen(path, "wb");
    static char bytes[1 << 20];
    size_t n = fread(bytes, 1, sizeof(bytes), in);
    memcpy(bytes + offset, "\x00\x7E", 2); // the scale of its first block: a float16 NaN
    ck_assert_uint_eq(fwrite(bytes, 1, n, out), n);
    fclose(in);
    fclose(out);
}

START_TEST(nan_ends_its_own_request_alone)
{
    plim_engine_opts o;
    plim_request_opts q, bad;
    struct answer want, got, poisoned;
    char path[] = "/tmp/plimsoll-nan-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    poison_model(path, 251);
    base_opts(&o, &models[1]);
    prompt_opts(&q, 100);
    alone(&o, &q, &want);
    o.model_path = path;
    o.max_total_tokens = 512; // blocks are used again soon
    o.prefix_cache = 0;
    plim_engine *engine = create(&o);
    static int32_t tokens[100];
    memcpy(tokens, prompt_tokens, sizeof(tokens));
    tokens[50] = 251;
    for (uint32_t turn = 0; turn < 4; turn++) {
        bad = q;
        bad.tokens = tokens;
        bad.n_tokens = 60 + 9 * turn;
        plim_request *first = submit(engine, &bad), *request = submit(engine, &q);
        run_until_done(engine, request, 0, &got);
        memset(&poisoned, 0, sizeof(poisoned));
        collect(first, 0, &poisoned);
        ck_assert(poisoned.done);
        ck_assert_int_eq(poisoned.status, PLIM_ERR_NUMERIC);
        ck_assert_uint_eq(poisoned.n, 0);
        same_answer(&want, &got, "beside NaN, and in blocks that held it");
        plim_request_free(first);
        plim_request_free(request);
    }
    plim_engine_free(engine);
    remove(path);
}
END_TEST

// A model that says too little of its logits writes into the guard: counted, and planned from then
// on: the guard lies behind what was found, and the inputs behind it are whole. What is more than
// that is found and counted again.
START_TEST(the_audit_sees_what_was_not_planned)
{
    plim_engine_opts o;
    plim_request_opts q;
    struct answer got;
    plim_metrics m = PLIM_INIT(plim_metrics);
    base_opts(&o, &models[0]);
    prompt_opts(&q, 20);
    plim_engine *engine = create(&o);
    plim_request *request = submit(engine, &q);
    run_until_done(engine, request, 0, &got);
    plim_request_free(request);
    plim_engine_metrics(engine, &m);
    ck_assert_uint_eq(m.audit_excess, 0);
    for (uint32_t found = 1; found <= 3; found++) {
        engine->core->model->cost.buffers[PLM_BUF_LOGITS].per_logits_row -= PLM_COST_GUARD_BYTES;
        request = submit(engine, &q);
        run_until_done(engine, request, 0, &got);
        plim_request_free(request);
        plim_engine_metrics(engine, &m);
        ck_assert_uint_eq(m.audit_excess, found);
        ck_assert_int_eq(engine->gate.floor_bytes, found * PLM_COST_GUARD_BYTES);
    }
    plim_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine");
    TCase *tc = tcase_create("engine");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, chunks_do_not_show, 0, N_MODELS);
    tcase_add_loop_test(tc, neighbours_do_not_show, 0, N_MODELS);
    tcase_add_loop_test(tc, the_prefix_cache_does_not_show, 0, N_MODELS);
    // The last model has windows alone: its sequences need no more blocks as they grow.
    tcase_add_loop_test(tc, preemption_does_not_show, 0, N_MODELS - 1);
    tcase_add_loop_test(tc, choices_are_what_they_would_be_alone, 0, N_MODELS);
    tcase_add_test(tc, stop_strings_are_cut_off);
    tcase_add_test(tc, a_text_ends_before_half_a_character);
    tcase_add_test(tc, stop_tokens_end_an_answer);
    tcase_add_test(tc, generation_ends_where_it_should);
    tcase_add_test(tc, bad_requests_are_refused_by_name);
    tcase_add_test(tc, the_queue_is_bounded);
    tcase_add_test(tc, cancel_frees_blocks_in_every_state);
    tcase_add_test(tc, waiting_too_long_is_a_refusal);
    tcase_add_test(tc, one_loop_serves_all);
    tcase_add_test(tc, work_ends_when_nobody_wants_it);
    tcase_add_test(tc, many_threads_submit_and_cancel);
    tcase_add_test(tc, submit_survives_every_failed_allocation);
    tcase_add_test(tc, host_memory_tells_never_from_now);
    tcase_add_test(tc, too_long_is_said_before_tokens_are_held);
    tcase_add_test(tc, create_names_what_is_wrong);
    tcase_add_test(tc, create_survives_every_failed_allocation);
    tcase_add_test(tc, nan_ends_its_own_request_alone);
    tcase_add_test(tc, the_audit_sees_what_was_not_planned);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
