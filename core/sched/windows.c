// SPDX-License-Identifier: Apache-2.0
// Blocks of groups with a window. Each running sequence may have plm_kv_sequence_blocks() of such a
// group, and the chunks of a step a block more for each 16 rows; a pool holds as many, so none is
// ever short. Two kinds of blocks are held without need, and freed when one is wanted: those kept
// for forks, and those that a chunk got in a step that was then formed anew without it.
#include "core/base/checked.h"
#include "core/sched/sched_impl.h"

bool plm_windows_fit(const struct plm_sched *s, uint64_t running, uint64_t chunk_rows)
{
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        if (s->kv.windows[g] != 0 &&
            plm_kv_windows_need(running, s->sequence_blocks[g], chunk_rows) >
                plm_kv_pool_total(s->kv.pools[g]))
            return false;
    }
    return true;
}

uint32_t plm_windows_rows(const struct plm_sched *s)
{
    int64_t rows = UINT32_MAX;
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        const int64_t blocks = (int64_t)plm_kv_pool_total(s->kv.pools[g]) -
                               (int64_t)s->running * s->sequence_blocks[g];
        if (s->kv.windows[g] != 0)
            rows = plm_min_i64(rows, blocks * PLM_KV_BLOCK_TOKENS - s->chunk_rows);
    }
    return (uint32_t)plm_max_i64(0, rows);
}

// ---- what forks will want ----

// The blocks [from, to) of a parent's context that its forks start from.
struct kept {
    uint32_t from, to;
};

static struct kept kept_for_forks(const struct plm_sched *s, const struct plm_seq *seq,
                                  uint32_t group)
{
    if (seq->forks_to_enter == 0)
        return (struct kept){0, 0};
    const uint32_t to = (seq->n_prompt - 1) / PLM_KV_BLOCK_TOKENS;
    return (struct kept){plm_kv_first_block(s->kv.windows[group], to * PLM_KV_BLOCK_TOKENS), to};
}

static void give_up(struct plm_sched *s, uint32_t group, uint32_t slot, uint32_t index)
{
    uint32_t *id = plm_sched_ids(s, group, slot) + index;
    if (*id != PLM_KV_NO_BLOCK)
        plm_kv_pool_unref(s->kv.pools[group], *id);
    *id = PLM_KV_NO_BLOCK;
}

// Those behind the window.
static void give_up_kept(struct plm_sched *s, uint32_t group, const struct plm_seq *seq,
                         struct kept kept)
{
    const uint32_t first = *plm_sched_first(s, group, seq->slot);
    for (uint32_t b = kept.from; b < kept.to && b < first; b++)
        give_up(s, group, seq->slot, b);
}

void plm_windows_fork_left(struct plm_sched *s, struct plm_seq *parent)
{
    if (parent->state != PLM_SEQ_RUNNING)
        return;
    parent->forks_to_enter = 1; // until it is done
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        if (s->kv.windows[g] != 0)
            give_up_kept(s, g, parent, kept_for_forks(s, parent, g));
    }
    parent->forks_to_enter = 0;
}

bool plm_windows_has(const struct plm_sched *s, const struct plm_seq *parent, uint32_t n)
{
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        const uint32_t *ids = plm_sched_ids(s, g, parent->slot);
        uint32_t b = plm_kv_first_block(s->kv.windows[g], n * PLM_KV_BLOCK_TOKENS);
        for (; s->kv.windows[g] != 0 && b < n; b++) {
            if (ids[b] == PLM_KV_NO_BLOCK)
                return false;
        }
    }
    return true;
}

// ---- blocks ----

// What a chunk got that has no rows in this step.
static void trim(struct plm_sched *s, uint32_t group, uint32_t slot)
{
    const struct plm_running *r = &s->slots[slot];
    const uint32_t first = *plm_sched_first(s, group, slot), had = s->blocks[slot].n[group];
    uint32_t *n = &s->blocks[slot].n[group];
    if (r->n_batch > 0 || r->n_tokens - r->n_computed == 1)
        return;
    while (*n > plm_kv_blocks(r->n_computed) && *n > first)
        give_up(s, group, slot, --*n);
    if (*n < had)
        plm_sched_renew(s, slot);
}

// A block of a group; what is kept without need goes for it. PLM_KV_NO_BLOCK: there is none.
static uint32_t take_block(struct plm_sched *s, uint32_t group)
{
    uint32_t block = plm_kv_pool_alloc(s->kv.pools[group]);
    for (uint32_t slot = 0; block == PLM_KV_NO_BLOCK && slot < s->running; slot++) {
        const struct plm_seq *seq = s->slots[slot].seq;
        give_up_kept(s, group, seq, kept_for_forks(s, seq, group));
        trim(s, group, slot);
        block = plm_kv_pool_alloc(s->kv.pools[group]);
    }
    return block;
}

uint32_t plm_windows_extend(struct plm_sched *s, uint32_t slot, uint32_t until)
{
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        if (s->kv.windows[g] == 0)
            continue;
        const uint32_t *n = &s->blocks[slot].n[g];
        while ((uint64_t)*n * PLM_KV_BLOCK_TOKENS < until) {
            const uint32_t block = take_block(s, g);
            if (block == PLM_KV_NO_BLOCK) {
                until = *n * PLM_KV_BLOCK_TOKENS;
                break;
            }
            plm_sched_set_block(s, g, slot, *n, block);
        }
    }
    return until;
}

void plm_windows_advance(struct plm_sched *s, uint32_t slot)
{
    const struct plm_running *r = &s->slots[slot];
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        if (s->kv.windows[g] == 0)
            continue;
        uint32_t *at = plm_sched_first(s, g, slot);
        const struct kept kept = kept_for_forks(s, r->seq, g);
        const uint32_t first = plm_kv_first_block(s->kv.windows[g], r->n_computed);
        for (; *at < first && *at < s->blocks[slot].n[g]; ++*at) {
            if (*at < kept.from || *at >= kept.to)
                give_up(s, g, slot, *at);
        }
    }
}

uint32_t plm_windows_due(const struct plm_sched *s, uint32_t slot)
{
    uint64_t due = UINT32_MAX;
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        const uint64_t next = *plm_sched_first(s, g, slot) + UINT64_C(1);
        const uint64_t at = next * PLM_KV_BLOCK_TOKENS + s->kv.windows[g] - 1;
        if (s->kv.windows[g] != 0 && at < due)
            due = at;
    }
    return (uint32_t)due;
}

void plm_windows_release(struct plm_sched *s, uint32_t slot)
{
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        if (s->kv.windows[g] == 0)
            continue;
        const struct kept kept = kept_for_forks(s, s->slots[slot].seq, g);
        uint32_t from = *plm_sched_first(s, g, slot);
        if (kept.from < kept.to && kept.from < from)
            from = kept.from;
        plm_kv_pool_release(s->kv.pools[g], plm_sched_ids(s, g, slot) + from,
                            s->blocks[slot].n[g] - from);
    }
}
