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
// Two factors a block take more than 128 registers.
#define FEW(name, type)                                                                            \
    GLU(gemv, name, type, 1, 3)                                                                    \
    GLU(skinny, name, type, 16, plm_layout<PLM_TYPE_##type>::halves ? 1 : 2)
#define ALL(name, type)                                                                            \
    FEW(name, type)                                                                                \
    GLU(gemm, name, type, 64, 1)

#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_ON_GPU_##BACKENDS(PLM_QUANTISED_##CODES(                                                   \
        PLM_GPU_VARIANTS_##BACKENDS(ALL(name, NAME), FEW(name, NAME))))
#include "kernels/types.def"
