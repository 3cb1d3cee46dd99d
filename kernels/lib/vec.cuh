// SPDX-License-Identifier: Apache-2.0
// Four neighbouring floats of a row: what a thread loads and stores at once. And how row-wise
// kernels cut rows: into pieces of PLM_PIECE elements, four a thread.
#ifndef PLM_KERNELS_VEC_CUH
#define PLM_KERNELS_VEC_CUH

#include "kernels/lib/port.cuh"

#define PLM_ROW_THREADS 256u
#define PLM_PIECE       1024u // 4 * PLM_ROW_THREADS; kernels.def counts grids with it

struct alignas(16) plm_vec4 {
    float v[4];
};

PLM_FN uint32_t plm_pieces(uint32_t n)
{
    return (n + (PLM_PIECE - 1u)) / PLM_PIECE;
}

PLM_FN uint32_t plm_parts(uint32_t n)
{
    return (n + (PLM_ROW_THREADS - 1u)) / PLM_ROW_THREADS;
}

// Whether all addresses that were or-ed together allow loads and stores of 16 bytes.
PLM_FN bool plm_aligned(uint64_t addresses)
{
    return ((uint32_t)addresses & 15u) == 0u;
}

// Elements i .. i+3 of a row of n floats, zeros beyond its end. wide: the row is aligned and n is a
// multiple of 4.
PLM_FN plm_vec4 plm_load_vec4(const float *row, uint32_t i, uint32_t n, bool wide)
{
    plm_vec4 x = {};
    if (wide) {
        if (i < n)
            x = *(const plm_vec4 *)(row + i);
    } else {
        for (uint32_t c = 0; c < 4; c++)
            if (i + c < n)
                x.v[c] = row[i + c];
    }
    return x;
}

// The same of a weight, which may be loaded before plm_await.
PLM_FN plm_vec4 plm_load_weights4(const float *row, uint32_t i, uint32_t n, bool wide)
{
    plm_vec4 x = {};
    if (wide) {
        if (i < n) {
            const uint4 w = plm_load16(row + i);
            x = {plm_float(w.x), plm_float(w.y), plm_float(w.z), plm_float(w.w)};
        }
    } else {
        for (uint32_t c = 0; c < 4; c++)
            if (i + c < n)
                x.v[c] = plm_float(plm_load4(row + i + c));
    }
    return x;
}

PLM_FN void plm_store_vec4(float *row, uint32_t i, uint32_t n, bool wide, const plm_vec4 &x)
{
    if (wide) {
        if (i < n)
            *(plm_vec4 *)(row + i) = x;
    } else {
        for (uint32_t c = 0; c < 4; c++)
            if (i + c < n)
                row[i + c] = x.v[c];
    }
}

PLM_FN plm_vec4 plm_add4(const plm_vec4 &x, const plm_vec4 &y)
{
    return {x.v[0] + y.v[0], x.v[1] + y.v[1], x.v[2] + y.v[2], x.v[3] + y.v[3]};
}

#endif
