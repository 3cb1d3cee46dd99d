// SPDX-License-Identifier: Apache-2.0
// Slabs of the CPU device: mappings of host memory, really taken (backends/hostmem).
#ifndef PLM_CPU_MEM_H
#define PLM_CPU_MEM_H

#include <stdint.h>

#include "backends/hostmem/hostmem.h"
#include "core/backend.h"

// Unit in which slabs are taken: one step of touching.
#define PLM_CPU_GRANULARITY PLM_HOSTMEM_STEP

struct plm_cpu_pool;

// The entries alloc and free of the backend. The pool's workers touch together (NULL: the caller
// alone): a first touch zeroes, and in a virtual machine the host finds the page only then, which
// was measured at 3 s per GiB for one thread.
int plm_cpu_alloc(const struct plm_hostmem *machine, struct plm_cpu_pool *pool,
                  enum plm_slab_kind kind, uint64_t bytes, void *import_ptr, struct plm_slab *ret);
void plm_cpu_free(struct plm_slab *slab);

#endif
