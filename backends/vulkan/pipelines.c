// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/pipelines.h"

#include <string.h>
#include <xxhash.h>

#include "backends/vulkan/cache.h"
#include "backends/vulkan/device.h"
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/shaders.h"

// ---- the set of pipelines ----

// Where the kernel is, or would be put.
static uint32_t slot_of(const struct plm_vk_pipeline *slots, uint32_t n_slots,
                        const struct plm_vk_kernel *kernel)
{
    uint32_t i = (uint32_t)XXH3_64bits(kernel, sizeof(*kernel)) & (n_slots - 1);
    while (slots[i].handle != VK_NULL_HANDLE &&
           memcmp(&slots[i].kernel, kernel, sizeof(*kernel)) != 0)
        i = (i + 1) & (n_slots - 1);
    return i;
}

VkPipeline plm_vk_pipeline_find(const struct plm_vk_pipelines *p,
                                const struct plm_vk_kernel *kernel)
{
    return p->n == 0 ? VK_NULL_HANDLE : p->slots[slot_of(p->slots, p->n_slots, kernel)].handle;
}

static int reserve(struct plm_backend_device *dev, uint32_t n)
{
    struct plm_vk_pipelines *p = dev->pipelines;
    uint32_t n_slots = p->n_slots > 0 ? p->n_slots : 16;
    while (n_slots / 2 < n)
        n_slots *= 2;
    if (n_slots == p->n_slots)
        return PLM_OK;
    struct plm_vk_pipeline *slots = plm_calloc(dev->host, PLM_HOST_DEVICE, n_slots, sizeof(*slots));
    if (slots == NULL)
        return PLM_ERR_NOMEM_HOST;
    for (uint32_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].handle != VK_NULL_HANDLE)
            slots[slot_of(slots, n_slots, &p->slots[i].kernel)] = p->slots[i];
    plm_free(dev->host, p->slots);
    p->slots = slots;
    p->n_slots = n_slots;
    return PLM_OK;
}

// ---- one pipeline ----

// Whether fma() is one operation. llvmpipe takes it apart and reorders what is left.
static bool fuses(VkDriverId driver)
{
    return driver != VK_DRIVER_ID_MESA_LLVMPIPE;
}

static int make_pipeline(struct plm_backend_device *dev, const struct plm_vk_kernel *kernel,
                         VkShaderModule module, VkPipeline *ret)
{
    const uint32_t n_spec = plm_vk_kernel_specs(kernel);
    const uint32_t subgroup = plm_vk_kernel_subgroup(kernel);
    // The row's constants, and one that is the device's; modules without it do not mind.
    uint32_t values[PLM_VK_SPEC_MAX + 1];
    VkSpecializationMapEntry entries[PLM_VK_SPEC_MAX + 1];
    for (uint32_t i = 0; i <= n_spec; i++) {
        entries[i] = (VkSpecializationMapEntry){i < n_spec ? i : PLM_VK_SPEC_FUSED, i * 4, 4};
        values[i] = i < n_spec ? kernel->spec[i] : fuses(dev->physical.driver_id);
    }
    const VkSpecializationInfo spec = {n_spec + 1, entries, (n_spec + 1) * 4, values};
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = subgroup,
    };
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        // So that a dispatch that is too long for a watchdog can be cut.
        .flags = VK_PIPELINE_CREATE_DISPATCH_BASE_BIT,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = subgroup > 0 ? &size : NULL,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &spec},
        .layout = dev->pipelines->layout,
    };
    return plm_vk_status(dev, dev->vk->CreateComputePipelines(dev->handle, dev->pipelines->cache, 1,
                                                              &info, NULL, ret));
}

static int make(struct plm_backend_device *dev, const struct plm_vk_kernel *kernel, VkPipeline *ret)
{
    const struct plm_vk_shader *shader =
        &plm_vk_shaders[dev->pipelines->kernels.shader[kernel->row][kernel->type]];
    const VkShaderModuleCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = shader->bytes,
        .pCode = shader->words,
    };
    VkShaderModule module;
    int r = plm_vk_status(dev, dev->vk->CreateShaderModule(dev->handle, &info, NULL, &module));
    if (r != PLM_OK)
        return r;
    r = make_pipeline(dev, kernel, module, ret);
    dev->vk->DestroyShaderModule(dev->handle, module, NULL);
    return r;
}

// ---- those of a plan ----

struct making {
    struct plm_backend_device *dev;
    struct plm_error *err;
    uint32_t n; // kernels that the needs name
};

static int count_one(void *ctx, const struct plm_vk_kernel *kernel)
{
    (void)kernel;
    ((struct making *)ctx)->n++;
    return PLM_OK;
}

static int make_one(void *ctx, const struct plm_vk_kernel *kernel)
{
    struct making *m = ctx;
    struct plm_vk_pipelines *p = m->dev->pipelines;
    struct plm_vk_pipeline *slot = &p->slots[slot_of(p->slots, p->n_slots, kernel)];
    if (slot->handle != VK_NULL_HANDLE)
        return PLM_OK;
    VkPipeline handle;
    int r = make(m->dev, kernel, &handle);
    if (r != PLM_OK) {
        char name[PLM_VK_KERNEL_NAME_BYTES];
        plm_vk_kernel_name(kernel, name);
        return plm_fail(m->err, r, "%s: the driver could not make the kernel %s: %s",
                        m->dev->caps.name, name, plm_strstatus(r));
    }
    *slot = (struct plm_vk_pipeline){*kernel, handle};
    p->n++;
    return PLM_OK;
}

int plm_vk_pipelines_make(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                          struct plm_error *err)
{
    struct making m = {dev, err, dev->pipelines->n};
    plm_vk_kernels_each(&dev->pipelines->kernels, needs, count_one, &m);
    if (reserve(dev, m.n) != PLM_OK)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the pipelines");
    return plm_vk_kernels_each(&dev->pipelines->kernels, needs, make_one, &m);
}

// ---- life ----

int plm_vk_pipelines_create(struct plm_backend_device *dev, struct plm_vk_pipelines **ret,
                            struct plm_error *err)
{
    struct plm_vk_pipelines *p = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*p));
    if (p == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the pipelines");
    plm_vk_kernels_init(&p->kernels, dev->physical.needs_met, dev->opts.f16_math,
                        dev->physical.type == VK_PHYSICAL_DEVICE_TYPE_CPU &&
                            !dev->opts.gpu_kernels);
    const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, PLM_VK_PUSH_BYTES};
    const VkPipelineLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &range,
    };
    int r = plm_vk_status(dev, dev->vk->CreatePipelineLayout(dev->handle, &info, NULL, &p->layout));
    if (r != PLM_OK)
        plm_fail(err, r, "the driver could not make a pipeline layout: %s", plm_strstatus(r));
    else
        r = plm_vk_cache_open(dev, &p->cache, err);
    if (r != PLM_OK) {
        plm_vk_pipelines_destroy(dev, p);
        return r;
    }
    *ret = p;
    return PLM_OK;
}

void plm_vk_pipelines_destroy(struct plm_backend_device *dev, struct plm_vk_pipelines *p)
{
    if (p == NULL)
        return;
    for (uint32_t i = 0; i < p->n_slots; i++)
        dev->vk->DestroyPipeline(dev->handle, p->slots[i].handle, NULL);
    dev->vk->DestroyPipelineCache(dev->handle, p->cache, NULL);
    dev->vk->DestroyPipelineLayout(dev->handle, p->layout, NULL);
    plm_free(dev->host, p->slots);
    plm_free(dev->host, p);
}
