// SPDX-License-Identifier: Apache-2.0
// Rings for memory that the host does not see (staging.c).
#ifndef PLM_VULKAN_STAGING_H
#define PLM_VULKAN_STAGING_H

#include <stdint.h>

#include "backends/vulkan/loader.h"

struct plm_backend_device;
struct plm_vk_staging;

// A part of a slab.
struct plm_vk_range {
    uint64_t addr;
    VkBuffer buffer;
    uint64_t offset; // in the buffer
    uint64_t bytes;
};

int plm_vk_staging_create(struct plm_backend_device *dev, struct plm_vk_staging **ret);
void plm_vk_staging_destroy(struct plm_backend_device *dev, struct plm_vk_staging *staging);
// Gives back the load ring for good (empty_cache); returns its bytes.
uint64_t plm_vk_staging_trim(struct plm_backend_device *dev);
// Before a slab is freed: drops those copies into it that wait for a submit.
void plm_vk_staging_forget(struct plm_backend_device *dev, uint64_t addr, uint64_t bytes);
int plm_vk_staging_in(struct plm_backend_device *dev, const struct plm_vk_range *to,
                      const void *src);
int plm_vk_staging_out(struct plm_backend_device *dev, void *dst, const struct plm_vk_range *from);
// Small copies wait in the serving ring for the next submit, before whose dispatches they run: the
// commands that hold them, with the barriers before and after; VK_NULL_HANDLE where none waits.
// Where the submit went through, submitted says so; where it did not, the copies wait on.
int plm_vk_staging_flush(struct plm_backend_device *dev, VkCommandBuffer *ret);
void plm_vk_staging_submitted(struct plm_backend_device *dev, uint64_t value);

#endif
