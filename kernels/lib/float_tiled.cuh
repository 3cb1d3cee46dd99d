// SPDX-License-Identifier: Apache-2.0
// The math of tile.cuh for BF16 weights and float activations. A unit is 16 inputs. Weights come as
// they lie in memory; activations are split once for the block, into two matrices of bfloat16.
#ifndef PLM_KERNELS_FLOAT_TILED_CUH
#define PLM_KERNELS_FLOAT_TILED_CUH

#include "kernels/lib/float.cuh"
#include "kernels/lib/tile.cuh"

struct plm_bf16_tiled {
    static constexpr uint32_t type = PLM_TYPE_BF16;
    static constexpr bool held_weights = false;
    static constexpr uint32_t units = 2, wide = 2, panels = 3, tiles = PLM_MMA_SUMS / 8;
    static constexpr uint32_t outs = wide * panels * PLM_PANEL_ROWS;
    static constexpr uint32_t rows = PLM_SLICES / wide * tiles * PLM_TILE_ROWS;
    // Weights: 16 inputs of a panel, then of the next panel.
    static constexpr uint32_t panel_bytes = 16 * plm_layout<type>::quant_bytes;
    static constexpr uint32_t chunks = panel_bytes / 16,
                              streamed_bytes = wide * panels * panel_bytes;
    // Activations: 16 bytes of every row of inputs 0 .. 7 of hi, of 8 .. 15, then of lo. 64 bytes
    // more a plane put what two neighbours store in different banks.
    static constexpr uint32_t plane = rows * 16 + 64, held_bytes = 4 * plane;
    static_assert(wide * panels * chunks <= PLM_PRODUCT_THREADS, "a chunk a thread");
    static_assert(rows * 2 <= PLM_PRODUCT_THREADS, "half a row a thread");

    const float *x;        // this thread's row
    const uint8_t *weight; // and chunk of unit 0
    uint32_t n, n_in;      // of its row: 0 where there is none
    uint32_t to_w, k;      // where the chunk goes, and its input; 16 where there is no chunk
    bool wide_x;           // its row is aligned
    plm_vec4 low, high;    // what it holds: inputs 8 h .. 8 h + 7 of a unit, h = i % 2
    uint32_t at_w, at_x;   // of this lane

    PLM_FN void begin(plm_bf16_tiled &m, const struct plm_matmul_args &a, uint32_t out,
                      uint32_t first)
    {
        const uint32_t i = threadIdx.x, r = first + i / 2;
        m.n_in = a.n_in;
        m.n = i / 2 < rows && r < a.rows ? a.n_in : 0; // rows that are not there are zeros
        m.x = (const float *)a.x + (uint64_t)(r < a.rows ? r : 0) * a.n_in;
        m.wide_x = plm_aligned(a.x | (uint64_t)a.n_in * 4);
        const uint32_t p = i / chunks, c = i % chunks, last = (a.n_out - 1) / PLM_PANEL_ROWS;
        const uint32_t panel = out / PLM_PANEL_ROWS + (p < wide * panels ? p : 0);
        m.weight = (const uint8_t *)a.weight +
                   (panel < last ? panel : last) * plm_panel_bytes<type>(a.n_in) + c * 16;
        m.to_w = plm_keep(p * panel_bytes + plm_float_place<type>(c) * 16);
        m.k = p < wide * panels ? c * 16 / plm_layout<type>::quant_bytes : 16;
        const uint32_t warp = i / PLM_WARP, lane = i % PLM_WARP;
        // As plm_float_pairs has it.
        const uint32_t line = lane / 16 * 8 + lane % 8;
        m.at_w = plm_keep(warp % wide * panels * panel_bytes +
                          plm_float_place<type>(2 * line + lane / 8 % 2) * 16);
        m.at_x = plm_keep(lane / 8 * plane + (warp / wide * tiles * 8 + lane % 8) * 16);
    }

    PLM_FN void hold(plm_bf16_tiled &m, uint32_t b)
    {
        const uint32_t k = b * 16 + threadIdx.x % 2 * 8;
        m.low = plm_load_vec4(m.x, k, m.n, m.wide_x);
        m.high = plm_load_vec4(m.x, k + 4, m.n, m.wide_x);
    }

    PLM_FN void turn(plm_bf16_tiled &m, uint8_t *shared, uint32_t to, uint32_t b)
    {
        const uint32_t i = threadIdx.x;
        if (rows * 2 == PLM_PRODUCT_THREADS || i < rows * 2) {
            const plm_float_b low = plm_split_bf16(m.low.v[0], m.low.v[1], m.low.v[2], m.low.v[3]);
            const plm_float_b high =
                plm_split_bf16(m.high.v[0], m.high.v[1], m.high.v[2], m.high.v[3]);
            uint8_t *at = shared + to + i % 2 * plane + i / 2 * 16;
            *(uint4 *)at = make_uint4(low.hi[0], low.hi[1], high.hi[0], high.hi[1]);
            *(uint4 *)(at + 2 * plane) = make_uint4(low.lo[0], low.lo[1], high.lo[0], high.lo[1]);
        }
        hold(m, b);
    }

    // Zeros beyond the row's end.
    PLM_FN void stream(plm_bf16_tiled &m, uint8_t *shared, uint32_t to, uint32_t b)
    {
        if (m.k >= 16)
            return;
        if (b * 16 + m.k < m.n_in)
            plm_copy16(shared + to + m.to_w, m.weight + (uint64_t)b * panel_bytes);
        else
            *(plm_vec4 *)(shared + to + m.to_w) = {};
    }

    PLM_FN void multiply(const plm_bf16_tiled &m, float (&sum)[panels * tiles][4],
                         const uint8_t *held, const uint8_t *streamed)
    {
        uint32_t w[panels][4];
#pragma unroll
        for (uint32_t p = 0; p < panels; p++)
            plm_matrices_transposed(w[p], streamed + m.at_w + p * panel_bytes);
#pragma unroll
        for (uint32_t t = 0; t < tiles; t++) {
            uint32_t x[4];
            plm_matrices(x, held + m.at_x + t * 128);
            const uint32_t hi[2] = {x[0], x[1]}, lo[2] = {x[2], x[3]};
#pragma unroll
            for (uint32_t p = 0; p < panels; p++)
                plm_mma_bf16(sum[p * tiles + t], w[p], hi);
#pragma unroll
            for (uint32_t p = 0; p < panels; p++)
                plm_mma_bf16(sum[p * tiles + t], w[p], lo);
        }
    }
};

#endif
