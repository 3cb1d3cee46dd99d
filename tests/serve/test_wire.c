// SPDX-License-Identifier: Apache-2.0
// The scanner of requests: what it refuses and with which status, what it understands, and that no
// verdict depends on how the bytes are cut.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tools/serve/wire.h"

#define GET  "GET /health HTTP/1.1\r\n"
#define POST "POST /v1/completions HTTP/1.1\r\n"
#define HOST "Host: a\r\n"
#define NEXT "GET /next HTTP/1.1\r\nHost: a\r\n\r\n"

// What was understood of a connection's bytes, as text: "POST /x [body] ." per request, a status at
// a violation, nothing of what follows it.
struct report {
    char text[4096];
    size_t len;
};

static void say(struct report *r, const char *text, size_t n)
{
    ck_assert_uint_lt(r->len + n, sizeof(r->text));
    memcpy(r->text + r->len, text, n);
    r->len += n;
    r->text[r->len] = '\0';
}

static void say_head(struct report *r, const struct plm_wire *w)
{
    char line[600];
    const char *host = plm_wire_field(w, "host"), *key = plm_wire_field(w, "X-API-KEY");
    int n = snprintf(line, sizeof(line), "%s %.200s host=%.100s key=%.100s length=%lld %s%s%s[",
                     plm_wire_method(w), plm_wire_path(w), host != NULL ? host : "-",
                     key != NULL ? key : "-", (long long)plm_wire_length(w),
                     plm_wire_is_http11(w) ? "1.1 " : "1.0 ", plm_wire_keeps_alive(w) ? "+ " : "",
                     plm_wire_expects_continue(w) ? "100 " : "");
    say(r, line, (size_t)n);
}

// Feeds one piece. False: a violation ended it.
static bool feed(struct plm_wire *w, struct report *r, const char *at, size_t n)
{
    const char *body, *why;
    size_t body_len;
    char line[120];
    for (;;) {
        switch (plm_wire_feed(w, &at, &n, &body, &body_len)) {
        case PLM_WIRE_MORE: ck_assert_uint_eq(n, 0); return true;
        case PLM_WIRE_HEAD: say_head(r, w); break;
        case PLM_WIRE_BODY: say(r, body, body_len); break;
        case PLM_WIRE_END: say(r, "] ", 2); break;
        case PLM_WIRE_BAD:
            say(r, line, (size_t)snprintf(line, sizeof(line), "%d ", plm_wire_violation(w, &why)));
            say(r, why, strlen(why));
            return false;
        }
    }
}

static struct plm_wire wire;

static struct report scan(const char *bytes, size_t n, size_t cut)
{
    struct report r = {.text = ""};
    plm_wire_init(&wire);
    if (feed(&wire, &r, bytes, cut))
        feed(&wire, &r, bytes + cut, n - cut);
    return r;
}

// The whole, in two pieces at each place, and byte by byte.
static struct report scan_all_ways(const char *bytes, size_t n)
{
    const struct report whole = scan(bytes, n, n);
    for (size_t cut = 0; cut < n; cut++) {
        const struct report two = scan(bytes, n, cut);
        ck_assert_msg(strcmp(two.text, whole.text) == 0, "cut at %zu: \"%s\", not \"%s\"", cut,
                      two.text, whole.text);
    }
    struct report r = {.text = ""};
    plm_wire_init(&wire);
    for (size_t i = 0; i < n && feed(&wire, &r, bytes + i, 1); i++) {
    }
    ck_assert_str_eq(r.text, whole.text);
    return whole;
}

struct bad {
    const char *name;
    const char *bytes;
    int status;
    const char *word;
};

#define CHUNKED POST HOST "Transfer-Encoding: chunked\r\n\r\n"

static const struct bad bad[] = {
    {"folded encoding",
     POST HOST "Content-Length: 4\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n", 400, "folded"},
    {"fold with a tab", GET HOST "X: a\r\n\tb\r\n\r\n", 400, "folded"},
    {"fold before all fields", GET " X: a\r\n" HOST "\r\n", 400, "folded"},
    {"bare line feed behind the request line", "GET /health HTTP/1.1\nHost: a\r\n\r\n", 400,
     "line"},
    {"bare line feed behind a field", GET "Host: a\nX: b\r\n\r\n", 400, "line feed"},
    {"bare line feed as the empty line", GET HOST "\n", 400, "line feed"},
    {"bare carriage return in a value", GET "Host: a\rX: b\r\n\r\n", 400, "carriage return"},
    {"two carriage returns", GET "Host: a\r\r\n\r\n", 400, "carriage return"},
    {"a control in a value", GET HOST "X: a\001b\r\n\r\n", 400, "control"},
    {"a delete in a value", GET HOST "X: a\177b\r\n\r\n", 400, "control"},
    {"a blank before the colon", GET "Host : a\r\n\r\n", 400, "field name"},
    {"a tab before the colon", GET "Host\t: a\r\n\r\n", 400, "field name"},
    {"no colon", GET "Host a\r\n\r\n", 400, "field name"},
    {"an empty name", GET HOST ": a\r\n\r\n", 400, "field name"},
    {"a bracket in a name", GET HOST "X(A): b\r\n\r\n", 400, "field name"},
    {"a letter beyond ASCII in a name", GET HOST "X\303\244: b\r\n\r\n", 400, "field name"},
    {"two hosts", GET HOST "host: b\r\n\r\n", 400, "Host"},
    {"two equal lengths", POST HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400,
     "Content-Length"},
    {"two encodings", POST HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
     400, "Transfer-Encoding"},
    {"two types", POST HOST "Content-Type: a\r\nContent-Type: b\r\n\r\n", 400, "Content-Type"},
    {"two authorizations", GET HOST "Authorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n",
     400, "Authorization"},
    {"two keys", GET HOST "x-api-key: a\r\nX-Api-Key: a\r\n\r\n", 400, "X-Api-Key"},
    {"two origins", GET HOST "Origin: http://a\r\nOrigin: null\r\n\r\n", 400, "Origin"},
    {"no host", GET "\r\n", 400, "Host"},
    {"an empty host", GET "Host:  \r\n\r\n", 400, "Host"},
    {"a host with a blank", GET "Host: a b\r\n\r\n", 400, "Host"},
    {"a list of hosts", GET "Host: a,b\r\n\r\n", 400, "Host"},
    {"length and encoding",
     POST HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "together"},
    {"encoding and length",
     POST HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400, "together"},
    {"an unknown encoding", POST HOST "Transfer-Encoding: gzip\r\n\r\n", 400, "chunked"},
    {"a list of encodings", POST HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 400, "chunked"},
    {"an empty encoding", POST HOST "Transfer-Encoding:\r\n\r\n", 400, "chunked"},
    {"encoding in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "HTTP/1.1"},
    {"a length with a sign", POST HOST "Content-Length: +5\r\n\r\n", 400, "number"},
    {"a negative length", POST HOST "Content-Length: -1\r\n\r\n", 400, "number"},
    {"a list of lengths", POST HOST "Content-Length: 5, 5\r\n\r\n", 400, "number"},
    {"an empty length", POST HOST "Content-Length:\r\n\r\n", 400, "number"},
    {"a length of 20 digits", POST HOST "Content-Length: 99999999999999999999\r\n\r\n", 400,
     "number"},
    {"an unknown expectation", POST HOST "Expect: 200-ok\r\nContent-Length: 1\r\n\r\n", 417, "100"},
    {"two expectations", POST HOST "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n", 400,
     "Expect"},
    {"an escaped slash", "GET /v1%2fmemory HTTP/1.1\r\n" HOST "\r\n", 400, "escape"},
    {"an escaped slash in capitals", "GET /v1%2Fmemory HTTP/1.1\r\n" HOST "\r\n", 400, "escape"},
    {"an escaped NUL", "GET /health%00 HTTP/1.1\r\n" HOST "\r\n", 400, "escape"},
    {"an escaped line feed", "GET /health%0a HTTP/1.1\r\n" HOST "\r\n", 400, "escape"},
    {"half an escape", "GET /health%2 HTTP/1.1\r\n" HOST "\r\n", 400, "escape"},
    {"no escape", "GET /health%zz HTTP/1.1\r\n" HOST "\r\n", 400, "escape"},
    {"another host in the target", "GET http://b/health HTTP/1.1\r\n" HOST "\r\n", 400,
     "another host"},
    {"no host in the target", "GET http:///health HTTP/1.1\r\n" HOST "\r\n", 400, "another host"},
    {"a user in the target", "GET http://u@a/health HTTP/1.1\r\n" HOST "\r\n", 400, "another host"},
    {"a target without a slash", "GET health HTTP/1.1\r\n" HOST "\r\n", 400, "neither"},
    {"a star for GET", "GET * HTTP/1.1\r\n" HOST "\r\n", 400, "neither"},
    {"an authority", "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", 400, "neither"},
    {"a fragment", "GET /health#x HTTP/1.1\r\n" HOST "\r\n", 400, "fragment"},
    {"a target beyond ASCII", "GET /\303\244 HTTP/1.1\r\n" HOST "\r\n", 400, "target"},
    {"two blanks", "GET  /health HTTP/1.1\r\n" HOST "\r\n", 400, "target"},
    {"no version", "GET /health\r\n\r\n", 400, "target"},
    {"a version in small letters", "GET /health http/1.1\r\n" HOST "\r\n", 400, "version"},
    {"version 2", "GET /health HTTP/2.0\r\n" HOST "\r\n", 505, "1.1"},
    {"version 1.2", "GET /health HTTP/1.2\r\n" HOST "\r\n", 505, "1.1"},
    {"a blank behind the version", "GET /health HTTP/1.1 \r\n" HOST "\r\n", 400, "line"},
    {"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "1.1"},
    {"a blank before the method", " GET /health HTTP/1.1\r\n" HOST "\r\n", 400, "method"},
    {"a bracket in the method", "G(T /health HTTP/1.1\r\n" HOST "\r\n", 400, "method"},
    {"a method of 32", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF / HTTP/1.1\r\n\r\n", 400, "method"},
    {"TLS", "\026\003\001\002", 400, "method"},
    {"two empty lines first", "\r\n\r\n" NEXT, 400, "method"},
    {"no size", CHUNKED "\r\n{}\r\n", 400, "size"},
    {"a size that is none", CHUNKED "zz\r\n{}\r\n", 400, "size"},
    {"a negative size", CHUNKED "-1\r\n{}\r\n", 400, "size"},
    {"0x before a size", CHUNKED "0x2\r\n{}\r\n", 400, "size"},
    {"a blank behind a size", CHUNKED "2 \r\n{}\r\n", 400, "size"},
    {"a size of 16 digits", CHUNKED "0000000000000002\r\n{}\r\n", 400, "size"},
    {"a size that ends in a line feed", CHUNKED "2\n{}\r\n", 400, "size"},
    {"a chunk longer than its size", CHUNKED "2\r\n{}zz0\r\n\r\n", 400, "line"},
    {"a chunk that ends in a line feed", CHUNKED "2\r\n{}\n0\r\n\r\n", 400, "line"},
    {"an extension with a line feed", CHUNKED "2;a\n{}\r\n0\r\n\r\n", 400, "extension"},
    {"a folded trailer", CHUNKED "0\r\nX: a\r\n b\r\n\r\n", 400, "folded"},
    {"a length in a trailer", CHUNKED "0\r\nContent-Length: 3\r\n\r\n", 400, "trailer"},
    {"a key in a trailer", CHUNKED "0\r\nAuthorization: Bearer x\r\n\r\n", 400, "trailer"},
    {"a bare line feed in a trailer", CHUNKED "0\r\nX: a\n\r\n", 400, "line feed"},
};

START_TEST(what_could_be_read_differently_is_refused_and_ends_the_connection)
{
    const struct bad *b = &bad[_i];
    char bytes[1024];
    const int n = snprintf(bytes, sizeof(bytes), "%s%s", b->bytes, NEXT);
    const struct report r = scan_all_ways(bytes, (size_t)n);
    const char *status = strstr(r.text, b->status == 400   ? "400 "
                                        : b->status == 417 ? "417 "
                                                           : "505 ");
    ck_assert_msg(status != NULL && strstr(status, b->word) != NULL, "%s: %s", b->name, r.text);
    ck_assert_msg(strstr(r.text, "/next") == NULL, "%s: %s", b->name, r.text);
}
END_TEST

START_TEST(a_nul_is_refused_wherever_it_is)
{
    static const char request[] =
        "POST /x HTTP/1.1\r\n" HOST "X: ab\r\nTransfer-Encoding: chunked\r\n\r\n"
        "2;x\r\n{}\r\n0\r\nY: z\r\n\r\n" NEXT;
    char bytes[sizeof(request)];
    const size_t n = sizeof(request) - 1;
    const size_t body = (size_t)(strstr(request, "{}") - request);
    for (size_t i = 0; i < n - strlen(NEXT); i++) {
        if (i == body || i == body + 1)
            continue; // a body may be anything
        memcpy(bytes, request, sizeof(request));
        bytes[i] = '\0';
        const struct report r = scan(bytes, n, n);
        ck_assert_msg(strstr(r.text, "400 ") != NULL, "at %zu: %s", i, r.text);
        ck_assert_msg(strstr(r.text, "/next") == NULL, "at %zu: %s", i, r.text);
    }
}
END_TEST

static const struct {
    const char *bytes, *report;
} good[] = {
    {GET HOST "\r\n", "GET /health host=a key=- length=0 1.1 + [] "},
    {"\r\n" GET HOST "\r\n", "GET /health host=a key=- length=0 1.1 + [] "},
    {"GET /a%20b%25%C3%A4?x=%2f HTTP/1.1\r\n" HOST "\r\n",
     "GET /a b%\303\244 host=a key=- length=0 1.1 + [] "},
    {"GET http://a:80/health?x HTTP/1.1\r\nHost: A:80\r\n\r\n",
     "GET /health host=A:80 key=- length=0 1.1 + [] "},
    {"GET https://a?x HTTP/1.1\r\n" HOST "\r\n", "GET / host=a key=- length=0 1.1 + [] "},
    {"OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS * host=a key=- length=0 1.1 + [] "},
    {"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
     "GET / host=[::1]:8080 key=- length=0 1.1 + [] "},
    {"GET / HTTP/1.0\r\n\r\n", "GET / host=- key=- length=0 1.0 [] "},
    {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET / host=- key=- length=0 1.0 + [] "},
    {GET HOST "Connection: x, CLOSE\r\n\r\n", "GET /health host=a key=- length=0 1.1 [] "},
    {GET HOST "x-api-key:\t a key \t\r\nX: \303\244\t.\r\nEmpty:\r\n\r\n",
     "GET /health host=a key=a key length=0 1.1 + [] "},
    {POST HOST "Content-Length: 004\r\n\r\nab\r\n" NEXT,
     "POST /v1/completions host=a key=- length=4 1.1 + [ab\r\n] GET /next host=a key=- length=0 "
     "1.1 + [] "},
    {POST HOST "EXPECT: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
     "POST /v1/completions host=a key=- length=1 1.1 + 100 [x] "},
    {POST HOST
     "Transfer-Encoding: Chunked\r\n\r\n2\r\n{}\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\n\r\n" NEXT,
     "POST /v1/completions host=a key=- length=-1 1.1 + [{}0123456789] "
     "GET /next host=a key=- length=0 1.1 + [] "},
    {CHUNKED "0;last\r\nX-Sum: 1\r\nY:\r\n\r\n" NEXT,
     "POST /v1/completions host=a key=- length=-1 1.1 + [] GET /next host=a key=- length=0 1.1 + "
     "[] "},
};

START_TEST(what_is_unambiguous_is_understood)
{
    const struct report r = scan_all_ways(good[_i].bytes, strlen(good[_i].bytes));
    ck_assert_str_eq(r.text, good[_i].report);
}
END_TEST

// Builds start + n times unit + end; freed by the caller.
static char *build(const char *start, const char *unit, size_t n, const char *end)
{
    const size_t unit_len = strlen(unit);
    char *text = malloc(strlen(start) + n * unit_len + strlen(end) + 1);
    char *at = text + sprintf(text, "%s", start);
    for (size_t i = 0; i < n; i++, at += unit_len)
        memcpy(at, unit, unit_len);
    strcpy(at, end);
    return text;
}

START_TEST(bounds_are_exact)
{
    static const size_t line = sizeof("GET / HTTP/1.1\r\n") - 1;
    static const size_t head = sizeof(GET HOST "X: \r\n\r\n") - 1;
    const struct {
        const char *start, *unit, *end;
        size_t most;
        int status;
    } cases[] = {
        {"GET /", "a", " HTTP/1.1\r\n" HOST "\r\n", PLM_WIRE_LINE_MAX - line, 414},
        {GET HOST "X: ", "b", "\r\n\r\n", PLM_WIRE_HEAD_MAX - head, 431},
        {GET HOST, "X: b\r\n", "\r\n", PLM_WIRE_FIELDS_MAX - 1, 431},
        {CHUNKED "0\r\n", "X: b\r\n", "\r\n", PLM_WIRE_FIELDS_MAX - 2, 431},
        {CHUNKED "2;", "e", "\r\n{}\r\n0\r\n\r\n", PLM_WIRE_EXTENSIONS_MAX, 400},
        {CHUNKED, "1;eeeeeeee\r\nx\r\n", "0\r\n\r\n", PLM_WIRE_EXTENSIONS_MAX / 8, 400},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t more = 0; more < 2; more++) {
            char *text = build(cases[i].start, cases[i].unit, cases[i].most + more, cases[i].end);
            const struct report r = scan(text, strlen(text), strlen(text) / 2);
            char status[16];
            snprintf(status, sizeof(status), "%d ", cases[i].status);
            ck_assert_msg((strstr(r.text, status) != NULL) == (more == 1), "%zu: %zu: %s", i, more,
                          r.text);
            ck_assert_msg((strstr(r.text, "] ") != NULL) == (more == 0), "%zu: %zu: %s", i, more,
                          r.text);
            free(text);
        }
    }
}
END_TEST

START_TEST(no_more_is_wanted_than_may_be_kept)
{
    struct report r = {.text = ""};
    plm_wire_init(&wire);
    ck_assert_uint_eq(plm_wire_want(&wire, 100), 100);
    ck_assert(plm_wire_idle(&wire));
    static const char known[] = POST HOST "Content-Length: 7\r\n\r\nab";
    static const char chunked[] = CHUNKED "0a\r\nx";
    feed(&wire, &r, known, sizeof(known) - 1);
    ck_assert_uint_eq(plm_wire_want(&wire, 100), 5);
    ck_assert(!plm_wire_idle(&wire));
    feed(&wire, &r, "cdefg", 5);
    ck_assert(plm_wire_idle(&wire));
    feed(&wire, &r, chunked, sizeof(chunked) - 1);
    ck_assert_uint_eq(plm_wire_want(&wire, 100), 109);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire");
    TCase *tc = tcase_create("wire");
    tcase_add_loop_test(tc, what_could_be_read_differently_is_refused_and_ends_the_connection, 0,
                        sizeof(bad) / sizeof(bad[0]));
    tcase_add_test(tc, a_nul_is_refused_wherever_it_is);
    tcase_add_loop_test(tc, what_is_unambiguous_is_understood, 0, sizeof(good) / sizeof(good[0]));
    tcase_add_test(tc, bounds_are_exact);
    tcase_add_test(tc, no_more_is_wanted_than_may_be_kept);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
