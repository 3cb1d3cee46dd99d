// SPDX-License-Identifier: Apache-2.0
// Residency: whether our memory lies on the device. A driver that over-commits may push it out, or
// hand out slow memory in place of the device's, and only time shows it. So a validation times how
// long a piece of each slab takes to read, compared with the others. While serving, steps are held
// against the step-time baseline (baseline.c, pressure.c).
#include "core/engine/residency.h"

#include "core/base/checked.h"
#include "core/engine/core.h"

bool plm_core_may_lose_memory(const struct plm_caps *caps)
{
    return caps->commit == PLM_COMMIT_SOFT && !caps->unified;
}

// ---- slabs ----

// A driver moves whole allocations, so a piece tells of its slab. 64 MiB take 20 us at 3 TB/s, as
// long as a submit, and 1.3 ms over a bus of 50 GB/s; below 8 MiB the submit is all that is timed.
#define PIECE_MOST  (INT64_C(64) << 20)
#define PIECE_LEAST (INT64_C(8) << 20)
// The device's own memory differs by less than twice (caches, clocks that rise); the host's behind
// a bus is 8 to 60 times as slow (an H100: 3,100 and 50 GB/s).
#define SLOW_READ 4
// Times are counted by quarters of a power of two, from 4 ns to days: a median without a list.
#define TIMES   256
#define TIME_NS (INT64_C(1) << 50)

static uint32_t time_index(int64_t ns)
{
    const uint64_t n = (uint64_t)plm_clamp_i64(ns, 4, TIME_NS);
    const uint32_t log2 = 63 - (uint32_t)__builtin_clzll(n);
    return log2 * 4 + (uint32_t)(n >> (log2 - 2) & 3);
}

// The first time beyond those of an index.
static int64_t time_bound(uint32_t index)
{
    return (int64_t)(5 + index % 4) << (index / 4 - 2);
}

// Slabs of the KV cache's pools, of the weights, of the ballast. False beyond the last one.
static bool find_slab(const struct plm_core *core, uint32_t i, uint64_t *ret_addr,
                      int64_t *ret_bytes)
{
    const struct plm_arena *arenas[] = {core->rank.weights, core->rank.ballast};
    struct plm_kv_pool_stats pool;
    uint32_t first, blocks;
    for (uint32_t g = 0; g < core->kv.n_groups; g++) {
        plm_kv_pool_read(core->kv.pools[g], &pool);
        if (plm_kv_pool_slab(core->kv.pools[g], i, &first, &blocks)) {
            *ret_addr = plm_kv_pool_addr(core->kv.pools[g], first);
            *ret_bytes = (int64_t)(blocks * pool.block_bytes);
            return true;
        }
        i -= pool.slabs;
    }
    for (size_t a = 0; a < sizeof(arenas) / sizeof(arenas[0]); a++) {
        struct plm_arena_stats stats;
        uint64_t bytes;
        if (arenas[a] == NULL)
            continue;
        if (plm_arena_slab(arenas[a], i, ret_addr, &bytes)) {
            *ret_bytes = (int64_t)bytes;
            return true;
        }
        plm_arena_read(arenas[a], &stats);
        i -= (uint32_t)stats.slabs;
    }
    return false;
}

static int read_slab(struct plm_core *core, uint64_t addr, int64_t bytes, int64_t *ret_ns)
{
    const struct plm_copy_args copy = {
        .src = addr, .dst = core->rank.workspace_addr, .n_words = (uint64_t)bytes / 4};
    const int64_t start = plm_now(core->clock);
    const int r = plm_device_run(core->rank.device, plm_launch_copy(core->rank.device, &copy));
    *ret_ns = plm_now(core->clock) - start;
    return r;
}

int plm_core_slow_bytes(void *ctx, int64_t *ret_bytes)
{
    struct plm_core *core = ctx;
    struct plm_kv_pool_stats pool;
    uint32_t counts[TIMES] = {0}, n = 0, median = time_index(0);
    uint64_t addr;
    int64_t bytes, ns, slow = 0;
    int r = PLM_OK;
    plm_kv_pool_read(core->pool, &pool);
    int64_t piece = (int64_t)(pool.slab_blocks * pool.block_bytes);
    piece = plm_min_i64(plm_min_i64(piece, core->rank.workspace_bytes), PIECE_MOST);
    *ret_bytes = 0;
    if (piece < PIECE_LEAST)
        return PLM_OK;
    for (uint32_t i = 0; r == PLM_OK && find_slab(core, i, &addr, &bytes); i++) {
        r = read_slab(core, addr, plm_min_i64(bytes, piece), &ns);
        counts[time_index(ns)]++;
        n++;
    }
    for (uint32_t seen = counts[median]; seen * 2 < n; seen += counts[median])
        median++;
    // A time that is believed is seen twice: a clock that has not risen yet is so only once. A
    // shorter slab than a piece takes less time, so that it is not slow for that.
    const int64_t most = SLOW_READ * time_bound(median);
    for (uint32_t i = 0; r == PLM_OK && find_slab(core, i, &addr, &bytes); i++) {
        r = read_slab(core, addr, plm_min_i64(bytes, piece), &ns);
        if (r == PLM_OK && ns > most)
            r = read_slab(core, addr, plm_min_i64(bytes, piece), &ns);
        slow += ns > most ? bytes : 0;
    }
    *ret_bytes = r == PLM_OK ? slow : 0;
    return r;
}
