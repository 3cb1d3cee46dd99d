// SPDX-License-Identifier: Apache-2.0
// Attention's splits: one more is merged into what came before it (plm_attention_merge_args).
#ifndef PLM_SHADERS_SPLITS_GLSL
#define PLM_SHADERS_SPLITS_GLSL

#include "shaders/lib/float.glsl"

// Takes a split's top and sum into top and sum; returns the factors of the outputs so far (x) and of
// the split's (y).
vec2 plm_merge_split(inout float top, inout float sum, float split_top, float split_sum)
{
    float t = split_top > top ? split_top : top;
    vec2 factor = vec2(plm_exp(top - t), plm_exp(split_top - t));
    precise float l = sum * factor.x + split_sum * factor.y;
    top = t;
    sum = l;
    return factor;
}

float plm_merge_output(float so_far, float split, vec2 factor)
{
    precise float o = so_far * factor.x + split * factor.y;
    return o;
}

#endif
