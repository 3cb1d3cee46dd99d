// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backends/panel/pack.h"
#include "backends/sim/sim_internal.h"

#define DEFAULT_GRANULARITY (2ull << 20) // of CUDA's virtual-memory calls
#define DEFAULT_MAX_SLABS   65536u
#define ALIGN               256u
// First address without an inner backend: beyond anything a small number could be mistaken for.
#define FIRST_ADDR (1ull << 44)

// ---- open and close ----

static void sim_close(struct plm_backend_device *dev)
{
    if (dev == NULL)
        return;
    atomic_fetch_sub(&dev->world->driver_bytes, dev->driver_bytes);
    atomic_store(&dev->world->held_back, 0);
    if (dev->inner != NULL)
        dev->script.inner->close(dev->inner);
    plm_free(dev->host, dev);
}

static uint64_t largest_heap(const struct plm_backend_device *dev)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < dev->n_heaps; i++)
        bytes = dev->heap_bytes[i] > bytes ? dev->heap_bytes[i] : bytes;
    // What may be larger than all of it has no limit of its own.
    return dev->script.spills || dev->script.overcommits ? UINT64_MAX / 2 : bytes;
}

static void fill_caps(struct plm_backend_device *dev)
{
    const struct plm_sim_opts *script = &dev->script;
    struct plm_caps *caps = &dev->caps;
    if (dev->inner != NULL) {
        *caps = *script->inner->caps(dev->inner); // isa, class and alignment are the inner ones
    } else {
        caps->align_bytes = ALIGN;
        caps->kv_types = PLM_KV_TYPES_ALL;
    }
    caps->addresses_only = dev->inner == NULL;
    if (script->prefers != 0) {
        caps->prefers = script->prefers;
        caps->few_rows = script->few_rows;
    }
    caps->graphs = script->graph_bytes > 0;
    caps->async = script->async;
    caps->tunes = script->n_variants > 1; // as scripted, whatever computes
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
    caps->unavailable_bytes = script->unavailable_bytes;
    caps->max_slab_bytes = script->max_slab_bytes > 0 ? script->max_slab_bytes : largest_heap(dev);
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
                        "sim: the simulated device needs a world file: sim:FILE");
    if (script->capacity_bytes == 0 || script->n_cgroups > PLM_CGROUP_LEVELS ||
        script->n_heaps > PLM_SIM_HEAPS_MAX - 1 || (script->n_events > 0 && script->events == NULL))
        return plm_fail(err, PLM_ERR_INVALID,
                        "sim: a script needs a capacity, at most %d levels and %d further heaps, "
                        "and the events that it counts",
                        PLM_CGROUP_LEVELS, PLM_SIM_HEAPS_MAX - 1);
    return PLM_OK;
}

static void init_device(struct plm_backend_device *dev, const struct plm_device_opts *opts)
{
    const struct plm_sim_opts *script = opts->backend_opts;
    dev->host = opts->host;
    dev->clock = opts->clock;
    dev->script = *script;
    dev->world = script->world != NULL ? script->world : &dev->own_world;
    dev->next_addr = FIRST_ADDR;
    dev->n_heaps = script->n_heaps + 1;
    dev->heap_bytes[0] = script->capacity_bytes;
    for (uint32_t i = 0; i < script->n_heaps; i++)
        dev->heap_bytes[i + 1] = script->heap_bytes[i];
    atomic_flag_clear(&dev->lock);
    struct plm_sim_state *state = &dev->world->state;
    if (!state->started)
        *state = (struct plm_sim_state){
            .started = true, .start_ns = plm_sim_now(dev), .host = script->host_bytes};
    plm_sim_remember(dev, plm_sim_now(dev));
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
    init_device(dev, opts);
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

// ---- weights ----

static int sim_weight_layout(const struct plm_backend_device *dev, enum plm_type type,
                             uint32_t n_in, uint32_t n_out, struct plm_weight_layout *ret)
{
    if (dev != NULL && dev->inner != NULL)
        return dev->script.inner->weight_layout(dev->inner, type, n_in, n_out, ret);
    return dev != NULL && dev->script.panels ? plm_panel_weight_layout(type, n_in, n_out, ret)
                                             : plm_sim_weight_layout(type, n_in, n_out, ret);
}

static void sim_weight_pack(const struct plm_backend_device *dev, enum plm_type type, uint32_t n_in,
                            uint32_t n_out, uint32_t first, uint32_t rows, const void *src,
                            void *dst)
{
    if (dev->inner != NULL)
        dev->script.inner->weight_pack(dev->inner, type, n_in, n_out, first, rows, src, dst);
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
    .warm_up = plm_sim_warm_up,
    .variants = plm_sim_variants,
    .variant_name = plm_sim_variant_name,
    .choose = plm_sim_choose,
    .launch = plm_sim_launch,
    .barrier = plm_sim_barrier,
    .submit = plm_sim_submit,
    .discard = plm_sim_discard,
    .capture = plm_sim_capture,
    .wait = plm_sim_wait,
    .copy_in = plm_sim_copy_in,
    .copy_out = plm_sim_copy_out,
    .status = sim_status,
    .mark = plm_sim_mark,
    .configure = plm_sim_configure,
    .release = plm_sim_release,
};
