// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "backends/gpudrv/impl.h"

void plm_gpu_read_unified(const struct plm_mem_info *machine, struct plm_mem_info *info)
{
    // Such drivers report the card's aperture, count the page cache as used, or promise more than
    // the machine has.
    if (machine->total_bytes < info->total_bytes)
        info->total_bytes = machine->total_bytes;
    if (machine->free_bytes < info->free_bytes) {
        info->free_bytes = machine->free_bytes;
        info->source = machine->source;
        info->confidence = machine->confidence;
    }
    info->n_cgroups = machine->n_cgroups;
    memcpy(info->cgroups, machine->cgroups, sizeof(info->cgroups));
}

// The process's own use is not read: NVML, which would tell, shows the whole card to a slice of it
// (MIG, containers that share a card).
static int read_driver(struct plm_backend_device *dev, struct plm_mem_info *ret)
{
    *ret = (struct plm_mem_info){.source = dev->driver->source,
                                 .confidence =
                                     dev->caps.commit == PLM_COMMIT_HARD && !dev->card.sees_itself
                                         ? dev->driver->confidence
                                         : PLM_CONFIDENCE_LOW};
    int rc = plm_gpu_status(
        dev, dev->driver->memory_info(dev->lib, &ret->free_bytes, &ret->total_bytes));
    if (rc != PLM_OK || !dev->card.unified)
        return rc;
    struct plm_mem_info machine;
    rc = plm_hostmem_query(&dev->machine, &machine);
    if (rc == PLM_OK)
        plm_gpu_read_unified(&machine, ret);
    return rc;
}

int plm_gpu_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret)
{
    uint64_t before;
    int rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return rc;
    rc = read_driver(dev, ret);
    plm_gpu_leave(dev, before);
    return rc;
}

// ---- until what was freed is free ----

// CUDA shows a free at once (measured: H100). A driver that is late must not make a plan take what
// we freed for a neighbour's. What is still used after this time is not ours.
#define FREES_NS     INT64_C(2000000000)
#define FREES_NAP_NS INT64_C(2000000)

// What is used of the card beside our slabs.
static int read_beside(struct plm_backend_device *dev, uint64_t *ret)
{
    uint64_t free_bytes, total;
    const int rc = plm_gpu_status(dev, dev->driver->memory_info(dev->lib, &free_bytes, &total));
    const uint64_t used = rc == PLM_OK && total > free_bytes ? total - free_bytes : 0;
    *ret = used > dev->taken_bytes ? used - dev->taken_bytes : 0;
    return rc;
}

void plm_gpu_note_free(struct plm_backend_device *dev)
{
    if (dev->card.unified) // all of the machine takes and frees there
        return;
    if (!dev->freed)
        dev->freed = read_beside(dev, &dev->beside) == PLM_OK;
    dev->freed_ns = plm_now(dev->clock);
}

static int await_frees(struct plm_backend_device *dev)
{
    const int64_t until = dev->freed_ns + FREES_NS;
    int rc = PLM_OK;
    while (dev->freed && rc == PLM_OK) {
        uint64_t beside;
        rc = read_beside(dev, &beside);
        dev->freed = beside > dev->beside && plm_now(dev->clock) < until;
        if (rc == PLM_OK && dev->freed)
            dev->clock->sleep_ns(dev->clock->ctx, FREES_NAP_NS);
    }
    return rc;
}

// The memory of a process that ended is back after 70 ms (measured: H100). Readings that still move
// after this time are of one that runs.
#define AGREE_NS     INT64_C(500000000)
#define AGREE_NAP_NS INT64_C(2000000)

// Until two readings agree, but not for long.
static int read_settled(struct plm_backend_device *dev, struct plm_mem_info *ret)
{
    struct plm_mem_info last;
    const int64_t until = plm_now(dev->clock) + AGREE_NS;
    int rc = read_driver(dev, &last);
    for (;;) {
        if (rc == PLM_OK)
            rc = read_driver(dev, ret);
        if (rc != PLM_OK || ret->free_bytes == last.free_bytes || plm_now(dev->clock) >= until)
            return rc;
        last = *ret;
        dev->clock->sleep_ns(dev->clock->ctx, AGREE_NAP_NS);
    }
}

int plm_gpu_empty_cache(struct plm_backend_device *dev, uint64_t *ret_released,
                        struct plm_mem_info *ret_info)
{
    uint64_t before;
    int rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return rc;
    rc = plm_gpu_settle(dev);
    if (rc == PLM_OK) {
        *ret_released = plm_gpu_staging_trim(dev);
        plm_host_trim(dev->host);
        rc = await_frees(dev);
    }
    if (rc == PLM_OK)
        rc = read_settled(dev, ret_info);
    plm_gpu_leave(dev, before);
    return rc;
}
