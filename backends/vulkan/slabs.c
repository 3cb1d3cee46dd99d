// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/slabs.h"

#include <string.h>

#include "backends/vulkan/device.h"
#include "backends/vulkan/memory.h"
#include "backends/vulkan/readings.h"
#include "backends/vulkan/staging.h"
#include "backends/vulkan/types.h"
#include "core/base/checked.h"

struct plm_vk_slab {
    struct plm_vk_memory memory;
    void *host;       // the same bytes for the caller, or NULL
    uint64_t charged; // to the device's own account
};

// Index of the first slab that starts above addr.
static size_t slab_above(const struct plm_vk_slabs *slabs, uint64_t addr)
{
    size_t lo = 0, hi = slabs->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (slabs->at[mid]->memory.addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool reserve(struct plm_backend_device *dev)
{
    struct plm_vk_slabs *slabs = &dev->slabs;
    if (slabs->n < slabs->cap)
        return true;
    size_t cap = slabs->cap > 0 ? slabs->cap * 2 : 32;
    struct plm_vk_slab **moved =
        plm_realloc(dev->host, PLM_HOST_DEVICE, slabs->at, cap * sizeof(*moved));
    if (moved == NULL)
        return false;
    slabs->at = moved;
    slabs->cap = cap;
    return true;
}

static void insert(struct plm_vk_slabs *slabs, struct plm_vk_slab *slab)
{
    size_t at = slab_above(slabs, slab->memory.addr);
    memmove(&slabs->at[at + 1], &slabs->at[at], (slabs->n - at) * sizeof(slabs->at[0]));
    slabs->at[at] = slab;
    slabs->n++;
}

// What can be seen not to fit. Drivers that over-commit would find out at a submit.
static int check_room(struct plm_backend_device *dev, uint64_t bytes)
{
    const uint64_t heap = dev->physical.heap_bytes;
    const uint64_t taken = atomic_load(&dev->taken_bytes);
    if (bytes > heap)
        return PLM_ERR_TOO_LARGE;
    if (taken > heap || bytes > heap - taken)
        return PLM_ERR_OUT_OF_DEVICE;
    return dev->physical.unified ? plm_hostmem_check(&dev->machine, bytes) : PLM_OK;
}

int plm_vk_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                 void *import_ptr, struct plm_slab *ret)
{
    const bool imported = kind == PLM_SLAB_IMPORTED; // stays the caller's: nothing is taken
    const struct plm_vk_types *types = &dev->physical.types;
    const uint32_t type = kind == PLM_SLAB_PINNED ? types->pinned : types->slab;
    const bool charged =
        !imported && dev->physical.memory.memoryTypes[type].heapIndex == types->heap;
    const uint64_t wanted = plm_round_up(bytes, dev->caps.granularity_bytes);
    int rc = charged ? check_room(dev, wanted) : PLM_OK;
    if (rc != PLM_OK)
        return rc;
    struct plm_vk_slab *slab = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*slab));
    if (slab == NULL || !reserve(dev)) {
        plm_free(dev->host, slab);
        return PLM_ERR_NOMEM_HOST;
    }
    rc = imported ? plm_vk_memory_import(dev, import_ptr, bytes, &slab->memory)
                  : plm_vk_memory_create(dev, type, wanted, &slab->memory);
    if (rc != PLM_OK) {
        plm_free(dev->host, slab);
        return rc;
    }
    const uint64_t taken =
        imported ? 0 : plm_round_up(slab->memory.taken, dev->caps.granularity_bytes);
    slab->charged = charged ? taken : 0;
    atomic_fetch_add(&dev->taken_bytes, slab->charged);
    insert(&dev->slabs, slab);
    if (imported || kind == PLM_SLAB_PINNED || dev->slabs_mapped)
        slab->host = slab->memory.host;
    *ret = (struct plm_slab){.addr = slab->memory.addr,
                             .bytes = bytes,
                             .taken_bytes = taken,
                             .host = slab->host,
                             .kind = kind,
                             .impl = slab};
    return PLM_OK;
}

void plm_vk_free(struct plm_backend_device *dev, struct plm_slab *slab)
{
    plm_vk_note_free(dev);
    struct plm_vk_slab *own = slab->impl;
    struct plm_vk_slabs *slabs = &dev->slabs;
    plm_vk_staging_forget(dev, own->memory.addr, own->memory.taken);
    // No step in flight uses the slab, but a copy may, and a step that was given up as hung.
    plm_vk_settle(dev);
    const size_t above = slab_above(slabs, own->memory.addr);
    memmove(&slabs->at[above - 1], &slabs->at[above], (slabs->n - above) * sizeof(slabs->at[0]));
    slabs->n--;
    plm_vk_memory_destroy(dev, &own->memory);
    atomic_fetch_sub(&dev->taken_bytes, own->charged);
    plm_free(dev->host, own);
    // malloc may keep what a CPU driver freed.
    if (dev->physical.type == VK_PHYSICAL_DEVICE_TYPE_CPU)
        plm_host_trim(dev->host);
}

// ---- copies ----

// Where the address lies; host: where the host may copy by itself, once the device is done, else
// NULL.
static int locate(struct plm_backend_device *dev, uint64_t addr, uint64_t bytes,
                  struct plm_vk_range *ret, void **ret_host)
{
    const size_t above = slab_above(&dev->slabs, addr);
    if (above == 0)
        return PLM_ERR_INVALID;
    const struct plm_vk_slab *slab = dev->slabs.at[above - 1];
    const uint64_t offset = addr - slab->memory.addr;
    if (offset >= slab->memory.taken)
        return PLM_ERR_INVALID;
    *ret = (struct plm_vk_range){
        .addr = addr, .buffer = slab->memory.buffer, .offset = offset, .bytes = bytes};
    *ret_host = slab->host != NULL ? (char *)slab->host + offset : NULL;
    return *ret_host == NULL
               ? PLM_OK
               : plm_vk_timeline_wait(dev, dev->timeline.semaphore, dev->timeline.value, -1);
}

int plm_vk_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src, uint64_t bytes)
{
    struct plm_vk_range to;
    void *host;
    int rc = locate(dev, dst, bytes, &to, &host);
    if (rc != PLM_OK)
        return rc;
    if (host == NULL)
        return plm_vk_staging_in(dev, &to, src);
    memcpy(host, src, bytes);
    return PLM_OK;
}

int plm_vk_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes)
{
    struct plm_vk_range from;
    void *host;
    int rc = locate(dev, src, bytes, &from, &host);
    if (rc != PLM_OK)
        return rc;
    if (host == NULL)
        return plm_vk_staging_out(dev, dst, &from);
    memcpy(dst, host, bytes);
    return PLM_OK;
}
