// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/types.h"

#define COHERENT (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
#define CACHED   (COHERENT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT)
// Memory for protected content, for attachments alone, or past the device's own caches.
#define UNFIT                                                                                      \
    (VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |                  \
     VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD)

static bool has(VkMemoryPropertyFlags flags, VkMemoryPropertyFlags wanted)
{
    return (flags & wanted) == wanted;
}

static bool fit(const VkPhysicalDeviceMemoryProperties *memory, uint32_t allowed, uint32_t type)
{
    return (allowed >> type & 1) != 0 && (memory->memoryTypes[type].propertyFlags & UNFIT) == 0;
}

// Of a discrete device, the largest heap that is its own: windows of 16 or 256 MiB into it are
// device-local, too. Of a device in the host's memory, the largest heap: a small carve-out for
// pictures is no faster than the rest.
static bool choose_heap(const VkPhysicalDeviceMemoryProperties *memory, uint32_t allowed,
                        bool unified, uint32_t *ret)
{
    uint64_t best = 0;
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
        const VkMemoryType *type = &memory->memoryTypes[i];
        uint64_t bytes = memory->memoryHeaps[type->heapIndex].size;
        bool own = unified || has(type->propertyFlags, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
        if (fit(memory, allowed, i) && own && bytes > best) {
            best = bytes;
            *ret = type->heapIndex;
        }
    }
    return best > 0;
}

// How well a type suits slabs. On a discrete device those that the host does not see come first:
// the host reads them over the bus, past its caches, some hundred times slower than a copy.
static int slab_score(VkMemoryPropertyFlags flags, bool unified)
{
    int score = has(flags, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) ? 4 : 0;
    if (unified)
        return score + (has(flags, CACHED) ? 2 : has(flags, COHERENT) ? 1 : 0);
    return score + ((flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) == 0 ? 1 : 0);
}

// Host memory, read through the caches where it can be; the device's own only where there is no
// other.
static int pinned_score(VkMemoryPropertyFlags flags)
{
    if (!has(flags, COHERENT))
        return -1;
    return (has(flags, CACHED) ? 2 : 0) + (has(flags, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) ? 0 : 1);
}

bool plm_vk_choose_types(const VkPhysicalDeviceMemoryProperties *memory, uint32_t allowed,
                         bool unified, struct plm_vk_types *ret)
{
    struct plm_vk_types types = {0};
    if (!choose_heap(memory, allowed, unified, &types.heap))
        return false;
    int slab = -1, pinned = -1;
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
        const VkMemoryPropertyFlags flags = memory->memoryTypes[i].propertyFlags;
        if (!fit(memory, allowed, i))
            continue;
        if (memory->memoryTypes[i].heapIndex == types.heap && slab_score(flags, unified) > slab) {
            slab = slab_score(flags, unified);
            types.slab = i;
        }
        if (pinned_score(flags) > pinned) {
            pinned = pinned_score(flags);
            types.pinned = i;
        }
    }
    types.slab_cached = has(memory->memoryTypes[types.slab].propertyFlags, CACHED);
    if (pinned >= 0)
        *ret = types;
    return pinned >= 0;
}
