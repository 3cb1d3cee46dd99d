// SPDX-License-Identifier: Apache-2.0
// The walk of products of many rows, whose thread block is one tile of outputs by rows: all warps
// take the blocks of 32 inputs slice by slice, in the order in which the slices' sums are added,
// so that three of these wait at most. The same bits as where each warp has a slice (product.cuh).
#ifndef PLM_KERNELS_TILE_CUH
#define PLM_KERNELS_TILE_CUH

#include "kernels/lib/matmul.cuh"

// A place in the walk, which goes by units of 32 / U inputs: unit b, of the slice that is the
// order-th to be added.
struct plm_tile_place {
    uint32_t order, b;
};

// Slices in the order 0, 4, 2, 6, 1, 5, 3, 7.
PLM_FN uint32_t plm_tile_slice(uint32_t order)
{
    return (order & 1u) << 2 | (order & 2u) | order >> 2;
}

// The unit behind unit b of a slice.
template <uint32_t U> PLM_FN uint32_t plm_tile_step(uint32_t b)
{
    return b + (b % U == U - 1 ? (PLM_SLICES - 1) * U + 1 : 1);
}

// The next place of `units`; behind the last one comes the first one again.
template <uint32_t U> PLM_FN void plm_tile_next(plm_tile_place &at, uint32_t units)
{
    at.b = plm_tile_step<U>(at.b);
    while (at.b >= units) {
        at.order = (at.order + 1) % PLM_SLICES;
        at.b = plm_tile_slice(at.order) * U;
    }
}

// The sums that wait, N of a thread: of one slice, of two and of four. The last of these are needed
// once; the first S of them wait in shared memory, because registers are scarce.
template <uint32_t N, uint32_t S> struct plm_tile_waiting {
    static constexpr uint32_t bytes = S * PLM_PRODUCT_THREADS * 4;
    float one[N], two[N], four[N == S ? 1 : N - S];

    // Takes the order-th slice's sums d, which are added like carries of a binary counter: ((0 + 4)
    // + (2 + 6)) + ((1 + 5) + (3 + 7)), which d has after the eighth. plm_keep makes each case a
    // branch: where compilers select, what waits is held twice.
    PLM_FN void add(plm_tile_waiting &w, float *shared, float (&d)[N / 4][4], uint32_t order)
    {
        if (plm_keep(order & 1u) == 0) {
            order = plm_keep(order);
#pragma unroll
            for (uint32_t i = 0; i < N; i++)
                w.one[i] = d[i / 4][i % 4];
            return;
        }
#pragma unroll
        for (uint32_t i = 0; i < N; i++)
            d[i / 4][i % 4] = w.one[i] + d[i / 4][i % 4];
        if (plm_keep(order & 2u) == 0) {
            order = plm_keep(order);
#pragma unroll
            for (uint32_t i = 0; i < N; i++)
                w.two[i] = d[i / 4][i % 4];
            return;
        }
#pragma unroll
        for (uint32_t i = 0; i < N; i++)
            d[i / 4][i % 4] = w.two[i] + d[i / 4][i % 4];
        float *const four = shared + threadIdx.x;
        if (plm_keep(order & 4u) == 0) {
            order = plm_keep(order);
#pragma unroll
            for (uint32_t i = 0; i < N; i++)
                (i < S ? four[i * PLM_PRODUCT_THREADS] : w.four[i < S ? 0 : i - S]) =
                    d[i / 4][i % 4];
            return;
        }
#pragma unroll
        for (uint32_t i = 0; i < N; i++)
            d[i / 4][i % 4] = (i < S ? four[i * PLM_PRODUCT_THREADS] : w.four[i < S ? 0 : i - S]) +
                              d[i / 4][i % 4];
    }
};

// ---- a matmul by tiles ----

#define PLM_TILE_BLOCK_ROWS 128u // kernels.def counts grids with it

// A math M says of what a tile is made. Its warps are M::wide side by side along outputs, each with
// M::panels panels, and along rows, each with M::tiles tiles of 8. A block of 32 inputs has
// M::units units. Of the operands one is *held*: it goes through registers, in which it waits for a
// unit, and is decoded into one of two places; the other is *streamed* by asynchronous copies to
// one of three.
// - begin(m, a, out, first): of outputs from `out` on and rows from `first` on.
// - hold(m, b): loads this thread's part of unit b. turn(m, shared, to, b): decodes what it holds,
//   to shared + to, then holds unit b. stream(m, shared, to, b): begins the copies of unit b.
// - held_weights: whether what is held is the weights, so that what is streamed is not.
// - multiply(m, d, held, streamed): d += the product of a unit, from these places; d[p * tiles + t]
//   is of panel p and tile t.
// A thread block has M::wide * M::panels panels and PLM_TILE_BLOCK_ROWS rows, these in as many
// parts as it takes. Loads run two units ahead, and on behind the last one, for nothing, with the
// first ones.
template <class M> struct plm_tile {
    static constexpr uint32_t rows = PLM_SLICES / M::wide * M::tiles * PLM_TILE_ROWS; // at once
    static constexpr uint32_t products = M::panels * M::tiles, sums = products * 4;   // of a thread
    static constexpr uint32_t stages = 2 * M::held_bytes, ring = stages + 3 * M::streamed_bytes;
    static constexpr uint32_t last_stage = ring - M::streamed_bytes;
    // As many sums wait in shared memory as there is room for.
    static constexpr uint32_t room = ((48u << 10) - ring) / (PLM_PRODUCT_THREADS * 4);
    typedef plm_tile_waiting<sums, (room < sums ? room : sums)> waiting;
    static constexpr uint32_t bytes = ring + waiting::bytes;
    static_assert(ring <= 48u << 10, "static shared memory");

    // The loads of unit 0; those of weights before plm_await.
    PLM_FN void first_loads(M &m, uint8_t *shared, bool await)
    {
        if constexpr (M::held_weights)
            M::hold(m, 0);
        else
            M::stream(m, shared, stages, 0);
        if (await) {
            plm_release();
            plm_await();
        }
        if constexpr (M::held_weights)
            M::stream(m, shared, stages, 0);
        else
            M::hold(m, 0);
        plm_copy_commit();
    }

    PLM_FN void walk(M &m, float (&d)[products][4], uint8_t *shared, uint32_t n_in, bool await)
    {
        constexpr uint32_t U = M::units;
        const uint32_t units = (n_in + 31) / 32 * U;
        plm_tile_place next = {0, 0};
        first_loads(m, shared, await);
        plm_tile_next<U>(next, units);
        M::turn(m, shared, 0, next.b);
        M::stream(m, shared, stages + M::streamed_bytes, next.b);
        plm_copy_commit();
        waiting sums_of;
        uint32_t held = 0, at = stages;
#pragma unroll 1
        for (uint32_t order = 0; order < PLM_SLICES; order++) {
#pragma unroll
            for (uint32_t i = 0; i < sums; i++)
                d[i / 4][i % 4] = 0.0f;
#pragma unroll 1
            for (uint32_t b = plm_tile_slice(order) * U; b < units; b = plm_tile_step<U>(b)) {
                plm_copy_wait<1>();
                __syncthreads(); // the unit is there; all have read the one before it
                plm_tile_next<U>(next, units);
                M::turn(m, shared, M::held_bytes - held, next.b);
                M::stream(m, shared, at > stages ? at - M::streamed_bytes : last_stage, next.b);
                plm_copy_commit();
                M::multiply(m, d, shared + held, shared + at);
                held = M::held_bytes - held;
                at = at < last_stage ? at + M::streamed_bytes : stages;
            }
            waiting::add(sums_of, (float *)(shared + ring), d, order);
        }
        plm_copy_wait<0>();
    }

    // The block's place.
    PLM_FN plm_matmul_spot spot(const struct plm_matmul_args &a, uint32_t block)
    {
        return plm_matmul_grouped(a, block, M::wide * M::panels * PLM_PANEL_ROWS,
                                  PLM_TILE_BLOCK_ROWS);
    }

    // d to dst. plm_keep: where this thread's are is computed anew, and takes no registers in the
    // walk.
    PLM_FN void store(const struct plm_matmul_args &a, const float (&d)[products][4], uint32_t part)
    {
        const uint32_t thread = plm_keep(threadIdx.x), warp = thread / PLM_WARP;
        const plm_matmul_spot at = spot(a, plm_keep(blockIdx.x));
        const uint32_t out =
            at.out + warp % M::wide * M::panels * PLM_PANEL_ROWS + thread % PLM_WARP / 4;
        const uint32_t row =
            at.row + part * rows + warp / M::wide * M::tiles * PLM_TILE_ROWS + thread % 4 * 2;
        const float *bias = (const float *)a.bias;
        float of[M::panels * 2];
#pragma unroll
        for (uint32_t o = 0; o < M::panels * 2; o++)
            of[o] = bias != nullptr && out + o * 8 < a.n_out ? bias[out + o * 8] : 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < M::tiles * 2; i++) {
            const uint32_t r = row + i / 2 * 8 + i % 2;
            float *dst = (float *)a.dst + (uint64_t)r * a.ld_dst + out;
            if (r >= a.rows)
                continue;
#pragma unroll
            for (uint32_t o = 0; o < M::panels * 2; o++) {
                float sum = d[o / 2 * M::tiles + i / 2][o % 2 * 2 + i % 2];
                if (bias != nullptr)
                    sum = sum + of[o];
                if (out + o * 8 < a.n_out)
                    dst[o * 8] = a.add != 0 ? sum + dst[o * 8] : sum;
            }
        }
    }
};

template <class M> PLM_FN void plm_tile_matmul(const struct plm_matmul_args &a, uint8_t *shared)
{
    typedef plm_tile<M> tile;
    const plm_matmul_spot at = tile::spot(a, blockIdx.x);
    for (uint32_t part = 0; part < PLM_TILE_BLOCK_ROWS / tile::rows; part++) {
        const uint32_t first = at.row + part * tile::rows;
        if (first >= a.rows)
            break;
        if (part > 0)
            __syncthreads(); // shared is read no more
        M m;
        float d[tile::products][4];
        M::begin(m, a, at.out, first);
        tile::walk(m, d, shared, a.n_in, part == 0);
        tile::store(a, d, part);
    }
}

#endif
