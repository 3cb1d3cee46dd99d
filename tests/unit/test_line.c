// SPDX-License-Identifier: Apache-2.0
// The load line among neighbours: what one reading after another makes of it. A plan of 64 slabs of
// 16 MiB on a card of 8 GiB, and a device that is told what others hold.
#include <check.h>
#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/random.h"
#include "core/plan/line.h"
#include "tests/support/suite.h"

#define MIB   (INT64_C(1) << 20)
#define GIB   (INT64_C(1) << 30)
#define SLAB  (16 * MIB)
#define BLOCK (256 * 1024)
#define REST  (2 * GIB) // ours beside the KV cache

static struct plm_plan plan;
static struct plm_line line;
static int64_t blocks;  // of the pool
static int64_t foreign; // that others hold
static int64_t wanted;  // that they want: they get what is free

// The plan takes all that there is while others hold half a GiB.
static void setup(void)
{
    struct plm_plan_input in = {
        .g = 2 * MIB,
        .T = 8 * GIB,
        .F = 8 * GIB - REST - GIB / 2,
        .O = REST,
        .process_use = PLM_PLAN_UNKNOWN,
        .memory_fraction = 1.0,
        .limits = {.batch_max_tokens = 512, .max_sequences = 8, .max_context = 16 * 512},
        .block_bytes = BLOCK,
        .prefix_cache_blocks = 1 << 20};
    foreign = wanted = GIB / 2;
    ck_assert_int_eq(plm_plan_compute(&in, &plan, NULL), PLM_OK);
    ck_assert_int_eq(plan.blocks_bind, PLM_TERM_BUDGET);
    blocks = plan.blocks;
    plm_line_init(&line, &plan, true, 0);
    ck_assert_int_eq(line.floor, 512);
}

static struct plm_stress_reading reading(void)
{
    const int64_t kv = plm_slab_pool_bytes(&plan.slabs, blocks);
    return (struct plm_stress_reading){.T = 8 * GIB,
                                       .F = plm_max_i64(0, 8 * GIB - REST - kv - foreign),
                                       .O = REST + kv,
                                       .K = kv,
                                       .process_use = PLM_PLAN_UNKNOWN};
}

static void judge(struct plm_stress_reading r)
{
    plm_line_follow(&line, &r);
}

// Follows the line at once, as an idle engine does.
static void follow(void)
{
    int64_t next;
    while ((next = plm_line_size(&line, blocks)) != blocks)
        blocks = next;
}

static void see(int times)
{
    while (times-- > 0) {
        foreign = plm_min_i64(wanted, foreign + reading().F);
        judge(reading());
        follow();
    }
}

START_TEST(nothing_moves_while_nothing_happens)
{
    see(100);
    ck_assert_int_eq(blocks, plan.blocks);
    // Noise within a quarter of the margin is none of our business.
    for (int i = 0; i < 100; i++) {
        wanted = GIB / 2 + (i % 2 == 0 ? 1 : -1) * (plan.margin / 4 - 2 * MIB);
        see(1);
        ck_assert_int_eq(blocks, plan.blocks);
    }
}
END_TEST

START_TEST(growth_of_others_tightens_at_once_and_keeps_the_margin)
{
    wanted += plan.margin;
    see(1);
    ck_assert_int_lt(blocks, plan.blocks);
    ck_assert_int_ge(reading().F, plan.margin);
    // And no more than that: one slab more would eat into it.
    ck_assert_int_lt(reading().F, plan.margin + plan.slabs.slab_bytes + 2 * MIB);
    const int64_t there = blocks;
    see(20);
    ck_assert_int_eq(blocks, there);
    // One who wants more than there is gets it within seconds, and not much more than that.
    wanted += 2 * GIB;
    for (int i = 0; i < 8; i++)
        see(1);
    ck_assert_int_eq(foreign, wanted);
    see(30);
    ck_assert_int_ge(reading().F, plan.margin);
    ck_assert_int_lt(reading().F, 2 * plan.margin + plan.slabs.slab_bytes);
}
END_TEST

START_TEST(the_floor_stays)
{
    wanted = 8 * GIB;
    see(12);
    ck_assert_int_ge(blocks, line.floor);
    ck_assert_int_lt(blocks, line.floor + plan.slabs.slab_blocks);
    plm_line_init(&line, &plan, true, GIB);
    ck_assert_int_eq(line.floor, GIB / BLOCK);
    plm_line_init(&line, &plan, true, UINT64_MAX);
    ck_assert_int_eq(line.floor, plan.blocks);
}
END_TEST

START_TEST(hold_holds)
{
    plm_line_init(&line, &plan, false, 0);
    wanted = 8 * GIB;
    see(20);
    ck_assert_int_eq(blocks, plan.blocks);
    // But what the device did not give is taken only when there is room for it again.
    blocks -= 10 * plan.slabs.slab_blocks;
    plm_line_settle(&line, blocks);
    see(20);
    ck_assert_int_eq(line.target, blocks);
    wanted = GIB / 2;
    see(20);
    ck_assert_int_eq(blocks, plan.blocks);
}
END_TEST

START_TEST(relief_loosens_after_several_readings_that_agree)
{
    wanted += GIB;
    see(20);
    const int64_t low = blocks;
    wanted -= GIB;
    for (int i = 1; i < PLM_LINE_STABLE; i++) {
        see(1);
        ck_assert_int_eq(blocks, low);
    }
    see(1);
    ck_assert_int_eq(blocks, plan.blocks);
    // Partial relief: up to what still keeps a distance.
    wanted += 2 * GIB;
    see(20);
    wanted -= GIB;
    see(200);
    ck_assert_int_gt(blocks, low - plan.slabs.slab_blocks * 5);
    ck_assert_int_lt(blocks, plan.blocks);
    ck_assert_int_ge(reading().F, plan.margin);
}
END_TEST

// Two neighbours in turn, ever so often: the cache must not breathe with them.
START_TEST(a_flapping_neighbour_waits_longer_and_longer)
{
    uint32_t moves = 0;
    int64_t before = blocks;
    for (int i = 0; i < 600; i++) {
        wanted = GIB / 2 + (i / 4 % 2) * GIB;
        see(1);
        moves += blocks != before;
        before = blocks;
    }
    ck_assert_uint_le(moves, 20); // of 150 turns
    wanted = GIB / 2;
    see(PLM_LINE_STABLE_MAX);
    ck_assert_int_eq(blocks, plan.blocks);
}
END_TEST

START_TEST(a_reading_that_swings_never_loosens)
{
    wanted += GIB;
    see(20);
    const int64_t low = blocks;
    for (int i = 0; i < 500; i++) {
        struct plm_stress_reading r = reading();
        r.F += (i % 2 == 0 ? 1 : -1) * (8 * GIB / 5);
        r.F = plm_clamp_i64(r.F, 0, r.T);
        judge(r);
        follow();
        ck_assert_int_le(blocks, low);
    }
    ck_assert_int_ge(blocks, line.floor);
}
END_TEST

START_TEST(what_can_not_be_true_moves_nothing)
{
    wanted += GIB;
    see(20);
    const int64_t low = blocks;
    for (int i = 0; i < 20; i++) {
        struct plm_stress_reading r = reading();
        r.T = r.F = 0;
        judge(r);
        r = reading();
        r.F = r.T;
        judge(r);
        r = reading();
        r.process_use = r.T;
        judge(r);
        r = reading();
        r.T = r.F = 16 * GIB;
        judge(r);
        r = reading();
        r.K = r.O + 1;
        judge(r);
        follow();
        ck_assert_int_eq(blocks, low);
    }
    // Three good ones are needed in a row.
    wanted -= GIB;
    for (int i = 0; i < 20; i++) {
        see(2);
        struct plm_stress_reading r = reading();
        r.T = r.F = 0;
        judge(r);
        follow();
        ck_assert_int_eq(blocks, low);
    }
}
END_TEST

// What the driver says is as old as the moment before we gave slabs back. Acting on it again and
// again would give everything away.
START_TEST(a_late_reading_is_not_taken_twice)
{
    wanted += plan.margin;
    foreign = wanted;
    struct plm_stress_reading old = reading();
    old.F = 12345;
    judge(old);
    follow();
    const int64_t first = blocks;
    ck_assert_int_lt(first, plan.blocks);
    for (int i = 0; i < 3; i++) {
        struct plm_stress_reading r = reading();
        r.F = old.F;
        judge(r);
        follow();
        ck_assert_int_eq(blocks, first);
    }
    see(10);
    ck_assert_int_eq(blocks, first);
    // One that never moves again is believed less and less often.
    wanted += plan.margin;
    foreign = wanted;
    old = reading();
    uint32_t moves = 0;
    int64_t before = blocks;
    for (int i = 0; i < 120; i++) {
        struct plm_stress_reading r = reading();
        r.F = old.F + 1;
        judge(r);
        follow();
        moves += blocks != before;
        before = blocks;
    }
    ck_assert_uint_le(moves, 6);
}
END_TEST

START_TEST(cgroups_and_the_operators_limit_count_too)
{
    struct plm_plan_input in = plan.in;
    in.unified = true;
    in.process_use = REST + 40 * MIB;
    in.operator_limit = 6 * GIB;
    in.n_cgroups = 1;
    in.cgroups[0] = (struct plm_plan_cgroup){7 * GIB, REST + 50 * MIB, 5 * MIB};
    ck_assert_int_eq(plm_plan_compute(&in, &plan, NULL), PLM_OK);
    plm_line_init(&line, &plan, true, 0);
    blocks = plan.blocks;
    const int64_t kv = plm_slab_pool_bytes(&plan.slabs, blocks);
    struct plm_stress_reading r = reading();
    r.process_use = in.process_use + kv;
    r.n_cgroups = 1;
    r.cgroups[0] = in.cgroups[0];
    r.cgroups[0].current += kv;
    judge(r);
    follow();
    ck_assert_int_eq(blocks, plan.blocks);
    // Page cache of our group can be reclaimed: no reason to shrink.
    r.cgroups[0].current += 2 * GIB;
    r.cgroups[0].reclaimable += 2 * GIB;
    judge(r);
    follow();
    ck_assert_int_eq(blocks, plan.blocks);
    // Another process in it is one.
    r.cgroups[0].current += 2 * GIB;
    judge(r);
    follow();
    ck_assert_int_lt(blocks, plan.blocks);
}
END_TEST

// Our own host memory is planned for: as it grows towards its limit, the term that waits for it
// shrinks, and the cache stays as it is.
START_TEST(our_own_growth_is_no_neighbour)
{
    struct plm_plan_input in = plan.in;
    in.unified = true;
    in.process_use = REST + 20 * MIB;
    in.F -= 20 * MIB;
    in.operator_limit = 6 * GIB;
    ck_assert_int_eq(plm_plan_compute(&in, &plan, NULL), PLM_OK);
    ck_assert_int_gt(plan.host_limit, 200 * MIB);
    plm_line_init(&line, &plan, true, 0);
    blocks = plan.blocks;
    for (int64_t own = 20 * MIB; own < plan.host_limit; own += 3 * MIB) {
        struct plm_stress_reading r = reading();
        r.process_use = r.O + own;
        r.F -= own;
        judge(r);
        follow();
        ck_assert_int_eq(blocks, plan.blocks);
    }
}
END_TEST

// Whatever comes: within floor and plan, whole slabs, and above what fits only if at the floor.
START_TEST(ballast_that_is_kept_is_the_margin)
{
    struct plm_stress_reading r = reading();
    const int64_t fits = plm_line_fit(&line, &r);
    r.O += plan.margin;
    r.F -= plan.margin;
    r.ballast = plan.margin;
    ck_assert_int_eq(plm_line_fit(&line, &r), fits);
    for (int i = 0; i < 5; i++)
        judge(r);
    follow();
    ck_assert_int_eq(blocks, plan.blocks);
}
END_TEST

START_TEST(who_is_pushed_out_gives_and_does_not_grow)
{
    see(10);
    plm_line_press(&line, 700);
    follow();
    const int64_t there = blocks;
    ck_assert_int_lt(there, 700 + plan.slabs.slab_blocks);
    ck_assert_int_ge(there, line.floor);
    // No reading says so: all of it seems to be free.
    for (int i = 0; i < 30; i++) {
        see(1);
        plm_line_press(&line, blocks);
        ck_assert_int_eq(blocks, there);
    }
    plm_line_press(&line, 0); // the floor stays
    follow();
    ck_assert_int_ge(blocks, line.floor);
    see(PLM_LINE_STABLE - 1);
    ck_assert_int_le(blocks, there);
    see(1);
    ck_assert_int_eq(blocks, plan.blocks);
    // One that holds gives nothing.
    line.yields = false;
    plm_line_press(&line, 700);
    follow();
    ck_assert_int_eq(blocks, plan.blocks);
}
END_TEST

START_TEST(random_readings)
{
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t out[4], counter[4] = {i, 0, 0, 0}, key[2] = {9, 9};
        plm_philox4x32(counter, key, out);
        if (out[0] % 8 == 0)
            wanted = (int64_t)(out[1] % 9000) * MIB;
        struct plm_stress_reading r = reading();
        if (out[2] % 6 == 0)
            r.F = (int64_t)(out[3] % 9000) * MIB - 100 * MIB;
        const int64_t before = blocks;
        judge(r);
        follow();
        ck_assert_int_ge(blocks, plm_min_i64(before, line.floor));
        ck_assert_int_le(blocks, plan.blocks);
        ck_assert(blocks % plan.slabs.slab_blocks == 0 || blocks == plan.blocks);
        ck_assert_int_ge(line.target, line.floor);
        if (blocks > before)
            ck_assert_int_le(blocks, plm_line_fit(&line, &r));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("line");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, nothing_moves_while_nothing_happens);
    tcase_add_test(tc, growth_of_others_tightens_at_once_and_keeps_the_margin);
    tcase_add_test(tc, the_floor_stays);
    tcase_add_test(tc, hold_holds);
    tcase_add_test(tc, relief_loosens_after_several_readings_that_agree);
    tcase_add_test(tc, a_flapping_neighbour_waits_longer_and_longer);
    tcase_add_test(tc, a_reading_that_swings_never_loosens);
    tcase_add_test(tc, what_can_not_be_true_moves_nothing);
    tcase_add_test(tc, a_late_reading_is_not_taken_twice);
    tcase_add_test(tc, cgroups_and_the_operators_limit_count_too);
    tcase_add_test(tc, our_own_growth_is_no_neighbour);
    tcase_add_test(tc, ballast_that_is_kept_is_the_margin);
    tcase_add_test(tc, who_is_pushed_out_gives_and_does_not_grow);
    tcase_add_test(tc, random_readings);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
