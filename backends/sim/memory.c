// SPDX-License-Identifier: Apache-2.0
// Slabs in heaps that neighbours and the driver eat from, and the ways back of what is freed.
#include <stdint.h>
#include <sys/mman.h>

#include "backends/sim/sim_internal.h"
#include "core/base/checked.h"

#define SPILLED PLM_SIM_HEAPS_MAX // "heap" of slow memory beyond the capacity

// The backend's own of a slab.
struct sim_slab {
    uint32_t heap;
    struct plm_slab inner;    // with an inner backend
    uint64_t addr, bytes;     // where it is spilled, as is what follows
    struct sim_slab *spilled; // the next one
};

// ---- alloc ----

static bool can_ever_fit(const struct plm_backend_device *dev, uint64_t taken)
{
    uint64_t gone = plm_sim_add(dev->driver_bytes, dev->script.unavailable_bytes);
    for (uint32_t i = 0; i < dev->n_heaps; i++) {
        if (taken <= plm_sim_sub(dev->heap_bytes[i], gone))
            return true;
        gone = plm_sim_sub(gone, dev->heap_bytes[i]);
    }
    return dev->script.spills || dev->script.overcommits;
}

// As an allocator that reads every level before it takes more.
static bool within_cgroups(const struct plm_backend_device *dev, uint64_t taken)
{
    const uint64_t own = plm_sim_add(plm_sim_own_bytes(dev), taken);
    for (uint32_t i = 0; dev->script.unified && i < dev->script.n_cgroups; i++) {
        const struct plm_cgroup *level = &dev->script.cgroups[i];
        if (plm_sim_add(plm_sim_sub(level->current_bytes, level->reclaimable_bytes), own) >
            level->limit_bytes)
            return false;
    }
    return true;
}

// The heap that takes so many bytes now.
static int place(const struct plm_backend_device *dev, uint64_t taken, uint32_t *ret_heap)
{
    uint64_t rooms[PLM_SIM_HEAPS_MAX];
    plm_sim_heap_rooms(dev, plm_sim_add(plm_sim_outside(dev), dev->script.unavailable_bytes),
                       rooms);
    if (within_cgroups(dev, taken) && taken <= plm_sim_host_room(dev)) {
        for (uint32_t i = 0; i < dev->n_heaps; i++) {
            if (taken <= rooms[i]) {
                *ret_heap = i;
                return PLM_OK;
            }
        }
    }
    *ret_heap = dev->script.overcommits ? 0 : SPILLED;
    return dev->script.overcommits || dev->script.spills ? PLM_OK : PLM_ERR_OUT_OF_DEVICE;
}

// Judges one allocation and takes its bytes.
static int take(struct plm_backend_device *dev, uint64_t taken, uint32_t *ret_heap)
{
    const struct plm_sim_opts *script = &dev->script;
    struct plm_sim_world *world = dev->world;
    if (taken > dev->caps.max_slab_bytes || !can_ever_fit(dev, taken))
        return PLM_ERR_TOO_LARGE;
    if (world->state.fail_allocs > 0) {
        world->state.fail_allocs--;
        return PLM_ERR_OUT_OF_DEVICE;
    }
    if (script->fail_alloc_above_bytes > 0 && taken > script->fail_alloc_above_bytes)
        return PLM_ERR_OUT_OF_DEVICE;
    int r = place(dev, taken, ret_heap);
    if (r != PLM_OK)
        return r;
    if (*ret_heap == SPILLED)
        atomic_fetch_add(&world->spilled_bytes, taken);
    else
        dev->heap_used[*ret_heap] = plm_sim_add(dev->heap_used[*ret_heap], taken);
    const uint64_t now = atomic_fetch_add(&world->taken_bytes, taken) + taken;
    if (now > atomic_load(&world->peak_taken_bytes))
        atomic_store(&world->peak_taken_bytes, now);
    plm_sim_remember(dev, plm_sim_now(dev));
    return PLM_OK;
}

// Address space without pages, given to the inner backend as the caller's memory.
static int back_slab(struct plm_backend_device *dev, struct plm_slab *slab)
{
    struct sim_slab *own = slab->impl;
    void *base = mmap(NULL, slab->taken_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return PLM_ERR_NOMEM_HOST;
    int r = dev->script.inner->alloc(dev->inner, PLM_SLAB_IMPORTED, slab->bytes, base, &own->inner);
    if (r != PLM_OK) {
        munmap(base, slab->taken_bytes);
        return r;
    }
    slab->addr = own->inner.addr;
    slab->host = dev->script.hides_slabs && slab->kind != PLM_SLAB_PINNED ? NULL : base;
    return PLM_OK;
}

// Bytes that no heap waits for any longer.
static void untake(struct plm_backend_device *dev, uint32_t heap, uint64_t taken)
{
    atomic_fetch_sub(&dev->world->taken_bytes, taken);
    if (heap == SPILLED)
        atomic_fetch_sub(&dev->world->spilled_bytes, taken);
    else
        dev->heap_used[heap] -= taken;
}

bool plm_sim_is_spilled(const struct plm_backend_device *dev, uint64_t addr)
{
    for (const struct sim_slab *slab = dev->spilled; slab != NULL; slab = slab->spilled) {
        if (addr >= slab->addr && addr - slab->addr < slab->bytes)
            return true;
    }
    return false;
}

static void list_spilled(struct plm_backend_device *dev, const struct plm_slab *slab)
{
    struct sim_slab *own = slab->impl;
    own->addr = slab->addr;
    own->bytes = slab->bytes;
    own->spilled = dev->spilled;
    dev->spilled = own;
}

static void unlist_spilled(struct plm_backend_device *dev, const struct sim_slab *own)
{
    struct sim_slab **at = &dev->spilled;
    while (*at != own)
        at = &(*at)->spilled;
    *at = own->spilled;
}

int plm_sim_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                  void *import_ptr, struct plm_slab *ret)
{
    (void)import_ptr;
    const bool pinned = kind == PLM_SLAB_PINNED; // the host's: not taken from the device
    int r = PLM_OK;
    plm_sim_lock(dev);
    plm_sim_happen(dev, PLM_SIM_AT_ALLOC, atomic_fetch_add(&dev->world->allocs, 1) + 1);
    plm_sim_unlock(dev);
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    if (kind == PLM_SLAB_IMPORTED)
        return PLM_ERR_UNSUPPORTED;
    if (bytes > UINT64_MAX - dev->caps.granularity_bytes)
        return PLM_ERR_TOO_LARGE;
    struct plm_slab slab = {.bytes = bytes,
                            .taken_bytes = plm_round_up(bytes, dev->caps.granularity_bytes),
                            .kind = kind};
    struct sim_slab *own = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*own));
    if (own == NULL)
        return PLM_ERR_NOMEM_HOST;
    slab.impl = own;
    plm_sim_lock(dev);
    if (!pinned)
        r = take(dev, slab.taken_bytes, &own->heap);
    plm_sim_unlock(dev);
    if (r == PLM_OK && dev->inner != NULL && (r = back_slab(dev, &slab)) != PLM_OK && !pinned) {
        plm_sim_lock(dev);
        untake(dev, own->heap, slab.taken_bytes);
        plm_sim_unlock(dev);
    }
    if (r != PLM_OK) {
        plm_free(dev->host, own);
        return r;
    }
    if (dev->inner == NULL) {
        // Never used twice, so that a stale address is found out.
        slab.addr = dev->next_addr;
        dev->next_addr += plm_round_up(slab.taken_bytes, dev->caps.align_bytes);
    }
    if (own->heap == SPILLED)
        list_spilled(dev, &slab);
    *ret = slab;
    return PLM_OK;
}

// ---- the ways back ----

// Puts freed bytes on their way: some are kept, the others are back after the lag.
static void hold_back(struct plm_backend_device *dev, uint32_t heap, uint64_t bytes)
{
    const struct plm_sim_opts *script = &dev->script;
    uint64_t kept = 0;
    for (uint32_t i = 0; i < dev->n_heaps; i++)
        kept += dev->kept[i];
    const uint64_t room = plm_sim_sub(script->keeps_bytes, kept);
    const uint64_t keep = bytes < room ? bytes : room, rest = bytes - keep;
    atomic_fetch_add(&dev->world->held_back, bytes);
    dev->kept[heap] += keep;
    if (rest == 0)
        return;
    if (script->free_lag_ns <= 0 || dev->clock == NULL) {
        plm_sim_give_back(dev, heap, rest);
        return;
    }
    const int64_t due = plm_sim_now(dev) + script->free_lag_ns;
    struct plm_sim_pending *last = &dev->pending[dev->n_pending > 0 ? dev->n_pending - 1 : 0];
    if (dev->n_pending > 0 && last->heap == heap && last->due_ns == due) {
        last->bytes += rest;
    } else if (dev->n_pending < PLM_SIM_PENDING) {
        dev->pending[dev->n_pending++] = (struct plm_sim_pending){due, rest, heap};
    } else {
        // The table is full: the oldest is early.
        plm_sim_settle(dev, dev->pending[0].due_ns);
        dev->pending[dev->n_pending++] = (struct plm_sim_pending){due, rest, heap};
    }
}

void plm_sim_free(struct plm_backend_device *dev, struct plm_slab *slab)
{
    struct sim_slab *own = slab->impl;
    if (own->heap == SPILLED)
        unlist_spilled(dev, own);
    if (dev->inner != NULL) {
        void *base = own->inner.host;
        dev->script.inner->free(dev->inner, &own->inner);
        munmap(base, slab->taken_bytes);
    }
    if (slab->kind != PLM_SLAB_PINNED) {
        plm_sim_lock(dev);
        atomic_fetch_sub(&dev->world->taken_bytes, slab->taken_bytes);
        if (own->heap == SPILLED)
            atomic_fetch_sub(&dev->world->spilled_bytes, slab->taken_bytes);
        else
            hold_back(dev, own->heap, slab->taken_bytes);
        dev->freed_bytes = plm_sim_add(dev->freed_bytes, slab->taken_bytes);
        plm_sim_remember(dev, plm_sim_now(dev));
        plm_sim_unlock(dev);
    }
    plm_free(dev->host, own);
}

int plm_sim_empty_cache(struct plm_backend_device *dev, uint64_t *ret_released,
                        struct plm_mem_info *ret_info)
{
    uint64_t released = 0;
    plm_sim_lock(dev);
    const int64_t due = dev->n_pending > 0 ? dev->pending[dev->n_pending - 1].due_ns : 0;
    const uint32_t n_pending = dev->n_pending;
    plm_sim_unlock(dev);
    for (int64_t now = plm_sim_now(dev); n_pending > 0 && now < due; now = plm_sim_now(dev))
        dev->clock->sleep_ns(dev->clock->ctx, due - now);
    plm_sim_lock(dev);
    released = atomic_load(&dev->world->held_back);
    plm_sim_settle(dev, INT64_MAX);
    for (uint32_t i = 0; i < dev->n_heaps; i++) {
        plm_sim_give_back(dev, i, dev->kept[i]);
        dev->kept[i] = 0;
    }
    // What leaks is the driver's from now on.
    const uint64_t leaks = dev->script.leaks_bytes;
    plm_sim_driver_take(dev, leaks < dev->freed_bytes ? leaks : dev->freed_bytes);
    dev->freed_bytes = 0;
    plm_sim_remember(dev, plm_sim_now(dev));
    plm_sim_unlock(dev);
    const int r = plm_sim_query_free(dev, ret_info);
    if (r == PLM_OK)
        *ret_released = released;
    return r;
}
