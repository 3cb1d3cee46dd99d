// SPDX-License-Identifier: Apache-2.0
// How a pool of equal blocks is cut into slabs: the one rule that the planner counts with and the
// pool allocates by. Pure; numbers only.
#ifndef PLM_MEM_SLABS_H
#define PLM_MEM_SLABS_H

#include <stdint.h>

#define PLM_SLAB_MIN_BYTES  (INT64_C(2) << 20)   // below it a driver call costs more than it gives
#define PLM_SLAB_MAX_BYTES  (INT64_C(256) << 20) // above it a resize step is too coarse
#define PLM_SLABS_PER_POOL  64                   // aim: a resize moves about 1.6 % of the pool
#define PLM_SLABS_MAX       4096                 // most slabs of one pool (two bitmap levels)
#define PLM_POOL_BLOCKS_MAX (UINT32_C(1) << 30)  // block ids fit 32 bits with room for marks

struct plm_slab_rule {
    uint32_t slab_blocks; // blocks of every slab but the last
    int64_t slab_bytes;   // of such a slab as the driver takes it: a multiple of g
    int64_t block_bytes;
    int64_t g;
    uint32_t max_slabs; // of the driver and of our bitmaps
};

// The rule for a pool of about pool_bytes: a slab is a whole number of blocks near
// clamp(pool/64, 2 MiB, 256 MiB), at least one block, within the driver's largest slab and number
// of slabs (0: no limit). block_bytes and g are positive. slab_blocks is 0 where one block exceeds
// the largest slab.
struct plm_slab_rule plm_slab_rule(int64_t pool_bytes, int64_t block_bytes, int64_t g,
                                   int64_t max_slab_bytes, uint32_t max_slabs);
// Bytes of the slabs that hold this many blocks, the last slab exact (its bytes a multiple of g).
int64_t plm_slab_pool_bytes(const struct plm_slab_rule *rule, int64_t blocks);
// The most blocks whose slabs take at most `bytes`, in at most max_slabs; 0 where bytes is
// negative.
int64_t plm_slab_fit(const struct plm_slab_rule *rule, int64_t bytes);

#endif
