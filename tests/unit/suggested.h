// SPDX-License-Identifier: Apache-2.0
// The values that a start's last word names, as options again.
#ifndef PLM_TESTS_SUGGESTED_H
#define PLM_TESTS_SUGGESTED_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/plan/plan.h"

// Applies "--parallel 3" or "--ctx-size 64 with --parallel 1 and -b 32". Returns how many there
// are.
static inline int suggested_apply(const char *item, struct plm_plan_input *in)
{
    const int64_t mib = INT64_C(1) << 20;
    int n = 0;
    for (const char *at = item; (at = strchr(at, '-')) != NULL; at += strcspn(at, " ")) {
        const char *value = at + strcspn(at, " ");
        value += strcspn(value, "0123456789");
        n++;
        if (strncmp(at, "--parallel", 10) == 0)
            in->caps.max_sequences = (uint32_t)atoi(value);
        else if (strncmp(at, "-b", 2) == 0)
            in->caps.batch_max_tokens = (uint32_t)atoi(value);
        else if (strncmp(at, "--ctx-size", 10) == 0)
            in->caps.max_context = (uint32_t)atoi(value);
        else if (strncmp(at, "--max-total-tokens", 18) == 0)
            in->pinned_tokens = atoll(value);
        else if (strncmp(at, "--memory-limit", 14) == 0)
            in->operator_limit = atoll(value) * mib;
        else if (strncmp(at, "--host-limit", 12) == 0)
            in->host_limit = atoll(value) * mib;
        else if (strncmp(at, "--memory-fraction", 17) == 0)
            in->memory_fraction = atof(value);
        else
            ck_abort_msg("unknown knob: %s", at);
    }
    return n;
}

#endif
