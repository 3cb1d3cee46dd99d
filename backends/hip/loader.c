// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <string.h>

#include "backends/hip/impl.h"
#include "backends/shared/library.h"

// The first that has UUIDs and what else is required; older ones were not looked at.
#define NEEDS_VERSION 50200000

const char *const plm_hip_loader_names[] = {"libamdhip64.so.7",
                                            "libamdhip64.so.6",
                                            "libamdhip64.so.5",
                                            "libamdhip64.so",
                                            "/opt/rocm/lib/libamdhip64.so",
                                            NULL};

// ---- results ----

const char *plm_hip_error_name(const struct plm_gpu_library *lib, plm_hip_result result)
{
    const char *name = lib->hip.GetErrorName != NULL ? lib->hip.GetErrorName(result) : NULL;
    return name != NULL ? name : "an error without a name";
}

static plm_gpu_r meaning(plm_hip_result result)
{
    switch (result) {
    case PLM_HIP_SUCCESS: return PLM_GPU_OK;
    case PLM_HIP_OUT_OF_MEMORY:
    case PLM_HIP_RUNTIME_MEMORY: return PLM_GPU_OUT_OF_MEMORY;
    case PLM_HIP_NOT_READY: return PLM_GPU_NOT_READY;
    case PLM_HIP_INVALID_VALUE:
    case PLM_HIP_NOT_INITIALIZED:
    case PLM_HIP_INVALID_DEVICE:
    case PLM_HIP_INVALID_HANDLE:
    case PLM_HIP_INVALID_CONFIGURATION: // 2^32 threads or more
    case PLM_HIP_HOST_MEMORY_ALREADY_REGISTERED:
    case PLM_HIP_LAUNCH_OUT_OF_RESOURCES: // a block that the card cannot hold, whatever is free
        return PLM_GPU_INVALID;
    case PLM_HIP_NOT_FOUND: return PLM_GPU_NOT_FOUND;
    case PLM_HIP_NO_BINARY_FOR_GPU:
    case PLM_HIP_INVALID_DEVICE_FUNCTION: return PLM_GPU_NO_IMAGE;
    case PLM_HIP_INVALID_IMAGE:
    case PLM_HIP_INVALID_KERNEL_FILE:
    case PLM_HIP_INVALID_SOURCE:
    case PLM_HIP_FILE_NOT_FOUND:
    case PLM_HIP_SHARED_OBJECT_INIT_FAILED: return PLM_GPU_BAD_IMAGE;
    case PLM_HIP_NOT_SUPPORTED:
    case PLM_HIP_STREAM_CAPTURE_UNSUPPORTED:
    case PLM_HIP_STREAM_CAPTURE_INVALIDATED:
    case PLM_HIP_STREAM_CAPTURE_UNMATCHED:
    case PLM_HIP_STREAM_CAPTURE_IMPLICIT:
    case PLM_HIP_STREAM_CAPTURE_WRONG_THREAD: return PLM_GPU_UNSUPPORTED;
    case PLM_HIP_NO_DEVICE:
    case PLM_HIP_INSUFFICIENT_DRIVER: return PLM_GPU_UNAVAILABLE;
    case PLM_HIP_DEINITIALIZED:
    case PLM_HIP_PRIOR_LAUNCH_FAILURE:
    case PLM_HIP_INVALID_CONTEXT:
    case PLM_HIP_ECC_NOT_CORRECTABLE:
    case PLM_HIP_ILLEGAL_STATE:
    case PLM_HIP_ILLEGAL_ADDRESS:
    case PLM_HIP_LAUNCH_TIMEOUT:
    case PLM_HIP_CONTEXT_IS_DESTROYED:
    case PLM_HIP_ASSERT:
    case PLM_HIP_LAUNCH_FAILURE:
    case PLM_HIP_RUNTIME_OTHER: return PLM_GPU_LOST;
    default: return PLM_GPU_UNKNOWN;
    }
}

plm_gpu_r plm_hip_meaning(struct plm_gpu_library *lib, plm_hip_result result)
{
    if (result != PLM_HIP_SUCCESS && result != PLM_HIP_NOT_READY)
        atomic_store(&lib->last, result);
    return meaning(result);
}

// ---- the library ----

// NULL where all that are required are there, else the first that is not.
static const char *resolve(void *handle, struct plm_hip_fns *ret)
{
    const char *missing = NULL;
    void *
        found; // dlsym returns an object pointer; POSIX promises that it holds a function's address
#define X(name, params)                                                                            \
    found = dlsym(handle, "hip" #name);                                                            \
    memcpy(&ret->name, &found, sizeof(found));
    PLM_HIP_REQUIRED(X)
    PLM_HIP_OPTIONAL(X)
    PLM_HIP_LATER(X)
    X(GetErrorName, )
#undef X
#define X(name, params)                                                                            \
    if (ret->name == NULL && missing == NULL)                                                      \
        missing = "hip" #name;
    PLM_HIP_REQUIRED(X)
#undef X
    return missing;
}

static int start(struct plm_gpu_library *lib, const char *name, struct plm_error *err)
{
    const char *missing = resolve(lib->handle, &lib->hip);
    if (missing != NULL)
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "hip: %s has no %s: it is no HIP runtime of %d.%d or later", name, missing,
                        NEEDS_VERSION / 10000000, NEEDS_VERSION / 100000 % 100);
    const plm_hip_result init = lib->hip.Init(0);
    if (init == PLM_HIP_NO_DEVICE || init == PLM_HIP_INVALID_DEVICE) // 5.2 says the latter
        return plm_fail(err, PLM_ERR_NOT_FOUND,
                        "hip: %s sees no card (%s); it needs /dev/kfd and /dev/dri", name,
                        plm_hip_error_name(lib, init));
    if (init != PLM_HIP_SUCCESS)
        return plm_fail(err, PLM_ERR_UNSUPPORTED, "hip: %s does not start: %s", name,
                        plm_hip_error_name(lib, init));
    if (lib->hip.RuntimeGetVersion(&lib->version) != PLM_HIP_SUCCESS)
        lib->version = 0;
    if (lib->version < NEEDS_VERSION)
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "hip: %s is too old: it is of HIP %d.%d, and %d.%d or later is needed",
                        name, lib->version / 10000000, lib->version / 100000 % 100,
                        NEEDS_VERSION / 10000000, NEEDS_VERSION / 100000 % 100);
    return PLM_OK;
}

int plm_hip_load(struct plm_host *host, struct plm_gpu_library **ret, struct plm_error *err)
{
    char why[PLM_ERROR_MSG_BYTES] = "";
    const char *name;
    struct plm_gpu_library *lib = plm_calloc(host, PLM_HOST_DEVICE, 1, sizeof(*lib));
    if (lib == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "hip: no host memory for the driver");
    lib->handle = plm_library_open(plm_hip_loader_names, &name, why, sizeof(why));
    int rc = lib->handle != NULL
                 ? start(lib, name, err)
                 : plm_fail(err, PLM_ERR_NOT_FOUND,
                            "hip: no HIP runtime (ROCm; Debian package: libamdhip64-5): %s", why);
    if (rc != PLM_OK) {
        plm_hip_unload(host, lib);
        return rc;
    }
    *ret = lib;
    return PLM_OK;
}

void plm_hip_unload(struct plm_host *host, struct plm_gpu_library *lib)
{
    if (lib != NULL && lib->handle != NULL)
        dlclose(lib->handle);
    plm_free(host, lib);
}
