// SPDX-License-Identifier: Apache-2.0
// Buffers with memory of their own (memory.c).
#ifndef PLM_VULKAN_MEMORY_H
#define PLM_VULKAN_MEMORY_H

#include <stdint.h>

#include "backends/vulkan/loader.h"

struct plm_backend_device;

// The buffer that slabs and rings are.
VkBufferCreateInfo plm_vk_buffer_info(uint64_t bytes);

// A buffer of its own with memory of a type, mapped where the host sees the type (host, else NULL);
// taken: what the driver took. There when the call returns; not charged to taken_bytes.
struct plm_vk_memory {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t addr, taken;
    void *host;
};
int plm_vk_memory_create(struct plm_backend_device *dev, uint32_t type, uint64_t bytes,
                         struct plm_vk_memory *ret);
// Of memory that the caller keeps. UNSUPPORTED: no imports; INVALID: not aligned.
int plm_vk_memory_import(struct plm_backend_device *dev, void *ptr, uint64_t bytes,
                         struct plm_vk_memory *ret);
void plm_vk_memory_destroy(struct plm_backend_device *dev, struct plm_vk_memory *memory);

#endif
