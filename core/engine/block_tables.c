// SPDX-License-Identifier: Apache-2.0
#include "core/engine/block_tables.h"

#include <string.h>

int plm_block_tables_init(struct plm_block_tables *tables, struct plm_host *host,
                          const struct plm_sched_opts *opts, uint32_t n_groups)
{
    const uint64_t entries = opts->max_sequences * plm_kv_blocks(opts->max_context);
    bool good = true;
    *tables = (struct plm_block_tables){
        .host = host, .n_groups = n_groups, .max_sequences = opts->max_sequences};
    for (uint32_t g = 0; g < n_groups; g++) {
        tables->tables[g] = plm_calloc(host, PLM_HOST_KV, entries, sizeof(*tables->tables[g]));
        tables->slots[g] =
            plm_calloc(host, PLM_HOST_SCHED, opts->batch_max_tokens, sizeof(*tables->slots[g]));
        good &= tables->tables[g] != NULL && tables->slots[g] != NULL;
    }
    tables->resolved =
        plm_calloc(host, PLM_HOST_SCHED, opts->max_sequences, sizeof(*tables->resolved));
    if (good && tables->resolved != NULL)
        return PLM_OK;
    plm_block_tables_finish(tables);
    return PLM_ERR_NOMEM_HOST;
}

void plm_block_tables_finish(struct plm_block_tables *tables)
{
    for (uint32_t g = 0; g < tables->n_groups; g++) {
        plm_free(tables->host, tables->tables[g]);
        plm_free(tables->host, tables->slots[g]);
    }
    plm_free(tables->host, tables->resolved);
    *tables = (struct plm_block_tables){0};
}

static void resolve(struct plm_block_tables *t, const struct plm_kv_set *kv,
                    const struct plm_batch *batch, uint32_t seq)
{
    const struct plm_batch_blocks *now = &batch->blocks[seq];
    struct plm_batch_blocks *then = &t->resolved[seq];
    if (then->version != now->version)
        *then = (struct plm_batch_blocks){.version = now->version};
    for (uint32_t g = 0; g < t->n_groups; g++) {
        const uint32_t *ids = batch->ids[g] + (size_t)seq * batch->ids_stride;
        uint64_t *row = t->tables[g] + (size_t)seq * t->stride;
        for (uint32_t b = then->n[g]; b < now->n[g]; b++)
            row[b] = ids[b] != PLM_KV_NO_BLOCK ? plm_kv_pool_addr(kv->pools[g], ids[b]) : 0;
        then->n[g] = now->n[g];
    }
}

void plm_block_tables_fill(struct plm_block_tables *t, const struct plm_kv_set *kv,
                           const struct plm_batch *batch)
{
    if (t->stride != batch->table_stride) {
        memset(t->resolved, 0, t->max_sequences * sizeof(*t->resolved));
        t->stride = batch->table_stride;
    }
    for (uint32_t seq = 0; seq < batch->shape.seqs; seq++)
        resolve(t, kv, batch, seq);
    for (uint32_t g = 0; g < t->n_groups; g++) {
        for (uint32_t i = 0; i < batch->shape.rows; i++)
            t->slots[g][i] = t->tables[g][(size_t)batch->seq[i] * t->stride +
                                          (uint32_t)batch->pos[i] / PLM_KV_BLOCK_TOKENS];
    }
}
