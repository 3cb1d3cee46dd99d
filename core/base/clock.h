// SPDX-License-Identifier: Apache-2.0
// Time is injected: nothing in the core reads a clock except through this struct, so that a
// simulated world runs on a virtual clock.
#ifndef PLM_BASE_CLOCK_H
#define PLM_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

struct plm_clock {
    int64_t (*now_ns)(void *ctx);            // monotonic
    int64_t (*wall_ns)(void *ctx);           // since 1970, for time stamps that people read
    void (*sleep_ns)(void *ctx, int64_t ns); // may return early
    void *ctx;
};

// The clock of the operating system.
const struct plm_clock *plm_clock_system(void);

static inline int64_t plm_now(const struct plm_clock *clock)
{
    return clock->now_ns(clock->ctx);
}

// Waits are no longer than a year: that keeps every sum of times in range.
#define PLM_WAIT_MS_MAX (INT64_C(1000) * 3600 * 24 * 365)

// Where a wait from now on ends (timeout_ms >= 0), for condition variables on CLOCK_MONOTONIC.
struct timespec plm_deadline(const struct plm_clock *clock, int64_t timeout_ms);

#endif
