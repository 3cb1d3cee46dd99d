// SPDX-License-Identifier: Apache-2.0
#include "tests/support/barriers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/spans.h"

#define DISPATCHES 4096u  // of one list
#define SPANS      65536u // between two barriers

struct dispatch {
    enum plm_op op;
    uint32_t group; // barriers before it
    _Alignas(16) uint8_t args[128];
};

struct touched {
    struct span span;
    const struct dispatch *by;
};

static struct {
    const struct plm_backend *real;
    struct plm_backend shown;
    uint32_t drop;
    struct barriers_seen seen;
    struct dispatch list[DISPATCHES];
    uint32_t n, barriers;
    bool open; // something was appended since the last barrier
    struct touched touched[SPANS];
    uint32_t n_touched;
} b;

static const char *const OP_NAMES[PLM_OPS] = {
#define PLM_OP(NAME, name, units, tolerance) #name,
#include "kernels/ops.def"
#undef PLM_OP
};

static void report(const struct touched *old, const struct dispatch *now, const struct span *span)
{
    b.seen.missed[now->op]++;
    if (b.seen.missing++ == 0)
        snprintf(b.seen.first, sizeof(b.seen.first),
                 "dispatch %" PRIu32 " (%s) touches %s, as %s of dispatch %" PRIu32
                 " (%s) does, and there is no barrier between them",
                 (uint32_t)(now - b.list), OP_NAMES[now->op], span->field, old->span.field,
                 (uint32_t)(old->by - b.list), OP_NAMES[old->by->op]);
}

static bool judge(void *ctx, const struct span *span)
{
    const struct dispatch *now = ctx;
    for (uint32_t i = 0; i < b.n_touched; i++) {
        const struct touched *old = &b.touched[i];
        if (old->by != now && (span_writes(span) || span_writes(&old->span)) &&
            span_overlaps(&old->span, span))
            report(old, now, span);
    }
    if (b.n_touched == SPANS)
        return false;
    b.touched[b.n_touched++] = (struct touched){*span, now};
    return true;
}

static void judge_list(void)
{
    uint32_t group = 0;
    b.n_touched = 0;
    for (uint32_t i = 0; i < b.n; i++) {
        const struct dispatch *d = &b.list[i];
        if (d->group != group)
            b.n_touched = 0;
        group = d->group;
        b.seen.launched[d->op]++;
        if (!spans_of(d->op, d->args, judge, (void *)(uintptr_t)d) && b.seen.missing++ == 0)
            snprintf(b.seen.first, sizeof(b.seen.first), "more spans than there is room for");
    }
    b.seen.lists++;
    b.seen.launches += b.n;
    b.seen.barriers += b.barriers;
    b.seen.in_one_list = b.barriers > b.seen.in_one_list ? b.barriers : b.seen.in_one_list;
}

static void empty(void)
{
    b.n = b.barriers = 0;
    b.open = false;
}

static int shown_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units,
                        const void *args, size_t args_bytes)
{
    if (b.n == DISPATCHES || args_bytes > sizeof(b.list[0].args))
        return PLM_ERR_LIMIT;
    struct dispatch *d = &b.list[b.n++];
    d->op = op;
    d->group = b.barriers - (b.barriers > b.drop ? 1 : 0);
    memcpy(d->args, args, args_bytes);
    b.open = true;
    return b.real->launch(dev, op, units, args, args_bytes);
}

static int shown_barrier(struct plm_backend_device *dev)
{
    b.barriers += b.open; // several in a row are one
    b.open = false;
    return b.real->barrier(dev);
}

static int shown_submit(struct plm_backend_device *dev, uint64_t *ret_value)
{
    judge_list();
    empty();
    return b.real->submit(dev, ret_value);
}

static void shown_discard(struct plm_backend_device *dev)
{
    empty();
    b.real->discard(dev);
}

const struct plm_backend *barriers_watch(const struct plm_backend *backend, uint32_t drop)
{
    b.real = backend;
    b.shown = *backend;
    b.shown.launch = shown_launch;
    b.shown.barrier = shown_barrier;
    b.shown.submit = shown_submit;
    b.shown.discard = shown_discard;
    b.drop = drop;
    b.seen = (struct barriers_seen){0};
    empty();
    return &b.shown;
}

struct barriers_seen barriers_seen(void)
{
    return b.seen;
}
