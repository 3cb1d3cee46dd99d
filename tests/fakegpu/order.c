// SPDX-License-Identifier: Apache-2.0
// Which launches of a stream may run at the same time. One without the attribute begins when all
// before it have ended. One with it may begin while they run; its kernel waits for the launch
// before it, and so for what that one waited for. A kernel that does not wait is unordered against
// its predecessor. And before a kernel waits it may read weights: nothing that may still be running
// writes those. It is judged when the launch runs: then arrays of addresses hold what it will
// touch.
#include <stdlib.h>

#include "fake.h"
#include "tests/support/spans.h"

struct touched {
    struct span span;
    const char *by;
};

struct touches {
    struct touched *at;
    uint32_t n, cap;
};

struct fake_order {
    struct touches running; // of the last launch, and those that it did not wait for
    uint32_t n_before;      // of running: those of earlier ones
    struct touches written; // since all had ended
    const char *name;       // of the launch that is looked at
    bool early, waits, good;
};

struct fake_order *fake_order_new(void)
{
    return calloc(1, sizeof(struct fake_order));
}

void fake_order_free(struct fake_order *o)
{
    if (o != NULL) {
        free(o->running.at);
        free(o->written.at);
    }
    free(o);
}

void fake_order_clear(struct fake_order *o)
{
    o->running.n = o->n_before = o->written.n = 0;
}

static bool add(struct touches *t, const struct span *span, const char *by)
{
    if (t->n == t->cap) {
        const uint32_t cap = t->cap > 0 ? 2 * t->cap : 256;
        struct touched *more = realloc(t->at, cap * sizeof(*more));
        if (more == NULL)
            return false;
        t->at = more;
        t->cap = cap;
    }
    t->at[t->n++] = (struct touched){*span, by};
    return true;
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
    for (uint32_t i = 0; i < o->written.n; i++) {
        if (span_overlaps(&o->written.at[i].span, span))
            overlap(o, span, &o->written.at[i], "weights are read before a kernel waits");
    }
}

static bool keep_written(struct fake_order *o, const struct span *span)
{
    for (uint32_t i = 0; i < o->written.n; i++) {
        if (same_place(&o->written.at[i].span, span)) {
            o->written.at[i].by = o->name;
            return true;
        }
    }
    return add(&o->written, span, o->name);
}

static bool judge(void *ctx, const struct span *span)
{
    struct fake_order *o = ctx;
    if (o->early && span->mode == SPAN_WEIGHT)
        judge_weight(o, span);
    // A kernel that waits does so for the launch before it; those before that only where it did.
    const uint32_t n = !o->early ? 0 : o->waits ? o->n_before : o->running.n;
    for (uint32_t i = 0; i < n; i++) {
        const struct touched *old = &o->running.at[i];
        if ((span_writes(span) || span_writes(&old->span)) && span_overlaps(&old->span, span))
            overlap(o, span, old, "a kernel between them does not wait");
    }
    return true;
}

static bool keep(void *ctx, const struct span *span)
{
    struct fake_order *o = ctx;
    return add(&o->running, span, o->name) && (!span_writes(span) || keep_written(o, span));
}

bool fake_order_launch(struct fake_order *o, const struct fake_launch *l)
{
    o->name = l->function->kernel->symbol;
    o->early = l->early;
    o->waits = l->function->waits;
    o->good = true;
    if (!o->early)
        fake_order_clear(o);
    spans_of(l->function->kernel->op, l->args, judge, o);
    // What the next one does not wait for: what this one did not.
    if (o->waits)
        o->running.n = o->n_before;
    else
        o->n_before = o->running.n;
    if (!spans_of(l->function->kernel->op, l->args, keep, o)) {
        rules_misuse("no host memory for what %s touches", o->name);
        o->good = false;
    }
    return o->good;
}
