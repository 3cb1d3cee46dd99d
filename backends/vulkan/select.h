// SPDX-License-Identifier: Apache-2.0
// Which device is meant (select.c).
#ifndef PLM_VULKAN_SELECT_H
#define PLM_VULKAN_SELECT_H

#include <stdint.h>

#include "backends/shared/card_opts.h"
#include "backends/vulkan/instance.h"

// The device that the options name (select.c). NOT_FOUND: the error lists what there is.
int plm_vk_select(const struct plm_vk_opts *opts, const struct plm_vk_described *list, uint32_t n,
                  uint32_t *ret, struct plm_error *err);

#endif
