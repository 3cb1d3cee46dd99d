// SPDX-License-Identifier: Apache-2.0
// What every file that stands on the device uses: results, timelines, command buffers.
#include "backends/vulkan/device.h"

#include "core/base/checked.h"

// ---- results ----

int plm_vk_status(struct plm_backend_device *dev, VkResult result)
{
    switch (result) {
    case VK_SUCCESS: return PLM_OK;
    case VK_TIMEOUT:
    case VK_NOT_READY: return PLM_ERR_TIMEOUT;
    case VK_ERROR_OUT_OF_HOST_MEMORY: return PLM_ERR_NOMEM_HOST;
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
    case VK_ERROR_FRAGMENTATION: return PLM_ERR_OUT_OF_DEVICE;
    case VK_ERROR_MEMORY_MAP_FAILED: return PLM_ERR_NOMEM_HOST; // no address space
    case VK_ERROR_FEATURE_NOT_PRESENT:
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FORMAT_NOT_SUPPORTED:
    case VK_ERROR_INVALID_EXTERNAL_HANDLE: return PLM_ERR_UNSUPPORTED;
    // Nothing that such a device says can be relied on.
    default: atomic_store(&dev->lost, true); return PLM_ERR_LOST;
    }
}

// ---- the timeline ----

int plm_vk_timeline_create(struct plm_backend_device *dev, VkSemaphore *ret)
{
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                        .pNext = &type};
    return plm_vk_status(dev, dev->vk->CreateSemaphore(dev->handle, &info, NULL, ret));
}

// A wait looks at the counter for so long before it blocks: blocking costs 20 us more than looking
// (35 and 14 us for an empty list on an H100), so beyond a few times that it no longer shows.
#define POLL_NS INT64_C(100000)

// PLM_OK: the timeline has the value. TIMEOUT: not yet.
static int look(struct plm_backend_device *dev, VkSemaphore timeline, uint64_t value)
{
    uint64_t now;
    int r = plm_vk_status(dev, dev->vk->GetSemaphoreCounterValue(dev->handle, timeline, &now));
    return r != PLM_OK || now >= value ? r : PLM_ERR_TIMEOUT;
}

static int block(struct plm_backend_device *dev, VkSemaphore timeline, uint64_t value,
                 int64_t timeout_ns)
{
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &timeline,
                                      .pValues = &value};
    int r = plm_vk_status(dev, dev->vk->WaitSemaphores(dev->handle, &info, (uint64_t)timeout_ns));
    // A lost device may end a wait as if all were well; the counter tells.
    return r == PLM_OK ? look(dev, timeline, value) : r;
}

int plm_vk_timeline_wait(struct plm_backend_device *dev, VkSemaphore timeline, uint64_t value,
                         int64_t timeout_ns)
{
    if (atomic_load(&dev->lost))
        return PLM_ERR_LOST;
    const int64_t limit = timeout_ns < 0 ? INT64_MAX : timeout_ns;
    // A driver on the CPU needs the core that would look.
    const bool polls = dev->physical.type != VK_PHYSICAL_DEVICE_TYPE_CPU;
    const int64_t poll_until = plm_now(dev->clock) + plm_min_i64(POLL_NS, limit);
    int r = look(dev, timeline, value);
    while (r == PLM_ERR_TIMEOUT && polls && plm_now(dev->clock) < poll_until)
        r = look(dev, timeline, value);
    return r == PLM_ERR_TIMEOUT ? block(dev, timeline, value, limit) : r;
}

// Longer than any step or copy that is still wanted; a device that needs more hangs.
#define FINISH_NS INT64_C(10000000000)

int plm_vk_finish(struct plm_backend_device *dev, VkSemaphore timeline, uint64_t value)
{
    int r = plm_vk_timeline_wait(dev, timeline, value, FINISH_NS);
    if (r != PLM_ERR_TIMEOUT)
        return r;
    atomic_store(&dev->lost, true);
    return PLM_ERR_LOST;
}

void plm_vk_settle(struct plm_backend_device *dev)
{
    if (plm_vk_finish(dev, dev->timeline.semaphore, dev->timeline.value) == PLM_OK)
        plm_vk_finish(dev, dev->copies.semaphore, dev->copies.value);
}

// ---- commands ----

int plm_vk_commands_create(struct plm_backend_device *dev, uint32_t n, VkCommandPool *ret_pool,
                           VkCommandBuffer *ret_buffers)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .queueFamilyIndex = dev->physical.queue_family};
    int r = plm_vk_status(dev, dev->vk->CreateCommandPool(dev->handle, &pool, NULL, ret_pool));
    if (r != PLM_OK)
        return r;
    const VkCommandBufferAllocateInfo info = {.sType =
                                                  VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = *ret_pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = n};
    return plm_vk_status(dev, dev->vk->AllocateCommandBuffers(dev->handle, &info, ret_buffers));
}

void plm_vk_memory_barrier(const struct plm_backend_device *dev, VkCommandBuffer commands,
                           VkPipelineStageFlags2 before, VkAccessFlags2 wrote,
                           VkPipelineStageFlags2 after, VkAccessFlags2 access)
{
    const VkMemoryBarrier2 memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                                     .srcStageMask = before,
                                     .srcAccessMask = wrote,
                                     .dstStageMask = after,
                                     .dstAccessMask = access};
    const VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                   .memoryBarrierCount = 1,
                                   .pMemoryBarriers = &memory};
    dev->vk->CmdPipelineBarrier2(commands, &info);
}
