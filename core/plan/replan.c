// SPDX-License-Identifier: Apache-2.0
// The same snapshot under other limits: what a plan would be that was not measured.
#include <stddef.h>

#include "core/base/checked.h"
#include "core/plan/plan.h"
#include "kernels/abi.h"

// Moves bytes of ours in or out of a snapshot: what is taken shows in every reading. Free may
// become negative: foreign must stay what it was, and the budget then tells what is missing.
static void take(struct plm_plan_input *in, int64_t bytes)
{
    in->O += bytes;
    in->F -= bytes;
    if (in->process_use != PLM_PLAN_UNKNOWN)
        in->process_use = plm_max_i64(0, in->process_use + bytes);
    for (uint32_t i = 0; i < in->n_cgroups; i++)
        in->cgroups[i].current += bytes;
}

int64_t plm_plan_state_pool(const struct plm_plan_input *in, const struct plm_plan_limits *limits)
{
    int64_t states = (int64_t)limits->max_sequences + limits->state_checkpoints;
    int64_t bytes;
    if (__builtin_mul_overflow(states, in->state_bytes, &bytes) || bytes > PLM_PLAN_BYTES_MAX)
        return PLM_PLAN_BYTES_MAX;
    return plm_round_up_i64(bytes, in->g);
}

// What the limits decide of the resident bytes: workspace, windows and states.
static int64_t by_limits(const struct plm_plan_input *in, const struct plm_cost_table *table,
                         const struct plm_plan_limits *limits)
{
    struct plm_shape shape = plm_limits_shape(limits);
    int64_t bytes = plm_cost(table, &shape);
    bytes = bytes > PLM_PLAN_BYTES_MAX ? PLM_PLAN_BYTES_MAX : plm_round_up_i64(bytes, in->g);
    return bytes + plm_plan_state_pool(in, limits) + plm_plan_window_bytes(in, limits);
}

int plm_plan_replan(const struct plm_plan_input *in, const struct plm_cost_table *table,
                    const struct plm_plan_limits *limits, struct plm_plan *ret,
                    struct plm_error *err)
{
    struct plm_plan_input other = *in;
    other.limits = *limits;
    take(&other, by_limits(in, table, limits) - by_limits(in, table, &in->limits));
    return plm_plan_compute(&other, ret, err);
}

void plm_plan_estimate(struct plm_plan_input *in, const struct plm_cost_table *table,
                       const struct plm_plan_estimate *estimate)
{
    int64_t bytes = plm_round_up_i64(estimate->weight_bytes, in->g) +
                    plm_round_up_i64(estimate->other_bytes, in->g);
    take(in, bytes + by_limits(in, table, &in->limits));
}

// ---- limits that fit ----

static bool fits(const struct plm_plan_input *in, const struct plm_cost_table *table,
                 const struct plm_plan_limits *limits)
{
    struct plm_plan plan;
    return plm_plan_replan(in, table, limits, &plan, NULL) == PLM_OK &&
           plm_plan_enough(&plan, NULL) && plm_plan_one_finishes(&plan);
}

// The largest value of one cap, in units and at most `most`, under which the others fit; -1: none.
// Monotone: less of any cap needs less workspace, fewer states and fewer blocks.
static int64_t largest(const struct plm_plan_input *in, const struct plm_cost_table *table,
                       struct plm_plan_limits *limits, uint32_t *cap, uint32_t unit, int64_t least,
                       int64_t most)
{
    int64_t lo = least - 1, hi = most;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo + 1) / 2;
        *cap = (uint32_t)mid * unit;
        if (fits(in, table, limits))
            lo = mid;
        else
            hi = mid - 1;
    }
    if (lo >= least)
        *cap = (uint32_t)lo * unit;
    return lo >= least ? lo : -1;
}

uint32_t plm_plan_fit_context(const struct plm_plan_input *in, const struct plm_cost_table *table)
{
    struct plm_plan_limits limits = in->limits;
    if (fits(in, table, &limits))
        return limits.max_context;
    int64_t blocks = largest(in, table, &limits, &limits.max_context, PLM_KV_BLOCK_TOKENS, 1,
                             in->limits.max_context / PLM_KV_BLOCK_TOKENS);
    return blocks < 0 ? 0 : limits.max_context;
}

// Sequences give way to the context only up to so many windows: beyond them a model with windows
// takes little for a longer one, and nobody would have asked for one sequence.
#define CONTEXT_WINDOWS 8

static uint32_t least_context(const struct plm_plan_input *in)
{
    uint64_t window = in->window;
    for (uint32_t i = 0; i < in->n_windows; i++) {
        if (in->windows[i].window > window)
            window = in->windows[i].window;
    }
    window = plm_round_up(window, PLM_KV_BLOCK_TOKENS) * CONTEXT_WINDOWS;
    return window < in->limits.max_context ? (uint32_t)window : in->limits.max_context;
}

// What is kept for cached prefixes goes first, then sequences, then the context.
static bool fit_windows(const struct plm_plan_input *in, const struct plm_cost_table *table,
                        struct plm_plan_limits *ret)
{
    struct plm_plan plan;
    if (largest(in, table, ret, &ret->cached_windows, 1, 0, in->limits.cached_windows) >= 0)
        return true;
    ret->cached_windows = 0;
    ret->max_context = least_context(in);
    if (largest(in, table, ret, &ret->max_sequences, 1, 1, in->limits.max_sequences) < 0)
        ret->max_sequences = 1;
    ret->max_context = in->limits.max_context;
    if (plm_plan_replan(in, table, ret, &plan, NULL) != PLM_OK)
        return false;
    ret->max_context = plm_plan_fit_context(&plan.in, table);
    return ret->max_context > 0;
}

bool plm_plan_fit_limits(const struct plm_plan_input *in, const struct plm_cost_table *table,
                         struct plm_plan_limits *ret)
{
    struct plm_plan_input other = *in;
    struct plm_plan plan;
    *ret = in->limits;
    if (fits(in, table, ret))
        return true;
    if (in->n_windows > 0 || in->window > 0)
        return fit_windows(in, table, ret);
    if (in->state_bytes > 0) {
        if (largest(in, table, ret, &ret->state_checkpoints, 1, 0, in->limits.state_checkpoints) >=
            0)
            return true;
        ret->state_checkpoints = 0;
        if (largest(in, table, ret, &ret->max_sequences, 1, 1, in->limits.max_sequences) >= 0)
            return true;
        ret->max_sequences = 1;
        if (plm_plan_replan(in, table, ret, &plan, NULL) != PLM_OK)
            return false;
        other = plan.in;
    }
    ret->max_context = plm_plan_fit_context(&other, table);
    return ret->max_context > 0;
}
