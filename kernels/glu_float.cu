// SPDX-License-Identifier: Apache-2.0
// glu over float activations, two panels of gate and two of up a block. line: one row; few: up to
// 8; tile: 64. All give the same bits, and take any number of rows in so many at once.
#include "kernels/lib/float_few.cuh"
#include "kernels/lib/float_tile.cuh"
#include "kernels/lib/glu.cuh"

#define GLU(variant, name, blocks, ...)                                                            \
    PLM_KERNEL(plm_glu_float_##variant##_##name, PLM_PRODUCT_THREADS, blocks, plm_glu_args)        \
    {                                                                                              \
        typedef __VA_ARGS__ product;                                                               \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        plm_glu<product>(a, shared);                                                               \
    }
#define LINE(name, type) GLU(line, name, 4, plm_float_few<PLM_TYPE_##type, 4, 1>)
#define FEW(name, type)  GLU(few, name, 3, plm_float_few<PLM_TYPE_##type, 4, 8>)
#define TILE(name, type) GLU(tile, name, 2, plm_float_tile<PLM_TYPE_##type, 4>)

PLM_FLOAT_PRODUCTS(LINE, FEW, TILE)
