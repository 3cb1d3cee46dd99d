// SPDX-License-Identifier: Apache-2.0
// Which of several kernels of the same bits an op runs (variants.c): pure but for the choices.
#ifndef PLM_VULKAN_VARIANTS_H
#define PLM_VULKAN_VARIANTS_H

#include <stdint.h>

#include "backends/shared/choices.h"
#include "core/backend.h"

// The entries variants, variant_name and choose of struct plm_backend.
uint32_t plm_vk_variants(const struct plm_backend_device *dev, enum plm_op op, const void *args,
                         char name[PLM_TUNING_NAME_BYTES]);
const char *plm_vk_variant_name(const struct plm_backend_device *dev, enum plm_op op,
                                uint32_t index);
int plm_vk_choose(struct plm_backend_device *dev, enum plm_op op, const void *args, uint32_t index);
// What was chosen for these arguments, 0 where nothing was.
uint32_t plm_vk_chosen(const struct plm_choices *choices, enum plm_op op, const void *args);

#endif
