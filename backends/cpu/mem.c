// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/mem.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "backends/cpu/pool.h"
#include "core/base/checked.h"

// Slabs start at a multiple of it, so that the kernel can back them with huge pages (2 MiB on x86
// and on ARM with 4 KiB pages): fewer misses of the address cache while weights stream by.
#define HUGE_PAGE (2ull << 20)

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

// Makes units of HUGE_PAGE from `at` resident.
static void touch_units(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct touch_args *a = args;
    unsigned char *at = (unsigned char *)(uintptr_t)a->at + begin * HUGE_PAGE;
    if (!plm_hostmem_touch(at, (end - begin) * HUGE_PAGE))
        atomic_store((atomic_bool *)(uintptr_t)a->failed, true);
}

// One step, by all workers. Slabs are whole huge pages.
static bool touch_together(void *ctx, void *at, uint64_t bytes)
{
    atomic_bool failed = false;
    struct touch_args args = {(uintptr_t)at, (uintptr_t)&failed};
    // A list of one dispatch, beside the open one.
    struct plm_cpu_dispatch dispatch;
    struct plm_cpu_phase phase;
    struct plm_cpu_list list = {
        .dispatches = &dispatch, .phases = &phase, .cap = 1, .barrier = true};
    plm_cpu_list_append(&list, touch_units, (uint32_t)(bytes / HUGE_PAGE), &args, sizeof(args));
    plm_cpu_pool_run(ctx, &list);
    return !failed;
}

int plm_cpu_alloc(const struct plm_hostmem *machine, struct plm_cpu_pool *pool,
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
    // What can be seen not to fit fails before it disturbs anybody; the steps of the commit find
    // what changes meanwhile.
    int rc = plm_hostmem_check(machine, taken);
    if (rc != PLM_OK)
        return rc;
    unsigned char *base = reserve(taken);
    if (base == NULL)
        return PLM_ERR_OUT_OF_DEVICE;
    madvise(base, taken, MADV_HUGEPAGE); // a hint: kernels without it say EINVAL
    rc = plm_hostmem_commit(machine, base, taken, pool != NULL ? touch_together : NULL, pool);
    if (rc != PLM_OK) {
        munmap(base, taken);
        return rc;
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
