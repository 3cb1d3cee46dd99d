// SPDX-License-Identifier: Apache-2.0
// Hands out ranges of 64-bit address space that it never touches: two-level segregated fit
// (Masmano, Ripoll, Crespo, Real: "TLSF: a new dynamic memory allocator for real-time systems",
// ECRTS 2004) with its bookkeeping in host memory, so that it serves device addresses. O(1) but for
// the growth of its tables. Neighbouring free ranges merge, never across regions. One thread.
#ifndef PLM_MEM_OFFSET_ALLOC_H
#define PLM_MEM_OFFSET_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"

// Sizes are rounded up to this. A cache line; finer would only make more lists.
#define PLM_OFFSET_GRANULE 64

struct plm_offset_alloc;

struct plm_offset_alloc *plm_offset_create(struct plm_host *host); // NULL: no host memory
void plm_offset_destroy(struct plm_offset_alloc *alloc);           // NULL is allowed

// Adds the region [base, base + bytes), disjoint from all others; base is not 0 and a multiple of
// the granule, bytes a positive multiple of it. PLM_OK or NOMEM_HOST.
int plm_offset_add(struct plm_offset_alloc *alloc, uint64_t base, uint64_t bytes);
// Removes the region at base if nothing in it is live. False: something is, or no such region.
bool plm_offset_remove(struct plm_offset_alloc *alloc, uint64_t base);

// A range of at least `bytes` (0 counts as 1) at a multiple of align, a power of two. PLM_OK,
// OUT_OF_DEVICE where no free range is large enough, or NOMEM_HOST.
int plm_offset_alloc(struct plm_offset_alloc *alloc, uint64_t bytes, uint64_t align,
                     uint64_t *ret_addr);
// Frees the range that starts at addr. Returns its bytes; 0: no live range starts there.
uint64_t plm_offset_free(struct plm_offset_alloc *alloc, uint64_t addr);
// Bytes of the live range that starts at addr; 0: none does.
uint64_t plm_offset_size(const struct plm_offset_alloc *alloc, uint64_t addr);
uint64_t plm_offset_largest_free(const struct plm_offset_alloc *alloc);
uint64_t plm_offset_live(const struct plm_offset_alloc *alloc);

// Walks all lists and neighbours; false where the bookkeeping is broken. For tests; slow.
bool plm_offset_check(const struct plm_offset_alloc *alloc);

#endif
