// SPDX-License-Identifier: Apache-2.0
// The frame of matmul: S is a product of product.cuh, or one like it. How sums become results: the
// bias, then what dst held.
#ifndef PLM_KERNELS_MATMUL_CUH
#define PLM_KERNELS_MATMUL_CUH

#include "kernels/lib/product.cuh"

PLM_FN void plm_matmul_store(const struct plm_matmul_args &a, uint32_t row, uint32_t out, float sum)
{
    if (row >= a.rows || out >= a.n_out)
        return;
    if (a.bias != 0)
        sum = sum + ((const float *)a.bias)[out];
    float *dst = (float *)a.dst + (uint64_t)row * a.ld_dst + out;
    *dst = a.add != 0 ? sum + *dst : sum;
}

// Panels group * S::panels .. by rows tile * ROWS .., S::rows at once, as far as there are such.
template <class S, uint32_t ROWS = S::rows>
PLM_FN void plm_matmul(const struct plm_matmul_args &a, uint8_t *shared, uint32_t group,
                       uint32_t tile)
{
    typedef typename S::exchange exchange;
    constexpr uint32_t outs = S::panels * PLM_PANEL_ROWS;
    const uint32_t last = (a.n_out - 1) / PLM_PANEL_ROWS;
    plm_operands<S::panels> in;
#pragma unroll
    for (uint32_t p = 0; p < S::panels; p++) {
        const uint32_t panel = group * S::panels + p;
        in.panel[p] =
            a.weight + (panel < last ? panel : last) * plm_panel_bytes<S::math::type>(a.n_in);
    }
    in.x = a.x;
    in.rows = a.rows;
    in.n_in = a.n_in;
    float *sums = (float *)shared;
    for (uint32_t part = 0; part < ROWS / S::rows; part++) {
        in.first = tile * ROWS + part * S::rows;
        if (in.first >= a.rows)
            break;
        if (part > 0)
            __syncthreads(); // shared is read no more
        S self;
        S::walk(self, shared, in, part == 0);
#pragma unroll
        for (uint32_t t = 0; t < S::rounds; t++) {
            const uint32_t row = in.first + t * S::round_rows;
            if (row >= a.rows)
                continue;
            __syncthreads();
            S::spread(self, sums, t);
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < S::round_rows * outs; i += PLM_PRODUCT_THREADS)
                plm_matmul_store(a, row + i / outs, group * outs + i % outs,
                                 exchange::sum(sums, i / outs, i % outs));
        }
    }
}

// For many rows: tiles of rows in groups of PLM_MATMUL_GROUP_ROWS, all outputs by the tiles of a
// group before the next group. So what runs at once are many tiles of few outputs: the activations
// of a group stay in the cache while the weight goes by.
#define PLM_MATMUL_GROUP_ROWS 1024u

// Where a block's results begin.
struct plm_matmul_spot {
    uint32_t out, row;
};

// Of block `block`, where each has so many outputs and rows.
PLM_FN plm_matmul_spot plm_matmul_grouped(const struct plm_matmul_args &a, uint32_t block,
                                          uint32_t outs, uint32_t rows)
{
    const uint32_t groups = (a.n_out + (outs - 1)) / outs, tiles = (a.rows + (rows - 1)) / rows;
    const uint32_t most = PLM_MATMUL_GROUP_ROWS / rows, first = block / (groups * most) * most;
    const uint32_t n = tiles - first < most ? tiles - first : most, i = block - first * groups;
    return {i / n * outs, (first + i % n) * rows};
}

#endif
