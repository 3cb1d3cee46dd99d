// SPDX-License-Identifier: Apache-2.0
// What autotune chose, kept for the caller and for a device that is opened again.
#include "core/engine/impl.h"

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

int plim_engine_tuning(const plim_engine *engine, char *out, size_t cap, size_t *need)
{
    if (engine == NULL)
        return PLIM_ERR_INVALID;
    const struct plm_core *core = engine->core;
    struct plm_buf buf;
    plm_buf_init(&buf, core->host, PLM_HOST_OTHER);
    if (core->tune != NULL)
        plm_tuning_write(&core->tune->found, &buf);
    return plm_buf_out(&buf, out, cap, need);
}
