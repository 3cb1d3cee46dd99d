// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/checked.h"
#include "core/base/clock.h"
#include "core/base/thread.h"

// Longest busy wait. A sleeper takes 5 to 50 us to wake, so spinning less loses more than it saves;
// spinning longer burns the time slice that the holder of the missing units may be waiting for.
#define SPIN_NS 20000
// Pauses between two looks at the clock: a pause is 10 to 50 ns, a look some 25 ns.
#define PAUSES_PER_LOOK 8
// Kernels use their scratch, not the stack; this is for their locals and the C library.
#define STACK_BYTES (512u << 10)
#define CACHE_LINE  64

// Sleepers are woken by kind: workers for a phase with work for them, the caller also for the end.
#define WAKE_WORKER 1u
#define WAKE_CALLER 2u

// Stands for the units left where the pool has no list. No phase has as many (list.c).
#define IDLE UINT32_MAX

struct worker {
    struct plm_cpu_pool *pool;
    void *scratch;
    pthread_t thread;
};

struct plm_cpu_pool {
    struct plm_host *host;
    uint32_t n_workers;
    uint32_t n_threads; // started ones, without the caller
    void *block;        // of this struct, before its alignment
    void *scratch_block;
    struct worker *workers;

    // What is handed out now: the phase's number in the upper half, its units that nobody has
    // claimed in the lower one; in one word, so that a late worker cannot claim from a phase that
    // it has not seen. Numbers run on from list to list. The upper half is also what sleepers wait
    // on.
    _Alignas(CACHE_LINE) _Atomic uint64_t ticket;
    // Written by whoever opens a phase, read under a claim; while a claim is held nobody opens one.
    const struct plm_cpu_list *list;
    uint32_t phase; // index in list

    _Alignas(CACHE_LINE) _Atomic uint32_t done; // units of the current phase

    _Alignas(CACHE_LINE) _Atomic uint32_t sleeping_workers;
    _Atomic uint32_t sleeping_caller;
    atomic_bool quit;
};

static uint64_t ticket_of(uint32_t number, uint32_t left)
{
    return (uint64_t)number << 32 | left;
}

static uint32_t number_of(uint64_t ticket)
{
    return (uint32_t)(ticket >> 32);
}

static uint32_t left_of(uint64_t ticket)
{
    return (uint32_t)ticket;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); // `yield` returns at once on most cores
#endif
}

// ---- sleeping ----

// The upper half of the ticket.
static uint32_t *number_word(struct plm_cpu_pool *pool)
{
    return (uint32_t *)&pool->ticket + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 1 : 0);
}

static void wake(struct plm_cpu_pool *pool, uint32_t count, uint32_t kind)
{
    int n = count > INT_MAX ? INT_MAX : (int)count;
    syscall(SYS_futex, number_word(pool), FUTEX_WAKE_BITSET_PRIVATE, n, NULL, NULL, kind);
}

// Waits until the phase is no longer `number`: spins, then sleeps. May return early.
static void wait_phase(struct plm_cpu_pool *pool, uint32_t number, bool is_caller)
{
    const struct plm_clock *clock = plm_clock_system(); // real threads wait in real time
    int64_t until = plm_now(clock) + SPIN_NS;
    do {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (number_of(atomic_load_explicit(&pool->ticket, memory_order_relaxed)) != number)
                return;
            relax();
        }
    } while (plm_now(clock) < until);
    // The sleeper announces itself and then looks again; the opener changes the ticket and then
    // looks for sleepers. At least one of them sees the other, and the kernel looks once more.
    _Atomic uint32_t *announce = is_caller ? &pool->sleeping_caller : &pool->sleeping_workers;
    atomic_fetch_add(announce, 1);
    if (number_of(atomic_load(&pool->ticket)) == number)
        syscall(SYS_futex, number_word(pool), FUTEX_WAIT_BITSET_PRIVATE, number, NULL, NULL,
                is_caller ? WAKE_CALLER : WAKE_WORKER);
    atomic_fetch_sub(announce, 1);
}

// ---- handing out ----

// Opens a phase and wakes those whom it has work for; with units 0 the pool is idle from here. The
// store of the ticket is the last access to the list.
static void publish(struct plm_cpu_pool *pool, uint32_t units)
{
    uint64_t old = atomic_load_explicit(&pool->ticket, memory_order_relaxed);
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    atomic_store(&pool->ticket, ticket_of(number_of(old) + 1, units > 0 ? units : IDLE));
    if (units > 0 && atomic_load(&pool->sleeping_workers) > 0)
        wake(pool, units - 1, WAKE_WORKER); // one unit is the opener's own
    if (atomic_load(&pool->sleeping_caller) > 0)
        wake(pool, 1, WAKE_CALLER);
}

// Runs units [begin, end) of a phase.
static void run_units(const struct plm_cpu_list *list, const struct plm_cpu_phase *phase,
                      uint32_t begin, uint32_t end, void *scratch)
{
    for (uint32_t i = 0; i < phase->count && begin < end; i++) {
        const struct plm_cpu_dispatch *d = &list->dispatches[phase->first + i];
        uint32_t last = d->first_unit + d->units;
        if (begin >= last)
            continue;
        uint32_t stop = end < last ? end : last;
        d->fn(d->args, begin - d->first_unit, stop - d->first_unit, scratch);
        begin = stop;
    }
}

// The current phase is complete, and this worker completed it: goes on to the next. Phases of one
// unit are run here and now, since to hand them over would cost more than to do them.
static void advance(struct plm_cpu_pool *pool, void *scratch)
{
    const struct plm_cpu_list *list = pool->list;
    uint32_t next = pool->phase + 1;
    while (next < list->n_phases && list->phases[next].units == 1) {
        run_units(list, &list->phases[next], 0, 1, scratch);
        next++;
    }
    if (next < list->n_phases) {
        pool->phase = next;
        publish(pool, list->phases[next].units);
        return;
    }
    publish(pool, 0);
}

// Claims and runs some units of the current phase. false when there are none left to claim; then
// *ret_ticket is what was seen.
static bool work(struct plm_cpu_pool *pool, void *scratch, uint64_t *ret_ticket)
{
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    uint32_t left;
    uint32_t mine;
    do {
        left = left_of(ticket);
        if (left == 0 || left == IDLE) {
            *ret_ticket = ticket;
            return false;
        }
        // Half of a fair share of what is left: few claims, and small ones at the end, where
        // workers that ran at different speeds even out.
        mine = left / (2 * pool->n_workers);
        if (mine == 0)
            mine = 1;
    } while (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - mine,
                                                    memory_order_acquire, memory_order_acquire));
    const struct plm_cpu_phase *phase = &pool->list->phases[pool->phase];
    uint32_t total = phase->units;
    uint32_t begin = total - left;
    run_units(pool->list, phase, begin, begin + mine, scratch);
    if (atomic_fetch_add_explicit(&pool->done, mine, memory_order_acq_rel) + mine == total)
        advance(pool, scratch);
    return true;
}

static void *thread_main(void *arg)
{
    struct worker *self = arg;
    struct plm_cpu_pool *pool = self->pool;
    for (;;) {
        uint64_t seen;
        if (work(pool, self->scratch, &seen))
            continue;
        // After the ticket: who saw the number of plm_cpu_pool_destroy() sees this, too, and who
        // saw an older one does not fall asleep on it.
        if (atomic_load_explicit(&pool->quit, memory_order_acquire))
            return NULL;
        wait_phase(pool, number_of(seen), false);
    }
}

void plm_cpu_pool_run(struct plm_cpu_pool *pool, const struct plm_cpu_list *list)
{
    void *scratch = pool->workers[0].scratch;
    if (list->n_phases == 0)
        return;
    if (pool->n_threads == 0) {
        for (uint32_t i = 0; i < list->n_phases; i++)
            run_units(list, &list->phases[i], 0, list->phases[i].units, scratch);
        return;
    }
    pool->list = list;
    pool->phase = UINT32_MAX; // the phase before the first
    advance(pool, scratch);
    for (;;) {
        uint64_t seen;
        if (work(pool, scratch, &seen))
            continue;
        if (left_of(seen) == IDLE)
            return;
        wait_phase(pool, number_of(seen), true);
    }
}

void plm_cpu_pool_touch(struct plm_cpu_pool *pool)
{
    for (uint32_t i = 0; i < pool->n_workers; i++)
        memset(pool->workers[i].scratch, 0, PLM_CPU_SCRATCH_BYTES);
}

// ---- life ----

static bool start_threads(struct plm_cpu_pool *pool)
{
    bool ok = true;
    for (uint32_t i = 1; i < pool->n_workers && ok; i++) {
        struct worker *w = &pool->workers[i];
        ok = plm_thread_start(&w->thread, STACK_BYTES, thread_main, w);
        pool->n_threads += ok;
    }
    return ok;
}

int plm_cpu_pool_create(struct plm_host *host, uint32_t workers, struct plm_cpu_pool **ret)
{
    void *block = plm_calloc(host, PLM_HOST_DEVICE, 1, sizeof(struct plm_cpu_pool) + CACHE_LINE);
    if (block == NULL)
        return PLM_ERR_NOMEM_HOST;
    struct plm_cpu_pool *pool = (void *)plm_round_up((uintptr_t)block, CACHE_LINE);
    pool->host = host;
    pool->block = block;
    pool->n_workers = workers;
    pool->ticket = ticket_of(0, IDLE);
    pool->workers = plm_calloc(host, PLM_HOST_DEVICE, workers, sizeof(*pool->workers));
    pool->scratch_block =
        plm_calloc(host, PLM_HOST_DEVICE, 1, (size_t)workers * PLM_CPU_SCRATCH_BYTES + CACHE_LINE);
    if (pool->workers == NULL || pool->scratch_block == NULL) {
        plm_cpu_pool_destroy(pool);
        return PLM_ERR_NOMEM_HOST;
    }
    uintptr_t scratch = plm_round_up((uintptr_t)pool->scratch_block, CACHE_LINE);
    for (uint32_t i = 0; i < workers; i++) {
        pool->workers[i].pool = pool;
        pool->workers[i].scratch = (void *)(scratch + (size_t)i * PLM_CPU_SCRATCH_BYTES);
    }
    if (!start_threads(pool)) {
        plm_cpu_pool_destroy(pool);
        return PLM_ERR_IO;
    }
    *ret = pool;
    return PLM_OK;
}

void plm_cpu_pool_destroy(struct plm_cpu_pool *pool)
{
    if (pool == NULL)
        return;
    if (pool->n_threads > 0) {
        atomic_store(&pool->quit, true);
        publish(pool, 0); // a new number: nobody falls asleep on the old one
        wake(pool, UINT32_MAX, WAKE_WORKER);
        for (uint32_t i = 1; i <= pool->n_threads; i++)
            pthread_join(pool->workers[i].thread, NULL);
    }
    plm_free(pool->host, pool->scratch_block);
    plm_free(pool->host, pool->workers);
    plm_free(pool->host, pool->block);
}
