// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "backends/gpudrv/impl.h"

// Device use moves in steps of this (measured: H100; on AMD's cards large requests do the same).
#define GRANULARITY (UINT64_C(2) << 20)
// cuMemAlloc and hipMalloc promise 256; slabs of whole steps begin at multiples of a step.
#define ALIGN 256u
// More than any plan cuts; drivers have no limit of their own.
#define MAX_SLABS 65536u

// ---- capabilities ----

static void fill_caps(struct plm_backend_device *dev)
{
    const struct plm_gpu_card *card = &dev->card;
    struct plm_caps *caps = &dev->caps;
    snprintf(caps->name, sizeof(caps->name), "%s", card->name);
    snprintf(caps->uuid, sizeof(caps->uuid), "%s", card->uuid);
    snprintf(caps->driver, sizeof(caps->driver), "%s", card->driver);
    snprintf(caps->isa, sizeof(caps->isa), "%s", card->arch);
    snprintf(caps->device_class, sizeof(caps->device_class), "%s", dev->driver->device_class);
    caps->commit = card->unified || card->spills ? PLM_COMMIT_SOFT : PLM_COMMIT_HARD;
    caps->unified = card->unified;
    caps->tunes = true;
    caps->graphs = dev->opts.graphs && card->graphs;
    caps->async = true;
    caps->granularity_bytes = card->unified ? PLM_HOSTMEM_STEP : GRANULARITY;
    caps->context_bytes = dev->driver->context_bytes;
    caps->unavailable_bytes = card->unified ? 0 : dev->driver->unavailable_bytes;
    caps->max_slab_bytes = card->total_bytes / caps->granularity_bytes * caps->granularity_bytes;
    caps->max_slabs = MAX_SLABS;
    caps->align_bytes = ALIGN;
    caps->prefers = plm_gpu_kernels_ops() & PLM_CUDA_PREFERS;
    caps->few_rows = PLM_CUDA_FEW_ROWS;
    caps->kv_types = PLM_KV_TYPES_ALL;
}

// ---- open and close ----

static int select_card(struct plm_backend_device *dev, struct plm_error *err)
{
    struct plm_gpu_card *cards;
    uint32_t n;
    int rc = plm_gpu_cards(dev->driver, dev->lib, dev->host, &cards, &n, err);
    if (rc != PLM_OK)
        return rc;
    rc = plm_gpu_select(dev->driver->name, &dev->opts, cards, n, &dev->ordinal, err);
    if (rc == PLM_OK)
        dev->card = cards[dev->ordinal];
    plm_free(dev->host, cards);
    if (rc == PLM_OK && dev->card.spills && !dev->opts.spill)
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "%s: the driver of %s may move memory to the host without an error (WSL, "
                        "some virtual cards), so that no plan holds; %s:%u,spill=on uses it all "
                        "the same",
                        dev->driver->name, dev->card.name, dev->driver->name, dev->ordinal);
    return rc;
}

// How mapped memory is cut may differ from how the rest is; then it is not used.
static bool can_map(struct plm_backend_device *dev)
{
    uint64_t step = 0;
    return dev->opts.elastic && dev->card.virtual_memory &&
           dev->driver->map_granularity(dev->lib, dev->ordinal, &step) == PLM_GPU_OK && step > 0 &&
           dev->caps.granularity_bytes % step == 0;
}

static int create_context(struct plm_backend_device *dev, struct plm_error *err)
{
    const plm_gpu_r r = dev->driver->context_create(dev->lib, dev->ordinal, &dev->context);
    if (r == PLM_GPU_OK)
        return PLM_OK;
    dev->context = NULL;
    return plm_fail(err, plm_gpu_status(dev, r), "%s: %s: no context: %s", dev->driver->name,
                    dev->card.name, dev->driver->last_error(dev->lib));
}

// What stands on the context: the stream, the timeline, rings, the list.
static int create_parts(struct plm_backend_device *dev, uint32_t max_dispatches,
                        struct plm_error *err)
{
    plm_gpu_r r = dev->driver->stream_create(dev->lib, &dev->stream);
    if (r == PLM_GPU_OK)
        r = dev->driver->event_create(dev->lib, &dev->settled);
    for (uint32_t i = 0; i < PLM_GPU_EVENTS && r == PLM_GPU_OK; i++)
        r = dev->driver->event_create(dev->lib, &dev->events[i]);
    if (r != PLM_GPU_OK)
        return plm_fail(err, plm_gpu_status(dev, r), "%s: %s: no stream and events: %s",
                        dev->driver->name, dev->card.name, dev->driver->last_error(dev->lib));
    int rc = plm_gpu_staging_create(dev, &dev->staging);
    if (rc != PLM_OK)
        return plm_fail(err, rc,
                        "%s: %s: no pinned memory for the rings that copies go through: %s",
                        dev->driver->name, dev->card.name, plm_strstatus(rc));
    rc = plm_gpu_modules_create(dev, &dev->modules);
    if (rc == PLM_OK)
        rc = plm_gpu_list_create(dev, max_dispatches, &dev->list);
    if (rc == PLM_OK)
        rc = plm_gpu_graphs_create(dev, &dev->graphs);
    return rc == PLM_OK ? rc
                        : plm_fail(err, rc, "%s: no host memory for lists of %u dispatches",
                                   dev->driver->name, max_dispatches);
}

static int open_context(struct plm_backend_device *dev, uint32_t max_dispatches,
                        struct plm_error *err)
{
    uint64_t before;
    int rc = create_context(dev, err);
    if (rc != PLM_OK)
        return rc;
    rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return plm_fail(err, rc, "%s: %s: the context cannot be used: %s", dev->driver->name,
                        dev->card.name, dev->driver->last_error(dev->lib));
    fill_caps(dev);
    dev->mapped = can_map(dev);
    dev->early = dev->opts.early && dev->card.programmatic;
    rc = create_parts(dev, max_dispatches, err);
    plm_gpu_leave(dev, before);
    return rc;
}

int plm_gpu_open(const struct plm_gpu_driver *driver, const struct plm_device_opts *opts,
                 struct plm_backend_device **ret, struct plm_error *err)
{
    struct plm_backend_device *dev = plm_calloc(opts->host, PLM_HOST_DEVICE, 1, sizeof(*dev));
    if (dev == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "%s: no host memory for the device", driver->name);
    dev->host = opts->host;
    dev->clock = opts->clock;
    dev->log = opts->log;
    dev->driver = driver;
    dev->machine.limit_bytes = opts->memory_limit_bytes;
    if (opts->backend_opts != NULL) {
        dev->opts = *(const struct plm_gpu_opts *)opts->backend_opts;
    } else {
        plm_gpu_opts_defaults(&dev->opts);
        dev->opts.which.index = opts->index;
    }
    int rc = driver->load(opts->host, &dev->lib, err);
    if (rc == PLM_OK)
        rc = select_card(dev, err);
    if (rc == PLM_OK)
        rc = open_context(dev, opts->max_dispatches, err);
    if (rc != PLM_OK) {
        plm_gpu_close(dev);
        return rc;
    }
    if (dev->card.shared_service)
        plm_logf(dev->log, PLM_LOG_WARN,
                 "%s: %s is shared by MPS: a fault of another process loses the device here, too",
                 driver->name, dev->card.name);
    *ret = dev;
    return PLM_OK;
}

// Of a lost device, too: what its driver does not take back then goes with the context.
static void destroy_parts(struct plm_backend_device *dev)
{
    const struct plm_gpu_driver *driver = dev->driver;
    plm_gpu_graphs_destroy(dev, dev->graphs);
    plm_gpu_list_destroy(dev, dev->list);
    plm_gpu_modules_destroy(dev, dev->modules);
    plm_gpu_staging_destroy(dev, dev->staging);
    for (uint32_t i = 0; i < PLM_GPU_EVENTS; i++) {
        if (dev->events[i] != NULL)
            driver->event_destroy(dev->lib, dev->events[i]);
    }
    if (dev->settled != NULL)
        driver->event_destroy(dev->lib, dev->settled);
    if (dev->stream != NULL)
        driver->stream_destroy(dev->lib, dev->stream);
}

void plm_gpu_close(struct plm_backend_device *dev)
{
    if (dev == NULL)
        return;
    if (dev->context != NULL) {
        uint64_t before;
        bool entered = dev->driver->enter(dev->lib, dev->context, &before) == PLM_GPU_OK;
        // What hangs would be waited for in vain.
        if (entered && dev->settled != NULL && !atomic_load(&dev->lost))
            plm_gpu_settle(dev);
        destroy_parts(dev);
        if (entered)
            plm_gpu_leave(dev, before);
        dev->driver->context_destroy(dev->lib, dev->context, atomic_load(&dev->lost));
    }
    plm_gpu_unmap_left(dev);
    plm_free(dev->host, dev->slabs.at);
    dev->driver->unload(dev->host, dev->lib);
    plm_free(dev->host, dev);
}
