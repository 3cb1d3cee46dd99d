// SPDX-License-Identifier: Apache-2.0
// A rank: one device with the memory that is ours on it. What is the same on every rank (files,
// model, plan, ids of KV blocks) is the core's; addresses are a rank's. There is one today.
#ifndef PLM_ENGINE_RANK_H
#define PLM_ENGINE_RANK_H

#include <stdint.h>

#include "core/device.h"
#include "core/engine/block_tables.h"
#include "core/mem/arena.h"
#include "core/mem/ledger.h"

struct plm_rank {
    char device_id[32];
    struct plm_device *device;
    struct plm_ledger *ledger;
    struct plm_arena *weights;
    struct plm_arena *workspace;
    struct plm_arena *ballast;
    uint64_t workspace_addr;
    int64_t workspace_bytes;
    struct plm_block_tables block_tables; // of the steps of serving
    // Where the model runs ahead: results of three steps, one after the other, that the host sees.
    struct plm_slab results;
    uint32_t results_next; // which of them the next step writes
};

#endif
