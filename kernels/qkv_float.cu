// SPDX-License-Identifier: Apache-2.0
// qkv over float activations, two panels of a head a block. line: one row; few: up to 8; tile: 64;
// whole: up to 8 rows of a whole head of any shape. All give the same bits, and take any number of
// rows in so many at once.
#include "kernels/lib/float_few.cuh"
#include "kernels/lib/float_tile.cuh"
#include "kernels/lib/qkv.cuh"

#define QKV(variant, name, blocks, ...)                                                            \
    PLM_KERNEL(plm_qkv_float_##variant##_##name, PLM_PRODUCT_THREADS, blocks, plm_qkv_args)        \
    {                                                                                              \
        typedef __VA_ARGS__ product;                                                               \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        plm_qkv<product>(a, shared);                                                               \
    }
#define LINE(name, type) QKV(line, name, 4, plm_float_few<PLM_TYPE_##type, 2, 1>)
#define TILE(name, type) QKV(tile, name, 2, plm_float_tile<PLM_TYPE_##type, 2>)
#define FEW(name, type)                                                                            \
    QKV(few, name, 3, plm_float_few<PLM_TYPE_##type, 2, 8>)                                        \
    PLM_KERNEL(plm_qkv_float_whole_##name, PLM_PRODUCT_THREADS, 3, plm_qkv_args)                   \
    {                                                                                              \
        typedef plm_float_few<PLM_TYPE_##type, 2, 8> product;                                      \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        PLM_SHARED(float, staged, product::rows *PLM_HEAD_MAX);                                    \
        plm_qkv_whole<product>(a, shared, staged);                                                 \
    }

PLM_FLOAT_PRODUCTS(LINE, FEW, TILE)
