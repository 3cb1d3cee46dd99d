// SPDX-License-Identifier: Apache-2.0
// Inside the Vulkan backend. Its files, from the driver upwards:
//   loader.c     libvulkan opened at run time, function tables
//   instance.c   the instance; physical devices, described and judged (what is missing, by name)
//   select.c     which device is meant (its options: backends/shared/card_opts.h)
//   coopmat.c    cooperative matrices: what the driver lists
//   types.c      memory types by role: pure
//   device.c     what all that follow use of an opened device: results, timelines, commands
//   memory.c     buffers with memory of their own
//   readings.c   what is free
//   staging.c    rings for memory that the host does not see
//   slabs.c      slabs; copies into them and out of them
//   kernels.c    from an op's arguments to the kernel that runs it and its grid: pure
//   variants.c   which of several kernels of the same bits an op runs: pure but for the choices
//   split.c      what a dispatch costs, and how a list is cut for a watchdog: pure
//   pipelines.c  the pipelines of a plan, specialised
//   warm.c       warm-up: every kernel is made and run once
//   cache.c      the pipeline cache's file
//   list.c       the open list: appended, recorded, submitted again where it is the same
//   open.c       opens and closes all of it; capabilities
//   backend.c    the table of the contract
#ifndef PLM_VULKAN_IMPL_H
#define PLM_VULKAN_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "backends/hostmem/hostmem.h"
#include "backends/shared/card_opts.h"
#include "backends/shared/choices.h"
#include "backends/shared/which.h"
#include "core/backend.h"

// ---- loader.c ----

// Entry points by who resolves them: X(name) without the vk.
// clang-format off
#define PLM_VK_GLOBAL(X) \
    X(CreateInstance) X(EnumerateInstanceVersion) X(EnumerateInstanceExtensionProperties)
#define PLM_VK_INSTANCE(X) \
    X(DestroyInstance) X(EnumeratePhysicalDevices) X(GetPhysicalDeviceProperties2) \
    X(GetPhysicalDeviceFeatures2) X(GetPhysicalDeviceMemoryProperties2) \
    X(GetPhysicalDeviceQueueFamilyProperties2) X(EnumerateDeviceExtensionProperties) \
    X(CreateDevice) X(GetDeviceProcAddr)
#define PLM_VK_DEVICE(X) \
    X(DestroyDevice) X(GetDeviceQueue) X(AllocateMemory) X(FreeMemory) X(MapMemory) \
    X(CreateBuffer) X(DestroyBuffer) X(GetBufferMemoryRequirements2) \
    X(GetDeviceBufferMemoryRequirements) X(BindBufferMemory2) X(GetBufferDeviceAddress) \
    X(CreateSemaphore) X(DestroySemaphore) X(WaitSemaphores) X(GetSemaphoreCounterValue) \
    X(CreateCommandPool) X(DestroyCommandPool) X(ResetCommandPool) X(AllocateCommandBuffers) \
    X(BeginCommandBuffer) X(EndCommandBuffer) X(CmdBindPipeline) X(CmdPushConstants) \
    X(CmdDispatchBase) X(CmdPipelineBarrier2) X(CmdCopyBuffer2) X(QueueSubmit2) \
    X(DeviceWaitIdle) X(CreateShaderModule) X(DestroyShaderModule) X(CreatePipelineLayout) \
    X(DestroyPipelineLayout) X(CreateComputePipelines) X(DestroyPipeline) X(CreatePipelineCache) \
    X(DestroyPipelineCache) X(GetPipelineCacheData)
// Absent without their extensions.
#define PLM_VK_OPTIONAL(X) \
    X(GetMemoryHostPointerPropertiesEXT) X(QueueInsertDebugUtilsLabelEXT)
// clang-format on

struct plm_vk_fns {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
#define X(name) PFN_vk##name name;
    PLM_VK_GLOBAL(X)
    PLM_VK_INSTANCE(X)
    PLM_VK_DEVICE(X)
    PLM_VK_OPTIONAL(X)
#undef X
};

extern const char *const plm_vk_loader_names[]; // tried in this order; ended by NULL

// Opens the first of the names that is there and resolves the global functions. NOT_FOUND: none.
int plm_vk_loader_open(const char *const *names, void **ret_library, struct plm_vk_fns *ret,
                       struct plm_error *err);
void plm_vk_loader_close(void *library);

// ---- instance.c ----

// An opened loader and instance. Where one cannot be had, the error says what is missing.
struct plm_vk_instance {
    void *library;
    VkInstance handle;
    struct plm_vk_fns vk;
};

int plm_vk_instance_open(struct plm_vk_instance *ret, struct plm_error *err);
void plm_vk_instance_close(struct plm_vk_instance *instance);
// Resolve the functions of an instance and of a device (loader.c).
int plm_vk_instance_functions(struct plm_vk_instance *instance, struct plm_error *err);
int plm_vk_device_functions(struct plm_vk_fns *vk, VkDevice device, struct plm_error *err);
bool plm_vk_has_extension(const VkExtensionProperties *list, uint32_t n, const char *name);

// Features that every device must have, all of them enabled: X(part of struct plm_vk_features,
// name).
#define PLM_VK_FEATURES(X)                                                                         \
    X(core.features, shaderInt16)                                                                  \
    X(core.features, shaderInt64)                                                                  \
    X(v11, storageBuffer16BitAccess)                                                               \
    X(v12, storageBuffer8BitAccess)                                                                \
    X(v12, shaderInt8)                                                                             \
    X(v12, scalarBlockLayout)                                                                      \
    X(v12, timelineSemaphore)                                                                      \
    X(v12, bufferDeviceAddress)                                                                    \
    X(v13, synchronization2)                                                                       \
    X(v13, subgroupSizeControl)                                                                    \
    X(v13, maintenance4)

struct plm_vk_features {
    VkPhysicalDeviceFeatures2 core;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceVulkan13Features v13;
};
// Zeroed and linked, to be asked with or enabled; it must not be moved afterwards.
void plm_vk_features_chain(struct plm_vk_features *ret);

// ---- memory types (types.c) ----

// Memory types by role.
struct plm_vk_types {
    uint32_t heap;    // that slabs come from
    uint32_t slab;    // DEVICE and ELASTIC
    bool slab_cached; // the host sees slabs, and reads them through its caches
    uint32_t pinned;  // PINNED and rings: host memory
};
// allowed: mask of the types that buffers may lie in; unified: the device's memory is the host's.
// False: no heap for slabs, or no memory that the host can write.
bool plm_vk_choose_types(const VkPhysicalDeviceMemoryProperties *memory, uint32_t allowed,
                         bool unified, struct plm_vk_types *ret);

// ---- instance.c: physical devices ----

#define PLM_VK_DEVICES_MAX 16 // more than any one machine has

// A physical device as far as it matters before it is opened.
struct plm_vk_physical {
    VkPhysicalDevice handle;
    char name[64];
    char uuid[40];
    char driver[64]; // name and version
    uint32_t vendor_id, device_id, driver_version;
    VkPhysicalDeviceType type;
    VkDriverId driver_id;
    uint32_t queue_family; // with compute; of those the one with the fewest other uses
    bool subgroups_of_32;  // compute shaders may ask for them
    VkPhysicalDeviceLimits limits;
    uint64_t max_allocation_bytes; // maxMemoryAllocationSize
    uint64_t max_buffer_bytes;
    VkPhysicalDeviceMemoryProperties memory;
    struct plm_vk_types types;
    uint64_t heap_bytes;                             // of the heap that slabs come from
    bool unified;                                    // integrated or CPU: its memory is the host's
    uint32_t needs_met;                              // mask of PLM_VK_NEEDS_x of shaders.h
    bool memory_budget, overallocation, host_import; // extensions
    uint64_t import_align; // of host memory that is given to the device; 0: it takes none
    bool coopmat;          // VK_KHR_cooperative_matrix
    uint8_t cache_uuid[VK_UUID_SIZE];
};

// missing: what a device that cannot be used lacks, all of it by name; "" where it can be used.
struct plm_vk_judged {
    struct plm_vk_physical physical;
    char missing[512];
};
// The caller frees *ret. Usable devices come first, GPUs before CPU drivers. NOT_FOUND: no driver.
int plm_vk_physical_list(const struct plm_vk_instance *instance, struct plm_host *host,
                         struct plm_vk_judged **ret, uint32_t *ret_n, struct plm_error *err);

void plm_vk_physical_sort(struct plm_vk_judged *list, uint32_t n);
// The device that the options name (select.c). NOT_FOUND: the error lists what there is.
int plm_vk_select(const struct plm_vk_opts *opts, const struct plm_vk_judged *list, uint32_t n,
                  uint32_t *ret, struct plm_error *err);

// ---- the device ----

#define PLM_VK_PUSH_BYTES 128 // push constants that every driver has

struct plm_vk_pipelines; // pipelines.c
struct plm_vk_list;      // list.c
struct plm_vk_staging;   // staging.c

// Live slabs by address, for copies.
struct plm_vk_slab;
struct plm_vk_slabs {
    struct plm_vk_slab **at;
    size_t n, cap;
};

// Each grows by one with a submit.
struct plm_vk_timeline {
    VkSemaphore semaphore;
    uint64_t value; // as last submitted
};

struct plm_backend_device {
    struct plm_host *host;
    const struct plm_clock *clock;
    const struct plm_log *log;
    struct plm_vk_opts opts;
    struct plm_vk_instance instance;
    struct plm_vk_fns *vk; // instance.vk, with the device's entry points
    struct plm_vk_physical physical;
    struct plm_caps caps;
    VkDevice handle;
    VkQueue queue;
    struct plm_vk_timeline timeline; // of lists: the values that the contract counts
    struct plm_vk_timeline copies;   // of copies that travel apart from a list, so that the
                                     // contract's values grow by one a list
    bool slabs_mapped;               // slabs are seen by the host; there are no rings
    struct plm_hostmem machine;      // where unified
    _Atomic uint64_t taken_bytes;    // in slabs and rings: our own account of the slabs' heap
    // Slabs were freed since the last plm_vk_await_frees; what the driver counted beside our own
    // before that, and when the last one was freed.
    bool freed;
    uint64_t beside;
    int64_t freed_ns;
    atomic_bool lost;
    struct plm_vk_slabs slabs;
    struct plm_vk_staging *staging;
    struct plm_vk_pipelines *pipelines;
    struct plm_vk_list *list;
};

// ---- device.c ----

// Maps a result to a status; DEVICE_LOST becomes sticky.
int plm_vk_status(struct plm_backend_device *dev, VkResult result);
int plm_vk_timeline_create(struct plm_backend_device *dev, VkSemaphore *ret);
// PLM_OK, TIMEOUT, LOST; timeout_ns < 0: no limit.
int plm_vk_timeline_wait(struct plm_backend_device *dev, VkSemaphore timeline, uint64_t value,
                         int64_t timeout_ns);
// The same with the longest time that anything takes: a device that does not end it is lost.
int plm_vk_finish(struct plm_backend_device *dev, VkSemaphore timeline, uint64_t value);
// Waits so for all that was submitted.
void plm_vk_settle(struct plm_backend_device *dev);
// A pool and n primary buffers of it. What a failure leaves goes with the pool.
int plm_vk_commands_create(struct plm_backend_device *dev, uint32_t n, VkCommandPool *ret_pool,
                           VkCommandBuffer *ret_buffers);
// What was written before is seen after.
void plm_vk_memory_barrier(const struct plm_backend_device *dev, VkCommandBuffer commands,
                           VkPipelineStageFlags2 before, VkAccessFlags2 wrote,
                           VkPipelineStageFlags2 after, VkAccessFlags2 access);

// ---- memory.c ----

// The buffer that slabs and rings are.
VkBufferCreateInfo plm_vk_buffer_info(uint64_t bytes);

// A buffer of its own with memory of a type, mapped where the host sees the type (host, else NULL);
// taken: what the driver took. There when the call returns; not charged to taken_bytes.
struct plm_vk_memory {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t addr, taken;
    void *host;
};
int plm_vk_memory_create(struct plm_backend_device *dev, uint32_t type, uint64_t bytes,
                         struct plm_vk_memory *ret);
// Of memory that the caller keeps. UNSUPPORTED: the device takes none; INVALID: not aligned.
int plm_vk_memory_import(struct plm_backend_device *dev, void *ptr, uint64_t bytes,
                         struct plm_vk_memory *ret);
void plm_vk_memory_destroy(struct plm_backend_device *dev, struct plm_vk_memory *memory);

// ---- readings.c ----

int plm_vk_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret);
// Waits until the driver no longer counts slabs that were freed, where it tells, but not for long.
void plm_vk_await_frees(struct plm_backend_device *dev);
// Before a slab is freed.
void plm_vk_note_free(struct plm_backend_device *dev);

// What is known of the slabs' heap; budget and usage are as the driver says, unbelieved.
struct plm_vk_heap {
    uint64_t bytes;
    bool has_budget; // VK_EXT_memory_budget
    uint64_t budget, usage;
    uint64_t own; // taken by us, as we count
};
// A reading of it, bounded by what can be.
void plm_vk_read_heap(const struct plm_vk_heap *heap, struct plm_mem_info *ret);
// Of a device in the host's memory: bounds the reading by the machine's; of a CPU driver the use is
// that of the process.
void plm_vk_read_unified(const struct plm_mem_info *machine, bool cpu, struct plm_mem_info *info);

// ---- staging.c ----

// A part of a slab.
struct plm_vk_range {
    uint64_t addr;
    VkBuffer buffer;
    uint64_t offset; // in the buffer
    uint64_t bytes;
};

int plm_vk_staging_create(struct plm_backend_device *dev, struct plm_vk_staging **ret);
void plm_vk_staging_destroy(struct plm_backend_device *dev, struct plm_vk_staging *staging);
// Gives back the load ring for good (empty_cache); returns its bytes.
uint64_t plm_vk_staging_trim(struct plm_backend_device *dev);
// Before a slab is freed: drops those copies into it that wait for a submit.
void plm_vk_staging_forget(struct plm_backend_device *dev, uint64_t addr, uint64_t bytes);
int plm_vk_staging_in(struct plm_backend_device *dev, const struct plm_vk_range *to,
                      const void *src);
int plm_vk_staging_out(struct plm_backend_device *dev, void *dst, const struct plm_vk_range *from);
// Small copies wait in the serving ring for the next submit, before whose dispatches they run: the
// commands that hold them, with the barriers before and after; VK_NULL_HANDLE where none waits.
// Where the submit went through, submitted says so; where it did not, the copies wait on.
int plm_vk_staging_flush(struct plm_backend_device *dev, VkCommandBuffer *ret);
void plm_vk_staging_submitted(struct plm_backend_device *dev, uint64_t value);

// ---- slabs.c ----

int plm_vk_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                 void *import_ptr, struct plm_slab *ret);
void plm_vk_free(struct plm_backend_device *dev, struct plm_slab *slab);
int plm_vk_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src, uint64_t bytes);
int plm_vk_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes);

// ---- kernels.c ----

#define PLM_VK_SPEC_MAX          4
#define PLM_VK_KERNEL_NAME_BYTES 48
#define PLM_VK_TYPES             64 // enum plm_type is below
#define PLM_VK_KERNEL_ROWS_MAX   64 // of the table

// A kernel is a row of the table in kernels.c, built for a tensor type and specialised. Compared
// and hashed by its bytes: there is no padding.
struct plm_vk_kernel {
    uint16_t row;
    uint16_t type;                  // PLM_VK_TYPES: the module is of no type
    uint32_t spec[PLM_VK_SPEC_MAX]; // constant ids 0 ..; 0 beyond those that the row has
};
struct plm_vk_grid {
    uint32_t x, y, z;
};

// What a device runs: the table, less what its driver, its options or this build lack.
struct plm_vk_kernels {
    bool fast_compile; // one kernel of each kind, and few specialisations
    int16_t shader[PLM_VK_KERNEL_ROWS_MAX][PLM_VK_TYPES + 1]; // index in plm_vk_shaders, or -1
};
// fast_compile: for drivers on a CPU, which take longer to make a kernel than to run it for
// minutes.
void plm_vk_kernels_init(struct plm_vk_kernels *ret, uint32_t needs_met, bool f16_math,
                         bool fast_compile);
// Mask of 1 << PLM_OP_x that have a kernel.
uint64_t plm_vk_kernels_ops(const struct plm_vk_kernels *kernels);

// The index-th kernel that runs op with these arguments, the preferred one first; all have the same
// bits. UNSUPPORTED: there is none.
int plm_vk_kernel_of(const struct plm_vk_kernels *kernels, enum plm_op op, const void *args,
                     uint32_t index, struct plm_vk_kernel *ret);
struct plm_vk_grid plm_vk_kernel_grid(const struct plm_vk_kernel *kernel, const void *args);
// Calls visit for every kernel that the needs name, until it fails.
int plm_vk_kernels_each(const struct plm_vk_kernels *kernels, const struct plm_kernel_needs *needs,
                        int (*visit)(void *ctx, const struct plm_vk_kernel *kernel), void *ctx);
// The op that it runs; how many constants it has; the subgroup size that it asks for, or 0.
enum plm_op plm_vk_kernel_op(const struct plm_vk_kernel *kernel);
uint32_t plm_vk_kernel_specs(const struct plm_vk_kernel *kernel);
uint32_t plm_vk_kernel_subgroup(const struct plm_vk_kernel *kernel);
// The fewest rows that it runs; the activations that it reads.
uint32_t plm_vk_kernel_rows(const struct plm_vk_kernel *kernel);
enum plm_act plm_vk_kernel_act(const struct plm_vk_kernel *kernel);
// For messages: "matmul-lanes-dot-q4_0".
void plm_vk_kernel_name(const struct plm_vk_kernel *kernel, char ret[PLM_VK_KERNEL_NAME_BYTES]);

// ---- variants.c ----

// The entries variants, variant_name and choose of struct plm_backend.
uint32_t plm_vk_variants(const struct plm_backend_device *dev, enum plm_op op, const void *args,
                         char name[PLM_TUNING_NAME_BYTES]);
const char *plm_vk_variant_name(const struct plm_backend_device *dev, enum plm_op op,
                                uint32_t index);
int plm_vk_choose(struct plm_backend_device *dev, enum plm_op op, const void *args, uint32_t index);
// What was chosen for these arguments, 0 where nothing was.
uint32_t plm_vk_chosen(const struct plm_choices *choices, enum plm_op op, const void *args);

// ---- split.c ----

// What a dispatch costs, in bytes of memory traffic or what takes as long.
uint64_t plm_vk_work(enum plm_op op, const void *args);

// How much work a watchdog of limit_ms (0: there is none) lets into one part of a list.
struct plm_vk_pace {
    uint32_t limit_ms;
    bool measured;
    uint32_t faster; // lists in a row
    uint64_t rate;   // work per ms: of the slowest list lately
};
void plm_vk_pace_init(struct plm_vk_pace *pace, uint32_t limit_ms);
uint64_t plm_vk_pace_limit(const struct plm_vk_pace *pace);
// A list of so much work took so long.
void plm_vk_pace_learn(struct plm_vk_pace *pace, uint64_t work, uint32_t dispatches,
                       int64_t elapsed_ns);
// Parts that a list of so many dispatches may need.
uint32_t plm_vk_parts(uint32_t limit_ms, uint32_t max_dispatches);
// Most dispatches of one part.
uint32_t plm_vk_part_dispatches(uint32_t limit_ms, uint32_t max_dispatches);

// A list being cut: starts with its limit and zeros; returns the part that the next piece is in.
struct plm_vk_cut {
    uint64_t limit;
    uint64_t work; // of the last part
    uint32_t n;    // pieces of the last part
    uint32_t n_parts;
};
uint32_t plm_vk_cut_add(struct plm_vk_cut *cut, uint64_t work);

// A dispatch longer than the limit is cut over its grid.
struct plm_vk_piece {
    uint32_t index;
    struct plm_vk_grid base, size;
};
uint32_t plm_vk_pieces(uint64_t limit, uint64_t work, struct plm_vk_grid grid);
struct plm_vk_piece plm_vk_piece(struct plm_vk_grid grid, uint32_t pieces, uint32_t index);

// ---- pipelines.c ----

struct plm_vk_pipelines {
    struct plm_vk_kernels kernels;
    struct plm_choices choices;
    VkPipelineLayout layout;
    VkPipelineCache cache;
    uint32_t n, n_slots; // slots: a power of two, at most half of it used
    struct plm_vk_pipeline {
        struct plm_vk_kernel kernel;
        VkPipeline handle; // VK_NULL_HANDLE: free
    } * slots;
};

int plm_vk_pipelines_create(struct plm_backend_device *dev, struct plm_vk_pipelines **ret,
                            struct plm_error *err);
// NULL is allowed.
void plm_vk_pipelines_destroy(struct plm_backend_device *dev, struct plm_vk_pipelines *pipelines);
// Makes every pipeline that the needs name and that is not there yet.
int plm_vk_pipelines_make(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                          struct plm_error *err);
// VK_NULL_HANDLE: not among those of the warm-up.
VkPipeline plm_vk_pipeline_find(const struct plm_vk_pipelines *pipelines,
                                const struct plm_vk_kernel *kernel);

// ---- cache.c ----

// Fills a new pipeline cache from opts.cache_path where that file fits this driver; what is wrong
// with it is said in the log.
int plm_vk_cache_open(struct plm_backend_device *dev, VkPipelineCache *ret, struct plm_error *err);
// Writes it there. A failure is said in the log.
void plm_vk_cache_save(struct plm_backend_device *dev, VkPipelineCache cache);

// ---- warm.c ----

// The entry warm_up of struct plm_backend.
int plm_vk_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                   struct plm_error *err);

// ---- list.c ----

// What the list did, for tests.
struct plm_vk_list_counters {
    uint64_t recorded; // lists
    uint64_t repeated; // submits of a list that was recorded already
    uint64_t parts;    // batches that went to the queue
};

int plm_vk_list_create(struct plm_backend_device *dev, uint32_t max_dispatches,
                       struct plm_vk_list **ret, struct plm_error *err);
// Nothing is in flight. NULL is allowed.
void plm_vk_list_destroy(struct plm_backend_device *dev, struct plm_vk_list *list);
int plm_vk_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units, const void *args,
                  size_t args_bytes);
// Appends a kernel of the caller's choice.
int plm_vk_append(struct plm_backend_device *dev, const struct plm_vk_kernel *kernel,
                  const void *args, size_t args_bytes);
int plm_vk_barrier(struct plm_backend_device *dev);
int plm_vk_submit(struct plm_backend_device *dev, uint64_t *ret_value);
void plm_vk_discard(struct plm_backend_device *dev);
int plm_vk_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns);
// Records the longest list once, so that command pools have grown before anything is measured.
int plm_vk_list_warm_up(struct plm_backend_device *dev);
void plm_vk_list_counters(const struct plm_backend_device *dev, struct plm_vk_list_counters *ret);

// ---- open.c ----

int plm_vk_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                struct plm_error *err);
void plm_vk_close(struct plm_backend_device *dev);

#endif
