// SPDX-License-Identifier: Apache-2.0
#include "core/kv/pool.h"

#include <string.h>

#include "core/base/checked.h"

#define NONE  PLM_KV_NO_BLOCK
#define WORDS (PLM_SLABS_MAX / 64)

struct block {
    uint32_t refs;
    uint32_t next; // free: in its slab's list. cached: towards the most recently used
    uint32_t prev; // cached: towards the least recently used
    uint32_t node; // of the prefix index; PLM_KV_NO_NODE: not known to it
};

struct pool_slab {
    struct plm_slab slab;
    uint32_t blocks;
    uint32_t free;
    uint32_t cached;
    uint32_t free_head;
};

struct plm_kv_pool {
    struct plm_host *host;
    struct plm_device *device;
    struct plm_ledger *ledger;
    uint64_t block_bytes;
    bool main;
    struct plm_kv_pool_hook hook;
    uint32_t slab_blocks;
    uint32_t max_blocks;
    uint32_t cap_slabs; // one more than max_blocks needs, for a short slab among full ones
    struct block *blocks;
    struct pool_slab *slabs;
    uint32_t n_slabs;
    uint64_t words_map;       // words of free_map that are not 0
    uint64_t free_map[WORDS]; // slabs with a free block
    uint32_t lru_first, lru_last;
    uint32_t total, cached, free, peak_used;
    uint64_t held_bytes;
    bool shows_free; // the ledger knows of a free block
};

int plm_kv_pool_create(struct plm_host *host, struct plm_device *device, struct plm_ledger *ledger,
                       uint64_t block_bytes, bool main, struct plm_kv_pool **ret)
{
    struct plm_kv_pool *pool = plm_calloc(host, PLM_HOST_KV, 1, sizeof(*pool));
    if (pool == NULL)
        return PLM_ERR_NOMEM_HOST;
    pool->host = host;
    pool->device = device;
    pool->ledger = ledger;
    pool->block_bytes = block_bytes;
    pool->main = main;
    pool->lru_first = pool->lru_last = NONE;
    *ret = pool;
    return PLM_OK;
}

void plm_kv_pool_set_hook(struct plm_kv_pool *pool, const struct plm_kv_pool_hook *hook)
{
    pool->hook = hook != NULL ? *hook : (struct plm_kv_pool_hook){0};
}

int plm_kv_pool_format(struct plm_kv_pool *pool, uint32_t slab_blocks, uint32_t max_blocks)
{
    if (pool->n_slabs > 0 || slab_blocks == 0 || max_blocks == 0)
        return PLM_ERR_INVALID;
    uint64_t cap_slabs = plm_div_ceil(max_blocks, slab_blocks) + 1;
    uint64_t ids = cap_slabs * slab_blocks;
    if (cap_slabs - 1 > PLM_SLABS_MAX || ids > 2 * (uint64_t)PLM_POOL_BLOCKS_MAX)
        return PLM_ERR_INVALID;
    struct block *blocks = plm_malloc(pool->host, PLM_HOST_KV, ids * sizeof(*blocks));
    struct pool_slab *slabs = plm_malloc(pool->host, PLM_HOST_KV, cap_slabs * sizeof(*slabs));
    int r = blocks == NULL || slabs == NULL ? PLM_ERR_NOMEM_HOST : PLM_OK;
    if (r == PLM_OK && pool->hook.format != NULL)
        r = pool->hook.format(pool->hook.ctx, (uint32_t)ids);
    if (r != PLM_OK) {
        plm_free(pool->host, blocks);
        plm_free(pool->host, slabs);
        return r;
    }
    plm_free(pool->host, pool->blocks);
    plm_free(pool->host, pool->slabs);
    pool->blocks = blocks;
    pool->slabs = slabs;
    pool->slab_blocks = slab_blocks;
    pool->max_blocks = max_blocks;
    pool->cap_slabs = (uint32_t)plm_min_i64((int64_t)cap_slabs, PLM_SLABS_MAX);
    pool->peak_used = 0;
    return PLM_OK;
}

// ---- free blocks and the LRU list ----

static void free_push(struct plm_kv_pool *pool, uint32_t id)
{
    uint32_t index = id / pool->slab_blocks;
    struct pool_slab *slab = &pool->slabs[index];
    pool->blocks[id].refs = 0;
    pool->blocks[id].node = PLM_KV_NO_NODE;
    pool->blocks[id].next = slab->free_head;
    slab->free_head = id;
    slab->free++;
    pool->free++;
    pool->free_map[index / 64] |= UINT64_C(1) << (index % 64);
    pool->words_map |= UINT64_C(1) << (index / 64);
}

static void map_clear(struct plm_kv_pool *pool, uint32_t index)
{
    pool->free_map[index / 64] &= ~(UINT64_C(1) << (index % 64));
    if (pool->free_map[index / 64] == 0)
        pool->words_map &= ~(UINT64_C(1) << (index / 64));
}

static uint32_t free_pop(struct plm_kv_pool *pool)
{
    uint32_t word = (uint32_t)__builtin_ctzll(pool->words_map);
    uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(pool->free_map[word]);
    struct pool_slab *slab = &pool->slabs[index];
    uint32_t id = slab->free_head;
    slab->free_head = pool->blocks[id].next;
    slab->free--;
    pool->free--;
    if (slab->free == 0)
        map_clear(pool, index);
    return id;
}

static void lru_append(struct plm_kv_pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];
    block->prev = pool->lru_last;
    block->next = NONE;
    if (pool->lru_last != NONE)
        pool->blocks[pool->lru_last].next = id;
    else
        pool->lru_first = id;
    pool->lru_last = id;
    pool->slabs[id / pool->slab_blocks].cached++;
    pool->cached++;
}

static void lru_remove(struct plm_kv_pool *pool, uint32_t id)
{
    struct block *block = &pool->blocks[id];
    if (block->prev != NONE)
        pool->blocks[block->prev].next = block->next;
    else
        pool->lru_first = block->next;
    if (block->next != NONE)
        pool->blocks[block->next].prev = block->prev;
    else
        pool->lru_last = block->prev;
    pool->slabs[id / pool->slab_blocks].cached--;
    pool->cached--;
}

// Evictions come in runs; each waits for memory at a block that nobody touched for long.
static void look_ahead(const struct plm_kv_pool *pool)
{
    if (pool->hook.ahead == NULL || pool->lru_first == NONE)
        return;
    // The first block was asked for when it was the second.
    const struct block *first = &pool->blocks[pool->lru_first];
    if (first->next != NONE)
        __builtin_prefetch(&pool->blocks[first->next], 1);
    pool->hook.ahead(pool->hook.ctx, first->node);
}

// A cached block leaves the index and the list; it is nobody's then.
static void evict(struct plm_kv_pool *pool, uint32_t id)
{
    const uint32_t node = pool->blocks[id].node;
    lru_remove(pool, id);
    pool->blocks[id].node = PLM_KV_NO_NODE;
    if (pool->hook.evicted != NULL)
        pool->hook.evicted(pool->hook.ctx, node);
    look_ahead(pool);
}

// One block is all that is ever asked for at once. Most changes leave the answer as it is.
static void show_free(struct plm_kv_pool *pool)
{
    const bool any = pool->free > 0;
    if (any == pool->shows_free || !pool->main)
        return;
    pool->shows_free = any;
    plm_ledger_largest_free(pool->ledger, PLM_MEM_KV, any ? (int64_t)pool->block_bytes : 0);
}

static void live(struct plm_kv_pool *pool, int sign)
{
    plm_ledger_live(pool->ledger, PLM_MEM_KV, sign * (int64_t)pool->block_bytes);
    show_free(pool);
}

static void note_used(struct plm_kv_pool *pool)
{
    uint32_t used = pool->total - pool->cached - pool->free;
    if (used > pool->peak_used)
        pool->peak_used = used;
}

uint32_t plm_kv_pool_alloc(struct plm_kv_pool *pool)
{
    uint32_t id;
    if (pool->free > 0) {
        id = free_pop(pool);
        live(pool, 1);
    } else if (pool->lru_first != NONE) {
        id = pool->lru_first;
        evict(pool, id);
    } else {
        return NONE;
    }
    pool->blocks[id].refs = 1;
    note_used(pool);
    return id;
}

void plm_kv_pool_ref(struct plm_kv_pool *pool, uint32_t id)
{
    if (pool->blocks[id].refs++ == 0) {
        lru_remove(pool, id);
        note_used(pool);
    }
}

void plm_kv_pool_unref(struct plm_kv_pool *pool, uint32_t id)
{
    if (--pool->blocks[id].refs > 0)
        return;
    if (pool->blocks[id].node != PLM_KV_NO_NODE) {
        lru_append(pool, id);
    } else {
        free_push(pool, id);
        live(pool, -1);
    }
}

void plm_kv_pool_release(struct plm_kv_pool *pool, const uint32_t *blocks, uint32_t n)
{
    while (n-- > 0) {
        if (blocks[n] != NONE)
            plm_kv_pool_unref(pool, blocks[n]);
    }
}

uint32_t plm_kv_pool_refs(const struct plm_kv_pool *pool, uint32_t id)
{
    return pool->blocks[id].refs;
}

uint64_t plm_kv_pool_addr(const struct plm_kv_pool *pool, uint32_t id)
{
    return pool->slabs[id / pool->slab_blocks].slab.addr +
           (id % pool->slab_blocks) * pool->block_bytes;
}

uint32_t plm_kv_pool_total(const struct plm_kv_pool *pool)
{
    return pool->total;
}

void plm_kv_pool_mark(struct plm_kv_pool *pool, uint32_t id, uint32_t node)
{
    pool->blocks[id].node = node;
}

uint32_t plm_kv_pool_node(const struct plm_kv_pool *pool, uint32_t id)
{
    return pool->blocks[id].node;
}

void plm_kv_pool_drop_block(struct plm_kv_pool *pool, uint32_t id)
{
    lru_remove(pool, id);
    free_push(pool, id);
    live(pool, -1);
}

uint32_t plm_kv_pool_drop_cached(struct plm_kv_pool *pool, uint32_t n)
{
    uint32_t dropped = 0;
    for (; dropped < n && pool->lru_first != NONE; dropped++) {
        uint32_t id = pool->lru_first;
        evict(pool, id);
        free_push(pool, id);
        live(pool, -1);
    }
    return dropped;
}

// ---- slabs ----

static int slab_take(struct plm_kv_pool *pool, uint32_t blocks, uint64_t *ret_failed_bytes)
{
    uint64_t bytes = blocks * pool->block_bytes;
    struct plm_slab slab;
    int r = plm_device_sealed(pool->device)
                ? plm_device_alloc_resize(pool->device, bytes, &slab)
                : plm_device_alloc(pool->device, PLM_SLAB_ELASTIC, bytes, &slab);
    if (r != PLM_OK) {
        if (ret_failed_bytes != NULL)
            *ret_failed_bytes = bytes;
        return r;
    }
    uint32_t index = pool->n_slabs++;
    pool->slabs[index] = (struct pool_slab){.slab = slab, .blocks = blocks, .free_head = NONE};
    pool->total += blocks;
    pool->held_bytes += slab.taken_bytes;
    plm_ledger_hold(pool->ledger, PLM_MEM_KV, (int64_t)slab.taken_bytes);
    for (uint32_t i = blocks; i-- > 0;) // the lowest address comes first
        free_push(pool, index * pool->slab_blocks + i);
    show_free(pool);
    return PLM_OK;
}

static bool slab_in_use(const struct pool_slab *slab)
{
    return slab->free + slab->cached < slab->blocks;
}

// Gives back the highest slab, which has no used block.
static void slab_drop(struct plm_kv_pool *pool)
{
    uint32_t index = pool->n_slabs - 1;
    struct pool_slab *slab = &pool->slabs[index];
    for (uint32_t i = 0; i < slab->blocks && slab->cached > 0; i++) {
        uint32_t id = index * pool->slab_blocks + i;
        if (pool->blocks[id].node == PLM_KV_NO_NODE || pool->blocks[id].refs > 0)
            continue;
        evict(pool, id);
        free_push(pool, id);
        live(pool, -1);
    }
    uint64_t taken = slab->slab.taken_bytes;
    map_clear(pool, index);
    pool->free -= slab->blocks;
    pool->total -= slab->blocks;
    pool->held_bytes -= taken;
    plm_device_free(pool->device, &slab->slab);
    plm_ledger_hold(pool->ledger, PLM_MEM_KV, -(int64_t)taken);
    pool->n_slabs--;
    show_free(pool);
}

// ---- evacuation ----

uint32_t plm_kv_pool_plan_moves(struct plm_kv_pool *pool, struct plm_kv_move *ret, uint32_t cap)
{
    uint32_t n = 0;
    if (pool->n_slabs == 0)
        return 0;
    const uint32_t top = pool->n_slabs - 1, first = top * pool->slab_blocks;
    for (uint32_t i = 0; i < pool->slabs[top].blocks && n < cap; i++) {
        const struct block *from = &pool->blocks[first + i];
        if (from->refs == 0 && from->node == PLM_KV_NO_NODE)
            continue;
        // Free blocks come from the lowest slab, so if that is this one there are none below.
        if (pool->free == pool->slabs[top].free)
            break;
        uint32_t to = free_pop(pool);
        pool->blocks[to].refs = 1;
        live(pool, 1);
        ret[n++] = (struct plm_kv_move){.from = first + i, .to = to};
    }
    return n;
}

uint32_t plm_kv_moved_to(const struct plm_kv_move *moves, uint32_t n, uint32_t from)
{
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (moves[mid].from < from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && moves[lo].from == from ? moves[lo].to : NONE;
}

void plm_kv_pool_drop_moves(struct plm_kv_pool *pool, const struct plm_kv_move *moves, uint32_t n)
{
    while (n-- > 0) {
        free_push(pool, moves[n].to);
        live(pool, -1);
    }
}

// Puts `to` where `from` stands in the list of cached blocks.
static void lru_replace(struct plm_kv_pool *pool, uint32_t from, uint32_t to)
{
    struct block *block = &pool->blocks[to];
    block->prev = pool->blocks[from].prev;
    block->next = pool->blocks[from].next;
    if (block->prev != NONE)
        pool->blocks[block->prev].next = to;
    else
        pool->lru_first = to;
    if (block->next != NONE)
        pool->blocks[block->next].prev = to;
    else
        pool->lru_last = to;
    pool->slabs[from / pool->slab_blocks].cached--;
    pool->slabs[to / pool->slab_blocks].cached++;
}

void plm_kv_pool_move(struct plm_kv_pool *pool, const struct plm_kv_move *moves, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct block *from = &pool->blocks[moves[i].from], *to = &pool->blocks[moves[i].to];
        to->refs = from->refs;
        to->node = from->node;
        if (from->refs == 0)
            lru_replace(pool, moves[i].from, moves[i].to);
        free_push(pool, moves[i].from);
        live(pool, -1);
    }
    if (n > 0 && pool->hook.moved != NULL)
        pool->hook.moved(pool->hook.ctx, moves, n);
}

// A pool may have one slab alone, without which nothing runs: it is asked for again so often.
#define REPLACE_TRIES 3

// Gives the last slab back and takes one of so many blocks in its place. Where the device refuses
// that, a slab no larger than the one that it just got back is there again.
static int replace_last(struct plm_kv_pool *pool, uint32_t blocks, uint64_t *ret_failed_bytes)
{
    const uint32_t before = pool->slabs[pool->n_slabs - 1].blocks;
    slab_drop(pool);
    const int r = slab_take(pool, blocks, ret_failed_bytes);
    int again = r;
    for (int i = 0; i < REPLACE_TRIES && again == PLM_ERR_OUT_OF_DEVICE; i++)
        again = slab_take(pool, before < blocks ? before : blocks, NULL);
    if (blocks > before)
        return r;
    if (again == PLM_OK && ret_failed_bytes != NULL)
        *ret_failed_bytes = 0;
    return again;
}

static int shrink(struct plm_kv_pool *pool, uint32_t blocks, uint64_t *ret_failed_bytes)
{
    while (pool->total > blocks) {
        struct pool_slab *last = &pool->slabs[pool->n_slabs - 1];
        if (slab_in_use(last))
            return PLM_OK;
        if (pool->total - last->blocks < blocks)
            return replace_last(pool, blocks - (pool->total - last->blocks), ret_failed_bytes);
        slab_drop(pool);
    }
    return PLM_OK;
}

static int grow(struct plm_kv_pool *pool, uint32_t blocks, uint64_t *ret_failed_bytes)
{
    bool short_one = false; // a short slab that is in use stays; only full ones come after it
    if (pool->n_slabs > 0 && pool->slabs[pool->n_slabs - 1].blocks < pool->slab_blocks &&
        !slab_in_use(&pool->slabs[pool->n_slabs - 1])) {
        const uint32_t want = blocks - pool->total + pool->slabs[pool->n_slabs - 1].blocks;
        const int r = replace_last(pool, want < pool->slab_blocks ? want : pool->slab_blocks,
                                   ret_failed_bytes);
        if (r != PLM_OK)
            return r;
    }
    for (uint32_t i = 0; i < pool->n_slabs; i++)
        short_one = short_one || pool->slabs[i].blocks < pool->slab_blocks;
    while (pool->total < blocks && pool->n_slabs < pool->cap_slabs) {
        uint32_t want = blocks - pool->total;
        if (want < pool->slab_blocks && short_one)
            break;
        int r =
            slab_take(pool, want < pool->slab_blocks ? want : pool->slab_blocks, ret_failed_bytes);
        if (r != PLM_OK)
            return r;
    }
    return PLM_OK;
}

int plm_kv_pool_resize(struct plm_kv_pool *pool, uint32_t blocks, uint64_t *ret_failed_bytes)
{
    if (ret_failed_bytes != NULL)
        *ret_failed_bytes = 0;
    if (blocks > pool->max_blocks)
        return PLM_ERR_INVALID;
    if (blocks < pool->total)
        return shrink(pool, blocks, ret_failed_bytes);
    if (blocks > pool->total)
        return grow(pool, blocks, ret_failed_bytes);
    return PLM_OK;
}

bool plm_kv_pool_slab(const struct plm_kv_pool *pool, uint32_t index, uint32_t *ret_first,
                      uint32_t *ret_blocks)
{
    if (index >= pool->n_slabs)
        return false;
    *ret_first = index * pool->slab_blocks;
    *ret_blocks = pool->slabs[index].blocks;
    return true;
}

void plm_kv_pool_read(const struct plm_kv_pool *pool, struct plm_kv_pool_stats *ret)
{
    *ret = (struct plm_kv_pool_stats){.total = pool->total,
                                      .used = pool->total - pool->cached - pool->free,
                                      .cached = pool->cached,
                                      .free = pool->free,
                                      .peak_used = pool->peak_used,
                                      .slabs = pool->n_slabs,
                                      .slab_blocks = pool->slab_blocks,
                                      .max_blocks = pool->max_blocks,
                                      .block_bytes = pool->block_bytes,
                                      .held_bytes = pool->held_bytes};
}

void plm_kv_pool_destroy(struct plm_kv_pool *pool)
{
    if (pool == NULL)
        return;
    plm_ledger_live(pool->ledger, PLM_MEM_KV,
                    -(int64_t)((pool->total - pool->free) * pool->block_bytes));
    if (pool->main)
        plm_ledger_largest_free(pool->ledger, PLM_MEM_KV, 0);
    while (pool->n_slabs > 0) {
        struct pool_slab *slab = &pool->slabs[--pool->n_slabs];
        int64_t taken = (int64_t)slab->slab.taken_bytes;
        plm_device_free(pool->device, &slab->slab);
        plm_ledger_hold(pool->ledger, PLM_MEM_KV, -taken);
    }
    plm_free(pool->host, pool->blocks);
    plm_free(pool->host, pool->slabs);
    plm_free(pool->host, pool);
}
