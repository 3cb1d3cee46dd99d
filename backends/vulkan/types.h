// SPDX-License-Identifier: Apache-2.0
// Memory types by role (types.c): pure.
#ifndef PLM_VULKAN_TYPES_H
#define PLM_VULKAN_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/vulkan/loader.h"

struct plm_vk_types {
    uint32_t heap;    // that slabs come from
    uint32_t slab;    // DEVICE and ELASTIC
    bool slab_cached; // the host sees slabs, and reads them through its caches
    uint32_t pinned;  // PINNED and rings: host memory
};
// allowed: mask of the types that buffers may lie in; unified: the device's memory is the host's.
// False: no heap for slabs, or no memory that the host can write.
bool plm_vk_choose_types(const VkPhysicalDeviceMemoryProperties *memory, uint32_t allowed,
                         bool unified, struct plm_vk_types *ret);

#endif
