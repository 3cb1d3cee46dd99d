// SPDX-License-Identifier: Apache-2.0
// Devices by their ids: BACKEND, BACKEND:WHICH or BACKEND:WHICH,OPTION=VALUE.
#include <stdio.h>
#include <string.h>

#include "core/device/impl.h"

const struct plm_backend *plm_backend_find(const char *name, size_t name_len)
{
    for (const struct plm_backend *const *b = plm_backends; *b != NULL; b++) {
        if (strlen((*b)->name) == name_len && memcmp((*b)->name, name, name_len) == 0)
            return *b;
    }
    return NULL;
}

static int fail_unknown(const char *id, size_t name_len, struct plm_error *err)
{
    char names[128] = "";
    size_t used = 0;
    for (const struct plm_backend *const *b = plm_backends; *b != NULL; b++) {
        int n =
            snprintf(names + used, sizeof(names) - used, "%s%s", used > 0 ? ", " : "", (*b)->name);
        if (n < 0 || (size_t)n >= sizeof(names) - used)
            break;
        used += (size_t)n;
    }
    return plm_fail(
        err, PLM_ERR_NOT_FOUND,
        "this build has no backend '%.*s'; it has: %s (a device is BACKEND, "
        "BACKEND:WHICH or BACKEND:WHICH,OPTION=VALUE; meson's -Dbackends builds others)",
        (int)(name_len < 32 ? name_len : 32), id, names);
}

// The part after ':' as a number below 2^16; false where it is none.
static bool parse_index(const char *s, uint32_t *ret)
{
    uint32_t value = 0;
    if (*s == '\0')
        return false;
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9' || value > 6553)
            return false;
        value = value * 10 + (uint32_t)(*s - '0');
    }
    *ret = value;
    return true;
}

// What an id says behind its backend's name.
struct argument {
    const void *configured; // what the backend made of it, or NULL
    uint32_t index;
};

static int read_argument(const struct plm_backend *backend, struct plm_host *host, const char *id,
                         const char *text, struct argument *ret, struct plm_error *err)
{
    if (backend->configure != NULL)
        return backend->configure(host, text, &ret->configured, err);
    if (!parse_index(text, &ret->index))
        return plm_fail(err, PLM_ERR_INVALID, "device '%.64s': what follows ':' is no device index",
                        id);
    return PLM_OK;
}

int plm_device_check_id(struct plm_host *host, const char *id, struct plm_error *err)
{
    const char *colon = id != NULL ? strchr(id, ':') : NULL;
    if (colon == NULL)
        return PLM_OK;
    struct argument argument = {.configured = NULL};
    char name[16] = "";
    const struct plm_backend *backend = plm_backend_find(id, (size_t)(colon - id));
    if (backend == NULL) {
        if ((size_t)(colon - id) < sizeof(name))
            memcpy(name, id, (size_t)(colon - id));
        return plm_backend_check_options(name, colon + 1, err);
    }
    int rc = read_argument(backend, host, id, colon + 1, &argument, err);
    if (rc == PLM_OK && argument.configured != NULL && backend->release != NULL)
        backend->release(host, argument.configured);
    return rc;
}

int plm_device_open(const char *id, const struct plm_device_opts *opts, struct plm_device **ret,
                    struct plm_error *err)
{
    if (opts == NULL || opts->host == NULL || ret == NULL)
        return plm_fail(err, PLM_ERR_INVALID,
                        "opening a device needs options, a host and a result");
    if (id == NULL)
        id = "cpu";
    const char *colon = strchr(id, ':');
    size_t name_len = colon != NULL ? (size_t)(colon - id) : strlen(id);
    const struct plm_backend *backend = plm_backend_find(id, name_len);
    int rc;
    if (backend == NULL) {
        rc = plm_device_check_id(opts->host, id, err); // a wrong option is wrong in every build
        return rc != PLM_OK ? rc : fail_unknown(id, name_len, err);
    }
    struct plm_device_opts own = *opts;
    struct argument argument = {.index = own.index};
    rc = colon != NULL ? read_argument(backend, opts->host, id, colon + 1, &argument, err) : PLM_OK;
    if (rc != PLM_OK)
        return rc;
    const void *configured = argument.configured;
    own.index = argument.index;
    if (colon != NULL && backend->configure != NULL)
        own.backend_opts = configured;
    rc = plm_device_open_backend(backend, &own, ret, err);
    if (rc == PLM_OK)
        (*ret)->configured = configured;
    else if (configured != NULL)
        backend->release(opts->host, configured);
    return rc;
}
