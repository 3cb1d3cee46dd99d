// SPDX-License-Identifier: Apache-2.0
// Plans and memory as JSON.
#include "core/plan/report.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "kernels/abi.h"

// Writes `,` where something stands before; keys are ours and need no escapes.
static void key(struct plm_buf *buf, const char *name)
{
    if (buf->len > 0 && buf->data[buf->len - 1] != '{' && buf->data[buf->len - 1] != '[')
        plm_buf_append_char(buf, ',');
    if (name != NULL)
        plm_buf_printf(buf, "\"%s\":", name);
}

static void integer(struct plm_buf *buf, const char *name, int64_t value)
{
    key(buf, name);
    plm_buf_printf(buf, "%" PRId64, value);
}

static void boolean(struct plm_buf *buf, const char *name, bool value)
{
    key(buf, name);
    plm_buf_append_str(buf, value ? "true" : "false");
}

// null where the value says that there is none.
static void integer_or_null(struct plm_buf *buf, const char *name, int64_t value, int64_t none)
{
    if (value != none) {
        integer(buf, name, value);
        return;
    }
    key(buf, name);
    plm_buf_append_str(buf, "null");
}

static void text(struct plm_buf *buf, const char *name, const char *value)
{
    key(buf, name);
    if (value == NULL)
        plm_buf_append_str(buf, "null");
    else
        plm_buf_append_json(buf, (struct plm_slice){value, strlen(value)});
}

static void open_object(struct plm_buf *buf, const char *name)
{
    key(buf, name);
    plm_buf_append_char(buf, '{');
}

static void open_list(struct plm_buf *buf, const char *name)
{
    key(buf, name);
    plm_buf_append_char(buf, '[');
}

static void close_with(struct plm_buf *buf, char c)
{
    plm_buf_append_char(buf, c);
}

static void snapshot_fields(struct plm_buf *buf, const struct plm_plan_input *in)
{
    integer(buf, "g", in->g);
    integer(buf, "T", in->T);
    integer(buf, "F", in->F);
    integer(buf, "O", in->O);
    integer(buf, "K", in->K);
    integer_or_null(buf, "process_use", in->process_use, PLM_PLAN_UNKNOWN);
    integer(buf, "context_bytes", in->context_bytes);
    integer(buf, "driver_calls", in->driver_calls);
    integer(buf, "unheld", in->unheld);
    integer_or_null(buf, "operator_limit", in->operator_limit, PLM_PLAN_NO_LIMIT);
    open_list(buf, "cgroups");
    for (uint32_t i = 0; i < in->n_cgroups; i++) {
        open_object(buf, NULL);
        integer(buf, "limit", in->cgroups[i].limit);
        integer(buf, "current", in->cgroups[i].current);
        integer(buf, "reclaimable", in->cgroups[i].reclaimable);
        close_with(buf, '}');
    }
    close_with(buf, ']');
}

// KV groups beside the main one.
static void windows_json(struct plm_buf *buf, const struct plm_plan *plan)
{
    open_list(buf, "windows");
    for (uint32_t i = 0; i < plan->in.n_windows; i++) {
        open_object(buf, NULL);
        integer(buf, "window", plan->in.windows[i].window);
        integer(buf, "block_bytes", plan->in.windows[i].block_bytes);
        integer(buf, "blocks", plan->windows[i].blocks);
        integer(buf, "bytes", plan->windows[i].bytes);
        close_with(buf, '}');
    }
    close_with(buf, ']');
}

// Every field of the formula by its name.
void plm_report_formula(struct plm_buf *buf, const char *name, const struct plm_plan *plan)
{
    open_object(buf, name);
    snapshot_fields(buf, &plan->in);
    integer(buf, "foreign", plan->foreign);
    integer(buf, "own_drv", plan->own_drv);
    integer(buf, "room", plan->room);
    text(buf, "room_binds", plm_plan_term_name(plan->room_binds));
    integer(buf, "resident", plan->resident);
    integer(buf, "growth", plan->growth);
    integer(buf, "U", plan->U);
    integer(buf, "withheld", plan->withheld);
    integer(buf, "margin", plan->margin);
    integer(buf, "ballast", plan->ballast);
    boolean(buf, "unified", plan->in.unified);
    integer(buf, "host_limit", plan->host_limit);
    integer(buf, "host_caller", plan->in.host_caller);
    integer(buf, "host", plan->host);
    key(buf, "memory_fraction");
    plm_buf_printf(buf, "%.9g", plan->in.memory_fraction);
    integer(buf, "budget", plan->budget);
    integer(buf, "max_sequences", plan->in.limits.max_sequences);
    integer(buf, "max_context", plan->in.limits.max_context);
    integer(buf, "batch_max_tokens", plan->in.limits.batch_max_tokens);
    integer(buf, "state_checkpoints", plan->in.limits.state_checkpoints);
    integer(buf, "cached_windows", plan->in.limits.cached_windows);
    integer_or_null(buf, "max_blocks", plan->in.limits.max_blocks, 0);
    integer(buf, "state_bytes", plan->in.state_bytes);
    windows_json(buf, plan);
    integer(buf, "windows_bytes", plan->windows_bytes);
    integer(buf, "window", plan->in.window);
    integer(buf, "block_bytes", plan->in.block_bytes);
    integer(buf, "max_slab_bytes", plan->in.max_slab_bytes);
    integer(buf, "max_slabs", plan->in.max_slabs);
    integer(buf, "prefix_cache_blocks", plan->prefix_cache_blocks);
    integer(buf, "blocks_cap", plan->blocks_cap);
    integer_or_null(buf, "pinned_tokens", plan->in.pinned_tokens, PLM_PLAN_NO_LIMIT);
    integer(buf, "blocks", plan->blocks);
    text(buf, "blocks_bind", plm_plan_term_name(plan->blocks_bind));
    integer(buf, "slab_blocks", plan->slabs.slab_blocks);
    integer(buf, "slab_bytes", plan->slabs.slab_bytes);
    integer(buf, "slabs", plm_plan_slab_count(plan));
    integer(buf, "kv_bytes", plan->kv_bytes);
    integer(buf, "line", plan->line);
    close_with(buf, '}');
}

static void by_class(struct plm_buf *buf, const char *name, const struct plm_ledger_stats *ledger)
{
    open_object(buf, name);
    for (int i = 0; i < PLM_MEM_CLASSES; i++)
        integer(buf, plm_mem_class_name((enum plm_mem_class)i), ledger->by_class[i].held_bytes);
    close_with(buf, '}');
}

static void phase_peaks(struct plm_buf *buf, const struct plm_ledger_stats *ledger)
{
    open_object(buf, "phase_peaks");
    for (int i = 0; i < PLM_PHASES; i++)
        integer(buf, plm_phase_name((enum plm_phase)i), ledger->phase_peak_bytes[i]);
    close_with(buf, '}');
}

static void weights(struct plm_buf *buf, const struct plm_report_head *head)
{
    open_object(buf, "weights");
    for (uint32_t i = 0; i < head->n_weights; i++)
        integer(buf, head->weights[i].name, head->weights[i].bytes);
    close_with(buf, '}');
}

void plm_report_evidence(struct plm_buf *buf, const struct plm_profile *profile)
{
    open_object(buf, "evidence");
    integer(buf, "probe_blocks", profile->probe_blocks);
    integer(buf, "attempts", profile->attempts);
    integer(buf, "reads", profile->reads);
    boolean(buf, "settled", profile->settled);
    boolean(buf, "certified", profile->certified);
    integer(buf, "asked_context", profile->asked_context);
    open_object(buf, "stressed");
    integer(buf, "max_sequences", profile->stressed.max_sequences);
    integer(buf, "max_context", profile->stressed.max_context);
    integer(buf, "batch_max_tokens", profile->stressed.batch_max_tokens);
    integer(buf, "state_checkpoints", profile->stressed.state_checkpoints);
    integer(buf, "cached_windows", profile->stressed.cached_windows);
    close_with(buf, '}');
    boolean(buf, "context_lowered", profile->context_lowered);
    integer(buf, "not_returned", profile->not_returned);
    integer(buf, "slow_bytes", profile->slow_bytes);
    integer(buf, "graph_bytes", profile->graph_bytes);
    open_list(buf, "passes");
    for (uint32_t i = 0; i < profile->n_passes; i++) {
        const struct plm_profile_pass *p = &profile->passes[i];
        open_object(buf, NULL);
        text(buf, "kind", plm_stress_kind_name(p->step.kind));
        integer(buf, "rows", p->step.shape.rows);
        integer(buf, "seqs", p->step.shape.seqs);
        integer(buf, "logits_rows", p->step.shape.logits_rows);
        integer(buf, "ctx", p->step.shape.ctx);
        boolean(buf, "cold", p->step.flags & PLM_STRESS_COLD);
        boolean(buf, "few_layers", p->step.flags & PLM_STRESS_FEW_LAYERS);
        boolean(buf, "validation", p->validation);
        integer(buf, "cost", p->cost);
        integer(buf, "own_drv", p->own_drv);
        integer(buf, "ns", p->ns);
        close_with(buf, '}');
    }
    close_with(buf, ']');
    integer(buf, "stress_ns", profile->stress_ns);
    integer(buf, "validate_ns", profile->validate_ns);
    integer(buf, "total_ns", profile->total_ns);
    close_with(buf, '}');
}

void plm_report_plan_json(struct plm_buf *buf, const struct plm_report_head *head,
                          const struct plm_plan *plan, const struct plm_profile *profile)
{
    plm_buf_append_char(buf, '{');
    text(buf, "object", "plan");
    text(buf, "model", head->model);
    text(buf, "build", head->build);
    text(buf, "kv_type", head->kv_type);
    boolean(buf, "dry", head->dry);
    if (head->short_context > 0)
        text(buf, "rope_factors", plm_report_is_long(head, plan) ? "long" : "short");
    open_object(buf, "device");
    text(buf, "id", head->device_id);
    text(buf, "name", head->device_name);
    text(buf, "uuid", head->device_uuid);
    text(buf, "isa", head->isa);
    close_with(buf, '}');
    plm_report_formula(buf, "plan", plan);
    if (head->ledger != NULL) {
        by_class(buf, "by_class", head->ledger);
        if (!head->dry)
            phase_peaks(buf, head->ledger);
    }
    if (head->n_weights > 0)
        weights(buf, head);
    if (profile != NULL)
        plm_report_evidence(buf, profile);
    close_with(buf, '}');
}

// ---- GET /v1/memory ----

static void counts_json(struct plm_buf *buf, const struct plm_report_group *group)
{
    integer(buf, "total", group->total);
    integer(buf, "used", group->used);
    integer(buf, "cached", group->cached);
    integer(buf, "free", group->free);
}

static void groups_json(struct plm_buf *buf, const struct plm_report_device *d)
{
    open_list(buf, "groups");
    for (uint32_t i = 0; i < d->n_groups; i++) {
        const struct plm_report_group *group = &d->groups[i];
        open_object(buf, NULL);
        integer(buf, "window", group->window);
        text(buf, "type", group->type);
        integer(buf, "bytes", (int64_t)group->block_bytes);
        counts_json(buf, group);
        close_with(buf, '}');
    }
    close_with(buf, ']');
}

static void device_json(struct plm_buf *buf, const struct plm_report_device *d)
{
    const struct plm_ledger_stats *ledger = &d->ledger;
    open_object(buf, NULL);
    text(buf, "id", d->id);
    text(buf, "name", d->name);
    if (d->workers > 0)
        integer(buf, "workers", d->workers);
    integer(buf, "total_bytes", d->plan->in.T);
    integer(buf, "limit_bytes", d->limit_bytes);
    integer(buf, "used_bytes", ledger->held_bytes);
    integer(buf, "high_water_bytes", plm_ledger_high_water(ledger));
    integer(buf, "margin_bytes", d->plan->margin);
    integer(buf, "foreign_bytes", d->foreign_bytes);
    by_class(buf, "by_owner", ledger);
    phase_peaks(buf, ledger);
    open_object(buf, "largest_free_bytes"); // in one piece, of what each owner holds
    for (int i = 0; i < PLM_MEM_CLASSES; i++)
        integer(buf, plm_mem_class_name((enum plm_mem_class)i),
                ledger->by_class[i].largest_free_bytes);
    close_with(buf, '}');
    open_object(buf, "blocks");
    integer(buf, "tokens", PLM_KV_BLOCK_TOKENS);
    integer(buf, "bytes", d->plan->in.block_bytes);
    counts_json(buf, &d->groups[0]);
    close_with(buf, '}');
    groups_json(buf, d);
    plm_report_formula(buf, "plan", d->plan);
    close_with(buf, '}');
}

static void refusal_json(struct plm_buf *buf, const struct plm_report_refusal *r)
{
    open_object(buf, NULL);
    integer(buf, "time", r->wall_ns / 1000000000);
    text(buf, "kind", r->never ? "never" : "now");
    text(buf, "term", plm_admit_term_name(r->term));
    integer(buf, "needed_bytes", r->needed_bytes);
    integer(buf, "limit_bytes", r->limit_bytes);
    open_object(buf, "offer");
    integer(buf, "prompt_tokens", r->offer.prompt_tokens);
    integer(buf, "max_tokens", r->offer.max_tokens);
    integer(buf, "n", r->offer.n);
    close_with(buf, '}');
    close_with(buf, '}');
}

static void neighbour_json(struct plm_buf *buf, const struct plm_report_neighbour *n)
{
    open_object(buf, NULL);
    integer(buf, "time", n->wall_ns / 1000000000);
    integer(buf, "foreign_bytes", n->foreign_bytes);
    integer(buf, "change_bytes", n->change_bytes);
    close_with(buf, '}');
}

static void host_json(struct plm_buf *buf, const struct plm_host_stats *host)
{
    open_object(buf, "host");
    integer(buf, "used_bytes", host->used_bytes);
    integer(buf, "limit_bytes", host->limit_bytes);
    open_object(buf, "by_owner");
    for (int i = 0; i < PLM_HOST_OWNERS; i++)
        integer(buf, plm_host_owner_name((enum plm_host_owner)i), host->owner_bytes[i]);
    close_with(buf, '}');
    close_with(buf, '}');
}

void plm_report_memory_json(struct plm_buf *buf, const struct plm_report_memory *m)
{
    plm_buf_append_char(buf, '{');
    text(buf, "object", "memory");
    integer(buf, "time", m->wall_ns / 1000000000);
    boolean(buf, "ready", m->ready);
    boolean(buf, "sealed", m->sealed);
    boolean(buf, "asleep", m->asleep);
    open_list(buf, "devices");
    for (uint32_t i = 0; i < m->n_devices; i++)
        device_json(buf, &m->devices[i]);
    close_with(buf, ']');
    host_json(buf, &m->host);
    open_object(buf, "requests");
    integer(buf, "running", m->running);
    integer(buf, "waiting", m->waiting);
    integer(buf, "preempted", m->preempted);
    close_with(buf, '}');
    open_list(buf, "refusals");
    for (uint32_t i = 0; i < m->n_refusals; i++)
        refusal_json(buf, &m->refusals[i]);
    close_with(buf, ']');
    open_list(buf, "neighbours");
    for (uint32_t i = 0; i < m->n_neighbours; i++)
        neighbour_json(buf, &m->neighbours[i]);
    close_with(buf, ']');
    open_object(buf, "counters");
    for (uint32_t i = 0; i < m->n_counters; i++)
        integer(buf, m->counters[i].name, m->counters[i].value);
    close_with(buf, '}');
    close_with(buf, '}');
}
