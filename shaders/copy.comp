// SPDX-License-Identifier: Apache-2.0
// copy: one workgroup per PLM_GROUP_WORDS words.
#version 460
#include "shaders/lib/words.glsl"

struct plm_copy_args {
    uint64_t src;
    uint64_t dst;
    uint64_t n_words;
};
layout(push_constant, scalar) uniform Args { plm_copy_args a; };

void main()
{
    uint64_t begin = plm_first_word();
    uint64_t end = min(begin + PLM_GROUP_WORDS, a.n_words);
    if (begin >= end)
        return;
    uint64_t i = begin + gl_LocalInvocationIndex * 4u;
    if (((a.src | a.dst) & 15ul) == 0ul) {
        for (; i + 4ul <= end; i += PLM_GROUP * 4u)
            plm_uvec4_at(a.dst + i * 4ul).v = plm_uvec4_at(a.src + i * 4ul).v;
        for (; i < end; i++) // the last words, if they are no vector
            plm_u32_at(a.dst + i * 4ul).v = plm_u32_at(a.src + i * 4ul).v;
        return;
    }
    for (i = begin + gl_LocalInvocationIndex; i < end; i += PLM_GROUP)
        plm_u32_at(a.dst + i * 4ul).v = plm_u32_at(a.src + i * 4ul).v;
}
