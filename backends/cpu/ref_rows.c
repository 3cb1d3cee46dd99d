// SPDX-License-Identifier: Apache-2.0
// Reference: get_rows, gather, add, soft_cap, copy, fill, verify.
#include "backends/cpu/fn.h"
#include "backends/cpu/rows.h"
#include "backends/panel/layout.h"

#define UNIT_WORDS 262144u // of copy, fill and verify, as ops.def says

void PLM_CPU_FN(get_rows)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_get_rows_args *a = args;
    const struct plm_panel p = plm_panel_of(a->type, a->n_in);
    for (uint32_t r = begin; r < end; r++) {
        uint32_t token = (uint32_t)PLM_PTR(const int32_t, a->tokens)[r];
        const uint8_t *panel =
            PLM_PTR(const uint8_t, a->weight) + token / PLM_PANEL_ROWS * p.panel_bytes;
        float *dst = PLM_PTR(float, a->dst) + (uint64_t)r * a->n_in;
        for (uint32_t k = 0; k < a->n_in; k += 32) {
            uint32_t n = a->n_in - k < 32 ? a->n_in - k : 32;
            plm_panel_decode(a->type, &p, panel, token % PLM_PANEL_ROWS, k, n, dst + k);
            for (uint32_t i = 0; i < n; i++)
                dst[k + i] *= a->scale;
        }
    }
}

void PLM_CPU_FN(gather)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_gather_args *a = args;
    for (uint32_t r = begin; r < end; r++) {
        uint64_t index = (uint32_t)PLM_PTR(const int32_t, a->index)[r];
        memcpy(PLM_PTR(float, a->dst) + (uint64_t)r * a->n,
               PLM_PTR(const float, a->src) + index * a->n, (uint64_t)a->n * 4);
    }
}

void PLM_CPU_FN(add)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_add_args *a = args;
    for (uint64_t i = (uint64_t)begin * a->n; i < (uint64_t)end * a->n; i++)
        PLM_PTR(float, a->dst)[i] = PLM_PTR(const float, a->a)[i] + PLM_PTR(const float, a->b)[i];
}

static inline float soft_cap_of(float x, float cap, float inverse)
{
    const float u = x * inverse, size = fabsf(u), z = u * u;
    float p = fmaf(z, PLM_TANH_P4, PLM_TANH_P3);
    p = fmaf(z, p, PLM_TANH_P2);
    p = fmaf(z, p, PLM_TANH_P1);
    p = fmaf(z, p, PLM_TANH_P0);
    const float near = fmaf(u * z, p, u);
    const float far = copysignf(1.0f - 2.0f / (1.0f + plm_expf(size + size)), u);
    return (size < PLM_TANH_NEAR ? near : far) * cap + (x - x);
}

#define CAP_UNIT 8192u // elements of a unit of soft_cap, as ops.def says

void PLM_CPU_FN(soft_cap)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_soft_cap_args *a = args;
    const float inverse = 1.0f / a->cap;
    float *x = PLM_PTR(float, a->x);
    uint64_t last = (uint64_t)end * CAP_UNIT;
    last = last < (uint64_t)a->rows * a->n ? last : (uint64_t)a->rows * a->n;
    for (uint64_t i = (uint64_t)begin * CAP_UNIT; i < last; i++)
        x[i] = soft_cap_of(x[i], a->cap, inverse);
}

void PLM_CPU_FN(copy)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_copy_args *a = args;
    uint64_t first = (uint64_t)begin * UNIT_WORDS, last = (uint64_t)end * UNIT_WORDS;
    last = last < a->n_words ? last : a->n_words;
    if (first < last)
        memcpy(PLM_PTR(uint32_t, a->dst) + first, PLM_PTR(const uint32_t, a->src) + first,
               (last - first) * 4);
}

// Differs between neighbouring words, between places 2^32 words apart and between seeds.
static inline uint32_t fill_word(uint64_t address, uint32_t seed)
{
    return ((uint32_t)(address >> 2) ^ (uint32_t)(address >> 34)) * 0x9e3779b1u ^ seed;
}

void PLM_CPU_FN(fill)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_fill_args *a = args;
    uint64_t last = (uint64_t)end * UNIT_WORDS;
    last = last < a->n_words ? last : a->n_words;
    for (uint64_t i = (uint64_t)begin * UNIT_WORDS; i < last; i++)
        PLM_PTR(uint32_t, a->dst)[i] = fill_word(a->dst + i * 4, a->seed);
}

void PLM_CPU_FN(verify)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_verify_args *a = args;
    uint64_t last = (uint64_t)end * UNIT_WORDS;
    uint32_t wrong = 0;
    last = last < a->n_words ? last : a->n_words;
    for (uint64_t i = (uint64_t)begin * UNIT_WORDS; i < last; i++)
        wrong += PLM_PTR(const uint32_t, a->src)[i] != fill_word(a->src + i * 4, a->seed);
    if (wrong != 0) // several threads may count at once
        __atomic_fetch_add(PLM_PTR(uint32_t, a->count), wrong, __ATOMIC_RELAXED);
}
