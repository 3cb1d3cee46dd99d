// SPDX-License-Identifier: Apache-2.0
// What people and programs see of the plan: JSON, a table, and the memory report of GET /v1/memory.
// Functions of plain structs; they append to a buffer, whose `failed` tells of a full budget.
#ifndef PLM_PLAN_REPORT_H
#define PLM_PLAN_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/mem/ledger.h"
#include "core/plan/admit.h"
#include "core/plan/plan.h"
#include "core/plan/profile.h"

#define PLM_REPORT_WEIGHTS_MAX 8

// Weights of one use ("attention").
struct plm_report_weights {
    const char *name;
    int64_t bytes;
};

// What the plan was made for; strings may be NULL.
struct plm_report_head {
    const char *model;
    const char *build;
    const char *device_id; // "cpu"
    const char *device_name;
    const char *device_uuid;
    const char *isa;
    const char *kv_type;                   // "f16"
    const struct plm_ledger_stats *ledger; // phase peaks and bytes by class; may be NULL
    struct plm_report_weights weights[PLM_REPORT_WEIGHTS_MAX];
    uint32_t n_weights;
    uint32_t trained_context; // of the model, where no context was asked for; else 0
    uint32_t short_context; // longer contexts take the model's long rope factors; 0: it has one set
    bool dry;               // planned without the device: there are no phases and no evidence
};

// Whether requests get the model's long rope factors, where it has two sets.
static inline bool plm_report_is_long(const struct plm_report_head *head,
                                      const struct plm_plan *plan)
{
    return plan->in.limits.max_context > head->short_context;
}

// profile may be NULL (a dry run: no evidence).
void plm_report_plan_json(struct plm_buf *buf, const struct plm_report_head *head,
                          const struct plm_plan *plan, const struct plm_profile *profile);
// Aligned columns: MiB and bytes, and which term binds.
void plm_report_plan_table(struct plm_buf *buf, const struct plm_report_head *head,
                           const struct plm_plan *plan, const struct plm_profile *profile);

// One line: what was chosen where nothing was asked for, and the flags that change it; nothing
// where all was asked for.
void plm_report_defaults(struct plm_buf *buf, const struct plm_report_head *head,
                         const struct plm_plan *plan);

// The members of those objects that a certificate holds, too: every field of the formula by its
// name, and the evidence.
void plm_report_formula(struct plm_buf *buf, const char *name, const struct plm_plan *plan);
void plm_report_evidence(struct plm_buf *buf, const struct plm_profile *profile);

// Blocks of one KV group.
struct plm_report_group {
    uint32_t window;  // tokens; 0: full
    const char *type; // of K and V: "f16"
    uint64_t block_bytes;
    uint32_t total, used, cached, free;
};

#define PLM_REPORT_GROUPS_MAX (PLM_PLAN_WINDOWS_MAX + 1)

struct plm_report_device {
    const char *id;
    const char *name;
    uint32_t workers; // threads that compute; 0: a device of its own
    const struct plm_plan *plan;
    struct plm_ledger_stats ledger;
    int64_t limit_bytes;   // the line now
    int64_t foreign_bytes; // as of the last reading
    uint32_t n_groups;     // the main one is the first
    struct plm_report_group groups[PLM_REPORT_GROUPS_MAX];
};

struct plm_report_refusal {
    int64_t wall_ns; // since 1970
    bool never;
    enum plm_admit_term term;
    int64_t needed_bytes;
    int64_t limit_bytes;
    struct plm_admit_offer offer;
};

struct plm_report_neighbour {
    int64_t wall_ns;
    int64_t foreign_bytes;
    int64_t change_bytes;
};

struct plm_report_counter {
    const char *name;
    int64_t value;
};

struct plm_report_memory {
    int64_t wall_ns; // now
    bool ready;
    bool sealed;
    bool asleep;
    const struct plm_report_device *devices;
    uint32_t n_devices;
    struct plm_host_stats host;
    uint32_t running, waiting, preempted;
    const struct plm_report_refusal *refusals; // oldest first
    uint32_t n_refusals;
    const struct plm_report_neighbour *neighbours; // oldest first
    uint32_t n_neighbours;
    const struct plm_report_counter *counters;
    uint32_t n_counters;
};
// The object of GET /v1/memory.
void plm_report_memory_json(struct plm_buf *buf, const struct plm_report_memory *memory);

#endif
