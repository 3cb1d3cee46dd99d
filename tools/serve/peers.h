// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a connection, and lists of such ends.
#ifndef PLM_SERVE_PEERS_H
#define PLM_SERVE_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr;

// An end of a connection. IPv4 is held as an IPv4-mapped IPv6 address, so that one family remains
// whatever the listener's is. The ends of a unix socket have no address.
struct plm_peer {
    bool has_ip;
    uint8_t ip[16];
};

// Ranges of addresses that one list may name: proxies in front of one server are few.
#define PLM_PEERS_MAX 64

struct plm_peer_range {
    uint8_t ip[16];
    uint8_t bits; // of the prefix; an IPv4 range has 96 more
};

struct plm_peers {
    struct plm_peer_range ranges[PLM_PEERS_MAX];
    size_t n;
};

// addr may be NULL; what is neither IPv4 nor IPv6 has no address.
struct plm_peer plm_peer_of(const struct sockaddr *addr);
// Reads an address as in a Host header: "127.0.0.1", "::1" or "[::1]". False: it is not one.
bool plm_peer_parse(const char *text, struct plm_peer *ret);
bool plm_peer_is_loopback(const struct plm_peer *peer); // 127.0.0.0/8 or ::1
bool plm_peer_equal(const struct plm_peer *a, const struct plm_peer *b);
// Whether both count as one client: one IPv4 address, or one IPv6 network of 64 bits, which is the
// least that a customer is given. Ends without an address are nobody's.
// The same for those of the same client: a number without a meaning. 0: it has no address.
uint64_t plm_peer_client(const struct plm_peer *peer);
bool plm_peer_same_client(const struct plm_peer *a, const struct plm_peer *b);

// Adds a list of addresses and CIDR ranges with commas ("10.0.0.1,10.1.0.0/16,fd00::/8"). False:
// one sentence about the first wrong part is in message, and some may have been added.
bool plm_peers_add(struct plm_peers *peers, const char *list, char *message, size_t cap);
// Whether the peer is in one of the ranges of --trusted-proxies. An end without an address never
// is.
bool plm_peer_is_trusted(const struct plm_peers *trusted, const struct plm_peer *peer);

#endif
