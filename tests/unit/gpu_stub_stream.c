// SPDX-License-Identifier: Apache-2.0
// The stub's stream: what runs when an event is asked for, and graphs of it.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_stub_impl.h"

#define OPS 4096

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

void stub_stream_forget(void)
{
    n_ops = ran = 0;
}

// ---- the stream ----

static plm_gpu_r stream_create(struct plm_gpu_library *lib, void **ret)
{
    (void)lib;
    CALLED;
    *ret = stub_take(1);
    return PLM_GPU_OK;
}

static void stream_destroy(struct plm_gpu_library *lib, void *stream)
{
    (void)lib;
    stub_give(stream);
}

static plm_gpu_r event_create(struct plm_gpu_library *lib, void **ret)
{
    (void)lib;
    CALLED;
    *ret = stub_take(sizeof(struct event));
    ((struct event *)*ret)->tick = 0;
    return PLM_GPU_OK;
}

static void event_destroy(struct plm_gpu_library *lib, void *event)
{
    (void)lib;
    stub_give(event);
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
    capturing = stub_take(sizeof(*capturing));
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
    const plm_gpu_r r = stub_called("capture_end");
    if (r == PLM_GPU_OK)
        *ret_graph = *slot(NULL) = capturing;
    else
        stub_give(capturing);
    capturing = NULL;
    return r;
}

static void graph_destroy(struct plm_gpu_library *lib, void *graph)
{
    (void)lib;
    *slot(graph) = NULL;
    stub_give(graph);
}

static plm_gpu_r graph_instantiate(struct plm_gpu_library *lib, void *graph, void *stream,
                                   void **ret)
{
    (void)lib;
    (void)stream;
    CALLED;
    *ret = stub_take(sizeof(struct graph));
    memcpy(*ret, graph, sizeof(struct graph));
    ((struct graph *)*ret)->of = graph;
    return PLM_GPU_OK;
}

static void graph_exec_destroy(struct plm_gpu_library *lib, void *exec)
{
    (void)lib;
    stub_give(exec);
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

void stub_stream_add(struct plm_gpu_driver *driver)
{
    free(ops);
    ops = calloc(OPS, sizeof(*ops));
    stub_stream_forget();
    capturing = NULL;
    driver->stream_create = stream_create;
    driver->stream_destroy = stream_destroy;
    driver->event_create = event_create;
    driver->event_destroy = event_destroy;
    driver->event_record = event_record;
    driver->event_query = event_query;
    driver->copy_in = copy_in;
    driver->copy_out = copy_out;
    driver->launch = launch;
    driver->capture_begin = capture_begin;
    driver->capture_node = capture_node;
    driver->capture_end = capture_end;
    driver->graph_destroy = graph_destroy;
    driver->graph_instantiate = graph_instantiate;
    driver->graph_exec_destroy = graph_exec_destroy;
    driver->graph_set = graph_set;
    driver->graph_launch = graph_launch;
}
