// SPDX-License-Identifier: Apache-2.0
#include "gpu_stub_impl.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct stub stub;

// ---- images: one that has every kernel, and one that has none ----

static const char none[] = "none", all[] = "all";
static const struct plm_gpu_image images[] = {{"none", none, sizeof(none)},
                                              {"all", all, sizeof(all)}};
static const size_t n_images = 2;

// ---- state ----

struct plm_gpu_library {
    int unused;
};

static bool lost; // a call has said so since the last context was destroyed

// Where map keeps what it gave.
struct block {
    uint64_t bytes;
};

void stub_reset(void)
{
    stub_stream_add(&stub_driver);
    lost = false;
    stub = (struct stub){.n_cards = 1, .capacity = 1u << 30, .map_granularity = 2u << 20};
    stub.cards[0] = (struct plm_gpu_card){.name = "Stub 90",
                                          .uuid = "6d657361-3232-2e33-2e36-000000000000",
                                          .driver = "stub 1",
                                          .arch = "sm_90",
                                          .total_bytes = 1u << 30,
                                          .virtual_memory = true,
                                          .programmatic = true,
                                          .graphs = true,
                                          .graphs_settable = true};
}

plm_gpu_r stub_called(const char *name)
{
    if (stub.fail_nth == 0 || (stub.fail_at != NULL && strcmp(stub.fail_at, name) != 0))
        return PLM_GPU_OK;
    stub.calls++;
    const bool fails = stub.calls >= stub.fail_nth && stub.calls - stub.fail_nth < stub.fail_times;
    lost = lost || (fails && (stub.fail_with == PLM_GPU_LOST || stub.fail_with == PLM_GPU_UNKNOWN));
    return fails ? stub.fail_with : PLM_GPU_OK;
}

void *stub_take(size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    ck_assert_ptr_nonnull(p);
    stub.live++;
    return p;
}

void stub_give(void *p)
{
    ck_assert_ptr_nonnull(p);
    stub.live--;
    free(p);
}

// Memory that goes with its context: all but mapped memory.
#define OWNED 256
static void *owned[OWNED];

static void own(void *p)
{
    int i = 0;
    while (i < OWNED && owned[i] != NULL)
        i++;
    ck_assert_int_lt(i, OWNED);
    owned[i] = p;
}

static void disown(const void *p)
{
    int i = 0;
    while (i < OWNED && owned[i] != p)
        i++;
    ck_assert_int_lt(i, OWNED);
    owned[i] = NULL;
}

// ---- the library and its cards ----

static struct plm_gpu_library library;

static int load(struct plm_host *host, struct plm_gpu_library **ret, struct plm_error *err)
{
    (void)host;
    if (stub_called("load") != PLM_GPU_OK)
        return plm_fail(err, PLM_ERR_NOT_FOUND, "stub: no driver");
    stub.live++;
    *ret = &library;
    return PLM_OK;
}

static void unload(struct plm_host *host, struct plm_gpu_library *lib)
{
    (void)host;
    stub.live -= lib != NULL;
}

static const char *last_error(const struct plm_gpu_library *lib)
{
    (void)lib;
    return "STUB_ERROR";
}

static plm_gpu_r count(struct plm_gpu_library *lib, uint32_t *ret)
{
    (void)lib;
    CALLED;
    *ret = stub.n_cards;
    return PLM_GPU_OK;
}

static plm_gpu_r describe(struct plm_gpu_library *lib, uint32_t card, struct plm_gpu_card *ret)
{
    (void)lib;
    CALLED;
    *ret = stub.cards[card];
    return PLM_GPU_OK;
}

// ---- contexts ----

static int depth; // of enter

static plm_gpu_r context_create(struct plm_gpu_library *lib, uint32_t card, void **ret)
{
    (void)lib;
    (void)card;
    CALLED;
    *ret = stub_take(1);
    return PLM_GPU_OK;
}

static void context_destroy(struct plm_gpu_library *lib, void *context, bool is_lost)
{
    (void)lib;
    (void)is_lost;
    ck_assert_int_eq(depth, 0);
    stub_stream_forget();
    lost = false;
    for (int i = 0; i < OWNED; i++) {
        if (owned[i] != NULL)
            stub_give(owned[i]);
        owned[i] = NULL;
    }
    stub.device_bytes = 0; // but for mapped memory, which tests of a loss look at by itself
    stub_give(context);
}

static plm_gpu_r enter(struct plm_gpu_library *lib, void *context, uint64_t *ret_before)
{
    (void)lib;
    ck_assert_ptr_nonnull(context);
    CALLED;
    *ret_before = (uint64_t)depth++;
    return PLM_GPU_OK;
}

static void leave(struct plm_gpu_library *lib, uint64_t before)
{
    (void)lib;
    depth = (int)before;
}

// ---- memory ----

static void freed(uint64_t bytes)
{
    stub.device_bytes -= bytes;
    stub.late_bytes += bytes;
    stub.late_left = stub.late;
}

static plm_gpu_r memory_info(struct plm_gpu_library *lib, uint64_t *ret_free, uint64_t *ret_total)
{
    (void)lib;
    ck_assert_int_gt(depth, 0);
    CALLED;
    const uint64_t i = stub.readings < 3 ? stub.readings : 3;
    stub.readings++;
    *ret_total = stub.capacity;
    *ret_free = stub.capacity - stub.device_bytes - stub.foreign[i];
    if (stub.late_left == 0)
        stub.late_bytes = 0;
    else
        stub.late_left--;
    *ret_free -= stub.late_bytes;
    return PLM_GPU_OK;
}

static plm_gpu_r memory_alloc(struct plm_gpu_library *lib, uint64_t bytes, uint64_t *ret_addr)
{
    (void)lib;
    ck_assert_int_gt(depth, 0);
    CALLED;
    if (bytes > stub.capacity - stub.device_bytes)
        return PLM_GPU_OUT_OF_MEMORY;
    char *p = stub_take(bytes + 256);
    ((struct block *)p)->bytes = bytes;
    stub.device_bytes += bytes;
    own(p);
    *ret_addr = (uintptr_t)(p + 256);
    return PLM_GPU_OK;
}

static plm_gpu_r memory_free(struct plm_gpu_library *lib, uint64_t addr)
{
    (void)lib;
    ck_assert_int_gt(depth, 0);
    CALLED;
    char *p = (char *)(uintptr_t)addr - 256;
    freed(((struct block *)p)->bytes);
    disown(p);
    stub_give(p);
    return PLM_GPU_OK;
}

static plm_gpu_r map_granularity(struct plm_gpu_library *lib, uint32_t card, uint64_t *ret)
{
    (void)lib;
    (void)card;
    CALLED;
    *ret = stub.map_granularity;
    return PLM_GPU_OK;
}

static plm_gpu_r map(struct plm_gpu_library *lib, uint32_t card, uint64_t bytes,
                     struct plm_gpu_mapping *ret)
{
    (void)card;
    CALLED;
    ck_assert_uint_eq(bytes % stub.map_granularity, 0);
    *ret = (struct plm_gpu_mapping){.bytes = bytes};
    const plm_gpu_r r = memory_alloc(lib, bytes, &ret->addr);
    if (r != PLM_GPU_OK) {
        *ret = (struct plm_gpu_mapping){0};
        return r;
    }
    disown((char *)(uintptr_t)ret->addr - 256);
    stub.maps++;
    return r;
}

static plm_gpu_r unmap(struct plm_gpu_library *lib, struct plm_gpu_mapping *m)
{
    (void)lib;
    CALLED;
    if (lost || depth == 0)
        return PLM_GPU_LOST;
    char *p = (char *)(uintptr_t)m->addr - 256;
    freed(m->bytes);
    stub.maps--;
    stub_give(p);
    return PLM_GPU_OK;
}

static plm_gpu_r host_alloc(struct plm_gpu_library *lib, uint64_t bytes, void **ret,
                            uint64_t *ret_addr)
{
    (void)lib;
    CALLED;
    *ret = stub_take(bytes);
    own(*ret);
    *ret_addr = (uintptr_t)*ret;
    return PLM_GPU_OK;
}

static plm_gpu_r host_free(struct plm_gpu_library *lib, void *host)
{
    (void)lib;
    disown(host);
    stub_give(host);
    return PLM_GPU_OK;
}

static plm_gpu_r host_register(struct plm_gpu_library *lib, void *host, uint64_t bytes,
                               uint64_t *ret_addr)
{
    (void)lib;
    (void)bytes;
    CALLED;
    stub.live++;
    *ret_addr = (uintptr_t)host;
    return PLM_GPU_OK;
}

static plm_gpu_r host_unregister(struct plm_gpu_library *lib, void *host)
{
    (void)lib;
    (void)host;
    stub.live--;
    return PLM_GPU_OK;
}

// ---- code ----

static plm_gpu_r module_load(struct plm_gpu_library *lib, const void *image, void **ret)
{
    (void)lib;
    CALLED;
    if (stub.bad_image != NULL && strcmp(image, stub.bad_image) == 0)
        return PLM_GPU_BAD_IMAGE;
    stub.live++;
    *ret = (void *)(uintptr_t)image;
    return PLM_GPU_OK;
}

static void module_unload(struct plm_gpu_library *lib, void *module)
{
    (void)lib;
    (void)module;
    stub.live--;
}

static plm_gpu_r module_function(struct plm_gpu_library *lib, void *module, const char *symbol,
                                 void **ret)
{
    (void)lib;
    CALLED;
    if (module != all || (stub.no_symbol != NULL && strcmp(symbol, stub.no_symbol) == 0))
        return PLM_GPU_NOT_FOUND;
    *ret = (void *)(uintptr_t)symbol;
    return PLM_GPU_OK;
}

static plm_gpu_r function_local(struct plm_gpu_library *lib, void *function, uint64_t *ret)
{
    (void)lib;
    CALLED;
    *ret = stub.local != NULL && strcmp(function, stub.local) == 0 ? 16 : 0;
    return PLM_GPU_OK;
}

struct plm_gpu_driver stub_driver = {
    .name = "stub",
    .device_class = "stub-p16",
    .source = "stub",
    .confidence = PLM_CONFIDENCE_HIGH,
    .images = images,
    .n_images = &n_images,
    .context_bytes = 5u << 20,
    .unavailable_bytes = 3u << 20,
    .load = load,
    .unload = unload,
    .last_error = last_error,
    .count = count,
    .describe = describe,
    .context_create = context_create,
    .context_destroy = context_destroy,
    .enter = enter,
    .leave = leave,
    .memory_info = memory_info,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .map_granularity = map_granularity,
    .map = map,
    .unmap = unmap,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .module_load = module_load,
    .module_unload = module_unload,
    .module_function = module_function,
    .function_local = function_local,
};
