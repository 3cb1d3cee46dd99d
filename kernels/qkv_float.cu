// SPDX-License-Identifier: Apache-2.0
// qkv over float activations, two panels of a head a block. gemv: one row; skinny: up to 8;
// gemm: 64; full_heads: up to 8 rows of all of a head of any shape. All give the same bits, and
// take any number of rows in so many at once.
#include "kernels/lib/float_gemm.cuh"
#include "kernels/lib/float_skinny.cuh"
#include "kernels/lib/qkv.cuh"

#define QKV(variant, name, blocks, ...)                                                            \
    PLM_KERNEL(plm_qkv_float_##variant##_##name, PLM_PRODUCT_THREADS, blocks, plm_qkv_args)        \
    {                                                                                              \
        typedef __VA_ARGS__ product;                                                               \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        plm_qkv<product>(a, shared);                                                               \
    }
#define GEMV(name, type) QKV(gemv, name, 4, plm_float_skinny<PLM_TYPE_##type, 2, 1>)
#define GEMM(name, type) QKV(gemm, name, 2, plm_float_gemm<PLM_TYPE_##type, 2>)
#define FULL_HEADS(name, type)                                                                     \
    PLM_KERNEL(plm_qkv_float_full_heads_##name, PLM_PRODUCT_THREADS, 3, plm_qkv_args)              \
    {                                                                                              \
        typedef plm_float_skinny<PLM_TYPE_##type, 2, 8> product;                                   \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        PLM_SHARED(float, staged, product::rows *PLM_HEAD_MAX);                                    \
        plm_qkv_full_heads<product>(a, shared, staged);                                            \
    }
#define SKINNY(name, type)                                                                         \
    FULL_HEADS(name, type)                                                                         \
    QKV(skinny, name, 3, plm_float_skinny<PLM_TYPE_##type, 2, 8>)

PLM_FLOAT_PRODUCTS(GEMV, SKINNY, GEMM)
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_ON_GPU_##BACKENDS(PLM_QUANTISED_##CODES(                                                   \
        PLM_GPU_VARIANTS_##BACKENDS(SKINNY(name, NAME), FULL_HEADS(name, NAME))))
#include "kernels/types.def"
