// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1 as backends/cuda/api.h declares it.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/api.h"
#include "tests/fakegpu/cuda/fatbin.h"
#include "tests/fakegpu/fake.h"

#define STACK 16u

// The contexts that this thread pushed.
static _Thread_local struct fake_ctx *stack[STACK];
static _Thread_local uint32_t depth;

// A reading asks for it without the lock: a context in use is not destroyed meanwhile.
static int current(struct fake_ctx **ret)
{
    if (depth == 0)
        return FAKE_INVALID_CONTEXT;
    *ret = stack[depth - 1];
    return FAKE_OK;
}

static void forget(void)
{
    depth = 0;
}

static uint32_t lanes(const char *arch)
{
    (void)arch;
    return 32;
}

const struct fake_front fake_front = {.name = "cuda",
                                      .device_name = "Fake GPU",
                                      .arch = "9.0",
                                      .driver = 13000,
                                      .lanes = lanes,
                                      .current = current,
                                      .forget = forget,
                                      .image = fatbin_look};

// ---- entry points: their names are the backend's, X(name, suffix, since, parameters) ----

#define X(name, suffix, since, params) FAKE_EXPORT plm_cu_result cu##name##suffix params;
PLM_CU_REQUIRED(X)
PLM_CU_OPTIONAL(X)
#undef X
FAKE_EXPORT plm_cu_get_proc_address cuGetProcAddress_v2;

static plm_cu_result leave(int result)
{
    fake_unlock();
    return (plm_cu_result)result;
}
#define LOCKED(call) (fake_lock(), leave(call))

plm_cu_result cuInit(unsigned int flags)
{
    return flags != 0 ? PLM_CU_INVALID_VALUE : LOCKED(fake_init());
}

plm_cu_result cuDriverGetVersion(int *version)
{
    struct world w;
    if (!rules_world(&w))
        return PLM_CU_UNKNOWN;
    *version = (int)w.driver;
    return PLM_CU_SUCCESS;
}

// What is shown of a device, which must be there.
static int shown(plm_cu_device device, struct world *w)
{
    struct fault fault;
    const int r = fake_world(w);
    if (r != FAKE_OK)
        return r;
    if (rules_strike(PLACE_DEVICE, 0, &fault))
        return fault.result;
    return device >= 0 && (uint32_t)device < w->count ? FAKE_OK : FAKE_INVALID_DEVICE;
}

plm_cu_result cuDeviceGetCount(int *count)
{
    struct world w;
    const int r = fake_world(&w);
    *count = r == FAKE_OK ? (int)w.count : 0;
    return (plm_cu_result)r;
}

plm_cu_result cuDeviceGet(plm_cu_device *device, int ordinal)
{
    struct world w;
    *device = ordinal;
    return (plm_cu_result)shown(ordinal, &w);
}

plm_cu_result cuDeviceGetName(char *name, int len, plm_cu_device device)
{
    struct world w;
    const int r = shown(device, &w);
    if (r == FAKE_OK)
        snprintf(name, (size_t)len, "%s", w.name);
    return (plm_cu_result)r;
}

plm_cu_result cuDeviceGetUuid_v2(plm_cu_uuid *uuid, plm_cu_device device)
{
    struct world w;
    const int r = shown(device, &w);
    const uint64_t number = w.uuid + (uint64_t)(device > 0 ? device : 0);
    memset(uuid, 0, sizeof(*uuid));
    for (uint32_t i = 0; r == FAKE_OK && i < 8; i++)
        uuid->bytes[15 - i] = (char)(number >> (8 * i));
    return (plm_cu_result)r;
}

plm_cu_result cuDeviceTotalMem_v2(size_t *bytes, plm_cu_device device)
{
    struct world w;
    const int r = shown(device, &w);
    if (r == FAKE_OK)
        *bytes = fake_script() != NULL ? fake_script()->heap_bytes : w.size;
    return (plm_cu_result)r;
}

plm_cu_result cuDeviceGetAttribute(int *value, unsigned int attribute, plm_cu_device device)
{
    struct world w;
    unsigned major = 0, minor = 0;
    const int r = shown(device, &w);
    if (r != FAKE_OK)
        return (plm_cu_result)r;
    sscanf(w.arch, "%u.%u", &major, &minor);
    switch (attribute) {
    case PLM_CU_ATTR_MULTIPROCESSORS: *value = 132; break;
    case PLM_CU_ATTR_INTEGRATED: *value = w.integrated; break;
    case PLM_CU_ATTR_COMPUTE_MODE: *value = (int)w.mode; break;
    case PLM_CU_ATTR_MAJOR: *value = (int)major; break;
    case PLM_CU_ATTR_MINOR: *value = (int)minor; break;
    case PLM_CU_ATTR_CONCURRENT_MANAGED: *value = (int)w.managed; break;
    case PLM_CU_ATTR_VIRTUAL_MEMORY: *value = (int)w.vmm; break;
    case PLM_CU_ATTR_MPS: *value = (int)w.mps; break;
    default: return PLM_CU_INVALID_VALUE;
    }
    return PLM_CU_SUCCESS;
}

// ---- contexts ----

static int push_context(struct fake_ctx *ctx)
{
    if (depth == STACK)
        return FAKE_INVALID;
    stack[depth++] = ctx;
    return FAKE_OK;
}

plm_cu_result cuCtxCreate_v2(plm_cu_context *context, unsigned int flags, plm_cu_device device)
{
    struct fake_ctx *ctx = NULL;
    (void)flags;
    const plm_cu_result r = LOCKED(fake_ctx_create(device, &ctx));
    *context = (plm_cu_context)(void *)ctx;
    return r != PLM_CU_SUCCESS ? r : (plm_cu_result)push_context(ctx);
}

// It may be the calling thread's current one, which then has none.
plm_cu_result cuCtxDestroy_v2(plm_cu_context context)
{
    struct fake_ctx *ctx = (void *)context;
    const plm_cu_result r = LOCKED(fake_ctx_destroy(ctx));
    if (depth > 0 && stack[depth - 1] == ctx)
        depth--;
    return r;
}

static int push_known(struct fake_ctx *ctx)
{
    return fake_object_is(ctx, FAKE_CTX) ? push_context(ctx) : FAKE_INVALID_CONTEXT;
}

plm_cu_result cuCtxPushCurrent_v2(plm_cu_context context)
{
    return LOCKED(push_known((void *)context));
}

plm_cu_result cuCtxPopCurrent_v2(plm_cu_context *context)
{
    if (depth == 0)
        return PLM_CU_INVALID_CONTEXT;
    depth--;
    if (context != NULL)
        *context = (plm_cu_context)(void *)stack[depth];
    return PLM_CU_SUCCESS;
}

// ---- memory ----

// Without the lock: it waits for no kernel.
plm_cu_result cuMemGetInfo_v2(size_t *free, size_t *total)
{
    uint64_t f = 0, t = 0;
    const int r = fake_mem_info(&f, &t);
    *free = f;
    *total = t;
    return (plm_cu_result)r;
}

plm_cu_result cuMemAlloc_v2(plm_cu_ptr *ptr, size_t bytes)
{
    uint64_t address = 0;
    const plm_cu_result r = LOCKED(fake_alloc(bytes, &address));
    *ptr = address;
    return r;
}

plm_cu_result cuMemFree_v2(plm_cu_ptr ptr)
{
    return LOCKED(fake_free(ptr));
}

plm_cu_result cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
    (void)flags;
    return LOCKED(fake_host_alloc(bytes, ptr));
}

plm_cu_result cuMemFreeHost(void *ptr)
{
    return LOCKED(fake_host_free(ptr));
}

plm_cu_result cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned int flags)
{
    (void)flags;
    return LOCKED(fake_host_register(ptr, bytes));
}

plm_cu_result cuMemHostUnregister(void *ptr)
{
    return LOCKED(fake_host_unregister(ptr));
}

plm_cu_result cuMemHostGetDevicePointer_v2(plm_cu_ptr *ptr, void *host, unsigned int flags)
{
    uint64_t address = 0;
    const plm_cu_result r =
        flags != 0 ? PLM_CU_INVALID_VALUE : LOCKED(fake_host_address(host, &address));
    *ptr = address;
    return r;
}

plm_cu_result cuMemAddressReserve(plm_cu_ptr *ptr, size_t bytes, size_t alignment, plm_cu_ptr where,
                                  unsigned long long flags)
{
    uint64_t address = 0;
    if (where != 0 || flags != 0 || (alignment & (alignment - 1)) != 0)
        return PLM_CU_INVALID_VALUE;
    const plm_cu_result r = LOCKED(fake_reserve(bytes, &address));
    *ptr = address;
    return r;
}

plm_cu_result cuMemAddressFree(plm_cu_ptr ptr, size_t bytes)
{
    return LOCKED(fake_reserve_free(ptr, bytes));
}

static bool usable_prop(const plm_cu_mem_prop *prop)
{
    return prop->type == PLM_CU_MEM_ALLOCATION_PINNED && prop->handle_types == 0 &&
           prop->location.type == PLM_CU_MEM_LOCATION_DEVICE;
}

plm_cu_result cuMemCreate(plm_cu_memory *memory, size_t bytes, const plm_cu_mem_prop *prop,
                          unsigned long long flags)
{
    uint64_t handle = 0;
    if (flags != 0 || !usable_prop(prop))
        return PLM_CU_INVALID_VALUE;
    const plm_cu_result r = LOCKED(fake_create(prop->location.id, bytes, &handle));
    *memory = handle;
    return r;
}

plm_cu_result cuMemRelease(plm_cu_memory memory)
{
    return LOCKED(fake_release(memory));
}

plm_cu_result cuMemMap(plm_cu_ptr ptr, size_t bytes, size_t offset, plm_cu_memory memory,
                       unsigned long long flags)
{
    return offset != 0 || flags != 0 ? PLM_CU_INVALID_VALUE : LOCKED(fake_map(ptr, bytes, memory));
}

plm_cu_result cuMemUnmap(plm_cu_ptr ptr, size_t bytes)
{
    return LOCKED(fake_unmap(ptr, bytes));
}

plm_cu_result cuMemSetAccess(plm_cu_ptr ptr, size_t bytes, const plm_cu_mem_access *access,
                             size_t count)
{
    if (count != 1 || access->flags != PLM_CU_MEM_ACCESS_READWRITE)
        return PLM_CU_INVALID_VALUE;
    return LOCKED(fake_access(ptr, bytes));
}

plm_cu_result cuMemGetAllocationGranularity(size_t *bytes, const plm_cu_mem_prop *prop,
                                            unsigned int option)
{
    struct world w;
    (void)option;
    const int r = fake_world(&w);
    if (r == FAKE_OK && !usable_prop(prop))
        return PLM_CU_INVALID_VALUE;
    *bytes = r == FAKE_OK ? w.granularity : 0;
    return (plm_cu_result)r;
}

plm_cu_result cuMemcpyHtoDAsync_v2(plm_cu_ptr dst, const void *src, size_t bytes,
                                   plm_cu_stream stream)
{
    return LOCKED(fake_copy((void *)stream, (void *)(uintptr_t)dst, src, bytes, true));
}

plm_cu_result cuMemcpyDtoHAsync_v2(void *dst, plm_cu_ptr src, size_t bytes, plm_cu_stream stream)
{
    return LOCKED(fake_copy((void *)stream, dst, (const void *)(uintptr_t)src, bytes, false));
}

// ---- modules and launches ----

plm_cu_result cuModuleLoadData(plm_cu_module *module, const void *data)
{
    return LOCKED(fake_module_load(data, (struct fake_module **)(void *)module));
}

plm_cu_result cuModuleUnload(plm_cu_module module)
{
    return LOCKED(fake_module_unload((void *)module));
}

plm_cu_result cuModuleGetFunction(plm_cu_function *function, plm_cu_module module, const char *name)
{
    return LOCKED(
        fake_module_function((void *)module, name, (struct fake_function **)(void *)function));
}

static int function_attribute(const struct fake_function *f)
{
    return fake_object_is(f, FAKE_FUNCTION) ? FAKE_OK : FAKE_INVALID_HANDLE;
}

plm_cu_result cuFuncGetAttribute(int *value, unsigned int attribute, plm_cu_function function)
{
    *value = 0; // bytes of local memory: our kernels have none
    return attribute != PLM_CU_FUNC_LOCAL_BYTES ? PLM_CU_INVALID_VALUE
                                                : LOCKED(function_attribute((void *)function));
}

// The packed arguments of a launch.
static bool packed(struct fake_launch *l, void **params, void **extra)
{
    if (params != NULL || extra == NULL || extra[0] != PLM_CU_EXTRA_POINTER ||
        extra[2] != PLM_CU_EXTRA_SIZE || extra[4] != PLM_CU_EXTRA_END ||
        *(const size_t *)extra[3] > FAKE_ARGS_BYTES) {
        rules_misuse("a launch without packed arguments");
        return false;
    }
    l->args_bytes = (uint32_t) * (const size_t *)extra[3];
    memcpy(l->args, extra[1], l->args_bytes);
    return true;
}

plm_cu_result cuLaunchKernel(plm_cu_function function, unsigned int grid_x, unsigned int grid_y,
                             unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                             unsigned int block_z, unsigned int shared_bytes, plm_cu_stream stream,
                             void **params, void **extra)
{
    struct fake_launch l = {.function = (void *)function,
                            .grid = {grid_x, grid_y, grid_z},
                            .block = {block_x, block_y, block_z},
                            .shared_bytes = shared_bytes};
    if (!packed(&l, params, extra))
        return PLM_CU_INVALID_VALUE;
    return LOCKED(fake_launch_kernel((void *)stream, &l));
}

plm_cu_result cuLaunchKernelEx(const plm_cu_launch_config *config, plm_cu_function function,
                               void **params, void **extra)
{
    struct fake_launch l = {.function = (void *)function, .shared_bytes = config->shared_bytes};
    memcpy(l.grid, config->grid, sizeof(l.grid));
    memcpy(l.block, config->block, sizeof(l.block));
    for (unsigned int i = 0; i < config->n_attributes; i++) {
        if (config->attributes[i].id != PLM_CU_LAUNCH_PROGRAMMATIC)
            return PLM_CU_INVALID_VALUE;
        l.early = config->attributes[i].value.programmatic != 0;
    }
    if (!packed(&l, params, extra))
        return PLM_CU_INVALID_VALUE;
    return LOCKED(fake_launch_kernel((void *)config->stream, &l));
}

// ---- streams, events, graphs ----

plm_cu_result cuStreamCreate(plm_cu_stream *stream, unsigned int flags)
{
    return flags != PLM_CU_STREAM_NON_BLOCKING
               ? PLM_CU_INVALID_VALUE
               : LOCKED(fake_stream_create((struct fake_stream **)(void *)stream));
}

plm_cu_result cuStreamDestroy_v2(plm_cu_stream stream)
{
    return LOCKED(fake_stream_destroy((void *)stream));
}

plm_cu_result cuEventCreate(plm_cu_event *event, unsigned int flags)
{
    (void)flags;
    return LOCKED(fake_event_create((struct fake_event **)(void *)event));
}

plm_cu_result cuEventDestroy_v2(plm_cu_event event)
{
    return LOCKED(fake_event_destroy((void *)event));
}

plm_cu_result cuEventRecord(plm_cu_event event, plm_cu_stream stream)
{
    return LOCKED(fake_event_record((void *)event, (void *)stream));
}

plm_cu_result cuEventQuery(plm_cu_event event)
{
    return LOCKED(fake_event_query((void *)event));
}

plm_cu_result cuStreamBeginCapture_v2(plm_cu_stream stream, unsigned int mode)
{
    (void)mode;
    return LOCKED(fake_capture_begin((void *)stream));
}

plm_cu_result cuStreamEndCapture(plm_cu_stream stream, plm_cu_graph *graph)
{
    return LOCKED(fake_capture_end((void *)stream, (struct fake_graph **)(void *)graph));
}

static int capture_info(struct fake_stream *stream, unsigned int *status,
                        const plm_cu_graph_node **nodes, size_t *n)
{
    static _Thread_local plm_cu_graph_node last; // what *nodes points to
    struct fake_node *node = NULL;
    *status = fake_capture_last(stream, &node) ? PLM_CU_CAPTURE_ACTIVE : 0;
    last = (plm_cu_graph_node)(void *)node;
    if (nodes != NULL)
        *nodes = &last;
    if (n != NULL)
        *n = node != NULL;
    return FAKE_OK;
}

plm_cu_result cuStreamGetCaptureInfo_v3(plm_cu_stream stream, unsigned int *status, uint64_t *id,
                                        plm_cu_graph *graph, const plm_cu_graph_node **nodes,
                                        const plm_cu_graph_edge **edges, size_t *n)
{
    if (id != NULL)
        *id = 1;
    if (graph != NULL)
        *graph = NULL;
    if (edges != NULL)
        *edges = NULL;
    return LOCKED(capture_info((void *)stream, status, nodes, n));
}

plm_cu_result cuGraphInstantiateWithFlags(plm_cu_graph_exec *exec, plm_cu_graph graph,
                                          unsigned long long flags)
{
    return flags != 0
               ? PLM_CU_INVALID_VALUE
               : LOCKED(fake_graph_instantiate((void *)graph, (struct fake_exec **)(void *)exec));
}

plm_cu_result cuGraphUpload(plm_cu_graph_exec exec, plm_cu_stream stream)
{
    return LOCKED(fake_graph_upload((void *)exec, (void *)stream));
}

plm_cu_result cuGraphLaunch(plm_cu_graph_exec exec, plm_cu_stream stream)
{
    return LOCKED(fake_graph_launch((void *)exec, (void *)stream));
}

plm_cu_result cuGraphExecKernelNodeSetParams_v2(plm_cu_graph_exec exec, plm_cu_graph_node node,
                                                const plm_cu_kernel_node *params)
{
    struct fake_launch l = {.function = (void *)params->function,
                            .shared_bytes = params->shared_bytes};
    memcpy(l.grid, params->grid, sizeof(l.grid));
    memcpy(l.block, params->block, sizeof(l.block));
    if (!packed(&l, params->params, params->extra))
        return PLM_CU_INVALID_VALUE;
    return LOCKED(fake_graph_set((void *)exec, (const void *)node, &l));
}

plm_cu_result cuGraphExecDestroy(plm_cu_graph_exec exec)
{
    return LOCKED(fake_exec_destroy((void *)exec));
}

plm_cu_result cuGraphDestroy(plm_cu_graph graph)
{
    return LOCKED(fake_graph_destroy((void *)graph));
}

// ---- names ----

plm_cu_result cuGetErrorName(plm_cu_result result, const char **name)
{
    switch (result) {
#define X(NAME, theirs, value)                                                                     \
    case PLM_CU_##NAME: *name = #theirs; return PLM_CU_SUCCESS;
        PLM_CU_RESULTS(X)
#undef X
    default: *name = NULL; return PLM_CU_INVALID_VALUE;
    }
}

// An entry point of the version that is asked for, where this driver is as new.
plm_cu_result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                                  unsigned int *status)
{
    static const struct {
        const char *name;
        void (*function)(void);
        int since;
    } ENTRIES[] = {
#define X(name, suffix, since, params) {"cu" #name, (void (*)(void))cu##name##suffix, since},
        PLM_CU_REQUIRED(X) PLM_CU_OPTIONAL(X)
#undef X
    };
    struct world w;
    (void)flags;
    if (!rules_world(&w))
        return PLM_CU_UNKNOWN;
    bool hidden = false;
    for (uint32_t i = 0; i < w.n_hidden; i++)
        hidden = hidden || strcmp(w.hidden[i], symbol) == 0;
    for (size_t i = 0; i < sizeof(ENTRIES) / sizeof(ENTRIES[0]) && !hidden; i++) {
        if (strcmp(ENTRIES[i].name, symbol) == 0 && ENTRIES[i].since <= version &&
            ENTRIES[i].since <= (int)w.driver) {
            memcpy(function, &ENTRIES[i].function, sizeof(*function));
            if (status != NULL)
                *status = 0;
            return PLM_CU_SUCCESS;
        }
    }
    *function = NULL;
    if (status != NULL)
        *status = 1; // there is no such symbol
    return PLM_CU_NOT_FOUND;
}
