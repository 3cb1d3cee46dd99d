// SPDX-License-Identifier: Apache-2.0
// Entries of the contract that are no matter of their own.
#include "backends/gpudrv/impl.h"
#include "backends/panel/layout.h"
#include "backends/panel/pack.h"

const struct plm_caps *plm_gpu_caps(const struct plm_backend_device *dev)
{
    return &dev->caps;
}

int plm_gpu_weight_layout(const struct plm_backend_device *dev, enum plm_type type, uint32_t n_in,
                          uint32_t n_out, struct plm_weight_layout *ret)
{
    (void)dev;
    if ((plm_panel_type(type).backends & PLM_BACKENDS_GPU) == 0)
        return PLM_ERR_UNSUPPORTED;
    return plm_panel_weight_layout(type, n_in, n_out, ret);
}

void plm_gpu_weight_pack(const struct plm_backend_device *dev, enum plm_type type, uint32_t n_in,
                         uint32_t n_out, uint32_t first, uint32_t rows, const void *src, void *dst)
{
    (void)dev;
    plm_panel_weight_pack(type, n_in, n_out, first, rows, src, dst);
}

int plm_gpu_device_status(const struct plm_backend_device *dev)
{
    return atomic_load(&dev->lost) ? PLM_ERR_LOST : PLM_OK;
}

int plm_gpu_configure(const char *backend, struct plm_host *host, const char *argument,
                      const void **ret_opts, struct plm_error *err)
{
    struct plm_gpu_opts *opts = plm_calloc(host, PLM_HOST_DEVICE, 1, sizeof(*opts));
    if (opts == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "%s: no host memory for options", backend);
    int rc = plm_gpu_opts_parse(backend, argument, opts, err);
    if (rc != PLM_OK) {
        plm_free(host, opts);
        return rc;
    }
    *ret_opts = opts;
    return PLM_OK;
}

void plm_gpu_release(struct plm_host *host, const void *opts)
{
    plm_free(host, (void *)(uintptr_t)opts);
}
