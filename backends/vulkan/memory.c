// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "backends/vulkan/impl.h"
#include "core/base/checked.h"

// ---- buffers with memory ----

#define USAGE                                                                                      \
    (VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |                       \
     VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT)

VkBufferCreateInfo plm_vk_buffer_info(uint64_t bytes)
{
    return (VkBufferCreateInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                .size = bytes,
                                .usage = USAGE,
                                .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
}

// Binds fresh memory to the buffer, maps it where the host sees its type, and asks its address.
// import: what names memory that is there already, and m->host is it; or NULL.
static int allocate(struct plm_backend_device *dev, uint32_t type,
                    const VkImportMemoryHostPointerInfoEXT *import, struct plm_vk_memory *m)
{
    const struct plm_vk_fns *vk = dev->vk;
    const VkBufferMemoryRequirementsInfo2 ask = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_REQUIREMENTS_INFO_2, .buffer = m->buffer};
    VkMemoryRequirements2 needs = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2};
    vk->GetBufferMemoryRequirements2(dev->handle, &ask, &needs);
    m->taken = needs.memoryRequirements.size;
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .pNext = import,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = m->taken,
                                       .memoryTypeIndex = type};
    VkResult r = vk->AllocateMemory(dev->handle, &info, NULL, &m->memory);
    if (r != VK_SUCCESS)
        return plm_vk_status(dev, r);
    const VkBindBufferMemoryInfo bind = {.sType = VK_STRUCTURE_TYPE_BIND_BUFFER_MEMORY_INFO,
                                         .buffer = m->buffer,
                                         .memory = m->memory};
    r = vk->BindBufferMemory2(dev->handle, 1, &bind);
    if (r == VK_SUCCESS && import == NULL &&
        (dev->physical.memory.memoryTypes[type].propertyFlags &
         VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0)
        r = vk->MapMemory(dev->handle, m->memory, 0, VK_WHOLE_SIZE, 0, &m->host);
    if (r != VK_SUCCESS)
        return plm_vk_status(dev, r);
    const VkBufferDeviceAddressInfo at = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                          .buffer = m->buffer};
    m->addr = vk->GetBufferDeviceAddress(dev->handle, &at);
    return PLM_OK;
}

int plm_vk_memory_create(struct plm_backend_device *dev, uint32_t type, uint64_t bytes,
                         struct plm_vk_memory *ret)
{
    struct plm_vk_memory m = {0};
    const VkBufferCreateInfo info = plm_vk_buffer_info(bytes);
    VkResult r = dev->vk->CreateBuffer(dev->handle, &info, NULL, &m.buffer);
    if (r != VK_SUCCESS)
        return plm_vk_status(dev, r);
    int rc = allocate(dev, type, NULL, &m);
    if (rc != PLM_OK) {
        plm_vk_memory_destroy(dev, &m);
        return rc;
    }
    *ret = m;
    return PLM_OK;
}

// The first type that lets the device reach memory of the host.
static bool choose_import_type(struct plm_backend_device *dev, const void *ptr, uint32_t *ret)
{
    VkMemoryHostPointerPropertiesEXT props = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    if (dev->vk->GetMemoryHostPointerPropertiesEXT(
            dev->handle, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, ptr, &props) !=
        VK_SUCCESS)
        return false;
    for (uint32_t i = 0; i < dev->physical.memory.memoryTypeCount; i++) {
        if ((props.memoryTypeBits >> i & 1) != 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

// On a card of its own every read of such memory would cross the bus.
static int import(struct plm_backend_device *dev, void *ptr, uint64_t bytes,
                  struct plm_vk_memory *ret)
{
    const struct plm_vk_physical *p = &dev->physical;
    uint32_t type;
    if (!p->unified || p->import_align == 0)
        return PLM_ERR_UNSUPPORTED;
    if ((uintptr_t)ptr % p->import_align != 0 || bytes % p->import_align != 0)
        return PLM_ERR_INVALID;
    if (!choose_import_type(dev, ptr, &type))
        return PLM_ERR_UNSUPPORTED;
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
        .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT};
    const VkImportMemoryHostPointerInfoEXT info = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
        .pHostPointer = ptr};
    struct plm_vk_memory m = {.host = ptr};
    VkBufferCreateInfo buffer = plm_vk_buffer_info(bytes);
    buffer.pNext = &external;
    int rc = plm_vk_status(dev, dev->vk->CreateBuffer(dev->handle, &buffer, NULL, &m.buffer));
    if (rc == PLM_OK)
        rc = allocate(dev, type, &info, &m);
    if (rc != PLM_OK) {
        plm_vk_memory_destroy(dev, &m);
        return rc;
    }
    *ret = m;
    return PLM_OK;
}

void plm_vk_memory_destroy(struct plm_backend_device *dev, struct plm_vk_memory *m)
{
    dev->vk->DestroyBuffer(dev->handle, m->buffer, NULL);
    dev->vk->FreeMemory(dev->handle, m->memory, NULL);
    *m = (struct plm_vk_memory){0};
}

// ---- slabs ----

struct plm_vk_slab {
    struct plm_vk_memory memory;
    void *host;       // the same bytes for the caller, or NULL
    uint64_t charged; // to the device's own account
};

// Index of the first slab that starts above addr.
static size_t slab_above(const struct plm_vk_slabs *slabs, uint64_t addr)
{
    size_t lo = 0, hi = slabs->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (slabs->at[mid]->memory.addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool plm_vk_find(const struct plm_backend_device *dev, uint64_t addr, VkBuffer *ret_buffer,
                 uint64_t *ret_offset, void **ret_host)
{
    size_t above = slab_above(&dev->slabs, addr);
    if (above == 0)
        return false;
    const struct plm_vk_slab *slab = dev->slabs.at[above - 1];
    const struct plm_vk_memory *m = &slab->memory;
    if (addr - m->addr >= m->taken)
        return false;
    *ret_buffer = m->buffer;
    *ret_offset = addr - m->addr;
    *ret_host = slab->host;
    return true;
}

static bool reserve(struct plm_backend_device *dev)
{
    struct plm_vk_slabs *slabs = &dev->slabs;
    if (slabs->n < slabs->cap)
        return true;
    size_t cap = slabs->cap > 0 ? slabs->cap * 2 : 32;
    struct plm_vk_slab **moved =
        plm_realloc(dev->host, PLM_HOST_DEVICE, slabs->at, cap * sizeof(*moved));
    if (moved == NULL)
        return false;
    slabs->at = moved;
    slabs->cap = cap;
    return true;
}

static void insert(struct plm_vk_slabs *slabs, struct plm_vk_slab *slab)
{
    size_t at = slab_above(slabs, slab->memory.addr);
    memmove(&slabs->at[at + 1], &slabs->at[at], (slabs->n - at) * sizeof(slabs->at[0]));
    slabs->at[at] = slab;
    slabs->n++;
}

// What can be seen not to fit. Drivers that over-commit would find out at a submit.
static int judge(struct plm_backend_device *dev, uint64_t bytes)
{
    const uint64_t heap = dev->physical.heap_bytes;
    const uint64_t taken = atomic_load(&dev->taken_bytes);
    if (bytes > heap)
        return PLM_ERR_TOO_LARGE;
    if (taken > heap || bytes > heap - taken)
        return PLM_ERR_OUT_OF_DEVICE;
    return dev->physical.unified ? plm_hostmem_judge(&dev->machine, bytes) : PLM_OK;
}

// Takes fresh memory for a slab, really.
static int take(struct plm_backend_device *dev, uint32_t type, uint64_t bytes,
                struct plm_vk_memory *ret)
{
    struct plm_vk_memory m;
    int rc = plm_vk_memory_create(dev, type, bytes, &m);
    if (rc != PLM_OK)
        return rc;
    // A CPU driver's memory is malloc's: there when it was touched.
    if (dev->physical.type == VK_PHYSICAL_DEVICE_TYPE_CPU)
        rc = plm_hostmem_commit(&dev->machine, m.host, bytes, NULL, NULL);
    if (rc != PLM_OK) {
        plm_vk_memory_destroy(dev, &m);
        return rc;
    }
    *ret = m;
    return PLM_OK;
}

int plm_vk_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                 void *import_ptr, struct plm_slab *ret)
{
    const bool imported = kind == PLM_SLAB_IMPORTED; // stays the caller's: nothing is taken
    const struct plm_vk_types *types = &dev->physical.types;
    const uint32_t type = kind == PLM_SLAB_PINNED ? types->pinned : types->slab;
    const bool charged =
        !imported && dev->physical.memory.memoryTypes[type].heapIndex == types->heap;
    const uint64_t wanted = plm_round_up(bytes, dev->caps.granularity_bytes);
    int rc = charged ? judge(dev, wanted) : PLM_OK;
    if (rc != PLM_OK)
        return rc;
    struct plm_vk_slab *slab = plm_calloc(dev->host, PLM_HOST_DEVICE, 1, sizeof(*slab));
    if (slab == NULL || !reserve(dev)) {
        plm_free(dev->host, slab);
        return PLM_ERR_NOMEM_HOST;
    }
    rc = imported ? import(dev, import_ptr, bytes, &slab->memory)
                  : take(dev, type, wanted, &slab->memory);
    if (rc != PLM_OK) {
        plm_free(dev->host, slab);
        return rc;
    }
    const uint64_t taken =
        imported ? 0 : plm_round_up(slab->memory.taken, dev->caps.granularity_bytes);
    slab->charged = charged ? taken : 0;
    atomic_fetch_add(&dev->taken_bytes, slab->charged);
    insert(&dev->slabs, slab);
    if (imported || kind == PLM_SLAB_PINNED || dev->slabs_mapped)
        slab->host = slab->memory.host;
    *ret = (struct plm_slab){.addr = slab->memory.addr,
                             .bytes = bytes,
                             .taken_bytes = taken,
                             .host = slab->host,
                             .kind = kind,
                             .impl = slab};
    return PLM_OK;
}

// ---- the way back ----

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

// Before a slab is freed.
static void note_free(struct plm_backend_device *dev)
{
    if (!dev->freed)
        dev->beside = use_beside(dev);
    dev->freed = true;
    dev->freed_ns = plm_now(dev->clock);
}

void plm_vk_free(struct plm_backend_device *dev, struct plm_slab *slab)
{
    note_free(dev);
    struct plm_vk_slab *own = slab->impl;
    struct plm_vk_slabs *slabs = &dev->slabs;
    plm_vk_staging_forget(dev, own->memory.addr, own->memory.taken);
    // No step in flight uses the slab, but a copy may, and a step that was given up as hung.
    plm_vk_settle(dev);
    const size_t above = slab_above(slabs, own->memory.addr);
    memmove(&slabs->at[above - 1], &slabs->at[above], (slabs->n - above) * sizeof(slabs->at[0]));
    slabs->n--;
    plm_vk_memory_destroy(dev, &own->memory);
    atomic_fetch_sub(&dev->taken_bytes, own->charged);
    plm_free(dev->host, own);
    // malloc may keep what a CPU driver freed.
    if (dev->physical.type == VK_PHYSICAL_DEVICE_TYPE_CPU)
        plm_host_trim();
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
