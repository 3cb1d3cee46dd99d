// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan.h"

#include <stddef.h>

#include "core/base/checked.h"
#include "core/base/fault_seed.h"
#include "core/kv/group.h"
#include "kernels/abi.h"

const char *plm_plan_term_name(enum plm_plan_term term)
{
    static const char *const names[PLM_TERMS] = {"device", "memory-limit", "cgroup", "budget",
                                                 "cap",    "default",      "pinned", "ranks",
                                                 "resize", "shrink"};
    return (unsigned)term < PLM_TERMS ? names[term] : "?";
}

bool plm_limits_within(const struct plm_plan_limits *limits, const struct plm_plan_limits *most)
{
    return limits->batch_max_tokens <= most->batch_max_tokens &&
           limits->max_sequences <= most->max_sequences &&
           limits->max_context <= most->max_context &&
           limits->state_checkpoints <= most->state_checkpoints &&
           limits->cached_windows <= most->cached_windows;
}

int64_t plm_limits_blocks_per_request(const struct plm_plan_limits *limits)
{
    return (int64_t)plm_div_ceil(limits->max_context, PLM_KV_BLOCK_TOKENS);
}

uint32_t plm_plan_main_window(const struct plm_plan_input *in)
{
    return plm_kv_window(in->window, in->limits.max_context);
}

int64_t plm_plan_request_blocks(const struct plm_plan_input *in)
{
    struct plm_plan_limits alone = in->limits;
    const uint32_t window = plm_plan_main_window(in);
    if (window == 0)
        return plm_limits_blocks_per_request(&in->limits);
    alone.max_sequences = 1;
    return plm_plan_window_least(&alone, window);
}

int64_t plm_plan_least_blocks(const struct plm_plan_input *in)
{
    const uint32_t window = plm_plan_main_window(in);
    return window != 0 ? plm_plan_window_least(&in->limits, window) : in->limits.max_sequences;
}

// ---- inputs ----

struct field {
    const char *name;
    int64_t value, least, most;
};

static int check_fields(const struct field *fields, size_t n, struct plm_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (fields[i].value < fields[i].least || fields[i].value > fields[i].most)
            return plm_fail(err, PLM_ERR_INVALID, "plan: %s is %lld; it must be within %lld..%lld",
                            fields[i].name, (long long)fields[i].value, (long long)fields[i].least,
                            (long long)fields[i].most);
    }
    return PLM_OK;
}

static int check_cgroups(const struct plm_plan_input *in, struct plm_error *err)
{
    for (uint32_t i = 0; i < in->n_cgroups; i++) {
        const struct plm_plan_cgroup *c = &in->cgroups[i];
        const struct field fields[] = {
            {"cgroup limit", c->limit, 0, PLM_PLAN_BYTES_MAX},
            {"cgroup current", c->current, -4 * PLM_PLAN_BYTES_MAX, 4 * PLM_PLAN_BYTES_MAX},
            {"cgroup reclaimable", c->reclaimable, 0, PLM_PLAN_BYTES_MAX},
        };
        int r = check_fields(fields, sizeof(fields) / sizeof(*fields), err);
        if (r != PLM_OK)
            return r;
    }
    return PLM_OK;
}

int plm_plan_check(const struct plm_plan_input *in, struct plm_error *err)
{
    const int64_t most = PLM_PLAN_BYTES_MAX;
    const struct field fields[] = {
        {"granularity", in->g, 1, PLM_PLAN_G_MAX},
        {"total", in->T, 0, most},
        {"free", in->F, -4 * most, most},
        {"own bytes", in->O, 0, 4 * most},
        {"probe KV", in->K, 0, most},
        {"process use", in->process_use, PLM_PLAN_UNKNOWN, 4 * most},
        {"context bytes", in->context_bytes, 0, most},
        {"driver calls", in->driver_calls, 0, most},
        {"unheld encoder bytes", in->unheld, 0, most},
        {"memory limit", in->operator_limit, 0, most},
        {"cgroup levels", in->n_cgroups, 0, PLM_PLAN_CGROUPS_MAX},
        {"growth", in->growth, 0, most / 4},
        {"withheld", in->withheld, 0, most},
        {"host limit", in->host_limit, 0, most},
        {"host bytes of the caller", in->host_caller, 0, most},
        {"batch_max_tokens", in->limits.batch_max_tokens, 1, INT32_MAX},
        {"max_sequences", in->limits.max_sequences, 1, INT32_MAX},
        {"max_context", in->limits.max_context, 1, INT32_MAX},
        {"state checkpoints", in->limits.state_checkpoints, 0, INT32_MAX},
        {"cached windows", in->limits.cached_windows, 0, INT32_MAX},
        {"most blocks", in->limits.max_blocks, 0, PLM_POOL_BLOCKS_MAX},
        {"groups with a window", in->n_windows, 0, PLM_PLAN_WINDOWS_MAX},
        {"state bytes", in->state_bytes, 0, PLM_PLAN_BLOCK_BYTES_MAX},
        {"block bytes", in->block_bytes, 1, PLM_PLAN_BLOCK_BYTES_MAX},
        {"largest slab", in->max_slab_bytes, 0, INT64_MAX},
        {"prefix cache blocks", in->prefix_cache_blocks, PLM_PLAN_UNKNOWN, PLM_POOL_BLOCKS_MAX},
        {"max-total-tokens", in->pinned_tokens, 0,
         (int64_t)PLM_POOL_BLOCKS_MAX * PLM_KV_BLOCK_TOKENS},
    };
    int r = check_fields(fields, sizeof(fields) / sizeof(*fields), err);
    if (r == PLM_OK)
        r = check_cgroups(in, err);
    for (uint32_t i = 0; r == PLM_OK && i < in->n_windows; i++) {
        const struct field window[] = {
            {"window", in->windows[i].window, 1, UINT32_MAX},
            {"block bytes of a window", in->windows[i].block_bytes, 1, PLM_PLAN_BLOCK_BYTES_MAX},
        };
        r = check_fields(window, sizeof(window) / sizeof(*window), err);
    }
    if (r != PLM_OK)
        return r;
    if (!(in->memory_fraction > 0 && in->memory_fraction <= 1)) // NaN fails, too
        return plm_fail(err, PLM_ERR_INVALID, "plan: memory fraction is %g; it must be in (0, 1]",
                        in->memory_fraction);
    return PLM_OK;
}

// ---- the formula ----

static void plan_foreign(struct plm_plan *p)
{
    const struct plm_plan_input *in = &p->in;
    p->foreign = plm_round_up_i64(plm_max_i64(0, in->T - in->F - in->O), in->g);
    p->own_drv = in->process_use != PLM_PLAN_UNKNOWN
                     ? plm_round_up_i64(plm_max_i64(0, in->process_use - in->O), in->g)
                     : in->context_bytes + in->driver_calls;
}

static void lower_room(struct plm_plan *p, int64_t bytes, enum plm_plan_term term)
{
    if (bytes < p->room) {
        p->room = bytes;
        p->room_binds = term;
    }
}

static void plan_room(struct plm_plan *p)
{
    const struct plm_plan_input *in = &p->in;
    p->room = in->T - p->foreign - in->unheld;
    p->room_binds = PLM_TERM_DEVICE;
    p->U = in->T;
    if (in->operator_limit != PLM_PLAN_NO_LIMIT) {
        p->U = plm_min_i64(p->U, in->operator_limit);
        lower_room(p, in->operator_limit - p->own_drv, PLM_TERM_OPERATOR);
    }
    for (uint32_t i = 0; i < in->n_cgroups; i++) {
        const struct plm_plan_cgroup *c = &in->cgroups[i];
        int64_t before = p->room;
        p->U = plm_min_i64(p->U, c->limit);
        lower_room(p, c->limit - (c->current - c->reclaimable - in->O), PLM_TERM_CGROUP);
        if (p->room < before)
            p->room_cgroup = i;
    }
}

static void plan_reserves(struct plm_plan *p)
{
    const struct plm_plan_input *in = &p->in;
    p->growth = in->growth;
    p->withheld = in->withheld;
    p->margin = plm_max_i64(plm_clamp_i64(p->U / PLM_MARGIN_SHARE, PLM_MARGIN_MIN, PLM_MARGIN_MAX),
                            2 * p->growth) +
                p->withheld;
    p->ballast = p->margin - p->withheld;
    p->host_limit =
        in->host_limit != PLM_PLAN_NO_LIMIT
            ? in->host_limit
            : plm_clamp_i64(p->U / PLM_HOST_SHARE, PLM_HOST_LIMIT_MIN, PLM_HOST_LIMIT_MAX);
    // What this process holds already is a part of both.
    p->host = in->unified ? plm_max_i64(0, p->host_limit + in->host_caller - p->own_drv) +
                                plm_max_i64(0, p->room) / PLM_PAGE_TABLE_UNIT
                          : 0;
}

// bytes x fraction, rounded down; the fraction in units of 1e-9, so that no double holds bytes.
static int64_t scale(int64_t bytes, double fraction)
{
    const int64_t unit = 1000000000;
    if (bytes <= 0 || fraction >= 1)
        return bytes;
    int64_t parts = (int64_t)(fraction * (double)unit + 0.5);
    return bytes / unit * parts + bytes % unit * parts / unit;
}

static void plan_windows(struct plm_plan *p)
{
    const struct plm_plan_input *in = &p->in;
    for (uint32_t i = 0; i < in->n_windows; i++)
        plm_plan_window_pool(&in->windows[i], &in->limits, in->g, in->max_slab_bytes,
                             &p->windows[i]);
    p->windows_bytes = plm_plan_window_bytes(in, &in->limits);
}

static void plan_blocks(struct plm_plan *p)
{
    const struct plm_plan_input *in = &p->in;
    int64_t sequences =
        (int64_t)in->limits.max_sequences * plm_limits_blocks_per_request(&in->limits);
    int64_t cached = sequences / 4;
    const uint32_t window = plm_plan_main_window(in);
    if (window != 0) {
        sequences = plm_plan_window_least(&in->limits, window);
        cached = plm_plan_window_cached(&in->limits, window);
    }
    p->prefix_cache_blocks =
        in->prefix_cache_blocks != PLM_PLAN_UNKNOWN ? in->prefix_cache_blocks : cached;
    const int64_t usable = plm_min_i64(sequences + p->prefix_cache_blocks, PLM_POOL_BLOCKS_MAX);
    p->blocks_cap = in->limits.max_blocks > 0 ? plm_min_i64(usable, in->limits.max_blocks) : usable;
    int64_t want = p->blocks_cap;
    if (in->pinned_tokens != PLM_PLAN_NO_LIMIT)
        want = (int64_t)plm_div_ceil((uint64_t)in->pinned_tokens, PLM_KV_BLOCK_TOKENS);
    int64_t pool_bytes = want * in->block_bytes;
    if (in->pinned_tokens == PLM_PLAN_NO_LIMIT)
        pool_bytes = plm_min_i64(pool_bytes, plm_max_i64(0, p->budget));
    p->slabs = plm_slab_rule(pool_bytes, in->block_bytes, in->g, in->max_slab_bytes, in->max_slabs);
    if (in->pinned_tokens != PLM_PLAN_NO_LIMIT) {
        plm_plan_set_blocks(p, want, PLM_TERM_PIN);
        return;
    }
    int64_t fit = plm_slab_fit(&p->slabs, p->budget);
    if (fit < want)
        plm_plan_set_blocks(p, fit, PLM_TERM_BUDGET);
    else
        plm_plan_set_blocks(p, want, want < usable ? PLM_TERM_DEFAULT : PLM_TERM_CAP);
}

int plm_plan_compute(const struct plm_plan_input *in, struct plm_plan *ret, struct plm_error *err)
{
    int r = plm_plan_check(in, err);
    if (r != PLM_OK)
        return r;
    if (in->O < in->K)
        return plm_fail(err, PLM_ERR_INTERNAL,
                        "plan: the ledger holds %lld bytes in all but %lld of KV", (long long)in->O,
                        (long long)in->K);
    struct plm_plan p = {.in = *in, .resident = in->O - in->K};
    plan_foreign(&p);
    plan_room(&p);
    plan_reserves(&p);
    p.budget = scale(p.room - p.resident - p.host - (PLM_FAULT_SEED(MARGIN) ? 0 : p.margin),
                     in->memory_fraction);
    plan_windows(&p);
    plan_blocks(&p);
    *ret = p;
    return PLM_OK;
}

void plm_plan_set_blocks(struct plm_plan *plan, int64_t blocks, enum plm_plan_term why)
{
    plan->blocks = plm_max_i64(0, blocks);
    plan->blocks_bind = why;
    plan->kv_bytes = plm_slab_pool_bytes(&plan->slabs, plan->blocks);
    plan->line = plan->resident + plan->kv_bytes;
}

bool plm_plan_enough(const struct plm_plan *plan, int64_t *ret_missing)
{
    // A pool of the size asked for, or one with which serving starts.
    bool pinned = plan->in.pinned_tokens != PLM_PLAN_NO_LIMIT;
    int64_t least = plm_max_i64(plm_plan_least_blocks(&plan->in), pinned ? plan->blocks : 0);
    int64_t need = plm_slab_pool_bytes(&plan->slabs, least);
    bool fits = plan->slabs.slab_blocks > 0 && need <= plan->budget && plan->blocks >= least;
    if (ret_missing != NULL)
        *ret_missing = fits ? 0 : plm_max_i64(1, need - plan->budget);
    return fits;
}

bool plm_plan_one_finishes(const struct plm_plan *plan)
{
    return plan->blocks >= plm_plan_request_blocks(&plan->in);
}

int64_t plm_plan_shrink(const struct plm_plan *plan, int64_t failed_bytes, int64_t free_bytes)
{
    int64_t missing = plm_max_i64(0, failed_bytes - free_bytes);
    int64_t step = (int64_t)plm_div_ceil((uint64_t)(missing + plan->slabs.slab_bytes),
                                         (uint64_t)plan->in.block_bytes);
    int64_t share = plan->blocks - (int64_t)plm_div_ceil((uint64_t)plan->blocks, 20); // 0.95, down
    return plm_max_i64(0, plm_min_i64(plan->blocks - step, share));
}

int64_t plm_plan_arena_bytes(int64_t peak_live, int64_t peak_extent)
{
    return peak_live + 2 * plm_max_i64(0, peak_extent - peak_live);
}

int plm_plan_check_peak(const struct plm_plan *plan, const char *phase, int64_t peak,
                        struct plm_error *err)
{
    if (peak <= plan->room)
        return PLM_OK;
    plm_fail(err, PLM_ERR_OUT_OF_DEVICE,
             "%s took %lld bytes at its peak, but the room by %s is %lld bytes", phase,
             (long long)peak, plm_plan_term_name(plan->room_binds), (long long)plan->room);
    if (err != NULL) {
        err->needed_bytes = peak;
        err->limit_bytes = plan->room;
    }
    return PLM_ERR_OUT_OF_DEVICE;
}
