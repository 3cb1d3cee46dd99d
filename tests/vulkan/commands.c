// SPDX-License-Identifier: Apache-2.0
// Command pools and buffers, and what is recorded into them: counted.
#include "account.h"
#include "faults.h"
#include "layer.h"

static VKAPI_ATTR VkResult VKAPI_CALL create_pool(VkDevice handle,
                                                  const VkCommandPoolCreateInfo *info,
                                                  const VkAllocationCallbacks *callbacks,
                                                  VkCommandPool *ret)
{
    VkResult result = faults_result(PLACE_POOL, 0);
    if (result == VK_SUCCESS) {
        result = layer_device_of(handle)->CreateCommandPool(handle, info, callbacks, ret);
    }
    account_add(ACCOUNT_command_pools_created, result == VK_SUCCESS);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_pool(VkDevice handle, VkCommandPool pool,
                                               const VkAllocationCallbacks *callbacks)
{
    if (pool != VK_NULL_HANDLE) {
        account_pool_gone((uint64_t)pool);
        account_add(ACCOUNT_command_pools_destroyed, 1);
    }
    layer_device_of(handle)->DestroyCommandPool(handle, pool, callbacks);
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate_buffers(VkDevice handle,
                                                       const VkCommandBufferAllocateInfo *info,
                                                       VkCommandBuffer *ret)
{
    VkResult result = faults_result(PLACE_COMMANDS, 0);
    if (result == VK_SUCCESS) {
        result = layer_device_of(handle)->AllocateCommandBuffers(handle, info, ret);
    }
    for (uint32_t i = 0; result == VK_SUCCESS && i < info->commandBufferCount; i++) {
        account_buffer((uint64_t)(uintptr_t)ret[i], (uint64_t)info->commandPool);
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL free_buffers(VkDevice handle, VkCommandPool pool, uint32_t n,
                                               const VkCommandBuffer *buffers)
{
    for (uint32_t i = 0; i < n; i++) {
        account_buffer_gone((uint64_t)(uintptr_t)buffers[i]);
    }
    layer_device_of(handle)->FreeCommandBuffers(handle, pool, n, buffers);
}

static VKAPI_ATTR VkResult VKAPI_CALL begin(VkCommandBuffer buffer,
                                            const VkCommandBufferBeginInfo *info)
{
    VkResult result = layer_device_of(buffer)->BeginCommandBuffer(buffer, info);
    if (result == VK_SUCCESS) {
        account_begin((uint64_t)(uintptr_t)buffer);
    }
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL end(VkCommandBuffer buffer)
{
    VkResult result = layer_device_of(buffer)->EndCommandBuffer(buffer);
    return result == VK_SUCCESS ? faults_result(PLACE_RECORD, 0) : result;
}

static const struct layer_device *record(VkCommandBuffer buffer, enum account_command command)
{
    account_record((uint64_t)(uintptr_t)buffer, command);
    return layer_device_of(buffer);
}

static VKAPI_ATTR void VKAPI_CALL bind(VkCommandBuffer buffer, VkPipelineBindPoint point,
                                       VkPipeline pipeline)
{
    record(buffer, COMMAND_OTHER)->CmdBindPipeline(buffer, point, pipeline);
}

static VKAPI_ATTR void VKAPI_CALL push(VkCommandBuffer buffer, VkPipelineLayout layout,
                                       VkShaderStageFlags stages, uint32_t offset, uint32_t bytes,
                                       const void *values)
{
    record(buffer, COMMAND_OTHER)->CmdPushConstants(buffer, layout, stages, offset, bytes, values);
}

static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer buffer, uint32_t x, uint32_t y,
                                           uint32_t z)
{
    record(buffer, COMMAND_DISPATCH)->CmdDispatch(buffer, x, y, z);
}

static VKAPI_ATTR void VKAPI_CALL dispatch_base(VkCommandBuffer buffer, uint32_t x, uint32_t y,
                                                uint32_t z, uint32_t nx, uint32_t ny, uint32_t nz)
{
    record(buffer, COMMAND_DISPATCH)->CmdDispatchBase(buffer, x, y, z, nx, ny, nz);
}

static VKAPI_ATTR void VKAPI_CALL dispatch_indirect(VkCommandBuffer buffer, VkBuffer from,
                                                    VkDeviceSize offset)
{
    record(buffer, COMMAND_DISPATCH)->CmdDispatchIndirect(buffer, from, offset);
}

static VKAPI_ATTR void VKAPI_CALL barrier(VkCommandBuffer buffer, VkPipelineStageFlags from,
                                          VkPipelineStageFlags to, VkDependencyFlags flags,
                                          uint32_t n_memory, const VkMemoryBarrier *memory,
                                          uint32_t n_buffer, const VkBufferMemoryBarrier *buffers,
                                          uint32_t n_image, const VkImageMemoryBarrier *images)
{
    record(buffer, COMMAND_BARRIER)
        ->CmdPipelineBarrier(buffer, from, to, flags, n_memory, memory, n_buffer, buffers, n_image,
                             images);
}

static VKAPI_ATTR void VKAPI_CALL barrier2(VkCommandBuffer buffer, const VkDependencyInfo *info)
{
    record(buffer, COMMAND_BARRIER)->CmdPipelineBarrier2(buffer, info);
}

static VKAPI_ATTR void VKAPI_CALL copy(VkCommandBuffer buffer, VkBuffer from, VkBuffer to,
                                       uint32_t n, const VkBufferCopy *regions)
{
    record(buffer, COMMAND_COPY)->CmdCopyBuffer(buffer, from, to, n, regions);
}

static VKAPI_ATTR void VKAPI_CALL copy2(VkCommandBuffer buffer, const VkCopyBufferInfo2 *info)
{
    record(buffer, COMMAND_COPY)->CmdCopyBuffer2(buffer, info);
}

static VKAPI_ATTR void VKAPI_CALL fill(VkCommandBuffer buffer, VkBuffer to, VkDeviceSize offset,
                                       VkDeviceSize bytes, uint32_t value)
{
    record(buffer, COMMAND_COPY)->CmdFillBuffer(buffer, to, offset, bytes, value);
}

static VKAPI_ATTR void VKAPI_CALL update(VkCommandBuffer buffer, VkBuffer to, VkDeviceSize offset,
                                         VkDeviceSize bytes, const void *data)
{
    record(buffer, COMMAND_COPY)->CmdUpdateBuffer(buffer, to, offset, bytes, data);
}

static VKAPI_ATTR void VKAPI_CALL execute(VkCommandBuffer buffer, uint32_t n,
                                          const VkCommandBuffer *secondaries)
{
    for (uint32_t i = 0; i < n; i++) {
        account_call((uint64_t)(uintptr_t)buffer, (uint64_t)(uintptr_t)secondaries[i]);
    }
    layer_device_of(buffer)->CmdExecuteCommands(buffer, n, secondaries);
}

const struct layer_wrapper commands_wrappers[] = {
    WRAPPER("vkCreateCommandPool", create_pool),
    WRAPPER("vkDestroyCommandPool", destroy_pool),
    WRAPPER("vkAllocateCommandBuffers", allocate_buffers),
    WRAPPER("vkFreeCommandBuffers", free_buffers),
    WRAPPER("vkBeginCommandBuffer", begin),
    WRAPPER("vkEndCommandBuffer", end),
    WRAPPER("vkCmdBindPipeline", bind),
    WRAPPER("vkCmdPushConstants", push),
    WRAPPER("vkCmdDispatch", dispatch),
    WRAPPER("vkCmdDispatchBase", dispatch_base),
    WRAPPER("vkCmdDispatchBaseKHR", dispatch_base),
    WRAPPER("vkCmdDispatchIndirect", dispatch_indirect),
    WRAPPER("vkCmdPipelineBarrier", barrier),
    WRAPPER("vkCmdPipelineBarrier2", barrier2),
    WRAPPER("vkCmdPipelineBarrier2KHR", barrier2),
    WRAPPER("vkCmdCopyBuffer", copy),
    WRAPPER("vkCmdCopyBuffer2", copy2),
    WRAPPER("vkCmdCopyBuffer2KHR", copy2),
    WRAPPER("vkCmdFillBuffer", fill),
    WRAPPER("vkCmdUpdateBuffer", update),
    WRAPPER("vkCmdExecuteCommands", execute),
    {NULL, NULL},
};
