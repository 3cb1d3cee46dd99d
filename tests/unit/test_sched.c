// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tests/unit/sched_world.h"

START_TEST(random_worlds)
{
    struct world w;
    const uint64_t seed = 1000 + (uint64_t)_i;
    w.seed = seed;
    w.draws = 0;
    const uint32_t ctx = 16 * (2 + draw(&w, 10)), seqs = 1 + draw(&w, 10);
    const struct plm_sched_opts opts = {.max_sequences = seqs,
                                        .batch_max_tokens = seqs + draw(&w, 60),
                                        .prefill_chunk = 1 + draw(&w, 40),
                                        .max_context = ctx};
    const uint32_t blocks = ctx / 16 + draw(&w, 2 * ctx / 16 * seqs);
    const bool prefix = draw(&w, 4) != 0, disturbed = _i % 2 == 0;
    uint64_t draws = w.draws;
    world_create(&w, seed, &opts, blocks, prefix);
    w.draws = draws;
    admitted_calls = 0;
    run_random(&w, 10 + draw(&w, 40), blocks, ctx / 16, prefix, disturbed);
    struct plm_kv_pool_stats pool;
    struct plm_sched_stats stats;
    plm_kv_pool_read(w.pool, &pool);
    plm_sched_read(w.sched, &stats);
    ck_assert_uint_eq(pool.used, 0);
    ck_assert_uint_eq(stats.running + stats.queued + stats.paused + stats.forks, 0);
    ck_assert_uint_le(admitted_calls, w.n_seqs);
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

// Long prompts in small chunks beside others that decode, in a pool that holds one and a half of
// them: what is computed again is lost work, and others grow meanwhile.
START_TEST(long_prompts_do_not_thrash)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 8, .batch_max_tokens = 16, .prefill_chunk = 8, .max_context = 512};
    world_create(&w, 77 + (uint64_t)_i, &opts, 32 + 4 * (uint32_t)_i, false);
    uint64_t needed = 0;
    for (uint32_t i = 0; i < 12; i++) {
        add_request(&w, i, 150 + 20 * i, 60, 1, i, false);
        needed += 150 + 20 * i + 60;
    }
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    check_hysteresis(&w);
    ck_assert_uint_le(w.rows, 2 * needed);
    world_destroy(&w);
}
END_TEST

// When a sequence came back, and beside how many.
struct comeback {
    bool running;
    uint32_t preemptions, beside;
    uint64_t tokens; // that had come out
};

// Whoever comes back after k preemptions finds 2^k blocks for itself and each that runs. The first
// block of each may be wanted at once, every other one takes 16 tokens; those that enter later are
// thrown out before it.
static void check_comebacks(const struct world *w, struct comeback *was, uint64_t tokens)
{
    for (uint32_t i = 0; i < w->n_seqs; i++) {
        const struct plm_seq *seq = &w->seqs[i].seq;
        const bool running = seq->state == PLM_SEQ_RUNNING;
        const uint32_t k = was[i].preemptions;
        if (seq->preemptions > k && k > 0 &&
            tokens - was[i].tokens < (uint64_t)16 * (was[i].beside + 1) * ((1u << k) - 1))
            ck_abort_msg("preempted for the %uth time %llu tokens after it came back beside %u",
                         seq->preemptions, (unsigned long long)(tokens - was[i].tokens),
                         was[i].beside);
        if (running && (!was[i].running || seq->preemptions > k)) {
            was[i].beside = 0;
            for (uint32_t j = 0; j < i; j++)
                was[i].beside += w->seqs[j].seq.state == PLM_SEQ_RUNNING;
            was[i].tokens = tokens;
        }
        was[i].running = running;
        was[i].preemptions = seq->preemptions;
    }
}

// Many that end one by one: each end leaves room for the youngest to come back, and to be thrown
// out again by those that grow.
START_TEST(who_comes_back_stays)
{
    struct world w;
    struct comeback was[48] = {{0}};
    const struct plm_sched_opts opts = {
        .max_sequences = 32, .batch_max_tokens = 64, .prefill_chunk = 32, .max_context = 512};
    world_create(&w, 900 + (uint64_t)_i, &opts, 64, false);
    for (uint32_t i = 0; i < 48; i++)
        add_request(&w, i, 1 + draw(&w, 30), 30 + draw(&w, 300), 1, i, false);
    while (w.n_done < w.n_seqs) {
        const uint64_t tokens = w.tokens;
        ck_assert(step(&w));
        check_comebacks(&w, was, tokens);
    }
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

// ---- shares ----

static const struct plm_sched_opts eight = {
    .max_sequences = 8, .batch_max_tokens = 64, .prefill_chunk = 64, .max_context = 512};

static uint64_t yields_of(const struct world *w)
{
    struct plm_sched_stats stats;
    plm_sched_read(w->sched, &stats);
    return stats.yields;
}

// Steps until the request that was added last is over.
static uint32_t steps_to_end(struct world *w)
{
    const struct sim_seq *last = &w->seqs[w->n_seqs - 1];
    uint32_t n = 0;
    for (; !last->done; n++)
        ck_assert(step(w));
    return n;
}

// All sequences are choices of one request, with or without others of it that wait; and of one
// tenant, whose requests are many.
START_TEST(nobody_waits_for_all_choices_of_another)
{
    struct world w;
    world_create(&w, 11, &eight, 8 * 32, _i % 2 == 0);
    if (_i < 4)
        add_request(&w, 0, 40, 200, _i < 2 ? 8 : 20, 0, true);
    for (uint32_t i = 0; _i >= 4 && i < 20; i++)
        add_request(&w, i, 40, 200, 1, 0, true);
    for (uint32_t i = 0; i < 20; i++)
        ck_assert(step(&w));
    const struct sim_seq *first = &w.seqs[0];
    add_request(&w, 30, 20, 2, 1, 1, true);
    ck_assert_uint_le(steps_to_end(&w), 3); // its prompt, and its two tokens
    ck_assert_uint_eq(yields_of(&w), 1);
    if (_i < 4) { // the same for a request of the same tenant
        add_request(&w, 31, 20, 2, 1, 0, true);
        ck_assert_uint_le(steps_to_end(&w), 4);
    }
    ck_assert_uint_le(yields_of(&w), 2);
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    ck_assert_uint_eq(first->seq.yields, 0);
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

// Blocks are shared, too: the pool is full of one request's choices.
START_TEST(a_small_request_gets_blocks_of_a_large_one)
{
    struct world w;
    world_create(&w, 12, &eight, 40, false);
    add_request(&w, 0, 33, 100, 7, 0, false); // 2 blocks, and 7 times as many as fit
    while (w.n_seqs > 0 && w.seqs[0].seq.n_tokens < 95)
        ck_assert(step(&w));
    add_request(&w, 1, 10, 2, 1, 0, false);
    ck_assert_uint_le(steps_to_end(&w), 4);
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

// A short request comes in every second step and for ever, each of a tenant of its own or all of
// one, beside a request of 8 long choices: they all end, about as soon as their share says, and
// what is computed again for them is little.
START_TEST(a_stream_of_others_starves_nobody)
{
    struct world w;
    world_create(&w, 13, &eight, 8 * 32, false);
    add_request(&w, 0, 100, 60, 8, 0, false);
    uint32_t ended = 0, request = 1, steps = 0;
    uint64_t needed = 100 + 8 * 60, sixteen = 0;
    while (ended < 8) {
        if (steps % 2 == 0 && w.n_seqs < SEQS_MAX) {
            const uint32_t tenant = _i == 0 ? 0 : _i == 1 ? 1 : request;
            add_request(&w, request++, 10, 12, 1, tenant, false);
            needed += 22;
        }
        ck_assert(step(&w));
        steps++;
        ended = 0;
        for (uint32_t i = 0; i < 8; i++)
            ended += w.seqs[i].done;
        sixteen += w.seqs[0].seq.yields;
    }
    ck_assert_uint_eq(sixteen, 0); // the oldest never gave way
    ck_assert_uint_le(steps, 8 * 60 + 200);
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    ck_assert_uint_le(w.rows, 2 * needed);
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

// Two requests of many choices share the places evenly, whoever came first.
START_TEST(two_of_many_choices_share)
{
    struct world w;
    world_create(&w, 14, &eight, 8 * 32, false);
    add_request(&w, 0, 16, 60, 30, 0, false);
    for (uint32_t i = 0; i < 10; i++)
        ck_assert(step(&w));
    add_request(&w, 1, 16, 60, 30, _i, false);
    uint32_t n[2] = {0}, done[2] = {0};
    while (done[0] < 30 && done[1] < 30) {
        ck_assert(step(&w));
        memset(n, 0, sizeof(n));
        memset(done, 0, sizeof(done));
        for (uint32_t i = 0; i < w.n_seqs; i++) {
            n[i / 30] += w.seqs[i].seq.state == PLM_SEQ_RUNNING;
            done[i / 30] += w.seqs[i].done;
        }
        if (n[0] + n[1] == 8 && done[0] > 10 && done[0] < 25 && done[1] < 20)
            ck_assert_msg(n[0] >= 3 && n[1] >= 3, "%u and %u run", n[0], n[1]);
    }
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

START_TEST(a_small_pool_preempts_the_youngest_and_all_finish)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 4, .batch_max_tokens = 64, .prefill_chunk = 64, .max_context = 128};
    world_create(&w, 5, &opts, 10, false);
    for (uint32_t i = 0; i < 4; i++)
        add_request(&w, i, 16, 100, 1, i, false);
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    ck_assert_uint_eq(w.seqs[0].seq.preemptions, 0);
    ck_assert_uint_gt(w.seqs[3].seq.preemptions, 0);
    struct plm_sched_stats stats;
    plm_sched_read(w.sched, &stats);
    ck_assert_uint_gt(stats.preemptions, 0);
    // Hysteresis: whoever comes back stays for a while.
    ck_assert_uint_le(stats.preemptions, 12);
    world_destroy(&w);
}
END_TEST

START_TEST(choices_share_the_prompt)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 8, .batch_max_tokens = 256, .prefill_chunk = 256, .max_context = 256};
    world_create(&w, 5, &opts, 128, false);
    add_request(&w, 0, 161, 4, 8, 0, false);
    ck_assert(step(&w)); // the parent's prompt
    ck_assert_uint_eq(w.rows, 161);
    ck_assert(step(&w)); // its next token, and the last token of the prompt for seven others
    ck_assert_uint_eq(w.rows, 161 + 1 + 7);
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(w.pool, &pool);
    ck_assert_uint_eq(pool.used, 10 + 8);
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    world_destroy(&w);
}
END_TEST

START_TEST(a_prefix_hit_skips_rows)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 2, .batch_max_tokens = 256, .prefill_chunk = 256, .max_context = 256};
    world_create(&w, 5, &opts, 64, true);
    add_request(&w, 0, 160, 2, 1, 0, true);
    while (w.n_done < 1)
        ck_assert(step(&w));
    uint64_t rows = w.rows;
    add_request(&w, 0, 160, 2, 1, 0, true);
    while (w.n_done < 2)
        ck_assert(step(&w));
    ck_assert_uint_eq(w.seqs[1].seq.n_cached, 144); // never the block of the last token
    ck_assert_uint_eq(w.rows - rows, 16 + 1);
    rows = w.rows;
    add_request(&w, 0, 160, 2, 1, 1, true); // another salt
    while (w.n_done < 3)
        ck_assert(step(&w));
    ck_assert_uint_eq(w.rows - rows, 160 + 1);
    rows = w.rows;
    add_request(&w, 0, 160, 2, 1, 0, false); // does not want the cache
    while (w.n_done < 4)
        ck_assert(step(&w));
    ck_assert_uint_eq(w.rows - rows, 160 + 1);
    world_destroy(&w);
}
END_TEST

START_TEST(a_request_larger_than_the_pool_is_told)
{
    struct world w;
    struct plm_batch batch;
    const struct plm_sched_opts opts = {
        .max_sequences = 2, .batch_max_tokens = 64, .prefill_chunk = 64, .max_context = 256};
    world_create(&w, 5, &opts, 4, false);
    add_request(&w, 0, 100, 2, 1, 0, false);
    plm_sched_form(w.sched, 0, NULL, &batch);
    ck_assert_ptr_eq(plm_sched_stuck(w.sched), &w.seqs[0].seq);
    end_seq(&w, &w.seqs[0], true);
    add_request(&w, 1, 60, 40, 1, 0, false); // fits at first
    for (;;) {
        plm_sched_form(w.sched, 0, NULL, &batch);
        if (plm_sched_stuck(w.sched) != NULL)
            break;
        run(&w, &batch);
    }
    ck_assert_uint_eq(w.seqs[1].seq.n_tokens, 65);
    end_seq(&w, &w.seqs[1], true);
    world_destroy(&w);
}
END_TEST

START_TEST(creation_survives_every_failed_allocation)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 2, .batch_max_tokens = 64, .prefill_chunk = 64, .max_context = 256};
    world_create(&w, 5, &opts, 4, false);
    for (uint64_t n = 1;; n++) {
        struct plm_sched *s = NULL;
        plm_host_fail_nth(w.host, n, 0);
        int r = plm_sched_create(w.host, &opts, &w.kv, NULL, &s);
        plm_host_fail_nth(w.host, 0, 0);
        if (r == PLM_OK) {
            plm_sched_destroy(s);
            ck_assert_uint_gt(n, 5);
            break;
        }
        ck_assert_int_eq(r, PLM_ERR_NOMEM_HOST);
        ck_assert_ptr_null(s);
    }
    world_destroy(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched");
    TCase *tc = tcase_create("sched");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, random_worlds, 0, 200);
    tcase_add_test(tc, a_small_pool_preempts_the_youngest_and_all_finish);
    tcase_add_loop_test(tc, long_prompts_do_not_thrash, 0, 8);
    tcase_add_loop_test(tc, who_comes_back_stays, 0, 16);
    tcase_add_loop_test(tc, nobody_waits_for_all_choices_of_another, 0, 6);
    tcase_add_test(tc, a_small_request_gets_blocks_of_a_large_one);
    tcase_add_loop_test(tc, a_stream_of_others_starves_nobody, 0, 3);
    tcase_add_loop_test(tc, two_of_many_choices_share, 0, 2);
    tcase_add_test(tc, choices_share_the_prompt);
    tcase_add_test(tc, a_prefix_hit_skips_rows);
    tcase_add_test(tc, a_request_larger_than_the_pool_is_told);
    tcase_add_test(tc, creation_survives_every_failed_allocation);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
