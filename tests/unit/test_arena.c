// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem/arena.h"
#include "tests/support/fake_backend.h"
#include "tests/support/suite.h"

static struct plm_host *host;
static struct plm_device *device;
static struct plm_ledger *ledger;
static struct fake_world world;

static void setup(void)
{
    host = plm_host_create(0);
    world = (struct fake_world){.capacity_bytes = 1 << 20};
    device = fake_open(host, &world);
    ledger = plm_ledger_create(host);
}

static void teardown(void)
{
    struct plm_ledger_stats s;
    plm_ledger_read(ledger, &s);
    ck_assert_int_eq(s.held_bytes, 0);
    ck_assert_int_eq(s.live_bytes, 0);
    plm_ledger_destroy(ledger);
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_uint_eq(world.taken_bytes, 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

START_TEST(ranges_come_from_a_reserved_slab)
{
    struct plm_arena *arena;
    uint64_t x, y;
    struct plm_arena_stats s;
    struct plm_ledger_stats l;
    ck_assert_int_eq(plm_arena_create(host, device, ledger, PLM_MEM_WORKSPACE, 0, &arena), PLM_OK);
    ck_assert_int_eq(plm_arena_reserve(arena, 10000), PLM_OK);
    ck_assert_int_eq(plm_arena_alloc(arena, 4000, 256, &x), PLM_OK);
    ck_assert_int_eq(plm_arena_alloc(arena, 4000, 256, &y), PLM_OK);
    ck_assert_uint_eq(x % 256, 0);
    ck_assert_uint_eq(y % 256, 0);
    ck_assert_uint_eq(world.allocs, 1);
    memset(plm_arena_host(arena, x), 1, 4000);
    memset(plm_arena_host(arena, y), 2, 4000);
    ck_assert_int_eq(((char *)plm_arena_host(arena, x))[3999], 1);
    ck_assert_ptr_null(plm_arena_host(arena, 16));
    plm_arena_read(arena, &s);
    ck_assert_uint_eq(s.slabs, 1);
    ck_assert_uint_eq(s.held_bytes, 12288);
    ck_assert_uint_eq(s.live_bytes, 2 * 4032);
    plm_ledger_read(ledger, &l);
    ck_assert_int_eq(l.by_class[PLM_MEM_WORKSPACE].held_bytes, 12288);
    ck_assert_int_eq(l.by_class[PLM_MEM_WORKSPACE].live_bytes, 2 * 4032);
    plm_arena_free(arena, x);
    plm_arena_free(arena, x);
    plm_arena_read(arena, &s);
    ck_assert_uint_eq(s.live_bytes, 4032);
    ck_assert_uint_eq(s.peak_live_bytes, 2 * 4032);
    ck_assert_uint_ge(s.peak_extent_bytes, 2 * 4032);
    plm_arena_destroy(arena);
}
END_TEST

START_TEST(slabs_are_as_large_as_asked)
{
    struct plm_arena *arena;
    uint64_t addr;
    struct plm_arena_stats s;
    ck_assert_int_eq(plm_arena_create(host, device, ledger, PLM_MEM_WEIGHTS, 65536, &arena),
                     PLM_OK);
    ck_assert_int_eq(plm_arena_alloc(arena, 100, 256, &addr), PLM_OK);
    ck_assert_int_eq(plm_arena_alloc(arena, 200000, 256, &addr), PLM_OK);
    plm_arena_read(arena, &s);
    ck_assert_uint_eq(s.slabs, 2);
    ck_assert_uint_eq(s.held_bytes, 65536 + 200704);
    struct plm_ledger_stats l;
    plm_ledger_read(ledger, &l);
    ck_assert_int_gt(l.by_class[PLM_MEM_WEIGHTS].largest_free_bytes, 0);
    ck_assert_int_eq(l.by_class[PLM_MEM_WEIGHTS].largest_free_bytes, (int64_t)s.largest_free_bytes);
    plm_arena_destroy(arena);
    plm_ledger_read(ledger, &l);
    ck_assert_int_eq(l.by_class[PLM_MEM_WEIGHTS].largest_free_bytes, 0);
    // One slab for each range, exactly.
    ck_assert_int_eq(plm_arena_create(host, device, ledger, PLM_MEM_WEIGHTS, 0, &arena), PLM_OK);
    for (int i = 1; i <= 20; i++)
        ck_assert_int_eq(plm_arena_alloc(arena, 4096, 256, &addr), PLM_OK);
    plm_arena_read(arena, &s);
    ck_assert_uint_eq(s.held_bytes, 20 * 4096);
    ck_assert_uint_eq(s.live_bytes, 20 * 4096);
    ck_assert_uint_eq(s.largest_free_bytes, 0);
    plm_arena_destroy(arena);
}
END_TEST

START_TEST(stronger_alignment_than_the_device_gives)
{
    struct plm_arena *arena;
    uint64_t addr;
    ck_assert_int_eq(plm_arena_create(host, device, ledger, PLM_MEM_OTHER, 0, &arena), PLM_OK);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(plm_arena_alloc(arena, 1000, 8192, &addr), PLM_OK);
        ck_assert_uint_eq(addr % 8192, 0);
    }
    plm_arena_destroy(arena);
}
END_TEST

START_TEST(refusals_leave_nothing_behind)
{
    struct plm_arena *arena;
    uint64_t addr = 7;
    ck_assert_int_eq(plm_arena_create(host, device, ledger, PLM_MEM_OTHER, 0, &arena), PLM_OK);
    ck_assert_int_eq(plm_arena_alloc(arena, 2 << 20, 256, &addr), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_lt(plm_arena_alloc(arena, UINT64_MAX, 256, &addr), 0);
    ck_assert_int_lt(plm_arena_alloc(arena, UINT64_MAX, 8192, &addr), 0);
    plm_device_seal(device, true);
    ck_assert_int_eq(plm_arena_alloc(arena, 1, 1, &addr), PLM_ERR_SEALED);
    ck_assert_uint_eq(addr, 7);
    plm_device_seal(device, false);
    plm_arena_destroy(arena);
    plm_arena_destroy(NULL);
}
END_TEST

START_TEST(each_host_allocation_may_fail)
{
    bool whole = false;
    for (uint64_t nth = 1; !whole; nth++) {
        struct plm_arena *arena = NULL;
        uint64_t addr;
        int ok = 0;
        plm_host_fail_nth(host, nth, 0);
        int r = plm_arena_create(host, device, ledger, PLM_MEM_OTHER, 0, &arena);
        for (int i = 0; r == PLM_OK && i < 100; i++) {
            r = plm_arena_alloc(arena, 64, 64, &addr);
            ok += r == PLM_OK;
        }
        ck_assert(r == PLM_OK || r == PLM_ERR_NOMEM_HOST);
        if (arena != NULL) {
            struct plm_arena_stats s;
            plm_arena_read(arena, &s);
            ck_assert_uint_eq(s.live_bytes, 64 * (uint64_t)ok);
        }
        plm_arena_destroy(arena);
        ck_assert_uint_eq(world.taken_bytes, 0);
        plm_host_fail_nth(host, 0, 0);
        whole = ok == 100;
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *tc = tcase_create("all");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, ranges_come_from_a_reserved_slab);
    tcase_add_test(tc, slabs_are_as_large_as_asked);
    tcase_add_test(tc, stronger_alignment_than_the_device_gives);
    tcase_add_test(tc, refusals_leave_nothing_behind);
    tcase_add_test(tc, each_host_allocation_may_fail);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
