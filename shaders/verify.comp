// SPDX-License-Identifier: Apache-2.0
// verify: workgroup w checks words from w * PLM_GROUP_WORDS on.
#version 460
#include "shaders/lib/words.glsl"

PLM_ARGS(plm_verify_args);

uint wrong(uint64_t at, uint word)
{
    return word != plm_fill_word(at, a.seed) ? 1u : 0u;
}

void main()
{
    uint64_t begin = plm_first_word();
    uint64_t end = min(begin + PLM_GROUP_WORDS, a.n_words);
    uint64_t i = begin + gl_LocalInvocationIndex;
    uint n = 0u;
    if (plm_aligned(a.src)) {
        i = begin + gl_LocalInvocationIndex * 4u;
        for (; i + 4ul <= end; i += PLM_GROUP * 4) {
            uint64_t at = a.src + i * 4ul;
            uvec4 w = plm_uvec4_at(at).v;
            n += wrong(at, w.x) + wrong(at + 4ul, w.y) + wrong(at + 8ul, w.z) +
                 wrong(at + 12ul, w.w);
        }
        for (; i < end; i++) // the last words, if they are no vector
            n += wrong(a.src + i * 4ul, plm_u32_at(a.src + i * 4ul).v);
    } else {
        for (; i < end; i += PLM_GROUP)
            n += wrong(a.src + i * 4ul, plm_u32_at(a.src + i * 4ul).v);
    }
    if (n != 0u) // as good as never
        atomicAdd(plm_u32_at(a.count).v, n);
}
