// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backends/cpu/choice.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/list.h"
#include "backends/cpu/mem.h"
#include "backends/cpu/pool.h"
#include "backends/hostmem/cgroup.h"
#include "backends/hostmem/proc.h"
#include "backends/panel/pack.h"
#include "core/base/thread.h"

// Slabs are mappings, of which Linux allows 65,530 to a process (vm.max_map_count); a quarter
// leaves the rest to libraries and stacks.
#define MAX_SLABS 16384u
// A slab starts at a huge page; what the core may rely on is a page.
#define ALIGN 4096u

struct plm_backend_device {
    struct plm_host *host;
    struct plm_hostmem machine;
    struct plm_caps caps;
    struct plm_cpu_choices choices; // of kernels
    struct plm_cpu_list list;
    struct plm_cpu_pool *pool;
    uint64_t timeline;
};

// ---- open and close ----

// "model name" of x86; other processors have no such line.
static void read_model_name(const char *root, char *out, size_t cap)
{
    struct plm_lines lines;
    snprintf(out, cap, "cpu");
    if (!plm_lines_open(&lines, root, "/proc/cpuinfo"))
        return;
    const char *line;
    while ((line = plm_lines_next(&lines)) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        colon += strspn(colon + 1, " ") + 1;
        if (*colon != '\0')
            snprintf(out, cap, "%.*s", (int)cap - 1, colon);
        break;
    }
    plm_lines_close(&lines);
}

static uint64_t fnv1a(const char *s)
{
    uint64_t hash = 14695981039346656037u;
    for (; *s != '\0'; s++)
        hash = (hash ^ (unsigned char)*s) * 1099511628211u;
    return hash;
}

static int fill_caps(struct plm_backend_device *dev, uint32_t workers, struct plm_error *err)
{
    struct plm_caps *caps = &dev->caps;
    struct plm_mem_info info;
    if (plm_hostmem_query(&dev->machine, &info) != PLM_OK)
        return plm_fail(err, PLM_ERR_IO,
                        "cpu: /proc/meminfo is not readable, so no memory limit "
                        "can be kept");
    read_model_name(dev->machine.root, caps->name, sizeof(caps->name));
    // No serial number is open to a process; the same kind of processor with as many workers is as
    // good a key for a plan.
    snprintf(caps->uuid, sizeof(caps->uuid), "cpu-%016" PRIx64 "-%" PRIu32, fnv1a(caps->name),
             workers);
    snprintf(caps->isa, sizeof(caps->isa), "%s", dev->choices.kernels->isa);
    snprintf(caps->device_class, sizeof(caps->device_class), "%s", PLM_CPU_DEVICE_CLASS);
    caps->commit = PLM_COMMIT_SOFT;
    caps->unified = true;
    caps->reports_process_use = true;
    caps->granularity_bytes = PLM_CPU_GRANULARITY;
    caps->kv_types = PLM_KV_TYPES_ALL;
    caps->max_slab_bytes = info.total_bytes;
    caps->max_slabs = MAX_SLABS;
    caps->align_bytes = ALIGN;
    caps->workers = workers;
    caps->tunes = dev->choices.kernels->matmul[0].fn != NULL;
    return PLM_OK;
}

static void cpu_close(struct plm_backend_device *dev)
{
    if (dev == NULL)
        return;
    plm_cpu_pool_destroy(dev->pool);
    plm_cpu_list_finish(&dev->list);
    plm_free(dev->host, dev);
}

static int make_workers(struct plm_backend_device *dev, uint32_t n,
                        const struct plm_device_opts *opts, struct plm_error *err)
{
    char whose[64];
    int rc = plm_cpu_list_init(&dev->list, opts->host, opts->max_dispatches);
    if (rc == PLM_OK)
        rc = plm_cpu_pool_create(opts->host, n, &dev->pool);
    if (rc == PLM_ERR_IO) {
        snprintf(whose, sizeof(whose), "the CPU's %" PRIu32 " workers", n);
        return plm_thread_fail(err, whose);
    }
    return rc == PLM_OK ? rc
                        : plm_fail(err, PLM_ERR_NOMEM_HOST,
                                   "cpu: no memory for %" PRIu32 " workers and a list of %" PRIu32
                                   " dispatches",
                                   n, opts->max_dispatches);
}

static int cpu_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                    struct plm_error *err)
{
    const struct plm_cpu_opts *own = opts->backend_opts;
    if (opts->index != 0)
        return plm_fail(err, PLM_ERR_NOT_FOUND, "cpu:%" PRIu32 ": there is one CPU device, cpu:0",
                        opts->index);
    if (opts->threads > PLM_CPU_WORKERS_MAX)
        return plm_fail(err, PLM_ERR_INVALID, "%" PRIu32 " threads; the most is %d", opts->threads,
                        PLM_CPU_WORKERS_MAX);
    struct plm_backend_device *dev = plm_calloc(opts->host, PLM_HOST_DEVICE, 1, sizeof(*dev));
    if (dev == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "cpu: no host memory for the device");
    dev->host = opts->host;
    dev->list.host = opts->host;
    dev->machine.root = own != NULL ? own->root : NULL;
    dev->machine.limit_bytes = opts->memory_limit_bytes;
    plm_cpu_choices_init(&dev->choices, plm_cpu_kernels_select(opts->isa_max, opts->kernels));
    uint32_t workers = opts->threads > 0 ? opts->threads : plm_cgroup_cpus(dev->machine.root);
    if (workers > PLM_CPU_WORKERS_MAX)
        workers = PLM_CPU_WORKERS_MAX;
    int rc = fill_caps(dev, workers, err);
    if (rc == PLM_OK)
        rc = make_workers(dev, workers, opts, err);
    if (rc != PLM_OK) {
        cpu_close(dev);
        return rc;
    }
    *ret = dev;
    return PLM_OK;
}

static int cpu_enumerate(struct plm_host *host, struct plm_device_desc *out, size_t cap,
                         size_t *ret_n, struct plm_error *err)
{
    (void)host;
    struct plm_hostmem machine = {0};
    struct plm_mem_info info;
    if (plm_hostmem_query(&machine, &info) != PLM_OK)
        return plm_fail(err, PLM_ERR_IO, "cpu: /proc/meminfo is not readable");
    if (cap > 0) {
        snprintf(out[0].id, sizeof(out[0].id), "cpu");
        read_model_name(NULL, out[0].name, sizeof(out[0].name));
        out[0].total_bytes = info.total_bytes;
    }
    *ret_n = 1;
    return PLM_OK;
}

static const struct plm_caps *cpu_caps(const struct plm_backend_device *dev)
{
    return &dev->caps;
}

// ---- memory ----

static int cpu_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                     void *import_ptr, struct plm_slab *ret)
{
    return plm_cpu_alloc(&dev->machine, dev->pool, kind, bytes, import_ptr, ret);
}

static void cpu_free(struct plm_backend_device *dev, struct plm_slab *slab)
{
    (void)dev;
    plm_cpu_free(slab);
}

static int cpu_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret)
{
    return plm_hostmem_query(&dev->machine, ret);
}

static int cpu_empty_cache(struct plm_backend_device *dev, uint64_t *ret_released,
                           struct plm_mem_info *ret_info)
{
    uint64_t before = plm_hostmem_resident_bytes(dev->machine.root);
    plm_host_trim(dev->host);
    uint64_t after = plm_hostmem_resident_bytes(dev->machine.root);
    int rc = plm_hostmem_query(&dev->machine, ret_info);
    if (rc == PLM_OK)
        *ret_released = before > after ? before - after : 0;
    return rc;
}

static int cpu_weight_layout(const struct plm_backend_device *dev, enum plm_type type,
                             uint32_t n_in, uint32_t n_out, struct plm_weight_layout *ret)
{
    (void)dev;
    return plm_panel_weight_layout(type, n_in, n_out, ret);
}

static void cpu_weight_pack(const struct plm_backend_device *dev, enum plm_type type, uint32_t n_in,
                            uint32_t n_out, uint32_t first, uint32_t rows, const void *src,
                            void *dst)
{
    (void)dev;
    plm_panel_weight_pack(type, n_in, n_out, first, rows, src, dst);
}

// Kernels are plain code and take no memory of their own; what is lazy on the CPU is the pages of
// the workers' scratch.
static int cpu_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                       struct plm_error *err)
{
    (void)needs;
    (void)err;
    plm_cpu_pool_touch(dev->pool);
    return PLM_OK;
}

// ---- variants ----

static uint32_t cpu_variants(const struct plm_backend_device *dev, enum plm_op op, const void *args,
                             char name[PLM_TUNING_NAME_BYTES])
{
    return plm_cpu_choices_variants(&dev->choices, op, args, name);
}

static const char *cpu_variant_name(const struct plm_backend_device *dev, enum plm_op op,
                                    uint32_t index)
{
    return plm_cpu_choices_name(&dev->choices, op, index);
}

static int cpu_choose(struct plm_backend_device *dev, enum plm_op op, const void *args,
                      uint32_t index)
{
    return plm_cpu_choices_set(&dev->choices, op, args, index);
}

// ---- lists ----

static int cpu_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units,
                      const void *args, size_t args_bytes)
{
    return plm_cpu_list_append(&dev->list, plm_cpu_choices_find(&dev->choices, op, args), units,
                               args, args_bytes);
}

static int cpu_barrier(struct plm_backend_device *dev)
{
    plm_cpu_list_barrier(&dev->list);
    return PLM_OK;
}

static int cpu_submit(struct plm_backend_device *dev, uint64_t *ret_value)
{
    plm_cpu_pool_run(dev->pool, &dev->list);
    plm_cpu_list_clear(&dev->list);
    *ret_value = ++dev->timeline;
    return PLM_OK;
}

static void cpu_discard(struct plm_backend_device *dev)
{
    plm_cpu_list_clear(&dev->list);
}

static int cpu_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns)
{
    (void)timeout_ns; // submit ran everything
    return value <= dev->timeline ? PLM_OK : PLM_ERR_TIMEOUT;
}

static int cpu_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src,
                       uint64_t bytes)
{
    (void)dev;
    memcpy((void *)(uintptr_t)dst, src, bytes);
    return PLM_OK;
}

static int cpu_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes)
{
    (void)dev;
    memcpy(dst, (const void *)(uintptr_t)src, bytes);
    return PLM_OK;
}

static int cpu_status(const struct plm_backend_device *dev)
{
    (void)dev;
    return PLM_OK; // a CPU is not lost without the process
}

const struct plm_backend plm_cpu_backend = {
    .name = "cpu",
    .enumerate = cpu_enumerate,
    .open = cpu_open,
    .close = cpu_close,
    .caps = cpu_caps,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .query_free = cpu_query_free,
    .empty_cache = cpu_empty_cache,
    .weight_layout = cpu_weight_layout,
    .weight_pack = cpu_weight_pack,
    .warm_up = cpu_warm_up,
    .variants = cpu_variants,
    .variant_name = cpu_variant_name,
    .choose = cpu_choose,
    .launch = cpu_launch,
    .barrier = cpu_barrier,
    .submit = cpu_submit,
    .discard = cpu_discard,
    .wait = cpu_wait,
    .copy_in = cpu_copy_in,
    .copy_out = cpu_copy_out,
    .status = cpu_status,
};
