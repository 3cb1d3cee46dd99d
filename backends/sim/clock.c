// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/sim.h"

#define START_NS 1000000000LL

void plm_sim_clock_init(struct plm_sim_clock *clock)
{
    atomic_store(&clock->now_ns, START_NS);
}

void plm_sim_clock_advance(struct plm_sim_clock *clock, int64_t ns)
{
    if (ns > 0)
        atomic_fetch_add(&clock->now_ns, ns);
}

static int64_t virtual_now(void *ctx)
{
    struct plm_sim_clock *clock = ctx;
    return atomic_load(&clock->now_ns);
}

static void virtual_sleep(void *ctx, int64_t ns)
{
    plm_sim_clock_advance(ctx, ns);
}

struct plm_clock plm_sim_clock_source(struct plm_sim_clock *clock)
{
    return (struct plm_clock){virtual_now, virtual_now, virtual_sleep, clock};
}
