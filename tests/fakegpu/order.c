// SPDX-License-Identifier: Apache-2.0
// Which launches of a stream may run at the same time. One without the attribute begins when all
// before it have ended. One with it may begin while they run; its kernel waits for the launch
// before it, and so for what that one waited for. A kernel that does not wait is unordered against
// its predecessor. And before a kernel waits it may read weights: nothing that may still be running
// writes those.
#include <stdlib.h>

#include "fake.h"
#include "tests/support/spans.h"

#define RUNNING 1024u // spans of launches that the next one does not wait for
#define WRITTEN 8192u // since all had ended

struct touched {
    struct span span;
    const char *by;
};

struct fake_order {
    struct touched running[RUNNING]; // of the last launch, and those that it did not wait for
    uint32_t n_running, n_before;    // before: those of earlier ones, which the last one did not
    struct touched written[WRITTEN];
    uint32_t n_written;
    const char *name; // of the launch that is looked at
    bool early, waits, good;
};

struct fake_order *fake_order_new(void)
{
    return calloc(1, sizeof(struct fake_order));
}

void fake_order_free(struct fake_order *o)
{
    free(o);
}

void fake_order_clear(struct fake_order *o)
{
    o->n_running = o->n_before = o->n_written = 0;
}

static void overlap(struct fake_order *o, const struct span *span, const struct touched *old,
                    const char *why)
{
    if (o->good)
        rules_misuse("%s touches %s, as %s of %s does, which may still be running: %s", o->name,
                     span->field, old->span.field, old->by, why);
    o->good = false;
}

static bool same_place(const struct span *a, const struct span *b)
{
    return a->address == b->address && a->bytes == b->bytes && a->rows == b->rows &&
           a->stride == b->stride;
}

// Weights against all that was written since everything had ended.
static void judge_weight(struct fake_order *o, const struct span *span)
{
    for (uint32_t i = 0; i < o->n_written; i++) {
        if (span_overlaps(&o->written[i].span, span))
            overlap(o, span, &o->written[i], "weights are read before a kernel waits");
    }
}

static void keep_written(struct fake_order *o, const struct span *span)
{
    for (uint32_t i = 0; i < o->n_written; i++) {
        if (same_place(&o->written[i].span, span)) {
            o->written[i].by = o->name;
            return;
        }
    }
    if (o->n_written < WRITTEN)
        o->written[o->n_written++] = (struct touched){*span, o->name};
}

static bool judge(void *ctx, const struct span *span)
{
    struct fake_order *o = ctx;
    if (o->early && span->mode == SPAN_WEIGHT)
        judge_weight(o, span);
    // A kernel that waits does so for the launch before it; those before that only where it did.
    const uint32_t n = !o->early ? 0 : o->waits ? o->n_before : o->n_running;
    for (uint32_t i = 0; i < n; i++) {
        const struct touched *old = &o->running[i];
        if ((span_writes(span) || span_writes(&old->span)) && span_overlaps(&old->span, span))
            overlap(o, span, old, "a kernel between them does not wait");
    }
    return true;
}

static bool keep(void *ctx, const struct span *span)
{
    struct fake_order *o = ctx;
    if (o->n_running < RUNNING)
        o->running[o->n_running++] = (struct touched){*span, o->name};
    if (span_writes(span))
        keep_written(o, span);
    return true;
}

bool fake_order_launch(struct fake_order *o, const struct fake_launch *l)
{
    o->name = l->function->kernel->symbol;
    o->early = l->early;
    o->waits = l->function->waits;
    o->good = true;
    if (!o->early)
        fake_order_clear(o);
    // Direct spans alone: what arrays of addresses hold is known only when the launch runs.
    spans_direct(l->function->kernel->op, l->args, judge, o);
    // What the next one does not wait for: what this one did not.
    if (o->waits)
        o->n_running = o->n_before;
    else
        o->n_before = o->n_running;
    spans_direct(l->function->kernel->op, l->args, keep, o);
    return o->good;
}
