// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/peers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define IPV4_BITS 96 // in front of an IPv4 address in its IPv4-mapped form

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

static bool is_ipv4(const uint8_t ip[16])
{
    return memcmp(ip, mapped, sizeof(mapped)) == 0;
}

static void map_ipv4(const void *four, uint8_t ret[16])
{
    memcpy(ret, mapped, sizeof(mapped));
    memcpy(ret + sizeof(mapped), four, 4);
}

static bool same_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned bytes = bits / 8, rest = bits % 8;
    if (memcmp(a, b, bytes) != 0)
        return false;
    return rest == 0 || ((a[bytes] ^ b[bytes]) >> (8 - rest)) == 0;
}

struct plm_peer plm_peer_of(const struct sockaddr *addr)
{
    struct plm_peer peer = {0};
    if (addr != NULL && addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)addr;
        map_ipv4(&in->sin_addr, peer.ip);
        peer.has_ip = true;
    } else if (addr != NULL && addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)addr;
        memcpy(peer.ip, &in->sin6_addr, sizeof(peer.ip));
        peer.has_ip = true;
    }
    return peer;
}

bool plm_peer_parse(const char *text, struct plm_peer *ret)
{
    char plain[INET6_ADDRSTRLEN];
    size_t n = strlen(text);
    bool bracket = n > 2 && text[0] == '[' && text[n - 1] == ']';
    if (bracket) {
        text++;
        n -= 2;
    }
    if (n >= sizeof(plain))
        return false;
    memcpy(plain, text, n);
    plain[n] = '\0';
    struct plm_peer peer = {.has_ip = true};
    uint8_t four[4];
    if (!bracket && inet_pton(AF_INET, plain, four) == 1)
        map_ipv4(four, peer.ip);
    else if (inet_pton(AF_INET6, plain, peer.ip) != 1)
        return false;
    *ret = peer;
    return true;
}

bool plm_peer_is_loopback(const struct plm_peer *peer)
{
    static const uint8_t one[16] = {[15] = 1};
    if (!peer->has_ip)
        return false;
    return is_ipv4(peer->ip) ? peer->ip[12] == 127 : memcmp(peer->ip, one, sizeof(one)) == 0;
}

bool plm_peer_equal(const struct plm_peer *a, const struct plm_peer *b)
{
    return a->has_ip && b->has_ip && memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

bool plm_peer_same_client(const struct plm_peer *a, const struct plm_peer *b)
{
    if (!a->has_ip || !b->has_ip)
        return false;
    return same_prefix(a->ip, b->ip, is_ipv4(a->ip) || is_ipv4(b->ip) ? 128 : 64);
}

uint64_t plm_peer_client(const struct plm_peer *peer)
{
    const size_t n = is_ipv4(peer->ip) ? sizeof(peer->ip) : sizeof(peer->ip) / 2;
    uint64_t h = UINT64_C(0xcbf29ce484222325); // FNV-1a
    for (size_t i = 0; i < n; i++)
        h = (h ^ peer->ip[i]) * UINT64_C(0x100000001b3);
    return peer->has_ip ? h | 1 : 0;
}

// One address with or without "/BITS". Returns what is wrong with it, or NULL.
static const char *parse_range(char *text, struct plm_peer_range *ret)
{
    char *slash = strchr(text, '/');
    if (slash != NULL)
        *slash++ = '\0';
    struct plm_peer peer;
    if (!plm_peer_parse(text, &peer))
        return "is not an address";
    const unsigned before = is_ipv4(peer.ip) && strchr(text, ':') == NULL ? IPV4_BITS : 0;
    unsigned bits = 128;
    if (slash != NULL) {
        char *end;
        unsigned long given = strtoul(slash, &end, 10);
        if (slash[0] < '0' || slash[0] > '9' || *end != '\0' || given > 128 - before)
            return "has a prefix that is no number of its bits";
        bits = (unsigned)given + before;
    }
    memcpy(ret->ip, peer.ip, sizeof(ret->ip));
    ret->bits = (uint8_t)bits;
    return NULL;
}

bool plm_peers_add(struct plm_peers *peers, const char *list, char *message, size_t cap)
{
    char part[INET6_ADDRSTRLEN + 8];
    for (const char *s = list;; s++) {
        size_t n = strcspn(s, ",");
        const char *wrong = "is not an address";
        struct plm_peer_range range = {0};
        if (n < sizeof(part)) {
            memcpy(part, s, n);
            part[n] = '\0';
            wrong = parse_range(part, &range);
        }
        if (wrong == NULL && peers->n == PLM_PEERS_MAX)
            wrong = "is one range more than are taken";
        if (wrong != NULL) {
            snprintf(message, cap, "\"%.*s\" %s", (int)(n < 80 ? n : 80), s, wrong);
            return false;
        }
        peers->ranges[peers->n++] = range;
        s += n;
        if (*s == '\0')
            return true;
    }
}

bool plm_peer_is_trusted(const struct plm_peers *trusted, const struct plm_peer *peer)
{
    for (size_t i = 0; i < trusted->n && peer->has_ip; i++) {
        if (same_prefix(trusted->ranges[i].ip, peer->ip, trusted->ranges[i].bits))
            return true;
    }
    return false;
}
