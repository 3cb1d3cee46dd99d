// SPDX-License-Identifier: Apache-2.0
// Live slabs by address: taken within the limits, refused after the seal, freed once.
#include <string.h>

#include "core/device/impl.h"

// First size of the table of live slabs; it doubles from there.
#define FIRST_SLABS 32u

// Index of the first live slab that starts above addr.
static size_t slab_above(const struct plm_device *d, uint64_t addr)
{
    size_t lo = 0;
    size_t hi = d->n_slabs;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->slabs[mid].addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool plm_device_range_is_live(const struct plm_device *d, uint64_t addr, uint64_t bytes)
{
    size_t above = slab_above(d, addr);
    if (above == 0)
        return false;
    const struct plm_slab *slab = &d->slabs[above - 1];
    uint64_t offset = addr - slab->addr;
    return offset <= slab->bytes && bytes <= slab->bytes - offset;
}

// Makes room for one more entry before the backend is asked, so that recording cannot fail.
static int reserve_entry(struct plm_device *d)
{
    if (d->n_slabs < d->cap_slabs)
        return PLM_OK;
    size_t cap = d->cap_slabs > 0 ? d->cap_slabs * 2 : FIRST_SLABS;
    struct plm_slab *moved =
        plm_realloc(d->host, PLM_HOST_DEVICE, d->slabs, cap * sizeof(*d->slabs));
    if (moved == NULL)
        return PLM_ERR_NOMEM_HOST;
    d->slabs = moved;
    d->cap_slabs = cap;
    return PLM_OK;
}

static bool slab_is_sane(const struct plm_device *d, const struct plm_slab *slab, uint64_t bytes)
{
    return slab->addr != 0 && slab->addr % d->caps.align_bytes == 0 && slab->bytes == bytes &&
           slab->taken_bytes >= bytes && slab->taken_bytes % d->caps.granularity_bytes == 0 &&
           slab->addr <= UINT64_MAX - slab->taken_bytes;
}

static int take(struct plm_device *d, enum plm_slab_kind kind, uint64_t bytes, struct plm_slab *ret)
{
    if (bytes == 0 || kind == PLM_SLAB_IMPORTED)
        return PLM_ERR_INVALID;
    if (plm_device_is_lost(d))
        return PLM_ERR_LOST;
    if (bytes > d->caps.max_slab_bytes)
        return PLM_ERR_TOO_LARGE;
    if (d->n_slabs >= d->caps.max_slabs)
        return PLM_ERR_OUT_OF_DEVICE;
    int rc = reserve_entry(d);
    if (rc != PLM_OK)
        return rc;
    struct plm_slab slab = {0};
    rc = plm_device_result(d, d->backend->alloc(d->dev, kind, bytes, NULL, &slab));
    if (rc != PLM_OK)
        return rc;
    if (!slab_is_sane(d, &slab, bytes)) {
        d->backend->free(d->dev, &slab);
        return PLM_ERR_INTERNAL;
    }
    size_t at = slab_above(d, slab.addr);
    memmove(&d->slabs[at + 1], &d->slabs[at], (d->n_slabs - at) * sizeof(slab));
    d->slabs[at] = slab;
    d->n_slabs++;
    plm_device_count(&d->allocs);
    *ret = slab;
    return PLM_OK;
}

int plm_device_alloc(struct plm_device *d, enum plm_slab_kind kind, uint64_t bytes,
                     struct plm_slab *ret)
{
    if (atomic_load(&d->in_step))
        plm_device_count(&d->allocs_in_step);
    if (atomic_load(&d->sealed)) {
        plm_device_count(&d->allocs_refused);
        return PLM_ERR_SEALED;
    }
    return take(d, kind, bytes, ret);
}

int plm_device_alloc_resize(struct plm_device *d, uint64_t bytes, struct plm_slab *ret)
{
    if (atomic_load(&d->in_step)) {
        plm_device_count(&d->allocs_in_step);
        plm_device_count(&d->allocs_refused);
        return PLM_ERR_SEALED;
    }
    int rc = take(d, PLM_SLAB_ELASTIC, bytes, ret);
    if (rc == PLM_OK)
        plm_device_count(&d->resizes);
    return rc;
}

void plm_device_free(struct plm_device *d, struct plm_slab *slab)
{
    if (slab == NULL || slab->bytes == 0)
        return;
    size_t above = slab_above(d, slab->addr);
    // A slab that is not ours, or was freed before, must not reach the backend.
    if (above > 0 && d->slabs[above - 1].addr == slab->addr) {
        struct plm_slab own = d->slabs[above - 1];
        memmove(&d->slabs[above - 1], &d->slabs[above], (d->n_slabs - above) * sizeof(own));
        d->n_slabs--;
        if (own.kind == PLM_SLAB_ELASTIC && atomic_load(&d->sealed))
            plm_device_count(&d->resizes);
        d->backend->free(d->dev, &own);
        plm_device_count(&d->frees);
    }
    *slab = (struct plm_slab){0};
}
