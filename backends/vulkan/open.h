// SPDX-License-Identifier: Apache-2.0
// Opens and closes a device; capabilities (open.c).
#ifndef PLM_VULKAN_OPEN_H
#define PLM_VULKAN_OPEN_H

#include "core/backend.h"

int plm_vk_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                struct plm_error *err);
void plm_vk_close(struct plm_backend_device *dev);

#endif
