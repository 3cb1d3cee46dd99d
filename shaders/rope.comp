// SPDX-License-Identifier: Apache-2.0
// rope: one invocation per pair; row r has heads * dims / 2 of them, which workgroups take PLM_GROUP
// at a time: workgroup w part w % parts of row w / parts.
#version 460
#include "shaders/lib/group.glsl"
#include "shaders/lib/rope.glsl"

PLM_ARGS(plm_rope_args);

void main()
{
    uint half_dims = a.dims / 2u;
    uint pairs = a.heads * half_dims;
    uint parts = (pairs + (PLM_GROUP - 1u)) / PLM_GROUP;
    uint r = plm_group_index() / parts;
    uint p = plm_group_index() % parts * PLM_GROUP + gl_LocalInvocationIndex;
    if (r >= a.rows || p >= pairs)
        return;
    uint64_t head = a.x + (uint64_t(r) * a.ld + p / half_dims * a.head_dim) * 4ul;
    uvec2 at = plm_rope_pair(p % half_dims, a.dims, a.mode);
    plm_f32_at lo = plm_f32_at(head + at.x * 4u), hi = plm_f32_at(head + at.y * 4u);
    vec2 x = plm_rope_rotate(vec2(lo.v, hi.v), a.table + uint64_t(r) * a.dims * 4ul, p % half_dims);
    lo.v = x.x;
    hi.v = x.y;
}
