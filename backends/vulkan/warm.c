// SPDX-License-Identifier: Apache-2.0
// Drivers take memory for code and registers when a kernel first runs. So each runs once before
// anything is measured.
#include "backends/vulkan/warm.h"

#include "backends/shared/warm.h"
#include "backends/vulkan/cache.h"
#include "backends/vulkan/device.h"
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/list.h"
#include "backends/vulkan/pipelines.h"
#include "backends/vulkan/slabs.h"

// More than the arguments of any kernel span.
#define PART_BYTES (UINT64_C(256) << 10)
// A kernel of this size is done in far less; a device that takes longer hangs. A CPU driver
// compiles here, for half a minute where a kernel unrolls much and the machine is busy.
#define RUN_NS INT64_C(300000000000)

struct warm {
    struct plm_backend_device *dev;
    struct plm_error *err;
    struct plm_warm_memory memory;
};

static int run(void *ctx, const struct plm_vk_kernel *kernel)
{
    struct warm *w = ctx;
    const struct plm_warm_shape shape = {.type = kernel->type,
                                         .act = plm_vk_kernel_act(kernel),
                                         .kv_type = plm_vk_kernel_kv_type(kernel),
                                         .rows = plm_vk_kernel_rows(kernel),
                                         .group = 2,
                                         .head_dim = 64};
    union plm_op_args args;
    uint64_t value;
    const size_t bytes = plm_warm_args(plm_vk_kernel_op(kernel), &w->memory, &shape, &args);
    int r = plm_vk_append(w->dev, kernel, &args, bytes);
    if (r == PLM_OK)
        r = plm_vk_submit(w->dev, &value);
    if (r == PLM_OK)
        r = plm_vk_wait(w->dev, value, RUN_NS);
    if (r == PLM_OK)
        return r;
    char name[PLM_VK_KERNEL_NAME_BYTES];
    plm_vk_kernel_name(kernel, name);
    plm_vk_discard(w->dev);
    return plm_fail(w->err, r, "%s: the kernel %s did not run: %s", w->dev->caps.name, name,
                    plm_strstatus(r));
}

int plm_vk_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                   struct plm_error *err)
{
    struct warm w = {.dev = dev, .err = err};
    int r = plm_vk_pipelines_make(dev, needs, err);
    if (r != PLM_OK)
        return r;
    r = plm_warm_prepare(dev, plm_vk_alloc, plm_vk_copy_in, PART_BYTES, &w.memory);
    if (r == PLM_OK)
        r = plm_vk_kernels_each(&dev->pipelines->kernels, needs, run, &w);
    else
        plm_fail(err, r, "%s: no room to run the kernels once: %s", dev->caps.name,
                 plm_strstatus(r));
    if (w.memory.slab.addr != 0)
        plm_vk_free(dev, &w.memory.slab);
    if (r == PLM_OK) {
        plm_vk_cache_save(dev, dev->pipelines->cache);
        r = plm_vk_list_warm_up(dev);
        if (r != PLM_OK)
            plm_fail(err, r, "%s: no room to record the longest list: %s", dev->caps.name,
                     plm_strstatus(r));
    }
    return r;
}
