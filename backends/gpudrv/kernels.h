// SPDX-License-Identifier: Apache-2.0
// The kernels of CUDA and HIP as a table (kernels/kernels.def): which one runs an op for given
// arguments, in blocks and grids of what size, and which ones a plan needs. Pure: no driver, no
// device. Host code, the emulator and the fake drivers all read it here.
#ifndef PLM_GPUDRV_KERNELS_H
#define PLM_GPUDRV_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/backend.h"

// A kernel that is not built for one type, or for one format of activations.
#define PLM_ANY_TYPE UINT32_MAX
#define PLM_ANY_ACT  UINT32_MAX

// What drivers take at most: CUDA's limits, which are HIP's too (of x, HIP's is 2^32 - 1 threads).
#define PLM_GPU_GRID_X_MAX  UINT64_C(2147483647)
#define PLM_GPU_GRID_YZ_MAX UINT64_C(65535)

// Indices of the kernels, in the order of the table.
enum plm_gpu_kernel_index {
#define PLM_GPU_KERNEL(symbol, OP, op, type, act, when, threads, gx, gy, gz)                       \
    PLM_GPU_KERNEL_##symbol,
#include "kernels/kernels.def"
#undef PLM_GPU_KERNEL
    PLM_GPU_KERNELS,
};

struct plm_gpu_grid {
    uint64_t x, y, z; // blocks
};

struct plm_gpu_kernel {
    const char *symbol; // of the entry point
    enum plm_op op;
    uint32_t type;       // enum plm_type of the weight, else of the KV cache; or PLM_ANY_TYPE
    uint32_t act;        // enum plm_act that a product reads; or PLM_ANY_ACT
    uint32_t threads;    // of a block
    uint32_t args_bytes; // of the op's argument struct, which is the kernel's argument
    // Over the op's argument struct: whether the kernel runs these arguments (type and act aside),
    // and its grid for them.
    bool (*when)(const void *args);
    struct plm_gpu_grid (*grid)(const void *args);
};

extern const struct plm_gpu_kernel plm_gpu_kernels[PLM_GPU_KERNELS];

// The index-th of the kernels that run these arguments, the preferred one being 0; all give the
// same bits. NULL beyond the last one. args: the op's argument struct.
const struct plm_gpu_kernel *plm_gpu_kernel_of(enum plm_op op, const void *args, uint32_t index);

// The grid of a kernel for arguments that it runs. PLM_ERR_LIMIT: larger than a driver takes.
int plm_gpu_kernel_grid(const struct plm_gpu_kernel *kernel, const void *args,
                        struct plm_gpu_grid *ret);

// Rows of a product's input; 0: the op is none.
uint32_t plm_gpu_product_rows(enum plm_op op, const void *args);

// Whether the type that kernels of the op are built for is the KV cache's.
bool plm_gpu_typed_by_kv(enum plm_op op);

// The kernel with this entry point, or NULL.
const struct plm_gpu_kernel *plm_gpu_kernel_named(const char *symbol);

// Calls visit for each kernel that a plan with these needs may launch, in the order of the table,
// until it returns something else than PLM_OK, which is returned.
typedef int plm_gpu_kernel_visit(void *ctx, const struct plm_gpu_kernel *kernel);
int plm_gpu_kernels_each(const struct plm_kernel_needs *needs, plm_gpu_kernel_visit *visit,
                         void *ctx);

// Mask of 1 << PLM_OP_x that have a kernel.
uint64_t plm_gpu_kernels_ops(void);

#endif
