// SPDX-License-Identifier: Apache-2.0
// What every file that stands on the device uses: results, the context, the timeline.
#include "backends/gpudrv/impl.h"
#include "core/base/checked.h"

// ---- results ----

int plm_gpu_status(struct plm_backend_device *dev, enum plm_gpu_result result)
{
    switch (result) {
    case PLM_GPU_OK: return PLM_OK;
    case PLM_GPU_OUT_OF_MEMORY: return PLM_ERR_OUT_OF_DEVICE;
    case PLM_GPU_NOT_READY: return PLM_ERR_TIMEOUT;
    case PLM_GPU_INVALID: return PLM_ERR_INTERNAL;
    case PLM_GPU_NOT_FOUND: return PLM_ERR_NOT_FOUND;
    case PLM_GPU_NO_IMAGE:
    case PLM_GPU_BAD_IMAGE:
    case PLM_GPU_BAD_PTX:
    case PLM_GPU_UNSUPPORTED:
    case PLM_GPU_UNAVAILABLE: return PLM_ERR_UNSUPPORTED;
    case PLM_GPU_LOST:
    case PLM_GPU_UNKNOWN: break;
    }
    if (!atomic_exchange(&dev->lost, true))
        plm_logf(dev->log, PLM_LOG_ERROR, "%s: %s is lost: %s", dev->driver->name, dev->card.name,
                 dev->driver->last_error(dev->lib));
    return PLM_ERR_LOST;
}

// ---- the context ----

int plm_gpu_enter(struct plm_backend_device *dev, uint64_t *ret_before)
{
    if (atomic_load(&dev->lost))
        return PLM_ERR_LOST;
    if (dev->driver->enter(dev->lib, dev->context, ret_before) == PLM_GPU_OK)
        return PLM_OK;
    return plm_gpu_status(dev, PLM_GPU_LOST);
}

void plm_gpu_leave(struct plm_backend_device *dev, uint64_t before)
{
    dev->driver->leave(dev->lib, before);
}

// ---- the timeline ----

// A wait asks again and again for so long before it sleeps between questions: steps of decode are
// shorter, and a sleep ends 50 us late (the slack of Linux's timers), which is 2 % of one.
#define POLL_NS INT64_C(5000000)
// Then it sleeps for a part of what it has waited, so that it sees the end late by that part at
// most. No driver waits for an event with a limit of time, and without one a card that hangs would
// hang the engine.
#define SLEEP_PART   64
#define SLEEP_NS_MAX INT64_C(2000000)
// Longer than any step or copy that is still wanted; a device that needs more hangs.
#define FINISH_NS INT64_C(10000000000)

int plm_gpu_wait_event(struct plm_backend_device *dev, void *event, int64_t timeout_ns)
{
    const int64_t limit = timeout_ns < 0 ? INT64_MAX : timeout_ns;
    int rc = plm_gpu_status(dev, dev->driver->event_query(dev->lib, event));
    if (rc != PLM_ERR_TIMEOUT)
        return rc;
    const int64_t begin = plm_now(dev->clock);
    for (;;) {
        rc = plm_gpu_status(dev, dev->driver->event_query(dev->lib, event));
        if (rc != PLM_ERR_TIMEOUT)
            return rc;
        const int64_t waited = plm_now(dev->clock) - begin;
        if (waited >= limit)
            return rc;
        if (waited < POLL_NS)
            continue;
        const int64_t nap = plm_min_i64(waited / SLEEP_PART, SLEEP_NS_MAX);
        dev->clock->sleep_ns(dev->clock->ctx, plm_min_i64(nap, limit - waited));
    }
}

int plm_gpu_wait_value(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns)
{
    if (value <= dev->reached)
        return PLM_OK;
    if (value + PLM_GPU_EVENTS <= dev->value)
        value = dev->value - PLM_GPU_EVENTS + 1;
    int rc = plm_gpu_wait_event(dev, dev->events[value % PLM_GPU_EVENTS], timeout_ns);
    if (rc == PLM_OK)
        dev->reached = value;
    return rc;
}

int plm_gpu_advance(struct plm_backend_device *dev)
{
    int rc = plm_gpu_status(
        dev, dev->driver->event_record(dev->lib, dev->events[(dev->value + 1) % PLM_GPU_EVENTS],
                                       dev->stream));
    if (rc == PLM_OK)
        dev->value++;
    return rc;
}

// What a wait of FINISH_NS came to.
static int finished(struct plm_backend_device *dev, int rc)
{
    if (rc != PLM_ERR_TIMEOUT)
        return rc;
    plm_logf(dev->log, PLM_LOG_ERROR, "%s: %s did not end its work in 10 s", dev->driver->name,
             dev->card.name);
    atomic_store(&dev->lost, true);
    return PLM_ERR_LOST;
}

int plm_gpu_finish(struct plm_backend_device *dev, void *event)
{
    return finished(dev, plm_gpu_wait_event(dev, event, FINISH_NS));
}

int plm_gpu_finish_value(struct plm_backend_device *dev, uint64_t value)
{
    return finished(dev, plm_gpu_wait_value(dev, value, FINISH_NS));
}

int plm_gpu_settle(struct plm_backend_device *dev)
{
    int rc = plm_gpu_status(dev, dev->driver->event_record(dev->lib, dev->settled, dev->stream));
    return rc == PLM_OK ? plm_gpu_finish(dev, dev->settled) : rc;
}
