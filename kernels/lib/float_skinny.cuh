// SPDX-License-Identifier: Apache-2.0
// Skinny products of floats: a thread block computes P panels for up to R rows (1 or 8). Warp s,
// which is slice s, walks its blocks of one panel after the other through a ring of its own in
// shared memory, which runs on from panel to panel. The ring's weights are under way before
// plm_await, its activations right after it.
#ifndef PLM_KERNELS_FLOAT_SKINNY_CUH
#define PLM_KERNELS_FLOAT_SKINNY_CUH

#include "kernels/lib/float.cuh"

// Floats from row to row of activations in a slot: puts the pairs of four rows in different banks.
#define PLM_SKINNY_STRIDE 40u

// A warp's place in the walk: block b of panel p.
struct plm_skinny_place {
    uint32_t p, b;
};

// Begins the copies of a block's activations to a slot; zeros beyond the row's end.
template <uint32_t R>
PLM_FN void plm_skinny_copy_x(float *slot, const plm_float_rows &x, uint32_t b)
{
    const uint32_t lane = threadIdx.x % PLM_WARP;
    const bool wide = plm_aligned((uint64_t)x.x | (uint64_t)x.n_in * 4);
    for (uint32_t c = lane; c < R * 8; c += PLM_WARP) { // eight chunks a row
        const uint32_t r = c / 8, i = b * 32 + c % 8 * 4;
        float *to = slot + r * PLM_SKINNY_STRIDE + c % 8 * 4;
        const float *row = x.x + (uint64_t)r * x.n_in;
        if (r >= x.rows)
            continue;
        if (wide && i < x.n_in)
            plm_copy16(to, row + i);
        else
            *(plm_vec4 *)to = plm_load_vec4(row, i, x.n_in, wide);
    }
}

// One block of a panel: d += its products. Columns of rows that are not there are garbage.
template <uint32_t TYPE, uint32_t R>
PLM_FN void plm_skinny_block(float (&d)[4], const uint8_t *slot, const uint8_t *panel, uint32_t b)
{
    const uint32_t lane = threadIdx.x % PLM_WARP, r = R == 1 ? 0 : lane / 4;
    const float *x = (const float *)(slot + plm_float_type<TYPE>::block_bytes) +
                     r * PLM_SKINNY_STRIDE + lane % 4 * 2;
    plm_scales scales[2];
    plm_float_scales<TYPE>(scales, panel, b);
#pragma unroll plm_float_type < TYPE> ::bf16 ? 2 : 1 // the others would take too many registers
    for (uint32_t h = 0; h < 2; h++) {
        plm_float_a w[plm_float_type<TYPE>::steps];
        plm_float_b f[plm_float_type<TYPE>::steps];
        plm_split<TYPE>(f, x + h * 16, x + h * 16 + 8);
        plm_float_weights<TYPE>(w, slot, scales, h);
        for (uint32_t i = 0; i < plm_float_type<TYPE>::steps; i++)
            plm_float_mma<TYPE>(d, w[i], f[i]);
    }
}

template <uint32_t TYPE, uint32_t P, uint32_t R> struct plm_float_skinny {
    typedef plm_float_type<TYPE> math;
    typedef plm_exchange<P, R> exchange;
    static constexpr uint32_t panels = P, rows = R, round_rows = R, rounds = 1;
    // A slot holds a block's quants, then R rows of its activations. 40 KiB for all warps, so that
    // four blocks share a processor; more than 8 slots a warp hide nothing that 8 do not.
    static constexpr uint32_t slot_bytes = math::block_bytes + R * PLM_SKINNY_STRIDE * 4;
    static constexpr uint32_t fit = (40u << 10) / PLM_SLICES / slot_bytes;
    static constexpr uint32_t depth = fit < 1 ? 1 : fit > 8 ? 8 : fit;
    static constexpr uint32_t ring_bytes = depth * slot_bytes; // of a warp
    static constexpr uint32_t bytes = PLM_SLICES * ring_bytes;
    static_assert(bytes >= exchange::bytes && bytes <= 48u << 10, "static shared memory");

    float acc[P][4];

    PLM_FN void next(plm_skinny_place &at, uint32_t blocks)
    {
        at.b += PLM_SLICES;
        if (at.b >= blocks) {
            at.p++;
            at.b = threadIdx.x / PLM_WARP;
        }
    }

    PLM_FN void copy_weights(uint8_t *slot, const plm_operands<P> &in, const plm_skinny_place &at)
    {
        const uint8_t *panel = plm_float_panel(in, at.p);
        for (uint32_t c = threadIdx.x % PLM_WARP; c < math::chunks; c += PLM_WARP)
            plm_float_copy<TYPE>(slot, panel, at.b, c, in.n_in);
    }

    // Begins the copies of all slots: weights, which may be under way before plm_await, then
    // activations.
    PLM_FN void fill(uint8_t *slots, const plm_operands<P> &in, plm_skinny_place &load, bool await)
    {
        const uint32_t blocks = (in.n_in + 31) / 32;
        const plm_skinny_place begin = load;
        for (uint32_t i = 0; i < depth && load.p < P; i++, next(load, blocks))
            copy_weights(slots + i * slot_bytes, in, load);
        plm_copy_commit();
        if (await) {
            plm_release();
            plm_await();
        }
        load = begin;
        for (uint32_t i = 0; i < depth; i++) {
            if (load.p < P) {
                plm_skinny_copy_x<R>((float *)(slots + i * slot_bytes + math::block_bytes),
                                     plm_float_rows_of(in), load.b);
                next(load, blocks);
            }
            plm_copy_commit();
        }
    }

    PLM_FN void walk(plm_float_skinny &self, uint8_t *shared, const plm_operands<P> &in, bool await)
    {
        const uint32_t slice = threadIdx.x / PLM_WARP, blocks = (in.n_in + 31) / 32;
        uint8_t *slots = shared + slice * ring_bytes, *slot = slots;
        plm_skinny_place load = {slice < blocks ? 0 : P, slice};
        fill(slots, in, load, await);
#pragma unroll
        for (uint32_t i = 0; i < P * 4; i++)
            self.acc[i / 4][i % 4] = 0.0f;
        for (uint32_t p = 0; p < P; p++) {
            float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            for (uint32_t b = slice; b < blocks; b += PLM_SLICES) {
                plm_copy_wait<depth - 1>();
                plm_warp_sync();
                plm_skinny_block<TYPE, R>(d, slot, plm_float_panel(in, p), b);
                plm_warp_sync(); // all lanes have read the slot
                if (load.p < P) {
                    copy_weights(slot, in, load);
                    plm_skinny_copy_x<R>((float *)(slot + math::block_bytes), plm_float_rows_of(in),
                                         load.b);
                    next(load, blocks);
                }
                plm_copy_commit();
                slot = slot + slot_bytes < slots + ring_bytes ? slot + slot_bytes : slots;
            }
            // The last one in at the end: registers have no index.
#pragma unroll
            for (uint32_t i = 0; i < P * 4; i++)
                self.acc[i / 4][i % 4] =
                    i / 4 + 1 < P ? self.acc[(i / 4 + 1) % P][i % 4] : d[i % 4];
        }
    }

    // Gives the warp's sums to the others.
    PLM_FN void spread(const plm_float_skinny &self, float *sums, uint32_t)
    {
        const uint32_t lane = threadIdx.x % PLM_WARP, o = lane / 4, r = lane % 4 * 2;
        float *at = sums + threadIdx.x / PLM_WARP * exchange::slice + r * exchange::row + o;
#pragma unroll
        for (uint32_t i = 0; i < P * 4; i++)
            if (r + i % 2 < R)
                at[i % 2 * exchange::row + i / 4 * PLM_PANEL_ROWS + i / 2 % 2 * 8] =
                    self.acc[i / 4][i % 4];
    }
};

#endif
