// SPDX-License-Identifier: Apache-2.0
// The pipeline cache's file (cache.c).
#ifndef PLM_VULKAN_CACHE_H
#define PLM_VULKAN_CACHE_H

#include "backends/vulkan/loader.h"
#include "core/base/status.h"

struct plm_backend_device;

// Fills a new pipeline cache from opts.cache_path where that file fits this driver; what is wrong
// with it is logged.
int plm_vk_cache_open(struct plm_backend_device *dev, VkPipelineCache *ret, struct plm_error *err);
// Writes it there. A failure is logged.
void plm_vk_cache_save(struct plm_backend_device *dev, VkPipelineCache cache);

#endif
