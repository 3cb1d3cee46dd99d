// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/wire.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

// A chunk's size has so many digits at most: far beyond any body, and never an overflow.
#define CHUNK_DIGITS_MAX 15
// The same for a Content-Length.
#define LENGTH_DIGITS_MAX 18

enum state {
    S_START,    // nothing of a request
    S_START_LF, // behind the CR of one empty line, which old clients send after a body
    // The request line.
    S_METHOD,
    S_TARGET,
    S_VERSION,
    S_LINE_CR,
    S_LINE_LF,
    // Fields, of the head or of a trailer.
    S_FIELD, // at the beginning of one, or of the empty line
    S_NAME,
    S_BLANKS, // in front of a value
    S_VALUE,
    S_VALUE_LF,
    S_FIELDS_LF, // of the empty line; up to here bytes are counted as the head's
    // The body.
    S_LENGTH,
    S_SIZE,
    S_EXTENSION,
    S_SIZE_LF,
    S_CHUNK,
    S_CHUNK_CR,
    S_CHUNK_LF,
    S_END, // PLM_WIRE_END is due
    S_VIOLATION,
};

// Fields of which two would be read differently by two parties. The bit in seen is the index.
static const char *const single[] = {
    "Host",   "Content-Length", "Transfer-Encoding", "Content-Type",   "Authorization",
    "Expect", "Origin",         "X-Api-Key",         "Sec-Fetch-Site",
};
enum { F_HOST, F_LENGTH, F_ENCODING, F_TYPE, F_AUTHORIZATION, F_EXPECT };
#define N_SINGLE (sizeof(single) / sizeof(single[0]))

static void violate(struct plm_wire *w, int status, const char *why)
{
    w->state = S_VIOLATION;
    w->status = status;
    snprintf(w->why, sizeof(w->why), "%s", why);
}

static bool is_alnum(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// RFC 9110, 5.6.2.
static bool is_token(unsigned char c)
{
    return is_alnum(c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_control(unsigned char c)
{
    return (c < 0x20 && c != '\t') || c == 0x7F;
}

static int hex(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Each byte that is kept was read, and each NUL stands for a blank, a colon or a line's end, so
// that text has room for whatever PLM_WIRE_HEAD_MAX bytes can make.
static void keep(struct plm_wire *w, char c)
{
    w->text[w->used++] = c;
}

// A line feed without its carriage return, or the other way round.
static void expect(struct plm_wire *w, unsigned char c, char want, enum state next)
{
    if (c == (unsigned char)want)
        w->state = next;
    else
        violate(w, 400, "a line ends in something other than a carriage return and a line feed");
}

// ---- the request line ----

static void begin_head(struct plm_wire *w)
{
    memset(w, 0, offsetof(struct plm_wire, fields));
}

static void on_method(struct plm_wire *w, unsigned char c)
{
    if (is_token(c) && w->used < PLM_WIRE_METHOD_MAX) {
        keep(w, (char)c);
    } else if (c == ' ' && w->used > 0) {
        keep(w, '\0');
        w->target = w->used;
        w->state = S_TARGET;
    } else {
        violate(w, 400, "the method is malformed");
    }
}

static void on_start(struct plm_wire *w, unsigned char c)
{
    begin_head(w);
    w->head_bytes = 1;
    if (c == '\r') {
        w->state = S_START_LF;
        return;
    }
    w->state = S_METHOD;
    on_method(w, c);
}

static void on_target(struct plm_wire *w, unsigned char c)
{
    if (c > ' ' && c < 0x7F) {
        keep(w, (char)c);
    } else if (c == ' ' && w->used > w->target) {
        keep(w, '\0');
        w->state = S_VERSION;
    } else {
        violate(w, 400, "the request target is malformed");
    }
}

static void on_version(struct plm_wire *w, unsigned char c)
{
    static const char known[] = "HTTP/1.1";
    const size_t at = w->matched++;
    const bool digit = c >= '0' && c <= '9';
    if (at == sizeof(known) - 2 && (c == '0' || c == '1')) {
        w->http11 = c == '1';
        w->state = S_LINE_CR;
    } else if (digit && (at == 5 || at == 7) && c != (unsigned char)known[at]) {
        violate(w, 505, "only HTTP/1.1 and 1.0 are spoken");
    } else if (c != (unsigned char)known[at]) {
        violate(w, 400, "the request line has no HTTP version at its end");
    }
}

// ---- fields ----

static void on_field(struct plm_wire *w, unsigned char c)
{
    if (c == '\r') {
        w->state = S_FIELDS_LF;
    } else if (c == ' ' || c == '\t') {
        violate(w, 400, "a header field is folded over two lines");
    } else if (!is_token(c)) {
        violate(w, 400,
                c == '\n' ? "a line ends in a bare line feed" : "a header field name is malformed");
    } else if (w->n_lines == PLM_WIRE_FIELDS_MAX) {
        violate(w, 431, "more than 100 header fields");
    } else {
        w->fields[w->n_lines].name = w->used;
        w->state = S_NAME;
        keep(w, (char)c);
    }
}

static void on_name(struct plm_wire *w, unsigned char c)
{
    if (c == ':') {
        keep(w, '\0');
        w->fields[w->n_lines].value = w->used;
        w->value_end = w->used;
        w->state = S_BLANKS;
    } else if (is_token(c)) {
        keep(w, (char)c);
    } else {
        violate(w, 400, "a header field name is malformed");
    }
}

static void on_value(struct plm_wire *w, unsigned char c)
{
    if (c == '\r') {
        w->state = S_VALUE_LF;
    } else if (is_control(c)) {
        violate(w, 400,
                c == '\n' ? "a line ends in a bare line feed"
                          : "a header field has a control character");
    } else {
        keep(w, (char)c);
        if (c != ' ' && c != '\t')
            w->value_end = w->used;
    }
}

static void on_blanks(struct plm_wire *w, unsigned char c)
{
    if (c == ' ' || c == '\t')
        return;
    w->state = S_VALUE;
    on_value(w, c);
}

// Content-Length: digits and nothing else, no sign, no list.
static void take_length(struct plm_wire *w, const char *value)
{
    const size_t digits = strspn(value, "0123456789");
    if (digits == 0 || digits > LENGTH_DIGITS_MAX || value[digits] != '\0') {
        violate(w, 400, "the Content-Length header is not a number of bytes");
        return;
    }
    w->length = 0;
    for (const char *c = value; *c != '\0'; c++)
        w->length = w->length * 10 + (*c - '0');
}

static void take_connection(struct plm_wire *w, const char *value)
{
    for (const char *s = value; *s != '\0'; s += strspn(s, ", \t")) {
        const size_t n = strcspn(s, ", \t");
        w->close_asked |= n == 5 && strncasecmp(s, "close", n) == 0;
        w->keep_asked |= n == 10 && strncasecmp(s, "keep-alive", n) == 0;
        s += n;
    }
}

// One host. Whether it is this server's is for others to say.
static void take_host(struct plm_wire *w, const char *value)
{
    if (value[0] == '\0' || strpbrk(value, " \t,") != NULL)
        violate(w, 400, "the Host header is malformed");
}

static void take_single(struct plm_wire *w, size_t which, const char *value)
{
    char why[80];
    snprintf(why, sizeof(why),
             w->in_trailer ? "a trailer field is named %s" : "more than one %s header",
             single[which]);
    if (w->in_trailer || (w->seen >> which & 1) != 0) {
        violate(w, 400, why);
        return;
    }
    w->seen |= (uint16_t)(1 << which);
    if (which == F_HOST)
        take_host(w, value);
    else if (which == F_LENGTH)
        take_length(w, value);
    else if (which == F_ENCODING)
        w->coding_known = strcasecmp(value, "chunked") == 0;
    else if (which == F_EXPECT)
        w->expects_continue = strcasecmp(value, "100-continue") == 0;
}

// One whole field. Those of a trailer are judged and forgotten.
static void on_value_lf(struct plm_wire *w, unsigned char c)
{
    expect(w, c, '\n', S_FIELD);
    if (w->state == S_VIOLATION)
        return;
    w->used = w->value_end;
    keep(w, '\0');
    const char *name = w->text + w->fields[w->n_lines].name;
    const char *value = w->text + w->fields[w->n_lines].value;
    w->n_lines++;
    for (size_t i = 0; i < N_SINGLE; i++) {
        if (strcasecmp(name, single[i]) == 0)
            take_single(w, i, value);
    }
    if (w->in_trailer) {
        w->used = w->kept;
        return;
    }
    w->n_fields = w->n_lines;
    w->kept = w->used;
    if (strcasecmp(name, "Connection") == 0)
        take_connection(w, value);
}

// ---- the end of a head ----

// Unescapes a path in place, once, and cuts its query off.
static void unescape(struct plm_wire *w, char *path)
{
    char *out = path;
    for (const char *c = path; *c != '\0' && *c != '?'; c++) {
        if (*c != '%') {
            *out++ = *c;
            continue;
        }
        const int high = hex((unsigned char)c[1]);
        const int low = high < 0 ? -1 : hex((unsigned char)c[2]);
        const int byte = high * 16 + low;
        if (low < 0 || byte == '/' || is_control((unsigned char)byte) || byte == '\t') {
            violate(w, 400, "the path has an escape that is malformed, a slash or a control");
            return;
        }
        *out++ = (char)byte;
        c += 2;
    }
    *out = '\0';
}

// In absolute form the target names a host, too: it must be the same one.
static void judge_authority(struct plm_wire *w, const char *authority, size_t n)
{
    const char *host = plm_wire_field(w, "Host");
    if (n == 0 || (host != NULL && (strlen(host) != n || strncasecmp(host, authority, n) != 0)))
        violate(w, 400, "the request target names another host than the Host header");
}

static void judge_target(struct plm_wire *w)
{
    char *target = w->text + w->target;
    const size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                          : strncasecmp(target, "https://", 8) == 0 ? 8
                                                                    : 0;
    if (scheme > 0) {
        char *authority = target + scheme;
        char *path = authority + strcspn(authority, "/?#");
        judge_authority(w, authority, (size_t)(path - authority));
        if (*path != '/')
            *--path = '/'; // over the authority's end, which is not needed any more
        w->target = (uint16_t)(path - w->text);
    } else if (target[0] != '/' && !(strcmp(target, "*") == 0 && strcmp(w->text, "OPTIONS") == 0)) {
        violate(w, 400, "the request target is neither a path nor an address");
    }
    if (w->state != S_VIOLATION && strchr(target, '#') != NULL)
        violate(w, 400, "the request target has a fragment");
    if (w->state != S_VIOLATION)
        unescape(w, w->text + w->target);
}

static bool has(const struct plm_wire *w, unsigned which)
{
    return (w->seen >> which & 1) != 0;
}

static void judge_head(struct plm_wire *w)
{
    const struct {
        bool wrong;
        int status;
        const char *why;
    } rules[] = {
        {w->http11 && !has(w, F_HOST), 400, "the Host header is missing"},
        {has(w, F_ENCODING) && has(w, F_LENGTH), 400,
         "Content-Length together with Transfer-Encoding"},
        {has(w, F_ENCODING) && !w->coding_known, 400,
         "the only Transfer-Encoding that is understood is chunked"},
        {has(w, F_ENCODING) && !w->http11, 400, "Transfer-Encoding needs HTTP/1.1"},
        {has(w, F_EXPECT) && !w->expects_continue, 417,
         "the only expectation that is understood is 100-continue"},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (rules[i].wrong) {
            violate(w, rules[i].status, rules[i].why);
            return;
        }
    }
    w->chunked = has(w, F_ENCODING);
    if (w->chunked)
        w->length = -1;
    judge_target(w);
}

// What follows the empty line: a body, or nothing.
static void on_fields_lf(struct plm_wire *w, unsigned char c)
{
    expect(w, c, '\n', S_END);
    if (w->state == S_VIOLATION || w->in_trailer)
        return;
    judge_head(w);
    if (w->state == S_VIOLATION)
        return;
    w->left = w->chunked ? 0 : w->length;
    w->matched = 0;
    if (w->chunked)
        w->state = S_SIZE;
    else if (w->left > 0)
        w->state = S_LENGTH;
}

// ---- chunks ----

static void on_size(struct plm_wire *w, unsigned char c)
{
    const int digit = hex(c);
    if (digit >= 0 && w->matched < CHUNK_DIGITS_MAX) {
        w->left = w->left * 16 + digit;
        w->matched++;
    } else if (c == '\r' && w->matched > 0) {
        w->state = S_SIZE_LF;
    } else if (c == ';' && w->matched > 0) {
        w->state = S_EXTENSION;
    } else {
        violate(w, 400, "the size of a chunk is malformed");
    }
}

static void on_extension(struct plm_wire *w, unsigned char c)
{
    if (c == '\r')
        w->state = S_SIZE_LF;
    else if (is_control(c))
        violate(w, 400, "a chunk extension has a control character");
    else if (++w->extension_bytes > PLM_WIRE_EXTENSIONS_MAX)
        violate(w, 400, "more than 4096 bytes of chunk extensions");
}

static void on_size_lf(struct plm_wire *w, unsigned char c)
{
    w->in_trailer = w->left == 0;
    expect(w, c, '\n', w->in_trailer ? S_FIELD : S_CHUNK);
}

static void on_chunk_lf(struct plm_wire *w, unsigned char c)
{
    expect(w, c, '\n', S_SIZE);
    w->left = 0;
    w->matched = 0;
}

// ---- feeding ----

static void step(struct plm_wire *w, unsigned char c)
{
    switch ((enum state)w->state) {
    case S_START: on_start(w, c); break;
    case S_START_LF: expect(w, c, '\n', S_METHOD); break;
    case S_METHOD: on_method(w, c); break;
    case S_TARGET: on_target(w, c); break;
    case S_VERSION: on_version(w, c); break;
    case S_LINE_CR: expect(w, c, '\r', S_LINE_LF); break;
    case S_LINE_LF: expect(w, c, '\n', S_FIELD); break;
    case S_FIELD: on_field(w, c); break;
    case S_NAME: on_name(w, c); break;
    case S_BLANKS: on_blanks(w, c); break;
    case S_VALUE: on_value(w, c); break;
    case S_VALUE_LF: on_value_lf(w, c); break;
    case S_FIELDS_LF: on_fields_lf(w, c); break;
    case S_SIZE: on_size(w, c); break;
    case S_EXTENSION: on_extension(w, c); break;
    case S_SIZE_LF: on_size_lf(w, c); break;
    case S_CHUNK_CR: expect(w, c, '\r', S_CHUNK_LF); break;
    case S_CHUNK_LF: on_chunk_lf(w, c); break;
    case S_LENGTH:
    case S_CHUNK:
    case S_END:
    case S_VIOLATION: break;
    }
}

// Counts a byte of a head against its bounds before anything is kept of it.
static bool within_bounds(struct plm_wire *w)
{
    if (w->state == S_START || w->state > S_FIELDS_LF)
        return true;
    w->head_bytes++;
    if (w->state < S_FIELD && w->head_bytes > PLM_WIRE_LINE_MAX)
        violate(w, 414, "the request line has more than 8192 bytes");
    else if (w->head_bytes > PLM_WIRE_HEAD_MAX)
        violate(w, 431, "the header has more than 16384 bytes");
    return w->state != S_VIOLATION;
}

static enum plm_wire_event take_body(struct plm_wire *w, const char **at, size_t *n,
                                     const char **body, size_t *body_len)
{
    const size_t take = (uint64_t)w->left < *n ? (size_t)w->left : *n;
    *body = *at;
    *body_len = take;
    *at += take;
    *n -= take;
    w->left -= (int64_t)take;
    if (w->left == 0)
        w->state = w->state == S_LENGTH ? S_END : S_CHUNK_CR;
    return PLM_WIRE_BODY;
}

void plm_wire_init(struct plm_wire *w)
{
    begin_head(w);
    w->text[0] = w->text[1] = '\0'; // a request of which nothing came has empty names
}

enum plm_wire_event plm_wire_feed(struct plm_wire *w, const char **at, size_t *n, const char **body,
                                  size_t *body_len)
{
    if (w->state == S_END) {
        w->state = S_START;
        return PLM_WIRE_END;
    }
    while (*n > 0 && w->state != S_VIOLATION) {
        if (w->state == S_LENGTH || w->state == S_CHUNK)
            return take_body(w, at, n, body, body_len);
        const bool was_head = w->state == S_FIELDS_LF && !w->in_trailer;
        const unsigned char c = (unsigned char)**at;
        ++*at;
        --*n;
        if (within_bounds(w))
            step(w, c);
        if (was_head && w->state != S_VIOLATION)
            return PLM_WIRE_HEAD;
        if (w->state == S_END) {
            w->state = S_START;
            return PLM_WIRE_END;
        }
    }
    return w->state == S_VIOLATION ? PLM_WIRE_BAD : PLM_WIRE_MORE;
}

size_t plm_wire_want(const struct plm_wire *w, size_t ahead)
{
    if (w->state == S_LENGTH)
        return (uint64_t)w->left < SIZE_MAX ? (size_t)w->left : SIZE_MAX;
    if (w->state == S_CHUNK)
        return (uint64_t)w->left < SIZE_MAX - ahead ? (size_t)w->left + ahead : SIZE_MAX;
    return ahead;
}

bool plm_wire_idle(const struct plm_wire *w)
{
    return w->state == S_START || w->state == S_END;
}

int plm_wire_violation(const struct plm_wire *w, const char **why)
{
    *why = w->why;
    return w->status;
}

// ---- what the head said ----

const char *plm_wire_method(const struct plm_wire *w)
{
    return w->text;
}

const char *plm_wire_path(const struct plm_wire *w)
{
    return w->text + w->target;
}

size_t plm_wire_fields(const struct plm_wire *w)
{
    return w->n_fields;
}

const char *plm_wire_field_name(const struct plm_wire *w, size_t i)
{
    return w->text + w->fields[i].name;
}

const char *plm_wire_field_value(const struct plm_wire *w, size_t i)
{
    return w->text + w->fields[i].value;
}

const char *plm_wire_field(const struct plm_wire *w, const char *name)
{
    for (size_t i = 0; i < w->n_fields; i++) {
        if (strcasecmp(plm_wire_field_name(w, i), name) == 0)
            return plm_wire_field_value(w, i);
    }
    return NULL;
}

int64_t plm_wire_length(const struct plm_wire *w)
{
    return w->length;
}

bool plm_wire_is_http11(const struct plm_wire *w)
{
    return w->http11;
}

bool plm_wire_keeps_alive(const struct plm_wire *w)
{
    return !w->close_asked && (w->http11 || w->keep_asked);
}

bool plm_wire_expects_continue(const struct plm_wire *w)
{
    return w->http11 && w->expects_continue;
}
