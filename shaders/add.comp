// SPDX-License-Identifier: Apache-2.0
// add: rows follow each other without a gap, so all of them are one run of rows * n elements, which
// workgroups take PLM_PIECE at a time.
#version 460
#include "shaders/lib/group.glsl"

PLM_ARGS(plm_add_args);

void main()
{
    uint64_t total = uint64_t(a.rows) * a.n;
    uint64_t i = uint64_t(plm_group_index()) * PLM_PIECE + gl_LocalInvocationIndex * 4u;
    if (i >= total)
        return;
    uint n = uint(min(total - i, 4ul));
    bool wide = n == 4u && plm_aligned(a.a | a.b | a.dst);
    precise vec4 sum = plm_load4(a.a + i * 4ul, 0u, n, wide) + plm_load4(a.b + i * 4ul, 0u, n, wide);
    plm_store4(a.dst + i * 4ul, 0u, n, wide, sum);
}
