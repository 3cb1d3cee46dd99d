// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/auth.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool add(struct plm_auth *auth, const char *key, size_t n)
{
    while (n > 0 && (*key == ' ' || *key == '\t')) {
        key++;
        n--;
    }
    while (n > 0 && strchr(" \t\r\n", key[n - 1]) != NULL)
        n--;
    if (n == 0)
        return true;
    char **keys = realloc(auth->keys, (auth->n + 1) * sizeof(*keys));
    if (keys == NULL)
        return false;
    auth->keys = keys;
    auth->keys[auth->n] = strndup(key, n);
    if (auth->keys[auth->n] == NULL)
        return false;
    auth->n++;
    return true;
}

static bool add_file(struct plm_auth *auth, const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "plimsoll serve: --api-key-file: %s: %s\n", path, strerror(errno));
        return false;
    }
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    bool ok = true;
    while (ok && (n = getline(&line, &cap, file)) > 0)
        ok = line[0] == '#' || add(auth, line, (size_t)n);
    free(line);
    fclose(file);
    // An empty file must not open the server to everybody.
    if (ok && auth->n == 0) {
        fprintf(stderr, "plimsoll serve: --api-key-file: %s has no key\n", path);
        return false;
    }
    return ok;
}

bool plm_auth_init(struct plm_auth *auth, const struct plm_opt_list *keys, const char *file)
{
    *auth = (struct plm_auth){0};
    for (size_t i = 0; i < keys->n; i++) {
        for (const char *s = keys->items[i]; *s != '\0';) {
            size_t n = strcspn(s, ",");
            if (!add(auth, s, n))
                return false;
            s += n + (s[n] == ',');
        }
    }
    if (keys->n > 0 && auth->n == 0) {
        fprintf(stderr, "plimsoll serve: --api-key: the key is empty\n");
        return false;
    }
    return file == NULL || add_file(auth, file);
}

void plm_auth_finish(struct plm_auth *auth)
{
    for (size_t i = 0; i < auth->n; i++)
        free(auth->keys[i]);
    free(auth->keys);
    *auth = (struct plm_auth){0};
}

// Takes as long for a near miss as for a far one.
static bool same_key(const char *key, const char *given)
{
    size_t key_len = strlen(key), given_len = strlen(given);
    unsigned diff = key_len != given_len;
    for (size_t i = 0; i < given_len; i++)
        diff |= (unsigned char)given[i] ^ (unsigned char)key[key_len > 0 ? i % key_len : 0];
    return diff == 0;
}

int plm_auth_check(const struct plm_auth *auth, const char *authorization, const char *x_api_key)
{
    if (auth->n == 0)
        return 0;
    const char *given = x_api_key;
    if (authorization != NULL && strncasecmp(authorization, "Bearer ", 7) == 0)
        given = authorization + 7 + strspn(authorization + 7, " ");
    if (given == NULL)
        return -1;
    int found = -1;
    for (size_t i = 0; i < auth->n; i++) {
        if (same_key(auth->keys[i], given))
            found = (int)i;
    }
    return found;
}
