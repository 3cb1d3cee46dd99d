// SPDX-License-Identifier: Apache-2.0
// Words that are never completed: their tokens do not come one after the other, while those before
// the last one still may.
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "core/plimsoll.h"
#include "tests/support/suite.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

enum {
    CONTEXT = 128, // tokens
    PROMPTS = 60,  // of which some are answered with what is spelled as their words are
    PROMPT = 6,
    ANSWER = 24,
};

static plim_engine *engine;

static void set_up(void)
{
    plim_engine_opts o;
    plim_error err = PLIM_INIT(plim_error);
    plim_engine_opts_init(&o);
    o.model_path = TEST_MODELS "/llama-tied-q4_1.gguf";
    o.threads = 1;
    o.ctx_size = CONTEXT;
    o.manual_step = 1;
    o.memory_limit_bytes = UINT64_C(512) << 20;
    ck_assert_msg(plim_engine_create(&o, &engine, &err) == PLIM_OK, "%s", err.message);
}

static void tear_down(void)
{
    plim_engine_free(engine);
}

static void answer(uint32_t prompt, const plim_text *words, size_t n_words, int32_t ret[ANSWER])
{
    int32_t tokens[PROMPT];
    plim_request_opts q;
    plim_request *request = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plim_event e = PLIM_INIT(plim_event);
    uint32_t n = 0;
    bool done = false;
    for (uint32_t i = 0; i < PROMPT; i++)
        tokens[i] = (int32_t)((i * 37 + prompt * 11) % 250);
    plim_request_opts_init(&q);
    q.tokens = tokens;
    q.n_tokens = PROMPT;
    q.max_tokens = ANSWER;
    q.ignore_eos = 1;
    q.temperature = 0;
    q.bad_words = words;
    q.n_bad_words = n_words;
    ck_assert_msg(plim_request_submit(engine, &q, &request, &err) == PLIM_OK, "%s", err.message);
    while (!done) {
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        while (plim_request_next(request, 0, &e) == PLIM_OK) {
            if (e.type == PLIM_EVENT_TOKEN && n < ANSWER)
                ret[n++] = e.token;
            done = done || e.type == PLIM_EVENT_DONE;
        }
    }
    ck_assert_int_eq(e.status, PLIM_OK);
    ck_assert_uint_eq(n, ANSWER);
    plim_request_free(request);
}

// The text of these tokens; false where it is encoded as others, or as spaces alone.
static bool spell(const int32_t *tokens, size_t n, char text[64], plim_text *ret)
{
    int32_t again[8];
    size_t need = 0, found = 0;
    plim_error err = PLIM_INIT(plim_error);
    if (plim_detokenize(engine, tokens, n, text, 64, &need, &err) != PLIM_OK || text[0] == ' ')
        return false;
    *ret = (plim_text){text, strlen(text)};
    return ret->len > 0 &&
           plim_tokenize(engine, text, ret->len, false, false, again, 8, &found, &err) == PLIM_OK &&
           found == n && memcmp(again, tokens, n * sizeof(*tokens)) == 0;
}

static uint32_t count(const int32_t *tokens, const int32_t *word, uint32_t n)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i + n <= ANSWER; i++)
        found += memcmp(tokens + i, word, n * sizeof(*word)) == 0;
    return found;
}

START_TEST(a_word_is_never_completed)
{
    const uint32_t length = (uint32_t)_i;
    uint32_t words = 0;
    set_up();
    for (uint32_t prompt = 0; prompt < PROMPTS; prompt++) {
        int32_t free_tokens[ANSWER], tokens[ANSWER];
        char text[64];
        plim_text word[2] = {{"zzz", 3}};
        answer(prompt, NULL, 0, free_tokens);
        if (!spell(free_tokens, length, text, &word[1]))
            continue;
        words++;
        answer(prompt, word, 2, tokens);
        ck_assert_uint_eq(count(tokens, free_tokens, length), 0);
        ck_assert_mem_eq(tokens, free_tokens, (length - 1) * sizeof(*tokens));
        ck_assert_int_ne(tokens[length - 1], free_tokens[length - 1]);
    }
    ck_assert_uint_gt(words, 3);
    tear_down();
}
END_TEST

// "x" with a space before it is another token where the vocabulary has one, and as bad; a word that
// begins with spaces is the same as without.
START_TEST(spaces_before_a_word_do_not_count)
{
    int32_t plain[ANSWER], spaced[ANSWER];
    const plim_text words[] = {{"e", 1}, {"  e", 3}};
    set_up();
    for (uint32_t prompt = 0; prompt < 8; prompt++) {
        answer(prompt, &words[0], 1, plain);
        answer(prompt, &words[1], 1, spaced);
        ck_assert_mem_eq(plain, spaced, sizeof(plain));
    }
    tear_down();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bad_words");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, a_word_is_never_completed, 1, 4);
    tcase_add_test(tc, spaces_before_a_word_do_not_count);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
