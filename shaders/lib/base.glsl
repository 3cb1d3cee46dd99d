// SPDX-License-Identifier: Apache-2.0
// What every shader starts with: the language extensions, the kernels' ABI and memory by address.
// A device must have what these need (shaders/README.md); optional features are asked for by the
// modules that use them.
#ifndef PLM_SHADERS_BASE_GLSL
#define PLM_SHADERS_BASE_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int32 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require

#include "kernels/abi.h"

// The one push constant block: the op's arguments, as `a`.
#define PLM_ARGS(type)                                                                             \
    layout(push_constant, scalar) uniform plm_args                                                 \
    {                                                                                              \
        type a;                                                                                    \
    }

// Memory by address: plm_T_at(address).v. An address is a multiple of the size.
#define PLM_AT(type, name, bytes)                                                                  \
    layout(buffer_reference, scalar, buffer_reference_align = bytes) buffer name                   \
    {                                                                                              \
        type v;                                                                                    \
    }

PLM_AT(int8_t, plm_i8_at, 1);
PLM_AT(uint8_t, plm_u8_at, 1);
PLM_AT(uint16_t, plm_u16_at, 2);
PLM_AT(int, plm_i32_at, 4);
PLM_AT(uint, plm_u32_at, 4);
PLM_AT(uvec2, plm_uvec2_at, 8);
PLM_AT(uvec4, plm_uvec4_at, 16);
PLM_AT(uint64_t, plm_u64_at, 8);
PLM_AT(u64vec2, plm_u64vec2_at, 16);
PLM_AT(float, plm_f32_at, 4);
PLM_AT(vec2, plm_vec2_at, 8);
PLM_AT(vec4, plm_vec4_at, 16);
PLM_AT(plm_head_norms, plm_head_norms_at, 8);

// Number of this workgroup, of those that an op counts in one row. There may be more than an axis
// has (65,535 at least), so the grid is folded: x = min(groups, PLM_GRID_X), y = ceil(groups / x).
// The last row of such a grid holds some that have no work.
#define PLM_GRID_X 32768

uint plm_group_index()
{
    return gl_WorkGroupID.y * PLM_GRID_X + gl_WorkGroupID.x;
}

// Whether all addresses that were or-ed together allow loads and stores of 16 bytes.
bool plm_aligned(uint64_t addresses)
{
    return (uint(addresses) & 15u) == 0u;
}

// Elements i .. i+3 of a row of n floats, zeros beyond its end. wide: the row is aligned and n is a
// multiple of 4.
vec4 plm_load4(uint64_t row, uint i, uint n, bool wide)
{
    if (wide)
        return plm_vec4_at(row + uint64_t(i) * 4ul).v;
    vec4 x = vec4(0.0);
    for (uint c = 0u; c < 4u && i + c < n; c++)
        x[c] = plm_f32_at(row + uint64_t(i + c) * 4ul).v;
    return x;
}

void plm_store4(uint64_t row, uint i, uint n, bool wide, vec4 x)
{
    if (wide) {
        plm_vec4_at(row + uint64_t(i) * 4ul).v = x;
        return;
    }
    for (uint c = 0u; c < 4u && i + c < n; c++)
        plm_f32_at(row + uint64_t(i + c) * 4ul).v = x[c];
}

#endif
