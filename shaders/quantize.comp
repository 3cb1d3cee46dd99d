// SPDX-License-Identifier: Apache-2.0
// quantize: workgroup w takes piece w % pieces of row w / pieces.
#version 460
#include "shaders/lib/q8.glsl"

PLM_ARGS(plm_quantize_args);

void main()
{
    uint r = plm_group_index() / plm_pieces(a.n);
    uint i = plm_group_index() % plm_pieces(a.n) * PLM_PIECE + gl_LocalInvocationIndex * 4u;
    bool live = r < a.rows && i < a.n;
    uint64_t row_bytes = uint64_t(a.n) * 4ul;
    vec4 x = vec4(0.0);
    if (live)
        x = plm_load4(a.x + r * row_bytes, i, a.n, plm_aligned(a.x));
    plm_q8_store(live, plm_q8_record(a.dst, r, a.n, i), x);
}
