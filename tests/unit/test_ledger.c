// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/mem/ledger.h"

START_TEST(classes_add_up_and_peaks_stay)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_ledger *ledger = plm_ledger_create(host);
    struct plm_ledger_stats s;
    plm_ledger_hold(ledger, PLM_MEM_WEIGHTS, 1000);
    plm_ledger_hold(ledger, PLM_MEM_KV, 500);
    plm_ledger_live(ledger, PLM_MEM_KV, 64);
    plm_ledger_live(ledger, PLM_MEM_KV, -64);
    plm_ledger_hold(ledger, PLM_MEM_KV, -500);
    plm_ledger_read(ledger, &s);
    ck_assert_int_eq(s.held_bytes, 1000);
    ck_assert_int_eq(s.peak_held_bytes, 1500);
    ck_assert_int_eq(s.live_bytes, 0);
    ck_assert_int_eq(s.by_class[PLM_MEM_KV].held_bytes, 0);
    ck_assert_int_eq(s.by_class[PLM_MEM_KV].peak_held_bytes, 500);
    ck_assert_int_eq(s.by_class[PLM_MEM_KV].peak_live_bytes, 64);
    ck_assert_int_eq(s.by_class[PLM_MEM_WEIGHTS].held_bytes, 1000);
    plm_ledger_destroy(ledger);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(a_phase_is_not_charged_with_the_one_before)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_ledger *ledger = plm_ledger_create(host);
    struct plm_ledger_stats s;
    plm_ledger_phase(ledger, PLM_PHASE_LOAD);
    plm_ledger_hold(ledger, PLM_MEM_STAGING, 300);
    plm_ledger_hold(ledger, PLM_MEM_STAGING, -200);
    plm_ledger_phase(ledger, PLM_PHASE_PREFILL);
    plm_ledger_hold(ledger, PLM_MEM_KV, 50);
    plm_ledger_phase(ledger, PLM_PHASE_SERVE);
    plm_ledger_read(ledger, &s);
    ck_assert_int_eq(s.phase_peak_bytes[PLM_PHASE_LOAD], 300);
    ck_assert_int_eq(s.phase_peak_bytes[PLM_PHASE_TUNE], 0);
    ck_assert_int_eq(s.phase_peak_bytes[PLM_PHASE_PREFILL], 150);
    ck_assert_int_eq(s.phase_peak_bytes[PLM_PHASE_SERVE], 150);
    plm_ledger_destroy(ledger);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

static atomic_bool stop;

static void *write_pairs(void *arg)
{
    struct plm_ledger *ledger = arg;
    while (!atomic_load(&stop)) {
        plm_ledger_hold(ledger, PLM_MEM_KV, 64);
        plm_ledger_hold(ledger, PLM_MEM_KV, -64);
        for (volatile int i = 0; i < 500; i++) // an engine does something between two changes
            ;
    }
    return NULL;
}

START_TEST(readers_see_consistent_sums)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_ledger *ledger = plm_ledger_create(host);
    pthread_t writer;
    ck_assert_int_eq(pthread_create(&writer, NULL, write_pairs, ledger), 0);
    for (int i = 0; i < 20000; i++) {
        struct plm_ledger_stats s;
        plm_ledger_read(ledger, &s);
        ck_assert_int_eq(s.held_bytes, s.by_class[PLM_MEM_KV].held_bytes);
        ck_assert(s.held_bytes == 0 || s.held_bytes == 64);
        ck_assert_int_le(s.held_bytes, s.peak_held_bytes);
    }
    atomic_store(&stop, true);
    pthread_join(writer, NULL);
    plm_ledger_destroy(ledger);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(no_memory_no_ledger)
{
    struct plm_host *host = plm_host_create(0);
    plm_host_fail_nth(host, 1, 0);
    ck_assert_ptr_null(plm_ledger_create(host));
    plm_ledger_destroy(NULL);
    ck_assert_str_eq(plm_mem_class_name(PLM_MEM_BALLAST), "ballast");
    ck_assert_str_eq(plm_mem_class_name(PLM_MEM_CLASSES), "?");
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ledger");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, classes_add_up_and_peaks_stay);
    tcase_add_test(tc, a_phase_is_not_charged_with_the_one_before);
    tcase_add_test(tc, readers_see_consistent_sums);
    tcase_add_test(tc, no_memory_no_ledger);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
