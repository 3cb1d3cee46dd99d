// SPDX-License-Identifier: Apache-2.0
// Connections and what they send.
#include "tools/serve/http.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/serve/http_impl.h"

// What one read takes of a body.
#define SCRATCH_BYTES (64 * 1024)
// What a client still sends of a refused body is read and dropped up to here: closing with unread
// bytes would reset the connection, and a client that writes everything before it reads would lose
// its answer. Then the connection is cut. The same after so long a time, or so long a silence.
#define DISCARD_MAX_BYTES (64 * 1024 * 1024)
#define LINGER_MS         30000
#define LINGER_SILENCE_MS 2000
// Turns go on for so long before the caller looks at what else is there: newcomers, above all.
#define RUN_MS 5
// A head in a probe's place: a probe that is slower than that has failed anyway.
#define PROBE_HEAD_MS 2000
// A body that still arrives after so many timeouts is dribbled.
#define BODY_TIMEOUTS 10
// What the kernel keeps for an open socket beside its buffers (struct tcp_sock, inode, file,
// directory entry and the entry of epoll; about 3.5 KiB on Linux 6.1 for x86-64).
#define SOCKET_OBJECTS_BYTES 4096

// ---- sockets ----

static void set_option(int fd, int level, int name, int value)
{
    setsockopt(fd, level, name, &value, sizeof(value)); // a unix socket knows fewer
}

// How much the kernel takes of what was not read yet.
static void set_window(struct plm_http_conn *conn, int bytes)
{
    if (conn->window == bytes)
        return;
    conn->http->n_wide -= conn->window == PLM_HTTP_BODY_SOCKET_BYTES;
    conn->http->n_wide += bytes == PLM_HTTP_BODY_SOCKET_BYTES;
    conn->window = bytes;
    set_option(conn->fd, SOL_SOCKET, SO_RCVBUF, bytes);
}

// Wide only while somebody reads: a small window would make large bodies crawl, a large one would
// be memory that a client fills for nothing.
static void widen(struct plm_http_conn *conn)
{
    set_window(conn, conn->http->n_wide < PLM_HTTP_WIDE_MAX ? PLM_HTTP_BODY_SOCKET_BYTES
                                                            : PLM_HTTP_READ_SOCKET_BYTES);
}

// ---- exchanges ----

static struct plm_exchange *open_exchange(struct plm_http_conn *conn)
{
    struct plm_exchange *x = &conn->exchange;
    *x = (struct plm_exchange){.conn = conn, .method = "-", .path = "-"};
    x->started_ms = plm_now_ms();
    x->last_write_ms = x->started_ms;
    conn->x = x;
    return x;
}

static void end_exchange(struct plm_http_conn *conn)
{
    struct plm_exchange *x = conn->x;
    if (x == NULL)
        return;
    if (x->begun)
        conn->http->handler.closed(conn->http->handler.app, x);
    plm_out_finish(&x->body);
    plm_out_finish(&x->fields);
    plm_out_finish(&x->prefix);
    plm_out_finish(&x->out);
    conn->x = NULL;
    conn->unfinished = false;
    conn->since_ms = plm_now_ms();
}

// Nothing more is read from this connection as a request.
static void refuse(struct plm_http_conn *conn, int status, const char *why)
{
    const struct plm_http_handler *h = &conn->http->handler;
    struct plm_exchange *x = conn->x != NULL ? conn->x : open_exchange(conn);
    x->begun = true;
    x->close = true;
    plm_out_finish(&x->body);
    h->malformed(h->app, x, status, why);
}

static void on_head(struct plm_http_conn *conn, bool body_follows)
{
    const struct plm_http_handler *h = &conn->http->handler;
    struct plm_exchange *x = open_exchange(conn);
    x->method = plm_wire_method(&conn->wire);
    x->path = plm_wire_path(&conn->wire);
    x->close = !plm_wire_keeps_alive(&conn->wire) || conn->place == PLM_PLACE_PROBE;
    if (!plm_http_fits_place(x)) {
        plm_http_no_place(x);
        return;
    }
    x->begun = true;
    h->begin(h->app, x);
    const int64_t length = plm_wire_length(&conn->wire);
    if (x->state == PLM_EXCHANGE_BODY && (length < 0 || length > PLM_HTTP_SOCKET_BYTES))
        widen(conn);
    if (x->state == PLM_EXCHANGE_BODY && !body_follows && length != 0 &&
        plm_wire_expects_continue(&conn->wire))
        plm_http_continue(conn);
}

static void on_body(struct plm_exchange *x, const char *data, size_t n)
{
    const struct plm_http_handler *h = &x->conn->http->handler;
    const bool too_large = n > x->body_max - x->body.len;
    x->body_bytes += n;
    if (!too_large)
        plm_out_bytes(&x->body, data, n);
    if (!too_large && !x->body.failed)
        return;
    // The memory is given back at once; the answer goes out although the body's end may never come.
    plm_out_finish(&x->body);
    h->body_failed(h->app, x, too_large);
}

// Whether the kernel holds more than belongs to a connection that nobody reads from: it was sent
// behind the request, and would stay there until the answer is out.
static bool holds_too_much(const struct plm_http_conn *conn)
{
    int unread = 0;
    return ioctl(conn->fd, FIONREAD, &unread) == 0 && unread > 2 * PLM_HTTP_SOCKET_BYTES;
}

static void on_end(struct plm_http_conn *conn)
{
    const struct plm_http_handler *h = &conn->http->handler;
    if (conn->x == NULL)
        return; // it was answered before its end
    // Who has left with the last byte of a body will not read an answer.
    if (conn->hangup && plm_wire_length(&conn->wire) != 0) {
        conn->broken = true;
        return;
    }
    set_window(conn, PLM_HTTP_SOCKET_BYTES);
    if (holds_too_much(conn)) {
        refuse(conn, 400, "more than 32 KiB were sent behind a request before its answer");
        return;
    }
    conn->x->state = PLM_EXCHANGE_WAITING;
    h->request(h->app, conn->x);
}

static void on_violation(struct plm_http_conn *conn)
{
    const char *why;
    const int status = plm_wire_violation(&conn->wire, &why);
    refuse(conn, status, why);
}

// ---- input ----

static bool receives(const struct plm_http_conn *conn)
{
    return !conn->broken && !conn->lingers &&
           (conn->x == NULL || conn->x->state == PLM_EXCHANGE_BODY);
}

// Has the bytes scanned up to where somebody must answer first; what is left of them waits.
static void feed(struct plm_http_conn *conn, const char *at, size_t n)
{
    const char *body = NULL;
    size_t body_len = 0;
    if (conn->x == NULL && plm_wire_idle(&conn->wire))
        conn->since_ms = conn->last_read_ms;
    while (receives(conn)) {
        const enum plm_wire_event event = plm_wire_feed(&conn->wire, &at, &n, &body, &body_len);
        switch (event) {
        case PLM_WIRE_HEAD: on_head(conn, n > 0); break;
        case PLM_WIRE_BODY: on_body(conn->x, body, body_len); break;
        case PLM_WIRE_END: on_end(conn); break;
        case PLM_WIRE_BAD: on_violation(conn); break;
        case PLM_WIRE_MORE: break;
        }
        if (event == PLM_WIRE_MORE)
            break;
    }
    // Behind a request that ends the connection nothing is of interest.
    conn->n_ahead = conn->x != NULL && conn->x->close ? 0 : n;
    if (conn->n_ahead > sizeof(conn->ahead))
        conn->broken = true; // plm_wire_want() sees to it that this can not be
    else
        memmove(conn->ahead, at, conn->n_ahead);
}

// One read, so that a client with much to say does not keep the others waiting.
static ssize_t read_some(struct plm_http_conn *conn, size_t want)
{
    const size_t most = want < SCRATCH_BYTES ? want : SCRATCH_BYTES;
    const ssize_t n = recv(conn->fd, conn->http->scratch, most, 0);
    if (n > 0)
        conn->last_read_ms = plm_now_ms();
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        conn->broken = true;
    return n;
}

static void receive(struct plm_http_conn *conn, bool readable)
{
    if (conn->n_ahead > 0) {
        const size_t n = conn->n_ahead;
        conn->n_ahead = 0;
        feed(conn, conn->ahead, n);
    }
    if (!readable || !receives(conn))
        return;
    const ssize_t n = read_some(conn, plm_wire_want(&conn->wire, sizeof(conn->ahead)));
    if (n > 0)
        feed(conn, conn->http->scratch, (size_t)n);
}

// ---- the end of a connection ----

static void linger(struct plm_http_conn *conn)
{
    shutdown(conn->fd, SHUT_WR);
    conn->lingers = true;
    set_window(conn, PLM_HTTP_READ_SOCKET_BYTES);
    conn->n_ahead = 0;
    conn->last_read_ms = conn->since_ms;
}

static void drop_input(struct plm_http_conn *conn)
{
    const ssize_t n = read_some(conn, SCRATCH_BYTES);
    if (n > 0)
        conn->dropped_bytes += (uint64_t)n;
    if (conn->dropped_bytes > DISCARD_MAX_BYTES)
        conn->broken = true;
}

static void conn_close(struct plm_http_conn *conn)
{
    struct plm_http *http = conn->http;
    end_exchange(conn);
    plm_http_leave_place(conn);
    http->n_wide -= conn->window == PLM_HTTP_BODY_SOCKET_BYTES;
    if (conn->newer != NULL)
        conn->newer->older = conn->older;
    else
        http->newest = conn->older;
    if (conn->older != NULL)
        conn->older->newer = conn->newer;
    else
        http->oldest = conn->newer;
    close(conn->fd); // epoll forgets it
    free(conn);
}

// ---- a turn ----

// Writes what there is of an answer. True: it is out, and the next request has already come.
static bool answer(struct plm_http_conn *conn)
{
    struct plm_exchange *x = conn->x;
    if (x == NULL || x->state == PLM_EXCHANGE_BODY || conn->broken)
        return false;
    const bool complete = x->state == PLM_EXCHANGE_REPLY && (!x->stream || x->ended);
    if (conn->hangup && !complete) {
        conn->broken = true;
        return false;
    }
    if (x->state == PLM_EXCHANGE_WAITING || !plm_http_write(x))
        return false;
    const bool close_after = x->close;
    end_exchange(conn);
    if (close_after)
        linger(conn);
    return !close_after && conn->n_ahead > 0;
}

// A connection that begins another request without completing it counts with its peer again.
static void count_unfinished(struct plm_http_conn *conn)
{
    const bool idle = conn->x == NULL && plm_wire_idle(&conn->wire) && !conn->unfinished;
    const bool unfinished = receives(conn) && !idle;
    if (unfinished && !conn->unfinished && conn->place == PLM_PLACE_ORDINARY &&
        plm_http_peer_is_full(conn->http, &conn->peer)) {
        plm_http_no_place(conn->x != NULL ? conn->x : open_exchange(conn));
        answer(conn);
        return;
    }
    conn->unfinished = unfinished;
}

static void watch(struct plm_http_conn *conn)
{
    uint32_t wanted = conn->hangup ? 0 : EPOLLRDHUP;
    if (conn->lingers || receives(conn))
        wanted |= EPOLLIN;
    if (conn->x != NULL && plm_http_is_blocked(conn->x))
        wanted |= EPOLLOUT;
    if (wanted == conn->watched)
        return;
    struct epoll_event event = {.events = wanted, .data.ptr = conn};
    epoll_ctl(conn->http->config.epoll_fd, EPOLL_CTL_MOD, conn->fd, &event);
    conn->watched = wanted;
}

static void take_turn(struct plm_http_conn *conn)
{
    const uint32_t events = conn->events;
    const bool readable = (events & EPOLLIN) != 0;
    conn->events = 0;
    conn->hangup |= (events & EPOLLRDHUP) != 0;
    conn->broken |= (events & (EPOLLHUP | EPOLLERR)) != 0;
    if (conn->lingers && readable && !conn->broken)
        drop_input(conn);
    if (!conn->lingers && !conn->broken) {
        if (receives(conn))
            receive(conn, readable);
        // One request in a turn: somebody who sends hundreds at once is not served alone.
        if (answer(conn))
            plm_http_turn(conn);
    }
    if (!conn->broken)
        count_unfinished(conn);
    if (!conn->broken)
        watch(conn);
    else if (!conn->ready) // else it has another turn
        conn_close(conn);
}

void plm_http_run(struct plm_http *http)
{
    const struct plm_http_conn *last = http->last_ready;
    const int64_t end_ms = plm_now_ms() + RUN_MS;
    bool whole = false;
    while (http->ready != NULL && !whole && plm_now_ms() <= end_ms) {
        struct plm_http_conn *conn = http->ready;
        whole = conn == last;
        http->ready = conn->next_ready;
        if (http->ready == NULL)
            http->last_ready = NULL;
        conn->ready = false;
        take_turn(conn);
    }
}

// ---- time ----

// Ends it with what the kernel still holds for the client: otherwise that would stay for as long as
// the client likes.
static void reset(struct plm_http_conn *conn)
{
    const struct linger none = {.l_onoff = 1};
    setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    plm_http_break(conn);
}

static void sweep_unopened(struct plm_http_conn *conn, int64_t now_ms)
{
    const int64_t timeout_ms = (int64_t)conn->http->config.timeout_s * 1000;
    const int64_t since = now_ms - conn->since_ms;
    int64_t head_ms = conn->place == PLM_PLACE_PROBE ? PROBE_HEAD_MS : PLM_HTTP_HEAD_S * 1000;
    head_ms = head_ms < timeout_ms ? head_ms : timeout_ms;
    if (conn->lingers) {
        if (since > LINGER_MS || now_ms - conn->last_read_ms > LINGER_SILENCE_MS)
            plm_http_break(conn);
    } else if (plm_wire_idle(&conn->wire)) {
        if (since > (conn->place == PLM_PLACE_PROBE ? head_ms : timeout_ms))
            plm_http_break(conn);
    } else if (since > head_ms) {
        refuse(conn, 408, "the header came too slowly");
    }
}

static void sweep_body(struct plm_exchange *x, int64_t now_ms)
{
    const int64_t timeout_ms = (int64_t)x->conn->http->config.timeout_s * 1000;
    const int64_t since = now_ms - x->started_ms;
    const int64_t by_rate = timeout_ms + (int64_t)(x->body_bytes / PLM_HTTP_RATE_MIN) * 1000;
    if (now_ms - x->conn->last_read_ms > timeout_ms || since > by_rate ||
        since > BODY_TIMEOUTS * timeout_ms)
        refuse(x->conn, 408, "the body came too slowly");
}

void plm_http_sweep(struct plm_http *http, int64_t now_ms)
{
    for (struct plm_http_conn *conn = http->newest; conn != NULL; conn = conn->older) {
        if (conn->broken || conn->ready)
            continue; // something has come
        if (conn->x == NULL)
            sweep_unopened(conn, now_ms);
        else if (conn->x->state == PLM_EXCHANGE_BODY)
            sweep_body(conn->x, now_ms);
        else if (plm_http_takes_too_slowly(conn->x, now_ms))
            reset(conn);
    }
}

// ---- connections ----

size_t plm_http_connection_bytes(void)
{
    return sizeof(struct plm_http_conn) + SOCKET_OBJECTS_BYTES + 2 * 2 * PLM_HTTP_SOCKET_BYTES;
}

size_t plm_http_wide_bytes(void)
{
    return (size_t)PLM_HTTP_WIDE_MAX * 2 * (PLM_HTTP_BODY_SOCKET_BYTES - PLM_HTTP_SOCKET_BYTES);
}

unsigned plm_http_connections(const struct plm_http *http)
{
    return http->n_ordinary + http->n_probes;
}

uint64_t plm_http_turned_away(const struct plm_http *http)
{
    return http->n_turned_away;
}

typedef int name_of(int fd, struct sockaddr *addr, socklen_t *len);

static struct plm_peer end_of(int fd, name_of *name)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    bool known = name(fd, (struct sockaddr *)&addr, &len) == 0;
    return plm_peer_of(known ? (struct sockaddr *)&addr : NULL);
}

void plm_http_add(struct plm_http *http, int fd)
{
    const struct plm_peer peer = end_of(fd, getpeername);
    // Where there is no memory for it, there is no place for it either.
    struct plm_http_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        plm_http_turn_away(http, fd);
        return;
    }
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1); // a client without power ends, too
    set_option(fd, SOL_SOCKET, SO_SNDBUF, PLM_HTTP_SOCKET_BYTES);
    conn->http = http;
    conn->fd = fd;
    conn->peer = peer;
    conn->local = end_of(fd, getsockname);
    conn->since_ms = plm_now_ms();
    conn->unfinished = true;
    conn->watched = EPOLLIN | EPOLLRDHUP;
    plm_wire_init(&conn->wire);
    plm_http_take_place(conn, plm_http_find_place(http, &peer));
    conn->older = http->newest;
    if (conn->older != NULL)
        conn->older->newer = conn;
    else
        http->oldest = conn;
    http->newest = conn;
    struct epoll_event event = {.events = conn->watched, .data.ptr = conn};
    if (epoll_ctl(http->config.epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        plm_http_break(conn);
    // Most requests come with the connection, and then it is not one that only waits. Its turn is
    // now, whoever else waits for one: that may be many, and this may be a probe.
    conn->events = EPOLLIN;
    if (!conn->ready)
        take_turn(conn);
}

struct plm_http *plm_http_create(const struct plm_http_config *config,
                                 const struct plm_http_handler *handler)
{
    struct plm_http *http = calloc(1, sizeof(*http));
    if (http == NULL)
        return NULL;
    http->config = *config;
    http->handler = *handler;
    http->scratch = malloc(SCRATCH_BYTES);
    if (http->scratch != NULL)
        return http;
    free(http);
    return NULL;
}

void plm_http_destroy(struct plm_http *http)
{
    if (http == NULL)
        return;
    while (http->newest != NULL)
        conn_close(http->newest);
    free(http->scratch);
    free(http);
}

// ---- what a request says ----

void plm_http_set_call(struct plm_exchange *x, void *call)
{
    x->call = call;
}

void *plm_http_call(const struct plm_exchange *x)
{
    return x->call;
}

const char *plm_http_method(const struct plm_exchange *x)
{
    return x->method;
}

const char *plm_http_path(const struct plm_exchange *x)
{
    return x->path;
}

int64_t plm_http_started_ms(const struct plm_exchange *x)
{
    return x->started_ms;
}

const char *plm_http_field(const struct plm_exchange *x, const char *name)
{
    return plm_wire_field(&x->conn->wire, name);
}

void plm_http_each_field(const struct plm_exchange *x, plm_http_visit *field, void *ctx)
{
    const struct plm_wire *wire = &x->conn->wire;
    for (size_t i = 0; i < plm_wire_fields(wire); i++)
        field(ctx, plm_wire_field_name(wire, i), plm_wire_field_value(wire, i));
}

const struct plm_peer *plm_http_peer(const struct plm_exchange *x)
{
    return &x->conn->peer;
}

const struct plm_peer *plm_http_local(const struct plm_exchange *x)
{
    return &x->conn->local;
}

int64_t plm_http_content_length(const struct plm_exchange *x)
{
    return plm_wire_length(&x->conn->wire);
}

void plm_http_limit_body(struct plm_exchange *x, size_t max_bytes, plim_engine *engine)
{
    x->body_max = max_bytes;
    x->body.engine = engine;
    // What nobody is charged for is small, and must not wait for others either.
    x->body.share = engine != NULL ? x->conn->http->config.bodies : NULL;
}

struct plm_out plm_http_take_body(struct plm_exchange *x)
{
    struct plm_out body = x->body;
    plm_out_init(&x->body, NULL);
    return body;
}
