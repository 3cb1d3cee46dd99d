// SPDX-License-Identifier: Apache-2.0
// The norm of heads (kernels/abi.h, plm_head_norms), 32 invocations a head: shared by rope_kv and qkv,
// which must be bit-equal.
#ifndef PLM_SHADERS_HEAD_GLSL
#define PLM_SHADERS_HEAD_GLSL

#include "shaders/lib/float.glsl"
#include "shaders/lib/group.glsl"

#define PLM_HEAD_LANES 32u

shared float plm_head_squares[PLM_GROUP];
shared float plm_head_factors[PLM_GROUP / PLM_HEAD_LANES]; // of the heads of the workgroup

// The address of the weights of the norm of k, or of q; 0: there is none.
uint64_t plm_head_norm(uint64_t norms, bool k)
{
    if (norms == 0ul)
        return 0ul;
    return k ? plm_head_norms_at(norms).v.norm_k : plm_head_norms_at(norms).v.norm_q;
}

// Makes the factors, from what each invocation has of its head: the sum of the squares of every 32nd
// element. All invocations call it.
void plm_head_sum(float squares, uint head_dim, float eps)
{
    uint t = gl_LocalInvocationIndex;
    plm_head_squares[t] = squares;
    barrier();
    if (t % PLM_HEAD_LANES == 0u) {
        precise float sum[PLM_HEAD_LANES / 2u];
        for (uint l = 0u; l < PLM_HEAD_LANES / 2u; l++)
            sum[l] = plm_head_squares[t + l] + plm_head_squares[t + l + PLM_HEAD_LANES / 2u];
        for (uint n = PLM_HEAD_LANES / 4u; n > 0u; n /= 2u)
            for (uint l = 0u; l < n; l++)
                sum[l] = sum[l] + sum[l + n];
        precise float mean = sum[0] / float(head_dim);
        precise float factor = 1.0 / sqrt(mean + eps);
        plm_head_factors[t / PLM_HEAD_LANES] = factor;
    }
    barrier();
}

// Element d after the norm of the head with this number in the workgroup.
float plm_head_normed(float x, uint head, uint64_t weight, uint d)
{
    precise float y = x * plm_head_factors[head] * plm_f32_at(weight + d * 4u).v;
    return y;
}

#endif
