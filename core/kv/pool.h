// SPDX-License-Identifier: Apache-2.0
// The blocks of one KV group, in slabs (core/mem/slabs.h). A block is free, used (it has
// references) or cached (no reference, but the prefix index knows it; taken on demand, least
// recently used first). Every call but format and resize is O(1) and takes no memory. One thread.
//
// Blocks are named by ids: slab = id / slab_blocks. Ids stay valid while their slab lives, and the
// device address of an id never changes; an evacuation gives a block another id.
#ifndef PLM_KV_POOL_H
#define PLM_KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/status.h"
#include "core/device.h"
#include "core/mem/ledger.h"
#include "core/mem/slabs.h"

#define PLM_KV_NO_BLOCK UINT32_MAX
#define PLM_KV_NO_NODE  UINT32_MAX

struct plm_kv_pool;

// main: of the main group, whose free blocks are the ledger's largest free range of its class.
int plm_kv_pool_create(struct plm_host *host, struct plm_device *device, struct plm_ledger *ledger,
                       uint64_t block_bytes, bool main, struct plm_kv_pool **ret);
// Frees all slabs, whatever their blocks are. NULL is allowed.
void plm_kv_pool_destroy(struct plm_kv_pool *pool);

// Sets slab_blocks and the host tables for at most max_blocks; only while the pool holds no slab.
// Tells the prefix index (if there is one) through its hook. NOMEM_HOST: the pool is as before.
// INVALID: slabs are held, or more than PLM_SLABS_MAX would be needed.
int plm_kv_pool_format(struct plm_kv_pool *pool, uint32_t slab_blocks, uint32_t max_blocks);
// Takes or gives back slabs until the pool has `blocks` blocks (at most max_blocks). Growing stops
// at the first slab the device refuses: its code is returned, its bytes go to *ret_failed_bytes
// (may be NULL; else 0), and what was taken stays. Shrinking drops cached blocks, gives back the
// highest slabs while they have no used block, and stops where one has (PLM_OK; read the stats).
// With the device sealed the resizer's key is used. Between steps only.
int plm_kv_pool_resize(struct plm_kv_pool *pool, uint32_t blocks, uint64_t *ret_failed_bytes);

// A block with one reference: from the lowest slab with a free block, else the least recently used
// cached one. PLM_KV_NO_BLOCK: every block is used.
uint32_t plm_kv_pool_alloc(struct plm_kv_pool *pool);
void plm_kv_pool_ref(struct plm_kv_pool *pool, uint32_t block); // used or cached
// At 0 references the block becomes cached where the index knows it, else free.
void plm_kv_pool_unref(struct plm_kv_pool *pool, uint32_t block);
// Unreferences the blocks of one sequence from its end, so that leaves are evicted before the
// blocks they hang on. PLM_KV_NO_BLOCK entries are skipped.
void plm_kv_pool_release(struct plm_kv_pool *pool, const uint32_t *blocks, uint32_t n);
uint32_t plm_kv_pool_refs(const struct plm_kv_pool *pool, uint32_t block);
// Device address; blocks of block_bytes, aligned as slabs are.
uint64_t plm_kv_pool_addr(const struct plm_kv_pool *pool, uint32_t block);
// Blocks of the pool: used, cached and free.
uint32_t plm_kv_pool_total(const struct plm_kv_pool *pool);
// Drops at most n cached blocks, least recently used first; returns how many became free.
uint32_t plm_kv_pool_drop_cached(struct plm_kv_pool *pool, uint32_t n);

// Evacuation of the highest slab, between steps: plan, copy the contents, move.
struct plm_kv_move {
    uint32_t from, to;
};
// For at most cap blocks of the highest slab that hold something (used or cached), ascending by
// `from`: takes free blocks of lower slabs to move them to. Fewer than cap: nothing else is to be
// moved, or no lower slab has a free block. Returns how many.
uint32_t plm_kv_pool_plan_moves(struct plm_kv_pool *pool, struct plm_kv_move *ret, uint32_t cap);
// The contents were copied: each `to` takes over the references, the mark and the place among the
// cached ones of its `from`, which becomes free. The prefix index follows through its hook; tables
// of sequences are the caller's (plm_sched_moved).
void plm_kv_pool_move(struct plm_kv_pool *pool, const struct plm_kv_move *moves, uint32_t n);
// Where a block went, or PLM_KV_NO_BLOCK: it did not move. moves as planned.
uint32_t plm_kv_moved_to(const struct plm_kv_move *moves, uint32_t n, uint32_t from);
// They were not: the `to` are free again.
void plm_kv_pool_drop_moves(struct plm_kv_pool *pool, const struct plm_kv_move *moves, uint32_t n);

struct plm_kv_pool_stats {
    uint32_t total; // used + cached + free
    uint32_t used;
    uint32_t cached;
    uint32_t free;
    uint32_t peak_used;
    uint32_t slabs;
    uint32_t slab_blocks;
    uint32_t max_blocks;
    uint64_t block_bytes;
    uint64_t held_bytes; // slabs as the driver took them
};
void plm_kv_pool_read(const struct plm_kv_pool *pool, struct plm_kv_pool_stats *ret);

// The index-th slab (0 .. stats.slabs - 1): its blocks are [*ret_first, *ret_first + *ret_blocks),
// addresses ascending from that of the first. False beyond the last one.
bool plm_kv_pool_slab(const struct plm_kv_pool *pool, uint32_t index, uint32_t *ret_first,
                      uint32_t *ret_blocks);

// For the prefix index alone: `format` sizes its tables with the pool's (an error leaves both as
// they were), `evicted` is called before a cached block becomes free, `moved` (may be NULL) when
// contents got other ids. Nodes are the index's: the node that a known block belongs to.
struct plm_kv_pool_hook {
    int (*format)(void *ctx, uint32_t max_blocks); // may be NULL
    void (*evicted)(void *ctx, uint32_t node);
    // The node of the next block to be evicted, if there is one: to ask memory for it.
    void (*ahead)(void *ctx, uint32_t node);
    void (*moved)(void *ctx, const struct plm_kv_move *moves, uint32_t n);
    void *ctx;
};
void plm_kv_pool_set_hook(struct plm_kv_pool *pool, const struct plm_kv_pool_hook *hook);
// Marks a used block as known to the index by a node, or not (PLM_KV_NO_NODE): whether it is cached
// or free at 0 references.
void plm_kv_pool_mark(struct plm_kv_pool *pool, uint32_t block, uint32_t node);
uint32_t plm_kv_pool_node(const struct plm_kv_pool *pool, uint32_t block);
// Frees one cached block, which the index knows no longer: `evicted` is not called.
void plm_kv_pool_drop_block(struct plm_kv_pool *pool, uint32_t block);

#endif
