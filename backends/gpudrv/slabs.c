// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "backends/gpudrv/impl.h"
#include "core/base/checked.h"

#define PAGE 4096u // of the host: what memory that is registered must be aligned to

struct plm_gpu_slab {
    uint64_t addr, taken; // taken: on the device or of the host
    void *host;
    enum plm_slab_kind kind;
    struct plm_gpu_mapping mapping; // where mapping.bytes > 0
    uint64_t copied; // value of the timeline by which the last copy into it is done; 0: none
    struct plm_gpu_slab *next; // in dev->left
};

// Index of the first slab that starts above addr.
static size_t slab_above(const struct plm_gpu_slabs *slabs, uint64_t addr)
{
    size_t lo = 0, hi = slabs->n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (slabs->at[mid]->addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool reserve(struct plm_backend_device *dev)
{
    struct plm_gpu_slabs *slabs = &dev->slabs;
    if (slabs->n < slabs->cap)
        return true;
    const size_t cap = slabs->cap > 0 ? slabs->cap * 2 : 32;
    struct plm_gpu_slab **moved =
        plm_realloc(dev->host, PLM_HOST_DEVICE, slabs->at, cap * sizeof(*moved));
    if (moved == NULL)
        return false;
    slabs->at = moved;
    slabs->cap = cap;
    return true;
}

static void insert(struct plm_gpu_slabs *slabs, struct plm_gpu_slab *slab)
{
    const size_t at = slab_above(slabs, slab->addr);
    memmove(&slabs->at[at + 1], &slabs->at[at], (slabs->n - at) * sizeof(slabs->at[0]));
    slabs->at[at] = slab;
    slabs->n++;
}

// ---- kinds ----

// Whole steps of the granularity are asked for, so that what is taken is what is counted: smaller
// requests share a step, and one byte more than a step takes two.
static int take_device(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                       struct plm_gpu_slab *slab)
{
    slab->taken = plm_round_up(bytes, dev->caps.granularity_bytes);
    if (dev->card.unified) { // drivers take the host's pages at once, and ask no limit
        int rc = plm_hostmem_check(&dev->machine, slab->taken);
        if (rc != PLM_OK)
            return rc;
    }
    if (kind == PLM_SLAB_DEVICE || !dev->mapped)
        return plm_gpu_status(dev, dev->driver->memory_alloc(dev->lib, slab->taken, &slab->addr));
    plm_gpu_r r = dev->driver->map(dev->lib, dev->ordinal, slab->taken, &slab->mapping);
    slab->addr = slab->mapping.addr;
    return plm_gpu_status(dev, r);
}

static int take_pinned(struct plm_backend_device *dev, uint64_t bytes, struct plm_gpu_slab *slab)
{
    slab->taken = plm_round_up(bytes, dev->caps.granularity_bytes);
    const plm_gpu_r r = dev->driver->host_alloc(dev->lib, slab->taken, &slab->host, &slab->addr);
    return r == PLM_GPU_OUT_OF_MEMORY ? PLM_ERR_NOMEM_HOST : plm_gpu_status(dev, r);
}

static int take_imported(struct plm_backend_device *dev, uint64_t bytes, void *ptr,
                         struct plm_gpu_slab *slab)
{
    if ((uintptr_t)ptr % PAGE != 0 || bytes % PAGE != 0)
        return PLM_ERR_INVALID;
    // On a card of its own every read of such memory would cross the bus.
    if (!dev->card.unified)
        return PLM_ERR_UNSUPPORTED;
    slab->host = ptr;
    return plm_gpu_status(dev, dev->driver->host_register(dev->lib, ptr, bytes, &slab->addr));
}

static int take(struct plm_backend_device *dev, uint64_t bytes, void *import_ptr,
                struct plm_gpu_slab *slab)
{
    switch (slab->kind) {
    case PLM_SLAB_PINNED: return take_pinned(dev, bytes, slab);
    case PLM_SLAB_IMPORTED: return take_imported(dev, bytes, import_ptr, slab);
    case PLM_SLAB_DEVICE:
    case PLM_SLAB_ELASTIC: break;
    }
    return take_device(dev, slab->kind, bytes, slab);
}

static plm_gpu_r give_back(struct plm_backend_device *dev, struct plm_gpu_slab *slab)
{
    if (slab->mapping.bytes > 0)
        return dev->driver->unmap(dev->lib, &slab->mapping);
    if (slab->kind == PLM_SLAB_PINNED)
        return dev->driver->host_free(dev->lib, slab->host);
    if (slab->kind == PLM_SLAB_IMPORTED)
        return dev->driver->host_unregister(dev->lib, slab->host);
    return dev->driver->memory_free(dev->lib, slab->addr);
}

// ---- slabs ----

int plm_gpu_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                  void *import_ptr, struct plm_slab *ret)
{
    uint64_t before;
    int rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return rc;
    struct plm_gpu_slab *slab = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*slab));
    rc = slab != NULL && reserve(dev) ? PLM_OK : PLM_ERR_NOMEM_HOST;
    if (rc == PLM_OK) {
        slab->kind = kind;
        rc = take(dev, bytes, import_ptr, slab);
    }
    plm_gpu_leave(dev, before);
    if (rc != PLM_OK) {
        plm_free(dev->host, slab);
        return rc;
    }
    insert(&dev->slabs, slab);
    if (slab->host == NULL)
        dev->taken_bytes += slab->taken;
    *ret = (struct plm_slab){.addr = slab->addr,
                             .bytes = bytes,
                             .taken_bytes = slab->taken,
                             .host = slab->host,
                             .kind = kind,
                             .impl = slab};
    return PLM_OK;
}

// Until nothing that was given to the stream can touch the slab. No step in flight uses it, but a
// copy may, and a step that was given up as hung. A mapped slab is released while other steps run:
// it waits for the copies into it alone.
static void await_users(struct plm_backend_device *dev, const struct plm_gpu_slab *slab)
{
    if (slab->mapping.bytes == 0 || slab->copied > dev->value)
        plm_gpu_settle(dev);
    else if (slab->copied > 0)
        plm_gpu_finish_value(dev, slab->copied);
}

void plm_gpu_free(struct plm_backend_device *dev, struct plm_slab *slab)
{
    struct plm_gpu_slab *own = slab->impl;
    struct plm_gpu_slabs *slabs = &dev->slabs;
    const size_t above = slab_above(slabs, own->addr);
    memmove(&slabs->at[above - 1], &slabs->at[above], (slabs->n - above) * sizeof(slabs->at[0]));
    slabs->n--;
    plm_gpu_r r = PLM_GPU_LOST;
    uint64_t before;
    if (plm_gpu_enter(dev, &before) == PLM_OK) {
        await_users(dev, own);
        if (own->host == NULL)
            plm_gpu_note_free(dev);
        r = give_back(dev, own);
        plm_gpu_status(dev, r);
        plm_gpu_leave(dev, before);
    }
    if (own->host == NULL)
        dev->taken_bytes -= own->taken;
    if (r == PLM_GPU_OK || own->mapping.bytes == 0) {
        plm_free(dev->host, own);
        return;
    }
    // What a lost device held goes with its context, but for mapped memory, which has none.
    own->next = dev->left;
    dev->left = own;
}

// As long as a lost context is there every call may give its error, and without any context they
// may give one of their own. So it takes a new one, where there is one to be had.
void plm_gpu_unmap_left(struct plm_backend_device *dev)
{
    const struct plm_gpu_driver *driver = dev->driver;
    void *context = NULL;
    uint64_t before;
    if (dev->left == NULL)
        return;
    if (driver->context_create(dev->lib, dev->ordinal, &context) != PLM_GPU_OK)
        context = NULL;
    const bool entered = context != NULL && driver->enter(dev->lib, context, &before) == PLM_GPU_OK;
    while (dev->left != NULL) {
        struct plm_gpu_slab *own = dev->left;
        dev->left = own->next;
        if (driver->unmap(dev->lib, &own->mapping) != PLM_GPU_OK)
            plm_logf(dev->log, PLM_LOG_WARN,
                     "%s: %llu bytes of a lost device did not come back; they are taken until the "
                     "process ends",
                     driver->name, (unsigned long long)own->mapping.bytes);
        plm_free(dev->host, own);
    }
    if (entered)
        driver->leave(dev->lib, before);
    if (context != NULL)
        driver->context_destroy(dev->lib, context, false);
}

// ---- copies ----

// The slab of an address, or NULL.
static struct plm_gpu_slab *slab_of(struct plm_backend_device *dev, uint64_t addr)
{
    const size_t above = slab_above(&dev->slabs, addr);
    return above > 0 ? dev->slabs.at[above - 1] : NULL;
}

// Where the host copies by itself: once the device has done all that was submitted before.
static void *host_at(const struct plm_gpu_slab *slab, uint64_t addr)
{
    return (char *)slab->host + (addr - slab->addr);
}

int plm_gpu_copy_in_parts(struct plm_backend_device *dev, uint64_t dst,
                          const struct plm_copy_part *parts, uint32_t n)
{
    struct plm_gpu_slab *slab = slab_of(dev, dst);
    uint64_t before;
    if (slab == NULL)
        return PLM_ERR_INVALID;
    int rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return rc;
    if (slab->host == NULL) {
        slab->copied = dev->value + 1; // the next submit ends after it
        rc = plm_gpu_staging_in(dev, dst, parts, n);
    } else {
        rc = plm_gpu_settle(dev);
        for (uint32_t i = 0; i < n && rc == PLM_OK; i++)
            memcpy(host_at(slab, dst + parts[i].at), parts[i].src, parts[i].bytes);
    }
    plm_gpu_leave(dev, before);
    return rc;
}

int plm_gpu_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src, uint64_t bytes)
{
    const struct plm_copy_part part = {.src = src, .bytes = bytes};
    return plm_gpu_copy_in_parts(dev, dst, &part, 1);
}

int plm_gpu_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes)
{
    const struct plm_gpu_slab *slab = slab_of(dev, src);
    uint64_t before;
    if (slab == NULL)
        return PLM_ERR_INVALID;
    int rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return rc;
    if (slab->host == NULL) {
        rc = plm_gpu_staging_out(dev, dst, src, bytes);
    } else {
        rc = plm_gpu_settle(dev);
        if (rc == PLM_OK)
            memcpy(dst, host_at(slab, src), bytes);
    }
    plm_gpu_leave(dev, before);
    return rc;
}
