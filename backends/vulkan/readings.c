// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/readings.h"

#include <string.h>

#include "backends/vulkan/device.h"
#include "backends/vulkan/instance.h"

// ---- until what was freed is free ----

// vkFreeMemory may return before the driver counts the memory as free. What is still counted after
// this time is not ours.
#define FREES_NS     INT64_C(2000000000)
#define FREES_NAP_NS INT64_C(5000000)

// Both 0 where the driver has no VK_EXT_memory_budget.
static void read_budget(const struct plm_backend_device *dev, uint64_t *ret_budget,
                        uint64_t *ret_usage)
{
    const struct plm_vk_physical *p = &dev->physical;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 props = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
    if (p->memory_budget)
        dev->vk->GetPhysicalDeviceMemoryProperties2(p->handle, &props);
    *ret_budget = budget.heapBudget[p->types.heap];
    *ret_usage = budget.heapUsage[p->types.heap];
}

// What the driver counts for this process beyond our own account. 0: it does not tell, or nothing
// that can be true.
static uint64_t use_beside(const struct plm_backend_device *dev)
{
    uint64_t budget, usage;
    read_budget(dev, &budget, &usage);
    const uint64_t own = atomic_load(&dev->taken_bytes);
    return budget > 0 && usage > own && usage <= dev->physical.heap_bytes ? usage - own : 0;
}

void plm_vk_await_frees(struct plm_backend_device *dev)
{
    const int64_t until = dev->freed_ns + FREES_NS;
    while (dev->freed && use_beside(dev) > dev->beside && plm_now(dev->clock) < until)
        dev->clock->sleep_ns(dev->clock->ctx, FREES_NAP_NS);
    dev->freed = false;
}

void plm_vk_note_free(struct plm_backend_device *dev)
{
    if (!dev->freed)
        dev->beside = use_beside(dev);
    dev->freed = true;
    dev->freed_ns = plm_now(dev->clock);
}

// ---- readings ----

void plm_vk_read_heap(const struct plm_vk_heap *heap, struct plm_mem_info *ret)
{
    const bool believed = heap->has_budget && heap->budget > 0 && heap->budget <= heap->bytes &&
                          heap->usage <= heap->bytes;
    uint64_t used = heap->usage, budget = heap->budget;
    // Less than our own slabs: they were pushed out where the budget is below them, too; else the
    // reading is from before they were taken, and is shown as late as it is. One of nothing says
    // nothing.
    if (used == 0 || used > heap->bytes || (used < heap->own && budget < heap->own))
        used = heap->own < heap->bytes ? heap->own : heap->bytes;
    if (budget == 0 || budget > heap->bytes)
        budget = heap->bytes;
    *ret = (struct plm_mem_info){
        .total_bytes = heap->bytes,
        .free_bytes = budget > used ? budget - used : 0,
        .process_use_bytes = used,
        .budget_bytes = heap->has_budget ? budget : 0,
        .source = heap->has_budget ? "VK_EXT_memory_budget" : "heap size less own slabs",
        .confidence = believed ? PLM_CONFIDENCE_MEDIUM : PLM_CONFIDENCE_LOW,
    };
}

int plm_vk_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret)
{
    const struct plm_vk_physical *p = &dev->physical;
    struct plm_vk_heap heap = {.bytes = p->heap_bytes,
                               .has_budget = p->memory_budget,
                               .own = atomic_load(&dev->taken_bytes)};
    read_budget(dev, &heap.budget, &heap.usage);
    struct plm_mem_info info;
    plm_vk_read_heap(&heap, &info);
    if (p->unified) {
        struct plm_mem_info machine;
        int rc = plm_hostmem_query(&dev->machine, &machine);
        if (rc != PLM_OK)
            return rc;
        plm_vk_read_unified(&machine, p->type == VK_PHYSICAL_DEVICE_TYPE_CPU, &info);
    }
    *ret = info;
    return PLM_OK;
}

void plm_vk_read_unified(const struct plm_mem_info *machine, bool cpu, struct plm_mem_info *info)
{
    if (machine->total_bytes < info->total_bytes)
        info->total_bytes = machine->total_bytes;
    if (machine->free_bytes < info->free_bytes) {
        info->free_bytes = machine->free_bytes;
        info->source = machine->source;
        info->confidence = machine->confidence;
    }
    if (cpu)
        info->process_use_bytes = machine->process_use_bytes;
    info->n_cgroups = machine->n_cgroups;
    memcpy(info->cgroups, machine->cgroups, sizeof(info->cgroups));
}
