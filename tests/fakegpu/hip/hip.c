// SPDX-License-Identifier: Apache-2.0
// libamdhip64.so.6 as backends/hip/api.h declares it. Each device has one context, made when it is
// first needed and destroyed by a reset.
#include <stdio.h>
#include <string.h>

#include "backends/hip/api.h"
#include "tests/fakegpu/fake.h"

#define DEVICES 8

static _Thread_local int device_of_thread;
static struct fake_ctx *contexts[DEVICES];

// With the lock held, or where the context is there.
static int current(struct fake_ctx **ret)
{
    struct fake_ctx **ctx = &contexts[device_of_thread];
    const int r = *ctx == NULL ? fake_ctx_create(device_of_thread, ctx) : FAKE_OK;
    *ret = *ctx;
    return r;
}

static void forget(void)
{
    memset(contexts, 0, sizeof(contexts));
}

// ---- images: a bundle of code objects, each with its architecture ----

#define BUNDLE_MAGIC "__CLANG_OFFLOAD_BUNDLE__"
#define ENTRIES_MAX  64u

// "gfx90a:sramecc+:xnack-" runs code for gfx90a, and for gfx90a with features that it has.
static bool runs(const char *target, size_t n, const char *arch)
{
    const char *at = memmem(target, n, "--", 2);
    if (at == NULL)
        return false;
    at += 2;
    const size_t left = n - (size_t)(at - target);
    const size_t name = strcspn(arch, ":");
    return left >= name && memcmp(at, arch, name) == 0 && (left == name || at[name] == ':');
}

static int image(const void *data, const char *arch, const char **symbols, size_t *bytes)
{
    const char *at = data;
    uint64_t n = 0;
    bool found = false;
    if (memcmp(at, BUNDLE_MAGIC, sizeof(BUNDLE_MAGIC) - 1) != 0)
        return FAKE_INVALID_IMAGE;
    at += sizeof(BUNDLE_MAGIC) - 1;
    memcpy(&n, at, 8);
    at += 8;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t entry[3]; // offset, bytes, bytes of the target's name
        memcpy(entry, at, sizeof(entry));
        at += sizeof(entry);
        if (n > ENTRIES_MAX || entry[2] > 256)
            return FAKE_INVALID_IMAGE;
        const char *code = (const char *)data + entry[0];
        if (entry[1] > 0 && runs(at, entry[2], arch)) {
            if (memcmp(code, "\177ELF", 4) != 0)
                return FAKE_INVALID_IMAGE;
            *symbols = code;
            *bytes = entry[1];
            found = true;
        }
        at += entry[2];
    }
    return found ? FAKE_OK : FAKE_NO_BINARY;
}

// CDNA and GCN have 64, RDNA has 32.
static uint32_t lanes(const char *arch)
{
    return strncmp(arch, "gfx9", 4) == 0 ? 64 : 32;
}

const struct fake_front fake_front = {.name = "hip",
                                      .device_name = "Fake Instinct",
                                      .arch = "gfx90a:sramecc+:xnack-",
                                      .driver = 60000000,
                                      .lanes = lanes,
                                      .current = current,
                                      .forget = forget,
                                      .image = image};

// ---- entry points ----

#define X(name, params) FAKE_EXPORT plm_hip_result hip##name params;
PLM_HIP_REQUIRED(X)
PLM_HIP_OPTIONAL(X)
PLM_HIP_LATER(X)
#undef X
FAKE_EXPORT plm_hip_get_error_name hipGetErrorName;

static plm_hip_result leave(int result)
{
    fake_unlock();
    return (plm_hip_result)result;
}
#define LOCKED(call) (fake_lock(), leave(call))

plm_hip_result hipInit(unsigned int flags)
{
    return flags != 0 ? PLM_HIP_INVALID_VALUE : LOCKED(fake_init());
}

plm_hip_result hipRuntimeGetVersion(int *version)
{
    struct world w;
    if (!rules_world(&w))
        return PLM_HIP_UNKNOWN;
    *version = (int)w.driver;
    return PLM_HIP_SUCCESS;
}

plm_hip_result hipGetDeviceCount(int *count)
{
    struct world w;
    const int r = fake_world(&w);
    *count = r == FAKE_OK ? (int)w.count : 0;
    return r == FAKE_OK && w.count == 0 ? PLM_HIP_NO_DEVICE : (plm_hip_result)r;
}

// What is shown of a device, which must be there.
static int shown(int device, struct world *w)
{
    struct fault fault;
    const int r = fake_world(w);
    if (r != FAKE_OK)
        return r;
    if (rules_strike(PLACE_DEVICE, 0, &fault))
        return fault.result;
    return device >= 0 && (uint32_t)device < w->count ? FAKE_OK : FAKE_INVALID_DEVICE;
}

plm_hip_result hipDeviceGetName(char *name, int len, int device)
{
    struct world w;
    const int r = shown(device, &w);
    if (r == FAKE_OK)
        snprintf(name, (size_t)len, "%s", w.name);
    return (plm_hip_result)r;
}

plm_hip_result hipDeviceGetUuid(plm_hip_uuid *uuid, int device)
{
    struct world w;
    char text[20];
    const int r = shown(device, &w);
    if (r == FAKE_OK) {
        snprintf(text, sizeof(text), "%016llx", (unsigned long long)(w.uuid + (uint64_t)device));
        memcpy(uuid->bytes, text, sizeof(uuid->bytes));
    }
    return (plm_hip_result)r;
}

plm_hip_result hipDeviceTotalMem(size_t *bytes, int device)
{
    struct world w;
    const int r = shown(device, &w);
    if (r == FAKE_OK)
        *bytes = fake_script() != NULL ? fake_script()->heap_bytes : w.size;
    return (plm_hip_result)r;
}

plm_hip_result hipDeviceGetAttribute(int *value, unsigned int attribute, int device)
{
    struct world w;
    const int r = shown(device, &w);
    if (r != FAKE_OK)
        return (plm_hip_result)r;
    switch (attribute) {
    case PLM_HIP_ATTR_CONCURRENT_MANAGED: *value = (int)w.managed; break;
    case PLM_HIP_ATTR_INTEGRATED: *value = w.integrated; break;
    case PLM_HIP_ATTR_MULTIPROCESSORS: *value = 104; break;
    default: return PLM_HIP_INVALID_VALUE;
    }
    return PLM_HIP_SUCCESS;
}

static int properties(plm_hip_properties *ret, int device, size_t at)
{
    struct world w;
    const int r = shown(device, &w);
    if (r == FAKE_OK)
        snprintf(ret->bytes + at, PLM_HIP_ARCH_NAME_BYTES, "%s", w.arch);
    return r;
}

plm_hip_result hipGetDeviceProperties(plm_hip_properties *ret, int device)
{
    return (plm_hip_result)properties(ret, device, PLM_HIP_ARCH_NAME_AT);
}

plm_hip_result hipGetDevicePropertiesR0600(plm_hip_properties *ret, int device)
{
    return (plm_hip_result)properties(ret, device, PLM_HIP_ARCH_NAME_AT_600);
}

// ---- contexts ----

plm_hip_result hipSetDevice(int device)
{
    struct world w;
    const int r = shown(device, &w);
    if (r == FAKE_OK)
        device_of_thread = device;
    return (plm_hip_result)r;
}

plm_hip_result hipGetDevice(int *device)
{
    *device = device_of_thread;
    return PLM_HIP_SUCCESS;
}

static int reset(void)
{
    struct fake_ctx **ctx = &contexts[device_of_thread];
    const int r = *ctx != NULL ? fake_ctx_destroy(*ctx) : FAKE_OK;
    *ctx = NULL;
    return r;
}

plm_hip_result hipDeviceReset(void)
{
    return LOCKED(reset());
}

// ---- memory ----

// A reading waits for no kernel, and so takes no lock where the context is there.
plm_hip_result hipMemGetInfo(size_t *free, size_t *total)
{
    uint64_t f = 0, t = 0;
    const plm_hip_result r = contexts[device_of_thread] != NULL
                                 ? (plm_hip_result)fake_mem_info(&f, &t)
                                 : LOCKED(fake_mem_info(&f, &t));
    *free = f;
    *total = t;
    return r;
}

plm_hip_result hipMalloc(void **ptr, size_t bytes)
{
    uint64_t address = 0;
    const plm_hip_result r = LOCKED(fake_alloc(bytes, &address));
    *ptr = (void *)(uintptr_t)address;
    return r;
}

plm_hip_result hipFree(void *ptr)
{
    return LOCKED(fake_free((uint64_t)(uintptr_t)ptr));
}

plm_hip_result hipHostMalloc(void **ptr, size_t bytes, unsigned int flags)
{
    (void)flags;
    return LOCKED(fake_host_alloc(bytes, ptr));
}

plm_hip_result hipHostFree(void *ptr)
{
    return LOCKED(fake_host_free(ptr));
}

plm_hip_result hipHostRegister(void *ptr, size_t bytes, unsigned int flags)
{
    (void)flags;
    return LOCKED(fake_host_register(ptr, bytes));
}

plm_hip_result hipHostUnregister(void *ptr)
{
    return LOCKED(fake_host_unregister(ptr));
}

plm_hip_result hipHostGetDevicePointer(void **ptr, void *host, unsigned int flags)
{
    uint64_t address = 0;
    const plm_hip_result r =
        flags != 0 ? PLM_HIP_INVALID_VALUE : LOCKED(fake_host_address(host, &address));
    *ptr = (void *)(uintptr_t)address;
    return r;
}

plm_hip_result hipMemcpyAsync(void *dst, const void *src, size_t bytes, unsigned int kind,
                              plm_hip_stream stream)
{
    if (kind != PLM_HIP_COPY_TO_DEVICE && kind != PLM_HIP_COPY_TO_HOST)
        return PLM_HIP_INVALID_VALUE;
    return LOCKED(fake_copy((void *)stream, dst, src, bytes, kind == PLM_HIP_COPY_TO_DEVICE));
}

// ---- modules and launches ----

plm_hip_result hipModuleLoadData(plm_hip_module *module, const void *data)
{
    return LOCKED(fake_module_load(data, (struct fake_module **)(void *)module));
}

plm_hip_result hipModuleUnload(plm_hip_module module)
{
    return LOCKED(fake_module_unload((void *)module));
}

plm_hip_result hipModuleGetFunction(plm_hip_function *function, plm_hip_module module,
                                    const char *name)
{
    return LOCKED(
        fake_module_function((void *)module, name, (struct fake_function **)(void *)function));
}

static int function_attribute(const struct fake_function *f)
{
    return fake_object_is(f, FAKE_FUNCTION) ? FAKE_OK : FAKE_INVALID_HANDLE;
}

plm_hip_result hipFuncGetAttribute(int *value, unsigned int attribute, plm_hip_function function)
{
    *value = 0; // bytes of local memory: our kernels have none
    return attribute != PLM_HIP_FUNC_LOCAL_BYTES ? PLM_HIP_INVALID_VALUE
                                                 : LOCKED(function_attribute((void *)function));
}

plm_hip_result hipModuleLaunchKernel(plm_hip_function function, unsigned int grid_x,
                                     unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                                     unsigned int block_y, unsigned int block_z,
                                     unsigned int shared_bytes, plm_hip_stream stream,
                                     void **params, void **extra)
{
    struct fake_launch l = {.function = (void *)function,
                            .grid = {grid_x, grid_y, grid_z},
                            .block = {block_x, block_y, block_z},
                            .shared_bytes = shared_bytes};
    if (params != NULL || extra == NULL || extra[0] != PLM_HIP_EXTRA_POINTER ||
        extra[2] != PLM_HIP_EXTRA_SIZE || extra[4] != PLM_HIP_EXTRA_END ||
        *(const size_t *)extra[3] > FAKE_ARGS_BYTES) {
        rules_misuse("a launch without packed arguments");
        return PLM_HIP_INVALID_VALUE;
    }
    l.args_bytes = (uint32_t) * (const size_t *)extra[3];
    memcpy(l.args, extra[1], l.args_bytes);
    return LOCKED(fake_launch_kernel((void *)stream, &l));
}

// ---- streams, events, graphs ----

plm_hip_result hipStreamCreateWithFlags(plm_hip_stream *stream, unsigned int flags)
{
    (void)flags;
    return LOCKED(fake_stream_create((struct fake_stream **)(void *)stream));
}

plm_hip_result hipStreamDestroy(plm_hip_stream stream)
{
    return LOCKED(fake_stream_destroy((void *)stream));
}

plm_hip_result hipEventCreateWithFlags(plm_hip_event *event, unsigned int flags)
{
    (void)flags;
    return LOCKED(fake_event_create((struct fake_event **)(void *)event));
}

plm_hip_result hipEventDestroy(plm_hip_event event)
{
    return LOCKED(fake_event_destroy((void *)event));
}

plm_hip_result hipEventRecord(plm_hip_event event, plm_hip_stream stream)
{
    return LOCKED(fake_event_record((void *)event, (void *)stream));
}

plm_hip_result hipEventQuery(plm_hip_event event)
{
    return LOCKED(fake_event_query((void *)event));
}

plm_hip_result hipStreamBeginCapture(plm_hip_stream stream, unsigned int mode)
{
    (void)mode;
    return LOCKED(fake_capture_begin((void *)stream));
}

plm_hip_result hipStreamEndCapture(plm_hip_stream stream, plm_hip_graph *graph)
{
    return LOCKED(fake_capture_end((void *)stream, (struct fake_graph **)(void *)graph));
}

plm_hip_result hipGraphInstantiateWithFlags(plm_hip_graph_exec *exec, plm_hip_graph graph,
                                            unsigned long long flags)
{
    return flags != 0
               ? PLM_HIP_INVALID_VALUE
               : LOCKED(fake_graph_instantiate((void *)graph, (struct fake_exec **)(void *)exec));
}

plm_hip_result hipGraphUpload(plm_hip_graph_exec exec, plm_hip_stream stream)
{
    return LOCKED(fake_graph_upload((void *)exec, (void *)stream));
}

plm_hip_result hipGraphLaunch(plm_hip_graph_exec exec, plm_hip_stream stream)
{
    return LOCKED(fake_graph_launch((void *)exec, (void *)stream));
}

plm_hip_result hipGraphExecDestroy(plm_hip_graph_exec exec)
{
    return LOCKED(fake_exec_destroy((void *)exec));
}

plm_hip_result hipGraphDestroy(plm_hip_graph graph)
{
    return LOCKED(fake_graph_destroy((void *)graph));
}

const char *hipGetErrorName(plm_hip_result result)
{
    switch (result) {
#define X(NAME, theirs, value)                                                                     \
    case PLM_HIP_##NAME: return #theirs;
        PLM_HIP_RESULTS(X)
#undef X
    default: return "hipErrorUnknown";
    }
}
