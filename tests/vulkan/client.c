// SPDX-License-Identifier: Apache-2.0
#include "client.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

// void main() {}
static const uint32_t EMPTY_SHADER[] = {
    0x07230203, 0x00010000, 0,          5,          0,    // header
    0x00020011, 1,                                        // Shader
    0x0003000e, 0,          1,                            // Logical, GLSL450
    0x0005000f, 5,          1,          0x6e69616d, 0,    // GLCompute %1 "main"
    0x00060010, 1,          17,         1,          1, 1, // LocalSize 1 1 1
    0x00020013, 2,          0x00030021, 3,          2,    // %2 = void, %3 = %2()
    0x00050036, 2,          1,          0,          3,    // %1 = function
    0x000200f8, 4,          0x000100fd, 0x00010038,       // label, return, end
};

bool client_loader(struct client *c)
{
    *c = (struct client){.instance = VK_NULL_HANDLE};
    void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return false;
    }
    *(void **)&c->GetInstanceProcAddr = dlsym(library, "vkGetInstanceProcAddr");
#define X(name) c->name = (PFN_vk##name)c->GetInstanceProcAddr(NULL, "vk" #name);
    CLIENT_GLOBAL(X)
#undef X
    return c->CreateInstance != NULL;
}

VkResult client_instance(struct client *c)
{
    const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .apiVersion = VK_API_VERSION_1_3};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &app};
    uint32_t n = 1;
    VkResult result = c->CreateInstance(&info, NULL, &c->instance);
    if (result != VK_SUCCESS) {
        return result;
    }
#define X(name) c->name = (PFN_vk##name)c->GetInstanceProcAddr(c->instance, "vk" #name);
    CLIENT_INSTANCE(X)
#undef X
    result = c->EnumeratePhysicalDevices(c->instance, &n, &c->physical);
    if (n == 0) {
        c->physical = VK_NULL_HANDLE;
    }
    return result == VK_INCOMPLETE ? VK_SUCCESS : result;
}

VkResult client_device(struct client *c, const char *extension, void *next)
{
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    VkPhysicalDeviceVulkan13Features v13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
        .pNext = next,
        .synchronization2 = VK_TRUE};
    VkPhysicalDeviceVulkan12Features v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .pNext = &v13,
        .timelineSemaphore = VK_TRUE};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &v12,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = extension != NULL,
                                     .ppEnabledExtensionNames = &extension};
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                             .pNext = &type};
    VkResult result = c->CreateDevice(c->physical, &info, NULL, &c->device);
    if (result != VK_SUCCESS) {
        return result;
    }
#define X(name) c->name = (PFN_vk##name)c->GetDeviceProcAddr(c->device, "vk" #name);
    CLIENT_DEVICE(X)
#undef X
    c->value = 0;
    c->GetDeviceQueue(c->device, 0, 0, &c->queue);
    return c->CreateSemaphore(c->device, &semaphore, NULL, &c->timeline);
}

static VkResult make_pipeline(struct client *c)
{
    const VkShaderModuleCreateInfo shader = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                             .codeSize = sizeof(EMPTY_SHADER),
                                             .pCode = EMPTY_SHADER};
    const VkPipelineLayoutCreateInfo layout = {.sType =
                                                   VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    VkResult result = c->CreateShaderModule(c->device, &shader, NULL, &c->shader);
    if (result == VK_SUCCESS) {
        result = c->CreatePipelineLayout(c->device, &layout, NULL, &c->layout);
    }
    if (result != VK_SUCCESS) {
        return result;
    }
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = c->shader,
                  .pName = "main"},
        .layout = c->layout};
    return c->CreateComputePipelines(c->device, VK_NULL_HANDLE, 1, &info, NULL, &c->pipeline);
}

VkResult client_commands(struct client *c)
{
    const VkMemoryBarrier2 memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                                     .srcStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT,
                                     .dstStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT};
    const VkDependencyInfo barrier = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                      .memoryBarrierCount = 1,
                                      .pMemoryBarriers = &memory};
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    VkResult result = make_pipeline(c);
    if (result == VK_SUCCESS) {
        result = c->CreateCommandPool(c->device, &pool, NULL, &c->pool);
    }
    if (result != VK_SUCCESS) {
        return result;
    }
    const VkCommandBufferAllocateInfo commands = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = c->pool,
        .commandBufferCount = 1};
    result = c->AllocateCommandBuffers(c->device, &commands, &c->commands);
    if (result == VK_SUCCESS) {
        result = c->BeginCommandBuffer(c->commands, &begin);
    }
    if (result != VK_SUCCESS) {
        return result;
    }
    c->CmdBindPipeline(c->commands, VK_PIPELINE_BIND_POINT_COMPUTE, c->pipeline);
    c->CmdDispatch(c->commands, 1, 1, 1);
    c->CmdPipelineBarrier2(c->commands, &barrier);
    return c->EndCommandBuffer(c->commands);
}

VkResult client_submit(struct client *c)
{
    const VkCommandBufferSubmitInfo commands = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = c->commands};
    const VkSemaphoreSubmitInfo signal = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                          .semaphore = c->timeline,
                                          .value = c->value + 1,
                                          .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
    const VkSubmitInfo2 info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                .commandBufferInfoCount = c->commands != VK_NULL_HANDLE,
                                .pCommandBufferInfos = &commands,
                                .signalSemaphoreInfoCount = 1,
                                .pSignalSemaphoreInfos = &signal};
    VkResult result = c->QueueSubmit2(c->queue, 1, &info, VK_NULL_HANDLE);
    c->value += result == VK_SUCCESS;
    return result;
}

VkResult client_wait(struct client *c, uint64_t timeout_ns)
{
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &c->timeline,
                                      .pValues = &c->value};
    return c->WaitSemaphores(c->device, &info, timeout_ns);
}

VkResult client_allocate(struct client *c, uint64_t bytes, uint32_t type, VkDeviceMemory *ret)
{
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .allocationSize = bytes,
                                       .memoryTypeIndex = type};
    return c->AllocateMemory(c->device, &info, NULL, ret);
}

void client_close_device(struct client *c)
{
    if (c->device != VK_NULL_HANDLE) {
        c->DeviceWaitIdle(c->device);
        c->DestroyCommandPool(c->device, c->pool, NULL);
        c->DestroyPipeline(c->device, c->pipeline, NULL);
        c->DestroyPipelineLayout(c->device, c->layout, NULL);
        c->DestroyShaderModule(c->device, c->shader, NULL);
        c->DestroySemaphore(c->device, c->timeline, NULL);
        c->DestroyDevice(c->device, NULL);
    }
    c->device = VK_NULL_HANDLE;
    c->pool = VK_NULL_HANDLE;
    c->commands = VK_NULL_HANDLE;
    c->pipeline = VK_NULL_HANDLE;
    c->layout = VK_NULL_HANDLE;
    c->shader = VK_NULL_HANDLE;
    c->timeline = VK_NULL_HANDLE;
}

void client_close(struct client *c)
{
    client_close_device(c);
    if (c->instance != VK_NULL_HANDLE) {
        c->DestroyInstance(c->instance, NULL);
        c->instance = VK_NULL_HANDLE;
    }
}

bool client_can_run(void)
{
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        struct client probe;
        bool there = client_loader(&probe) && client_instance(&probe) == VK_SUCCESS &&
                     probe.physical != VK_NULL_HANDLE;
        _exit(there ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}
