// SPDX-License-Identifier: Apache-2.0
// Which path does what, who may call it and when.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/serve/log.h"
#include "tools/serve/server.h"

// ---- the table ----

#define EARLY   1
#define NO_BODY 2
#define PROBE   4

#define ROUTE_GET(handler)  .get = (handler)
#define ROUTE_POST(handler) .work = (handler)

static const struct plm_route routes[] = {
#define PLM_ENDPOINT(method_, path_, role_, flags, handler)                                        \
    {.method = #method_,                                                                           \
     .path = path_,                                                                                \
     .role = PLM_ROLE_##role_,                                                                     \
     .early = ((flags)&EARLY) != 0,                                                                \
     .no_body = ((flags)&NO_BODY) != 0,                                                            \
     .probe = ((flags)&PROBE) != 0,                                                                \
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
    plm_reply(srv, x, 204, NULL, extra, n, plm_http_content_length(x) != 0, &body);
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

// What asks every few seconds whether all is well, and is told that it is.
static bool is_well_probe(const struct plm_exchange *x)
{
    const struct plm_route *route = plm_http_status(x) == 200 ? find_route(plm_http_path(x)) : NULL;
    return route != NULL && route->probe;
}

static void on_closed(void *app, struct plm_exchange *x)
{
    const struct plm_server *srv = app;
    if (!srv->flags.quiet && (srv->engine_flags.verbose || !is_well_probe(x)))
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
