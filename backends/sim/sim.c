// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backends/sim/sim_internal.h"

#define DEFAULT_GRANULARITY (2ull << 20) // of CUDA's virtual-memory calls
#define DEFAULT_MAX_SLABS   65536u
#define ALIGN               256u
// First address without an inner backend: beyond anything a small number could be mistaken for.
#define FIRST_ADDR (1ull << 44)

bool plm_sim_is_lost(struct plm_backend_device *dev)
{
    if (atomic_exchange(&dev->world->lose, 0) != 0)
        atomic_store(&dev->lost, true);
    return atomic_load(&dev->lost);
}

// ---- open and close ----

static void sim_close(struct plm_backend_device *dev)
{
    if (dev == NULL)
        return;
    atomic_fetch_sub(&dev->world->driver_bytes, dev->driver_bytes);
    if (dev->inner != NULL)
        dev->script.inner->close(dev->inner);
    plm_free(dev->host, dev);
}

static void fill_caps(struct plm_backend_device *dev)
{
    const struct plm_sim_opts *script = &dev->script;
    struct plm_caps *caps = &dev->caps;
    if (dev->inner != NULL)
        *caps = *script->inner->caps(dev->inner); // isa, class and alignment are the inner ones
    else
        caps->align_bytes = ALIGN;
    caps->addresses_only = dev->inner == NULL;
    snprintf(caps->name, sizeof(caps->name), "simulated device");
    snprintf(caps->uuid, sizeof(caps->uuid), "sim-%" PRIu64, script->capacity_bytes);
    if (dev->inner == NULL) {
        snprintf(caps->isa, sizeof(caps->isa), "none");
        snprintf(caps->device_class, sizeof(caps->device_class), "sim");
    }
    caps->commit = script->commit;
    caps->unified = script->unified;
    caps->reports_process_use = !script->hides_process_use;
    caps->granularity_bytes =
        script->granularity_bytes > 0 ? script->granularity_bytes : DEFAULT_GRANULARITY;
    caps->context_bytes =
        script->shown_context_bytes > 0 ? script->shown_context_bytes : script->context_bytes;
    caps->withheld_bytes = script->withheld_bytes;
    caps->max_slab_bytes =
        script->max_slab_bytes > 0 ? script->max_slab_bytes : script->capacity_bytes;
    caps->max_slabs = script->max_slabs > 0 ? script->max_slabs : DEFAULT_MAX_SLABS;
}

static int open_inner(struct plm_backend_device *dev, const struct plm_device_opts *opts,
                      struct plm_error *err)
{
    const struct plm_backend *inner = dev->script.inner;
    struct plm_device_opts own = *opts;
    own.backend_opts = dev->script.inner_opts;
    own.memory_limit_bytes = 0; // the script's limits hold here
    int rc = inner->open(&own, &dev->inner, err);
    if (rc != PLM_OK)
        return rc;
    if (!inner->caps(dev->inner)->unified)
        return plm_fail(err, PLM_ERR_UNSUPPORTED, "sim: backend '%s' is not on unified memory",
                        inner->name);
    return PLM_OK;
}

static int check_script(const struct plm_sim_opts *script, struct plm_error *err)
{
    if (script == NULL)
        return plm_fail(err, PLM_ERR_INVALID,
                        "sim: the simulated device is opened by a program "
                        "that gives it a script, not by name alone");
    if (script->capacity_bytes == 0 || script->n_cgroups > PLM_CGROUP_LEVELS ||
        (script->n_events > 0 && script->events == NULL))
        return plm_fail(err, PLM_ERR_INVALID,
                        "sim: a script needs a capacity, at most %d levels, "
                        "and the events that it counts",
                        PLM_CGROUP_LEVELS);
    return PLM_OK;
}

static int sim_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                    struct plm_error *err)
{
    const struct plm_sim_opts *script = opts->backend_opts;
    int rc = check_script(script, err);
    if (rc != PLM_OK)
        return rc;
    struct plm_backend_device *dev = plm_calloc(opts->host, PLM_HOST_DEVICE, 1, sizeof(*dev));
    if (dev == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "sim: no host memory for the device");
    dev->host = opts->host;
    dev->script = *script;
    dev->world = script->world != NULL ? script->world : &dev->own_world;
    dev->next_addr = FIRST_ADDR;
    atomic_flag_clear(&dev->stale_lock);
    atomic_fetch_add(&dev->world->opens, 1);
    if (script->inner != NULL)
        rc = open_inner(dev, opts, err);
    if (rc == PLM_OK && plm_sim_driver_take(dev, script->context_bytes) != PLM_OK)
        rc = plm_fail(err, PLM_ERR_OUT_OF_DEVICE, "sim: no room for a context of %" PRIu64 " bytes",
                      script->context_bytes);
    if (rc != PLM_OK) {
        sim_close(dev);
        return rc;
    }
    fill_caps(dev);
    *ret = dev;
    return PLM_OK;
}

static int sim_enumerate(struct plm_host *host, struct plm_device_desc *out, size_t cap,
                         size_t *ret_n, struct plm_error *err)
{
    (void)host, (void)out, (void)cap, (void)err;
    *ret_n = 0; // there are as many as there are scripts
    return PLM_OK;
}

static const struct plm_caps *sim_caps(const struct plm_backend_device *dev)
{
    return &dev->caps;
}

// ---- weights and kernels ----

static int sim_weight_layout(const struct plm_backend_device *dev, enum plm_type type,
                             uint32_t n_in, uint32_t n_out, struct plm_weight_layout *ret)
{
    if (dev != NULL && dev->inner != NULL)
        return dev->script.inner->weight_layout(dev->inner, type, n_in, n_out, ret);
    return plm_sim_weight_layout(type, n_in, n_out, ret);
}

static void sim_weight_pack(const struct plm_backend_device *dev, enum plm_type type, uint32_t n_in,
                            uint32_t n_out, uint32_t first, uint32_t rows, const void *src,
                            void *dst)
{
    if (dev->inner != NULL)
        dev->script.inner->weight_pack(dev->inner, type, n_in, n_out, first, rows, src, dst);
}

// Takes the bytes of a kernel's code at its first use.
static int load_kernel(struct plm_backend_device *dev, enum plm_op op)
{
    if (dev->loaded[op])
        return PLM_OK;
    int rc = plm_sim_driver_take(dev, dev->script.kernel_bytes);
    dev->loaded[op] = rc == PLM_OK;
    return rc;
}

static int sim_warm_up(struct plm_backend_device *dev)
{
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    for (int op = 0; op < PLM_OPS; op++) {
        int rc = load_kernel(dev, (enum plm_op)op);
        if (rc != PLM_OK)
            return rc;
    }
    return dev->inner != NULL ? dev->script.inner->warm_up(dev->inner) : PLM_OK;
}

// ---- lists ----

static int sim_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units,
                      const void *args, size_t args_bytes)
{
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    int rc = load_kernel(dev, op);
    if (rc == PLM_OK && dev->inner != NULL)
        rc = dev->script.inner->launch(dev->inner, op, units, args, args_bytes);
    if (rc == PLM_OK) {
        dev->open_dispatches++;
        atomic_fetch_add(&dev->world->launches, 1);
    }
    return rc;
}

static int sim_barrier(struct plm_backend_device *dev)
{
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    return dev->inner != NULL ? dev->script.inner->barrier(dev->inner) : PLM_OK;
}

static void sim_discard(struct plm_backend_device *dev)
{
    dev->open_dispatches = 0;
    if (dev->inner != NULL)
        dev->script.inner->discard(dev->inner);
}

static int sim_submit(struct plm_backend_device *dev, uint64_t *ret_value)
{
    const struct plm_sim_opts *script = &dev->script;
    uint64_t call = atomic_fetch_add(&dev->world->submits, 1) + 1;
    if (call == script->lost_submit_nth)
        atomic_store(&dev->lost, true);
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    uint64_t times = script->fail_submit_times > 0 ? script->fail_submit_times : 1;
    if (script->fail_submit_nth > 0 && call >= script->fail_submit_nth &&
        call - script->fail_submit_nth < times)
        return PLM_ERR_OUT_OF_DEVICE;
    if (dev->inner != NULL) {
        uint64_t inner_value;
        int rc = script->inner->submit(dev->inner, &inner_value);
        if (rc == PLM_OK)
            rc = script->inner->wait(dev->inner, inner_value, -1);
        if (rc != PLM_OK)
            return rc;
    }
    if (script->clock != NULL)
        plm_sim_clock_advance(script->clock, script->submit_ns + (int64_t)dev->open_dispatches *
                                                                     script->dispatch_ns);
    dev->open_dispatches = 0;
    *ret_value = ++dev->timeline;
    return PLM_OK;
}

static int sim_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns)
{
    (void)timeout_ns; // submit ran everything
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    return value <= dev->timeline ? PLM_OK : PLM_ERR_TIMEOUT;
}

static int sim_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src,
                       uint64_t bytes)
{
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    return dev->inner != NULL ? dev->script.inner->copy_in(dev->inner, dst, src, bytes) : PLM_OK;
}

static int sim_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes)
{
    if (plm_sim_is_lost(dev))
        return PLM_ERR_LOST;
    if (dev->inner != NULL)
        return dev->script.inner->copy_out(dev->inner, dst, src, bytes);
    memset(dst, 0, bytes);
    return PLM_OK;
}

static int sim_status(const struct plm_backend_device *dev)
{
    return atomic_load(&dev->lost) || atomic_load(&dev->world->lose) != 0 ? PLM_ERR_LOST : PLM_OK;
}

const struct plm_backend plm_sim_backend = {
    .name = "sim",
    .enumerate = sim_enumerate,
    .open = sim_open,
    .close = sim_close,
    .caps = sim_caps,
    .alloc = plm_sim_alloc,
    .free = plm_sim_free,
    .query_free = plm_sim_query_free,
    .empty_cache = plm_sim_empty_cache,
    .weight_layout = sim_weight_layout,
    .weight_pack = sim_weight_pack,
    .warm_up = sim_warm_up,
    .launch = sim_launch,
    .barrier = sim_barrier,
    .submit = sim_submit,
    .discard = sim_discard,
    .wait = sim_wait,
    .copy_in = sim_copy_in,
    .copy_out = sim_copy_out,
    .status = sim_status,
};
