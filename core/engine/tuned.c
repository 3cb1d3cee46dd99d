// SPDX-License-Identifier: Apache-2.0
// What autotune chose, again for a device that was opened anew.
#include "core/engine/core.h"

void plm_core_tune_again(struct plm_core *core)
{
    for (uint32_t i = 0; core->tune != NULL && i < core->tune->found.n; i++)
        plm_device_choose(core->device, core->tune->made[i].op, &core->tune->made[i].args,
                          core->tune->made[i].index);
}

void plm_core_tune_destroy(struct plm_core *core)
{
    plm_free(core->host, core->tune);
    core->tune = NULL;
}
