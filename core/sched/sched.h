// SPDX-License-Identifier: Apache-2.0
// The scheduler: which sequences run, and the rows of the next step. It knows sequences, blocks and
// budgets, but no model. One thread; nothing here takes memory after creation.
//
// Whose turn it is to run is decided by share.c: sequences are shared by tenant and request, and go
// by arrival where nobody has more than another. Running sequences keep their slot and their row of
// the block table from step to step, so that a step costs work per row and per change, not per
// token of history. A step holds one row of every sequence that decodes and then, oldest first,
// chunks of prompts.
//
// The guaranteed lane: when a sequence needs a block and none is free or cached, the youngest
// running one is preempted (its blocks are given back, it is computed again later). So the oldest
// always gets its blocks, and since the plan holds the blocks of one longest request, something
// always finishes. The right to preempt stands in for blocks set aside: setting them aside would
// keep the pool of a request with an open end idle. A sequence enters only when beside its own
// blocks those of plm_admit_spare() are there, twice as many each time it was preempted, so that
// nothing is thrown out and computed again in a loop.
//
// Groups with a window (core/kv/group.h): a sequence keeps the blocks of its window alone. Those
// behind it go when the step is committed that no longer needs them: a step in flight may still
// read them. Those ahead come with the rows of each chunk. A sequence enters only where the windows
// of all that run fit beside a chunk (plm_kv_sequence_blocks), so that none of this is ever short.
//
// And where all places are taken by those who have two more than a request that never ran, one of
// them gives way to it (yields): once for each request that comes, so that work is lost no faster
// than requests come; and who came back stays until it generated as many tokens as were computed
// again for it.
#ifndef PLM_SCHED_SCHED_H
#define PLM_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/status.h"
#include "core/kv/prefix.h"
#include "core/kv/set.h"
#include "core/plan/cost.h"

enum plm_seq_state {
    PLM_SEQ_IDLE,    // not with the scheduler
    PLM_SEQ_FORK,    // waits until its parent's prompt is computed
    PLM_SEQ_QUEUED,  // never ran
    PLM_SEQ_PAUSED,  // gave its place, or a fork whose parent's prompt is computed
    PLM_SEQ_RUNNING, // has a slot and blocks
};

struct plm_seq_list {
    struct plm_seq *head, *tail;
    uint32_t n;
};

// What a request has of the sequences; the scheduler's.
struct plm_share {
    uint32_t running;
    uint32_t tenant; // its place among s->tenants
    uint8_t rank;    // of the list that it stands in
    bool listed;
    struct plm_seq_list waiting; // PAUSED, by order
    struct plm_seq *queued;      // QUEUED: its first sequence
    struct plm_share *prev, *next;
};

// One sequence, embedded by the caller, zeroed before first use. What push touches comes first, so
// that it lies in one cache line.
struct plm_seq {
    // C: set by the caller before plm_sched_add (push advances n_tokens). Others are the
    // scheduler's and may be read.
    int32_t *tokens;     // C: prompt, then output; room for one more at every push
    uint32_t n_tokens;   // C
    uint32_t n_computed; // tokens whose K and V are in the cache; true between steps
    uint32_t n_blocks;
    uint32_t n_put; // leading blocks that were offered to the index
    uint32_t node;  // of the index, up to them; held while it runs
    uint32_t slot;
    uint64_t order; // C: ascending by arrival; unique
    struct plm_seq *forks;
    uint32_t n_prompt; // C
    uint8_t state;     // enum plm_seq_state
    bool use_cache;    // C: may take from and feed the prefix index
    bool began;        // ran at least once
    bool selected;     // C: whether it has rows while the scheduler is restricted
    bool shares_cache; // holds blocks that it did not compute itself
    uint32_t needs_at; // 1 + index in the list of those that need a block; 0: not in it
    uint32_t n_cached; // tokens that the first admission found computed
    uint32_t preemptions;
    struct plm_prefix_root root; // C
    // C: its prompt is the same and is computed first; NULL: none. They are one request. It
    // outlives its forks.
    struct plm_seq *parent;
    void *owner;     // C
    uint64_t tenant; // C: whose request it is; a parent's counts
    struct plm_seq *prev, *next;
    uint32_t forks_to_enter; // that never ran: its blocks are kept for them
    uint32_t yields;         // times that it gave its place to another request
    uint32_t stays_until;    // tokens below which it does not
    struct plm_share *share, own_share;
};

struct plm_sched_opts {
    uint32_t max_sequences;    // in one step
    uint32_t batch_max_tokens; // rows of one step, at least max_sequences
    uint32_t prefill_chunk;    // rows of one prompt in one step
    uint32_t max_context;      // tokens of one sequence
};

// Blocks that a sequence of a step has, and whether they are those that it had. Ids that are
// appended leave the version; whatever else changes gives it one that no sequence had.
struct plm_batch_blocks {
    uint64_t version; // 1 and up
    uint32_t n[PLM_KV_GROUPS_MAX];
};

// One step, in numbers that are the same on every rank. A row goes to the block of its sequence
// that has its position. Arrays are the scheduler's, valid until the next call.
struct plm_batch {
    struct plm_shape shape; // rows 0: nothing to run
    uint32_t prefill_rows;
    const int32_t *tokens;
    const int32_t *pos;
    const int32_t *seq;
    // Ids of blocks, of each group [shape.seqs, ids_stride]; PLM_KV_NO_BLOCK before a window.
    const uint32_t *ids[PLM_KV_GROUPS_MAX];
    uint32_t ids_stride;
    const struct plm_batch_blocks *blocks; // [shape.seqs]
    uint32_t table_stride;                 // entries of a row of the tables that the step gets
    const int32_t *logits_rows;
    struct plm_seq *const *logits_seqs; // whose logits they are
};

// Who may get a slot. Sequences that run go on in any case.
enum plm_sched_entry {
    PLM_ENTRY_ALL,
    PLM_ENTRY_BEGUN, // those of requests that began: preempted ones, and forks
    PLM_ENTRY_NONE,
};

struct plm_sched_stats {
    uint32_t running;
    uint32_t queued;
    uint32_t paused;
    uint32_t forks; // of requests that began
    uint64_t preemptions;
    uint64_t yields;
};

struct plm_sched;

// prefix may be NULL: no prefix cache. It and the pools must outlive the scheduler.
// PLM_ERR_NOMEM_HOST.
int plm_sched_create(struct plm_host *host, const struct plm_sched_opts *opts,
                     const struct plm_kv_set *kv, struct plm_prefix *prefix,
                     struct plm_sched **ret);
void plm_sched_destroy(struct plm_sched *sched); // no sequence may be left; NULL is allowed

// Queues a sequence (IDLE, n_computed 0). A fork must be added after its parent.
void plm_sched_add(struct plm_sched *sched, struct plm_seq *seq);
// Takes a sequence out, whatever its state; its blocks are free or cached at once. Forks of a
// parent that leaves go on alone. Its rows in steps that were formed and not committed are
// nobody's.
void plm_sched_remove(struct plm_sched *sched, struct plm_seq *seq);

// Gives blocks to those that need one, admits, and forms a step of at most rows_max rows (and
// batch_max_tokens; 0: that alone). May be called again before commit, with fewer rows.
// admitted (may be NULL) is called for every sequence that enters for the first time.
struct plm_sched_hook {
    void (*admitted)(void *ctx, struct plm_seq *seq);
    void *ctx;
};
void plm_sched_form(struct plm_sched *sched, uint32_t rows_max, const struct plm_sched_hook *hook,
                    struct plm_batch *ret);
// Forms the step after the one that was formed, while that one runs: it was one row of every
// running sequence, `seqs` are those n rows in their order (NULL: it left since), and of each that
// goes on whatever its token is (goes_on) the next row is in this step. batch->tokens are numbers
// of rows of the step before, from which the tokens come. Nobody is preempted or admitted for it.
// False: it can not be formed, or is empty; nothing is pending then but blocks that will be used
// later. Commit of the step before makes it the one that was formed.
struct plm_sched_ahead {
    bool (*goes_on)(void *ctx, const struct plm_seq *seq);
    void *ctx;
};
bool plm_sched_form_ahead(struct plm_sched *sched, struct plm_seq *const *seqs, uint32_t n,
                          const struct plm_sched_ahead *ahead, struct plm_batch *ret);
// It will not be run.
void plm_sched_drop_ahead(struct plm_sched *sched);
// Rows that a sequence has in the step that was formed.
uint32_t plm_sched_rows(const struct plm_sched *sched, const struct plm_seq *seq);
// The step ran: its rows are in the cache.
void plm_sched_commit(struct plm_sched *sched);
// Or it did not, or what it gave is not to be used: its rows are computed again.
void plm_sched_abandon(struct plm_sched *sched);
// Appends a token that was chosen after a step to a running sequence, whose logits it had.
void plm_sched_push(struct plm_sched *sched, struct plm_seq *seq, int32_t token);

// From the next step on; ALL at first.
void plm_sched_set_entry(struct plm_sched *sched, enum plm_sched_entry entry);

// A sequence that can not go on although it runs alone, or NULL: the pool is smaller than it. The
// caller removes it.
struct plm_seq *plm_sched_stuck(const struct plm_sched *sched);
// The queued sequence that came first, or NULL.
struct plm_seq *plm_sched_queue_head(const struct plm_sched *sched);
// The youngest running sequence, or NULL.
struct plm_seq *plm_sched_youngest(const struct plm_sched *sched);
// Running sequences: i < stats.running.
struct plm_seq *plm_sched_running_at(const struct plm_sched *sched, uint32_t i);
// Gives a running sequence's blocks back and queues it for recompute.
void plm_sched_preempt(struct plm_sched *sched, struct plm_seq *seq);
// Blocks of the main group got other ids (plm_kv_pool_move): the tables of running sequences
// follow.
void plm_sched_moved(struct plm_sched *sched, const struct plm_kv_move *moves, uint32_t n);
void plm_sched_read(const struct plm_sched *sched, struct plm_sched_stats *ret);

// While restricted, only selected sequences have rows, and only those of them come back that ran
// before; the others keep what they have and wait.
void plm_sched_restrict(struct plm_sched *sched, bool on);
// The device is gone: all running sequences give their blocks back and queue for recompute. No
// preemptions, since nobody needed their blocks.
void plm_sched_park(struct plm_sched *sched);
// The blocks of a sequence may hold what is no number: they leave the prefix index.
void plm_sched_forget(struct plm_sched *sched, const struct plm_seq *seq);

#endif
