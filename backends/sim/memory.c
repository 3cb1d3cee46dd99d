// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "backends/sim/sim_internal.h"
#include "core/base/checked.h"

// The n-th call and the times - 1 after it. nth 0: never.
static bool scripted(uint64_t call, uint64_t nth, uint64_t times)
{
    return nth > 0 && call >= nth && call - nth < (times > 0 ? times : 1);
}

static uint64_t sat_sub(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t sat_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// What other processes hold after so many queries.
static uint64_t foreign_at(const struct plm_backend_device *dev, uint64_t queries)
{
    uint64_t scripted_bytes = 0;
    for (size_t i = 0; i < dev->script.n_events; i++) {
        if (dev->script.events[i].at_query <= queries)
            scripted_bytes = dev->script.events[i].foreign_bytes;
    }
    return sat_add(scripted_bytes, atomic_load(&dev->world->foreign_bytes));
}

static uint64_t own_bytes(const struct plm_backend_device *dev)
{
    return sat_add(atomic_load(&dev->world->taken_bytes), atomic_load(&dev->world->driver_bytes));
}

static uint64_t free_bytes(const struct plm_backend_device *dev, uint64_t queries)
{
    return sat_sub(dev->script.capacity_bytes, sat_add(own_bytes(dev), foreign_at(dev, queries)));
}

int plm_sim_driver_take(struct plm_backend_device *dev, uint64_t bytes)
{
    if (bytes > free_bytes(dev, atomic_load(&dev->world->queries)))
        return PLM_ERR_OUT_OF_DEVICE;
    dev->driver_bytes += bytes;
    atomic_fetch_add(&dev->world->driver_bytes, bytes);
    return PLM_OK;
}

// ---- slabs ----

static int may_alloc(struct plm_backend_device *dev, uint64_t call, uint64_t taken)
{
    const struct plm_sim_opts *script = &dev->script;
    if (taken > dev->caps.max_slab_bytes ||
        taken > sat_sub(script->capacity_bytes, sat_add(dev->driver_bytes, script->withheld_bytes)))
        return PLM_ERR_TOO_LARGE;
    if (scripted(call, script->fail_alloc_nth, script->fail_alloc_times))
        return PLM_ERR_OUT_OF_DEVICE;
    if (script->fail_alloc_above_bytes > 0 && taken > script->fail_alloc_above_bytes)
        return PLM_ERR_OUT_OF_DEVICE;
    uint64_t room = free_bytes(dev, atomic_load(&dev->world->queries));
    return taken > sat_sub(room, script->withheld_bytes) ? PLM_ERR_OUT_OF_DEVICE : PLM_OK;
}

// Address space without pages, given to the inner backend as the caller's memory.
static int back_slab(struct plm_backend_device *dev, struct plm_slab *slab)
{
    void *base = mmap(NULL, slab->taken_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return PLM_ERR_NOMEM_HOST;
    struct plm_slab *inner = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*inner));
    int rc = inner == NULL ? PLM_ERR_NOMEM_HOST
                           : dev->script.inner->alloc(dev->inner, PLM_SLAB_IMPORTED, slab->bytes,
                                                      base, inner);
    if (rc != PLM_OK) {
        plm_free(dev->host, inner);
        munmap(base, slab->taken_bytes);
        return rc;
    }
    slab->addr = inner->addr;
    slab->host = base;
    slab->impl = inner;
    return PLM_OK;
}

int plm_sim_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                  void *import_ptr, struct plm_slab *ret)
{
    (void)import_ptr;
    uint64_t call = atomic_fetch_add(&dev->world->allocs, 1) + 1;
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    if (kind == PLM_SLAB_IMPORTED)
        return PLM_ERR_UNSUPPORTED;
    uint64_t granularity = dev->caps.granularity_bytes;
    if (bytes > UINT64_MAX - granularity)
        return PLM_ERR_TOO_LARGE;
    struct plm_slab slab = {
        .bytes = bytes, .taken_bytes = plm_round_up(bytes, granularity), .kind = kind};
    // Pinned memory is the host's: it is not taken from the device.
    if (kind != PLM_SLAB_PINNED) {
        int rc = may_alloc(dev, call, slab.taken_bytes);
        if (rc != PLM_OK)
            return rc;
    }
    if (dev->inner != NULL) {
        int rc = back_slab(dev, &slab);
        if (rc != PLM_OK)
            return rc;
    } else {
        // Never used twice, so that a stale address is found out.
        slab.addr = dev->next_addr;
        dev->next_addr += plm_round_up(slab.taken_bytes, dev->caps.align_bytes);
    }
    if (kind != PLM_SLAB_PINNED) {
        uint64_t now =
            atomic_fetch_add(&dev->world->taken_bytes, slab.taken_bytes) + slab.taken_bytes;
        if (now > atomic_load(&dev->world->peak_taken_bytes))
            atomic_store(&dev->world->peak_taken_bytes, now);
    }
    *ret = slab;
    return PLM_OK;
}

void plm_sim_free(struct plm_backend_device *dev, struct plm_slab *slab)
{
    if (dev->inner != NULL) {
        dev->script.inner->free(dev->inner, slab->impl);
        plm_free(dev->host, slab->impl);
        munmap(slab->host, slab->taken_bytes);
    }
    if (slab->kind != PLM_SLAB_PINNED)
        atomic_fetch_sub(&dev->world->taken_bytes, slab->taken_bytes);
}

// ---- readings ----

static void honest(struct plm_backend_device *dev, uint64_t query, struct plm_mem_info *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->total_bytes = dev->script.capacity_bytes;
    ret->free_bytes = free_bytes(dev, query);
    if (!dev->script.hides_process_use)
        ret->process_use_bytes = own_bytes(dev);
    ret->source = "script";
    ret->confidence = PLM_CONFIDENCE_HIGH;
    ret->n_cgroups = dev->script.n_cgroups;
    for (uint32_t i = 0; i < ret->n_cgroups; i++) {
        ret->cgroups[i] = dev->script.cgroups[i];
        ret->cgroups[i].current_bytes = sat_add(ret->cgroups[i].current_bytes, own_bytes(dev));
    }
}

static bool lies_at(const struct plm_sim_opts *script, uint64_t query)
{
    return script->lie != PLM_SIM_HONEST && query >= script->lie_from_query &&
           (script->lie_to_query == 0 || query <= script->lie_to_query);
}

// Keeps an honest reading or, at a stale one, gives the kept one back.
static void stale(struct plm_backend_device *dev, bool lies, struct plm_mem_info *info)
{
    while (atomic_flag_test_and_set(&dev->stale_lock))
        ;
    if (lies && dev->stale.total_bytes > 0)
        *info = dev->stale;
    else
        dev->stale = *info;
    atomic_flag_clear(&dev->stale_lock);
}

int plm_sim_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret)
{
    uint64_t query = atomic_fetch_add(&dev->world->queries, 1) + 1;
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    struct plm_mem_info info;
    honest(dev, query, &info);
    bool lies = lies_at(&dev->script, query);
    if (dev->script.lie == PLM_SIM_STALE)
        stale(dev, lies, &info);
    if (lies) {
        switch (dev->script.lie) {
        case PLM_SIM_FREE_ABOVE_TOTAL:
            info.free_bytes = info.total_bytes + dev->caps.granularity_bytes;
            break;
        case PLM_SIM_ALL_ZERO:
            info.total_bytes = 0;
            info.free_bytes = 0;
            break;
        case PLM_SIM_USE_ABOVE_TOTAL: info.process_use_bytes = UINT64_MAX - 4096; break;
        case PLM_SIM_QUERY_FAILS: return PLM_ERR_IO;
        case PLM_SIM_HONEST:
        case PLM_SIM_STALE: break;
        }
    }
    *ret = info;
    return PLM_OK;
}

int plm_sim_empty_cache(struct plm_backend_device *dev, uint64_t *ret_released,
                        struct plm_mem_info *ret_info)
{
    int rc = plm_sim_query_free(dev, ret_info);
    if (rc == PLM_OK)
        *ret_released = 0; // this driver keeps nothing back
    return rc;
}
