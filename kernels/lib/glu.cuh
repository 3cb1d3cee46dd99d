// SPDX-License-Identifier: Apache-2.0
// The frame of glu: S is a product of four panels: two of gate, two of up. A block has 32 outputs,
// which is one record of 8-bit activations a row.
#ifndef PLM_KERNELS_GLU_CUH
#define PLM_KERNELS_GLU_CUH

#include "kernels/lib/act.cuh"
#include "kernels/lib/product.cuh"

// Output `out` of a row, and its part in the quantised row: the lanes of a warp have 32
// neighbouring outputs from a multiple of 32 on.
PLM_FN void plm_glu_store(const struct plm_glu_args &a, uint32_t row, uint32_t out, float gate,
                          float up)
{
    const bool live = row < a.rows && out < a.n_out;
    if (live && a.bias_gate != 0)
        gate = gate + ((const float *)a.bias_gate)[out];
    if (live && a.bias_up != 0)
        up = up + ((const float *)a.bias_up)[out];
    const float y = plm_gate_mul(gate, up, a.gate_fn);
    if (live && a.dst_f32 != 0)
        ((float *)a.dst_f32)[(uint64_t)row * a.n_out + out] = y;
    if (a.dst_q8 == 0)
        return;
    const uint32_t lane = out % PLM_WARP;
    plm_vec4 x;
#pragma unroll
    for (uint32_t c = 0; c < 4; c++)
        x.v[c] = plm_shuffle(y, (int)(lane % 8 * 4 + c));
    plm_q8_store(live && lane < 8, plm_q8_record(a.dst_q8, row, a.n_out, out), x);
}

// Block x has outputs 32 * x .., block y rows ROWS * y .., S::rows at once.
template <class S, uint32_t ROWS = S::rows>
PLM_FN void plm_glu(const struct plm_glu_args &a, uint8_t *shared)
{
    static_assert(S::panels == 4, "two panels of each");
    typedef typename S::exchange exchange;
    const uint32_t last = (a.n_out - 1) / PLM_PANEL_ROWS;
    plm_operands<4> in;
#pragma unroll
    for (uint32_t p = 0; p < 4; p++) {
        const uint32_t panel = blockIdx.x * 2 + p % 2;
        in.panel[p] = (p < 2 ? a.weight_gate : a.weight_up) +
                      (panel < last ? panel : last) * plm_panel_bytes<S::math::type>(a.n_in);
    }
    in.x = a.x;
    in.rows = a.rows;
    in.n_in = a.n_in;
    float *sums = (float *)shared;
    const uint32_t r = threadIdx.x / PLM_WARP, o = threadIdx.x % PLM_WARP;
    for (uint32_t part = 0; part < ROWS / S::rows; part++) {
        in.first = blockIdx.y * ROWS + part * S::rows;
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
            if (r < S::round_rows)
                plm_glu_store(a, row + r, blockIdx.x * 32 + o, exchange::sum(sums, r, o),
                              exchange::sum(sums, r, 32 + o));
        }
    }
}

#endif
