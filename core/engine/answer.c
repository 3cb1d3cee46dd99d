// SPDX-License-Identifier: Apache-2.0
// How the public API answers: codes, errors, version, and texts into a caller's buffer. The ground
// floor of this folder: it calls nothing else of it.
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"
#include "core/engine/impl.h"

#define STR_(x) #x
#define STR(x)  STR_(x)

// The public codes are the core's.
#define SAME(name) _Static_assert((int)PLIM_##name == (int)PLM_##name, #name)
SAME(OK);
SAME(ERR_INVALID);
SAME(ERR_FORMAT);
SAME(ERR_UNSUPPORTED);
SAME(ERR_NOT_FOUND);
SAME(ERR_IO);
SAME(ERR_NOMEM_HOST);
SAME(ERR_NOMEM_NEVER);
SAME(ERR_NOMEM_NOW);
SAME(ERR_OUT_OF_DEVICE);
SAME(ERR_TOO_LARGE);
SAME(ERR_LOST);
SAME(ERR_SEALED);
SAME(ERR_QUEUE_FULL);
SAME(ERR_CONTEXT);
SAME(ERR_CANCELLED);
SAME(ERR_TIMEOUT);
SAME(ERR_LIMIT);
SAME(ERR_CLOSED);
SAME(ERR_NUMERIC);
SAME(ERR_INTERNAL);
SAME(ERR_BUSY);
SAME(LOG_ERROR);
SAME(LOG_DEBUG);

const char *plim_strstatus(int status)
{
    return plm_strstatus(status);
}

const char *plim_version(void)
{
    return STR(PLIM_VERSION_MAJOR) "." STR(PLIM_VERSION_MINOR) "." STR(PLIM_VERSION_PATCH);
}

#ifdef PLM_BACKEND_CUDA
#define CUDA ", cuda"
#else
#define CUDA ""
#endif
#ifdef PLM_BACKEND_HIP
#define HIP ", hip"
#else
#define HIP ""
#endif
#ifdef PLM_BACKEND_VULKAN
#define VULKAN ", vulkan"
#else
#define VULKAN ""
#endif
#define BACKENDS "cpu, sim" CUDA HIP VULKAN

const char *plim_build_info(void)
{
#if defined(__clang__)
    return "backends " BACKENDS "; clang " __clang_version__;
#else
    return "backends " BACKENDS "; gcc " __VERSION__;
#endif
}

uint32_t plim_version_number(void)
{
    return PLIM_VERSION_NUMBER;
}

// ---- structs whose size the caller knows ----

// Of every struct that begins with its size: it and one field beside it.
#define STRUCT_BYTES_MIN 8u

bool plm_struct_sized(size_t bytes)
{
    return bytes >= STRUCT_BYTES_MIN && bytes <= PLIM_STRUCT_MAX;
}

int plm_struct_out(void *ret, const void *full, size_t full_bytes)
{
    uint32_t size;
    memcpy(&size, ret, sizeof(size));
    if (!plm_struct_sized(size))
        return PLIM_ERR_INVALID;
    const size_t n = size < full_bytes ? size : full_bytes;
    memcpy((char *)ret + sizeof(size), (const char *)full + sizeof(size), n - sizeof(size));
    return PLIM_OK;
}

void plm_struct_init(void *ret, size_t ret_bytes, const void *full, size_t full_bytes)
{
    const uint32_t size = (uint32_t)ret_bytes;
    if (ret == NULL || !plm_struct_sized(ret_bytes))
        return;
    const size_t n = ret_bytes < full_bytes ? ret_bytes : full_bytes;
    memset(ret, 0, ret_bytes);
    memcpy(ret, full, n);
    memcpy(ret, &size, sizeof(size));
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

// ---- errors ----

// Of a plim_error whose size is not told, what every version has.
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

// ---- texts ----

int plm_text_place(const char *out, size_t cap, plim_error *err)
{
    return out == NULL && cap > 0 ? plm_error_null(err, "out") : PLIM_OK;
}

int plm_text_out(const char *text, size_t len, char *out, size_t cap, size_t *need)
{
    if (out == NULL && cap > 0)
        return PLIM_ERR_INVALID;
    if (need != NULL)
        *need = len;
    size_t n = len < cap ? len : cap;
    if (n > 0)
        memcpy(out, text, n);
    if (n < cap)
        out[n] = '\0';
    return len <= cap ? PLIM_OK : PLIM_ERR_LIMIT;
}

int plm_buf_out(struct plm_buf *buf, char *out, size_t cap, size_t *need)
{
    int r = buf->failed ? PLIM_ERR_NOMEM_HOST : plm_text_out(buf->data, buf->len, out, cap, need);
    plm_buf_finish(buf);
    return r;
}
