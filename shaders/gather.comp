// SPDX-License-Identifier: Apache-2.0
// gather: workgroup w copies piece w % pieces of row w / pieces.
#version 460
#include "shaders/lib/group.glsl"

PLM_ARGS(plm_gather_args);

void main()
{
    uint r = plm_group_index() / plm_pieces(a.n);
    uint i = plm_group_index() % plm_pieces(a.n) * PLM_PIECE + gl_LocalInvocationIndex * 4u;
    if (r >= a.rows)
        return;
    uint64_t row_bytes = uint64_t(a.n) * 4ul;
    uint64_t src = a.src + uint(plm_i32_at(a.index + uint64_t(r) * 4ul).v) * row_bytes;
    bool wide = plm_aligned(a.src | a.dst | row_bytes);
    if (i < a.n)
        plm_store4(a.dst + r * row_bytes, i, a.n, wide, plm_load4(src, i, a.n, wide));
}
