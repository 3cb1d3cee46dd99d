// SPDX-License-Identifier: Apache-2.0
// Streams: queues of launches, copies and events, which run in order when somebody looks at what
// stands behind them. So a program that touches the source of a copy too early, or frees what
// queued work reads, meets its mistake every time.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum item_kind { ITEM_LAUNCH, ITEM_COPY_IN, ITEM_COPY_OUT, ITEM_EVENT, ITEM_HANG, ITEM_LIST };

struct item {
    enum item_kind kind;
    union {
        struct fake_launch launch;
        struct {
            void *to;
            const void *from;
            uint64_t bytes;
        } copy;
        struct {
            struct fake_event *event;
            uint64_t number;
        } event;
        int64_t hang_ns;
        uint64_t ticket; // of the script's
    };
};

struct fake_stream {
    struct fake_object object;
    struct item *items;
    uint32_t first, n, cap;
    int64_t hang_until_ns; // of the first item; 0: none
    struct fake_graph *capture;
    struct fake_order *order;
    bool script_list; // a list of the script's device is under way, to the next event
};

// ---- the queue ----

static struct item *push(struct fake_stream *s, enum item_kind kind)
{
    if (s->first > 0 && s->first == s->n)
        s->first = s->n = 0;
    if (s->n == s->cap) {
        const uint32_t cap = s->cap > 0 ? 2 * s->cap : 512;
        struct item *more = realloc(s->items, cap * sizeof(*more));
        if (more == NULL)
            return NULL;
        s->items = more;
        s->cap = cap;
    }
    struct item *item = &s->items[s->n++];
    item->kind = kind;
    return item;
}

static bool run_copy(struct fake_stream *s, const struct item *item)
{
    const struct fake_ctx *ctx = s->object.ctx;
    const bool in = item->kind == ITEM_COPY_IN;
    const void *device = in ? item->copy.to : item->copy.from;
    const void *host = in ? item->copy.from : item->copy.to;
    if (!fake_is_live(ctx, (uint64_t)(uintptr_t)device, item->copy.bytes) ||
        !fake_is_pinned(host, item->copy.bytes)) {
        rules_misuse("a copy of %llu bytes runs after its memory is gone",
                     (unsigned long long)item->copy.bytes);
        return false;
    }
    fake_order_clear(s->order); // it waits for all before it
    memcpy(item->copy.to, item->copy.from, item->copy.bytes);
    return true;
}

static bool run_item(struct fake_stream *s, const struct item *item)
{
    switch (item->kind) {
    case ITEM_COPY_IN:
    case ITEM_COPY_OUT: return run_copy(s, item);
    case ITEM_LAUNCH: return fake_run_launch(s->object.ctx, s->order, &item->launch);
    case ITEM_EVENT: item->event.event->reached = item->event.number; return true;
    default: return true;
    }
}

// Of a script's device, the work behind a list ends when the script says so. A look takes as long
// on its clock, which might stand still else while somebody asks again and again.
#define LOOK_NS 100000

static int script_ended(const struct item *item)
{
    const struct null_script *script = fake_script();
    return item->kind != ITEM_LIST
               ? FAKE_OK
               : fake_script_result(script->wait(script->ctx, item->ticket, LOOK_NS));
}

static bool hangs(struct fake_stream *s, const struct item *item)
{
    if (item->kind != ITEM_HANG)
        return false;
    const int64_t now = fault_now_ns();
    if (s->hang_until_ns == 0)
        s->hang_until_ns = now + item->hang_ns;
    if (now < s->hang_until_ns)
        return true;
    s->hang_until_ns = 0;
    return false;
}

// Runs items up to the end-th. FAKE_OK, NOT_READY where something hangs, or the loss.
static int run_to(struct fake_stream *s, uint32_t end)
{
    struct fake_ctx *ctx = s->object.ctx;
    while (s->first < end && ctx->lost == 0) {
        const struct item item = s->items[s->first];
        int r = script_ended(&item);
        if (r == FAKE_NOT_READY || hangs(s, &item))
            return FAKE_NOT_READY;
        if (r != FAKE_OK || !run_item(s, &item)) {
            const struct fault fault = {.result = FAKE_ILLEGAL_ADDRESS};
            fake_lose(ctx, &fault);
            break;
        }
        s->first++;
    }
    return ctx->lost;
}

int fake_run_all(struct fake_ctx *ctx)
{
    int r = ctx->lost;
    for (struct fake_stream *s = NULL;
         r == FAKE_OK && (s = fake_object_next(ctx, FAKE_STREAM, s)) != NULL;)
        r = run_to(s, s->n);
    return r;
}

bool fake_hangs(const struct fake_ctx *ctx)
{
    const struct fake_stream *s = NULL;
    while ((s = fake_object_next(ctx, FAKE_STREAM, s)) != NULL && s->hang_until_ns == 0) {
    }
    return s != NULL;
}

void fake_drop_all(struct fake_ctx *ctx)
{
    for (struct fake_stream *s = NULL; (s = fake_object_next(ctx, FAKE_STREAM, s)) != NULL;)
        s->first = s->n = 0;
}

bool fake_stream_uses(const struct fake_ctx *ctx, const struct fake_module *module)
{
    for (const struct fake_stream *s = NULL; (s = fake_object_next(ctx, FAKE_STREAM, s)) != NULL;) {
        for (uint32_t i = s->first; i < s->n; i++) {
            if (s->items[i].kind == ITEM_LAUNCH && s->items[i].launch.function->module == module)
                return true;
        }
    }
    return false;
}

static int appended(struct fake_stream *s)
{
    struct world w;
    rules_world(&w);
    const int r = w.eager ? run_to(s, s->n) : FAKE_OK;
    return r == FAKE_NOT_READY ? FAKE_OK : r;
}

// The current context, whose stream this must be; an object of it, where one comes along.
static int begin_on(const struct fake_stream *s, enum fake_place place, uint64_t bytes)
{
    struct fake_ctx *ctx;
    const int r = fake_begin(&ctx, place, bytes);
    if (r != FAKE_OK)
        return r;
    return fake_object_is(s, FAKE_STREAM) && s->object.ctx == ctx ? FAKE_OK : FAKE_INVALID_HANDLE;
}

// ---- streams ----

int fake_stream_create(struct fake_stream **ret)
{
    struct fake_ctx *ctx;
    const int r = fake_begin(&ctx, PLACE_STREAM, 0);
    if (r != FAKE_OK)
        return r;
    struct fake_stream *s = fake_object_new(FAKE_STREAM, ctx, sizeof(*s));
    if (s == NULL || (s->order = fake_order_new()) == NULL)
        return FAKE_OOM;
    account_add(ACCOUNT_streams_created, 1);
    *ret = s;
    return FAKE_OK;
}

void fake_stream_release(struct fake_stream *s)
{
    fake_order_free(s->order);
    free(s->items);
    fake_object_free(s);
    account_add(ACCOUNT_streams_destroyed, 1);
}

int fake_stream_destroy(struct fake_stream *s)
{
    if (!fake_object_is(s, FAKE_STREAM))
        return FAKE_INVALID_HANDLE;
    const struct fault given_up = {.result = FAKE_LAUNCH_TIMEOUT};
    const int r = run_to(s, s->n);
    if (r == FAKE_NOT_READY) // what hangs there never ends, nor does what its context holds
        fake_lose(s->object.ctx, &given_up);
    fake_stream_release(s);
    return r == FAKE_NOT_READY ? FAKE_OK : r;
}

// ---- events ----

int fake_event_create(struct fake_event **ret)
{
    struct fake_ctx *ctx;
    const int r = fake_begin(&ctx, PLACE_EVENT, 0);
    if (r != FAKE_OK)
        return r;
    struct fake_event *e = fake_object_new(FAKE_EVENT, ctx, sizeof(*e));
    if (e == NULL)
        return FAKE_OOM;
    account_add(ACCOUNT_events_created, 1);
    *ret = e;
    return FAKE_OK;
}

int fake_event_destroy(struct fake_event *e)
{
    if (!fake_object_is(e, FAKE_EVENT))
        return FAKE_INVALID_HANDLE;
    if (e->reached != e->recorded && fake_object_is(e->stream, FAKE_STREAM))
        run_to(e->stream, e->stream->n);
    fake_object_free(e);
    account_add(ACCOUNT_events_destroyed, 1);
    return FAKE_OK;
}

int fake_event_record(struct fake_event *e, struct fake_stream *s)
{
    int r = begin_on(s, PLACE_EVENT, 0);
    if (r != FAKE_OK)
        return r;
    if (!fake_object_is(e, FAKE_EVENT) || e->object.ctx != s->object.ctx)
        return FAKE_INVALID_HANDLE;
    if (s->capture != NULL)
        return FAKE_CAPTURE_UNSUPPORTED;
    s->script_list = false;
    struct item *item = push(s, ITEM_EVENT);
    if (item == NULL)
        return FAKE_OOM;
    item->event.event = e;
    item->event.number = ++e->recorded;
    e->stream = s;
    account_add(ACCOUNT_events_recorded, 1);
    return appended(s);
}

int fake_event_query(struct fake_event *e)
{
    struct fake_ctx *ctx;
    int r = fake_begin(&ctx, PLACE_WAIT, 0);
    account_add(ACCOUNT_queries, 1);
    if (r != FAKE_OK)
        return r;
    if (!fake_object_is(e, FAKE_EVENT) || e->object.ctx != ctx)
        return FAKE_INVALID_HANDLE;
    if (e->reached == e->recorded)
        return FAKE_OK;
    if (!fake_object_is(e->stream, FAKE_STREAM))
        return FAKE_INVALID_HANDLE;
    struct fake_stream *s = e->stream;
    uint32_t end = s->first;
    while (end < s->n && (s->items[end].kind != ITEM_EVENT || s->items[end].event.event != e ||
                          s->items[end].event.number != e->recorded))
        end++;
    r = run_to(s, end + 1 < s->n ? end + 1 : s->n);
    return r != FAKE_OK ? r : e->reached == e->recorded ? FAKE_OK : FAKE_NOT_READY;
}

// ---- copies ----

static int script_copy(struct fake_ctx *ctx, void *to, const void *from, uint64_t bytes, bool in)
{
    const struct null_script *script = fake_script();
    return fake_script_lost(
        ctx, in ? script->copy_in(script->ctx, (uint64_t)(uintptr_t)to, from, bytes)
                : script->copy_out(script->ctx, to, (uint64_t)(uintptr_t)from, bytes));
}

int fake_copy(struct fake_stream *s, void *to, const void *from, uint64_t bytes, bool in)
{
    const int r = begin_on(s, PLACE_COPY, bytes);
    if (r != FAKE_OK)
        return r;
    if (s->capture != NULL)
        return FAKE_CAPTURE_UNSUPPORTED;
    account_add(in ? ACCOUNT_copies_in : ACCOUNT_copies_out, 1);
    account_add(ACCOUNT_copied_bytes, (int64_t)bytes);
    if (fake_script() != NULL)
        return script_copy(s->object.ctx, to, from, bytes, in);
    const void *device = in ? to : from;
    if (!fake_is_live(s->object.ctx, (uint64_t)(uintptr_t)device, bytes)) {
        rules_misuse("a copy of %llu bytes at %p: not within an allocation",
                     (unsigned long long)bytes, device);
        return FAKE_INVALID;
    }
    if (!fake_is_pinned(in ? from : to, bytes)) {
        rules_misuse("an asynchronous copy of %llu bytes from or to memory that is not pinned",
                     (unsigned long long)bytes);
        return FAKE_INVALID;
    }
    struct item *item = push(s, in ? ITEM_COPY_IN : ITEM_COPY_OUT);
    if (item == NULL)
        return FAKE_OOM;
    item->copy.to = to;
    item->copy.from = from;
    item->copy.bytes = bytes;
    return appended(s);
}

// ---- launches ----

// Of a script's device the first launch after an event stands for the list that it begins.
static int push_list(struct fake_stream *s)
{
    const struct null_script *script = fake_script();
    uint64_t ticket = 0;
    if (s->script_list)
        return FAKE_OK;
    const int r = fake_script_lost(s->object.ctx, script->submit(script->ctx, 1, &ticket));
    if (r != FAKE_OK)
        return r;
    struct item *item = push(s, ITEM_LIST);
    if (item == NULL)
        return FAKE_OOM;
    item->ticket = ticket;
    s->script_list = true;
    return FAKE_OK;
}

static int push_launch(struct fake_stream *s, const struct fake_launch *launch)
{
    if (fake_script() != NULL)
        return push_list(s);
    struct item *item = push(s, ITEM_LAUNCH);
    if (item == NULL)
        return FAKE_OOM;
    item->launch = *launch;
    return FAKE_OK;
}

static int push_hang(struct fake_stream *s, int64_t ms)
{
    struct item *item = ms > 0 ? push(s, ITEM_HANG) : NULL;
    if (item != NULL)
        item->hang_ns = ms * 1000000;
    return ms > 0 && item == NULL ? FAKE_OOM : FAKE_OK;
}

static int capture_launch(struct fake_graph *g, const struct fake_launch *launch)
{
    if (g->n == g->cap) {
        const uint32_t cap = g->cap > 0 ? 2 * g->cap : 256;
        struct fake_node **more = realloc(g->nodes, cap * sizeof(*more));
        if (more == NULL)
            return FAKE_OOM;
        g->nodes = more;
        g->cap = cap;
    }
    struct fake_node *node = calloc(1, sizeof(*node));
    if (node == NULL)
        return FAKE_OOM;
    node->launch = *launch;
    g->nodes[g->n++] = node;
    return FAKE_OK;
}

// The current context's stream, with a hang that a rule asks for.
static int begin_work(struct fake_stream *s, enum fake_place place, int64_t *ret_hang_ms)
{
    struct fake_ctx *ctx;
    const int r = fake_begin_work(&ctx, place, ret_hang_ms);
    if (r != FAKE_OK)
        return r;
    return fake_object_is(s, FAKE_STREAM) && s->object.ctx == ctx ? FAKE_OK : FAKE_INVALID_HANDLE;
}

int fake_launch_kernel(struct fake_stream *s, const struct fake_launch *launch)
{
    int64_t hang;
    int r = begin_work(s, PLACE_LAUNCH, &hang);
    if (r != FAKE_OK)
        return r;
    if (!fake_object_is(launch->function, FAKE_FUNCTION) ||
        launch->function->object.ctx != s->object.ctx)
        return FAKE_INVALID_HANDLE;
    if (!fake_launch_fits(launch))
        return FAKE_INVALID;
    if (s->capture != NULL)
        return capture_launch(s->capture, launch);
    account_add(ACCOUNT_launches, 1);
    account_add(ACCOUNT_launches_early, launch->early);
    r = push_hang(s, hang);
    if (r == FAKE_OK)
        r = push_launch(s, launch);
    return r != FAKE_OK ? r : appended(s);
}

// ---- graphs ----

int fake_capture_begin(struct fake_stream *s)
{
    const int r = begin_on(s, PLACE_CAPTURE, 0);
    if (r != FAKE_OK)
        return r;
    if (s->capture != NULL)
        return FAKE_INVALID;
    s->capture = fake_object_new(FAKE_GRAPH, s->object.ctx, sizeof(*s->capture));
    return s->capture != NULL ? FAKE_OK : FAKE_OOM;
}

int fake_capture_end(struct fake_stream *s, struct fake_graph **ret)
{
    if (!fake_object_is(s, FAKE_STREAM))
        return FAKE_INVALID_HANDLE;
    if (s->capture == NULL)
        return FAKE_INVALID;
    *ret = s->capture;
    s->capture = NULL;
    account_add(ACCOUNT_captures, 1);
    return s->object.ctx->lost;
}

bool fake_capture_last(struct fake_stream *s, struct fake_node **ret)
{
    if (!fake_object_is(s, FAKE_STREAM) || s->capture == NULL)
        return false;
    *ret = s->capture->n > 0 ? s->capture->nodes[s->capture->n - 1] : NULL;
    return true;
}

// About what 500 nodes take on a card, a node each.
#define NODE_BYTES 2816u

int fake_graph_instantiate(struct fake_graph *g, struct fake_exec **ret)
{
    struct fake_ctx *ctx;
    int r = fake_begin(&ctx, PLACE_INSTANTIATE, 0);
    if (r != FAKE_OK)
        return r;
    if (!fake_object_is(g, FAKE_GRAPH) || g->object.ctx != ctx)
        return FAKE_INVALID_HANDLE;
    struct fake_exec *e = fake_object_new(FAKE_EXEC, ctx, sizeof(*e));
    if (e == NULL)
        return FAKE_OOM;
    e->launches = calloc(g->n + 1, sizeof(*e->launches));
    e->handles = calloc(g->n + 1, sizeof(*e->handles));
    r = e->launches != NULL && e->handles != NULL
            ? fake_driver_bytes(ctx, (int64_t)g->n * NODE_BYTES)
            : FAKE_OOM;
    if (r != FAKE_OK) {
        fake_exec_release(e);
        return r;
    }
    e->bytes = (uint64_t)g->n * NODE_BYTES;
    e->graph = g;
    e->n = g->n;
    for (uint32_t i = 0; i < g->n; i++) {
        e->launches[i] = g->nodes[i]->launch;
        e->handles[i] = g->nodes[i];
    }
    account_add(ACCOUNT_graphs_instantiated, 1);
    *ret = e;
    return FAKE_OK;
}

int fake_graph_upload(struct fake_exec *e, struct fake_stream *s)
{
    const int r = begin_on(s, PLACE_INSTANTIATE, 0);
    if (r != FAKE_OK)
        return r;
    if (!fake_object_is(e, FAKE_EXEC) || e->object.ctx != s->object.ctx)
        return FAKE_INVALID_HANDLE;
    e->uploaded = true;
    account_add(ACCOUNT_graph_uploads, 1);
    return FAKE_OK;
}

int fake_graph_launch(struct fake_exec *e, struct fake_stream *s)
{
    int64_t hang;
    int r = begin_work(s, PLACE_GRAPH, &hang);
    if (r != FAKE_OK)
        return r;
    if (!fake_object_is(e, FAKE_EXEC) || e->object.ctx != s->object.ctx || s->capture != NULL)
        return FAKE_INVALID_HANDLE;
    if (!e->uploaded) {
        e->uploaded = true;
        account_add(ACCOUNT_graph_uploads, 1);
    }
    account_add(ACCOUNT_graph_launches, 1);
    r = push_hang(s, hang);
    for (uint32_t i = 0; i < e->n && r == FAKE_OK; i++) {
        const struct fake_launch *l = &e->launches[i];
        if (!fake_object_is(l->function, FAKE_FUNCTION)) {
            rules_misuse("a graph runs a kernel whose module is gone");
            return FAKE_INVALID_HANDLE;
        }
        account_add(ACCOUNT_launches_early, l->early);
        r = push_launch(s, l);
    }
    return r != FAKE_OK ? r : appended(s);
}

int fake_graph_set(struct fake_exec *e, const struct fake_node *node,
                   const struct fake_launch *launch)
{
    struct fake_ctx *ctx;
    const int r = fake_here(&ctx);
    if (r != FAKE_OK)
        return r;
    if (!fake_object_is(e, FAKE_EXEC) || e->object.ctx != ctx)
        return FAKE_INVALID_HANDLE;
    uint32_t i = 0;
    while (i < e->n && e->handles[i] != node)
        i++;
    if (i == e->n || e->graph == NULL || e->launches[i].function != launch->function) {
        rules_misuse("arguments of a node that is not this graph's, or of another kernel");
        return FAKE_INVALID;
    }
    if (!fake_launch_fits(launch))
        return FAKE_INVALID;
    const bool early = e->launches[i].early;
    e->launches[i] = *launch;
    e->launches[i].early = early;
    account_add(ACCOUNT_graph_nodes_set, 1);
    return FAKE_OK;
}

void fake_graph_release(struct fake_graph *g)
{
    struct fake_ctx *ctx = g->object.ctx;
    for (struct fake_exec *e = NULL; (e = fake_object_next(ctx, FAKE_EXEC, e)) != NULL;)
        e->graph = e->graph == g ? NULL : e->graph;
    for (uint32_t i = 0; i < g->n; i++)
        free(g->nodes[i]);
    free(g->nodes);
    fake_object_free(g);
}

int fake_graph_destroy(struct fake_graph *g)
{
    if (!fake_object_is(g, FAKE_GRAPH))
        return FAKE_INVALID_HANDLE;
    fake_graph_release(g);
    return FAKE_OK;
}

void fake_exec_release(struct fake_exec *e)
{
    fake_driver_bytes(e->object.ctx, -(int64_t)e->bytes);
    account_add(ACCOUNT_graphs_destroyed, e->bytes > 0);
    free(e->launches);
    free(e->handles);
    fake_object_free(e);
}

int fake_exec_destroy(struct fake_exec *e)
{
    if (!fake_object_is(e, FAKE_EXEC))
        return FAKE_INVALID_HANDLE;
    fake_exec_release(e);
    return FAKE_OK;
}
