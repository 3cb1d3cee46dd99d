// SPDX-License-Identifier: Apache-2.0
// The math of tile.cuh for activations in 8 bits: weights are decoded once for the block, to signed
// bytes and floats in the order in which warps load them, 16 bytes a lane.
#ifndef PLM_KERNELS_Q8_TILED_CUH
#define PLM_KERNELS_Q8_TILED_CUH

#include "kernels/lib/q8.cuh"
#include "kernels/lib/tile.cuh"

template <uint32_t TYPE> struct plm_q8_tiled {
    typedef plm_layout<TYPE> layout;
    static constexpr bool held_weights = true, offset = layout::offset;
    static constexpr bool halves = layout::halves, minima = layout::minima;
    // With two minima a block there are registers for fewer sums; with one and codes of five bits, for
    // the activations of two tiles at once, and the weights are loaded once more.
    static constexpr uint32_t units = 1, wide = 2, panels = 3, tiles = minima ? 2 : PLM_MMA_SUMS / 8;
    static constexpr uint32_t at_once = offset && layout::quant_bytes > 256 ? 2 : tiles;
    static_assert(at_once % 2 == 0, "activations are loaded for two tiles at once");
    static constexpr uint32_t outs = wide * panels * PLM_PANEL_ROWS;
    static constexpr uint32_t rows = PLM_SLICES / wide * tiles * PLM_TILE_ROWS;
    // Weights: four matrices of 8 outputs by 16 bytes a panel (outputs 0 .. 7 and 8 .. 15 of inputs
    // 0 .. 15, then of 16 .. 31); then of outputs g and g + 8 d and, with a minimum, mw: {d, mw} of
    // g, of g + 8; then the two factors of g, of g + 8, with minima four in a word.
    static constexpr uint32_t scale_bytes = offset || minima ? 8 : 4;
    static constexpr uint32_t halves_bytes = minima ? 4 : halves ? 8 : 0;
    static constexpr uint32_t scales_at = outs * 32, halves_at = scales_at + outs * scale_bytes;
    static constexpr uint32_t held_bytes = halves_at + outs * halves_bytes;
    // Activations: inputs 0 .. 15 of all rows, 16 .. 31; then d and, for an offset, ds of each row.
    static constexpr uint32_t plane = rows * 16, acts_at = 2 * plane;
    static constexpr uint32_t act_scale_bytes = offset || minima ? 8 : 4;
    static constexpr uint32_t streamed_bytes = acts_at + rows * act_scale_bytes;
    // Thread i copies words i % 4 and i % 4 + 4 of rows i / 4 + 64 j, d if that is 0, ds if it
    // is 2; with two minima a block, s if it is 1 in place of ds.
    static constexpr uint32_t copies = rows / (PLM_PRODUCT_THREADS / 4);
    static_assert(outs <= PLM_PRODUCT_THREADS / 2 && copies >= 1 && copies <= 2, "shape");

    static constexpr uint32_t lines = layout::quant_bytes / 64;
    static constexpr uint32_t words = lines < 4 ? 4 : lines;

    const uint8_t *weight;                   // this thread's part of block 0
    const uint8_t *x;                        // and its words
    uint32_t next_x;                         // from there to its next row's
    uint32_t raw[words];                     // what it holds of a block
    uint32_t to, to_x;                       // where they go
    uint32_t at_a, at_scales, at_b, at_acts; // of this lane

    // The first half of the threads has the quants of an output each, the second the scales.
    static constexpr uint32_t half = PLM_PRODUCT_THREADS / 2;
    PLM_FN bool has_quants()
    {
        return threadIdx.x < outs;
    }
    PLM_FN bool has_scales()
    {
        return threadIdx.x - half < outs;
    }

    PLM_FN void begin(plm_q8_tiled &m, const struct plm_matmul_args &a, uint32_t out,
                      uint32_t first)
    {
        const uint32_t o = threadIdx.x % half, last = (a.n_out - 1) / 16;
        const bool quants = threadIdx.x < half;
        const uint32_t panel = (out + (o < outs ? o : 0)) / PLM_PANEL_ROWS, l = o % PLM_PANEL_ROWS;
        m.weight = (const uint8_t *)a.weight +
                   (panel < last ? panel : last) * plm_panel_bytes<TYPE>(a.n_in) +
                   (quants ? plm_panel_quant_offset<TYPE>(a.n_in) + l * 4 : l * 2);
        const uint32_t i = threadIdx.x, word = i % 4;
        const uint32_t r = first + i / 4, next = r + PLM_PRODUCT_THREADS / 4, end = a.rows - 1;
        const uint64_t from = (r < end ? r : end) * PLM_ACT_Q8_ROW_BYTES(a.n_in);
        m.x = (const uint8_t *)a.x + from + word * 4;
        m.next_x = (uint32_t)((next < end ? next : end) * PLM_ACT_Q8_ROW_BYTES(a.n_in) - from);
        const uint32_t pair = o / PLM_PANEL_ROWS * 8 + l % 8; // of outputs
        m.to = plm_keep(quants ? o / PLM_PANEL_ROWS * 512 + l * 16
                               : scales_at + (2 * pair + l / 8) * scale_bytes);
        m.to_x = plm_keep(i / 4 * 16 + word * 4);
        const uint32_t warp = i / PLM_WARP, lane = i % PLM_WARP, g = lane / 4, t = lane % 4;
        const uint32_t p = warp % wide * panels, tile = warp / wide * tiles;
        m.at_a = plm_keep(p * 512 + lane * 16);
        m.at_scales = plm_keep(scales_at + (p * 8 + g) * 2 * scale_bytes);
        const uint32_t row = tile * 8 + lane / 16 * 8 + lane % 8;
        m.at_b = plm_keep(lane / 8 % 2 * plane + row * 16);
        m.at_acts = plm_keep(acts_at + (tile * 8 + 2 * t) * act_scale_bytes);
    }

    PLM_FN void hold_quants(plm_q8_tiled &m, uint32_t b)
    {
        const uint8_t *at = m.weight + (uint64_t)b * layout::quant_bytes;
#pragma unroll
        for (uint32_t i = 0; i < lines; i++)
            m.raw[i] = *(const uint32_t *)(at + i * 64);
    }

    PLM_FN void hold_scales(plm_q8_tiled &m, uint32_t b)
    {
        const uint8_t *at = m.weight + (uint64_t)(b / (layout::block / 32)) * layout::scale_bytes;
        // Bytes of an output lie `l` bytes less far than its halves.
        const uint32_t l = threadIdx.x % PLM_PANEL_ROWS;
        m.raw[0] = layout::scales == PLM_SCALES_E8M0 ? at[-(int)l] : *(const uint16_t *)at;
        if constexpr (offset || minima)
            m.raw[1] = *(const uint16_t *)(at + 32);
        if constexpr (layout::block == 256) {
            at += plm_factors_at<TYPE>(b) - l;
            m.raw[2] = at[0];
            m.raw[3] = at[plm_layout<TYPE>::factors_next];
        }
    }

    PLM_FN void hold(plm_q8_tiled &m, uint32_t b)
    {
        if (has_quants())
            hold_quants(m, b);
        if (has_scales())
            hold_scales(m, b);
    }

    // Codes of inputs 4t .. 4t+3 and 16+4t .., less the type's zero: signed bytes.
    PLM_FN plm_codes codes(const uint32_t (&raw)[words], uint32_t t)
    {
        const auto line = [&](uint32_t i) { return raw[i % words]; };
        return plm_signed_codes<TYPE>(plm_line_values<TYPE>(line, t),
                                      plm_line_values<TYPE>(line, 4 + t));
    }

    PLM_FN void decode_quants(const plm_q8_tiled &m, uint8_t *to)
    {
        plm_codes q[4];
#pragma unroll
        for (uint32_t t = 0; t < 4; t++)
            q[t] = codes(m.raw, t);
        *(uint4 *)to = make_uint4(q[0].low, q[1].low, q[2].low, q[3].low);
        *(uint4 *)(to + 256) = make_uint4(q[0].high, q[1].high, q[2].high, q[3].high);
    }

    // Where the factors lie of those outputs whose d lies at `at`.
    PLM_FN uint32_t halves_of(uint32_t at)
    {
        return halves_at + (at - scales_at) / scale_bytes * halves_bytes;
    }

    PLM_FN void decode_scales(const plm_q8_tiled &m, uint8_t *to)
    {
        const uint8_t factors[2] = {(uint8_t)m.raw[2], (uint8_t)m.raw[3]};
        const plm_scales s =
            plm_scales_of<TYPE>(layout::scales == PLM_SCALES_E8M0 ? plm_e8m0_half(m.raw[0])
                                                                  : plm_half((uint16_t)m.raw[0]),
                                offset || minima ? plm_half((uint16_t)m.raw[1]) : 0.0f, factors, 1);
        if constexpr (offset || minima)
            *(float2 *)to = make_float2(s.d, s.mw);
        else
            *(float *)to = s.d;
        uint8_t *const to_halves = to - m.to + halves_of(m.to);
        if constexpr (minima)
            *(uint32_t *)to_halves = m.raw[2] | m.raw[3] << 8;
        else if constexpr (halves)
            *(int2 *)to_halves = make_int2(s.sc[0], s.sc[1]);
    }

    PLM_FN void turn(plm_q8_tiled &m, uint8_t *shared, uint32_t to, uint32_t b)
    {
        if (has_quants()) {
            decode_quants(m, shared + to + m.to);
            hold_quants(m, b);
        }
        if (has_scales()) {
            decode_scales(m, shared + to + m.to);
            hold_scales(m, b);
        }
    }

    // plm_keep: registers are scarcer than instructions, and compilers would hold sums.
    PLM_FN void stream(plm_q8_tiled &m, uint8_t *shared, uint32_t to, uint32_t b)
    {
        const uint32_t at_x = plm_keep(m.to_x), next_x = plm_keep(m.next_x);
        uint8_t *to_x = shared + plm_keep(to + at_x);
        const uint32_t word = threadIdx.x % 4;
        uint8_t *to_d = shared + plm_keep(to + at_x * act_scale_bytes / 16) + acts_at +
                        (minima && word == 1 ? 2 : 0);
        const uint8_t *from = m.x + b * PLM_ACT_Q8_BLOCK_BYTES;
#pragma unroll
        for (uint32_t j = 0; j < copies; j++) {
            plm_copy4(to_x + j * 1024, from);
            plm_copy4(to_x + j * 1024 + plane, from + 16);
            // d; ds or s, which words 2 and 1 of the thread lead to
            if (minima ? word < 2 : word % (offset ? 2 : 4) == 0)
                plm_copy4(to_d + j * 64 * act_scale_bytes, from + PLM_ACT_Q8_D);
            from += next_x;
        }
    }

    // Of a fragment of sums: outputs g and g + 8, rows 2t and 2t + 1.
    struct scales {
        float d[2], mw[2];
        int sc[2][2];
        uint32_t factors[2]; // minima: in place of sc, which would take too many registers
    };
    struct acts {
        uint32_t b[2];
        float d[2], ds[2]; // minima: the bits of ds are those of s
    };

    PLM_FN void load(const plm_q8_tiled &m, scales &s, const uint8_t *held, uint32_t p)
    {
        const uint8_t *at = held + m.at_scales + p * 16 * scale_bytes;
        if constexpr (offset || minima) {
            const float4 v = *(const float4 *)at;
            s.d[0] = v.x;
            s.mw[0] = v.y;
            s.d[1] = v.z;
            s.mw[1] = v.w;
        } else {
            const float2 v = *(const float2 *)at;
            s.d[0] = v.x;
            s.d[1] = v.y;
        }
        const uint8_t *const from = held + halves_of(m.at_scales) + p * 16 * halves_bytes;
        if constexpr (minima) {
            const uint2 v = *(const uint2 *)from;
            s.factors[0] = v.x;
            s.factors[1] = v.y;
        } else if constexpr (halves) {
            const int4 v = *(const int4 *)from;
            s.sc[0][0] = v.x;
            s.sc[0][1] = v.y;
            s.sc[1][0] = v.z;
            s.sc[1][1] = v.w;
        }
    }

    // Of tiles `first` on.
    PLM_FN void load(const plm_q8_tiled &m, acts (&x)[at_once], const uint8_t *streamed,
                     uint32_t first)
    {
#pragma unroll
        for (uint32_t t = 0; t < at_once; t += 2) {
            uint32_t b[4];
            plm_matrices(b, streamed + m.at_b + (first + t) * 128);
            x[t].b[0] = b[0];
            x[t].b[1] = b[1];
            x[t + 1].b[0] = b[2];
            x[t + 1].b[1] = b[3];
        }
#pragma unroll
        for (uint32_t t = 0; t < at_once; t++) {
            const uint8_t *at = streamed + m.at_acts + (first + t) * 8 * act_scale_bytes;
            if constexpr (offset || minima) {
                const float4 v = *(const float4 *)at;
                x[t].d[0] = v.x;
                x[t].ds[0] = v.y;
                x[t].d[1] = v.z;
                x[t].ds[1] = v.w;
            } else {
                const float2 v = *(const float2 *)at;
                x[t].d[0] = v.x;
                x[t].d[1] = v.y;
            }
        }
    }

    PLM_FN void dots(float (&dot)[4], const uint32_t (&a)[4], const scales &s, const acts &x)
    {
        if constexpr (halves) {
            int low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};
            plm_mma_s8_half(low, a[0], a[1], x.b[0]);
            plm_mma_s8_half(high, a[2], a[3], x.b[1]);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t f = minima ? s.factors[i / 2] : 0;
                dot[i] = minima ? (float)((int)(f & 15u) * low[i] + (int)(f >> 8 & 15u) * high[i])
                                : (float)(s.sc[i / 2][0] * low[i] + s.sc[i / 2][1] * high[i]);
            }
        } else {
            plm_product_s8(dot, a, x.b);
        }
    }

    PLM_FN void add(float (&sum)[4], const uint32_t (&a)[4], const scales &s, const acts &x)
    {
        float dot[4];
        dots(dot, a, s, x);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t o = i / 2, r = i % 2;
            if constexpr (minima)
                sum[i] = plm_add_minima(sum[i], dot[i], s.d[o], s.mw[o], s.factors[o] >> 4 & 15u,
                                        s.factors[o] >> 12, x.d[r], plm_bits(x.ds[r]));
            else
                sum[i] = fmaf(dot[i], s.d[o] * x.d[r], sum[i]);
            if constexpr (offset)
                sum[i] = fmaf(s.mw[o], x.ds[r], sum[i]);
        }
    }

    PLM_FN void multiply(const plm_q8_tiled &m, float (&sum)[panels * tiles][4],
                         const uint8_t *held, const uint8_t *streamed)
    {
#pragma unroll
        for (uint32_t first = 0; first < tiles; first += at_once) {
            acts x[at_once];
            load(m, x, streamed, first);
#pragma unroll
            for (uint32_t p = 0; p < panels; p++) {
                uint32_t a[4];
                scales s;
                plm_matrices(a, held + m.at_a + p * 512);
                load(m, s, held, p);
#pragma unroll
                for (uint32_t t = 0; t < at_once; t++)
                    add(sum[p * tiles + first + t], a, s, x[t]);
            }
        }
    }
};

#endif
