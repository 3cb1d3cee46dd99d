// SPDX-License-Identifier: Apache-2.0
// The life of a POST. I/O thread, but for work().
#include <stdlib.h>
#include <string.h>

#include "tools/serve/server.h"

static void call_free(struct plm_call *call)
{
    struct plm_server *srv = call->srv;
    plim_request_free(call->request);
    plm_out_finish(&call->body);
    plm_out_finish(&call->reply);
    plm_out_finish(&call->echo);
    plm_openai_finish(&call->parsed);
    plm_answer_finish(&call->answer);
    plm_purse_unref(call->purse);
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        srv->calls = call->next;
    if (call->next != NULL)
        call->next->prev = call->prev;
    srv->n_calls--;
    free(call);
}

// Nobody wants the result of a call whose client has left.
static bool is_gone(void *ctx)
{
    return atomic_load(&((struct plm_call *)ctx)->gone);
}

static void work(struct plm_job *job)
{
    struct plm_call *call = (struct plm_call *)job;
    struct plm_json_doc doc;
    char message[256];
    if (atomic_load(&call->gone))
        return;
    plim_thread_cancellable(is_gone, call);
    // Nothing is an object without fields.
    if (call->body.len == 0 && call->route->no_body)
        plm_out_str(&call->body, "{}");
    int status = plm_json_scan(call->body.data, call->body.len, call->body.engine, &doc, message,
                               sizeof(message));
    if (status == PLIM_ERR_NOMEM_HOST)
        plm_api_error_host(&call->error);
    else if (status != PLIM_OK)
        plm_api_error_invalid(&call->error, NULL, "%s", message);
    else
        call->route->work(call, &doc);
    plim_thread_cancellable(NULL, NULL);
    plm_out_finish(&call->body);
}

static struct plm_call *call_create(struct plm_server *srv, struct plm_exchange *x)
{
    struct plm_call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return NULL;
    call->srv = srv;
    call->x = x;
    call->job.run = work;
    plm_out_init(&call->echo, srv->engine);
    call->next = srv->calls;
    if (call->next != NULL)
        call->next->prev = call;
    srv->calls = call;
    srv->n_calls++;
    return call;
}

void plm_call_start(struct plm_server *srv, struct plm_exchange *x, const struct plm_route *route,
                    int key_index)
{
    struct plm_api_error error;
    struct plm_call *call = call_create(srv, x);
    if (call == NULL) {
        plm_api_error_host(&error);
        plm_reply_error(srv, x, &error);
        return;
    }
    call->route = route;
    call->key_index = key_index;
    call->body = plm_http_take_body(x);
    plm_out_init(&call->reply, call->body.engine); // whoever pays for the question
    plm_http_set_call(x, call);
    call->job.owner = plm_peer_client(plm_http_peer(x)) ^ (uint64_t)key_index << 1;
    call->job.large = call->body.len >= PLM_JOB_LARGE_BYTES;
    call->in_worker = true;
    if (plm_workers_push(route->role == PLM_ROLE_ADMIN ? srv->operators : srv->workers, &call->job))
        return;
    call->in_worker = false;
    plm_api_error_set(&error, plm_overload_status(srv), "overloaded_error", "queue_full",
                      "too many requests wait to be read");
    error.retry_after_s = 1;
    call->done = true;
    plm_reply_error(srv, x, &error);
}

void plm_call_closed(struct plm_call *call)
{
    call->x = NULL;
    atomic_store(&call->gone, true);
    // Freeing the request cancels it: its blocks are free at the next step.
    if (!call->in_worker)
        call_free(call);
}

void plm_call_finished(struct plm_job *job)
{
    struct plm_call *call = (struct plm_call *)job;
    call->in_worker = false;
    // What is answered here is out of reach for plm_calls_fail(): a part of it may be on its way.
    call->done = call->request == NULL;
    if (call->x == NULL)
        call_free(call);
    else if (call->error.http != 0)
        plm_reply_error(call->srv, call->x, &call->error);
    else if (call->request == NULL)
        plm_reply_json(call->srv, call->x, 200, &call->reply);
    else
        plm_call_pump(call);
}

// Ends a call whose request failed or whose output finds no memory.
static void fail(struct plm_call *call, const struct plm_api_error *error)
{
    call->done = true;
    plim_request_free(call->request);
    call->request = NULL;
    if (!plm_http_is_stream(call->x)) {
        plm_reply_error(call->srv, call->x, error);
        return;
    }
    plm_answer_failed(error, plm_http_stream(call->x));
    plm_http_stream_end(call->x);
}

static void on_admitted(struct plm_call *call)
{
    struct plm_api_error error;
    call->admitted = true;
    const struct plm_out *echo = call->has_echo ? &call->echo : NULL;
    call->purse = plm_purse_create(call->srv->engine, plim_request_take_reserved(call->request));
    if (call->purse == NULL || !plm_answer_init(&call->answer, &call->parsed, call->srv->engine,
                                                call->purse, call->srv->model_names[0])) {
        plm_api_error_host(&error);
        fail(call, &error);
        return;
    }
    struct plm_out *out = NULL;
    if (call->answer.stream) {
        call->srv->responses[2]++;
        out = plm_http_stream_begin(call->x, call->srv->engine);
        plm_out_draw_on(out, call->purse);
    } else {
        plm_out_draw_on(&call->reply, call->purse);
    }
    plm_answer_start(&call->answer, echo, out);
}

static void on_done(struct plm_call *call, const plim_event *event)
{
    struct plm_api_error error;
    if (event->status != PLIM_OK) {
        plm_api_error_from_engine(&error, event->status, event->error,
                                  plm_overload_status(call->srv));
        fail(call, &error);
        return;
    }
    call->done = true;
    call->prompt_tokens = event->prompt_tokens;
    call->cached_tokens = event->cached_tokens;
    call->output_tokens = event->completion_tokens;
    call->queue_s = event->queue_s;
    call->prefill_s = event->prefill_s;
    call->decode_s = event->decode_s;
    if (call->answer.stream) {
        plm_answer_done(&call->answer, event, plm_http_stream(call->x));
        plm_http_stream_end(call->x);
    } else {
        plm_answer_done(&call->answer, event, &call->reply);
        plm_reply_json(call->srv, call->x, 200, &call->reply);
    }
    plim_request_free(call->request);
    call->request = NULL;
}

static void on_event(struct plm_call *call, const plim_event *event)
{
    switch (event->type) {
    case PLIM_EVENT_ADMITTED: on_admitted(call); break;
    case PLIM_EVENT_TOKEN:
    case PLIM_EVENT_FINISH:
        if (call->admitted)
            plm_answer_event(&call->answer, event,
                             call->answer.stream ? plm_http_stream(call->x) : NULL);
        break;
    case PLIM_EVENT_DONE: on_done(call, event); break;
    }
}

void plm_call_pump(struct plm_call *call)
{
    // What a worker has not handed over is looked at when it does.
    if (call->in_worker || call->x == NULL)
        return;
    while (call->request != NULL && plm_http_backlog(call->x) < PLM_CALL_BACKLOG_BYTES) {
        plim_event event = PLIM_INIT(plim_event);
        if (plim_request_next(call->request, 0, &event) != PLIM_OK)
            break;
        on_event(call, &event);
        if (call->request != NULL && call->admitted && !plm_answer_ok(&call->answer)) {
            struct plm_api_error error;
            plm_api_error_host(&error);
            fail(call, &error);
        }
    }
    if (plm_http_is_stream(call->x))
        plm_http_flush(call->x);
}

void plm_calls_ping(struct plm_server *srv, int64_t now_ms)
{
    int64_t interval_ms = (int64_t)(srv->flags.ping_s * 1000);
    if (interval_ms == 0)
        return;
    for (struct plm_call *call = srv->calls; call != NULL; call = call->next) {
        // Only whole events are ever in the buffer; when it is empty, the last one is out.
        if (call->in_worker || call->x == NULL || call->done || !plm_http_is_stream(call->x) ||
            plm_http_backlog(call->x) > 0 || now_ms - plm_http_last_write_ms(call->x) < interval_ms)
            continue;
        plm_out_str(plm_http_stream(call->x), ": ping\n\n");
        plm_http_flush(call->x);
    }
}

void plm_calls_cancel(struct plm_server *srv)
{
    for (struct plm_call *call = srv->calls; call != NULL; call = call->next) {
        if (!call->in_worker && call->request != NULL)
            plim_request_cancel(call->request);
    }
}

void plm_calls_fail(struct plm_server *srv)
{
    struct plm_api_error error;
    plm_api_error_from_engine(&error, PLIM_ERR_CANCELLED, NULL, plm_overload_status(srv));
    for (struct plm_call *call = srv->calls; call != NULL; call = call->next) {
        if (!call->in_worker && call->x != NULL && !call->done)
            fail(call, &error);
    }
}
