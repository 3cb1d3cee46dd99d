// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "core/base/checked.h"
#include "core/plan/admit.h"
#include "core/sched/sched_impl.h"

static uint32_t blocks_of(uint32_t tokens)
{
    return (uint32_t)plm_div_ceil(tokens, PLM_KV_BLOCK_TOKENS);
}

// Full blocks of the prompt that a fork takes from its parent. The last token is always
// computed by itself, since its logits are wanted.
static uint32_t shared_blocks(const struct plm_seq *seq)
{
    const struct plm_seq *parent = seq->parent;
    if (parent == NULL || parent->state != PLM_SEQ_RUNNING)
        return 0;
    uint32_t n = (seq->n_prompt - 1) / PLM_KV_BLOCK_TOKENS;
    uint32_t there = parent->n_computed / PLM_KV_BLOCK_TOKENS;
    return n < there ? n : there;
}

// Blocks that nobody else has.
static uint64_t own_blocks(const struct plm_sched *s, const struct plm_seq *seq)
{
    const uint32_t *ids = plm_sched_ids(s, seq->slot);
    uint64_t n = 0;
    for (uint32_t b = 0; b < seq->n_blocks; b++)
        n += plm_kv_pool_refs(s->pool, ids[b]) == 1;
    return n;
}

bool plm_sched_fits(const struct plm_sched *s, const struct plm_seq *seq,
                    const struct plm_seq *leaver)
{
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(s->pool, &pool);
    uint64_t need = blocks_of(seq->n_tokens), available = (uint64_t)pool.free + pool.cached;
    uint64_t spare = plm_admit_spare(s->running - (leaver != NULL), seq->preemptions);
    const uint64_t left = leaver != NULL ? own_blocks(s, leaver) : 0;
    if (left > 0 && need + spare <= available + left)
        return true;
    if (need + spare <= available)
        return true;
    uint32_t used = shared_blocks(seq);
    if (used == 0 && seq->use_cache && s->prefix != NULL)
        plm_prefix_peek(s->prefix, seq->root, seq->tokens, seq->n_tokens, &used);
    return need + spare <= available + used;
}

// ---- tables ----

static void fill_table(struct plm_sched *s, uint32_t slot)
{
    const uint32_t *ids = plm_sched_ids(s, slot);
    uint64_t *table = plm_sched_table(s, slot);
    for (uint32_t b = 0; b < s->slots[slot].seq->n_blocks; b++)
        table[b] = plm_kv_pool_addr(s->pool, ids[b]);
}

// Rows of the table get longer in powers of two, so that they are laid out anew a few times at
// most. Entries past a sequence's blocks are never read.
static void widen(struct plm_sched *s, uint32_t blocks)
{
    if (blocks <= s->stride)
        return;
    while (s->stride < blocks)
        s->stride *= 2;
    if (s->stride > s->max_blocks)
        s->stride = s->max_blocks;
    for (uint32_t slot = 0; slot < s->running; slot++)
        fill_table(s, slot);
}

static void set_block(struct plm_sched *s, const struct plm_seq *seq, uint32_t index,
                      uint32_t block)
{
    struct plm_running *r = &s->slots[seq->slot];
    const uint64_t addr = plm_kv_pool_addr(s->pool, block);
    plm_sched_ids(s, seq->slot)[index] = block;
    plm_sched_table(s, seq->slot)[index] = addr;
    if (index == r->n_computed / PLM_KV_BLOCK_TOKENS)
        r->block = addr;
}

void plm_sched_moved(struct plm_sched *s, const struct plm_kv_move *moves, uint32_t n)
{
    for (uint32_t slot = 0; n > 0 && slot < s->running; slot++) {
        const struct plm_seq *seq = s->slots[slot].seq;
        const uint32_t *ids = plm_sched_ids(s, slot);
        for (uint32_t b = 0; b < seq->n_blocks; b++) {
            uint32_t to = plm_kv_moved_to(moves, n, ids[b]);
            if (to != PLM_KV_NO_BLOCK)
                set_block(s, seq, b, to);
        }
    }
}

// ---- entering and leaving ----

void plm_sched_refresh(struct plm_sched *s, uint32_t slot)
{
    struct plm_running *r = &s->slots[slot];
    const struct plm_seq *seq = r->seq;
    const uint32_t computed = r->n_computed;
    r->due = computed < seq->n_prompt ? seq->n_prompt : UINT32_MAX;
    if (seq->use_cache && s->prefix != NULL && (seq->n_put + 1) * PLM_KV_BLOCK_TOKENS < r->due)
        r->due = (seq->n_put + 1) * PLM_KV_BLOCK_TOKENS;
    if (computed < r->n_tokens)
        r->token = seq->tokens[computed];
    if (computed < r->room) // else its block comes with the next growth
        r->block = plm_sched_table(s, slot)[computed / PLM_KV_BLOCK_TOKENS];
}

static uint32_t take_computed(struct plm_sched *s, const struct plm_seq *seq, uint32_t *ids)
{
    uint32_t n = shared_blocks(seq);
    if (n > 0) {
        const uint32_t *from = plm_sched_ids(s, seq->parent->slot);
        for (uint32_t b = 0; b < n; b++) {
            ids[b] = from[b];
            plm_kv_pool_ref(s->pool, ids[b]);
        }
        return n;
    }
    if (!seq->use_cache || s->prefix == NULL)
        return 0;
    return plm_prefix_take(s->prefix, seq->root, seq->tokens, seq->n_tokens, ids, s->max_blocks);
}

bool plm_sched_enter(struct plm_sched *s, struct plm_seq *seq)
{
    uint32_t slot = s->running;
    uint32_t *ids = plm_sched_ids(s, slot);
    uint32_t need = blocks_of(seq->n_tokens);
    uint32_t n = take_computed(s, seq, ids), computed = n;
    for (; n < need; n++) {
        ids[n] = plm_kv_pool_alloc(s->pool);
        if (ids[n] == PLM_KV_NO_BLOCK) {
            plm_kv_pool_release(s->pool, ids, n);
            return false;
        }
    }
    seq->state = PLM_SEQ_RUNNING;
    seq->slot = slot;
    seq->n_blocks = need;
    seq->n_computed = computed * PLM_KV_BLOCK_TOKENS;
    seq->n_put = computed;
    seq->shares_cache = computed > 0;
    if (!seq->began)
        seq->n_cached = seq->n_computed;
    if (s->running == 0)
        s->stride = s->max_blocks < 16 ? s->max_blocks : 16;
    s->slots[slot] = (struct plm_running){.seq = seq,
                                          .n_tokens = seq->n_tokens,
                                          .n_computed = seq->n_computed,
                                          .room = need * PLM_KV_BLOCK_TOKENS};
    seq->stays_until = seq->began ? 2 * seq->n_tokens - seq->n_computed : 0;
    s->running++;
    plm_share_count(s, seq, 1);
    widen(s, need);
    fill_table(s, slot);
    plm_sched_refresh(s, slot);
    return true;
}

static void unlist_need(struct plm_sched *s, struct plm_seq *seq)
{
    if (seq->needs_at == 0)
        return;
    struct plm_seq *last = s->needs_block[--s->n_needs_block];
    s->needs_block[seq->needs_at - 1] = last;
    last->needs_at = seq->needs_at;
    seq->needs_at = 0;
}

void plm_sched_leave(struct plm_sched *s, struct plm_seq *seq)
{
    uint32_t slot = seq->slot, last = s->running - 1;
    plm_kv_pool_release(s->pool, plm_sched_ids(s, slot), seq->n_blocks);
    unlist_need(s, seq);
    if (slot != last) {
        struct plm_seq *moved = s->slots[last].seq;
        memcpy(plm_sched_ids(s, slot), plm_sched_ids(s, last), moved->n_blocks * sizeof(uint32_t));
        memcpy(plm_sched_table(s, slot), plm_sched_table(s, last),
               moved->n_blocks * sizeof(uint64_t));
        moved->slot = slot;
        s->slots[slot] = s->slots[last];
    }
    s->running--;
    plm_share_count(s, seq, -1);
    seq->state = PLM_SEQ_IDLE;
    seq->n_blocks = 0;
    seq->n_computed = 0;
}

// ---- growing ----

void plm_sched_need_block(struct plm_sched *s, struct plm_seq *seq)
{
    s->needs_block[s->n_needs_block++] = seq;
    seq->needs_at = s->n_needs_block;
}

// The list is walked from its end: what lies some places before it is wanted soon.
static inline void prefetch_needs(const struct plm_sched *s)
{
    if (s->n_needs_block > 8)
        __builtin_prefetch(s->needs_block[s->n_needs_block - 9], 1);
    if (s->n_needs_block <= 4)
        return;
    const struct plm_seq *seq = s->needs_block[s->n_needs_block - 5];
    __builtin_prefetch(plm_sched_ids(s, seq->slot) + seq->n_blocks, 1);
    __builtin_prefetch(plm_sched_table(s, seq->slot) + seq->n_blocks, 1);
    __builtin_prefetch(&s->slots[seq->slot], 1);
}

static void add_block(struct plm_sched *s, struct plm_seq *seq, uint32_t block)
{
    widen(s, seq->n_blocks + 1);
    set_block(s, seq, seq->n_blocks++, block);
    s->slots[seq->slot].room = seq->n_blocks * PLM_KV_BLOCK_TOKENS;
}

bool plm_sched_room_ahead(struct plm_sched *s, struct plm_seq *seq)
{
    const struct plm_running *r = &s->slots[seq->slot];
    if (r->n_computed + 2 <= r->room)
        return true;
    const uint32_t block = plm_kv_pool_alloc(s->pool);
    if (block == PLM_KV_NO_BLOCK)
        return false;
    add_block(s, seq, block);
    return true;
}

void plm_sched_grow(struct plm_sched *s)
{
    while (s->n_needs_block > 0) {
        struct plm_seq *seq = s->needs_block[s->n_needs_block - 1];
        prefetch_needs(s);
        uint32_t block = plm_kv_pool_alloc(s->pool);
        if (block == PLM_KV_NO_BLOCK) {
            struct plm_seq *victim = plm_sched_youngest(s);
            if (s->running == 1) {
                s->stuck = seq;
                return;
            }
            plm_sched_preempt(s, victim); // maybe seq itself, which leaves the list by it
            continue;
        }
        unlist_need(s, seq);
        add_block(s, seq, block);
    }
}

static uint32_t parent_of(const uint32_t *ids, uint32_t index)
{
    return index == 0 ? PLM_KV_NO_BLOCK : ids[index - 1];
}

void plm_sched_prefetch_far(const struct plm_sched *s, const struct plm_seq *seq)
{
    const uint32_t b = seq->n_put, *ids = plm_sched_ids(s, seq->slot);
    __builtin_prefetch(seq->tokens + (size_t)b * PLM_KV_BLOCK_TOKENS);
    plm_prefix_prefetch_far(s->prefix, parent_of(ids, b), ids[b]);
}

void plm_sched_prefetch_near(const struct plm_sched *s, const struct plm_seq *seq)
{
    const uint32_t b = seq->n_put;
    if (b < s->slots[seq->slot].n_computed / PLM_KV_BLOCK_TOKENS)
        plm_prefix_prefetch_near(s->prefix, seq->root, parent_of(plm_sched_ids(s, seq->slot), b),
                                 seq->tokens + (size_t)b * PLM_KV_BLOCK_TOKENS);
}

void plm_sched_put(struct plm_sched *s, struct plm_seq *seq)
{
    uint32_t full = s->slots[seq->slot].n_computed / PLM_KV_BLOCK_TOKENS;
    const uint32_t *ids = plm_sched_ids(s, seq->slot);
    for (; seq->n_put < full; seq->n_put++) {
        uint32_t b = seq->n_put;
        uint32_t block = plm_prefix_put(s->prefix, seq->root, parent_of(ids, b),
                                        seq->tokens + (size_t)b * PLM_KV_BLOCK_TOKENS, ids[b]);
        if (block != ids[b]) {
            set_block(s, seq, b, block);
            seq->shares_cache = true;
        }
    }
}

void plm_sched_forget(struct plm_sched *s, const struct plm_seq *seq)
{
    if (seq->state != PLM_SEQ_RUNNING || s->prefix == NULL)
        return;
    // From the end: a block is known only while its parent is.
    for (uint32_t b = seq->n_blocks; b-- > 0;)
        plm_prefix_forget(s->prefix, plm_sched_ids(s, seq->slot)[b]);
}
