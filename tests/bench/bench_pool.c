// SPDX-License-Identifier: Apache-2.0
// The workers of the CPU backend: what a dependent dispatch costs, and what is left of two threads
// when every core also runs somebody else's busy process.
//
//   bench_pool            both tables
//   bench_pool latency | hostile
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/cpu/pool.h"
#include "backends/hostmem/cgroup.h"
#include "core/base/clock.h"

#define PHASES 1000
#define ROUNDS 21 // medians

struct work_args {
    uint32_t loops; // some 1 ns each
    uint32_t pad;
};

static void work(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    const struct work_args *a = args;
    volatile uint32_t *sink = scratch;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t x = i;
        for (uint32_t k = 0; k < a->loops; k++)
            x = x * 1664525u + 1013904223u; // a chain: latency of a multiplication
        *sink = x;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median microseconds of a list of dependent dispatches, per dispatch.
static double measure(struct plm_host *host, uint32_t workers, uint32_t units, uint32_t loops,
                      int rounds)
{
    struct plm_cpu_pool *pool;
    struct plm_cpu_list list;
    double us[ROUNDS];
    struct work_args args = {loops, 0};
    if (plm_cpu_pool_create(host, workers, &pool) != PLM_OK ||
        plm_cpu_list_init(&list, host, PHASES) != PLM_OK)
        exit(EXIT_FAILURE);
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < PHASES; i++) {
            plm_cpu_list_append(&list, work, units, &args, sizeof(args));
            plm_cpu_list_barrier(&list);
        }
        int64_t start = plm_now(plm_clock_system());
        plm_cpu_pool_run(pool, &list);
        us[r] = (double)(plm_now(plm_clock_system()) - start) / (1000.0 * PHASES);
        plm_cpu_list_clear(&list);
    }
    plm_cpu_list_finish(&list);
    plm_cpu_pool_destroy(pool);
    qsort(us, (size_t)rounds, sizeof(us[0]), compare);
    return us[rounds / 2];
}

static void latency(struct plm_host *host, uint32_t cpus)
{
    printf("microseconds per dependent dispatch (median of %d lists of %d)\n", ROUNDS, PHASES);
    printf("%8s %12s %12s %12s %12s\n", "workers", "2 x 0 ns", "16 x 0 ns", "16 x 250 ns",
           "64 x 1 us");
    for (uint32_t w = 1; w <= cpus; w *= 2) {
        printf("%8u %12.2f %12.2f %12.2f %12.2f\n", w, measure(host, w, 2, 0, ROUNDS),
               measure(host, w, 16, 0, ROUNDS), measure(host, w, 16, 250, ROUNDS),
               measure(host, w, 64, 1000, ROUNDS));
    }
}

// One busy process bound to every core that this one may use; returns how many.
static int start_hostiles(pid_t *pids, int cap)
{
    cpu_set_t set;
    int n = 0;
    sched_getaffinity(0, sizeof(set), &set);
    for (int cpu = 0; cpu < CPU_SETSIZE && n < cap; cpu++) {
        if (!CPU_ISSET(cpu, &set))
            continue;
        pid_t pid = fork();
        if (pid == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof(one), &one);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile unsigned x = 0;; x++)
                ;
        }
        if (pid > 0)
            pids[n++] = pid;
    }
    return n;
}

static void hostile(struct plm_host *host)
{
    // Dispatches of a decode step of a small model: 36 units of some microseconds.
    enum { UNITS = 36, LOOPS = 1500, LISTS = 9 };
    pid_t pids[256];
    double quiet[2] = {measure(host, 1, UNITS, LOOPS, LISTS),
                       measure(host, 2, UNITS, LOOPS, LISTS)};
    int n = start_hostiles(pids, 256);
    double busy[2] = {measure(host, 1, UNITS, LOOPS, LISTS), measure(host, 2, UNITS, LOOPS, LISTS)};
    for (int i = 0; i < n; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    printf("microseconds per dispatch of %d units, one and two threads\n", UNITS);
    printf("%24s %10.1f %10.1f   two run at %.2f of one\n", "quiet", quiet[0], quiet[1],
           quiet[0] / quiet[1]);
    printf("%24s %10.1f %10.1f   two run at %.2f of one (at least 0.80)\n",
           "a busy process per core", busy[0], busy[1], busy[0] / busy[1]);
}

int main(int argc, char **argv)
{
    struct plm_host *host = plm_host_create(0);
    if (host == NULL)
        return EXIT_FAILURE;
    if (argc < 2 || strcmp(argv[1], "latency") == 0)
        latency(host, plm_cgroup_cpus(NULL));
    if (argc < 2 || strcmp(argv[1], "hostile") == 0)
        hostile(host);
    return plm_host_destroy(host) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
