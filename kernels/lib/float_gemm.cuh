// SPDX-License-Identifier: Apache-2.0
// Float products of many rows: a thread block computes P panels (2 or 4) for 64 rows, warp w panel
// w % P and 8 * P rows, in the walk of tile.cuh. Activations are split once, on their way into
// shared memory. For more rows of BF16 there is float_tiled.cuh.
#ifndef PLM_KERNELS_FLOAT_GEMM_CUH
#define PLM_KERNELS_FLOAT_GEMM_CUH

#include "kernels/lib/float.cuh"
#include "kernels/lib/tile.cuh"

// Slot (step, t) of row r: odd rows have the halves of 64 bytes exchanged, so that two rows' slots
// of a step lie in different banks.
PLM_FN uint32_t plm_tile_slot(uint32_t r, uint32_t slot)
{
    return slot ^ (r & 1u) << 2;
}

// Thread i loads eight inputs of row i / 4 of the tile: of half h = i / 2 % 2 of the block those
// from 4 (i % 2) on, and the four that lie 8 further on.
struct plm_tile_x {
    plm_vec4 low, high;
};

PLM_FN plm_tile_x plm_tile_load_x(const plm_float_rows &x, uint32_t b)
{
    const uint32_t i = threadIdx.x, r = i / 4, k = b * 32 + i / 2 % 2 * 16 + i % 2 * 4;
    const bool wide = plm_aligned((uint64_t)x.x | (uint64_t)x.n_in * 4);
    const uint32_t n = r < x.rows ? x.n_in : 0; // rows that are not there are zeros
    const float *row = x.x + (uint64_t)r * x.n_in;
    return {plm_load_vec4(row, k, n, wide), plm_load_vec4(row, k + 8, n, wide)};
}

// What a row's sums over all slices are exchanged by: sums[row][output].
template <uint32_t P> struct plm_tile_exchange {
    static constexpr uint32_t row = P * PLM_PANEL_ROWS + 4;

    PLM_FN float sum(const float *sums, uint32_t r, uint32_t o)
    {
        return sums[r * row + o];
    }
};

template <uint32_t TYPE, uint32_t P> struct plm_float_gemm {
    typedef plm_float_type<TYPE> math;
    typedef plm_tile_exchange<P> exchange;
    static constexpr uint32_t panels = P, rows = 64, round_rows = 8, rounds = 8;
    static constexpr uint32_t cols = P;                // of eight rows, that a warp has
    static constexpr uint32_t slots = 8 * math::steps; // of a row: (step, t)
    static constexpr uint32_t weight_bytes = P * math::block_bytes;
    static constexpr uint32_t x_bytes = rows * slots * sizeof(plm_float_b);
    static constexpr uint32_t depth = 12 / P; // stages of weights
    static constexpr uint32_t x_stages = math::bf16 ? 2 : 1;
    static constexpr uint32_t staged = depth * weight_bytes, four = staged + x_stages * x_bytes;
    typedef plm_tile_waiting<cols * 4, cols * 4> waiting;
    static constexpr uint32_t bytes = four + waiting::bytes;
    static_assert(bytes <= 48u << 10, "static shared memory");
    static_assert(math::plain && P * math::chunks <= PLM_PRODUCT_THREADS, "a chunk a thread");

    float acc[cols][4];

    // This thread's chunk of a stage.
    struct chunk {
        const uint8_t *from; // of block 0
        uint32_t to, k;      // its input within a block; no block's where there is no chunk
    };

    PLM_FN chunk chunk_of(const plm_operands<P> &in)
    {
        const uint32_t p = threadIdx.x / math::chunks, c = threadIdx.x % math::chunks;
        const uint8_t *panel = plm_float_panel(in, p < P ? p : P - 1);
        return {panel + c * 16, p * math::block_bytes + plm_float_place<TYPE>(c) * 16,
                p < P ? c * 16 / plm_layout<TYPE>::quant_bytes : 32};
    }

    // Begins the copy of a block's weights to a stage; zeros beyond the row's end.
    PLM_FN void copy_weights(uint8_t *stage, const chunk &c, const plm_tile_place &at,
                             uint32_t n_in)
    {
        if (c.k < 32) {
            if (at.b * 32 + c.k < n_in)
                plm_copy16(stage + c.to, c.from + (uint64_t)at.b * math::block_bytes);
            else
                *(plm_vec4 *)(stage + c.to) = {};
        }
        plm_copy_commit();
    }

    PLM_FN void store_x(plm_float_b *to, const plm_tile_x &x)
    {
        const uint32_t i = threadIdx.x, r = i / 4, h = i / 2 % 2, t = i % 2 * 2;
#pragma unroll
        for (uint32_t c = 0; c < 2; c++) {
            plm_float_b f[math::steps];
            plm_split<TYPE>(f, x.low.v + 2 * c, x.high.v + 2 * c);
#pragma unroll
            for (uint32_t s = 0; s < math::steps; s++)
                to[r * slots + plm_tile_slot(r, (h * math::steps + s) * 4 + t + c)] = f[s];
        }
    }

    // One block: d += its products, for this warp's panel and rows.
    PLM_FN void block(float (&d)[cols][4], const uint8_t *stage, const plm_float_b *x)
    {
        const uint32_t warp = threadIdx.x / PLM_WARP, lane = threadIdx.x % PLM_WARP;
        const uint8_t *quants = stage + warp % P * math::block_bytes;
        const uint32_t first = warp / P * cols * 8 + lane / 4;
        const plm_scales none[2] = {};
#pragma unroll 1 // both halves at once would take too many registers
        for (uint32_t h = 0; h < 2; h++) {
            plm_float_a w[math::steps];
            plm_float_weights<TYPE>(w, quants, none, h);
#pragma unroll
            for (uint32_t c = 0; c < cols; c++)
#pragma unroll
                for (uint32_t s = 0; s < math::steps; s++) {
                    const uint32_t r = first + c * 8;
                    const uint32_t slot = plm_tile_slot(r, (h * math::steps + s) * 4 + lane % 4);
                    plm_float_mma<TYPE>(d[c], w[s], x[r * slots + slot]);
                }
        }
    }

    PLM_FN void walk(plm_float_gemm &self, uint8_t *shared, const plm_operands<P> &in, bool await)
    {
        const uint32_t blocks = (in.n_in + 31) / 32;
        const chunk mine = chunk_of(in);
        plm_tile_place load = {0, 0};
        for (uint32_t i = 0; i + 1 < depth; i++, plm_tile_next<1>(load, blocks))
            copy_weights(shared + i * weight_bytes, mine, load, in.n_in);
        if (await) {
            plm_release();
            plm_await();
        }
        plm_tile_x held = plm_tile_load_x(plm_float_rows_of(in), 0);
        waiting sums;
        uint32_t stage = 0, turn = 0;
        for (uint32_t order = 0; order < PLM_SLICES; order++) {
#pragma unroll
            for (uint32_t i = 0; i < cols * 4; i++)
                self.acc[i / 4][i % 4] = 0.0f;
            for (uint32_t b = plm_tile_slice(order); b < blocks; b += PLM_SLICES) {
                plm_float_b *x = (plm_float_b *)(shared + staged + turn * x_bytes);
                if constexpr (x_stages == 1)
                    __syncthreads(); // all have read what is overwritten
                store_x(x, held);
                plm_copy_wait<depth - 2>();
                __syncthreads(); // the stage is there; all have read the one that is filled next
                copy_weights(shared + (stage != 0 ? stage - 1 : depth - 1) * weight_bytes, mine,
                             load, in.n_in);
                plm_tile_next<1>(load, blocks);
                plm_tile_place then = {order, b};
                plm_tile_next<1>(then, blocks);
                held = plm_tile_load_x(plm_float_rows_of(in), then.b);
                block(self.acc, shared + stage * weight_bytes, x);
                stage = stage + 1 < depth ? stage + 1 : 0;
                turn = x_stages - 1 - turn;
            }
            waiting::add(sums, (float *)(shared + four), self.acc, order);
        }
        plm_copy_wait<0>();
    }

    // Gives the sums of rows 8t .. 8t+7 to the other warps.
    PLM_FN void spread(const plm_float_gemm &self, float *sums, uint32_t t)
    {
        const uint32_t warp = threadIdx.x / PLM_WARP, lane = threadIdx.x % PLM_WARP;
        if (warp / P != t / cols)
            return;
        float *at = sums + lane % 4 * 2 * exchange::row + warp % P * PLM_PANEL_ROWS + lane / 4;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            at[i % 2 * exchange::row + i / 2 * 8] = self.acc[t % cols][i];
    }
};

// The weights that each shape is built for: all that models keep unquantised have the skinny shape,
// 16-bit ones a shape for one row and one for prompts, too. Quantised ones have the skinny shape
// alone (kernels/types.def).
#define PLM_FLOAT_PRODUCTS(GEMV, SKINNY, GEMM)                                                     \
    GEMV(bf16, BF16)                                                                               \
    GEMV(f16, F16)                                                                                 \
    SKINNY(bf16, BF16)                                                                             \
    SKINNY(f16, F16)                                                                               \
    SKINNY(f32, F32)                                                                               \
    GEMM(bf16, BF16)                                                                               \
    GEMM(f16, F16)

#endif
