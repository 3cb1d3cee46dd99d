// SPDX-License-Identifier: Apache-2.0
#include "core/mem/slabs.h"

#include "core/base/checked.h"

// Largest number of blocks whose bytes, rounded up to g, are at most `bytes`.
static int64_t blocks_in(int64_t bytes, int64_t block_bytes, int64_t g)
{
    return bytes / g * g / block_bytes;
}

struct plm_slab_rule plm_slab_rule(int64_t pool_bytes, int64_t block_bytes, int64_t g,
                                   int64_t max_slab_bytes, uint32_t max_slabs)
{
    int64_t most = max_slab_bytes > 0 ? max_slab_bytes : INT64_MAX / 4;
    uint32_t slabs = max_slabs > 0 && max_slabs < PLM_SLABS_MAX ? max_slabs : PLM_SLABS_MAX;
    struct plm_slab_rule rule = {.block_bytes = block_bytes, .g = g, .max_slabs = slabs};
    int64_t want =
        plm_clamp_i64(pool_bytes / PLM_SLABS_PER_POOL, PLM_SLAB_MIN_BYTES, PLM_SLAB_MAX_BYTES);
    // A slab that leaves part of a granule unused wastes it in every slab, so fill whole granules.
    want = plm_round_up_i64(plm_max_i64(want, block_bytes), g);
    // One slab fewer than allowed, since the last one may be a short one beside full ones.
    int64_t floor_bytes = pool_bytes / (slabs > 1 ? slabs - 1 : 1);
    if (want < floor_bytes)
        want = plm_round_up_i64(floor_bytes + block_bytes, g);
    int64_t blocks = blocks_in(plm_min_i64(want, most), block_bytes, g);
    if (blocks > PLM_POOL_BLOCKS_MAX)
        blocks = PLM_POOL_BLOCKS_MAX;
    rule.slab_blocks = (uint32_t)blocks;
    rule.slab_bytes = plm_round_up_i64(blocks * block_bytes, g);
    return rule;
}

int64_t plm_slab_pool_bytes(const struct plm_slab_rule *rule, int64_t blocks)
{
    if (blocks <= 0 || rule->slab_blocks == 0)
        return 0;
    int64_t full = blocks / rule->slab_blocks;
    int64_t rest = blocks % rule->slab_blocks;
    return full * rule->slab_bytes + plm_round_up_i64(rest * rule->block_bytes, rule->g);
}

int64_t plm_slab_fit(const struct plm_slab_rule *rule, int64_t bytes)
{
    if (bytes <= 0 || rule->slab_blocks == 0)
        return 0;
    int64_t full = bytes / rule->slab_bytes;
    if (full >= rule->max_slabs)
        return (int64_t)rule->max_slabs * rule->slab_blocks;
    int64_t rest = blocks_in(bytes % rule->slab_bytes, rule->block_bytes, rule->g);
    return full * rule->slab_blocks + rest;
}
