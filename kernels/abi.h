// SPDX-License-Identifier: Apache-2.0
// What host code, CPU kernels, CUDA/HIP kernels and shaders must agree on: tensor types, re-laid
// weight layouts and the argument structs of the ops. Includes nothing but fixed-width integers.
#ifndef PLM_KERNELS_ABI_H
#define PLM_KERNELS_ABI_H

#include <stdint.h>

// Tensor types with the numbers of the GGUF format (ggml.h).
enum plm_type {
    PLM_TYPE_F32 = 0,
    PLM_TYPE_F16 = 1,
    PLM_TYPE_Q4_0 = 2,
    PLM_TYPE_Q4_1 = 3,
    PLM_TYPE_Q5_0 = 6,
    PLM_TYPE_Q5_1 = 7,
    PLM_TYPE_Q8_0 = 8,
    PLM_TYPE_Q2_K = 10,
    PLM_TYPE_Q3_K = 11,
    PLM_TYPE_Q4_K = 12,
    PLM_TYPE_Q5_K = 13,
    PLM_TYPE_Q6_K = 14,
    PLM_TYPE_IQ4_NL = 20,
    PLM_TYPE_I32 = 26,
    PLM_TYPE_BF16 = 30,
    PLM_TYPE_MXFP4 = 39,
};

#endif
