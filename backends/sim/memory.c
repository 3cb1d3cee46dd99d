// SPDX-License-Identifier: Apache-2.0
// Slabs in heaps that neighbours and the driver eat from, and the ways back of what is freed.
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "backends/sim/sim_internal.h"
#include "core/base/checked.h"

#define SPILLED PLM_SIM_HEAPS_MAX // "heap" of slow memory beyond the capacity

// The backend's own of a slab.
struct sim_slab {
    uint32_t heap;
    struct plm_slab inner; // with an inner backend
};

uint64_t plm_sim_own_bytes(const struct plm_backend_device *dev)
{
    const struct plm_sim_world *w = dev->world;
    const uint64_t slabs = plm_sim_add(atomic_load(&w->taken_bytes), atomic_load(&w->held_back));
    // A driver counts what lies on the device.
    return plm_sim_add(plm_sim_sub(slabs, atomic_load(&w->spilled_bytes)),
                       atomic_load(&w->driver_bytes));
}

uint64_t plm_sim_foreign_bytes(const struct plm_backend_device *dev)
{
    return plm_sim_add(dev->world->state.foreign, atomic_load(&dev->world->foreign_bytes));
}

// What each heap has left when `eaten` more bytes lie in the first ones that have room. Returns
// what found none.
static uint64_t heap_rooms(const struct plm_backend_device *dev, uint64_t eaten,
                           uint64_t rooms[PLM_SIM_HEAPS_MAX])
{
    uint64_t beyond = 0;
    for (uint32_t i = 0; i < dev->n_heaps; i++) {
        const uint64_t room = plm_sim_sub(dev->heap_bytes[i], dev->heap_used[i]);
        beyond = plm_sim_add(beyond, plm_sim_sub(dev->heap_used[i], dev->heap_bytes[i]));
        rooms[i] = plm_sim_sub(room, eaten);
        eaten = plm_sim_sub(eaten, room);
    }
    return plm_sim_add(beyond, eaten);
}

static uint64_t outside(const struct plm_backend_device *dev)
{
    return plm_sim_add(atomic_load(&dev->world->driver_bytes), plm_sim_foreign_bytes(dev));
}

// What the host's view leaves, on unified memory.
static uint64_t host_room(const struct plm_backend_device *dev)
{
    return dev->script.host_bytes > 0 ? plm_sim_sub(dev->world->state.host, plm_sim_own_bytes(dev))
                                      : UINT64_MAX;
}

uint64_t plm_sim_free_bytes(const struct plm_backend_device *dev, uint64_t *ret_missing)
{
    uint64_t rooms[PLM_SIM_HEAPS_MAX], sum = 0;
    const uint64_t missing = heap_rooms(dev, outside(dev), rooms);
    for (uint32_t i = 0; i < dev->n_heaps; i++)
        sum = plm_sim_add(sum, rooms[i]);
    if (ret_missing != NULL)
        *ret_missing = missing;
    const uint64_t host = host_room(dev);
    return sum < host ? sum : host;
}

int plm_sim_driver_take(struct plm_backend_device *dev, uint64_t bytes)
{
    if (bytes > plm_sim_free_bytes(dev, NULL) && !dev->script.overcommits)
        return PLM_ERR_OUT_OF_DEVICE;
    dev->driver_bytes = plm_sim_add(dev->driver_bytes, bytes);
    atomic_fetch_add(&dev->world->driver_bytes, bytes);
    plm_sim_remember(dev, plm_sim_now(dev));
    return PLM_OK;
}

void plm_sim_driver_return(struct plm_backend_device *dev, uint64_t bytes)
{
    dev->driver_bytes -= bytes;
    atomic_fetch_sub(&dev->world->driver_bytes, bytes);
    plm_sim_remember(dev, plm_sim_now(dev));
}

// ---- alloc ----

static bool can_ever_fit(const struct plm_backend_device *dev, uint64_t taken)
{
    uint64_t gone = plm_sim_add(dev->driver_bytes, dev->script.withheld_bytes);
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
    heap_rooms(dev, plm_sim_add(outside(dev), dev->script.withheld_bytes), rooms);
    if (within_cgroups(dev, taken) && taken <= host_room(dev)) {
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
    slab->host = base;
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
    *ret = slab;
    return PLM_OK;
}

// ---- the ways back ----

static void give_back(struct plm_backend_device *dev, uint32_t heap, uint64_t bytes)
{
    dev->heap_used[heap] -= bytes;
    atomic_fetch_sub(&dev->world->held_back, bytes);
}

void plm_sim_settle(struct plm_backend_device *dev, int64_t now_ns)
{
    uint32_t n = 0;
    while (n < dev->n_pending && dev->pending[n].due_ns <= now_ns) {
        give_back(dev, dev->pending[n].heap, dev->pending[n].bytes);
        plm_sim_remember(dev, dev->pending[n].due_ns);
        n++;
    }
    dev->n_pending -= n;
    memmove(dev->pending, dev->pending + n, dev->n_pending * sizeof(dev->pending[0]));
}

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
        give_back(dev, heap, rest);
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
    if (dev->inner != NULL) {
        dev->script.inner->free(dev->inner, &own->inner);
        munmap(slab->host, slab->taken_bytes);
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
        give_back(dev, i, dev->kept[i]);
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
