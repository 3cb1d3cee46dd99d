// SPDX-License-Identifier: Apache-2.0
// Scripted variants of products and attention: they differ in the time they take on the device's
// clock, and in nothing else.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backends/sim/sim_internal.h"

static bool has_variants(const struct plm_backend_device *dev, enum plm_op op)
{
    return dev->caps.tunes && (op == PLM_OP_MATMUL || op == PLM_OP_ATTENTION);
}

static uint32_t count(const struct plm_backend_device *dev)
{
    const uint32_t n = dev->script.n_variants;
    return n < PLM_SIM_VARIANTS_MAX ? n : PLM_SIM_VARIANTS_MAX;
}

uint32_t plm_sim_variants(const struct plm_backend_device *dev, enum plm_op op, const void *args,
                          char name[PLM_TUNING_NAME_BYTES])
{
    if (!has_variants(dev, op))
        return 1;
    if (op == PLM_OP_MATMUL) {
        const struct plm_matmul_args *a = args;
        snprintf(name, PLM_TUNING_NAME_BYTES, "matmul %" PRIu32 "x%" PRIu32 " rows %" PRIu32,
                 a->n_in, a->n_out, a->rows);
    } else {
        const struct plm_attention_args *a = args;
        snprintf(name, PLM_TUNING_NAME_BYTES, "attention %" PRIu32 " rows %" PRIu32, a->heads,
                 a->rows);
    }
    return count(dev);
}

const char *plm_sim_variant_name(const struct plm_backend_device *dev, enum plm_op op,
                                 uint32_t index)
{
    static const char *const names[PLM_SIM_VARIANTS_MAX] = {"a", "b", "c", "d"};
    return index < (has_variants(dev, op) ? count(dev) : 1) ? names[index] : NULL;
}

static const struct plm_sim_choice *find(const struct plm_backend_device *dev, const char *name)
{
    for (uint32_t i = 0; i < dev->n_choices; i++) {
        if (strcmp(dev->choices[i].name, name) == 0)
            return &dev->choices[i];
    }
    return NULL;
}

int plm_sim_choose(struct plm_backend_device *dev, enum plm_op op, const void *args, uint32_t index)
{
    char name[PLM_TUNING_NAME_BYTES];
    if (!has_variants(dev, op))
        return PLM_OK;
    plm_sim_variants(dev, op, args, name);
    const struct plm_sim_choice *known = find(dev, name);
    if (known == NULL && dev->n_choices == PLM_SIM_CHOICES)
        return PLM_ERR_LIMIT;
    struct plm_sim_choice *choice =
        &dev->choices[known != NULL ? (uint32_t)(known - dev->choices) : dev->n_choices++];
    memcpy(choice->name, name, sizeof(name));
    choice->index = index;
    return PLM_OK;
}

int64_t plm_sim_variant_ns(const struct plm_backend_device *dev, enum plm_op op, const void *args)
{
    char name[PLM_TUNING_NAME_BYTES];
    if (!has_variants(dev, op))
        return 0;
    plm_sim_variants(dev, op, args, name);
    const struct plm_sim_choice *choice = find(dev, name);
    return dev->script.variant_ns[choice != NULL ? choice->index : 0];
}
