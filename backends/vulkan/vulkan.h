// SPDX-License-Identifier: Apache-2.0
// The Vulkan backend: any GPU with a Vulkan 1.3 driver, and CPU drivers. The loader is opened at
// run time; without one the backend lists no device and says so.
#ifndef PLM_VULKAN_H
#define PLM_VULKAN_H

#include "core/backend.h"

extern const struct plm_backend plm_vulkan_backend;

#endif
