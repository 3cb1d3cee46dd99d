// SPDX-License-Identifier: Apache-2.0
// The open list: launches, its submit and the wait for it.
#include "core/device/impl.h"

static int launch(struct plm_device *d, enum plm_op op, uint64_t units, const void *args,
                  size_t args_bytes)
{
    if (plm_device_is_lost(d))
        return PLM_ERR_LOST;
    if (units == 0)
        return PLM_OK;
    if (units >= UINT32_MAX || d->open_dispatches >= d->max_dispatches)
        return PLM_ERR_LIMIT;
    int rc =
        plm_device_result(d, d->backend->launch(d->dev, op, (uint32_t)units, args, args_bytes));
    if (rc != PLM_OK)
        return rc;
    d->open_dispatches++;
    plm_device_count(&d->dispatches);
    return PLM_OK;
}

#define PLM_OP(NAME, name, units, tolerance)                                                       \
    int plm_launch_##name(struct plm_device *device, const struct plm_##name##_args *a)            \
    {                                                                                              \
        _Static_assert(sizeof(*a) <= 128, "arguments fit the push constants");                     \
        return launch(device, PLM_OP_##NAME, (units), a, sizeof(*a));                              \
    }
#include "kernels/ops.def"
#undef PLM_OP

int plm_device_barrier(struct plm_device *d)
{
    return plm_device_is_lost(d) ? PLM_ERR_LOST : plm_device_result(d, d->backend->barrier(d->dev));
}

int plm_device_submit(struct plm_device *d, uint64_t *ret_value)
{
    if (plm_device_is_lost(d))
        return PLM_ERR_LOST;
    uint64_t value = 0;
    int rc = plm_device_result(d, d->backend->submit(d->dev, &value));
    if (rc != PLM_OK)
        return rc;
    d->open_dispatches = 0;
    d->last_value = value;
    plm_device_count(&d->submits);
    if (ret_value != NULL)
        *ret_value = value;
    return PLM_OK;
}

void plm_device_discard(struct plm_device *d)
{
    d->open_dispatches = 0;
    if (!plm_device_is_lost(d))
        d->backend->discard(d->dev);
}

int plm_device_capture(struct plm_device *d)
{
    if (plm_device_is_lost(d))
        return PLM_ERR_LOST;
    if (!d->caps.graphs || d->backend->capture == NULL)
        return PLM_ERR_UNSUPPORTED;
    if (atomic_load(&d->sealed))
        return PLM_ERR_SEALED;
    return plm_device_result(d, d->backend->capture(d->dev));
}

int plm_device_wait(struct plm_device *d, uint64_t value, int64_t timeout_ns)
{
    if (plm_device_is_lost(d))
        return PLM_ERR_LOST;
    if (value > d->last_value)
        return PLM_ERR_INVALID; // would never be reached
    const bool impatient = timeout_ns < 0 && d->patience_ns > 0;
    int r = plm_device_result(
        d, d->backend->wait(d->dev, value, impatient ? d->patience_ns : timeout_ns));
    if (r == PLM_ERR_TIMEOUT && impatient)
        plm_device_lose(d); // its callers wait for an end, and free what it may still read
    return r;
}

int plm_device_run(struct plm_device *device, int appended)
{
    uint64_t value;
    int r = appended == PLM_OK ? plm_device_submit(device, &value) : appended;
    if (r != PLM_OK) {
        plm_device_discard(device);
        return r;
    }
    return plm_device_wait(device, value, -1);
}
