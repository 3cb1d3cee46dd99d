// SPDX-License-Identifier: Apache-2.0
// qkv over 8-bit activations. gemv: one row; skinny: up to 16; gemm: up to 64, two panels a
// block; full_heads: up to 16 rows of all of a head. All give the same bits, and take any number of
// rows in so many at once.
#include "kernels/lib/q8.cuh"
#include "kernels/lib/qkv.cuh"

#define QKV(variant, name, type, blocks)                                                           \
    PLM_KERNEL(plm_qkv_##variant##_##name, PLM_PRODUCT_THREADS, blocks, plm_qkv_args)              \
    {                                                                                              \
        typedef plm_q8_##variant<PLM_TYPE_##type, 2> product;                                      \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        plm_qkv<product>(a, shared);                                                               \
    }
#define FEW(name, type)                                                                            \
    QKV(gemv, name, type, 4)                                                                       \
    QKV(skinny, name, type, 2)                                                                     \
    PLM_KERNEL(plm_qkv_full_heads_##name, PLM_PRODUCT_THREADS, 2, plm_qkv_args)                    \
    {                                                                                              \
        typedef plm_q8_full_heads<PLM_TYPE_##type, 2> product;                                     \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        PLM_SHARED(float, staged, product::rows *PLM_HEAD_MAX);                                    \
        plm_qkv_full_heads<product>(a, shared, staged);                                            \
    }
#define ALL(name, type)                                                                            \
    FEW(name, type)                                                                                \
    QKV(gemm, name, type, 1)

#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_ON_GPU_##BACKENDS(PLM_QUANTISED_##CODES(                                                   \
        PLM_GPU_VARIANTS_##BACKENDS(ALL(name, NAME), FEW(name, NAME))))
#include "kernels/types.def"
