// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <stdlib.h>

#include "core/base/random.h"
#include "core/base/status.h"
#include "core/mem/offset_alloc.h"
#include "tests/support/suite.h"

#define BASE (UINT64_C(1) << 40)

static uint64_t draw(uint64_t seed, uint64_t at, uint64_t below)
{
    uint32_t key[2] = {(uint32_t)seed, 7}, out[4];
    uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0};
    plm_philox4x32(counter, key, out);
    return (((uint64_t)out[0] << 32) | out[1]) % below;
}

START_TEST(ranges_do_not_overlap_and_merge_back)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_offset_alloc *a = plm_offset_create(host);
    uint64_t x, y, z, all;
    ck_assert_int_eq(plm_offset_add(a, BASE, 4096), PLM_OK);
    ck_assert_int_eq(plm_offset_alloc(a, 100, 1, &x), PLM_OK);
    ck_assert_int_eq(plm_offset_alloc(a, 64, 1024, &y), PLM_OK);
    ck_assert_int_eq(plm_offset_alloc(a, 1, 1, &z), PLM_OK);
    ck_assert_uint_eq(plm_offset_size(a, x), 128);
    ck_assert_uint_eq(y % 1024, 0);
    ck_assert_uint_eq(plm_offset_live(a), 128 + 64 + 64);
    ck_assert_uint_eq(plm_offset_size(a, x + 64), 0);
    ck_assert_uint_eq(plm_offset_free(a, x + 64), 0);
    ck_assert(!plm_offset_remove(a, BASE));
    ck_assert_uint_eq(plm_offset_free(a, y), 64);
    ck_assert_uint_eq(plm_offset_free(a, y), 0);
    ck_assert_uint_eq(plm_offset_free(a, x), 128);
    ck_assert_uint_eq(plm_offset_free(a, z), 64);
    ck_assert_uint_eq(plm_offset_largest_free(a), 4096);
    ck_assert_int_eq(plm_offset_alloc(a, 4096, 1, &all), PLM_OK);
    ck_assert_int_eq(plm_offset_alloc(a, 1, 1, &x), PLM_ERR_OUT_OF_DEVICE);
    plm_offset_free(a, all);
    ck_assert(plm_offset_remove(a, BASE));
    ck_assert(!plm_offset_remove(a, BASE));
    ck_assert(plm_offset_check(a));
    plm_offset_destroy(a);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(regions_do_not_merge)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_offset_alloc *a = plm_offset_create(host);
    uint64_t x;
    plm_offset_add(a, BASE, 1024);
    plm_offset_add(a, BASE + 1024, 1024);
    ck_assert_int_eq(plm_offset_alloc(a, 1088, 1, &x), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(plm_offset_alloc(a, 1024, 1, &x), PLM_OK);
    plm_offset_free(a, x);
    ck_assert_uint_eq(plm_offset_largest_free(a), 1024);
    plm_offset_destroy(a);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(a_fit_behind_many_smaller_ones_is_found)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_offset_alloc *a = plm_offset_create(host);
    uint64_t x;
    // All of one class (16 to 17 x 1024 granules); the only fit is added first, so it is last.
    plm_offset_add(a, BASE, 16 * 1024 * 64 + 64);
    for (uint64_t i = 1; i < 100; i++)
        plm_offset_add(a, BASE + (i << 24), 16 * 1024 * 64);
    ck_assert_int_eq(plm_offset_alloc(a, 16 * 1024 * 64 + 64, 1, &x), PLM_OK);
    ck_assert_uint_eq(x, BASE);
    ck_assert_int_eq(plm_offset_alloc(a, 16 * 1024 * 64, 1, &x), PLM_OK);
    ck_assert(plm_offset_check(a));
    plm_offset_destroy(a);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

struct live {
    uint64_t addr, bytes;
};

static bool disjoint(const struct live *live, int n, uint64_t addr, uint64_t bytes)
{
    for (int i = 0; i < n; i++) {
        if (addr < live[i].addr + live[i].bytes && live[i].addr < addr + bytes)
            return false;
    }
    return true;
}

START_TEST(random_mixes_keep_the_books)
{
    struct plm_host *host = plm_host_create(0);
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct plm_offset_alloc *a = plm_offset_create(host);
        struct live live[256];
        uint64_t at = 0, total = 0;
        int n = 0;
        for (uint64_t i = 0; i < 1 + seed % 4; i++) {
            ck_assert_int_eq(plm_offset_add(a, BASE + (i << 30), 1 << 20), PLM_OK);
            total += 1 << 20;
        }
        for (int step = 0; step < 3000; step++) {
            if (n < 256 && draw(seed, at++, 100) < 55) {
                uint64_t bytes = 1 + draw(seed, at + 1, (uint64_t)1 << draw(seed, at, 20));
                uint64_t align = (uint64_t)1 << draw(seed, at + 2, 14), addr;
                at += 3;
                uint64_t largest = plm_offset_largest_free(a);
                int r = plm_offset_alloc(a, bytes, align, &addr);
                if (r != PLM_OK) {
                    ck_assert_int_eq(r, PLM_ERR_OUT_OF_DEVICE);
                    ck_assert_uint_gt(bytes + align, largest);
                    continue;
                }
                ck_assert_uint_eq(addr % align, 0);
                ck_assert(disjoint(live, n, addr, bytes));
                live[n++] = (struct live){addr, bytes};
            } else if (n > 0) {
                int i = (int)draw(seed, at++, (uint64_t)n);
                ck_assert_uint_ge(plm_offset_free(a, live[i].addr), live[i].bytes);
                live[i] = live[--n];
            }
            if (step % 64 == 0)
                ck_assert(plm_offset_check(a));
        }
        while (n > 0)
            plm_offset_free(a, live[--n].addr);
        ck_assert(plm_offset_check(a));
        ck_assert_uint_eq(plm_offset_live(a), 0);
        for (uint64_t i = 0; i < 1 + seed % 4; i++)
            ck_assert(plm_offset_remove(a, BASE + (i << 30)));
        ck_assert_uint_eq(plm_offset_largest_free(a), 0);
        ck_assert_uint_gt(total, 0);
        plm_offset_destroy(a);
    }
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(each_host_allocation_may_fail)
{
    struct plm_host *host = plm_host_create(0);
    bool whole = false;
    for (uint64_t nth = 1; !whole; nth++) {
        plm_host_fail_nth(host, nth, 0);
        struct plm_offset_alloc *a = plm_offset_create(host);
        uint64_t addr;
        if (a != NULL && plm_offset_add(a, BASE, 1 << 20) == PLM_OK) {
            int failed = 0;
            for (int i = 0; i < 300; i++) {
                int r = plm_offset_alloc(a, 64, 1, &addr);
                ck_assert(r == PLM_OK || r == PLM_ERR_NOMEM_HOST);
                failed += r != PLM_OK;
            }
            ck_assert(plm_offset_check(a));
            ck_assert_int_le(failed, 1);
            ck_assert_uint_eq(plm_offset_live(a), 64 * (300 - (uint64_t)failed));
            whole = failed == 0;
        }
        plm_offset_destroy(a);
        plm_host_fail_nth(host, 0, 0);
    }
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("offset_alloc");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, ranges_do_not_overlap_and_merge_back);
    tcase_add_test(tc, regions_do_not_merge);
    tcase_add_test(tc, a_fit_behind_many_smaller_ones_is_found);
    tcase_add_test(tc, random_mixes_keep_the_books);
    tcase_add_test(tc, each_host_allocation_may_fail);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
