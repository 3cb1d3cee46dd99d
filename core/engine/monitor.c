// SPDX-License-Identifier: Apache-2.0
// The monitor after READY: how much of the device others hold. It only reads; pressure.c acts.
#include "core/engine/monitor.h"

#include <time.h>

#include "core/base/checked.h"
#include "core/base/thread.h"
#include "core/engine/core.h"
#include "core/engine/recorder.h"
#include "core/engine/watch.h"

// A change of what others hold that is worth an event: a sixteenth of the margin, and what the
// device can show at all. Smaller ones are the noise of any desktop.
static int64_t event_bytes(const struct plm_plan *plan)
{
    return plm_max_i64(plan->in.g, plan->margin / 16);
}

// Under the lock.
static void note(struct plm_monitor *m, int64_t held)
{
    const struct plm_clock *clock = m->core->clock;
    const int64_t change = held - m->noted_bytes;
    m->others_bytes = held;
    if (change < event_bytes(&m->core->profile.plan) &&
        -change < event_bytes(&m->core->profile.plan))
        return;
    m->noted_bytes = held;
    const int64_t others = held - m->core->profile.plan.own_drv; // the driver overhead is in it
    plm_recorder_put(m->recorder, &(struct plm_record){.kind = PLM_RECORD_OTHERS,
                                                       .value = others > 0 ? others : 0});
    m->events[m->n_events++ % PLM_NEIGHBOURS] = (struct plm_report_neighbour){
        .wall_ns = clock->wall_ns(clock->ctx), .foreign_bytes = held, .change_bytes = change};
}

static void read_once(struct plm_monitor *m)
{
    struct plm_stress_reading r;
    pthread_mutex_lock(&m->device_lock);
    const int status = plm_core_read(m->core, &r);
    pthread_mutex_unlock(&m->device_lock);
    pthread_mutex_lock(m->lock);
    // An idle engine brings a lost device back before somebody needs it.
    if (status == PLM_ERR_LOST)
        pthread_cond_signal(m->engine_wake);
    // A driver that is not ready answers 0 of 0, and says nothing by it.
    if (status != PLM_OK || r.T == 0) {
        pthread_mutex_unlock(m->lock);
        return;
    }
    m->reading = r;
    m->n_readings++;
    note(m, plm_max_i64(0, r.T - r.F - r.O));
    m->fresh = true;
    pthread_cond_signal(m->engine_wake);
    pthread_mutex_unlock(m->lock);
}

// Sleeps for a period, or until the engine stops. Returns whether to go on.
static bool pause_between(struct plm_monitor *m)
{
    const struct timespec until = plm_deadline(m->core->clock, (int64_t)m->core->opts.monitor_ms);
    pthread_mutex_lock(m->lock);
    int r = 0;
    while (!m->stop && !m->hurry && r == 0)
        r = pthread_cond_timedwait(&m->wake, m->lock, &until);
    const bool go_on = !m->stop;
    m->hurry = false;
    pthread_mutex_unlock(m->lock);
    return go_on;
}

static void *monitor(void *arg)
{
    struct plm_monitor *m = arg;
    while (pause_between(m))
        read_once(m);
    return NULL;
}

int plm_monitor_start(struct plm_monitor *m, struct plm_core *core, struct plm_recorder *recorder,
                      bool threaded)
{
    m->core = core;
    m->recorder = recorder;
    m->others_bytes = m->noted_bytes = core->profile.plan.foreign;
    m->polled_ns = plm_now(core->clock);
    // A clock that is not the system's belongs to a simulation, which a thread would make random.
    if (core->opts.monitor_ms == 0 || !threaded || core->clock != plm_clock_system())
        return PLM_OK;
    if (!plm_thread_start(&m->thread, 0, monitor, m))
        return PLM_ERR_IO;
    m->has_thread = true;
    return PLM_OK;
}

void plm_monitor_stop(struct plm_monitor *m)
{
    if (!m->has_thread)
        return;
    pthread_mutex_lock(m->lock);
    m->stop = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(m->lock);
    pthread_join(m->thread, NULL);
    m->has_thread = false;
}

void plm_monitor_poll(struct plm_monitor *m, int64_t now_ns)
{
    const int64_t period_ns = (int64_t)m->core->opts.monitor_ms * 1000000;
    if (m->has_thread || period_ns == 0 || (!m->hurry && now_ns - m->polled_ns < period_ns))
        return;
    m->hurry = false;
    m->polled_ns = now_ns;
    read_once(m);
}

void plm_monitor_hurry(struct plm_monitor *m)
{
    pthread_mutex_lock(m->lock);
    m->hurry = true;
    if (m->has_thread)
        pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(m->lock);
}

bool plm_monitor_take(struct plm_monitor *m, struct plm_stress_reading *ret)
{
    pthread_mutex_lock(m->lock);
    const bool any = m->fresh;
    m->fresh = false;
    if (any)
        *ret = m->reading;
    pthread_mutex_unlock(m->lock);
    return any;
}
