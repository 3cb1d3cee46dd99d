// SPDX-License-Identifier: Apache-2.0
// What to change when a plan does not start: each value comes from a search over re-planned inputs,
// so that none is proposed which would fail in turn.
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/text.h"
#include "core/plan/plan.h"
#include "kernels/abi.h"

#define MIB (INT64_C(1) << 20)

// A batch or context below this is not proposed: nobody can use it.
#define BATCH_LEAST   16
#define CONTEXT_LEAST PLM_KV_BLOCK_TOKENS

static bool starts(const struct plm_plan_input *in, const struct plm_cost_table *table,
                   const struct plm_plan_limits *limits)
{
    struct plm_plan plan;
    return plm_plan_replan(in, table, limits, &plan, NULL) == PLM_OK &&
           plm_plan_enough(&plan, NULL);
}

static bool starts_as_is(const struct plm_plan_input *in, const struct plm_cost_table *table)
{
    return starts(in, table, &in->limits);
}

// The searches below share one form: the largest (or smallest) value in lo .. hi for which `works`
// holds, which is monotone. Returns false where none does.
struct search {
    const struct plm_plan_input *in;
    const struct plm_cost_table *table;
    bool (*works)(const struct search *search, int64_t value);
};

static bool search_largest(const struct search *s, int64_t lo, int64_t hi, int64_t *ret)
{
    if (lo > hi || !s->works(s, lo))
        return false;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo + 1) / 2;
        if (s->works(s, mid))
            lo = mid;
        else
            hi = mid - 1;
    }
    *ret = lo;
    return true;
}

static bool search_smallest(const struct search *s, int64_t lo, int64_t hi, int64_t *ret)
{
    if (lo > hi || !s->works(s, hi))
        return false;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (s->works(s, mid))
            hi = mid;
        else
            lo = mid + 1;
    }
    *ret = hi;
    return true;
}

static bool parallel_works(const struct search *s, int64_t value)
{
    struct plm_plan_limits limits = s->in->limits;
    limits.max_sequences = (uint32_t)value;
    return starts(s->in, s->table, &limits);
}

static bool batch_works(const struct search *s, int64_t value)
{
    struct plm_plan_limits limits = s->in->limits;
    limits.batch_max_tokens = (uint32_t)value * BATCH_LEAST;
    return starts(s->in, s->table, &limits);
}

// The limit in MiB. One granule is kept back, since the next start's own use of the driver may
// round up to the next one.
static bool limit_works(const struct search *s, int64_t value)
{
    struct plm_plan_input in = *s->in;
    in.operator_limit = value * MIB - in.g;
    return in.operator_limit > 0 && starts_as_is(&in, s->table);
}

static bool host_works(const struct search *s, int64_t value)
{
    struct plm_plan_input in = *s->in;
    in.host_limit = value * MIB;
    return starts_as_is(&in, s->table);
}

static bool fraction_works(const struct search *s, int64_t value)
{
    struct plm_plan_input in = *s->in;
    in.memory_fraction = (double)value / 100;
    return starts_as_is(&in, s->table);
}

// Half of the host budget is left to everything but the tables of the blocks.
static bool tokens_work(const struct search *s, int64_t value)
{
    struct plm_plan_input in = *s->in;
    struct plm_plan plan;
    in.pinned_tokens = value * PLM_KV_BLOCK_TOKENS;
    return starts_as_is(&in, s->table) && plm_plan_compute(&in, &plan, NULL) == PLM_OK &&
           value <= plan.host_limit / 2 / PLM_HOST_BLOCK_BYTES;
}

// A pinned size that lacks blocks, whatever room there is.
static bool lacks_blocks(const struct plm_plan_input *in)
{
    return in->pinned_tokens != PLM_PLAN_NO_LIMIT &&
           (int64_t)plm_div_ceil((uint64_t)in->pinned_tokens, PLM_KV_BLOCK_TOKENS) <
               plm_plan_least_blocks(in);
}

// The smallest configuration: one sequence, a small batch, the longest context that fits then.
static void suggest_together(const struct plm_plan_input *in, const struct plm_cost_table *table,
                             struct plm_plan_limits *ret)
{
    struct plm_plan_input small = *in;
    struct plm_plan plan;
    small.limits.max_sequences = 1;
    small.limits.cached_windows = 0;
    small.limits.batch_max_tokens =
        (uint32_t)plm_min_i64(2 * BATCH_LEAST, in->limits.batch_max_tokens);
    if (plm_plan_replan(in, table, &small.limits, &plan, NULL) != PLM_OK)
        return;
    small = plan.in;
    small.limits.max_context = plm_plan_fit_context(&small, table);
    if (small.limits.max_context >= CONTEXT_LEAST)
        *ret = small.limits;
}

static void suggest_limits(const struct search *base, struct plm_plan_knobs *ret)
{
    const struct plm_plan_input *in = base->in;
    struct search s = *base;
    int64_t value;
    s.works = limit_works;
    if (in->operator_limit != PLM_PLAN_NO_LIMIT &&
        search_smallest(&s, in->operator_limit / MIB + 1, in->T / MIB, &value))
        ret->memory_limit = value * MIB;
    s.works = host_works;
    struct plm_plan plan;
    if (in->unified && plm_plan_compute(in, &plan, NULL) == PLM_OK &&
        search_largest(&s, PLM_HOST_LIMIT_MIN / MIB, plan.host_limit / MIB - 1, &value))
        ret->host_limit = value * MIB;
    s.works = fraction_works;
    if (in->memory_fraction < 1 &&
        search_smallest(&s, (int64_t)(in->memory_fraction * 100) + 1, 100, &value))
        ret->memory_fraction = (double)value / 100;
    s.works = tokens_work;
    const int64_t least = plm_plan_least_blocks(in);
    if (in->pinned_tokens != PLM_PLAN_NO_LIMIT &&
        search_largest(&s, least,
                       lacks_blocks(in) ? least : in->pinned_tokens / PLM_KV_BLOCK_TOKENS, &value))
        ret->max_total_tokens = value * PLM_KV_BLOCK_TOKENS;
    if (ret->max_total_tokens > 0 && ret->max_total_tokens < in->limits.max_context)
        ret->size_ctx = (uint32_t)ret->max_total_tokens;
}

void plm_plan_suggest(const struct plm_plan_input *in, const struct plm_cost_table *table,
                      struct plm_plan_knobs *ret)
{
    struct search s = {.in = in, .table = table};
    struct plm_plan plan;
    int64_t value;
    *ret = (struct plm_plan_knobs){0};
    if (plm_plan_compute(in, &plan, NULL) == PLM_OK)
        plm_plan_enough(&plan, &ret->missing);
    uint32_t context = plm_plan_fit_context(in, table);
    if (context >= CONTEXT_LEAST && context < in->limits.max_context)
        ret->ctx_size = context;
    s.works = parallel_works;
    if (search_largest(&s, 1, (int64_t)in->limits.max_sequences - 1, &value))
        ret->max_sequences = (uint32_t)value;
    s.works = batch_works;
    if (search_largest(&s, 1, ((int64_t)in->limits.batch_max_tokens - 1) / BATCH_LEAST, &value))
        ret->batch_max_tokens = (uint32_t)value * BATCH_LEAST;
    suggest_limits(&s, ret);
    if (ret->ctx_size == 0 && ret->max_sequences == 0 && ret->batch_max_tokens == 0)
        suggest_together(in, table, &ret->together);
}

// ---- the message ----

struct text {
    char *at;
    size_t left;
    bool first; // of the list of knobs
};

static void put(struct text *t, int n)
{
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

#define PUT(t, ...) put((t), plm_snprintf((t)->at, (t)->left, __VA_ARGS__))

static void separator(struct text *t)
{
    PUT(t, "%s", t->first ? "; any one of these starts: " : ", ");
    t->first = false;
}

// Bytes as a flag takes them, in whole MiB; rounded up, so that "at least" holds.
static long long mib(int64_t bytes)
{
    return (long long)((bytes + MIB - 1) / MIB);
}

// The option that put_knobs names first.
static const char *first_knob(const struct plm_plan_knobs *knobs)
{
    return knobs->memory_limit > 0             ? "memory_limit_bytes"
           : knobs->ctx_size > 0               ? "ctx_size"
           : knobs->max_sequences > 0          ? "max_sequences"
           : knobs->batch_max_tokens > 0       ? "batch_max_tokens"
           : knobs->host_limit > 0             ? "host_limit_bytes"
           : knobs->memory_fraction > 0        ? "memory_fraction"
           : knobs->max_total_tokens > 0       ? "max_total_tokens"
           : knobs->together.max_sequences > 0 ? "ctx_size"
                                               : NULL;
}

static void put_knobs(struct text *t, const struct plm_plan_knobs *knobs)
{
    if (knobs->memory_limit > 0)
        separator(t), PUT(t, "memory_limit_bytes at least %lldMiB", mib(knobs->memory_limit));
    if (knobs->ctx_size > 0)
        separator(t), PUT(t, "ctx_size %u", knobs->ctx_size);
    if (knobs->max_sequences > 0)
        separator(t), PUT(t, "max_sequences %u", knobs->max_sequences);
    if (knobs->batch_max_tokens > 0)
        separator(t), PUT(t, "batch_max_tokens %u", knobs->batch_max_tokens);
    if (knobs->host_limit > 0)
        separator(t), PUT(t, "host_limit_bytes %lldMiB", (long long)(knobs->host_limit / MIB));
    if (knobs->memory_fraction > 0)
        separator(t), PUT(t, "memory_fraction at least %.2f", knobs->memory_fraction);
    if (knobs->max_total_tokens > 0)
        separator(t), PUT(t, "max_total_tokens %lld", (long long)knobs->max_total_tokens);
    if (knobs->size_ctx > 0)
        PUT(t, " with ctx_size %u", knobs->size_ctx);
    if (knobs->together.max_sequences > 0) {
        separator(t);
        PUT(t, "ctx_size %u with max_sequences %u and batch_max_tokens %u",
            knobs->together.max_context, knobs->together.max_sequences,
            knobs->together.batch_max_tokens);
    }
    if (t->first)
        PUT(t, "; " PLM_PLAN_NO_KNOB);
}

int plm_plan_fail(const struct plm_plan_input *in, const struct plm_cost_table *table,
                  const char *what, struct plm_error *err)
{
    char msg[PLM_ERROR_MSG_BYTES] = "";
    struct text t = {.at = msg, .left = sizeof(msg), .first = true};
    struct plm_plan_knobs knobs;
    struct plm_plan plan;
    int r = plm_plan_compute(in, &plan, err);
    if (r != PLM_OK)
        return r;
    plm_plan_suggest(in, table, &knobs);
    if (lacks_blocks(in) && knobs.max_total_tokens > 0) {
        PUT(&t,
            "max_total_tokens %lld gives %lld KV blocks of %d tokens, but max_sequences %u needs "
            "%lld",
            (long long)in->pinned_tokens, (long long)plan.blocks, PLM_KV_BLOCK_TOKENS,
            in->limits.max_sequences, (long long)plm_plan_least_blocks(in));
        put_knobs(&t, &knobs);
        r = plm_fail(err, PLM_ERR_OUT_OF_DEVICE, "%s", msg); // no bytes are missing
        return plm_fail_about(err, r, "max_total_tokens");
    }
    PUT(&t, "%s: %lldMiB missing (room %lldMiB by %s; weights, workspace and the like %lldMiB, ",
        what, mib(knobs.missing), (long long)(plan.room / MIB), plm_plan_term_name(plan.room_binds),
        mib(plan.resident));
    if (in->unheld > 0)
        PUT(&t, "encoders elsewhere %lldMiB, ", mib(in->unheld));
    PUT(&t, "host %lldMiB, margin %lldMiB)", mib(plan.host), mib(plan.margin));
    put_knobs(&t, &knobs);
    r = plm_fail(err, PLM_ERR_OUT_OF_DEVICE, "%s", msg);
    if (err != NULL) {
        err->needed_bytes = plan.room + knobs.missing;
        err->limit_bytes = plan.room;
    }
    return plm_fail_about(err, r, first_knob(&knobs));
}
