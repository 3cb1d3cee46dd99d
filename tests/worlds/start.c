// SPDX-License-Identifier: Apache-2.0
// A start that failed: it must say why, and each value that it suggests must start.
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/play.h"

// A world in which a second start meets the same device. Before anything was loaded nobody knows
// what code and graphs will take.
static bool is_still(const struct run *run)
{
    const struct plm_sim_opts *d = &run->world->device;
    return d->n_events == 0 && d->leaks_bytes == 0 && d->free_lag_ns == 0 && d->query_lag_ns == 0 &&
           !d->overcommits &&
           ((d->kernel_bytes == 0 && d->graph_bytes == 0) || run->observer.world.allocs > 0);
}

static bool number_after(const char *text, const char *flag, double *ret)
{
    const char *at = strstr(text, flag);
    if (at == NULL)
        return false;
    at += strlen(flag);
    if (strncmp(at, "at least ", 9) == 0)
        at += 9;
    char *end;
    *ret = strtod(at, &end);
    return end != at;
}

static void try_opts(struct run *run, const plim_engine_opts *opts, const char *what, double value)
{
    struct run again = *run;
    again.trace = NULL;
    if (play_start(&again, opts))
        play_stop(&again);
    else
        fault(run, FAULT_START, "%s%g was suggested and does not start: %s", what, value,
              again.start_error.message);
    if (again.fault != NO_FAULT)
        fault(run, again.fault, "%s", again.fault_text);
}

static void try_suggestions(struct run *run)
{
    const char *text = strstr(run->start_error.message, "any one of these starts: ");
    if (text == NULL)
        return;
    double ctx, parallel, batch, value;
    const double mib = 1 << 20;
    plim_engine_opts with = run->opts;
    if (strncmp(run->start_error.message, "with ", 5) == 0 && // beside a larger host budget
        number_after(run->start_error.message, "host_limit_bytes ", &value))
        with.host_limit_bytes = (uint64_t)(value * mib);
    plim_engine_opts o = with;
    if (strstr(text, " with max_sequences ") != NULL) {
        if (number_after(text, "ctx_size ", &ctx) &&
            number_after(text, "max_sequences ", &parallel) &&
            number_after(text, "batch_max_tokens ", &batch)) {
            o.ctx_size = (uint32_t)ctx;
            o.max_sequences = (uint32_t)parallel;
            o.batch_max_tokens = (uint32_t)batch;
            try_opts(run, &o, "all three with ctx_size ", ctx);
        }
        return;
    }
    // The last of the list, and sometimes together with a context.
    const char *size = strstr(text, "max_total_tokens ");
    if (number_after(text, "ctx_size ", &value) &&
        (size == NULL || strstr(text, "ctx_size ") < size)) {
        o = with;
        o.ctx_size = (uint32_t)value;
        try_opts(run, &o, "ctx_size ", value);
    }
    if (number_after(text, "max_sequences ", &value)) {
        o = with;
        o.max_sequences = (uint32_t)value;
        try_opts(run, &o, "max_sequences ", value);
    }
    if (number_after(text, "batch_max_tokens ", &value)) {
        o = with;
        o.batch_max_tokens = (uint32_t)value;
        try_opts(run, &o, "batch_max_tokens ", value);
    }
    if (number_after(text, "memory_limit_bytes ", &value)) {
        o = with;
        o.memory_limit_bytes = (uint64_t)(value * mib);
        try_opts(run, &o, "memory_limit_bytes ", value);
    }
    if (number_after(text, "host_limit_bytes ", &value)) {
        o = with;
        o.host_limit_bytes = (uint64_t)(value * mib);
        try_opts(run, &o, "host_limit_bytes ", value);
    }
    if (number_after(text, "memory_fraction ", &value)) {
        o = with;
        o.memory_fraction = value;
        try_opts(run, &o, "memory_fraction ", value);
    }
    if (number_after(text, "max_total_tokens ", &value)) {
        o = with;
        o.max_total_tokens = (uint64_t)value;
        if (number_after(size, " with ctx_size ", &ctx))
            o.ctx_size = (uint32_t)ctx;
        try_opts(run, &o, "max_total_tokens ", value);
    }
}

void check_start(struct run *run)
{
    const plim_error *err = &run->start_error;
    if (err->message[0] == '\0')
        fault(run, FAULT_START, "status %d, and no word", run->start_status);
    switch (run->start_status) {
    case PLIM_ERR_OUT_OF_DEVICE:
    case PLIM_ERR_TOO_LARGE:
    case PLIM_ERR_LOST:
    case PLIM_ERR_NOMEM_HOST:
    case PLIM_ERR_INVALID:
    case PLIM_ERR_IO:
    case PLIM_ERR_TIMEOUT: break;
    default:
        fault(run, FAULT_START, "status %d is none that a start may end with: %s",
              run->start_status, err->message);
    }
    check_freed(run);
    if (run->start_status == PLIM_ERR_OUT_OF_DEVICE && is_still(run))
        try_suggestions(run);
}
