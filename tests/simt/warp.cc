// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together, by the last one to arrive.
#include "kernels/lib/port.cuh"

// ---- exchange ----

void simt_shuffle(struct simt_warp &w)
{
    for (uint32_t l = 0; l < PLM_WARP; l++)
        w.out[0][l] = w.in[0][w.in[1][l]];
}

static void check_rows(const struct simt_warp &w)
{
    for (uint32_t l = 0; l < PLM_WARP; l++)
        if ((uintptr_t)w.row[l] % 16 != 0)
            simt_fail("plm_matrices: the row of lane %u is not aligned to 16", l);
}

void simt_matrices(struct simt_warp &w)
{
    check_rows(w);
    for (uint32_t l = 0; l < PLM_WARP; l++)
        for (uint32_t i = 0; i < 4; i++)
            memcpy(&w.out[i][l], (const uint32_t *)w.row[8 * i + l / 4] + l % 4, 4);
}

void simt_transpose(struct simt_warp &w)
{
    check_rows(w);
    for (uint32_t l = 0; l < PLM_WARP; l++)
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t g = l / 4, row = 8 * i + l % 4 * 2;
            const uint16_t low = ((const uint16_t *)w.row[row])[g];
            const uint16_t high = ((const uint16_t *)w.row[row + 1])[g];
            w.out[i][l] = low | (uint32_t)high << 16;
        }
}

// ---- products ----
// A is 16 rows, B 8 columns, both along k. `words` are 32 bits of a lane's fragment: of A as four
// (quarter i: rows g + 8 (i % 2), second half of k where i >= 2), of B as two.

static uint32_t a_row(uint32_t l, uint32_t i)
{
    return l / 4 + i % 2 * 8;
}

static float accumulator(const struct simt_warp &w, uint32_t i, uint32_t l)
{
    return plm_float(w.out[i][l]);
}

void simt_mma_s8(struct simt_warp &w)
{
    int16_t a[16][32], b[8][32];
    for (uint32_t l = 0; l < PLM_WARP; l++)
        for (uint32_t i = 0; i < 6; i++) {
            const uint32_t k = (i < 4 ? i / 2 : i - 4) * 16 + l % 4 * 4;
            int16_t *to = i < 4 ? &a[a_row(l, i)][k] : &b[l / 4][k];
            for (uint32_t j = 0; j < 4; j++)
                to[j] = (int8_t)(w.in[i][l] >> 8 * j);
        }
    for (uint32_t l = 0; l < PLM_WARP; l++)
        for (uint32_t i = 0; i < 4; i++) {
            const int16_t *x = a[l / 4 + i / 2 * 8], *y = b[l % 4 * 2 + i % 2];
            int sum = 0;
            for (int k = 0; k < 32; k++)
                sum += x[k] * y[k];
            w.out[i][l] += (uint32_t)sum; // wraps, as the hardware's does
        }
}

// Exact in double: a product has 22 bits at most.
template <uint32_t K>
static void multiply(struct simt_warp &w, const double (&a)[16][K], const double (&b)[K][8])
{
    double d[16][8] = {};
    for (uint32_t m = 0; m < 16; m++)
        for (uint32_t k = 0; k < K; k++)
            for (uint32_t n = 0; n < 8; n++)
                d[m][n] += a[m][k] * b[k][n];
    for (uint32_t l = 0; l < PLM_WARP; l++)
        for (uint32_t i = 0; i < 4; i++) {
            const double sum = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
            w.out[i][l] = plm_bits((float)(sum + (double)accumulator(w, i, l)));
        }
}

// Pairs of 16-bit elements.
static void multiply16(struct simt_warp &w, float (*decode)(uint16_t))
{
    double a[16][16], b[16][8];
    for (uint32_t l = 0; l < PLM_WARP; l++)
        for (uint32_t i = 0; i < 6; i++)
            for (uint32_t j = 0; j < 2; j++) {
                const uint32_t k = (i < 4 ? i / 2 : i - 4) * 8 + l % 4 * 2 + j;
                const double v = (double)decode((uint16_t)(w.in[i][l] >> 16 * j));
                (i < 4 ? a[a_row(l, i)][k] : b[k][l / 4]) = v;
            }
    multiply(w, a, b);
}

void simt_mma_bf16(struct simt_warp &w)
{
    multiply16(w, plm_bf16);
}

void simt_mma_f16(struct simt_warp &w)
{
    multiply16(w, plm_half);
}

// The low bits are no part of an operand: some hardware drops them, some takes them along.
static double tf32(uint32_t bits, uint32_t lane)
{
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    if (finite && (bits & 0x1fffu) != 0)
        simt_fail("plm_mma_tf32: an operand of lane %u, %#x, is not from plm_tf32", lane, bits);
    return (double)plm_float(bits);
}

void simt_mma_tf32(struct simt_warp &w)
{
    double a[16][8], b[8][8];
    for (uint32_t l = 0; l < PLM_WARP; l++)
        for (uint32_t i = 0; i < 6; i++) {
            const uint32_t k = (i < 4 ? i / 2 : i - 4) * 4 + l % 4;
            (i < 4 ? a[a_row(l, i)][k] : b[k][l / 4]) = tf32(w.in[i][l], l);
        }
    multiply(w, a, b);
}
