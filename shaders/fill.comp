// SPDX-License-Identifier: Apache-2.0
// fill: workgroup w writes words from w * PLM_GROUP_WORDS on.
#version 460
#include "shaders/lib/words.glsl"

PLM_ARGS(plm_fill_args);

void main()
{
    uint64_t begin = plm_first_word();
    uint64_t end = min(begin + PLM_GROUP_WORDS, a.n_words);
    uint64_t i = begin + gl_LocalInvocationIndex;
    if (plm_aligned(a.dst)) {
        i = begin + gl_LocalInvocationIndex * 4u;
        for (; i + 4ul <= end; i += PLM_GROUP * 4) {
            uint64_t at = a.dst + i * 4ul;
            plm_uvec4_at(at).v =
                uvec4(plm_fill_word(at, a.seed), plm_fill_word(at + 4ul, a.seed),
                      plm_fill_word(at + 8ul, a.seed), plm_fill_word(at + 12ul, a.seed));
        }
        for (; i < end; i++) // the last words, if they are no vector
            plm_u32_at(a.dst + i * 4ul).v = plm_fill_word(a.dst + i * 4ul, a.seed);
        return;
    }
    for (; i < end; i += PLM_GROUP)
        plm_u32_at(a.dst + i * 4ul).v = plm_fill_word(a.dst + i * 4ul, a.seed);
}
