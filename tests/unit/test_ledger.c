// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/base/random.h"
#include "core/mem/ledger.h"
#include "tests/support/suite.h"

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

// However phases follow each other, the peak of all is the largest of theirs, and none is forgotten
// when it is left, entered again, or when everything was given back.
START_TEST(no_phase_forgets_a_peak)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_ledger *ledger = plm_ledger_create(host);
    struct plm_ledger_stats s, before = {0};
    int64_t held[PLM_MEM_CLASSES] = {0}, all = 0, want_all[PLM_PHASES] = {0};
    int64_t want[PLM_PHASES][PLM_MEM_CLASSES] = {{0}};
    enum plm_phase phase = PLM_PHASE_LOAD;
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t out[4], counter[4] = {i, 0, 0, 0}, key[2] = {6, 7};
        plm_philox4x32(counter, key, out);
        const enum plm_mem_class c = (enum plm_mem_class)(out[0] % PLM_MEM_CLASSES);
        if (out[1] % 16 == 0) {
            phase = (enum plm_phase)(out[2] % PLM_PHASES);
            plm_ledger_phase(ledger, phase);
        } else {
            int64_t bytes = out[3] % 5 != 0 ? (int64_t)(out[2] % 1000) : -held[c];
            plm_ledger_hold(ledger, c, bytes);
            held[c] += bytes;
            all += bytes;
        }
        want_all[phase] = all > want_all[phase] ? all : want_all[phase];
        for (int k = 0; k < PLM_MEM_CLASSES; k++)
            want[phase][k] = held[k] > want[phase][k] ? held[k] : want[phase][k];
        plm_ledger_read(ledger, &s);
        int64_t largest = 0;
        for (int p = 0; p < PLM_PHASES; p++) {
            ck_assert_int_eq(s.phase_peak_bytes[p], want_all[p]);
            ck_assert_int_ge(s.phase_peak_bytes[p], before.phase_peak_bytes[p]);
            largest = want_all[p] > largest ? want_all[p] : largest;
            for (int k = 0; k < PLM_MEM_CLASSES; k++)
                ck_assert_int_eq(s.phase_class_peak_bytes[p][k], want[p][k]);
        }
        ck_assert_int_eq(s.peak_held_bytes, largest);
        before = s;
    }
    plm_ledger_destroy(ledger);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(the_tolerance_grows_with_what_is_rounded)
{
    const int64_t mib = 1 << 20;
    ck_assert_int_eq(plm_ledger_tolerance(0, 0, mib), 33 * mib);
    ck_assert_int_eq(plm_ledger_tolerance(512 * mib, 3, 2 * mib), 32 * mib + 8 * mib + mib);
}
END_TEST

static atomic_bool stop;

static void *write_pairs(void *arg)
{
    struct plm_ledger *ledger = arg;
    while (!atomic_load(&stop)) {
        plm_ledger_hold(ledger, PLM_MEM_KV, 64);
        plm_ledger_hold(ledger, PLM_MEM_KV, -64);
        for (volatile int i = 0; i < 3000; i++) // an engine does something between two changes
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
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, classes_add_up_and_peaks_stay);
    tcase_add_test(tc, a_phase_is_not_charged_with_the_one_before);
    tcase_add_test(tc, no_phase_forgets_a_peak);
    tcase_add_test(tc, the_tolerance_grows_with_what_is_rounded);
    tcase_add_test(tc, readers_see_consistent_sums);
    tcase_add_test(tc, no_memory_no_ledger);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
