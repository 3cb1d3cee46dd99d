// SPDX-License-Identifier: Apache-2.0
// The products of attention (attention.cuh) with a cache in PLM_TYPE_Q8_0. Codes become halves in
// registers, exactly, two steps at once. K: the sums of 32 dimensions are of the codes alone, and
// what their scale gives is added to the score. V: scales belong to tokens, over which the product
// sums, so an element d * q of 18 bits is the sum of two halves; below 2^-7 it is off by up to
// 2^-25, and beyond 65,504 it is an infinity.
//
// Matrices of 16-bit elements are transposed as they are loaded, so two neighbouring codes of a row
// stay together: a lane has both tokens (K) or both dimensions (V) of a pair.
#ifndef PLM_KERNELS_ATTENTION_Q8_CUH
#define PLM_KERNELS_ATTENTION_Q8_CUH

#include "kernels/lib/attention_stream.cuh"

// Outputs of a warp's quarter of the dimensions, per lane: o[m][n][c] and o[m][n][c + 2] are both
// dimensions of pair g of the sixteen m, of query 8n + 2t + c, times PLM_ATTN_UNIT.
#define PLM_ATTN_OUTPUTS float(&o)[D / 64][NT][4]

// Which of the sixteen dimensions or tokens of a step is element e (half 0) or e + 8 (half 1), e
// being below 8.
template <int ELEM> PLM_FN int plm_attn_nth(int e, int half)
{
    return ELEM == 1 ? 2 * e + half : e + 8 * half;
}

// The signed bytes 0 and 2 of a word as halves. With 1024 above them, whose last bit is 1, bytes
// are 1152 more than their code.
PLM_FN uint32_t plm_attn_halves_of(uint32_t codes)
{
    return plm_fma_halves((codes & 0x00ff00ffu) ^ 0x64806480u, 0x3c003c00u, 0xe480e480u);
}

// The first side of a step from two transposed matrices of pairs of codes.
PLM_FN void plm_attn_decode(uint32_t (&a)[4], uint32_t low, uint32_t high)
{
    a[0] = plm_attn_halves_of(low);
    a[1] = plm_attn_halves_of(low >> 8);
    a[2] = plm_attn_halves_of(high);
    a[3] = plm_attn_halves_of(high >> 8);
}

// Adds the scores of the dims dimensions that a piece of K has. q: of these, the lane's.
template <int D, int NT>
PLM_FN void plm_attn_score_codes(float (&score)[NT][4], const uint32_t *piece, const uint4 *q,
                                 int dims)
{
    typedef plm_attn_piece<1, D> shape;
    const int lane = plm_attn_lane();
#pragma unroll
    for (int group = 0; group < shape::dims / 32; group++) {
        if (group * 32 >= dims)
            continue;
        uint32_t codes[4], a[2][4];
        plm_matrices_transposed(codes, piece + plm_attn_word<1, 1>(group * 32 + lane, 0));
        plm_attn_decode(a[0], codes[0], codes[1]);
        plm_attn_decode(a[1], codes[2], codes[3]);
        const uint32_t scales = piece[shape::elements + group * 8 + lane / 4];
        const float scale[2] = {plm_half((uint16_t)scales), plm_half((uint16_t)(scales >> 16))};
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float sum[4] = {};
#pragma unroll
            for (int step = 0; step < 2; step++) {
                const uint4 b = q[((group * 2 + step) * NT + n) * PLM_WARP];
                const uint32_t hi[2] = {b.x, b.y}, lo[2] = {b.z, b.w};
                plm_mma_f16(sum, a[step], hi);
                plm_mma_f16(sum, a[step], lo);
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
                score[n][i] = fmaf(sum[i], scale[i / 2], score[n][i]);
        }
    }
}

// Adds block `block` of a piece of V, weighted, to the dims dimensions that the warp has.
template <int D, int NT>
PLM_FN void plm_attn_gather_codes(PLM_ATTN_OUTPUTS, const uint32_t *piece, int block, int head_dim,
                                  int dims, const uint4 *b)
{
    typedef plm_attn_piece<1, D> shape;
    constexpr int steps = D < 128 ? 1 : 2; // of a group of 32 dimensions that are the warp's
    const int lane = plm_attn_lane(), row = block * PLM_KV_BLOCK_TOKENS;
#pragma unroll
    for (int group = 0; group < shape::groups; group++) {
        if (group * 32 >= dims)
            continue;
        uint32_t codes[4], scale[2];
        plm_matrices_transposed(codes, piece + plm_attn_word<1, D / 64>(
                                                   row + lane % 16,
                                                   steps == 1 ? 0 : group * 2 + lane / 16));
        // The lane's tokens 2t and 2t + 1, and those 8 further. A word holds the scale of an even
        // number of the block and the one behind it.
        const int first = plm_attn_group<D>(group), second = first + head_dim / 32;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t *word =
                piece + shape::elements + (row + i * 8 + lane % 4 * 2) * shape::groups + group;
            scale[i] = (word[0] >> first % 2 * 16 & 0xffffu) |
                       word[shape::groups] >> second % 2 * 16 << 16;
        }
#pragma unroll
        for (int step = 0; step < steps; step++) {
            const int m = group * steps + step;
            uint32_t a[4], hi[4], lo[4];
            plm_attn_decode(a, codes[2 * step], codes[2 * step + 1]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                hi[i] = plm_fma_halves(a[i], scale[i / 2], 0x80008000u);
                lo[i] = plm_fma_halves(a[i], scale[i / 2], hi[i] ^ 0x80008000u);
            }
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const uint4 w = b[n * PLM_WARP];
                const uint32_t upper[2] = {w.x, w.y}, lower[2] = {w.z, w.w};
                plm_mma_f16(o[m][n], hi, upper);
                plm_mma_f16(o[m][n], hi, lower);
                plm_mma_f16(o[m][n], lo, upper);
            }
        }
    }
}

#endif
