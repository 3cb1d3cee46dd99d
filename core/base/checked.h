// SPDX-License-Identifier: Apache-2.0
// Checked and rounding arithmetic. Anything computed from foreign numbers goes through here.
#ifndef PLM_BASE_CHECKED_H
#define PLM_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Each returns true and stores the result, or returns false and leaves *ret untouched.
static inline bool plm_add_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

static inline bool plm_mul_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

// Rounds up to a multiple of step (step > 0). The caller guarantees that the result fits.
static inline uint64_t plm_round_up(uint64_t value, uint64_t step)
{
    uint64_t rest = value % step;
    return rest == 0 ? value : value + (step - rest);
}

static inline uint64_t plm_div_ceil(uint64_t value, uint64_t step)
{
    return value / step + (value % step != 0);
}

// The same for signed bytes; what is below 0 counts as 0.
static inline int64_t plm_round_up_i64(int64_t value, int64_t step)
{
    return value <= 0 ? 0 : (int64_t)plm_round_up((uint64_t)value, (uint64_t)step);
}

static inline int64_t plm_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t plm_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t plm_clamp_i64(int64_t value, int64_t lo, int64_t hi)
{
    return value < lo ? lo : value > hi ? hi : value;
}

#endif
