// SPDX-License-Identifier: Apache-2.0
// What others may know of a running engine: metrics, plan and memory. All of it from copies; the
// engine's thread is never waited for.
#include "core/engine/report.h"

#include <string.h>

#include "core/engine/admission.h"
#include "core/engine/engine.h"
#include "core/engine/monitor.h"
#include "core/engine/plan.h"
#include "core/engine/request.h"
#include "core/engine/text_out.h"
#include "core/engine/tune.h"

// ---- metrics ----

// Tokens that all requests together generate until the first running one ends: what Retry-After is
// made of. A walk over all, so only now and then.
#define FORECAST_STEPS 16

static void forecast(struct plim_engine *engine, uint32_t running)
{
    uint32_t least = UINT32_MAX;
    const uint64_t stamp = ++engine->forecast.n;
    engine->forecast.all_tokens = 0;
    engine->forecast.requests = 0;
    for (uint32_t i = 0; i < running; i++) {
        const struct plm_choice *choice =
            (const struct plm_choice *)plm_sched_running_at(engine->sched, i);
        uint32_t left = choice->max_output - choice->completions;
        least = left < least ? left : least;
        engine->forecast.all_tokens +=
            plm_admit_expected(left, choice->request->ignore_eos, engine->forecast.mean_output);
        // Its first running choice stands for the request.
        engine->forecast.requests += choice->request->counted_at != stamp;
        choice->request->counted_at = stamp;
    }
    engine->forecast.tokens = running > 0 ? (uint64_t)least * running : 0;
}

void plm_step_publish(struct plim_engine *engine)
{
    struct plm_sched_stats sched;
    struct plm_kv_pool_stats pool;
    struct plm_device_counters device;
    plm_sched_read(engine->sched, &sched);
    plm_kv_pool_read(engine->core->pool, &pool);
    plm_device_counters(engine->core->rank.device, &device);
    plim_metrics *m = &engine->counts;
    m->running = sched.running;
    m->preempted = sched.paused;
    m->preemptions = sched.preemptions + sched.yields;
    m->blocks_total = pool.total;
    m->blocks_used = pool.used;
    m->blocks_cached = pool.cached;
    m->blocks_free = pool.free;
    m->kv_usage = pool.total > 0 ? (double)pool.used / pool.total : 0.0;
    m->allocations_in_step = device.allocs_in_step;
    m->resizes = device.resizes;
    m->audit_excess = engine->gate.audit_excess;
    m->resubmits = engine->core->resubmits;
    const uint32_t attempts = engine->core->profile.attempts;
    m->plan_shrinks = attempts > 0 ? attempts - 1 : 0;
    m->ready = !engine->recover.down && !engine->recover.gone;
    m->lost = engine->recover.gone;
    if (m->steps % FORECAST_STEPS == 0 || sched.running == 0)
        forecast(engine, sched.running);
    pthread_mutex_lock(&engine->lock);
    // Sequences that wait although their request began (forks, preempted ones) are beside those
    // that admission counts.
    m->waiting = engine->admission.waiting + sched.paused + sched.forks;
    engine->published = *m;
    for (uint32_t g = 0; g < engine->core->kv.n_groups; g++)
        plm_kv_pool_read(engine->core->kv.pools[g], &engine->groups[g]);
    engine->admission.state.blocks_total = pool.total;
    engine->admission.state.blocks_available = pool.free + pool.cached;
    engine->admission.state.sequences = sched.running;
    engine->admission.state.tokens_per_s = engine->forecast.tokens_per_s;
    engine->admission.state.tokens_to_blocks = engine->forecast.tokens;
    engine->admission.state.running_tokens = engine->forecast.all_tokens;
    engine->admission.state.requests = engine->forecast.requests;
    engine->admission.state.mean_output = engine->forecast.mean_output;
    pthread_mutex_unlock(&engine->lock);
}

static int64_t step_age(const plim_engine *engine)
{
    int64_t last = atomic_load(&((plim_engine *)(uintptr_t)engine)->last_step_ns);
    if (last == 0)
        return 0;
    int64_t age = plm_now(engine->core->clock) - last;
    return age > 0 ? age : 0;
}

static void add_memory(const plim_engine *engine, plim_metrics *m)
{
    const struct plm_core *core = engine->core;
    struct plm_ledger_stats ledger;
    struct plm_host_stats host;
    plm_ledger_read(core->rank.ledger, &ledger);
    plm_host_read(core->host, &host);
    _Static_assert(PLM_MEM_CLASSES == 9, "plim_metrics has one field per class");
    m->weights_bytes = ledger.by_class[PLM_MEM_WEIGHTS].held_bytes;
    m->kv_bytes = ledger.by_class[PLM_MEM_KV].held_bytes;
    m->state_bytes = ledger.by_class[PLM_MEM_STATE].held_bytes;
    m->workspace_bytes = ledger.by_class[PLM_MEM_WORKSPACE].held_bytes;
    m->encoder_bytes = ledger.by_class[PLM_MEM_ENCODER].held_bytes;
    m->graph_bytes = ledger.by_class[PLM_MEM_GRAPH].held_bytes;
    m->staging_bytes = ledger.by_class[PLM_MEM_STAGING].held_bytes;
    m->ballast_bytes = ledger.by_class[PLM_MEM_BALLAST].held_bytes;
    m->other_bytes = ledger.by_class[PLM_MEM_OTHER].held_bytes;
    m->margin_bytes = core->profile.plan.margin;
    m->used_bytes = ledger.held_bytes;
    m->high_water_bytes = plm_ledger_high_water(&ledger);
    m->host_used_bytes = host.used_bytes;
    m->host_limit_bytes = host.limit_bytes;
    m->host_idle_bytes = engine->admission.limits.host_idle;
}

void plm_report_metrics(const plim_engine *engine, plim_metrics *ret)
{
    plim_engine *e = (plim_engine *)(uintptr_t)engine; // the lock is no part of what is observed
    pthread_mutex_lock(&e->lock);
    plim_metrics m = e->published;
    m.rejected_never = e->admission.rejected_never;
    m.rejected_now = e->admission.rejected_now;
    m.rejected_queue = e->admission.rejected_queue;
    m.rejected_context = e->admission.rejected_context;
    m.draining = e->draining;
    m.asleep = e->sleep.state == PLM_ASLEEP;
    m.foreign_bytes = e->monitor.others_bytes;
    m.largest_free_bytes = e->monitor.n_readings > 0 ? e->monitor.reading.F : 0;
    pthread_mutex_unlock(&e->lock);
    add_memory(engine, &m);
    m.sealed = plm_device_sealed(engine->core->rank.device);
    m.last_step_age_ns = step_age(engine);
    m.struct_size = sizeof(m);
    *ret = m;
}

// ---- plan ----

static int engine_plan(const plim_engine *engine, bool json, char *out, size_t cap, size_t *need)
{
    struct plm_buf buf;
    if (engine == NULL)
        return PLIM_ERR_INVALID;
    plm_buf_init(&buf, engine->core->host, PLM_HOST_OTHER);
    plm_core_write_plan(engine->core, json, &buf);
    return plm_buf_out(&buf, out, cap, need);
}

int plim_engine_plan_json(const plim_engine *engine, char *out, size_t cap, size_t *need)
{
    return engine_plan(engine, true, out, cap, need);
}

int plim_engine_plan_table(const plim_engine *engine, char *out, size_t cap, size_t *need)
{
    return engine_plan(engine, false, out, cap, need);
}

int plim_engine_defaults(const plim_engine *engine, char *out, size_t cap, size_t *need)
{
    struct plm_report_head head;
    struct plm_buf buf;
    if (engine == NULL)
        return PLIM_ERR_INVALID;
    const struct plm_core *core = engine->core;
    plm_buf_init(&buf, core->host, PLM_HOST_OTHER);
    plm_core_report_head(core, plm_device_caps(core->rank.device), NULL, &head);
    plm_report_defaults(&buf, &head, &core->profile.plan);
    return plm_buf_out(&buf, out, cap, need);
}

// ---- what a next start can use ----

int plim_engine_certificate(const plim_engine *engine, char *out, size_t cap, size_t *need)
{
    if (engine == NULL)
        return PLIM_ERR_INVALID;
    const struct plm_core *core = engine->core; // key and proof never change
    struct plm_buf buf;
    if (core->key.n == 0)
        return plm_text_out("", 0, out, cap, need);
    plm_buf_init(&buf, core->host, PLM_HOST_OTHER);
    plm_cert_write(&buf, &core->key, &core->proved);
    return plm_buf_out(&buf, out, cap, need);
}

int plim_engine_tuning(const plim_engine *engine, char *out, size_t cap, size_t *need)
{
    if (engine == NULL)
        return PLIM_ERR_INVALID;
    const struct plm_core *core = engine->core;
    struct plm_buf buf;
    plm_buf_init(&buf, core->host, PLM_HOST_OTHER);
    if (core->tune != NULL)
        plm_tuning_write(&core->tune->found, &buf);
    return plm_buf_out(&buf, out, cap, need);
}

// ---- memory ----

// What /v1/memory lists, copied under the lock.
struct lists {
    struct plm_report_refusal refusals[PLM_REFUSALS];
    struct plm_report_neighbour neighbours[PLM_NEIGHBOURS];
    uint32_t n_refusals, n_neighbours;
    struct plm_kv_pool_stats groups[PLM_KV_GROUPS_MAX];
};

static void copy_lists(plim_engine *e, struct lists *ret)
{
    pthread_mutex_lock(&e->lock);
    const uint64_t n = e->admission.n_refusals, events = e->monitor.n_events;
    ret->n_refusals = n < PLM_REFUSALS ? (uint32_t)n : PLM_REFUSALS;
    for (uint32_t i = 0; i < ret->n_refusals; i++)
        ret->refusals[i] = e->admission.refusals[(n - ret->n_refusals + i) % PLM_REFUSALS];
    ret->n_neighbours = events < PLM_NEIGHBOURS ? (uint32_t)events : PLM_NEIGHBOURS;
    for (uint32_t i = 0; i < ret->n_neighbours; i++)
        ret->neighbours[i] = e->monitor.events[(events - ret->n_neighbours + i) % PLM_NEIGHBOURS];
    memcpy(ret->groups, e->groups, sizeof(ret->groups));
    pthread_mutex_unlock(&e->lock);
}

static void write_memory(const plim_engine *engine, const plim_metrics *m,
                         const struct lists *lists, struct plm_buf *buf)
{
    const struct plm_core *core = engine->core;
    const struct plm_report_counter counters[] = {
        {"allocations_in_step", (int64_t)m->allocations_in_step},
        {"resizes", (int64_t)m->resizes},
        {"audit_excess", (int64_t)m->audit_excess},
        {"steps", (int64_t)m->steps},
        {"preemptions", (int64_t)m->preemptions},
        {"refused_never", (int64_t)m->rejected_never},
        {"refused_now", (int64_t)m->rejected_now},
        {"refused_queue", (int64_t)m->rejected_queue},
        {"refused_context", (int64_t)m->rejected_context},
        {"plan_shrinks", (int64_t)m->plan_shrinks},
        {"validated_blocks", (int64_t)m->validated_blocks},
        {"shrinks", (int64_t)m->shrinks},
        {"grows", (int64_t)m->grows},
        {"ledger_mismatches", (int64_t)m->ledger_mismatches},
        {"losses", (int64_t)m->losses},
        {"reopened", (int64_t)m->reopened},
        {"replays", (int64_t)m->replays},
        {"poisoned", (int64_t)m->poisoned},
        {"resubmits", (int64_t)m->resubmits},
        {"stalls", (int64_t)m->stalls},
        {"incidents", (int64_t)m->incidents},
        {"slow_steps", (int64_t)m->slow_steps},
        {"slowdowns", (int64_t)m->slowdowns},
        {"slow", m->slow},
    };
    struct plm_report_device device = {.id = core->rank.device_id,
                                       .name = plm_device_caps(core->rank.device)->name,
                                       .workers = plm_device_caps(core->rank.device)->workers,
                                       .plan = &core->profile.plan,
                                       .limit_bytes = m->limit_bytes,
                                       .foreign_bytes = m->foreign_bytes,
                                       .n_groups = core->kv.n_groups};
    const uint32_t context = core->profile.plan.in.limits.max_context;
    const struct plm_model_facts *facts = plm_model_facts(core->model);
    for (uint32_t g = 0; g < core->kv.n_groups; g++)
        device.groups[g] =
            (struct plm_report_group){.window = plm_kv_window(core->kv.windows[g], context),
                                      .type = plm_kv_type_name(facts->groups[g].type),
                                      .block_bytes = lists->groups[g].block_bytes,
                                      .total = lists->groups[g].total,
                                      .used = lists->groups[g].used,
                                      .cached = lists->groups[g].cached,
                                      .free = lists->groups[g].free};
    plm_ledger_read(core->rank.ledger, &device.ledger);
    struct plm_report_memory memory = {.wall_ns = core->clock->wall_ns(core->clock->ctx),
                                       .ready = m->ready,
                                       .sealed = m->sealed,
                                       .asleep = m->asleep,
                                       .devices = &device,
                                       .n_devices = 1,
                                       .running = m->running,
                                       .waiting = m->waiting,
                                       .preempted = m->preempted,
                                       .refusals = lists->refusals,
                                       .n_refusals = lists->n_refusals,
                                       .neighbours = lists->neighbours,
                                       .n_neighbours = lists->n_neighbours,
                                       .counters = counters,
                                       .n_counters = sizeof(counters) / sizeof(counters[0])};
    plm_host_read(core->host, &memory.host);
    plm_report_memory_json(buf, &memory);
}

int plim_engine_memory_json(const plim_engine *engine, char *out, size_t cap, size_t *need)
{
    struct lists lists;
    struct plm_buf buf;
    plim_metrics m;
    if (engine == NULL)
        return PLIM_ERR_INVALID;
    plm_report_metrics(engine, &m);
    copy_lists((plim_engine *)(uintptr_t)engine, &lists);
    plm_buf_init(&buf, engine->core->host, PLM_HOST_OTHER);
    write_memory(engine, &m, &lists, &buf);
    return plm_buf_out(&buf, out, cap, need);
}
