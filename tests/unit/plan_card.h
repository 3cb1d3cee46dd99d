// SPDX-License-Identifier: Apache-2.0
// A card to plan for, and the plan of an input that is valid.
#ifndef PLM_TESTS_PLAN_CARD_H
#define PLM_TESTS_PLAN_CARD_H

#include <check.h>

#include "core/plan/plan.h"

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

// A discrete card of 24 GiB on which the budget binds.
static inline struct plm_plan_input card(void)
{
    struct plm_plan_input in = {
        .g = MIB,
        .T = 24 * GIB,
        .F = 15 * GIB,
        .O = 8 * GIB,
        .K = 512 * MIB,
        .process_use = 8 * GIB + 300 * MIB,
        .memory_fraction = 1.0,
        .limits = {.batch_max_tokens = 2048, .max_sequences = 64, .max_context = 32768},
        .block_bytes = MIB,
        .prefix_cache_blocks = PLM_PLAN_UNKNOWN,
    };
    return in;
}

static inline struct plm_plan plan_of(const struct plm_plan_input *in)
{
    struct plm_plan p;
    struct plm_error err = {.msg = ""};
    ck_assert_msg(plm_plan_compute(in, &p, &err) == PLM_OK, "%s", err.msg);
    return p;
}

#endif
