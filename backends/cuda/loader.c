// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <string.h>

#include "backends/cuda/impl.h"
#include "backends/shared/library.h"

// The embedded code is nvcc 13's, which drivers before it (580 is the first) do not load.
#define NEEDS_VERSION 13000

// The second is where WSL puts the driver. The name without a number is a stub of the toolkit's.
const char *const plm_cuda_loader_names[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", NULL};

// ---- results ----

const char *plm_cuda_error_name(const struct plm_gpu_library *lib, plm_cu_result result)
{
    const char *name = NULL;
    if (lib->cu.GetErrorName != NULL && lib->cu.GetErrorName(result, &name) == PLM_CU_SUCCESS &&
        name != NULL)
        return name;
    return "an error without a name";
}

static plm_gpu_r meaning(plm_cu_result result)
{
    switch (result) {
    case PLM_CU_SUCCESS: return PLM_GPU_OK;
    case PLM_CU_OUT_OF_MEMORY: return PLM_GPU_OUT_OF_MEMORY;
    case PLM_CU_NOT_READY: return PLM_GPU_NOT_READY;
    case PLM_CU_INVALID_VALUE:
    case PLM_CU_NOT_INITIALIZED:
    case PLM_CU_INVALID_DEVICE:
    case PLM_CU_INVALID_HANDLE:
    case PLM_CU_HOST_MEMORY_ALREADY_REGISTERED:
    case PLM_CU_LAUNCH_OUT_OF_RESOURCES: // a block that the card cannot hold, whatever is free
        return PLM_GPU_INVALID;
    case PLM_CU_NOT_FOUND: return PLM_GPU_NOT_FOUND;
    case PLM_CU_NO_BINARY_FOR_GPU: return PLM_GPU_NO_IMAGE;
    case PLM_CU_INVALID_IMAGE:
    case PLM_CU_INVALID_SOURCE:
    case PLM_CU_SHARED_OBJECT_INIT_FAILED: return PLM_GPU_BAD_IMAGE;
    case PLM_CU_INVALID_PTX:
    case PLM_CU_JIT_COMPILER_NOT_FOUND:
    case PLM_CU_UNSUPPORTED_PTX_VERSION:
    case PLM_CU_JIT_COMPILATION_DISABLED: return PLM_GPU_BAD_PTX;
    case PLM_CU_NOT_PERMITTED:
    case PLM_CU_NOT_SUPPORTED:
    case PLM_CU_STREAM_CAPTURE_UNSUPPORTED:
    case PLM_CU_STREAM_CAPTURE_INVALIDATED:
    case PLM_CU_STREAM_CAPTURE_UNMATCHED:
    case PLM_CU_STREAM_CAPTURE_IMPLICIT:
    case PLM_CU_STREAM_CAPTURE_WRONG_THREAD:
    case PLM_CU_GRAPH_EXEC_UPDATE_FAILURE: return PLM_GPU_UNSUPPORTED;
    case PLM_CU_NO_DEVICE:
    case PLM_CU_STUB_LIBRARY:
    case PLM_CU_DEVICE_UNAVAILABLE:
    case PLM_CU_SYSTEM_NOT_READY:
    case PLM_CU_SYSTEM_DRIVER_MISMATCH:
    case PLM_CU_MPS_CONNECTION_FAILED:
    case PLM_CU_MPS_SERVER_NOT_READY:
    case PLM_CU_MPS_MAX_CLIENTS_REACHED: return PLM_GPU_UNAVAILABLE;
    case PLM_CU_DEINITIALIZED:
    case PLM_CU_INVALID_CONTEXT:
    case PLM_CU_ECC_UNCORRECTABLE:
    case PLM_CU_NVLINK_UNCORRECTABLE:
    case PLM_CU_CONTAINED:
    case PLM_CU_ILLEGAL_ADDRESS:
    case PLM_CU_LAUNCH_TIMEOUT:
    case PLM_CU_CONTEXT_IS_DESTROYED:
    case PLM_CU_ASSERT:
    case PLM_CU_HARDWARE_STACK_ERROR:
    case PLM_CU_ILLEGAL_INSTRUCTION:
    case PLM_CU_MISALIGNED_ADDRESS:
    case PLM_CU_INVALID_ADDRESS_SPACE:
    case PLM_CU_INVALID_PC:
    case PLM_CU_LAUNCH_FAILED:
    case PLM_CU_MPS_RPC_FAILURE:
    case PLM_CU_MPS_CLIENT_TERMINATED:
    case PLM_CU_EXTERNAL_DEVICE: return PLM_GPU_LOST;
    default: return PLM_GPU_UNKNOWN;
    }
}

plm_gpu_r plm_cuda_meaning(struct plm_gpu_library *lib, plm_cu_result result)
{
    if (result != PLM_CU_SUCCESS && result != PLM_CU_NOT_READY)
        atomic_store(&lib->last, result);
    return meaning(result);
}

// ---- entry points ----

// dlsym returns an object pointer; POSIX promises that it holds a function's address.
union entry {
    void *object;
    void (*function)(void);
    plm_cu_get_proc_address *get_proc_address;
};

// name as it was in `since`; exported is what a library without cuGetProcAddress calls it.
static void *find(void *handle, plm_cu_get_proc_address *get, const char *name,
                  const char *exported, int since)
{
    void *found = NULL;
    unsigned int status = 0;
    if (get != NULL && get(name, &found, since, 0, &status) == PLM_CU_SUCCESS && found != NULL)
        return found;
    return dlsym(handle, exported);
}

// NULL where all that are required are there, else the first that is not.
static const char *resolve(void *handle, struct plm_cu_fns *ret)
{
    const union entry get = {.object = dlsym(handle, "cuGetProcAddress_v2")};
    const char *missing = NULL;
    void *found;
#define X(name, suffix, since, params)                                                             \
    found = find(handle, get.get_proc_address, "cu" #name, "cu" #name #suffix, since);             \
    memcpy(&ret->name, &found, sizeof(found));
    PLM_CU_REQUIRED(X)
    PLM_CU_OPTIONAL(X)
#undef X
#define X(name, suffix, since, params)                                                             \
    if (ret->name == NULL && missing == NULL)                                                      \
        missing = "cu" #name #suffix;
    PLM_CU_REQUIRED(X)
#undef X
    return missing;
}

// ---- the library ----

static int start(struct plm_gpu_library *lib, const char *name, struct plm_error *err)
{
    const char *missing = resolve(lib->handle, &lib->cu);
    if (missing != NULL)
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "cuda: %s has no %s: it is no NVIDIA driver of CUDA 13 (580 or later)",
                        name, missing);
    const plm_cu_result init = lib->cu.Init(0);
    if (init == PLM_CU_NO_DEVICE)
        return plm_fail(err, PLM_ERR_NOT_FOUND, "cuda: %s sees no card (%s)", name,
                        plm_cuda_error_name(lib, init));
    if (init != PLM_CU_SUCCESS)
        return plm_fail(err, PLM_ERR_UNSUPPORTED, "cuda: %s does not start: %s", name,
                        plm_cuda_error_name(lib, init));
    if (lib->cu.DriverGetVersion(&lib->version) != PLM_CU_SUCCESS)
        lib->version = 0;
    if (lib->version < NEEDS_VERSION)
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "cuda: the driver is too old: it is of CUDA %d.%d, and the kernels of this "
                        "build need %d.%d (driver 580) or later",
                        lib->version / 1000, lib->version % 1000 / 10, NEEDS_VERSION / 1000,
                        NEEDS_VERSION % 1000 / 10);
    return PLM_OK;
}

int plm_cuda_load(struct plm_host *host, struct plm_gpu_library **ret, struct plm_error *err)
{
    char why[PLM_ERROR_MSG_BYTES] = "";
    const char *name;
    struct plm_gpu_library *lib = plm_calloc(host, PLM_HOST_DEVICE, 1, sizeof(*lib));
    if (lib == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "cuda: no host memory for the driver");
    lib->handle = plm_library_open(plm_cuda_loader_names, &name, why, sizeof(why));
    int rc = lib->handle != NULL
                 ? start(lib, name, err)
                 : plm_fail(err, PLM_ERR_NOT_FOUND,
                            "cuda: no NVIDIA driver, 580 or later, of which libcuda.so.1 is part: "
                            "%s",
                            why);
    if (rc != PLM_OK) {
        plm_cuda_unload(host, lib);
        return rc;
    }
    *ret = lib;
    return PLM_OK;
}

void plm_cuda_unload(struct plm_host *host, struct plm_gpu_library *lib)
{
    if (lib != NULL && lib->handle != NULL)
        dlclose(lib->handle);
    plm_free(host, lib);
}
