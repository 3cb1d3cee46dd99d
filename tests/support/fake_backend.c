// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_backend.h"

#include <string.h>

#include "core/base/checked.h"

struct plm_backend_device {
    struct plm_host *host;
    struct fake_world *world;
    struct plm_caps caps;
};

static int fake_enumerate(struct plm_host *host, struct plm_device_desc *out, size_t cap,
                          size_t *ret_n, struct plm_error *err)
{
    (void)host, (void)out, (void)cap, (void)err;
    *ret_n = 0;
    return PLM_OK;
}

static int fake_backend_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                             struct plm_error *err)
{
    struct plm_backend_device *dev = plm_calloc(opts->host, PLM_HOST_DEVICE, 1, sizeof(*dev));
    if (dev == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory");
    struct fake_world *world = (struct fake_world *)(uintptr_t)opts->backend_opts;
    dev->host = opts->host;
    dev->world = world;
    strcpy(dev->caps.name, "fake");
    strcpy(dev->caps.uuid, "fake-0");
    dev->caps.granularity_bytes = world->granularity_bytes;
    dev->caps.max_slab_bytes = world->max_slab_bytes;
    dev->caps.max_slabs = world->max_slabs;
    dev->caps.align_bytes = world->align_bytes;
    *ret = dev;
    return PLM_OK;
}

static void fake_close(struct plm_backend_device *dev)
{
    if (dev != NULL)
        plm_free(dev->host, dev);
}

static const struct plm_caps *fake_caps(const struct plm_backend_device *dev)
{
    return &dev->caps;
}

static int fake_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                      void *import_ptr, struct plm_slab *ret)
{
    struct fake_world *w = dev->world;
    (void)import_ptr;
    uint64_t taken = plm_round_up(bytes, w->granularity_bytes);
    if (bytes > w->max_slab_bytes)
        return PLM_ERR_TOO_LARGE;
    if (w->fail_nth > 0 && --w->fail_nth == 0)
        return PLM_ERR_OUT_OF_DEVICE;
    if (taken > w->capacity_bytes - w->taken_bytes || w->slabs >= w->max_slabs)
        return PLM_ERR_OUT_OF_DEVICE;
    struct plm_slab slab = {.bytes = bytes, .taken_bytes = taken, .kind = kind};
    if (w->no_memory) {
        slab.addr = plm_round_up(w->next_addr, w->align_bytes);
        w->next_addr = slab.addr + taken;
    } else {
        slab.impl = plm_malloc(dev->host, PLM_HOST_DEVICE, bytes + w->align_bytes);
        if (slab.impl == NULL)
            return PLM_ERR_NOMEM_HOST;
        slab.addr = plm_round_up((uint64_t)(uintptr_t)slab.impl, w->align_bytes);
        slab.host = (char *)slab.impl + (slab.addr - (uint64_t)(uintptr_t)slab.impl);
    }
    w->taken_bytes += taken;
    w->allocs++;
    w->slabs++;
    *ret = slab;
    return PLM_OK;
}

static void fake_free(struct plm_backend_device *dev, struct plm_slab *slab)
{
    dev->world->taken_bytes -= slab->taken_bytes;
    dev->world->slabs--;
    plm_free(dev->host, slab->impl);
}

static int fake_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret)
{
    *ret = (struct plm_mem_info){.total_bytes = dev->world->capacity_bytes,
                                 .free_bytes = dev->world->capacity_bytes - dev->world->taken_bytes,
                                 .source = "fake",
                                 .confidence = PLM_CONFIDENCE_HIGH};
    return PLM_OK;
}

static int fake_empty_cache(struct plm_backend_device *dev, uint64_t *ret_released,
                            struct plm_mem_info *ret_info)
{
    *ret_released = 0;
    return fake_query_free(dev, ret_info);
}

static int fake_status(const struct plm_backend_device *dev)
{
    (void)dev;
    return PLM_OK;
}

const struct plm_backend fake_backend = {
    .name = "fake",
    .enumerate = fake_enumerate,
    .open = fake_backend_open,
    .close = fake_close,
    .caps = fake_caps,
    .alloc = fake_alloc,
    .free = fake_free,
    .query_free = fake_query_free,
    .empty_cache = fake_empty_cache,
    .status = fake_status,
};

struct plm_device *fake_open(struct plm_host *host, struct fake_world *world)
{
    struct plm_device *device = NULL;
    if (world->granularity_bytes == 0)
        world->granularity_bytes = 4096;
    if (world->max_slab_bytes == 0)
        world->max_slab_bytes = UINT64_C(1) << 40;
    if (world->max_slabs == 0)
        world->max_slabs = 1u << 20;
    if (world->align_bytes == 0)
        world->align_bytes = 256;
    if (world->next_addr == 0)
        world->next_addr = UINT64_C(1) << 32;
    struct plm_device_opts opts = {.host = host, .backend_opts = world};
    if (plm_device_open_backend(&fake_backend, &opts, &device, NULL) != PLM_OK)
        return NULL;
    return device;
}
