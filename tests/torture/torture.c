// SPDX-License-Identifier: Apache-2.0
// Every allocation fails once: the n-th of host memory, the n-th slab, for every n from the start
// of an engine over ASKS mixed requests to its shutdown (life.h); and the n-th call of malloc,
// whoever makes it, for a sample. Each time: no crash, no hang, nothing left behind, a clear error
// at the start or at one request, and every other request gives what it gives without the fault, as
// does one that comes after it.
//
//   torture              all of them
//   torture --every K    every K-th n of each kind, from a first one drawn by --seed
//   torture KIND N       one alone, in this process (KIND: host host-from device device-from
//   malloc)
//
// Works in a process per core. Exit status 0: all held.
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/random.h"
#include "tests/torture/life.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#define JOBS           2
#define LIFE_SECONDS   60 // an alarm ends a life that hangs outside of a step
#define LEAK_EVERY     64 // lives between two looks of the leak checker: it takes longer than a life
#define MALLOC_SAMPLES 300
#define FAILURES_MAX   5 // per job; then it gives up

static const char *const names[FAULT_KINDS] = {"none",        "host",   "host-from", "device",
                                               "device-from", "submit", "lost",      "malloc"};

// What a job is at, for its parent to name if it dies.
struct progress {
    struct fault fault;
    uint64_t lives, hits, starts_failed;
    uint32_t failures;
};

static struct life reference[2]; // with the pinned size, and without
static struct progress *progress;

static const struct life *reference_of(enum fault_kind kind)
{
    return &reference[kind == FAULT_DEVICE || kind == FAULT_DEVICE_FROM];
}

static bool complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static bool complain(const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    printf("%s %" PRIu64 ": %s\n", names[progress->fault.kind], progress->fault.n, text);
    fflush(stdout);
    return false;
}

// ---- judgement ----

// Whether a status may come of this kind of fault.
static bool fits(enum fault_kind kind, int status)
{
    switch (kind) {
    case FAULT_HOST:
    case FAULT_HOST_FROM: return status == PLIM_ERR_NOMEM_HOST;
    case FAULT_DEVICE:
    case FAULT_DEVICE_FROM:
        // Fewer blocks may mean a shorter context, and less that can ever fit.
        return status == PLIM_ERR_OUT_OF_DEVICE || status == PLIM_ERR_CONTEXT ||
               status == PLIM_ERR_NOMEM_NEVER;
    case FAULT_SUBMIT: return status == PLIM_ERR_OUT_OF_DEVICE;
    case FAULT_LOST: return status == PLIM_ERR_LOST;
    // A file or a thread needs memory of the C library, which tells the cause by errno alone.
    case FAULT_MALLOC: return status == PLIM_ERR_NOMEM_HOST || status == PLIM_ERR_IO;
    default: return false;
    }
}

static bool judge_start(const struct life *life)
{
    const struct fault *f = &progress->fault;
    progress->starts_failed++;
    if (!fits(f->kind, life->start))
        return complain("the start says %d: %s", life->start, life->start_error.message);
    if (life->start_error.status != life->start || life->start_error.message[0] == '\0')
        return complain("the start fails without a word");
    return true;
}

// Whether outcome i is what it is without a fault, or a failure that says so; counts the latter.
static bool judge_ask(const struct life *life, uint32_t i, uint32_t *hits)
{
    const struct outcome *o = &life->asks[i], *want = &reference_of(progress->fault.kind)->asks[i];
    if (o->submit == want->submit && o->done == want->done && o->hash == want->hash &&
        o->finishes == want->finishes)
        return true;
    const int status = o->submit != PLIM_OK ? o->submit : o->done;
    if (status == PLIM_OK)
        return complain("request %u gives another answer", i);
    if (!fits(progress->fault.kind, status))
        return complain("request %u ends with %d: %s", i, status, o->message);
    if (!o->says)
        return complain("request %u fails without a word", i);
    ++*hits;
    return true;
}

static bool judge_served(const struct life *life)
{
    const struct fault *f = &progress->fault;
    const struct life *want = reference_of(f->kind);
    uint32_t hits = 0;
    if (life->hung)
        return complain("a request never ends");
    for (uint32_t i = 0; i < ASKS; i++) {
        if (!judge_ask(life, i, &hits))
            return false;
    }
    const uint32_t asks_hit = hits;
    for (uint32_t i = 0; i < CALLS; i++) {
        if (life->calls[i] != want->calls[i] && !fits(f->kind, life->calls[i]))
            return complain("call %u returns %d", i, life->calls[i]);
        hits += life->calls[i] != want->calls[i];
    }
    // The ballast makes room for a submit, and who ran when the device was lost goes on.
    if ((f->kind == FAULT_SUBMIT || f->kind == FAULT_LOST) && asks_hit > 0)
        return complain("a submit that fails hits %u requests", asks_hit);
    if ((f->kind == FAULT_HOST || f->kind == FAULT_MALLOC) && hits > 1)
        return complain("one failure hits %u requests", hits);
    if (life->last_wake != PLIM_OK)
        return complain("it does not wake after the fault: %d", life->last_wake);
    progress->hits += hits;
    uint32_t none = 0;
    if (!judge_ask(life, ASKS, &none) || none > 0)
        return complain("the request after it fails: %s", life->asks[ASKS].message);
    const plim_metrics *m = &life->end;
    if (m->blocks_used > 0 || m->running + m->waiting > 0 || m->allocations_in_step > 0 ||
        m->audit_excess > 0)
        return complain("blocks used %" PRIu64 ", running %u, waiting %u, allocations in a step "
                        "%" PRIu64 ", audit %" PRIu64,
                        m->blocks_used, m->running, m->waiting, m->allocations_in_step,
                        m->audit_excess);
    return true;
}

static bool judge(const struct life *life)
{
    if (!(life->start != PLIM_OK ? judge_start(life) : judge_served(life)))
        return false;
    if (life->host_left != 0)
        return complain("%" PRId64 " bytes of host memory are left", life->host_left);
    if (life->device_left != 0)
        return complain("%" PRIu64 " bytes of the device are left", life->device_left);
    return true;
}

static bool leaks(void)
{
#ifdef __SANITIZE_ADDRESS__
    return __lsan_do_recoverable_leak_check() != 0;
#else
    return false;
#endif
}

static bool one(enum fault_kind kind, uint64_t n)
{
    static struct life life;
    progress->fault = (struct fault){kind, n};
    progress->lives++;
    alarm(LIFE_SECONDS);
    life_run(&progress->fault, &life);
    alarm(0);
    if (progress->lives % LEAK_EVERY == 0 && leaks())
        return complain("memory leaked in this life or in one of the %d before", LEAK_EVERY - 1);
    return judge(&life);
}

// ---- jobs ----

struct plan {
    enum fault_kind kind;
    uint64_t first, every, last;
};

static void work(const struct plan *plans, uint32_t n_plans, uint32_t job)
{
    for (uint32_t p = 0; p < n_plans; p++) {
        uint64_t n = plans[p].first + job * plans[p].every;
        for (; n <= plans[p].last; n += JOBS * plans[p].every) {
            if (!one(plans[p].kind, n) && ++progress->failures == FAILURES_MAX)
                return;
        }
    }
    if (leaks()) {
        complain("memory leaked in this life or in one of the %d before", LEAK_EVERY - 1);
        progress->failures++;
    }
}

static bool ended_well(struct progress *p, int status)
{
    if (WIFSIGNALED(status))
        printf("%s %" PRIu64 ": ended by %s\n", names[p->fault.kind], p->fault.n,
               strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0)
        printf("%s %" PRIu64 ": ended with status %d\n", names[p->fault.kind], p->fault.n,
               WEXITSTATUS(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && p->failures == 0;
}

static bool run_jobs(const struct plan *plans, uint32_t n_plans)
{
    pid_t pids[JOBS];
    struct progress *jobs = progress;
    uint64_t lives = 0, hits = 0, starts = 0;
    bool held = true;
    fflush(stdout);
    for (uint32_t j = 0; j < JOBS; j++) {
        pids[j] = fork();
        if (pids[j] != 0)
            continue;
        progress = &jobs[j];
        work(plans, n_plans, j);
        fflush(stdout);
        _exit(0);
    }
    for (uint32_t j = 0; j < JOBS; j++) {
        int status = 1;
        held = pids[j] > 0 && waitpid(pids[j], &status, 0) == pids[j] &&
               ended_well(&jobs[j], status) && held;
        lives += jobs[j].lives;
        hits += jobs[j].hits;
        starts += jobs[j].starts_failed;
    }
    printf("%" PRIu64 " lives: %" PRIu64 " starts failed, %" PRIu64 " requests and calls hit\n",
           lives, starts, hits);
    return held;
}

// ---- what there is to fail ----

// Lives without a fault, twice: they must not differ, or no comparison means anything.
static bool learn(void)
{
    static struct life again;
    static const enum fault_kind kinds[] = {FAULT_SUBMIT, FAULT_DEVICE};
    for (uint32_t k = 0; k < 2; k++) {
        progress->fault = (struct fault){kinds[k], 0};
        life_run(&progress->fault, &reference[k]);
        const struct life *life = &reference[k];
        if (life->start != PLIM_OK)
            return complain("without a fault: %s", life->start_error.message);
        uint32_t refused = 0;
        for (uint32_t i = 0; i < ASKS; i++)
            refused += life->asks[i].submit != PLIM_OK;
        if (refused != 4 && k == 0)
            return complain("%u requests are refused, not the four that are meant to be", refused);
        life_run(&progress->fault, &again);
        if (!judge(&again) || again.allocations[FAULT_HOST] != life->allocations[FAULT_HOST])
            return complain("two lives without a fault differ");
    }
    static const enum fault_kind others[] = {FAULT_HOST, FAULT_MALLOC}; // count on other ground
    for (uint32_t k = 0; k < 2; k++) {
        progress->fault = (struct fault){others[k], 0};
        life_run(&progress->fault, &again);
        if (!judge(&again))
            return false;
        reference[0].allocations[others[k]] = again.allocations[others[k]];
    }
    return true;
}

static uint32_t make_plans(uint64_t every, uint64_t seed, struct plan plans[FAULT_KINDS])
{
    uint32_t n = 0;
    for (enum fault_kind kind = FAULT_HOST; kind < FAULT_KINDS; kind++) {
        const uint64_t last = reference_of(kind)->allocations[kind];
        uint64_t each = every;
        if (kind == FAULT_HOST_FROM) // each ends most requests after it: a sample is enough
            each = every * 16;
        if (kind == FAULT_MALLOC)
            each = every * (1 + last / MALLOC_SAMPLES);
        uint64_t first =
            1 + (uint64_t)(plm_random_uniform(seed, (uint32_t)kind, 0, 0) * (float)each);
        plans[n++] = (struct plan){kind, first, each, last};
        printf("%s: %" PRIu64 " allocations, one in %" PRIu64 "\n", names[kind], last, each);
    }
    return n;
}

static int run_one(const char *name, uint64_t n)
{
    for (enum fault_kind kind = FAULT_HOST; kind < FAULT_KINDS; kind++) {
        if (strcmp(name, names[kind]) == 0)
            return one(kind, n) && !leaks() ? 0 : 1;
    }
    return 2;
}

int main(int argc, char **argv)
{
    uint64_t every = 1, seed = 1;
    struct plan plans[FAULT_KINDS];
    progress = mmap(NULL, JOBS * sizeof(*progress), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (progress == MAP_FAILED || !learn())
        return 1;
    if (argc == 3 && argv[1][0] != '-')
        return run_one(argv[1], strtoull(argv[2], NULL, 10));
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--every") == 0)
            every = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else
            return 2;
    }
    const uint32_t n = make_plans(every > 0 ? every : 1, seed, plans);
    return run_jobs(plans, n) ? 0 : 1;
}
