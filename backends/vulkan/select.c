// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/select.h"

#include <inttypes.h>
#include <stdio.h>

#include "backends/vulkan/instance.h"

// What is there instead: "vulkan:0 NAME; NAME, which lacks ..." as far as there is room.
static int fail_none(const struct plm_vk_opts *opts, const struct plm_vk_described *list,
                     uint32_t n, struct plm_error *err)
{
    char there[PLM_ERROR_MSG_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < n && used < sizeof(there); i++) {
        const struct plm_vk_described *j = &list[i];
        const char *sep = i > 0 ? "; " : "";
        int len = j->missing[0] == '\0'
                      ? snprintf(there + used, sizeof(there) - used, "%svulkan:%" PRIu32 " %s", sep,
                                 i, j->physical.name)
                      : snprintf(there + used, sizeof(there) - used, "%s%s, which lacks %s", sep,
                                 j->physical.name, j->missing);
        used += len > 0 ? (size_t)len : 0;
    }
    char which[80];
    plm_which_text(&opts->which, which);
    return plm_fail(err, PLM_ERR_NOT_FOUND, "vulkan: no usable device '%s'; there is: %s", which,
                    there);
}

int plm_vk_select(const struct plm_vk_opts *opts, const struct plm_vk_described *list, uint32_t n,
                  uint32_t *ret, struct plm_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (list[i].missing[0] == '\0' &&
            plm_which_matches(&opts->which, i, list[i].physical.name, list[i].physical.uuid)) {
            *ret = i;
            return PLM_OK;
        }
    }
    return fail_none(opts, list, n, err);
}
