// SPDX-License-Identifier: Apache-2.0
// A request on its way in: validate, render, tokenize, ask admission.c and queue it, all on the
// caller's thread.
#include "core/engine/request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/fault_seed.h"
#include "core/base/random.h"
#include "core/base/utf8.h"
#include "core/base/work.h"
#include "core/engine/admission.h"
#include "core/engine/engine.h"
#include "core/engine/error.h"
#include "core/engine/event.h"
#include "core/engine/recorder.h"
#include "core/engine/request_check.h"
#include "core/engine/structs.h"
#include "core/engine/text.h"

// Unread tokens of each choice that a request has room for from its start. A reader that keeps up
// has a few; one that falls further behind takes of what the budget has left.
#define EVENT_TOKENS 256u
// Of one token's text there, or held back: texts have about four bytes a token, runs of blanks and
// the longest words of a vocabulary more.
#define EVENT_TEXT_BYTES 16
#define HELD_TEXT_BYTES  512

// Of a bad word for each of its bytes, in both spellings: a token has a byte at least, and a count
// stands before them.
#define BAD_TOKENS 3

_Static_assert(sizeof(struct plm_sample_top) == sizeof(plim_logprob), "handed out as it is");
_Static_assert((int)PLM_SAMPLE_TOP_MAX == (int)PLIM_TOP_LOGPROBS_MAX, "one limit");

void plim_request_opts_init_sized(plim_request_opts *opts, size_t opts_bytes)
{
    const plim_request_opts defaults = {.struct_size = sizeof(defaults),
                                        .n = 1,
                                        .prompt_parse_special = 1,
                                        .temperature = 1.0f,
                                        .top_p = 1.0f,
                                        .repeat_penalty = 1.0f,
                                        .cache_prompt = 1};
    plm_struct_init(opts, opts_bytes, &defaults, sizeof(defaults));
}

// ---- what a request needs of the host budget, to its end ----

static bool has_logprobs(const plim_request_opts *o)
{
    return o->logprobs != 0 || o->top_logprobs > 0;
}

static size_t longest_stop(const plim_request_opts *o)
{
    size_t longest = 0;
    for (size_t i = 0; i < o->n_stop; i++)
        longest = o->stop[i].len > longest ? o->stop[i].len : longest;
    return longest;
}

// Of one token's event, and of a choice's last one with the text that was held back.
static size_t event_bytes(const plim_request_opts *o)
{
    return plm_events_bytes(has_logprobs(o) ? o->top_logprobs : 0, EVENT_TEXT_BYTES);
}

static size_t last_event_bytes(const plim_request_opts *o)
{
    return plm_events_bytes(0, longest_stop(o) + 4 * EVENT_TEXT_BYTES);
}

// Of each of the two buffers of events.
static size_t events_bytes(const plim_request_opts *o, uint32_t max_output)
{
    const size_t tokens = max_output < EVENT_TOKENS ? max_output : EVENT_TOKENS;
    return plm_events_bytes(0, 0) + o->n * (tokens * event_bytes(o) + last_event_bytes(o));
}

// Beyond it a caller's wish is a slip, and sums of it stay within 64 bits.
#define CALLER_BYTES_MAX (UINT64_C(1) << 40)

static int64_t caller_bytes(uint64_t bytes)
{
    return (int64_t)(bytes < CALLER_BYTES_MAX ? bytes : CALLER_BYTES_MAX);
}

// What the caller is to have for the answer.
static int64_t reserved_bytes(const plim_request_opts *o, uint32_t max_output)
{
    const __int128 bytes = (__int128)caller_bytes(o->host_token_bytes) * o->n * max_output +
                           caller_bytes(o->host_answer_bytes);
    return bytes < INT64_MAX / 4 ? (int64_t)bytes : INT64_MAX / 4;
}

// That one choice holds back at most.
static size_t held_bytes(uint32_t longest_stop)
{
    return longest_stop + HELD_TEXT_BYTES;
}

// The same for admission, which decides before the output is known.
static void host_needs(const plim_request_opts *o, uint32_t n_eog, struct plm_admit_request *ret)
{
    uint64_t bytes = sizeof(struct plim_request) + o->n_stop * sizeof(struct plm_slice) +
                     o->n_logit_bias * sizeof(struct plm_sample_bias) + 5 * PLM_HOST_HEAD_BYTES +
                     2 * plm_events_bytes(0, 0) + 2;
    for (size_t i = 0; i < o->n_stop; i++)
        bytes += o->stop[i].len * (1 + sizeof(uint16_t));
    if (o->n_stop_tokens > 0)
        bytes += (o->n_stop_tokens + n_eog) * sizeof(int32_t) + PLM_HOST_HEAD_BYTES;
    // A list of tokens that may have grown to twice its length, and what encoding one word takes.
    for (size_t i = 0; i < o->n_bad_words; i++)
        bytes += 2 * BAD_TOKENS * (o->bad_words[i].len + 2) * sizeof(int32_t);
    if (o->n_bad_words > 0)
        bytes += BAD_TOKENS * PLM_REQUEST_TEXT_BYTES * sizeof(int32_t) + 2 * PLM_HOST_HEAD_BYTES;
    ret->host_bytes = (int64_t)bytes + caller_bytes(o->host_answer_bytes);
    ret->host_choice_bytes = 2 * (int64_t)last_event_bytes(o);
    if (o->n_stop > 0)
        ret->host_choice_bytes +=
            (int64_t)held_bytes((uint32_t)longest_stop(o)) + 1 + PLM_HOST_HEAD_BYTES;
    ret->host_event_bytes = 2 * (int64_t)event_bytes(o);
    ret->host_output_bytes = caller_bytes(o->host_token_bytes);
}

// ---- building ----

static void request_free(struct plim_request *request)
{
    struct plm_host *host = request->engine->core->host;
    for (uint32_t i = 0; i < request->n; i++) {
        plm_free(host, request->choices[i].seq.tokens);
        plm_buf_finish(&request->choices[i].held);
    }
    plm_events_finish(&request->events);
    plm_host_discharge(host, PLM_HOST_REQUEST, request->reserved_bytes);
    plm_free(host, request->bias);
    plm_tokens_finish(&request->bad);
    plm_free(host, request->stops);
    plm_free(host, request->stop_tokens);
    plm_free(host, request);
}

void plm_request_unref(struct plim_request *request)
{
    if (atomic_fetch_sub(&request->refs, 1) == 1)
        request_free(request);
}

static bool copy_stop_tokens(struct plim_request *request, const plim_request_opts *o)
{
    const struct plm_core *core = request->engine->core;
    if (o->n_stop_tokens == 0)
        return true;
    request->n_stop_tokens = (uint32_t)o->n_stop_tokens;
    request->n_masked = request->n_stop_tokens + core->n_eog;
    request->stop_tokens =
        plm_calloc(core->host, PLM_HOST_REQUEST, request->n_masked, sizeof(int32_t));
    if (request->stop_tokens == NULL)
        return false;
    memcpy(request->stop_tokens, o->stop_tokens, o->n_stop_tokens * sizeof(int32_t));
    memcpy(request->stop_tokens + o->n_stop_tokens, core->eog, core->n_eog * sizeof(int32_t));
    return true;
}

// Appends the tokens of `text` behind their number. Where there is an `other` place of the list,
// they count only if they are as many as those there and begin with another one.
static int add_bad(struct plim_request *request, struct plm_slice text, size_t other)
{
    const struct plm_core *core = request->engine->core;
    struct plm_tokens *bad = &request->bad;
    const size_t at = bad->n;
    const int32_t none = 0;
    struct plm_error why;
    int r = plm_tokens_append(bad, &none, 1);
    if (r == PLM_OK)
        r = plm_tokenizer_encode(core->tokenizer, text, 0, bad, &why);
    if (r != PLM_OK)
        return r;
    bad->ids[at] = (int32_t)(bad->n - at - 1);
    if (bad->ids[at] == 0 || (other != at && (bad->ids[other] != bad->ids[at] ||
                                              bad->ids[other + 1] == bad->ids[at + 1])))
        bad->n = at;
    return PLM_OK;
}

static bool copy_bad_words(struct plim_request *request, const plim_request_opts *o)
{
    char spaced[PLM_REQUEST_TEXT_BYTES + 1];
    int r = PLM_OK;
    for (size_t i = 0; i < o->n_bad_words && r == PLM_OK; i++) {
        struct plm_slice word = {o->bad_words[i].ptr, o->bad_words[i].len};
        const size_t at = request->bad.n;
        while (word.len > 1 && word.ptr[0] == ' ')
            word = (struct plm_slice){word.ptr + 1, word.len - 1};
        r = add_bad(request, word, at);
        spaced[0] = ' ';
        memcpy(spaced + 1, word.ptr, word.len);
        if (r == PLM_OK && request->bad.n > at)
            r = add_bad(request, (struct plm_slice){spaced, word.len + 1}, at);
    }
    return r == PLM_OK;
}

// For each byte of a stop string, how many bytes before its end (that one included) are the
// string's own beginning as well: where a match goes on after a byte that does not fit.
static void find_borders(struct plm_slice stop, uint16_t *borders)
{
    uint16_t n = 0;
    borders[0] = 0;
    for (size_t i = 1; i < stop.len; i++) {
        while (n > 0 && stop.ptr[n] != stop.ptr[i])
            n = borders[n - 1];
        n = (uint16_t)(n + (stop.ptr[n] == stop.ptr[i]));
        borders[i] = n;
    }
}

static bool copy_stops(struct plim_request *request, const plim_request_opts *o)
{
    size_t total = 0;
    for (size_t i = 0; i < o->n_stop; i++)
        total += o->stop[i].len;
    if (total == 0)
        return true;
    // The strings' slices, their borders, and their bytes.
    request->stops =
        plm_calloc(request->engine->core->host, PLM_HOST_REQUEST, 1,
                   o->n_stop * sizeof(*request->stops) + total * (1 + sizeof(*request->borders)));
    if (request->stops == NULL)
        return false;
    request->borders = (uint16_t *)(request->stops + o->n_stop);
    char *at = (char *)(request->borders + total);
    uint16_t *borders = request->borders;
    for (size_t i = 0; i < o->n_stop; i++) {
        memcpy(at, o->stop[i].ptr, o->stop[i].len);
        request->stops[i] = (struct plm_slice){at, o->stop[i].len};
        find_borders(request->stops[i], borders);
        at += o->stop[i].len;
        borders += o->stop[i].len;
    }
    request->n_stops = (uint32_t)o->n_stop;
    return true;
}

static bool copy_lists(struct plim_request *request, const plim_request_opts *o)
{
    struct plm_host *host = request->engine->core->host;
    if (!copy_stops(request, o) || !copy_bad_words(request, o))
        return false;
    if (o->n_logit_bias > 0) {
        request->bias = plm_calloc(host, PLM_HOST_REQUEST, o->n_logit_bias, sizeof(*request->bias));
        if (request->bias == NULL)
            return false;
        for (size_t i = 0; i < o->n_logit_bias; i++)
            request->bias[i] =
                (struct plm_sample_bias){o->logit_bias[i].token, o->logit_bias[i].bias};
    }
    return true;
}

static bool build_choices(struct plim_request *request, const plim_request_opts *o,
                          const struct plm_tokens *prompt, uint32_t max_output)
{
    struct plm_core *core = request->engine->core;
    const struct plm_prefix_extra salt = {
        .tag = PLM_PREFIX_SALT,
        .data = o->cache_salt,
        .len = o->cache_salt != NULL ? (uint32_t)strlen(o->cache_salt) : 0};
    const struct plm_prefix_root root =
        plm_prefix_root(core->prefix, &salt, o->cache_salt != NULL ? 1 : 0);
    for (uint32_t i = 0; i < request->n; i++) {
        struct plm_choice *c = &request->choices[i];
        c->request = request;
        c->index = i;
        c->live = true;
        c->max_output = max_output;
        plm_buf_init(&c->held, core->host, PLM_HOST_REQUEST);
        // Not zeroed: pages that are never written to are not there.
        c->seq.tokens = plm_malloc(core->host, PLM_HOST_REQUEST,
                                   (prompt->n + (size_t)max_output) * sizeof(int32_t));
        if (c->seq.tokens == NULL ||
            (request->n_stops > 0 &&
             !plm_buf_reserve(&c->held, held_bytes((uint32_t)longest_stop(o)))))
            return false;
        memcpy(c->seq.tokens, prompt->ids, prompt->n * sizeof(int32_t));
        c->seq.n_tokens = c->seq.n_prompt = (uint32_t)prompt->n;
        c->seq.root = root;
        c->seq.use_cache = core->opts.prefix_cache && o->cache_prompt;
        c->seq.parent = i > 0 ? &request->choices[0].seq : NULL;
        c->seq.owner = c;
        c->seq.tenant = o->tenant;
        plm_detok_init(&c->detok, core->tokenizer, true, false);
    }
    return true;
}

static void fill_params(struct plim_request *request, const plim_request_opts *o)
{
    request->params = (struct plm_sample_params){
        .temperature = o->temperature,
        .top_p = o->top_p,
        .min_p = o->min_p,
        .top_k = o->top_k,
        .repeat_penalty = o->repeat_penalty,
        .frequency_penalty = o->frequency_penalty,
        .presence_penalty = o->presence_penalty,
        .seed = o->has_seed ? o->seed : plm_core_seed(request->engine->core),
        .bias = request->bias,
        .n_bias = (uint32_t)o->n_logit_bias,
        .bad = request->bad.ids,
        .n_bad = request->bad.n,
        .logprobs = has_logprobs(o),
        .top_logprobs = o->top_logprobs};
    request->user = o->user;
    request->min_tokens = o->min_tokens;
    request->ignore_eos = o->ignore_eos != 0;
    request->include_stop = o->include_stop != 0;
}

// NULL: no host memory.
static struct plim_request *build(plim_engine *engine, const plim_request_opts *o,
                                  const struct plm_tokens *prompt, uint32_t max_output)
{
    struct plm_host *host = engine->core->host;
    struct plim_request *request = plm_calloc(
        host, PLM_HOST_REQUEST, 1, sizeof(*request) + (size_t)o->n * sizeof(request->choices[0]));
    if (request == NULL)
        return NULL;
    request->engine = engine;
    atomic_init(&request->refs, 2);
    if (plm_events_init(&request->events, host, engine->core->clock, &engine->ready) != PLM_OK) {
        plm_free(host, request);
        return NULL;
    }
    request->n = request->n_live = o->n;
    request->n_prompt = (uint32_t)prompt->n;
    plm_tokens_init(&request->bad, host);
    for (uint32_t i = 0; i < o->n; i++)
        request->choices[i].held.host = host;
    if (!copy_lists(request, o) || !copy_stop_tokens(request, o) ||
        !build_choices(request, o, prompt, max_output) ||
        !plm_events_reserve(&request->events, events_bytes(o, max_output)) ||
        plm_host_charge(host, PLM_HOST_REQUEST, reserved_bytes(o, max_output)) != PLM_OK) {
        request_free(request);
        return NULL;
    }
    request->reserved_bytes = reserved_bytes(o, max_output);
    fill_params(request, o);
    return request;
}

// ---- admission ----

void plm_request_host_limits(struct plm_admit_limits *limits)
{
    limits->host_choice_bytes = sizeof(struct plm_choice) + PLM_HOST_HEAD_BYTES;
    limits->host_token_bytes = sizeof(int32_t);
    limits->host_event_tokens = EVENT_TOKENS;
}

static uint64_t record(plim_engine *engine, const struct plm_admit_request *ask, uint64_t seed,
                       int status)
{
    const struct plm_record r = {.kind = status == PLIM_OK ? PLM_RECORD_SUBMIT : PLM_RECORD_REFUSE,
                                 .a = ask->prompt_tokens,
                                 .b = ask->max_tokens,
                                 .n = (uint16_t)ask->n,
                                 .value = (int64_t)seed,
                                 .status = (int8_t)status};
    return plm_recorder_put(engine->recorder, &r);
}

static void enqueue(plim_engine *engine, struct plim_request *request)
{
    request->submit_ns = plm_now(engine->core->clock);
    pthread_mutex_lock(&engine->lock);
    // Arrival is what the lock says; choices of a request are in order between their neighbours.
    uint64_t order = engine->next_order++ * PLIM_N_MAX;
    for (uint32_t i = 0; i < request->n; i++)
        request->choices[i].seq.order = order + i;
    if (engine->inbox_tail != NULL)
        engine->inbox_tail->inbox_next = request;
    else
        engine->inbox_head = request;
    engine->inbox_tail = request;
    pthread_cond_signal(&engine->wake);
    pthread_mutex_unlock(&engine->lock);
}

// A prompt that was not tokenized, since it has at least so many tokens: more than the context.
static int refuse_long(plim_engine *engine, const plim_request_opts *o, uint64_t least,
                       plim_error *err) // not NULL
{
    // What is offered in its place will be held as tokens while it is checked.
    const int64_t offered = 2 * (int64_t)sizeof(int32_t) * engine->admission.limits.max_context;
    struct plm_admit_request ask = {.prompt_tokens =
                                        least < UINT32_MAX ? (uint32_t)least : UINT32_MAX,
                                    .max_tokens = o->max_tokens,
                                    .n = o->n};
    host_needs(o, engine->core->n_eog, &ask);
    ask.host_bytes += offered;
    struct plm_admit_result result;
    int r = plm_admission_check(engine, &ask, &result, err);
    record(engine, &ask, o->seed, r);
    if (r == PLIM_ERR_CONTEXT && o->tokens == NULL)
        snprintf(err->message, sizeof(err->message),
                 "the prompt has at least %u tokens, but the context has %u", ask.prompt_tokens,
                 engine->admission.limits.max_context);
    return r;
}

static int submit_tokens(plim_engine *engine, const plim_request_opts *o,
                         const struct plm_tokens *prompt, plim_request **ret, plim_error *err)
{
    if (prompt->n == 0)
        return plm_error_set(err, PLIM_ERR_INVALID, "prompt", "the prompt has no tokens");
    struct plm_admit_request ask = {
        .prompt_tokens = prompt->n < UINT32_MAX ? (uint32_t)prompt->n : UINT32_MAX,
        .max_tokens = o->max_tokens,
        .n = o->n,
        .ignores_end = o->ignore_eos != 0 && o->n_stop_tokens == 0,
        .host_held = (int64_t)(o->host_charged_bytes < INT64_MAX / 4 ? o->host_charged_bytes
                                                                     : INT64_MAX / 4)};
    host_needs(o, engine->core->n_eog, &ask);
    struct plm_admit_result result;
    int r = plm_admission_check(engine, &ask, &result, err);
    if (r != PLIM_OK) {
        record(engine, &ask, o->seed, r);
        return r;
    }
    struct plim_request *request = build(engine, o, prompt, result.max_tokens);
    if (request == NULL) {
        plm_admission_unreserve(engine, &ask, &result);
        return plm_error_set(err, PLIM_ERR_NOMEM_HOST, NULL,
                             "no host memory is left for a request");
    }
    request->admit = ask;
    request->expected_tokens = result.expected_tokens;
    request->record_id = record(engine, &ask, request->params.seed, PLIM_OK);
    atomic_fetch_add(&engine->handles, 1);
    *ret = request; // before the engine can deliver events to a reader
    enqueue(engine, request);
    return PLIM_OK;
}

// Options that were checked.
static int submit(plim_engine *engine, const plim_request_opts *o, plim_request **ret,
                  plim_error *err)
{
    struct plm_tokens prompt;
    struct plm_host_meter meter;
    uint64_t least = 0;
    plm_host_meter_start(engine->core->host, &meter);
    plm_tokens_init(&prompt, engine->core->host);
    int r = plm_text_prompt(engine->core, o, &prompt, &least, err);
    if (r == PLIM_OK)
        r = submit_tokens(engine, o, &prompt, ret, err);
    else if (least > 0)
        r = refuse_long(engine, o, least, err);
    const bool host = r == PLIM_ERR_NOMEM_HOST;
    r = plm_error_host(&engine->admission.limits, r, &meter, o->host_charged_bytes, err);
    if (host)
        plm_admission_refused_host(engine, r, err);
    if (PLM_FAULT_SEED(KEEP) && r != PLIM_OK)
        return r;
    plm_tokens_finish(&prompt);
    return r;
}

int plim_request_submit(plim_engine *engine, const plim_request_opts *opts, plim_request **ret,
                        plim_error *err)
{
    plim_request_opts o;
    plim_error error = PLIM_INIT(plim_error);
    if (ret != NULL)
        *ret = NULL;
    if (engine == NULL || ret == NULL)
        return plm_error_give(err, plm_error_null(&error, engine == NULL ? "engine" : "ret"),
                              &error);
    plim_request_opts_init(&o);
    int r = plm_struct_in(&o, sizeof(o), opts, "plim_request_opts_init", &error);
    if (r == PLIM_OK)
        r = plm_request_check(&o, plm_model_facts(engine->core->model)->n_vocab, &error);
    if (r == PLIM_OK) {
        struct plm_work work;
        plm_work_start(&work, PLM_WORK_STEPS_MAX);
        r = submit(engine, &o, ret, &error);
        plm_work_stop();
    }
    return plm_error_give(err, r, &error);
}

void *plim_request_user(const plim_request *request)
{
    return request == NULL ? NULL : request->user;
}

int64_t plim_request_take_reserved(plim_request *request)
{
    if (request == NULL)
        return 0;
    const int64_t bytes = request->reserved_bytes;
    request->reserved_bytes = 0;
    return bytes;
}

void plim_request_cancel(plim_request *request)
{
    if (request == NULL)
        return;
    plim_engine *engine = request->engine;
    pthread_mutex_lock(&engine->lock);
    if (request->cancel == PLM_CANCEL_NONE) {
        request->cancel = PLM_CANCEL_ASKED;
        request->cancel_next = engine->cancels;
        engine->cancels = request;
        pthread_cond_signal(&engine->wake);
    }
    pthread_mutex_unlock(&engine->lock);
}

void plim_request_free(plim_request *request)
{
    if (request == NULL)
        return;
    struct plim_engine *engine = request->engine;
    plim_request_cancel(request);
    plm_ready_remove(&engine->ready, request);
    plm_request_unref(request);
    atomic_fetch_sub(&engine->handles, 1); // the last touch: the engine may be freed now
}
