// SPDX-License-Identifier: Apache-2.0
// Errors of the public API: made in this version's layout, and given to a caller in the caller's.

#include "core/engine/error.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "core/engine/structs.h"
#include "core/plan/admit.h"

// The part of a plim_error that every version has: all that is written where its size is 0.
#define ERROR_BYTES offsetof(plim_error, retry_after_s)
_Static_assert(ERROR_BYTES == 616, "programs rely on it");

int plm_error_give(plim_error *ret, int status, plim_error *error)
{
    if (ret == NULL || status == PLIM_OK)
        return status;
    if (error->status != status)
        plm_error_set(error, status, NULL, "%s", plm_strstatus(status));
    size_t n = ret->struct_size == 0 ? ERROR_BYTES : ret->struct_size;
    if (!plm_struct_sized(n))
        return status;
    n = n < sizeof(*error) ? n : sizeof(*error);
    memcpy((char *)ret + sizeof(ret->struct_size), (char *)error + sizeof(ret->struct_size),
           n - sizeof(ret->struct_size));
    return status;
}

int plm_error_null(plim_error *ret, const char *param)
{
    return plm_error_set(ret, PLIM_ERR_INVALID, param, "%s must not be NULL", param);
}

int plm_error_set(plim_error *ret, int status, const char *param, const char *fmt, ...)
{
    if (ret == NULL)
        return status;
    *ret = (plim_error){.struct_size = sizeof(*ret), .status = status};
    if (param != NULL)
        snprintf(ret->param, sizeof(ret->param), "%s", param);
    va_list args;
    va_start(args, fmt);
    plm_vsnprintf(ret->message, sizeof(ret->message), fmt, args);
    va_end(args);
    return status;
}

int plm_error_out(plim_error *ret, int status, const struct plm_error *err)
{
    plm_error_set(ret, status, err->param, "%s",
                  err->msg[0] != '\0' ? err->msg : plm_strstatus(status));
    if (ret != NULL) {
        ret->needed_bytes = err->needed_bytes;
        ret->limit_bytes = err->limit_bytes;
    }
    return status;
}

int plm_error_host(const struct plm_admit_limits *limits, int status,
                   const struct plm_host_meter *meter, uint64_t extra_bytes, plim_error *err)
{
    plm_host_meter_stop();
    if (status != PLIM_ERR_NOMEM_HOST)
        return status;
    char param[sizeof(((plim_error *)0)->param)] = "";
    if (err != NULL)
        memcpy(param, err->param, sizeof(param));
    const int64_t extra = extra_bytes < INT64_MAX / 4 ? (int64_t)extra_bytes : INT64_MAX / 4;
    const int64_t needed = limits->host_idle + extra + meter->needed_bytes;
    const bool never = meter->needed_bytes > 0 && needed > limits->host_limit;
    if (never)
        status = plm_error_set(err, PLIM_ERR_NOMEM_NEVER, param,
                               "with this request the engine would need %lld bytes of host memory, "
                               "and the limit is %lld",
                               (long long)needed, (long long)limits->host_limit);
    if (err == NULL)
        return status;
    snprintf(err->term, sizeof(err->term), "host");
    err->retry_after_s = never ? 0 : 1;
    err->needed_bytes = never ? needed : meter->total_bytes;
    err->alone_bytes = never ? 0 : needed;
    err->limit_bytes = meter->needed_bytes > 0 ? limits->host_limit : 0;
    return status;
}

int plm_struct_in(void *ret, size_t full_bytes, const void *opts, const char *init, plim_error *err)
{
    uint32_t size;
    if (opts == NULL)
        return plm_error_set(err, PLIM_ERR_INVALID, "opts", "there are no options");
    memcpy(&size, opts, sizeof(size));
    if (!plm_struct_sized(size))
        return plm_error_set(err, PLIM_ERR_INVALID, "struct_size",
                             "options were not initialised: call %s()", init);
    for (size_t i = full_bytes; i < size; i++) {
        if (((const char *)opts)[i] != 0)
            return plm_error_set(err, PLIM_ERR_UNSUPPORTED, "struct_size",
                                 "an option is set that is newer than this library (%s): byte %zu",
                                 plim_version(), i);
    }
    memcpy((char *)ret + sizeof(size), (const char *)opts + sizeof(size),
           (size < full_bytes ? size : full_bytes) - sizeof(size));
    return PLIM_OK;
}

int plm_error_place(const char *out, size_t cap, plim_error *err)
{
    return out == NULL && cap > 0 ? plm_error_null(err, "out") : PLIM_OK;
}
