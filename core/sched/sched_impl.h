// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the scheduler.
#ifndef PLM_SCHED_IMPL_H
#define PLM_SCHED_IMPL_H

#include "core/sched/sched.h"

// Tenants are told apart by their number modulo this: those that meet in one place share its turn.
// More than a server has keys, and few enough to look at all of them; a bit of a word for each.
#define PLM_TENANTS 64
// Lists of requests by running sequences: 0, 1, 2 and 3, 4 to 7, ..., 64 and more. Beyond it who
// has more is no longer told apart; a request has at most 128.
#define PLM_SHARE_RANKS 8

struct plm_share_list {
    struct plm_share *head, *tail;
};

struct plm_tenant {
    uint32_t running;
    uint32_t waiting; // requests in the lists
    struct plm_share_list ranks[PLM_SHARE_RANKS];
};

// What every step needs of a running sequence, by slot: a walk over all of them reads these in a
// row instead of a line or two of each sequence.
struct plm_running {
    struct plm_seq *seq;
    int32_t token;       // of its next row, where only one is to go
    uint32_t n_tokens;   // as in seq
    uint32_t n_computed; // seq's follows at push, and after a chunk
    uint32_t n_batch;    // rows in the step being run
    uint32_t n_ahead;    // and in the one that is formed ahead of its end: 0 or 1
    uint32_t due;        // computed tokens at which commit does more than count
    uint32_t room;       // tokens that its blocks hold
};

struct plm_sched {
    struct plm_host *host;
    struct plm_sched_opts opts;
    struct plm_kv_set kv;
    bool windowed;                               // some group has a window
    uint32_t sequence_blocks[PLM_KV_GROUPS_MAX]; // of a group with a window, for each that runs
    struct plm_prefix *prefix;
    struct plm_seq_list queue; // never ran, by arrival
    uint32_t paused;
    uint32_t forks; // whose parent began
    uint64_t preemptions, yields;
    struct plm_tenant tenants[PLM_TENANTS];
    uint64_t tenants_waiting; // a bit for each that has requests in its lists
    // Whether somebody is to give way is asked anew when anything changed, and now and then.
    uint64_t changes, asked_at;
    uint32_t forms; // since then
    struct plm_seq *stuck;
    bool restricted;
    enum plm_sched_entry entry;

    // Slots 0 .. running-1 are dense: a leaver's place goes to the last one.
    uint32_t running;
    struct plm_running *slots; // [max_sequences]
    uint32_t *due;             // [max_sequences] slots that a commit has more to do for
    uint32_t max_blocks;       // of one sequence
    // Of each group. PLM_KV_NO_BLOCK: a window has left it behind.
    uint32_t *ids[PLM_KV_GROUPS_MAX]; // [max_sequences, max_blocks]
    // [max_sequences, groups], where a group has a window: the first block that a sequence needs.
    // Of those before it some are kept where forks will want them.
    uint32_t *firsts;
    struct plm_batch_blocks *blocks; // [max_sequences]
    uint64_t versions;               // given out
    uint32_t stride;                 // of the tables; a power of two times 16, or max_blocks
    struct plm_seq **needs_block;    // [max_sequences] running ones that need a block
    uint32_t n_needs_block;

    // The step.
    int32_t *tokens, *pos, *seq; // [batch_max_tokens]
    uint32_t chunk_rows;         // in it so far
    int32_t *logits_rows;        // [max_sequences]
    struct plm_seq **logits_seqs;
    struct plm_seq **prefills; // [max_sequences] those with more than one row to go
};

static inline uint32_t *plm_sched_ids(const struct plm_sched *s, uint32_t group, uint32_t slot)
{
    return s->ids[group] + (size_t)slot * s->max_blocks;
}

static inline uint32_t *plm_sched_first(const struct plm_sched *s, uint32_t group, uint32_t slot)
{
    return &s->firsts[(size_t)slot * s->kv.n_groups + group];
}

// The blocks of a slot are others than they were.
static inline void plm_sched_renew(struct plm_sched *s, uint32_t slot)
{
    s->blocks[slot].version = ++s->versions;
}

// Appends a block to those of a running sequence, or puts it in place of one.
static inline void plm_sched_set_block(struct plm_sched *s, uint32_t group, uint32_t slot,
                                       uint32_t index, uint32_t block)
{
    uint32_t *n = &s->blocks[slot].n[group];
    plm_sched_ids(s, group, slot)[index] = block;
    if (index < *n)
        plm_sched_renew(s, slot);
    else
        *n = index + 1;
}

// share.c: whose turn it is.

// Lists of sequences. Before `at`; NULL: at the end.
void plm_seq_insert(struct plm_seq_list *list, struct plm_seq *at, struct plm_seq *seq);
void plm_seq_unlink(struct plm_seq_list *list, struct plm_seq *seq);
// A sequence is added: it takes part in its request's share.
void plm_share_join(struct plm_seq *seq);
// One more runs, or one less.
void plm_share_count(struct plm_sched *s, struct plm_seq *seq, int by);
// It waits, QUEUED or PAUSED; and no longer.
void plm_share_wait(struct plm_sched *s, struct plm_seq *seq);
void plm_share_unwait(struct plm_sched *s, struct plm_seq *seq);
// Who runs next, of all or of those that began; or NULL.
struct plm_seq *plm_share_next(const struct plm_sched *s, bool begun);
// The oldest PAUSED one that is selected, or NULL.
struct plm_seq *plm_share_next_selected(const struct plm_sched *s);
// The running sequence that gives its place to this one, which never ran; or NULL. Never the
// oldest.
struct plm_seq *plm_share_victim(const struct plm_sched *s, const struct plm_seq *seq);

// blocks.c: blocks, slots and tables of running sequences.

// Whether the sequence fits beside what runs, with blocks to spare for all; without one of those
// that run, if leaver is not NULL.
bool plm_sched_fits(const struct plm_sched *s, const struct plm_seq *seq,
                    const struct plm_seq *leaver);
// Gives slot and blocks for all its tokens. False: the pool has too few; nothing changed.
bool plm_sched_enter(struct plm_sched *s, struct plm_seq *seq);
// Gives slot and blocks back; *seq is IDLE then.
void plm_sched_leave(struct plm_sched *s, struct plm_seq *seq);
// One more block for each that needs one. Returns the one for which none is left: the caller takes
// blocks from another and calls again; NULL: all have theirs.
struct plm_seq *plm_sched_grow(struct plm_sched *s);
void plm_sched_need_block(struct plm_sched *s, struct plm_seq *seq);
// A block for the row after the next one, if it needs one. False: none is free or cached.
bool plm_sched_room_ahead(struct plm_sched *s, struct plm_seq *seq);
// Sets what a slot knows of its sequence's next row, and when commit looks at it next.
void plm_sched_refresh(struct plm_sched *s, uint32_t slot);
// Ask memory for what plm_sched_put() will read (plm_prefix_prefetch_far, _near). There is an
// index.
void plm_sched_prefetch_far(const struct plm_sched *s, const struct plm_seq *seq);
void plm_sched_prefetch_near(const struct plm_sched *s, const struct plm_seq *seq);
// Offers blocks that are full and computed to the index.
void plm_sched_put(struct plm_sched *s, struct plm_seq *seq);

// windows.c: groups with a window. Nothing of it is called where there is none.

// Whether those of `running` sequences fit beside so many rows of prompts.
bool plm_windows_fit(const struct plm_sched *s, uint64_t running, uint64_t chunk_rows);
// Rows of prompts that may still come into this step.
uint32_t plm_windows_rows(const struct plm_sched *s);
// Blocks for the tokens before `until`; returns up to which it has them.
uint32_t plm_windows_extend(struct plm_sched *s, uint32_t slot, uint32_t until);
// Gives up the blocks that no row sees any more; those that forks will want stay.
void plm_windows_advance(struct plm_sched *s, uint32_t slot);
// Computed tokens at which there is something to give up.
uint32_t plm_windows_due(const struct plm_sched *s, uint32_t slot);
// One fork less is to enter.
void plm_windows_fork_left(struct plm_sched *s, struct plm_seq *parent);
// Whether a running parent has what a fork needs that starts behind n blocks of its.
bool plm_windows_has(const struct plm_sched *s, const struct plm_seq *parent, uint32_t n);
// Gives all blocks of a sequence back.
void plm_windows_release(struct plm_sched *s, uint32_t slot);

#endif
