// SPDX-License-Identifier: Apache-2.0
// An opened device behind its checked wrappers, shared by the files of this folder: id.c finds a
// backend by an id, open.c opens and closes, slabs.c and copies.c keep to what is live, readings.c
// bounds what a driver says, kernels.c and lists.c run. Contract: core/device.h.
#ifndef PLM_DEVICE_IMPL_H
#define PLM_DEVICE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/device.h"

struct plm_device {
    const struct plm_backend *backend;
    struct plm_device_opts opts;
    // Written by reopen alone; threads that read the device meanwhile hold it for reading.
    pthread_rwlock_t dev_lock;
    struct plm_backend_device *dev; // NULL: closed, and a reopen failed
    struct plm_caps caps;           // a copy, since it outlives what it describes
    struct plm_host *host;
    const void *configured; // what the backend made of the id, for every open; or NULL
    uint32_t max_dispatches;
    uint32_t open_dispatches; // in the list now
    uint64_t last_value;      // of the timeline, as submit returned it

    struct plm_slab *slabs; // live ones by address; copies are checked against them
    size_t n_slabs;
    size_t cap_slabs;

    atomic_bool sealed;
    atomic_bool in_step;
    atomic_bool lost;
    int64_t patience_ns; // of waits without a limit of their own; 0: for ever
    // Read by metrics threads while the engine's thread counts.
    _Atomic uint64_t allocs;
    _Atomic uint64_t frees;
    _Atomic uint64_t allocs_refused;
    _Atomic uint64_t allocs_in_step;
    _Atomic uint64_t dispatches;
    _Atomic uint64_t submits;
    _Atomic uint64_t resizes;
};

static inline void plm_device_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

// Remembers a loss, so that it is sticky whatever the backend says next.
static inline int plm_device_result(struct plm_device *d, int rc)
{
    if (rc == PLM_ERR_LOST)
        atomic_store(&d->lost, true);
    return rc;
}

static inline bool plm_device_is_lost(const struct plm_device *d)
{
    return atomic_load(&d->lost);
}

// id.c: the backend of this name, which need not end in NUL; NULL: this build has none.
const struct plm_backend *plm_backend_find(const char *name, size_t name_len);
// slabs.c: whether all of the range lies in one live slab.
bool plm_device_range_is_live(const struct plm_device *d, uint64_t addr, uint64_t bytes);

#endif
