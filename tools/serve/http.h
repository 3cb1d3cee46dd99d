// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 over libmicrohttpd, driven by one I/O thread: everything here is called on that thread
// only. The library stays behind this header, so that a newer or another one can replace it.
//
// An exchange is one request and its response. The handler's begin() sees the headers, after they
// passed the strict checks of http_check.c; request() sees the whole body; one of them, or anybody
// later, answers with plm_http_reply() or opens a stream. closed() comes exactly once and last: the
// response is out, or the client has left. A client that half-closes its connection while it waits
// counts as gone, because nothing else tells a left client from a silent one.
#ifndef PLM_SERVE_HTTP_H
#define PLM_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/serve/out.h"
#include "tools/serve/peers.h"

struct plm_http;
struct plm_exchange;

#define PLM_HTTP_FIELDS_MAX 100 // header fields of one request
#define PLM_HTTP_EXTRA_MAX  6   // header fields that a reply may add
#define PLM_HTTP_ALWAYS_MAX 4   // those that every answer to a request carries

struct plm_http_header {
    const char *name;
    const char *value; // copied
};

struct plm_http_handler {
    void *app;
    // The headers are there. May answer at once (a refusal); then the body is not read. Otherwise
    // it may set plm_http_limit_body().
    void (*begin)(void *app, struct plm_exchange *x);
    // The body is there as a whole. May answer now or later.
    void (*request)(void *app, struct plm_exchange *x);
    // The body was larger than its limit, or host memory for it was refused; must answer.
    void (*body_failed)(void *app, struct plm_exchange *x, bool too_large);
    // A malformed request; must answer. status is 400 or 431.
    void (*malformed)(void *app, struct plm_exchange *x, int status, const char *why);
    // A stream has room again: more may be written to plm_http_stream().
    void (*drained)(void *app, struct plm_exchange *x);
    // The end; the exchange is freed after it.
    void (*closed)(void *app, struct plm_exchange *x);
};

struct plm_http_config {
    int epoll_fd;             // of the caller; the client descriptors are watched there
    unsigned max_connections; // above it a new connection is answered 503 and closed
    unsigned timeout_s;       // idle connections, slow headers, stalled bodies and stalled readers
};

// What the caller's epoll set holds for a client's descriptor: hand it to plm_http_hangup().
struct plm_http_conn;

struct plm_http *plm_http_create(const struct plm_http_config *config,
                                 const struct plm_http_handler *handler);
// Ends all connections; closed() is called for each open exchange.
void plm_http_destroy(struct plm_http *http);
int plm_http_fd(const struct plm_http *http); // readable: call plm_http_run()
// Serves what is ready. Frees connections, so call it after the hang-ups of the same round.
void plm_http_run(struct plm_http *http);
// Milliseconds until plm_http_run() must be called anyway; -1: no limit.
int64_t plm_http_timeout_ms(const struct plm_http *http);
// Takes over an accepted, non-blocking connection.
void plm_http_add(struct plm_http *http, int fd, const void *addr, unsigned addr_len);
// Answers an accepted connection with 503 and closes it.
void plm_http_turn_away(int fd);
void plm_http_hangup(struct plm_http_conn *conn);
// Once a second or so: closes connections that dribble.
void plm_http_sweep(struct plm_http *http, int64_t now_ms);
unsigned plm_http_connections(const struct plm_http *http);

// Of an exchange.
void plm_http_set_call(struct plm_exchange *x, void *call);
void *plm_http_call(const struct plm_exchange *x);
const char *plm_http_method(const struct plm_exchange *x);
const char *plm_http_path(const struct plm_exchange *x);
// Of the response, or 0 before there is one; and when the request began, in plm_now_ms().
int plm_http_status(const struct plm_exchange *x);
int64_t plm_http_started_ms(const struct plm_exchange *x);
const char *plm_http_target(const struct plm_exchange *x); // of the request line, path included
const char *plm_http_field(const struct plm_exchange *x, const char *name); // or NULL
// Calls field() for each header field of the request.
typedef void plm_http_visit(void *ctx, const char *name, const char *value);
void plm_http_each_field(const struct plm_exchange *x, plm_http_visit *field, void *ctx);
// Both ends of its connection.
const struct plm_peer *plm_http_peer(const struct plm_exchange *x);
const struct plm_peer *plm_http_local(const struct plm_exchange *x);
// Content-Length, or -1 for a chunked body, or 0 for none.
int64_t plm_http_content_length(const struct plm_exchange *x);
// In begin(): how much body to take and whose host budget pays for it.
void plm_http_limit_body(struct plm_exchange *x, size_t max_bytes, plim_engine *engine);
// In request(): moves the body out.
struct plm_out plm_http_take_body(struct plm_exchange *x);
// Adds a header to whatever answers this request. Before the answer; name and value must live until
// then, as header values of the request do.
void plm_http_always(struct plm_exchange *x, const char *name, const char *value);
// Answers with body, whose memory moves into the exchange. content_type NULL: there is none. close:
// ends the connection after it.
void plm_http_reply(struct plm_exchange *x, int status, const char *content_type,
                    const struct plm_http_header *extra, size_t n_extra, bool close,
                    struct plm_out *body);
// Answers 200 with an event stream and returns what to write to; after writing call
// plm_http_flush().
struct plm_out *plm_http_stream_begin(struct plm_exchange *x, plim_engine *engine);
struct plm_out *plm_http_stream(struct plm_exchange *x);
void plm_http_flush(struct plm_exchange *x);
// What was written is the end.
void plm_http_stream_end(struct plm_exchange *x);
bool plm_http_is_stream(const struct plm_exchange *x);
// Bytes written to the stream that the client has not taken.
size_t plm_http_backlog(const struct plm_exchange *x);
// When the stream last wrote to the client, in plm_now_ms().
int64_t plm_http_last_write_ms(const struct plm_exchange *x);

int64_t plm_now_ms(void); // monotonic

#endif
