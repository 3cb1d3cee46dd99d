// SPDX-License-Identifier: Apache-2.0
// What KV groups with a window take. What serving allows decides it, not what memory is left: the
// window of every sequence that may run, the chunks of a step, and the windows that are kept for
// cached prefixes.
#include "core/base/checked.h"
#include "core/kv/group.h"
#include "core/plan/plan.h"

_Static_assert(PLM_PLAN_WINDOWS_MAX == PLM_KV_GROUPS_MAX - 1, "every group but the main one");

// a * b, none negative, cut to what a plan may hold.
static int64_t product(int64_t a, int64_t b)
{
    int64_t n;
    return __builtin_mul_overflow(a, b, &n) ? PLM_PLAN_BYTES_MAX
                                            : plm_min_i64(n, PLM_PLAN_BYTES_MAX);
}

int64_t plm_plan_window_least(const struct plm_plan_limits *limits, uint32_t window)
{
    const struct plm_shape worst = plm_limits_shape(limits);
    const uint64_t blocks = plm_kv_windows_need(
        limits->max_sequences, plm_kv_sequence_blocks(window, limits->max_context), worst.rows);
    return plm_min_i64((int64_t)blocks, PLM_PLAN_BYTES_MAX);
}

int64_t plm_plan_window_cached(const struct plm_plan_limits *limits, uint32_t window)
{
    return product(limits->cached_windows, plm_kv_sequence_blocks(window, limits->max_context));
}

void plm_plan_window_pool(const struct plm_plan_window *window,
                          const struct plm_plan_limits *limits, int64_t g, int64_t max_slab_bytes,
                          struct plm_plan_pool *ret)
{
    const int64_t blocks = plm_plan_window_least(limits, window->window) +
                           plm_plan_window_cached(limits, window->window);
    ret->blocks = plm_min_i64(blocks, PLM_POOL_BLOCKS_MAX);
    ret->slabs = plm_slab_rule(product(ret->blocks, window->block_bytes), window->block_bytes, g,
                               max_slab_bytes, 0);
    // A block that no slab holds fits nowhere.
    ret->bytes =
        ret->slabs.slab_blocks > 0 && blocks == ret->blocks
            ? plm_min_i64(plm_slab_pool_bytes(&ret->slabs, ret->blocks), PLM_PLAN_BYTES_MAX)
            : PLM_PLAN_BYTES_MAX;
}

int64_t plm_plan_window_bytes(const struct plm_plan_input *in, const struct plm_plan_limits *limits)
{
    struct plm_plan_pool pool;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < in->n_windows; i++) {
        plm_plan_window_pool(&in->windows[i], limits, in->g, in->max_slab_bytes, &pool);
        bytes = plm_min_i64(bytes + pool.bytes, PLM_PLAN_BYTES_MAX);
    }
    return bytes;
}
