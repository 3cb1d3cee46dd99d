// SPDX-License-Identifier: Apache-2.0
// The table of backends/gpudrv/driver.h in HIP's words.
#include <string.h>

#include "backends/hip/impl.h"

#define R(lib, call) plm_hip_meaning(lib, (lib)->hip.call)

static const char *last_error(const struct plm_gpu_library *lib)
{
    return plm_hip_error_name(lib, atomic_load(&lib->last));
}

// ---- contexts ----

// HIP has contexts in name alone: each card has one, which the whole process shares, and a thread
// says by SetDevice which it means. The handle is the card's number and 1.
static int card_of(const void *context)
{
    return (int)((uintptr_t)context - 1);
}

static plm_gpu_r enter(struct plm_gpu_library *lib, void *context, uint64_t *ret_before)
{
    int before = 0;
    plm_gpu_r r = R(lib, GetDevice(&before));
    *ret_before = (uint64_t)before;
    return r == PLM_GPU_OK ? R(lib, SetDevice(card_of(context))) : r;
}

static void leave(struct plm_gpu_library *lib, uint64_t before)
{
    R(lib, SetDevice((int)before));
}

static plm_gpu_r context_create(struct plm_gpu_library *lib, uint32_t card, void **ret)
{
    uint64_t before;
    *ret = (void *)((uintptr_t)card + 1);
    const plm_gpu_r r = enter(lib, *ret, &before);
    if (r == PLM_GPU_OK)
        leave(lib, before);
    return r;
}

// A card that failed is reset for the whole process: nothing else makes it usable again. (Where a
// kernel touches memory that is not there, ROCm ends the process instead of giving an error.)
static void context_destroy(struct plm_gpu_library *lib, void *context, bool lost)
{
    uint64_t before;
    if (!lost || enter(lib, context, &before) != PLM_GPU_OK)
        return;
    R(lib, DeviceReset());
    leave(lib, before);
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
    void *at = NULL;
    const plm_gpu_r r = R(lib, Malloc(&at, bytes));
    *ret_addr = (uintptr_t)at;
    return r;
}

static plm_gpu_r memory_free(struct plm_gpu_library *lib, uint64_t addr)
{
    return R(lib, Free((void *)(uintptr_t)addr));
}

static plm_gpu_r host_alloc(struct plm_gpu_library *lib, uint64_t bytes, void **ret,
                            uint64_t *ret_addr)
{
    void *at = NULL;
    plm_gpu_r r = R(lib, HostMalloc(ret, bytes, PLM_HIP_HOST_PORTABLE | PLM_HIP_HOST_MAPPED));
    if (r != PLM_GPU_OK)
        return r;
    r = R(lib, HostGetDevicePointer(&at, *ret, 0));
    if (r != PLM_GPU_OK)
        lib->hip.HostFree(*ret);
    *ret_addr = (uintptr_t)at;
    return r;
}

static plm_gpu_r host_free(struct plm_gpu_library *lib, void *host)
{
    return R(lib, HostFree(host));
}

static plm_gpu_r host_register(struct plm_gpu_library *lib, void *host, uint64_t bytes,
                               uint64_t *ret_addr)
{
    void *at = NULL;
    plm_gpu_r r = R(lib, HostRegister(host, bytes, PLM_HIP_REGISTER_MAPPED));
    if (r != PLM_GPU_OK)
        return r;
    r = R(lib, HostGetDevicePointer(&at, host, 0));
    if (r != PLM_GPU_OK)
        lib->hip.HostUnregister(host);
    *ret_addr = (uintptr_t)at;
    return r;
}

static plm_gpu_r host_unregister(struct plm_gpu_library *lib, void *host)
{
    return R(lib, HostUnregister(host));
}

// ---- streams, events, copies ----

static plm_gpu_r stream_create(struct plm_gpu_library *lib, void **ret)
{
    plm_hip_stream stream = NULL;
    const plm_gpu_r r = R(lib, StreamCreateWithFlags(&stream, PLM_HIP_STREAM_NON_BLOCKING));
    *ret = stream;
    return r;
}

static void stream_destroy(struct plm_gpu_library *lib, void *stream)
{
    R(lib, StreamDestroy(stream));
}

static plm_gpu_r event_create(struct plm_gpu_library *lib, void **ret)
{
    plm_hip_event event = NULL;
    const plm_gpu_r r = R(lib, EventCreateWithFlags(&event, PLM_HIP_EVENT_NO_TIMING));
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
    return R(lib, MemcpyAsync((void *)(uintptr_t)dst, src, bytes, PLM_HIP_COPY_TO_DEVICE, stream));
}

static plm_gpu_r copy_out(struct plm_gpu_library *lib, void *stream, void *dst, uint64_t src,
                          uint64_t bytes)
{
    return R(lib,
             MemcpyAsync(dst, (const void *)(uintptr_t)src, bytes, PLM_HIP_COPY_TO_HOST, stream));
}

// ---- code ----

static plm_gpu_r module_load(struct plm_gpu_library *lib, const void *image, void **ret)
{
    plm_hip_module module = NULL;
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
    plm_hip_function function = NULL;
    const plm_gpu_r r = R(lib, ModuleGetFunction(&function, module, symbol));
    *ret = function;
    return r;
}

static plm_gpu_r function_local(struct plm_gpu_library *lib, void *function, uint64_t *ret)
{
    int bytes = 0;
    const plm_gpu_r r = R(lib, FuncGetAttribute(&bytes, PLM_HIP_FUNC_LOCAL_BYTES, function));
    *ret = bytes > 0 ? (uint64_t)bytes : 0;
    return r;
}

// ---- launches and graphs ----

// The arguments go as one packed blob. The entry takes pointers that are not const, and writes
// nothing through them.
static plm_gpu_r launch(struct plm_gpu_library *lib, void *stream, bool early,
                        const struct plm_gpu_launch *l)
{
    size_t bytes = l->args_bytes;
    void *extra[] = {PLM_HIP_EXTRA_POINTER, (void *)(uintptr_t)l->args, PLM_HIP_EXTRA_SIZE, &bytes,
                     PLM_HIP_EXTRA_END};
    (void)early;
    return R(lib, ModuleLaunchKernel(l->function, l->grid[0], l->grid[1], l->grid[2], l->threads, 1,
                                     1, 0, stream, NULL, extra));
}

static plm_gpu_r capture_begin(struct plm_gpu_library *lib, void *stream)
{
    return R(lib, StreamBeginCapture(stream, PLM_HIP_CAPTURE_RELAXED));
}

static plm_gpu_r capture_end(struct plm_gpu_library *lib, void *stream, void **ret_graph)
{
    plm_hip_graph graph = NULL;
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
    plm_hip_graph_exec exec = NULL;
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

static plm_gpu_r graph_launch(struct plm_gpu_library *lib, void *exec, void *stream)
{
    return R(lib, GraphLaunch(exec, stream));
}

const struct plm_gpu_driver plm_hip_driver = {
    .name = "hip",
    .device_class = "hip-p16",
    .source = "hipMemGetInfo",
    .confidence = PLM_CONFIDENCE_MEDIUM, // not measured
    .images = plm_hip_images,
    .n_images = &plm_hip_n_images,
    // Not measured: CUDA's figures.
    .context_bytes = UINT64_C(526) << 20,
    .unavailable_bytes = UINT64_C(4) << 20,
    .load = plm_hip_load,
    .unload = plm_hip_unload,
    .last_error = last_error,
    .count = plm_hip_count,
    .describe = plm_hip_describe,
    .context_create = context_create,
    .context_destroy = context_destroy,
    .enter = enter,
    .leave = leave,
    .memory_info = memory_info,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
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
    .capture_end = capture_end,
    .graph_destroy = graph_destroy,
    .graph_instantiate = graph_instantiate,
    .graph_exec_destroy = graph_exec_destroy,
    .graph_launch = graph_launch,
};
