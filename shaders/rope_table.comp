// SPDX-License-Identifier: Apache-2.0
// rope_table: one invocation per pair; row r has dims / 2 of them: workgroup w does part w % parts of
// row w / parts. Without float64, which many devices lack or run slowly: the product in 64-bit integers
// is exact, the nearest quarter turn is taken off it, and only what is left, at most pi/4, becomes
// a float32.
#version 460
#include "shaders/lib/float.glsl"
#include "shaders/lib/group.glsl"

PLM_ARGS(plm_rope_table_args);

// cos and sin of an angle of at most pi/4: polynomials fitted for the least absolute error, 2e-9;
// rounding makes it 1.2e-7.
vec2 cos_sin(float angle)
{
    precise float z = angle * angle;
    precise float c = plm_fma(plm_fma(2.44384519e-5, z, -1.38873677e-3), z, 4.16666456e-2);
    precise float s = plm_fma(plm_fma(-1.94956359e-4, z, 8.33197869e-3), z, -1.66666508e-1);
    precise float z2 = z * z, az = angle * z, c2 = 1.0 - 0.5 * z;
    return vec2(plm_fma(c, z2, c2), plm_fma(s, az, angle));
}

void main()
{
    uint pairs = a.dims / 2u;
    uint parts = (pairs + (PLM_GROUP - 1u)) / PLM_GROUP;
    uint r = plm_group_index() / parts;
    uint i = plm_group_index() % parts * PLM_GROUP + gl_LocalInvocationIndex;
    if (r >= a.rows || i >= pairs)
        return;
    int64_t pos = int64_t(plm_i32_at(a.pos + uint64_t(r) * 4ul).v);
    uint64_t turn = uint64_t(pos) * plm_u64_at(a.increments + uint64_t(i) * 8ul).v;
    uint quarter = uint((turn + 0x2000000000000000ul) >> 62);
    int rest = int(uint(turn >> 32) - (quarter << 30)); // in 2^-32 of a turn, at most 2^29
    const float radians = 1.46291812e-9;                // of 2^-32 of a turn: 2 pi / 2^32
    vec2 x = cos_sin(float(rest) * radians);
    if ((quarter & 1u) != 0u)
        x = vec2(-x.y, x.x);
    x *= a.scale != 0.0 ? a.scale : 1.0;
    if (a.scales != 0ul)
        x *= plm_f32_at(a.scales + uint64_t(uint(pos) / a.scale_span) * 4ul).v;
    plm_vec2_at(a.dst + (uint64_t(r) * pairs + i) * 8ul).v = (quarter & 2u) != 0u ? -x : x;
}
