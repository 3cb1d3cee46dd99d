// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/open.h"

#include <stdio.h>
#include <string.h>

#include "backends/vulkan/coopmat.h"
#include "backends/vulkan/device.h"
#include "backends/vulkan/instance.h"
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/list.h"
#include "backends/vulkan/loader.h"
#include "backends/vulkan/memory.h"
#include "backends/vulkan/pipelines.h"
#include "backends/vulkan/select.h"
#include "backends/vulkan/shaders.h"
#include "backends/vulkan/staging.h"
#include "backends/vulkan/types.h"
#include "core/base/checked.h"

#define MIB (UINT64_C(1) << 20)

// Use of the card moves in steps of it (measured: NVIDIA H100, driver 580, Vulkan 1.4.312).
#define GRANULARITY (2 * MIB)
// The last 72 MiB of the budget were not given on the same card, 80 with a slab's rest.
#define UNAVAILABLE (80 * MIB)
// An instance and a device took 29 MiB of the same card, in granules 30.
#define CONTEXT (30 * MIB)
// Allocations that are not slabs: two rings, and what a driver needs for itself.
#define OTHER_ALLOCATIONS 16u
// Slabs at most. A CPU driver's are mappings, of which Linux allows 65,530 to a process; of a card
// more would serve nothing.
#define MAX_SLABS 16384u
#define ALIGN     256u
// amdgpu resets a compute queue after 2 s (lockup_timeout); half is for what else the card does.
// Windows' limit for a submit is 2 s as well, but this is no build for Windows. NVIDIA's driver has
// a limit only where a display hangs on the card (submit_ms is for that), and drivers on a CPU have
// none. Others are treated like amdgpu: Intel's resets after some seconds, phones' after less.
#define WATCHDOG_MS 1000u

// ---- the device ----

#define EXTENSIONS 4

static uint32_t list_extensions(const struct plm_vk_physical *p, const char *names[EXTENSIONS])
{
    // VK_EXT_pageable_device_local_memory is never among them: with it, an H100's driver moved
    // slabs to host memory without an error once the card was full, and they were read at 50 GB/s.
    uint32_t n = 0;
    if (p->memory_budget)
        names[n++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    if (p->overallocation)
        names[n++] = VK_AMD_MEMORY_OVERALLOCATION_BEHAVIOR_EXTENSION_NAME;
    if (p->unified && p->host_import)
        names[n++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
    if ((p->needs_met & PLM_VK_NEEDS_COOPMAT_S8) != 0)
        names[n++] = PLM_VK_COOPMAT_EXTENSION;
    return n;
}

static void choose_features(const struct plm_backend_device *dev, struct plm_vk_features *f,
                            struct plm_vk_coopmat_features *matrix)
{
    const uint32_t met = dev->physical.needs_met;
    plm_vk_features_chain(f);
#define X(part, name) f->part.name = VK_TRUE;
    PLM_VK_FEATURES(X)
#undef X
    f->v13.shaderIntegerDotProduct = (met & PLM_VK_NEEDS_DOT) != 0;
    f->v12.shaderFloat16 = (met & PLM_VK_NEEDS_F16) != 0;
    f->v12.vulkanMemoryModel = (met & PLM_VK_NEEDS_COOPMAT_S8) != 0;
    plm_vk_coopmat_features_init(matrix);
    if ((met & PLM_VK_NEEDS_COOPMAT_S8) != 0) {
        matrix->matrix = VK_TRUE;
        f->v13.pNext = matrix;
    }
}

static int create_device(struct plm_backend_device *dev, struct plm_error *err)
{
    const struct plm_vk_physical *p = &dev->physical;
    struct plm_vk_features features;
    struct plm_vk_coopmat_features matrix;
    choose_features(dev, &features, &matrix);
    // A driver that over-commits is asked to refuse instead, where it knows how.
    VkDeviceMemoryOverallocationCreateInfoAMD no_overallocation = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_MEMORY_OVERALLOCATION_CREATE_INFO_AMD,
        .pNext = &features.core,
        .overallocationBehavior = VK_MEMORY_OVERALLOCATION_BEHAVIOR_DISALLOWED_AMD};
    const char *extensions[EXTENSIONS];
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = p->queue_family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = p->overallocation ? (const void *)&no_overallocation
                                                                : &features.core,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = list_extensions(p, extensions),
                                     .ppEnabledExtensionNames = extensions};
    VkResult r = dev->vk->CreateDevice(p->handle, &info, NULL, &dev->handle);
    if (r != VK_SUCCESS) {
        dev->handle = VK_NULL_HANDLE;
        return plm_fail(err, plm_vk_status(dev, r), "vulkan: %s: vkCreateDevice failed with %d",
                        p->name, r);
    }
    int rc = plm_vk_device_functions(dev->vk, dev->handle, err);
    if (rc != PLM_OK)
        return rc;
    dev->vk->GetDeviceQueue(dev->handle, p->queue_family, 0, &dev->queue);
    rc = plm_vk_timeline_create(dev, &dev->timeline.semaphore);
    if (rc == PLM_OK)
        rc = plm_vk_timeline_create(dev, &dev->copies.semaphore);
    return rc == PLM_OK ? rc : plm_fail(err, rc, "vulkan: %s: no timeline semaphore", p->name);
}

// Chooses the memory types again, among those that the driver allows for our buffers.
static int choose_types(struct plm_backend_device *dev, struct plm_error *err)
{
    struct plm_vk_physical *p = &dev->physical;
    const VkBufferCreateInfo buffer = plm_vk_buffer_info(MIB);
    const VkDeviceBufferMemoryRequirements ask = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_BUFFER_MEMORY_REQUIREMENTS, .pCreateInfo = &buffer};
    VkMemoryRequirements2 needs = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2};
    dev->vk->GetDeviceBufferMemoryRequirements(dev->handle, &ask, &needs);
    if (!plm_vk_choose_types(&p->memory, needs.memoryRequirements.memoryTypeBits, p->unified,
                             &p->types))
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "vulkan: %s has no memory that buffers may lie in and the host can write",
                        p->name);
    p->heap_bytes = p->memory.memoryHeaps[p->types.heap].size;
    dev->slabs_mapped = dev->opts.host_visible && p->unified && p->types.slab_cached;
    return PLM_OK;
}

// ---- capabilities ----

static uint32_t submit_limit(const struct plm_vk_physical *p, const struct plm_vk_opts *opts)
{
    if (opts->submit_ms > 0)
        return opts->submit_ms;
    if (p->type == VK_PHYSICAL_DEVICE_TYPE_CPU || p->driver_id == VK_DRIVER_ID_NVIDIA_PROPRIETARY)
        return 0;
    return WATCHDOG_MS;
}

static void fill_caps(struct plm_backend_device *dev)
{
    const struct plm_vk_physical *p = &dev->physical;
    struct plm_caps *caps = &dev->caps;
    const bool f16 = dev->opts.f16_math;
    snprintf(caps->name, sizeof(caps->name), "%s", p->name);
    snprintf(caps->uuid, sizeof(caps->uuid), "%s", p->uuid);
    snprintf(caps->driver, sizeof(caps->driver), "%s", p->driver);
    snprintf(caps->isa, sizeof(caps->isa), "%s%s",
             (p->needs_met & PLM_VK_NEEDS_DOT) != 0 ? "dot4" : "plain", f16 ? "-f16" : "");
    snprintf(caps->device_class, sizeof(caps->device_class), "vulkan-p16%s", f16 ? "-f16" : "");
    caps->commit = PLM_COMMIT_SOFT;
    caps->unified = p->unified;
    caps->reports_process_use = p->memory_budget || p->type == VK_PHYSICAL_DEVICE_TYPE_CPU;
    caps->granularity_bytes = p->unified ? PLM_HOSTMEM_STEP : GRANULARITY;
    caps->context_bytes = caps->reports_process_use ? 0 : CONTEXT;
    caps->unavailable_bytes = p->unified ? 0 : UNAVAILABLE;
    uint64_t most = p->heap_bytes;
    most = p->max_allocation_bytes < most ? p->max_allocation_bytes : most;
    most = p->max_buffer_bytes < most ? p->max_buffer_bytes : most;
    caps->max_slab_bytes = most / caps->granularity_bytes * caps->granularity_bytes;
    const uint32_t count = p->limits.maxMemoryAllocationCount - OTHER_ALLOCATIONS;
    caps->max_slabs = count < MAX_SLABS ? count : MAX_SLABS;
    caps->align_bytes = ALIGN;
    caps->max_submit_ms = submit_limit(p, &dev->opts);
    caps->few_rows = PLM_VULKAN_FEW_ROWS;
    caps->kv_types = PLM_KV_TYPES_ALL;
    caps->tunes = true;
}

// ---- open and close ----

// The physical device that the options name, with the features that they leave on.
static int select_physical(struct plm_backend_device *dev, struct plm_error *err)
{
    struct plm_vk_described *list;
    uint32_t n, at;
    int rc = plm_vk_physical_list(&dev->instance, dev->host, &list, &n, err);
    if (rc != PLM_OK)
        return rc;
    rc = plm_vk_select(&dev->opts, list, n, &at, err);
    if (rc == PLM_OK)
        dev->physical = list[at].physical;
    plm_free(dev->host, list);
    if (rc != PLM_OK)
        return rc;
    if (!dev->opts.dot)
        dev->physical.needs_met &= ~(uint32_t)PLM_VK_NEEDS_DOT;
    if (!dev->opts.coopmat)
        dev->physical.needs_met &= ~(uint32_t)PLM_VK_NEEDS_COOPMAT_S8;
    if (dev->opts.f16_math && (dev->physical.needs_met & PLM_VK_NEEDS_F16) == 0)
        return plm_fail(err, PLM_ERR_UNSUPPORTED, "vulkan: math=f16: %s lacks shaderFloat16",
                        dev->physical.name);
    return PLM_OK;
}

// What stands on the device: rings, pipelines, the list.
static int create_parts(struct plm_backend_device *dev, uint32_t max_dispatches,
                        struct plm_error *err)
{
    if (!dev->slabs_mapped) {
        int rc = plm_vk_staging_create(dev, &dev->staging);
        if (rc != PLM_OK)
            return plm_fail(err, rc, "vulkan: %s: no memory for the rings that copies go through",
                            dev->physical.name);
    }
    int rc = plm_vk_pipelines_create(dev, &dev->pipelines, err);
    if (rc != PLM_OK)
        return rc;
    // A dispatch and its barrier cost 2 us on a card (measured: NVIDIA H100), so that whatever
    // stands for several of them pays.
    dev->caps.prefers = plm_vk_kernels_ops(&dev->pipelines->kernels) & PLM_GPU_PREFERS;
    return plm_vk_list_create(dev, max_dispatches, &dev->list, err);
}

int plm_vk_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                struct plm_error *err)
{
    struct plm_backend_device *dev = plm_calloc(opts->host, PLM_HOST_DEVICE, 1, sizeof(*dev));
    if (dev == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "vulkan: no host memory for the device");
    dev->host = opts->host;
    dev->clock = opts->clock;
    dev->log = opts->log;
    dev->machine.limit_bytes = opts->memory_limit_bytes;
    dev->vk = &dev->instance.vk;
    if (opts->backend_opts != NULL) {
        dev->opts = *(const struct plm_vk_opts *)opts->backend_opts;
    } else {
        plm_vk_opts_defaults(&dev->opts);
        dev->opts.which.index = opts->index;
    }
    int rc = plm_vk_instance_open(&dev->instance, err);
    if (rc == PLM_OK)
        rc = select_physical(dev, err);
    if (rc == PLM_OK)
        rc = create_device(dev, err);
    if (rc == PLM_OK)
        rc = choose_types(dev, err);
    if (rc == PLM_OK) {
        fill_caps(dev);
        rc = create_parts(dev, opts->max_dispatches, err);
    }
    if (rc != PLM_OK) {
        plm_vk_close(dev);
        return rc;
    }
    *ret = dev;
    return PLM_OK;
}

void plm_vk_close(struct plm_backend_device *dev)
{
    if (dev == NULL)
        return;
    if (dev->handle != VK_NULL_HANDLE) {
        // Of a lost device nothing runs any more, and one that hangs would be waited for in vain.
        if (dev->copies.semaphore != VK_NULL_HANDLE)
            plm_vk_settle(dev);
        if (dev->vk->DeviceWaitIdle != NULL && !atomic_load(&dev->lost))
            dev->vk->DeviceWaitIdle(dev->handle);
        plm_vk_list_destroy(dev, dev->list);
        plm_vk_pipelines_destroy(dev, dev->pipelines);
        plm_vk_staging_destroy(dev, dev->staging);
        if (dev->vk->DestroySemaphore != NULL) {
            dev->vk->DestroySemaphore(dev->handle, dev->copies.semaphore, NULL);
            dev->vk->DestroySemaphore(dev->handle, dev->timeline.semaphore, NULL);
        }
        if (dev->vk->DestroyDevice != NULL)
            dev->vk->DestroyDevice(dev->handle, NULL);
    }
    plm_free(dev->host, dev->slabs.at);
    plm_vk_instance_close(&dev->instance);
    plm_free(dev->host, dev);
}
