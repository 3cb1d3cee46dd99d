// SPDX-License-Identifier: Apache-2.0
// From a sampled token to text: detokenise, hold back what may become a stop string, end choices.
#include "core/engine/deliver.h"

#include <string.h>

#include "core/engine/engine.h"
#include "core/engine/event.h"
#include "core/engine/finish.h"
#include "core/engine/histogram.h"
#include "core/engine/inflight.h"
#include "core/engine/output.h"
#include "core/engine/request.h"

static void fail_memory(struct plim_engine *engine, struct plim_request *request)
{
    plm_request_fail_now(engine, request, PLIM_ERR_NOMEM_HOST, "host",
                         "no host memory is left for the output of this request");
}

// ---- stop strings ----

// The first stop string in held text; searches where a match that was not there before can begin.
// *ret_end: where the text ends, before the stop string or behind it.
static bool find_stop(const struct plim_request *request, const struct plm_buf *held, size_t from,
                      size_t *ret_end)
{
    size_t best = held->len, best_len = 0;
    for (uint32_t i = 0; i < request->n_stops; i++) {
        const struct plm_slice *stop = &request->stops[i];
        size_t begin = from >= stop->len ? from - stop->len + 1 : 0;
        if (held->len < begin + stop->len)
            continue;
        const char *hit = memmem(held->data + begin, held->len - begin, stop->ptr, stop->len);
        if (hit != NULL && (size_t)(hit - held->data) < best) {
            best = (size_t)(hit - held->data);
            best_len = stop->len;
        }
    }
    if (best == held->len)
        return false;
    *ret_end = request->include_stop ? best + best_len : best;
    return true;
}

// Bytes at the end that are the beginning of a stop string and so must wait, after the text from
// `from` on is new. Each new byte takes about one step per stop string, whatever they look like.
static size_t tail_to_hold(struct plm_choice *choice, const struct plm_buf *held, size_t from)
{
    const struct plim_request *request = choice->request;
    const uint16_t *borders = request->borders;
    size_t longest = 0;
    for (uint32_t i = 0; i < request->n_stops; i++) {
        const struct plm_slice stop = request->stops[i];
        uint16_t n = choice->begun[i];
        for (size_t at = from; at < held->len; at++) {
            while (n > 0 && stop.ptr[n] != held->data[at])
                n = borders[n - 1];
            n = (uint16_t)(n + (stop.ptr[n] == held->data[at]));
        }
        choice->begun[i] = n; // below stop.len: none is whole
        longest = n > longest ? n : longest;
        borders += stop.len;
    }
    return longest;
}

// ---- ends ----

static void finish_choice(struct plim_engine *engine, struct plm_choice *choice,
                          enum plim_finish finish, struct plm_slice text)
{
    struct plim_request *request = choice->request;
    if (!plm_events_finish_choice(request, choice->index, finish, text)) {
        fail_memory(engine, request);
        return;
    }
    choice->live = false;
    // Follows within about ten answers: what people ask for changes with the hour.
    engine->forecast.mean_output =
        engine->forecast.mean_output > 0
            ? 0.9 * engine->forecast.mean_output + 0.1 * choice->completions
            : choice->completions;
    plm_inflight_forget(&engine->ahead, &choice->seq);
    plm_sched_remove(engine->sched, &choice->seq);
    // The request ends as its first choice did: with several, each FINISH says its own.
    if (choice->index == 0)
        request->finish = (int32_t)finish;
    if (--request->n_live == 0)
        plm_request_finish(engine, request, (enum plim_finish)request->finish, PLIM_OK, NULL);
}

// What was held back because it might have become a stop string. A character that is not whole is
// no text and ends with the choice; its tokens were delivered and count.
static void finish_with_rest(struct plim_engine *engine, struct plm_choice *choice,
                             enum plim_finish finish)
{
    finish_choice(engine, choice, finish, (struct plm_slice){choice->held.data, choice->held.len});
}

// ---- tokens ----

static void time_token(struct plim_engine *engine, struct plim_request *request, int64_t now_ns)
{
    if (request->first_ns == 0) {
        request->first_ns = now_ns;
        plm_histogram_add(&engine->counts.time_to_first_token,
                          plm_seconds(request->submit_ns, now_ns));
    } else {
        plm_histogram_add(&engine->counts.inter_token, plm_seconds(request->last_ns, now_ns));
    }
    request->last_ns = now_ns;
}

// Sends the token with the text it completes. *ret_stopped: a stop string ended the choice; the
// text before it is in held.
static bool send_token(struct plim_engine *engine, struct plm_choice *choice,
                       const struct plm_sample_out *out, bool *ret_stopped)
{
    struct plim_request *request = choice->request;
    struct plm_buf *text = request->n_stops > 0 ? &choice->held : &engine->text;
    size_t at = 0, before;
    if (request->n_stops == 0)
        plm_buf_clear(text);
    before = text->len;
    plm_detok_push(&choice->detok, out->token, text);
    if (text->failed)
        return false;
    size_t send = text->len;
    if (request->n_stops > 0) {
        *ret_stopped = find_stop(request, text, before, &at);
        if (*ret_stopped)
            text->len = at; // all of it goes out with FINISH
        send = *ret_stopped ? 0 : text->len - tail_to_hold(choice, text, before);
    }
    if (!plm_events_token(request, choice->index, (struct plm_slice){text->data, send}, out))
        return false;
    if (request->n_stops > 0 && send > 0) {
        memmove(text->data, text->data + send, text->len - send);
        text->len -= send;
    }
    return true;
}

static bool is_among(int32_t token, const int32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (list[i] == token)
            return true;
    }
    return false;
}

static void take_token(struct plim_engine *engine, struct plm_choice *choice,
                       const struct plm_sample_out *out, int64_t now_ns)
{
    struct plim_request *request = choice->request;
    bool stopped = false;
    engine->counts.generated_tokens++;
    time_token(engine, request, now_ns);
    const bool is_stop = is_among(out->token, request->stop_tokens, request->n_stop_tokens);
    // The end-of-generation token has no text and is no part of the answer: no TOKEN event. Nor is
    // a stop token, unless it was asked for.
    if (!request->admit_event_lost &&
        ((is_stop && !request->include_stop) ||
         (!request->ignore_eos && is_among(out->token, engine->core->eog, engine->core->n_eog)))) {
        finish_with_rest(engine, choice, PLIM_FINISH_STOP);
        return;
    }
    choice->completions++;
    request->completions++;
    if (request->admit_event_lost || !send_token(engine, choice, out, &stopped)) {
        fail_memory(engine, request);
        return;
    }
    if (is_stop && !stopped)
        finish_with_rest(engine, choice, PLIM_FINISH_STOP);
    else if (stopped)
        finish_choice(engine, choice, PLIM_FINISH_STOP,
                      (struct plm_slice){choice->held.data, choice->held.len});
    else if (choice->completions >= choice->max_output)
        finish_with_rest(engine, choice, PLIM_FINISH_LENGTH);
    else
        plm_sched_push(engine->sched, &choice->seq, out->token);
}

void plm_deliver(struct plim_engine *engine, const struct plm_step_output *step)
{
    for (uint32_t i = 0; i < step->rows; i++) {
        struct plm_choice *choice = (struct plm_choice *)step->seqs[i];
        struct plm_sample_out out;
        // It left, or an earlier row of this step ended the whole request.
        if (choice == NULL || !choice->live)
            continue;
        const int r = plm_output_token(engine->core, step, i, &out);
        if (r == PLM_ERR_LOST)
            return; // the next step finds it so, and computes these again
        if (r == PLM_OK)
            take_token(engine, choice, &out, plm_now(engine->core->clock));
        else
            plm_request_fail(engine, choice->request, r, "no token can be chosen");
    }
}
