// SPDX-License-Identifier: Apache-2.0
// The backends of this build, the default one first.
#include <stddef.h>

#include "backends/cpu/cpu.h"
#ifdef PLM_BACKEND_CUDA
#include "backends/cuda/cuda.h"
#endif
#ifdef PLM_BACKEND_HIP
#include "backends/hip/hip.h"
#endif
#include "backends/sim/sim.h"
#ifdef PLM_BACKEND_VULKAN
#include "backends/vulkan/vulkan.h"
#endif
#include "core/backend.h"

const struct plm_backend *const plm_backends[] = {
    &plm_cpu_backend,
    &plm_sim_backend,
#ifdef PLM_BACKEND_CUDA
    &plm_cuda_backend,
#endif
#ifdef PLM_BACKEND_HIP
    &plm_hip_backend,
#endif
#ifdef PLM_BACKEND_VULKAN
    &plm_vulkan_backend,
#endif
    NULL,
};
