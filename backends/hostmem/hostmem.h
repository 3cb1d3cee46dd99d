// SPDX-License-Identifier: Apache-2.0
// Memory of this machine, for devices whose memory is host memory: what is there, and taking it for
// sure. Linux promises memory on mmap and kills later, so what a slab takes is touched, in steps,
// each after a fresh look at every limit above the process. Takes no host memory of its own.
#ifndef PLM_HOSTMEM_HOSTMEM_H
#define PLM_HOSTMEM_HOSTMEM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/backend.h"

// Step in which memory is touched: large enough that reading the limits (some 50 us) is small
// beside zeroing the pages (some 4 ms), small beside any margin.
#define PLM_HOSTMEM_STEP (16ull << 20)

struct plm_hostmem {
    const char *root;     // put before every path that is read; NULL or "": the real machine
    uint64_t limit_bytes; // the operator's, on this process's resident size; 0: none
};

// The machine as it is now: MemTotal, MemAvailable, the resident size of this process and the
// groups above it. PLM_ERR_IO where /proc/meminfo cannot be read. Any thread.
int plm_hostmem_query(const struct plm_hostmem *machine, struct plm_mem_info *ret);
// Resident bytes of this process as the kernel counts them (0: unknown). On kernels from 6.2 the
// count may be off by some pages per processor.
uint64_t plm_hostmem_resident_bytes(const char *root);

// Whether `bytes` more can be taken: PLM_OK, OUT_OF_DEVICE (not now: the machine, the operator's
// limit or a group's has no room for them), TOO_LARGE (not even if nothing else ran).
int plm_hostmem_check(const struct plm_hostmem *machine, uint64_t bytes);

// Makes one piece of memory resident; false where the kernel has none. Writes no byte that was
// written before where the kernel can populate pages (Linux 5.14), zeros elsewhere.
bool plm_hostmem_touch(void *at, uint64_t bytes);

// One step of a commit: makes [at, at + bytes) resident, by plm_hostmem_touch on as many threads as
// it likes.
typedef bool plm_hostmem_touch_fn(void *ctx, void *at, uint64_t bytes);

// Makes fresh memory resident, step by step, each after a look at every limit: PLM_OK, or
// OUT_OF_DEVICE, and then the caller gives the memory back. fn NULL: the caller touches alone.
int plm_hostmem_commit(const struct plm_hostmem *machine, void *at, uint64_t bytes,
                       plm_hostmem_touch_fn *fn, void *ctx);

#endif
