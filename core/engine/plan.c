// SPDX-License-Identifier: Apache-2.0
// Plans without an engine: measured as a start measures, or dry, from a header alone.
#include "core/engine/plan.h"

#include <stdio.h>

#include "core/base/checked.h"
#include "core/engine/core.h"
#include "core/engine/defaults.h"
#include "core/engine/env.h"
#include "core/engine/error.h"
#include "core/engine/host_budget.h"
#include "core/engine/opts.h"
#include "core/engine/text_out.h"
#include "core/plan/diff.h"
#include "core/plan/dry.h"

// To compare two texts: their leaves and the lines about them are a few times as long as they are.
#define DIFF_HOST_BYTES (64u << 20)

struct plim_plan {
    struct plm_host *host;
    struct plm_buf json;
    struct plm_buf table;
};

void plm_core_write_plan(const struct plm_core *core, bool json, struct plm_buf *buf)
{
    struct plm_ledger_stats ledger;
    struct plm_report_head head;
    plm_ledger_read(core->rank.ledger, &ledger);
    plm_core_report_head(core, plm_device_caps(core->rank.device), &ledger, &head);
    if (json)
        plm_report_plan_json(buf, &head, &core->profile.plan, &core->profile);
    else
        plm_report_plan_table(buf, &head, &core->profile.plan, &core->profile);
}

// ---- the text of a plan ----

static plim_plan *plan_alloc(struct plm_host *host, plim_error *err)
{
    plim_plan *plan = plm_calloc(host, PLM_HOST_OTHER, 1, sizeof(*plan));
    if (plan == NULL) {
        plm_error_set(err, PLIM_ERR_NOMEM_HOST, NULL, "no host memory for a plan");
        return NULL;
    }
    plan->host = host;
    plm_buf_init(&plan->json, host, PLM_HOST_OTHER);
    plm_buf_init(&plan->table, host, PLM_HOST_OTHER);
    return plan;
}

// Without its host.
static void plan_destroy(plim_plan *plan)
{
    plm_buf_finish(&plan->json);
    plm_buf_finish(&plan->table);
    plm_free(plan->host, plan);
}

void plim_plan_free(plim_plan *plan)
{
    if (plan == NULL)
        return;
    struct plm_host *host = plan->host;
    plan_destroy(plan);
    plm_host_destroy(host);
}

int plim_plan_json(const plim_plan *plan, char *out, size_t cap, size_t *need)
{
    if (plan == NULL)
        return PLIM_ERR_INVALID;
    return plm_text_out(plan->json.data, plan->json.len, out, cap, need);
}

int plim_plan_table(const plim_plan *plan, char *out, size_t cap, size_t *need)
{
    if (plan == NULL)
        return PLIM_ERR_INVALID;
    return plm_text_out(plan->table.data, plan->table.len, out, cap, need);
}

// Hands the plan over if its texts were written, else destroys it.
static int plan_out(plim_plan *plan, int r, const struct plm_error *why, plim_plan **ret,
                    plim_error *err)
{
    if (r == PLM_OK && !plan->json.failed && !plan->table.failed) {
        *ret = plan;
        return PLIM_OK;
    }
    plan_destroy(plan);
    return r != PLM_OK ? plm_error_out(err, r, why)
                       : plm_error_set(err, PLIM_ERR_NOMEM_HOST, NULL, "no host memory for a plan");
}

// ---- measured ----

int plm_plan_create_in(const struct plm_engine_env *env, const plim_engine_opts *opts,
                       plim_plan **ret, plim_error *err)
{
    struct plm_core *core;
    struct plm_error why = {0};
    plim_plan *plan = plan_alloc(env->host, err);
    if (plan == NULL)
        return PLIM_ERR_NOMEM_HOST;
    int r = plm_core_create(env, opts, &core, &why);
    if (r == PLM_OK) {
        plm_core_write_plan(core, true, &plan->json);
        plm_core_write_plan(core, false, &plan->table);
        plm_core_destroy(core);
    }
    return plan_out(plan, r, &why, ret, err);
}

int plim_plan_create(const plim_engine_opts *opts, plim_plan **ret, plim_error *err)
{
    plim_engine_opts o;
    struct plm_engine_env env;
    plim_error error = PLIM_INIT(plim_error);
    if (ret != NULL)
        *ret = NULL;
    int r = plm_start_begin(opts, ret, &o, &env, &error);
    if (r == PLIM_OK) {
        r = plm_plan_create_in(&env, &o, ret, &error);
        if (r != PLIM_OK)
            plm_host_destroy(env.host);
    }
    return plm_error_give(err, r, &error);
}

// ---- dry ----

// What the ledger would hold at READY.
static void dry_ledger(const struct plm_core *core, const struct plm_plan *plan,
                       struct plm_ledger_stats *ret)
{
    const struct plm_shape shape = plm_limits_shape(&plan->in.limits);
    *ret = (struct plm_ledger_stats){0};
    ret->by_class[PLM_MEM_WEIGHTS].held_bytes = (int64_t)core->weight_sizes.held_bytes;
    ret->by_class[PLM_MEM_WORKSPACE].held_bytes =
        plm_round_up_i64(plm_cost(plm_model_cost_table(core->model), &shape), plan->in.g);
    ret->by_class[PLM_MEM_KV].held_bytes = plan->kv_bytes + plan->windows_bytes;
    for (int i = 0; i < PLM_MEM_CLASSES; i++)
        ret->held_bytes += ret->by_class[i].held_bytes;
}

// The same questions in the same order as a start asks them, with the kind's figures in place of
// the device.
static int dry_run(struct plm_core *core, const struct plm_dry_kind *kind, uint64_t device_bytes,
                   plim_plan *plan, struct plm_error *err)
{
    struct plm_caps caps;
    struct plm_profile_opts opts;
    struct plm_stress_reading reading;
    struct plm_plan result;
    plm_dry_caps(kind, device_bytes, &caps);
    plm_model_specialize(core->model, &caps);
    plm_dry_reading(&caps, device_bytes, &reading);
    snprintf(core->rank.device_id, sizeof(core->rank.device_id), "%s", core->opts.device);
    int r = plm_opts_check_kv_type(&core->opts, &caps, kind->name, err);
    if (r == PLM_OK)
        r = plm_opts_check(&core->opts, caps.unified, &plm_model_facts(core->model)->groups[0],
                           err);
    if (r == PLM_OK)
        r = plm_model_weight_sizes(core->model, &caps, plm_dry_layout, kind, &core->weight_sizes,
                                   err);
    if (r != PLM_OK)
        return r;
    plm_core_choose(core, &caps, &reading);
    plm_core_profile_opts(core, &caps, core->weight_sizes.slabs, &opts);
    opts.host_needs = plm_core_host_needs(core, (int64_t)device_bytes);
    r = plm_plan_dry(&opts, &reading, (int64_t)core->weight_sizes.held_bytes, &result, err);
    if (r == PLM_OK)
        r = plm_core_preflight_host(core, (int64_t)device_bytes, err);
    if (r != PLM_OK)
        return r;
    struct plm_ledger_stats ledger;
    struct plm_report_head head;
    dry_ledger(core, &result, &ledger);
    plm_core_report_head(core, &caps, &ledger, &head);
    head.dry = true;
    plm_report_plan_json(&plan->json, &head, &result, NULL);
    plm_report_plan_table(&plan->table, &head, &result, NULL);
    return PLM_OK;
}

static int plan_dry(const plim_engine_opts *opts, uint64_t device_bytes, plim_plan **ret,
                    plim_error *err)
{
    plim_engine_opts o;
    struct plm_engine_env env;
    struct plm_core *core;
    struct plm_error why = {0};
    int r = plm_start_begin(opts, ret, &o, &env, err);
    if (r != PLIM_OK)
        return r;
    const struct plm_dry_kind *kind = plm_dry_kind(o.device);
    if (kind == NULL || device_bytes == 0 || device_bytes > PLM_PLAN_BYTES_MAX) {
        plm_host_destroy(env.host);
        return kind == NULL ? plm_error_set(err, PLIM_ERR_INVALID, "device",
                                            "there are no figures for a device \"%.40s\"; there "
                                            "are for: %s",
                                            o.device, plm_dry_kind_names())
                            : plm_error_set(err, PLIM_ERR_INVALID, "device_bytes",
                                            "a device of %llu bytes can not be planned for",
                                            (unsigned long long)device_bytes);
    }
    plim_plan *plan = plan_alloc(env.host, err);
    if (plan == NULL) {
        plm_host_destroy(env.host);
        return PLIM_ERR_NOMEM_HOST;
    }
    r = plm_fail_about(&why, plm_device_check_id(env.host, o.device, &why), "device");
    if (r == PLM_OK)
        r = plm_core_open(&env, &o, &core, &why);
    if (r == PLM_OK) {
        r = dry_run(core, kind, device_bytes, plan, &why);
        plm_core_destroy(core);
    }
    r = plan_out(plan, r, &why, ret, err);
    if (r != PLIM_OK)
        plm_host_destroy(env.host);
    return r;
}

int plim_plan_dry(const plim_engine_opts *opts, uint64_t device_bytes, plim_plan **ret,
                  plim_error *err)
{
    plim_error error = PLIM_INIT(plim_error);
    if (ret != NULL)
        *ret = NULL;
    return plm_error_give(err, plan_dry(opts, device_bytes, ret, &error), &error);
}

// ---- differences ----

static int plan_diff(struct plm_slice a, struct plm_slice b, char *out, size_t cap, size_t *need,
                     plim_error *err)
{
    struct plm_error why = {0};
    struct plm_buf buf;
    if (a.ptr == NULL || b.ptr == NULL)
        return plm_error_null(err, a.ptr == NULL ? "a" : "b");
    if (plm_error_place(out, cap, err) != PLIM_OK)
        return PLIM_ERR_INVALID;
    struct plm_host *host = plm_host_create(DIFF_HOST_BYTES);
    if (host == NULL)
        return plm_error_set(err, PLIM_ERR_NOMEM_HOST, NULL, "no host memory to compare plans");
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    int r = plm_plan_diff(host, a, b, &buf, &why);
    // LIMIT is about the caller's buffer here.
    if (r != PLM_OK)
        r = plm_error_out(err, r == PLM_ERR_LIMIT ? PLM_ERR_FORMAT : r, &why);
    else
        r = plm_text_out(buf.data, buf.len, out, cap, need);
    plm_buf_finish(&buf);
    plm_host_destroy(host);
    return r;
}

int plim_plan_diff(const char *a, size_t a_len, const char *b, size_t b_len, char *out, size_t cap,
                   size_t *need, plim_error *err)
{
    plim_error error = PLIM_INIT(plim_error);
    const int r = plan_diff((struct plm_slice){a, a_len}, (struct plm_slice){b, b_len}, out, cap,
                            need, &error);
    return plm_error_give(err, r, &error);
}
