// SPDX-License-Identifier: Apache-2.0
// Metrics as the public API hands them out: as a struct, and by name and value. One table says
// which fields there are.
#include <stddef.h>
#include <string.h>

#include "core/engine/report.h"
#include "core/engine/structs.h"

// How a field is read.
enum kind { U32, U64, I64, F64, FLAG, COUNT, SUM };

struct field {
    const char *name;
    enum kind kind;
    size_t offset;
};

#define FIELD(kind, name)                                                                          \
    {                                                                                              \
#name, kind, offsetof(plim_metrics, name)                                                  \
    }
// A histogram is two values: how many, and of how many seconds in all.
#define HISTOGRAM(name)                                                                            \
    {#name "_count", COUNT, offsetof(plim_metrics, name)},                                         \
    {                                                                                              \
#name "_sum_s", SUM, offsetof(plim_metrics, name)                                          \
    }

// In the order of plim_metrics, so that what is new comes at the end here, too.
static const struct field fields[] = {
    FIELD(U32, running),
    FIELD(U32, waiting),
    FIELD(U32, preempted),
    FIELD(F64, kv_usage),
    FIELD(U64, blocks_total),
    FIELD(U64, blocks_used),
    FIELD(U64, blocks_cached),
    FIELD(U64, blocks_free),
    FIELD(U64, prompt_tokens),
    FIELD(U64, cached_tokens),
    FIELD(U64, generated_tokens),
    FIELD(U64, prefix_queries),
    FIELD(U64, prefix_hits),
    FIELD(U64, finished_stop),
    FIELD(U64, finished_length),
    FIELD(U64, finished_cancelled),
    FIELD(U64, finished_error),
    FIELD(U64, rejected_never),
    FIELD(U64, rejected_now),
    FIELD(U64, rejected_queue),
    FIELD(U64, rejected_context),
    FIELD(U64, preemptions),
    FIELD(U64, steps),
    FIELD(U64, allocations_in_step),
    FIELD(U64, resizes),
    FIELD(U64, audit_excess),
    FIELD(I64, last_step_age_ns),
    FIELD(I64, weights_bytes),
    FIELD(I64, kv_bytes),
    FIELD(I64, state_bytes),
    FIELD(I64, workspace_bytes),
    FIELD(I64, encoder_bytes),
    FIELD(I64, graph_bytes),
    FIELD(I64, staging_bytes),
    FIELD(I64, ballast_bytes),
    FIELD(I64, other_bytes),
    FIELD(I64, limit_bytes),
    FIELD(I64, used_bytes),
    FIELD(I64, high_water_bytes),
    FIELD(I64, margin_bytes),
    FIELD(I64, host_used_bytes),
    FIELD(I64, host_limit_bytes),
    FIELD(FLAG, ready),
    FIELD(FLAG, sealed),
    FIELD(FLAG, draining),
    FIELD(FLAG, lost),
    HISTOGRAM(time_to_first_token),
    HISTOGRAM(inter_token),
    HISTOGRAM(e2e),
    HISTOGRAM(queue),
    HISTOGRAM(prefill),
    HISTOGRAM(decode),
    FIELD(I64, host_idle_bytes),
    FIELD(FLAG, asleep),
    FIELD(I64, foreign_bytes),
    FIELD(I64, largest_free_bytes),
    FIELD(U64, shrinks),
    FIELD(U64, grows),
    FIELD(U64, plan_shrinks),
    FIELD(U64, validated_blocks),
    FIELD(U64, losses),
    FIELD(U64, reopened),
    FIELD(U64, replays),
    FIELD(U64, poisoned),
    FIELD(U64, resubmits),
    FIELD(U64, stalls),
    FIELD(U64, incidents),
    FIELD(F64, last_sleep_s),
    FIELD(F64, last_wake_s),
    FIELD(I64, last_step_time_ns),
    FIELD(U64, ledger_mismatches),
    FIELD(U64, slow_steps),
    FIELD(U64, slowdowns),
    FIELD(FLAG, slow),
};

#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static double count_of(const plim_histogram *h)
{
    uint64_t n = 0;
    for (int b = 0; b <= PLIM_HISTOGRAM_BUCKETS; b++)
        n += h->count[b];
    return (double)n;
}

static double value_of(const plim_metrics *m, const struct field *field)
{
    const void *at = (const char *)m + field->offset;
    switch (field->kind) {
    case U32: return *(const uint32_t *)at;
    case U64: return (double)*(const uint64_t *)at;
    case I64: return (double)*(const int64_t *)at;
    case F64: return *(const double *)at;
    case FLAG: return *(const bool *)at;
    case COUNT: return count_of(at);
    case SUM: return ((const plim_histogram *)at)->sum_s;
    }
    return 0.0;
}

int plim_engine_metrics(const plim_engine *engine, plim_metrics *ret)
{
    plim_metrics m;
    if (engine == NULL || ret == NULL || !plm_struct_sized(ret->struct_size))
        return PLIM_ERR_INVALID;
    plm_report_metrics(engine, &m);
    return plm_struct_out(ret, &m, sizeof(m));
}

int plim_engine_metric_list(const plim_engine *engine, plim_metric *out, size_t cap, size_t *n)
{
    plim_metrics m;
    if (engine == NULL || (out == NULL && cap > 0))
        return PLIM_ERR_INVALID;
    plm_report_metrics(engine, &m);
    for (size_t i = 0; i < N_FIELDS && i < cap; i++)
        out[i] = (plim_metric){fields[i].name, value_of(&m, &fields[i])};
    if (n != NULL)
        *n = N_FIELDS;
    return N_FIELDS <= cap ? PLIM_OK : PLIM_ERR_LIMIT;
}

void plm_count_finish(plim_metrics *m, enum plim_finish finish)
{
    switch (finish) {
    case PLIM_FINISH_NONE: break;
    case PLIM_FINISH_STOP: m->finished_stop++; break;
    case PLIM_FINISH_LENGTH: m->finished_length++; break;
    case PLIM_FINISH_CANCELLED: m->finished_cancelled++; break;
    case PLIM_FINISH_ERROR: m->finished_error++; break;
    }
}
