// SPDX-License-Identifier: Apache-2.0
#include "core/base/clock.h"

#include "core/base/checked.h"

#define NS_PER_S  1000000000LL
#define NS_PER_MS 1000000LL

static int64_t read_clock(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static int64_t system_now(void *ctx)
{
    (void)ctx;
    return read_clock(CLOCK_MONOTONIC);
}

static int64_t system_wall(void *ctx)
{
    (void)ctx;
    return read_clock(CLOCK_REALTIME);
}

static void system_sleep(void *ctx, int64_t ns)
{
    (void)ctx;
    struct timespec ts = {ns / NS_PER_S, ns % NS_PER_S};
    if (ns > 0)
        nanosleep(&ts, NULL);
}

const struct plm_clock *plm_clock_system(void)
{
    static const struct plm_clock clock = {system_now, system_wall, system_sleep, 0};
    return &clock;
}

struct timespec plm_deadline(const struct plm_clock *clock, int64_t timeout_ms)
{
    int64_t at = plm_now(clock) + plm_min_i64(timeout_ms, PLM_WAIT_MS_MAX) * NS_PER_MS;
    return (struct timespec){at / NS_PER_S, at % NS_PER_S};
}
