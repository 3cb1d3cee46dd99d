// SPDX-License-Identifier: Apache-2.0
// Threads of the library. They get no signals: those are the embedder's, whose own threads take
// them.
#ifndef PLM_BASE_THREAD_H
#define PLM_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

// stack_bytes: 0 for what the system gives. False: there is no such thread.
bool plm_thread_start(pthread_t *ret, size_t stack_bytes, void *(*run)(void *), void *arg);

#endif
