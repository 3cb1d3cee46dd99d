// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 requests as bytes: a strict scanner of what a client sends on one connection, fed in
// pieces of any size. It does no I/O and takes no memory, so whatever carries the bytes (a socket,
// later TLS) has them judged here, once.
//
// What two parties could read differently is refused, because a proxy in front of this server may
// be the other one: bare line feeds, folded fields, control characters, fields that must be single
// and are not, Content-Length beside Transfer-Encoding, escaped slashes. After a violation nothing
// more is read from the connection: where the next request begins is then in doubt.
//
// The verdict does not depend on how the bytes are cut (tests/serve/test_wire.c).
#ifndef PLM_SERVE_WIRE_H
#define PLM_SERVE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Of one request, in bytes. A request line of 8,000 is what RFC 9112 (3) asks servers to support at
// least; browsers with cookies and long bearer tokens stay below 16 KiB.
#define PLM_WIRE_LINE_MAX   8192  // request line: else 414
#define PLM_WIRE_HEAD_MAX   16384 // request line, fields and trailer fields together: else 431
#define PLM_WIRE_FIELDS_MAX 100   // fields and trailer fields: else 431
#define PLM_WIRE_METHOD_MAX 31    // the longest registered one has 17
// Chunk extensions of one body, which nobody uses: room for what a signing client may send.
#define PLM_WIRE_EXTENSIONS_MAX 4096

struct plm_wire_field {
    uint16_t name, value; // offsets in text
};

// All of one connection's state; belongs to the caller. Read it through the functions below.
struct plm_wire {
    uint8_t state;
    bool in_trailer;
    bool http11;
    bool close_asked, keep_asked; // the Connection field
    bool chunked;
    bool expects_continue;
    bool coding_known; // of Transfer-Encoding
    uint16_t seen;     // fields that must be single, by their place in the table
    uint16_t method, target;
    uint16_t used;      // of text
    uint16_t kept;      // of text, by the head
    uint16_t value_end; // where the value ends without the blanks behind it
    uint16_t n_fields, n_lines;
    uint32_t head_bytes;
    uint32_t extension_bytes;
    uint8_t matched; // characters of the version; digits of a chunk's size
    int64_t length;  // Content-Length, or -1: chunked
    int64_t left;    // of the body or the chunk
    int status;      // of a violation
    char why[80];
    struct plm_wire_field fields[PLM_WIRE_FIELDS_MAX];
    char text[PLM_WIRE_HEAD_MAX + 2]; // strings that end in NUL
};

enum plm_wire_event {
    PLM_WIRE_MORE, // all bytes are taken and more are needed
    PLM_WIRE_HEAD, // the request line and all fields are there
    PLM_WIRE_BODY, // *body and *body_len: the next bytes of the body
    PLM_WIRE_END,  // the request is complete
    PLM_WIRE_BAD,  // a violation, for ever; see plm_wire_violation()
};

void plm_wire_init(struct plm_wire *w);
// Takes bytes from the front of (*at, *n) up to the next event. *body points into them.
// What the head said stays readable until a byte after PLM_WIRE_END is fed.
enum plm_wire_event plm_wire_feed(struct plm_wire *w, const char **at, size_t *n, const char **body,
                                  size_t *body_len);
// How many bytes may be read at once so that at most `ahead` of them belong to the next request.
size_t plm_wire_want(const struct plm_wire *w, size_t ahead);
// No byte of a next request has come.
bool plm_wire_idle(const struct plm_wire *w);

// After PLM_WIRE_BAD: the status to answer with (400, 414, 417, 431, 505) and why, in one clause.
int plm_wire_violation(const struct plm_wire *w, const char **why);

// After PLM_WIRE_HEAD.
const char *plm_wire_method(const struct plm_wire *w);
// Of the target, without its query, unescaped once. "*" for OPTIONS of the whole server.
const char *plm_wire_path(const struct plm_wire *w);
// The first field of that name, or NULL; Host, Content-Length, Content-Type, Transfer-Encoding,
// Authorization, X-Api-Key, Expect, Origin and Sec-Fetch-Site come once at most.
const char *plm_wire_field(const struct plm_wire *w, const char *name);
// All of them, in their order.
size_t plm_wire_fields(const struct plm_wire *w);
const char *plm_wire_field_name(const struct plm_wire *w, size_t i);
const char *plm_wire_field_value(const struct plm_wire *w, size_t i);
int64_t plm_wire_length(const struct plm_wire *w);        // Content-Length; -1: chunked; 0: no body
bool plm_wire_is_http11(const struct plm_wire *w);        // else 1.0
bool plm_wire_keeps_alive(const struct plm_wire *w);      // the client wants to go on after it
bool plm_wire_expects_continue(const struct plm_wire *w); // it waits for a 100

#endif
