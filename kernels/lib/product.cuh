// SPDX-License-Identifier: Apache-2.0
// The frame of all matrix products: how a block of 256 threads walks over K, and how its warps'
// sums meet. Numerics class "8 slices": K is cut into blocks of 32 inputs, block b belongs to slice
// b % 8, warp s of a thread block adds the blocks of slice s in ascending order, and the slices are
// added in pairs (s and s + 4, + 2, + 1). So results do not depend on how many rows or panels
// (16 outputs each) a thread block takes, and every kernel made of this frame gives the same bits.
//
// A warp streams its own weights and activations through its own part of shared memory; nothing in
// the walk waits for another warp. The first stages of weights are under way before plm_await.
//
// What differs between kinds of activations is a *math* M:
// - type: of the weight. row_bytes(n_in): of a row of activations in memory.
// - act_bytes: what a block of 32 inputs of a row takes in shared memory: four pieces of 16 bytes,
//   one a lane for the 8 rows of a tile. act_piece(b, c): where in a row piece c of block b begins,
//   a multiple of 16; act_step: from there to the slice's next block. act_wanted(b, c): whether it
//   is needed. act_place(r, c): where in a tile piece c of row r goes.
// - weights, acts: a lane's registers of a block of a panel and of a tile, which are fragments of
//   m16n8 products (m: outputs of the panel, n: rows).
// - begin(m, slice); load(m, weights, quants, scales); load(m, acts, tile); multiply(acc, weights,
//   acts) adds the product of a block to a fragment of sums.
// plm_q8_math (q8.cuh) is the one for PLM_ACT_Q8.
#ifndef PLM_KERNELS_PRODUCT_CUH
#define PLM_KERNELS_PRODUCT_CUH

#include "kernels/lib/panel.cuh"

#define PLM_SLICES          8u // of K: a warp each
#define PLM_PRODUCT_THREADS (PLM_SLICES * PLM_WARP)
#define PLM_TILE_ROWS       8u // rows of activations in one m16n8 product

// ---- blocks of a panel in shared memory ----

// Bytes of a block of 32 inputs: its quants, and those scales that it needs of its record, in the
// record's order.
template <uint32_t TYPE> struct plm_block {
    typedef plm_layout<TYPE> layout;
    static constexpr uint32_t quants = layout::quant_bytes * (layout::block == 1 ? 32 : 1);
    static constexpr uint32_t own = // of a record of 256 inputs, before the factors of all blocks
        layout::offset || layout::minima ? 64 : 32;
    static constexpr uint32_t scales = layout::block == 1 ? 0
                                       : layout::block == 32
                                           ? layout::scale_bytes
                                           : own + (layout::scales == PLM_SCALES_D_SUB ? 16 : 32);
    static constexpr uint32_t bytes = quants + scales;
    // From one block of a slice to its next.
    static constexpr uint32_t scale_step =
        layout::scale_bytes * (layout::block == 32 ? PLM_SLICES : 1);
};

// Where in a panel 16-byte piece c of the scales of block b lies.
template <uint32_t TYPE> PLM_FN uint32_t plm_scale_piece(uint32_t b, uint32_t c)
{
    typedef plm_layout<TYPE> l;
    if constexpr (l::block == 32)
        return b * l::scale_bytes + c * 16;
    constexpr uint32_t own = plm_block<TYPE>::own / 16;
    return b / 8 * l::scale_bytes +
           (c < own ? c * 16
                    : plm_factors_at<TYPE>(b) + (c - own) * plm_layout<TYPE>::factors_next);
}

// Row `lane` of the scales of a block.
template <uint32_t TYPE> PLM_FN plm_scales plm_block_scales(const uint8_t *scales, uint32_t lane)
{
    typedef plm_layout<TYPE> l;
    const bool has_m = l::offset || l::minima;
    return plm_scales_of<TYPE>(plm_scale_d<TYPE>(scales, lane),
                               has_m ? plm_half(((const uint16_t *)scales)[16 + lane]) : 0.0f,
                               scales + plm_block<TYPE>::own + lane, 16);
}

// Where the quants of a block keep 16-byte piece c: four pieces are a line of 64 bytes, and every
// second pair of lines has its halves swapped, so that the four lines of a fragment's rows 0 .. 7
// lie in different banks. plm_line_word is where 4-byte word `lane` of a line is then.
PLM_FN uint32_t plm_line_piece(uint32_t c)
{
    return (c ^ (c >> 2 & 2u)) * 16;
}
PLM_FN uint32_t plm_line_word(uint32_t line, uint32_t lane)
{
    return line * 16 + (lane ^ (line << 2 & 8u));
}

// ---- streams ----

// Steps of this warp's slice.
PLM_FN uint32_t plm_slice_steps(uint32_t n_in)
{
    return (n_in / 32 + (PLM_SLICES - 1) - threadIdx.x / PLM_WARP) / PLM_SLICES;
}

// Element i of values in registers, the last one for all from there on.
PLM_FN uint64_t plm_pick(const uint64_t (&v)[2], uint32_t i)
{
    const uint64_t v0 = v[0], v1 = v[1];
    return i == 0 ? v0 : v1;
}
PLM_FN uint64_t plm_pick(const uint64_t (&v)[4], uint32_t i)
{
    const uint64_t v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3];
    const uint64_t low = i == 0 ? v0 : v1, high = i == 2 ? v2 : v3;
    return i < 2 ? low : high;
}

// A warp's weights: the blocks of its slice of P panels, one step after the other. A stage is the
// quants of the P panels, then their scales. FRAGMENTS: quants lie as plm_line_piece says; else as
// in memory, and every panel begins 64 bytes of banks behind the one before.
template <uint32_t TYPE, uint32_t P, bool FRAGMENTS> struct plm_weight_stream {
    typedef plm_block<TYPE> block;
    static constexpr uint32_t pieces = block::quants / 16; // of a panel
    static constexpr uint32_t scale_pieces = block::scales / 16;
    static constexpr uint32_t panel_bytes = block::quants + (FRAGMENTS ? 0 : 64);
    static constexpr uint32_t scales_at = P * panel_bytes; // in a stage
    static constexpr uint32_t stage_bytes = scales_at + P * block::scales;
    static constexpr uint32_t copies = (P * pieces + PLM_WARP - 1) / PLM_WARP; // of a lane
    static_assert(P * scale_pieces <= PLM_WARP, "one copy of scales a lane");

    const uint8_t *quants[copies], *scales; // of this lane's pieces in the next step
    uint32_t to[copies];                    // where they go in a stage

    PLM_FN void begin(plm_weight_stream &s, const uint64_t (&panel)[P], uint32_t n_in,
                      uint32_t slice)
    {
        const uint32_t lane = threadIdx.x % PLM_WARP;
        const uint64_t first = plm_panel_quant_offset<TYPE>(n_in) + slice * block::quants;
#pragma unroll
        for (uint32_t j = 0; j < copies; j++) {
            const uint32_t c = lane + j * PLM_WARP, p = c / pieces, i = c % pieces;
            s.quants[j] = (const uint8_t *)plm_pick(panel, p) + first + i * 16;
            s.to[j] = plm_keep(p * panel_bytes + (FRAGMENTS ? plm_line_piece(i) : i * 16));
        }
        if constexpr (scale_pieces != 0) {
            s.scales = (const uint8_t *)plm_pick(panel, lane / scale_pieces) +
                       plm_scale_piece<TYPE>(slice, lane % scale_pieces);
        }
    }

    // Begin the copies of the next step.
    PLM_FN void copy_quants(plm_weight_stream &s, uint8_t *stage)
    {
#pragma unroll
        for (uint32_t j = 0; j < copies; j++) {
            if (P * pieces % PLM_WARP == 0 || threadIdx.x % PLM_WARP + j * PLM_WARP < P * pieces)
                plm_copy16(stage + s.to[j], s.quants[j]);
            s.quants[j] += PLM_SLICES * block::quants;
        }
    }
    PLM_FN void copy_scales(plm_weight_stream &s, uint8_t *stage)
    {
        if constexpr (scale_pieces != 0) {
            const uint32_t lane = threadIdx.x % PLM_WARP;
            if (lane < P * scale_pieces)
                plm_copy16(stage + scales_at + lane * 16, s.scales);
            s.scales += block::scale_step;
        }
    }
    PLM_FN void copy(plm_weight_stream &s, uint8_t *stage)
    {
        copy_quants(s, stage);
        copy_scales(s, stage);
    }
};

// A warp's activations: for every step of its slice, `tiles` tiles of 8 rows from row `first` on.
// Rows at and beyond `rows` are the last row once more. (The blocks of neighbouring slices share
// sectors and lines.)
template <class M> struct plm_act_stream {
    static constexpr uint32_t tile_bytes = PLM_TILE_ROWS * M::act_bytes;
    static constexpr uint32_t pieces = M::act_bytes / 16; // of a row
    static_assert(PLM_TILE_ROWS * pieces == PLM_WARP, "a piece of a tile a lane");

    const uint8_t *x; // this lane's piece of the next step, in row 0
    bool wanted;
    uint32_t to, row, last, row_bytes; // to: where it goes in a tile
    uint32_t tiles, tile, steps;       // of a step; the next; steps that are left

    PLM_FN void begin(plm_act_stream &s, uint64_t x, uint32_t first, uint32_t rows, uint32_t n_in,
                      uint32_t tiles)
    {
        const uint32_t lane = threadIdx.x % PLM_WARP, slice = threadIdx.x / PLM_WARP;
        s.x = (const uint8_t *)x + M::act_piece(slice, lane % pieces);
        s.wanted = M::act_wanted(slice, lane % pieces);
        s.to = plm_keep(M::act_place(lane / pieces, lane % pieces));
        s.row = plm_keep(first + lane / pieces);
        s.last = rows - 1;
        s.row_bytes = (uint32_t)M::row_bytes(n_in);
        s.tiles = tiles;
        s.tile = 0;
        s.steps = plm_slice_steps(n_in);
    }

    // Begins the copies of the next tile, if there is one.
    PLM_FN void copy(plm_act_stream &s, uint8_t *at)
    {
        if (s.steps == 0)
            return;
        const uint32_t row = s.row + s.tile * PLM_TILE_ROWS;
        if (s.wanted)
            plm_copy16_near(at + s.to, s.x + (uint64_t)(row < s.last ? row : s.last) * s.row_bytes);
        if (++s.tile == s.tiles) {
            s.tile = 0;
            s.steps--;
            s.x += M::act_step;
        }
    }
};

// What a product is of: P panels, and rows from `first` on.
template <uint32_t P> struct plm_operands {
    uint64_t panel[P]; // addresses
    uint64_t x;
    uint32_t first, rows, n_in;
};

// ---- sums over slices ----

// What the warps exchange at once: R rows of P panels. sums[slice][row][output]; four
// words more a row put the rows of a fragment into different banks.
template <uint32_t P, uint32_t R> struct plm_exchange {
    static constexpr uint32_t row = P * PLM_PANEL_ROWS + 4, slice = R * row;
    static constexpr uint32_t bytes = PLM_SLICES * slice * 4;

    // Output o (of P * 16) of row r, over all slices.
    PLM_FN float sum(const float *sums, uint32_t r, uint32_t o)
    {
        float v[PLM_SLICES];
#pragma unroll
        for (uint32_t s = 0; s < PLM_SLICES; s++)
            v[s] = sums[s * slice + r * row + o];
#pragma unroll
        for (uint32_t s = 0; s < PLM_SLICES / 2; s++)
            v[s] += v[s + PLM_SLICES / 2];
        return (v[0] + v[2]) + (v[1] + v[3]);
    }
};

// ---- a tile of panels and rows by matrix products ----

// P panels by up to N tiles of 8 rows. W stages of weights are under way, and B - 1 tiles of
// activations.
template <class M, uint32_t P, uint32_t N, uint32_t W, uint32_t B> struct plm_tile_product {
    typedef M math;
    typedef plm_weight_stream<M::type, P, true> weight_stream;
    typedef plm_act_stream<M> act_stream;
    typedef plm_exchange<P, PLM_TILE_ROWS> exchange;
    static constexpr uint32_t panels = P, rows = N * PLM_TILE_ROWS;
    static constexpr uint32_t round_rows = PLM_TILE_ROWS, rounds = N;
    static constexpr uint32_t warp_bytes =
        W * weight_stream::stage_bytes + B * act_stream::tile_bytes;
    static constexpr uint32_t walk_bytes = PLM_SLICES * warp_bytes;
    static constexpr uint32_t bytes = walk_bytes > exchange::bytes ? walk_bytes : exchange::bytes;
    static_assert(bytes <= 48u << 10, "static shared memory");
    // Fewer tiles a step, and the weights of a step would not be there when its activations are.
    static constexpr uint32_t least_tiles = (B - 1 + W - 1) / W;
    static_assert(B >= 2 && least_tiles <= N, "depths");

    float acc[N][P][4];

    // The fragments of a stage's panels.
    PLM_FN void load(const M &m, typename M::weights (&w)[P], const uint8_t *stage)
    {
        typedef plm_block<M::type> block;
#pragma unroll
        for (uint32_t p = 0; p < P; p++)
            M::load(m, w[p], stage + p * block::quants,
                    stage + weight_stream::scales_at + p * block::scales);
    }

    PLM_FN void clear(plm_tile_product &self)
    {
#pragma unroll
        for (uint32_t i = 0; i < N * P * 4; i++)
            self.acc[i / (P * 4)][i / 4 % P][i % 4] = 0.0f;
    }

    // Tiles of rows a step takes.
    PLM_FN uint32_t tiles_of(const plm_operands<P> &in)
    {
        const uint32_t n = (in.rows - in.first + (PLM_TILE_ROWS - 1)) / PLM_TILE_ROWS;
        return n < least_tiles ? least_tiles : n < N ? n : N;
    }

    // await: whether this is the kernel's first walk, which waits for the kernels before.
    PLM_FN void walk(plm_tile_product &self, uint8_t *shared, const plm_operands<P> &in, bool await)
    {
        constexpr uint32_t stage_bytes = weight_stream::stage_bytes;
        constexpr uint32_t tile_bytes = act_stream::tile_bytes;
        const uint32_t slice = threadIdx.x / PLM_WARP, steps = plm_keep(plm_slice_steps(in.n_in));
        const uint32_t n = tiles_of(in);
        uint8_t *const stages = shared + slice * warp_bytes, *const tiles =
                                                                 stages + W * stage_bytes;
        weight_stream weights;
        weight_stream::begin(weights, in.panel, in.n_in, slice);
        for (uint32_t i = 0; i < W; i++) {
            if (i < steps)
                weight_stream::copy(weights, stages + i * stage_bytes);
            plm_copy_commit();
        }
        if (await) {
            plm_release();
            plm_await();
        }
        act_stream x;
        act_stream::begin(x, in.x, in.first, in.rows, in.n_in, n);
        for (uint32_t i = 0; i + 1 < B; i++) {
            act_stream::copy(x, tiles + i * tile_bytes);
            plm_copy_commit();
        }
        M m;
        M::begin(m, slice);
        clear(self);
        uint8_t *stage = stages, *tile = tiles, *left = tiles + (B - 1) * tile_bytes;
        for (uint32_t i = 0; i < steps; i++) {
            typename M::weights w[P];
#pragma unroll
            for (uint32_t t = 0; t < N; t++) {
                if (t >= n) // no break: hipcc would leave the loop as it is
                    continue;
                plm_copy_wait<B - 2>();
                plm_warp_sync();
                if (t == 0) {
                    load(m, w, stage);
                    plm_warp_sync();
                    if (i + W < steps)
                        weight_stream::copy(weights, stage);
                    stage = stage == stages + (W - 1) * stage_bytes ? stages : stage + stage_bytes;
                }
                act_stream::copy(x, left); // the place that the tile before this one has left
                plm_copy_commit();
                typename M::acts b;
                M::load(m, b, tile);
#pragma unroll
                for (uint32_t p = 0; p < P; p++)
                    M::multiply(self.acc[t][p], w[p], b);
                left = tile;
                tile = tile == tiles + (B - 1) * tile_bytes ? tiles : tile + tile_bytes;
            }
        }
    }

    // Gives the sums of tile t of rows to the other warps.
    PLM_FN void spread(const plm_tile_product &self, float *sums, uint32_t t)
    {
        const uint32_t lane = threadIdx.x % PLM_WARP, o = lane / 4, r = lane % 4 * 2;
        float *at = sums + threadIdx.x / PLM_WARP * exchange::slice + r * exchange::row + o;
#pragma unroll
        for (uint32_t p = 0; p < P; p++) {
            at[p * PLM_PANEL_ROWS] = self.acc[t][p][0];
            at[p * PLM_PANEL_ROWS + exchange::row] = self.acc[t][p][1];
            at[p * PLM_PANEL_ROWS + 8] = self.acc[t][p][2];
            at[p * PLM_PANEL_ROWS + 8 + exchange::row] = self.acc[t][p][3];
        }
    }
};

#endif
