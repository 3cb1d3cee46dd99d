// SPDX-License-Identifier: Apache-2.0
// The open list: dispatches in the order of launch, cut into phases at barriers. Dispatches of one
// phase may overlap; a phase starts when the one before is complete. Capacity is fixed at
// creation, so appending takes no memory.
#ifndef PLM_CPU_LIST_H
#define PLM_CPU_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/cpu/kernels.h"

#define PLM_CPU_ARGS_BYTES 128

struct plm_cpu_dispatch {
    _Alignas(16) unsigned char args[PLM_CPU_ARGS_BYTES];
    plm_cpu_kernel *fn;
    uint32_t first_unit; // of this dispatch, in the numbering of its phase
    uint32_t units;
};

struct plm_cpu_phase {
    uint32_t first; // dispatch
    uint32_t count; // at least 1
    uint32_t units; // of all its dispatches together, at least 1
};

struct plm_cpu_list {
    struct plm_host *host;
    struct plm_cpu_dispatch *dispatches;
    struct plm_cpu_phase *phases;
    uint32_t cap;
    uint32_t n_dispatches;
    uint32_t n_phases;
    bool barrier; // the next dispatch opens a phase
};

// PLM_OK or PLM_ERR_NOMEM_HOST.
int plm_cpu_list_init(struct plm_cpu_list *list, struct plm_host *host, uint32_t cap);
void plm_cpu_list_finish(struct plm_cpu_list *list);
// 0 < units < UINT32_MAX, args_bytes <= PLM_CPU_ARGS_BYTES. PLM_ERR_LIMIT when the list is full.
int plm_cpu_list_append(struct plm_cpu_list *list, plm_cpu_kernel *fn, uint32_t units,
                        const void *args, size_t args_bytes);
void plm_cpu_list_barrier(struct plm_cpu_list *list);
void plm_cpu_list_clear(struct plm_cpu_list *list);

#endif
