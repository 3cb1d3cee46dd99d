// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/memory.h"

#include <string.h>

#include "backends/vulkan/device.h"
#include "backends/vulkan/instance.h"
#include "backends/vulkan/loader.h"
#include "core/base/checked.h"

#define USAGE                                                                                      \
    (VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |                       \
     VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT)

VkBufferCreateInfo plm_vk_buffer_info(uint64_t bytes)
{
    return (VkBufferCreateInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                .size = bytes,
                                .usage = USAGE,
                                .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
}

// Binds fresh memory to the buffer, maps it where the host sees its type, and asks its address.
// import: what names memory that is there already, and m->host is it; or NULL.
static int allocate(struct plm_backend_device *dev, uint32_t type,
                    const VkImportMemoryHostPointerInfoEXT *import, struct plm_vk_memory *m)
{
    const struct plm_vk_fns *vk = dev->vk;
    const VkBufferMemoryRequirementsInfo2 ask = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_REQUIREMENTS_INFO_2, .buffer = m->buffer};
    VkMemoryRequirements2 needs = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2};
    vk->GetBufferMemoryRequirements2(dev->handle, &ask, &needs);
    m->taken = needs.memoryRequirements.size;
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .pNext = import,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = m->taken,
                                       .memoryTypeIndex = type};
    VkResult r = vk->AllocateMemory(dev->handle, &info, NULL, &m->memory);
    if (r != VK_SUCCESS)
        return plm_vk_status(dev, r);
    const VkBindBufferMemoryInfo bind = {.sType = VK_STRUCTURE_TYPE_BIND_BUFFER_MEMORY_INFO,
                                         .buffer = m->buffer,
                                         .memory = m->memory};
    r = vk->BindBufferMemory2(dev->handle, 1, &bind);
    if (r == VK_SUCCESS && import == NULL &&
        (dev->physical.memory.memoryTypes[type].propertyFlags &
         VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0)
        r = vk->MapMemory(dev->handle, m->memory, 0, VK_WHOLE_SIZE, 0, &m->host);
    if (r != VK_SUCCESS)
        return plm_vk_status(dev, r);
    const VkBufferDeviceAddressInfo at = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                          .buffer = m->buffer};
    m->addr = vk->GetBufferDeviceAddress(dev->handle, &at);
    return PLM_OK;
}

int plm_vk_memory_create(struct plm_backend_device *dev, uint32_t type, uint64_t bytes,
                         struct plm_vk_memory *ret)
{
    struct plm_vk_memory m = {0};
    const VkBufferCreateInfo info = plm_vk_buffer_info(bytes);
    VkResult r = dev->vk->CreateBuffer(dev->handle, &info, NULL, &m.buffer);
    if (r != VK_SUCCESS)
        return plm_vk_status(dev, r);
    int rc = allocate(dev, type, NULL, &m);
    // A CPU driver's memory is malloc's: there when it was touched.
    if (rc == PLM_OK && dev->physical.type == VK_PHYSICAL_DEVICE_TYPE_CPU)
        rc = plm_hostmem_commit(&dev->machine, m.host, bytes, NULL, NULL);
    if (rc != PLM_OK) {
        plm_vk_memory_destroy(dev, &m);
        return rc;
    }
    *ret = m;
    return PLM_OK;
}

// The first memory type through which the device reaches host memory.
static bool choose_import_type(struct plm_backend_device *dev, const void *ptr, uint32_t *ret)
{
    VkMemoryHostPointerPropertiesEXT props = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    if (dev->vk->GetMemoryHostPointerPropertiesEXT(
            dev->handle, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, ptr, &props) !=
        VK_SUCCESS)
        return false;
    for (uint32_t i = 0; i < dev->physical.memory.memoryTypeCount; i++) {
        if ((props.memoryTypeBits >> i & 1) != 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

int plm_vk_memory_import(struct plm_backend_device *dev, void *ptr, uint64_t bytes,
                         struct plm_vk_memory *ret)
{
    const struct plm_vk_physical *p = &dev->physical;
    uint32_t type;
    // On a card of its own every read of such memory would cross the bus.
    if (!p->unified || p->import_align == 0)
        return PLM_ERR_UNSUPPORTED;
    if ((uintptr_t)ptr % p->import_align != 0 || bytes % p->import_align != 0)
        return PLM_ERR_INVALID;
    if (!choose_import_type(dev, ptr, &type))
        return PLM_ERR_UNSUPPORTED;
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
        .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT};
    const VkImportMemoryHostPointerInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
        .pHostPointer = ptr};
    struct plm_vk_memory m = {.host = ptr};
    VkBufferCreateInfo buffer = plm_vk_buffer_info(bytes);
    buffer.pNext = &external;
    int rc = plm_vk_status(dev, dev->vk->CreateBuffer(dev->handle, &buffer, NULL, &m.buffer));
    if (rc == PLM_OK)
        rc = allocate(dev, type, &info, &m);
    if (rc != PLM_OK) {
        plm_vk_memory_destroy(dev, &m);
        return rc;
    }
    *ret = m;
    return PLM_OK;
}

void plm_vk_memory_destroy(struct plm_backend_device *dev, struct plm_vk_memory *m)
{
    dev->vk->DestroyBuffer(dev->handle, m->buffer, NULL);
    dev->vk->FreeMemory(dev->handle, m->memory, NULL);
    *m = (struct plm_vk_memory){0};
}
