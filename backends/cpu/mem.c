// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/cpu/pool.h"
#include "core/base/checked.h"

// Slabs start at a multiple of it, so that the kernel can back them with huge pages (2 MiB on x86
// and on ARM with 4 KiB pages): fewer misses of the address cache while weights stream by.
#define HUGE_PAGE (2ull << 20)
// What a step takes beside its own pages: page tables of the step (1/512) and the kernel's batched
// counting, which lets a group run ahead of its counter by 64 pages per processor. 1 MiB covers
// both up to some tens of processors; beyond, the plan's margin does.
#define STEP_EXTRA (1ull << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 // Linux 5.14; older kernels answer EINVAL
#endif

static bool fits(uint64_t used, uint64_t more, uint64_t limit)
{
    return used <= limit && more <= limit - used;
}

// True when `more` bytes can be taken now without crossing the machine, the operator's limit or any
// group's.
static bool has_room(const struct plm_cpu_machine *machine, uint64_t more)
{
    struct plm_mem_info info;
    if (plm_cpu_query(machine, &info) != PLM_OK)
        return false; // blind: a limit that cannot be seen cannot be kept
    if (info.free_bytes < more)
        return false;
    if (machine->limit_bytes > 0 && !fits(info.process_use_bytes, more, machine->limit_bytes))
        return false;
    for (uint32_t i = 0; i < info.n_cgroups; i++) {
        const struct plm_cgroup *level = &info.cgroups[i];
        if (!fits(level->current_bytes - level->reclaimable_bytes, more, level->limit_bytes))
            return false;
    }
    return true;
}

// True when a slab of `bytes` could not fit even if nothing else ran.
static bool can_never_fit(const struct plm_cpu_machine *machine, uint64_t bytes)
{
    struct plm_mem_info info;
    if (machine->limit_bytes > 0 && bytes > machine->limit_bytes)
        return true;
    if (plm_cpu_query(machine, &info) != PLM_OK)
        return false;
    bool never = bytes > info.total_bytes;
    for (uint32_t i = 0; i < info.n_cgroups; i++)
        never = never || bytes > info.cgroups[i].limit_bytes;
    return never;
}

// Address space at a multiple of HUGE_PAGE: maps one huge page more and gives the ends back.
static unsigned char *reserve(uint64_t bytes)
{
    uint64_t padded = bytes + HUGE_PAGE;
    unsigned char *base = mmap(NULL, padded, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    uint64_t head = plm_round_up((uintptr_t)base, HUGE_PAGE) - (uintptr_t)base;
    if (head > 0)
        munmap(base, head);
    if (padded - head > bytes)
        munmap(base + head + bytes, padded - head - bytes);
    return base + head;
}

struct touch_args {
    uint64_t at;
    uint64_t failed; // atomic_bool
};

// Makes units of HUGE_PAGE from `at` resident. MADV_POPULATE_WRITE reports a failure where a write
// would be a signal.
static void touch_units(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct touch_args *a = args;
    unsigned char *at = (unsigned char *)(uintptr_t)a->at + begin * HUGE_PAGE;
    uint64_t bytes = (end - begin) * HUGE_PAGE;
    int rc;
    do {
        rc = madvise(at, bytes, MADV_POPULATE_WRITE);
    } while (rc != 0 && (errno == EINTR || errno == EAGAIN));
    if (rc == 0)
        return;
    if (errno != EINVAL && errno != ENOSYS) {
        atomic_store((atomic_bool *)(uintptr_t)a->failed, true);
        return;
    }
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t i = 0; i < bytes; i += page)
        ((volatile unsigned char *)at)[i] = 0;
}

// One step of PLM_CPU_GRANULARITY.
static bool touch(struct plm_cpu_pool *pool, unsigned char *at)
{
    atomic_bool failed = false;
    struct touch_args args = {(uintptr_t)at, (uintptr_t)&failed};
    const uint32_t units = PLM_CPU_GRANULARITY / HUGE_PAGE;
    if (pool == NULL) {
        touch_units(&args, 0, units, NULL);
        return !failed;
    }
    // A list of one dispatch, beside the open one.
    struct plm_cpu_dispatch dispatch;
    struct plm_cpu_phase phase;
    struct plm_cpu_list list = {
        .dispatches = &dispatch, .phases = &phase, .cap = 1, .barrier = true};
    plm_cpu_list_append(&list, touch_units, units, &args, sizeof(args));
    plm_cpu_pool_run(pool, &list);
    return !failed;
}

int plm_cpu_alloc(const struct plm_cpu_machine *machine, struct plm_cpu_pool *pool,
                  enum plm_slab_kind kind, uint64_t bytes, void *import_ptr, struct plm_slab *ret)
{
    if (kind == PLM_SLAB_IMPORTED) {
        // The caller's memory stays the caller's: nothing is taken.
        *ret = (struct plm_slab){
            .addr = (uintptr_t)import_ptr, .bytes = bytes, .host = import_ptr, .kind = kind};
        return PLM_OK;
    }
    if (bytes > (uint64_t)INT64_MAX - PLM_CPU_GRANULARITY)
        return PLM_ERR_TOO_LARGE;
    uint64_t taken = plm_round_up(bytes, PLM_CPU_GRANULARITY);
    if (can_never_fit(machine, taken))
        return PLM_ERR_TOO_LARGE;
    // What can be seen not to fit fails before it disturbs anybody; the steps below find what
    // changes meanwhile.
    if (!has_room(machine, taken + taken / 512 + STEP_EXTRA))
        return PLM_ERR_OUT_OF_DEVICE;
    unsigned char *base = reserve(taken);
    if (base == NULL)
        return PLM_ERR_OUT_OF_DEVICE;
    madvise(base, taken, MADV_HUGEPAGE); // a hint: kernels without it say EINVAL
    for (uint64_t at = 0; at < taken; at += PLM_CPU_GRANULARITY) {
        if (!has_room(machine, PLM_CPU_GRANULARITY + STEP_EXTRA) || !touch(pool, base + at)) {
            munmap(base, taken);
            return PLM_ERR_OUT_OF_DEVICE;
        }
    }
    *ret = (struct plm_slab){
        .addr = (uintptr_t)base, .bytes = bytes, .taken_bytes = taken, .host = base, .kind = kind};
    return PLM_OK;
}

void plm_cpu_free(struct plm_slab *slab)
{
    if (slab->kind != PLM_SLAB_IMPORTED)
        munmap(slab->host, slab->taken_bytes);
}
