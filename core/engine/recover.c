// SPDX-License-Identifier: Apache-2.0
// A device that is lost, or refuses a submit that the plan covers. A lost device is reopened under
// the plan that was proven; the requests wait with their tokens and are computed again, so a client
// notices nothing but a delay.
#include "core/engine/recover.h"

#include "core/base/checked.h"
#include "core/engine/bisect.h"
#include "core/engine/engine.h"
#include "core/engine/finish.h"
#include "core/engine/load.h"
#include "core/engine/pressure.h"
#include "core/engine/recorder.h"
#include "core/engine/request.h"
#include "core/engine/stress.h"

#define MS INT64_C(1000000)
#define S  (1000 * MS)

// A loss so soon after the device came back is no accident of its own.
#define AGAIN_NS   (60 * S)
#define LOSSES_MAX 3u // in a row; the last one ends the engine

// A driver resets within seconds; a neighbour that took the room may take longer to leave. Beyond
// two minutes clients have given up and somebody else should serve them.
#define PAUSE_FIRST_NS (250 * MS)
#define PAUSE_MAX_NS   (8 * S)
#define GIVE_UP_NS     (120 * S)
// How long a step sleeps at most while it waits: cancels are taken in between.
#define NAP_NS (100 * MS)

// Refused steps that are tried again, 1, 2, 4 .. 128 ms apart, when nothing is left to give back:
// 0.25 s in all. Then the youngest request ends.
#define REFUSED_WAITS 8u
#define BALLAST_NS    (1 * S) // between tries to take it again

// ---- the end ----

static void give_up(struct plim_engine *engine, int status, const char *why)
{
    struct plm_recover *r = &engine->recover;
    plm_logf(&engine->core->log, PLM_LOG_ERROR, "the engine ends: %s", why);
    r->gone = true;
    pthread_mutex_lock(&engine->lock);
    engine->draining = true; // admission answers CLOSED
    pthread_mutex_unlock(&engine->lock);
    while (engine->requests != NULL)
        plm_request_fail(engine, engine->requests, status, why);
}

// ---- reopening ----

static int validate(struct plim_engine *engine, const struct plm_stress_ops *ops,
                    struct plm_error *err)
{
    struct plm_core *core = engine->core;
    plm_core_phase(core, PLM_PHASE_VALIDATE);
    const int r = plm_core_validate(core, err);
    return r == PLM_OK && !core->keeps_ballast ? ops->ballast(core, 0) : r;
}

// Takes as many blocks as fit beside the ballast. At the floor the ballast is given up: a neighbour
// has taken the margin, and that is no reason to end running requests.
static int take_pool(struct plim_engine *engine, const struct plm_stress_ops *ops,
                     struct plm_error *err)
{
    struct plm_core *core = engine->core;
    const struct plm_plan *plan = &core->profile.plan;
    const int64_t floor = plm_max_i64(1, engine->pressure.line.floor);
    int64_t ask = plm_max_i64(engine->pressure.line.target, floor), step = plan->slabs.slab_blocks;
    int64_t ballast = plan->ballast, failed;
    for (;;) {
        uint32_t blocks;
        int r = ops->kv_resize(core, (uint32_t)ask, &blocks, &failed);
        if (r == PLM_ERR_OUT_OF_DEVICE && blocks >= floor)
            r = PLM_OK;
        if (r == PLM_OK)
            r = ops->ballast(core, ballast);
        if (r != PLM_OK)
            plm_fail(err, r, "the KV cache: %s", plm_strstatus(r));
        else
            r = validate(engine, ops, err);
        if (r != PLM_ERR_OUT_OF_DEVICE || (ask == floor && ballast == 0))
            return r;
        ops->ballast(core, 0);
        if (ask == floor)
            ballast = 0;
        ask = plm_max_i64(floor, plm_min_i64(ask, blocks) - step);
        step *= 2;
    }
}

// Reopens the device, reloads the weights and takes the plan's memory. A later try goes on from
// what was reached, unless the device was lost once more.
static int rebuild(struct plim_engine *engine, struct plm_error *err)
{
    struct plm_core *core = engine->core;
    struct plm_recover *r = &engine->recover;
    struct plm_stress_ops ops;
    int status = PLM_OK;
    plm_core_stress_ops(core, &ops);
    if (!r->loaded) {
        uint32_t blocks;
        int64_t failed;
        ops.kv_resize(core, 0, &blocks, &failed);
        status = plm_core_reopen(core, err);
        r->loaded = status == PLM_OK;
    }
    if (status == PLM_OK) {
        plm_core_phase(core, PLM_PHASE_RESIZE);
        status = ops.set_limits(core, &core->profile.plan.in.limits);
        if (status != PLM_OK)
            plm_fail(err, status, "the workspace: %s", plm_strstatus(status));
    }
    if (status == PLM_OK)
        status = take_pool(engine, &ops, err);
    if (status == PLM_ERR_LOST || status == PLM_ERR_TIMEOUT)
        r->loaded = false;
    if (status == PLM_OK)
        ops.seal(core);
    return status;
}

static void come_back(struct plim_engine *engine)
{
    struct plm_core *core = engine->core;
    struct plm_recover *r = &engine->recover;
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(core->pool, &pool);
    r->down = false;
    r->up_ns = plm_now(core->clock);
    plm_pressure_resize(engine, pool.total); // as it is: the line follows
    if (pool.total < engine->pressure.line.target)
        plm_line_settle(&engine->pressure.line, pool.total);
    engine->counts.reopened++;
    plm_logf(&core->log, PLM_LOG_WARN, "the device is back with %u blocks after %lld ms",
             pool.total, (long long)((r->up_ns - r->down_ns) / MS));
}

// One try, when it is due. The host budget is for requests: theirs must not stand in the way.
static void try_again(struct plim_engine *engine, int64_t now_ns)
{
    struct plm_core *core = engine->core;
    struct plm_recover *r = &engine->recover;
    struct plm_error err = {0};
    if (now_ns < r->retry_ns) {
        core->clock->sleep_ns(core->clock->ctx, plm_min_i64(r->retry_ns - now_ns, NAP_NS));
        return;
    }
    plm_host_set_limit(core->host, 0);
    pthread_mutex_lock(&engine->monitor.device_lock);
    const int status = rebuild(engine, &err);
    pthread_mutex_unlock(&engine->monitor.device_lock);
    plm_host_set_limit(core->host, core->profile.plan.host_limit);
    plm_core_phase(core, PLM_PHASE_SERVE);
    if (status == PLM_OK) {
        come_back(engine);
        return;
    }
    const int64_t now = plm_now(core->clock);
    plm_logf(&core->log, PLM_LOG_WARN, "the device does not come back yet: %s", err.msg);
    if (now - r->down_ns >= GIVE_UP_NS) {
        give_up(engine, PLM_ERR_LOST, "the device was lost and did not come back");
        return;
    }
    r->retry_ns = now + r->pause_ns;
    r->pause_ns = plm_min_i64(2 * r->pause_ns, PAUSE_MAX_NS);
}

static void record_loss(struct plim_engine *engine, int status)
{
    struct plm_record r = {.kind = PLM_RECORD_LOST};
    if (status == PLM_ERR_TIMEOUT) {
        r.kind = PLM_RECORD_HANG;
        r.value = 2 * MS * (int64_t)engine->core->opts.watchdog_ms;
    }
    plm_recorder_put(engine->recorder, &r);
    plm_incident(engine, "lost");
}

void plm_recover_lost(struct plim_engine *engine, int status)
{
    struct plm_core *core = engine->core;
    struct plm_recover *r = &engine->recover;
    const int64_t now = plm_now(core->clock);
    engine->ahead.current = NULL;       // what it ran is gone with it
    plm_device_lose(core->rank.device); // what hangs may still write: only a reopen ends it
    engine->counts.losses++;
    record_loss(engine, status);
    r->streak = r->streak > 0 && now - r->up_ns < AGAIN_NS ? r->streak + 1 : 1;
    plm_logf(&core->log, PLM_LOG_ERROR, "the device was lost (%s), %u in a row",
             plm_strstatus(status), r->streak);
    if (r->streak >= LOSSES_MAX) {
        give_up(engine, status, "the device was lost three times in a row");
        return;
    }
    plm_bisect_lost(&engine->bisect, engine->counts.losses, r->streak > 1);
    plm_request_fail_faulty(engine, status);
    plm_sched_park(engine->sched);
    r->down = true;
    r->loaded = false;
    r->down_ns = r->retry_ns = now;
    r->pause_ns = PAUSE_FIRST_NS;
}

// ---- the ballast ----

// Takes the ballast again, which soft-commit devices hold while they serve and a refused submit
// released.
static void take_ballast(struct plim_engine *engine, int64_t now_ns)
{
    struct plm_core *core = engine->core;
    struct plm_recover *r = &engine->recover;
    struct plm_stress_ops ops;
    if (!core->keeps_ballast || core->rank.ballast != NULL || now_ns < r->ballast_ns)
        return;
    plm_core_stress_ops(core, &ops);
    pthread_mutex_lock(&engine->monitor.device_lock);
    plm_device_seal(core->rank.device, false);
    ops.ballast(core, core->profile.plan.ballast); // or later
    plm_device_seal(core->rank.device, true);
    pthread_mutex_unlock(&engine->monitor.device_lock);
    r->ballast_ns = now_ns + BALLAST_NS;
}

bool plm_recover_ready(struct plim_engine *engine, int64_t now_ns)
{
    struct plm_recover *r = &engine->recover;
    if (r->gone) {
        while (engine->requests != NULL) // submitted while it ended
            plm_request_fail(engine, engine->requests, PLM_ERR_LOST, "the device was lost");
        return false;
    }
    if (!r->down && plm_device_status(engine->core->rank.device) != PLM_OK)
        plm_recover_lost(engine, PLM_ERR_LOST);
    if (r->down)
        try_again(engine, now_ns);
    if (r->down || r->gone)
        return false;
    take_ballast(engine, now_ns);
    return true;
}

// ---- a refused submit ----

// Frees the highest slabs for the driver, more of them each time. Nothing is moved out of them,
// since a move needs a submit.
static bool give_slabs(struct plim_engine *engine)
{
    const struct plm_kv_pool *kv = engine->core->pool;
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(kv, &pool);
    const int64_t before = pool.total, doublings = plm_min_i64(engine->recover.refused - 1, 16);
    const int64_t blocks = before - ((int64_t)pool.slab_blocks << doublings);
    if (before <= engine->pressure.line.floor)
        return false;
    plm_pressure_resize(engine, (uint32_t)plm_max_i64(blocks, engine->pressure.line.floor));
    plm_kv_pool_read(kv, &pool);
    if (pool.total == before)
        return false;
    plm_line_settle(&engine->pressure.line, pool.total); // or the next step takes it again
    return true;
}

static void end_youngest(struct plim_engine *engine)
{
    struct plm_seq *seq = plm_sched_youngest(engine->sched);
    if (seq != NULL)
        plm_request_fail_now(engine, ((struct plm_choice *)seq)->request, PLIM_ERR_NOMEM_NOW, "",
                             "the device has no room for the next step of this request");
}

// Frees slabs first; then forms steps of fewer rows; then preempts the youngest, so that more slabs
// become free; then waits. A request ends only when the oldest is alone with one row and none of
// that helped.
void plm_recover_refused(struct plim_engine *engine, const struct plm_shape *shape)
{
    struct plm_core *core = engine->core;
    struct plm_recover *r = &engine->recover;
    struct plm_sched_stats sched;
    plm_sched_abandon(engine->sched);
    plm_sched_read(engine->sched, &sched);
    r->refused++;
    if (give_slabs(engine))
        return;
    if (shape->rows > 1) {
        r->rows_max = shape->rows / 2;
    } else if (sched.running > 1) {
        plm_sched_preempt(engine->sched, plm_sched_youngest(engine->sched));
    } else if (r->refused_waits < REFUSED_WAITS) {
        core->clock->sleep_ns(core->clock->ctx, MS << r->refused_waits++);
    } else {
        end_youngest(engine);
        r->refused_waits = 0;
    }
}

void plm_recover_ran(struct plim_engine *engine)
{
    struct plm_recover *r = &engine->recover;
    r->refused = r->refused_waits = 0;
    // Back to whole steps by doubling: the room may come back as slowly as it went.
    r->rows_max = r->rows_max < engine->gate.limits.batch_max_tokens / 2 ? 2 * r->rows_max : 0;
}
