// SPDX-License-Identifier: Apache-2.0
// What the driver says of the device's memory: one reading, and the monitor of the stress, which
// samples what driver and process take beside our own bytes while forwards run, since what is taken
// and given back inside one shows at no other time.

#include "core/engine/watch.h"

#include "core/base/checked.h"
#include "core/base/thread.h"
#include "core/engine/core.h"

int plm_core_read(void *ctx, struct plm_stress_reading *ret)
{
    struct plm_core *core = ctx;
    struct plm_mem_info info;
    struct plm_ledger_stats ledger;
    int r = plm_device_query_free(core->rank.device, &info);
    if (r != PLM_OK)
        return r;
    plm_ledger_read(core->rank.ledger, &ledger);
    *ret = (struct plm_stress_reading){.T = (int64_t)info.total_bytes,
                                       .F = (int64_t)info.free_bytes,
                                       .O = ledger.held_bytes,
                                       .K = ledger.by_class[PLM_MEM_KV].held_bytes -
                                            core->windows_bytes,
                                       .ballast = ledger.by_class[PLM_MEM_BALLAST].held_bytes,
                                       .process_use = PLM_PLAN_UNKNOWN};
    if (plm_device_caps(core->rank.device)->reports_process_use)
        ret->process_use = (int64_t)info.process_use_bytes;
    // Where others can push us out, free memory ends at 0 and tells no more how much they want; the
    // driver's advice does. It is below what we hold then, and free below 0.
    const int64_t own = ret->process_use != PLM_PLAN_UNKNOWN ? ret->process_use
                                                             : ret->O + core->profile.plan.own_drv;
    if (info.budget_bytes > 0)
        ret->F = plm_min_i64(ret->F, (int64_t)info.budget_bytes - own);
    for (uint32_t i = 0; i < info.n_cgroups && i < PLM_PLAN_CGROUPS_MAX; i++) {
        const struct plm_cgroup *level = &info.cgroups[i];
        ret->cgroups[ret->n_cgroups++] =
            (struct plm_plan_cgroup){.limit = (int64_t)level->limit_bytes,
                                     .current = (int64_t)level->current_bytes,
                                     .reclaimable = (int64_t)level->reclaimable_bytes};
    }
    return PLM_OK;
}

// ---- the monitor of the stress ----

// 1 ms: the worst steps, which the stress runs, last longer; one reading costs a fraction of it.
#define SAMPLE_NS INT64_C(1000000)

static void sample(struct plm_core *core, int64_t *peak)
{
    struct plm_mem_info info;
    struct plm_ledger_stats ledger;
    if (plm_device_query_free(core->rank.device, &info) != PLM_OK)
        return;
    plm_ledger_read(core->rank.ledger, &ledger);
    int64_t bytes = (int64_t)info.total_bytes - (int64_t)info.free_bytes; // ours and others'
    if (plm_device_caps(core->rank.device)->reports_process_use)
        bytes = (int64_t)info.process_use_bytes;
    *peak = plm_max_i64(*peak, bytes - ledger.held_bytes);
}

static void *watch(void *arg)
{
    struct plm_core *core = arg;
    while (!atomic_load(&core->watch.stop)) {
        sample(core, &core->watch.peak);
        core->clock->sleep_ns(core->clock->ctx, SAMPLE_NS);
    }
    return NULL;
}

void plm_core_watch(void *ctx, bool on, int64_t *ret_peak)
{
    struct plm_core *core = ctx;
    struct plm_watch *w = &core->watch;
    if (on) {
        w->peak = 0;
        atomic_store(&w->stop, false);
        // Without a thread the loop's own readings after each pass are left. A clock that is not
        // the system's belongs to a simulation, which a thread of its own would make random.
        w->runs = core->clock == plm_clock_system() && plm_thread_start(&w->thread, 0, watch, core);
        return;
    }
    if (w->runs) {
        atomic_store(&w->stop, true);
        pthread_join(w->thread, NULL);
        w->runs = false;
    }
    *ret_peak = w->peak;
}
