// SPDX-License-Identifier: Apache-2.0
// Products with activations in 8 bits (PLM_ACT_Q8): exact integer dot products of blocks of 32,
// then acc = fmaf((float)dot, dw * dx, acc) and, for weights with an offset, acc = fmaf(mw, ds,
// acc). plm_q8_math does it by matrix products for 8 rows at a time, plm_gemv_product for one row
// by products of four bytes; both in the frame, and the class, of product.cuh.
#ifndef PLM_KERNELS_Q8_CUH
#define PLM_KERNELS_Q8_CUH

#include "kernels/lib/product.cuh"

// Codes of inputs 4t .. 4t+3 and 16+4t .. of a block, t: 0 .. 3, a byte each.
struct plm_codes {
    uint32_t low, high;
};

// Unsigned codes less the type's zero.
template <uint32_t TYPE> PLM_FN plm_codes plm_signed_codes(uint32_t low, uint32_t high)
{
    constexpr uint32_t zero = plm_layout<TYPE>::zero;
    if constexpr (zero == 128)
        return {low ^ 0x80808080u, high ^ 0x80808080u};
    // Bytes below 64: adding 128 - zero carries into no neighbour, and bit 7 then counts the other
    // way round.
    if constexpr (zero != 0)
        return {(low + (128 - zero) * 0x01010101u) ^ 0x80808080u,
                (high + (128 - zero) * 0x01010101u) ^ 0x80808080u};
    return {low, high};
}

// Those of row `lane` of a block in shared memory, less the type's zero: signed bytes. FRAGMENTS:
// of the stream that it came by.
template <uint32_t TYPE, bool FRAGMENTS>
PLM_FN plm_codes plm_block_codes(const uint8_t *quants, uint32_t lane, uint32_t t)
{
    const uint32_t *words = (const uint32_t *)quants;
    const auto line = [&](uint32_t i) {
        return words[FRAGMENTS ? plm_line_word(i, lane) : i * 16 + lane];
    };
    return plm_signed_codes<TYPE>(plm_line_values<TYPE>(line, t),
                                  plm_line_values<TYPE>(line, 4 + t));
}

// acc + the terms of a block with two minima; s: the sums of the record's halves.
PLM_FN float plm_add_minima(float acc, float dot, float d, float mw, uint32_t mn0, uint32_t mn1,
                            float dx, uint32_t s)
{
    const int mdot = (int)mn0 * (int16_t)s + (int)mn1 * (int16_t)(s >> 16);
    return fmaf(fmaf((float)mdot, mw, dot * d), dx, acc);
}

// A record of 44 bytes is copied as the aligned 16-byte pieces that it touches. Eight records are
// 22 pieces, so how far it begins in its first piece depends on the slice alone.
template <uint32_t TYPE> struct plm_q8_math {
    static constexpr uint32_t type = TYPE, act_bytes = 64;
    static constexpr uint32_t act_step = PLM_SLICES * PLM_ACT_Q8_BLOCK_BYTES;
    static constexpr bool offset = plm_layout<TYPE>::offset;
    static constexpr bool halves = plm_layout<TYPE>::halves, minima = plm_layout<TYPE>::minima;

    struct weights {
        uint32_t a[4];
        float d[2], mw[2]; // of rows g and g + 8
        uint32_t sc;       // their factors, a byte each: sc, or sc and mn in 4 bits
    };
    struct acts {
        uint32_t b[2];
        float d[2], ds[2]; // of rows 2t and 2t + 1; minima: the bits of ds are those of s
    };

    uint32_t at_b[2], at_d, at_ds; // of this lane in a tile

    PLM_FN uint64_t row_bytes(uint32_t n_in)
    {
        return PLM_ACT_Q8_ROW_BYTES(n_in);
    }
    PLM_FN uint32_t lead(uint32_t b)
    {
        return b * PLM_ACT_Q8_BLOCK_BYTES % 16;
    }
    PLM_FN uint32_t act_piece(uint32_t b, uint32_t c)
    {
        return b * PLM_ACT_Q8_BLOCK_BYTES / 16 * 16 + c * 16;
    }
    PLM_FN bool act_wanted(uint32_t b, uint32_t c)
    {
        return c * 16 < lead(b) + PLM_ACT_Q8_BLOCK_BYTES;
    }
    // The pieces of a pair of rows are turned around by the pair's number: no bank twice.
    PLM_FN uint32_t act_place(uint32_t r, uint32_t c)
    {
        return r * 64 + (c ^ (r >> 1 & 3u)) * 16;
    }

    // Where in a tile byte i of row r's record is.
    PLM_FN uint32_t place(uint32_t slice, uint32_t r, uint32_t i)
    {
        const uint32_t byte = lead(slice) + i;
        return act_place(r, byte / 16) + byte % 16;
    }

    PLM_FN void begin(plm_q8_math &m, uint32_t slice)
    {
        const uint32_t lane = threadIdx.x % PLM_WARP, g = lane / 4, t = lane % 4;
        m.at_b[0] = plm_keep(place(slice, g, 4 * t));
        m.at_b[1] = plm_keep(place(slice, g, 16 + 4 * t));
        m.at_d = plm_keep(place(slice, 2 * t, PLM_ACT_Q8_D));
        m.at_ds = plm_keep(place(slice, 2 * t, minima ? PLM_ACT_Q8_S : PLM_ACT_Q8_DS));
    }

    PLM_FN void load(const plm_q8_math &, weights &w, const uint8_t *quants, const uint8_t *scales)
    {
        const uint32_t lane = threadIdx.x % PLM_WARP, g = lane / 4, t = lane % 4;
        uint32_t sc = 0;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const plm_codes q = plm_block_codes<TYPE, true>(quants, g + 8 * h, t);
            w.a[h] = q.low;
            w.a[h + 2] = q.high;
            const plm_scales s = plm_block_scales<TYPE>(scales, g + 8 * h);
            w.d[h] = s.d;
            w.mw[h] = s.mw;
            if constexpr (minima)
                sc |= (uint32_t)(s.sc[0] | s.mn[0] << 4 | s.sc[1] << 8 | s.mn[1] << 12) << 16 * h;
            else if constexpr (halves)
                sc |= (((uint32_t)s.sc[0] & 0xffu) | ((uint32_t)s.sc[1] & 0xffu) << 8) << 16 * h;
        }
        w.sc = sc;
    }

    // Row 2t + 1 is turned like row 2t, so it lies 64 bytes behind it.
    PLM_FN void load(const plm_q8_math &m, acts &x, const uint8_t *tile)
    {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            x.b[h] = *(const uint32_t *)(tile + m.at_b[h]);
            x.d[h] = *(const float *)(tile + m.at_d + 64 * h);
            if constexpr (offset || minima)
                x.ds[h] = *(const float *)(tile + m.at_ds + 64 * h);
        }
    }

    PLM_FN void dots(int (&dot)[4], const weights &w, const acts &x)
    {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            dot[i] = 0;
        if constexpr (halves) {
            int high[4] = {0, 0, 0, 0};
            const uint32_t a0[4] = {w.a[0], w.a[1], 0, 0}, a1[4] = {0, 0, w.a[2], w.a[3]};
            plm_mma_s8(dot, a0, x.b);
            plm_mma_s8(high, a1, x.b);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                dot[i] = minima ? (int)(w.sc >> i / 2 * 16 & 15u) * dot[i] +
                                      (int)(w.sc >> (i / 2 * 16 + 8) & 15u) * high[i]
                                : (int8_t)(w.sc >> i / 2 * 16) * dot[i] +
                                      (int8_t)(w.sc >> (i / 2 * 16 + 8)) * high[i];
        } else {
            plm_mma_s8(dot, w.a, x.b);
        }
    }

    PLM_FN void multiply(float (&acc)[4], const weights &w, const acts &x)
    {
        int dot[4];
        dots(dot, w, x);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t o = i / 2, r = i % 2;
            if constexpr (minima)
                acc[i] = plm_add_minima(acc[i], (float)dot[i], w.d[o], w.mw[o],
                                        w.sc >> (o * 16 + 4) & 15u, w.sc >> (o * 16 + 12) & 15u,
                                        x.d[r], plm_bits(x.ds[r]));
            else
                acc[i] = fmaf((float)dot[i], w.d[o] * x.d[r], acc[i]);
            if constexpr (offset)
                acc[i] = fmaf(w.mw[o], x.ds[r], acc[i]);
        }
    }
};

// One row by products of four bytes: half h of a warp has panels h, h + 2, .., a lane an output of
// each. D stages are under way: quants, scales, the record of the activations. The last two take
// one copy of a lane together: lanes `scale_pieces` on copy the record.
template <uint32_t TYPE, uint32_t P, uint32_t D> struct plm_gemv_product {
    typedef plm_q8_math<TYPE> math;
    typedef plm_block<TYPE> block;
    typedef plm_weight_stream<TYPE, P, false> weight_stream;
    typedef plm_exchange<P, 1> exchange;
    static constexpr uint32_t panels = P, rows = 1, round_rows = 1, rounds = 1;
    static constexpr uint32_t stage_bytes = weight_stream::stage_bytes + math::act_bytes;
    static constexpr uint32_t bytes = PLM_SLICES * D * stage_bytes;
    static_assert(bytes <= 48u << 10 && bytes >= exchange::bytes, "static shared memory");
    static constexpr uint32_t scale_pieces = P * weight_stream::scale_pieces;
    static_assert(scale_pieces + math::act_bytes / 16 <= PLM_WARP, "one copy of a lane");

    float acc[P / 2];

    // Adds a block of a panel to the lane's sum; x: the record.
    PLM_FN void add(float &acc, const uint8_t *quants, const uint8_t *scales, const uint32_t *x)
    {
        const uint32_t lane = threadIdx.x % PLM_PANEL_ROWS;
        const plm_scales s = plm_block_scales<TYPE>(scales, lane);
        int low = 0, high = 0;
#pragma unroll
        for (uint32_t t = 0; t < 4; t++) {
            const plm_codes q = plm_block_codes<TYPE, false>(quants, lane, t);
            low = plm_dot4(low, q.low, x[t]);
            high = plm_dot4(high, q.high, x[4 + t]);
        }
        const int dot = math::halves ? s.sc[0] * low + s.sc[1] * high : low + high;
        if constexpr (math::minima)
            acc = plm_add_minima(acc, (float)dot, s.d, s.mw, (uint32_t)s.mn[0], (uint32_t)s.mn[1],
                                 plm_float(x[PLM_ACT_Q8_D / 4]), x[PLM_ACT_Q8_S / 4]);
        else
            acc = fmaf((float)dot, s.d * plm_float(x[PLM_ACT_Q8_D / 4]), acc);
        if constexpr (math::offset)
            acc = fmaf(s.mw, plm_float(x[PLM_ACT_Q8_DS / 4]), acc);
    }

    PLM_FN void walk(plm_gemv_product &self, uint8_t *shared, const plm_operands<P> &in, bool await)
    {
        const uint32_t slice = threadIdx.x / PLM_WARP, steps = plm_slice_steps(in.n_in);
        const uint32_t lane = threadIdx.x % PLM_WARP, half = lane / PLM_PANEL_ROWS;
        const uint32_t piece = lane - scale_pieces; // of the record, from that lane on
        const bool is_scale = lane < scale_pieces;
        const bool is_act =
            !is_scale && piece < math::act_bytes / 16 && math::act_wanted(slice, piece);
        uint8_t *const stages = shared + slice * D * stage_bytes;
        weight_stream weights;
        weight_stream::begin(weights, in.panel, in.n_in, slice);
        uint8_t *stage = stages;
        const uint8_t *rest = weights.scales; // what this lane's second copy takes
        for (uint32_t i = 0; i < D && i < steps; i++, stage += stage_bytes) {
            weight_stream::copy_quants(weights, stage);
            if (is_scale)
                plm_copy16(stage + weight_stream::scales_at + lane * 16,
                           rest + i * block::scale_step);
        }
        if (await) {
            plm_release();
            plm_await();
        }
        const uint32_t step = is_scale ? block::scale_step : math::act_step;
        if (!is_scale)
            rest = (const uint8_t *)in.x + in.first * math::row_bytes(in.n_in) +
                   math::act_piece(slice, piece);
        stage = stages;
        for (uint32_t i = 0; i < D; i++, stage += stage_bytes) {
            if (is_act && i < steps)
                plm_copy16(stage + weight_stream::scales_at + lane * 16, rest + i * step);
            plm_copy_commit();
        }
        rest += D * step;
#pragma unroll
        for (uint32_t j = 0; j < P / 2; j++)
            self.acc[j] = 0.0f;
        stage = stages;
        for (uint32_t i = 0; i < steps; i++) {
            plm_copy_wait<D - 1>();
            plm_warp_sync();
            const uint8_t *record = stage + weight_stream::stage_bytes + math::lead(slice);
            const uint8_t *quants = stage + half * weight_stream::panel_bytes;
            const uint8_t *scales = stage + weight_stream::scales_at + half * block::scales;
#pragma unroll
            for (uint32_t j = 0; j < P / 2; j++)
                add(self.acc[j], quants + 2 * j * weight_stream::panel_bytes,
                    scales + 2 * j * block::scales, (const uint32_t *)record);
            plm_warp_sync();
            if (i + D < steps) {
                weight_stream::copy_quants(weights, stage);
                if (is_scale || is_act)
                    plm_copy16(stage + weight_stream::scales_at + lane * 16, rest);
                rest += step;
            }
            plm_copy_commit();
            stage = stage == stages + (D - 1) * stage_bytes ? stages : stage + stage_bytes;
        }
    }

    PLM_FN void spread(const plm_gemv_product &self, float *sums, uint32_t)
    {
        const uint32_t lane = threadIdx.x % PLM_WARP;
#pragma unroll
        for (uint32_t j = 0; j < P / 2; j++)
            sums[threadIdx.x / PLM_WARP * exchange::slice + j * PLM_WARP + lane] = self.acc[j];
    }
};

// ---- shapes ----

// How many stages fit into a budget of bytes, `most` at most.
constexpr uint32_t plm_depth(uint32_t budget, uint32_t stage_bytes, uint32_t most)
{
    return budget / stage_bytes < most ? budget / stage_bytes : most;
}

// About 36 KiB of weights under way on a processor is what keeps its memory busy. For one row, up
// to 16 and up to 64 at once:
template <uint32_t TYPE, uint32_t P>
using plm_q8_gemv =
    plm_gemv_product<TYPE, P,
                     plm_depth((38u << 10) / PLM_SLICES, P *plm_block<TYPE>::bytes + 64, 6)>;
template <uint32_t TYPE, uint32_t P>
using plm_q8_skinny =
    plm_tile_product<plm_q8_math<TYPE>, P, 2,
                     plm_depth((48u << 10) / PLM_SLICES - 3 * 512, P *plm_block<TYPE>::bytes, 5),
                     3>;
template <uint32_t TYPE, uint32_t P> // leaves 16 KiB
using plm_q8_full_heads = plm_tile_product<plm_q8_math<TYPE>, P, 2, 2, 2>;
// With four panels, as many tiles as there are registers for their sums; two sub-scales a block
// take more of these.
template <uint32_t TYPE, uint32_t P> constexpr uint32_t plm_q8_tiles()
{
    return P == 2 ? 8 : (plm_layout<TYPE>::halves && PLM_MMA_SUMS > 16 ? 16 : PLM_MMA_SUMS) / 4;
}
template <uint32_t TYPE, uint32_t P>
using plm_q8_gemm = plm_tile_product<plm_q8_math<TYPE>, P, plm_q8_tiles<TYPE, P>(), P == 2 ? 2 : 1,
                                     plm_q8_tiles<TYPE, P>() < 4 ? 3 : 4>;

#endif
