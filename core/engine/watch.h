// SPDX-License-Identifier: Apache-2.0
// What the driver says of the device's memory (watch.c).
#ifndef PLM_ENGINE_WATCH_H
#define PLM_ENGINE_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct plm_stress_reading;

// The monitor thread of the stress.
struct plm_watch {
    pthread_t thread;
    atomic_bool stop;
    bool runs;
    int64_t peak; // the thread's, until it is joined
};

// The `read` of struct plm_stress_ops; ctx is the core. Any thread.
int plm_core_read(void *ctx, struct plm_stress_reading *ret);
// The `watch` of struct plm_stress_ops; ctx is the core.
void plm_core_watch(void *ctx, bool on, int64_t *ret_peak);

#endif
