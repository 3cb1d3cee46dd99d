// SPDX-License-Identifier: Apache-2.0
// How a request ends (finish.c).
#ifndef PLM_ENGINE_FINISH_H
#define PLM_ENGINE_FINISH_H

#include <stdint.h>

#include "core/plimsoll.h"

// Finishes a request: its sequences leave, its last event is DONE. error may be NULL.
void plm_request_finish(struct plim_engine *engine, struct plim_request *request,
                        enum plim_finish finish, int32_t status, const plim_error *error);
// The same for a fault of its own, with a message.
void plm_request_fail(struct plim_engine *engine, struct plim_request *request, int status,
                      const char *message);
// The same for a lack that may be over when the caller comes again: term names what lacks, or "".
void plm_request_fail_now(struct plim_engine *engine, struct plim_request *request, int status,
                          const char *term, const char *message);
// Ends the requests that a bisection found faulty, whose steps failed with `status`.
void plm_request_fail_faulty(struct plim_engine *engine, int status);
// Releases the engine's references to the requests that ended.
void plm_request_reap(struct plim_engine *engine);

#endif
