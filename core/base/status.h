// SPDX-License-Identifier: Apache-2.0
// Results and error objects. Every fallible function of the core returns an int: PLM_OK or a
// negative code of this list. Detail goes into an optional, caller-owned struct plm_error; there is
// no thread-local state and nothing is printed.
#ifndef PLM_BASE_STATUS_H
#define PLM_BASE_STATUS_H

#include <stdint.h>

// The public enum plim_status has the same values; engine.c asserts that at compile time.
enum plm_status {
    PLM_OK = 0,
    PLM_ERR_INVALID = -1,       // an argument or a field of a request is out of its range
    PLM_ERR_FORMAT = -2,        // foreign bytes are malformed (file, JSON, template, UTF-8)
    PLM_ERR_UNSUPPORTED = -3,   // well-formed, but not something this build can do
    PLM_ERR_NOT_FOUND = -4,     // no such key, tensor, device, file
    PLM_ERR_IO = -5,            // the operating system refused a read, write or open
    PLM_ERR_NOMEM_HOST = -6,    // the host budget (or malloc) is exhausted
    PLM_ERR_NOMEM_NEVER = -7,   // refusal: can not fit even on an idle engine
    PLM_ERR_NOMEM_NOW = -8,     // refusal: does not fit beside what runs now
    PLM_ERR_OUT_OF_DEVICE = -9, // the device has no room for a slab
    PLM_ERR_TOO_LARGE = -10,    // a slab larger than the device can ever give
    PLM_ERR_LOST = -11,         // the device is gone; sticky until it is reopened
    PLM_ERR_SEALED = -12,       // an allocation after the plan was sealed
    PLM_ERR_QUEUE_FULL = -13,   // the bounded request queue is full
    PLM_ERR_CONTEXT = -14,      // prompt (plus output) beyond the context
    PLM_ERR_CANCELLED = -15,    // the caller cancelled
    PLM_ERR_TIMEOUT = -16,      // a deadline passed
    PLM_ERR_LIMIT = -17,        // a step, depth, size or count limit on foreign input was hit
    PLM_ERR_CLOSED = -18,       // the engine is draining or closed
    PLM_ERR_NUMERIC = -19,      // the model produced NaN or infinite logits
    PLM_ERR_INTERNAL = -20,     // a broken invariant of ours
    PLM_ERR_BUSY = -21,         // the caller still holds what depends on it
};

#define PLM_ERROR_MSG_BYTES 512 // long enough for one name, one offset and one sentence

struct plm_error {
    int status;
    int64_t needed_bytes; // refusals: what the request needs; else 0
    int64_t limit_bytes;  // refusals: what there is; else 0
    const char *param;    // the public option at fault, a constant; NULL: none
    char msg[PLM_ERROR_MSG_BYTES];
};

// Fills err (may be NULL) and returns status, so that callers write `return plm_fail(err, ...)`.
int plm_fail(struct plm_error *err, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Says which public option (a constant) a failure is about, where nothing said so before, and
// returns status. No effect where nothing failed, or err is NULL.
int plm_fail_about(struct plm_error *err, int status, const char *param);

// Short constant name of a status ("out of device memory"); never NULL.
const char *plm_strstatus(int status);

#endif
