// SPDX-License-Identifier: Apache-2.0
// Which variant of an op runs for which arguments: the entries variants, variant_name and choose of
// struct plm_backend. A choice holds for an op, its types and sizes, and one of three ranges of
// rows. Found at every launch of a step, so a small table without locks; one thread, as launches.
#ifndef PLM_CPU_CHOICE_H
#define PLM_CPU_CHOICE_H

#include "backends/cpu/kernels.h"

// A model has some ten different products, each in three ranges; mixed types double them. A power
// of two, of which half is used, so that a search ends soon.
#define PLM_CPU_CHOICES 256

struct plm_cpu_choices {
    const struct plm_cpu_kernels *kernels;
    uint32_t n;
    struct {
        uint64_t key; // 0: free
        plm_cpu_kernel *fn;
    } slots[PLM_CPU_CHOICES];
};

void plm_cpu_choices_init(struct plm_cpu_choices *choices, const struct plm_cpu_kernels *kernels);
uint32_t plm_cpu_choices_variants(const struct plm_cpu_choices *choices, enum plm_op op,
                                  const void *args, char name[PLM_TUNING_NAME_BYTES]);
const char *plm_cpu_choices_name(const struct plm_cpu_choices *choices, enum plm_op op,
                                 uint32_t index);
// index: below plm_cpu_choices_variants. LIMIT: no more are kept.
int plm_cpu_choices_set(struct plm_cpu_choices *choices, enum plm_op op, const void *args,
                        uint32_t index);
// What a launch with these arguments runs.
plm_cpu_kernel *plm_cpu_choices_find(const struct plm_cpu_choices *choices, enum plm_op op,
                                     const void *args);

#endif
