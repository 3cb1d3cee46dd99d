// SPDX-License-Identifier: Apache-2.0
// KV groups with a window in the plan: their size, and what is lowered where they do not fit.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/plan/dry.h"
#include "core/plan/plan.h"
#include "tests/support/suite.h"
#include "tests/unit/plan_card.h"

// A model whose workspace is linear in each field of the shape.
static const struct plm_cost_table table = {
    .n_buffers = 3,
    .buffers = {{.name = "rows", .per_row = 64 << 10},
                {.name = "logits", .per_logits_row = 512 << 10, .per_seq = 4096},
                {.name = "tables", .per_seq_block = 16}},
};

// gemma3-27B: 62 layers, of which every sixth sees all; 16 heads of K and V of 128 elements, 2
// bytes each. A window of 1,024 takes 64 blocks of 6.5 MiB, 416 MiB, and one more that begins.
#define GEMMA_WINDOW 1024
#define GEMMA_ROW    (2 * 2 * 16 * 128) // K and V of one token in one layer

static struct plm_plan_input gemma(void)
{
    return (struct plm_plan_input){
        .g = 2 * MIB,
        .T = 24 * GIB,
        .F = 24 * GIB - 500 * MIB,
        .process_use = 500 * MIB,
        .memory_fraction = 1,
        .limits = {.batch_max_tokens = 2048,
                   .max_sequences = 8,
                   .max_context = 131072,
                   .cached_windows = 2},
        .n_windows = 1,
        .windows = {{.window = GEMMA_WINDOW, .block_bytes = INT64_C(52) * 16 * GEMMA_ROW}},
        .block_bytes = INT64_C(10) * 16 * GEMMA_ROW,
        .prefix_cache_blocks = PLM_PLAN_UNKNOWN};
}

START_TEST(windows_are_sized_before_the_full_group)
{
    struct plm_plan_input in = gemma();
    struct plm_plan_pool pool;
    struct plm_plan p;
    ck_assert_int_eq(in.windows[0].block_bytes, 13 * MIB / 2);
    // Eight that run and two that are cached with 66 blocks each, and a step of 128.
    plm_plan_window_pool(&in.windows[0], &in.limits, in.g, in.max_slab_bytes, &pool);
    ck_assert_int_eq(pool.blocks, (8 + 2) * 66 + 128);
    ck_assert_int_eq(plm_plan_window_least(&in.limits, GEMMA_WINDOW), 8 * 66 + 128);
    ck_assert_int_eq(plm_plan_window_cached(&in.limits, GEMMA_WINDOW), 2 * 66);
    ck_assert_int_ge(pool.bytes, 788 * 13 * MIB / 2);
    ck_assert_int_lt(pool.bytes, 788 * 13 * MIB / 2 + pool.slabs.slab_bytes);
    ck_assert_int_eq(plm_plan_window_bytes(&in, &in.limits), pool.bytes);
    // They are in what is resident, like the workspace.
    plm_plan_estimate(&in, &table, &(struct plm_plan_estimate){.weight_bytes = 10 * GIB});
    ck_assert_int_eq(plm_plan_compute(&in, &p, NULL), PLM_OK);
    struct plm_shape worst = plm_limits_shape(&in.limits);
    ck_assert_int_eq(p.resident,
                     10 * GIB + pool.bytes + plm_round_up_i64(plm_cost(&table, &worst), in.g));
    // A window no shorter than the context keeps all of it, and no more.
    in.limits.max_context = 1024;
    ck_assert_int_eq(plm_plan_window_least(&in.limits, GEMMA_WINDOW), 8 * 64 + 128);
}
END_TEST

// What is kept for prefixes goes first, then sequences as far as eight windows of context ask for
// it, then the context; each only as far as it must.
START_TEST(windows_that_do_not_fit_are_lowered_in_order)
{
    struct plm_plan_input in = gemma();
    struct plm_plan_limits limits;
    struct plm_plan p;
    plm_plan_estimate(&in, &table, &(struct plm_plan_estimate){.weight_bytes = 4 * GIB});
    in.F += 16 * GIB; // a card of 40 GiB
    in.T += 16 * GIB;
    ck_assert(plm_plan_fit_limits(&in, &table, &limits));
    ck_assert_int_eq(memcmp(&limits, &in.limits, sizeof(limits)), 0);
    int stages = 0;
    for (int64_t less = 0; less < 40 * GIB; less += 64 * MIB) {
        struct plm_plan_input tight = in;
        tight.F -= less;
        if (!plm_plan_fit_limits(&tight, &table, &limits))
            break;
        ck_assert_int_eq(plm_plan_replan(&tight, &table, &limits, &p, NULL), PLM_OK);
        ck_assert(plm_plan_enough(&p, NULL) && plm_plan_one_finishes(&p));
        if (limits.cached_windows > 0) { // nothing else is lowered before it is gone
            ck_assert_uint_eq(limits.max_sequences, 8);
            ck_assert_uint_eq(limits.max_context, 131072);
            stages |= limits.cached_windows < 2 ? 1 : 0;
            continue;
        }
        if (limits.max_sequences > 1) // sequences keep a context of eight windows
            ck_assert_uint_ge(limits.max_context, 8 * GEMMA_WINDOW);
        stages |= limits.max_sequences < 8 ? 2 : 0;
        stages |= limits.max_context < 8 * GEMMA_WINDOW ? 4 : 0;
        // It is the most.
        struct plm_plan_limits more = limits;
        more.max_context += 16;
        if (limits.max_context < 131072) {
            ck_assert_int_eq(plm_plan_replan(&tight, &table, &more, &p, NULL), PLM_OK);
            ck_assert(!plm_plan_enough(&p, NULL) || !plm_plan_one_finishes(&p));
        }
    }
    ck_assert_int_eq(stages, 7);
}
END_TEST

// Without a full group the window group takes its place: its blocks are what the budget holds, and
// serving starts with the windows of all sequences beside a step.
START_TEST(windows_alone_are_planned_from_the_budget)
{
    struct plm_plan_input in = {.g = MIB,
                                .T = 24 * GIB,
                                .F = 15 * GIB,
                                .O = 8 * GIB,
                                .K = 512 * MIB,
                                .process_use = 8 * GIB + 300 * MIB,
                                .memory_fraction = 1,
                                .limits = {.batch_max_tokens = 2048},
                                .block_bytes = MIB,
                                .prefix_cache_blocks = PLM_PLAN_UNKNOWN};
    struct plm_plan_limits limits;
    in.window = 4096;
    in.limits.max_context = 32768;
    in.limits.max_sequences = 16;
    in.limits.cached_windows = 4;
    struct plm_plan p = plan_of(&in);
    const int64_t least = 16 * 258 + plm_div_ceil(in.limits.batch_max_tokens, 16);
    ck_assert_int_eq(plm_plan_least_blocks(&in), least);
    ck_assert_int_eq(plm_plan_request_blocks(&in),
                     258 + plm_div_ceil(in.limits.batch_max_tokens, 16));
    ck_assert_int_eq(p.blocks_cap, least + 4 * 258);
    ck_assert_int_eq(p.prefix_cache_blocks, 4 * 258);
    ck_assert_int_eq(p.blocks, p.blocks_cap); // whatever the context
    in.limits.max_context = 131072;
    ck_assert_int_eq(plan_of(&in).blocks, p.blocks);
    // One that holds a whole context is none: sequences share the blocks that there are.
    struct plm_plan_input whole = in;
    whole.limits.max_context = 4096;
    ck_assert_uint_eq(plm_plan_main_window(&in), 4096);
    ck_assert_uint_eq(plm_plan_main_window(&whole), 0);
    ck_assert_int_eq(plm_plan_least_blocks(&whole), 16);
    ck_assert_int_eq(plm_plan_request_blocks(&whole), 256);
    // Less memory takes from what is cached, then sequences.
    in.F -= p.budget - (least + 10) * in.block_bytes;
    p = plan_of(&in);
    ck_assert_int_ge(p.blocks, least);
    ck_assert_int_lt(p.blocks, least + 4 * 258);
    ck_assert(plm_plan_enough(&p, NULL));
    in.F -= 300 * in.block_bytes;
    p = plan_of(&in);
    ck_assert(!plm_plan_enough(&p, NULL));
    ck_assert(plm_plan_fit_limits(&in, &table, &limits));
    ck_assert_uint_lt(limits.max_sequences, 16);
    ck_assert_uint_ge(limits.max_sequences, 14);
    ck_assert_uint_eq(limits.max_context, 131072);
}
END_TEST

// A pool whose size is pinned where the main group has a window: one that is too large for the room
// and one that lacks blocks are both told the pin that starts.
START_TEST(a_pin_with_windows_alone_is_suggested)
{
    struct plm_plan_input in = card();
    in.limits.max_sequences = 16;
    in.window = 4096;
    const int64_t least = 16 * 258 + 128;
    struct plm_plan_knobs knobs;
    struct plm_error err = {.msg = ""};
    char want[128];
    in.pinned_tokens = 20 * 1024 * 16; // 20 GiB
    struct plm_plan p = plan_of(&in);
    ck_assert(!plm_plan_enough(&p, NULL));
    plm_plan_suggest(&in, &table, &knobs);
    ck_assert_int_gt(knobs.max_total_tokens, least * 16);
    ck_assert_uint_eq(knobs.size_ctx, 0);
    ck_assert_int_eq(plm_plan_fail(&in, &table, "max_total_tokens does not fit", &err),
                     PLM_ERR_OUT_OF_DEVICE);
    snprintf(want, sizeof(want), "max_total_tokens %lld", (long long)knobs.max_total_tokens);
    ck_assert_msg(strstr(err.msg, want) != NULL, "%s", err.msg);
    // It is the most that starts.
    in.pinned_tokens = knobs.max_total_tokens;
    p = plan_of(&in);
    ck_assert(plm_plan_enough(&p, NULL));
    in.pinned_tokens += 16;
    p = plan_of(&in);
    ck_assert(!plm_plan_enough(&p, NULL));
    // One block too few for the windows: the fewest are named, and start.
    in.pinned_tokens = (least - 1) * 16;
    ck_assert_int_eq(plm_plan_fail(&in, &table, "max_total_tokens does not fit", &err),
                     PLM_ERR_OUT_OF_DEVICE);
    snprintf(want, sizeof(want), "%lld KV blocks of 16 tokens, but max_sequences 16 needs %lld;",
             (long long)least - 1, (long long)least);
    ck_assert_msg(strstr(err.msg, want) != NULL, "%s", err.msg);
    snprintf(want, sizeof(want), "max_total_tokens %lld", (long long)least * 16);
    ck_assert_msg(strstr(err.msg, want) != NULL, "%s", err.msg);
    in.pinned_tokens = least * 16;
    p = plan_of(&in);
    ck_assert(plm_plan_enough(&p, NULL));
}
END_TEST

static struct plm_plan dry_plan(int64_t weight_bytes)
{
    struct plm_stress_reading reading;
    struct plm_caps device;
    struct plm_plan p;
    struct plm_error err = {.msg = ""};
    struct plm_profile_opts opts = {.in = gemma(), .cost = &table};
    plm_dry_caps(plm_dry_kind("cuda"), 24 * GIB, &device);
    plm_dry_reading(&device, 24 * GIB, &reading);
    opts.in.context_bytes = (int64_t)device.context_bytes;
    opts.in.process_use = PLM_PLAN_UNKNOWN;
    ck_assert_msg(plm_plan_dry(&opts, &reading, weight_bytes, &p, &err) == PLM_OK, "%s", err.msg);
    ck_assert(plm_plan_enough(&p, NULL) && plm_plan_one_finishes(&p));
    ck_assert_int_le(p.line + p.margin, p.room);
    // 416 MiB a sequence and a block that begins, and the step's blocks.
    ck_assert_int_ge(plm_plan_window_bytes(&p.in, &p.in.limits),
                     p.in.limits.max_sequences * (416 + 13 / 2) * MIB + 128 * 13 * MIB / 2);
    return p;
}

// The dry plan of that model on a card of 24 GiB: with 15.4 GiB of weights (Q4_K_M) all sequences
// keep their windows and the context is lowered; with 19 GiB (a larger type) fewer sequences keep a
// context of eight windows.
START_TEST(gemma3_27b_on_a_card_of_24_gib)
{
    struct plm_plan p = dry_plan(15 * GIB + 400 * MIB);
    ck_assert_uint_eq(p.in.limits.cached_windows, 0);
    ck_assert_uint_eq(p.in.limits.max_sequences, 8);
    ck_assert_uint_ge(p.in.limits.max_context, 32768);
    ck_assert_uint_lt(p.in.limits.max_context, 65536);
    p = dry_plan(19 * GIB);
    ck_assert_uint_eq(p.in.limits.cached_windows, 0);
    ck_assert_uint_lt(p.in.limits.max_sequences, 8);
    ck_assert_uint_ge(p.in.limits.max_sequences, 6);
    ck_assert_uint_ge(p.in.limits.max_context, 8 * GEMMA_WINDOW);
    ck_assert_uint_lt(p.in.limits.max_context, 2 * 8 * GEMMA_WINDOW);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_windows");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, windows_are_sized_before_the_full_group);
    tcase_add_test(tc, windows_that_do_not_fit_are_lowered_in_order);
    tcase_add_test(tc, windows_alone_are_planned_from_the_budget);
    tcase_add_test(tc, a_pin_with_windows_alone_is_suggested);
    tcase_add_test(tc, gemma3_27b_on_a_card_of_24_gib);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
