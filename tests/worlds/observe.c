// SPDX-License-Identifier: Apache-2.0
#include "tests/worlds/observe.h"

// The backend's entries know the device only, and the observer is not the device's to hold.
static struct observer *now;
static const struct plm_backend *below;

static void count_peaks(void)
{
    if (now->held_bytes > now->peak_held_bytes)
        now->peak_held_bytes = now->held_bytes;
    if (now->held_bytes > now->phase_peak_bytes[now->phase])
        now->phase_peak_bytes[now->phase] = now->held_bytes;
}

static int on_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                   struct plm_error *err)
{
    now->opens++;
    now->recording = now->lost = false;
    return below->open(opts, ret, err);
}

// Pinned memory is the host's, and no account of the device's.
static int64_t device_bytes(const struct plm_slab *slab)
{
    return slab->kind == PLM_SLAB_PINNED ? 0 : (int64_t)slab->taken_bytes;
}

static int on_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                    void *import_ptr, struct plm_slab *ret)
{
    int r = below->alloc(dev, kind, bytes, import_ptr, ret);
    if (r != PLM_OK)
        return r;
    now->held_bytes += device_bytes(ret);
    count_peaks();
    now->late_allocs += now->serving && now->recording;
    return r;
}

static void on_free(struct plm_backend_device *dev, struct plm_slab *slab)
{
    now->held_bytes -= device_bytes(slab);
    below->free(dev, slab);
}

// The first call that finds the device lost counts the loss.
static int seen(int r)
{
    now->losses += r == PLM_ERR_LOST && !now->lost;
    now->lost = now->lost || r == PLM_ERR_LOST;
    return r;
}

static int on_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                      struct plm_error *err)
{
    now->warming = true;
    int r = below->warm_up(dev, needs, err);
    now->warming = false;
    return seen(r);
}

static int on_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units,
                     const void *args, size_t args_bytes)
{
    now->recording = true;
    return seen(below->launch(dev, op, units, args, args_bytes));
}

static void on_discard(struct plm_backend_device *dev)
{
    now->recording = false;
    below->discard(dev);
}

static int on_submit(struct plm_backend_device *dev, uint64_t *ret_value)
{
    int r = seen(below->submit(dev, ret_value));
    now->recording = now->recording && r == PLM_ERR_OUT_OF_DEVICE; // else the list is gone
    now->refused += r == PLM_ERR_OUT_OF_DEVICE;
    return r;
}

static int on_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns)
{
    return seen(below->wait(dev, value, timeout_ns));
}

static int on_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src, uint64_t bytes)
{
    return seen(below->copy_in(dev, dst, src, bytes));
}

static int on_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes)
{
    return seen(below->copy_out(dev, dst, src, bytes));
}

static int on_status(const struct plm_backend_device *dev)
{
    return seen(below->status(dev));
}

static void on_mark(struct plm_backend_device *dev, enum plm_phase phase, uint64_t step)
{
    now->phase = phase;
    count_peaks();
    if (below->mark != NULL)
        below->mark(dev, phase, step);
}

struct plm_backend observed_backend;

void observe(struct observer *observer, const struct plm_backend *backend)
{
    now = observer;
    below = backend;
    observed_backend = *backend;
    observed_backend.open = on_open;
    observed_backend.alloc = on_alloc;
    observed_backend.free = on_free;
    observed_backend.warm_up = on_warm_up;
    observed_backend.launch = on_launch;
    observed_backend.discard = on_discard;
    observed_backend.submit = on_submit;
    observed_backend.wait = on_wait;
    observed_backend.copy_in = on_copy_in;
    observed_backend.copy_out = on_copy_out;
    observed_backend.status = on_status;
    observed_backend.mark = on_mark;
}

int64_t observed_left(const struct observer *observer, const struct plm_sim_opts *device)
{
    const struct plm_sim_world *w = &observer->world;
    int64_t left = (int64_t)device->capacity_bytes;
    for (uint32_t i = 0; i < device->n_heaps; i++)
        left += (int64_t)device->heap_bytes[i];
    return left - (int64_t)(w->taken_bytes + w->held_back + w->driver_bytes + w->foreign_bytes +
                            w->state.foreign);
}
