// SPDX-License-Identifier: Apache-2.0
#include "core/base/status.h"
#include "core/base/text.h"

#include <stdarg.h>
#include <stdio.h>

int plm_fail(struct plm_error *err, int status, const char *fmt, ...)
{
    if (err == NULL)
        return status;
    err->status = status;
    err->needed_bytes = 0;
    err->limit_bytes = 0;
    err->param = NULL;
    va_list ap;
    va_start(ap, fmt);
    plm_vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    return status;
}

int plm_fail_about(struct plm_error *err, int status, const char *param)
{
    if (err != NULL && status != PLM_OK && err->param == NULL)
        err->param = param;
    return status;
}

const char *plm_strstatus(int status)
{
    switch (status) {
    case PLM_OK: return "ok";
    case PLM_ERR_INVALID: return "invalid argument";
    case PLM_ERR_FORMAT: return "malformed input";
    case PLM_ERR_UNSUPPORTED: return "unsupported";
    case PLM_ERR_NOT_FOUND: return "not found";
    case PLM_ERR_IO: return "input/output error";
    case PLM_ERR_NOMEM_HOST: return "out of host memory";
    case PLM_ERR_NOMEM_NEVER: return "can never fit in memory";
    case PLM_ERR_NOMEM_NOW: return "does not fit in memory now";
    case PLM_ERR_OUT_OF_DEVICE: return "out of device memory";
    case PLM_ERR_TOO_LARGE: return "larger than the device can give";
    case PLM_ERR_LOST: return "device lost";
    case PLM_ERR_SEALED: return "allocation after the seal";
    case PLM_ERR_QUEUE_FULL: return "queue full";
    case PLM_ERR_CONTEXT: return "beyond the context";
    case PLM_ERR_CANCELLED: return "cancelled";
    case PLM_ERR_TIMEOUT: return "timed out";
    case PLM_ERR_LIMIT: return "limit reached";
    case PLM_ERR_CLOSED: return "closed";
    case PLM_ERR_NUMERIC: return "the model gave NaN or infinite values";
    case PLM_ERR_INTERNAL: return "internal error";
    case PLM_ERR_BUSY: return "busy";
    }
    return "unknown status";
}
