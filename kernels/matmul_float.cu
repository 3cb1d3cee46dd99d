// SPDX-License-Identifier: Apache-2.0
// matmul over float activations. gemv: one row, skinny: up to 8, a panel a block; gemm: 64 rows
// by four panels; tiled: 128 rows by six. All give the same bits, and take any number of rows in so
// many at once.
#include "kernels/lib/float_gemm.cuh"
#include "kernels/lib/float_skinny.cuh"
#include "kernels/lib/float_tiled.cuh"
#include "kernels/lib/matmul.cuh"

#define MATMUL(variant, name, blocks, ...)                                                         \
    PLM_KERNEL(plm_matmul_float_##variant##_##name, PLM_PRODUCT_THREADS, blocks, plm_matmul_args)  \
    {                                                                                              \
        typedef __VA_ARGS__ product;                                                               \
        PLM_SHARED(uint8_t, shared, product::bytes);                                               \
        const plm_matmul_spot at =                                                                 \
            plm_matmul_grouped(a, blockIdx.x, product::panels * PLM_PANEL_ROWS, product::rows);    \
        plm_matmul<product>(a, shared, at.out / (product::panels * PLM_PANEL_ROWS),                \
                            at.row / product::rows);                                               \
    }
#define GEMV(name, type)   MATMUL(gemv, name, 4, plm_float_skinny<PLM_TYPE_##type, 1, 1>)
#define SKINNY(name, type) MATMUL(skinny, name, 4, plm_float_skinny<PLM_TYPE_##type, 1, 8>)
#define GEMM(name, type)   MATMUL(gemm, name, 2, plm_float_gemm<PLM_TYPE_##type, 4>)

PLM_FLOAT_PRODUCTS(GEMV, SKINNY, GEMM)
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_ON_GPU_##BACKENDS(PLM_QUANTISED_##CODES(SKINNY(name, NAME)))
#include "kernels/types.def"

PLM_KERNEL(plm_matmul_float_tiled_bf16, PLM_PRODUCT_THREADS, 1, plm_matmul_args)
{
    PLM_SHARED(uint8_t, shared, plm_tile<plm_bf16_tiled>::bytes);
    plm_tile_matmul<plm_bf16_tiled>(a, shared);
}
