// SPDX-License-Identifier: Apache-2.0
// What GET answers, on the I/O thread: nothing here waits for the engine.
#include <inttypes.h>
#include <string.h>

#include "tools/serve/server.h"

// With work outstanding and no step finished for so long, the engine is stuck: a chunk of a large
// model on a slow CPU takes tens of seconds.
#define STUCK_NS (INT64_C(180) * 1000000000)

static void reply_unavailable(struct plm_server *srv, struct plm_exchange *x, const char *code,
                              const char *message)
{
    struct plm_api_error error;
    plm_api_error_set(&error, 503, "unavailable_error", code, "%s", message);
    error.retry_after_s = 1;
    error.close = srv->draining;
    plm_reply_error(srv, x, &error);
}

static void reply_text(struct plm_server *srv, struct plm_exchange *x, const char *json)
{
    struct plm_out body;
    plm_out_init(&body, NULL);
    plm_out_str(&body, json);
    plm_reply_json(srv, x, 200, &body);
}

void plm_get_health(struct plm_server *srv, struct plm_exchange *x)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    if (srv->engine != NULL)
        plim_engine_metrics(srv->engine, &m);
    if (srv->engine == NULL)
        reply_unavailable(srv, x, "loading", "Loading model");
    else if (srv->draining)
        reply_unavailable(srv, x, "draining", "the server is shutting down");
    else if (m.lost)
        reply_unavailable(srv, x, "lost", "the device was lost");
    else
        reply_text(srv, x, "{\"status\":\"ok\"}");
}

void plm_get_livez(struct plm_server *srv, struct plm_exchange *x)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    if (srv->engine != NULL)
        plim_engine_metrics(srv->engine, &m);
    if (m.last_step_age_ns > STUCK_NS)
        reply_unavailable(srv, x, "stuck", "there is work, but no step has finished for minutes");
    else
        reply_text(srv, x, "{\"status\":\"alive\"}");
}

void plm_get_readyz(struct plm_server *srv, struct plm_exchange *x)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    if (srv->engine == NULL) {
        reply_unavailable(srv, x, "loading", "Loading model");
        return;
    }
    plim_engine_metrics(srv->engine, &m);
    if (srv->draining || m.draining)
        reply_unavailable(srv, x, "draining", "the server is shutting down");
    else if (m.lost || !m.ready)
        reply_unavailable(srv, x, "lost",
                          m.lost ? "the device was lost" : "the device is being reopened");
    else if (plm_sleeps(srv, &m))
        reply_unavailable(srv, x, "asleep", "the engine is asleep");
    else if (m.waiting >= srv->engine_flags.opts.queue_max)
        reply_unavailable(srv, x, "queue_full", "the queue is full");
    else
        reply_text(srv, x, "{\"status\":\"ready\"}");
}

static void model_json(const struct plm_server *srv, const char *name, struct plm_out *out)
{
    const plim_model_info *m = &srv->model;
    plm_out_str(out, "{\"id\":");
    plm_out_json_str(out, name);
    plm_out_printf(out,
                   ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"plimsoll\","
                   "\"max_model_len\":%u,\"meta\":{\"n_ctx\":%u,\"n_ctx_train\":%u,"
                   "\"n_vocab\":%u,\"n_embd\":%u,\"n_layer\":%u,\"n_params\":%" PRIu64
                   ",\"size\":%" PRIu64 ",\"name\":",
                   srv->started_s, m->n_ctx, m->n_ctx, m->n_ctx_train, m->n_vocab, m->n_embd,
                   m->n_layer, m->n_params, m->file_bytes);
    plm_out_json_str(out, m->name);
    plm_out_str(out, ",\"arch\":");
    plm_out_json_str(out, m->arch);
    plm_out_str(out, ",\"type\":");
    plm_out_json_str(out, m->type);
    plm_out_str(out, "}}");
}

void plm_get_models(struct plm_server *srv, struct plm_exchange *x)
{
    struct plm_out body;
    plm_out_init(&body, NULL);
    plm_out_str(&body, "{\"object\":\"list\",\"data\":[");
    // The other names of the file are taken in requests, but nobody chose them.
    for (size_t i = 0; i == 0 || i < srv->flags.aliases.n; i++) {
        if (i > 0)
            plm_out_str(&body, ",");
        model_json(srv, srv->model_names[i], &body);
    }
    plm_out_str(&body, "]}");
    plm_reply_json(srv, x, 200, &body);
}

// What a person sees who opens the address.
void plm_get_root(struct plm_server *srv, struct plm_exchange *x)
{
    struct plm_out body;
    plm_out_init(&body, NULL);
    plm_out_str(&body, "Plimsoll serves the OpenAI API under /v1: see /v1/models and /health.\n");
    plm_reply(srv, x, 200, "text/plain; charset=utf-8", NULL, 0, false, &body);
}

#define MODEL_PREFIX "/v1/models/"

void plm_get_model(struct plm_server *srv, struct plm_exchange *x)
{
    const char *name = plm_http_path(x) + strlen(MODEL_PREFIX);
    struct plm_out body;
    plm_out_init(&body, NULL);
    for (size_t i = 0; i < srv->n_model_names && body.len == 0; i++) {
        if (strcmp(name, srv->model_names[i]) == 0)
            model_json(srv, srv->model_names[i], &body);
    }
    if (body.len > 0) {
        plm_reply_json(srv, x, 200, &body);
        return;
    }
    struct plm_api_error error;
    plm_api_error_set(&error, 404, "invalid_request_error", "model_not_found",
                      "the model \"%.80s\" does not exist", name);
    plm_reply_error(srv, x, &error);
}

void plm_get_metrics(struct plm_server *srv, struct plm_exchange *x)
{
    struct plm_out body;
    plm_out_init(&body, NULL);
    plm_metrics_text(srv, &body);
    plm_reply(srv, x, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0, false, &body);
}

void plm_get_memory(struct plm_server *srv, struct plm_exchange *x)
{
    struct plm_out body;
    size_t need = 16384;
    plm_out_init(&body, NULL);
    // It may grow between two calls: leave room.
    for (int round = 0; round < 4 && plm_out_reserve(&body, need + 1024); round++) {
        if (plim_engine_memory_json(srv->engine, body.data, body.cap, &need) == PLIM_OK &&
            need < body.cap) {
            body.len = need;
            break;
        }
    }
    plm_reply_json(srv, x, 200, &body);
}
