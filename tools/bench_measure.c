// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_measure.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/term.h"

// Ids without meaning: speed does not depend on them. The same in every run (Knuth's MMIX numbers).
static void random_tokens(struct plm_bench *bench, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bench->random =
            bench->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bench->tokens[i] = (int32_t)((bench->random >> 33) % bench->model.n_vocab);
    }
}

// One request of a run, with its times relative to the start of the run.
struct user {
    plim_request *request;
    uint32_t prompt, predict;
    double submitted_s, first_s, last_s, prefill_s;
};

static int submit(struct plm_bench *bench, const struct plm_bench_case *what, struct user *user,
                  plim_error *err)
{
    plim_request_opts ask;
    plim_request_opts_init(&ask);
    random_tokens(bench, user->prompt);
    ask.tokens = bench->tokens;
    ask.n_tokens = user->prompt;
    ask.max_tokens = user->predict + 1; // the first one belongs to the prompt
    ask.ignore_eos = 1;
    ask.temperature = what->temperature;
    ask.cache_prompt = 0;
    return plim_request_submit(bench->engine, &ask, &user->request, err);
}

// Takes the events of a request until one of this type.
static int wait_for(struct user *user, enum plim_event_type type, plim_event *ret, plim_error *err)
{
    int r;
    *ret = (plim_event)PLIM_INIT(plim_event);
    while ((r = plim_request_next(user->request, -1, ret)) == PLIM_OK &&
           ret->type != (int32_t)type && ret->type != PLIM_EVENT_DONE)
        ;
    if (r != PLIM_OK)
        return r;
    if (ret->type == PLIM_EVENT_DONE && ret->status != PLIM_OK) {
        if (ret->error != NULL)
            *err = *ret->error;
        return ret->status;
    }
    return PLIM_OK;
}

static int wait_done(struct user *user, plim_error *err)
{
    plim_event event;
    int r = wait_for(user, PLIM_EVENT_DONE, &event, err);
    if (r != PLIM_OK)
        return r;
    if (event.completion_tokens != user->predict + 1) {
        snprintf(err->message, sizeof(err->message), "a request ended after %u of %u tokens",
                 event.completion_tokens, user->predict + 1);
        return PLIM_ERR_INTERNAL;
    }
    user->prefill_s = event.prefill_s;
    user->first_s = user->submitted_s + event.queue_s + event.prefill_s;
    user->last_s = user->first_s + event.decode_s;
    return PLIM_OK;
}

static uint64_t generated(const struct plm_bench *bench)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(bench->engine, &m);
    return m.generated_tokens;
}

// Tokens that the first user gets while prompts of the others are still read: one a step, and a
// step takes a batch of their rows. Twice that, since steps may hold less.
static uint32_t early_tokens(const struct plm_bench_case *what, uint32_t batch_max_tokens)
{
    const uint64_t rows = (uint64_t)what->users * what->prompt;
    return what->kind == PLM_BENCH_USERS ? (uint32_t)(2 * rows / batch_max_tokens) + what->users
                                         : 0;
}

// From the moment when every user has its first token to when the first one ends: all of them
// decode in between, and nobody reads a prompt.
static int window(const struct plm_bench *bench, struct user *users, uint32_t n, double *ret_s,
                  double *ret_tokens, plim_error *err)
{
    int r = PLIM_OK;
    plim_event event;
    for (uint32_t i = 0; i < n && r == PLIM_OK; i++)
        r = wait_for(&users[i], PLIM_EVENT_TOKEN, &event, err);
    const double from = plm_term_now_s();
    const uint64_t before = generated(bench);
    if (r == PLIM_OK)
        r = wait_for(&users[0], PLIM_EVENT_DONE, &event, err);
    *ret_s = plm_term_now_s() - from;
    *ret_tokens = (double)(generated(bench) - before);
    if (r == PLIM_OK && *ret_tokens < n) {
        snprintf(err->message, sizeof(err->message),
                 "the first of %u users ended before all of them decoded", n);
        r = PLIM_ERR_INTERNAL;
    }
    return r;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int until_all_ended(struct plm_bench_case *what, struct user *users, double *ret_s,
                           double *ret_tokens, plim_error *err)
{
    double *firsts = calloc(what->users, sizeof(*firsts));
    int r = firsts != NULL ? PLIM_OK : PLIM_ERR_NOMEM_HOST;
    *ret_s = *ret_tokens = what->prompts_n = 0;
    for (uint32_t i = 0; i < what->users && r == PLIM_OK; i++) {
        r = wait_done(&users[i], err);
        if (r != PLIM_OK)
            break;
        firsts[i] = users[i].first_s - users[i].submitted_s;
        *ret_s = fmax(*ret_s, users[i].last_s);
        *ret_tokens += users[i].predict + 1;
        what->prompts_n += users[i].prompt;
    }
    if (r == PLIM_OK) {
        qsort(firsts, what->users, sizeof(*firsts), compare);
        what->first_s = firsts[what->users / 2];
    }
    free(firsts);
    return r;
}

// An eighth of the whole, two eighths, ... in an order that is not sorted; at least one.
static uint32_t share(uint32_t whole, uint32_t eighths)
{
    const uint32_t part = (uint32_t)((uint64_t)whole * (eighths % 8 + 1) / 8);
    return part > 0 ? part : 1;
}

static int run_once(struct plm_bench *bench, struct plm_bench_case *what, struct user *users,
                    double *ret_s, double *ret_tokens, plim_error *err)
{
    const bool mixed = what->kind == PLM_BENCH_MIXED;
    const double start = plm_term_now_s();
    int r = PLIM_OK;
    uint32_t n = 0;
    for (; n < what->users && r == PLIM_OK; n += r == PLIM_OK) {
        struct user *user = &users[n];
        user->prompt = mixed ? share(what->prompt, 3 * n) : what->prompt;
        user->predict = mixed ? share(what->predict, 5 * n + 2) : what->predict;
        user->predict += early_tokens(what, bench->batch_max_tokens);
        user->submitted_s = plm_term_now_s() - start;
        r = submit(bench, what, user, err);
    }
    if (r == PLIM_OK && what->kind == PLM_BENCH_USERS)
        r = window(bench, users, n, ret_s, ret_tokens, err);
    else if (r == PLIM_OK && mixed)
        r = until_all_ended(what, users, ret_s, ret_tokens, err);
    else if (r == PLIM_OK && (r = wait_done(&users[0], err)) == PLIM_OK) {
        const bool decodes = what->kind == PLM_BENCH_DECODE;
        *ret_s = decodes ? users[0].last_s - users[0].first_s : users[0].prefill_s;
        *ret_tokens = decodes ? what->predict : what->prompt;
    }
    for (uint32_t i = 0; i < n; i++)
        plim_request_free(users[i].request);
    return r;
}

uint32_t plm_bench_context(const struct plm_bench_case *what, uint32_t batch_max_tokens)
{
    return what->prompt + what->predict + early_tokens(what, batch_max_tokens) + 1;
}

int plm_bench_measure(struct plm_bench *bench, struct plm_bench_case *what, uint32_t repetitions,
                      double until_s, plim_error *err)
{
    struct user *users = calloc(what->users, sizeof(*users));
    what->seconds = calloc(repetitions, sizeof(*what->seconds));
    what->tokens = calloc(repetitions, sizeof(*what->tokens));
    int r = users != NULL && what->seconds != NULL && what->tokens != NULL ? PLIM_OK
                                                                           : PLIM_ERR_NOMEM_HOST;
    bool late = false;
    for (uint32_t i = 0; i <= repetitions && r == PLIM_OK && !late; i++) {
        double seconds = 0, tokens = 0;
        r = run_once(bench, what, users, &seconds, &tokens, err);
        late = plm_term_now_s() >= until_s;
        if (r != PLIM_OK || (i == 0 && !late)) // the first run warms up
            continue;
        what->seconds[what->n] = seconds;
        what->tokens[what->n++] = tokens;
    }
    free(users);
    return r;
}
