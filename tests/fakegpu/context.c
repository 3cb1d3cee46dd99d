// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <stdlib.h>

#include "fake.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialized;
static struct fake_object *objects;

void fake_lock(void)
{
    pthread_mutex_lock(&lock);
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

// ---- objects ----

void *fake_object_new(enum fake_kind kind, struct fake_ctx *ctx, size_t bytes)
{
    struct fake_object *o = calloc(1, bytes);
    if (o != NULL) {
        *o = (struct fake_object){.next = objects, .kind = kind, .ctx = ctx};
        objects = o;
    }
    return o;
}

bool fake_object_is(const void *handle, enum fake_kind kind)
{
    const struct fake_object *o = objects;
    while (o != NULL && o != handle)
        o = o->next;
    return o != NULL && o->kind == kind;
}

void *fake_object_next(const struct fake_ctx *ctx, enum fake_kind kind, const void *after)
{
    struct fake_object *o = after != NULL ? ((const struct fake_object *)after)->next : objects;
    while (o != NULL && (o->ctx != ctx || o->kind != kind))
        o = o->next;
    return o;
}

void fake_object_free(void *object)
{
    struct fake_object **at = &objects;
    while (*at != object)
        at = &(*at)->next;
    *at = ((struct fake_object *)object)->next;
    free(object);
}

// ---- contexts ----

int fake_init(void)
{
    struct world world;
    struct fault fault;
    if (!rules_world(&world))
        return FAKE_UNKNOWN;
    if (rules_strike(PLACE_INIT, 0, &fault))
        return fault.result;
    if (world.count == 0)
        return FAKE_NO_DEVICE;
    initialized = true;
    return FAKE_OK;
}

int fake_world(struct world *ret)
{
    if (!initialized)
        return FAKE_NOT_INITIALIZED;
    return rules_world(ret) ? FAKE_OK : FAKE_UNKNOWN;
}

void fake_lose(struct fake_ctx *ctx, const struct fault *fault)
{
    ctx->lost = fault->result;
    account_add(ACCOUNT_losses, 1);
    fake_drop_all(ctx);
    rules_lose(fault);
}

int fake_here(struct fake_ctx **ret)
{
    if (!initialized)
        return FAKE_NOT_INITIALIZED;
    const int r = fake_front.current(ret);
    return r != FAKE_OK ? r : (*ret)->lost;
}

int fake_begin_work(struct fake_ctx **ret, enum fake_place place, int64_t *ret_hang_ms)
{
    struct fault fault;
    *ret_hang_ms = 0;
    const int r = fake_here(ret);
    if (r != FAKE_OK)
        return r;
    if (!rules_strike(place, 0, &fault) && !rules_strike(PLACE_WORK, 0, &fault))
        return FAKE_OK;
    if (fault.result == FAKE_HANG) {
        *ret_hang_ms = fault.ms;
        return FAKE_OK;
    }
    if (fake_is_sticky(fault.result))
        fake_lose(*ret, &fault);
    return fault.result;
}

int fake_begin(struct fake_ctx **ret, enum fake_place place, uint64_t bytes)
{
    struct fault fault;
    const int r = fake_here(ret);
    if (r != FAKE_OK)
        return r;
    if (!rules_strike(place, bytes, &fault))
        return FAKE_OK;
    if (fake_is_sticky(fault.result))
        fake_lose(*ret, &fault);
    return fault.result;
}

int fake_ctx_create(int device, struct fake_ctx **ret)
{
    struct world world;
    struct fault fault;
    int r = fake_world(&world);
    if (r != FAKE_OK)
        return r;
    if (device < 0 || (uint32_t)device >= world.count)
        return FAKE_INVALID_DEVICE;
    if (rules_strike(PLACE_CONTEXT, 0, &fault))
        return fault.result;
    if (world.broken)
        return FAKE_UNAVAILABLE;
    const struct null_script *script = fake_script();
    if (script != NULL && (r = fake_script_result(script->open(script->ctx))) != FAKE_OK)
        return r;
    struct fake_ctx *ctx = fake_object_new(FAKE_CTX, NULL, sizeof(*ctx));
    if (ctx == NULL || !fake_exec_start())
        return FAKE_OOM;
    ctx->device = device;
    r = fake_driver_bytes(ctx, script != NULL ? 0 : (int64_t)world.context);
    if (r != FAKE_OK) {
        fake_object_free(ctx);
        return r;
    }
    account_add(ACCOUNT_contexts_created, 1);
    *ret = ctx;
    return FAKE_OK;
}

// What is left of a kind: each is a leak, unless the context was lost.
static void release_all(struct fake_ctx *ctx, enum fake_kind kind)
{
    for (void *o; (o = fake_object_next(ctx, kind, NULL)) != NULL;) {
        if (ctx->lost == 0 && kind != FAKE_FUNCTION) {
            account_add(ACCOUNT_objects_leaked, 1);
            rules_misuse("an object of kind %d outlives its context", (int)kind);
        }
        switch (kind) {
        case FAKE_STREAM: fake_stream_release(o); break;
        case FAKE_GRAPH: fake_graph_release(o); break;
        case FAKE_EXEC: fake_exec_release(o); break;
        default: fake_object_free(o); break;
        }
    }
}

int fake_ctx_destroy(struct fake_ctx *ctx)
{
    if (!fake_object_is(ctx, FAKE_CTX))
        return FAKE_INVALID_CONTEXT;
    // What hangs is given up with all that it uses, as what was lost is.
    if (ctx->lost == 0 && fake_run_all(ctx) == FAKE_NOT_READY)
        ctx->lost = FAKE_LAUNCH_TIMEOUT;
    release_all(ctx, FAKE_EXEC);
    release_all(ctx, FAKE_GRAPH);
    release_all(ctx, FAKE_STREAM);
    release_all(ctx, FAKE_EVENT);
    release_all(ctx, FAKE_FUNCTION);
    release_all(ctx, FAKE_MODULE);
    fake_memory_gone(ctx);
    fake_driver_bytes(ctx, -(int64_t)ctx->driver_bytes);
    fake_object_free(ctx);
    account_add(ACCOUNT_contexts_destroyed, 1);
    const struct null_script *script = fake_script();
    if (script != NULL)
        script->close(script->ctx);
    return FAKE_OK;
}
