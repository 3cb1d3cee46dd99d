// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "backends/cuda/impl.h"
#include "backends/gpudrv/impl.h"
#include "backends/hostmem/proc.h"

// Kernels use what cards have since then: asynchronous copies, matrix products of BF16 and TF32.
#define NEEDS_MAJOR 8
// Programmatic dependent launch.
#define EARLY_MAJOR 9

plm_gpu_r plm_cuda_count(struct plm_gpu_library *lib, uint32_t *ret)
{
    int n = 0;
    const plm_gpu_r r = plm_cuda_meaning(lib, lib->cu.DeviceGetCount(&n));
    *ret = n > 0 ? (uint32_t)n : 0;
    return r;
}

// 0 where the driver does not know the attribute.
static int attribute(struct plm_gpu_library *lib, unsigned int which, plm_cu_device device)
{
    int value = 0;
    return lib->cu.DeviceGetAttribute(&value, which, device) == PLM_CU_SUCCESS ? value : 0;
}

// "CUDA 13.0, 580.159.04": the second is the kernel module's, whose file has a line
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue ...".
static void driver_text(const struct plm_gpu_library *lib, char *ret, size_t size)
{
    struct plm_lines lines;
    const int used =
        snprintf(ret, size, "CUDA %d.%d", lib->version / 1000, lib->version % 1000 / 10);
    if (!plm_lines_open(&lines, NULL, "/proc/driver/nvidia/version"))
        return;
    const char *at = plm_lines_next(&lines);
    for (; at != NULL && *at != '\0'; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        const size_t len = strcspn(at, " "), digits = strspn(at, "0123456789.");
        if (digits > 0 && digits == len && memchr(at, '.', len) != NULL) {
            snprintf(ret + used, size - (size_t)used, ", %.*s", (int)len, at);
            break;
        }
    }
    plm_lines_close(&lines);
}

static bool has_mapping(const struct plm_cu_fns *cu)
{
    return cu->MemAddressReserve != NULL && cu->MemAddressFree != NULL && cu->MemCreate != NULL &&
           cu->MemRelease != NULL && cu->MemMap != NULL && cu->MemUnmap != NULL &&
           cu->MemSetAccess != NULL && cu->MemGetAllocationGranularity != NULL;
}

static bool has_graphs(const struct plm_cu_fns *cu)
{
    return cu->StreamBeginCapture != NULL && cu->StreamEndCapture != NULL &&
           cu->StreamGetCaptureInfo != NULL && cu->GraphInstantiateWithFlags != NULL &&
           cu->GraphUpload != NULL && cu->GraphLaunch != NULL &&
           cu->GraphExecKernelNodeSetParams != NULL && cu->GraphExecDestroy != NULL &&
           cu->GraphDestroy != NULL;
}

static void check_card(struct plm_gpu_library *lib, plm_cu_device device, struct plm_gpu_card *ret)
{
    const int major = attribute(lib, PLM_CU_ATTR_MAJOR, device);
    const int minor = attribute(lib, PLM_CU_ATTR_MINOR, device);
    snprintf(ret->arch, sizeof(ret->arch), "sm_%d%d", major, minor);
    ret->unified = attribute(lib, PLM_CU_ATTR_INTEGRATED, device) != 0;
    // Only where the driver shares the card with another system's (WSL, some virtual cards) does a
    // card of its own lack this.
    ret->spills = !ret->unified && attribute(lib, PLM_CU_ATTR_CONCURRENT_MANAGED, device) == 0;
    ret->shared_service = attribute(lib, PLM_CU_ATTR_MPS, device) != 0;
    ret->virtual_memory =
        attribute(lib, PLM_CU_ATTR_VIRTUAL_MEMORY, device) != 0 && has_mapping(&lib->cu);
    ret->programmatic = major >= EARLY_MAJOR && lib->cu.LaunchKernelEx != NULL;
    ret->graphs = ret->graphs_settable = has_graphs(&lib->cu);
    if (major < NEEDS_MAJOR)
        snprintf(ret->missing, sizeof(ret->missing),
                 "compute capability %d.0 or later (Ampere; it has %d.%d)", NEEDS_MAJOR, major,
                 minor);
    else if (attribute(lib, PLM_CU_ATTR_COMPUTE_MODE, device) == PLM_CU_COMPUTE_MODE_PROHIBITED)
        snprintf(ret->missing, sizeof(ret->missing),
                 "permission to compute (its compute mode is PROHIBITED)");
}

plm_gpu_r plm_cuda_describe(struct plm_gpu_library *lib, uint32_t card, struct plm_gpu_card *ret)
{
    plm_cu_device device;
    plm_cu_uuid uuid;
    size_t total;
    plm_cu_result r = lib->cu.DeviceGet(&device, (int)card);
    if (r == PLM_CU_SUCCESS)
        r = lib->cu.DeviceGetName(ret->name, (int)sizeof(ret->name), device);
    if (r == PLM_CU_SUCCESS)
        r = lib->cu.DeviceGetUuid(&uuid, device);
    if (r == PLM_CU_SUCCESS)
        r = lib->cu.DeviceTotalMem(&total, device);
    if (r != PLM_CU_SUCCESS)
        return plm_cuda_meaning(lib, r);
    ret->name[sizeof(ret->name) - 1] = '\0';
    ret->total_bytes = total;
    plm_gpu_uuid_text(uuid.bytes, ret->uuid);
    driver_text(lib, ret->driver, sizeof(ret->driver));
    check_card(lib, device, ret);
    return PLM_GPU_OK;
}
