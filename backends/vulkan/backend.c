// SPDX-License-Identifier: Apache-2.0

#include "backends/vulkan/vulkan.h"

#include <inttypes.h>
#include <stdio.h>

#include "backends/panel/layout.h"
#include "backends/panel/pack.h"
#include "backends/vulkan/device.h"
#include "backends/vulkan/instance.h"
#include "backends/vulkan/list.h"
#include "backends/vulkan/open.h"
#include "backends/vulkan/readings.h"
#include "backends/vulkan/slabs.h"
#include "backends/vulkan/staging.h"
#include "backends/vulkan/variants.h"
#include "backends/vulkan/warm.h"

// Says of each device that cannot be used what it lacks, as far as there is room.
static void fail_unusable(const struct plm_vk_described *list, uint32_t n, struct plm_error *err)
{
    char text[PLM_ERROR_MSG_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < n && used < sizeof(text); i++) {
        const int len =
            snprintf(text + used, sizeof(text) - used, "%s%s cannot be used: it lacks %s",
                     i > 0 ? "; " : "", list[i].physical.name, list[i].missing);
        used += len > 0 ? (size_t)len : 0;
    }
    plm_fail(err, PLM_ERR_UNSUPPORTED, "vulkan: %s", text);
}

static int vulkan_enumerate(struct plm_host *host, struct plm_device_desc *out, size_t cap,
                            size_t *ret_n, struct plm_error *err)
{
    struct plm_vk_instance instance;
    int rc = plm_vk_instance_open(&instance, err);
    if (rc != PLM_OK)
        return rc;
    struct plm_vk_described *list;
    uint32_t n;
    rc = plm_vk_physical_list(&instance, host, &list, &n, err);
    if (rc == PLM_OK) {
        uint32_t usable = 0; // these come first
        for (; usable < n && list[usable].missing[0] == '\0'; usable++) {
            if (usable >= cap)
                continue;
            const struct plm_vk_physical *physical = &list[usable].physical;
            snprintf(out[usable].id, sizeof(out[usable].id), "vulkan:%" PRIu32, usable);
            snprintf(out[usable].name, sizeof(out[usable].name), "%s", physical->name);
            out[usable].total_bytes = physical->heap_bytes;
        }
        if (usable < n)
            fail_unusable(&list[usable], n - usable, err);
        *ret_n = usable;
        plm_free(host, list);
    }
    plm_vk_instance_close(&instance);
    return rc;
}

static const struct plm_caps *vulkan_caps(const struct plm_backend_device *dev)
{
    return &dev->caps;
}

static int vulkan_empty_cache(struct plm_backend_device *dev, uint64_t *ret_released,
                              struct plm_mem_info *ret_info)
{
    const uint64_t released = plm_vk_staging_trim(dev);
    plm_vk_await_frees(dev);
    plm_host_trim(dev->host);
    int rc = plm_vk_query_free(dev, ret_info);
    if (rc == PLM_OK)
        *ret_released = released;
    return rc;
}

static int vulkan_weight_layout(const struct plm_backend_device *dev, enum plm_type type,
                                uint32_t n_in, uint32_t n_out, struct plm_weight_layout *ret)
{
    // Without a device, for a plan, any that runs Vulkan 1.3.
    if (!plm_vk_multiplies(dev != NULL ? dev->physical.needs_met : UINT32_MAX, type))
        return PLM_ERR_UNSUPPORTED;
    return plm_panel_weight_layout(type, n_in, n_out, ret);
}

static void vulkan_weight_pack(const struct plm_backend_device *dev, enum plm_type type,
                               uint32_t n_in, uint32_t n_out, uint32_t first, uint32_t rows,
                               const void *src, void *dst)
{
    (void)dev;
    plm_panel_weight_pack(type, n_in, n_out, first, rows, src, dst);
}

static int vulkan_status(const struct plm_backend_device *dev)
{
    return atomic_load(&dev->lost) ? PLM_ERR_LOST : PLM_OK;
}

// Names the phases in a profiler's trace of the queue.
static void vulkan_mark(struct plm_backend_device *dev, enum plm_phase phase, uint64_t step)
{
    static const char *const names[PLM_PHASES] = {
#define X(NAME, name) name,
        PLM_PHASE_LIST(X)
#undef X
    };
    if (dev->vk->QueueInsertDebugUtilsLabelEXT == NULL)
        return;
    char text[48];
    if (step > 0)
        snprintf(text, sizeof(text), "plimsoll: step %" PRIu64, step);
    else
        snprintf(text, sizeof(text), "plimsoll: %s", names[phase]);
    const VkDebugUtilsLabelEXT label = {.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT,
                                        .pLabelName = text};
    dev->vk->QueueInsertDebugUtilsLabelEXT(dev->queue, &label);
}

static int vulkan_configure(struct plm_host *host, const char *argument, const void **ret_opts,
                            struct plm_error *err)
{
    struct plm_vk_opts *opts = plm_calloc(host, PLM_HOST_DEVICE, 1, sizeof(*opts));
    if (opts == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "vulkan: no host memory for options");
    int rc = plm_vk_opts_parse(argument, opts, err);
    if (rc != PLM_OK) {
        plm_free(host, opts);
        return rc;
    }
    *ret_opts = opts;
    return PLM_OK;
}

static void vulkan_release(struct plm_host *host, const void *opts)
{
    plm_free(host, (void *)(uintptr_t)opts);
}

const struct plm_backend plm_vulkan_backend = {
    .name = "vulkan",
    .enumerate = vulkan_enumerate,
    .open = plm_vk_open,
    .close = plm_vk_close,
    .caps = vulkan_caps,
    .alloc = plm_vk_alloc,
    .free = plm_vk_free,
    .query_free = plm_vk_query_free,
    .empty_cache = vulkan_empty_cache,
    .weight_layout = vulkan_weight_layout,
    .weight_pack = vulkan_weight_pack,
    .warm_up = plm_vk_warm_up,
    .launch = plm_vk_launch,
    .barrier = plm_vk_barrier,
    .submit = plm_vk_submit,
    .discard = plm_vk_discard,
    .wait = plm_vk_wait,
    .copy_in = plm_vk_copy_in,
    .copy_out = plm_vk_copy_out,
    .status = vulkan_status,
    .variants = plm_vk_variants,
    .variant_name = plm_vk_variant_name,
    .choose = plm_vk_choose,
    .mark = vulkan_mark,
    .configure = vulkan_configure,
    .release = vulkan_release,
};
