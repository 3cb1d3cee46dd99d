// SPDX-License-Identifier: Apache-2.0
// What happens to the device, and when.
#include "backends/sim/sim_internal.h"

static uint64_t moved(uint64_t bytes, int64_t by)
{
    return by < 0 ? plm_sim_sub(bytes, -(uint64_t)by) : plm_sim_add(bytes, (uint64_t)by);
}

// More: what there is, or all of it where the device gives what is not there.
static void grow(struct plm_backend_device *dev, int64_t by)
{
    const uint64_t bytes = by < 0 ? -(uint64_t)by : (uint64_t)by;
    const uint64_t room = plm_sim_free_bytes(dev, NULL);
    if (by < 0)
        plm_sim_driver_return(dev, bytes < dev->driver_bytes ? bytes : dev->driver_bytes);
    else
        plm_sim_driver_take(dev, bytes < room || dev->script.overcommits ? bytes : room);
}

static void begin_lie(struct plm_backend_device *dev, const struct plm_sim_event *event)
{
    // At a query the lie is told by that query already, else by the next.
    const uint64_t queries = atomic_load(&dev->world->queries);
    const uint64_t before = event->when == PLM_SIM_AT_QUERY && queries > 0 ? queries - 1 : queries;
    dev->world->state.lie = event->lie;
    dev->world->state.lie_until =
        event->value > 0 ? plm_sim_add(before, (uint64_t)event->value) : UINT64_MAX;
}

static void apply(struct plm_backend_device *dev, const struct plm_sim_event *event)
{
    struct plm_sim_state *state = &dev->world->state;
    const uint64_t value = event->value > 0 ? (uint64_t)event->value : 0;
    switch (event->what) {
    case PLM_SIM_FOREIGN: state->foreign = value; break;
    case PLM_SIM_FOREIGN_BY: state->foreign = moved(state->foreign, event->value); break;
    case PLM_SIM_HOST: state->host = value; break;
    case PLM_SIM_LIE: begin_lie(dev, event); break;
    case PLM_SIM_FAIL_ALLOCS: state->fail_allocs = value; break;
    case PLM_SIM_FAIL_SUBMITS: state->fail_submits = value; break;
    case PLM_SIM_LOST: atomic_store(&dev->lost, true); break;
    case PLM_SIM_HANG: state->hang_ns = event->value; break;
    case PLM_SIM_SLOW: state->slow = value; break;
    case PLM_SIM_OVERRUN: state->overrun = value; break;
    case PLM_SIM_TAKE: grow(dev, event->value); break;
    }
}

static void fire(struct plm_backend_device *dev, enum plm_sim_when when, uint64_t from, uint64_t to,
                 int64_t now_ns)
{
    for (size_t i = 0; i < dev->script.n_events; i++) {
        const struct plm_sim_event *event = &dev->script.events[i];
        if (event->when != when || event->at < from || event->at > to)
            continue;
        apply(dev, event);
        plm_sim_remember(dev, when == PLM_SIM_AT_TIME
                                  ? dev->world->state.start_ns + (int64_t)event->at
                                  : now_ns);
    }
}

// Time events up to now, and the frees that are due.
static void pass_time(struct plm_backend_device *dev, int64_t now_ns)
{
    struct plm_sim_state *state = &dev->world->state;
    if (dev->clock == NULL)
        return;
    const int64_t passed = now_ns - state->start_ns;
    if (passed >= state->time_seen) {
        const int64_t from = state->time_seen;
        state->time_seen = passed + 1; // before firing: an event must not fire twice
        fire(dev, PLM_SIM_AT_TIME, (uint64_t)from, (uint64_t)passed, now_ns);
    }
    plm_sim_settle(dev, now_ns);
}

void plm_sim_happen(struct plm_backend_device *dev, enum plm_sim_when when, uint64_t at)
{
    if (dev->script.n_events == 0 && dev->n_pending == 0)
        return;
    const int64_t now = plm_sim_now(dev);
    pass_time(dev, now);
    fire(dev, when, at, at, now);
}

void plm_sim_mark(struct plm_backend_device *dev, enum plm_phase phase, uint64_t step)
{
    struct plm_sim_state *state = &dev->world->state;
    plm_sim_lock(dev);
    const int64_t now = plm_sim_now(dev);
    pass_time(dev, now);
    if (step > state->step_seen) {
        const uint64_t from = state->step_seen + 1;
        state->step_seen = step;
        fire(dev, PLM_SIM_AT_STEP, from, step, now);
    } else if (step == 0 && (state->phases_seen & 1u << phase) == 0) {
        state->phases_seen |= 1u << phase;
        fire(dev, PLM_SIM_AT_PHASE, phase, phase, now);
    }
    plm_sim_unlock(dev);
}
