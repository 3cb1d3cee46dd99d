// SPDX-License-Identifier: Apache-2.0
// What a device says of its memory, bounded by what can be.
#include "core/device/impl.h"

// Drivers report free > total, 0/0 and use beyond the device (reference: budget queries of Vulkan
// and of unified memory). What was impossible is bounded and no longer believed.
static void clamp_info(struct plm_mem_info *info)
{
    bool impossible = info->total_bytes == 0 || info->free_bytes > info->total_bytes ||
                      info->process_use_bytes > info->total_bytes;
    if (info->free_bytes > info->total_bytes)
        info->free_bytes = info->total_bytes;
    if (info->process_use_bytes > info->total_bytes)
        info->process_use_bytes = info->total_bytes;
    if (info->budget_bytes > info->total_bytes)
        info->budget_bytes = info->total_bytes;
    if (info->total_bytes == 0)
        info->confidence = PLM_CONFIDENCE_NONE;
    else if (impossible && info->confidence > PLM_CONFIDENCE_LOW)
        info->confidence = PLM_CONFIDENCE_LOW;
    if (info->source == NULL)
        info->source = "unnamed";
    if (info->n_cgroups > PLM_CGROUP_LEVELS)
        info->n_cgroups = PLM_CGROUP_LEVELS;
    for (uint32_t i = 0; i < info->n_cgroups; i++) {
        if (info->cgroups[i].reclaimable_bytes > info->cgroups[i].current_bytes)
            info->cgroups[i].reclaimable_bytes = info->cgroups[i].current_bytes;
    }
}

int plm_device_query_free(struct plm_device *d, struct plm_mem_info *ret)
{
    struct plm_mem_info info = {0};
    pthread_rwlock_rdlock(&d->dev_lock);
    int rc = plm_device_is_lost(d) ? PLM_ERR_LOST
                                   : plm_device_result(d, d->backend->query_free(d->dev, &info));
    pthread_rwlock_unlock(&d->dev_lock);
    if (rc != PLM_OK)
        return rc;
    clamp_info(&info);
    *ret = info;
    return PLM_OK;
}

int plm_device_empty_cache(struct plm_device *d, uint64_t *ret_released,
                           struct plm_mem_info *ret_info)
{
    if (plm_device_is_lost(d))
        return PLM_ERR_LOST;
    struct plm_mem_info info = {0};
    uint64_t released = 0;
    int rc = plm_device_result(d, d->backend->empty_cache(d->dev, &released, &info));
    if (rc != PLM_OK)
        return rc;
    clamp_info(&info);
    if (ret_released != NULL)
        *ret_released = released;
    if (ret_info != NULL)
        *ret_info = info;
    return PLM_OK;
}
