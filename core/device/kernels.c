// SPDX-License-Identifier: Apache-2.0
// Weights in a device's layout, its kernels, and which of them run.
#include <string.h>

#include "core/device/impl.h"

// ---- weights ----

int plm_device_weight_layout(const struct plm_device *d, enum plm_type type, uint32_t n_in,
                             uint32_t n_out, struct plm_weight_layout *ret)
{
    if (n_in == 0 || n_out == 0)
        return PLM_ERR_INVALID;
    if (d->dev == NULL)
        return PLM_ERR_LOST;
    return d->backend->weight_layout(d->dev, type, n_in, n_out, ret);
}

int plm_backend_weight_layout(const char *name, enum plm_type type, uint32_t n_in, uint32_t n_out,
                              struct plm_weight_layout *ret)
{
    const struct plm_backend *backend = plm_backend_find(name, strlen(name));
    if (backend == NULL)
        return PLM_ERR_NOT_FOUND;
    if (n_in == 0 || n_out == 0)
        return PLM_ERR_INVALID;
    return backend->weight_layout(NULL, type, n_in, n_out, ret);
}

void plm_device_weight_pack(const struct plm_device *d, enum plm_type type, uint32_t n_in,
                            uint32_t n_out, uint32_t first, uint32_t rows, const void *src,
                            void *dst)
{
    if (rows == 0 || first >= n_out || rows > n_out - first)
        return;
    d->backend->weight_pack(d->dev, type, n_in, n_out, first, rows, src, dst);
}

// ---- kernels ----

int plm_device_warm_up(struct plm_device *d, const struct plm_kernel_needs *needs,
                       struct plm_error *err)
{
    if (plm_device_is_lost(d))
        return plm_fail(err, PLM_ERR_LOST, "the device is lost");
    return plm_device_result(d, d->backend->warm_up(d->dev, needs, err));
}

static bool tunes(const struct plm_device *d)
{
    return d->dev != NULL && d->backend->variants != NULL && plm_device_caps(d)->tunes;
}

uint32_t plm_device_variants(const struct plm_device *d, enum plm_op op, const void *args,
                             char name[PLM_TUNING_NAME_BYTES])
{
    name[0] = '\0';
    return tunes(d) ? d->backend->variants(d->dev, op, args, name) : 1;
}

const char *plm_device_variant_name(const struct plm_device *d, enum plm_op op, uint32_t index)
{
    return tunes(d) ? d->backend->variant_name(d->dev, op, index) : NULL;
}

int plm_device_choose(struct plm_device *d, enum plm_op op, const void *args, uint32_t index)
{
    char name[PLM_TUNING_NAME_BYTES];
    if (plm_device_is_lost(d))
        return PLM_ERR_LOST;
    if (index >= plm_device_variants(d, op, args, name))
        return PLM_ERR_INVALID;
    return tunes(d) ? d->backend->choose(d->dev, op, args, index) : PLM_OK;
}
