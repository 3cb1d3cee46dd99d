// SPDX-License-Identifier: Apache-2.0
// Hosts and origins as browsers and other clients name them, and the lists of them that flags give.
#ifndef PLM_SERVE_ORIGIN_H
#define PLM_SERVE_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/serve/peers.h"

#define PLM_HOST_NAME_MAX 253 // characters of a domain name (RFC 1035, 2.3.4)
#define PLM_SCHEME_MAX    31  // longer than any scheme that a browser gives to a page
#define PLM_SITES_MAX     64  // entries that one flag may list

// The value of a Host header, or the part of an origin behind its scheme.
struct plm_host {
    char name[PLM_HOST_NAME_MAX + 1]; // lower case, without a dot at the end; "" of an address
    struct plm_peer ip;               // has_ip: it is an address
    uint16_t port;                    // 0: none was given
};

// Reads "name", "1.2.3.4" or "[::1]", each with or without ":port". False: it is none of these.
bool plm_host_parse(const char *text, size_t n, struct plm_host *ret);
// The same name or address. Ports are not compared.
bool plm_host_equal(const struct plm_host *a, const struct plm_host *b);
// localhost, a name below it (RFC 6761, 6.3: no resolver asks others about these), or an address of
// the loopback network.
bool plm_host_is_loopback(const struct plm_host *host);

// Which names a server answers to.
struct plm_hosts {
    struct {
        struct plm_host host;
        bool below; // the host, and all names below it
    } entries[PLM_SITES_MAX];
    size_t n;
    bool any;
};

// Adds a list with commas: names, addresses, ".example.org" for this name and all below it, "*" for
// any. False: one sentence about the first wrong part is in message, and some may have been added.
bool plm_hosts_add(struct plm_hosts *hosts, const char *list, char *message, size_t cap);
bool plm_hosts_has(const struct plm_hosts *hosts, const struct plm_host *host);

// Where a page comes from (RFC 6454).
struct plm_origin {
    bool opaque; // "null": a file, a sandboxed frame, a redirect
    char scheme[PLM_SCHEME_MAX + 1];
    struct plm_host host; // its port is the scheme's own where none was given
};

// Reads the value of an Origin header. False: it is none.
bool plm_origin_parse(const char *text, size_t n, struct plm_origin *ret);
bool plm_origin_equal(const struct plm_origin *a, const struct plm_origin *b);
// The origin of pages that this host gives by this scheme.
struct plm_origin plm_origin_of(const char *scheme, const struct plm_host *host);

// Which other origins may call.
struct plm_origins {
    struct plm_origin entries[PLM_SITES_MAX];
    size_t n;
    bool any;
};

// Adds a list with commas: origins such as "https://example.org:8443", "null", or "*" for any.
// False as above.
bool plm_origins_add(struct plm_origins *origins, const char *list, char *message, size_t cap);
bool plm_origins_has(const struct plm_origins *origins, const struct plm_origin *origin);

#endif
