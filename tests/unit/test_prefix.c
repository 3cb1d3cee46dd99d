// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "core/kv/prefix.h"
#include "tests/support/fake_backend.h"
#include "tests/support/suite.h"

#define NONE PLM_KV_NO_BLOCK
#define T    PLM_KV_BLOCK_TOKENS
#define LEN  (64 * T)

static struct plm_host *host;
static struct plm_device *device;
static struct plm_ledger *ledger;
static struct plm_kv_pool *pool;
static struct plm_prefix *prefix;
static struct fake_world world;
static struct plm_prefix_root root;

static void setup(void)
{
    host = plm_host_create(0);
    world = (struct fake_world){.capacity_bytes = 1 << 24, .no_memory = true};
    device = fake_open(host, &world);
    ledger = plm_ledger_create(host);
    ck_assert_int_eq(plm_kv_pool_create(host, device, ledger, 256, true, &pool), PLM_OK);
    const struct plm_kv_set kv = {.n_groups = 1, .pools = {pool}};
    ck_assert_int_eq(plm_prefix_create(host, &kv, 42, 0, &prefix), PLM_OK);
    ck_assert_int_eq(plm_kv_pool_format(pool, 8, 64), PLM_OK);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 64, NULL), PLM_OK);
    root = plm_prefix_root(prefix, NULL, 0);
}

static void teardown(void)
{
    plm_prefix_destroy(prefix);
    plm_kv_pool_destroy(pool);
    plm_ledger_destroy(ledger);
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

struct seq {
    uint32_t blocks[LEN / T];
    uint32_t n;
    uint32_t hits;
    uint32_t node;
};

static uint32_t take(struct plm_prefix_root r, const int32_t *tokens, uint32_t n, struct seq *seq,
                     uint32_t cap)
{
    uint32_t *const blocks[] = {seq->blocks};
    return plm_prefix_take(prefix, r, tokens, n, blocks, cap, &seq->node);
}

static void end(struct seq *seq)
{
    plm_kv_pool_release(pool, seq->blocks, seq->n);
    plm_prefix_drop(prefix, seq->node);
    seq->n = 0;
}

// What the engine does with a prompt: takes the hits, allocates the rest, puts full blocks.
static bool run(struct plm_prefix_root r, const int32_t *tokens, uint32_t n, struct seq *seq)
{
    seq->hits = seq->n = take(r, tokens, n, seq, LEN / T);
    while (seq->n * T < n) {
        uint32_t id = plm_kv_pool_alloc(pool);
        if (id == NONE)
            return false;
        if ((seq->n + 1) * T <= n)
            seq->node = plm_prefix_put(prefix, r, seq->node, tokens + seq->n * T, &id);
        seq->blocks[seq->n++] = id;
    }
    return true;
}

static void count_up(int32_t *tokens, int n, int from)
{
    for (int i = 0; i < n; i++)
        tokens[i] = from + i;
}

START_TEST(the_last_token_is_always_computed)
{
    int32_t tokens[LEN];
    struct seq a, b;
    count_up(tokens, LEN, 0);
    ck_assert(run(root, tokens, 4 * T, &a));
    ck_assert_uint_eq(a.hits, 0);
    end(&a);
    for (uint32_t n = 0; n < 6 * T; n++) {
        uint32_t want = n == 0 ? 0 : (n - 1) / T < 4 ? (n - 1) / T : 4;
        uint32_t used;
        ck_assert_uint_eq(plm_prefix_peek(prefix, root, tokens, n, &used), want);
        ck_assert_uint_eq(used, 0);
        b.n = take(root, tokens, n, &b, 100);
        ck_assert_uint_eq(b.n, want);
        ck_assert_int_eq(memcmp(a.blocks, b.blocks, b.n * sizeof(uint32_t)), 0);
        plm_prefix_peek(prefix, root, tokens, n, &used);
        ck_assert_uint_eq(used, want);
        end(&b);
    }
    ck_assert_uint_eq(b.n = take(root, tokens, 4 * T, &b, 2), 2);
    end(&b);
}
END_TEST

START_TEST(salts_and_tags_share_nothing)
{
    int32_t tokens[LEN];
    struct seq a, b;
    count_up(tokens, LEN, 0);
    struct plm_prefix_extra salt = {PLM_PREFIX_SALT, "ab", 2};
    struct plm_prefix_extra owner = {PLM_PREFIX_OWNER, "ab", 2};
    struct plm_prefix_extra split[2] = {{PLM_PREFIX_SALT, "a", 1}, {PLM_PREFIX_SALT, "b", 1}};
    struct plm_prefix_root roots[4] = {root, plm_prefix_root(prefix, &salt, 1),
                                       plm_prefix_root(prefix, &owner, 1),
                                       plm_prefix_root(prefix, split, 2)};
    for (int i = 0; i < 4; i++) {
        ck_assert(run(roots[i], tokens, 3 * T, &a));
        ck_assert_uint_eq(a.hits, 0);
        ck_assert(run(roots[i], tokens, 3 * T, &b));
        ck_assert_uint_eq(b.hits, 2);
        // The third block became the known one.
        ck_assert_uint_eq(a.blocks[2], b.blocks[2]);
        end(&a);
        end(&b);
    }
}
END_TEST

START_TEST(a_block_counts_after_its_own_prefix_only)
{
    int32_t tokens[3 * T], other[3 * T];
    struct seq a, b;
    count_up(tokens, 3 * T, 0);
    count_up(other, 3 * T, 0);
    other[0] = 999;
    ck_assert(run(root, tokens, 3 * T, &a));
    ck_assert(run(root, other, 3 * T, &b));
    ck_assert_uint_eq(b.hits, 0);
    ck_assert_uint_ne(a.blocks[1], b.blocks[1]);
    end(&a);
    end(&b);
}
END_TEST

// With colliding keys tokens and parent decide. A collision can not be made; but what follows a
// prefix that was forgotten keeps its key, which the same text gets again.
START_TEST(equal_keys_are_not_enough)
{
    int32_t tokens[4 * T];
    struct seq a, b;
    struct plm_prefix_stats s;
    count_up(tokens, 4 * T, 0);
    ck_assert(run(root, tokens, 2 * T, &a));
    ck_assert(run(root, tokens, 4 * T, &b));
    ck_assert_uint_eq(b.hits, 2);
    ck_assert_uint_eq(a.node, plm_prefix_hold(prefix, 0, b.blocks[1]));
    plm_prefix_drop(prefix, a.node);
    plm_prefix_forget(prefix, a.node); // two blocks, before the other two
    end(&a);
    ck_assert(run(root, tokens, 2 * T, &a)); // the same text, in other nodes
    ck_assert_uint_eq(a.hits, 0);
    ck_assert_uint_eq(plm_prefix_peek(prefix, root, tokens, 4 * T, NULL), 2);
    plm_prefix_read(prefix, &s);
    ck_assert_uint_eq(s.false_hits, 0);
    ck_assert_uint_eq(take(root, tokens, 4 * T, &b, 4), 2);
    plm_prefix_read(prefix, &s);
    ck_assert_uint_eq(s.false_hits, 1);
    b.n = 2;
    end(&b);
    end(&a);
}
END_TEST

// A prefix is its tokens: where the block in the middle went and comes again, what follows is
// found.
START_TEST(a_block_that_comes_again_joins_its_prefix)
{
    int32_t tokens[4 * T];
    struct seq a, b;
    count_up(tokens, 4 * T, 0);
    ck_assert(run(root, tokens, 4 * T, &a));
    plm_prefix_drop(prefix, a.node);
    // Unreferenced in the wrong order, the second leaves first.
    plm_kv_pool_unref(pool, a.blocks[1]);
    plm_kv_pool_unref(pool, a.blocks[0]);
    plm_kv_pool_unref(pool, a.blocks[2]);
    plm_kv_pool_unref(pool, a.blocks[3]);
    ck_assert_uint_eq(plm_kv_pool_drop_cached(pool, 1), 1);
    ck_assert_uint_eq(plm_prefix_peek(prefix, root, tokens, 4 * T, NULL), 1);
    ck_assert(run(root, tokens, 2 * T + 1, &b));
    ck_assert_uint_eq(b.hits, 1);
    ck_assert_uint_eq(plm_prefix_peek(prefix, root, tokens, 4 * T, NULL), 3);
    end(&b);
}
END_TEST

START_TEST(unknown_parents_make_unknown_blocks)
{
    int32_t tokens[2 * T];
    count_up(tokens, 2 * T, 0);
    uint32_t b = plm_kv_pool_alloc(pool), was = b;
    ck_assert_uint_eq(plm_prefix_put(prefix, root, PLM_PREFIX_LOST, tokens + T, &b),
                      PLM_PREFIX_LOST);
    ck_assert_uint_eq(b, was);
    plm_kv_pool_unref(pool, b);
    struct plm_kv_pool_stats s;
    plm_kv_pool_read(pool, &s);
    ck_assert_uint_eq(s.cached, 0);
    ck_assert_uint_eq(s.free, s.total);
}
END_TEST

// What is forgotten while it is used, and all that follows it, is not found again; it is free at
// its end, not cached, and the same text can be put anew.
START_TEST(forgotten_blocks_are_not_found)
{
    int32_t tokens[4 * T];
    struct seq a, b, c;
    struct plm_kv_pool_stats s;
    count_up(tokens, 4 * T, 0);
    ck_assert(run(root, tokens, 2 * T, &a));
    ck_assert(run(root, tokens, 4 * T, &b));
    ck_assert_uint_eq(plm_prefix_peek(prefix, root, tokens, 4 * T, NULL), 3);
    plm_prefix_forget(prefix, a.node);
    plm_prefix_forget(prefix, a.node); // no more than once
    ck_assert_uint_eq(plm_prefix_peek(prefix, root, tokens, 4 * T, NULL), 0);
    ck_assert_uint_eq(
        plm_prefix_put(prefix, root, a.node, tokens + 2 * T, &(uint32_t){b.blocks[2]}),
        PLM_PREFIX_LOST); // nothing is known behind it
    a.node = PLM_PREFIX_LOST;
    ck_assert(run(root, tokens, 4 * T, &c));
    ck_assert_uint_eq(c.hits, 0);
    ck_assert_uint_eq(plm_prefix_peek(prefix, root, tokens, 4 * T, NULL), 3);
    end(&a);
    end(&b);
    end(&c);
    plm_kv_pool_read(pool, &s);
    ck_assert_uint_eq(s.used, 0);
    ck_assert_uint_eq(plm_kv_pool_drop_cached(pool, UINT32_MAX), s.cached);
    plm_kv_pool_read(pool, &s);
    ck_assert_uint_eq(s.free, s.total);
    struct plm_prefix_stats p;
    plm_prefix_read(prefix, &p);
    ck_assert_uint_eq(p.nodes, 0);
}
END_TEST

START_TEST(leaves_are_evicted_before_their_parents)
{
    int32_t tokens[LEN];
    struct seq a;
    count_up(tokens, LEN, 0);
    ck_assert(run(root, tokens, 40 * T, &a));
    end(&a);
    // Each block that goes shortens what is found by exactly one.
    for (uint32_t left = 40; left > 0; left--) {
        ck_assert_uint_eq(plm_prefix_peek(prefix, root, tokens, 41 * T, NULL), left);
        plm_kv_pool_drop_cached(pool, 1);
    }
}
END_TEST

START_TEST(a_full_pool_goes_on_without_memory)
{
    struct plm_host_stats before, after;
    struct plm_kv_pool_stats s;
    struct plm_prefix_stats p;
    int32_t tokens[20 * T];
    plm_host_read(host, &before);
    for (int i = 0; i < 500; i++) {
        struct seq a;
        count_up(tokens, 20 * T, i % 11 * 100000);
        ck_assert(run(root, tokens, 20 * T, &a));
        end(&a);
        plm_kv_pool_read(pool, &s);
        plm_prefix_read(prefix, &p);
        ck_assert_uint_eq(s.used, 0);
        ck_assert_uint_eq(p.known, s.cached);
    }
    plm_host_read(host, &after);
    ck_assert_uint_eq(before.allocations, after.allocations);
    ck_assert_uint_gt(p.evicted, 0);
}
END_TEST

// Ground truth: which text each block holds. Random prompts over a tiny alphabet share a lot.
START_TEST(random_prompts_get_their_own_text)
{
    static int32_t truth[128][64 * T]; // by block: the whole text up to its end
    static uint32_t depth[128];
    struct seq seqs[3];
    bool runs[3] = {false};
    uint64_t hits = 0;
    for (uint32_t i = 0; i < 5000; i++) {
        uint32_t out[4], counter[4] = {i, 0, 0, 0}, key[2] = {3, 4};
        plm_philox4x32(counter, key, out);
        uint32_t slot = out[0] % 3, n = 1 + out[1] % (14 * T);
        int32_t tokens[14 * T];
        if (runs[slot]) {
            end(&seqs[slot]);
            runs[slot] = false;
            continue;
        }
        for (uint32_t b = 0; b < 14; b++) {
            for (int t = 0; t < T; t++)
                tokens[b * T + (uint32_t)t] = (int32_t)(out[2] >> (b * 2) & 3);
        }
        struct seq *seq = &seqs[slot];
        ck_assert(run(root, tokens, n, seq));
        runs[slot] = true;
        hits += seq->hits;
        for (uint32_t b = 0; b < seq->n; b++) {
            uint32_t id = seq->blocks[b];
            if (b < seq->hits) {
                ck_assert_uint_eq(depth[id], b);
                ck_assert_int_eq(memcmp(truth[id], tokens, (b + 1) * T * sizeof(int32_t)), 0);
            }
            if (b * T + T <= n) {
                memcpy(truth[id], tokens, (b + 1) * T * sizeof(int32_t));
                depth[id] = b;
            }
        }
    }
    ck_assert_uint_gt(hits, 1000);
    for (int i = 0; i < 3; i++) {
        if (runs[i])
            end(&seqs[i]);
    }
    struct plm_kv_pool_stats s;
    plm_kv_pool_read(pool, &s);
    ck_assert_uint_eq(s.used, 0);
}
END_TEST

// Evacuates and gives back the highest slab; what used blocks moved to is put into `seqs`.
static void give_back_slab(struct seq *seqs, int n_seqs)
{
    struct plm_kv_move moves[8];
    struct plm_kv_pool_stats s;
    plm_kv_pool_read(pool, &s);
    uint32_t n = plm_kv_pool_plan_moves(pool, moves, 8);
    plm_kv_pool_move(pool, moves, n);
    for (int q = 0; q < n_seqs; q++) {
        for (uint32_t b = 0; b < seqs[q].n; b++) {
            uint32_t to = plm_kv_moved_to(moves, n, seqs[q].blocks[b]);
            seqs[q].blocks[b] = to != NONE ? to : seqs[q].blocks[b];
        }
    }
    ck_assert_int_eq(plm_kv_pool_resize(pool, s.total - 8, NULL), PLM_OK);
    plm_kv_pool_read(pool, &s);
    ck_assert_uint_eq(s.total % 8, 0);
}

START_TEST(moved_blocks_are_found_under_their_tokens)
{
    int32_t tokens[LEN];
    struct seq filler, seqs[3], again;
    count_up(tokens, LEN, 5000);
    ck_assert(run(root, tokens, 36 * T, &filler)); // the others come to lie high
    for (int q = 0; q < 3; q++) {
        count_up(tokens, LEN, 0);
        count_up(tokens + 4 * T, 5 * T, 100 * q); // a common start of four blocks
        ck_assert(run(root, tokens, 9 * T, &seqs[q]));
        ck_assert_uint_eq(seqs[q].hits, q == 0 ? 0 : 4);
    }
    end(&filler);
    ck_assert_uint_eq(plm_kv_pool_drop_cached(pool, 36), 36);
    end(&seqs[2]); // five of its blocks are cached
    seqs[2].n = 0;
    for (int i = 0; i < 5; i++)
        give_back_slab(seqs, 3);
    struct plm_kv_pool_stats s;
    plm_kv_pool_read(pool, &s);
    ck_assert_uint_eq(s.total, 24);
    ck_assert_uint_eq(s.used, 14);
    ck_assert_uint_eq(s.cached, 5);
    for (int q = 0; q < 3; q++) {
        count_up(tokens, LEN, 0);
        count_up(tokens + 4 * T, 5 * T, 100 * q);
        again.n = take(root, tokens, 9 * T + 1, &again, 20);
        ck_assert_uint_eq(again.n, 9);
        for (uint32_t b = 0; b < seqs[q].n; b++)
            ck_assert_uint_eq(again.blocks[b], seqs[q].blocks[b]);
        end(&again);
    }
    // Ids that come back hold nothing: what was known under them is not found there.
    ck_assert_int_eq(plm_kv_pool_resize(pool, 64, NULL), PLM_OK);
    count_up(tokens, LEN, 9000);
    ck_assert(run(root, tokens, 30 * T, &filler));
    ck_assert_uint_eq(filler.hits, 0);
    end(&filler);
    for (int q = 0; q < 2; q++)
        end(&seqs[q]);
    plm_kv_pool_read(pool, &s);
    ck_assert_uint_eq(s.used, 0);
}
END_TEST

START_TEST(each_host_allocation_may_fail)
{
    struct plm_prefix *other = NULL;
    const struct plm_kv_set kv = {.n_groups = 1, .pools = {pool}};
    plm_host_fail_nth(host, 1, 0);
    ck_assert_int_eq(plm_prefix_create(host, &kv, 1, 0, &other), PLM_ERR_NOMEM_HOST);
    ck_assert_ptr_null(other);
    plm_kv_pool_resize(pool, 0, NULL);
    for (uint64_t nth = 1; nth <= 4; nth++) {
        plm_host_fail_nth(host, nth, 0);
        ck_assert_int_eq(plm_kv_pool_format(pool, 8, 128), PLM_ERR_NOMEM_HOST);
        plm_host_fail_nth(host, 0, 0);
    }
    plm_kv_pool_resize(pool, 64, NULL);
    int32_t tokens[3 * T];
    struct seq a;
    count_up(tokens, 3 * T, 0);
    ck_assert(run(root, tokens, 3 * T, &a));
    end(&a);
    plm_prefix_destroy(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, the_last_token_is_always_computed);
    tcase_add_test(tc, salts_and_tags_share_nothing);
    tcase_add_test(tc, a_block_counts_after_its_own_prefix_only);
    tcase_add_test(tc, equal_keys_are_not_enough);
    tcase_add_test(tc, a_block_that_comes_again_joins_its_prefix);
    tcase_add_test(tc, unknown_parents_make_unknown_blocks);
    tcase_add_test(tc, forgotten_blocks_are_not_found);
    tcase_add_test(tc, leaves_are_evicted_before_their_parents);
    tcase_add_test(tc, a_full_pool_goes_on_without_memory);
    tcase_add_test(tc, random_prompts_get_their_own_text);
    tcase_add_test(tc, moved_blocks_are_found_under_their_tokens);
    tcase_add_test(tc, each_host_allocation_may_fail);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
