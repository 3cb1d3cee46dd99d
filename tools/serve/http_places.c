// SPDX-License-Identifier: Apache-2.0
// How many connections there may be: in all, of one peer, and for probes.
//
// A connection that finds no ordinary place gets one of a few others, since only its first bytes
// tell whether it is a probe's. When those are taken, too, the one that has been there longest
// gives its place to the newcomer: probes ask at once, and whoever only holds a connection open
// loses it to the next one.
#include <string.h>

#include "tools/serve/http_impl.h"

// The server waits for what its client does: send the rest of a request, take an answer, or go.
static bool awaits_client(const struct plm_http_conn *conn)
{
    return conn->unfinished || conn->lingers || (conn->x != NULL && plm_http_is_blocked(conn->x));
}

bool plm_http_peer_is_full(const struct plm_http *http, const struct plm_peer *peer)
{
    // A unix socket's peers have no address: the maximum of all is theirs.
    if (!peer->has_ip || plm_peer_is_trusted(http->config.trusted, peer))
        return false;
    unsigned n = 0;
    for (const struct plm_http_conn *conn = http->newest; conn != NULL; conn = conn->older)
        n += awaits_client(conn) && conn->place == PLM_PLACE_ORDINARY &&
             plm_peer_same_client(&conn->peer, peer);
    return n >= http->config.max_per_peer;
}

// Kept open by a client that may come back, or has been told everything, and nothing else.
static bool is_idle(const struct plm_http_conn *conn)
{
    return conn->place == PLM_PLACE_ORDINARY && !conn->unfinished && conn->x == NULL &&
           conn->events == 0 && conn->n_ahead == 0;
}

static struct plm_http_conn *oldest_idle(const struct plm_http *http)
{
    struct plm_http_conn *found = NULL;
    for (struct plm_http_conn *conn = http->oldest; conn != NULL; conn = conn->newer) {
        if (is_idle(conn) && (found == NULL || conn->since_ms < found->since_ms))
            found = conn;
    }
    return found;
}

// Takes the place, and the connection ends with its next turn.
static void evict(struct plm_http_conn *conn)
{
    plm_http_leave_place(conn);
    plm_http_break(conn);
}

static void free_a_probe_place(struct plm_http *http)
{
    for (struct plm_http_conn *conn = http->oldest; conn != NULL; conn = conn->newer) {
        if (conn->place == PLM_PLACE_PROBE) {
            if (conn->x == NULL && !conn->lingers)
                plm_http_say_no_place(http, conn->fd);
            evict(conn);
            return;
        }
    }
}

enum plm_http_place plm_http_find_place(struct plm_http *http, const struct plm_peer *peer)
{
    if (!plm_http_peer_is_full(http, peer)) {
        struct plm_http_conn *idle =
            http->n_ordinary >= http->config.max_connections ? oldest_idle(http) : NULL;
        if (idle != NULL)
            evict(idle);
        if (http->n_ordinary < http->config.max_connections)
            return PLM_PLACE_ORDINARY;
    }
    if (http->n_probes >= PLM_HTTP_PROBE_PLACES)
        free_a_probe_place(http);
    return PLM_PLACE_PROBE;
}

void plm_http_take_place(struct plm_http_conn *conn, enum plm_http_place place)
{
    conn->place = place;
    if (place == PLM_PLACE_ORDINARY)
        conn->http->n_ordinary++;
    else
        conn->http->n_probes++;
}

void plm_http_leave_place(struct plm_http_conn *conn)
{
    if (conn->place == PLM_PLACE_ORDINARY)
        conn->http->n_ordinary--;
    else if (conn->place == PLM_PLACE_PROBE)
        conn->http->n_probes--;
    conn->place = PLM_PLACE_NONE;
}

bool plm_http_fits_place(const struct plm_exchange *x)
{
    if (x->conn->place == PLM_PLACE_ORDINARY)
        return true;
    for (const char *const *path = x->conn->http->config.probes; *path != NULL; path++) {
        if (strcmp(*path, x->path) == 0)
            return true;
    }
    return false;
}
