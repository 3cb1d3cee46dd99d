// SPDX-License-Identifier: Apache-2.0
// Threads of the library. They get no signals: those are the embedder's, whose own threads take
// them.
#ifndef PLM_BASE_THREAD_H
#define PLM_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/status.h"

// stack_bytes: 0 for what the system gives. False: there is no such thread.
bool plm_thread_start(pthread_t *ret, size_t stack_bytes, void *(*run)(void *), void *arg);
// For whoever can not do without it: fills err with whose threads are missing ("the engine's
// thread") and the limits that may be reached. Returns PLM_ERR_IO.
int plm_thread_fail(struct plm_error *err, const char *whose);

#endif
