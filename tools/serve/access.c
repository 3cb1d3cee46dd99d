// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/access.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

// ---- what a request says ----

static const struct {
    const char *name;
    size_t offset;
} fields[] = {
    {"Host", offsetof(struct plm_caller, host)},
    {"Origin", offsetof(struct plm_caller, origin)},
    {"Sec-Fetch-Site", offsetof(struct plm_caller, fetch_site)},
    {"Content-Type", offsetof(struct plm_caller, content_type)},
    {"Authorization", offsetof(struct plm_caller, authorization)},
    {"x-api-key", offsetof(struct plm_caller, x_api_key)},
};

static bool starts(const char *text, const char *prefix)
{
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

void plm_caller_field(struct plm_caller *caller, const char *name, const char *value)
{
    // What proxies add, by the standard (RFC 7239; RFC 9110, 7.6.3) and by custom.
    static const char *const proxies[] = {"Forwarded",        "Via",           "X-Real-IP",
                                          "X-Client-IP",      "Client-IP",     "True-Client-IP",
                                          "CF-Connecting-IP", "X-Original-For"};
    caller->forwarded |= starts(name, "X-Forwarded-");
    for (size_t i = 0; i < sizeof(proxies) / sizeof(proxies[0]); i++)
        caller->forwarded |= strcasecmp(name, proxies[i]) == 0;
    if (strcasecmp(name, "X-Forwarded-Proto") == 0)
        caller->proto = caller->proto == NULL ? value : ""; // of several proxies: none is sure
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcasecmp(name, fields[i].name) != 0)
            continue;
        const char **value_of = (const char **)(void *)((char *)caller + fields[i].offset);
        if (*value_of != NULL)
            caller->repeated = fields[i].name;
        *value_of = value;
    }
}

// ---- pages ----

// Reads and judges the Host header. Only HTTP/1.0 may lack it, which no browser speaks.
static void judge_host(const struct plm_access *access, struct plm_caller *caller,
                       struct plm_host *ret, struct plm_api_error *error)
{
    *ret = (struct plm_host){0};
    if (caller->host == NULL)
        return;
    const bool is_unix = !caller->local->has_ip;
    const bool known = plm_host_parse(caller->host, strlen(caller->host), ret);
    // No browser reaches a unix socket, and its clients write anything.
    if (is_unix ||
        (known && (plm_host_is_loopback(ret) || plm_peer_equal(&ret->ip, caller->local))))
        return;
    caller->named = true;
    if (known ? plm_hosts_has(&access->hosts, ret) : access->hosts.any)
        return;
    plm_api_error_set(error, 403, "permission_error", "host_not_allowed",
                      "this server does not answer to the Host \"%.100s\"; --allowed-hosts names "
                      "the hosts that it has beside its addresses and localhost",
                      caller->host);
}

// Whether the page was given by this server itself. Behind a proxy that is trusted, by its scheme.
static bool is_own(const struct plm_access *access, const struct plm_caller *caller,
                   const struct plm_host *host, const struct plm_origin *origin)
{
    if (caller->host == NULL)
        return false;
    const bool secure = caller->proto != NULL && strcasecmp(caller->proto, "https") == 0 &&
                        access->proxies != NULL &&
                        plm_peer_is_trusted(access->proxies, caller->peer);
    const struct plm_origin own = plm_origin_of(secure ? "https" : "http", host);
    return plm_origin_equal(&own, origin);
}

static void judge_origin(const struct plm_access *access, struct plm_caller *caller,
                         const struct plm_host *host, struct plm_cors *cors,
                         struct plm_api_error *error)
{
    const struct plm_origins *allowed = &access->origins;
    struct plm_origin origin;
    const bool cross_site =
        caller->fetch_site != NULL && strcasecmp(caller->fetch_site, "cross-site") == 0;
    const bool given = caller->origin != NULL;
    const bool known = given && plm_origin_parse(caller->origin, strlen(caller->origin), &origin);
    cors->vary = allowed->n > 0 && !allowed->any;
    // Sec-Fetch-Site says cross-site also of a page's own origin when a redirect led astray.
    if (!cross_site && (!given || (known && is_own(access, caller, host, &origin))))
        return;
    caller->page = true;
    if (allowed->any) {
        cors->allow_origin = "*";
    } else if (known && plm_origins_has(allowed, &origin)) {
        cors->allow_origin = caller->origin;
        cors->credentials = !origin.opaque; // null is no one's origin alone
    } else {
        plm_api_error_set(error, 403, "permission_error", "origin_not_allowed",
                          "a page of another site (Origin \"%.100s\") may not call this server; "
                          "--cors-origins names those that may",
                          given ? caller->origin : "not given");
    }
}

void plm_access_page(const struct plm_access *access, struct plm_caller *caller,
                     struct plm_cors *ret, struct plm_api_error *error)
{
    struct plm_host host;
    *ret = (struct plm_cors){0};
    error->http = 0;
    if (caller->repeated != NULL) {
        plm_api_error_set(error, 400, "invalid_request_error", "malformed_request",
                          "more than one %s header", caller->repeated);
        error->close = true;
        return;
    }
    judge_host(access, caller, &host, error);
    if (error->http == 0)
        judge_origin(access, caller, &host, ret, error);
}

// ---- roles ----

static void set_no_key(struct plm_api_error *error)
{
    plm_api_error_set(error, 401, "authentication_error", "invalid_api_key",
                      "the API key is missing or wrong");
    error->challenge = true;
}

// Without keys, whoever sits at this machine operates the server: not a proxy for somebody else,
// not a page, also not one that may chat, and not a name that could be anybody's.
static bool sits_here(const struct plm_access *access, const struct plm_caller *caller)
{
    // A unix socket is told by its own end: the other end of a connection that was reset has no
    // address either, whatever it was.
    const bool here = !caller->local->has_ip || plm_peer_is_loopback(caller->peer);
    const bool proxy = caller->forwarded || (access->proxies != NULL &&
                                             plm_peer_is_trusted(access->proxies, caller->peer));
    return here && !proxy && !caller->page && !caller->named;
}

static void judge_operator(const struct plm_access *access, const struct plm_caller *caller,
                           int key, struct plm_api_error *error)
{
    const struct plm_auth *auth = &access->auth;
    if (plm_auth_operates(auth, key))
        return;
    if (auth->n > auth->n_users && key < 0)
        set_no_key(error);
    else if (auth->n > auth->n_users)
        plm_api_error_set(error, 403, "permission_error", "admin_key_needed",
                          "this endpoint is for operators: it needs a key of --admin-key");
    else if (auth->n > 0) // no key that could be sent would do
        plm_api_error_set(error, 403, "permission_error", "admin_key_needed",
                          "this endpoint is for operators: it needs a key of --admin-key, and the "
                          "server was started without one");
    else if (!sits_here(access, caller))
        plm_api_error_set(error, 403, "permission_error", "admin_key_needed",
                          "this endpoint is for operators: without --admin-key it answers only "
                          "programs on the server's own machine, by localhost or an address, and "
                          "not through a proxy");
}

void plm_access_role(const struct plm_access *access, const struct plm_caller *caller,
                     enum plm_role role, struct plm_api_error *error)
{
    error->http = 0;
    if (role == PLM_ROLE_PUBLIC)
        return;
    const int key = plm_auth_check(&access->auth, caller->authorization, caller->x_api_key);
    if (role == PLM_ROLE_ADMIN)
        judge_operator(access, caller, key, error);
    else if (key < 0 && access->auth.n_users > 0)
        set_no_key(error);
}

// ---- bodies ----

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    const size_t n = sizeof(json) - 1;
    return strncasecmp(type, json, n) == 0 && strchr(" \t;", type[n]) != NULL;
}

void plm_access_type(const struct plm_caller *caller, struct plm_api_error *error)
{
    const char *type = caller->content_type;
    error->http = 0;
    if (type != NULL && is_json(type))
        return;
    plm_api_error_set(error, 415, "invalid_request_error", "unsupported_media_type",
                      "the body must be sent as application/json, not as %.100s; with curl: "
                      "-H 'Content-Type: application/json'",
                      type != NULL ? type : "a body without a type");
}
