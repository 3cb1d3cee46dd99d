// SPDX-License-Identifier: Apache-2.0
// How a request ends: it leaves the scheduler, is accounted for, and says DONE.
#include "core/engine/finish.h"

#include <stdio.h>

#include "core/engine/admission.h"
#include "core/engine/bisect.h"
#include "core/engine/engine.h"
#include "core/engine/error.h"
#include "core/engine/event.h"
#include "core/engine/histogram.h"
#include "core/engine/inflight.h"
#include "core/engine/recorder.h"
#include "core/engine/report.h"
#include "core/engine/request.h"

static void unlink_request(struct plim_engine *engine, struct plim_request *request)
{
    if (request->prev != NULL)
        request->prev->next = request->next;
    else
        engine->requests = request->next;
    if (request->next != NULL)
        request->next->prev = request->prev;
    request->prev = request->next = NULL;
}

// Off the list of cancels and out of the sums of admission.
static void account_finish(struct plim_engine *engine, struct plim_request *request)
{
    pthread_mutex_lock(&engine->lock);
    engine->active--;
    if (!request->began)
        plm_admission_leave_queue(engine, request);
    if (request->cancel == PLM_CANCEL_ASKED) {
        struct plim_request **at = &engine->cancels;
        while (*at != NULL && *at != request) // it may have been taken out already
            at = &(*at)->cancel_next;
        if (*at != NULL)
            *at = request->cancel_next;
    }
    request->cancel = PLM_CANCEL_LATE;
    if (engine->active == 0)
        pthread_cond_broadcast(&engine->idle);
    pthread_mutex_unlock(&engine->lock);
}

static void record_finish(struct plim_engine *engine, const struct plim_request *request)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < request->n; i++) {
        if (request->choices[i].completions > longest)
            longest = request->choices[i].completions;
    }
    const struct plm_record r = {.kind = PLM_RECORD_END,
                                 .value = (int64_t)request->record_id,
                                 .a = longest,
                                 .status = (int8_t)request->status};
    plm_recorder_put(engine->recorder, &r);
}

void plm_request_finish(struct plim_engine *engine, struct plim_request *request,
                        enum plim_finish finish, int32_t status, const plim_error *error)
{
    if (request->ended)
        return;
    request->ended = true;
    plm_bisect_drop(&engine->bisect, request);
    for (uint32_t i = request->n; i-- > 0;) { // forks before their parent
        plm_inflight_forget(&engine->ahead, &request->choices[i].seq);
        plm_sched_remove(engine->sched, &request->choices[i].seq);
        request->choices[i].live = false;
    }
    const int64_t now = plm_now(engine->core->clock);
    request->finish = (int32_t)finish;
    request->status = status;
    if (error != NULL)
        request->error = *error;
    else if (status == PLIM_ERR_CANCELLED) // every failure says why
        plm_error_set(&request->error, status, NULL, "the request was cancelled by its caller");
    else if (status != PLIM_OK)
        plm_error_set(&request->error, status, NULL, "the request failed: %s",
                      plm_strstatus(status));
    request->queue_s = plm_seconds(request->submit_ns, request->began ? request->admitted_ns : now);
    request->prefill_s = plm_seconds(request->admitted_ns, request->first_ns);
    request->decode_s = plm_seconds(request->first_ns, request->last_ns);
    plm_count_finish(&engine->counts, finish);
    if (request->began) {
        plm_histogram_add(&engine->counts.e2e, plm_seconds(request->submit_ns, now));
        plm_histogram_add(&engine->counts.prefill, request->prefill_s);
        plm_histogram_add(&engine->counts.decode, request->decode_s);
    }
    unlink_request(engine, request);
    record_finish(engine, request);
    // What admission sees is true before the caller learns that the request is over.
    account_finish(engine, request);
    plm_step_publish(engine);
    request->next = engine->ended;
    engine->ended = request;
    plm_events_done(request);
}

void plm_request_reap(struct plim_engine *engine)
{
    while (engine->ended != NULL) {
        struct plim_request *request = engine->ended;
        engine->ended = request->next;
        plm_request_unref(request);
    }
}

void plm_request_fail(struct plim_engine *engine, struct plim_request *request, int status,
                      const char *message)
{
    plim_error error;
    plm_error_set(&error, status, NULL, "%s", message);
    plm_request_finish(engine, request, PLIM_FINISH_ERROR, status, &error);
}

void plm_request_fail_now(struct plim_engine *engine, struct plim_request *request, int status,
                          const char *term, const char *message)
{
    plim_error error;
    plm_error_set(&error, status, NULL, "%s", message);
    snprintf(error.term, sizeof(error.term), "%s", term);
    error.retry_after_s = 1;
    plm_request_finish(engine, request, PLIM_FINISH_ERROR, status, &error);
}

static const char *what_happened(int status)
{
    switch (status) {
    case PLM_ERR_NUMERIC: return "the model gave logits that are not finite numbers";
    case PLM_ERR_TIMEOUT: return "a step of this request did not end in time";
    case PLM_ERR_LOST: return "the device was lost in steps of this request";
    default: return "the forward of this request failed";
    }
}

void plm_request_fail_faulty(struct plim_engine *engine, int status)
{
    struct plim_request *request;
    while ((request = plm_bisect_take_faulty(&engine->bisect)) != NULL) {
        engine->counts.poisoned++;
        plm_logf(&engine->core->log, PLM_LOG_ERROR, "a request is ended: %s (%s)",
                 what_happened(status), plm_strstatus(status));
        plm_request_fail(engine, request, status, what_happened(status));
    }
}
