// SPDX-License-Identifier: Apache-2.0
// The KV cache follows the load line between steps. Where a neighbour wants memory, in this order:
// cached blocks go, slabs that are free go back, slabs at the top are evacuated into free blocks
// below, admission pauses, and where that does not help or does not wait, the youngest running
// sequences are preempted, to be computed again later. Nothing fails. Relief takes slab by slab
// back. Where steps become slow, memory of ours was pushed out: what is not in use goes at once,
// and nothing grows until they are what they were.
#include "core/engine/pressure.h"

#include "core/base/checked.h"
#include "core/engine/baseline.h"
#include "core/engine/engine.h"
#include "core/engine/histogram.h"
#include "core/engine/monitor.h"
#include "core/engine/recorder.h"

// Copies of one list: within what a list holds beside a step's own dispatches.
#define MOVES_MAX 32u

void plm_pressure_init(struct plim_engine *engine)
{
    const struct plm_core *core = engine->core;
    struct plm_kv_pool_stats pool;
    const uint32_t wish = core->opts.neighbours;
    const bool soft = plm_device_caps(core->rank.device)->commit == PLM_COMMIT_SOFT;
    plm_line_init(&engine->pressure.line, &core->profile.plan,
                  wish == PLIM_NEIGHBOURS_YIELD || (wish == PLIM_NEIGHBOURS_AUTO && soft),
                  core->opts.kv_min_bytes);
    plm_kv_pool_read(core->pool, &pool);
    engine->pressure.line_blocks = pool.total;
    engine->counts.validated_blocks = pool.total;
    engine->counts.limit_bytes = engine->gate.line;
}

// ---- slabs ----

// The line as it lies now: what is resident, and the KV slabs that there are.
static void show_line(struct plim_engine *engine, const struct plm_kv_pool_stats *pool)
{
    engine->gate.line = engine->core->profile.plan.resident + (int64_t)pool->held_bytes;
    engine->counts.limit_bytes = engine->gate.line;
}

int plm_pressure_resize(struct plim_engine *engine, uint32_t blocks)
{
    struct plm_core *core = engine->core;
    struct plm_kv_pool_stats before, after;
    plm_kv_pool_read(core->pool, &before);
    pthread_mutex_lock(&engine->monitor.device_lock);
    const int r = plm_kv_pool_resize(core->pool, blocks, NULL);
    pthread_mutex_unlock(&engine->monitor.device_lock);
    plm_kv_pool_read(core->pool, &after);
    if (after.total != before.total)
        plm_recorder_put(engine->recorder,
                         &(struct plm_record){.kind = PLM_RECORD_RESIZE, .a = after.total});
    if (after.slabs < before.slabs)
        engine->counts.shrinks += before.slabs - after.slabs;
    else
        engine->counts.grows += after.slabs - before.slabs;
    show_line(engine, &after);
    return r;
}

static int copy_blocks(struct plm_core *core, const struct plm_kv_move *moves, uint32_t n)
{
    struct plm_kv_pool_stats pool;
    int r = PLM_OK;
    plm_kv_pool_read(core->pool, &pool);
    for (uint32_t i = 0; i < n && r == PLM_OK; i++) {
        const struct plm_copy_args copy = {.src = plm_kv_pool_addr(core->pool, moves[i].from),
                                           .dst = plm_kv_pool_addr(core->pool, moves[i].to),
                                           .n_words = pool.block_bytes / 4};
        r = plm_launch_copy(core->rank.device, &copy);
    }
    return plm_device_run(core->rank.device, r);
}

// Moves what the highest slab holds into free blocks below, as far as there are any.
static void evacuate(struct plim_engine *engine)
{
    struct plm_core *core = engine->core;
    struct plm_kv_move moves[MOVES_MAX];
    uint32_t n;
    while ((n = plm_kv_pool_plan_moves(core->pool, moves, MOVES_MAX)) > 0) {
        const int r = copy_blocks(core, moves, n);
        if (r != PLM_OK) {
            // A loss is the next step's to find; what did not move stays where it is.
            plm_kv_pool_drop_moves(core->pool, moves, n);
            plm_logf(&core->log, PLM_LOG_WARN, "%u blocks could not be moved: %s", n,
                     plm_strstatus(r));
            return;
        }
        plm_kv_pool_move(core->pool, moves, n);
        plm_sched_moved(engine->sched, moves, n);
        engine->pressure.moved_blocks += n;
    }
}

// ---- less ----

// Cached blocks beyond `blocks` go first; the others move with their slab.
static void drop_cached(struct plim_engine *engine, uint32_t blocks)
{
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(engine->core->pool, &pool);
    if (pool.used + pool.cached > blocks)
        plm_kv_pool_drop_cached(engine->core->pool, pool.used + pool.cached - blocks);
}

// Gives slabs back from the top, as long as they can be emptied.
static void give_back(struct plim_engine *engine, uint32_t blocks)
{
    struct plm_kv_pool_stats pool;
    for (;;) {
        uint32_t first, top = 0, before;
        plm_kv_pool_read(engine->core->pool, &pool);
        before = pool.total;
        if (before <= blocks || !plm_kv_pool_slab(engine->core->pool, pool.slabs - 1, &first, &top))
            return;
        evacuate(engine);
        plm_pressure_resize(engine, before - top);
        plm_kv_pool_read(engine->core->pool, &pool);
        if (pool.total == before)
            return;
    }
}

static void preempt(struct plim_engine *engine, uint32_t blocks)
{
    struct plm_kv_pool_stats pool;
    struct plm_sched_stats sched;
    for (;;) {
        plm_kv_pool_read(engine->core->pool, &pool);
        plm_sched_read(engine->sched, &sched);
        // The oldest fits into the floor.
        if (pool.used <= blocks || sched.running <= 1)
            return;
        plm_sched_preempt(engine->sched, plm_sched_youngest(engine->sched));
    }
}

static void shrink(struct plim_engine *engine, uint32_t blocks)
{
    struct plm_kv_pool_stats pool;
    drop_cached(engine, blocks);
    give_back(engine, blocks);
    plm_kv_pool_read(engine->core->pool, &pool);
    if (pool.total > blocks && engine->pressure.line.urgent) {
        preempt(engine, blocks);
        drop_cached(engine, blocks);
        give_back(engine, blocks);
        plm_kv_pool_read(engine->core->pool, &pool);
    }
    // Running requests may finish; none is admitted meanwhile.
    if (pool.total > blocks)
        plm_sched_set_entry(engine->sched, PLM_ENTRY_NONE);
}

// ---- more ----

static void grow(struct plim_engine *engine, uint32_t blocks)
{
    struct plm_kv_pool_stats pool;
    const int r = plm_pressure_resize(engine, blocks);
    plm_kv_pool_read(engine->core->pool, &pool);
    // A refusal by the device is no error here: the pool stays at this size.
    if (r == PLM_ERR_OUT_OF_DEVICE || r == PLM_ERR_TOO_LARGE || pool.total < blocks)
        plm_line_settle(&engine->pressure.line, pool.total);
}

// ---- steps that take too long ----

// A step counts as slow beyond four times the baseline: a card that another process computes on is
// shared by halves, and clocks fall by less, while a tenth of the memory behind a bus makes a step
// take seven times as long. 2 ms more are for the host's own pauses, which short steps feel.
#define SLOW_STEP     4
#define SLOW_SLACK_NS INT64_C(2000000)
// Eight slow steps in a row are neither a frame of a desktop nor a page fault of the host. The end
// takes 32 normal ones, since a driver brings memory back piece by piece.
#define SLOW_STEPS 8
#define CALM_STEPS 32

static void begin_slow(struct plim_engine *engine, uint32_t rows, int64_t ns, int64_t usual)
{
    struct plm_slow *s = &engine->pressure.slow;
    s->on = true;
    s->since_ns = plm_now(engine->core->clock);
    engine->counts.slow = true;
    engine->counts.slowdowns++;
    plm_logf(
        &engine->core->log, PLM_LOG_WARN,
        "%u steps in a row took far longer than when the plan was proved, the last one of %u "
        "rows %.1f ms in place of %.1f: memory of this process may have been pushed out of the "
        "device%s",
        SLOW_STEPS, rows, (double)ns / 1e6, (double)usual / 1e6,
        engine->pressure.line.yields ? "; what the KV cache does not use is given back" : "");
    plm_monitor_hurry(&engine->monitor); // the driver may say more
}

static void end_slow(struct plim_engine *engine)
{
    struct plm_slow *s = &engine->pressure.slow;
    s->on = s->gives = false;
    engine->counts.slow = false;
    plm_logf(&engine->core->log, PLM_LOG_INFO, "steps take what they took, after %.1f s",
             plm_seconds(s->since_ns, plm_now(engine->core->clock)));
}

void plm_pressure_ran(struct plim_engine *engine, uint32_t rows, uint64_t attended)
{
    const struct plm_core *core = engine->core;
    struct plm_slow *s = &engine->pressure.slow;
    const int64_t ns = core->forward_ns;
    const int64_t usual = plm_baseline_ns(&core->baseline, rows, attended);
    if (usual == 0)
        return;
    const bool over = ns > SLOW_STEP * usual + SLOW_SLACK_NS;
    s->over = over ? s->over + 1 : 0;
    s->calm = over ? 0 : s->calm + 1;
    engine->counts.slow_steps += over;
    if (s->over == SLOW_STEPS) {
        if (!s->on)
            begin_slow(engine, rows, ns, usual);
        // Without readings nothing would bring back what was given.
        s->gives = core->opts.monitor_ms > 0;
        s->over = 0;
    } else if (s->on && s->calm == CALM_STEPS) {
        end_slow(engine);
    }
}

// ---- between steps ----

static void follow(struct plim_engine *engine, const struct plm_stress_reading *reading)
{
    const struct plm_core *core = engine->core;
    const int64_t more = plm_core_mismatch(core, reading);
    if (more != 0 && !engine->pressure.disagrees) {
        engine->counts.ledger_mismatches++;
        plm_logf(&core->log, PLM_LOG_WARN,
                 "the driver says that this process holds %lld bytes, but the ledger has %lld and "
                 "the driver's own were %lld",
                 (long long)reading->process_use, (long long)reading->O,
                 (long long)core->profile.plan.own_drv);
    }
    engine->pressure.disagrees = more != 0;
    const int64_t before = engine->pressure.line.target;
    plm_line_follow(&engine->pressure.line, reading);
    if (engine->pressure.line.target != before)
        plm_logf(&core->log, PLM_LOG_INFO,
                 "others hold %lld MiB of the device: the line of the KV cache goes from %lld "
                 "blocks to %lld, in whole allocations",
                 (long long)(plm_max_i64(0, reading->T - reading->F - reading->O) >> 20),
                 (long long)before, (long long)engine->pressure.line.target);
}

// Whether the pool may follow the line: not while the engine sleeps, nor while the device is lost.
static bool may_move(const struct plim_engine *engine, bool asleep)
{
    return !asleep && !engine->recover.down && !engine->recover.gone &&
           plm_device_status(engine->core->rank.device) == PLM_OK;
}

bool plm_pressure_due(struct plim_engine *engine, int64_t now_ns)
{
    struct plm_kv_pool_stats pool;
    plm_monitor_poll(&engine->monitor, now_ns);
    pthread_mutex_lock(&engine->lock);
    const bool news = engine->monitor.fresh;
    pthread_mutex_unlock(&engine->lock);
    plm_kv_pool_read(engine->core->pool, &pool);
    return news || engine->pressure.slow.on || pool.total != engine->pressure.line_blocks ||
           plm_line_size(&engine->pressure.line, pool.total) != pool.total;
}

bool plm_pressure_step(struct plim_engine *engine, int64_t now_ns, bool asleep)
{
    struct plm_stress_reading reading;
    struct plm_kv_pool_stats before, after;
    plm_monitor_poll(&engine->monitor, now_ns);
    const bool news = plm_monitor_take(&engine->monitor, &reading);
    if (!may_move(engine, asleep))
        return false;
    plm_kv_pool_read(engine->core->pool, &before);
    // Others resize it, too: a wake, a device that came back, a refused submit. What they left is
    // where the line goes on.
    if (before.total != engine->pressure.line_blocks)
        plm_line_restart(&engine->pressure.line, before.total);
    else if (news)
        follow(engine, &reading);
    if (engine->pressure.slow.on) {
        plm_line_press(&engine->pressure.line,
                       engine->pressure.slow.gives ? before.used : before.total);
        engine->pressure.slow.gives = false;
    }
    const uint32_t size = (uint32_t)plm_line_size(&engine->pressure.line, before.total);
    if (size < before.total)
        shrink(engine, size);
    else if (size > before.total)
        grow(engine, size);
    plm_kv_pool_read(engine->core->pool, &after);
    engine->pressure.line_blocks = after.total;
    show_line(engine, &after);
    return after.total != before.total;
}
