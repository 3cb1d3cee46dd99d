// SPDX-License-Identifier: Apache-2.0
// Connections by the clock: how long heads, bodies, idle clients and slow readers may hold a place.
// The sweep is told what time it is, so that nobody waits here.
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tools/serve/http_impl.h"

#define TIMEOUT_S 120
#define SECONDS   INT64_C(1000)

static struct plm_http *http;
static int epoll_fd, client;
static int64_t start_ms;
static const char *answer_text; // what request() answers; NULL: nothing yet
static struct plm_exchange *waiting;
static unsigned n_closed;
static struct plm_share bodies;
static plim_engine *engine; // whose budget pays for bodies; NULL: nobody's

static void reply(struct plm_exchange *x, int status, const char *text, bool close_after)
{
    struct plm_out body;
    plm_out_init(&body, NULL);
    plm_out_str(&body, text);
    plm_http_reply(x, status, "text/plain", NULL, 0, close_after, &body);
}

static void on_begin(void *app, struct plm_exchange *x)
{
    (void)app;
    plm_http_limit_body(x, 1 << 20, engine);
}

static void on_request(void *app, struct plm_exchange *x)
{
    (void)app;
    waiting = x;
    if (answer_text != NULL)
        reply(x, 200, answer_text, false);
}

static void on_body_failed(void *app, struct plm_exchange *x, bool too_large)
{
    (void)app;
    reply(x, too_large ? 413 : 503, "", true);
}

static void on_malformed(void *app, struct plm_exchange *x, int status, const char *why)
{
    (void)app;
    reply(x, status, why, true);
}

static void on_drained(void *app, struct plm_exchange *x)
{
    (void)app;
    if (plm_http_backlog(x) == 0)
        for (int i = 0; i < 64; i++)
            plm_out_str(plm_http_stream(x), "0123456789abcdef0123456789abcdef0123456789abcdef");
}

static void on_closed(void *app, struct plm_exchange *x)
{
    (void)app;
    (void)x;
    n_closed++;
}

// Another client; its end is returned.
static int connect_one(void)
{
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    plm_http_add(http, pair[1]);
    plm_http_run(http);
    return pair[0];
}

static void setup(void)
{
    static const struct plm_peers nobody;
    static const char *const probes[] = {"/health", NULL};
    static const struct plm_http_handler handler = {.begin = on_begin,
                                                    .request = on_request,
                                                    .body_failed = on_body_failed,
                                                    .malformed = on_malformed,
                                                    .drained = on_drained,
                                                    .closed = on_closed};
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    const struct plm_http_config config = {epoll_fd, 2, 1, TIMEOUT_S, &nobody, probes, &bodies};
    http = plm_http_create(&config, &handler);
    start_ms = plm_now_ms();
    client = connect_one();
    answer_text = "ok";
    n_closed = 0;
}

static void teardown(void)
{
    plm_http_destroy(http);
    close(client);
    close(epoll_fd);
}

// Serves whatever is ready, until nothing is.
static void turn(void)
{
    struct epoll_event events[8];
    int n;
    while ((n = epoll_wait(epoll_fd, events, 8, 0)) > 0 || plm_http_is_due(http)) {
        for (int i = 0; i < n; i++)
            plm_http_ready(events[i].data.ptr, events[i].events);
        plm_http_run(http);
    }
}

static void say(const char *text)
{
    ck_assert_int_eq(send(client, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    turn();
}

static void sweep(int64_t after_ms)
{
    plm_http_sweep(http, start_ms + after_ms);
    turn();
}

// What the client can read now: a status, 0 for the end, -1 for nothing.
static int heard(void)
{
    static char text[1 << 16];
    const ssize_t n = recv(client, text, sizeof(text) - 1, 0);
    if (n <= 0)
        return n == 0 ? 0 : -1;
    text[n] = '\0';
    ck_assert_ptr_nonnull(strstr(text, "HTTP/1.1 "));
    return atoi(strstr(text, "HTTP/1.1 ") + 9);
}

START_TEST(a_silent_client_has_the_timeout)
{
    sweep(TIMEOUT_S * SECONDS - 100);
    ck_assert_int_eq(heard(), -1);
    sweep(TIMEOUT_S * SECONDS + 1100);
    ck_assert_int_eq(heard(), 0);
    ck_assert_uint_eq(plm_http_connections(http), 0);
    ck_assert_uint_eq(n_closed, 0);
}
END_TEST

START_TEST(a_head_has_its_seconds_from_its_first_byte)
{
    say("GET / HT");
    sweep(PLM_HTTP_HEAD_S * SECONDS - 100);
    say("TP/1.1\r\nHost: a\r\n"); // renews nothing
    ck_assert_int_eq(heard(), -1);
    sweep(PLM_HTTP_HEAD_S * SECONDS + 1100);
    ck_assert_int_eq(heard(), 408);
    ck_assert_int_eq(heard(), 0);
    ck_assert_uint_eq(n_closed, 1);
    // Whatever follows is dropped, and that ends, too.
    say("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_int_eq(heard(), 0);
    sweep(2 * PLM_HTTP_HEAD_S * SECONDS + 2000);
    ck_assert_uint_eq(plm_http_connections(http), 0);
}
END_TEST

START_TEST(a_body_has_a_pause_a_rate_and_a_total)
{
    // Bytes that came, seconds since the last of them and since its head; whether it is cut.
    static const struct {
        size_t bytes;
        int64_t pause_s, since_s;
        bool cut;
    } cases[] = {
        {10, TIMEOUT_S - 1, TIMEOUT_S - 1, false},
        {10, TIMEOUT_S + 1, TIMEOUT_S + 1, true},
        {10, 1, TIMEOUT_S + 1, true}, // it dribbles
        {200 * PLM_HTTP_RATE_MIN, 1, TIMEOUT_S + 199, false},
        {200 * PLM_HTTP_RATE_MIN, 1, TIMEOUT_S + 201, true},
        {100000 * (size_t)PLM_HTTP_RATE_MIN, 1, 10 * TIMEOUT_S - 1, false},
        {100000 * (size_t)PLM_HTTP_RATE_MIN, 1, 10 * TIMEOUT_S + 1, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (i > 0)
            setup();
        say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx");
        struct plm_http_conn *conn = http->newest;
        const int64_t now = start_ms + 1000000 * SECONDS;
        conn->x->body_bytes = cases[i].bytes;
        conn->x->started_ms = now - cases[i].since_s * SECONDS;
        conn->last_read_ms = now - cases[i].pause_s * SECONDS;
        plm_http_sweep(http, now);
        turn();
        ck_assert_msg(heard() == (cases[i].cut ? 408 : -1), "%zu", i);
        if (i + 1 < sizeof(cases) / sizeof(cases[0]))
            teardown();
    }
}
END_TEST

START_TEST(a_reader_has_a_pause_and_a_rate)
{
    struct plm_http_conn *conn = http->newest;
    struct plm_exchange x = {.conn = conn};
    const int64_t now = start_ms;
    ck_assert(!plm_http_takes_too_slowly(&x, now + 1000000 * SECONDS)); // nothing waits for it
    x.blocked_at_ms = now;
    ck_assert(!plm_http_takes_too_slowly(&x, now + TIMEOUT_S * SECONDS));
    ck_assert(plm_http_takes_too_slowly(&x, now + TIMEOUT_S * SECONDS + 1));
    // All the pauses together: a byte in each renews nothing.
    x.blocked_ms = TIMEOUT_S * SECONDS;
    x.paced_bytes = PLM_HTTP_RATE_MIN - 1;
    ck_assert(plm_http_takes_too_slowly(&x, now + 1));
    x.paced_bytes = 60 * PLM_HTTP_RATE_MIN;
    ck_assert(!plm_http_takes_too_slowly(&x, now + 60 * SECONDS));
    ck_assert(plm_http_takes_too_slowly(&x, now + 60 * SECONDS + 1));
}
END_TEST

START_TEST(a_reader_that_takes_nothing_is_reset)
{
    answer_text = NULL;
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    plm_http_stream_begin(waiting, NULL); // endless: on_drained() always has more
    turn();
    ck_assert(plm_http_is_blocked(waiting));
    ck_assert_uint_gt(plm_http_backlog(waiting), 0);
    sweep(TIMEOUT_S * SECONDS - 100);
    ck_assert_uint_eq(plm_http_connections(http), 1);
    sweep(TIMEOUT_S * SECONDS + 1100);
    ck_assert_uint_eq(plm_http_connections(http), 0);
    ck_assert_uint_eq(n_closed, 1);
}
END_TEST

START_TEST(an_answered_client_is_idle_again)
{
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_int_eq(heard(), 200);
    sweep(PLM_HTTP_HEAD_S * SECONDS + 1100);
    ck_assert_int_eq(heard(), -1);
    // Several requests in one piece, and one that is answered later.
    answer_text = NULL;
    say("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_str_eq(plm_http_path(waiting), "/1");
    ck_assert_int_eq(heard(), -1);
    reply(waiting, 200, "1", false);
    turn();
    ck_assert_str_eq(plm_http_path(waiting), "/2");
    reply(waiting, 404, "2", true);
    turn();
    ck_assert_int_eq(heard(), 200);
    ck_assert_int_eq(heard(), 0);
    ck_assert_uint_eq(n_closed, 3);
}
END_TEST

START_TEST(who_leaves_is_noticed_while_waiting)
{
    answer_text = NULL;
    say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}");
    ck_assert_uint_eq(n_closed, 0);
    shutdown(client, SHUT_WR);
    turn();
    ck_assert_uint_eq(n_closed, 1);
    ck_assert_uint_eq(plm_http_connections(http), 0);
}
END_TEST

START_TEST(bodies_share_what_they_may_hold)
{
    char part[8192];
    plim_engine_opts opts;
    memset(part, ' ', sizeof(part));
    plim_engine_opts_init(&opts);
    opts.model_path = "fake.gguf";
    ck_assert_int_eq(plim_engine_create(&opts, &engine, NULL), PLIM_OK);
    bodies.limit_bytes = 4096;
    say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n");
    ck_assert_int_eq(send(client, part, 2000, 0), 2000);
    turn();
    ck_assert_int_eq(heard(), -1);
    ck_assert_int_gt(bodies.used_bytes, 1999);
    ck_assert_int_eq(send(client, part, 6000, 0), 6000);
    turn();
    ck_assert_int_eq(heard(), 503);
    ck_assert_int_eq(bodies.used_bytes, 0);
    plim_engine_free(engine); // which checks that all was given back
    engine = NULL;
}
END_TEST

START_TEST(clients_of_a_unix_socket_share_the_maximum_alone)
{
    const int second = connect_one(), third = connect_one(), first = client;
    // One is all that a peer may have here, but these have no address; two are all that there may
    // be.
    client = second;
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_int_eq(heard(), 200);
    client = third;
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_int_eq(heard(), 503);
    close(third);
    client = connect_one(); // takes the place of the idle one
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_int_eq(heard(), 200);
    close(client);
    client = second;
    ck_assert_int_eq(heard(), 0);
    close(second);
    client = first;
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_int_eq(heard(), 200);
    ck_assert_uint_eq(plm_http_turned_away(http), 1);
}
END_TEST

START_TEST(probes_take_turns_in_their_places)
{
    int silent[2 * PLM_HTTP_PROBE_PLACES];
    const int first = client;
    const int second = connect_one();
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++) {
        silent[i] = connect_one();
        ck_assert_uint_le(plm_http_connections(http), 2 + PLM_HTTP_PROBE_PLACES);
        client = connect_one();
        say("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
        ck_assert_int_eq(heard(), 200);
        ck_assert_int_eq(heard(), 0); // once
        close(client);
        turn();
    }
    client = silent[0];
    ck_assert_int_eq(heard(), 503);
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++)
        close(silent[i]);
    close(second);
    client = first;
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); // who has a place keeps it
    ck_assert_int_eq(heard(), 200);
}
END_TEST

START_TEST(an_answer_on_its_way_is_not_replaced)
{
    static char text[1 << 20];
    size_t n = 0;
    memset(text, 'a', sizeof(text) - 1);
    answer_text = text;
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert(plm_http_is_blocked(waiting));
    reply(waiting, 500, "another", true);
    for (ssize_t r = 0; n < sizeof(text) - 1; n += (size_t)r) {
        turn();
        r = recv(client, text, sizeof(text) - 1, 0);
        ck_assert_int_gt(r, 0);
        text[r] = '\0';
        const char *body = n == 0 ? strstr(text, "\r\n\r\n") + 4 : text;
        r -= body - text;
        ck_assert_uint_eq(strspn(body, "a"), (size_t)r);
    }
    turn();
    ck_assert_uint_eq(n_closed, 1);
    ck_assert_int_eq(heard(), -1); // and the connection goes on
}
END_TEST

START_TEST(many_requests_of_one_leave_others_their_turn)
{
    static const char one[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const int first = client, second = connect_one();
    for (int i = 0; i < 40; i++)
        ck_assert_int_gt(send(first, one, strlen(one), MSG_NOSIGNAL), 0);
    ck_assert_int_gt(send(second, one, strlen(one), MSG_NOSIGNAL), 0);
    struct epoll_event events[8];
    const int n = epoll_wait(epoll_fd, events, 8, 0);
    ck_assert_int_eq(n, 2);
    for (int i = 0; i < n; i++)
        plm_http_ready(events[i].data.ptr, events[i].events);
    plm_http_run(http);
    ck_assert_uint_eq(n_closed, 2); // one of each
    ck_assert(plm_http_is_due(http));
    // A newcomer waits for none of them.
    http->config.max_connections = 3;
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert_int_gt(send(pair[0], one, strlen(one), MSG_NOSIGNAL), 0);
    plm_http_add(http, pair[1]);
    ck_assert_uint_eq(n_closed, 3);
    turn();
    ck_assert_uint_eq(n_closed, 42);
    close(pair[0]);
    close(second);
}
END_TEST

START_TEST(who_was_just_answered_is_idle)
{
    static const char one[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    int ends[4];
    // All come at once, and each is answered before anybody has another turn.
    for (size_t i = 0; i < 4; i++) {
        int pair[2];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
                         0);
        ends[i] = pair[0];
        ck_assert_int_gt(send(pair[0], one, strlen(one), MSG_NOSIGNAL), 0);
        plm_http_add(http, pair[1]);
    }
    turn();
    const int first = client;
    for (size_t i = 0; i < 4; i++) {
        client = ends[i];
        ck_assert_int_eq(heard(), 200);
        close(client);
    }
    client = first;
}
END_TEST

START_TEST(few_bodies_have_a_wide_window)
{
    int all[2 * PLM_HTTP_WIDE_MAX];
    const size_t n = sizeof(all) / sizeof(all[0]);
    const int first = client;
    http->config.max_connections = n + 1;
    for (size_t i = 0; i < n; i++) {
        client = all[i] = connect_one();
        say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx");
        ck_assert_uint_eq(http->n_wide, i < PLM_HTTP_WIDE_MAX ? i + 1 : PLM_HTTP_WIDE_MAX);
    }
    close(all[0]); // in the middle of its body
    turn();
    ck_assert_uint_eq(http->n_wide, PLM_HTTP_WIDE_MAX - 1);
    client = all[1];
    sweep(1000000 * SECONDS); // cut, and what still comes is dropped
    ck_assert_int_eq(heard(), 408);
    ck_assert_uint_eq(http->n_wide, 0);
    client = first;
    for (size_t i = 1; i < n; i++)
        close(all[i]);
}
END_TEST

START_TEST(what_is_sent_behind_a_body_is_not_held)
{
    static char part[20000 + 3 * PLM_HTTP_SOCKET_BYTES];
    // A little of the next request may be there; a window full of it ends the connection.
    const struct {
        size_t behind;
        int status;
    } cases[] = {{0, 200}, {PLM_HTTP_SOCKET_BYTES, 200}, {3 * PLM_HTTP_SOCKET_BYTES, 400}};
    memset(part, 'x', sizeof(part));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (i > 0)
            setup();
        say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n");
        const size_t n = 20000 + cases[i].behind;
        ck_assert_int_eq(send(client, part, n, 0), (ssize_t)n);
        turn();
        ck_assert_int_eq(heard(), cases[i].status);
        if (i + 1 < sizeof(cases) / sizeof(cases[0]))
            teardown();
    }
}
END_TEST

START_TEST(a_peer_is_full_of_those_that_wait_for_it)
{
    struct plm_peer peer;
    struct plm_http_conn *conn = http->newest;
    ck_assert(plm_peer_parse("192.0.2.1", &peer));
    conn->peer = peer;
    ck_assert(plm_http_peer_is_full(http, &peer)); // nothing has come: one is all that it may have
    answer_text = NULL;
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert(!plm_http_peer_is_full(http, &peer)); // it waits for this server
    plm_http_stream_begin(waiting, NULL);           // endless: on_drained() always has more
    turn();
    ck_assert(plm_http_is_blocked(waiting));
    ck_assert(plm_http_peer_is_full(http, &peer)); // it takes nothing
}
END_TEST

START_TEST(who_was_told_the_end_keeps_no_place)
{
    struct plm_peer peer;
    struct plm_http_conn *conn = http->newest;
    const int refused = client;
    ck_assert(plm_peer_parse("192.0.2.1", &peer));
    conn->peer = peer;
    say("no request\r\n");
    ck_assert_int_eq(heard(), 400);
    ck_assert(conn->lingers);
    ck_assert(plm_http_peer_is_full(http, &peer)); // it may send on, and counts as one that does
    http->config.max_connections = 1;
    client = connect_one(); // of somebody else
    say("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_int_eq(heard(), 200);
    close(refused);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http");
    TCase *tc = tcase_create("http");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_silent_client_has_the_timeout);
    tcase_add_test(tc, a_head_has_its_seconds_from_its_first_byte);
    tcase_add_test(tc, a_body_has_a_pause_a_rate_and_a_total);
    tcase_add_test(tc, a_reader_has_a_pause_and_a_rate);
    tcase_add_test(tc, a_reader_that_takes_nothing_is_reset);
    tcase_add_test(tc, an_answered_client_is_idle_again);
    tcase_add_test(tc, who_leaves_is_noticed_while_waiting);
    tcase_add_test(tc, clients_of_a_unix_socket_share_the_maximum_alone);
    tcase_add_test(tc, probes_take_turns_in_their_places);
    tcase_add_test(tc, bodies_share_what_they_may_hold);
    tcase_add_test(tc, an_answer_on_its_way_is_not_replaced);
    tcase_add_test(tc, many_requests_of_one_leave_others_their_turn);
    tcase_add_test(tc, who_was_just_answered_is_idle);
    tcase_add_test(tc, few_bodies_have_a_wide_window);
    tcase_add_test(tc, what_is_sent_behind_a_body_is_not_held);
    tcase_add_test(tc, a_peer_is_full_of_those_that_wait_for_it);
    tcase_add_test(tc, who_was_told_the_end_keeps_no_place);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
