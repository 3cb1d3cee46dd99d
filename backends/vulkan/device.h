// SPDX-License-Identifier: Apache-2.0
// An opened device, and what all that follow use of it: results, timelines, commands (device.c).
// Each module owns the part that its header declares.
#ifndef PLM_VULKAN_DEVICE_H
#define PLM_VULKAN_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/hostmem/hostmem.h"
#include "backends/shared/card_opts.h"
#include "backends/shared/which.h"
#include "backends/vulkan/instance.h"
#include "backends/vulkan/loader.h"
#include "backends/vulkan/slabs.h"
#include "core/backend.h"

struct plm_vk_list;
struct plm_vk_pipelines;
struct plm_vk_staging;

// Each grows by one with a submit.
struct plm_vk_timeline {
    VkSemaphore semaphore;
    uint64_t value; // as last submitted
};

struct plm_backend_device {
    struct plm_host *host;
    const struct plm_clock *clock;
    const struct plm_log *log;
    struct plm_vk_opts opts;
    struct plm_vk_instance instance;
    struct plm_vk_fns *vk; // instance.vk, with the device's entry points
    struct plm_vk_physical physical;
    struct plm_caps caps;
    VkDevice handle;
    VkQueue queue;
    struct plm_vk_timeline timeline; // of lists: the values that the contract counts
    struct plm_vk_timeline copies;   // of copies that travel apart from a list, so that the
                                     // contract's values grow by one a list
    bool slabs_mapped;               // slabs are seen by the host; there are no rings
    struct plm_hostmem machine;      // where unified
    _Atomic uint64_t taken_bytes;    // in slabs and rings: our own account of the slabs' heap
    // Slabs were freed since the last plm_vk_await_frees; what the driver counted beside our own
    // before that, and when the last one was freed.
    bool freed;
    uint64_t beside;
    int64_t freed_ns;
    atomic_bool lost;
    struct plm_vk_slabs slabs;
    struct plm_vk_staging *staging;
    struct plm_vk_pipelines *pipelines;
    struct plm_vk_list *list;
};

// Maps a result to a status; DEVICE_LOST becomes sticky.
int plm_vk_status(struct plm_backend_device *dev, VkResult result);
int plm_vk_timeline_create(struct plm_backend_device *dev, VkSemaphore *ret);
// PLM_OK, TIMEOUT, LOST; timeout_ns < 0: no limit.
int plm_vk_timeline_wait(struct plm_backend_device *dev, VkSemaphore timeline, uint64_t value,
                         int64_t timeout_ns);
// The same with the longest time that anything takes: a device that does not end it is lost.
int plm_vk_finish(struct plm_backend_device *dev, VkSemaphore timeline, uint64_t value);
// Waits the same way for all that was submitted.
void plm_vk_settle(struct plm_backend_device *dev);
// A pool and n primary buffers of it. What a failure leaves goes with the pool.
int plm_vk_commands_create(struct plm_backend_device *dev, uint32_t n, VkCommandPool *ret_pool,
                           VkCommandBuffer *ret_buffers);
// What was written before is seen after.
void plm_vk_memory_barrier(const struct plm_backend_device *dev, VkCommandBuffer commands,
                           VkPipelineStageFlags2 before, VkAccessFlags2 wrote,
                           VkPipelineStageFlags2 after, VkAccessFlags2 access);

#endif
