// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1, driven by one I/O thread: everything here is called on that thread only. What clients
// send is scanned by wire.h; http.c carries its bytes between sockets, exchanges and the handler.
//
// An exchange is one request and its response. The handler's begin() sees the headers; request()
// sees the whole body; one of them, or anybody later, answers with plm_http_reply() or opens a
// stream. closed() comes exactly once and last: the response is out, or the client has left. A
// client that half-closes its connection while it waits counts as gone, because nothing else tells
// a left client from a silent one.
//
// Nobody may hold a place for as long as he likes:
//   a head must be complete PLM_HTTP_HEAD_S seconds after its first byte;
//   a body may pause for the timeout at most, must arrive within ten of them, and within one of
//   them and a second for each PLM_HTTP_RATE_MIN bytes;
//   the same pause, and the same rate over all the time in which its socket was full, hold for a
//   client that takes its answer.
#ifndef PLM_SERVE_HTTP_H
#define PLM_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/out.h"
#include "tools/serve/peers.h"

struct plm_http;
struct plm_exchange;

#define PLM_HTTP_JSON      "application/json"
#define PLM_HTTP_EXTRA_MAX 6 // header fields that a reply may add

// Seconds for a head: one packet for honest clients, a few over a bad link.
#define PLM_HTTP_HEAD_S 30
// Bytes per second: a modem of 1990 is faster, a client that only wants to hold memory is not.
#define PLM_HTTP_RATE_MIN 1024
// Connections beyond the maximum, or beyond what a peer may have, that probes find: a place is
// given to the next one when its connection has not asked for a probe's path by then, so that only
// as many new connections within a round trip could take all.
#define PLM_HTTP_PROBE_PLACES 32
// What the kernel may hold of answers that a client does not take (SO_SNDBUF), and of what it sends
// while nobody reads (SO_RCVBUF); it takes twice as much for its own accounts. An answer of a few
// sentences fits, larger ones flow.
#define PLM_HTTP_SOCKET_BYTES (16 * 1024)
// The latter while a body is read, when what arrives is taken at once.
#define PLM_HTTP_BODY_SOCKET_BYTES (256 * 1024)
// Connections that may have the latter at once, which is memory that clients fill faster than it is
// read if they are many. Bodies of others, and what is read only to be dropped, arrive through one
// that still holds a packet of the loopback device.
#define PLM_HTTP_READ_SOCKET_BYTES (64 * 1024)
#define PLM_HTTP_WIDE_MAX          8

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
    // A request that is malformed (400, 414, 417, 431, 505) or too slow (408); must answer.
    void (*malformed)(void *app, struct plm_exchange *x, int status, const char *why);
    // A stream has room again: more may be written to plm_http_stream().
    void (*drained)(void *app, struct plm_exchange *x);
    // The end; the exchange is freed after it.
    void (*closed)(void *app, struct plm_exchange *x);
};

struct plm_http_config {
    int epoll_fd;                    // of the caller; the client descriptors are watched there
    unsigned max_connections;        // beyond it only probes are answered; others get 503
    unsigned max_per_peer;           // of those that wait for their client; the same
    unsigned timeout_s;              // idle connections, and as above
    const struct plm_peers *trusted; // proxies: they stand for many peers, and have no limit
    const char *const *probes;       // paths that have places of their own; NULL ends them
    // What all bodies together may hold, from their first byte until a worker is done with them; a
    // further one is refused like one without host memory.
    struct plm_share *bodies;
};

// What the caller's epoll set holds for a client's descriptor: hand it to plm_http_ready().
struct plm_http_conn;

struct plm_http *plm_http_create(const struct plm_http_config *config,
                                 const struct plm_http_handler *handler);
// Ends all connections; closed() is called for each open exchange.
void plm_http_destroy(struct plm_http *http);
// Bytes of this machine that one connection takes at most, the kernel's for its socket included.
size_t plm_http_connection_bytes(void);
// What the kernel takes in addition for all bodies that arrive at once.
size_t plm_http_wide_bytes(void);
// epoll has reported these events for a client's descriptor.
void plm_http_ready(struct plm_http_conn *conn, uint32_t events);
// Gives a turn to each connection that is ready, one request at most, or to as many as a few
// milliseconds allow. Frees connections, so call it after all events of a round were reported.
void plm_http_run(struct plm_http *http);
// Something waits for plm_http_run() that no event will report.
bool plm_http_is_due(const struct plm_http *http);
// Takes over an accepted, non-blocking connection, and serves what has come with it.
void plm_http_add(struct plm_http *http, int fd);
// Answers an accepted connection with 503 and closes it.
void plm_http_turn_away(struct plm_http *http, int fd);
// Once a second or so: ends what is too slow.
void plm_http_sweep(struct plm_http *http, int64_t now_ms);
unsigned plm_http_connections(const struct plm_http *http);
// Connections that were answered 503 because there was no place, so far.
uint64_t plm_http_turned_away(const struct plm_http *http);

// Of an exchange. Method and path are "-" where they were not understood.
void plm_http_set_call(struct plm_exchange *x, void *call);
void *plm_http_call(const struct plm_exchange *x);
const char *plm_http_method(const struct plm_exchange *x);
const char *plm_http_path(const struct plm_exchange *x);
// Of the response, or 0 before there is one; and when the request began, in plm_now_ms().
int plm_http_status(const struct plm_exchange *x);
int64_t plm_http_started_ms(const struct plm_exchange *x);
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
// Adds a header field, which is copied, to whatever answers this request. Before the answer.
void plm_http_always(struct plm_exchange *x, const char *name, const char *value);
// Answers with body, whose memory moves into the exchange. content_type NULL: there is none. close:
// ends the connection after it. Once an answer or a stream has begun, another one is dropped.
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
