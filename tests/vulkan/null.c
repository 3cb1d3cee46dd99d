// SPDX-License-Identifier: Apache-2.0
// The driver of a scripted device (null.h). It takes the places of the driver's functions in the
// records of an instance and a device, so that the wrappers above it, with their rules and counts,
// do what they do above any driver. Instances, features, queues and command buffers stay real.
#include <stdlib.h>
#include <string.h>

#include "layer.h"
#include "tests/support/null_script.h"

#define HOST_HEAP_BYTES (UINT64_C(64) << 30)
#define ALIGN           256u
#define PAGE            4096u
// Addresses of host memory: above those of the script.
#define HOST_ADDRESS (UINT64_C(1) << 56)
// How long a look at a counter takes on the script's clock, so that one who only looks comes to an
// end.
#define LOOK_NS 1000
#define PENDING 16u // values of a semaphore that are to come; of more the oldest are there early
#define BUCKETS 256u

enum { TYPE_DEVICE, TYPE_HOST, TYPES };

struct memory {
    void *host; // or NULL
    void *own;  // the script's, where there is no host
    uint64_t address;
};

struct buffer {
    uint64_t bytes;
    const struct memory *memory;
    uint64_t offset;
};

struct semaphore {
    uint64_t value; // reached
    uint32_t n;
    struct {
        uint64_t value, ticket;
    } pending[PENDING];
};

struct copy {
    const struct buffer *from, *to;
    uint64_t from_offset, to_offset, bytes;
};

// What a command buffer holds.
struct commands {
    struct commands *next;
    VkCommandBuffer key;
    uint32_t dispatches;
    uint32_t n, cap;
    struct copy *copies;
};

struct null_device {
    const struct null_script *script;
    PFN_vkBeginCommandBuffer begin; // the driver's
    uint64_t next_address;          // of host memory
    uint64_t ticket;                // of the last submit
    struct commands *buckets[BUCKETS];
};

static const struct null_script *current;

void plm_vk_null_set(const struct null_script *script);

// ---- handles ----

#define HANDLE(Type, object) ((Type)(uintptr_t)(object))
#define OBJECT(Type, handle) ((struct Type *)(uintptr_t)(handle))

static struct null_device *null_of(const void *handle)
{
    return layer_device_of(handle)->null;
}

static VkResult result_of(enum null_result r)
{
    switch (r) {
    case NULL_OK: return VK_SUCCESS;
    case NULL_NO_ROOM: return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    case NULL_NOT_YET: return VK_TIMEOUT;
    case NULL_LOST: break;
    }
    return VK_ERROR_DEVICE_LOST;
}

// ---- physical devices ----

static VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice physical,
                                                    VkPhysicalDeviceMemoryProperties *ret)
{
    const struct null_script *script = layer_instance_of(physical)->null;
    *ret = (VkPhysicalDeviceMemoryProperties){
        .memoryTypeCount = TYPES,
        .memoryTypes = {[TYPE_DEVICE] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, TYPE_DEVICE},
                        [TYPE_HOST] = {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                           VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
                                           VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
                                       TYPE_HOST}},
        .memoryHeapCount = TYPES,
        .memoryHeaps = {[TYPE_DEVICE] = {script->heap_bytes, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                        [TYPE_HOST] = {HOST_HEAP_BYTES, 0}},
    };
}

static VKAPI_ATTR void VKAPI_CALL memory_properties2(VkPhysicalDevice physical,
                                                     VkPhysicalDeviceMemoryProperties2 *ret)
{
    const struct null_script *script = layer_instance_of(physical)->null;
    memory_properties(physical, &ret->memoryProperties);
    for (VkBaseOutStructure *at = ret->pNext; at != NULL; at = at->pNext) {
        VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)at;
        if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) {
            script->budget(script->ctx, &budget->heapBudget[TYPE_DEVICE],
                           &budget->heapUsage[TYPE_DEVICE]);
            budget->heapBudget[TYPE_HOST] = HOST_HEAP_BYTES;
        }
    }
}

// ---- memory ----

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice handle, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *callbacks,
                                               VkDeviceMemory *ret)
{
    (void)callbacks;
    struct null_device *null = null_of(handle);
    const uint64_t bytes = info->allocationSize;
    struct memory *memory = calloc(1, sizeof(*memory));
    enum null_result r = NULL_OK;
    if (memory != NULL && info->memoryTypeIndex == TYPE_HOST) {
        memory->host = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
        memory->address = null->next_address;
        null->next_address += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    } else if (memory != NULL) {
        r = null->script->allocate(null->script->ctx, bytes, &memory->address, &memory->own);
    }
    if (r != NULL_OK || memory == NULL || (memory->host == NULL && memory->own == NULL)) {
        free(memory);
        return r != NULL_OK ? result_of(r) : VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    *ret = HANDLE(VkDeviceMemory, memory);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice handle, VkDeviceMemory memory,
                                              const VkAllocationCallbacks *callbacks)
{
    (void)callbacks;
    const struct null_device *null = null_of(handle);
    struct memory *own = OBJECT(memory, memory);
    if (own != NULL && own->own != NULL) {
        null->script->free(null->script->ctx, own->own);
    }
    if (own != NULL) {
        free(own->host);
    }
    free(own);
}

static VKAPI_ATTR VkResult VKAPI_CALL map(VkDevice handle, VkDeviceMemory memory,
                                          VkDeviceSize offset, VkDeviceSize size,
                                          VkMemoryMapFlags flags, void **ret)
{
    (void)handle, (void)size, (void)flags;
    char *host = OBJECT(memory, memory)->host;
    *ret = host != NULL ? host + offset : NULL;
    return host != NULL ? VK_SUCCESS : VK_ERROR_MEMORY_MAP_FAILED;
}

// ---- buffers ----

static VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice handle, const VkBufferCreateInfo *info,
                                                    const VkAllocationCallbacks *callbacks,
                                                    VkBuffer *ret)
{
    (void)handle, (void)callbacks;
    struct buffer *buffer = calloc(1, sizeof(*buffer));
    if (buffer == NULL) {
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    buffer->bytes = info->size;
    *ret = HANDLE(VkBuffer, buffer);
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_buffer(VkDevice handle, VkBuffer buffer,
                                                 const VkAllocationCallbacks *callbacks)
{
    (void)handle, (void)callbacks;
    free(OBJECT(buffer, buffer));
}

static void require(uint64_t bytes, VkMemoryRequirements *ret)
{
    *ret = (VkMemoryRequirements){.size = (bytes + ALIGN - 1) / ALIGN * ALIGN,
                                  .alignment = ALIGN,
                                  .memoryTypeBits = (1u << TYPES) - 1};
}

static VKAPI_ATTR void VKAPI_CALL requirements2(VkDevice handle,
                                                const VkBufferMemoryRequirementsInfo2 *info,
                                                VkMemoryRequirements2 *ret)
{
    (void)handle;
    require(OBJECT(buffer, info->buffer)->bytes, &ret->memoryRequirements);
}

static VKAPI_ATTR void VKAPI_CALL device_requirements(VkDevice handle,
                                                      const VkDeviceBufferMemoryRequirements *info,
                                                      VkMemoryRequirements2 *ret)
{
    (void)handle;
    require(info->pCreateInfo->size, &ret->memoryRequirements);
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_memory(VkDevice handle, uint32_t n,
                                                  const VkBindBufferMemoryInfo *infos)
{
    (void)handle;
    for (uint32_t i = 0; i < n; i++) {
        struct buffer *buffer = OBJECT(buffer, infos[i].buffer);
        buffer->memory = OBJECT(memory, infos[i].memory);
        buffer->offset = infos[i].memoryOffset;
    }
    return VK_SUCCESS;
}

static VKAPI_ATTR VkDeviceAddress VKAPI_CALL address(VkDevice handle,
                                                     const VkBufferDeviceAddressInfo *info)
{
    (void)handle;
    const struct buffer *buffer = OBJECT(buffer, info->buffer);
    return buffer->memory->address + buffer->offset;
}

// ---- kernels ----

static VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice handle,
                                                    const VkShaderModuleCreateInfo *info,
                                                    const VkAllocationCallbacks *callbacks,
                                                    VkShaderModule *ret)
{
    (void)handle, (void)info, (void)callbacks;
    void *module = malloc(1);
    *ret = HANDLE(VkShaderModule, module);
    return module != NULL ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL destroy_module(VkDevice handle, VkShaderModule module,
                                                 const VkAllocationCallbacks *callbacks)
{
    (void)handle, (void)callbacks;
    free((void *)(uintptr_t)module);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice handle, VkPipelineCache cache,
                                                       uint32_t n,
                                                       const VkComputePipelineCreateInfo *infos,
                                                       const VkAllocationCallbacks *callbacks,
                                                       VkPipeline *ret)
{
    (void)cache, (void)infos, (void)callbacks;
    const struct null_script *script = null_of(handle)->script;
    VkResult result = VK_SUCCESS;
    for (uint32_t i = 0; i < n; i++) {
        const enum null_result r = script->pipeline(script->ctx);
        void *pipeline = r == NULL_OK ? malloc(1) : NULL;
        ret[i] = HANDLE(VkPipeline, pipeline);
        if (pipeline == NULL) {
            result = r != NULL_OK ? result_of(r) : VK_ERROR_OUT_OF_HOST_MEMORY;
        }
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_pipeline(VkDevice handle, VkPipeline pipeline,
                                                   const VkAllocationCallbacks *callbacks)
{
    (void)handle, (void)callbacks;
    free((void *)(uintptr_t)pipeline);
}

// ---- recording ----

// What is recorded in a command buffer; made where it is not known yet. NULL: no host memory.
static struct commands *commands_of(VkCommandBuffer key)
{
    struct commands **at = &null_of(key)->buckets[((uintptr_t)key >> 4) % BUCKETS];
    while (*at != NULL && (*at)->key != key) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        *at = calloc(1, sizeof(**at));
    }
    if (*at != NULL) {
        (*at)->key = key;
    }
    return *at;
}

static VKAPI_ATTR VkResult VKAPI_CALL begin(VkCommandBuffer buffer,
                                            const VkCommandBufferBeginInfo *info)
{
    struct commands *commands = commands_of(buffer);
    if (commands == NULL) {
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    }
    commands->dispatches = 0;
    commands->n = 0;
    return null_of(buffer)->begin(buffer, info);
}

static VKAPI_ATTR void VKAPI_CALL bind(VkCommandBuffer buffer, VkPipelineBindPoint point,
                                       VkPipeline pipeline)
{
    (void)buffer, (void)point, (void)pipeline;
}

static VKAPI_ATTR void VKAPI_CALL push(VkCommandBuffer buffer, VkPipelineLayout layout,
                                       VkShaderStageFlags stages, uint32_t offset, uint32_t bytes,
                                       const void *values)
{
    (void)buffer, (void)layout, (void)stages, (void)offset, (void)bytes, (void)values;
}

static VKAPI_ATTR void VKAPI_CALL barrier2(VkCommandBuffer buffer, const VkDependencyInfo *info)
{
    (void)buffer, (void)info;
}

static VKAPI_ATTR void VKAPI_CALL dispatch_base(VkCommandBuffer buffer, uint32_t x, uint32_t y,
                                                uint32_t z, uint32_t nx, uint32_t ny, uint32_t nz)
{
    (void)x, (void)y, (void)z, (void)nx, (void)ny, (void)nz;
    commands_of(buffer)->dispatches++;
}

static VKAPI_ATTR void VKAPI_CALL copy2(VkCommandBuffer buffer, const VkCopyBufferInfo2 *info)
{
    struct commands *commands = commands_of(buffer);
    for (uint32_t i = 0; i < info->regionCount; i++) {
        if (commands->n == commands->cap) {
            commands->cap = commands->cap > 0 ? 2 * commands->cap : 16;
            commands->copies = realloc(commands->copies, commands->cap * sizeof(struct copy));
            if (commands->copies == NULL) {
                abort(); // recording reports nothing, and a lost copy would look like a fault
            }
        }
        const VkBufferCopy2 *region = &info->pRegions[i];
        commands->copies[commands->n++] = (struct copy){.from = OBJECT(buffer, info->srcBuffer),
                                                        .to = OBJECT(buffer, info->dstBuffer),
                                                        .from_offset = region->srcOffset,
                                                        .to_offset = region->dstOffset,
                                                        .bytes = region->size};
    }
}

// ---- submits ----

static enum null_result run_copy(const struct null_script *script, const struct copy *copy)
{
    const struct memory *from = copy->from->memory, *to = copy->to->memory;
    const uint64_t from_offset = copy->from->offset + copy->from_offset;
    const uint64_t to_offset = copy->to->offset + copy->to_offset;
    if (from->host != NULL && to->host == NULL) {
        return script->copy_in(script->ctx, to->address + to_offset,
                               (const char *)from->host + from_offset, copy->bytes);
    }
    if (from->host == NULL && to->host != NULL) {
        return script->copy_out(script->ctx, (char *)to->host + to_offset,
                                from->address + from_offset, copy->bytes);
    }
    return NULL_OK; // within memory that has no bytes
}

static enum null_result run_buffers(const struct null_device *null, const VkSubmitInfo2 *info,
                                    uint32_t *io_dispatches)
{
    enum null_result r = NULL_OK;
    for (uint32_t i = 0; i < info->commandBufferInfoCount && r == NULL_OK; i++) {
        const struct commands *commands = commands_of(info->pCommandBufferInfos[i].commandBuffer);
        for (uint32_t k = 0; k < commands->n && r == NULL_OK; k++) {
            r = run_copy(null->script, &commands->copies[k]);
        }
        *io_dispatches += commands->dispatches;
    }
    return r;
}

static void signal_later(VkSemaphore handle, uint64_t value, uint64_t ticket)
{
    struct semaphore *semaphore = OBJECT(semaphore, handle);
    if (semaphore->n == PENDING) {
        semaphore->value = semaphore->pending[0].value;
        semaphore->n--;
        memmove(&semaphore->pending[0], &semaphore->pending[1],
                semaphore->n * sizeof(semaphore->pending[0]));
    }
    semaphore->pending[semaphore->n].value = value;
    semaphore->pending[semaphore->n++].ticket = ticket;
}

static VKAPI_ATTR VkResult VKAPI_CALL submit2(VkQueue queue, uint32_t n, const VkSubmitInfo2 *infos,
                                              VkFence fence)
{
    (void)fence;
    struct null_device *null = null_of(queue);
    uint32_t dispatches = 0;
    enum null_result r = NULL_OK;
    for (uint32_t i = 0; i < n && r == NULL_OK; i++) {
        r = run_buffers(null, &infos[i], &dispatches);
    }
    if (r == NULL_OK) {
        r = null->script->submit(null->script->ctx, dispatches, &null->ticket);
    }
    for (uint32_t i = 0; i < n && r == NULL_OK; i++) {
        for (uint32_t k = 0; k < infos[i].signalSemaphoreInfoCount; k++) {
            signal_later(infos[i].pSignalSemaphoreInfos[k].semaphore,
                         infos[i].pSignalSemaphoreInfos[k].value, null->ticket);
        }
    }
    return result_of(r);
}

static VKAPI_ATTR void VKAPI_CALL label(VkQueue queue, const VkDebugUtilsLabelEXT *info)
{
    const struct null_script *script = null_of(queue)->script;
    script->label(script->ctx, info->pLabelName);
}

// ---- timeline semaphores ----

static VKAPI_ATTR VkResult VKAPI_CALL create_semaphore(VkDevice handle,
                                                       const VkSemaphoreCreateInfo *info,
                                                       const VkAllocationCallbacks *callbacks,
                                                       VkSemaphore *ret)
{
    (void)handle, (void)info, (void)callbacks;
    struct semaphore *semaphore = calloc(1, sizeof(*semaphore));
    *ret = HANDLE(VkSemaphore, semaphore);
    return semaphore != NULL ? VK_SUCCESS : VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL destroy_semaphore(VkDevice handle, VkSemaphore semaphore,
                                                    const VkAllocationCallbacks *callbacks)
{
    (void)handle, (void)callbacks;
    free(OBJECT(semaphore, semaphore));
}

// Takes over the pending values that are there within the time; stops at the first that is not.
static enum null_result reach(const struct null_script *script, struct semaphore *semaphore,
                              uint64_t value, int64_t timeout_ns)
{
    uint32_t done = 0;
    enum null_result r = NULL_OK;
    while (done < semaphore->n && semaphore->value < value && r == NULL_OK) {
        r = script->wait(script->ctx, semaphore->pending[done].ticket, timeout_ns);
        if (r == NULL_OK) {
            semaphore->value = semaphore->pending[done++].value;
        }
    }
    semaphore->n -= done;
    memmove(&semaphore->pending[0], &semaphore->pending[done],
            semaphore->n * sizeof(semaphore->pending[0]));
    return r;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(VkDevice handle,
                                                      const VkSemaphoreWaitInfo *info,
                                                      uint64_t timeout)
{
    const struct null_script *script = null_of(handle)->script;
    const int64_t timeout_ns = timeout > INT64_MAX ? -1 : (int64_t)timeout;
    enum null_result r = NULL_OK;
    for (uint32_t i = 0; i < info->semaphoreCount && r == NULL_OK; i++) {
        struct semaphore *semaphore = OBJECT(semaphore, info->pSemaphores[i]);
        r = reach(script, semaphore, info->pValues[i], timeout_ns);
        if (r == NULL_OK && semaphore->value < info->pValues[i]) {
            r = NULL_NOT_YET; // nobody ever signals it
        }
    }
    return result_of(r);
}

static VKAPI_ATTR VkResult VKAPI_CALL counter(VkDevice handle, VkSemaphore handle_of, uint64_t *ret)
{
    const struct null_script *script = null_of(handle)->script;
    struct semaphore *semaphore = OBJECT(semaphore, handle_of);
    const enum null_result r = reach(script, semaphore, UINT64_MAX, LOOK_NS);
    *ret = semaphore->value;
    return r == NULL_LOST ? VK_ERROR_DEVICE_LOST : VK_SUCCESS;
}

// Nothing of it runs in the driver.
static VKAPI_ATTR VkResult VKAPI_CALL idle(VkDevice handle)
{
    (void)handle;
    return VK_SUCCESS;
}

// ---- life ----

__attribute__((visibility("default"))) void plm_vk_null_set(const struct null_script *script)
{
    current = script;
}

void null_instance(struct layer_instance *instance)
{
    instance->null = current;
    if (current != NULL) {
        instance->GetPhysicalDeviceMemoryProperties = memory_properties;
        instance->GetPhysicalDeviceMemoryProperties2 = memory_properties2;
    }
}

static void take_places(struct layer_device *device)
{
    device->AllocateMemory = allocate;
    device->FreeMemory = free_memory;
    device->MapMemory = map;
    device->CreateBuffer = create_buffer;
    device->DestroyBuffer = destroy_buffer;
    device->GetBufferMemoryRequirements2 = requirements2;
    device->GetDeviceBufferMemoryRequirements = device_requirements;
    device->BindBufferMemory2 = bind_memory;
    device->GetBufferDeviceAddress = address;
    device->CreateShaderModule = create_module;
    device->DestroyShaderModule = destroy_module;
    device->CreateComputePipelines = create_pipelines;
    device->DestroyPipeline = destroy_pipeline;
    device->BeginCommandBuffer = begin;
    device->CmdBindPipeline = bind;
    device->CmdPushConstants = push;
    device->CmdPipelineBarrier2 = barrier2;
    device->CmdDispatchBase = dispatch_base;
    device->CmdCopyBuffer2 = copy2;
    device->QueueSubmit2 = submit2;
    device->QueueInsertDebugUtilsLabelEXT = label;
    device->CreateSemaphore = create_semaphore;
    device->DestroySemaphore = destroy_semaphore;
    device->WaitSemaphores = wait_semaphores;
    device->GetSemaphoreCounterValue = counter;
    device->DeviceWaitIdle = idle;
}

VkResult null_device(struct layer_device *device)
{
    const struct null_script *script = device->instance->null;
    if (script == NULL) {
        return VK_SUCCESS;
    }
    const enum null_result r = script->open(script->ctx);
    struct null_device *null = r == NULL_OK ? calloc(1, sizeof(*null)) : NULL;
    if (null == NULL) {
        if (r == NULL_OK) {
            script->close(script->ctx);
        }
        return r == NULL_OK ? VK_ERROR_OUT_OF_HOST_MEMORY : result_of(r);
    }
    *null = (struct null_device){
        .script = script, .begin = device->BeginCommandBuffer, .next_address = HOST_ADDRESS};
    device->null = null;
    take_places(device);
    return VK_SUCCESS;
}

void null_device_gone(struct layer_device *device)
{
    struct null_device *null = device->null;
    if (null == NULL) {
        return;
    }
    for (uint32_t i = 0; i < BUCKETS; i++) {
        for (struct commands *at = null->buckets[i], *next; at != NULL; at = next) {
            next = at->next;
            free(at->copies);
            free(at);
        }
    }
    null->script->close(null->script->ctx);
    free(null);
}

// ---- what no other file wraps ----

static VKAPI_ATTR VkResult VKAPI_CALL bind_above(VkDevice handle, uint32_t n,
                                                 const VkBindBufferMemoryInfo *infos)
{
    return layer_device_of(handle)->BindBufferMemory2(handle, n, infos);
}

static VKAPI_ATTR VkDeviceAddress VKAPI_CALL address_above(VkDevice handle,
                                                           const VkBufferDeviceAddressInfo *info)
{
    return layer_device_of(handle)->GetBufferDeviceAddress(handle, info);
}

// Drivers have it not, but where a tool stands below.
static VKAPI_ATTR void VKAPI_CALL label_above(VkQueue queue, const VkDebugUtilsLabelEXT *info)
{
    const struct layer_device *device = layer_device_of(queue);
    if (device->QueueInsertDebugUtilsLabelEXT != NULL) {
        device->QueueInsertDebugUtilsLabelEXT(queue, info);
    }
}

const struct layer_wrapper null_wrappers[] = {
    WRAPPER("vkBindBufferMemory2", bind_above),
    WRAPPER("vkGetBufferDeviceAddress", address_above),
    WRAPPER("vkQueueInsertDebugUtilsLabelEXT", label_above),
    {NULL, NULL},
};
