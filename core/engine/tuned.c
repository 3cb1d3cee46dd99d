// SPDX-License-Identifier: Apache-2.0

#include "core/device.h"
#include "core/engine/tune.h"

void plm_tune_again(const struct plm_tune *tune, struct plm_device *device)
{
    for (uint32_t i = 0; tune != NULL && i < tune->found.n; i++)
        plm_device_choose(device, tune->made[i].op, &tune->made[i].args, tune->made[i].index);
}
