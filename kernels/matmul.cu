// SPDX-License-Identifier: Apache-2.0
// matmul over 8-bit activations. line: one row; few: up to 16; many: up to 64; two panels a block.
// All give the same bits, and take any number of rows in so many at once. (tile: matmul_tile.cu.)
#include "kernels/lib/matmul.cuh"
#include "kernels/lib/q8.cuh"

#define MATMUL(variant, name, type, rows, blocks)                                                  \
    PLM_KERNEL(plm_matmul_##variant##_##name, PLM_PRODUCT_THREADS, blocks, plm_matmul_args)        \
    {                                                                                              \
        typedef plm_q8_##variant<PLM_TYPE_##type, 2> product;                                      \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        plm_matmul<product, rows>(a, shared, blockIdx.x, blockIdx.y);                              \
    }
#define MATMULS(name, type)                                                                        \
    MATMUL(line, name, type, 1, 4)                                                                 \
    MATMUL(few, name, type, 16, 2)                                                                 \
    MATMUL(many, name, type, 64, 1)

MATMULS(q8_0, Q8_0)
MATMULS(q4_0, Q4_0)
MATMULS(q4_1, Q4_1)
MATMULS(q4_k, Q4_K)
MATMULS(q6_k, Q6_K)
