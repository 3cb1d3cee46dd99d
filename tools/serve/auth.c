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

static bool add_file(struct plm_auth *auth, const char *flag, const char *path)
{
    const size_t before = auth->n;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "plimsoll serve: %s-file: %s: %s\n", flag, path, strerror(errno));
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
    if (ok && auth->n == before) {
        fprintf(stderr, "plimsoll serve: %s-file: %s has no key\n", flag, path);
        return false;
    }
    return ok;
}

static bool add_source(struct plm_auth *auth, const struct plm_key_source *source)
{
    const size_t before = auth->n;
    bool ok = true;
    for (size_t i = 0; i < source->keys->n; i++) {
        for (const char *s = source->keys->items[i]; ok && *s != '\0';) {
            size_t n = strcspn(s, ",");
            ok = add(auth, s, n);
            s += n + (s[n] == ',');
        }
    }
    const bool given = source->keys->n > 0;
    plm_opt_list_wipe(source->keys);
    if (ok && given && auth->n == before) {
        fprintf(stderr, "plimsoll serve: %s: the key is empty\n", source->flag);
        return false;
    }
    return ok && (source->file == NULL || add_file(auth, source->flag, source->file));
}

bool plm_auth_init(struct plm_auth *auth, const struct plm_key_source *users,
                   const struct plm_key_source *operators)
{
    *auth = (struct plm_auth){0};
    if (!add_source(auth, users))
        return false;
    auth->n_users = auth->n;
    if (!add_source(auth, operators))
        return false;
    for (size_t i = 0; i < auth->n_users; i++) {
        for (size_t k = auth->n_users; k < auth->n; k++) {
            if (strcmp(auth->keys[i], auth->keys[k]) == 0) {
                fprintf(stderr, "plimsoll serve: %s: the key is also one of %s\n", operators->flag,
                        users->flag);
                return false;
            }
        }
    }
    return true;
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

bool plm_auth_operates(const struct plm_auth *auth, int index)
{
    return index >= 0 && (size_t)index >= auth->n_users;
}
