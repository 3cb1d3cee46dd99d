// SPDX-License-Identifier: Apache-2.0
// What is created and destroyed beside memory: counted, and refused where a rule says so.
#include "account.h"
#include "faults.h"
#include "layer.h"

// Each kind differs in its types and counters alone.
#define OBJECT(Name, Info, Handle, place, counter)                                                 \
    static VKAPI_ATTR VkResult VKAPI_CALL create_##Name(                                           \
        VkDevice handle, const Info *info, const VkAllocationCallbacks *callbacks, Handle *ret)    \
    {                                                                                              \
        VkResult result = faults_result(place, 0);                                                 \
        if (result == VK_SUCCESS) {                                                                \
            result = layer_device_of(handle)->Create##Name(handle, info, callbacks, ret);          \
        }                                                                                          \
        account_add(ACCOUNT_##counter##_created, result == VK_SUCCESS);                            \
        return result;                                                                             \
    }                                                                                              \
    static VKAPI_ATTR void VKAPI_CALL destroy_##Name(VkDevice handle, Handle object,               \
                                                     const VkAllocationCallbacks *callbacks)       \
    {                                                                                              \
        layer_device_of(handle)->Destroy##Name(handle, object, callbacks);                         \
        account_add(ACCOUNT_##counter##_destroyed, object != VK_NULL_HANDLE);                      \
    }

OBJECT(ShaderModule, VkShaderModuleCreateInfo, VkShaderModule, PLACE_SHADER, shader_modules)
OBJECT(PipelineLayout, VkPipelineLayoutCreateInfo, VkPipelineLayout, PLACE_PIPELINE_LAYOUT,
       pipeline_layouts)
OBJECT(PipelineCache, VkPipelineCacheCreateInfo, VkPipelineCache, PLACE_CACHE, pipeline_caches)
OBJECT(Semaphore, VkSemaphoreCreateInfo, VkSemaphore, PLACE_SEMAPHORE, semaphores)
OBJECT(Fence, VkFenceCreateInfo, VkFence, PLACE_FENCE, fences)
OBJECT(QueryPool, VkQueryPoolCreateInfo, VkQueryPool, PLACE_QUERY, query_pools)

// A failed one leaves nothing behind: each pipeline is created alone, so that a rule can strike the
// n-th of a call that makes many.
static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice handle, VkPipelineCache cache,
                                                       uint32_t n,
                                                       const VkComputePipelineCreateInfo *infos,
                                                       const VkAllocationCallbacks *callbacks,
                                                       VkPipeline *ret)
{
    const struct layer_device *device = layer_device_of(handle);
    VkResult first = VK_SUCCESS;
    for (uint32_t i = 0; i < n; i++) {
        VkResult result = faults_result(PLACE_PIPELINE, 0);
        ret[i] = VK_NULL_HANDLE;
        if (result == VK_SUCCESS) {
            result =
                device->CreateComputePipelines(handle, cache, 1, &infos[i], callbacks, &ret[i]);
        }
        account_add(ACCOUNT_pipelines_created, result == VK_SUCCESS);
        first = first == VK_SUCCESS ? result : first;
    }
    return first;
}

static VKAPI_ATTR void VKAPI_CALL destroy_pipeline(VkDevice handle, VkPipeline pipeline,
                                                   const VkAllocationCallbacks *callbacks)
{
    layer_device_of(handle)->DestroyPipeline(handle, pipeline, callbacks);
    account_add(ACCOUNT_pipelines_destroyed, pipeline != VK_NULL_HANDLE);
}

#define OBJECT_WRAPPERS(Name)                                                                      \
    WRAPPER("vkCreate" #Name, create_##Name), WRAPPER("vkDestroy" #Name, destroy_##Name)

const struct layer_wrapper object_wrappers[] = {
    OBJECT_WRAPPERS(ShaderModule),
    OBJECT_WRAPPERS(PipelineLayout),
    OBJECT_WRAPPERS(PipelineCache),
    OBJECT_WRAPPERS(Semaphore),
    OBJECT_WRAPPERS(Fence),
    OBJECT_WRAPPERS(QueryPool),
    WRAPPER("vkCreateComputePipelines", create_pipelines),
    WRAPPER("vkDestroyPipeline", destroy_pipeline),
    {NULL, NULL},
};
