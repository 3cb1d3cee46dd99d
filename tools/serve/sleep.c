// SPDX-License-Identifier: Apache-2.0
// POST /v1/sleep and /v1/wake: the KV cache is given back to the system, and taken again. On a
// worker, since both wait.
#include <inttypes.h>

#include "tools/serve/fields.h"
#include "tools/serve/server.h"

#define TIMEOUT_MS 30000 // that running requests get, as at a shutdown
// As long as the queue's patience: nothing else is taken while a sleep waits, so no longer.
#define TIMEOUT_MS_MAX 600000

static bool read_timeout(struct plm_call *call, const struct plm_json_doc *doc, int64_t *ret)
{
    const struct plm_json_value *v = plm_json_get(doc, "timeout_ms");
    *ret = TIMEOUT_MS;
    if (v == NULL)
        return true;
    if (plm_json_int(v, ret) && *ret >= 0 && *ret <= TIMEOUT_MS_MAX)
        return true;
    plm_api_error_invalid(&call->error, "timeout_ms",
                          "timeout_ms must be a whole number from 0 to %d", TIMEOUT_MS_MAX);
    return false;
}

static void describe(struct plm_call *call, int status, const plim_error *error)
{
    const int http = plm_overload_status(call->srv);
    if (status == PLIM_ERR_CANCELLED) {
        plm_api_error_set(&call->error, 409, "invalid_request_error", "conflict",
                          "the sleep was taken back by a wake or a shutdown; the engine is awake");
    } else if (status == PLIM_ERR_TIMEOUT) {
        plm_api_error_set(&call->error, http, "unavailable_error", "busy",
                          "running requests did not end in time; the engine stays awake");
        call->error.retry_after_s = 1;
    } else if (status == PLIM_ERR_OUT_OF_DEVICE) {
        // Others have the memory now; that is no fault of the server.
        plm_api_error_from_engine(&call->error, PLIM_ERR_NOMEM_NOW, error, http);
    } else {
        plm_api_error_from_engine(&call->error, status, error, http);
    }
}

// One sleep at a time: false where another is under way.
static bool begin_sleep(struct plm_call *call)
{
    struct plm_server *srv = call->srv;
    pthread_mutex_lock(&srv->sleeper.lock);
    const bool alone = srv->sleeper.call == NULL;
    if (alone)
        srv->sleeper.call = call;
    pthread_mutex_unlock(&srv->sleeper.lock);
    return alone;
}

static void end_sleep(struct plm_server *srv)
{
    pthread_mutex_lock(&srv->sleeper.lock);
    srv->sleeper.call = NULL;
    pthread_mutex_unlock(&srv->sleeper.lock);
}

// Again each second, because the caller may have left before the engine heard of the sleep.
void plm_sleep_tick(struct plm_server *srv)
{
    pthread_mutex_lock(&srv->sleeper.lock);
    const struct plm_call *call = srv->sleeper.call;
    // Under the lock, so that it is this sleep and no later one that is taken back.
    if (call != NULL && (atomic_load(&call->gone) || srv->draining))
        plim_engine_sleep_cancel(srv->engine);
    pthread_mutex_unlock(&srv->sleeper.lock);
}

static void change(struct plm_call *call, const struct plm_json_doc *doc, bool sleep)
{
    struct plm_server *srv = call->srv;
    plim_metrics before = PLIM_INIT(plim_metrics), after = PLIM_INIT(plim_metrics);
    plim_error error = PLIM_INIT(plim_error);
    int64_t timeout_ms = 0;
    if (!plm_fields_judge(doc, sleep ? PLM_FIELDS_SLEEP : PLM_FIELDS_WAKE, NULL, &call->error))
        return;
    if (sleep && !read_timeout(call, doc, &timeout_ms))
        return;
    // A wake may come while a sleep still waits for running requests: that takes it back.
    if (sleep && !begin_sleep(call)) {
        plm_api_error_set(&call->error, 409, "invalid_request_error", "conflict",
                          "another request puts the engine to sleep right now");
        return;
    }
    const int64_t from_ms = plm_now_ms();
    plim_engine_metrics(srv->engine, &before);
    int status = sleep ? plim_engine_sleep(srv->engine, timeout_ms, &error)
                       : plim_engine_wake(srv->engine, &error);
    plim_engine_metrics(srv->engine, &after);
    if (sleep)
        end_sleep(srv);
    if (status != PLIM_OK) {
        describe(call, status, &error);
        return;
    }
    const int64_t sign = sleep ? 1 : -1;
    plm_out_printf(&call->reply,
                   "{\"object\":\"%s\",\"asleep\":%s,\"%s_bytes\":%" PRId64
                   ",\"%s_blocks\":%" PRId64 ",\"seconds\":%.3f}",
                   sleep ? "sleep" : "wake", after.asleep ? "true" : "false",
                   sleep ? "released" : "taken", sign * (before.kv_bytes - after.kv_bytes),
                   sleep ? "released" : "taken",
                   sign * ((int64_t)before.blocks_total - (int64_t)after.blocks_total),
                   (double)(plm_now_ms() - from_ms) / 1e3);
}

bool plm_sleeps(const struct plm_server *srv, const plim_metrics *m)
{
    return m->asleep || atomic_load(&srv->sleeper.call) != NULL;
}

void plm_work_sleep(struct plm_call *call, const struct plm_json_doc *doc)
{
    change(call, doc, true);
}

void plm_work_wake(struct plm_call *call, const struct plm_json_doc *doc)
{
    change(call, doc, false);
}
