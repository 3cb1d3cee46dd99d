// SPDX-License-Identifier: Apache-2.0
// The device and the weights on it: at the start, and again when the device was lost.
#include "core/engine/load.h"

#include <stdio.h>

#include "core/base/checked.h"
#include "core/engine/forward.h"
#include "core/engine/tune.h"
#include "core/engine/watch.h"
#include "core/engine/window_pools.h"

// Fill, verify and copies of a start, beside the launches of a step.
#define EXTRA_DISPATCHES 64

void plm_core_phase(struct plm_core *core, enum plm_phase phase)
{
    core->phase = phase;
    plm_ledger_phase(core->rank.ledger, phase);
    plm_device_mark(core->rank.device, phase, 0);
}

int plm_core_open_device(struct plm_core *core, struct plm_error *err)
{
    const struct plm_device_opts opts = {
        .host = core->host,
        .clock = core->clock,
        .log = &core->log,
        .threads = core->opts.threads,
        .kernels = core->opts.reference_kernels ? PLM_KERNELS_REFERENCE : PLM_KERNELS_AUTO,
        .max_dispatches = plm_model_max_dispatches(core->model) + EXTRA_DISPATCHES,
        .memory_limit_bytes = core->opts.memory_limit_bytes,
        .backend_opts = core->env.backend_opts};
    core->rank.ledger = plm_ledger_create(core->host);
    if (core->rank.ledger == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the ledger");
    const struct plm_backend *backend = core->env.backend;
    snprintf(core->rank.device_id, sizeof(core->rank.device_id), "%s",
             backend != NULL ? backend->name : core->opts.device);
    int r = backend != NULL ? plm_device_open_backend(backend, &opts, &core->rank.device, err)
                            : plm_device_open(core->opts.device, &opts, &core->rank.device, err);
    if (r != PLM_OK)
        return r;
    plm_model_specialize(core->model, plm_device_caps(core->rank.device));
    plm_core_phase(core, PLM_PHASE_LOAD);
    // Only a device without bytes does with a file that ends after its header.
    return plm_device_caps(core->rank.device)->addresses_only
               ? PLM_OK
               : plm_gguf_check_data(core->gguf, err);
}

bool plm_core_progress(struct plm_core *core, const char *stage, uint64_t done, uint64_t total)
{
    const plim_progress p = {.stage = stage, .done = done, .total = total};
    core->stage = stage;
    if (core->opts.progress != NULL && !core->stopped)
        core->stopped = !core->opts.progress(core->opts.progress_ctx, &p);
    return !core->stopped;
}

int plm_core_stopped(struct plm_error *err)
{
    return plm_fail(err, PLM_ERR_CANCELLED, "the start was stopped by the progress callback");
}

static bool report_load(void *ctx, uint64_t done, uint64_t total)
{
    return plm_core_progress(ctx, "load", done, total);
}

// Bytes that are neither free nor in the ledger; -1 where the device cannot be read, or reports the
// process's own use, which makes the question needless.
static int64_t unexplained(struct plm_core *core)
{
    struct plm_stress_reading r;
    if (plm_core_read(core, &r) != PLM_OK || r.process_use != PLM_PLAN_UNKNOWN)
        return -1;
    return plm_max_i64(0, r.T - r.F - r.O);
}

int plm_core_take_weights(struct plm_core *core, struct plm_error *err)
{
    const int64_t before = unexplained(core);
    const struct plm_load_progress report = {.report = report_load, .ctx = core};
    int r = plm_arena_create(core->host, core->rank.device, core->rank.ledger, PLM_MEM_WEIGHTS, 0,
                             &core->rank.weights);
    if (r != PLM_OK)
        return plm_fail(err, r, "no memory for the weights: %s", plm_strstatus(r));
    r = plm_model_load(core->model, core->rank.device, core->rank.weights, &report, err);
    if (r != PLM_OK)
        return r;
    struct plm_kernel_needs needs;
    plm_model_needs(core->model, &needs);
    if (!plm_core_progress(core, "kernels", 0, 1)) // a driver may compile for minutes
        return plm_core_stopped(err);
    r = plm_device_warm_up(core->rank.device, &needs, err);
    if (r != PLM_OK)
        return r;
    if (!plm_core_progress(core, "kernels", 1, 1))
        return plm_core_stopped(err);
    const int64_t after = unexplained(core);
    core->driver_calls = before >= 0 && after > before ? after - before : 0;
    return PLM_OK;
}

int plm_core_reopen(struct plm_core *core, struct plm_error *err)
{
    plm_core_drop_windows(core);
    plm_arena_destroy(core->rank.ballast);
    plm_arena_destroy(core->rank.workspace);
    plm_arena_destroy(core->rank.weights);
    plm_core_drop_results(core);
    core->rank.ballast = core->rank.workspace = core->rank.weights = NULL;
    int r = plm_device_reopen(core->rank.device, err);
    if (r != PLM_OK)
        return r;
    plm_core_phase(core, PLM_PHASE_LOAD);
    plm_tune_again(core->tune, core->rank.device);
    return plm_core_take_weights(core, err);
}
