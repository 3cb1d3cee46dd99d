// SPDX-License-Identifier: Apache-2.0
// Hosts, origins and roles, where no socket can show the difference.
#include <check.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tools/serve/access.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

static struct plm_peer at(const char *text)
{
    struct plm_peer peer = {0};
    if (text != NULL)
        ck_assert_msg(plm_peer_parse(text, &peer), "%s", text);
    return peer;
}

START_TEST(hosts_are_read)
{
    static const struct {
        const char *text, *name, *ip; // name NULL: not a host
        uint16_t port;
    } cases[] = {
        {"a", "a", NULL, 0},
        {"A.b-C_1.", "a.b-c_1", NULL, 0},
        {"a:", "a", NULL, 0},
        {"a:65535", "a", NULL, 65535},
        {"1.2.3.4:80", "", "1.2.3.4", 80},
        {"1.2.3.4.", "", "1.2.3.4", 0},
        {"1.2.3", "1.2.3", NULL, 0},
        {"[::1]:8080", "", "::1", 8080},
        {"[::ffff:1.2.3.4]", "", "1.2.3.4", 0},
        {"", NULL, NULL, 0},
        {".", NULL, NULL, 0},
        {".a", NULL, NULL, 0},
        {"a..", NULL, NULL, 0},
        {"a..b", NULL, NULL, 0},
        {":80", NULL, NULL, 0},
        {"a:65536", NULL, NULL, 0},
        {"a:99999999999999999999", NULL, NULL, 0},
        {"a:-1", NULL, NULL, 0},
        {"a:8 0", NULL, NULL, 0},
        {"a:1:2", NULL, NULL, 0},
        {"a b", NULL, NULL, 0},
        {"a%62", NULL, NULL, 0},
        {"u@a", NULL, NULL, 0},
        {"::1", NULL, NULL, 0},
        {"[", NULL, NULL, 0},
        {"[]", NULL, NULL, 0},
        {"[::1", NULL, NULL, 0},
        {"[::1]80", NULL, NULL, 0},
        {"[::1%lo]", NULL, NULL, 0},
        {"[1.2.3.4]", NULL, NULL, 0},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct plm_host host;
        const bool ok = plm_host_parse(cases[i].text, strlen(cases[i].text), &host);
        ck_assert_msg(ok == (cases[i].name != NULL), "%s", cases[i].text);
        if (!ok)
            continue;
        const struct plm_peer ip = at(cases[i].ip);
        ck_assert_str_eq(host.name, cases[i].name);
        ck_assert_uint_eq(host.port, cases[i].port);
        ck_assert(host.ip.has_ip == ip.has_ip && (!ip.has_ip || plm_peer_equal(&host.ip, &ip)));
    }
    struct plm_host host;
    ck_assert(!plm_host_parse("a\0b", 3, &host) && !plm_host_parse("[::1]\0", 6, &host));
    char longest[PLM_HOST_NAME_MAX + 2];
    memset(longest, 'a', sizeof(longest));
    ck_assert(plm_host_parse(longest, PLM_HOST_NAME_MAX, &host));
    ck_assert(!plm_host_parse(longest, PLM_HOST_NAME_MAX + 1, &host));
}
END_TEST

START_TEST(origins_are_compared_as_browsers_do)
{
    static const struct {
        const char *a, *b;
        bool same;
    } cases[] = {
        {"http://a", "HTTP://A:80", true},
        {"https://a", "https://a:443", true},
        {"http://a", "https://a", false},
        {"http://a", "http://a:8080", false},
        {"http://a", "http://b", false},
        {"null", "null", true},
        {"null", "http://null", false},
        {"http://[::1]:1", "http://[0:0::1]:1", true},
        {"http://1.2.3.4", "http://a", false},
        {"app://a", "app://a:0", true},
        {"chrome-extension://abc", "x://abc", false},
    };
    static const char *const wrong[] = {"",           "a",
                                        "http:",      "http:/a",
                                        "http://",    "http://a/",
                                        "http://a/b", "http://a?b",
                                        "://a",       "ht tp://a",
                                        "http://a b", "nul",
                                        "null ",      "http://a,b",
                                        "http://u@a", "http://a:x",
                                        "http://é",   "-----------------------------------://a"};
    struct plm_origin a, b;
    for (size_t i = 0; i < N(cases); i++) {
        ck_assert(plm_origin_parse(cases[i].a, strlen(cases[i].a), &a));
        ck_assert(plm_origin_parse(cases[i].b, strlen(cases[i].b), &b));
        ck_assert_msg(plm_origin_equal(&a, &b) == cases[i].same, "%s %s", cases[i].a, cases[i].b);
    }
    for (size_t i = 0; i < N(wrong); i++)
        ck_assert_msg(!plm_origin_parse(wrong[i], strlen(wrong[i]), &a), "%s", wrong[i]);
}
END_TEST

START_TEST(a_list_has_an_end)
{
    static struct plm_hosts hosts;
    static struct plm_origins origins;
    char message[128];
    for (int i = 0; i < PLM_SITES_MAX; i++) {
        ck_assert(plm_hosts_add(&hosts, "a", message, sizeof(message)));
        ck_assert(plm_origins_add(&origins, "http://a", message, sizeof(message)));
    }
    ck_assert(!plm_hosts_add(&hosts, "b", message, sizeof(message)));
    ck_assert_ptr_nonnull(strstr(message, "one entry more"));
    ck_assert(!plm_origins_add(&origins, "http://b", message, sizeof(message)));
    ck_assert(!plm_hosts_add(&hosts, ".1.2.3.4", message, sizeof(message)));
    ck_assert_ptr_nonnull(strstr(message, "no names below"));
}
END_TEST

// ---- callers ----

static struct plm_access access_;

static const char *const no_fields[] = {NULL};

// The status for a caller with these header fields, "Name\0value" each.
static int ask(const char *peer, const char *local, const char *const *headers, enum plm_role role)
{
    static struct plm_peer ends[2];
    ends[0] = at(peer);
    ends[1] = at(local);
    struct plm_caller caller = {.peer = &ends[0], .local = &ends[1]};
    struct plm_cors cors;
    struct plm_api_error error;
    for (; *headers != NULL; headers++)
        plm_caller_field(&caller, *headers, *headers + strlen(*headers) + 1);
    plm_access_page(&access_, &caller, &cors, &error);
    if (error.http == 0)
        plm_access_role(&access_, &caller, role, &error);
    return error.http;
}

START_TEST(who_operates_without_keys)
{
    static const char *const own[] = {"Host\0localhost:8080", NULL};
    access_ = (struct plm_access){0};
    ck_assert_int_eq(ask("127.0.0.1", "127.0.0.1", own, PLM_ROLE_ADMIN), 0);
    ck_assert_int_eq(ask("127.9.9.9", "127.0.0.1", no_fields, PLM_ROLE_ADMIN), 0);
    ck_assert_int_eq(ask("::1", "::1", own, PLM_ROLE_ADMIN), 0);
    ck_assert_int_eq(ask(NULL, NULL, own, PLM_ROLE_ADMIN), 0); // a unix socket
    ck_assert_int_eq(ask("10.0.0.2", "10.0.0.1", own, PLM_ROLE_ADMIN), 403);
    ck_assert_int_eq(ask("10.0.0.2", "10.0.0.1", own, PLM_ROLE_USER), 0);
    ck_assert_int_eq(ask("fd00::2", "fd00::1", own, PLM_ROLE_ADMIN), 403);
    // The system no longer knows the peer of a connection that was reset.
    ck_assert_int_eq(ask(NULL, "10.0.0.1", own, PLM_ROLE_ADMIN), 403);
    ck_assert_int_eq(ask(NULL, "127.0.0.1", own, PLM_ROLE_ADMIN), 403);
}
END_TEST

START_TEST(a_trusted_proxy_speaks_for_others)
{
    static const char *const host[] = {"Host\0a.test", NULL};
    static const char *const secure[] = {"Host\0a.test", "Origin\0https://a.test",
                                         "X-Forwarded-Proto\0https", NULL};
    static const char *const twice[] = {"Host\0a.test", "Origin\0https://a.test",
                                        "X-Forwarded-Proto\0https", "x-forwarded-proto\0https",
                                        NULL};
    struct plm_peers proxies = {0};
    char message[128];
    access_ = (struct plm_access){.proxies = &proxies};
    ck_assert(plm_peers_add(&proxies, "127.0.0.1,10.0.0.0/8", message, sizeof(message)));
    ck_assert(plm_hosts_add(&access_.hosts, "a.test", message, sizeof(message)));
    ck_assert_int_eq(ask("127.0.0.1", "127.0.0.1", no_fields, PLM_ROLE_ADMIN), 403);
    ck_assert_int_eq(ask("127.0.0.2", "127.0.0.1", no_fields, PLM_ROLE_ADMIN), 0);
    ck_assert_int_eq(ask("10.0.0.2", "10.0.0.1", host, PLM_ROLE_USER), 0);
    // Pages that it gives by TLS are the server's own; what others say of themselves is not.
    ck_assert_int_eq(ask("10.0.0.2", "10.0.0.1", secure, PLM_ROLE_USER), 0);
    ck_assert_int_eq(ask("11.0.0.2", "10.0.0.1", secure, PLM_ROLE_USER), 403);
    ck_assert_int_eq(ask("10.0.0.2", "10.0.0.1", twice, PLM_ROLE_USER), 403);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("access");
    TCase *tc = tcase_create("access");
    tcase_add_test(tc, hosts_are_read);
    tcase_add_test(tc, origins_are_compared_as_browsers_do);
    tcase_add_test(tc, a_list_has_an_end);
    tcase_add_test(tc, who_operates_without_keys);
    tcase_add_test(tc, a_trusted_proxy_speaks_for_others);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
