// SPDX-License-Identifier: Apache-2.0
// What a client is told when something is refused or fails: one table from the engine's results to
// HTTP statuses, types, codes and retry headers.
#ifndef PLM_SERVE_ERRORS_H
#define PLM_SERVE_ERRORS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/plimsoll.h"
#include "tools/out.h"

struct plm_api_error {
    int http;           // status; 0: no error
    const char *type;   // constant text
    const char *code;   // constant text or NULL
    int retry_after_s;  // 0: no Retry-After
    bool never_retry;   // x-should-retry: false
    bool close;         // Connection: close
    bool challenge;     // WWW-Authenticate
    const char *allow;  // 405: the methods there are
    bool has_memory;    // needed, limit and the offer are set
    bool has_queue;     // the same, counted in requests or tokens
    bool has_context;   // n_prompt_tokens and n_ctx are set
    plim_error numbers; // the engine's own figures
    char param[64];     // "" : none
    char message[640];
};

// A field of the request is wrong: 400. param may be NULL.
void plm_api_error_invalid(struct plm_api_error *ret, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// Any other.
void plm_api_error_set(struct plm_api_error *ret, int http, const char *type, const char *code,
                       const char *fmt, ...) __attribute__((format(printf, 5, 6)));
// The server's own host memory ran out for the moment.
void plm_api_error_host(struct plm_api_error *ret);
// The same for a request that needs so many bytes: NEVER where an idle engine has not got them.
void plm_api_error_host_for(struct plm_api_error *ret, const plim_engine *engine, int64_t bytes);
// The engine answered status; engine_error may be NULL. overload_status (503 or 429) is what "not
// now" is called.
void plm_api_error_from_engine(struct plm_api_error *ret, int status,
                               const plim_error *engine_error, int overload_status);
// {"error":{...}}
void plm_api_error_json(const struct plm_api_error *error, struct plm_out *out);

#endif
