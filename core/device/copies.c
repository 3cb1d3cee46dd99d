// SPDX-License-Identifier: Apache-2.0
// Copies into live slabs and out of them.
#include "core/base/checked.h"
#include "core/device/impl.h"

int plm_device_copy_in(struct plm_device *d, uint64_t dst, const void *src, uint64_t bytes)
{
    if (plm_device_is_lost(d))
        return PLM_ERR_LOST;
    if (bytes == 0)
        return PLM_OK;
    if (src == NULL || !plm_device_range_is_live(d, dst, bytes))
        return PLM_ERR_INVALID;
    return plm_device_result(d, d->backend->copy_in(d->dev, dst, src, bytes));
}

int plm_device_copy_in_parts(struct plm_device *d, uint64_t dst, const struct plm_copy_part *parts,
                             uint32_t n)
{
    if (plm_device_is_lost(d))
        return PLM_ERR_LOST;
    uint64_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (parts[i].src == NULL || parts[i].at < end ||
            !plm_add_u64(parts[i].at, parts[i].bytes, &end))
            return PLM_ERR_INVALID;
    }
    if (end == 0)
        return PLM_OK;
    if (!plm_device_range_is_live(d, dst, end))
        return PLM_ERR_INVALID;
    if (d->backend->copy_in_parts != NULL)
        return plm_device_result(d, d->backend->copy_in_parts(d->dev, dst, parts, n));
    int r = PLM_OK;
    for (uint32_t i = 0; i < n && r == PLM_OK; i++)
        r = plm_device_copy_in(d, dst + parts[i].at, parts[i].src, parts[i].bytes);
    return r;
}

int plm_device_copy_out(struct plm_device *d, void *dst, uint64_t src, uint64_t bytes)
{
    if (plm_device_is_lost(d))
        return PLM_ERR_LOST;
    if (bytes == 0)
        return PLM_OK;
    if (dst == NULL || !plm_device_range_is_live(d, src, bytes))
        return PLM_ERR_INVALID;
    return plm_device_result(d, d->backend->copy_out(d->dev, dst, src, bytes));
}
