// SPDX-License-Identifier: Apache-2.0
// glu over float activations, two panels of gate and two of up a block. gemv: one row;
// skinny: up to 8; gemm: 64. All give the same bits, and take any number of rows in so many at
// once.
#include "kernels/lib/float_gemm.cuh"
#include "kernels/lib/float_skinny.cuh"
#include "kernels/lib/glu.cuh"

#define GLU(variant, name, blocks, ...)                                                            \
    PLM_KERNEL(plm_glu_float_##variant##_##name, PLM_PRODUCT_THREADS, blocks, plm_glu_args)        \
    {                                                                                              \
        typedef __VA_ARGS__ product;                                                               \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        plm_glu<product>(a, shared);                                                               \
    }
#define GEMV(name, type)   GLU(gemv, name, 4, plm_float_skinny<PLM_TYPE_##type, 4, 1>)
#define SKINNY(name, type) GLU(skinny, name, 3, plm_float_skinny<PLM_TYPE_##type, 4, 8>)
#define GEMM(name, type)   GLU(gemm, name, 2, plm_float_gemm<PLM_TYPE_##type, 4>)

PLM_FLOAT_PRODUCTS(GEMV, SKINNY, GEMM)
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_ON_GPU_##BACKENDS(PLM_QUANTISED_##CODES(SKINNY(name, NAME)))
#include "kernels/types.def"
