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

// The same for many rows: tiles of rows in groups of 16, all panels by the tiles of a group before
// the next group. So what runs at once are many tiles of few panels: the activations of a group
// stay in the cache while the weight goes by.
#define PLM_MATMUL_GROUP_TILES 16u

template <class S, uint32_t ROWS = S::rows>
PLM_FN void plm_matmul_grouped(const struct plm_matmul_args &a, uint8_t *shared)
{
    const uint32_t outs = S::panels * PLM_PANEL_ROWS, groups = (a.n_out + (outs - 1)) / outs;
    const uint32_t tiles = (a.rows + (ROWS - 1)) / ROWS;
    const uint32_t first = blockIdx.x / (groups * PLM_MATMUL_GROUP_TILES) * PLM_MATMUL_GROUP_TILES;
    const uint32_t left = tiles - first;
    const uint32_t n = left < PLM_MATMUL_GROUP_TILES ? left : PLM_MATMUL_GROUP_TILES;
    const uint32_t i = blockIdx.x - first * groups;
    plm_matmul<S, ROWS>(a, shared, i / n, first + i % n);
}

#endif
