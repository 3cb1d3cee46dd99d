// SPDX-License-Identifier: Apache-2.0
// Attention's splits: one more is merged into what came before it (plm_attention_merge_args).
#ifndef PLM_KERNELS_SPLITS_CUH
#define PLM_KERNELS_SPLITS_CUH

#include "kernels/lib/act.cuh"

// What the outputs so far and those of the new split are multiplied with.
struct plm_split_factors {
    float before;
    float fresh;
};

// Takes a split's top and sum into top and sum.
PLM_FN plm_split_factors plm_merge_split(float &top, float &sum, float split_top, float split_sum)
{
    const float both = split_top > top ? split_top : top;
    const plm_split_factors f = {plm_exp(top - both), plm_exp(split_top - both)};
    sum = sum * f.before + split_sum * f.fresh;
    top = both;
    return f;
}

PLM_FN float plm_merge_output(float before, float fresh, const plm_split_factors &f)
{
    return before * f.before + fresh * f.fresh;
}

#endif
