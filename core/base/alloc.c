// SPDX-License-Identifier: Apache-2.0
#include "core/base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "core/base/checked.h"
#include "core/base/status.h"

// Stands before every block, so that free needs no size and no owner.
struct block_head {
    uint64_t bytes; // what was charged, the head and malloc's share included
    uint64_t owner;
};
_Static_assert(sizeof(struct block_head) == 16, "keeps the 16-byte alignment of malloc");

// glibc's malloc on 64 bits keeps 8 bytes before a block, and all of them are multiples of 16: of a
// render of many small blocks that is a fifth.
#define MALLOC_HEAD_BYTES  8
#define MALLOC_ALIGN_BYTES 16
_Static_assert(PLM_HOST_HEAD_BYTES >=
                   sizeof(struct block_head) + MALLOC_HEAD_BYTES + MALLOC_ALIGN_BYTES - 1,
               "what others reserve for a block is never less than what it is charged");

struct plm_host {
    _Atomic int64_t limit;
    _Atomic int64_t used;
    _Atomic int64_t peak;
    _Atomic int64_t by_owner[PLM_HOST_OWNERS];
    _Atomic uint64_t allocations;
    _Atomic uint64_t freed;
    _Atomic uint64_t trimmed; // of freed, what malloc was asked to give back
    _Atomic int64_t fail_in;  // > 0: counts down; the call that reaches 0 fails
    _Atomic int fail_sticky;
};

const char *plm_host_owner_name(enum plm_host_owner owner)
{
    static const char *const names[PLM_HOST_OWNERS] = {"model", "tokenizer", "template", "request",
                                                       "sched", "kv",        "device",   "other"};
    return (unsigned)owner < PLM_HOST_OWNERS ? names[owner] : "?";
}

struct plm_host *plm_host_create(int64_t limit_bytes)
{
    struct plm_host *host = calloc(1, sizeof(*host));
    if (host != NULL)
        host->limit = limit_bytes;
    return host;
}

int64_t plm_host_destroy(struct plm_host *host)
{
    if (host == NULL)
        return 0;
    int64_t left = host->used;
    free(host);
    return left;
}

void plm_host_set_limit(struct plm_host *host, int64_t limit_bytes)
{
    host->limit = limit_bytes;
}

// Freed since malloc was last asked to give free pages back: at most so much of it is resident.
static uint64_t kept(const struct plm_host *host)
{
    const uint64_t trimmed = atomic_load(&host->trimmed);
    return atomic_load(&host->freed) - trimmed;
}

void plm_host_read(const struct plm_host *host, struct plm_host_stats *ret)
{
    ret->limit_bytes = host->limit;
    ret->used_bytes = host->used;
    ret->peak_bytes = host->peak;
    for (int i = 0; i < PLM_HOST_OWNERS; i++)
        ret->owner_bytes[i] = host->by_owner[i];
    ret->allocations = host->allocations;
    ret->kept_bytes = kept(host);
}

void plm_host_fail_nth(struct plm_host *host, uint64_t n, int sticky)
{
    host->fail_sticky = sticky;
    host->fail_in = (int64_t)n;
}

static bool injected_failure(struct plm_host *host)
{
    int64_t left = atomic_load(&host->fail_in);
    if (left == 0)
        return false;
    left = atomic_fetch_sub(&host->fail_in, 1) - 1;
    if (left > 0)
        return false;
    if (host->fail_sticky)
        atomic_store(&host->fail_in, 1); // the next call fails as well
    return true;
}

static _Thread_local struct plm_host_meter *thread_meter;

void plm_host_meter_start(const struct plm_host *host, struct plm_host_meter *meter)
{
    *meter = (struct plm_host_meter){.host = host};
    thread_meter = meter;
}

void plm_host_meter_stop(void)
{
    thread_meter = NULL;
}

static struct plm_host_meter *meter_of(const struct plm_host *host)
{
    return thread_meter != NULL && thread_meter->host == host ? thread_meter : NULL;
}

// A trim takes milliseconds: for less than this (4 MiB) it is not worth its time.
#define KEPT_MIN_BYTES (UINT64_C(4) << 20)

// What malloc keeps lies beside what is used, and both are resident. Where they would pass the
// limit together, malloc gives back first.
static void bound_kept(struct plm_host *host, int64_t used, int64_t limit)
{
    const uint64_t bytes = kept(host);
    if (limit > 0 && bytes >= KEPT_MIN_BYTES && used > limit - (int64_t)bytes)
        plm_host_trim(host);
}

// 8 PiB, more than any machine has: beyond it the sum of several charges could leave 64 bits.
#define CHARGE_MAX (INT64_C(1) << 53)

int plm_host_charge(struct plm_host *host, enum plm_host_owner owner, int64_t bytes)
{
    struct plm_host_meter *meter = meter_of(host);
    if (bytes > CHARGE_MAX) {
        if (meter != NULL)
            meter->needed_bytes = meter->total_bytes = bytes;
        return PLM_ERR_NOMEM_HOST;
    }
    int64_t used = atomic_fetch_add(&host->used, bytes) + bytes;
    int64_t limit = atomic_load(&host->limit);
    if (limit > 0 && used > limit) {
        atomic_fetch_sub(&host->used, bytes);
        if (meter != NULL) {
            meter->needed_bytes = meter->held_bytes + bytes;
            meter->total_bytes = used;
        }
        return PLM_ERR_NOMEM_HOST;
    }
    bound_kept(host, used, limit);
    if (meter != NULL)
        meter->held_bytes += bytes;
    atomic_fetch_add(&host->by_owner[owner], bytes);
    int64_t peak = atomic_load(&host->peak);
    while (used > peak && !atomic_compare_exchange_weak(&host->peak, &peak, used))
        ;
    return PLM_OK;
}

void plm_host_discharge(struct plm_host *host, enum plm_host_owner owner, int64_t bytes)
{
    struct plm_host_meter *meter = meter_of(host);
    if (meter != NULL)
        meter->held_bytes -= bytes;
    atomic_fetch_sub(&host->used, bytes);
    atomic_fetch_sub(&host->by_owner[owner], bytes);
    atomic_fetch_add(&host->freed, (uint64_t)bytes);
}

// Bytes to ask malloc for, and what they are charged. False: too many.
static bool block_bytes(size_t bytes, uint64_t *ret_total, int64_t *ret_charge)
{
    uint64_t charge;
    if (!plm_add_u64(bytes, sizeof(struct block_head), ret_total) ||
        !plm_add_u64(*ret_total, MALLOC_HEAD_BYTES + MALLOC_ALIGN_BYTES, &charge) ||
        charge > INT64_MAX)
        return false;
    *ret_charge = (int64_t)plm_round_up(*ret_total + MALLOC_HEAD_BYTES, MALLOC_ALIGN_BYTES);
    return true;
}

static void *allocate(struct plm_host *host, enum plm_host_owner owner, size_t bytes, bool zero)
{
    uint64_t total;
    int64_t charge;
    if (!block_bytes(bytes, &total, &charge) || injected_failure(host) ||
        plm_host_charge(host, owner, charge) != PLM_OK)
        return NULL;
    struct block_head *head = zero ? calloc(1, total) : malloc(total);
    if (head == NULL) {
        plm_host_discharge(host, owner, charge);
        return NULL;
    }
    head->bytes = (uint64_t)charge;
    head->owner = owner;
    atomic_fetch_add(&host->allocations, 1);
    return head + 1;
}

void *plm_calloc(struct plm_host *host, enum plm_host_owner owner, size_t n, size_t size)
{
    uint64_t bytes;
    if (!plm_mul_u64(n, size, &bytes))
        return NULL;
    return allocate(host, owner, bytes, true);
}

void *plm_malloc(struct plm_host *host, enum plm_host_owner owner, size_t bytes)
{
    return allocate(host, owner, bytes, false);
}

void *plm_realloc(struct plm_host *host, enum plm_host_owner owner, void *ptr, size_t bytes)
{
    if (ptr == NULL)
        return plm_malloc(host, owner, bytes);
    struct block_head *head = (struct block_head *)ptr - 1;
    uint64_t old = head->bytes;
    enum plm_host_owner tag = (enum plm_host_owner)head->owner;
    uint64_t total;
    int64_t charge;
    if (!block_bytes(bytes, &total, &charge) || injected_failure(host) ||
        plm_host_charge(host, tag, charge) != PLM_OK)
        return NULL;
    struct block_head *moved = realloc(head, total);
    if (moved == NULL) {
        plm_host_discharge(host, tag, charge);
        return NULL;
    }
    moved->bytes = (uint64_t)charge;
    plm_host_discharge(host, tag, (int64_t)old);
    atomic_fetch_add(&host->allocations, 1);
    return moved + 1;
}

char *plm_strndup(struct plm_host *host, enum plm_host_owner owner, const char *s, size_t n)
{
    uint64_t bytes;
    if (!plm_add_u64(n, 1, &bytes))
        return NULL;
    char *copy = plm_malloc(host, owner, bytes);
    if (copy == NULL)
        return NULL;
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

void plm_free(struct plm_host *host, void *ptr)
{
    if (ptr == NULL)
        return;
    struct block_head *head = (struct block_head *)ptr - 1;
    plm_host_discharge(host, (enum plm_host_owner)head->owner, (int64_t)head->bytes);
    free(head);
}

void plm_host_trim(struct plm_host *host)
{
    uint64_t trimmed = atomic_load(&host->trimmed);
    // Of several threads that come here one does it.
    if (!atomic_compare_exchange_strong(&host->trimmed, &trimmed, atomic_load(&host->freed)))
        return;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
