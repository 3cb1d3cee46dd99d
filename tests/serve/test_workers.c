// SPDX-License-Identifier: Apache-2.0
// In which order workers take jobs: nobody's many or large ones keep the others waiting.
#include <check.h>
#include <poll.h>
#include <pthread.h>

#include "tests/support/suite.h"
#include "tools/serve/workers.h"

#define LONG_MS 30000 // what comes at once may take so long on a busy machine

struct job {
    struct plm_job job;
    char name;
};

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static struct plm_workers *workers;

static void wait_at_the_gate(struct plm_job *job)
{
    (void)job;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static void run(struct plm_job *job)
{
    (void)job;
}

static struct job make(char name, uint64_t owner, bool large, bool waits)
{
    struct job job = {.name = name};
    job.job.owner = owner;
    job.job.large = large;
    job.job.run = waits ? wait_at_the_gate : run;
    return job;
}

// Names of the next n jobs that end, in their order.
static const char *ended(size_t n)
{
    static char names[16];
    size_t have = 0;
    while (have < n) {
        struct pollfd fd = {.fd = plm_workers_fd(workers), .events = POLLIN};
        ck_assert_int_eq(poll(&fd, 1, LONG_MS), 1);
        for (struct plm_job *job = plm_workers_finished(workers); job != NULL; job = job->next)
            names[have++] = ((struct job *)job)->name;
    }
    names[have] = '\0';
    return names;
}

static void start(unsigned threads)
{
    bool no_thread = false;
    workers = plm_workers_create(threads, 16, &no_thread);
    ck_assert_ptr_nonnull(workers);
}

START_TEST(large_jobs_leave_a_thread_to_the_others)
{
    struct job large[3], small = make('s', 1, false, false);
    start(2);
    pthread_mutex_lock(&gate);
    for (size_t i = 0; i < 3; i++) {
        large[i] = make('l', 1, true, true);
        ck_assert(plm_workers_push(workers, &large[i].job));
    }
    ck_assert(plm_workers_push(workers, &small.job));
    ck_assert_str_eq(ended(1), "s");
    pthread_mutex_unlock(&gate);
    ck_assert_str_eq(ended(3), "lll");
    plm_workers_destroy(workers);
}
END_TEST

START_TEST(owners_take_turns)
{
    static const char names[] = "abcdxef";
    struct job jobs[7], first = make('0', 1, true, true);
    start(1);
    pthread_mutex_lock(&gate);
    ck_assert(plm_workers_push(workers, &first.job));
    for (size_t i = 0; i < 7; i++) {
        jobs[i] = make(names[i], names[i] == 'x' || names[i] == 'f' ? 2 : 1, i % 2 == 0, false);
        ck_assert(plm_workers_push(workers, &jobs[i].job));
    }
    pthread_mutex_unlock(&gate);
    // After one of the first owner comes one of the other, as long as there is one.
    ck_assert_str_eq(ended(8), "0xafbcde");
    plm_workers_destroy(workers);
}
END_TEST

START_TEST(what_waits_is_finished_at_the_end)
{
    struct job jobs[8];
    start(3);
    for (size_t i = 0; i < 8; i++) {
        jobs[i] = make('j', i % 2, true, false);
        ck_assert(plm_workers_push(workers, &jobs[i].job));
    }
    plm_workers_join(workers);
    ck_assert_str_eq(ended(8), "jjjjjjjj");
    ck_assert(!plm_workers_push(workers, &jobs[0].job));
    plm_workers_destroy(workers);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("workers");
    TCase *tc = tcase_create("workers");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, large_jobs_leave_a_thread_to_the_others);
    tcase_add_test(tc, owners_take_turns);
    tcase_add_test(tc, what_waits_is_finished_at_the_end);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
