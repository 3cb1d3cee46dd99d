// SPDX-License-Identifier: Apache-2.0
// Sums over a workgroup in one order, whatever the subgroups are.
#ifndef PLM_SHADERS_SUM_GLSL
#define PLM_SHADERS_SUM_GLSL

#include "shaders/lib/group.glsl"

// 16 numbers in pairs: l and l + 8, + 4, + 2, + 1.
float plm_sum16(float lane[16])
{
    precise float a[8];
    for (int i = 0; i < 8; i++)
        a[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        a[i] = a[i] + a[i + 4];
    precise float sum = (a[0] + a[2]) + (a[1] + a[3]);
    return sum;
}

shared float plm_sum_in[PLM_GROUP];
shared float plm_sum_16[16];

// The sum of one number of each invocation, for all of them; once per dispatch. Invocation l < 16
// adds the numbers of l, l + 16, ... as above, then those 16 sums are added so: two barriers
// instead of eight.
float plm_group_sum(float x)
{
    uint t = gl_LocalInvocationIndex;
    float lane[16];
    plm_sum_in[t] = x;
    barrier();
    if (t < 16u) {
        for (uint i = 0u; i < 16u; i++)
            lane[i] = plm_sum_in[t + i * 16u];
        plm_sum_16[t] = plm_sum16(lane);
    }
    barrier();
    for (uint i = 0u; i < 16u; i++)
        lane[i] = plm_sum_16[i];
    return plm_sum16(lane);
}

#endif
