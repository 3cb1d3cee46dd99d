// SPDX-License-Identifier: Apache-2.0
#include "gpu_stub.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define OPS 4096

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

struct op {
    enum { COPY, LAUNCH } kind;
    void *dst;
    const void *src;
    uint64_t bytes;
    struct stub_launch launch;
};

struct graph {
    struct graph *of; // of one that was instantiated: what of
    uint32_t n;
    struct stub_launch launches[64];
};

struct event {
    uint64_t tick;
};

static struct op *ops; // the stream's, OPS of them
static uint64_t n_ops, ran;
static struct graph *capturing;
static bool lost; // a call has said so since the last context was destroyed

// Where map keeps what it gave.
struct block {
    uint64_t bytes;
};

void stub_reset(void)
{
    free(ops);
    ops = calloc(OPS, sizeof(*ops));
    n_ops = ran = 0;
    capturing = NULL;
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

static plm_gpu_r called(const char *name)
{
    if (stub.fail_nth == 0 || (stub.fail_at != NULL && strcmp(stub.fail_at, name) != 0))
        return PLM_GPU_OK;
    stub.calls++;
    const bool fails = stub.calls >= stub.fail_nth && stub.calls - stub.fail_nth < stub.fail_times;
    lost = lost || (fails && (stub.fail_with == PLM_GPU_LOST || stub.fail_with == PLM_GPU_UNKNOWN));
    return fails ? stub.fail_with : PLM_GPU_OK;
}

#define CALLED                                                                                     \
    do {                                                                                           \
        const plm_gpu_r scripted = called(__func__);                                               \
        if (scripted != PLM_GPU_OK)                                                                \
            return scripted;                                                                       \
    } while (0)

static void *take(size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    ck_assert_ptr_nonnull(p);
    stub.live++;
    return p;
}

static void give(void *p)
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
    if (called("load") != PLM_GPU_OK)
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
    *ret = take(1);
    return PLM_GPU_OK;
}

static void context_destroy(struct plm_gpu_library *lib, void *context, bool is_lost)
{
    (void)lib;
    (void)is_lost;
    ck_assert_int_eq(depth, 0);
    n_ops = ran = 0;
    lost = false;
    for (int i = 0; i < OWNED; i++) {
        if (owned[i] != NULL)
            give(owned[i]);
        owned[i] = NULL;
    }
    stub.device_bytes = 0; // but for mapped memory, which tests of a loss look at by itself
    give(context);
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
    char *p = take(bytes + 256);
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
    give(p);
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
    give(p);
    return PLM_GPU_OK;
}

static plm_gpu_r host_alloc(struct plm_gpu_library *lib, uint64_t bytes, void **ret,
                            uint64_t *ret_addr)
{
    (void)lib;
    CALLED;
    *ret = take(bytes);
    own(*ret);
    *ret_addr = (uintptr_t)*ret;
    return PLM_GPU_OK;
}

static plm_gpu_r host_free(struct plm_gpu_library *lib, void *host)
{
    (void)lib;
    disown(host);
    give(host);
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

// ---- the stream ----

static plm_gpu_r stream_create(struct plm_gpu_library *lib, void **ret)
{
    (void)lib;
    CALLED;
    *ret = take(1);
    return PLM_GPU_OK;
}

static void stream_destroy(struct plm_gpu_library *lib, void *stream)
{
    (void)lib;
    give(stream);
}

static plm_gpu_r event_create(struct plm_gpu_library *lib, void **ret)
{
    (void)lib;
    CALLED;
    *ret = take(sizeof(struct event));
    ((struct event *)*ret)->tick = 0;
    return PLM_GPU_OK;
}

static void event_destroy(struct plm_gpu_library *lib, void *event)
{
    (void)lib;
    give(event);
}

static plm_gpu_r event_record(struct plm_gpu_library *lib, void *event, void *stream)
{
    (void)lib;
    (void)stream;
    CALLED;
    ((struct event *)event)->tick = n_ops;
    return PLM_GPU_OK;
}

static void run_until(uint64_t tick)
{
    for (; ran < tick; ran++) {
        const struct op *op = &ops[ran % OPS];
        if (op->kind == COPY)
            memcpy(op->dst, op->src, op->bytes);
        else if (stub.n_launches < STUB_LAUNCHES)
            stub.launches[stub.n_launches++] = op->launch;
    }
}

static plm_gpu_r event_query(struct plm_gpu_library *lib, void *event)
{
    (void)lib;
    CALLED;
    stub.queries++;
    if (stub.not_ready > 0) {
        stub.not_ready--;
        return PLM_GPU_NOT_READY;
    }
    run_until(((struct event *)event)->tick);
    return PLM_GPU_OK;
}

static void push(struct op op)
{
    ck_assert_uint_lt(n_ops - ran, OPS);
    ops[n_ops++ % OPS] = op;
}

static plm_gpu_r copy_in(struct plm_gpu_library *lib, void *stream, uint64_t dst, const void *src,
                         uint64_t bytes)
{
    (void)lib;
    (void)stream;
    CALLED;
    stub.copies_in++;
    push((struct op){.kind = COPY, .dst = (void *)(uintptr_t)dst, .src = src, .bytes = bytes});
    return PLM_GPU_OK;
}

static plm_gpu_r copy_out(struct plm_gpu_library *lib, void *stream, void *dst, uint64_t src,
                          uint64_t bytes)
{
    (void)lib;
    (void)stream;
    CALLED;
    push((struct op){.kind = COPY, .dst = dst, .src = (void *)(uintptr_t)src, .bytes = bytes});
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

// ---- launches and graphs ----

static struct stub_launch remember(const struct plm_gpu_launch *l)
{
    struct stub_launch ret = {.symbol = l->function,
                              .grid = l->grid[0],
                              .threads = l->threads,
                              .args_bytes = l->args_bytes};
    memcpy(ret.args, l->args, l->args_bytes);
    return ret;
}

static plm_gpu_r launch(struct plm_gpu_library *lib, void *stream, bool early,
                        const struct plm_gpu_launch *l)
{
    (void)lib;
    (void)stream;
    CALLED;
    struct op op = {.kind = LAUNCH, .launch = remember(l)};
    op.launch.early = early;
    if (capturing == NULL)
        push(op);
    else
        capturing->launches[capturing->n++] = op.launch;
    return PLM_GPU_OK;
}

static plm_gpu_r capture_begin(struct plm_gpu_library *lib, void *stream)
{
    (void)lib;
    (void)stream;
    CALLED;
    ck_assert_ptr_null(capturing);
    capturing = take(sizeof(*capturing));
    capturing->n = 0;
    return PLM_GPU_OK;
}

static plm_gpu_r capture_node(struct plm_gpu_library *lib, void *stream, void **ret)
{
    (void)lib;
    (void)stream;
    CALLED;
    *ret = (void *)(uintptr_t)capturing->n;
    return PLM_GPU_OK;
}

// Captured graphs that are there: nodes are theirs.
static struct graph *captured[64];

static struct graph **slot(const struct graph *graph)
{
    struct graph **at = captured;
    while (at < captured + 64 && *at != graph)
        at++;
    ck_assert_msg(at < captured + 64, "a graph that is not there");
    return at;
}

static plm_gpu_r capture_end(struct plm_gpu_library *lib, void *stream, void **ret_graph)
{
    (void)lib;
    (void)stream;
    const plm_gpu_r r = called("capture_end");
    if (r == PLM_GPU_OK)
        *ret_graph = *slot(NULL) = capturing;
    else
        give(capturing);
    capturing = NULL;
    return r;
}

static void graph_destroy(struct plm_gpu_library *lib, void *graph)
{
    (void)lib;
    *slot(graph) = NULL;
    give(graph);
}

static plm_gpu_r graph_instantiate(struct plm_gpu_library *lib, void *graph, void *stream,
                                   void **ret)
{
    (void)lib;
    (void)stream;
    CALLED;
    *ret = take(sizeof(struct graph));
    memcpy(*ret, graph, sizeof(struct graph));
    ((struct graph *)*ret)->of = graph;
    return PLM_GPU_OK;
}

static void graph_exec_destroy(struct plm_gpu_library *lib, void *exec)
{
    (void)lib;
    give(exec);
}

static plm_gpu_r graph_set(struct plm_gpu_library *lib, void *exec, void *node,
                           const struct plm_gpu_launch *l)
{
    (void)lib;
    CALLED;
    struct stub_launch *at = &((struct graph *)exec)->launches[(uintptr_t)node - 1];
    slot(((struct graph *)exec)->of);
    ck_assert_str_eq(at->symbol, l->function);
    const bool early = at->early; // an attribute of the node, which stays
    *at = remember(l);
    at->early = early;
    return PLM_GPU_OK;
}

static plm_gpu_r graph_launch(struct plm_gpu_library *lib, void *exec, void *stream)
{
    (void)lib;
    (void)stream;
    CALLED;
    const struct graph *g = exec;
    for (uint32_t i = 0; i < g->n; i++) {
        struct op op = {.kind = LAUNCH, .launch = g->launches[i]};
        op.launch.replayed = true;
        push(op);
    }
    return PLM_GPU_OK;
}

const struct plm_gpu_driver stub_driver = {
    .name = "stub",
    .device_class = "stub-p16",
    .source = "stub",
    .confidence = PLM_CONFIDENCE_HIGH,
    .images = images,
    .n_images = &n_images,
    .context_bytes = 5u << 20,
    .withheld_bytes = 3u << 20,
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
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .module_load = module_load,
    .module_unload = module_unload,
    .module_function = module_function,
    .function_local = function_local,
    .launch = launch,
    .capture_begin = capture_begin,
    .capture_node = capture_node,
    .capture_end = capture_end,
    .graph_destroy = graph_destroy,
    .graph_instantiate = graph_instantiate,
    .graph_exec_destroy = graph_exec_destroy,
    .graph_set = graph_set,
    .graph_launch = graph_launch,
};
