// SPDX-License-Identifier: Apache-2.0
// Warm-up: every kernel is made and run once (warm.c).
#ifndef PLM_VULKAN_WARM_H
#define PLM_VULKAN_WARM_H

#include "core/backend.h"

// The entry warm_up of struct plm_backend.
int plm_vk_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                   struct plm_error *err);

#endif
