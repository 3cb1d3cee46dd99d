// SPDX-License-Identifier: Apache-2.0
// Memory of the CPU device: readings and slabs. Linux promises memory on mmap and kills later, so a
// slab is touched, in steps, each after a fresh look at every limit above the process.
#ifndef PLM_CPU_MEM_H
#define PLM_CPU_MEM_H

#include <stdint.h>

#include "core/backend.h"

// Unit in which slabs are taken, and step in which they are touched: large enough that reading the
// limits (some 50 us) is small beside zeroing the pages (some 4 ms), small beside any margin.
#define PLM_CPU_GRANULARITY (16ull << 20)

struct plm_cpu_pool;

struct plm_cpu_machine {
    const char *root;     // see plm_cpu_opts.root
    uint64_t limit_bytes; // the operator's, on this process's resident size; 0: none
};

// The machine as it is now: MemTotal, MemAvailable, the resident size of this process and the
// groups above it. PLM_ERR_IO where /proc/meminfo cannot be read. Any thread; takes no memory.
int plm_cpu_query(const struct plm_cpu_machine *machine, struct plm_mem_info *ret);
// Resident bytes of this process as the kernel counts them (0: unknown). On kernels from 6.2 the
// count may be off by some pages per processor.
uint64_t plm_cpu_resident_bytes(const char *root);

// The entries alloc and free of the backend. The pool's workers touch together (NULL: the caller
// alone): a first touch zeroes, and in a virtual machine the host finds the page only then, which
// was measured at 3 s per GiB for one thread.
int plm_cpu_alloc(const struct plm_cpu_machine *machine, struct plm_cpu_pool *pool,
                  enum plm_slab_kind kind, uint64_t bytes, void *import_ptr, struct plm_slab *ret);
void plm_cpu_free(struct plm_slab *slab);

#endif
