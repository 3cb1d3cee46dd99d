// SPDX-License-Identifier: Apache-2.0
// Sleep gives the whole KV cache back, wake takes it again (sleep.c).
#ifndef PLM_ENGINE_SLEEP_H
#define PLM_ENGINE_SLEEP_H

#include <stdbool.h>

#include "core/base/status.h"

struct plim_engine;

enum plm_sleep_state {
    PLM_AWAKE,
    PLM_DROWSY,         // takes nothing new; sleeps once nothing is under way
    PLM_FALLING_ASLEEP, // the stepping thread gives the slabs back
    PLM_ASLEEP,
    PLM_WAKING, // it is to take them again
};
struct plm_sleep {
    enum plm_sleep_state state;
    int wake_status; // of the last wake
    struct plm_error wake_error;
};

// Enters a state and tells all who wait for one. Under engine->lock.
void plm_sleep_enter(struct plim_engine *engine, enum plm_sleep_state state);
// Falls asleep or wakes where that was asked for; nothing is in flight. True: asleep, nothing may
// run.
bool plm_sleep_step(struct plim_engine *engine);

#endif
