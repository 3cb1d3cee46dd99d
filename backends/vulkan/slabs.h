// SPDX-License-Identifier: Apache-2.0
// Slabs; copies into them and out of them (slabs.c).
#ifndef PLM_VULKAN_SLABS_H
#define PLM_VULKAN_SLABS_H

#include <stddef.h>
#include <stdint.h>

#include "core/backend.h"

struct plm_vk_slab;

// Live slabs by address, for copies.
struct plm_vk_slabs {
    struct plm_vk_slab **at;
    size_t n, cap;
};

int plm_vk_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                 void *import_ptr, struct plm_slab *ret);
void plm_vk_free(struct plm_backend_device *dev, struct plm_slab *slab);
int plm_vk_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src, uint64_t bytes);
int plm_vk_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes);

#endif
