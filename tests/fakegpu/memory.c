// SPDX-License-Identifier: Apache-2.0
// Memory: a table of what lives, and how many bytes of the device are taken. What is freed is
// unmapped.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake.h"

#define DEVICES 8u
#define PAGE    UINT64_C(4096)
// What a driver gives is aligned to this and often to no more.
#define LEAST_ALIGN 256u

enum range_kind { RANGE_DEVICE, RANGE_MAPPED, RANGE_PINNED, RANGE_REGISTERED, RANGE_RESERVED };

struct range {
    uint64_t address;
    uint64_t bytes;
    uint64_t taken; // of the device
    enum range_kind kind;
    struct fake_ctx *ctx;
    uint64_t base, base_bytes; // of the mapping below
    uint64_t handle;           // RANGE_MAPPED
    void *own;                 // the script's
};

struct memory {
    struct fake_object object;
    int device;
    uint64_t bytes;
    uint32_t maps;
    bool released; // as soon as nothing is mapped, it is gone
    uint64_t script_address;
    void *own;
};

// Beside the driver's lock, so that a reading waits for no kernel.
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges; // any order
static uint32_t n_ranges, cap_ranges;
static uint64_t used[DEVICES]; // by the program and the driver
static uint64_t stale_free;
static bool has_stale;

// ---- the table ----

static bool add_range(const struct range *range)
{
    pthread_mutex_lock(&table_lock);
    if (n_ranges == cap_ranges) {
        const uint32_t cap = cap_ranges > 0 ? 2 * cap_ranges : 64;
        struct range *more = realloc(ranges, cap * sizeof(*more));
        if (more != NULL) {
            ranges = more;
            cap_ranges = cap;
        }
    }
    const bool ok = n_ranges < cap_ranges;
    if (ok)
        ranges[n_ranges++] = *range;
    pthread_mutex_unlock(&table_lock);
    return ok;
}

// The range of one of two kinds that begins there; taken out of the table where take says so.
static bool find_range(uint64_t address, enum range_kind kind, bool take, struct range *ret)
{
    bool found = false;
    pthread_mutex_lock(&table_lock);
    for (uint32_t i = 0; i < n_ranges && !found; i++) {
        if (ranges[i].address != address || ranges[i].kind != kind)
            continue;
        *ret = ranges[i];
        found = true;
        if (take)
            ranges[i] = ranges[--n_ranges];
    }
    pthread_mutex_unlock(&table_lock);
    return found;
}

static bool covered(const struct fake_ctx *ctx, uint64_t address, uint64_t bytes, bool host)
{
    bool found = false;
    pthread_mutex_lock(&table_lock);
    for (uint32_t i = 0; i < n_ranges && !found; i++) {
        const struct range *r = &ranges[i];
        const bool of_host = r->kind == RANGE_PINNED || r->kind == RANGE_REGISTERED;
        found = address >= r->address && bytes <= r->bytes &&
                address - r->address <= r->bytes - bytes && r->kind != RANGE_RESERVED &&
                (host ? of_host : r->ctx == ctx || r->kind == RANGE_MAPPED);
    }
    pthread_mutex_unlock(&table_lock);
    return found;
}

bool fake_is_live(const struct fake_ctx *ctx, uint64_t address, uint64_t bytes)
{
    return fake_script() != NULL || covered(ctx, address, bytes, false);
}

bool fake_is_pinned(const void *ptr, uint64_t bytes)
{
    return covered(NULL, (uint64_t)(uintptr_t)ptr, bytes, true);
}

// ---- bytes of the device ----

// Takes, or with bytes below 0 gives back.
static int account_device(int device, int64_t bytes)
{
    struct world w;
    int r = FAKE_OK;
    rules_world(&w);
    const uint64_t most = w.capacity > 0 && w.capacity < w.size ? w.capacity : w.size;
    pthread_mutex_lock(&table_lock);
    uint64_t *now = &used[(uint32_t)device % DEVICES];
    if (bytes > 0 && *now + (uint64_t)bytes + w.neighbour + w.withheld > most)
        r = FAKE_OOM;
    else
        *now += (uint64_t)bytes;
    pthread_mutex_unlock(&table_lock);
    if (r != FAKE_OK)
        account_add(ACCOUNT_refusals, 1);
    return r;
}

static uint64_t round_up(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

int fake_driver_bytes(struct fake_ctx *ctx, int64_t bytes)
{
    struct world w;
    rules_world(&w);
    const uint64_t now = ctx->driver_bytes + (uint64_t)bytes;
    const int64_t more =
        (int64_t)round_up(now, w.granularity) - (int64_t)round_up(ctx->driver_bytes, w.granularity);
    const int r = fake_script() != NULL ? FAKE_OK : account_device(ctx->device, more);
    if (r == FAKE_OK) {
        ctx->driver_bytes = now;
        account_add(ACCOUNT_driver_bytes, bytes);
    }
    return r;
}

static uint64_t room(int device, const struct world *w)
{
    pthread_mutex_lock(&table_lock);
    const uint64_t taken = used[(uint32_t)device % DEVICES] + w->neighbour;
    pthread_mutex_unlock(&table_lock);
    return w->size > taken ? w->size - taken : 0;
}

// Asks for no lock that is held while kernels run.
int fake_mem_info(uint64_t *ret_free, uint64_t *ret_total)
{
    const struct null_script *script = fake_script();
    struct fake_ctx *ctx;
    struct world w;
    struct fault fault;
    int r = fake_world(&w);
    account_add(ACCOUNT_readings, 1);
    if (r != FAKE_OK || (r = fake_front.current(&ctx)) != FAKE_OK || (r = ctx->lost) != 0)
        return r;
    if (rules_strike(PLACE_INFO, 0, &fault)) {
        if (fake_is_sticky(fault.result)) {
            ctx->lost = fault.result;
            rules_lose(&fault);
        }
        return fault.result;
    }
    *ret_total = script != NULL ? script->heap_bytes : w.size;
    if (script != NULL) {
        uint64_t budget, usage;
        script->budget(script->ctx, &budget, &usage);
        *ret_free = budget > usage ? budget - usage : 0;
        return FAKE_OK;
    }
    const uint64_t now = room(ctx->device, &w);
    if (!has_stale)
        stale_free = now;
    has_stale = true;
    switch (w.reading) {
    case READING_TRUE: *ret_free = now; break;
    case READING_DOUBLE: *ret_free = 2 * now; break;
    case READING_ZERO: *ret_free = 0; break;
    case READING_MAX: *ret_free = UINT64_MAX >> 1; break;
    case READING_STALE: *ret_free = stale_free; break;
    }
    return FAKE_OK;
}

// ---- plain device memory ----

static void count_memory(int64_t bytes, enum account_counter counter)
{
    account_add(counter, 1);
    account_add(ACCOUNT_live_bytes, bytes);
}

static int back_with_pages(struct range *range)
{
    struct world w;
    rules_world(&w);
    const uint64_t offset = range->bytes % w.granularity != 0 ? LEAST_ALIGN : 0;
    range->base_bytes = round_up(range->bytes + offset, PAGE);
    range->base = fake_pages_reserve(range->base_bytes, PAGE);
    range->address = range->base + offset;
    return range->base != 0 && fake_pages_poison(range->base, range->base_bytes) ? FAKE_OK
                                                                                 : FAKE_OOM;
}

int fake_alloc(uint64_t bytes, uint64_t *ret)
{
    const struct null_script *script = fake_script();
    struct fake_ctx *ctx;
    struct world w;
    int r = fake_begin(&ctx, PLACE_ALLOC, bytes);
    if (r != FAKE_OK)
        return r;
    if (bytes == 0)
        return FAKE_INVALID;
    rules_world(&w);
    struct range range = {.bytes = bytes, .kind = RANGE_DEVICE, .ctx = ctx};
    if (script != NULL) {
        r = fake_script_lost(ctx, script->allocate(script->ctx, bytes, &range.address, &range.own));
    } else {
        range.taken = round_up(bytes, w.granularity);
        r = account_device(ctx->device, (int64_t)range.taken);
        if (r == FAKE_OK)
            r = back_with_pages(&range);
    }
    if (r == FAKE_OK && !add_range(&range))
        r = FAKE_OOM;
    if (r == FAKE_OK) {
        count_memory((int64_t)bytes, ACCOUNT_memory_allocated);
        *ret = range.address;
    }
    return r;
}

static void drop_device(const struct range *range, int device)
{
    const struct null_script *script = fake_script();
    if (script != NULL) {
        script->free(script->ctx, range->own);
    } else {
        fake_pages_free(range->base, range->base_bytes);
        account_device(device, -(int64_t)range->taken);
    }
    account_add(ACCOUNT_live_bytes, -(int64_t)range->bytes);
}

// Waits for what runs, as a driver does.
int fake_free(uint64_t address)
{
    struct fake_ctx *ctx;
    struct range range;
    const int r = fake_begin(&ctx, PLACE_WAIT, 0);
    if (r != FAKE_OK)
        return r;
    fake_run_all(ctx);
    if (!find_range(address, RANGE_DEVICE, true, &range)) {
        rules_misuse("memory is freed that is not there, at %#llx", (unsigned long long)address);
        return FAKE_INVALID;
    }
    drop_device(&range, ctx->device);
    account_add(ACCOUNT_memory_freed, 1);
    return FAKE_OK;
}

// ---- host memory ----

static int add_host(struct fake_ctx *ctx, void *ptr, uint64_t bytes, enum range_kind kind)
{
    const struct range range = {
        .address = (uint64_t)(uintptr_t)ptr, .bytes = bytes, .kind = kind, .ctx = ctx};
    if (!add_range(&range))
        return FAKE_OOM;
    account_add(ACCOUNT_host_allocated, 1);
    account_add(ACCOUNT_host_bytes, (int64_t)bytes);
    return FAKE_OK;
}

int fake_host_alloc(uint64_t bytes, void **ret)
{
    struct fake_ctx *ctx;
    const int r = fake_begin(&ctx, PLACE_HOST_ALLOC, bytes);
    if (r != FAKE_OK)
        return r;
    void *ptr = aligned_alloc(PAGE, round_up(bytes, PAGE));
    if (ptr == NULL)
        return FAKE_OOM;
    memset(ptr, 0xff, bytes);
    *ret = ptr;
    return add_host(ctx, ptr, bytes, RANGE_PINNED);
}

static int remove_host(void *ptr, enum range_kind kind, struct range *ret)
{
    if (!find_range((uint64_t)(uintptr_t)ptr, kind, true, ret)) {
        rules_misuse("host memory is given back that is not there, at %p", ptr);
        return FAKE_INVALID;
    }
    account_add(ACCOUNT_host_freed, 1);
    account_add(ACCOUNT_host_bytes, -(int64_t)ret->bytes);
    return FAKE_OK;
}

int fake_host_free(void *ptr)
{
    struct fake_ctx *ctx;
    struct range range;
    int r = fake_front.current(&ctx);
    if (r != FAKE_OK)
        return r;
    r = remove_host(ptr, RANGE_PINNED, &range);
    if (r == FAKE_OK)
        free(ptr);
    return r;
}

int fake_host_register(void *ptr, uint64_t bytes)
{
    struct fake_ctx *ctx;
    const int r = fake_begin(&ctx, PLACE_HOST_ALLOC, bytes);
    return r != FAKE_OK ? r : add_host(ctx, ptr, bytes, RANGE_REGISTERED);
}

int fake_host_unregister(void *ptr)
{
    struct fake_ctx *ctx;
    struct range range;
    const int r = fake_front.current(&ctx);
    return r != FAKE_OK ? r : remove_host(ptr, RANGE_REGISTERED, &range);
}

int fake_host_address(void *ptr, uint64_t *ret)
{
    struct fake_ctx *ctx;
    const int r = fake_front.current(&ctx);
    if (r != FAKE_OK || ctx->lost != 0)
        return r != FAKE_OK ? r : ctx->lost;
    *ret = (uint64_t)(uintptr_t)ptr;
    return fake_is_pinned(ptr, 1) ? FAKE_OK : FAKE_INVALID;
}

// ---- mapped memory ----

static bool granular(uint64_t bytes)
{
    struct world w;
    rules_world(&w);
    return bytes > 0 && bytes % w.granularity == 0;
}

int fake_reserve(uint64_t bytes, uint64_t *ret)
{
    struct world w;
    int r = fake_world(&w);
    if (r != FAKE_OK)
        return r;
    if (!granular(bytes))
        return FAKE_INVALID;
    struct range range = {.bytes = bytes, .kind = RANGE_RESERVED};
    range.address = fake_pages_reserve(bytes, w.granularity);
    if (range.address == 0 || !add_range(&range))
        return FAKE_OOM;
    account_add(ACCOUNT_ranges_reserved, 1);
    *ret = range.address;
    return FAKE_OK;
}

// Mapped memory belongs to no context, and its release needs none. But as long as a lost one is
// there, every call gives its error.
static int any_lost(void)
{
    for (struct fake_ctx *c = NULL; (c = fake_object_next(NULL, FAKE_CTX, c)) != NULL;)
        if (c->lost != 0)
            return c->lost;
    return FAKE_OK;
}

int fake_reserve_free(uint64_t address, uint64_t bytes)
{
    struct range range;
    struct range mapped;
    const int r = any_lost();
    if (r != FAKE_OK)
        return r;
    if (find_range(address, RANGE_MAPPED, false, &mapped) ||
        !find_range(address, RANGE_RESERVED, true, &range) || range.bytes != bytes) {
        rules_misuse("addresses are given back that are not reserved, or still mapped");
        return FAKE_INVALID;
    }
    fake_pages_free(address, bytes);
    account_add(ACCOUNT_ranges_freed, 1);
    return FAKE_OK;
}

int fake_create(int device, uint64_t bytes, uint64_t *ret_handle)
{
    const struct null_script *script = fake_script();
    struct fake_ctx *ctx;
    int r = fake_begin(&ctx, PLACE_CREATE, bytes);
    if (r != FAKE_OK)
        return r;
    if (!granular(bytes))
        return FAKE_INVALID;
    struct memory *memory = fake_object_new(FAKE_MEMORY, NULL, sizeof(*memory));
    if (memory == NULL)
        return FAKE_OOM;
    memory->device = device;
    memory->bytes = bytes;
    r = script != NULL ? fake_script_result(script->allocate(script->ctx, bytes,
                                                             &memory->script_address, &memory->own))
                       : account_device(device, (int64_t)bytes);
    if (r != FAKE_OK) {
        fake_object_free(memory);
        return r;
    }
    count_memory((int64_t)bytes, ACCOUNT_memory_allocated);
    *ret_handle = (uint64_t)(uintptr_t)memory;
    return FAKE_OK;
}

static void drop_memory(struct memory *memory)
{
    const struct null_script *script = fake_script();
    if (script != NULL)
        script->free(script->ctx, memory->own);
    else
        account_device(memory->device, -(int64_t)memory->bytes);
    count_memory(-(int64_t)memory->bytes, ACCOUNT_memory_freed);
    fake_object_free(memory);
}

int fake_release(uint64_t handle)
{
    struct memory *memory = (struct memory *)(uintptr_t)handle;
    const int r = any_lost();
    if (r != FAKE_OK)
        return r;
    if (!fake_object_is(memory, FAKE_MEMORY) || memory->released) {
        rules_misuse("memory is released that is not there");
        return FAKE_INVALID;
    }
    memory->released = true;
    if (memory->maps == 0)
        drop_memory(memory);
    return FAKE_OK;
}

// Whole reservations are mapped, and whole handles.
int fake_map(uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct fake_ctx *ctx;
    struct range range;
    struct memory *memory = (struct memory *)(uintptr_t)handle;
    const int r = fake_begin(&ctx, PLACE_MAP, bytes);
    if (r != FAKE_OK)
        return r;
    if (!fake_object_is(memory, FAKE_MEMORY) || memory->bytes != bytes || memory->maps > 0 ||
        find_range(address, RANGE_MAPPED, false, &range) ||
        !find_range(address, RANGE_RESERVED, false, &range) || range.bytes < bytes) {
        rules_misuse("a map of memory or addresses that are not there, or mapped already");
        return FAKE_INVALID;
    }
    range =
        (struct range){.address = address, .bytes = bytes, .kind = RANGE_MAPPED, .handle = handle};
    if (!add_range(&range))
        return FAKE_OOM;
    memory->maps++;
    account_add(ACCOUNT_maps, 1);
    return FAKE_OK;
}

int fake_access(uint64_t address, uint64_t bytes)
{
    struct fake_ctx *ctx;
    struct range range;
    const int r = fake_begin(&ctx, PLACE_MAP, bytes);
    if (r != FAKE_OK)
        return r;
    if (!find_range(address, RANGE_MAPPED, false, &range) || range.bytes != bytes)
        return FAKE_INVALID;
    return fake_script() != NULL || fake_pages_poison(address, bytes) ? FAKE_OK : FAKE_OOM;
}

// Waits for nothing: what still runs there loses the device. Where it hangs, that is what is
// wanted.
int fake_unmap(uint64_t address, uint64_t bytes)
{
    struct range range;
    struct fake_ctx *ctx;
    const struct fault given_up = {.result = FAKE_LAUNCH_TIMEOUT};
    const int r = any_lost();
    if (r != FAKE_OK)
        return r;
    if (fake_front.current(&ctx) == FAKE_OK && fake_hangs(ctx))
        fake_lose(ctx, &given_up);
    if (!find_range(address, RANGE_MAPPED, false, &range) || range.bytes != bytes) {
        rules_misuse("an unmap of addresses that are not mapped");
        return FAKE_INVALID;
    }
    find_range(address, RANGE_MAPPED, true, &range);
    mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    struct memory *memory = (struct memory *)(uintptr_t)range.handle;
    account_add(ACCOUNT_unmaps, 1);
    if (--memory->maps == 0 && memory->released)
        drop_memory(memory);
    return FAKE_OK;
}

// ---- the end of a context ----

static bool take_owned(const struct fake_ctx *ctx, struct range *ret)
{
    for (uint32_t i = 0; i < n_ranges; i++) {
        if (ranges[i].ctx == ctx) {
            *ret = ranges[i];
            ranges[i] = ranges[--n_ranges];
            return true;
        }
    }
    return false;
}

void fake_memory_gone(struct fake_ctx *ctx)
{
    struct range range;
    for (;;) {
        pthread_mutex_lock(&table_lock);
        const bool found = take_owned(ctx, &range);
        pthread_mutex_unlock(&table_lock);
        if (!found)
            return;
        if (ctx->lost == 0)
            rules_misuse("memory of %llu bytes outlives its context",
                         (unsigned long long)range.bytes);
        if (range.kind == RANGE_DEVICE) {
            drop_device(&range, ctx->device);
            account_add(ctx->lost == 0 ? ACCOUNT_memory_leaked : ACCOUNT_memory_freed, 1);
            continue;
        }
        account_add(ACCOUNT_host_bytes, -(int64_t)range.bytes);
        account_add(ctx->lost == 0 ? ACCOUNT_objects_leaked : ACCOUNT_host_freed, 1);
        if (range.kind == RANGE_PINNED)
            free((void *)(uintptr_t)range.address);
    }
}
