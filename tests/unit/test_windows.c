// SPDX-License-Identifier: Apache-2.0
// Groups with a window: what a sequence keeps, what forks and prefix hits find, and random worlds
// in which every history is compared with an oracle.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/sched/sched_impl.h"
#include "tests/support/suite.h"
#include "tests/unit/sched_world.h"

#define T PLM_KV_BLOCK_TOKENS

static struct plm_kv_pool_stats stats_of(const struct world *w, uint32_t group)
{
    struct plm_kv_pool_stats stats;
    plm_kv_pool_read(w->kv.pools[group], &stats);
    return stats;
}

static void finish(struct world *w)
{
    while (w->n_done < w->n_seqs)
        ck_assert(step(w));
    for (uint32_t g = 0; g < w->kv.n_groups; g++)
        ck_assert_uint_eq(stats_of(w, g).used, 0);
}

// ---- random worlds ----

static const uint32_t shapes[][3] = {{1, 0, 0}, {0, 1, 0}, {0, 1, 1}, {1, 1, 0}};
static const uint32_t shape_groups[] = {1, 2, 3, 2};

START_TEST(random_worlds_of_windows)
{
    struct world w;
    uint32_t windows[PLM_KV_GROUPS_MAX] = {0};
    w.seed = 7000 + (uint64_t)_i;
    w.draws = 0;
    const uint32_t n_groups = shape_groups[_i % 4];
    const uint32_t ctx = 16 * (2 + draw(&w, 14)), seqs = 1 + draw(&w, 8);
    for (uint32_t g = 0; g < n_groups; g++) // some are no shorter than the context
        windows[g] = shapes[_i % 4][g] * (1 + draw(&w, draw(&w, 4) == 0 ? 2 * ctx : ctx / 3));
    const struct plm_sched_opts opts = {.max_sequences = seqs,
                                        .batch_max_tokens = seqs + draw(&w, 100),
                                        .prefill_chunk = 1 + draw(&w, 80),
                                        .max_context = ctx};
    const uint32_t least = windows[0] != 0 ? plm_kv_sequence_blocks(windows[0], ctx) + 1 : ctx / 16;
    const uint32_t blocks = least + draw(&w, 2 * least * seqs);
    const bool prefix = draw(&w, 4) != 0, disturbed = _i / 4 % 2 == 0;
    const uint64_t draws = w.draws;
    world_create_windows(&w, w.seed, &opts, blocks, prefix, windows, n_groups);
    w.draws = draws;
    run_random(&w, 10 + draw(&w, 30), blocks, least, prefix, disturbed);
    for (uint32_t g = 0; g < n_groups; g++)
        ck_assert_uint_eq(stats_of(&w, g).used, 0);
    world_destroy(&w);
}
END_TEST

// ---- what a sequence keeps ----

static const struct plm_sched_opts one = {
    .max_sequences = 1, .batch_max_tokens = 32, .prefill_chunk = 32, .max_context = 640};

// A context of sixteen windows: the full group holds all of it, the other one its window.
START_TEST(a_sequence_holds_the_blocks_of_its_window)
{
    struct world w;
    const uint32_t windows[] = {0, 40}; // 3 blocks and one that begins
    world_create_windows(&w, 1, &one, 40, _i == 1, windows, 2);
    ck_assert_uint_eq(plm_kv_window_blocks(40), 4);
    add_request(&w, 0, 400, 200, 1, 0, _i == 1);
    for (uint32_t n = 0; w.n_done == 0; n++) {
        ck_assert(step(&w));
        const struct plm_seq *seq = &w.seqs[0].seq;
        if (w.n_done > 0)
            break;
        ck_assert_uint_eq(stats_of(&w, 0).used, (seq->n_tokens - (seq->n_tokens > 400) + 15) / 16);
        ck_assert_uint_le(stats_of(&w, 1).used, 4);
        // The blocks from the first that the next row sees to the last that was written.
        const uint32_t computed = seq->n_tokens - 1;
        if (seq->n_tokens > 400 && computed % T == 0)
            ck_assert_uint_eq(stats_of(&w, 1).used,
                              computed / T - plm_kv_first_block(40, computed));
    }
    // What left the window is cached where the index may know it, else free.
    ck_assert_uint_eq(stats_of(&w, 1).cached > 0, _i == 1);
    world_destroy(&w);
}
END_TEST

// Blocks are given up when a step is committed, not when the next one is formed.
START_TEST(a_step_in_flight_keeps_what_it_reads)
{
    struct world w;
    struct plm_batch batch;
    const uint32_t windows[] = {0, 16};
    world_create_windows(&w, 1, &one, 40, true, windows, 2);
    add_request(&w, 0, 64, 10, 1, 0, true);
    plm_sched_form(w.sched, 0, NULL, &batch); // 32 rows
    ck_assert_uint_eq(stats_of(&w, 1).used, 2);
    ck_assert_uint_eq(stats_of(&w, 1).cached, 0);
    run(&w, &batch);
    // The row at 32 sees those from 17 on.
    ck_assert_uint_eq(stats_of(&w, 1).used, 1);
    ck_assert_uint_eq(stats_of(&w, 1).cached, 1);
    plm_sched_form(w.sched, 0, NULL, &batch);
    ck_assert_uint_eq(stats_of(&w, 1).used, 3);
    run(&w, &batch);
    ck_assert_uint_eq(stats_of(&w, 1).used, 1);
    ck_assert_uint_eq(stats_of(&w, 1).cached, 3);
    finish(&w);
    world_destroy(&w);
}
END_TEST

static bool always(void *ctx, const struct plm_seq *seq)
{
    (void)ctx, (void)seq;
    return true;
}

// A decode ahead reads its window after the step before it was committed.
START_TEST(a_step_ahead_keeps_what_it_reads)
{
    struct world w;
    struct plm_batch now, next;
    const struct plm_sched_ahead ahead = {.goes_on = always};
    const uint32_t windows[] = {0, 20};
    world_create_windows(&w, 1, &one, 40, true, windows, 2);
    add_request(&w, 0, 32, 300, 1, 0, true);
    struct plm_seq *seq = &w.seqs[0].seq;
    while (seq->n_tokens == 32)
        ck_assert(step(&w));
    plm_sched_form(w.sched, 0, NULL, &now);
    for (uint32_t i = 0; i < 200; i++) {
        struct plm_seq *const seqs[] = {seq};
        ck_assert_uint_eq(now.shape.rows, 1);
        const uint32_t pos = (uint32_t)now.pos[0] + 1;
        ck_assert(plm_sched_form_ahead(w.sched, seqs, 1, &ahead, &next));
        plm_sched_commit(w.sched);
        plm_sched_push(w.sched, seq, 7);
        ck_assert_int_eq(next.pos[0], (int32_t)pos);
        for (uint32_t b = plm_kv_first_block(20, pos); b <= pos / T; b++) {
            ck_assert_uint_lt(next.ids[1][b], w.pool_blocks[1]);
            ck_assert_uint_gt(plm_kv_pool_refs(w.kv.pools[1], next.ids[1][b]), 0);
        }
        ck_assert_uint_le(stats_of(&w, 1).used, plm_kv_sequence_blocks(20, 640));
        now = next;
    }
    plm_sched_abandon(w.sched);
    end_seq(&w, &w.seqs[0], true);
    ck_assert_uint_eq(stats_of(&w, 1).used, 0);
    world_destroy(&w);
}
END_TEST

// A chunk's blocks go to another's while nobody formed the step again, and it gets others: as many
// as a rank resolved before.
START_TEST(blocks_that_were_taken_back_are_resolved_anew)
{
    struct world w;
    struct plm_batch b;
    const struct plm_sched_opts two = {
        .max_sequences = 2, .batch_max_tokens = 64, .prefill_chunk = 32, .max_context = 640};
    const uint32_t windows[] = {0, 20};
    world_create_windows(&w, 1, &two, 80, false, windows, 2);
    for (uint32_t i = 0; i < 2; i++)
        add_request(&w, i, 96, 100, 1, 0, false);
    plm_sched_form(w.sched, 0, NULL, &b);
    ck_assert_uint_eq(b.shape.rows, 64);
    resolve(&w, &b);
    plm_sched_abandon(w.sched);
    uint32_t held[64], n = 0;
    while ((held[n] = plm_kv_pool_alloc(w.kv.pools[1])) != PLM_KV_NO_BLOCK)
        ck_assert_uint_lt(++n, 64);
    ck_assert_uint_gt(n, 2);
    ck_assert_uint_eq(plm_windows_extend(w.sched, 1, 64), 64); // takes those of the first
    plm_kv_pool_release(w.kv.pools[1], held, n);
    plm_sched_form(w.sched, 0, NULL, &b);
    ck_assert_uint_eq(b.blocks[0].n[1], 2);
    resolve(&w, &b);
    plm_sched_commit(w.sched);
    for (uint32_t i = 0; i < 2; i++)
        end_seq(&w, &w.seqs[i], true);
    world_destroy(&w);
}
END_TEST

// The pool holds the windows of as many sequences as serving allows, whatever they do together.
START_TEST(all_sequences_fit_with_their_chunks)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 6, .batch_max_tokens = 70, .prefill_chunk = 48, .max_context = 320};
    const uint32_t windows[] = {0, 50, 100};
    world_create_windows(&w, 7 * 7, &opts, 6 * 20, false, windows, 3); // nothing cached
    ck_assert_uint_eq(w.pool_blocks[1], 6 * 6 + 5);
    for (uint32_t i = 0; i < 18; i++)
        add_request(&w, i, 20 + 15 * i, 30, 1, i, false);
    finish(&w);
    struct plm_sched_stats stats;
    plm_sched_read(w.sched, &stats);
    ck_assert_uint_eq(stats.preemptions, 0);
    world_destroy(&w);
}
END_TEST

// Without a full group: who enters has room for its window, and a pool of one window runs one after
// the other.
START_TEST(windows_alone_admit_by_windows)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 4, .batch_max_tokens = 64, .prefill_chunk = 64, .max_context = 640};
    const uint32_t windows[] = {64}, each = plm_kv_sequence_blocks(64, 640);
    ck_assert_uint_eq(each, 6);
    world_create_windows(&w, 1, &opts, (uint32_t)(_i + 1) * each + 4, false, windows, 1);
    for (uint32_t i = 0; i < 6; i++)
        add_request(&w, i, 300, 300, 1, i, false); // 38 blocks in a full group
    uint32_t most = 0;
    while (w.n_done < w.n_seqs) {
        struct plm_sched_stats stats;
        ck_assert(step(&w));
        plm_sched_read(w.sched, &stats);
        most = stats.running > most ? stats.running : most;
    }
    ck_assert_uint_eq(most, (uint32_t)_i + 1);
    world_destroy(&w);
}
END_TEST

START_TEST(a_window_larger_than_the_pool_is_told)
{
    struct world w;
    struct plm_batch batch;
    const uint32_t windows[] = {64};
    world_create_windows(&w, 1, &one, 6, false, windows, 1);
    add_request(&w, 0, 100, 2, 1, 0, false);
    plm_sched_form(w.sched, 0, NULL, &batch);
    ck_assert_uint_eq(batch.shape.rows, 0);
    ck_assert_ptr_eq(plm_sched_stuck(w.sched), &w.seqs[0].seq);
    end_seq(&w, &w.seqs[0], true);
    world_destroy(&w);
}
END_TEST

// ---- prefix hits ----

static uint32_t cached_of(struct world *w, uint32_t n_prompt, uint32_t max_output)
{
    const uint32_t i = w->n_seqs;
    add_request(w, 0, n_prompt, max_output, 1, 0, true);
    finish(w);
    return w->seqs[i].seq.n_cached;
}

// A hit needs all blocks of the full group, and the last window of the other one.
START_TEST(a_hit_needs_the_last_window)
{
    struct world w;
    const uint32_t windows[] = {0, 40};
    world_create_windows(&w, 6, &one, 60, true, windows, 2); // and 6 cached blocks
    ck_assert_uint_eq(cached_of(&w, 160, 2), 0);
    ck_assert_uint_eq(stats_of(&w, 0).cached, 10);
    const uint64_t rows = w.rows;
    ck_assert_uint_eq(cached_of(&w, 160, 2), 144);
    ck_assert_uint_eq(w.rows - rows, 16 + 1);
    // Where the window's blocks were given up, nothing is found, though the full group has it all.
    plm_kv_pool_drop_cached(w.kv.pools[1], UINT32_MAX);
    ck_assert_uint_eq(cached_of(&w, 160, 2), 0);
    ck_assert_uint_eq(cached_of(&w, 160, 2), 144);
    // And the other way round.
    plm_kv_pool_drop_cached(w.kv.pools[0], UINT32_MAX);
    ck_assert_uint_eq(cached_of(&w, 160, 2), 0);
    world_destroy(&w);
}
END_TEST

// Where the blocks of the last window are gone, an earlier window is taken that is there.
START_TEST(a_hit_ends_where_a_window_is_whole)
{
    struct world w;
    const uint32_t windows[] = {0, 40};
    world_create_windows(&w, 6, &one, 60, true, windows, 2);
    ck_assert_uint_eq(w.pool_blocks[1], plm_kv_sequence_blocks(40, 640) + 2 + 6);
    ck_assert_uint_eq(cached_of(&w, 160, 2), 0);
    // Of blocks 0 to 9 the first ones left the window first, and go first.
    const uint32_t there = stats_of(&w, 1).cached;
    ck_assert_uint_eq(there, 10);
    plm_kv_pool_drop_cached(w.kv.pools[1], 4); // 4 to 9 are left: a window ends behind 7, 8, 9
    ck_assert_uint_eq(cached_of(&w, 160, 2), 144);
    plm_kv_pool_drop_cached(w.kv.pools[1], UINT32_MAX);
    ck_assert_uint_eq(cached_of(&w, 96, 2), 0);
    // The window behind block 5 is known again, and none behind it.
    ck_assert_uint_eq(cached_of(&w, 160, 2), 96);
    world_destroy(&w);
}
END_TEST

// A model with windows alone hits, too, at a length of many windows.
START_TEST(windows_alone_hit)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 2, .batch_max_tokens = 64, .prefill_chunk = 64, .max_context = 640};
    const uint32_t windows[] = {32};
    world_create_windows(&w, 6, &opts, 24, true, windows, 1);
    ck_assert_uint_eq(cached_of(&w, 600, 4), 0);
    ck_assert_uint_eq(cached_of(&w, 600, 4), 592); // 37 blocks, of which 2 were needed
    ck_assert_uint_lt(stats_of(&w, 0).total, 600 / T);
    struct plm_prefix_stats p;
    plm_prefix_read(w.prefix, &p);
    ck_assert_uint_ge(p.nodes, 37);
    plm_kv_pool_drop_cached(w.pool, UINT32_MAX);
    plm_prefix_read(w.prefix, &p);
    ck_assert_uint_eq(p.nodes, 0); // none hangs on nothing
    ck_assert_uint_eq(cached_of(&w, 600, 4), 0);
    world_destroy(&w);
}
END_TEST

// One more node of a text, whose block is cached; returns it.
static uint32_t put_one(struct world *w, uint32_t node, uint32_t text, uint32_t i)
{
    int32_t tokens[T];
    for (uint32_t t = 0; t < T; t++)
        tokens[t] = (int32_t)(text * 1000000 + i * T + t);
    uint32_t block = plm_kv_pool_alloc(w->pool);
    node = plm_prefix_put(w->prefix, plm_prefix_root(w->prefix, NULL, 0), node, tokens, &block);
    plm_kv_pool_unref(w->pool, block);
    return node;
}

// Prefixes may be longer than the blocks that a window leaves of them. Where nodes are short, those
// go that hang on blocks which were used least recently; those of a sequence that runs stay.
START_TEST(nodes_that_are_short_are_made)
{
    struct world w;
    struct plm_prefix_stats p;
    const uint32_t windows[] = {16};
    world_create_windows(&w, 6, &one, 64, true, windows, 1); // 72 ids, and 40 nodes of a context
    uint32_t a = PLM_PREFIX_START, b = PLM_PREFIX_START;
    for (uint32_t i = 0; i < 60; i++)
        a = put_one(&w, a, 0, i);
    ck_assert_uint_eq(plm_kv_pool_drop_cached(w.pool, 59), 59); // the last block is left
    plm_prefix_drop(w.prefix, a);
    plm_prefix_read(w.prefix, &p);
    ck_assert_uint_eq(p.nodes, 60);
    for (uint32_t i = 0; i < 112; i++) {
        b = put_one(&w, b, 1, i);
        plm_prefix_read(w.prefix, &p);
        ck_assert_uint_eq(p.nodes, i < 52 ? 60 + i + 1 : i + 1);
        ck_assert_uint_ne(b, PLM_PREFIX_LOST);
    }
    ck_assert_uint_eq(put_one(&w, b, 1, 112), PLM_PREFIX_LOST); // its hold is gone with it
    plm_kv_pool_drop_cached(w.pool, UINT32_MAX);
    plm_prefix_read(w.prefix, &p);
    ck_assert_uint_eq(p.nodes, 0);
    world_destroy(&w);
}
END_TEST

// ---- forks ----

static const struct plm_sched_opts two = {
    .max_sequences = 2, .batch_max_tokens = 256, .prefill_chunk = 256, .max_context = 640};

// Forks that wait for a place, while their parent goes on for many windows, start from its prompt.
START_TEST(blocks_are_kept_for_forks)
{
    struct world w;
    const uint32_t windows[] = {0, 40};
    world_create_windows(&w, 6, &two, 160, false, windows, 2);
    add_request(&w, 0, 161, 300, 4, 0, false);
    while (w.seqs[0].seq.n_tokens < 300)
        ck_assert(step(&w));
    ck_assert_int_eq(w.seqs[1].seq.state, PLM_SEQ_RUNNING);
    ck_assert_uint_eq(w.seqs[0].seq.forks_to_enter, 2);
    // Two windows of those that run, and what the forks will want: blocks 7 to 9.
    ck_assert_uint_ge(stats_of(&w, 1).used, 3 + 3 + 3);
    end_seq(&w, &w.seqs[1], true);
    ck_assert(step(&w));
    ck_assert_int_eq(w.seqs[2].seq.state, PLM_SEQ_RUNNING);
    ck_assert_uint_eq(w.seqs[2].seq.n_cached, 160);
    ck_assert_uint_eq(w.seqs[0].seq.forks_to_enter, 1);
    finish(&w);
    ck_assert_uint_eq(w.seqs[3].seq.n_cached, 0); // its parent had ended
    world_destroy(&w);
}
END_TEST

START_TEST(kept_blocks_go_with_the_last_fork)
{
    struct world w;
    const uint32_t windows[] = {0, 40};
    world_create_windows(&w, 6, &two, 160, false, windows, 2);
    add_request(&w, 0, 161, 300, 3, 0, false);
    while (w.seqs[0].seq.n_tokens < 300)
        ck_assert(step(&w));
    const uint32_t used = stats_of(&w, 1).used;
    end_seq(&w, &w.seqs[2], true); // the only one that waits
    ck_assert_uint_eq(stats_of(&w, 1).used, used - 3);
    ck_assert_uint_eq(w.seqs[0].seq.forks_to_enter, 0);
    finish(&w);
    world_destroy(&w);
}
END_TEST

// What is kept gives way to those that run: the pool is as large as these need, and no more.
START_TEST(kept_blocks_give_way)
{
    struct world w;
    const uint32_t windows[] = {0, 200};
    const struct plm_sched_opts opts = {
        .max_sequences = 2, .batch_max_tokens = 16, .prefill_chunk = 16, .max_context = 640};
    world_create_windows(&w, 7, &opts, 160, false, windows, 2);
    add_request(&w, 0, 320, 240, 4, 0, false);
    while (w.seqs[0].seq.n_tokens < 540)
        ck_assert(step(&w));
    ck_assert_uint_eq(w.seqs[0].seq.forks_to_enter, 2);
    ck_assert_uint_lt(stats_of(&w, 1).total, 3 * plm_kv_window_blocks(200));
    finish(&w);
    world_destroy(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("windows");
    TCase *tc = tcase_create("windows");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, random_worlds_of_windows, 0, 200);
    tcase_add_loop_test(tc, a_sequence_holds_the_blocks_of_its_window, 0, 2);
    tcase_add_test(tc, a_step_in_flight_keeps_what_it_reads);
    tcase_add_test(tc, a_step_ahead_keeps_what_it_reads);
    tcase_add_test(tc, blocks_that_were_taken_back_are_resolved_anew);
    tcase_add_test(tc, all_sequences_fit_with_their_chunks);
    tcase_add_loop_test(tc, windows_alone_admit_by_windows, 0, 3);
    tcase_add_test(tc, a_window_larger_than_the_pool_is_told);
    tcase_add_test(tc, a_hit_needs_the_last_window);
    tcase_add_test(tc, a_hit_ends_where_a_window_is_whole);
    tcase_add_test(tc, windows_alone_hit);
    tcase_add_test(tc, nodes_that_are_short_are_made);
    tcase_add_test(tc, blocks_are_kept_for_forks);
    tcase_add_test(tc, kept_blocks_go_with_the_last_fork);
    tcase_add_test(tc, kept_blocks_give_way);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
