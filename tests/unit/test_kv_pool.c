// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "core/kv/pool.h"
#include "tests/support/fake_backend.h"
#include "tests/support/suite.h"

#define BLOCK 1024 // bytes
#define NONE  PLM_KV_NO_BLOCK

static struct plm_host *host;
static struct plm_device *device;
static struct plm_ledger *ledger;
static struct plm_kv_pool *pool;
static struct fake_world world;

static void setup(void)
{
    host = plm_host_create(0);
    world = (struct fake_world){.capacity_bytes = 1 << 20, .no_memory = true};
    device = fake_open(host, &world);
    ledger = plm_ledger_create(host);
    ck_assert_int_eq(plm_kv_pool_create(host, device, ledger, BLOCK, true, &pool), PLM_OK);
}

static void teardown(void)
{
    struct plm_ledger_stats s;
    plm_kv_pool_destroy(pool);
    plm_ledger_read(ledger, &s);
    ck_assert_int_eq(s.held_bytes, 0);
    ck_assert_int_eq(s.live_bytes, 0);
    plm_ledger_destroy(ledger);
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

static struct plm_kv_pool_stats stats(void)
{
    struct plm_kv_pool_stats s;
    struct plm_ledger_stats l;
    plm_kv_pool_read(pool, &s);
    plm_ledger_read(ledger, &l);
    ck_assert_uint_eq(s.used + s.cached + s.free, s.total);
    ck_assert_int_eq(l.by_class[PLM_MEM_KV].held_bytes, (int64_t)s.held_bytes);
    ck_assert_int_eq(l.by_class[PLM_MEM_KV].live_bytes, (int64_t)(s.used + s.cached) * BLOCK);
    ck_assert_int_eq(l.by_class[PLM_MEM_KV].largest_free_bytes, s.free > 0 ? BLOCK : 0);
    ck_assert_uint_eq(s.held_bytes, world.taken_bytes);
    return s;
}

START_TEST(the_slab_rule)
{
    const int64_t mib = 1 << 20;
    // A pool of 1 GiB: slabs of 16 MiB, whole blocks of 360 KiB.
    struct plm_slab_rule r = plm_slab_rule(1024 * mib, 360 * 1024, 2 * mib, 0, 0);
    ck_assert_uint_eq(r.slab_blocks, 16 * 1024 / 360);
    ck_assert_int_eq(r.slab_bytes, 16 * mib);
    // The smallest is 2 MiB, but a granule of 16 MiB is filled.
    r = plm_slab_rule(10 * mib, 360 * 1024, 2 * mib, 0, 0);
    ck_assert_int_eq(r.slab_bytes, 2 * mib);
    r = plm_slab_rule(10 * mib, 360 * 1024, 16 * mib, 0, 0);
    ck_assert_int_eq(r.slab_bytes, 16 * mib);
    // The largest is 256 MiB; one block is the least; the driver's limits hold.
    r = plm_slab_rule(INT64_C(1) << 39, mib, 2 * mib, 0, 0);
    ck_assert_int_eq(r.slab_bytes, 256 * mib);
    r = plm_slab_rule(mib, 3 * mib, 2 * mib, 0, 0);
    ck_assert_uint_eq(r.slab_blocks, 1);
    ck_assert_int_eq(r.slab_bytes, 4 * mib);
    r = plm_slab_rule(INT64_C(1) << 34, mib, 2 * mib, 32 * mib, 0);
    ck_assert_int_eq(r.slab_bytes, 32 * mib);
    r = plm_slab_rule(INT64_C(1) << 34, mib, 2 * mib, 0, 11);
    ck_assert_int_le(plm_slab_pool_bytes(&r, INT64_C(1) << 14) / r.slab_bytes, 11);
    r = plm_slab_rule(mib, 3 * mib, 2 * mib, mib, 0);
    ck_assert_uint_eq(r.slab_blocks, 0);
    ck_assert_int_eq(plm_slab_fit(&r, 100 * mib), 0);
    // The last slab is exact.
    r = plm_slab_rule(100 * mib, 300 * 1024, mib, 0, 0);
    int64_t one = plm_slab_pool_bytes(&r, 1);
    ck_assert_int_eq(one, mib);
    ck_assert_int_eq(plm_slab_pool_bytes(&r, r.slab_blocks + 1), r.slab_bytes + mib);
    ck_assert_int_eq(plm_slab_pool_bytes(&r, 0), 0);
    ck_assert_int_eq(plm_slab_fit(&r, -5), 0);
}
END_TEST

START_TEST(fit_is_the_inverse_of_bytes)
{
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t out[4], counter[4] = {(uint32_t)i, 0, 0, 0}, key[2] = {5, 5};
        plm_philox4x32(counter, key, out);
        int64_t g = INT64_C(1) << (out[0] % 25);
        int64_t block = 1 + out[1] % (1 << (out[0] >> 8) % 24);
        int64_t pool_bytes = (int64_t)out[2] << (out[0] >> 16) % 8;
        struct plm_slab_rule r =
            plm_slab_rule(pool_bytes, block, g, out[3] % 3 == 0 ? 1 << 26 : 0, out[3] % 5000);
        int64_t bytes = (int64_t)out[3] << 4;
        int64_t n = plm_slab_fit(&r, bytes);
        ck_assert_uint_gt(r.slab_blocks, 0);
        ck_assert_int_eq(r.slab_bytes % g, 0);
        ck_assert_int_le(plm_slab_pool_bytes(&r, n), bytes);
        if (n < (int64_t)r.max_slabs * r.slab_blocks)
            ck_assert_int_gt(plm_slab_pool_bytes(&r, n + 1), bytes);
    }
}
END_TEST

START_TEST(grows_and_gives_back)
{
    uint64_t failed = 9;
    ck_assert_int_eq(plm_kv_pool_format(pool, 0, 10), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_kv_pool_format(pool, 16, 100), PLM_OK);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 101, NULL), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 40, &failed), PLM_OK);
    ck_assert_uint_eq(failed, 0);
    struct plm_kv_pool_stats s = stats();
    ck_assert_uint_eq(s.total, 40);
    ck_assert_uint_eq(s.slabs, 3);
    ck_assert_uint_eq(s.held_bytes, 40 * BLOCK);
    ck_assert_int_eq(plm_kv_pool_format(pool, 8, 100), PLM_ERR_INVALID);
    // The short last slab becomes a whole one when the pool grows.
    ck_assert_int_eq(plm_kv_pool_resize(pool, 100, NULL), PLM_OK);
    ck_assert_uint_eq(stats().slabs, 7);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 50, NULL), PLM_OK);
    s = stats();
    ck_assert_uint_eq(s.total, 50);
    ck_assert_uint_eq(s.slabs, 4);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 0, NULL), PLM_OK);
    ck_assert_uint_eq(stats().held_bytes, 0);
    ck_assert_uint_eq(plm_kv_pool_alloc(pool), NONE);
    ck_assert_int_eq(plm_kv_pool_format(pool, 8, 100), PLM_OK);
}
END_TEST

START_TEST(growing_stops_where_the_device_does)
{
    uint64_t failed;
    world.capacity_bytes = 50 * BLOCK;
    ck_assert_int_eq(plm_kv_pool_format(pool, 16, 1000), PLM_OK);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 1000, &failed), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_uint_eq(failed, 16 * BLOCK);
    ck_assert_uint_eq(stats().total, 48);
    // After the seal the resizer's key opens.
    plm_device_seal(device, true);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 32, NULL), PLM_OK);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 48, NULL), PLM_OK);
    struct plm_device_counters counters;
    plm_device_counters(device, &counters);
    ck_assert_uint_eq(counters.allocs_refused, 0);
    ck_assert_uint_gt(counters.resizes, 0);
    plm_device_seal(device, false);
}
END_TEST

START_TEST(lowest_slab_first_and_distinct_addresses)
{
    uint32_t ids[48];
    plm_kv_pool_format(pool, 16, 48);
    plm_kv_pool_resize(pool, 48, NULL);
    for (int i = 0; i < 48; i++) {
        ids[i] = plm_kv_pool_alloc(pool);
        ck_assert_uint_eq(ids[i], (uint32_t)i);
        if (i % 16 != 0)
            ck_assert_uint_eq(plm_kv_pool_addr(pool, ids[i]),
                              plm_kv_pool_addr(pool, ids[i - 1]) + BLOCK);
    }
    ck_assert_uint_eq(plm_kv_pool_alloc(pool), NONE);
    plm_kv_pool_unref(pool, 40);
    plm_kv_pool_unref(pool, 20);
    plm_kv_pool_unref(pool, 3);
    ck_assert_uint_eq(plm_kv_pool_alloc(pool), 3);
    ck_assert_uint_eq(plm_kv_pool_alloc(pool), 20);
    // A slab with a used block stays; those above it go.
    plm_kv_pool_release(pool, ids + 32, 8);
    plm_kv_pool_release(pool, ids + 41, 7);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 0, NULL), PLM_OK);
    struct plm_kv_pool_stats s = stats();
    ck_assert_uint_eq(s.slabs, 2);
    ck_assert_uint_eq(s.peak_used, 48);
    uint32_t first, n;
    ck_assert(plm_kv_pool_slab(pool, 1, &first, &n));
    ck_assert_uint_eq(first, 16);
    ck_assert_uint_eq(n, 16);
    ck_assert(!plm_kv_pool_slab(pool, 2, &first, &n));
}
END_TEST

START_TEST(a_short_slab_in_use_stays_alone)
{
    plm_kv_pool_format(pool, 16, 100);
    plm_kv_pool_resize(pool, 20, NULL);
    for (int i = 0; i < 17; i++)
        plm_kv_pool_alloc(pool);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 100, NULL), PLM_OK);
    // 20 blocks and five whole slabs of 16.
    ck_assert_uint_eq(stats().total, 100);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 60, NULL), PLM_OK);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 99, NULL), PLM_OK);
    ck_assert_uint_le(stats().total, 99);
    ck_assert_uint_ge(stats().total, 84);
}
END_TEST

// The only slab is short and idle: a device that refuses a full one in its place leaves the pool as
// it was; one that refuses a shorter one is asked again.
START_TEST(a_slab_that_is_replaced_is_not_lost)
{
    uint64_t failed;
    plm_kv_pool_format(pool, 16, 100);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 8, NULL), PLM_OK);
    world.fail_nth = 1;
    ck_assert_int_eq(plm_kv_pool_resize(pool, 40, &failed), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_uint_eq(failed, 16 * BLOCK);
    ck_assert_uint_eq(stats().total, 8);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 40, NULL), PLM_OK);
    ck_assert_uint_eq(stats().total, 40);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 16, NULL), PLM_OK);
    world.fail_nth = 1;
    ck_assert_int_eq(plm_kv_pool_resize(pool, 8, &failed), PLM_OK);
    ck_assert_uint_eq(failed, 0);
    ck_assert_uint_eq(stats().total, 8);
}
END_TEST

static uint32_t last_evicted;
static void on_evicted(void *ctx, uint32_t node)
{
    (void)ctx;
    last_evicted = node; // nodes are marked by the numbers of their blocks
}

START_TEST(cached_blocks_go_least_recent_first)
{
    uint32_t ids[8];
    plm_kv_pool_set_hook(pool, &(struct plm_kv_pool_hook){.evicted = on_evicted});
    plm_kv_pool_format(pool, 4, 8);
    plm_kv_pool_resize(pool, 8, NULL);
    for (int i = 0; i < 8; i++)
        ids[i] = plm_kv_pool_alloc(pool);
    for (int i = 0; i < 4; i++)
        plm_kv_pool_mark(pool, ids[i], ids[i]);
    plm_kv_pool_release(pool, ids, 4); // 3, 2, 1, 0
    struct plm_kv_pool_stats s = stats();
    ck_assert_uint_eq(s.cached, 4);
    ck_assert_uint_eq(s.used, 4);
    plm_kv_pool_ref(pool, 3); // a hit
    ck_assert_uint_eq(plm_kv_pool_refs(pool, 3), 1);
    ck_assert_uint_eq(plm_kv_pool_alloc(pool), 2);
    ck_assert_uint_eq(last_evicted, 2);
    plm_kv_pool_unref(pool, 3);
    ck_assert_uint_eq(plm_kv_pool_drop_cached(pool, 1), 1);
    ck_assert_uint_eq(last_evicted, 1);
    ck_assert_uint_eq(plm_kv_pool_drop_cached(pool, 100), 2);
    ck_assert_uint_eq(last_evicted, 3);
    ck_assert_uint_eq(stats().free, 3);
    // A shrink drops the cached blocks of the slabs it gives back.
    plm_kv_pool_mark(pool, ids[5], ids[5]);
    plm_kv_pool_release(pool, ids + 4, 4);
    ck_assert_int_eq(plm_kv_pool_resize(pool, 4, NULL), PLM_OK);
    ck_assert_uint_eq(last_evicted, 5);
    ck_assert_uint_eq(stats().cached, 0);
}
END_TEST

START_TEST(random_worlds_keep_the_sums)
{
    uint32_t held[64], n = 0;
    plm_kv_pool_format(pool, 7, 64);
    plm_kv_pool_resize(pool, 30, NULL);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t out[4], counter[4] = {i, 0, 0, 0}, key[2] = {1, 2};
        plm_philox4x32(counter, key, out);
        uint32_t pick = n > 0 ? out[1] % n : 0;
        switch (out[0] % 8) {
        case 0: plm_kv_pool_resize(pool, out[1] % 65, NULL); break;
        case 1:
        case 2:
        case 3: {
            uint32_t id = n < 64 ? plm_kv_pool_alloc(pool) : NONE;
            if (id != NONE)
                held[n++] = id;
            break;
        }
        case 4:
            if (n > 0 && n < 64) {
                plm_kv_pool_ref(pool, held[pick]);
                held[n] = held[pick];
                n++;
            }
            break;
        case 5:
            if (n > 0)
                plm_kv_pool_mark(pool, held[pick], held[pick]);
            break;
        case 6: plm_kv_pool_drop_cached(pool, out[1] % 3); break;
        default:
            if (n > 0) {
                plm_kv_pool_unref(pool, held[pick]);
                held[pick] = held[--n];
            }
        }
        stats();
    }
    plm_kv_pool_release(pool, held, n);
    ck_assert_uint_eq(stats().used, 0);
    plm_kv_pool_drop_cached(pool, 64);
    ck_assert_uint_eq(stats().free, stats().total);
}
END_TEST

// Contents by block id, as a device would hold them, beside what each holder wrote.
START_TEST(evacuations_keep_contents_and_holders)
{
    uint32_t content[72] = {0}, held[64], wrote[64], n = 0, given_back = 0;
    plm_kv_pool_format(pool, 7, 64);
    plm_kv_pool_resize(pool, 64, NULL);
    for (uint32_t i = 1; i < 8000; i++) {
        uint32_t out[4], counter[4] = {i, 0, 0, 0}, key[2] = {8, 2};
        struct plm_kv_move moves[7];
        plm_philox4x32(counter, key, out);
        uint32_t pick = n > 0 ? out[1] % n : 0, m;
        struct plm_kv_pool_stats before = stats(), after;
        switch (out[0] % 8) {
        case 0:
        case 1:
            m = plm_kv_pool_plan_moves(pool, moves, 1 + out[1] % 7);
            for (uint32_t k = 0; k < m; k++) {
                ck_assert_uint_eq(moves[k].from / 7, before.slabs - 1);
                ck_assert_uint_lt(moves[k].to / 7, before.slabs - 1);
                ck_assert(k == 0 || moves[k].from > moves[k - 1].from);
                content[moves[k].to] = content[moves[k].from];
            }
            if (out[2] % 4 == 0) { // the copy failed
                plm_kv_pool_drop_moves(pool, moves, m);
                m = 0;
            }
            plm_kv_pool_move(pool, moves, m);
            for (uint32_t k = 0; k < n; k++) {
                uint32_t to = plm_kv_moved_to(moves, m, held[k]);
                held[k] = to != NONE ? to : held[k];
            }
            after = stats();
            ck_assert_uint_eq(after.used, before.used);
            ck_assert_uint_eq(after.cached, before.cached);
            if (before.total > 14)
                plm_kv_pool_resize(pool, before.total - 7, NULL);
            given_back += stats().total < before.total;
            break;
        case 2:
            if (out[1] % 4 == 0)
                plm_kv_pool_resize(pool, 64, NULL);
            break;
        case 3:
        case 4:
            if (n < 64 && (held[n] = plm_kv_pool_alloc(pool)) != NONE) {
                content[held[n]] = wrote[n] = i;
                n++;
            }
            break;
        case 5:
            if (n > 0)
                plm_kv_pool_mark(pool, held[pick], held[pick]);
            break;
        default:
            if (n > 0) {
                plm_kv_pool_unref(pool, held[pick]);
                n--;
                held[pick] = held[n];
                wrote[pick] = wrote[n];
            }
        }
        for (uint32_t k = 0; k < n; k++)
            ck_assert_uint_eq(content[held[k]], wrote[k]);
    }
    ck_assert_uint_gt(given_back, 50);
    plm_kv_pool_release(pool, held, n);
    ck_assert_uint_eq(stats().used, 0);
}
END_TEST

START_TEST(each_host_allocation_may_fail)
{
    for (uint64_t nth = 1; nth <= 2; nth++) {
        plm_host_fail_nth(host, nth, 0);
        ck_assert_int_eq(plm_kv_pool_format(pool, 4, 16), PLM_ERR_NOMEM_HOST);
        plm_host_fail_nth(host, 0, 0);
    }
    ck_assert_int_eq(plm_kv_pool_format(pool, 4, 16), PLM_OK);
    // Growth, use and shrinking take no host memory of ours; the device's table may grow.
    struct plm_host_stats before, after;
    plm_kv_pool_resize(pool, 16, NULL);
    plm_host_read(host, &before);
    for (int i = 0; i < 16; i++)
        plm_kv_pool_mark(pool, plm_kv_pool_alloc(pool), 0);
    for (uint32_t i = 0; i < 16; i++)
        plm_kv_pool_unref(pool, i);
    for (int i = 0; i < 16; i++)
        plm_kv_pool_alloc(pool);
    plm_host_read(host, &after);
    ck_assert_uint_eq(before.allocations, after.allocations);
    struct plm_kv_pool *other = NULL;
    plm_host_fail_nth(host, 1, 0);
    ck_assert_int_eq(plm_kv_pool_create(host, device, ledger, 1, true, &other), PLM_ERR_NOMEM_HOST);
    ck_assert_ptr_null(other);
    plm_kv_pool_destroy(NULL);
}
END_TEST

START_TEST(each_device_allocation_may_fail)
{
    ck_assert_int_eq(plm_kv_pool_format(pool, 4, 16), PLM_OK);
    for (uint64_t nth = 1; nth <= 4; nth++) {
        uint64_t failed;
        world.fail_nth = nth;
        ck_assert_int_eq(plm_kv_pool_resize(pool, 16, &failed), PLM_ERR_OUT_OF_DEVICE);
        ck_assert_uint_eq(failed, 4 * BLOCK);
        ck_assert_uint_eq(stats().total, 4 * (nth - 1));
        ck_assert_int_eq(plm_kv_pool_resize(pool, 0, NULL), PLM_OK);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kv_pool");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, the_slab_rule);
    tcase_add_test(tc, fit_is_the_inverse_of_bytes);
    tcase_add_test(tc, grows_and_gives_back);
    tcase_add_test(tc, growing_stops_where_the_device_does);
    tcase_add_test(tc, lowest_slab_first_and_distinct_addresses);
    tcase_add_test(tc, a_short_slab_in_use_stays_alone);
    tcase_add_test(tc, a_slab_that_is_replaced_is_not_lost);
    tcase_add_test(tc, cached_blocks_go_least_recent_first);
    tcase_add_test(tc, random_worlds_keep_the_sums);
    tcase_add_test(tc, evacuations_keep_contents_and_holders);
    tcase_add_test(tc, each_host_allocation_may_fail);
    tcase_add_test(tc, each_device_allocation_may_fail);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
