// SPDX-License-Identifier: Apache-2.0
// matmul over 8-bit activations for prompts: 64 rows by four panels a block.
#include "kernels/lib/matmul.cuh"
#include "kernels/lib/q8.cuh"

#define MATMUL(name, type)                                                                         \
    PLM_KERNEL(plm_matmul_tile_##name, PLM_PRODUCT_THREADS, 1, plm_matmul_args)                    \
    {                                                                                              \
        typedef plm_q8_many<PLM_TYPE_##type, 4> product;                                           \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        plm_matmul_grouped<product, 64>(a, shared);                                                \
    }

MATMUL(q8_0, Q8_0)
MATMUL(q4_0, Q4_0)
MATMUL(q4_1, Q4_1)
MATMUL(q4_k, Q4_K)
MATMUL(q6_k, Q6_K)
