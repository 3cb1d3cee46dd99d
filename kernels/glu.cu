// SPDX-License-Identifier: Apache-2.0
// glu over 8-bit activations, two panels of gate and two of up a block. gemv: one row;
// skinny: up to 16; gemm: up to 64. All give the same bits, and take any number of rows in so many
// at once.
#include "kernels/lib/glu.cuh"
#include "kernels/lib/q8.cuh"

#define GLU(variant, name, type, rows, blocks)                                                     \
    PLM_KERNEL(plm_glu_##variant##_##name, PLM_PRODUCT_THREADS, blocks, plm_glu_args)              \
    {                                                                                              \
        typedef plm_q8_##variant<PLM_TYPE_##type, 4> product;                                      \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        plm_glu<product, rows>(a, shared);                                                         \
    }
#define GLUS(name, type, skinny_blocks)                                                            \
    GLU(gemv, name, type, 1, 3)                                                                    \
    GLU(skinny, name, type, 16, skinny_blocks)                                                     \
    GLU(gemm, name, type, 64, 1)

GLUS(q8_0, Q8_0, 2)
GLUS(q4_0, Q4_0, 2)
GLUS(q4_1, Q4_1, 2)
GLUS(q4_k, Q4_K, 2)
GLUS(q6_k, Q6_K, 1) // more than 128 registers
