// SPDX-License-Identifier: Apache-2.0
// rms_norm: one block a row. Thread t owns elements 4t .. 4t+3 of every piece and adds their
// squares in ascending order; the 256 sums are added by plm_block_sum.
#include "kernels/lib/act.cuh"
#include "kernels/lib/sum.cuh"

// Pieces that stay in registers, so that a row of up to 8,192 elements is read once and all of its
// loads are in flight together: a lone block waits for memory and for nothing else.
#define HELD 8u

struct row {
    float *x;
    const float *residual; // or nullptr
    uint32_t r, n;
    bool wide;
};

// Elements i .. i+3 with the residual, which is stored back.
PLM_FN plm_vec4 load_sum(const row &at, uint32_t i)
{
    const plm_vec4 x = plm_load_vec4(at.x, i, at.n, at.wide);
    if (at.residual == nullptr)
        return x;
    const plm_vec4 sum = plm_add4(x, plm_load_vec4(at.residual, i, at.n, at.wide));
    plm_store_vec4(at.x, i, at.n, at.wide, sum);
    return sum;
}

PLM_FN float add_squares(const plm_vec4 &x, float squares)
{
    for (int c = 0; c < 4; c++)
        squares = fmaf(x.v[c], x.v[c], squares);
    return squares;
}

// Elements i .. i+3 of what the result is added to; loaded long before it is needed.
PLM_FN plm_vec4 load_old(const struct plm_rms_norm_args &a, const row &at, uint32_t i)
{
    return plm_load_vec4((const float *)a.dst_f32 + (uint64_t)at.r * a.n, i, a.n, at.wide);
}

// Elements i .. i+3 of the result. All threads of a warp call it.
PLM_FN void store(const struct plm_rms_norm_args &a, const row &at, uint32_t i, const plm_vec4 &x,
                  const plm_vec4 &weight, const plm_vec4 &old, float factor)
{
    plm_vec4 y;
    for (int c = 0; c < 4; c++)
        y.v[c] = x.v[c] * factor * weight.v[c];
    if (a.dst_f32 != 0)
        plm_store_vec4((float *)a.dst_f32 + (uint64_t)at.r * a.n, i, a.n, at.wide,
                       a.add != 0 ? plm_add4(old, y) : y);
    if (a.dst_q8 != 0)
        plm_q8_store(i < a.n, plm_q8_record(a.dst_q8, at.r, a.n, i), y);
}

PLM_KERNEL(plm_rms_norm, 256, 2, plm_rms_norm_args)
{
    PLM_SHARED(float, warps, PLM_ROW_WARPS);
    const uint64_t begin = (uint64_t)blockIdx.x * a.n;
    const float *weights = (const float *)a.weight;
    const row at = {(float *)a.x + begin,
                    a.residual != 0 ? (const float *)a.residual + begin : nullptr, blockIdx.x, a.n,
                    plm_aligned(a.x | a.residual | a.weight | a.dst_f32 | (uint64_t)a.n * 4)};
    const uint32_t first = threadIdx.x * 4;

    plm_vec4 x[HELD], weight[HELD];
    for (uint32_t p = 0; p < HELD; p++)
        weight[p] = plm_load_weights4(weights, p * PLM_PIECE + first, a.n, at.wide);
    plm_release();
    plm_await();
    for (uint32_t p = 0; p < HELD; p++)
        x[p] = plm_load_vec4(at.x, p * PLM_PIECE + first, a.n, at.wide);
    if (at.residual != nullptr) {
        plm_vec4 residual[HELD]; // all of it before the first store, which might alias
        for (uint32_t p = 0; p < HELD; p++)
            residual[p] = plm_load_vec4(at.residual, p * PLM_PIECE + first, a.n, at.wide);
        for (uint32_t p = 0; p < HELD; p++) {
            x[p] = plm_add4(x[p], residual[p]);
            plm_store_vec4(at.x, p * PLM_PIECE + first, a.n, at.wide, x[p]);
        }
    }
    plm_vec4 old[HELD] = {};
    if (a.add != 0)
        for (uint32_t p = 0; p < HELD; p++)
            old[p] = load_old(a, at, p * PLM_PIECE + first);
    float squares = 0.0f;
    for (uint32_t p = 0; p < HELD; p++)
        squares = add_squares(x[p], squares);
    for (uint32_t i = HELD * PLM_PIECE + first; i < a.n; i += PLM_PIECE)
        squares = add_squares(load_sum(at, i), squares);
    const float factor = plm_rsqrt_ieee(plm_block_sum(squares, warps) / (float)a.n + a.eps);

    for (uint32_t p = 0; p < HELD; p++)
        if (p * PLM_PIECE < a.n)
            store(a, at, p * PLM_PIECE + first, x[p], weight[p], old[p], factor);
    for (uint32_t piece = HELD * PLM_PIECE; piece < a.n; piece += PLM_PIECE) {
        const uint32_t i = piece + first; // read again by who has written it
        store(a, at, i, plm_load_vec4(at.x, i, a.n, at.wide),
              plm_load_vec4(weights, i, a.n, at.wide),
              a.add != 0 ? load_old(a, at, i) : plm_vec4{}, factor);
    }
}
