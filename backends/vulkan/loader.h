// SPDX-License-Identifier: Apache-2.0
// libvulkan opened at run time, and its functions by who resolves them (loader.c).
#ifndef PLM_VULKAN_LOADER_H
#define PLM_VULKAN_LOADER_H

#include <stdbool.h>
#include <stdint.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "core/base/status.h"

struct plm_vk_instance;

// Entry points by who resolves them: X(name) without the vk.
// clang-format off
#define PLM_VK_GLOBAL(X) \
    X(CreateInstance) X(EnumerateInstanceVersion) X(EnumerateInstanceExtensionProperties)
#define PLM_VK_INSTANCE(X) \
    X(DestroyInstance) X(EnumeratePhysicalDevices) X(GetPhysicalDeviceProperties2) \
    X(GetPhysicalDeviceFeatures2) X(GetPhysicalDeviceMemoryProperties2) \
    X(GetPhysicalDeviceQueueFamilyProperties2) X(EnumerateDeviceExtensionProperties) \
    X(CreateDevice) X(GetDeviceProcAddr)
#define PLM_VK_DEVICE(X) \
    X(DestroyDevice) X(GetDeviceQueue) X(AllocateMemory) X(FreeMemory) X(MapMemory) \
    X(CreateBuffer) X(DestroyBuffer) X(GetBufferMemoryRequirements2) \
    X(GetDeviceBufferMemoryRequirements) X(BindBufferMemory2) X(GetBufferDeviceAddress) \
    X(CreateSemaphore) X(DestroySemaphore) X(WaitSemaphores) X(GetSemaphoreCounterValue) \
    X(CreateCommandPool) X(DestroyCommandPool) X(ResetCommandPool) X(AllocateCommandBuffers) \
    X(BeginCommandBuffer) X(EndCommandBuffer) X(CmdBindPipeline) X(CmdPushConstants) \
    X(CmdDispatchBase) X(CmdPipelineBarrier2) X(CmdCopyBuffer2) X(QueueSubmit2) \
    X(DeviceWaitIdle) X(CreateShaderModule) X(DestroyShaderModule) X(CreatePipelineLayout) \
    X(DestroyPipelineLayout) X(CreateComputePipelines) X(DestroyPipeline) X(CreatePipelineCache) \
    X(DestroyPipelineCache) X(GetPipelineCacheData)
// Absent without their extensions.
#define PLM_VK_OPTIONAL(X) \
    X(GetMemoryHostPointerPropertiesEXT) X(QueueInsertDebugUtilsLabelEXT)
// clang-format on

struct plm_vk_fns {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define X(name) PFN_vk##name name;
    PLM_VK_GLOBAL(X)
    PLM_VK_INSTANCE(X)
    PLM_VK_DEVICE(X)
    PLM_VK_OPTIONAL(X)
#undef X
};

extern const char *const plm_vk_loader_names[]; // tried in this order; ended by NULL

// Opens the first of the names that is there and resolves the global functions. NOT_FOUND: none.
int plm_vk_loader_open(const char *const *names, void **ret_library, struct plm_vk_fns *ret,
                       struct plm_error *err);
void plm_vk_loader_close(void *library);

// Resolve the functions of an instance and of a device (loader.c).
int plm_vk_instance_functions(struct plm_vk_instance *instance, struct plm_error *err);
int plm_vk_device_functions(struct plm_vk_fns *vk, VkDevice device, struct plm_error *err);

#endif
