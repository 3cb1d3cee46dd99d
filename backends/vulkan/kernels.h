// SPDX-License-Identifier: Apache-2.0
// From an op's arguments to the kernel that runs it and its grid (kernels.c): pure.
#ifndef PLM_VULKAN_KERNELS_H
#define PLM_VULKAN_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/backend.h"

#define PLM_VK_SPEC_MAX          4
#define PLM_VK_KERNEL_NAME_BYTES 48
#define PLM_VK_TYPES             64 // enum plm_type is below
#define PLM_VK_KERNEL_ROWS_MAX   64 // of the table

// A kernel is a row of the table in kernels.c, built for a tensor type and specialised. Compared
// and hashed by its bytes: there is no padding.
struct plm_vk_kernel {
    uint16_t row;
    uint16_t type;                  // PLM_VK_TYPES: the module is of no type
    uint32_t spec[PLM_VK_SPEC_MAX]; // constant ids 0 ..; 0 beyond those that the row has
};
struct plm_vk_grid {
    uint32_t x, y, z;
};

// What a device runs: the table, less what its driver, its options or this build lack.
struct plm_vk_kernels {
    bool fast_compile; // one kernel of each kind, and few specialisations
    int16_t shader[PLM_VK_KERNEL_ROWS_MAX][PLM_VK_TYPES + 1]; // index in plm_vk_shaders, or -1
};
// fast_compile: for drivers on a CPU, which take longer to make a kernel than to run it for
// minutes.
void plm_vk_kernels_init(struct plm_vk_kernels *ret, uint32_t needs_met, bool f16_math,
                         bool fast_compile);
// Whether a device that meets these needs has the products of weights of a type.
bool plm_vk_multiplies(uint32_t needs_met, uint32_t type);
// Mask of 1 << PLM_OP_x that have a kernel.
uint64_t plm_vk_kernels_ops(const struct plm_vk_kernels *kernels);

// The index-th kernel that runs op with these arguments, the preferred one first; all have the same
// bits. UNSUPPORTED: there is none.
int plm_vk_kernel_of(const struct plm_vk_kernels *kernels, enum plm_op op, const void *args,
                     uint32_t index, struct plm_vk_kernel *ret);
struct plm_vk_grid plm_vk_kernel_grid(const struct plm_vk_kernel *kernel, const void *args);
// Calls visit for every kernel that the needs name, until it fails.
int plm_vk_kernels_each(const struct plm_vk_kernels *kernels, const struct plm_kernel_needs *needs,
                        int (*visit)(void *ctx, const struct plm_vk_kernel *kernel), void *ctx);
// The op that it runs; how many constants it has; the subgroup size that it asks for, or 0.
enum plm_op plm_vk_kernel_op(const struct plm_vk_kernel *kernel);
uint32_t plm_vk_kernel_specs(const struct plm_vk_kernel *kernel);
uint32_t plm_vk_kernel_subgroup(const struct plm_vk_kernel *kernel);
// The fewest rows that it runs; the activations that it reads; the type of the cache, f16 where it
// runs with any.
uint32_t plm_vk_kernel_rows(const struct plm_vk_kernel *kernel);
enum plm_act plm_vk_kernel_act(const struct plm_vk_kernel *kernel);
uint32_t plm_vk_kernel_kv_type(const struct plm_vk_kernel *kernel);
// For messages: "matmul-lanes-dot-q4_0".
void plm_vk_kernel_name(const struct plm_vk_kernel *kernel, char ret[PLM_VK_KERNEL_NAME_BYTES]);

#endif
