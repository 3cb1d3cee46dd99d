// SPDX-License-Identifier: Apache-2.0
// Errors of the public API. err may be NULL wherever a call of the public API may be given none.
#ifndef PLM_ENGINE_ERROR_H
#define PLM_ENGINE_ERROR_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/status.h"
#include "core/plimsoll.h"

struct plm_admit_limits;

// Fills a public error from an internal one; returns status.
int plm_error_out(plim_error *ret, int status, const struct plm_error *err);
int plm_error_set(plim_error *ret, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
// INVALID with the message that argument `param` must not be NULL.
int plm_error_null(plim_error *ret, const char *param);
// INVALID where there is no buffer although one of cap bytes is announced.
int plm_error_place(const char *out, size_t cap, plim_error *err);
// Copies `error`, in this version's layout, to a caller's plim_error, which may be NULL or of
// another version, and needs no more initialisation than its size. Every failure gets a message.
// Returns status; where it is OK, nothing is written.
int plm_error_give(plim_error *ret, int status, plim_error *error);
// Describes the end of a task of the calling thread that ran out of host memory, and stops the
// meter. Returns `status` where it is not NOMEM_HOST; NOMEM_NEVER where the task and the
// `extra_bytes` that its caller holds do not fit on an idle engine either.
int plm_error_host(const struct plm_admit_limits *limits, int status,
                   const struct plm_host_meter *meter, uint64_t extra_bytes, plim_error *err);
// Copies options of a caller, who may be of another version, over the defaults in *ret: INVALID, or
// UNSUPPORTED for newer ones that are set. init: the function that sets them up, for the message.
int plm_struct_in(void *ret, size_t full_bytes, const void *opts, const char *init,
                  plim_error *err);

#endif
