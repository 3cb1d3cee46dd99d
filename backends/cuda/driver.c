// SPDX-License-Identifier: Apache-2.0
// The table of backends/gpudrv/driver.h in CUDA's words.
#include <string.h>

#include "backends/cuda/impl.h"

#define R(lib, call) plm_cuda_meaning(lib, (lib)->cu.call)

static const char *last_error(const struct plm_gpu_library *lib)
{
    return plm_cuda_error_name(lib, atomic_load(&lib->last));
}

// ---- contexts ----

static plm_gpu_r context_create(struct plm_gpu_library *lib, uint32_t card, void **ret)
{
    plm_cu_device device;
    plm_cu_context context, popped;
    plm_gpu_r r = R(lib, DeviceGet(&device, (int)card));
    if (r == PLM_GPU_OK)
        r = R(lib, CtxCreate(&context, PLM_CU_CTX_BLOCKING_SYNC, device));
    if (r != PLM_GPU_OK)
        return r;
    r = R(lib, CtxPopCurrent(&popped));
    if (r == PLM_GPU_OK)
        *ret = context;
    else
        lib->cu.CtxDestroy(context);
    return r;
}

static void context_destroy(struct plm_gpu_library *lib, void *context, bool lost)
{
    (void)lost;
    R(lib, CtxDestroy(context));
}

static plm_gpu_r enter(struct plm_gpu_library *lib, void *context, uint64_t *ret_before)
{
    *ret_before = 0;
    return R(lib, CtxPushCurrent(context));
}

static void leave(struct plm_gpu_library *lib, uint64_t before)
{
    plm_cu_context popped;
    (void)before;
    R(lib, CtxPopCurrent(&popped));
}

// ---- memory ----

static plm_gpu_r memory_info(struct plm_gpu_library *lib, uint64_t *ret_free, uint64_t *ret_total)
{
    size_t free_bytes = 0, total = 0;
    const plm_gpu_r r = R(lib, MemGetInfo(&free_bytes, &total));
    *ret_free = free_bytes;
    *ret_total = total;
    return r;
}

static plm_gpu_r memory_alloc(struct plm_gpu_library *lib, uint64_t bytes, uint64_t *ret_addr)
{
    plm_cu_ptr at = 0;
    const plm_gpu_r r = R(lib, MemAlloc(&at, bytes));
    *ret_addr = at;
    return r;
}

static plm_gpu_r memory_free(struct plm_gpu_library *lib, uint64_t addr)
{
    return R(lib, MemFree(addr));
}

static plm_cu_mem_prop property(uint32_t card)
{
    return (plm_cu_mem_prop){.type = PLM_CU_MEM_ALLOCATION_PINNED,
                             .location = {.type = PLM_CU_MEM_LOCATION_DEVICE, .id = (int)card}};
}

static plm_gpu_r map_granularity(struct plm_gpu_library *lib, uint32_t card, uint64_t *ret)
{
    const plm_cu_mem_prop prop = property(card);
    size_t bytes = 0;
    const plm_gpu_r r =
        R(lib, MemGetAllocationGranularity(&bytes, &prop, PLM_CU_MEM_GRANULARITY_MINIMUM));
    *ret = bytes;
    return r;
}

static plm_gpu_r map(struct plm_gpu_library *lib, uint32_t card, uint64_t bytes,
                     struct plm_gpu_mapping *ret)
{
    const plm_cu_mem_prop prop = property(card);
    const plm_cu_mem_access access = {.location = prop.location,
                                      .flags = PLM_CU_MEM_ACCESS_READWRITE};
    plm_cu_memory memory;
    plm_cu_ptr at;
    plm_gpu_r r = R(lib, MemCreate(&memory, bytes, &prop, 0));
    if (r != PLM_GPU_OK)
        return r;
    r = R(lib, MemAddressReserve(&at, bytes, 0, 0, 0));
    if (r == PLM_GPU_OK) {
        r = R(lib, MemMap(at, bytes, 0, memory, 0));
        if (r == PLM_GPU_OK) {
            r = R(lib, MemSetAccess(at, bytes, &access, 1));
            if (r == PLM_GPU_OK) {
                *ret = (struct plm_gpu_mapping){.addr = at, .bytes = bytes, .memory = memory};
                return r;
            }
            lib->cu.MemUnmap(at, bytes);
        }
        lib->cu.MemAddressFree(at, bytes);
    }
    lib->cu.MemRelease(memory);
    return r;
}

static plm_gpu_r unmap(struct plm_gpu_library *lib, struct plm_gpu_mapping *m)
{
    plm_gpu_r r = m->unmapped ? PLM_GPU_OK : R(lib, MemUnmap(m->addr, m->bytes));
    m->unmapped = r == PLM_GPU_OK;
    if (r == PLM_GPU_OK && m->memory != 0)
        r = R(lib, MemRelease(m->memory));
    if (r == PLM_GPU_OK) {
        m->memory = 0;
        r = R(lib, MemAddressFree(m->addr, m->bytes));
    }
    return r;
}

static plm_gpu_r host_alloc(struct plm_gpu_library *lib, uint64_t bytes, void **ret,
                            uint64_t *ret_addr)
{
    plm_cu_ptr at = 0;
    plm_gpu_r r = R(lib, MemHostAlloc(ret, bytes, PLM_CU_HOST_PORTABLE | PLM_CU_HOST_MAPPED));
    if (r != PLM_GPU_OK)
        return r;
    r = R(lib, MemHostGetDevicePointer(&at, *ret, 0));
    if (r != PLM_GPU_OK)
        lib->cu.MemFreeHost(*ret);
    *ret_addr = at;
    return r;
}

static plm_gpu_r host_free(struct plm_gpu_library *lib, void *host)
{
    return R(lib, MemFreeHost(host));
}

static plm_gpu_r host_register(struct plm_gpu_library *lib, void *host, uint64_t bytes,
                               uint64_t *ret_addr)
{
    plm_cu_ptr at = 0;
    plm_gpu_r r = R(lib, MemHostRegister(host, bytes, PLM_CU_REGISTER_MAPPED));
    if (r != PLM_GPU_OK)
        return r;
    r = R(lib, MemHostGetDevicePointer(&at, host, 0));
    if (r != PLM_GPU_OK)
        lib->cu.MemHostUnregister(host);
    *ret_addr = at;
    return r;
}

static plm_gpu_r host_unregister(struct plm_gpu_library *lib, void *host)
{
    return R(lib, MemHostUnregister(host));
}

// ---- streams, events, copies ----

static plm_gpu_r stream_create(struct plm_gpu_library *lib, void **ret)
{
    plm_cu_stream stream = NULL;
    const plm_gpu_r r = R(lib, StreamCreate(&stream, PLM_CU_STREAM_NON_BLOCKING));
    *ret = stream;
    return r;
}

static void stream_destroy(struct plm_gpu_library *lib, void *stream)
{
    R(lib, StreamDestroy(stream));
}

static plm_gpu_r event_create(struct plm_gpu_library *lib, void **ret)
{
    plm_cu_event event = NULL;
    const plm_gpu_r r =
        R(lib, EventCreate(&event, PLM_CU_EVENT_BLOCKING_SYNC | PLM_CU_EVENT_NO_TIMING));
    *ret = event;
    return r;
}

static void event_destroy(struct plm_gpu_library *lib, void *event)
{
    R(lib, EventDestroy(event));
}

static plm_gpu_r event_record(struct plm_gpu_library *lib, void *event, void *stream)
{
    return R(lib, EventRecord(event, stream));
}

static plm_gpu_r event_query(struct plm_gpu_library *lib, void *event)
{
    return R(lib, EventQuery(event));
}

static plm_gpu_r copy_in(struct plm_gpu_library *lib, void *stream, uint64_t dst, const void *src,
                         uint64_t bytes)
{
    return R(lib, MemcpyHtoDAsync(dst, src, bytes, stream));
}

static plm_gpu_r copy_out(struct plm_gpu_library *lib, void *stream, void *dst, uint64_t src,
                          uint64_t bytes)
{
    return R(lib, MemcpyDtoHAsync(dst, src, bytes, stream));
}

// ---- code ----

static plm_gpu_r module_load(struct plm_gpu_library *lib, const void *image, void **ret)
{
    plm_cu_module module = NULL;
    const plm_gpu_r r = R(lib, ModuleLoadData(&module, image));
    *ret = module;
    return r;
}

static void module_unload(struct plm_gpu_library *lib, void *module)
{
    R(lib, ModuleUnload(module));
}

static plm_gpu_r module_function(struct plm_gpu_library *lib, void *module, const char *symbol,
                                 void **ret)
{
    plm_cu_function function = NULL;
    const plm_gpu_r r = R(lib, ModuleGetFunction(&function, module, symbol));
    *ret = function;
    return r;
}

static plm_gpu_r function_local(struct plm_gpu_library *lib, void *function, uint64_t *ret)
{
    int bytes = 0;
    const plm_gpu_r r = R(lib, FuncGetAttribute(&bytes, PLM_CU_FUNC_LOCAL_BYTES, function));
    *ret = bytes > 0 ? (uint64_t)bytes : 0;
    return r;
}

// ---- launches and graphs ----

// The arguments as one packed blob, whose size the driver checks against the kernel's. The entry
// takes pointers that are not const, and writes nothing through them.
struct packed {
    size_t bytes;
    void *extra[5];
};

static void pack(const struct plm_gpu_launch *launch, struct packed *ret)
{
    ret->bytes = launch->args_bytes;
    ret->extra[0] = PLM_CU_EXTRA_POINTER;
    ret->extra[1] = (void *)(uintptr_t)launch->args;
    ret->extra[2] = PLM_CU_EXTRA_SIZE;
    ret->extra[3] = &ret->bytes;
    ret->extra[4] = PLM_CU_EXTRA_END;
}

static plm_gpu_r launch(struct plm_gpu_library *lib, void *stream, bool early,
                        const struct plm_gpu_launch *l)
{
    struct packed args;
    pack(l, &args);
    if (!early)
        return R(lib, LaunchKernel(l->function, l->grid[0], l->grid[1], l->grid[2], l->threads, 1,
                                   1, 0, stream, NULL, args.extra));
    plm_cu_launch_attribute attribute = {.id = PLM_CU_LAUNCH_PROGRAMMATIC,
                                         .value = {.programmatic = 1}};
    const plm_cu_launch_config config = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                                         .block = {l->threads, 1, 1},
                                         .stream = stream,
                                         .attributes = &attribute,
                                         .n_attributes = 1};
    return R(lib, LaunchKernelEx(&config, l->function, NULL, args.extra));
}

// Relaxed: what other threads ask of the driver meanwhile (readings) breaks no capture.
static plm_gpu_r capture_begin(struct plm_gpu_library *lib, void *stream)
{
    return R(lib, StreamBeginCapture(stream, PLM_CU_CAPTURE_RELAXED));
}

// What the next launch would depend on is the one before it alone.
static plm_gpu_r capture_node(struct plm_gpu_library *lib, void *stream, void **ret)
{
    unsigned int status = 0;
    uint64_t id;
    plm_cu_graph graph;
    const plm_cu_graph_node *nodes = NULL;
    const plm_cu_graph_edge *edges = NULL; // asked for, since edges of early launches carry data
    size_t n = 0;
    const plm_gpu_r r =
        R(lib, StreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &n));
    if (r != PLM_GPU_OK)
        return r;
    if (status != PLM_CU_CAPTURE_ACTIVE || n != 1)
        return PLM_GPU_UNSUPPORTED;
    *ret = nodes[0];
    return PLM_GPU_OK;
}

static plm_gpu_r capture_end(struct plm_gpu_library *lib, void *stream, void **ret_graph)
{
    plm_cu_graph graph = NULL;
    const plm_gpu_r r = R(lib, StreamEndCapture(stream, &graph));
    *ret_graph = graph;
    return r;
}

static void graph_destroy(struct plm_gpu_library *lib, void *graph)
{
    R(lib, GraphDestroy(graph));
}

static void graph_exec_destroy(struct plm_gpu_library *lib, void *exec)
{
    R(lib, GraphExecDestroy(exec));
}

static plm_gpu_r graph_instantiate(struct plm_gpu_library *lib, void *graph, void *stream,
                                   void **ret)
{
    plm_cu_graph_exec exec = NULL;
    plm_gpu_r r = R(lib, GraphInstantiateWithFlags(&exec, graph, 0));
    if (r != PLM_GPU_OK)
        return r;
    r = R(lib, GraphUpload(exec, stream));
    if (r == PLM_GPU_OK)
        *ret = exec;
    else
        graph_exec_destroy(lib, exec);
    return r;
}

static plm_gpu_r graph_set(struct plm_gpu_library *lib, void *exec, void *node,
                           const struct plm_gpu_launch *l)
{
    struct packed args;
    pack(l, &args);
    const plm_cu_kernel_node params = {.function = l->function,
                                       .grid = {l->grid[0], l->grid[1], l->grid[2]},
                                       .block = {l->threads, 1, 1},
                                       .extra = args.extra};
    return R(lib, GraphExecKernelNodeSetParams(exec, node, &params));
}

static plm_gpu_r graph_launch(struct plm_gpu_library *lib, void *exec, void *stream)
{
    return R(lib, GraphLaunch(exec, stream));
}

const struct plm_gpu_driver plm_cuda_driver = {
    .name = "cuda",
    .device_class = "cuda-p16",
    .source = "cuMemGetInfo",
    .confidence = PLM_CONFIDENCE_HIGH, // it equals what the card counts, at once (measured: H100)
    .images = plm_cuda_images,
    .n_images = &plm_cuda_n_images,
    // Measured: H100, driver 580.159.04. Stated, not read at open: a reading would move with the
    // neighbours, and proven plans hold for it.
    .context_bytes = UINT64_C(526) << 20,
    .unavailable_bytes = UINT64_C(4) << 20, // 2.2 MiB in granules
    .load = plm_cuda_load,
    .unload = plm_cuda_unload,
    .last_error = last_error,
    .count = plm_cuda_count,
    .describe = plm_cuda_describe,
    .context_create = context_create,
    .context_destroy = context_destroy,
    .enter = enter,
    .leave = leave,
    .memory_info = memory_info,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .map_granularity = map_granularity,
    .map = map,
    .unmap = unmap,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .module_load = module_load,
    .module_unload = module_unload,
    .module_function = module_function,
    .function_local = function_local,
    .launch = launch,
    .capture_begin = capture_begin,
    .capture_node = capture_node,
    .capture_end = capture_end,
    .graph_destroy = graph_destroy,
    .graph_instantiate = graph_instantiate,
    .graph_exec_destroy = graph_exec_destroy,
    .graph_set = graph_set,
    .graph_launch = graph_launch,
};
