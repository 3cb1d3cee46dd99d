// SPDX-License-Identifier: Apache-2.0
// copy: workgroup w moves words from w * PLM_GROUP_WORDS on.
#version 460
#include "shaders/lib/words.glsl"

PLM_ARGS(plm_copy_args);

void main()
{
    uint64_t begin = plm_first_word();
    uint64_t end = min(begin + PLM_GROUP_WORDS, a.n_words);
    uint64_t i = begin + gl_LocalInvocationIndex;
    if (plm_aligned(a.src | a.dst)) {
        i = begin + gl_LocalInvocationIndex * 4u;
        for (; i + 4ul <= end; i += PLM_GROUP * 4)
            plm_uvec4_at(a.dst + i * 4ul).v = plm_uvec4_at(a.src + i * 4ul).v;
        for (; i < end; i++) // the last words, if they are no vector
            plm_u32_at(a.dst + i * 4ul).v = plm_u32_at(a.src + i * 4ul).v;
        return;
    }
    for (; i < end; i += PLM_GROUP)
        plm_u32_at(a.dst + i * 4ul).v = plm_u32_at(a.src + i * 4ul).v;
}
