// SPDX-License-Identifier: Apache-2.0
// Reference: sample. Nothing but sums over the row of what has a key up to a limit, and limits by
// bisection: slow, and plainly what kernels/abi.h says.
#include <math.h>

#include "backends/cpu/refs.h"
#include "backends/cpu/rows.h"
#include "kernels/sampling.h"

struct row {
    const float *x;
    uint32_t n;
    float top, scale;
};

// By distance and id.
static uint64_t key_of(const struct row *row, uint32_t i)
{
    const float distance = plm_sample_distance(row->top, row->x[i], row->scale);
    return (uint64_t)plm_sample_bits(distance) << 32 | i;
}

static uint64_t weight_of(uint64_t key)
{
    return plm_sample_weight(plm_sample_float((uint32_t)(key >> 32)));
}

// Tokens with a key up to the limit: their mass, or how many there are.
static uint64_t up_to(const struct row *row, uint64_t limit, bool mass)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < row->n; i++) {
        const uint64_t key = key_of(row, i);
        if (key <= limit)
            sum += mass ? weight_of(key) : 1;
    }
    return sum;
}

// The lowest limit up to `high` that leaves so much; high where there is no more.
static uint64_t lowest(const struct row *row, uint64_t high, bool mass, uint64_t wanted)
{
    uint64_t low = 0;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (up_to(row, middle, mass) >= wanted)
            high = middle;
        else
            low = middle + 1;
    }
    return high;
}

static uint32_t draw(const struct row *row, const struct plm_sample_row *p)
{
    uint64_t limit = (uint64_t)plm_sample_bits(p->cut + 0.0f) << 32 | UINT32_MAX, sum = 0;
    if (p->top_k > 0)
        limit = lowest(row, limit, false, p->top_k);
    uint64_t mass = up_to(row, limit, true);
    if (p->top_p < 1.0f) {
        limit = lowest(row, limit, true, plm_sample_bound(p->top_p, mass));
        mass = up_to(row, limit, true);
    }
    for (uint32_t i = 0; i < row->n; i++) {
        const uint64_t key = key_of(row, i);
        sum += key <= limit ? weight_of(key) : 0;
        if (sum > plm_sample_mul_high(p->u, mass))
            return i;
    }
    return 0;
}

void plm_ref_sample(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    const struct plm_sample_args *a = args;
    struct plm_argmax_record *records = PLM_PTR(struct plm_argmax_record, a->dst);
    const struct plm_argmax_args best = {.x = a->x, .dst = a->dst, .rows = a->rows, .n = a->n};
    plm_ref_argmax(&best, begin, end, scratch);
    for (uint32_t r = begin; r < end; r++) {
        const struct plm_sample_row *p = PLM_PTR(const struct plm_sample_row, a->params) + r;
        const struct row row = {.x = PLM_PTR(const float, a->x) + (uint64_t)r * a->n,
                                .n = a->n,
                                .top = records[r].top,
                                .scale = p->scale};
        if (p->scale != 0.0f && records[r].n_wrong == 0)
            records[r].index = (int32_t)draw(&row, p);
    }
}
