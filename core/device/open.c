// SPDX-License-Identifier: Apache-2.0
// The life of an opened device, and what it is asked at any time.
#include <inttypes.h>
#include <string.h>

#include "core/device/impl.h"

// Capacity of the list where the caller names none: about 14 dispatches for each of 64 layers fit
// four times over.
#define DEFAULT_DISPATCHES 4096u
// Dispatches that a list may have at all; keeps the list's memory below 2 GiB.
#define MAX_DISPATCHES (1u << 23)

static bool caps_are_sane(const struct plm_caps *caps)
{
    return caps->granularity_bytes > 0 && caps->align_bytes > 0 &&
           (caps->align_bytes & (caps->align_bytes - 1)) == 0 && caps->max_slabs > 0 &&
           caps->max_slab_bytes > 0;
}

// Without its backend's device yet.
static struct plm_device *device_alloc(const struct plm_backend *backend,
                                       const struct plm_device_opts *opts)
{
    struct plm_device *d = plm_calloc(opts->host, PLM_HOST_DEVICE, 1, sizeof(*d));
    if (d == NULL)
        return NULL;
    if (pthread_rwlock_init(&d->dev_lock, NULL) != 0) {
        plm_free(opts->host, d);
        return NULL;
    }
    d->backend = backend;
    d->opts = *opts;
    if (d->opts.max_dispatches == 0)
        d->opts.max_dispatches = DEFAULT_DISPATCHES;
    if (d->opts.clock == NULL)
        d->opts.clock = plm_clock_system();
    d->host = opts->host;
    d->max_dispatches = d->opts.max_dispatches;
    return d;
}

int plm_device_open_backend(const struct plm_backend *backend, const struct plm_device_opts *opts,
                            struct plm_device **ret, struct plm_error *err)
{
    if (backend == NULL || opts == NULL || opts->host == NULL || ret == NULL)
        return plm_fail(err, PLM_ERR_INVALID, "opening a device needs a backend and a host");
    if (opts->max_dispatches > MAX_DISPATCHES)
        return plm_fail(err, PLM_ERR_INVALID, "a list of %" PRIu32 " dispatches; the most is %u",
                        opts->max_dispatches, MAX_DISPATCHES);
    struct plm_device *d = device_alloc(backend, opts);
    if (d == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a device");
    int rc = backend->open(&d->opts, &d->dev, err);
    if (rc != PLM_OK) {
        d->dev = NULL;
        plm_device_close(d);
        return rc;
    }
    d->caps = *backend->caps(d->dev);
    if (!caps_are_sane(&d->caps)) {
        plm_device_close(d);
        return plm_fail(err, PLM_ERR_INTERNAL, "backend '%s' reports impossible capabilities",
                        backend->name);
    }
    *ret = d;
    return PLM_OK;
}

// Other threads see the new device, or that there is none.
static void set_dev(struct plm_device *d, struct plm_backend_device *dev)
{
    pthread_rwlock_wrlock(&d->dev_lock);
    d->dev = dev;
    atomic_store(&d->lost, dev == NULL);
    pthread_rwlock_unlock(&d->dev_lock);
}

void plm_device_lose(struct plm_device *d)
{
    atomic_store(&d->lost, true);
}

void plm_device_set_patience(struct plm_device *d, int64_t ns)
{
    d->patience_ns = ns;
}

// What plans and layouts were made from must be as it was.
static bool caps_are_same(const struct plm_caps *a, const struct plm_caps *b)
{
    return strcmp(a->uuid, b->uuid) == 0 && strcmp(a->driver, b->driver) == 0 &&
           strcmp(a->isa, b->isa) == 0 && strcmp(a->device_class, b->device_class) == 0 &&
           a->granularity_bytes == b->granularity_bytes && a->align_bytes == b->align_bytes &&
           a->max_slab_bytes == b->max_slab_bytes && a->max_slabs == b->max_slabs &&
           a->prefers == b->prefers && a->few_rows == b->few_rows && a->kv_types == b->kv_types;
}

int plm_device_reopen(struct plm_device *d, struct plm_error *err)
{
    struct plm_backend_device *old = d->dev, *dev;
    if (d->n_slabs > 0)
        return plm_fail(err, PLM_ERR_INVALID, "%zu slabs of the device were not freed", d->n_slabs);
    set_dev(d, NULL);
    d->backend->close(old);
    d->open_dispatches = 0;
    d->last_value = 0;
    atomic_store(&d->in_step, false);
    atomic_store(&d->sealed, false);
    int rc = d->backend->open(&d->opts, &dev, err);
    if (rc != PLM_OK)
        return rc;
    if (!caps_are_same(&d->caps, d->backend->caps(dev))) {
        d->backend->close(dev);
        return plm_fail(err, PLM_ERR_LOST, "another device answers in the place of %s",
                        d->caps.name);
    }
    set_dev(d, dev);
    return PLM_OK;
}

size_t plm_device_close(struct plm_device *d)
{
    if (d == NULL)
        return 0;
    size_t left = d->n_slabs;
    // Freed all the same: the caller's defect must not become a leak of device memory.
    while (d->n_slabs > 0)
        d->backend->free(d->dev, &d->slabs[--d->n_slabs]);
    d->backend->close(d->dev);
    pthread_rwlock_destroy(&d->dev_lock);
    if (d->configured != NULL)
        d->backend->release(d->host, d->configured);
    plm_free(d->host, d->slabs);
    plm_free(d->host, d);
    return left;
}

// ---- what it is asked ----

const struct plm_caps *plm_device_caps(const struct plm_device *d)
{
    return &d->caps;
}

void plm_device_counters(const struct plm_device *d, struct plm_device_counters *ret)
{
    ret->allocs = atomic_load_explicit(&d->allocs, memory_order_relaxed);
    ret->frees = atomic_load_explicit(&d->frees, memory_order_relaxed);
    ret->allocs_refused = atomic_load_explicit(&d->allocs_refused, memory_order_relaxed);
    ret->allocs_in_step = atomic_load_explicit(&d->allocs_in_step, memory_order_relaxed);
    ret->dispatches = atomic_load_explicit(&d->dispatches, memory_order_relaxed);
    ret->submits = atomic_load_explicit(&d->submits, memory_order_relaxed);
    ret->resizes = atomic_load_explicit(&d->resizes, memory_order_relaxed);
}

void plm_device_seal(struct plm_device *d, bool sealed)
{
    atomic_store(&d->sealed, sealed);
}

bool plm_device_sealed(const struct plm_device *d)
{
    return atomic_load(&d->sealed);
}

void plm_device_step_begin(struct plm_device *d)
{
    atomic_store(&d->in_step, true);
}

void plm_device_step_end(struct plm_device *d)
{
    atomic_store(&d->in_step, false);
}

int plm_device_status(const struct plm_device *d)
{
    pthread_rwlock_t *lock = (pthread_rwlock_t *)(uintptr_t)&d->dev_lock; // not what is observed
    pthread_rwlock_rdlock(lock);
    int rc = plm_device_is_lost(d) ? PLM_ERR_LOST : d->backend->status(d->dev);
    pthread_rwlock_unlock(lock);
    return rc;
}

void plm_device_mark(struct plm_device *device, enum plm_phase phase, uint64_t step)
{
    if (device->dev != NULL && device->backend->mark != NULL)
        device->backend->mark(device->dev, phase, step);
}
