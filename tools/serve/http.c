// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tools/serve/http_impl.h"

// Of a connection in libmicrohttpd: headers and the write buffer. Only what is used is touched.
#define POOL_BYTES (32 * 1024)
// What one call of the reader may hand over.
#define STREAM_BLOCK_BYTES 4096
// A slow reader's buffer is moved down once so much of it was taken.
#define COMPACT_BYTES (32 * 1024)
// What a client still sends of a refused body is read and dropped up to here: closing with unread
// bytes would reset the connection, and a client that writes everything before it reads would lose
// its answer. Then the connection is cut.
#define DISCARD_MAX_BYTES (64 * 1024 * 1024)
// A body that still arrives after so many timeouts is dribbled.
#define BODY_TIMEOUTS 10

enum state {
    STATE_BODY,    // begin() was called
    STATE_WAITING, // request() was called; suspended until somebody answers
    STATE_REPLY,   // the response is queued
};

struct plm_http_conn {
    struct plm_http *http;
    struct MHD_Connection *mhd;
    struct plm_exchange *x; // the current one, or NULL
    struct plm_http_conn *prev, *next;
    int fd;
    struct plm_peer peer, local;
    int64_t since_ms; // connected, or when the last exchange ended
    bool hangup;
    bool stuck; // see nudge()
};

struct plm_exchange {
    struct plm_http_conn *conn;
    void *call;
    char method[16];
    const char *target, *path;
    enum state state;
    bool suspended;
    bool begun; // the handler saw it; closed() is owed
    bool dead;  // the client left
    // Request.
    int64_t content_length;
    size_t body_max;
    size_t discarded;
    bool body_too_large;
    bool refusing; // in the midst of its body: the reply goes out at once
    bool refused;  // it has gone out
    struct plm_out body;
    // Response.
    struct MHD_Response *response;
    struct plm_http_header always[PLM_HTTP_ALWAYS_MAX];
    size_t n_always;
    int status;
    bool stream;
    bool ended;
    struct plm_out out;
    size_t out_read;
    int64_t started_ms;
    int64_t last_write_ms;
};

struct plm_http {
    struct plm_http_config config;
    struct plm_http_handler handler;
    struct MHD_Daemon *daemon;
    struct plm_http_conn *conns;
    unsigned n_conns;
    bool any_stuck;
};

int64_t plm_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

// ---- exchanges ----

static void resume(struct plm_exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    MHD_resume_connection(x->conn->mhd);
}

static void suspend(struct plm_exchange *x)
{
    x->suspended = true;
    MHD_suspend_connection(x->conn->mhd);
}

static struct plm_exchange *exchange_create(struct plm_http_conn *conn, const char *url,
                                            const char *method)
{
    struct plm_exchange *x = calloc(1, sizeof(*x));
    if (x == NULL)
        return NULL;
    x->conn = conn;
    x->target = url;
    x->path = plm_http_target_path(url);
    x->started_ms = plm_now_ms();
    x->last_write_ms = x->started_ms;
    snprintf(x->method, sizeof(x->method), "%s", method);
    const char *length = MHD_lookup_connection_value(conn->mhd, MHD_HEADER_KIND, "Content-Length");
    const char *coding =
        MHD_lookup_connection_value(conn->mhd, MHD_HEADER_KIND, "Transfer-Encoding");
    if (coding != NULL)
        x->content_length = -1;
    else if (length != NULL)
        x->content_length = strtoll(length, NULL, 10);
    plm_out_init(&x->body, NULL);
    plm_out_init(&x->out, NULL);
    conn->x = x;
    return x;
}

static void exchange_free(struct plm_exchange *x)
{
    struct plm_http_conn *conn = x->conn;
    if (x->begun)
        conn->http->handler.closed(conn->http->handler.app, x);
    if (x->response != NULL)
        MHD_destroy_response(x->response);
    plm_out_finish(&x->body);
    plm_out_finish(&x->out);
    conn->x = NULL;
    conn->since_ms = plm_now_ms();
    free(x);
}

// Queues the response that reply() or stream_begin() left, or waits for one.
static enum MHD_Result answer_or_wait(struct plm_exchange *x)
{
    if (x->response == NULL && (x->dead || x->conn->hangup))
        return MHD_NO;
    if (x->response == NULL) {
        x->state = STATE_WAITING;
        suspend(x);
        return MHD_YES;
    }
    x->state = STATE_REPLY;
    return MHD_queue_response(x->conn->mhd, (unsigned)x->status, x->response);
}

static enum MHD_Result begin(struct plm_http_conn *conn, const char *url, const char *method,
                             const char *version, void **con_cls)
{
    const struct plm_http_handler *h = &conn->http->handler;
    struct plm_exchange *x = exchange_create(conn, url, method);
    if (x == NULL)
        return MHD_NO;
    *con_cls = x;
    x->begun = true;
    const char *why = NULL;
    int status = plm_http_check(conn->mhd, version, &why);
    if (status != 0)
        h->malformed(h->app, x, status, why);
    else
        h->begin(h->app, x);
    return x->response != NULL ? answer_or_wait(x) : MHD_YES;
}

// Answers in the midst of a body, whose end may never come. The library can not do that.
static void refuse_body(struct plm_exchange *x)
{
    struct plm_http *http = x->conn->http;
    // The memory is given back at once.
    plm_out_finish(&x->body);
    x->refusing = true;
    http->handler.body_failed(http->handler.app, x, x->body_too_large);
    x->refusing = false;
    x->refused = true;
}

static enum MHD_Result take_body(struct plm_exchange *x, const char *data, size_t *size)
{
    if (!x->refused) {
        x->body_too_large = *size > x->body_max - x->body.len;
        if (!x->body_too_large)
            plm_out_bytes(&x->body, data, *size);
        if (x->body_too_large || x->body.failed)
            refuse_body(x);
    }
    if (x->refused)
        x->discarded += *size;
    *size = 0;
    return x->discarded > DISCARD_MAX_BYTES ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *mhd, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *data_size, void **con_cls)
{
    struct plm_http *http = cls;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct plm_http_conn *conn = info != NULL ? info->socket_context : NULL;
    if (conn == NULL)
        return MHD_NO;
    if (*con_cls == NULL)
        return begin(conn, url, method, version, con_cls);
    struct plm_exchange *x = *con_cls;
    if (x->state == STATE_WAITING)
        return answer_or_wait(x);
    if (*data_size > 0)
        return take_body(x, data, data_size);
    if (x->refused || (conn->hangup && x->content_length != 0))
        return MHD_NO;
    http->handler.request(http->handler.app, x);
    return answer_or_wait(x);
}

// Makes libmicrohttpd look at a connection that it has lost sight of, because it treats a resumed
// one as ready. 0.9.75 in epoll mode forgets two kinds: one that it closed itself after the reader
// reported an error (kept until all connections that have been quiet for longer are gone), and one
// whose end arrived together with data (kept until it times out). Only for connections that are not
// suspended.
static void nudge(struct plm_http_conn *conn)
{
    MHD_suspend_connection(conn->mhd);
    MHD_resume_connection(conn->mhd);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
                         enum MHD_RequestTerminationCode code)
{
    struct plm_http *http = cls;
    (void)mhd;
    struct plm_exchange *x = *con_cls;
    if (x == NULL)
        return;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK) {
        x->conn->stuck = true;
        http->any_stuck = true;
    }
    exchange_free(x);
    *con_cls = NULL;
}

// ---- connections ----

typedef int name_of(int fd, struct sockaddr *addr, socklen_t *len);

static struct plm_peer end_of(int fd, name_of *name)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    bool known = name(fd, (struct sockaddr *)&addr, &len) == 0;
    return plm_peer_of(known ? (struct sockaddr *)&addr : NULL);
}

static void conn_open(struct plm_http *http, struct MHD_Connection *mhd, void **socket_context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct plm_http_conn *conn = info != NULL ? calloc(1, sizeof(*conn)) : NULL;
    if (conn == NULL)
        return; // on_access() then ends it
    conn->http = http;
    conn->mhd = mhd;
    conn->fd = info->connect_fd;
    conn->peer = end_of(conn->fd, getpeername);
    conn->local = end_of(conn->fd, getsockname);
    conn->since_ms = plm_now_ms();
    conn->next = http->conns;
    if (conn->next != NULL)
        conn->next->prev = conn;
    http->conns = conn;
    http->n_conns++;
    *socket_context = conn;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = conn};
    epoll_ctl(http->config.epoll_fd, EPOLL_CTL_ADD, conn->fd, &event);
}

static void conn_close(struct plm_http *http, struct plm_http_conn *conn)
{
    // Before the descriptor's number can be used again.
    epoll_ctl(http->config.epoll_fd, EPOLL_CTL_DEL, conn->fd, NULL);
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        http->conns = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    http->n_conns--;
    free(conn);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        conn_open(cls, mhd, socket_context);
    else if (*socket_context != NULL)
        conn_close(cls, *socket_context);
}

void plm_http_hangup(struct plm_http_conn *conn)
{
    conn->hangup = true;
    if (conn->x != NULL)
        conn->x->dead = true;
    if (conn->x != NULL && conn->x->suspended)
        resume(conn->x);
    else
        nudge(conn);
}

void plm_http_sweep(struct plm_http *http, int64_t now_ms)
{
    int64_t idle_ms = (int64_t)http->config.timeout_s * 1000;
    for (struct plm_http_conn *conn = http->conns; conn != NULL; conn = conn->next) {
        const struct plm_exchange *x = conn->x;
        // Bytes that keep dropping in reset the library's own timeout, but not these.
        bool slow =
            x == NULL ? now_ms - conn->since_ms > idle_ms
                      : x->state == STATE_BODY && now_ms - x->started_ms > BODY_TIMEOUTS * idle_ms;
        if (slow)
            shutdown(conn->fd, SHUT_RDWR);
    }
}

// ---- the daemon ----

static void on_log(void *cls, const char *fmt, va_list ap)
{
    // The library's lines tell of clients that misbehave; the server answers or counts those.
    (void)cls;
    (void)fmt;
    (void)ap;
}

struct plm_http *plm_http_create(const struct plm_http_config *config,
                                 const struct plm_http_handler *handler)
{
    struct plm_http *http = calloc(1, sizeof(*http));
    if (http == NULL)
        return NULL;
    http->config = *config;
    http->handler = *handler;
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0,
        NULL, NULL, on_access, http, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, http, MHD_OPTION_CONNECTION_LIMIT, config->max_connections + 1,
        MHD_OPTION_CONNECTION_TIMEOUT, config->timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)POOL_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (http->daemon == NULL) {
        free(http);
        return NULL;
    }
    return http;
}

void plm_http_destroy(struct plm_http *http)
{
    if (http == NULL)
        return;
    // The library's rule: nothing may be suspended when it stops.
    for (struct plm_http_conn *conn = http->conns; conn != NULL; conn = conn->next)
        plm_http_hangup(conn);
    plm_http_run(http);
    MHD_stop_daemon(http->daemon);
    free(http);
}

int plm_http_fd(const struct plm_http *http)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    return info != NULL ? info->epoll_fd : -1;
}

void plm_http_run(struct plm_http *http)
{
    MHD_run(http->daemon);
    if (!http->any_stuck)
        return;
    http->any_stuck = false;
    bool again = false;
    for (struct plm_http_conn *conn = http->conns; conn != NULL; conn = conn->next) {
        if (conn->stuck && conn->x == NULL) {
            conn->stuck = false;
            nudge(conn);
            again = true;
        }
    }
    if (again)
        MHD_run(http->daemon);
}

int64_t plm_http_timeout_ms(const struct plm_http *http)
{
    MHD_UNSIGNED_LONG_LONG ms;
    if (MHD_get_timeout(http->daemon, &ms) != MHD_YES)
        return -1;
    return ms > 60000 ? 60000 : (int64_t)ms;
}

unsigned plm_http_connections(const struct plm_http *http)
{
    return http->n_conns;
}

void plm_http_turn_away(int fd)
{
    static const char body[] = "{\"error\":{\"message\":\"too many connections; try again later\","
                               "\"type\":\"overloaded_error\",\"param\":null,"
                               "\"code\":\"too_many_connections\"}}";
    char text[sizeof(body) + 200];
    int n = snprintf(text, sizeof(text),
                     "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
                     sizeof(body) - 1, body);
    ssize_t sent = send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent; // a client that can not even take this is gone
    shutdown(fd, SHUT_WR);
    close(fd);
}

void plm_http_add(struct plm_http *http, int fd, const void *addr, unsigned addr_len)
{
    if (http->n_conns >= http->config.max_connections) {
        plm_http_turn_away(fd);
        return;
    }
    // The library closes the descriptor when it fails.
    MHD_add_connection(http->daemon, fd, addr, (socklen_t)addr_len);
}

// ---- requests and replies ----

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

int plm_http_status(const struct plm_exchange *x)
{
    return x->status;
}

int64_t plm_http_started_ms(const struct plm_exchange *x)
{
    return x->started_ms;
}

const char *plm_http_target(const struct plm_exchange *x)
{
    return x->target;
}

struct visitor {
    plm_http_visit *field;
    void *ctx;
};

static enum MHD_Result visit(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
    (void)kind;
    const struct visitor *v = cls;
    v->field(v->ctx, key, value != NULL ? value : "");
    return MHD_YES;
}

void plm_http_each_field(const struct plm_exchange *x, plm_http_visit *field, void *ctx)
{
    struct visitor v = {field, ctx};
    MHD_get_connection_values(x->conn->mhd, MHD_HEADER_KIND, visit, &v);
}

const char *plm_http_field(const struct plm_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->conn->mhd, MHD_HEADER_KIND, name);
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
    return x->content_length;
}

void plm_http_limit_body(struct plm_exchange *x, size_t max_bytes, plim_engine *engine)
{
    x->body_max = max_bytes;
    x->body.engine = engine;
}

struct plm_out plm_http_take_body(struct plm_exchange *x)
{
    struct plm_out body = x->body;
    plm_out_init(&x->body, NULL);
    return body;
}

void plm_http_always(struct plm_exchange *x, const char *name, const char *value)
{
    if (x->n_always < PLM_HTTP_ALWAYS_MAX)
        x->always[x->n_always++] = (struct plm_http_header){name, value};
}

static void add_header(struct plm_exchange *x, const char *name, const char *value)
{
    MHD_add_response_header(x->response, name, value);
}

static void add_headers(struct plm_exchange *x, const struct plm_http_header *headers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_header(x, headers[i].name, headers[i].value);
}

// The response exists: a waiting exchange is woken, a new one is answered when the handler returns.
static void answer(struct plm_exchange *x, int status)
{
    x->status = status;
    resume(x);
}

static void write_headers(struct plm_out *text, const struct plm_http_header *headers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        plm_out_printf(text, "%s: %s\r\n", headers[i].name, headers[i].value);
}

// Writes a whole response past the library and ends this direction.
static void send_now(struct plm_exchange *x, int status, const char *content_type,
                     const struct plm_http_header *extra, size_t n_extra, struct plm_out *body)
{
    struct plm_out text;
    x->status = status;
    plm_out_init(&text, NULL);
    plm_out_printf(&text,
                   "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                   "Connection: close\r\n",
                   status, MHD_get_reason_phrase_for((unsigned)status), content_type, body->len);
    write_headers(&text, extra, n_extra);
    write_headers(&text, x->always, x->n_always);
    plm_out_str(&text, "\r\n");
    plm_out_bytes(&text, body->data, body->len);
    // Nothing else is under way, so that the socket's buffer has room.
    ssize_t sent =
        text.failed ? 0 : send(x->conn->fd, text.data, text.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent; // a client that can not even take this is gone
    shutdown(x->conn->fd, SHUT_WR);
    plm_out_finish(&text);
    plm_out_finish(body);
}

void plm_http_reply(struct plm_exchange *x, int status, const char *content_type,
                    const struct plm_http_header *extra, size_t n_extra, bool close_after,
                    struct plm_out *body)
{
    if (x->refusing) {
        send_now(x, status, content_type, extra, n_extra, body);
        return;
    }
    plm_out_finish(&x->out);
    x->out = *body;
    plm_out_init(body, body->engine);
    x->response = MHD_create_response_from_buffer(x->out.len, x->out.data, MHD_RESPMEM_PERSISTENT);
    if (x->response == NULL) {
        x->dead = true; // nothing to say it with
        resume(x);
        return;
    }
    if (content_type != NULL)
        add_header(x, "Content-Type", content_type);
    add_headers(x, extra, n_extra);
    add_headers(x, x->always, x->n_always);
    if (close_after)
        add_header(x, "Connection", "close");
    answer(x, status);
}

static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
    (void)pos;
    struct plm_exchange *x = cls;
    const struct plm_http_handler *h = &x->conn->http->handler;
    if (x->dead)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (x->out_read == x->out.len && !x->ended)
        h->drained(h->app, x);
    size_t have = x->out.len - x->out_read;
    if (x->out.failed && have == 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (have == 0) {
        if (x->ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        suspend(x);
        return 0;
    }
    size_t n = have < max ? have : max;
    memcpy(buf, x->out.data + x->out_read, n);
    x->out_read += n;
    x->last_write_ms = plm_now_ms();
    if (x->out_read == x->out.len) {
        bool failed = x->out.failed;
        x->out_read = 0;
        plm_out_clear(&x->out);
        plm_out_shrink(&x->out);
        x->out.failed = failed;
    } else if (x->out_read >= COMPACT_BYTES) {
        memmove(x->out.data, x->out.data + x->out_read, x->out.len - x->out_read);
        x->out.len -= x->out_read;
        x->out_read = 0;
    }
    return (ssize_t)n;
}

struct plm_out *plm_http_stream_begin(struct plm_exchange *x, plim_engine *engine)
{
    plm_out_finish(&x->out);
    plm_out_init(&x->out, engine);
    x->stream = true;
    x->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES,
                                                    read_stream, x, NULL);
    if (x->response == NULL) {
        x->dead = true;
        resume(x);
        return &x->out;
    }
    add_header(x, "Content-Type", "text/event-stream");
    add_header(x, "Cache-Control", "no-cache, no-transform");
    add_header(x, "X-Accel-Buffering", "no"); // nginx would hold events back
    add_headers(x, x->always, x->n_always);
    answer(x, 200);
    return &x->out;
}

struct plm_out *plm_http_stream(struct plm_exchange *x)
{
    return &x->out;
}

void plm_http_flush(struct plm_exchange *x)
{
    if (x->out.len > x->out_read || x->out.failed)
        resume(x);
}

void plm_http_stream_end(struct plm_exchange *x)
{
    x->ended = true;
    resume(x);
}

bool plm_http_is_stream(const struct plm_exchange *x)
{
    return x->stream;
}

size_t plm_http_backlog(const struct plm_exchange *x)
{
    return x->out.len - x->out_read;
}

int64_t plm_http_last_write_ms(const struct plm_exchange *x)
{
    return x->last_write_ms;
}
