// SPDX-License-Identifier: Apache-2.0
// The workgroup of all ops that are no product and no attention: 256 invocations, which every
// device runs, and which are enough loads in flight for a row. Others define PLM_GROUP themselves.
#ifndef PLM_SHADERS_GROUP_GLSL
#define PLM_SHADERS_GROUP_GLSL

#include "shaders/lib/base.glsl"

#if !defined(PLM_GROUP)
#define PLM_GROUP 256
#endif

layout(local_size_x = PLM_GROUP) in;

// Ops over rows of n elements cut each row into pieces of this many: four per invocation.
#define PLM_PIECE (PLM_GROUP * 4)

uint plm_pieces(uint n)
{
    return (n + (PLM_PIECE - 1u)) / PLM_PIECE;
}

#endif
