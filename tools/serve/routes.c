// SPDX-License-Identifier: Apache-2.0
// Which path does what, who may call it and when; replies that need no engine thread.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/serve/log.h"
#include "tools/serve/server.h"

// With work outstanding and no step finished for so long, the engine is stuck: a chunk of a large
// model on a slow CPU takes tens of seconds.
#define STUCK_NS (INT64_C(180) * 1000000000)

#define JSON_TYPE "application/json"

// ---- replies ----

static void count_response(struct plm_server *srv, int status)
{
    srv->responses[status / 100 < 6 ? status / 100 : 5]++;
}

void plm_reply_error(struct plm_server *srv, struct plm_exchange *x,
                     const struct plm_api_error *error)
{
    struct plm_http_header extra[PLM_HTTP_EXTRA_MAX];
    char seconds[16];
    size_t n = 0;
    if (error->retry_after_s > 0) {
        snprintf(seconds, sizeof(seconds), "%d", error->retry_after_s);
        extra[n++] = (struct plm_http_header){"Retry-After", seconds};
    }
    if (error->never_retry)
        extra[n++] = (struct plm_http_header){"x-should-retry", "false"};
    if (error->challenge)
        extra[n++] = (struct plm_http_header){"WWW-Authenticate", "Bearer"};
    if (error->allow != NULL)
        extra[n++] = (struct plm_http_header){"Allow", error->allow};
    // Not charged to the host budget: an error must find room when nothing else does.
    struct plm_out body;
    plm_out_init(&body, NULL);
    plm_api_error_json(error, &body);
    count_response(srv, error->http);
    plm_http_reply(x, error->http, JSON_TYPE, extra, n, error->close, &body);
}

void plm_reply_json(struct plm_server *srv, struct plm_exchange *x, int status,
                    struct plm_out *body)
{
    if (body->failed) {
        struct plm_api_error error;
        plm_out_finish(body);
        plm_api_error_host(&error);
        plm_reply_error(srv, x, &error);
        return;
    }
    count_response(srv, status);
    plm_http_reply(x, status, JSON_TYPE, NULL, 0, false, body);
}

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

// ---- GET ----

static void get_health(struct plm_server *srv, struct plm_exchange *x)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    if (srv->engine != NULL)
        plim_engine_metrics(srv->engine, &m);
    if (srv->engine == NULL)
        reply_unavailable(srv, x, "loading", "Loading model");
    else if (srv->draining)
        reply_unavailable(srv, x, "draining", "The server is shutting down");
    else if (m.lost)
        reply_unavailable(srv, x, "lost", "The device was lost");
    else
        reply_text(srv, x, "{\"status\":\"ok\"}");
}

static void get_livez(struct plm_server *srv, struct plm_exchange *x)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    if (srv->engine != NULL)
        plim_engine_metrics(srv->engine, &m);
    if (m.last_step_age_ns > STUCK_NS)
        reply_unavailable(srv, x, "stuck", "There is work, but no step has finished for minutes");
    else
        reply_text(srv, x, "{\"status\":\"alive\"}");
}

static void get_readyz(struct plm_server *srv, struct plm_exchange *x)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    if (srv->engine == NULL) {
        reply_unavailable(srv, x, "loading", "Loading model");
        return;
    }
    plim_engine_metrics(srv->engine, &m);
    if (srv->draining || m.draining)
        reply_unavailable(srv, x, "draining", "The server is shutting down");
    else if (m.lost || !m.ready)
        reply_unavailable(srv, x, "lost",
                          m.lost ? "The device was lost" : "The device is being reopened");
    else if (plm_sleeps(srv, &m))
        reply_unavailable(srv, x, "asleep", "The engine is asleep");
    else if (m.waiting >= srv->engine_flags.opts.queue_max)
        reply_unavailable(srv, x, "queue_full", "The queue is full");
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

static void get_models(struct plm_server *srv, struct plm_exchange *x)
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
static void get_root(struct plm_server *srv, struct plm_exchange *x)
{
    struct plm_out body;
    plm_out_init(&body, NULL);
    plm_out_str(&body, "Plimsoll serves the OpenAI API under /v1: see /v1/models and /health.\n");
    count_response(srv, 200);
    plm_http_reply(x, 200, "text/plain; charset=utf-8", NULL, 0, false, &body);
}

#define MODEL_PREFIX "/v1/models/"

static void get_model(struct plm_server *srv, struct plm_exchange *x)
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

static void get_metrics(struct plm_server *srv, struct plm_exchange *x)
{
    struct plm_out body;
    plm_out_init(&body, NULL);
    plm_metrics_text(srv, &body);
    count_response(srv, 200);
    plm_http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0, false, &body);
}

static void get_memory(struct plm_server *srv, struct plm_exchange *x)
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

// ---- the table ----

#define EARLY   1
#define NO_BODY 2

#define ROUTE_GET(handler)  .get = (handler)
#define ROUTE_POST(handler) .work = (handler)

static const struct plm_route routes[] = {
#define PLM_ENDPOINT(method_, path_, role_, flags, handler)                                        \
    {.method = #method_,                                                                           \
     .path = path_,                                                                                \
     .role = PLM_ROLE_##role_,                                                                     \
     .early = ((flags)&EARLY) != 0,                                                                \
     .no_body = ((flags)&NO_BODY) != 0,                                                            \
     ROUTE_##method_(handler)},
#include "tools/serve/endpoints.def"
#undef PLM_ENDPOINT
};

static const struct plm_route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        const char *have = routes[i].path;
        size_t n = strlen(have);
        bool prefix = n > 1 && have[n - 1] == '/';
        if (prefix ? strncmp(path, have, n) == 0 && path[n] != '\0' : strcmp(path, have) == 0)
            return &routes[i];
    }
    return NULL;
}

static bool method_fits(const struct plm_route *route, const char *method)
{
    return strcmp(method, route->method) == 0 ||
           (route->get != NULL && strcmp(method, "HEAD") == 0);
}

// ---- admission of requests, before their bodies are read ----

// What an operator says is a few numbers. It is charged to nobody, so that it gets through also
// when requests hold the whole host budget.
#define OPERATOR_BODY_BYTES 4096

static bool is_operators(const struct plm_route *route)
{
    return route != NULL && route->role == PLM_ROLE_ADMIN;
}

static size_t body_max(const struct plm_server *srv, const struct plm_route *route)
{
    return is_operators(route) ? OPERATOR_BODY_BYTES : srv->max_body_bytes;
}

// What is wrong with a request as far as its headers tell; http 0: nothing.
static void judge(const struct plm_server *srv, const struct plm_exchange *x,
                  const struct plm_route *route, const struct plm_caller *caller,
                  struct plm_api_error *error)
{
    // What does not exist is no secret, but there is no reason to tell it to strangers.
    plm_access_role(&srv->access, caller, route != NULL ? route->role : PLM_ROLE_USER, error);
    if (error->http != 0)
        return;
    if (route == NULL) {
        plm_api_error_set(error, 404, "invalid_request_error", "not_found", "no such path: %.200s",
                          plm_http_path(x));
    } else if (!method_fits(route, plm_http_method(x))) {
        plm_api_error_set(error, 405, "invalid_request_error", "method_not_allowed", "%s needs %s",
                          route->path, route->method);
        error->allow = route->get != NULL ? "GET, HEAD" : "POST";
    } else if (!route->early && srv->engine == NULL) {
        plm_api_error_set(error, 503, "unavailable_error", "loading", "Loading model");
        error->retry_after_s = 1;
    } else if (srv->draining && route->work != NULL) {
        plm_api_error_set(error, 503, "unavailable_error", "draining",
                          "the server is shutting down");
        error->retry_after_s = 5;
        error->close = true;
    } else if (plm_http_content_length(x) > (int64_t)body_max(srv, route)) {
        plm_api_error_set(error, 413, "invalid_request_error", "body_too_large",
                          "the body has %" PRId64 " bytes, more than the %zu that are taken",
                          plm_http_content_length(x), body_max(srv, route));
    } else if (route->work != NULL && plm_http_content_length(x) != 0) {
        plm_access_type(caller, error);
    }
}

// A page asks whether it may send what it can not send unasked (the Fetch standard, 4.8). It has no
// key yet, so the path's role is judged when it comes back.
static bool is_preflight(const struct plm_exchange *x, const struct plm_cors *cors)
{
    return cors->allow_origin != NULL && strcmp(plm_http_method(x), "OPTIONS") == 0 &&
           plm_http_field(x, "Access-Control-Request-Method") != NULL;
}

static void reply_preflight(struct plm_server *srv, struct plm_exchange *x)
{
    const char *wanted = plm_http_field(x, "Access-Control-Request-Headers");
    struct plm_http_header extra[PLM_HTTP_EXTRA_MAX] = {
        {"Access-Control-Allow-Methods", "GET, HEAD, POST"},
        {"Access-Control-Max-Age", "600"}, // seconds: what most browsers keep at most
    };
    size_t n = 2;
    // Clients add headers of their own, such as their version; none has an effect here.
    if (wanted != NULL)
        extra[n++] = (struct plm_http_header){"Access-Control-Allow-Headers", wanted};
    struct plm_out body;
    plm_out_init(&body, NULL);
    count_response(srv, 204);
    plm_http_reply(x, 204, NULL, extra, n, plm_http_content_length(x) != 0, &body);
}

static void allow_page(struct plm_exchange *x, const struct plm_cors *cors)
{
    if (cors->vary)
        plm_http_always(x, "Vary", "Origin");
    if (cors->allow_origin == NULL)
        return;
    plm_http_always(x, "Access-Control-Allow-Origin", cors->allow_origin);
    plm_http_always(x, "Access-Control-Expose-Headers", "Retry-After, x-should-retry");
    if (cors->credentials)
        plm_http_always(x, "Access-Control-Allow-Credentials", "true");
}

static void note_field(void *ctx, const char *name, const char *value)
{
    plm_caller_field(ctx, name, value);
}

static void on_begin(void *app, struct plm_exchange *x)
{
    struct plm_server *srv = app;
    struct plm_api_error error;
    struct plm_cors cors;
    struct plm_caller caller = {.peer = plm_http_peer(x), .local = plm_http_local(x)};
    plm_http_each_field(x, note_field, &caller);
    plm_access_page(&srv->access, &caller, &cors, &error);
    allow_page(x, &cors);
    if (error.http == 0 && is_preflight(x, &cors)) {
        reply_preflight(srv, x);
        return;
    }
    const struct plm_route *route = find_route(plm_http_path(x));
    if (error.http == 0)
        judge(srv, x, route, &caller, &error);
    if (error.http == 0) {
        plm_http_limit_body(x, body_max(srv, route), is_operators(route) ? NULL : srv->engine);
        return;
    }
    // The rest of a refused request is not read, so that the connection can not go on.
    if (plm_http_content_length(x) != 0)
        error.close = true;
    plm_reply_error(srv, x, &error);
}

// Of the key that the request carries; callers without one count as one user.
static int key_of(const struct plm_server *srv, const struct plm_exchange *x)
{
    int key = plm_auth_check(&srv->access.auth, plm_http_field(x, "Authorization"),
                             plm_http_field(x, "x-api-key"));
    return key < 0 ? 0 : key;
}

static void on_request(void *app, struct plm_exchange *x)
{
    struct plm_server *srv = app;
    const struct plm_route *route = find_route(plm_http_path(x));
    if (route->get != NULL)
        route->get(srv, x);
    else
        plm_call_start(srv, x, route, key_of(srv, x));
}

static void on_body_failed(void *app, struct plm_exchange *x, bool too_large)
{
    struct plm_server *srv = app;
    struct plm_api_error error;
    if (too_large)
        plm_api_error_set(&error, 413, "invalid_request_error", "body_too_large",
                          "the body has more than the %zu bytes that are taken",
                          body_max(srv, find_route(plm_http_path(x))));
    else
        plm_api_error_host(&error);
    error.close = true;
    plm_reply_error(srv, x, &error);
}

static void on_malformed(void *app, struct plm_exchange *x, int status, const char *why)
{
    struct plm_api_error error;
    plm_api_error_set(&error, status, "invalid_request_error", "malformed_request", "%s", why);
    // Where a request ends is in doubt: nothing more is read from this connection.
    error.close = true;
    plm_reply_error(app, x, &error);
}

static void on_drained(void *app, struct plm_exchange *x)
{
    (void)app;
    if (plm_http_call(x) != NULL)
        plm_call_pump(plm_http_call(x));
}

// Whatever a client sends, a line stays a line.
static void printable(char *out, size_t cap, const char *text)
{
    snprintf(out, cap, "%s", text);
    for (char *c = out; *c != '\0'; c++)
        *c = *c > ' ' && *c < 0x7F ? *c : '?';
}

// One line per request. Keys, queries and texts are not in it.
static void log_request(const struct plm_server *srv, const struct plm_exchange *x)
{
    const struct plm_call *call = plm_http_call(x);
    char method[24], path[200], tokens[160] = "";
    printable(method, sizeof(method), plm_http_method(x));
    printable(path, sizeof(path), plm_http_path(x));
    if (call != NULL && call->output_tokens > 0 && srv->engine_flags.verbose)
        snprintf(tokens, sizeof(tokens),
                 " prompt=%u cached=%u output=%u queue_ms=%.0f prefill_ms=%.0f decode_ms=%.0f",
                 call->prompt_tokens, call->cached_tokens, call->output_tokens, call->queue_s * 1e3,
                 call->prefill_s * 1e3, call->decode_s * 1e3);
    else if (call != NULL && call->output_tokens > 0)
        snprintf(tokens, sizeof(tokens), " prompt=%u output=%u", call->prompt_tokens,
                 call->output_tokens);
    plm_log("%s %s %d%s ms=%" PRId64 "%s", method, path, plm_http_status(x), tokens,
            plm_now_ms() - plm_http_started_ms(x),
            call != NULL && !call->done && call->admitted ? " left" : "");
}

static void on_closed(void *app, struct plm_exchange *x)
{
    const struct plm_server *srv = app;
    if (!srv->flags.quiet)
        log_request(srv, x);
    if (plm_http_call(x) != NULL)
        plm_call_closed(plm_http_call(x));
}

void plm_routes_handler(struct plm_server *srv, struct plm_http_handler *ret)
{
    *ret = (struct plm_http_handler){
        .app = srv,
        .begin = on_begin,
        .request = on_request,
        .body_failed = on_body_failed,
        .malformed = on_malformed,
        .drained = on_drained,
        .closed = on_closed,
    };
}
