// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/instance.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backends/vulkan/coopmat.h"
#include "backends/vulkan/loader.h"
#include "backends/vulkan/shaders.h"
#include "backends/vulkan/types.h"
#include "core/base/text.h"

#define API_VERSION VK_API_VERSION_1_3

// ---- the instance ----

static int fail_version(uint32_t version, struct plm_error *err)
{
    return plm_fail(err, PLM_ERR_UNSUPPORTED,
                    "vulkan: the loader knows Vulkan %u.%u and 1.3 is needed; install a newer "
                    "libvulkan1",
                    VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
}

bool plm_vk_has_extension(const VkExtensionProperties *list, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(list[i].extensionName, name) == 0)
            return true;
    }
    return false;
}

// Loaders list what all drivers and layers have; those that we look for are among the first.
#define INSTANCE_EXTENSIONS 64

static int create(struct plm_vk_instance *instance, struct plm_error *err)
{
    struct plm_vk_fns *vk = &instance->vk;
    uint32_t version = VK_API_VERSION_1_0;
    vk->EnumerateInstanceVersion(&version);
    if (version < API_VERSION)
        return fail_version(version, err);
    VkExtensionProperties listed[INSTANCE_EXTENSIONS];
    uint32_t n = INSTANCE_EXTENSIONS;
    VkResult r = vk->EnumerateInstanceExtensionProperties(NULL, &n, listed);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE)
        n = 0;
    const char *names[2];
    uint32_t n_names = 0;
    VkInstanceCreateFlags flags = 0;
    // Labels in the queue name the engine's phases to profilers.
    if (plm_vk_has_extension(listed, n, VK_EXT_DEBUG_UTILS_EXTENSION_NAME))
        names[n_names++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    // Without it a loader hides drivers that lie on top of another API.
    if (plm_vk_has_extension(listed, n, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
        names[n_names++] = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
        flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }
    const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .pApplicationName = "plimsoll",
                                   .pEngineName = "plimsoll",
                                   .apiVersion = API_VERSION};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .flags = flags,
                                       .pApplicationInfo = &app,
                                       .enabledExtensionCount = n_names,
                                       .ppEnabledExtensionNames = names};
    r = vk->CreateInstance(&info, NULL, &instance->handle);
    if (r == VK_ERROR_INCOMPATIBLE_DRIVER)
        return plm_fail(err, PLM_ERR_NOT_FOUND,
                        "vulkan: no driver: the loader found none that starts (Debian package: "
                        "mesa-vulkan-drivers, or the card vendor's own)");
    if (r == VK_ERROR_OUT_OF_HOST_MEMORY)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "vulkan: no host memory for an instance");
    if (r != VK_SUCCESS)
        return plm_fail(err, PLM_ERR_UNSUPPORTED, "vulkan: vkCreateInstance failed with %d", r);
    return plm_vk_instance_functions(instance, err);
}

int plm_vk_instance_open(struct plm_vk_instance *ret, struct plm_error *err)
{
    struct plm_vk_instance instance = {0};
    int rc = plm_vk_loader_open(plm_vk_loader_names, &instance.library, &instance.vk, err);
    if (rc != PLM_OK)
        return rc;
    rc = create(&instance, err);
    if (rc != PLM_OK) {
        plm_vk_instance_close(&instance);
        return rc;
    }
    *ret = instance;
    return PLM_OK;
}

void plm_vk_instance_close(struct plm_vk_instance *instance)
{
    if (instance->handle != VK_NULL_HANDLE && instance->vk.DestroyInstance != NULL)
        instance->vk.DestroyInstance(instance->handle, NULL);
    plm_vk_loader_close(instance->library);
    *instance = (struct plm_vk_instance){0};
}

// ---- features ----

void plm_vk_features_chain(struct plm_vk_features *f)
{
    *f = (struct plm_vk_features){
        .core = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2},
        .v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES},
        .v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES},
        .v13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES},
    };
    f->core.pNext = &f->v11;
    f->v11.pNext = &f->v12;
    f->v12.pNext = &f->v13;
}

// Appends to a text of names separated by ", ", as far as it has room.
static void add_missing(char *missing, size_t cap, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void add_missing(char *missing, size_t cap, const char *fmt, ...)
{
    size_t used = strlen(missing);
    if (used > 0 && used + 2 < cap) {
        memcpy(missing + used, ", ", 3);
        used += 2;
    }
    va_list args;
    va_start(args, fmt);
    plm_vsnprintf(missing + used, cap - used, fmt, args);
    va_end(args);
}

static void check_features(const struct plm_vk_features *f, char *missing, size_t cap)
{
#define X(part, name)                                                                              \
    if (!f->part.name)                                                                             \
        add_missing(missing, cap, "%s", #name);
    PLM_VK_FEATURES(X)
#undef X
}

// ---- physical devices ----

// What the shaders rely on (shaders/README.md): rows of a workgroup's tile in shared memory, and
// the largest workgroup.
#define SHARED_BYTES 32768u
#define WORKGROUP    256u

static void check_limits(const VkPhysicalDeviceLimits *limits, char *missing, size_t cap)
{
    if (limits->maxPushConstantsSize < PLM_VK_PUSH_BYTES)
        add_missing(missing, cap, "%u bytes of push constants (it has %" PRIu32 ")",
                    PLM_VK_PUSH_BYTES, limits->maxPushConstantsSize);
    if (limits->maxComputeSharedMemorySize < SHARED_BYTES)
        add_missing(missing, cap, "%u bytes of shared memory (it has %" PRIu32 ")", SHARED_BYTES,
                    limits->maxComputeSharedMemorySize);
    if (limits->maxComputeWorkGroupInvocations < WORKGROUP ||
        limits->maxComputeWorkGroupSize[0] < WORKGROUP)
        add_missing(missing, cap, "workgroups of %u (it has %" PRIu32 ")", WORKGROUP,
                    limits->maxComputeWorkGroupInvocations);
}

#define QUEUE_FAMILIES 16

// A family with compute; graphics beside it last, so that a desktop's own work is kept out of the
// way where the device has a family for compute alone.
static bool choose_queue_family(const struct plm_vk_fns *vk, VkPhysicalDevice handle, uint32_t *ret)
{
    VkQueueFamilyProperties2 families[QUEUE_FAMILIES];
    for (uint32_t i = 0; i < QUEUE_FAMILIES; i++)
        families[i] =
            (VkQueueFamilyProperties2){.sType = VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2};
    uint32_t n = QUEUE_FAMILIES;
    vk->GetPhysicalDeviceQueueFamilyProperties2(handle, &n, families);
    bool found = false;
    for (uint32_t i = 0; i < n; i++) {
        const VkQueueFamilyProperties *family = &families[i].queueFamilyProperties;
        bool graphics = (family->queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0;
        if (family->queueCount == 0 || (family->queueFlags & VK_QUEUE_COMPUTE_BIT) == 0 ||
            (found && graphics))
            continue;
        *ret = i;
        found = true;
        if (!graphics)
            break;
    }
    return found;
}

static void format_uuid(const uint8_t *bytes, char out[40])
{
    char *at = out;
    for (uint32_t i = 0; i < VK_UUID_SIZE; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        at += snprintf(at, 3, "%02x", bytes[i]);
    }
}

static uint32_t needs_met(const struct plm_vk_features *f)
{
    uint32_t met = 0;
    if (f->v13.shaderIntegerDotProduct)
        met |= PLM_VK_NEEDS_DOT;
    if (f->v12.shaderFloat16)
        met |= PLM_VK_NEEDS_F16;
    return met;
}

static int read_extensions(const struct plm_vk_fns *vk, struct plm_host *host,
                           struct plm_vk_physical *p)
{
    uint32_t n = 0;
    if (vk->EnumerateDeviceExtensionProperties(p->handle, NULL, &n, NULL) != VK_SUCCESS || n == 0)
        return PLM_OK;
    VkExtensionProperties *list = plm_calloc(host, PLM_HOST_DEVICE, n, sizeof(*list));
    if (list == NULL)
        return PLM_ERR_NOMEM_HOST;
    VkResult r = vk->EnumerateDeviceExtensionProperties(p->handle, NULL, &n, list);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE)
        n = 0;
    p->memory_budget = plm_vk_has_extension(list, n, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    p->overallocation =
        plm_vk_has_extension(list, n, VK_AMD_MEMORY_OVERALLOCATION_BEHAVIOR_EXTENSION_NAME);
    p->coopmat = plm_vk_has_extension(list, n, PLM_VK_COOPMAT_EXTENSION);
    p->host_import = plm_vk_has_extension(list, n, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    plm_free(host, list);
    return PLM_OK;
}

static void read_properties(const struct plm_vk_fns *vk, struct plm_vk_physical *p)
{
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceVulkan13Properties v13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES,
        .pNext = p->host_import ? &host : NULL};
    VkPhysicalDeviceVulkan12Properties v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, .pNext = &v13};
    VkPhysicalDeviceVulkan11Properties v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &v12};
    VkPhysicalDeviceProperties2 props = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                         .pNext = &v11};
    vk->GetPhysicalDeviceProperties2(p->handle, &props);
    format_uuid(v11.deviceUUID, p->uuid);
    p->driver_id = v12.driverID;
    snprintf(p->driver, sizeof(p->driver), "%.40s %" PRIu32, v12.driverName,
             props.properties.driverVersion);
    p->subgroups_of_32 = v13.minSubgroupSize <= 32 && v13.maxSubgroupSize >= 32 &&
                         (v13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    p->max_allocation_bytes = v11.maxMemoryAllocationSize;
    p->max_buffer_bytes = v13.maxBufferSize;
    p->import_align = host.minImportedHostPointerAlignment;
    memcpy(p->cache_uuid, props.properties.pipelineCacheUUID, VK_UUID_SIZE);
}

// Everything of one device. A driver before 1.3 is asked for nothing that it does not know.
static int describe(const struct plm_vk_instance *instance, struct plm_host *host,
                    VkPhysicalDevice handle, struct plm_vk_described *ret)
{
    const struct plm_vk_fns *vk = &instance->vk;
    struct plm_vk_physical *p = &ret->physical;
    VkPhysicalDeviceProperties2 props = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    vk->GetPhysicalDeviceProperties2(handle, &props);
    p->handle = handle;
    snprintf(p->name, sizeof(p->name), "%.63s", props.properties.deviceName);
    p->type = props.properties.deviceType;
    p->vendor_id = props.properties.vendorID;
    p->unified =
        p->type == VK_PHYSICAL_DEVICE_TYPE_CPU || p->type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    p->limits = props.properties.limits;
    uint32_t version = props.properties.apiVersion;
    if (version < API_VERSION) {
        add_missing(ret->missing, sizeof(ret->missing),
                    "Vulkan 1.3 (the driver has %u.%u; a newer driver may have it)",
                    VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
        return PLM_OK;
    }
    int rc = read_extensions(vk, host, p);
    if (rc != PLM_OK)
        return rc;
    read_properties(vk, p);
    struct plm_vk_features features;
    plm_vk_features_chain(&features);
    vk->GetPhysicalDeviceFeatures2(handle, &features.core);
    p->needs_met = needs_met(&features);
    // Modules with cooperative matrices are written in the memory model of Vulkan, for subgroups
    // of 32.
    if (p->coopmat && features.v12.vulkanMemoryModel && p->subgroups_of_32)
        p->needs_met |= plm_vk_coopmat_needs_met(instance, handle);
    check_features(&features, ret->missing, sizeof(ret->missing));
    check_limits(&p->limits, ret->missing, sizeof(ret->missing));
    if (!choose_queue_family(vk, handle, &p->queue_family))
        add_missing(ret->missing, sizeof(ret->missing), "a queue family with compute");
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    vk->GetPhysicalDeviceMemoryProperties2(handle, &memory);
    p->memory = memory.memoryProperties;
    if (!plm_vk_choose_types(&p->memory, UINT32_MAX, p->unified, &p->types))
        add_missing(ret->missing, sizeof(ret->missing), "memory that the host can write");
    else
        p->heap_bytes = p->memory.memoryHeaps[p->types.heap].size;
    return PLM_OK;
}

// GPUs stand before CPU drivers, usable devices before others; else the loader's order.
static int rank(const struct plm_vk_described *j)
{
    return (j->missing[0] != '\0' ? 2 : 0) +
           (j->physical.type == VK_PHYSICAL_DEVICE_TYPE_CPU ? 1 : 0);
}

void plm_vk_physical_sort(struct plm_vk_described *list, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        for (uint32_t k = i; k > 0 && rank(&list[k]) < rank(&list[k - 1]); k--) {
            struct plm_vk_described moved = list[k];
            list[k] = list[k - 1];
            list[k - 1] = moved;
        }
    }
}

int plm_vk_physical_list(const struct plm_vk_instance *instance, struct plm_host *host,
                         struct plm_vk_described **ret, uint32_t *ret_n, struct plm_error *err)
{
    VkPhysicalDevice handles[PLM_VK_DEVICES_MAX];
    uint32_t n = PLM_VK_DEVICES_MAX;
    VkResult r = instance->vk.EnumeratePhysicalDevices(instance->handle, &n, handles);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE)
        n = 0;
    if (n == 0)
        return plm_fail(err, PLM_ERR_NOT_FOUND,
                        "vulkan: no driver offers a device (Debian package: mesa-vulkan-drivers, "
                        "or the card vendor's own)");
    struct plm_vk_described *list = plm_calloc(host, PLM_HOST_DEVICE, n, sizeof(*list));
    if (list == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "vulkan: no host memory for a list of devices");
    for (uint32_t i = 0; i < n; i++) {
        if (describe(instance, host, handles[i], &list[i]) != PLM_OK) {
            plm_free(host, list);
            return plm_fail(err, PLM_ERR_NOMEM_HOST,
                            "vulkan: no host memory for a list of extensions");
        }
    }
    plm_vk_physical_sort(list, n);
    *ret = list;
    *ret_n = n;
    return PLM_OK;
}
