// SPDX-License-Identifier: Apache-2.0
#include "tests/worlds/scripted.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem/ledger.h"
#include "tests/fakegpu/control.h"
#include "tests/vulkan/layer_control.h"

#define LABEL      "plimsoll: " // before what the backend writes into a queue
#define LABEL_STEP LABEL "step "
// The device keeps as much to itself as the card that the backend's own number is from.
#define WITHHELD     (UINT64_C(80) << 20)
#define WITHHELD_GPU (UINT64_C(4) << 20)
// What a page table or a descriptor of a driver could not address: nothing here is that long.
#define MOST_BYTES (UINT64_C(1) << 46)

static struct {
    bool vulkan;
    bool (*set)(const char *rules, char *error, size_t error_size); // of the layer or the driver
    uint64_t (*count)(const char *counter);
    null_set_fn *null;
    const struct plm_backend *backend; // the real one
    struct plm_backend shown;          // and with what is different here
    struct plm_caps caps;
    // Of one run.
    struct plm_host *host;
    const struct observer *observer;
    struct plm_sim_opts device;
    struct plm_device_opts opts;
    struct plm_backend_device *sim; // while the real device is open
    uint64_t ticket;                // of the last list
    struct null_script script;
} s;

// ---- the simulated device, as a driver ----

static enum null_result result_of(int r)
{
    switch (r) {
    case PLM_OK: return NULL_OK;
    case PLM_ERR_LOST: return NULL_LOST;
    case PLM_ERR_TIMEOUT: return NULL_NOT_YET;
    default: return NULL_NO_ROOM;
    }
}

static enum null_result on_open(void *ctx)
{
    struct plm_error err;
    (void)ctx;
    s.ticket = 0;
    return result_of(plm_sim_backend.open(&s.opts, &s.sim, &err));
}

static void on_close(void *ctx)
{
    (void)ctx;
    plm_sim_backend.close(s.sim);
    s.sim = NULL;
}

static enum null_result on_allocate(void *ctx, uint64_t bytes, uint64_t *ret_address,
                                    void **ret_own)
{
    (void)ctx;
    struct plm_slab *slab = plm_calloc(s.host, PLM_HOST_OTHER, 1, sizeof(*slab));
    if (slab == NULL)
        return NULL_NO_ROOM;
    const int r = plm_sim_backend.alloc(s.sim, PLM_SLAB_DEVICE, bytes, NULL, slab);
    if (r != PLM_OK) {
        plm_free(s.host, slab);
        return result_of(r);
    }
    *ret_address = slab->addr;
    *ret_own = slab;
    return NULL_OK;
}

static void on_free(void *ctx, void *own)
{
    (void)ctx;
    plm_sim_backend.free(s.sim, own);
    plm_free(s.host, own);
}

// The budget is what this process may have: what it uses and what is free, or what the driver
// advises. A driver that can not tell says zeros.
static void on_budget(void *ctx, uint64_t *ret_budget, uint64_t *ret_usage)
{
    struct plm_mem_info info;
    (void)ctx;
    *ret_budget = *ret_usage = 0;
    if (s.sim == NULL || plm_sim_backend.query_free(s.sim, &info) != PLM_OK)
        return;
    *ret_usage = info.process_use_bytes;
    *ret_budget = info.budget_bytes > 0 ? info.budget_bytes : info.free_bytes + *ret_usage;
}

// The first kernel stands for the code of all.
static enum null_result on_pipeline(void *ctx)
{
    const struct plm_kernel_needs needs = {0};
    struct plm_error err;
    (void)ctx;
    return result_of(plm_sim_backend.warm_up(s.sim, &needs, &err));
}

static enum null_result on_copy_in(void *ctx, uint64_t to, const void *from, uint64_t bytes)
{
    (void)ctx;
    return result_of(plm_sim_backend.copy_in(s.sim, to, from, bytes));
}

static enum null_result on_copy_out(void *ctx, void *to, uint64_t from, uint64_t bytes)
{
    (void)ctx;
    return result_of(plm_sim_backend.copy_out(s.sim, to, from, bytes));
}

// A submit of the world is a list of the engine: neither copies alone nor what the warm-up runs.
static enum null_result on_submit(void *ctx, uint32_t dispatches, uint64_t *ret_ticket)
{
    (void)ctx;
    int r = plm_sim_backend.status(s.sim);
    *ret_ticket = s.ticket;
    if (r != PLM_OK || dispatches == 0 || s.observer->warming)
        return result_of(r);
    r = plm_sim_backend.submit(s.sim, &s.ticket);
    *ret_ticket = s.ticket;
    return result_of(r);
}

static enum null_result on_wait(void *ctx, uint64_t ticket, int64_t timeout_ns)
{
    (void)ctx;
    return result_of(plm_sim_backend.wait(s.sim, ticket, timeout_ns));
}

static void on_label(void *ctx, const char *text)
{
    (void)ctx;
    if (strncmp(text, LABEL_STEP, strlen(LABEL_STEP)) == 0) {
        const uint64_t step = strtoull(text + strlen(LABEL_STEP), NULL, 10);
        plm_sim_backend.mark(s.sim, PLM_PHASE_SERVE, step);
        return;
    }
    for (int p = 0; p < PLM_PHASES && strncmp(text, LABEL, strlen(LABEL)) == 0; p++) {
        if (strcmp(text + strlen(LABEL), plm_phase_name((enum plm_phase)p)) == 0)
            plm_sim_backend.mark(s.sim, (enum plm_phase)p, 0);
    }
}

// ---- the backend as it is shown ----

static const struct plm_caps *shown_caps(const struct plm_backend_device *dev)
{
    s.caps = *s.backend->caps(dev);
    s.caps.addresses_only = true;
    return &s.caps;
}

// Results of this op are read back, as any small range is that the host wrote: what it wrote there
// for an earlier step is over. Of logits of zeros the first is the largest.
static void write_records(uint64_t dst, uint32_t rows)
{
    static const struct plm_argmax_record zeros[16];
    for (uint32_t row = 0; row < rows; row += 16) {
        const uint32_t n = rows - row < 16 ? rows - row : 16;
        plm_sim_backend.copy_in(s.sim, dst + row * sizeof(zeros[0]), zeros, n * sizeof(zeros[0]));
    }
}

// What a list does is not to be seen in command buffers: the simulated device is told beside. That
// it is lost the backend finds out by itself.
static int shown_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units,
                        const void *args, size_t args_bytes)
{
    const int r = s.backend->launch(dev, op, units, args, args_bytes);
    if (r == PLM_OK)
        plm_sim_backend.launch(s.sim, op, units, args, args_bytes);
    if (r == PLM_OK && op == PLM_OP_ARGMAX) {
        const struct plm_argmax_args *a = args;
        write_records(a->dst, a->rows);
    }
    if (r == PLM_OK && op == PLM_OP_SAMPLE) {
        const struct plm_sample_args *a = args;
        write_records(a->dst, a->rows);
    }
    return r;
}

static void shown_discard(struct plm_backend_device *dev)
{
    s.backend->discard(dev);
    plm_sim_backend.discard(s.sim);
}

// The phases, where the backend has no trace to write them to.
static void shown_mark(struct plm_backend_device *dev, enum plm_phase phase, uint64_t step)
{
    (void)dev;
    if (s.sim != NULL)
        plm_sim_backend.mark(s.sim, phase, step);
}

static bool open_control(const char *backend)
{
    struct layer_control layer;
    struct fake_control fake;
    s.vulkan = strcmp(backend, "vulkan") == 0;
    if (s.vulkan && layer_control_open(&layer, LAYER)) {
        s.set = layer.set;
        s.count = layer.count;
        s.null = layer.null;
        return true;
    }
    if (s.vulkan || !fake_control_open(&fake, strcmp(backend, "cuda") == 0 ? "libcuda.so.1"
                                                                           : "libamdhip64.so.6"))
        return false;
    s.set = fake.set;
    s.count = fake.count;
    s.null = fake.null;
    return true;
}

enum scripted_there scripted_prepare(const char *backend, char why[512])
{
    struct plm_host *host = plm_host_create(0);
    struct plm_device_desc desc[4];
    struct plm_error err = {0};
    size_t n = 0;
    for (size_t i = 0; plm_backends[i] != NULL; i++)
        s.backend = strcmp(plm_backends[i]->name, backend) == 0 ? plm_backends[i] : s.backend;
    if (s.backend == NULL || !open_control(backend)) {
        plm_host_destroy(host);
        snprintf(why, 512, "no %s backend in this build, or no layer and no fake driver above it",
                 backend);
        return SCRIPTED_ABSENT;
    }
    const int r = s.backend->enumerate(host, desc, 4, &n, &err);
    plm_host_destroy(host);
    if (r != PLM_OK || n == 0) {
        snprintf(why, 512, "%s", r != PLM_OK ? err.msg : "no device is usable");
        return SCRIPTED_ABSENT;
    }
    if (s.vulkan && s.count("instances_created") == 0) {
        snprintf(why, 512, "the layer is not loaded: tests/vulkan/README.md says how");
        return SCRIPTED_BROKEN;
    }
    return SCRIPTED_READY;
}

// What follows from the use of this process.
static bool wants_process_use(const struct plm_world *world)
{
    static const char *const terms[] = {"plan.own_drv", "plan.foreign", "plan.growth",
                                        "metrics.ledger_mismatches"};
    for (uint32_t i = 0; i < world->n_wants; i++) {
        for (uint32_t k = 0; k < sizeof(terms) / sizeof(terms[0]); k++) {
            const char *name = world->wants[i].name;
            if (strncmp(name, "on sim ", 7) != 0 && strstr(name, terms[k]) != NULL)
                return true;
        }
    }
    return false;
}

const char *scripted_lacks(const struct plm_world *world)
{
    const struct plm_sim_opts *d = &world->device;
    if (world->computes)
        return "results are computed";
    if (d->n_heaps > 0)
        return "slabs come from one heap";
    if (d->unified || d->n_cgroups > 0)
        return "readings are those of the real machine";
    if (d->keeps_bytes > 0)
        return "no call empties a driver's cache";
    if (d->poison != PLM_SIM_POISON_NONE)
        return "tokens are not looked at";
    if (!s.vulkan && d->commit == PLM_COMMIT_SOFT)
        return "nobody takes what is held";
    if (!s.vulkan && !d->hides_process_use && wants_process_use(world))
        return "the driver does not tell the use of a process";
    if (d->granularity_bytes != 0 && d->granularity_bytes != UINT64_C(2) << 20)
        return "granules have 2 MiB";
    return NULL;
}

const struct plm_backend *scripted_begin(const struct plm_sim_opts *device,
                                         const struct plm_clock *clock,
                                         const struct observer *observer)
{
    char rules[256], error[256];
    const uint64_t slab = device->max_slab_bytes > 0 ? device->max_slab_bytes : MOST_BYTES;
    s.host = plm_host_create(0);
    s.observer = observer;
    s.device = *device;
    const uint64_t withheld = s.vulkan ? WITHHELD : WITHHELD_GPU;
    if (s.device.unavailable_bytes < withheld)
        s.device.unavailable_bytes = withheld;
    s.opts = (struct plm_device_opts){.host = s.host, .clock = clock, .backend_opts = &s.device};
    s.script = (struct null_script){.heap_bytes = device->capacity_bytes,
                                    .open = on_open,
                                    .close = on_close,
                                    .allocate = on_allocate,
                                    .free = on_free,
                                    .budget = on_budget,
                                    .pipeline = on_pipeline,
                                    .copy_in = on_copy_in,
                                    .copy_out = on_copy_out,
                                    .submit = on_submit,
                                    .wait = on_wait,
                                    .label = on_label};
    if (s.vulkan)
        snprintf(rules, sizeof(rules),
                 "identity type=discrete name=scripted; limit max-allocation=%" PRIu64
                 " max-buffer=%" PRIu64 "; %s extension VK_EXT_memory_budget",
                 slab, slab, device->hides_process_use ? "hide" : "show");
    else // what is mapped has no bytes of the script's
        snprintf(rules, sizeof(rules), "identity name=scripted vmm=0");
    if (!s.set(rules, error, sizeof(error)))
        fprintf(stderr, "%s\n", error);
    s.null(&s.script);
    s.shown = *s.backend;
    s.shown.caps = shown_caps;
    s.shown.launch = shown_launch;
    s.shown.discard = shown_discard;
    if (!s.vulkan)
        s.shown.mark = shown_mark;
    return &s.shown;
}

bool scripted_end(void)
{
    s.null(NULL);
    return s.host != NULL && plm_host_destroy(s.host) == 0;
}
