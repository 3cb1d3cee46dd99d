// SPDX-License-Identifier: Apache-2.0
// A plan as people read it.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/kv/group.h"
#include "core/plan/report.h"
#include "kernels/abi.h"

#define MIB (INT64_C(1) << 20)

static void row(struct plm_buf *buf, const char *label, int64_t bytes, const char *note)
{
    plm_buf_printf(buf, "  %-30s %12.1f MiB %18" PRId64, label, (double)bytes / (double)MIB, bytes);
    if (note != NULL && *note != '\0')
        plm_buf_printf(buf, "  %s", note);
    plm_buf_append_char(buf, '\n');
}

static void rule(struct plm_buf *buf)
{
    plm_buf_append_str(buf,
                       "  ------------------------------ ------------     ------------------\n");
}

// One of the limits of the room, what is off it, and the mark of the least one.
static void limit_row(struct plm_buf *buf, const char *label, int64_t bytes, const char *off,
                      const char *least)
{
    char note[96];
    snprintf(note, sizeof(note), "%s%s", off, least);
    row(buf, label, bytes, note);
}

// Whether the room decides the size of the KV cache: not where less was asked for, or is enough.
static bool room_decides(const struct plm_plan *plan)
{
    return plan->blocks_bind != PLM_TERM_CAP && plan->blocks_bind != PLM_TERM_DEFAULT &&
           plan->blocks_bind != PLM_TERM_PIN;
}

// Where the room comes from: each limit, and which one is the least.
static void room_rows(struct plm_buf *buf, const struct plm_plan *plan,
                      const struct plm_profile *profile)
{
    const struct plm_plan_input *in = &plan->in;
    const char *least = room_decides(plan) ? "  <- binds" : "";
    row(buf, "device total", in->T, "");
    row(buf, "- other programs, driver", plan->foreign, "");
    if (profile != NULL && profile->graph_bytes > 0)
        row(buf, "    graph", profile->graph_bytes, "of decodes, in the driver's memory");
    if (in->unheld > 0)
        row(buf, "- encoders, not held yet", in->unheld, "");
    limit_row(buf, "left by the device", in->T - plan->foreign - in->unheld, "",
              plan->room_binds == PLM_TERM_DEVICE ? least : "");
    if (in->operator_limit != PLM_PLAN_NO_LIMIT)
        limit_row(buf, "left by --memory-limit", in->operator_limit - plan->own_drv,
                  "what this process itself takes is off",
                  plan->room_binds == PLM_TERM_OPERATOR ? least : "");
    for (uint32_t i = 0; i < in->n_cgroups; i++) {
        const struct plm_plan_cgroup *c = &in->cgroups[i];
        bool this_one = plan->room_binds == PLM_TERM_CGROUP && plan->room_cgroup == i;
        limit_row(buf, "left by the control group",
                  c->limit - (c->current - c->reclaimable - in->O), "what else is in it is off",
                  this_one ? least : "");
    }
    rule(buf);
    row(buf, "room", plan->room, "the least of them");
}

// What host memory is still to take, where it is the device's.
static void host_rows(struct plm_buf *buf, const struct plm_plan *plan)
{
    row(buf, "- host memory", plan->host, "what is still to come of it, and page tables");
    row(buf, "    host budget", plan->host_limit, "--host-limit");
    if (plan->in.host_caller > 0)
        row(buf, "    connections", plan->in.host_caller, "of the program around the engine");
}

// The pools of KV groups beside the main one.
static void window_rows(struct plm_buf *buf, const struct plm_plan *plan)
{
    const struct plm_plan_limits *limits = &plan->in.limits;
    char label[40], note[96];
    for (uint32_t i = 0; i < plan->in.n_windows; i++) {
        const uint32_t window = plan->in.windows[i].window;
        const int64_t cached = plm_plan_window_cached(limits, window);
        const bool whole = plm_kv_window(window, limits->max_context) == 0;
        snprintf(label, sizeof(label), "    %s of %u tokens", whole ? "contexts" : "windows",
                 whole ? limits->max_context : window);
        snprintf(note, sizeof(note),
                 "%" PRId64 " blocks: %u requests and a step, %" PRId64 " cached",
                 plan->windows[i].blocks, limits->max_sequences, cached);
        row(buf, label, plan->windows[i].bytes, note);
    }
}

static void resident_rows(struct plm_buf *buf, const struct plm_report_head *head,
                          const struct plm_plan *plan)
{
    row(buf, "- resident", plan->resident, "weights, workspace, all but the KV cache");
    for (int i = 0; head->ledger != NULL && i < PLM_MEM_CLASSES; i++) {
        int64_t held = head->ledger->by_class[i].held_bytes;
        if (held == 0 || i == PLM_MEM_KV || i == PLM_MEM_BALLAST)
            continue;
        char label[40] = "    ";
        strncat(label, plm_mem_class_name((enum plm_mem_class)i), sizeof(label) - 5);
        row(buf, label, held, "");
        for (uint32_t w = 0; i == PLM_MEM_WEIGHTS && w < head->n_weights; w++) {
            char of[40] = "        ";
            strncat(of, head->weights[w].name, sizeof(of) - 9);
            if (head->weights[w].bytes > 0)
                row(buf, of, head->weights[w].bytes, "");
        }
    }
    window_rows(buf, plan);
    if (plan->in.unified)
        host_rows(buf, plan);
    row(buf, "- margin", plan->margin, "kept free for ever");
    rule(buf);
    row(buf, "budget of the KV cache", plan->budget,
        plan->in.memory_fraction < 1 ? "after --memory-fraction" : "");
}

static const char *why_blocks(const struct plm_plan *plan)
{
    switch (plan->blocks_bind) {
    case PLM_TERM_CAP:
        return plan->prefix_cache_blocks > 0
                   ? "all that the sequences can use, and the prefix cache"
                   : "all that the sequences can use";
    case PLM_TERM_DEFAULT: return "the default";
    case PLM_TERM_BUDGET: return "all that the budget holds";
    case PLM_TERM_PIN: return "--max-total-tokens";
    case PLM_TERM_RANKS: return "what the smallest device holds";
    case PLM_TERM_RESIZE: return "all that the device gave";
    case PLM_TERM_SHRINK: return "what passed the validation";
    default: return "";
    }
}

static bool chose_context(const struct plm_report_head *head, const struct plm_plan *plan)
{
    return head->trained_context > plan->in.limits.max_context;
}

void plm_report_defaults(struct plm_buf *buf, const struct plm_report_head *head,
                         const struct plm_plan *plan)
{
    const struct plm_plan_limits *limits = &plan->in.limits;
    const bool context = chose_context(head, plan);
    if (!context && limits->max_blocks == 0)
        return;
    plm_buf_append_str(buf, "by default: ");
    if (context)
        plm_buf_printf(buf, "%u tokens a request of the %u as trained (-c)%s", limits->max_context,
                       head->trained_context, limits->max_blocks > 0 ? ", " : "");
    if (limits->max_blocks > 0)
        plm_buf_printf(buf,
                       "at most %.0f MiB of KV cache, a quarter of what is free "
                       "(--max-total-tokens, --memory-limit)",
                       (double)(limits->max_blocks * plan->in.block_bytes) / (double)MIB);
    plm_buf_append_char(buf, '\n');
}

static void evidence_rows(struct plm_buf *buf, const struct plm_profile *profile)
{
    plm_buf_printf(buf, "  proved by %u forwards in %.1f s", profile->n_passes,
                   (double)profile->total_ns / 1e9);
    if (profile->attempts > 1)
        plm_buf_printf(buf, ", %u validations", profile->attempts);
    plm_buf_append_char(buf, '\n');
    if (profile->slow_bytes > 0)
        plm_buf_printf(buf,
                       "  note: %.0f MiB that the driver gave were slow memory, not the device's: "
                       "the KV cache is smaller by them\n",
                       (double)profile->slow_bytes / (1 << 20));
    if (profile->context_lowered)
        plm_buf_printf(buf,
                       "  note: the context was lowered from %u tokens, so that one request "
                       "always finishes\n",
                       profile->asked_context);
    if (profile->certified)
        plm_buf_append_str(buf, "  note: an earlier start measured it, this one validated it\n");
    if (!profile->settled)
        plm_buf_append_str(buf, "  note: readings of the device's memory did not settle\n");
}

void plm_report_plan_table(struct plm_buf *buf, const struct plm_report_head *head,
                           const struct plm_plan *plan, const struct plm_profile *profile)
{
    const struct plm_plan_limits *limits = &plan->in.limits;
    plm_buf_printf(buf, "Memory plan: %s on %s", head->model != NULL ? head->model : "model",
                   head->device_id != NULL ? head->device_id : "device");
    const char *isa = head->isa != NULL ? head->isa : "";
    if (head->device_name != NULL)
        plm_buf_printf(buf, " (%s%s%s)", head->device_name, *isa != '\0' ? ", " : "", isa);
    plm_buf_append_str(buf, "\n\n");
    room_rows(buf, plan, profile);
    resident_rows(buf, head, plan);
    char why[96];
    snprintf(why, sizeof(why), "%s%s", why_blocks(plan), room_decides(plan) ? "" : "  <- binds");
    row(buf, "KV cache", plan->kv_bytes, why);
    if (plan->blocks_bind == PLM_TERM_CAP && plan->prefix_cache_blocks > 0) {
        const int64_t kept = plan->prefix_cache_blocks * plan->in.block_bytes;
        row(buf, "    sequences", plan->blocks * plan->in.block_bytes - kept, "");
        row(buf, "    prefix cache", kept, "--prefix-cache off takes none");
    }
    rule(buf);
    row(buf, "load line", plan->line, "resident + KV cache");
    plm_buf_printf(buf,
                   "\n  %" PRId64 " blocks of %d tokens (%" PRId64 " bytes each%s%s) in %" PRId64
                   " allocation%s: %" PRId64 " tokens\n",
                   plan->blocks, PLM_KV_BLOCK_TOKENS, plan->in.block_bytes,
                   head->kv_type != NULL ? ", " : "", head->kv_type != NULL ? head->kv_type : "",
                   plm_plan_slab_count(plan), plm_plan_slab_count(plan) == 1 ? "" : "s",
                   plan->blocks * PLM_KV_BLOCK_TOKENS);
    plm_buf_printf(buf, "  %u tokens a request, %u requests at once, %u rows a step",
                   limits->max_context, limits->max_sequences, limits->batch_max_tokens);
    const uint32_t window = plm_plan_main_window(&plan->in);
    if (window != 0)
        plm_buf_printf(buf, ", windows of %u tokens", window);
    plm_buf_append_str(buf, "\n");
    const bool is_long = plm_report_is_long(head, plan);
    if (head->short_context > 0)
        plm_buf_printf(buf, "  the %s rope factors, which are for contexts %s %u tokens\n",
                       is_long ? "long" : "short", is_long ? "beyond" : "up to",
                       head->short_context);
    if (chose_context(head, plan) || limits->max_blocks > 0)
        plm_buf_append_str(buf, "  ");
    plm_report_defaults(buf, head, plan);
    if (profile != NULL)
        evidence_rows(buf, profile);
    if (head->dry)
        plm_buf_append_str(
            buf, "  a dry run: nothing was loaded or measured, the driver's part is assumed\n");
}
