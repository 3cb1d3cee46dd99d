// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda/cuda.h"

#include "backends/cuda/impl.h"
#include "backends/gpudrv/impl.h"

static int cuda_enumerate(struct plm_host *host, struct plm_device_desc *out, size_t cap,
                          size_t *ret_n, struct plm_error *err)
{
    return plm_gpu_enumerate(&plm_cuda_driver, host, out, cap, ret_n, err);
}

static int cuda_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                     struct plm_error *err)
{
    return plm_gpu_open(&plm_cuda_driver, opts, ret, err);
}

static int cuda_configure(struct plm_host *host, const char *argument, const void **ret_opts,
                          struct plm_error *err)
{
    return plm_gpu_configure(plm_cuda_driver.name, host, argument, ret_opts, err);
}

const struct plm_backend plm_cuda_backend = {
    .name = "cuda",
    .enumerate = cuda_enumerate,
    .open = cuda_open,
    .configure = cuda_configure,
    PLM_GPU_ENTRIES,
};
