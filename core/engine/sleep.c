// SPDX-License-Identifier: Apache-2.0
// Sleep gives the whole KV cache back to the system, wake takes it again and proves it. Any thread
// asks (engine.c); the thread that steps does it, between two steps.
#include "core/engine/sleep.h"

#include "core/base/checked.h"
#include "core/engine/engine.h"
#include "core/engine/histogram.h"
#include "core/engine/load.h"
#include "core/engine/pressure.h"
#include "core/engine/recorder.h"
#include "core/engine/report.h"
#include "core/engine/stress.h"
#include "core/engine/watch.h"
#include "core/engine/window_pools.h"

// How long a driver may take to show what was given back to it.
#define SETTLE_TRIES 50
#define SETTLE_NS    INT64_C(10000000)

void plm_sleep_enter(struct plim_engine *engine, enum plm_sleep_state state)
{
    engine->sleep.state = state;
    engine->admission.state.asleep = state != PLM_AWAKE;
    pthread_cond_broadcast(&engine->idle);
    pthread_cond_signal(&engine->wake);
}

// ---- falling asleep ----

// By how much the device's memory in use fell from one reading to the next. Where it says what this
// process uses, others' memory is no part of it: on the CPU they come and go all the time.
static int64_t came_back(const struct plm_stress_reading *before,
                         const struct plm_stress_reading *after)
{
    if (before->process_use != PLM_PLAN_UNKNOWN && after->process_use != PLM_PLAN_UNKNOWN)
        return before->process_use - after->process_use;
    return after->F - before->F;
}

// Waits until the driver shows the memory that was released. What is missing is only logged: where
// only free memory is known, a neighbour may have taken it.
static void check_released(struct plm_core *core, const struct plm_stress_reading *before)
{
    const int64_t g = core->profile.plan.in.g;
    struct plm_stress_reading after;
    int64_t lacking = 0;
    for (int i = 0; i < SETTLE_TRIES; i++) {
        if (plm_core_read(core, &after) != PLM_OK)
            return;
        lacking = (before->O - after.O) - came_back(before, &after);
        if (lacking < g)
            return;
        core->clock->sleep_ns(core->clock->ctx, SETTLE_NS);
    }
    plm_logf(&core->log, PLM_LOG_WARN,
             "asleep, but %lld bytes that were released did not come back", (long long)lacking);
}

static void drop_windows(struct plim_engine *engine)
{
    pthread_mutex_lock(&engine->monitor.device_lock);
    plm_core_drop_windows(engine->core);
    pthread_mutex_unlock(&engine->monitor.device_lock);
}

static int take_windows(struct plim_engine *engine)
{
    pthread_mutex_lock(&engine->monitor.device_lock);
    const int r = plm_core_take_windows(engine->core, &engine->core->profile.plan.in.limits);
    pthread_mutex_unlock(&engine->monitor.device_lock);
    return r;
}

static void fall_asleep(struct plim_engine *engine)
{
    struct plm_core *core = engine->core;
    const int64_t start = plm_now(core->clock);
    struct plm_stress_reading before;
    struct plm_mem_info info;
    uint64_t released;
    plm_recorder_put(engine->recorder, &(struct plm_record){.kind = PLM_RECORD_SLEEP});
    plm_core_phase(core, PLM_PHASE_SLEEP);
    const int known = plm_core_read(core, &before);
    plm_kv_pool_drop_cached(core->pool, UINT32_MAX);
    plm_pressure_resize(engine, 0);
    drop_windows(engine);
    plm_device_empty_cache(core->rank.device, &released, &info);
    if (known == PLM_OK)
        check_released(core, &before);
    engine->counts.last_sleep_s = plm_seconds(start, plm_now(core->clock));
}

// ---- waking up ----

static int no_room(struct plim_engine *engine, uint32_t got, struct plm_error *err)
{
    const struct plm_plan *plan = &engine->core->profile.plan;
    plm_pressure_resize(engine, 0);
    plm_fail(err, PLM_ERR_OUT_OF_DEVICE,
             "the device gives %u blocks of the KV cache, and the least are %lld: the engine stays "
             "asleep, wake it when others gave memory back",
             got, (long long)engine->pressure.line.floor);
    err->needed_bytes = engine->pressure.line.floor * plan->in.block_bytes;
    err->limit_bytes = got * plan->in.block_bytes;
    return PLM_ERR_OUT_OF_DEVICE;
}

// As many blocks as planned, or as the neighbours leave.
static uint32_t wanted(struct plim_engine *engine)
{
    struct plm_stress_reading r;
    const struct plm_line *line = &engine->pressure.line;
    int64_t blocks = line->plan->blocks;
    if (line->yields && plm_core_read(engine->core, &r) == PLM_OK) {
        const int64_t fit = plm_line_fit(line, &r);
        blocks = fit >= 0 ? plm_max_i64(fit, line->floor) : blocks;
    }
    return (uint32_t)blocks;
}

// The floor goes before the ballast: a neighbour has taken the margin, and that is no reason to
// stay asleep. The ballast comes back when there is room for it (recover.c).
static int take_pool(struct plim_engine *engine, uint32_t blocks, struct plm_kv_pool_stats *ret)
{
    struct plm_core *core = engine->core;
    int r = plm_pressure_resize(engine, blocks);
    plm_kv_pool_read(core->pool, ret);
    if (r == PLM_ERR_OUT_OF_DEVICE && ret->total < engine->pressure.line.floor &&
        core->rank.ballast != NULL) {
        struct plm_stress_ops ops;
        plm_core_stress_ops(core, &ops);
        ops.ballast(core, 0);
        r = plm_pressure_resize(engine, (uint32_t)engine->pressure.line.floor);
        plm_kv_pool_read(core->pool, ret);
    }
    return r;
}

// Takes the pool, and a slab less each time that the device has no room for a validation.
static int take_back(struct plim_engine *engine, struct plm_error *err)
{
    struct plm_core *core = engine->core;
    struct plm_kv_pool_stats pool;
    uint32_t blocks = wanted(engine);
    int r = take_windows(engine);
    if (r != PLM_OK)
        return plm_fail(err, r, "the windows of the KV cache could not be taken again: %s",
                        plm_strstatus(r));
    for (int attempt = 0; attempt <= PLM_PROFILE_RETRIES; attempt++) {
        plm_core_phase(core, PLM_PHASE_RESIZE);
        r = take_pool(engine, blocks, &pool);
        if (r != PLM_OK && r != PLM_ERR_OUT_OF_DEVICE && r != PLM_ERR_TOO_LARGE)
            return plm_fail(err, r, "the KV cache could not be taken again: %s", plm_strstatus(r));
        if (pool.total < engine->pressure.line.floor)
            return no_room(engine, pool.total, err);
        r = plm_core_validate_pool(core, err);
        if (r == PLM_ERR_TIMEOUT) { // a hung device is treated as lost
            plm_device_lose(core->rank.device);
            r = PLM_ERR_LOST;
        }
        if (r != PLM_ERR_OUT_OF_DEVICE)
            break;
        blocks = pool.total > pool.slab_blocks ? pool.total - pool.slab_blocks : 0;
    }
    return r;
}

static int wake_up(struct plim_engine *engine, struct plm_error *err)
{
    struct plm_core *core = engine->core;
    const int64_t start = plm_now(core->clock);
    struct plm_kv_pool_stats pool;
    plm_recorder_put(engine->recorder, &(struct plm_record){.kind = PLM_RECORD_WAKE});
    // The host budget is for requests: theirs must not stand in the way of the validation.
    plm_host_set_limit(core->host, 0);
    const int r = take_back(engine, err);
    plm_host_set_limit(core->host, core->profile.plan.host_limit);
    if (r != PLM_OK && r != PLM_ERR_LOST) {
        plm_pressure_resize(engine, 0);
        drop_windows(engine);
    }
    plm_core_phase(core, r == PLM_OK || r == PLM_ERR_LOST ? PLM_PHASE_SERVE : PLM_PHASE_SLEEP);
    plm_kv_pool_read(core->pool, &pool);
    if (r != PLM_OK)
        return r;
    engine->counts.validated_blocks = pool.total;
    engine->counts.last_wake_s = plm_seconds(start, plm_now(core->clock));
    return PLM_OK;
}

// ---- between steps ----

// Whether no request is under way; those in the queue may sleep, too.
static bool at_rest(const struct plim_engine *engine)
{
    struct plm_sched_stats s;
    plm_sched_read(engine->sched, &s);
    return s.running + s.paused + s.forks == 0 && !engine->recover.down;
}

bool plm_sleep_step(struct plim_engine *engine)
{
    struct plm_sleep *s = &engine->sleep;
    pthread_mutex_lock(&engine->lock);
    if (s->state == PLM_DROWSY && at_rest(engine))
        plm_sleep_enter(engine, PLM_FALLING_ASLEEP);
    const enum plm_sleep_state state = s->state;
    pthread_mutex_unlock(&engine->lock);
    if (state == PLM_AWAKE || state == PLM_DROWSY) {
        plm_sched_set_entry(engine->sched, state == PLM_DROWSY ? PLM_ENTRY_BEGUN : PLM_ENTRY_ALL);
        return false;
    }
    enum plm_sleep_state next = PLM_ASLEEP;
    struct plm_error why = {0};
    int r = PLM_OK;
    if (state == PLM_FALLING_ASLEEP) {
        fall_asleep(engine);
    } else if (state == PLM_WAKING) {
        r = wake_up(engine, &why);
        // A lost device is for the next step to bring back, and that is not done asleep.
        next = r == PLM_OK || r == PLM_ERR_LOST ? PLM_AWAKE : PLM_ASLEEP;
    }
    plm_step_publish(engine);
    pthread_mutex_lock(&engine->lock);
    if (state == PLM_WAKING) {
        s->wake_status = r;
        s->wake_error = why;
    }
    if (next != state)
        plm_sleep_enter(engine, next);
    pthread_mutex_unlock(&engine->lock);
    return next != PLM_AWAKE;
}
