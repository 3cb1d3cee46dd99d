// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/origin.h"

#include <stdio.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

// Copies n characters in lower case; each must be a letter, a digit or one of others.
static bool copy_word(const char *text, size_t n, const char *others, char *ret)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_alnum(text[i]) && (text[i] == '\0' || strchr(others, text[i]) == NULL))
            return false;
        ret[i] = lower(text[i]);
    }
    ret[n] = '\0';
    return true;
}

// ---- hosts ----

// A port of RFC 3986 may be empty.
static bool parse_port(const char *text, size_t n, uint16_t *ret)
{
    unsigned port = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(text[i]))
            return false;
        port = port * 10 + (unsigned)(text[i] - '0');
        if (port > UINT16_MAX)
            return false;
    }
    *ret = (uint16_t)port;
    return true;
}

// A name, or an IPv4 address.
static bool parse_name(const char *text, size_t n, struct plm_host *ret)
{
    if (n > 0 && text[n - 1] == '.') // the root, which a complete name ends with
        n--;
    if (n == 0 || n > PLM_HOST_NAME_MAX || !copy_word(text, n, "-._", ret->name))
        return false;
    if (text[0] == '.' || text[n - 1] == '.' || strstr(ret->name, "..") != NULL)
        return false; // a label of no characters
    if (plm_peer_parse(ret->name, &ret->ip))
        ret->name[0] = '\0';
    return true;
}

static bool parse_bracket(const char *text, size_t n, struct plm_host *ret)
{
    char address[64]; // longer than any
    if (n >= sizeof(address))
        return false;
    memcpy(address, text, n);
    address[n] = '\0';
    return strlen(address) == n && plm_peer_parse(address, &ret->ip);
}

bool plm_host_parse(const char *text, size_t n, struct plm_host *ret)
{
    struct plm_host host = {0};
    const char *end = n > 0 ? memchr(text, text[0] == '[' ? ']' : ':', n) : NULL;
    size_t len = end != NULL ? (size_t)(end - text) : n;
    bool ok;
    if (n > 0 && text[0] == '[') {
        len += end != NULL;
        ok = parse_bracket(text, len, &host);
    } else {
        ok = parse_name(text, len, &host);
    }
    if (ok && len < n)
        ok = text[len] == ':' && parse_port(text + len + 1, n - len - 1, &host.port);
    if (ok)
        *ret = host;
    return ok;
}

bool plm_host_equal(const struct plm_host *a, const struct plm_host *b)
{
    if (a->ip.has_ip || b->ip.has_ip)
        return plm_peer_equal(&a->ip, &b->ip);
    return strcmp(a->name, b->name) == 0;
}

static bool is_below(const char *name, const char *parent)
{
    size_t n = strlen(name), m = strlen(parent);
    return n > m && name[n - m - 1] == '.' && strcmp(name + n - m, parent) == 0;
}

bool plm_host_is_loopback(const struct plm_host *host)
{
    if (host->ip.has_ip)
        return plm_peer_is_loopback(&host->ip);
    return strcmp(host->name, "localhost") == 0 || is_below(host->name, "localhost");
}

// ---- origins ----

static uint16_t port_of_scheme(const char *scheme)
{
    return strcmp(scheme, "http") == 0 ? 80 : strcmp(scheme, "https") == 0 ? 443 : 0;
}

struct plm_origin plm_origin_of(const char *scheme, const struct plm_host *host)
{
    struct plm_origin origin = {.host = *host};
    snprintf(origin.scheme, sizeof(origin.scheme), "%s", scheme);
    if (origin.host.port == 0)
        origin.host.port = port_of_scheme(scheme);
    return origin;
}

bool plm_origin_parse(const char *text, size_t n, struct plm_origin *ret)
{
    char scheme[PLM_SCHEME_MAX + 1];
    struct plm_host host;
    if (n == 4 && memcmp(text, "null", 4) == 0) {
        *ret = (struct plm_origin){.opaque = true};
        return true;
    }
    const char *colon = memchr(text, ':', n);
    size_t len = colon != NULL ? (size_t)(colon - text) : 0;
    if (len == 0 || len > PLM_SCHEME_MAX || n - len < 3 || memcmp(colon, "://", 3) != 0 ||
        !copy_word(text, len, "+-.", scheme) || !plm_host_parse(colon + 3, n - len - 3, &host))
        return false;
    *ret = plm_origin_of(scheme, &host);
    return true;
}

bool plm_origin_equal(const struct plm_origin *a, const struct plm_origin *b)
{
    if (a->opaque || b->opaque)
        return a->opaque == b->opaque;
    return strcmp(a->scheme, b->scheme) == 0 && a->host.port == b->host.port &&
           plm_host_equal(&a->host, &b->host);
}

// ---- lists ----

// Adds one entry; returns what is wrong with it, or NULL.
typedef const char *add_entry(void *list, const char *text, size_t n);

static bool add_all(void *list, const char *text, add_entry *add, char *message, size_t cap)
{
    for (const char *s = text;; s++) {
        size_t n = strcspn(s, ",");
        const char *wrong = add(list, s, n);
        if (wrong != NULL) {
            snprintf(message, cap, "\"%.*s\" %s", (int)(n < 80 ? n : 80), s, wrong);
            return false;
        }
        s += n;
        if (*s == '\0')
            return true;
    }
}

static const char too_many[] = "is one entry more than are taken";

static const char *add_host(void *list, const char *text, size_t n)
{
    struct plm_hosts *hosts = list;
    struct plm_host host = {0};
    bool below = n > 0 && text[0] == '.';
    if (n == 1 && text[0] == '*') {
        hosts->any = true;
        return NULL;
    }
    // An IPv6 address without brackets is no Host header, but nobody can mean anything else by it.
    if (!plm_host_parse(text + below, n - below, &host) && !parse_bracket(text, n, &host))
        return "is not a host (write example.org, .example.org, 10.0.0.1 or *)";
    if (host.port != 0)
        return "has a port; a host is allowed with every port";
    if (below && host.ip.has_ip)
        return "is an address, which has no names below it";
    if (hosts->n == PLM_SITES_MAX)
        return too_many;
    hosts->entries[hosts->n].host = host;
    hosts->entries[hosts->n++].below = below;
    return NULL;
}

bool plm_hosts_add(struct plm_hosts *hosts, const char *list, char *message, size_t cap)
{
    return add_all(hosts, list, add_host, message, cap);
}

bool plm_hosts_has(const struct plm_hosts *hosts, const struct plm_host *host)
{
    bool found = hosts->any;
    for (size_t i = 0; i < hosts->n && !found; i++) {
        const struct plm_host *entry = &hosts->entries[i].host;
        found = plm_host_equal(entry, host) ||
                (hosts->entries[i].below && is_below(host->name, entry->name));
    }
    return found;
}

static const char *add_origin(void *list, const char *text, size_t n)
{
    struct plm_origins *origins = list;
    struct plm_origin origin;
    if (n == 1 && text[0] == '*') {
        origins->any = true;
        return NULL;
    }
    if (!plm_origin_parse(text, n, &origin))
        return "is not an origin (write https://example.org, http://localhost:3000, null or *)";
    if (origins->n == PLM_SITES_MAX)
        return too_many;
    origins->entries[origins->n++] = origin;
    return NULL;
}

bool plm_origins_add(struct plm_origins *origins, const char *list, char *message, size_t cap)
{
    return add_all(origins, list, add_origin, message, cap);
}

bool plm_origins_has(const struct plm_origins *origins, const struct plm_origin *origin)
{
    bool found = origins->any;
    for (size_t i = 0; i < origins->n && !found; i++)
        found = plm_origin_equal(&origins->entries[i], origin);
    return found;
}
