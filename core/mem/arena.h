// SPDX-License-Identifier: Apache-2.0
// Device memory by class. An arena owns slabs of one class and hands out ranges of them; the ledger
// knows every byte of every arena. One thread.
#ifndef PLM_MEM_ARENA_H
#define PLM_MEM_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/status.h"
#include "core/device.h"
#include "core/mem/ledger.h"

struct plm_arena;

// slab_bytes: size of a new slab where a range does not fit into those there are; a larger range
// gets a slab of its own size. 0: every slab is exactly as large as the range that asked for it.
int plm_arena_create(struct plm_host *host, struct plm_device *device, struct plm_ledger *ledger,
                     enum plm_mem_class mem_class, uint64_t slab_bytes, struct plm_arena **ret);
// Frees all slabs. NULL is allowed.
void plm_arena_destroy(struct plm_arena *arena);

// Takes a slab of this many bytes ahead of use, so that later ranges need no driver call.
int plm_arena_reserve(struct plm_arena *arena, uint64_t bytes);
// A range, aligned to a power of two. PLM_OK, the codes of plm_device_alloc, or NOMEM_HOST.
int plm_arena_alloc(struct plm_arena *arena, uint64_t bytes, uint64_t align, uint64_t *ret_addr);
void plm_arena_free(struct plm_arena *arena, uint64_t addr);
// Host view of a device address inside the arena, or NULL where slabs are not host-visible.
void *plm_arena_host(const struct plm_arena *arena, uint64_t addr);
// The index-th slab (0 .. stats.slabs - 1). False beyond the last one.
bool plm_arena_slab(const struct plm_arena *arena, uint32_t index, uint64_t *ret_addr,
                    uint64_t *ret_bytes);

struct plm_arena_stats {
    uint64_t slabs;
    uint64_t held_bytes; // slabs as the driver took them
    uint64_t live_bytes; // handed out
    uint64_t peak_live_bytes;
    uint64_t peak_extent_bytes; // furthest end of a live range, slabs laid end to end
    uint64_t largest_free_bytes;
};
void plm_arena_read(const struct plm_arena *arena, struct plm_arena_stats *ret);

#endif
