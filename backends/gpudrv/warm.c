// SPDX-License-Identifier: Apache-2.0
// Drivers take memory for code and local memory when a kernel first runs. So each runs once before
// anything is measured.
#include "backends/shared/warm.h"
#include "backends/gpudrv/impl.h"

// More than the arguments of any kernel span.
#define PART_BYTES (UINT64_C(8) << 20)
// A kernel of this size is done in microseconds; a device that takes longer hangs. An emulated one
// needs seconds.
#define RUN_NS INT64_C(300000000000)

// What conditions of kernels ask about.
static const uint32_t rows_tried[] = {1, 2, 3, 5, 9, 17, 33, 65, 129};
static const uint32_t groups_tried[] = {2, 1, 4, 8, 3, 5, 6, 7, 16};
static const uint32_t dims_tried[] = {64, 128, 256, 32, 80, 96, 160, 192};

struct warm {
    struct plm_backend_device *dev;
    struct plm_error *err;
    struct plm_warm_memory memory;
};

// The smallest arguments that the kernel runs; false: none of those that are tried.
static bool find_args(const struct warm *w, const struct plm_gpu_kernel *k, union plm_op_args *ret)
{
    const uint32_t type = k->type != PLM_ANY_TYPE ? k->type : PLM_TYPE_F16;
    struct plm_warm_shape s = {.type = type,
                               .act = k->act != PLM_ANY_ACT ? k->act : PLM_ACT_F32,
                               .kv_type = plm_gpu_typed_by_kv(k->op) ? type : PLM_TYPE_F16};
    for (size_t d = 0; d < sizeof(dims_tried) / sizeof(dims_tried[0]); d++) {
        for (size_t g = 0; g < sizeof(groups_tried) / sizeof(groups_tried[0]); g++) {
            for (size_t r = 0; r < sizeof(rows_tried) / sizeof(rows_tried[0]); r++) {
                s.rows = rows_tried[r];
                s.group = groups_tried[g];
                s.head_dim = dims_tried[d];
                plm_warm_args(k->op, &w->memory, &s, ret);
                if (k->when(ret))
                    return true;
            }
        }
    }
    return false;
}

static int run(void *ctx, const struct plm_gpu_kernel *kernel)
{
    struct warm *w = ctx;
    union plm_op_args args;
    uint64_t value;
    int rc = find_args(w, kernel, &args) ? plm_gpu_append(w->dev, kernel, &args) : PLM_ERR_INTERNAL;
    if (rc == PLM_OK)
        rc = plm_gpu_submit(w->dev, &value);
    if (rc == PLM_OK)
        rc = plm_gpu_wait(w->dev, value, RUN_NS);
    if (rc == PLM_OK)
        return rc;
    plm_gpu_discard(w->dev);
    return plm_fail(w->err, rc, "%s: %s: the kernel %s did not run: %s", w->dev->driver->name,
                    w->dev->caps.name, kernel->symbol, plm_strstatus(rc));
}

int plm_gpu_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                    struct plm_error *err)
{
    struct warm w = {.dev = dev, .err = err};
    uint64_t before;
    int rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return plm_fail(err, rc, "%s: %s: the device is lost", dev->driver->name, dev->caps.name);
    rc = plm_gpu_modules_load(dev, needs, err);
    plm_gpu_leave(dev, before);
    if (rc != PLM_OK)
        return rc;
    rc = plm_warm_prepare(dev, plm_gpu_alloc, plm_gpu_copy_in, PART_BYTES, &w.memory);
    if (rc == PLM_OK)
        rc = plm_gpu_kernels_each(needs, run, &w);
    else
        plm_fail(err, rc,
                 "%s: %s: the memory to run the kernels once in cannot be had and filled: %s",
                 dev->driver->name, dev->caps.name, plm_strstatus(rc));
    if (w.memory.slab.addr != 0)
        plm_gpu_free(dev, &w.memory.slab);
    return rc;
}
