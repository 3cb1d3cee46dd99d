// SPDX-License-Identifier: Apache-2.0
// Block tables as the kernels of one rank read them. The scheduler knows blocks by their ids, which
// are the same on every rank; a step of a rank gets addresses of that rank's memory. An id keeps
// its address as long as it stands in a table, so each entry is resolved once, when it came or
// changed since the step before.
#ifndef PLM_ENGINE_BLOCK_TABLES_H
#define PLM_ENGINE_BLOCK_TABLES_H

#include "core/base/alloc.h"
#include "core/sched/sched.h"

struct plm_block_tables {
    struct plm_host *host;
    uint32_t n_groups;
    uint32_t max_sequences;
    uint32_t stride; // entries of a row, as in the batch before
    // Of each group: addresses of blocks [sequences, stride], room for those of whole contexts, and
    // of the block that each row of the step writes to.
    uint64_t *tables[PLM_KV_GROUPS_MAX];
    uint64_t *slots[PLM_KV_GROUPS_MAX];
    struct plm_batch_blocks *resolved; // [max_sequences] what of each row stands in the tables
};

// For the batches of a scheduler that was made with the same options. NOMEM_HOST. All zero is what
// finish leaves, and may be finished.
int plm_block_tables_init(struct plm_block_tables *tables, struct plm_host *host,
                          const struct plm_sched_opts *opts, uint32_t n_groups);
void plm_block_tables_finish(struct plm_block_tables *tables);

// Brings the tables to what this batch says, by the addresses of these pools. They are valid until
// the next call. Entries before a window may be of blocks that were given up: no kernel reads them.
void plm_block_tables_fill(struct plm_block_tables *tables, const struct plm_kv_set *kv,
                           const struct plm_batch *batch);

#endif
