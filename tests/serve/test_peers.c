// SPDX-License-Identifier: Apache-2.0
// Ends of connections: families, networks, and lists of them.
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/support/suite.h"
#include "tools/serve/peers.h"

static struct plm_peer at(const char *text)
{
    struct plm_peer peer;
    ck_assert_msg(plm_peer_parse(text, &peer), "%s", text);
    return peer;
}

START_TEST(addresses_are_read)
{
    static const char *const wrong[] = {
        "",     "1",  "1.2.3", "1.2.3.4.5", "localhost", "[1.2.3.4]", "[::1",
        "::1]", "[]", "::g",   "1.2.3.4 ",  "fe80::1%1", "0x7f.0.0.1"};
    struct plm_peer peer;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_msg(!plm_peer_parse(wrong[i], &peer), "%s", wrong[i]);
    const struct plm_peer four = at("127.0.0.1"), mapped = at("::ffff:127.0.0.1");
    ck_assert(plm_peer_equal(&four, &mapped));
    const struct plm_peer plain = at("::1"), bracket = at("[::1]");
    ck_assert(plm_peer_equal(&plain, &bracket));
    ck_assert(!plm_peer_equal(&plain, &four));
}
END_TEST

START_TEST(sockets_have_them)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    inet_pton(AF_INET, "10.1.2.3", &in.sin_addr);
    inet_pton(AF_INET6, "fd00::2", &in6.sin6_addr);
    struct plm_peer got = plm_peer_of((struct sockaddr *)&in), want = at("10.1.2.3");
    ck_assert(plm_peer_equal(&got, &want));
    got = plm_peer_of((struct sockaddr *)&in6);
    want = at("fd00::2");
    ck_assert(plm_peer_equal(&got, &want));
    got = plm_peer_of((struct sockaddr *)&un);
    ck_assert(!got.has_ip);
    ck_assert(!plm_peer_equal(&got, &got));
    got = plm_peer_of(NULL);
    ck_assert(!got.has_ip);
}
END_TEST

START_TEST(loopback_and_clients)
{
    static const struct {
        const char *a, *b;
        bool loopback, same; // of a; of both
    } cases[] = {
        {"127.0.0.1", "127.0.0.1", true, true},
        {"127.9.9.9", "127.0.0.1", true, false},
        {"::ffff:127.0.0.1", "127.0.0.1", true, true},
        {"::1", "::2", true, true},
        {"128.0.0.1", "::1", false, false},
        {"::1", "1.2.3.4", true, false},
        {"2001:db8::1", "2001:db8::ffff:1", false, true},
        {"2001:db8::1", "2001:db8:0:1::1", false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct plm_peer a = at(cases[i].a), b = at(cases[i].b);
        ck_assert_msg(plm_peer_is_loopback(&a) == cases[i].loopback, "%s", cases[i].a);
        ck_assert_msg(plm_peer_same_client(&a, &b) == cases[i].same, "%s", cases[i].a);
    }
    const struct plm_peer none = {0};
    ck_assert(!plm_peer_is_loopback(&none));
    ck_assert(!plm_peer_same_client(&none, &none));
}
END_TEST

START_TEST(lists_of_ranges)
{
    struct plm_peers peers = {0};
    char message[160] = "";
    ck_assert(plm_peers_add(&peers, "10.0.0.1,10.1.0.0/16,fd00::/9", message, sizeof(message)));
    ck_assert(plm_peers_add(&peers, "192.168.7.130/25", message, sizeof(message)));
    ck_assert_uint_eq(peers.n, 4);
    static const struct {
        const char *peer;
        bool in;
    } cases[] = {
        {"10.0.0.1", true},      {"10.0.0.2", false},      {"10.1.255.9", true},
        {"10.2.0.0", false},     {"fd7f::1", true},        {"fd80::1", false},
        {"192.168.7.129", true}, {"192.168.7.127", false}, {"::ffff:10.1.0.1", true},
        {"::", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct plm_peer peer = at(cases[i].peer);
        ck_assert_msg(plm_peer_is_trusted(&peers, &peer) == cases[i].in, "%s", cases[i].peer);
    }
    const struct plm_peer none = {0};
    struct plm_peers all = {0};
    ck_assert(plm_peers_add(&all, "::/0", message, sizeof(message)));
    ck_assert(!plm_peer_is_trusted(&all, &none));
}
END_TEST

START_TEST(wrong_lists_name_the_part)
{
    static const char *const wrong[] = {"",
                                        "10.0.0.1,",
                                        "10.0.0.0/33",
                                        "10.0.0.0/",
                                        "::/129",
                                        "10.0.0.0/-1",
                                        "10.0.0.0/8x",
                                        "proxy",
                                        "10.0.0.0/ 8",
                                        "10.0.0.1, 10.0.0.2"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct plm_peers peers = {0};
        char message[160] = "";
        ck_assert_msg(!plm_peers_add(&peers, wrong[i], message, sizeof(message)), "%s", wrong[i]);
        ck_assert_msg(message[0] == '"', "%s: %s", wrong[i], message);
    }
    struct plm_peers peers = {0};
    char message[160];
    for (size_t i = 0; i < PLM_PEERS_MAX; i++)
        ck_assert(plm_peers_add(&peers, "10.0.0.1", message, sizeof(message)));
    ck_assert(!plm_peers_add(&peers, "10.0.0.9", message, sizeof(message)));
    ck_assert_ptr_nonnull(strstr(message, "10.0.0.9"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("peers");
    TCase *tc = tcase_create("peers");
    tcase_add_test(tc, addresses_are_read);
    tcase_add_test(tc, sockets_have_them);
    tcase_add_test(tc, loopback_and_clients);
    tcase_add_test(tc, lists_of_ranges);
    tcase_add_test(tc, wrong_lists_name_the_part);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
