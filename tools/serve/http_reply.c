// SPDX-License-Identifier: Apache-2.0
// Responses and their way out.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tools/serve/http_impl.h"

// A slow reader's buffer is moved down once so much of it was taken.
#define COMPACT_BYTES (32 * 1024)

static const char no_place[] = "{\"error\":{\"message\":\"too many connections; try again later\","
                               "\"type\":\"overloaded_error\",\"param\":null,"
                               "\"code\":\"too_many_connections\"}}";

// ---- heads ----

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } table[] = {
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].status == status)
            return table[i].reason;
    }
    return status < 400 ? "OK" : "Error"; // clients look at the number alone
}

// RFC 9110, 5.6.7; strftime() would speak the language of the locale.
static void put_date(struct plm_out *out)
{
    static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct tm tm;
    const time_t now = time(NULL);
    if (gmtime_r(&now, &tm) != NULL)
        plm_out_printf(out, "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", days[tm.tm_wday],
                       tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
                       tm.tm_sec);
}

static bool is_chunked(const struct plm_exchange *x)
{
    return x->stream && plm_wire_is_http11(&x->conn->wire);
}

static void put_head(struct plm_exchange *x)
{
    struct plm_out *out = &x->prefix;
    plm_out_printf(out, "HTTP/1.1 %d %s\r\n", x->status, reason_of(x->status));
    put_date(out);
    if (!x->stream && x->status != 204) // which has no content by its definition
        plm_out_printf(out, "Content-Length: %zu\r\n", x->out.len);
    else if (is_chunked(x))
        plm_out_str(out, "Transfer-Encoding: chunked\r\n");
    if (x->close)
        plm_out_str(out, "Connection: close\r\n");
    else if (!plm_wire_is_http11(&x->conn->wire))
        plm_out_str(out, "Connection: keep-alive\r\n");
    plm_out_bytes(out, x->fields.data, x->fields.len);
    plm_out_str(out, "\r\n");
}

// ---- pieces ----

static void next_whole(struct plm_exchange *x)
{
    put_head(x);
    x->piece.data_len = strcmp(x->method, "HEAD") == 0 ? 0 : x->out.len;
    x->last = true;
    x->piece.open = true;
}

static void next_of_stream(struct plm_exchange *x)
{
    const struct plm_http_handler *h = &x->conn->http->handler;
    struct plm_http_piece *piece = &x->piece;
    if (x->out_read == x->out.len && !x->ended)
        h->drained(h->app, x);
    const size_t have = x->out.len - x->out_read;
    if (have == 0 && x->out.failed) {
        // The end is lost, and the client must see that: no last chunk.
        x->conn->broken = true;
        return;
    }
    if (!x->headed)
        put_head(x);
    piece->data_len = have < PLM_HTTP_PIECE_BYTES ? have : PLM_HTTP_PIECE_BYTES;
    x->last = have == 0 && x->ended;
    if (is_chunked(x) && piece->data_len > 0) {
        plm_out_printf(&x->prefix, "%zx\r\n", piece->data_len);
        piece->suffix = "\r\n";
    } else if (is_chunked(x) && x->last) {
        piece->suffix = "0\r\n\r\n";
    }
    piece->open = !x->headed || piece->data_len > 0 || x->last;
}

static bool next_piece(struct plm_exchange *x)
{
    x->piece = (struct plm_http_piece){.suffix = ""};
    plm_out_clear(&x->prefix);
    if (x->stream)
        next_of_stream(x);
    else
        next_whole(x);
    x->headed = true;
    x->piece.prefix_len = x->prefix.len;
    x->piece.suffix_len = strlen(x->piece.suffix);
    x->conn->broken |= x->prefix.failed || x->fields.failed; // nothing to say it with
    return x->piece.open && !x->conn->broken;
}

static void piece_is_out(struct plm_exchange *x)
{
    x->out_read += x->piece.data_len;
    x->piece.open = false;
    if (x->out_read == x->out.len) {
        const bool failed = x->out.failed;
        x->out_read = 0;
        plm_out_clear(&x->out);
        plm_out_shrink(&x->out);
        x->out.failed = failed;
    } else if (x->out_read >= COMPACT_BYTES) {
        memmove(x->out.data, x->out.data + x->out_read, x->out.len - x->out_read);
        x->out.len -= x->out_read;
        x->out_read = 0;
    }
}

static ssize_t send_piece(const struct plm_exchange *x)
{
    const struct plm_http_piece *piece = &x->piece;
    struct iovec parts[3] = {
        {x->prefix.data, piece->prefix_len},
        {x->out.data + x->out_read, piece->data_len},
        {(char *)piece->suffix, piece->suffix_len},
    };
    struct iovec left[3];
    size_t n = 0, skip = piece->sent;
    for (size_t i = 0; i < 3; i++) {
        const size_t gone = skip < parts[i].iov_len ? skip : parts[i].iov_len;
        skip -= gone;
        if (gone < parts[i].iov_len)
            left[n++] = (struct iovec){(char *)parts[i].iov_base + gone, parts[i].iov_len - gone};
    }
    const struct msghdr message = {.msg_iov = left, .msg_iovlen = n};
    return sendmsg(x->conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// ---- the reader's pace ----

static void note_blocked(struct plm_exchange *x)
{
    if (x->blocked_at_ms == 0)
        x->blocked_at_ms = plm_now_ms();
}

static void note_written(struct plm_exchange *x, size_t n)
{
    x->last_write_ms = plm_now_ms();
    if (x->blocked_at_ms != 0 || x->blocked_ms > 0)
        x->paced_bytes += n;
    if (x->blocked_at_ms != 0)
        x->blocked_ms += x->last_write_ms - x->blocked_at_ms;
    x->blocked_at_ms = 0;
}

bool plm_http_is_blocked(const struct plm_exchange *x)
{
    return x->blocked_at_ms != 0;
}

bool plm_http_takes_too_slowly(const struct plm_exchange *x, int64_t now_ms)
{
    const int64_t timeout_ms = (int64_t)x->conn->http->config.timeout_s * 1000;
    if (x->blocked_at_ms == 0)
        return false;
    const int64_t here = now_ms - x->blocked_at_ms;
    // Over the whole answer: a byte now and then buys a moment, not another timeout.
    return here > timeout_ms ||
           x->blocked_ms + here > timeout_ms + (int64_t)(x->paced_bytes / PLM_HTTP_RATE_MIN) * 1000;
}

bool plm_http_write(struct plm_exchange *x)
{
    while (!x->conn->broken) {
        if (!x->piece.open && !next_piece(x))
            return false;
        const struct plm_http_piece *piece = &x->piece;
        const size_t all = piece->prefix_len + piece->data_len + piece->suffix_len;
        if (piece->sent < all) {
            const ssize_t n = send_piece(x);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0 && errno == EAGAIN) {
                note_blocked(x);
                return false;
            }
            if (n < 0) {
                x->conn->broken = true;
                return false;
            }
            note_written(x, (size_t)n);
            x->piece.sent += (size_t)n;
        }
        if (x->piece.sent < all)
            continue;
        const bool last = x->last;
        piece_is_out(x);
        if (last)
            return true;
    }
    return false;
}

// ---- replies ----

static void put_field(struct plm_exchange *x, const char *name, const char *value)
{
    plm_out_printf(&x->fields, "%s: %s\r\n", name, value);
}

void plm_http_always(struct plm_exchange *x, const char *name, const char *value)
{
    put_field(x, name, value);
}

static void begin_reply(struct plm_exchange *x, int status, const char *content_type)
{
    // Of a body that is not read to its end nothing is known of what follows.
    if (x->state == PLM_EXCHANGE_BODY && plm_wire_length(&x->conn->wire) != 0)
        x->close = true;
    x->state = PLM_EXCHANGE_REPLY;
    x->status = status;
    if (content_type != NULL)
        put_field(x, "Content-Type", content_type);
    plm_http_turn(x->conn);
}

void plm_http_reply(struct plm_exchange *x, int status, const char *content_type,
                    const struct plm_http_header *extra, size_t n_extra, bool close_after,
                    struct plm_out *body)
{
    // A part of the first answer may be out: nothing can take its place.
    if (x->state == PLM_EXCHANGE_REPLY) {
        plm_out_finish(body);
        return;
    }
    plm_out_finish(&x->out);
    x->out = *body;
    plm_out_init(body, body->engine);
    x->close |= close_after;
    begin_reply(x, status, content_type);
    for (size_t i = 0; i < n_extra; i++)
        put_field(x, extra[i].name, extra[i].value);
}

struct plm_out *plm_http_stream_begin(struct plm_exchange *x, plim_engine *engine)
{
    plm_out_finish(&x->out);
    plm_out_init(&x->out, engine);
    x->stream = true;
    x->close |= !plm_wire_is_http11(&x->conn->wire); // its end is the stream's
    begin_reply(x, 200, "text/event-stream");
    put_field(x, "Cache-Control", "no-cache, no-transform");
    put_field(x, "X-Accel-Buffering", "no"); // nginx would hold events back
    return &x->out;
}

struct plm_out *plm_http_stream(struct plm_exchange *x)
{
    return &x->out;
}

void plm_http_flush(struct plm_exchange *x)
{
    if (x->out.len > x->out_read || x->out.failed)
        plm_http_turn(x->conn);
}

void plm_http_stream_end(struct plm_exchange *x)
{
    x->ended = true;
    plm_http_turn(x->conn);
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

int plm_http_status(const struct plm_exchange *x)
{
    return x->status;
}

// ---- short answers ----

void plm_http_no_place(struct plm_exchange *x)
{
    const struct plm_http_header retry = {"Retry-After", "1"};
    struct plm_out body;
    x->conn->http->n_turned_away++;
    plm_out_init(&body, NULL);
    plm_out_str(&body, no_place);
    plm_http_reply(x, 503, PLM_HTTP_JSON, &retry, 1, true, &body);
}

// Past all buffers, on a socket that nothing was written to yet or whose client reads: one that can
// not take so little is gone.
static bool send_text(int fd, const char *text, size_t n)
{
    return send(fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

void plm_http_continue(struct plm_http_conn *conn)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!send_text(conn->fd, text, sizeof(text) - 1))
        conn->broken = true;
}

void plm_http_say_no_place(struct plm_http *http, int fd)
{
    char text[sizeof(no_place) + 200], unread[4096];
    const int n = snprintf(text, sizeof(text),
                           "HTTP/1.1 503 %s\r\nContent-Type: " PLM_HTTP_JSON "\r\n"
                           "Content-Length: %zu\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
                           reason_of(503), sizeof(no_place) - 1, no_place);
    http->n_turned_away++;
    (void)send_text(fd, text, (size_t)n);
    shutdown(fd, SHUT_WR);
    // Closing with unread bytes would reset the connection, and the answer with it.
    for (int i = 0; i < 4 && recv(fd, unread, sizeof(unread), MSG_DONTWAIT) > 0; i++) {
    }
}

void plm_http_turn_away(struct plm_http *http, int fd)
{
    plm_http_say_no_place(http, fd);
    close(fd);
}
