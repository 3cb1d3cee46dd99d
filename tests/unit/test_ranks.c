// SPDX-License-Identifier: Apache-2.0
// Several ranks in one process: each a thread with a device of its own, which meet where they take
// the smallest of their values. Whatever happens to one, all end alike, and none waits for ever.
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "tests/support/suite.h"
#include "tests/unit/profile_world.h"

#define RANKS_MAX 8

// A barrier that takes the minimum, and lets those go who wait for one that is gone.
struct group {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int n, arrived;
    uint64_t round;
    int64_t least, result;
    bool gone;
};

struct rank {
    struct world w;
    struct plm_profile_opts opts;
    struct plm_profile p;
    struct plm_error err;
    struct group *group;
    pthread_t thread;
    int status;
    uint32_t votes;
    uint32_t leave_at; // ends without a word at this vote; 0: never
    bool left;
};

static int64_t vote(void *ctx, int64_t value)
{
    struct rank *rank = ((struct world *)ctx)->rank;
    struct group *g = rank->group;
    rank->votes++;
    pthread_mutex_lock(&g->lock);
    if (rank->votes == rank->leave_at) {
        g->gone = rank->left = true;
        pthread_cond_broadcast(&g->cond);
    }
    if (g->gone) {
        pthread_mutex_unlock(&g->lock);
        return PLM_RANK_GONE;
    }
    if (g->arrived == 0 || value < g->least)
        g->least = value;
    const uint64_t round = g->round;
    if (++g->arrived == g->n) {
        g->result = g->least;
        g->arrived = 0;
        g->round++;
        pthread_cond_broadcast(&g->cond);
    }
    while (g->round == round && !g->gone)
        pthread_cond_wait(&g->cond, &g->lock);
    const int64_t result = g->round != round ? g->result : PLM_RANK_GONE;
    pthread_mutex_unlock(&g->lock);
    return result;
}

static void *run_rank(void *arg)
{
    struct rank *rank = arg;
    rank->status = world_start(&rank->w, rank->opts, &rank->p, &rank->err);
    return NULL;
}

static void make(struct rank *ranks, int n)
{
    memset(ranks, 0, (size_t)n * sizeof(*ranks));
    for (int i = 0; i < n; i++) {
        ranks[i].w = world_plain();
        ranks[i].opts = world_options();
        ranks[i].w.foreign += i * 100 * MIB; // unequal
    }
}

// Runs them and checks that they end alike: the same number of votes, and one size and one set of
// limits, or none. Returns whether they are ready.
static bool meet(struct rank *ranks, int n)
{
    struct group group = {.n = n};
    pthread_mutex_init(&group.lock, NULL);
    pthread_cond_init(&group.cond, NULL);
    for (int i = 0; i < n; i++) {
        ranks[i].group = &group;
        ranks[i].w.rank = &ranks[i];
        ranks[i].w.min_of_ranks = vote;
        ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int i = 1; i < n; i++) {
        ck_assert_msg((ranks[i].status == PLM_OK) == (ranks[0].status == PLM_OK),
                      "rank %d: %s; rank 0: %s", i, ranks[i].err.msg, ranks[0].err.msg);
        if (!group.gone)
            ck_assert_uint_eq(ranks[i].votes, ranks[0].votes);
        if (ranks[0].status != PLM_OK)
            continue;
        ck_assert_int_eq(ranks[i].p.plan.blocks, ranks[0].p.plan.blocks);
        ck_assert_int_eq(memcmp(&ranks[i].w.limits, &ranks[0].w.limits, sizeof(ranks[0].w.limits)),
                         0);
        ck_assert_uint_eq(ranks[i].p.attempts, ranks[0].p.attempts);
    }
    pthread_mutex_destroy(&group.lock);
    pthread_cond_destroy(&group.cond);
    return ranks[0].status == PLM_OK;
}

static int64_t blocks_alone(const struct rank *rank)
{
    struct world w = rank->w;
    struct plm_profile p;
    struct plm_error err;
    w.min_of_ranks = NULL;
    ck_assert_int_eq(world_start(&w, rank->opts, &p, &err), PLM_OK);
    return p.plan.blocks;
}

START_TEST(unequal_devices_end_with_the_smallest_size)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        struct rank ranks[RANKS_MAX];
        make(ranks, n);
        const int64_t least = blocks_alone(&ranks[n - 1]);
        ck_assert_int_lt(least, blocks_alone(&ranks[0]));
        ck_assert(meet(ranks, n));
        ck_assert_int_eq(ranks[0].p.plan.blocks, least);
        ck_assert_int_eq(ranks[0].p.plan.blocks_bind, PLM_TERM_RANKS);
        ck_assert_int_eq(ranks[n - 1].p.plan.blocks_bind, PLM_TERM_BUDGET);
        // The mutation of this term: what the smallest lacks, all lack; what a larger one lacks,
        // none does.
        make(ranks, n);
        ranks[n - 1].w.foreign += 7 * MIB;
        ck_assert(meet(ranks, n));
        ck_assert_int_eq(ranks[0].p.plan.blocks, least - 7);
        make(ranks, n);
        ranks[0].w.foreign += 7 * MIB;
        ck_assert(meet(ranks, n));
        ck_assert_int_eq(ranks[0].p.plan.blocks, least);
    }
}
END_TEST

START_TEST(a_shorter_context_of_one_is_that_of_all)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        struct rank ranks[RANKS_MAX];
        make(ranks, n);
        ranks[n / 2].w.total = 8 * GIB;
        ck_assert(meet(ranks, n));
        for (int i = 0; i < n; i++)
            ck_assert(ranks[i].p.context_lowered);
    }
}
END_TEST

START_TEST(a_failed_validation_of_one_shrinks_all)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        for (uint32_t fails = 1; fails <= 3; fails++) {
            struct rank ranks[RANKS_MAX];
            make(ranks, n);
            ranks[1].w.fail_validations = fails;
            ck_assert(meet(ranks, n));
            ck_assert_uint_eq(ranks[0].p.attempts, fails + 1);
            ck_assert_int_eq(ranks[0].p.plan.blocks_bind, PLM_TERM_SHRINK);
        }
    }
}
END_TEST

START_TEST(a_lost_device_is_reopened_while_the_others_wait)
{
    for (int n = 2; n <= RANKS_MAX; n += 3) {
        for (uint32_t nth = 1; nth <= 13; nth++) {
            struct rank ranks[RANKS_MAX];
            make(ranks, n);
            ranks[n - 1].w.fail_call_kind = CALL_RUN;
            ranks[n - 1].w.fail_nth = nth;
            ranks[n - 1].w.fail_status = PLM_ERR_LOST;
            ck_assert(meet(ranks, n));
            for (int i = 0; i < n; i++)
                ck_assert_uint_eq(ranks[i].w.calls[CALL_REOPEN], i == n - 1);
        }
    }
}
END_TEST

START_TEST(a_pinned_size_is_kept_on_all_or_fails_on_all)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        struct rank ranks[RANKS_MAX];
        for (int small = 0; small < 2; small++) {
            make(ranks, n);
            for (int i = 0; i < n; i++) {
                ranks[i].opts.in.limits.max_context = 4096;
                ranks[i].opts.in.pinned_tokens = 16 * 1000;
            }
            if (small)
                ranks[1].w.total = 6 * GIB;
            ck_assert_int_eq(meet(ranks, n), !small);
            for (int i = 0; i < n && !small; i++)
                ck_assert_int_eq(ranks[i].p.plan.blocks, 1000);
            if (small)
                ck_assert_ptr_nonnull(strstr(ranks[1].err.msg, "max_total_tokens does not fit"));
        }
    }
}
END_TEST

// Every call of one rank fails once, in every way: all end, and alike.
START_TEST(whatever_fails_on_one_ends_alike_on_all)
{
    static const int codes[] = {PLM_ERR_OUT_OF_DEVICE, PLM_ERR_LOST, PLM_ERR_NOMEM_HOST};
    int ready = 0, failed = 0;
    for (int call = 0; call < CALLS; call++) {
        for (size_t c = 0; c < sizeof(codes) / sizeof(*codes); c++) {
            for (uint32_t nth = 1; nth < 40; nth++) {
                struct rank ranks[2];
                make(ranks, 2);
                ranks[1].w.fail_call_kind = call;
                ranks[1].w.fail_nth = nth;
                ranks[1].w.fail_status = codes[c];
                ranks[1].w.encoders = ranks[1].w.graphs = true; // not on the other rank
                bool ok = meet(ranks, 2);
                ready += ok;
                failed += !ok;
                if (ranks[1].w.calls[call] < nth)
                    break;
            }
        }
    }
    ck_assert_int_gt(ready, 100);
    ck_assert_int_gt(failed, 30);
}
END_TEST

START_TEST(a_rank_that_is_gone_ends_all)
{
    struct rank ranks[3];
    make(ranks, 3);
    ck_assert(meet(ranks, 3));
    const uint32_t votes = ranks[0].votes;
    for (uint32_t at = 1; at <= votes; at++) {
        make(ranks, 3);
        ranks[1].leave_at = at;
        ck_assert(!meet(ranks, 3));
        ck_assert_int_eq(ranks[0].status, PLM_ERR_LOST);
        ck_assert_str_eq(ranks[0].err.msg, "another rank is gone");
        ck_assert_int_eq(ranks[2].status, PLM_ERR_LOST);
    }
}
END_TEST

START_TEST(random_groups_end_alike)
{
    int ready = 0, failed = 0;
    for (uint32_t i = 0; i < 300; i++) {
        struct rank ranks[RANKS_MAX];
        uint32_t r[8], key[2] = {5, 6};
        plm_philox4x32((uint32_t[4]){i, 99, 0, 0}, key, r);
        const int n = 2 + (int)(r[0] % (RANKS_MAX - 1));
        const uint32_t context = 16 + r[1] % 40000, sequences = 1 + r[2] % 80;
        make(ranks, n);
        for (int k = 0; k < n; k++) {
            plm_philox4x32((uint32_t[4]){i, (uint32_t)k, 0, 0}, key, r);
            plm_philox4x32((uint32_t[4]){i, (uint32_t)k, 1, 0}, key, r + 4);
            struct world *w = &ranks[k].w;
            w->total = (int64_t)(r[0] % 9000 + 5000) * MIB;
            w->foreign = (int64_t)(r[1] % 500) * MIB;
            w->lazy = (int64_t)(r[2] % 30) * MIB;
            w->hidden = (int64_t)(r[3] % 4 ? 0 : r[3] % 500) * MIB;
            w->process_use = r[4] % 2;
            w->fail_validations = r[5] % 6 ? 0 : r[5] % 5;
            w->noise = (int64_t)(r[6] % 5 ? 0 : r[6] % 40) * MIB;
            w->late_foreign = (int64_t)(r[7] % 4 ? 0 : r[7] % 500) * MIB;
            ranks[k].opts.in.limits.max_context = context;
            ranks[k].opts.in.limits.max_sequences = sequences;
        }
        bool ok = meet(ranks, n);
        ready += ok;
        failed += !ok;
    }
    ck_assert_int_gt(ready, 50);
    ck_assert_int_gt(failed, 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60); // a rank that hangs ends here
    tcase_add_test(tc, unequal_devices_end_with_the_smallest_size);
    tcase_add_test(tc, a_shorter_context_of_one_is_that_of_all);
    tcase_add_test(tc, a_failed_validation_of_one_shrinks_all);
    tcase_add_test(tc, a_lost_device_is_reopened_while_the_others_wait);
    tcase_add_test(tc, a_pinned_size_is_kept_on_all_or_fails_on_all);
    tcase_add_test(tc, whatever_fails_on_one_ends_alike_on_all);
    tcase_add_test(tc, a_rank_that_is_gone_ends_all);
    tcase_add_test(tc, random_groups_end_alike);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
