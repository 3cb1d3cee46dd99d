// SPDX-License-Identifier: Apache-2.0
// Admission: checks a request on its caller's thread before it exists, describes and records
// refusals, and rechecks the engine's own numbers after a streak of them.
#include "core/engine/admission.h"

#include <stdio.h>
#include <string.h>

#include "core/engine/engine.h"
#include "core/engine/error.h"
#include "core/engine/monitor.h"
#include "core/engine/recorder.h"
#include "core/engine/request.h"

// Refusals for now without an admission between them, after which the engine looks again whether
// its numbers are still true: few enough that a wrong reading is found within seconds, and enough
// that a short burst costs nothing.
#define STREAK 8

// ---- messages ----

static int status_of(const struct plm_admit_result *r)
{
    if (r->term == PLM_ADMIT_CONTEXT)
        return PLIM_ERR_CONTEXT;
    if (r->term == PLM_ADMIT_QUEUE || r->term == PLM_ADMIT_QUEUE_TOKENS ||
        r->term == PLM_ADMIT_QUEUE_TIME)
        return PLIM_ERR_QUEUE_FULL;
    return r->verdict == PLM_REFUSE_NEVER ? PLIM_ERR_NOMEM_NEVER : PLIM_ERR_NOMEM_NOW;
}

static void say(const struct plm_admit_result *r, const struct plm_admit_request *request,
                uint32_t n_ctx, int status, plim_error *err)
{
    const long long needed = r->needed_bytes, most = r->limit_bytes;
    const char *term = plm_admit_term_name(r->term);
    if (status == PLIM_ERR_CONTEXT)
        plm_error_set(err, status, NULL,
                      "the prompt has %u tokens and the output may take %u, but the context has %u",
                      request->prompt_tokens, request->max_tokens, n_ctx);
    else if (r->term == PLM_ADMIT_QUEUE_TIME)
        plm_error_set(err, status, NULL,
                      "the request would wait for about %lld s, and the longest wait is %lld s",
                      needed, most);
    else if (status == PLIM_ERR_QUEUE_FULL)
        plm_error_set(err, status, NULL, "the queue is full: %lld of %lld (%s)", needed, most,
                      term);
    else if (r->term == PLM_ADMIT_SEQUENCES)
        plm_error_set(err, status, NULL, "the request would be number %lld of %lld at once", needed,
                      most);
    else if (r->term == PLM_ADMIT_ASLEEP)
        plm_error_set(err, status, NULL,
                      "the engine is asleep: its KV cache was given back until it is woken");
    else
        plm_error_set(err, status, NULL, "the request needs %lld bytes and the limit is %lld (%s)",
                      needed, most, term);
}

static void fill_numbers(const struct plm_admit_result *r, const struct plm_admit_request *request,
                         plim_error *err)
{
    err->retry_after_s = r->verdict == PLM_REFUSE_NOW ? r->retry_after_s : 0;
    err->needed_bytes = r->needed_bytes;
    err->limit_bytes = r->limit_bytes;
    err->n_prompt_tokens = request->prompt_tokens;
    err->offer_prompt_tokens = r->offer.prompt_tokens;
    err->offer_max_tokens = r->offer.max_tokens;
    err->offer_n = r->offer.n;
    snprintf(err->term, sizeof(err->term), "%s", plm_admit_term_name(r->term));
}

// ---- records ----

// Under the lock.
static void remember(plim_engine *engine, const struct plm_admit_result *r, int status)
{
    const struct plm_clock *clock = engine->core->clock;
    engine->admission.refusals[engine->admission.n_refusals++ % PLM_REFUSALS] =
        (struct plm_report_refusal){.wall_ns = clock->wall_ns(clock->ctx),
                                    .never = r->verdict == PLM_REFUSE_NEVER,
                                    .term = r->term,
                                    .needed_bytes = r->needed_bytes,
                                    .limit_bytes = r->limit_bytes,
                                    .offer = r->offer};
    if (status == PLIM_ERR_CONTEXT)
        engine->admission.rejected_context++;
    else if (status == PLIM_ERR_QUEUE_FULL)
        engine->admission.rejected_queue++;
    else if (status == PLIM_ERR_NOMEM_NEVER)
        engine->admission.rejected_never++;
    else
        engine->admission.rejected_now++;
    if (r->verdict != PLM_REFUSE_NOW || ++engine->admission.streak % STREAK != 0)
        return;
    engine->admission.streak_term = r->term;
    engine->admission.streak_asks = true;
    pthread_cond_signal(&engine->wake);
}

void plm_admission_refused_host(plim_engine *engine, int status, const plim_error *err)
{
    const struct plm_admit_result result = {
        .verdict = status == PLIM_ERR_NOMEM_NEVER ? PLM_REFUSE_NEVER : PLM_REFUSE_NOW,
        .term = PLM_ADMIT_HOST,
        .needed_bytes = err->needed_bytes,
        .limit_bytes = err->limit_bytes};
    pthread_mutex_lock(&engine->lock);
    remember(engine, &result, status);
    pthread_mutex_unlock(&engine->lock);
}

void plm_admission_recheck(plim_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    const bool asked = engine->admission.streak_asks;
    const enum plm_admit_term term = engine->admission.streak_term;
    engine->admission.streak_asks = false;
    const bool first =
        engine->admission.streak < 2 * STREAK; // reported once, however long it lasts
    pthread_mutex_unlock(&engine->lock);
    if (!asked)
        return;
    if (first)
        plm_incident(engine, "refusals");
    plm_logf(&engine->core->log, PLM_LOG_DEBUG, "a streak of refusals (%s): checking again",
             plm_admit_term_name(term));
    // Reclaims only what the term can use: a full queue is no reason to drop cached prompts.
    if (term == PLM_ADMIT_KV)
        plm_kv_pool_drop_cached(engine->core->pool, UINT32_MAX);
    if (term == PLM_ADMIT_HOST)
        plm_host_trim(engine->core->host);
    plm_monitor_hurry(&engine->monitor);
}

// ---- the check ----

// Under the lock: the numbers that the check goes by.
static void read_state(plim_engine *engine, struct plm_admit_state *ret)
{
    struct plm_host_stats host;
    plm_host_read(engine->core->host, &host);
    *ret = engine->admission.state;
    ret->queued = engine->admission.waiting;
    ret->queued_tokens = engine->admission.waiting_tokens;
    ret->queued_output = engine->admission.waiting_output;
    ret->host_used = host.used_bytes;
}

int plm_admission_check(plim_engine *engine, const struct plm_admit_request *request,
                        struct plm_admit_result *result, plim_error *err)
{
    struct plm_admit_state state;
    pthread_mutex_lock(&engine->lock);
    if (engine->draining || engine->stop) {
        pthread_mutex_unlock(&engine->lock);
        return plm_error_set(err, PLIM_ERR_CLOSED, NULL, "the engine takes no new requests");
    }
    read_state(engine, &state);
    plm_admit_check(&engine->admission.limits, &state, request, result);
    int status = PLIM_OK;
    if (result->verdict == PLM_ADMIT || result->verdict == PLM_WAIT) {
        engine->admission.waiting++;
        engine->admission.waiting_tokens += request->prompt_tokens;
        engine->admission.waiting_output += result->expected_tokens;
        engine->active++;
        engine->admission.streak = 0;
    } else {
        status = status_of(result);
        remember(engine, result, status);
    }
    pthread_mutex_unlock(&engine->lock);
    if (status == PLIM_OK)
        return PLIM_OK;
    say(result, request, engine->admission.limits.max_context, status, err);
    if (err != NULL)
        fill_numbers(result, request, err);
    if (err != NULL && status == PLIM_ERR_CONTEXT)
        err->n_ctx = engine->admission.limits.max_context;
    return status;
}

void plm_admission_leave_queue(plim_engine *engine, const struct plim_request *request)
{
    engine->admission.waiting--;
    engine->admission.waiting_tokens -= request->n_prompt;
    engine->admission.waiting_output -= request->expected_tokens;
}

void plm_admission_unreserve(plim_engine *engine, const struct plm_admit_request *request,
                             const struct plm_admit_result *result)
{
    pthread_mutex_lock(&engine->lock);
    engine->admission.waiting--;
    engine->admission.waiting_tokens -= request->prompt_tokens;
    engine->admission.waiting_output -= result->expected_tokens;
    if (--engine->active == 0)
        pthread_cond_broadcast(&engine->idle);
    pthread_mutex_unlock(&engine->lock);
}

// ---- refusals after admission ----

void plm_admission_overdue(plim_engine *engine, const struct plim_request *request, plim_error *err)
{
    struct plm_admit_state state;
    struct plm_admit_result result;
    pthread_mutex_lock(&engine->lock);
    read_state(engine, &state);
    state.queued--; // itself
    state.queued_tokens -= request->n_prompt;
    state.queued_output -= request->expected_tokens;
    plm_admit_overdue(&engine->admission.limits, &state, &request->admit, &result);
    remember(engine, &result, PLIM_ERR_NOMEM_NOW);
    pthread_mutex_unlock(&engine->lock);
    plm_error_set(err, PLIM_ERR_NOMEM_NOW, NULL,
                  "the request waited %u ms in the queue and was not admitted (%s)",
                  engine->core->opts.queue_timeout_ms, plm_admit_term_name(result.term));
    fill_numbers(&result, &request->admit, err);
}

void plm_admission_outgrown(plim_engine *engine, const struct plim_request *request,
                            uint32_t blocks, plim_error *err)
{
    const uint32_t there = plm_kv_pool_total(engine->core->pool);
    const int64_t block = engine->admission.limits.block_bytes;
    const struct plm_admit_result result = {.verdict = PLM_REFUSE_NEVER,
                                            .term = PLM_ADMIT_KV,
                                            .needed_bytes = blocks * block,
                                            .limit_bytes = there * block};
    pthread_mutex_lock(&engine->lock);
    remember(engine, &result, PLIM_ERR_NOMEM_NEVER);
    pthread_mutex_unlock(&engine->lock);
    plm_error_set(err, PLIM_ERR_NOMEM_NEVER, NULL,
                  "the KV cache is smaller than this request alone: %u blocks are left", there);
    fill_numbers(&result, &request->admit, err);
}

void plm_admission_refused_step(plim_engine *engine, const struct plim_request *request,
                                const struct plm_gate_result *gate, plim_error *err)
{
    struct plm_admit_result result = {.verdict = PLM_REFUSE_NOW,
                                      .term = gate->term,
                                      .needed_bytes = gate->needed_bytes,
                                      .limit_bytes = gate->limit_bytes};
    pthread_mutex_lock(&engine->lock);
    result.retry_after_s = plm_admit_retry_after(engine->admission.state.tokens_to_blocks,
                                                 engine->admission.state.tokens_per_s);
    remember(engine, &result, PLIM_ERR_NOMEM_NOW);
    pthread_mutex_unlock(&engine->lock);
    plm_error_set(err, PLIM_ERR_NOMEM_NOW, NULL,
                  "the next step of this request needs %lld and the limit is %lld (%s)",
                  (long long)gate->needed_bytes, (long long)gate->limit_bytes,
                  plm_admit_term_name(gate->term));
    fill_numbers(&result, &request->admit, err);
}
