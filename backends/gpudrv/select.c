// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>

#include "backends/gpudrv/impl.h"

// What is there instead: "cuda:0 NAME; cuda:1 NAME, which lacks ..." as far as there is room.
static int fail_none(const char *backend, const struct plm_gpu_opts *opts,
                     const struct plm_gpu_card *cards, uint32_t n, struct plm_error *err)
{
    char there[PLM_ERROR_MSG_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < n && used < sizeof(there); i++) {
        const bool lacks = cards[i].missing[0] != '\0';
        const int len = snprintf(there + used, sizeof(there) - used, "%s%s:%" PRIu32 " %s%s%s",
                                 i > 0 ? "; " : "", backend, i, cards[i].name,
                                 lacks ? ", which lacks " : "", cards[i].missing);
        used += len > 0 ? (size_t)len : 0;
    }
    char which[80];
    plm_which_text(&opts->which, which);
    return plm_fail(err, PLM_ERR_NOT_FOUND, "%s: no usable device '%s'; there is: %s", backend,
                    which, there);
}

int plm_gpu_select(const char *backend, const struct plm_gpu_opts *opts,
                   const struct plm_gpu_card *cards, uint32_t n, uint32_t *ret,
                   struct plm_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (cards[i].missing[0] == '\0' &&
            plm_which_matches(&opts->which, i, cards[i].name, cards[i].uuid)) {
            *ret = i;
            return PLM_OK;
        }
    }
    return fail_none(backend, opts, cards, n, err);
}
