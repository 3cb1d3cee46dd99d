// SPDX-License-Identifier: Apache-2.0
// Products of float activations by matrix instructions (kernels/README.md says in which order).
// Weights and activations are split in two narrow numbers each, hi + lo, whose products are added:
// with BF16 weights, x into two bfloat16; with all others, both into two TF32. A weight's lo is
// left out where the type never has one.
//
// A *step* is what one instruction takes: 16 inputs of bfloat16, 8 of TF32. Within a step of 8 the
// inputs 2t and 2t + 1 lie in columns t and t + 4, so that a thread's two are neighbours in memory.
#ifndef PLM_KERNELS_FLOAT_CUH
#define PLM_KERNELS_FLOAT_CUH

#include "kernels/lib/product.cuh"

template <uint32_t TYPE> struct plm_float_type {
    static constexpr uint32_t type = TYPE;
    static constexpr bool plain = plm_layout<TYPE>::block == 1;
    static constexpr bool bf16 = TYPE == PLM_TYPE_BF16;
    // A weight is one number of its kind, without a lo.
    static constexpr bool whole = TYPE == PLM_TYPE_BF16 || TYPE == PLM_TYPE_F16;
    // Quants of a block of 32 inputs of a panel, in bytes and in pieces of 16.
    static constexpr uint32_t block_bytes =
        plain ? 32 * plm_layout<TYPE>::quant_bytes : plm_layout<TYPE>::quant_bytes;
    static constexpr uint32_t chunks = block_bytes / 16;
    static constexpr uint32_t steps = bf16 ? 1 : 2; // of 16 inputs
};

struct plm_float_a {
    uint32_t hi[4], lo[4];
};

struct alignas(16) plm_float_b {
    uint32_t hi[2], lo[2];
};

// ---- activations ----

// x0 .. x3 of this thread: inputs 2t, 2t + 1, 8 + 2t, 9 + 2t of a step.
PLM_FN plm_float_b plm_split_bf16(float x0, float x1, float x2, float x3)
{
    plm_float_b f;
    f.hi[0] = plm_bf16x2(x0, x1);
    f.hi[1] = plm_bf16x2(x2, x3);
    f.lo[0] = plm_bf16x2(x0 - plm_float(f.hi[0] << 16), x1 - plm_float(f.hi[0] & 0xffff0000u));
    f.lo[1] = plm_bf16x2(x2 - plm_float(f.hi[1] << 16), x3 - plm_float(f.hi[1] & 0xffff0000u));
    return f;
}

// x0, x1: inputs 2t, 2t + 1 of a step.
PLM_FN plm_float_b plm_split_tf32(float x0, float x1)
{
    plm_float_b f;
    f.hi[0] = plm_tf32(x0);
    f.hi[1] = plm_tf32(x1);
    f.lo[0] = plm_tf32(x0 - plm_float(f.hi[0]));
    f.lo[1] = plm_tf32(x1 - plm_float(f.hi[1]));
    return f;
}

// The steps of 16 inputs, of which this thread has low[0], low[1] = inputs 2t, 2t + 1 and high the
// same 8 further on.
template <uint32_t TYPE>
PLM_FN void plm_split(plm_float_b (&ret)[plm_float_type<TYPE>::steps], const float *low,
                      const float *high)
{
    if constexpr (plm_float_type<TYPE>::bf16) {
        ret[0] = plm_split_bf16(low[0], low[1], high[0], high[1]);
    } else {
        ret[0] = plm_split_tf32(low[0], low[1]);
        ret[1] = plm_split_tf32(high[0], high[1]);
    }
}

// ---- weights ----

// What float products know of their operands: a row group's activations.
struct plm_float_rows {
    const float *x; // of the first row
    uint32_t rows;  // there are, at least 1
    uint32_t n_in;
};

template <uint32_t P> PLM_FN plm_float_rows plm_float_rows_of(const plm_operands<P> &in)
{
    return {(const float *)in.x + (uint64_t)in.first * in.n_in, in.rows - in.first, in.n_in};
}

template <uint32_t P> PLM_FN const uint8_t *plm_float_panel(const plm_operands<P> &in, uint32_t p)
{
    if constexpr (P == 1)
        return (const uint8_t *)in.panel[0];
    else
        return (const uint8_t *)plm_pick(in.panel, p);
}

// Where chunk c of a block's quants lies in shared memory. 16-bit elements: lines of 32 bytes,
// whose halves change places every four lines, so that eight lines' halves lie in different banks.
template <uint32_t TYPE> PLM_FN uint32_t plm_float_place(uint32_t c)
{
    return plm_float_type<TYPE>::block_bytes == 1024 ? c ^ (c >> 3 & 1u) : c;
}

// Pairs of 16-bit elements of half h (16 inputs) of a block in shared memory: ret[0] and ret[1] are
// inputs 2t, 2t + 1 of outputs g and g + 8, ret[2] and ret[3] the same 8 inputs further on.
template <uint32_t TYPE>
PLM_FN void plm_float_pairs(uint32_t (&ret)[4], const uint8_t *quants, uint32_t h)
{
    const uint32_t lane = threadIdx.x % PLM_WARP, matrix = lane / 8;
    const uint32_t k = h * 16 + matrix / 2 * 8 + lane % 8;
    plm_matrices_transposed(ret, quants + plm_float_place<TYPE>(2 * k + matrix % 2) * 16);
}

// A step from the values of inputs 2t, 2t + 1 (k) of outputs g and g + 8 (o).
template <uint32_t TYPE> PLM_FN plm_float_a plm_float_halves(const float (&w)[2][2])
{
    plm_float_a f;
    for (int k = 0; k < 2; k++)
        for (int o = 0; o < 2; o++) {
            const float x = w[k][o];
            f.hi[2 * k + o] = plm_tf32(x);
            f.lo[2 * k + o] =
                plm_float_type<TYPE>::whole ? 0 : plm_tf32(x - plm_float(f.hi[2 * k + o]));
        }
    return f;
}

// The steps of half h of a block. quants: in shared memory. scales: of outputs g and g + 8 (types
// that have them).
template <uint32_t TYPE>
PLM_FN void plm_float_weights(plm_float_a (&ret)[plm_float_type<TYPE>::steps],
                              const uint8_t *quants, const plm_scales (&scales)[2], uint32_t h)
{
    const uint32_t lane = threadIdx.x % PLM_WARP, g = lane / 4, t = lane % 4;
    if constexpr (plm_float_type<TYPE>::bf16) {
        plm_float_pairs<TYPE>(ret[0].hi, quants, h);
    } else if constexpr (TYPE == PLM_TYPE_F16) {
        uint32_t w[4];
        plm_float_pairs<TYPE>(w, quants, h);
        for (int i = 0; i < 2; i++)
            for (int o = 0; o < 2; o++) { // a half is a TF32 as it is
                ret[i].hi[o] = plm_bits(plm_half((uint16_t)w[2 * i + o]));
                ret[i].hi[2 + o] = plm_bits(plm_half((uint16_t)(w[2 * i + o] >> 16)));
            }
    } else {
        for (uint32_t i = 0; i < 2; i++) {
            float w[2][2];
            for (uint32_t o = 0; o < 2; o++) {
                const uint32_t out = g + 8 * o;
                if constexpr (plm_float_type<TYPE>::plain) {
                    const float *at = (const float *)quants + (h * 16 + i * 8 + 2 * t) * 16 + out;
                    w[0][o] = at[0];
                    w[1][o] = at[16];
                } else {
                    const uint32_t group = h * 4 + i * 2 + t / 2;
                    const plm_vec4 x = plm_panel_values<TYPE>(
                        scales[o], plm_panel_codes<TYPE>(quants, out, group), group);
                    w[0][o] = t % 2 != 0 ? x.v[2] : x.v[0];
                    w[1][o] = t % 2 != 0 ? x.v[3] : x.v[1];
                }
            }
            ret[i] = plm_float_halves<TYPE>(w);
        }
    }
}

// d += weights * x, of one step.
template <uint32_t TYPE>
PLM_FN void plm_float_mma(float (&d)[4], const plm_float_a &w, const plm_float_b &x)
{
    if constexpr (plm_float_type<TYPE>::bf16) {
        plm_mma_bf16(d, w.hi, x.hi);
        plm_mma_bf16(d, w.hi, x.lo);
    } else {
        plm_mma_tf32(d, w.hi, x.hi);
        plm_mma_tf32(d, w.hi, x.lo);
        if constexpr (!plm_float_type<TYPE>::whole)
            plm_mma_tf32(d, w.lo, x.hi);
    }
}

// Begins the copy of chunk c of block b of a panel's quants; zeros beyond the row's end.
template <uint32_t TYPE>
PLM_FN void plm_float_copy(uint8_t *shared, const uint8_t *panel, uint32_t b, uint32_t c,
                           uint32_t n_in)
{
    typedef plm_float_type<TYPE> type;
    uint8_t *to = shared + plm_float_place<TYPE>(c) * 16;
    if constexpr (type::plain)
        if (b * 32 + c * 16 / plm_layout<TYPE>::quant_bytes >= n_in) {
            *(plm_vec4 *)to = {};
            return;
        }
    plm_copy16(to, panel + plm_panel_quant_offset<TYPE>(n_in) + (uint64_t)b * type::block_bytes +
                       c * 16);
}

// Scales of outputs g and g + 8 of block b.
template <uint32_t TYPE>
PLM_FN void plm_float_scales(plm_scales (&ret)[2], const uint8_t *panel, uint32_t b)
{
    if constexpr (!plm_float_type<TYPE>::plain) {
        typedef plm_layout<TYPE> l;
        const uint8_t *record = panel + (uint64_t)(b / (l::block / 32)) * l::scale_bytes;
        const uint32_t g = threadIdx.x % PLM_WARP / 4;
        ret[0] = plm_panel_scales<TYPE>(record, g, b);
        ret[1] = plm_panel_scales<TYPE>(record, g + 8, b);
    }
}

#endif
