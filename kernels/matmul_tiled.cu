// SPDX-License-Identifier: Apache-2.0
// matmul over 8-bit activations for prompts: 128 rows by six panels a block.
#include "kernels/lib/q8_tiled.cuh"

#define MATMUL(name, type)                                                                         \
    PLM_KERNEL(plm_matmul_tiled_##name, PLM_PRODUCT_THREADS, 1, plm_matmul_args)                   \
    {                                                                                              \
        typedef plm_q8_tiled<PLM_TYPE_##type> math;                                                \
        PLM_SHARED(uint8_t, shared, plm_tile<math>::bytes);                                        \
        plm_tile_matmul<math>(a, shared);                                                          \
    }

#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_ON_GPU_##BACKENDS(PLM_QUANTISED_##CODES(MATMUL(name, NAME)))
#include "kernels/types.def"
