// SPDX-License-Identifier: Apache-2.0
// matmul over 8-bit activations. gemv: one row; skinny: up to 16; gemm: up to 64; two panels a
// block. All give the same bits, and take any number of rows in so many at once. (tiled:
// matmul_tiled.cu.)
#include "kernels/lib/matmul.cuh"
#include "kernels/lib/q8.cuh"

#define MATMUL(variant, name, type, rows, blocks)                                                  \
    PLM_KERNEL(plm_matmul_##variant##_##name, PLM_PRODUCT_THREADS, blocks, plm_matmul_args)        \
    {                                                                                              \
        typedef plm_q8_##variant<PLM_TYPE_##type, 2> product;                                      \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        plm_matmul<product, rows>(a, shared, blockIdx.x, blockIdx.y);                              \
    }
#define FEW(name, type)                                                                            \
    MATMUL(gemv, name, type, 1, 4)                                                                 \
    MATMUL(skinny, name, type, 16, 2)
#define ALL(name, type)                                                                            \
    FEW(name, type)                                                                                \
    MATMUL(gemm, name, type, 64, 1)

#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_ON_GPU_##BACKENDS(PLM_QUANTISED_##CODES(                                                   \
        PLM_GPU_VARIANTS_##BACKENDS(ALL(name, NAME), FEW(name, NAME))))
#include "kernels/types.def"
