// SPDX-License-Identifier: Apache-2.0
// The scheduler in random worlds. The "model" is a device that keeps, in every place of every
// block, the token that was written there, and answers with a hash of the history that it reads
// back through the block tables, each group's as far as its window goes. So a wrong table, a block
// shared or given up too early, or a token computed twice at another place changes the text, which
// is compared with an oracle that has no scheduler.
#ifndef PLM_TESTS_SCHED_WORLD_H
#define PLM_TESTS_SCHED_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/engine/block_tables.h"

#define SEQS_MAX 200u

struct sim_seq {
    struct plm_seq seq; // first
    uint32_t request;
    uint32_t max_output;
    uint32_t salt;
    bool done, cancelled;
    uint32_t ends;
};

struct world {
    uint64_t seed;
    uint64_t draws;
    struct plm_host *host;
    struct plm_device *device;
    struct plm_ledger *ledger;
    struct plm_kv_set kv;
    struct plm_kv_pool *pool; // of the main group
    struct plm_prefix *prefix;
    struct plm_sched *sched;
    struct plm_block_tables tables; // as a rank has them
    struct plm_sched_opts opts;
    uint32_t blocks; // of the main group
    uint32_t pool_blocks[PLM_KV_GROUPS_MAX];
    struct sim_seq *seqs;
    uint32_t n_seqs, n_done;
    uint64_t steps, rows, tokens, evacuated;
};

uint32_t draw(struct world *w, uint32_t below);
// One full group of so many blocks, or groups with windows (0: full), of which the first one has
// them and each other one what the plan gives it.
void world_create(struct world *w, uint64_t seed, const struct plm_sched_opts *opts,
                  uint32_t blocks, bool prefix);
void world_create_windows(struct world *w, uint64_t seed, const struct plm_sched_opts *opts,
                          uint32_t blocks, bool prefix, const uint32_t *windows, uint32_t n_groups);
void world_destroy(struct world *w);
// Blocks of a group with a window by the plan's formula, and so many cached ones.
uint32_t window_blocks(const struct plm_sched_opts *opts, uint32_t window, uint32_t cached);

// A request of n choices whose prompt begins like many others.
void add_request(struct world *w, uint32_t request, uint32_t n_prompt, uint32_t max_output,
                 uint32_t n, uint32_t family, bool cache);
void end_seq(struct world *w, struct sim_seq *s, bool cancelled);
// Brings w->tables to what the batch says.
void resolve(struct world *w, const struct plm_batch *b);
// Runs the batch: all writes, then for each logits row a read of what it sees.
void run(struct world *w, const struct plm_batch *b);
// One step; false when there was nothing to run.
bool step(struct world *w);
extern uint32_t admitted_calls;
// Evacuates slabs of the main pool, or takes them back, within these bounds.
void resize_pool(struct world *w, uint32_t most, uint32_t least);
// A loss, an abandoned step, restricted ones, or a sequence that is forgotten.
void disturb(struct world *w);
// So many requests that come, and are cancelled, at random while the main pool is resized between
// `least` and `blocks`, until each sequence ended, once.
void run_random(struct world *w, uint32_t requests, uint32_t blocks, uint32_t least, bool prefix,
                bool disturbed);
void check_blocks(const struct world *w);
// Whoever was preempted comes back only when it can stay: a sequence is preempted once per doubling
// of the pool at most, and beyond the first time of each not more than once per block of tokens
// that came out.
void check_hysteresis(const struct world *w);

#endif
