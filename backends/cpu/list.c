// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/list.h"

#include <string.h>

int plm_cpu_list_init(struct plm_cpu_list *list, struct plm_host *host, uint32_t cap)
{
    memset(list, 0, sizeof(*list));
    list->host = host;
    list->dispatches = plm_calloc(host, PLM_HOST_DEVICE, cap, sizeof(*list->dispatches));
    list->phases = plm_calloc(host, PLM_HOST_DEVICE, cap, sizeof(*list->phases));
    if (list->dispatches == NULL || list->phases == NULL) {
        plm_cpu_list_finish(list);
        return PLM_ERR_NOMEM_HOST;
    }
    list->cap = cap;
    list->barrier = true;
    return PLM_OK;
}

void plm_cpu_list_finish(struct plm_cpu_list *list)
{
    plm_free(list->host, list->dispatches);
    plm_free(list->host, list->phases);
    memset(list, 0, sizeof(*list));
}

int plm_cpu_list_append(struct plm_cpu_list *list, plm_cpu_kernel *fn, uint32_t units,
                        const void *args, size_t args_bytes)
{
    if (list->n_dispatches >= list->cap)
        return PLM_ERR_LIMIT;
    // Units of a phase are numbered in 32 bits, and the last number is the pool's; where they would
    // not fit, a phase more costs a little overlap and nothing else.
    struct plm_cpu_phase *phase = list->barrier ? NULL : &list->phases[list->n_phases - 1];
    if (phase == NULL || units > UINT32_MAX - 1 - phase->units) {
        phase = &list->phases[list->n_phases++];
        *phase = (struct plm_cpu_phase){.first = list->n_dispatches};
        list->barrier = false;
    }
    struct plm_cpu_dispatch *d = &list->dispatches[list->n_dispatches++];
    memcpy(d->args, args, args_bytes);
    d->fn = fn;
    d->first_unit = phase->units;
    d->units = units;
    phase->units += units;
    phase->count++;
    return PLM_OK;
}

void plm_cpu_list_barrier(struct plm_cpu_list *list)
{
    list->barrier = true;
}

void plm_cpu_list_clear(struct plm_cpu_list *list)
{
    list->n_dispatches = 0;
    list->n_phases = 0;
    list->barrier = true;
}
