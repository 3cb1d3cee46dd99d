// SPDX-License-Identifier: Apache-2.0
// Which connections get a turn in plm_http_run(), in the order in which they asked for it, and what
// time it is.
#include <time.h>

#include "tools/serve/http_impl.h"

int64_t plm_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void plm_http_turn(struct plm_http_conn *conn)
{
    struct plm_http *http = conn->http;
    if (conn->ready)
        return;
    conn->ready = true;
    conn->next_ready = NULL;
    if (http->last_ready != NULL)
        http->last_ready->next_ready = conn;
    else
        http->ready = conn;
    http->last_ready = conn;
}

void plm_http_break(struct plm_http_conn *conn)
{
    conn->broken = true;
    plm_http_turn(conn);
}

void plm_http_ready(struct plm_http_conn *conn, uint32_t events)
{
    conn->events |= events;
    plm_http_turn(conn);
}

bool plm_http_is_due(const struct plm_http *http)
{
    return http->ready != NULL;
}
