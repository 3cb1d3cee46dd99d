// SPDX-License-Identifier: Apache-2.0
// The device's numbers: who holds how much of its heaps, now and a while ago. The ground floor:
// what happens (events.c), slabs (memory.c) and readings (readings.c) stand on it.
#include <string.h>

#include "backends/sim/sim_internal.h"

void plm_sim_lock(struct plm_backend_device *dev)
{
    while (atomic_flag_test_and_set_explicit(&dev->lock, memory_order_acquire))
        ;
}

void plm_sim_unlock(struct plm_backend_device *dev)
{
    atomic_flag_clear_explicit(&dev->lock, memory_order_release);
}

int64_t plm_sim_now(const struct plm_backend_device *dev)
{
    return dev->clock != NULL ? plm_now(dev->clock) : 0;
}

bool plm_sim_is_lost(struct plm_backend_device *dev)
{
    if (atomic_load(&dev->world->lose) != 0 && atomic_exchange(&dev->world->lose, 0) != 0)
        atomic_store(&dev->lost, true);
    return atomic_load(&dev->lost);
}

// ---- what there is ----

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

uint64_t plm_sim_heap_rooms(const struct plm_backend_device *dev, uint64_t eaten,
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

uint64_t plm_sim_outside(const struct plm_backend_device *dev)
{
    return plm_sim_add(atomic_load(&dev->world->driver_bytes), plm_sim_foreign_bytes(dev));
}

uint64_t plm_sim_host_room(const struct plm_backend_device *dev)
{
    return dev->script.host_bytes > 0 ? plm_sim_sub(dev->world->state.host, plm_sim_own_bytes(dev))
                                      : UINT64_MAX;
}

uint64_t plm_sim_free_bytes(const struct plm_backend_device *dev, uint64_t *ret_missing)
{
    uint64_t rooms[PLM_SIM_HEAPS_MAX], sum = 0;
    const uint64_t missing = plm_sim_heap_rooms(dev, plm_sim_outside(dev), rooms);
    for (uint32_t i = 0; i < dev->n_heaps; i++)
        sum = plm_sim_add(sum, rooms[i]);
    if (ret_missing != NULL)
        *ret_missing = missing;
    const uint64_t host = plm_sim_host_room(dev);
    return sum < host ? sum : host;
}

void plm_sim_remember(struct plm_backend_device *dev, int64_t at_ns)
{
    if (dev->script.query_lag_ns <= 0 || dev->clock == NULL)
        return;
    struct plm_sim_sample *last =
        &dev->history[(dev->n_history + PLM_SIM_HISTORY - 1) % PLM_SIM_HISTORY];
    if (dev->n_history == 0 || last->at_ns < at_ns)
        last = &dev->history[dev->n_history++ % PLM_SIM_HISTORY];
    *last = (struct plm_sim_sample){.at_ns = at_ns,
                                    .free_bytes = plm_sim_free_bytes(dev, NULL),
                                    .use_bytes = plm_sim_own_bytes(dev),
                                    .foreign_bytes = plm_sim_foreign_bytes(dev)};
}

// ---- what changes ----

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

void plm_sim_give_back(struct plm_backend_device *dev, uint32_t heap, uint64_t bytes)
{
    dev->heap_used[heap] -= bytes;
    atomic_fetch_sub(&dev->world->held_back, bytes);
}

void plm_sim_settle(struct plm_backend_device *dev, int64_t now_ns)
{
    uint32_t n = 0;
    while (n < dev->n_pending && dev->pending[n].due_ns <= now_ns) {
        plm_sim_give_back(dev, dev->pending[n].heap, dev->pending[n].bytes);
        plm_sim_remember(dev, dev->pending[n].due_ns);
        n++;
    }
    dev->n_pending -= n;
    memmove(dev->pending, dev->pending + n, dev->n_pending * sizeof(dev->pending[0]));
}
