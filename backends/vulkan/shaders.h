// SPDX-License-Identifier: Apache-2.0
// The SPIR-V modules of shaders/ that this build embeds. The tables are generated
// (backends/embed.py) and sorted by name; a module is named family[-variant][-type], the family as
// its op in kernels/ops.def.
#ifndef PLM_VULKAN_SHADERS_H
#define PLM_VULKAN_SHADERS_H

#include <stddef.h>
#include <stdint.h>

// Device features beyond those that every device must have (shaders/README.md), as a bit mask: a
// module may be loaded only where all that it needs are enabled.
enum plm_vk_needs {
    PLM_VK_NEEDS_DOT = 1,        // shaderIntegerDotProduct
    PLM_VK_NEEDS_F16 = 2,        // shaderFloat16
    PLM_VK_NEEDS_COOPMAT_S8 = 4, // VK_KHR_cooperative_matrix: s8 x s8 -> s32, 16 x 16 x 32
};

// Specialisation constant of every module that multiplies and adds, a bool, off by default: fma()
// is one operation with one rounding on this driver (shaders/lib/float.glsl). llvmpipe's is not.
#define PLM_VK_SPEC_FUSED 100

struct plm_vk_shader {
    const char *name;
    const uint32_t *words; // aligned as SPIR-V wants it
    size_t bytes;
    uint32_t needs; // of enum plm_vk_needs
};

extern const struct plm_vk_shader plm_vk_shaders[];
extern const size_t plm_vk_n_shaders;

#endif
