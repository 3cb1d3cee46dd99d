// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "backends/gpudrv/impl.h"
#include "backends/hip/impl.h"

// Earlier versions replay graphs with the arguments of another one, or leak.
#define GRAPHS_VERSION 60100000
// ROCm's own reading of a card's free memory came with 5.3, and HIP took it up after that; before,
// it is what this process has left.
#define READINGS_VERSION 60000000

plm_gpu_r plm_hip_count(struct plm_gpu_library *lib, uint32_t *ret)
{
    int n = 0;
    const plm_gpu_r r = plm_hip_meaning(lib, lib->hip.GetDeviceCount(&n));
    *ret = n > 0 ? (uint32_t)n : 0;
    return r;
}

// "gfx90a" of "gfx90a:sramecc+:xnack-"; "" where the driver does not tell.
static void arch_of(struct plm_gpu_library *lib, int device, char *ret, size_t size)
{
    plm_hip_properties properties = {{0}};
    const char *name = NULL;
    if (lib->hip.GetDevicePropertiesR0600 != NULL) {
        if (lib->hip.GetDevicePropertiesR0600(&properties, device) == PLM_HIP_SUCCESS)
            name = properties.bytes + PLM_HIP_ARCH_NAME_AT_600;
    } else if (lib->hip.GetDeviceProperties != NULL) {
        if (lib->hip.GetDeviceProperties(&properties, device) == PLM_HIP_SUCCESS)
            name = properties.bytes + PLM_HIP_ARCH_NAME_AT;
    }
    const size_t len = name != NULL ? strnlen(name, PLM_HIP_ARCH_NAME_BYTES) : 0;
    const char *flags = len > 0 ? memchr(name, ':', len) : NULL;
    snprintf(ret, size, "%.*s", (int)(flags != NULL ? (size_t)(flags - name) : len),
             name != NULL ? name : "");
}

static bool has_graphs(const struct plm_gpu_library *lib)
{
    const struct plm_hip_fns *hip = &lib->hip;
    return lib->version >= GRAPHS_VERSION && hip->StreamBeginCapture != NULL &&
           hip->StreamEndCapture != NULL && hip->GraphInstantiateWithFlags != NULL &&
           hip->GraphUpload != NULL && hip->GraphLaunch != NULL && hip->GraphExecDestroy != NULL &&
           hip->GraphDestroy != NULL;
}

plm_gpu_r plm_hip_describe(struct plm_gpu_library *lib, uint32_t card, struct plm_gpu_card *ret)
{
    const int device = (int)card;
    plm_hip_uuid uuid;
    size_t total = 0;
    int integrated = 0;
    plm_hip_result r = lib->hip.DeviceGetName(ret->name, (int)sizeof(ret->name), device);
    if (r == PLM_HIP_SUCCESS)
        r = lib->hip.DeviceGetUuid(&uuid, device);
    if (r == PLM_HIP_SUCCESS)
        r = lib->hip.DeviceTotalMem(&total, device);
    if (r == PLM_HIP_SUCCESS)
        r = lib->hip.DeviceGetAttribute(&integrated, PLM_HIP_ATTR_INTEGRATED, device);
    if (r != PLM_HIP_SUCCESS)
        return plm_hip_meaning(lib, r);
    ret->name[sizeof(ret->name) - 1] = '\0';
    ret->total_bytes = total;
    ret->unified = integrated != 0;
    // Mapped memory is left alone: versions from 5 to 7 leak it, leave its ranges busy or refuse
    // legal arguments, each in its own way.
    ret->graphs = has_graphs(lib);
    ret->sees_itself = lib->version < READINGS_VERSION;
    plm_gpu_uuid_text(uuid.bytes, ret->uuid);
    arch_of(lib, device, ret->arch, sizeof(ret->arch));
    snprintf(ret->driver, sizeof(ret->driver), "HIP %d.%d.%d", lib->version / 10000000,
             lib->version / 100000 % 100, lib->version % 100000);
    if (ret->arch[0] == '\0')
        snprintf(ret->missing, sizeof(ret->missing), "a name of its architecture");
    return PLM_GPU_OK;
}
