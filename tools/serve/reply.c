// SPDX-License-Identifier: Apache-2.0
// Responses that are whole, and their count.
#include <stdio.h>

#include "tools/serve/server.h"

void plm_reply(struct plm_server *srv, struct plm_exchange *x, int status, const char *content_type,
               const struct plm_http_header *extra, size_t n_extra, bool close,
               struct plm_out *body)
{
    srv->responses[status / 100 < 6 ? status / 100 : 5]++;
    plm_http_reply(x, status, content_type, extra, n_extra, close, body);
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
    plm_reply(srv, x, error->http, PLM_HTTP_JSON, extra, n, error->close, &body);
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
    plm_reply(srv, x, status, PLM_HTTP_JSON, NULL, 0, false, body);
}
