// SPDX-License-Identifier: Apache-2.0
// Device memory and buffers: the rules' failures, the capacity of each heap, and the driver's
// memory types behind those that are shown.
#include <string.h>

#include "account.h"
#include "faults.h"
#include "layer.h"

// What an allocation of a shown type is in the driver. The heap is the shown one.
struct place {
    uint32_t heap;
    uint32_t driver_type;
};

static bool place_of(const struct layer_device *device, const struct world *world, uint32_t type,
                     struct place *ret)
{
    VkPhysicalDeviceMemoryProperties driver;
    device->instance->GetPhysicalDeviceMemoryProperties(device->physical, &driver);
    if (type >= (world->n_types != 0 ? world->n_types : driver.memoryTypeCount)) {
        return false;
    }
    if (world->n_types == 0) {
        *ret = (struct place){driver.memoryTypes[type].heapIndex, type};
        return true;
    }
    *ret = (struct place){world->types[type].heap, 0};
    VkMemoryPropertyFlags flags = world->types[type].flags;
    for (uint32_t i = 0; i < driver.memoryTypeCount; i++) {
        if ((driver.memoryTypes[i].propertyFlags & flags) == flags) {
            ret->driver_type = i;
            break;
        }
    }
    return true;
}

static bool fits(const struct world *world, uint32_t heap, uint64_t bytes)
{
    const struct world_heap *h = &world->heaps[heap];
    uint64_t capacity = h->capacity != 0 ? h->capacity : h->bytes;
    uint64_t held = account_heap_bytes(heap);
    if (capacity == 0) {
        return true; // no rule says how much there is
    }
    return h->neighbour <= capacity && held <= capacity - h->neighbour &&
           bytes <= capacity - h->neighbour - held;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice handle, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *callbacks,
                                               VkDeviceMemory *ret)
{
    const struct layer_device *device = layer_device_of(handle);
    struct world world;
    struct place place;
    faults_world(&world);
    VkResult result = faults_result(PLACE_ALLOCATE, info->allocationSize);
    if (result != VK_SUCCESS) {
        return result;
    }
    if (!place_of(device, &world, info->memoryTypeIndex, &place)) {
        faults_misuse("an allocation of a memory type that does not exist");
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    if (world.max_allocation != 0 && info->allocationSize > world.max_allocation) {
        faults_misuse("an allocation beyond maxMemoryAllocationSize");
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    if (!fits(&world, place.heap, info->allocationSize)) {
        account_add(ACCOUNT_refusals, 1);
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    VkMemoryAllocateInfo below = *info;
    below.memoryTypeIndex = place.driver_type;
    result = device->AllocateMemory(handle, &below, callbacks, ret);
    if (result == VK_SUCCESS) {
        account_memory((uint64_t)*ret, (uint64_t)(uintptr_t)handle, info->allocationSize,
                       place.heap, info->memoryTypeIndex);
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice handle, VkDeviceMemory memory,
                                              const VkAllocationCallbacks *callbacks)
{
    struct layer_device *device = layer_device_of(handle);
    queue_settle(device);
    // First the account: the driver may give the same handle to another thread at once.
    account_memory_gone((uint64_t)memory);
    device->FreeMemory(handle, memory, callbacks);
}

static VKAPI_ATTR VkResult VKAPI_CALL map(VkDevice handle, VkDeviceMemory memory,
                                          VkDeviceSize offset, VkDeviceSize size,
                                          VkMemoryMapFlags flags, void **ret)
{
    struct world world;
    faults_world(&world);
    VkResult result = faults_result(PLACE_MAP, 0);
    if (result != VK_SUCCESS) {
        return result;
    }
    uint32_t type = account_memory_type((uint64_t)memory);
    if (type < world.n_types &&
        (world.types[type].flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) == 0) {
        faults_misuse("memory mapped that the host can not see");
        return VK_ERROR_MEMORY_MAP_FAILED;
    }
    account_add(ACCOUNT_maps, 1);
    return layer_device_of(handle)->MapMemory(handle, memory, offset, size, flags, ret);
}

// ---- which types a buffer takes ----

static void all_types(VkMemoryRequirements *io)
{
    struct world world;
    faults_world(&world);
    if (world.n_types != 0) {
        io->memoryTypeBits = (1u << world.n_types) - 1;
    }
}

static VKAPI_ATTR void VKAPI_CALL requirements(VkDevice handle, VkBuffer buffer,
                                               VkMemoryRequirements *ret)
{
    layer_device_of(handle)->GetBufferMemoryRequirements(handle, buffer, ret);
    all_types(ret);
}

static VKAPI_ATTR void VKAPI_CALL requirements2(VkDevice handle,
                                                const VkBufferMemoryRequirementsInfo2 *info,
                                                VkMemoryRequirements2 *ret)
{
    layer_device_of(handle)->GetBufferMemoryRequirements2(handle, info, ret);
    all_types(&ret->memoryRequirements);
}

static VKAPI_ATTR void VKAPI_CALL device_requirements(VkDevice handle,
                                                      const VkDeviceBufferMemoryRequirements *info,
                                                      VkMemoryRequirements2 *ret)
{
    layer_device_of(handle)->GetDeviceBufferMemoryRequirements(handle, info, ret);
    all_types(&ret->memoryRequirements);
}

// Host memory can be imported where the host sees the type.
static VKAPI_ATTR VkResult VKAPI_CALL host_pointer(VkDevice handle,
                                                   VkExternalMemoryHandleTypeFlagBits type,
                                                   const void *pointer,
                                                   VkMemoryHostPointerPropertiesEXT *ret)
{
    struct world world;
    faults_world(&world);
    VkResult result =
        layer_device_of(handle)->GetMemoryHostPointerPropertiesEXT(handle, type, pointer, ret);
    if (result == VK_SUCCESS && world.n_types != 0 && ret->memoryTypeBits != 0) {
        ret->memoryTypeBits = 0;
        for (uint32_t i = 0; i < world.n_types; i++) {
            bool visible = (world.types[i].flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0;
            ret->memoryTypeBits |= (uint32_t)visible << i;
        }
    }
    return result;
}

// ---- buffers ----

static VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice handle, const VkBufferCreateInfo *info,
                                                    const VkAllocationCallbacks *callbacks,
                                                    VkBuffer *ret)
{
    struct world world;
    faults_world(&world);
    VkResult result = faults_result(PLACE_BUFFER, info->size);
    if (result == VK_SUCCESS && world.max_buffer != 0 && info->size > world.max_buffer) {
        faults_misuse("a buffer beyond maxBufferSize");
        result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    if (result == VK_SUCCESS) {
        result = layer_device_of(handle)->CreateBuffer(handle, info, callbacks, ret);
    }
    if (result == VK_SUCCESS) {
        account_add(ACCOUNT_buffers_created, 1);
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_buffer(VkDevice handle, VkBuffer buffer,
                                                 const VkAllocationCallbacks *callbacks)
{
    layer_device_of(handle)->DestroyBuffer(handle, buffer, callbacks);
    account_add(ACCOUNT_buffers_destroyed, buffer != VK_NULL_HANDLE);
}

const struct layer_wrapper memory_wrappers[] = {
    WRAPPER("vkAllocateMemory", allocate),
    WRAPPER("vkFreeMemory", free_memory),
    WRAPPER("vkMapMemory", map),
    WRAPPER("vkGetMemoryHostPointerPropertiesEXT", host_pointer),
    WRAPPER("vkCreateBuffer", create_buffer),
    WRAPPER("vkDestroyBuffer", destroy_buffer),
    WRAPPER("vkGetBufferMemoryRequirements", requirements),
    WRAPPER("vkGetBufferMemoryRequirements2", requirements2),
    WRAPPER("vkGetBufferMemoryRequirements2KHR", requirements2),
    WRAPPER("vkGetDeviceBufferMemoryRequirements", device_requirements),
    WRAPPER("vkGetDeviceBufferMemoryRequirementsKHR", device_requirements),
    {NULL, NULL},
};
