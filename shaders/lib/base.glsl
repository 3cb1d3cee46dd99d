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
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require

// Memory by address: plm_T_at(address).v. A vector's address is a multiple of its size.
#define PLM_AT(T, name, bytes)                                                                     \
    layout(buffer_reference, scalar, buffer_reference_align = bytes) buffer name { T v; };

PLM_AT(int8_t, plm_i8_at, 1)
PLM_AT(uint8_t, plm_u8_at, 1)
PLM_AT(uint16_t, plm_u16_at, 2)
PLM_AT(int, plm_i32_at, 4)
PLM_AT(uint, plm_u32_at, 4)
PLM_AT(uvec2, plm_uvec2_at, 8)
PLM_AT(uvec4, plm_uvec4_at, 16)
PLM_AT(uint64_t, plm_u64_at, 8)
PLM_AT(float, plm_f32_at, 4)
PLM_AT(vec2, plm_vec2_at, 8)
PLM_AT(vec4, plm_vec4_at, 16)

// An op that needs more workgroups than an axis has is spread over two; the last row of such a grid
// may hold groups beyond the op's work.
uint plm_group_index()
{
    return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}

#endif
