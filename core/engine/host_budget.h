// SPDX-License-Identifier: Apache-2.0
// The host budget of a start: what the engine's own tables take, and whether a limit holds them.
#ifndef PLM_ENGINE_HOST_BUDGET_H
#define PLM_ENGINE_HOST_BUDGET_H

#include <stdint.h>

#include "core/base/status.h"

struct plm_core;
struct plm_plan_limits;

// Nodes of prefixes whose blocks left the window of the main group: those of all sequences.
uint32_t plm_core_extra_nodes(const struct plm_core *core, const struct plm_plan_limits *limits);
// A host limit that holds all tables for what was chosen, on a device of total_bytes; 0: the size
// is pinned, and a suggested one keeps to the budget.
int64_t plm_core_host_needs(const struct plm_core *core, int64_t total_bytes);
// Checks the host's budget, on a device of total_bytes, before the load.
int plm_core_preflight_host(const struct plm_core *core, int64_t total_bytes,
                            struct plm_error *err);
// From the plan to serving, the budget is enforced; what was there before was measured.
int plm_core_seal_host(const struct plm_core *core, struct plm_error *err);

#endif
