// SPDX-License-Identifier: Apache-2.0
// Common to copy, fill and verify: how words of 32 bits are spread over workgroups.
#ifndef PLM_SHADERS_WORDS_GLSL
#define PLM_SHADERS_WORDS_GLSL

#include "shaders/lib/base.glsl"

#define PLM_GROUP       256
#define PLM_GROUP_WORDS 16384 // 64 KiB: 16 loads of 16 bytes per invocation

layout(local_size_x = PLM_GROUP) in;

// First word of this workgroup.
uint64_t plm_first_word()
{
    return uint64_t(plm_group_index()) * PLM_GROUP_WORDS;
}

#endif
