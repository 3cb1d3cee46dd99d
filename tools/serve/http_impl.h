// SPDX-License-Identifier: Apache-2.0
// What the parts of the HTTP server share, each of which uses those below it: http.c (connections
// and what they send), http_places.c (how many there may be), http_reply.c (responses and their way
// out), http_turns.c (whose turn it is).
#ifndef PLM_SERVE_HTTP_IMPL_H
#define PLM_SERVE_HTTP_IMPL_H

#include "tools/serve/http.h"
#include "tools/serve/wire.h"

// Bytes of the next request that may be read together with the end of this one, and what is read at
// once of a head: more than a usual request with its body of a few messages.
#define PLM_HTTP_AHEAD_BYTES 4096
// One piece of a stream: below it a chunk's framing would weigh, above it a slow reader's progress
// would be seen late.
#define PLM_HTTP_PIECE_BYTES (16 * 1024)

enum plm_exchange_state {
    PLM_EXCHANGE_BODY,    // begin() was called; its body arrives
    PLM_EXCHANGE_WAITING, // request() was called; nobody has answered yet
    PLM_EXCHANGE_REPLY,   // the response is on its way
};

// What is written as one piece: a prefix (a head, or the frame of a chunk), bytes of out, a suffix.
struct plm_http_piece {
    const char *suffix;
    size_t prefix_len, data_len, suffix_len;
    size_t sent; // of all three
    bool open;
};

// Where a connection stands among those that there may be.
enum plm_http_place {
    PLM_PLACE_NONE, // it has given it up and ends
    PLM_PLACE_ORDINARY,
    PLM_PLACE_PROBE, // there was no other: it may ask for a probe's path, once
};

struct plm_exchange {
    struct plm_http_conn *conn;
    void *call;
    enum plm_exchange_state state;
    bool begun; // the handler saw it; closed() is owed
    // Request.
    const char *method, *path; // "-" while they are not understood
    size_t body_max;
    struct plm_out body;
    size_t body_bytes; // that came, whoever has them now
    // Response.
    int status;
    bool stream, ended;
    bool close;            // the connection ends behind it
    struct plm_out fields; // of the head, but for those that every response has
    struct plm_out prefix; // of the piece
    struct plm_out out;
    size_t out_read; // of out, what was sent as whole pieces
    struct plm_http_piece piece;
    bool headed, last; // the head is in a piece; this piece is the last one
    int64_t started_ms;
    int64_t last_write_ms;
    int64_t blocked_at_ms; // the client's buffer is full since then; 0: it is not
    int64_t blocked_ms;    // for how long it was before
    uint64_t paced_bytes;  // that it took since its buffer was full for the first time
};

// One allocation, so that a connection's bytes are known before it comes.
struct plm_http_conn {
    struct plm_http *http;
    struct plm_http_conn *newer, *older;
    struct plm_http_conn *next_ready;
    int fd;
    int window; // bytes of its receive buffer; 0: as the kernel has made it
    struct plm_peer peer, local;
    enum plm_http_place place;
    bool unfinished;  // a request is not complete: the limit of a peer counts it
    uint32_t events;  // that epoll reported since its last turn
    uint32_t watched; // that epoll looks for
    bool ready;       // in the list of those that get a turn
    bool hangup;      // the client has ended its direction
    bool broken;      // ends with its turn
    bool lingers;     // everything is said; the rest of what comes is dropped
    uint64_t dropped_bytes;
    int64_t since_ms; // connected; the last exchange ended; a head's first byte; lingering began
    int64_t last_read_ms;
    struct plm_exchange *x; // &exchange, or NULL
    struct plm_exchange exchange;
    struct plm_wire wire;
    size_t n_ahead;
    char ahead[PLM_HTTP_AHEAD_BYTES];
};

struct plm_http {
    struct plm_http_config config;
    struct plm_http_handler handler;
    struct plm_http_conn *newest, *oldest;
    struct plm_http_conn *ready, *last_ready;
    unsigned n_ordinary, n_probes; // places that are taken
    unsigned n_wide;               // connections whose receive buffer is that for bodies
    uint64_t n_turned_away;
    char *scratch; // what one read takes
};

// http_turns.c
// Gives the connection a turn in plm_http_run().
void plm_http_turn(struct plm_http_conn *conn);
// Ends it with its next turn.
void plm_http_break(struct plm_http_conn *conn);

// http_places.c
// A place for a new connection of that peer. May take it from one that is idle.
enum plm_http_place plm_http_find_place(struct plm_http *http, const struct plm_peer *peer);
void plm_http_take_place(struct plm_http_conn *conn, enum plm_http_place place);
void plm_http_leave_place(struct plm_http_conn *conn);
// Whether one more connection that waits for its client is too many for that peer.
bool plm_http_peer_is_full(const struct plm_http *http, const struct plm_peer *peer);
// Whether the exchange may use its connection's place.
bool plm_http_fits_place(const struct plm_exchange *x);

// http_reply.c
// Answers that there is no place.
void plm_http_no_place(struct plm_exchange *x);
// The same where no exchange is open, past all buffers.
void plm_http_say_no_place(struct plm_http *http, int fd);
// Lets a client that waits for it send its body.
void plm_http_continue(struct plm_http_conn *conn);
// Writes what there is. True: the response is out as a whole.
bool plm_http_write(struct plm_exchange *x);
// Bytes wait for the client to take some.
bool plm_http_is_blocked(const struct plm_exchange *x);
// It takes its answer more slowly than http.h allows.
bool plm_http_takes_too_slowly(const struct plm_exchange *x, int64_t now_ms);

#endif
