// SPDX-License-Identifier: Apache-2.0
// A bare Vulkan client for the layer's own tests: an instance, a device with one compute queue and
// one timeline semaphore, and a pipeline whose shader does nothing. No function of it asserts:
// failures are results, which is what the tests are about.
#ifndef PLM_VK_CLIENT_H
#define PLM_VK_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#define CLIENT_GLOBAL(X) X(CreateInstance)
#define CLIENT_INSTANCE(X)                                                                         \
    X(DestroyInstance)                                                                             \
    X(EnumeratePhysicalDevices)                                                                    \
    X(EnumerateDeviceExtensionProperties)                                                          \
    X(GetPhysicalDeviceProperties2)                                                                \
    X(GetPhysicalDeviceFeatures)                                                                   \
    X(GetPhysicalDeviceFeatures2)                                                                  \
    X(GetPhysicalDeviceMemoryProperties2)                                                          \
    X(GetPhysicalDeviceQueueFamilyProperties2)                                                     \
    X(CreateDevice)                                                                                \
    X(GetDeviceProcAddr)
#define CLIENT_DEVICE(X)                                                                           \
    X(DestroyDevice)                                                                               \
    X(GetDeviceQueue)                                                                              \
    X(AllocateMemory)                                                                              \
    X(FreeMemory)                                                                                  \
    X(MapMemory)                                                                                   \
    X(CreateBuffer)                                                                                \
    X(DestroyBuffer)                                                                               \
    X(GetBufferMemoryRequirements2)                                                                \
    X(CreateShaderModule)                                                                          \
    X(DestroyShaderModule)                                                                         \
    X(CreatePipelineLayout)                                                                        \
    X(DestroyPipelineLayout)                                                                       \
    X(CreateComputePipelines)                                                                      \
    X(DestroyPipeline)                                                                             \
    X(CreateSemaphore)                                                                             \
    X(DestroySemaphore)                                                                            \
    X(CreateCommandPool)                                                                           \
    X(DestroyCommandPool)                                                                          \
    X(AllocateCommandBuffers)                                                                      \
    X(BeginCommandBuffer)                                                                          \
    X(EndCommandBuffer)                                                                            \
    X(CmdBindPipeline)                                                                             \
    X(CmdDispatch)                                                                                 \
    X(CmdPipelineBarrier2)                                                                         \
    X(CmdFillBuffer)                                                                               \
    X(QueueSubmit2)                                                                                \
    X(WaitSemaphores)                                                                              \
    X(GetSemaphoreCounterValue)                                                                    \
    X(DeviceWaitIdle)

struct client {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define X(name) PFN_vk##name name;
    CLIENT_GLOBAL(X)
    CLIENT_INSTANCE(X)
    CLIENT_DEVICE(X)
#undef X
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    VkSemaphore timeline;
    uint64_t value; // last submitted
    VkShaderModule shader;
    VkPipelineLayout layout;
    VkPipeline pipeline;
    VkCommandPool pool;
    VkCommandBuffer commands; // one dispatch and one barrier
};

// Opens the loader. False: there is none.
bool client_loader(struct client *c);
// The instance, and its first physical device: physical stays NULL where there is none.
VkResult client_instance(struct client *c);
// Device, queue and timeline. extension and next may be NULL.
VkResult client_device(struct client *c, const char *extension, void *next);
// Pipeline and recorded commands.
VkResult client_commands(struct client *c);
// The commands, if there are any, signalling the next value.
VkResult client_submit(struct client *c);
VkResult client_wait(struct client *c, uint64_t timeout_ns);
VkResult client_allocate(struct client *c, uint64_t bytes, uint32_t type, VkDeviceMemory *ret);
// Whether there is a loader and a driver with a device. Asked in a process of its own: the layer
// reads its environment once.
bool client_can_run(void);
// What there is of it.
void client_close_device(struct client *c);
void client_close(struct client *c);

#endif
