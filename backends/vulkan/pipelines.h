// SPDX-License-Identifier: Apache-2.0
// The pipelines of a plan, specialised (pipelines.c).
#ifndef PLM_VULKAN_PIPELINES_H
#define PLM_VULKAN_PIPELINES_H

#include <stdint.h>

#include "backends/shared/choices.h"
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/loader.h"
#include "core/backend.h"

struct plm_vk_pipelines {
    struct plm_vk_kernels kernels;
    struct plm_choices choices;
    VkPipelineLayout layout;
    VkPipelineCache cache;
    uint32_t n, n_slots; // slots: a power of two, at most half of it used
    struct plm_vk_pipeline {
        struct plm_vk_kernel kernel;
        VkPipeline handle; // VK_NULL_HANDLE: free
    } * slots;
};

int plm_vk_pipelines_create(struct plm_backend_device *dev, struct plm_vk_pipelines **ret,
                            struct plm_error *err);
// NULL is allowed.
void plm_vk_pipelines_destroy(struct plm_backend_device *dev, struct plm_vk_pipelines *pipelines);
// Makes every pipeline that the needs name and that is not there yet.
int plm_vk_pipelines_make(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                          struct plm_error *err);
// VK_NULL_HANDLE: not among those of the warm-up.
VkPipeline plm_vk_pipeline_find(const struct plm_vk_pipelines *pipelines,
                                const struct plm_vk_kernel *kernel);

#endif
