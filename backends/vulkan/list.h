// SPDX-License-Identifier: Apache-2.0
// The open list: appended, recorded, submitted again where it is the same (list.c).
#ifndef PLM_VULKAN_LIST_H
#define PLM_VULKAN_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "backends/vulkan/kernels.h"
#include "core/backend.h"

struct plm_vk_list;

// What the list did, for tests.
struct plm_vk_list_counters {
    uint64_t recorded; // lists
    uint64_t repeated; // submits of a list that was recorded already
    uint64_t parts;    // batches that went to the queue
};

int plm_vk_list_create(struct plm_backend_device *dev, uint32_t max_dispatches,
                       struct plm_vk_list **ret, struct plm_error *err);
// Nothing is in flight. NULL is allowed.
void plm_vk_list_destroy(struct plm_backend_device *dev, struct plm_vk_list *list);
int plm_vk_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units, const void *args,
                  size_t args_bytes);
// Appends a kernel of the caller's choice.
int plm_vk_append(struct plm_backend_device *dev, const struct plm_vk_kernel *kernel,
                  const void *args, size_t args_bytes);
int plm_vk_barrier(struct plm_backend_device *dev);
int plm_vk_submit(struct plm_backend_device *dev, uint64_t *ret_value);
void plm_vk_discard(struct plm_backend_device *dev);
int plm_vk_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns);
// Records the longest list once, so that command pools have grown before anything is measured.
int plm_vk_list_warm_up(struct plm_backend_device *dev);
void plm_vk_list_counters(const struct plm_backend_device *dev, struct plm_vk_list_counters *ret);

#endif
