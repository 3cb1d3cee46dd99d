// SPDX-License-Identifier: Apache-2.0
#include "backends/hip/hip.h"

#include "backends/gpudrv/impl.h"
#include "backends/hip/impl.h"

static int hip_enumerate(struct plm_host *host, struct plm_device_desc *out, size_t cap,
                         size_t *ret_n, struct plm_error *err)
{
    return plm_gpu_enumerate(&plm_hip_driver, host, out, cap, ret_n, err);
}

static int hip_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                    struct plm_error *err)
{
    return plm_gpu_open(&plm_hip_driver, opts, ret, err);
}

static int hip_configure(struct plm_host *host, const char *argument, const void **ret_opts,
                         struct plm_error *err)
{
    return plm_gpu_configure(plm_hip_driver.name, host, argument, ret_opts, err);
}

const struct plm_backend plm_hip_backend = {
    .name = "hip",
    .enumerate = hip_enumerate,
    .open = hip_open,
    .configure = hip_configure,
    PLM_GPU_ENTRIES,
};
