// SPDX-License-Identifier: Apache-2.0
// The values that a start's last word names, as options again.
#ifndef PLM_TESTS_SUGGESTED_H
#define PLM_TESTS_SUGGESTED_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/plan/plan.h"

// Applies "max_sequences 3" or "ctx_size 64 with max_sequences 1 and batch_max_tokens 32". Returns
// how many there are.
static inline int suggested_apply(const char *item, struct plm_plan_input *in)
{
    static const char *const knobs[] = {
        "max_sequences ",      "batch_max_tokens ", "ctx_size ",        "max_total_tokens ",
        "memory_limit_bytes ", "host_limit_bytes ", "memory_fraction ",
    };
    const int64_t mib = INT64_C(1) << 20;
    int n = 0;
    for (size_t k = 0; k < sizeof(knobs) / sizeof(knobs[0]); k++) {
        const char *at = strstr(item, knobs[k]);
        if (at == NULL)
            continue;
        const char *value = at + strlen(knobs[k]);
        value += strcspn(value, "0123456789");
        n++;
        switch (k) {
        case 0: in->limits.max_sequences = (uint32_t)atoi(value); break;
        case 1: in->limits.batch_max_tokens = (uint32_t)atoi(value); break;
        case 2: in->limits.max_context = (uint32_t)atoi(value); break;
        case 3: in->pinned_tokens = atoll(value); break;
        case 4: in->operator_limit = atoll(value) * mib; break;
        case 5: in->host_limit = atoll(value) * mib; break;
        default: in->memory_fraction = atof(value);
        }
    }
    return n;
}

#endif
