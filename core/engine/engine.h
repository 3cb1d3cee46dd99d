// SPDX-License-Identifier: Apache-2.0
// The engine above what is loaded (core.h): a function, plm_step(), which a thread only drives.
// Each module owns a part of the struct. Who may touch what:
//  - plm_core and the scheduler belong to the thread that steps (before READY: the one that
//    creates).
//  - engine.lock guards what others need: the inbox, the numbers that admission decides by, metrics
//    and refusals. It is held for moments, never over a forward.
//  - each request has a lock of its own for its events, and the ready list has one.
//    Neither is ever held while another lock is taken; nor is the recorder's, which may be taken
//    under any of them.
#ifndef PLM_ENGINE_ENGINE_H
#define PLM_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/engine/admission.h"
#include "core/engine/bisect.h"
#include "core/engine/core.h"
#include "core/engine/event.h"
#include "core/engine/inflight.h"
#include "core/engine/monitor.h"
#include "core/engine/pressure.h"
#include "core/engine/recover.h"
#include "core/engine/report.h"
#include "core/engine/sleep.h"
#include "core/plan/admit.h"
#include "core/plimsoll.h"
#include "core/sched/sched.h"

struct plm_recorder;

struct plim_engine {
    struct plm_core *core;
    struct plm_sched *sched;
    struct plm_bisect bisect;
    struct plm_recover recover;
    int64_t stalled_ns;     // since when nothing runs although there is work; 0: it does
    uint32_t stalled_steps; // and for how many steps
    struct plm_gate gate;
    struct plm_pressure pressure;
    struct plm_buf text; // of one token
    struct plm_ahead ahead;
    struct plim_request *requests;
    struct plim_request *ended; // in this step; freed after it, since the batch points to them
    int64_t live_bytes;         // ledger at the seal, without blocks
    struct plm_forecast forecast;
    uint64_t next_order;
    struct plm_recorder *recorder;
    const char *incident; // of this step, reported at its end; NULL: none
    uint64_t n_marks;     // calls of plm_step; the device is told the number
    plim_metrics counts;  // the stepping thread's; published after every step

    pthread_t thread;
    bool has_thread;
    bool manual;
    pthread_mutex_t turn; // manual: one step, or one sleep or wake in its caller's thread

    pthread_mutex_t lock;
    pthread_cond_t wake; // for the thread: the inbox is not empty, a reading came, or stop
    pthread_cond_t idle; // for drain: no request is left; for sleep and wake: the state changed
    struct plm_sleep sleep;
    struct plim_request *inbox_head, *inbox_tail;
    struct plim_request *cancels;
    bool stop;
    bool draining;
    uint32_t active; // submitted and not ended
    struct plm_admission admission;
    plim_metrics published;
    struct plm_kv_pool_stats groups[PLM_KV_GROUPS_MAX]; // as published
    struct plm_monitor monitor;
    _Atomic int64_t last_step_ns; // 0: idle
    _Atomic uint32_t handles;     // requests that their callers have not freed

    struct plm_ready ready;
};

// An engine in an environment of the caller's; plim_engine_free() destroys its host. On failure
// that is left to the caller.
int plm_engine_create_in(const struct plm_engine_env *env, const plim_engine_opts *opts,
                         struct plim_engine **ret, plim_error *err);
// plim_engine_free(); returns the bytes of host memory that were not given back (a leak).
int64_t plm_engine_destroy(struct plim_engine *engine);

#endif
