// SPDX-License-Identifier: Apache-2.0
// AMD's cards through the HIP runtime. What is in backends/hip is HIP's alone; the host code is
// that of backends/gpudrv.
#ifndef PLM_HIP_HIP_H
#define PLM_HIP_HIP_H

#include "core/backend.h"

extern const struct plm_backend plm_hip_backend;

#endif
