// SPDX-License-Identifier: Apache-2.0
// NVIDIA's cards through the driver API. What is in backends/cuda is CUDA's alone; the host code is
// that of backends/gpudrv.
#ifndef PLM_CUDA_CUDA_H
#define PLM_CUDA_CUDA_H

#include "core/backend.h"

extern const struct plm_backend plm_cuda_backend;

#endif
