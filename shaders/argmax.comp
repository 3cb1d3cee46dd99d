// SPDX-License-Identifier: Apache-2.0
// argmax: one workgroup per row.
#version 460
#extension GL_EXT_control_flow_attributes : require
#include "shaders/lib/group.glsl"

PLM_ARGS(plm_argmax_args);

#define AT_ONCE 4u // loads in flight per invocation: a row is long, and its workgroup alone

shared uint64_t best_of[PLM_GROUP];
shared uint wrong_of[PLM_GROUP];

// A number that orders first by the float (finite), then by the lower index.
uint64_t key(float x, uint i)
{
    uint u = floatBitsToUint(x);
    if (u == 0x80000000u) // -0 equals 0
        u = 0u;
    u = (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
    return uint64_t(u) << 32 | ~i;
}

void main()
{
    uint r = plm_group_index(), t = gl_LocalInvocationIndex;
    if (r >= a.rows)
        return;
    uint64_t row = a.x + uint64_t(r) * a.n * 4ul;
    bool wide = plm_aligned(a.x | uint64_t(a.n) * 4ul);
    uint64_t best = 0ul;
    uint wrong = 0u;
    for (uint begin = t * 4u; begin < a.n; begin += AT_ONCE * PLM_PIECE) {
        vec4 x[AT_ONCE];
        [[unroll]] for (uint p = 0u; p < AT_ONCE; p++) {
            uint i = begin + p * PLM_PIECE;
            x[p] = i < a.n ? plm_load4(row, i, a.n, wide) : vec4(0.0);
        }
        [[unroll]] for (uint p = 0u; p < AT_ONCE; p++)
            for (uint c = 0u; c < 4u; c++) {
                uint i = begin + p * PLM_PIECE + c;
                if (i >= a.n)
                    break;
                if ((floatBitsToUint(x[p][c]) & 0x7f800000u) == 0x7f800000u)
                    wrong++;
                best = max(best, key(x[p][c], i));
            }
    }
    best_of[t] = best;
    wrong_of[t] = wrong;
    for (uint half_of = PLM_GROUP / 2; half_of > 0u; half_of /= 2u) {
        barrier();
        if (t < half_of) {
            best_of[t] = max(best_of[t], best_of[t + half_of]);
            wrong_of[t] += wrong_of[t + half_of];
        }
    }
    if (t == 0u) {
        uint index = ~uint(best_of[0]);
        uint64_t record = a.dst + uint64_t(r) * 16ul;
        plm_u32_at(record).v = index;
        plm_f32_at(record + 4ul).v = plm_f32_at(row + uint64_t(index) * 4ul).v;
        plm_u32_at(record + 8ul).v = wrong_of[0];
        plm_u32_at(record + 12ul).v = 0u;
    }
}
