// SPDX-License-Identifier: Apache-2.0
// The loader's side of the layer: negotiation, instances, devices, and which function is wrapped.
#include "layer.h"

#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "faults.h"

#define LAYER_NAME "VK_LAYER_PLIMSOLL_faults"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct layer_instance *instances;
static struct layer_device *devices;

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_proc(VkInstance handle,
                                                                  const char *name);
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_proc(VkDevice handle, const char *name);

static const void *key_of(const void *handle)
{
    return *(const void *const *)handle;
}

struct layer_instance *layer_instance_of(const void *handle)
{
    pthread_rwlock_rdlock(&lock);
    struct layer_instance *at = instances;
    while (at != NULL && at->key != key_of(handle)) {
        at = at->next;
    }
    pthread_rwlock_unlock(&lock);
    return at;
}

struct layer_device *layer_device_of(const void *handle)
{
    pthread_rwlock_rdlock(&lock);
    struct layer_device *at = devices;
    while (at != NULL && at->key != key_of(handle)) {
        at = at->next;
    }
    pthread_rwlock_unlock(&lock);
    return at;
}

// ---- instances ----

static VkLayerInstanceCreateInfo *instance_link(const VkInstanceCreateInfo *info)
{
    const VkBaseInStructure *at = info->pNext;
    for (; at != NULL; at = at->pNext) {
        VkLayerInstanceCreateInfo *link = (VkLayerInstanceCreateInfo *)(uintptr_t)at;
        if (at->sType == VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO &&
            link->function == VK_LAYER_LINK_INFO) {
            return link;
        }
    }
    return NULL;
}

static PFN_vkVoidFunction instance_function(const struct layer_instance *instance, const char *name,
                                            const char *alias)
{
    PFN_vkVoidFunction found = instance->GetInstanceProcAddr(instance->handle, name);
    return found != NULL || alias == NULL ? found
                                          : instance->GetInstanceProcAddr(instance->handle, alias);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *callbacks,
                                                      VkInstance *ret)
{
    VkLayerInstanceCreateInfo *link = instance_link(info);
    if (link == NULL || !faults_start()) {
        return VK_ERROR_INITIALIZATION_FAILED;
    }
    VkResult result = faults_result(PLACE_INSTANCE, 0);
    struct layer_instance *instance = calloc(1, sizeof(*instance));
    if (instance == NULL || result != VK_SUCCESS) {
        free(instance);
        return result != VK_SUCCESS ? result : VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    instance->handle = *ret; // the loader's end of the chain looks for its own record there
    instance->GetInstanceProcAddr = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    instance->GetPhysicalDeviceProcAddr = link->u.pLayerInfo->pfnNextGetPhysicalDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create =
        (PFN_vkCreateInstance)instance->GetInstanceProcAddr(NULL, "vkCreateInstance");
    result = create != NULL ? create(info, callbacks, &instance->handle)
                            : VK_ERROR_INITIALIZATION_FAILED;
    if (result != VK_SUCCESS) {
        free(instance);
        return result;
    }
    instance->key = key_of(instance->handle);
#define INSTANCE(name, alias)                                                                      \
    instance->name = (PFN_vk##name)instance_function(instance, "vk" #name, alias);
#include "functions.def"
    null_instance(instance);
    pthread_rwlock_wrlock(&lock);
    instance->next = instances;
    instances = instance;
    pthread_rwlock_unlock(&lock);
    account_add(ACCOUNT_instances_created, 1);
    *ret = instance->handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_instance(VkInstance handle,
                                                   const VkAllocationCallbacks *callbacks)
{
    if (handle == VK_NULL_HANDLE) {
        return;
    }
    const void *key = key_of(handle);
    pthread_rwlock_wrlock(&lock);
    struct layer_instance **at = &instances;
    while ((*at)->key != key) {
        at = &(*at)->next;
    }
    struct layer_instance *instance = *at;
    *at = instance->next;
    pthread_rwlock_unlock(&lock);
    instance->DestroyInstance(handle, callbacks);
    free(instance);
    account_add(ACCOUNT_instances_destroyed, 1);
}

// ---- devices ----

static VkLayerDeviceCreateInfo *device_link(const VkDeviceCreateInfo *info)
{
    const VkBaseInStructure *at = info->pNext;
    for (; at != NULL; at = at->pNext) {
        VkLayerDeviceCreateInfo *link = (VkLayerDeviceCreateInfo *)(uintptr_t)at;
        if (at->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO &&
            link->function == VK_LAYER_LINK_INFO) {
            return link;
        }
    }
    return NULL;
}

static void note_requests(const VkDeviceCreateInfo *info, uint32_t pretended)
{
    const VkBaseInStructure *at = info->pNext;
    for (; at != NULL; at = at->pNext) {
        const VkDeviceMemoryOverallocationCreateInfoAMD *over = (const void *)at;
        if (at->sType == VK_STRUCTURE_TYPE_DEVICE_MEMORY_OVERALLOCATION_CREATE_INFO_AMD &&
            over->overallocationBehavior == VK_MEMORY_OVERALLOCATION_BEHAVIOR_DISALLOWED_AMD) {
            account_add(ACCOUNT_overallocation_disallowed, 1);
        }
    }
    account_add(ACCOUNT_pretended_enabled, pretended);
}

// The driver gets the list without the extensions that only the layer has.
static VkResult create_below(struct layer_device *device, PFN_vkCreateDevice create,
                             const VkDeviceCreateInfo *info, const VkAllocationCallbacks *callbacks)
{
    const char **names = calloc(info->enabledExtensionCount + 1, sizeof(*names));
    if (names == NULL) {
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    VkDeviceCreateInfo below = *info;
    below.enabledExtensionCount = 0;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        const char *name = info->ppEnabledExtensionNames[i];
        if (!view_pretends(device->instance, device->physical, name)) {
            names[below.enabledExtensionCount++] = name;
        }
    }
    below.ppEnabledExtensionNames = names;
    VkResult result = create(device->physical, &below, callbacks, &device->handle);
    free(names);
    if (result == VK_SUCCESS) {
        note_requests(info, info->enabledExtensionCount - below.enabledExtensionCount);
    }
    return result;
}

static PFN_vkVoidFunction device_function(const struct layer_device *device, const char *name,
                                          const char *alias)
{
    PFN_vkVoidFunction found = device->GetDeviceProcAddr(device->handle, name);
    return found != NULL || alias == NULL ? found
                                          : device->GetDeviceProcAddr(device->handle, alias);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *callbacks,
                                                    VkDevice *ret)
{
    struct layer_instance *instance = layer_instance_of(physical);
    VkLayerDeviceCreateInfo *link = device_link(info);
    if (link == NULL) {
        return VK_ERROR_INITIALIZATION_FAILED;
    }
    VkResult result = view_check_device(info);
    if (result == VK_SUCCESS) {
        result = faults_result(PLACE_DEVICE, 0);
    }
    struct layer_device *device = calloc(1, sizeof(*device));
    if (device == NULL || result != VK_SUCCESS) {
        free(device);
        return result != VK_SUCCESS ? result : VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    PFN_vkGetInstanceProcAddr next = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    device->handle = *ret; // as with an instance
    device->physical = physical;
    device->instance = instance;
    device->GetDeviceProcAddr = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    result = create_below(device, (PFN_vkCreateDevice)next(instance->handle, "vkCreateDevice"),
                          info, callbacks);
    if (result != VK_SUCCESS) {
        free(device);
        return result;
    }
    device->key = key_of(device->handle);
#define DEVICE(name, alias) device->name = (PFN_vk##name)device_function(device, "vk" #name, alias);
#include "functions.def"
    result = null_device(device);
    if (result != VK_SUCCESS) {
        device->DestroyDevice(device->handle, callbacks);
        free(device);
        return result;
    }
    pthread_mutex_init(&device->lock, NULL);
    pthread_rwlock_wrlock(&lock);
    device->next = devices;
    devices = device;
    pthread_rwlock_unlock(&lock);
    account_add(ACCOUNT_devices_created, 1);
    *ret = device->handle;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice handle,
                                                 const VkAllocationCallbacks *callbacks)
{
    if (handle == VK_NULL_HANDLE) {
        return;
    }
    const void *key = key_of(handle);
    pthread_rwlock_wrlock(&lock);
    struct layer_device **at = &devices;
    while ((*at)->key != key) {
        at = &(*at)->next;
    }
    struct layer_device *device = *at;
    *at = device->next;
    pthread_rwlock_unlock(&lock);
    account_device_gone((uint64_t)(uintptr_t)handle);
    null_device_gone(device);
    device->DestroyDevice(handle, callbacks);
    pthread_mutex_destroy(&device->lock);
    free(device);
    account_add(ACCOUNT_devices_destroyed, 1);
}

// ---- what the loader asks for ----

static const VkLayerProperties PROPERTIES = {
    .layerName = LAYER_NAME,
    .specVersion = VK_API_VERSION_1_3,
    .implementationVersion = 1,
    .description = "Faults and views of a device for Plimsoll's tests",
};

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_layers(uint32_t *count, VkLayerProperties *ret)
{
    if (ret != NULL && *count > 0) {
        *ret = PROPERTIES;
    } else if (ret != NULL) {
        return VK_INCOMPLETE;
    }
    *count = 1;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_device_layers(VkPhysicalDevice physical,
                                                              uint32_t *count,
                                                              VkLayerProperties *ret)
{
    (void)physical;
    return enumerate_layers(count, ret);
}

static VKAPI_ATTR VkResult VKAPI_CALL enumerate_instance_extensions(const char *layer,
                                                                    uint32_t *count,
                                                                    VkExtensionProperties *ret)
{
    (void)ret;
    if (layer == NULL || strcmp(layer, LAYER_NAME) != 0) {
        return VK_ERROR_LAYER_NOT_PRESENT;
    }
    *count = 0;
    return VK_SUCCESS;
}

static const struct layer_wrapper OWN[] = {
    WRAPPER("vkGetInstanceProcAddr", get_instance_proc),
    WRAPPER("vkGetDeviceProcAddr", get_device_proc),
    WRAPPER("vkCreateInstance", create_instance),
    WRAPPER("vkDestroyInstance", destroy_instance),
    WRAPPER("vkCreateDevice", create_device),
    WRAPPER("vkDestroyDevice", destroy_device),
    WRAPPER("vkEnumerateInstanceLayerProperties", enumerate_layers),
    WRAPPER("vkEnumerateInstanceExtensionProperties", enumerate_instance_extensions),
    WRAPPER("vkEnumerateDeviceLayerProperties", enumerate_device_layers),
    {NULL, NULL},
};

static PFN_vkVoidFunction wrapper(const struct layer_wrapper *table, const char *name)
{
    for (; table->name != NULL; table++) {
        if (strcmp(table->name, name) == 0) {
            return table->function;
        }
    }
    return NULL;
}

static PFN_vkVoidFunction any_wrapper(const char *name)
{
    static const struct layer_wrapper *const TABLES[] = {view_wrappers,   memory_wrappers,
                                                         object_wrappers, commands_wrappers,
                                                         queue_wrappers,  null_wrappers};
    PFN_vkVoidFunction found = NULL;
    for (size_t i = 0; i < sizeof(TABLES) / sizeof(TABLES[0]) && found == NULL; i++) {
        found = wrapper(TABLES[i], name);
    }
    return found;
}

// A function that the driver lacks is not made up.
static PFN_vkVoidFunction get_instance_proc(VkInstance handle, const char *name)
{
    PFN_vkVoidFunction own = wrapper(OWN, name);
    if (own != NULL || handle == VK_NULL_HANDLE) {
        return own;
    }
    const struct layer_instance *instance = layer_instance_of(handle);
    PFN_vkVoidFunction below = instance->GetInstanceProcAddr(handle, name);
    PFN_vkVoidFunction wrapped = below != NULL ? any_wrapper(name) : NULL;
    return wrapped != NULL ? wrapped : below;
}

static PFN_vkVoidFunction get_device_proc(VkDevice handle, const char *name)
{
    const struct layer_device *device = layer_device_of(handle);
    if (strcmp(name, "vkGetDeviceProcAddr") == 0 || strcmp(name, "vkDestroyDevice") == 0) {
        return wrapper(OWN, name);
    }
    PFN_vkVoidFunction below = device->GetDeviceProcAddr(handle, name);
    PFN_vkVoidFunction wrapped = below != NULL ? any_wrapper(name) : NULL;
    return wrapped != NULL ? wrapped : below;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_physical_device_proc(VkInstance handle,
                                                                         const char *name)
{
    const struct layer_instance *instance = layer_instance_of(handle);
    PFN_vkVoidFunction wrapped = wrapper(view_wrappers, name);
    if (wrapped != NULL || instance->GetPhysicalDeviceProcAddr == NULL) {
        return wrapped;
    }
    return instance->GetPhysicalDeviceProcAddr(handle, name);
}

VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *interface)
{
    if (interface->loaderLayerInterfaceVersion < CURRENT_LOADER_LAYER_INTERFACE_VERSION) {
        return VK_ERROR_INITIALIZATION_FAILED;
    }
    interface->loaderLayerInterfaceVersion = CURRENT_LOADER_LAYER_INTERFACE_VERSION;
    interface->pfnGetInstanceProcAddr = get_instance_proc;
    interface->pfnGetDeviceProcAddr = get_device_proc;
    interface->pfnGetPhysicalDeviceProcAddr = get_physical_device_proc;
    return VK_SUCCESS;
}
