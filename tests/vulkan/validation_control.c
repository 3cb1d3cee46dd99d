// SPDX-License-Identifier: Apache-2.0
// Does two things wrong that validation must see: a buffer of no bytes (core checks), and a write
// over a write without a barrier (synchronisation checks). Exit 77 where there is no device.
#include <stdio.h>

#include "tests/vulkan/client.h"

#define BYTES 1024

static int fail(const char *what)
{
    printf("validation_control: %s failed\n", what);
    return 1;
}

static VkResult make_buffer(struct client *c, uint64_t bytes, VkBuffer *ret)
{
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .size = bytes,
                                     .usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    return c->CreateBuffer(c->device, &info, NULL, ret);
}

static VkResult record_hazard(struct client *c, VkBuffer buffer)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkResult r = c->CreateCommandPool(c->device, &pool, NULL, &c->pool);
    if (r != VK_SUCCESS)
        return r;
    const VkCommandBufferAllocateInfo commands = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = c->pool,
        .commandBufferCount = 1};
    r = c->AllocateCommandBuffers(c->device, &commands, &c->commands);
    if (r == VK_SUCCESS)
        r = c->BeginCommandBuffer(c->commands, &begin);
    if (r != VK_SUCCESS)
        return r;
    c->CmdFillBuffer(c->commands, buffer, 0, BYTES, 1);
    c->CmdFillBuffer(c->commands, buffer, 0, BYTES, 2);
    return c->EndCommandBuffer(c->commands);
}

int main(void)
{
    struct client c = {0};
    VkBuffer nothing = VK_NULL_HANDLE, buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    if (!client_loader(&c) || client_instance(&c) != VK_SUCCESS || c.physical == VK_NULL_HANDLE)
        return 77;
    if (client_device(&c, NULL, NULL) != VK_SUCCESS)
        return fail("opening the device");
    if (make_buffer(&c, 0, &nothing) == VK_SUCCESS)
        c.DestroyBuffer(c.device, nothing, NULL);
    PFN_vkBindBufferMemory bind =
        (PFN_vkBindBufferMemory)c.GetDeviceProcAddr(c.device, "vkBindBufferMemory");
    if (bind == NULL || make_buffer(&c, BYTES, &buffer) != VK_SUCCESS ||
        client_allocate(&c, BYTES * 64, 0, &memory) != VK_SUCCESS ||
        bind(c.device, buffer, memory, 0) != VK_SUCCESS || record_hazard(&c, buffer) != VK_SUCCESS)
        return fail("recording the hazard");
    c.DestroyBuffer(c.device, buffer, NULL);
    c.FreeMemory(c.device, memory, NULL);
    client_close(&c);
    return 0;
}
