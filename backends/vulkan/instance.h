// SPDX-License-Identifier: Apache-2.0
// The instance, and physical devices: described and checked, what they lack by name (instance.c).
#ifndef PLM_VULKAN_INSTANCE_H
#define PLM_VULKAN_INSTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/vulkan/loader.h"
#include "backends/vulkan/types.h"
#include "core/base/alloc.h"
#include "core/base/status.h"

// An opened loader and instance. Where one cannot be had, the error says what is missing.
struct plm_vk_instance {
    void *library;
    VkInstance handle;
    struct plm_vk_fns vk;
};

int plm_vk_instance_open(struct plm_vk_instance *ret, struct plm_error *err);
void plm_vk_instance_close(struct plm_vk_instance *instance);
bool plm_vk_has_extension(const VkExtensionProperties *list, uint32_t n, const char *name);

// Features that every device must have, all of them enabled: X(part of struct plm_vk_features,
// name).
#define PLM_VK_FEATURES(X)                                                                         \
    X(core.features, shaderInt16)                                                                  \
    X(core.features, shaderInt64)                                                                  \
    X(v11, storageBuffer16BitAccess)                                                               \
    X(v12, storageBuffer8BitAccess)                                                                \
    X(v12, shaderInt8)                                                                             \
    X(v12, scalarBlockLayout)                                                                      \
    X(v12, timelineSemaphore)                                                                      \
    X(v12, bufferDeviceAddress)                                                                    \
    X(v13, synchronization2)                                                                       \
    X(v13, subgroupSizeControl)                                                                    \
    X(v13, maintenance4)

struct plm_vk_features {
    VkPhysicalDeviceFeatures2 core;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceVulkan13Features v13;
};
// Zeroed and linked, to be asked with or enabled; it must not be moved afterwards.
void plm_vk_features_chain(struct plm_vk_features *ret);

#define PLM_VK_DEVICES_MAX 16  // more than any one machine has
#define PLM_VK_PUSH_BYTES  128 // push constants that every driver has

// A physical device as far as it matters before it is opened.
struct plm_vk_physical {
    VkPhysicalDevice handle;
    char name[64];
    char uuid[40];
    char driver[64]; // name and version
    uint32_t vendor_id, device_id, driver_version;
    VkPhysicalDeviceType type;
    VkDriverId driver_id;
    uint32_t queue_family; // with compute; of those the one with the fewest other uses
    bool subgroups_of_32;  // compute shaders may ask for them
    VkPhysicalDeviceLimits limits;
    uint64_t max_allocation_bytes; // maxMemoryAllocationSize
    uint64_t max_buffer_bytes;
    VkPhysicalDeviceMemoryProperties memory;
    struct plm_vk_types types;
    uint64_t heap_bytes;                             // of the heap that slabs come from
    bool unified;                                    // integrated or CPU: its memory is the host's
    uint32_t needs_met;                              // mask of PLM_VK_NEEDS_x of shaders.h
    bool memory_budget, overallocation, host_import; // extensions
    uint64_t import_align; // of host memory that is imported; 0: imports are not supported
    bool coopmat;          // VK_KHR_cooperative_matrix
    uint8_t cache_uuid[VK_UUID_SIZE];
};

// missing: what a device that cannot be used lacks, all of it by name; "" where it can be used.
struct plm_vk_described {
    struct plm_vk_physical physical;
    char missing[512];
};
// The caller frees *ret. Usable devices come first, GPUs before CPU drivers. NOT_FOUND: no driver.
int plm_vk_physical_list(const struct plm_vk_instance *instance, struct plm_host *host,
                         struct plm_vk_described **ret, uint32_t *ret_n, struct plm_error *err);

void plm_vk_physical_sort(struct plm_vk_described *list, uint32_t n);

#endif
