// SPDX-License-Identifier: Apache-2.0
// From the flags to the rules of access.h.
#include <stdio.h>
#include <string.h>

#include "tools/serve/server.h"

typedef bool add_list(void *list, const char *text, char *message, size_t cap);

static bool add_hosts(void *list, const char *text, char *message, size_t cap)
{
    return plm_hosts_add(list, text, message, cap);
}

static bool add_origins(void *list, const char *text, char *message, size_t cap)
{
    return plm_origins_add(list, text, message, cap);
}

static bool add_peers(void *list, const char *text, char *message, size_t cap)
{
    return plm_peers_add(list, text, message, cap);
}

static bool apply_list(const char *flag, const struct plm_opt_list *given, add_list *add,
                       void *list)
{
    char message[256];
    for (size_t i = 0; i < given->n; i++) {
        if (!add(list, given->items[i], message, sizeof(message))) {
            fprintf(stderr, "plimsoll serve: %s: %s\n", flag, message);
            return false;
        }
    }
    return true;
}

bool plm_serve_apply_access(struct plm_server *srv)
{
    struct plm_serve_flags *flags = &srv->flags;
    struct plm_access *access = &srv->access;
    const struct plm_key_source users = {"--api-key", &flags->api_keys, flags->api_key_file};
    const struct plm_key_source admins = {"--admin-key", &flags->admin_keys, flags->admin_key_file};
    char ignored[256];
    access->proxies = &srv->trusted_proxies;
    // A socket's path is no host, and no client sends it.
    if (strchr(flags->host, '/') == NULL && strchr(flags->host, '*') == NULL)
        plm_hosts_add(&access->hosts, flags->host, ignored, sizeof(ignored));
    return plm_auth_init(&access->auth, &users, &admins) &&
           apply_list("--allowed-hosts", &flags->allowed_hosts, add_hosts, &access->hosts) &&
           apply_list("--cors-origins", &flags->cors_origins, add_origins, &access->origins) &&
           apply_list("--trusted-proxies", &flags->trusted_proxies, add_peers,
                      &srv->trusted_proxies);
}
