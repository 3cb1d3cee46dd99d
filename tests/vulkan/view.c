// SPDX-License-Identifier: Apache-2.0
// What the application is shown of the physical devices: the driver's answers, changed as the
// world's rules say.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "faults.h"
#include "layer.h"

#define BUDGET_EXTENSION "VK_EXT_memory_budget"
#define MAX_EXTENSIONS   1024u

// ---- devices ----

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_physical_devices(VkInstance handle, uint32_t *count,
                                                                 VkPhysicalDevice *ret)
{
    struct world world;
    faults_world(&world);
    if (world.no_devices) {
        *count = 0;
        return VK_SUCCESS;
    }
    return layer_instance_of(handle)->EnumeratePhysicalDevices(handle, count, ret);
}

static void change_properties(const struct world *world, VkPhysicalDeviceProperties *io)
{
    if (world->api_version != 0) {
        io->apiVersion = world->api_version;
    }
    if (world->device_type >= 0) {
        io->deviceType = (VkPhysicalDeviceType)world->device_type;
    }
    if (world->name[0] != '\0') {
        memcpy(io->deviceName, world->name, sizeof(io->deviceName));
    }
}

static void change_limit(VkDeviceSize *io, uint64_t limit)
{
    if (limit != 0) {
        *io = limit;
    }
}

static void change_properties_chain(const struct world *world, VkBaseOutStructure *at)
{
    for (; at != NULL; at = at->pNext) {
        void *p = at;
        uint8_t *uuid = NULL;
        switch (at->sType) {
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES:
            uuid = ((VkPhysicalDeviceIDProperties *)p)->deviceUUID;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES:
            uuid = ((VkPhysicalDeviceVulkan11Properties *)p)->deviceUUID;
            change_limit(&((VkPhysicalDeviceVulkan11Properties *)p)->maxMemoryAllocationSize,
                         world->max_allocation);
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES:
            change_limit(&((VkPhysicalDeviceMaintenance3Properties *)p)->maxMemoryAllocationSize,
                         world->max_allocation);
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES:
            change_limit(&((VkPhysicalDeviceVulkan13Properties *)p)->maxBufferSize,
                         world->max_buffer);
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES:
            change_limit(&((VkPhysicalDeviceMaintenance4Properties *)p)->maxBufferSize,
                         world->max_buffer);
            break;
        default: break;
        }
        if (uuid != NULL && world->has_uuid) {
            memcpy(uuid, world->uuid, VK_UUID_SIZE);
        }
    }
}

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice physical,
                                                 VkPhysicalDeviceProperties *ret)
{
    struct world world;
    faults_world(&world);
    layer_instance_of(physical)->GetPhysicalDeviceProperties(physical, ret);
    change_properties(&world, ret);
}

static VKAPI_ATTR void VKAPI_CALL get_properties2(VkPhysicalDevice physical,
                                                  VkPhysicalDeviceProperties2 *ret)
{
    struct world world;
    faults_world(&world);
    layer_instance_of(physical)->GetPhysicalDeviceProperties2(physical, ret);
    change_properties(&world, &ret->properties);
    change_properties_chain(&world, ret->pNext);
}

// ---- features ----

static const struct feature {
    const char *name;
    VkStructureType type;
    size_t offset;
} FEATURES[] = {
#define FEATURE(name, TYPE, Struct) {#name, VK_STRUCTURE_TYPE_##TYPE, offsetof(Struct, name)},
#define CORE(name)                                                                                 \
    {                                                                                              \
#name, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,                                       \
            offsetof(VkPhysicalDeviceFeatures2, features.name)                                     \
    }
#include "features.def"
    CORE(shaderInt64),
    CORE(shaderInt16),
    CORE(shaderFloat64),
    CORE(robustBufferAccess),
};
#define N_FEATURES (sizeof(FEATURES) / sizeof(FEATURES[0]))

bool rules_feature(const char *name)
{
    for (size_t i = 0; i < N_FEATURES; i++) {
        if (strcmp(FEATURES[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static VkBool32 *feature_in(VkBaseOutStructure *at, const char *name)
{
    for (size_t i = 0; i < N_FEATURES; i++) {
        if (FEATURES[i].type == at->sType && strcmp(FEATURES[i].name, name) == 0) {
            return (VkBool32 *)(void *)((char *)at + FEATURES[i].offset);
        }
    }
    return NULL;
}

// Clears the hidden features of a chain. Returns the name of one that was set, or NULL.
static const char *hide_features(const struct world *world, VkBaseOutStructure *at, bool clear)
{
    const char *found = NULL;
    for (; at != NULL; at = at->pNext) {
        for (uint32_t i = 0; i < world->n_hidden_features; i++) {
            VkBool32 *feature = feature_in(at, world->hidden_features[i]);
            if (feature != NULL && *feature != VK_FALSE) {
                found = world->hidden_features[i];
                *feature = clear ? VK_FALSE : *feature;
            }
        }
    }
    return found;
}

static VKAPI_ATTR void VKAPI_CALL get_features2(VkPhysicalDevice physical,
                                                VkPhysicalDeviceFeatures2 *ret)
{
    struct world world;
    faults_world(&world);
    layer_instance_of(physical)->GetPhysicalDeviceFeatures2(physical, ret);
    hide_features(&world, (VkBaseOutStructure *)(void *)ret, true);
}

static VKAPI_ATTR void VKAPI_CALL get_features(VkPhysicalDevice physical,
                                               VkPhysicalDeviceFeatures *ret)
{
    VkPhysicalDeviceFeatures2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    struct world world;
    faults_world(&world);
    layer_instance_of(physical)->GetPhysicalDeviceFeatures(physical, &all.features);
    hide_features(&world, (VkBaseOutStructure *)(void *)&all, true);
    *ret = all.features;
}

// ---- extensions ----

static bool in_list(const char *list, size_t entry, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(list + i * entry, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool hidden(const struct world *world, const char *name)
{
    return in_list(world->hidden_extensions[0], sizeof(world->hidden_extensions[0]),
                   world->n_hidden_extensions, name) ||
           (world->budget == BUDGET_NONE && strcmp(name, BUDGET_EXTENSION) == 0);
}

// The driver's list; NULL: no memory, or it has none. The caller frees it.
static VkExtensionProperties *driver_list(const struct layer_instance *instance,
                                          VkPhysicalDevice physical, uint32_t *ret_n)
{
    VkExtensionProperties *list = calloc(MAX_EXTENSIONS, sizeof(*list));
    *ret_n = MAX_EXTENSIONS;
    if (list != NULL &&
        instance->EnumerateDeviceExtensionProperties(physical, NULL, ret_n, list) != VK_SUCCESS) {
        free(list);
        list = NULL;
    }
    if (list == NULL) {
        *ret_n = 0;
    }
    return list;
}

static bool driver_has(const VkExtensionProperties *list, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(list[i].extensionName, name) == 0) {
            return true;
        }
    }
    return false;
}

static void append(VkExtensionProperties *list, uint32_t *n, const char *name)
{
    if (*n < MAX_EXTENSIONS && !driver_has(list, *n, name)) {
        list[*n].specVersion = 1;
        strcpy(list[*n].extensionName, name); // rules.c keeps it within 64 bytes
        (*n)++;
    }
}

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_extensions(VkPhysicalDevice physical,
                                                           const char *layer, uint32_t *count,
                                                           VkExtensionProperties *ret)
{
    const struct layer_instance *instance = layer_instance_of(physical);
    struct world world;
    uint32_t n = 0;
    uint32_t kept = 0;
    faults_world(&world);
    if (layer != NULL) {
        return instance->EnumerateDeviceExtensionProperties(physical, layer, count, ret);
    }
    VkExtensionProperties *list = driver_list(instance, physical, &n);
    if (list == NULL) {
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (world.budget != BUDGET_DRIVER) {
        append(list, &n, BUDGET_EXTENSION);
    }
    for (uint32_t i = 0; i < world.n_extensions; i++) {
        append(list, &n, world.extensions[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!hidden(&world, list[i].extensionName)) {
            list[kept++] = list[i];
        }
    }
    VkResult result = VK_SUCCESS;
    if (ret != NULL) {
        result = *count < kept ? VK_INCOMPLETE : VK_SUCCESS;
        kept = *count < kept ? *count : kept;
        memcpy(ret, list, kept * sizeof(*list));
    }
    *count = kept;
    free(list);
    return result;
}

bool view_pretends(const struct layer_instance *instance, VkPhysicalDevice physical,
                   const char *extension)
{
    struct world world;
    uint32_t n = 0;
    faults_world(&world);
    VkExtensionProperties *list = driver_list(instance, physical, &n);
    bool pretended =
        !driver_has(list, n, extension) &&
        ((world.budget != BUDGET_DRIVER && strcmp(extension, BUDGET_EXTENSION) == 0) ||
         in_list(world.extensions[0], sizeof(world.extensions[0]), world.n_extensions, extension));
    free(list);
    return pretended;
}

VkResult view_check_device(const VkDeviceCreateInfo *info)
{
    struct world world;
    faults_world(&world);
    if (world.broken) {
        return VK_ERROR_DEVICE_LOST;
    }
    VkPhysicalDeviceFeatures2 core = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    if (info->pEnabledFeatures != NULL) {
        core.features = *info->pEnabledFeatures;
    }
    VkBaseOutStructure *chain = (VkBaseOutStructure *)(uintptr_t)info->pNext;
    if (hide_features(&world, chain, false) != NULL ||
        hide_features(&world, (VkBaseOutStructure *)(void *)&core, false) != NULL) {
        faults_misuse("a device with a feature that it has not");
        return VK_ERROR_FEATURE_NOT_PRESENT;
    }
    return VK_SUCCESS;
}

// ---- queues ----

static VKAPI_ATTR void VKAPI_CALL get_queues(VkPhysicalDevice physical, uint32_t *count,
                                             VkQueueFamilyProperties *ret)
{
    struct world world;
    faults_world(&world);
    layer_instance_of(physical)->GetPhysicalDeviceQueueFamilyProperties(physical, count, ret);
    for (uint32_t i = 0; ret != NULL && world.no_compute && i < *count; i++) {
        ret[i].queueFlags &= ~(VkQueueFlags)VK_QUEUE_COMPUTE_BIT;
    }
}

static VKAPI_ATTR void VKAPI_CALL get_queues2(VkPhysicalDevice physical, uint32_t *count,
                                              VkQueueFamilyProperties2 *ret)
{
    struct world world;
    faults_world(&world);
    layer_instance_of(physical)->GetPhysicalDeviceQueueFamilyProperties2(physical, count, ret);
    for (uint32_t i = 0; ret != NULL && world.no_compute && i < *count; i++) {
        ret[i].queueFamilyProperties.queueFlags &= ~(VkQueueFlags)VK_QUEUE_COMPUTE_BIT;
    }
}

// ---- memory ----

static void change_memory(const struct world *world, VkPhysicalDeviceMemoryProperties *io)
{
    if (world->n_types != 0) {
        *io = (VkPhysicalDeviceMemoryProperties){.memoryTypeCount = world->n_types,
                                                 .memoryHeapCount = world->n_heaps};
        for (uint32_t i = 0; i < world->n_types; i++) {
            io->memoryTypes[i] = (VkMemoryType){.propertyFlags = world->types[i].flags,
                                                .heapIndex = world->types[i].heap};
        }
    }
    for (uint32_t i = 0; i < io->memoryHeapCount; i++) {
        const struct world_heap *heap = &world->heaps[i];
        if (world->n_types != 0 && heap->device_local) {
            io->memoryHeaps[i].flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
        }
        if (heap->bytes != 0) {
            io->memoryHeaps[i].size = heap->bytes;
        }
    }
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void fill_budget(const struct world *world, const VkPhysicalDeviceMemoryProperties *memory,
                        VkPhysicalDeviceMemoryBudgetPropertiesEXT *ret)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static VkPhysicalDeviceMemoryBudgetPropertiesEXT stale;
    void *next = ret->pNext;
    for (uint32_t i = 0; i < VK_MAX_MEMORY_HEAPS; i++) {
        bool real = i < memory->memoryHeapCount;
        uint64_t bytes = real ? memory->memoryHeaps[i].size : 0;
        uint64_t capacity =
            real && world->heaps[i].capacity != 0 ? world->heaps[i].capacity : bytes;
        uint64_t budget = less(capacity < bytes ? capacity : bytes, world->heaps[i].neighbour);
        switch (world->budget) {
        case BUDGET_DOUBLE: budget = 2 * bytes; break;
        case BUDGET_ZERO: budget = 0; break;
        case BUDGET_MAX: budget = real ? UINT64_MAX : 0; break;
        case BUDGET_FIXED: budget = real ? world->budget_bytes : 0; break;
        default: budget += budget == 0 && real; break; // the extension knows no budget of 0
        }
        ret->heapBudget[i] = budget;
        ret->heapUsage[i] = world->budget == BUDGET_ZERO ? 0 : account_heap_bytes(i);
    }
    pthread_mutex_lock(&lock);
    if (world->budget != BUDGET_STALE) {
        stale.sType = 0;
    } else if (stale.sType == 0) {
        stale = *ret;
    } else {
        *ret = stale;
        ret->pNext = next;
    }
    pthread_mutex_unlock(&lock);
}

static VKAPI_ATTR void VKAPI_CALL get_memory(VkPhysicalDevice physical,
                                             VkPhysicalDeviceMemoryProperties *ret)
{
    struct world world;
    faults_world(&world);
    layer_instance_of(physical)->GetPhysicalDeviceMemoryProperties(physical, ret);
    change_memory(&world, ret);
}

static VKAPI_ATTR void VKAPI_CALL get_memory2(VkPhysicalDevice physical,
                                              VkPhysicalDeviceMemoryProperties2 *ret)
{
    struct world world;
    faults_world(&world);
    layer_instance_of(physical)->GetPhysicalDeviceMemoryProperties2(physical, ret);
    change_memory(&world, &ret->memoryProperties);
    for (VkBaseOutStructure *at = ret->pNext; at != NULL; at = at->pNext) {
        if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT &&
            world.budget != BUDGET_DRIVER && world.budget != BUDGET_NONE) {
            fill_budget(&world, &ret->memoryProperties, (void *)at);
        }
    }
}

const struct layer_wrapper view_wrappers[] = {
    WRAPPER("vkEnumeratePhysicalDevices", enumerate_physical_devices),
    WRAPPER("vkEnumerateDeviceExtensionProperties", enumerate_extensions),
    WRAPPER("vkGetPhysicalDeviceProperties", get_properties),
    WRAPPER("vkGetPhysicalDeviceProperties2", get_properties2),
    WRAPPER("vkGetPhysicalDeviceProperties2KHR", get_properties2),
    WRAPPER("vkGetPhysicalDeviceFeatures", get_features),
    WRAPPER("vkGetPhysicalDeviceFeatures2", get_features2),
    WRAPPER("vkGetPhysicalDeviceFeatures2KHR", get_features2),
    WRAPPER("vkGetPhysicalDeviceMemoryProperties", get_memory),
    WRAPPER("vkGetPhysicalDeviceMemoryProperties2", get_memory2),
    WRAPPER("vkGetPhysicalDeviceMemoryProperties2KHR", get_memory2),
    WRAPPER("vkGetPhysicalDeviceQueueFamilyProperties", get_queues),
    WRAPPER("vkGetPhysicalDeviceQueueFamilyProperties2", get_queues2),
    WRAPPER("vkGetPhysicalDeviceQueueFamilyProperties2KHR", get_queues2),
    {NULL, NULL},
};
