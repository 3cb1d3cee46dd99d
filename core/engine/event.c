// SPDX-License-Identifier: Apache-2.0
// Events of one request: records in a byte buffer that the reader takes whole, so that a token
// costs the engine one uncontended lock and a copy of a few bytes. A reader that does not read
// costs host memory and, beyond the budget, its own request; never anybody else's.
#include "core/engine/event.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/fault_seed.h"
#include "core/engine/request.h"
#include "core/engine/structs.h"

// One record, followed by n_top alternatives and the text, padded to 4 bytes.
struct record {
    uint8_t type;
    uint8_t finish;
    uint16_t n_top;
    uint32_t choice;
    int32_t token;
    float logprob;
    uint32_t text_len;
};

#define RECORD_ALIGN 4u

// ---- the ready list ----

int plm_ready_init(struct plm_ready *ready)
{
    *ready = (struct plm_ready){.fd = -1};
    return pthread_mutex_init(&ready->lock, NULL) == 0 ? PLM_OK : PLM_ERR_NOMEM_HOST;
}

int plm_ready_open(struct plm_ready *ready, struct plm_error *err)
{
    ready->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return ready->fd >= 0
               ? PLM_OK
               : plm_fail(err, PLM_ERR_IO, "no file descriptor for events: %s", strerror(errno));
}

void plm_ready_finish(struct plm_ready *ready)
{
    if (ready->fd >= 0)
        close(ready->fd);
    pthread_mutex_destroy(&ready->lock);
}

static void push(struct plm_ready *ready, struct plim_request *request)
{
    pthread_mutex_lock(&ready->lock);
    if (!request->is_ready) {
        request->is_ready = true;
        request->ready_next = NULL;
        request->ready_prev = ready->tail;
        if (ready->tail != NULL) {
            ready->tail->ready_next = request;
        } else {
            ready->head = request;
            uint64_t one = 1;
            // Can not fail: the counter is at most 1 here.
            ssize_t n = write(ready->fd, &one, sizeof(one));
            (void)n;
        }
        ready->tail = request;
    }
    pthread_mutex_unlock(&ready->lock);
}

// Under the lock.
static void unlink_ready(struct plm_ready *ready, struct plim_request *request)
{
    if (request->ready_prev != NULL)
        request->ready_prev->ready_next = request->ready_next;
    else
        ready->head = request->ready_next;
    if (request->ready_next != NULL)
        request->ready_next->ready_prev = request->ready_prev;
    else
        ready->tail = request->ready_prev;
    request->ready_prev = request->ready_next = NULL;
    request->is_ready = false;
    if (ready->head == NULL) {
        uint64_t count;
        ssize_t n = read(ready->fd, &count, sizeof(count)); // non-blocking: clears it
        (void)n;
    }
}

void plm_ready_remove(struct plm_ready *ready, struct plim_request *request)
{
    pthread_mutex_lock(&ready->lock);
    if (request->is_ready)
        unlink_ready(ready, request);
    request->is_ready = true; // never again: its reader is gone
    pthread_mutex_unlock(&ready->lock);
}

struct plim_request *plm_ready_take(struct plm_ready *ready)
{
    pthread_mutex_lock(&ready->lock);
    struct plim_request *request = ready->head;
    if (request != NULL)
        unlink_ready(ready, request);
    pthread_mutex_unlock(&ready->lock);
    return request;
}

// ---- the buffer of a request ----

int plm_events_init(struct plm_events *events, struct plm_host *host, const struct plm_clock *clock,
                    struct plm_ready *ready)
{
    pthread_condattr_t attr;
    if (pthread_mutex_init(&events->lock, NULL) != 0)
        return PLM_ERR_NOMEM_HOST;
    if (pthread_condattr_init(&attr) != 0) {
        pthread_mutex_destroy(&events->lock);
        return PLM_ERR_NOMEM_HOST;
    }
    // Waits count on the clock that nobody sets back.
    int r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (r == 0)
        r = pthread_cond_init(&events->cond, &attr);
    pthread_condattr_destroy(&attr);
    if (r != 0) {
        pthread_mutex_destroy(&events->lock);
        return PLM_ERR_NOMEM_HOST;
    }
    events->clock = clock;
    events->ready = ready;
    plm_buf_init(&events->in, host, PLM_HOST_REQUEST);
    plm_buf_init(&events->out, host, PLM_HOST_REQUEST);
    return PLM_OK;
}

size_t plm_events_bytes(uint32_t n_top, size_t text_len)
{
    return sizeof(struct record) + n_top * sizeof(plim_logprob) + text_len + RECORD_ALIGN;
}

bool plm_events_reserve(struct plm_events *events, size_t bytes)
{
    return plm_buf_reserve(&events->in, bytes) && plm_buf_reserve(&events->out, bytes);
}

void plm_events_finish(struct plm_events *events)
{
    plm_buf_finish(&events->in);
    plm_buf_finish(&events->out);
    pthread_cond_destroy(&events->cond);
    pthread_mutex_destroy(&events->lock);
}

// ---- writing: the engine ----

static bool append(struct plim_request *request, struct record *record,
                   const struct plm_sample_top *top, struct plm_slice text)
{
    static const char zeros[RECORD_ALIGN];
    struct plm_events *ev = &request->events;
    record->text_len = (uint32_t)text.len;
    pthread_mutex_lock(&ev->lock);
    size_t before = ev->in.len;
    plm_buf_append(&ev->in, record, sizeof(*record));
    if (record->n_top > 0)
        plm_buf_append(&ev->in, top, record->n_top * sizeof(*top));
    if (text.len > 0)
        plm_buf_append(&ev->in, text.ptr, text.len);
    plm_buf_append(&ev->in, zeros, (RECORD_ALIGN - text.len % RECORD_ALIGN) % RECORD_ALIGN);
    bool ok = !ev->in.failed;
    if (!ok)
        ev->in.len = before;
    if (ev->waiting)
        pthread_cond_signal(&ev->cond);
    pthread_mutex_unlock(&ev->lock);
    push(request->events.ready, request);
    return ok;
}

bool plm_events_admitted(struct plim_request *request)
{
    struct record record = {.type = PLIM_EVENT_ADMITTED};
    return append(request, &record, NULL, (struct plm_slice){NULL, 0});
}

bool plm_events_token(struct plim_request *request, uint32_t choice, struct plm_slice text,
                      const struct plm_sample_out *out)
{
    bool logprobs = request->params.logprobs;
    struct record record = {.type = PLIM_EVENT_TOKEN,
                            .choice = choice,
                            .token = out->token,
                            .logprob = logprobs ? out->logprob : 0.0f,
                            .n_top = logprobs ? (uint16_t)out->n_top : 0};
    return append(request, &record, out->top, text);
}

bool plm_events_finish_choice(struct plim_request *request, uint32_t choice,
                              enum plim_finish finish, struct plm_slice text)
{
    struct record record = {.type = PLIM_EVENT_FINISH, .choice = choice, .finish = (uint8_t)finish};
    return append(request, &record, NULL, text);
}

void plm_events_done(struct plim_request *request)
{
    struct plm_events *ev = &request->events;
    pthread_mutex_lock(&ev->lock);
    ev->done = true;
    pthread_cond_broadcast(&ev->cond);
    pthread_mutex_unlock(&ev->lock);
    push(request->events.ready, request);
}

// ---- reading: the caller ----

static void fill_done(const struct plim_request *request, plim_event *e)
{
    e->type = PLIM_EVENT_DONE;
    e->finish = request->finish;
    e->status = request->status;
    e->error = request->status != PLIM_OK ? &request->error : NULL;
    e->prompt_tokens = request->n_prompt;
    e->cached_tokens = request->n_cached;
    e->completion_tokens = request->completions;
    e->queue_s = request->queue_s;
    e->prefill_s = request->prefill_s;
    e->decode_s = request->decode_s;
}

static void fill_record(struct plm_events *ev, plim_event *e)
{
    struct record record;
    const char *at = ev->out.data + ev->out_at;
    memcpy(&record, at, sizeof(record));
    at += sizeof(record);
    e->type = record.type;
    e->choice = record.choice;
    e->finish = record.finish;
    e->token = record.token;
    e->logprob = record.logprob;
    e->n_top = record.n_top;
    e->top = record.n_top > 0 ? (const plim_logprob *)(const void *)at : NULL;
    at += record.n_top * sizeof(plim_logprob);
    e->text = record.text_len > 0 ? at : "";
    e->text_len = record.text_len;
    at += (record.text_len + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
    ev->out_at = (size_t)(at - ev->out.data);
}

// Waits for something to read and takes the buffer. Returns whether there is a record.
static bool take(struct plim_request *request, int64_t timeout_ms, bool *ret_done)
{
    struct plm_events *ev = &request->events;
    struct timespec until = {0};
    if (timeout_ms > 0)
        until = plm_deadline(ev->clock, timeout_ms);
    pthread_mutex_lock(&ev->lock);
    while (ev->in.len == 0 && !ev->done && timeout_ms != 0) {
        ev->waiting = true;
        int r = timeout_ms < 0 ? pthread_cond_wait(&ev->cond, &ev->lock)
                               : pthread_cond_timedwait(&ev->cond, &ev->lock, &until);
        ev->waiting = false;
        if (r == ETIMEDOUT)
            break;
    }
    plm_buf_clear(&ev->out);
    ev->out_at = 0;
    if (ev->in.len > 0) { // else both stay, so that they take turns and both soon have their size
        struct plm_buf swap = ev->out;
        ev->out = ev->in;
        ev->in = swap;
    }
    *ret_done = ev->done;
    pthread_mutex_unlock(&ev->lock);
    return ev->out.len > 0;
}

int plim_request_next(plim_request *request, int64_t timeout_ms, plim_event *event)
{
    if (request == NULL || event == NULL || !plm_struct_sized(event->struct_size))
        return PLIM_ERR_INVALID; // and nothing was taken
    struct plm_events *ev = &request->events;
    plim_event e = {.text = ""};
    bool done = false;
    if (ev->done_taken)
        return PLIM_ERR_CLOSED;
    if (ev->out_at < ev->out.len || take(request, timeout_ms, &done)) {
        fill_record(ev, &e);
    } else if (done) {
        fill_done(request, &e);
        ev->done_taken = !PLM_FAULT_SEED(TWICE);
    } else {
        return PLIM_ERR_TIMEOUT;
    }
    return plm_struct_out(event, &e, sizeof(e));
}
