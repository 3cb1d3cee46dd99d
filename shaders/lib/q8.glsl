// SPDX-License-Identifier: Apache-2.0
// Quantisation to PLM_ACT_Q8 (kernels/abi.h): eight neighbouring invocations make one record.
#ifndef PLM_SHADERS_Q8_GLSL
#define PLM_SHADERS_Q8_GLSL

#include "shaders/lib/group.glsl"

shared uint plm_q8_top[PLM_GROUP];
shared int plm_q8_sum[PLM_GROUP];

// Stores one record per eight invocations, x being four elements of it each. All invocations of the
// workgroup call it, those without elements with live = false. It may be called again at once:
// a barrier lies between every read and the next write of either array.
void plm_q8_store(bool live, uint64_t record, vec4 x)
{
    uint t = gl_LocalInvocationIndex, first = t & ~7u, part = t & 7u;
    // Bit patterns of magnitudes order like the magnitudes, with infinities and NaNs on top.
    uvec4 mag = floatBitsToUint(x) & 0x7fffffffu;
    plm_q8_top[t] = max(max(mag.x, mag.y), max(mag.z, mag.w));
    barrier();
    uint top = plm_q8_top[first];
    for (uint i = 1u; i < 8u; i++)
        top = max(top, plm_q8_top[first + i]);
    bool finite = top < 0x7f800000u;
    precise float d = 0.0;
    ivec4 q = ivec4(0);
    if (finite && uintBitsToFloat(top) >= 1e-30) {
        d = uintBitsToFloat(top) / 127.0;
        precise float inverse = 127.0 / uintBitsToFloat(top);
        precise vec4 scaled = x * inverse;
        q = ivec4(roundEven(scaled));
    }
    plm_q8_sum[t] = (q.x + q.y) + (q.z + q.w);
    barrier();
    if (!live)
        return;
    uvec4 byte = uvec4(q) & 0xffu;
    plm_u32_at(record + uint64_t(part) * 4ul).v =
        byte.x | byte.y << 8 | byte.z << 16 | byte.w << 24;
    if (part != 0u)
        return;
    int s0 = 0, s1 = 0;
    for (uint i = 0u; i < 4u; i++) {
        s0 += plm_q8_sum[first + i];
        s1 += plm_q8_sum[first + 4u + i];
    }
    precise float ds = d * float(s0 + s1);
    const uint nan = 0x7fc00000u;
    plm_u32_at(record + PLM_ACT_Q8_D).v = finite ? floatBitsToUint(d) : nan;
    plm_u32_at(record + PLM_ACT_Q8_S).v = (uint(s0) & 0xffffu) | uint(s1) << 16;
    plm_u32_at(record + PLM_ACT_Q8_DS).v = finite ? floatBitsToUint(ds) : nan;
}

// Address of the record with element i in row r of n elements.
uint64_t plm_q8_record(uint64_t rows, uint r, uint n, uint i)
{
    return rows + r * PLM_ACT_Q8_ROW_BYTES(n) + uint64_t(i / 32u) * PLM_ACT_Q8_BLOCK_BYTES;
}

#endif
