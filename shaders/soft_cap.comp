// SPDX-License-Identifier: Apache-2.0
// soft_cap: rows follow each other without a gap, so all of them are one run of rows * n elements, which
// workgroups take PLM_PIECE at a time.
#version 460
#include "shaders/lib/float.glsl"
#include "shaders/lib/group.glsl"

PLM_ARGS(plm_soft_cap_args);

float capped(float x, float inverse)
{
    precise float u = x * inverse, z = u * u, uz = u * z;
    float size = abs(u);
    precise float p = plm_fma(z, PLM_TANH_P4, PLM_TANH_P3);
    p = plm_fma(z, p, PLM_TANH_P2);
    p = plm_fma(z, p, PLM_TANH_P1);
    p = plm_fma(z, p, PLM_TANH_P0);
    precise float far = 1.0 - 2.0 / (1.0 + plm_exp(size + size));
    precise float y = size < PLM_TANH_NEAR ? plm_fma(uz, p, u) : u < 0.0 ? -far : far;
    // Written out, since a driver may take x - x for 0.
    bool finite = (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u;
    return finite ? y * a.cap : uintBitsToFloat(0x7fc00000u);
}

void main()
{
    uint64_t total = uint64_t(a.rows) * a.n;
    uint64_t i = uint64_t(plm_group_index()) * PLM_PIECE + gl_LocalInvocationIndex * 4u;
    if (i >= total)
        return;
    uint n = uint(min(total - i, 4ul));
    bool wide = n == 4u && plm_aligned(a.x);
    vec4 x = plm_load4(a.x + i * 4ul, 0u, n, wide);
    for (uint c = 0u; c < 4u; c++)
        x[c] = capped(x[c], 1.0 / a.cap);
    plm_store4(a.x + i * 4ul, 0u, n, wide, x);
}
