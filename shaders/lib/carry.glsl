// SPDX-License-Identifier: Apache-2.0
// Sums of 32 lanes by one invocation, which visits the lanes in bit-reversed order: so the class's
// pairs (l and l + 16, + 8, + 4, + 2, + 1) can be added as soon as both are there, like carries of a
// binary counter, and five sums wait at most. The module defines the constant PLM_SUMS, how many
// vectors of sums an invocation has.
#ifndef PLM_SHADERS_CARRY_GLSL
#define PLM_SHADERS_CARRY_GLSL

// The i-th lane that is visited.
uint plm_lane(uint i)
{
    return bitfieldReverse(i) >> 27;
}

// Takes the sums of the i-th lane; after the 32nd, acc has those of all.
void plm_carry(uint i, inout vec4 waiting[5][PLM_SUMS], inout vec4 acc[PLM_SUMS])
{
    [[unroll]] for (uint k = 0u; k < 5u; k++) {
        if ((i >> k & 1u) == 0u) {
            [[unroll]] for (uint p = 0u; p < PLM_SUMS; p++)
                waiting[k][p] = acc[p];
            break;
        }
        [[unroll]] for (uint p = 0u; p < PLM_SUMS; p++) {
            precise vec4 sum = waiting[k][p] + acc[p];
            acc[p] = sum;
        }
    }
}

#endif
