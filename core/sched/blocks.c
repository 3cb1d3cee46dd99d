// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "core/plan/admit.h"
#include "core/sched/sched_impl.h"

// Full blocks of the prompt that a fork takes from its parent. The last token is always
// computed by itself, since its logits are wanted.
static uint32_t shared_blocks(const struct plm_sched *s, const struct plm_seq *seq)
{
    const struct plm_seq *parent = seq->parent;
    if (parent == NULL || parent->state != PLM_SEQ_RUNNING)
        return 0;
    uint32_t n = (seq->n_prompt - 1) / PLM_KV_BLOCK_TOKENS;
    uint32_t there = parent->n_computed / PLM_KV_BLOCK_TOKENS;
    n = n < there ? n : there;
    return !s->windowed || plm_windows_has(s, parent, n) ? n : 0;
}

// Blocks of the main group that nobody else has.
static uint64_t own_blocks(const struct plm_sched *s, const struct plm_seq *seq)
{
    const uint32_t *ids = plm_sched_ids(s, 0, seq->slot);
    uint64_t n = 0;
    for (uint32_t b = 0; b < seq->n_blocks; b++)
        n += plm_kv_pool_refs(s->kv.pools[0], ids[b]) == 1;
    return n;
}

bool plm_sched_fits(const struct plm_sched *s, const struct plm_seq *seq,
                    const struct plm_seq *leaver)
{
    struct plm_kv_pool_stats pool;
    const uint32_t running = s->running - (leaver != NULL);
    if (s->windowed && !plm_windows_fit(s, running + UINT64_C(1), s->chunk_rows + UINT64_C(1)))
        return false;
    if (s->kv.windows[0] != 0)
        return true;
    plm_kv_pool_read(s->kv.pools[0], &pool);
    uint64_t need = plm_kv_blocks(seq->n_tokens), available = (uint64_t)pool.free + pool.cached;
    uint64_t spare = plm_admit_spare(running, seq->preemptions);
    const uint64_t left = leaver != NULL ? own_blocks(s, leaver) : 0;
    if (left > 0 && need + spare <= available + left)
        return true;
    if (need + spare <= available)
        return true;
    uint32_t used = shared_blocks(s, seq);
    if (used == 0 && seq->use_cache && s->prefix != NULL)
        plm_prefix_peek(s->prefix, seq->root, seq->tokens, seq->n_tokens, &used);
    return need + spare <= available + used;
}

// ---- lists of blocks ----

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
}

void plm_sched_moved(struct plm_sched *s, const struct plm_kv_move *moves, uint32_t n)
{
    for (uint32_t slot = 0; n > 0 && slot < s->running; slot++) {
        const uint32_t *ids = plm_sched_ids(s, 0, slot);
        for (uint32_t b = 0; b < s->blocks[slot].n[0]; b++) {
            uint32_t to = plm_kv_moved_to(moves, n, ids[b]);
            if (to != PLM_KV_NO_BLOCK)
                plm_sched_set_block(s, 0, slot, b, to);
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
    if (s->windowed && plm_windows_due(s, slot) < r->due)
        r->due = plm_windows_due(s, slot);
    if (computed < r->n_tokens)
        r->token = seq->tokens[computed];
}

// The first n blocks of its parent, without those that a window does not need.
static void take_shared(struct plm_sched *s, const struct plm_seq *seq, uint32_t *const *ids,
                        uint32_t n)
{
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        const uint32_t *from = plm_sched_ids(s, g, seq->parent->slot);
        const uint32_t first = plm_kv_first_block(s->kv.windows[g], n * PLM_KV_BLOCK_TOKENS);
        for (uint32_t b = 0; b < n; b++) {
            ids[g][b] = b >= first ? from[b] : PLM_KV_NO_BLOCK;
            if (b >= first)
                plm_kv_pool_ref(s->kv.pools[g], ids[g][b]);
        }
    }
}

// The node of a parent's n-th block, or LOST.
static uint32_t node_of(struct plm_sched *s, uint32_t *const *ids, uint32_t n)
{
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        if (ids[g][n - 1] != PLM_KV_NO_BLOCK)
            return plm_prefix_hold(s->prefix, g, ids[g][n - 1]);
    }
    return PLM_PREFIX_LOST;
}

static uint32_t take_computed(struct plm_sched *s, struct plm_seq *seq, uint32_t *const *ids)
{
    const bool cached = seq->use_cache && s->prefix != NULL;
    const uint32_t n = shared_blocks(s, seq);
    seq->node = PLM_PREFIX_LOST;
    if (n > 0) {
        take_shared(s, seq, ids, n);
        if (cached)
            seq->node = node_of(s, ids, n);
        return n;
    }
    return cached ? plm_prefix_take(s->prefix, seq->root, seq->tokens, seq->n_tokens, ids,
                                    s->max_blocks, &seq->node)
                  : 0;
}

static void drop_node(struct plm_sched *s, struct plm_seq *seq)
{
    if (seq->use_cache && s->prefix != NULL)
        plm_prefix_drop(s->prefix, seq->node);
    seq->node = PLM_PREFIX_LOST;
}

// Blocks of one full group up to need, of which the first n are there. False: the pool has too few;
// it has taken none.
static bool fill_up(struct plm_sched *s, uint32_t g, uint32_t *ids, uint32_t n, uint32_t need)
{
    for (uint32_t b = n; b < need; b++) {
        ids[b] = plm_kv_pool_alloc(s->kv.pools[g]);
        if (ids[b] == PLM_KV_NO_BLOCK) {
            plm_kv_pool_release(s->kv.pools[g], ids + n, b - n);
            return false;
        }
    }
    return true;
}

bool plm_sched_enter(struct plm_sched *s, struct plm_seq *seq)
{
    const uint32_t slot = s->running, need = (uint32_t)plm_kv_blocks(seq->n_tokens);
    uint32_t *ids[PLM_KV_GROUPS_MAX];
    for (uint32_t g = 0; g < s->kv.n_groups; g++)
        ids[g] = plm_sched_ids(s, g, slot);
    const uint32_t n = take_computed(s, seq, ids);
    bool good = true;
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        if (s->kv.windows[g] != 0)
            *plm_sched_first(s, g, slot) =
                plm_kv_first_block(s->kv.windows[g], n * PLM_KV_BLOCK_TOKENS);
        else if (good && !(good = fill_up(s, g, ids[g], n, need)))
            for (uint32_t before = 0; before < g; before++)
                if (s->kv.windows[before] == 0)
                    plm_kv_pool_release(s->kv.pools[before], ids[before] + n, need - n);
    }
    if (!good) {
        for (uint32_t g = 0; g < s->kv.n_groups; g++)
            plm_kv_pool_release(s->kv.pools[g], ids[g], n);
        drop_node(s, seq);
        return false;
    }
    seq->state = PLM_SEQ_RUNNING;
    seq->slot = slot;
    seq->n_blocks = need;
    seq->n_computed = n * PLM_KV_BLOCK_TOKENS;
    seq->n_put = n;
    seq->shares_cache = n > 0;
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
    for (uint32_t g = 0; g < s->kv.n_groups; g++)
        s->blocks[slot].n[g] = s->kv.windows[g] != 0 ? n : need;
    plm_sched_renew(s, slot);
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

// The last slot's sequence takes the place of one that leaves.
static void move_slot(struct plm_sched *s, uint32_t last, uint32_t slot)
{
    struct plm_seq *moved = s->slots[last].seq;
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        memcpy(plm_sched_ids(s, g, slot), plm_sched_ids(s, g, last),
               moved->n_blocks * sizeof(uint32_t));
        if (s->windowed)
            *plm_sched_first(s, g, slot) = *plm_sched_first(s, g, last);
    }
    moved->slot = slot;
    s->slots[slot] = s->slots[last];
    s->blocks[slot] = s->blocks[last]; // a version that this slot did not have
}

void plm_sched_leave(struct plm_sched *s, struct plm_seq *seq)
{
    uint32_t slot = seq->slot, last = s->running - 1;
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        if (s->kv.windows[g] == 0)
            plm_kv_pool_release(s->kv.pools[g], plm_sched_ids(s, g, slot), seq->n_blocks);
    }
    if (s->windowed)
        plm_windows_release(s, slot);
    drop_node(s, seq);
    unlist_need(s, seq);
    if (slot != last)
        move_slot(s, last, slot);
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
    __builtin_prefetch(plm_sched_ids(s, 0, seq->slot) + seq->n_blocks, 1);
    __builtin_prefetch(&s->blocks[seq->slot], 1);
    __builtin_prefetch(&s->slots[seq->slot], 1);
}

// A block of each full group. False: one of them has none; nothing was taken then.
static bool take_blocks(struct plm_sched *s, uint32_t *blocks)
{
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        blocks[g] = s->kv.windows[g] == 0 ? plm_kv_pool_alloc(s->kv.pools[g]) : PLM_KV_NO_BLOCK;
        if (s->kv.windows[g] == 0 && blocks[g] == PLM_KV_NO_BLOCK) {
            while (g-- > 0)
                plm_kv_pool_release(s->kv.pools[g], &blocks[g], 1);
            return false;
        }
    }
    return true;
}

// Room for 16 tokens more. Blocks of windows come with the row (plm_windows_extend).
static void add_blocks(struct plm_sched *s, struct plm_seq *seq, const uint32_t *blocks)
{
    widen(s, seq->n_blocks + 1);
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        if (s->kv.windows[g] == 0)
            plm_sched_set_block(s, g, seq->slot, seq->n_blocks, blocks[g]);
    }
    seq->n_blocks++;
    s->slots[seq->slot].room = seq->n_blocks * PLM_KV_BLOCK_TOKENS;
}

bool plm_sched_room_ahead(struct plm_sched *s, struct plm_seq *seq)
{
    const struct plm_running *r = &s->slots[seq->slot];
    uint32_t blocks[PLM_KV_GROUPS_MAX];
    if (r->n_computed + 2 > r->room) {
        if (!take_blocks(s, blocks))
            return false;
        add_blocks(s, seq, blocks);
    }
    return !s->windowed || plm_windows_extend(s, seq->slot, r->n_computed + 2) == r->n_computed + 2;
}

struct plm_seq *plm_sched_grow(struct plm_sched *s)
{
    uint32_t blocks[PLM_KV_GROUPS_MAX];
    while (s->n_needs_block > 0) {
        struct plm_seq *seq = s->needs_block[s->n_needs_block - 1];
        prefetch_needs(s);
        if (!take_blocks(s, blocks))
            return seq;
        unlist_need(s, seq);
        add_blocks(s, seq, blocks);
    }
    return NULL;
}

void plm_sched_prefetch_far(const struct plm_sched *s, const struct plm_seq *seq)
{
    __builtin_prefetch(seq->tokens + (size_t)seq->n_put * PLM_KV_BLOCK_TOKENS);
    plm_prefix_prefetch_far(s->prefix, seq->node);
}

void plm_sched_prefetch_near(const struct plm_sched *s, const struct plm_seq *seq)
{
    const uint32_t b = seq->n_put;
    if (b < s->slots[seq->slot].n_computed / PLM_KV_BLOCK_TOKENS)
        plm_prefix_prefetch_near(s->prefix, seq->root, seq->node,
                                 seq->tokens + (size_t)b * PLM_KV_BLOCK_TOKENS);
}

void plm_sched_put(struct plm_sched *s, struct plm_seq *seq)
{
    const uint32_t full = s->slots[seq->slot].n_computed / PLM_KV_BLOCK_TOKENS;
    uint32_t blocks[PLM_KV_GROUPS_MAX];
    for (; seq->n_put < full; seq->n_put++) {
        const uint32_t b = seq->n_put;
        for (uint32_t g = 0; g < s->kv.n_groups; g++)
            blocks[g] = plm_sched_ids(s, g, seq->slot)[b];
        seq->node = plm_prefix_put(s->prefix, seq->root, seq->node,
                                   seq->tokens + (size_t)b * PLM_KV_BLOCK_TOKENS, blocks);
        for (uint32_t g = 0; g < s->kv.n_groups; g++) {
            if (blocks[g] == plm_sched_ids(s, g, seq->slot)[b])
                continue;
            plm_sched_set_block(s, g, seq->slot, b, blocks[g]);
            seq->shares_cache = true;
        }
    }
}

void plm_sched_forget(struct plm_sched *s, const struct plm_seq *seq)
{
    if (seq->state == PLM_SEQ_RUNNING && s->prefix != NULL && seq->use_cache)
        plm_prefix_forget(s->prefix, seq->node);
}
