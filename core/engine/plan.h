// SPDX-License-Identifier: Apache-2.0
// Plans without an engine (plan.c).
#ifndef PLM_ENGINE_PLAN_H
#define PLM_ENGINE_PLAN_H

#include <stdbool.h>

#include "core/base/buf.h"
#include "core/plimsoll.h"

struct plm_core;
struct plm_engine_env;

// A plan in an environment of the caller's; plim_plan_free() destroys its host. The core is made
// and destroyed.
int plm_plan_create_in(const struct plm_engine_env *env, const plim_engine_opts *opts,
                       struct plim_plan **ret, plim_error *err);
// The plan of a core that is ready, as JSON or as a table.
void plm_core_write_plan(const struct plm_core *core, bool json, struct plm_buf *buf);

#endif
