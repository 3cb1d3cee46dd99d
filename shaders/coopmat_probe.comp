// SPDX-License-Identifier: Apache-2.0
// Asks a compiler whether it knows cooperative matrices; never part of a build.
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types : require

layout(local_size_x = 32) in;
layout(set = 0, binding = 0) buffer Numbers { int32_t at[]; } numbers;

void main()
{
    coopmat<int32_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sum =
        coopmat<int32_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0);
    coopMatStore(sum, numbers.at, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
}
