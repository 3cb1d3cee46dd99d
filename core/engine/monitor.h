// SPDX-License-Identifier: Apache-2.0
// What others hold of the device (monitor.c).
#ifndef PLM_ENGINE_MONITOR_H
#define PLM_ENGINE_MONITOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/plan/profile.h"
#include "core/plan/report.h"

struct plm_core;
struct plm_recorder;

#define PLM_NEIGHBOURS 32 // events of neighbours that are kept for /v1/memory

// Reads the device at most every opts.monitor_ms, off the step path; the last reading and what it
// says of others are kept for all threads.
struct plm_monitor {
    struct plm_core *core;
    struct plm_recorder *recorder;
    pthread_mutex_t *lock;       // the engine's
    pthread_cond_t *engine_wake; // that its thread sleeps on
    // A thread of its own where the clock is the system's and steps are not the caller's; else
    // plm_monitor_poll, between steps.
    pthread_t thread;
    bool has_thread;
    int64_t polled_ns;
    // Held while a reading is taken and while slabs change hands, so that a reading and the ledger
    // beside it are of one moment; and while the device is exchanged.
    pthread_mutex_t device_lock;
    // Under the lock:
    pthread_cond_t wake; // stop or hurry
    bool stop;
    bool hurry;                        // the next reading is due at once
    uint64_t n_readings;               // taken so far; 0: `reading` is not set
    struct plm_stress_reading reading; // the last one
    bool fresh;                        // it was not taken yet
    int64_t others_bytes;              // what others hold by it, with the driver overhead
    int64_t noted_bytes;               // others_bytes at the last event
    struct plm_report_neighbour events[PLM_NEIGHBOURS];
    uint64_t n_events;
};

// lock and engine_wake are set and the monitor's own locks made. threaded: on a thread of its own,
// where the clock is the system's. PLM_ERR_IO: no thread.
int plm_monitor_start(struct plm_monitor *monitor, struct plm_core *core,
                      struct plm_recorder *recorder, bool threaded);
void plm_monitor_stop(struct plm_monitor *monitor);
// Between steps, where the monitor has no thread: takes a reading when one is due.
void plm_monitor_poll(struct plm_monitor *monitor, int64_t now_ns);
// The newest reading, once. False: none since the last call.
bool plm_monitor_take(struct plm_monitor *monitor, struct plm_stress_reading *ret);
// Between steps: asks for a reading before its time.
void plm_monitor_hurry(struct plm_monitor *monitor);

#endif
