// SPDX-License-Identifier: Apache-2.0
// Runs the blocks of a launch one after the other. A thread runs until it waits: at a barrier, for
// its warp, for the kernels before. A wave is drawn from those that can go on, its lanes run in an
// order drawn anew each time, and then either others get their turn or the same wave runs ahead. So
// whatever reads what another thread has not written yet, or overwrites what another still needs,
// finds an order in which it shows.
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/lib/port.cuh"
#include "tests/simt/fiber.h"

#define THREADS       1024u
#define COPIES        256u // of a thread under way
#define SHARED_ARRAYS 64u
#define GARBAGE       0xff // as floats a NaN, as a number of a row far outside
// Memory that is filled with garbage and brought back before a launch's plm_await, all its blocks
// together: 20 ms.
#define GUARD_BYTES (32u << 20)

struct copy {
    void *to;
    const void *from;
    uint32_t bytes, group;
};

struct wait_at {
    const char *what; // NULL: can run
    const char *file;
    int line;
};

struct thread {
    struct simt_thread port; // first: simt_now points to it
    struct simt_fiber fiber;
    struct wait_at at;
    bool awaited, ended;
    uint32_t first_copy, n_copies; // a ring
    uint32_t group;                // of the copies that begin now
    struct copy copies[COPIES];
};

static struct state {
    const struct simt_launch *launch;
    const struct simt_kernel *kernel;
    char *error;
    bool failed;
    uint64_t random;
    struct simt_fiber main;
    uint32_t made; // threads that have a stack
    struct thread thread[THREADS];
    // The running block.
    uint64_t ready[THREADS / 32]; // lanes that can run, per wave
    struct simt_warp warp[THREADS / PLM_WARP];
    uint32_t threads, live, at_barrier, at_await;
    bool holds_back; // guarded memory is garbage until all threads await
    struct simt_range shared[SHARED_ARRAYS];
    uint32_t n_shared;
    uint64_t shared_bytes;
    uint8_t *kept; // contents of the guarded memory
    uint64_t kept_bytes;
} s;

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static const struct simt_kernel *kernels;

struct simt_thread *simt_now;
struct simt_dim simt_block, simt_block_dim, simt_grid_dim;
uint64_t simt_serial;
bool simt_guards;

void simt_register(struct simt_kernel *kernel)
{
    kernel->next = kernels;
    kernels = kernel;
}

const struct simt_kernel *simt_find(const char *name)
{
    const struct simt_kernel *k = kernels;
    while (k != nullptr && strcmp(k->name, name) != 0)
        k = k->next;
    return k;
}

// splitmix64
static uint32_t draw(uint32_t below)
{
    uint64_t z = s.random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(((z ^ z >> 31) >> 32) * below >> 32);
}

// ---- errors ----

// Notes the first error of a launch.
static void fail(const char *format, va_list list)
{
    if (s.failed)
        return;
    s.failed = true;
    const int n = snprintf(s.error, SIMT_ERROR_BYTES, "%s, block (%u, %u, %u): ", s.launch->kernel,
                           simt_block.x, simt_block.y, simt_block.z);
    vsnprintf(s.error + n, SIMT_ERROR_BYTES - (size_t)n, format, list);
}

[[gnu::format(printf, 1, 2)]] static void fail_outside(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fail(format, list);
    va_end(list);
}

static struct thread *now(void)
{
    return (struct thread *)(void *)simt_now;
}

// Called by a thread, which never goes on.
void simt_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fail(format, list);
    va_end(list);
    for (;;)
        simt_fiber_switch(&now()->fiber, &s.main, true);
}

static bool same_place(const struct wait_at &a, const struct wait_at &b)
{
    return a.line == b.line && (a.what == b.what || strcmp(a.what, b.what) == 0) &&
           (a.file == b.file || strcmp(a.file, b.file) == 0);
}

// Where the threads of the block are, none of which can go on.
static void report_deadlock(void)
{
    char text[400] = "";
    size_t n = 0;
    uint32_t ended = 0;
    for (uint32_t i = 0; i < s.threads; i++) {
        const struct wait_at at = s.thread[i].at;
        uint32_t same = 0, first = s.threads;
        ended += s.thread[i].ended;
        for (uint32_t j = 0; at.what != nullptr && j < s.threads; j++)
            if (s.thread[j].at.what != nullptr && same_place(s.thread[j].at, at)) {
                same++;
                first = j < first ? j : first;
            }
        if (first == i && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, ", %u in %s at %s:%d", same, at.what,
                                  at.file, at.line);
    }
    fail_outside("deadlock: %u of %u threads have ended%s", ended, s.threads, text);
}

// ---- waiting ----

static void wait_here(const char *what, const char *file, int line)
{
    struct thread *t = now();
    const uint32_t i = t->port.index.x, width = s.launch->width;
    t->at = {what, file, line};
    s.ready[i / width] &= ~(1ull << i % width);
}

static void go_on(uint32_t first, uint32_t n)
{
    const uint32_t width = s.launch->width;
    for (uint32_t i = first; i < first + n; i++) {
        s.thread[i].at.what = nullptr;
        s.ready[i / width] |= 1ull << i % width;
    }
}

static void yield(void)
{
    simt_fiber_switch(&now()->fiber, &s.main, false);
}

// Threads [first, first + n) have met: at the same place?
static void check_same_place(uint32_t first, uint32_t n)
{
    const struct wait_at &a = s.thread[first].at;
    for (uint32_t i = first + 1; i < first + n; i++) {
        const struct wait_at &b = s.thread[i].at;
        if (!same_place(a, b))
            simt_fail("thread %u is in %s at %s:%d, thread %u in %s at %s:%d", first, a.what,
                      a.file, a.line, i, b.what, b.file, b.line);
    }
}

void simt_barrier(const char *file, int line)
{
    wait_here("__syncthreads", file, line);
    if (++s.at_barrier == s.threads) {
        check_same_place(0, s.threads);
        s.at_barrier = 0;
        go_on(0, s.threads);
    }
    yield();
}

void simt_meet(const char *what, void (*combine)(struct simt_warp &), const char *file, int line)
{
    struct simt_warp &w = *simt_now->warp;
    wait_here(what, file, line);
    if (++w.arrived < PLM_WARP) {
        yield();
        return;
    }
    const uint32_t first = simt_now->index.x / PLM_WARP * PLM_WARP;
    check_same_place(first, PLM_WARP);
    w.arrived = 0;
    if (combine != nullptr)
        combine(w);
    go_on(first, PLM_WARP);
}

static void hold_back(void)
{
    uint8_t *to = s.kept;
    for (size_t i = 0; i < s.launch->n_guarded; i++) {
        memcpy(to, s.launch->guarded[i].at, s.launch->guarded[i].bytes);
        to += s.launch->guarded[i].bytes;
    }
    for (size_t i = 0; i < s.launch->n_guarded; i++)
        memset(s.launch->guarded[i].at, GARBAGE, s.launch->guarded[i].bytes);
    s.holds_back = true;
}

// Returns whether all of it was still garbage.
static bool give_back(void)
{
    const uint8_t *from = s.kept;
    bool untouched = true;
    for (size_t i = 0; i < s.launch->n_guarded; i++) {
        const uint8_t *p = (const uint8_t *)s.launch->guarded[i].at;
        const uint64_t n = s.launch->guarded[i].bytes;
        untouched = untouched && (n == 0 || (p[0] == GARBAGE && memcmp(p, p + 1, n - 1) == 0));
    }
    for (size_t i = 0; i < s.launch->n_guarded; i++) {
        memcpy(s.launch->guarded[i].at, from, s.launch->guarded[i].bytes);
        from += s.launch->guarded[i].bytes;
    }
    s.holds_back = false;
    return untouched;
}

// Threads wait for each other only where memory is held back: elsewhere that would hide a barrier
// that lacks.
void simt_await(const char *file, int line)
{
    struct thread *t = now();
    if (t->awaited)
        simt_fail("thread %u calls plm_await twice, at %s:%d", t->port.index.x, file, line);
    t->awaited = true;
    if (!s.holds_back)
        return;
    wait_here("plm_await", file, line);
    if (++s.at_await == s.threads) {
        if (!give_back())
            simt_fail("memory was written before plm_await at %s:%d", file, line);
        go_on(0, s.threads);
    }
    yield();
}

// ---- memory ----

void simt_shared_begin(void *at, uint64_t bytes)
{
    if (s.n_shared == SHARED_ARRAYS)
        simt_fail("more than %u shared arrays", SHARED_ARRAYS);
    s.shared[s.n_shared++] = {at, bytes};
    s.shared_bytes += (bytes + 15) / 16 * 16;
    if (s.shared_bytes > SIMT_SHARED_BYTES)
        simt_fail("%llu bytes of shared memory, %u are there", (unsigned long long)s.shared_bytes,
                  SIMT_SHARED_BYTES);
    memset(at, GARBAGE, bytes);
}

void simt_touch(const char *what, const void *at, uint32_t bytes, const char *file, int line)
{
    if ((uintptr_t)at % bytes != 0)
        simt_fail("%s at %s:%d: %p is not aligned", what, file, line, at);
    for (size_t i = 0; !now()->awaited && i < s.launch->n_guarded; i++) {
        const uintptr_t begin = (uintptr_t)s.launch->guarded[i].at;
        if ((uintptr_t)at - begin < s.launch->guarded[i].bytes)
            simt_fail("%s at %s:%d touches what only plm_await makes valid", what, file, line);
    }
}

void simt_copy(const char *what, void *shared, const void *global, uint32_t bytes, const char *file,
               int line)
{
    struct thread *t = now();
    bool inside = false;
    simt_touch(what, global, bytes, file, line);
    for (uint32_t i = 0; i < s.n_shared; i++) {
        const uintptr_t offset = (uintptr_t)shared - (uintptr_t)s.shared[i].at;
        inside = inside || (offset < s.shared[i].bytes && offset + bytes <= s.shared[i].bytes);
    }
    if (!inside || (uintptr_t)shared % bytes != 0)
        simt_fail("%s at %s:%d: not %u aligned bytes of shared memory", what, file, line, bytes);
    if (t->n_copies == COPIES)
        simt_fail("%s at %s:%d: more than %u copies under way", what, file, line, COPIES);
    t->copies[(t->first_copy + t->n_copies++) % COPIES] = {shared, global, bytes, t->group};
    memset(shared, GARBAGE, bytes); // from now on the bytes may arrive
}

void simt_copy_commit(void)
{
    now()->group++;
}

void simt_copy_wait(uint32_t under_way)
{
    struct thread *t = now();
    while (t->n_copies != 0) {
        const struct copy *c = &t->copies[t->first_copy];
        if (c->group + under_way >= t->group)
            return;
        memcpy(c->to, c->from, c->bytes);
        t->first_copy = (t->first_copy + 1) % COPIES;
        t->n_copies--;
    }
}

// ---- blocks ----

// The bottom of every fiber.
static void run_thread(void)
{
    simt_fiber_arrived(&s.main);
    s.kernel->enter(s.launch->args);
    struct thread *t = now();
    if (!t->awaited)
        simt_fail("thread %u ends without plm_await", t->port.index.x);
    if (t->n_copies != 0)
        simt_fail("thread %u ends with copies under way", t->port.index.x);
    t->ended = true;
    s.live--;
    wait_here(nullptr, nullptr, 0);
    for (;;)
        simt_fiber_switch(&t->fiber, &s.main, true);
}

// Every lane of the wave that can run, once, in an order drawn at random.
static void run_wave(uint32_t wave)
{
    const uint32_t width = s.launch->width;
    const uint32_t step = draw(width / 2) * 2 + 1, start = draw(width);
    for (uint32_t i = 0; i < width && !s.failed; i++) {
        const uint32_t lane = (i * step + start) % width;
        if ((s.ready[wave] >> lane & 1) == 0)
            continue;
        struct thread *t = &s.thread[wave * width + lane];
        simt_now = &t->port;
        simt_fiber_switch(&s.main, &t->fiber, false);
    }
}

static void begin_block(void)
{
    simt_serial++;
    s.live = s.threads;
    s.at_barrier = s.at_await = s.n_shared = 0;
    s.shared_bytes = 0;
    memset(s.ready, 0, sizeof s.ready);
    for (uint32_t i = 0; i < s.threads; i++) {
        struct thread *t = &s.thread[i];
        t->port = {{i, 0, 0}, i % PLM_WARP, &s.warp[i / PLM_WARP]};
        t->port.warp->arrived = 0;
        t->awaited = t->ended = false;
        t->first_copy = t->n_copies = t->group = 0;
        simt_fiber_begin(&t->fiber, run_thread);
    }
    go_on(0, s.threads);
}

static void run_block(void)
{
    const uint32_t waves = (s.threads + s.launch->width - 1) / s.launch->width;
    begin_block();
    while (s.live != 0 && !s.failed) {
        uint32_t able[THREADS / 32], n = 0;
        for (uint32_t w = 0; w < waves; w++)
            if (s.ready[w] != 0)
                able[n++] = w;
        if (n == 0) {
            report_deadlock();
            return;
        }
        const uint32_t wave = able[draw(n)];
        do
            run_wave(wave);
        while (s.ready[wave] != 0 && !s.failed && draw(4) != 0);
    }
}

// ---- launches ----

static bool set_out(const struct simt_launch *l)
{
    const uint32_t *g = l->grid;
    if (s.kernel == nullptr)
        fail_outside("no such kernel");
    else if (l->threads != s.kernel->threads || l->args_bytes != s.kernel->args_bytes)
        fail_outside("%u threads and %zu bytes of arguments, built for %u and %u", l->threads,
                     l->args_bytes, s.kernel->threads, s.kernel->args_bytes);
    else if (g[0] == 0 || g[1] == 0 || g[2] == 0 || g[0] > INT32_MAX || g[1] > 65535 ||
             g[2] > 65535)
        fail_outside("a grid of %u x %u x %u", g[0], g[1], g[2]);
    else if (l->width != 32 && l->width != 64)
        fail_outside("waves of %u lanes", l->width);
    for (; s.made < l->threads && !s.failed; s.made++)
        if (!simt_fiber_init(&s.thread[s.made].fiber))
            fail_outside("no memory for stacks");
    s.kept_bytes = 0;
    for (size_t i = 0; i < l->n_guarded; i++)
        s.kept_bytes += l->guarded[i].bytes;
    s.kept = (uint8_t *)malloc(s.kept_bytes + 1);
    if (s.kept == nullptr)
        fail_outside("no memory for guarded ranges");
    return !s.failed;
}

// Which of n comes at place i of an order drawn at random: (first + i * step) % n.
struct order {
    uint64_t n, first, step;
};

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

static struct order draw_order(uint64_t n)
{
    struct order o = {n, draw((uint32_t)(n < UINT32_MAX ? n : UINT32_MAX)), 1 + draw(1000)};
    while (common_divisor(n, o.step) != 1)
        o.step++;
    return o;
}

static void run_blocks(const struct simt_launch *l)
{
    const uint64_t n = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    const struct order order = draw_order(n);
    const uint64_t guarded = l->n_guarded != 0 ? 1 + GUARD_BYTES / (s.kept_bytes + 1) : 0;
    for (uint64_t i = 0; i < n && !s.failed; i++) {
        const uint64_t b = (order.first + i * order.step) % n;
        simt_block = {(uint32_t)(b % l->grid[0]), (uint32_t)(b / l->grid[0] % l->grid[1]),
                      (uint32_t)(b / l->grid[0] / l->grid[1])};
        if (i < guarded)
            hold_back();
        run_block();
        if (s.holds_back)
            give_back();
    }
}

int simt_run(const struct simt_launch *launch, char ret_error[SIMT_ERROR_BYTES])
{
    pthread_mutex_lock(&one_at_a_time);
    s.launch = launch;
    s.kernel = simt_find(launch->kernel);
    s.error = ret_error;
    s.failed = s.holds_back = false;
    s.random = launch->seed;
    s.threads = launch->threads;
    s.kept = nullptr;
    simt_block = {0, 0, 0};
    simt_block_dim = {launch->threads, 1, 1};
    simt_grid_dim = {launch->grid[0], launch->grid[1], launch->grid[2]};
    simt_guards = launch->n_guarded != 0;
    if (set_out(launch))
        run_blocks(launch);
    free(s.kept);
    for (uint32_t i = 0; s.failed && i < s.made; i++)
        simt_fiber_clean(&s.thread[i].fiber);
    const int r = s.failed;
    pthread_mutex_unlock(&one_at_a_time);
    return r;
}
