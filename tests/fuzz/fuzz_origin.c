// SPDX-License-Identifier: Apache-2.0
// Any bytes as a Host header, an Origin header and the lists of both flags: what is read can be
// written and read again as the same, and a list has whatever it was made of.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/serve/origin.h"

static void demand(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

static size_t write_host(const struct plm_host *host, char *out, size_t cap)
{
    char ip[64] = "";
    for (int i = 0; i < 16 && host->ip.has_ip; i += 2)
        snprintf(ip + strlen(ip), sizeof(ip) - strlen(ip), "%s%x", i == 0 ? "[" : ":",
                 host->ip.ip[i] * 256 + host->ip.ip[i + 1]);
    int n =
        snprintf(out, cap, "%s%s", host->ip.has_ip ? ip : host->name, host->ip.has_ip ? "]" : "");
    if (host->port != 0)
        n += snprintf(out + n, cap - (size_t)n, ":%u", host->port);
    return (size_t)n;
}

static void try_host(const char *text, size_t n)
{
    struct plm_host host, again;
    char out[512];
    if (!plm_host_parse(text, n, &host))
        return;
    demand(host.ip.has_ip == (host.name[0] == '\0'), "a host is a name or an address");
    size_t len = write_host(&host, out, sizeof(out));
    demand(plm_host_parse(out, len, &again), "a host that was read can be read again");
    demand(plm_host_equal(&host, &again) && host.port == again.port, "as the same");
    demand(plm_host_is_loopback(&host) == plm_host_is_loopback(&again), "loopback or not");
}

static void try_origin(const char *text, size_t n)
{
    struct plm_origin origin, again;
    char out[512];
    if (!plm_origin_parse(text, n, &origin))
        return;
    demand(plm_origin_equal(&origin, &origin), "an origin is its own");
    if (origin.opaque)
        return;
    size_t len = (size_t)snprintf(out, sizeof(out), "%s://", origin.scheme);
    len += write_host(&origin.host, out + len, sizeof(out) - len);
    demand(plm_origin_parse(out, len, &again), "an origin that was read can be read again");
    demand(plm_origin_equal(&origin, &again), "as the same");
}

static void try_lists(const char *text)
{
    static struct plm_hosts hosts;
    static struct plm_origins origins;
    char message[160];
    hosts.n = origins.n = 0;
    hosts.any = origins.any = false;
    if (plm_hosts_add(&hosts, text, message, sizeof(message)))
        demand(hosts.any || hosts.n > 0, "a list has an entry");
    for (size_t i = 0; i < hosts.n; i++)
        demand(plm_hosts_has(&hosts, &hosts.entries[i].host), "a list has its entries");
    if (plm_origins_add(&origins, text, message, sizeof(message)))
        demand(origins.any || origins.n > 0, "a list has an entry");
    for (size_t i = 0; i < origins.n; i++)
        demand(plm_origins_has(&origins, &origins.entries[i]), "a list has its entries");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char *text = malloc(n + 1);
    if (text == NULL)
        return 0;
    if (n > 0)
        memcpy(text, bytes, n);
    text[n] = '\0';
    try_host(text, n);
    try_origin(text, n);
    try_lists(text);
    free(text);
    return 0;
}
