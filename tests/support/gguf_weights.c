// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/panel/half.h"

#define CHUNK_BLOCKS 16381u // a prime

struct dice {
    uint64_t state;
};

// 32 random bits (Knuth's MMIX numbers; the low bits are poor).
static uint32_t draw(struct dice *d)
{
    d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(d->state >> 32);
}

static void draw_bytes(struct dice *d, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(draw(d) >> 24);
}

static uint16_t bfloat(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

// A scale of either sign, which centres the weights.
static float scale(struct dice *d, float about)
{
    const float x = about * (0.7f + 0.6f * (float)(draw(d) >> 8) / (float)(1 << 24));
    return draw(d) >> 31 ? -x : x;
}

static void put(uint8_t *out, uint16_t value)
{
    memcpy(out, &value, sizeof(value));
}

// Eight 6-bit scales, and as many minima, of one value each.
static void k_scales(uint8_t out[12], uint8_t sc, uint8_t mn)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)((sc & 63) | (sc >> 4) << 6);
        out[4 + i] = (uint8_t)((mn & 63) | (mn >> 4) << 6);
        out[8 + i] = (uint8_t)((sc & 15) | (mn & 15) << 4);
    }
}

// One block whose values have the standard deviation std. Codes are uniform: of 16 values they
// deviate by 4.6 around 7.5, of 64 by 18.5, of 256 by 74. Returns its bytes; 0: not a type of ours.
static size_t block(struct dice *d, enum plm_type type, float std, uint8_t *out, uint32_t *ret_n)
{
    *ret_n = 32;
    switch (type) {
    case PLM_TYPE_F16:
    case PLM_TYPE_BF16: {
        const float x = scale(d, std);
        *ret_n = 1;
        put(out, type == PLM_TYPE_F16 ? plm_f32_to_f16(x) : bfloat(x));
        return 2;
    }
    case PLM_TYPE_Q4_0:
        put(out, plm_f32_to_f16(scale(d, std / 4.6f)));
        draw_bytes(d, out + 2, 16);
        return 18;
    case PLM_TYPE_Q8_0:
        put(out, plm_f32_to_f16(scale(d, std / 74)));
        draw_bytes(d, out + 2, 32);
        return 34;
    case PLM_TYPE_Q4_K: {
        const float s = scale(d, std / (4.6f * 16));
        *ret_n = 256;
        put(out, plm_f32_to_f16(s));
        put(out + 2, plm_f32_to_f16(s * 7.5f * 16 / 40)); // the minimum of a block: 40 of them
        k_scales(out + 4, 16, 40);
        draw_bytes(d, out + 16, 128);
        return 144;
    }
    case PLM_TYPE_Q6_K:
        *ret_n = 256;
        draw_bytes(d, out, 192);
        memset(out + 192, 16, 16);
        put(out + 208, plm_f32_to_f16(scale(d, std / (18.5f * 16))));
        return 210;
    default: return 0;
    }
}

static bool write_ones(FILE *file, uint64_t n)
{
    const float one = 1;
    for (uint64_t i = 0; i < n; i++) {
        if (fwrite(&one, sizeof(one), 1, file) != 1)
            return false;
    }
    return true;
}

bool gguf_weights_write(FILE *file, enum plm_type type, uint32_t n_in, uint64_t n_values,
                        uint64_t seed)
{
    struct dice d = {seed};
    uint8_t one[256];
    uint32_t per_block;
    if (type == PLM_TYPE_F32)
        return write_ones(file, n_values);
    const float std = 1 / sqrtf((float)n_in);
    const size_t bytes = block(&d, type, std, one, &per_block);
    uint8_t *chunk = bytes > 0 ? malloc(CHUNK_BLOCKS * bytes) : NULL;
    bool ok = chunk != NULL;
    for (size_t i = 0; ok && i < CHUNK_BLOCKS; i++)
        block(&d, type, std, chunk + i * bytes, &per_block);
    for (uint64_t left = n_values / per_block; ok && left > 0;) {
        const size_t n = left < CHUNK_BLOCKS ? (size_t)left : CHUNK_BLOCKS;
        ok = fwrite(chunk, bytes, n, file) == n;
        left -= n;
    }
    free(chunk);
    return ok;
}
