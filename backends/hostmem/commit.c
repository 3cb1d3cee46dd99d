// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/hostmem/hostmem.h"

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
static bool has_room(const struct plm_hostmem *machine, uint64_t more)
{
    struct plm_mem_info info;
    if (plm_hostmem_query(machine, &info) != PLM_OK)
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

// True when `bytes` could not fit even if nothing else ran.
static bool can_never_fit(const struct plm_hostmem *machine, uint64_t bytes)
{
    struct plm_mem_info info;
    if (machine->limit_bytes > 0 && bytes > machine->limit_bytes)
        return true;
    if (plm_hostmem_query(machine, &info) != PLM_OK)
        return false;
    bool never = bytes > info.total_bytes;
    for (uint32_t i = 0; i < info.n_cgroups; i++)
        never = never || bytes > info.cgroups[i].limit_bytes;
    return never;
}

int plm_hostmem_check(const struct plm_hostmem *machine, uint64_t bytes)
{
    if (bytes > INT64_MAX || can_never_fit(machine, bytes))
        return PLM_ERR_TOO_LARGE;
    return has_room(machine, bytes + bytes / 512 + STEP_EXTRA) ? PLM_OK : PLM_ERR_OUT_OF_DEVICE;
}

// MADV_POPULATE_WRITE reports a failure where a write would be a signal. It wants whole pages:
// those that the ends lie in are taken either way.
bool plm_hostmem_touch(void *at, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t head = (uintptr_t)at % page;
    int rc;
    do {
        rc = madvise((unsigned char *)at - head, head + bytes, MADV_POPULATE_WRITE);
    } while (rc != 0 && (errno == EINTR || errno == EAGAIN));
    if (rc == 0)
        return true;
    if (errno != EINVAL && errno != ENOSYS)
        return false;
    volatile unsigned char *first = (unsigned char *)at - head;
    for (uint64_t i = head; i < head + bytes; i = (i / page + 1) * page)
        first[i] = 0;
    return true;
}

int plm_hostmem_commit(const struct plm_hostmem *machine, void *at, uint64_t bytes,
                       plm_hostmem_touch_fn *fn, void *ctx)
{
    for (uint64_t done = 0; done < bytes; done += PLM_HOSTMEM_STEP) {
        unsigned char *step = (unsigned char *)at + done;
        uint64_t n = bytes - done < PLM_HOSTMEM_STEP ? bytes - done : PLM_HOSTMEM_STEP;
        if (!has_room(machine, n + STEP_EXTRA) ||
            !(fn != NULL ? fn(ctx, step, n) : plm_hostmem_touch(step, n)))
            return PLM_ERR_OUT_OF_DEVICE;
    }
    return PLM_OK;
}
