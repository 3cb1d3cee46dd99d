// SPDX-License-Identifier: Apache-2.0
// What a neighbour's growth and its relief mean for the KV cache.
#include "core/engine/impl.h"

void plm_pressure_step(struct plim_engine *engine, int64_t now_ns)
{
    struct plm_stress_reading reading;
    plm_monitor_poll(engine, now_ns);
    plm_monitor_take(engine, &reading);
}
