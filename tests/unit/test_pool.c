// SPDX-License-Identifier: Apache-2.0
// The list and the workers of the CPU backend, with kernels of the test's own.
#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/cpu/list.h"
#include "backends/cpu/pool.h"
#include "tests/support/suite.h"

#define CAP 4096

// Marks every unit once and remembers that all of the phase before were marked.
struct mark_args {
    uint64_t marks;  // _Atomic uint32_t [units]
    uint64_t before; // the marks of the phase before, or 0
    uint64_t faults; // _Atomic uint32_t
    uint32_t n_before;
    uint32_t round;
};

static void mark(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    const struct mark_args *a = args;
    _Atomic uint32_t *marks = (void *)(uintptr_t)a->marks;
    _Atomic uint32_t *before = (void *)(uintptr_t)a->before;
    _Atomic uint32_t *faults = (void *)(uintptr_t)a->faults;
    if ((uintptr_t)scratch % 64 != 0)
        atomic_fetch_add(faults, 1);
    memset(scratch, (int)begin, 256);
    for (uint32_t i = 0; i < a->n_before; i++) {
        if (atomic_load_explicit(&before[i], memory_order_relaxed) != a->round)
            atomic_fetch_add(faults, 1);
    }
    for (uint32_t i = begin; i < end; i++)
        atomic_fetch_add_explicit(&marks[i], 1, memory_order_relaxed);
}

// Lists of random phases and dispatches: every unit runs exactly once, after the phase before.
static void run_random_lists(uint32_t workers, int rounds, unsigned seed)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_cpu_pool *pool;
    struct plm_cpu_list list;
    static _Atomic uint32_t marks[CAP][64];
    static uint32_t units[CAP];
    _Atomic uint32_t faults = 0;
    ck_assert_int_eq(plm_cpu_pool_create(host, workers, &pool), PLM_OK);
    ck_assert_int_eq(plm_cpu_list_init(&list, host, CAP), PLM_OK);
    for (int round = 0; round < rounds; round++) {
        memset(marks, 0, sizeof(marks));
        uint32_t n = 1 + (uint32_t)rand_r(&seed) % 200;
        uint32_t phase_start = 0;
        for (uint32_t i = 0; i < n; i++) {
            units[i] = 1 + (uint32_t)rand_r(&seed) % (rand_r(&seed) % 3 == 0 ? 1 : 64);
            bool has_before = phase_start > 0;
            struct mark_args args = {
                (uintptr_t)marks[i], has_before ? (uintptr_t)marks[phase_start - 1] : 0,
                (uintptr_t)&faults, has_before ? units[phase_start - 1] : 0, 1};
            ck_assert_int_eq(plm_cpu_list_append(&list, mark, units[i], &args, sizeof(args)),
                             PLM_OK);
            if (rand_r(&seed) % 2 == 0) {
                plm_cpu_list_barrier(&list);
                phase_start = i + 1;
            }
        }
        plm_cpu_pool_run(pool, &list);
        plm_cpu_list_clear(&list);
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t u = 0; u < 64; u++)
                ck_assert_uint_eq(marks[i][u], u < units[i] ? 1 : 0);
        }
        if (round % 16 == 0) {
            // Long enough for every worker to fall asleep.
            struct timespec pause = {0, 300000};
            nanosleep(&pause, NULL);
        }
    }
    ck_assert_uint_eq(faults, 0);
    plm_cpu_list_finish(&list);
    plm_cpu_pool_destroy(pool);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

START_TEST(every_unit_runs_once_and_in_order)
{
    run_random_lists((uint32_t)_i, 50, 17u + (unsigned)_i);
}
END_TEST

static void nothing(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)args, (void)begin, (void)end, (void)scratch;
}

START_TEST(list_is_bounded_and_numbers_units_in_32_bits)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_cpu_list list;
    ck_assert_int_eq(plm_cpu_list_init(&list, host, 3), PLM_OK);
    uint64_t arg = 7;
    ck_assert_int_eq(plm_cpu_list_append(&list, nothing, UINT32_MAX - 1, &arg, sizeof(arg)), 0);
    ck_assert_int_eq(plm_cpu_list_append(&list, nothing, 1, &arg, sizeof(arg)), 0);
    ck_assert_uint_eq(list.n_phases, 2); // the sum of both would be the pool's own number
    ck_assert_int_eq(plm_cpu_list_append(&list, nothing, 1, &arg, sizeof(arg)), 0);
    ck_assert_uint_eq(list.n_phases, 2);
    ck_assert_int_eq(plm_cpu_list_append(&list, nothing, 1, &arg, sizeof(arg)), PLM_ERR_LIMIT);
    plm_cpu_list_clear(&list);
    plm_cpu_list_barrier(&list);
    plm_cpu_list_barrier(&list); // two barriers are one
    ck_assert_int_eq(plm_cpu_list_append(&list, nothing, 5, &arg, sizeof(arg)), 0);
    ck_assert_uint_eq(list.n_phases, 1);
    plm_cpu_list_finish(&list);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(run_takes_no_host_memory)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_cpu_pool *pool;
    struct plm_cpu_list list;
    ck_assert_int_eq(plm_cpu_pool_create(host, 2, &pool), PLM_OK);
    ck_assert_int_eq(plm_cpu_list_init(&list, host, CAP), PLM_OK);
    struct plm_host_stats before;
    struct plm_host_stats after;
    plm_host_read(host, &before);
    uint64_t arg = 7;
    for (int i = 0; i < CAP; i++) {
        ck_assert_int_eq(plm_cpu_list_append(&list, nothing, 9, &arg, sizeof(arg)), PLM_OK);
        plm_cpu_list_barrier(&list);
    }
    plm_cpu_pool_run(pool, &list);
    plm_host_read(host, &after);
    ck_assert_uint_eq(before.allocations, after.allocations);
    plm_cpu_list_finish(&list);
    plm_cpu_pool_destroy(pool);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// A worker may be anywhere when its pool goes: awake, about to fall asleep, asleep.
START_TEST(pools_come_and_go)
{
    struct plm_host *host = plm_host_create(0);
    for (int i = 0; i < 4000; i++) {
        struct plm_cpu_pool *pool;
        ck_assert_int_eq(plm_cpu_pool_create(host, 2, &pool), PLM_OK);
        for (volatile int wait = i % 512 * 16; wait > 0; wait--)
            ;
        plm_cpu_pool_destroy(pool);
    }
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(pool_creation_survives_lost_allocations)
{
    struct plm_host *host = plm_host_create(0);
    for (uint64_t n = 1; n <= 3; n++) {
        struct plm_cpu_pool *pool = NULL;
        plm_host_fail_nth(host, n, 0);
        ck_assert_int_eq(plm_cpu_pool_create(host, 2, &pool), PLM_ERR_NOMEM_HOST);
        ck_assert_ptr_null(pool);
        struct plm_host_stats stats;
        plm_host_read(host, &stats);
        ck_assert_int_eq(stats.used_bytes, 0);
    }
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *tc = tcase_create("pool");
    tcase_set_timeout(tc, 30);
    tcase_add_loop_test(tc, every_unit_runs_once_and_in_order, 1, 9);
    tcase_add_test(tc, list_is_bounded_and_numbers_units_in_32_bits);
    tcase_add_test(tc, run_takes_no_host_memory);
    tcase_add_test(tc, pools_come_and_go);
    tcase_add_test(tc, pool_creation_survives_lost_allocations);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
