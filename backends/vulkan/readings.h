// SPDX-License-Identifier: Apache-2.0
// What is free (readings.c).
#ifndef PLM_VULKAN_READINGS_H
#define PLM_VULKAN_READINGS_H

#include <stdbool.h>
#include <stdint.h>

struct plm_backend_device;
struct plm_mem_info;

int plm_vk_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret);
// Waits until the driver no longer counts slabs that were freed, where it tells, but not for long.
void plm_vk_await_frees(struct plm_backend_device *dev);
// Before a slab is freed.
void plm_vk_note_free(struct plm_backend_device *dev);

// What is known of the slabs' heap; budget and usage are as the driver says, unbelieved.
struct plm_vk_heap {
    uint64_t bytes;
    bool has_budget; // VK_EXT_memory_budget
    uint64_t budget, usage;
    uint64_t own; // taken by us, as we count
};
// A reading of it, bounded by what can be.
void plm_vk_read_heap(const struct plm_vk_heap *heap, struct plm_mem_info *ret);
// Of a device in the host's memory: bounds the reading by the machine's; of a CPU driver the use is
// that of the process.
void plm_vk_read_unified(const struct plm_mem_info *machine, bool cpu, struct plm_mem_info *info);

#endif
