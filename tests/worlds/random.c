// SPDX-License-Identifier: Apache-2.0
#include "tests/worlds/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/random.h"
#include "core/plimsoll.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define MS  INT64_C(1000000)

// ---- chance ----

struct dice {
    uint64_t seed, n;
    uint32_t left[4];
};

static uint32_t roll(struct dice *d)
{
    if (d->n % 4 == 0) {
        const uint32_t counter[4] = {(uint32_t)(d->n / 4), 0, 0, 0};
        const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};
        plm_philox4x32(counter, key, d->left);
    }
    return d->left[d->n++ % 4];
}

// lo to hi, both included.
static uint32_t between(struct dice *d, uint32_t lo, uint32_t hi)
{
    return lo + (uint32_t)(((uint64_t)roll(d) * ((uint64_t)hi - lo + 1)) >> 32);
}

static bool chance(struct dice *d, uint32_t percent)
{
    return between(d, 1, 100) <= percent;
}

static uint64_t pick(struct dice *d, const uint64_t *values, uint32_t n)
{
    return values[between(d, 0, n - 1)];
}

#define PICK(d, ...)                                                                               \
    pick((d), (const uint64_t[]){__VA_ARGS__},                                                     \
         (uint32_t)(sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)))

// ---- model and device ----

// Few shapes, so that their files are written once. One layer is enough to take memory: more would
// only cost time. Blocks have 16 to 128 KiB, so that pools are some slabs large.
static void draw_model(struct dice *d, struct plm_world_model *m)
{
    const uint32_t heads = (uint32_t)PICK(d, 4, 8);
    *m = (struct plm_world_model){.n_layer = chance(d, 15) ? 2 : 1,
                                  .n_embd = 1024,
                                  .n_head = heads,
                                  .n_head_kv = chance(d, 75) ? heads : heads / 4,
                                  .n_ff = 512,
                                  .n_vocab = 16,
                                  .n_ctx = 512,
                                  .type = PLM_TYPE_F16};
    // Windows of a token, of whole blocks, of a token more, and of as much as a context or more.
    if (!chance(d, 30))
        return;
    m->window = (uint32_t)PICK(d, 1, 16, 17, 40, 100, 250);
    if (chance(d, 60)) {
        m->n_layer = 2;
        m->full_every = 2;
    }
}

// What a start needs at least, roughly: margin, weights, a workspace, windows of eight sequences
// (of one layer: where both have one, the pool is the main one and may be less).
static uint64_t least_bytes(const struct plm_world_model *m)
{
    const uint64_t kv = (uint64_t)m->n_embd / m->n_head * m->n_head_kv;
    const uint64_t layer = 2 * m->n_embd * (2 * m->n_embd + 2 * kv + 3 * (uint64_t)m->n_ff);
    const uint64_t windows = m->window > 0 ? 8 * (m->window + UINT64_C(48)) * 4 * kv : 0;
    return 40 * MIB + m->n_layer * layer + windows;
}

// Most devices have room for a cache of some slabs, and many for less than all sequences could use.
static void draw_device(struct dice *d, const struct plm_world_model *m, struct plm_sim_opts *o)
{
    o->granularity_bytes = PICK(d, 64 * KIB, 256 * KIB, MIB, 2 * MIB);
    o->context_bytes = between(d, 0, 8) * MIB;
    o->kernel_bytes = chance(d, 40) ? between(d, 1, 8) * 64 * KIB : 0;
    o->unavailable_bytes = chance(d, 20) ? between(d, 1, 4) * MIB : 0;
    o->capacity_bytes = least_bytes(m) + o->context_bytes + o->unavailable_bytes +
                        32 * o->kernel_bytes + between(d, 0, 63) * 128 * KIB;
    if (!chance(d, 4))
        o->capacity_bytes += between(d, 4, chance(d, 60) ? 14 : 80) * MIB;
    if (chance(d, 30))
        o->max_slab_bytes = between(d, 4, 64) * MIB;
    if (chance(d, 10))
        o->max_slabs = between(d, 24, 64);
    if (chance(d, 15))
        o->shown_context_bytes = between(d, 1, 8) * MIB;
    o->commit = chance(d, 35) ? PLM_COMMIT_SOFT : PLM_COMMIT_HARD;
    o->unified = o->commit == PLM_COMMIT_SOFT && chance(d, 40);
    if (o->unified && chance(d, 50))
        o->host_bytes = o->capacity_bytes + between(d, 0, 16) * MIB - 8 * MIB;
    o->hides_process_use = chance(d, 25);
    if (chance(d, 20))
        o->free_lag_ns = between(d, 1, 20) * MS;
    if (chance(d, 15))
        o->query_lag_ns = between(d, 1, 20) * MS;
    if (chance(d, 15))
        o->keeps_bytes = between(d, 1, 16) * MIB;
    o->submit_ns = between(d, 1, 20) * MS;
    o->dispatch_ns = between(d, 0, 5) * 1000;
    if (chance(d, 25))
        o->graph_bytes = between(d, 1, 16) * 64 * KIB;
}

// ---- the engine ----

static void option(struct plm_world *w, const char *key, uint64_t value)
{
    struct plm_world_option *o = &w->options[w->n_options++];
    snprintf(o->key, sizeof(o->key), "%s", key);
    snprintf(o->value, sizeof(o->value), "%" PRIu64, value);
}

static void draw_engine(struct dice *d, struct plm_world *w, uint32_t *ret_ctx)
{
    const uint32_t sequences = between(d, 1, 8);
    *ret_ctx = (uint32_t)PICK(d, 64, 128, 192, 256, 512);
    option(w, "max_sequences", sequences);
    option(w, "ctx_size", *ret_ctx);
    option(w, "batch_max_tokens", PICK(d, 16, 32, 64, 128));
    if (chance(d, 20))
        option(w, "prefill_chunk", PICK(d, 8, 16, 32));
    if (chance(d, 30)) // pressure: a pool that holds a request or two
        option(w, "max_total_tokens", (uint64_t)*ret_ctx * between(d, 1, 3) + sequences * 16);
    if (chance(d, 10)) {
        struct plm_world_option *o = &w->options[w->n_options++];
        snprintf(o->key, sizeof(o->key), "memory_fraction");
        snprintf(o->value, sizeof(o->value), "0.%02u", between(d, 30, 99));
    }
    if (chance(d, 10))
        option(w, "memory_limit_bytes", w->device.capacity_bytes - between(d, 0, 12) * MIB);
    if (w->device.unified || chance(d, 10)) // the default would be more than such a device has
        option(w, "host_limit_bytes", between(d, 5, 9) * MIB);
    if (chance(d, 50))
        option(w, "queue_max", between(d, 1, 16));
    if (chance(d, 20))
        option(w, "queue_max_tokens", between(d, 1, 4) * *ret_ctx);
    if (chance(d, 25))
        option(w, "queue_timeout_ms", between(d, 20, 2000));
    if (chance(d, 15))
        option(w, "prefix_cache", 0);
    if (chance(d, 50))
        option(w, "monitor_ms", between(d, 5, 200));
}

// ---- requests ----

static void draw_request(struct dice *d, struct plm_world *w, uint32_t ctx, uint64_t step)
{
    struct plm_world_request *r = &w->requests[w->n_requests];
    const uint32_t index = w->n_requests++;
    *r = (struct plm_world_request){.at_step = step,
                                    .prompt = between(d, 1, chance(d, 20) ? ctx : ctx / 4),
                                    .max = chance(d, 80) ? between(d, 1, 10) : between(d, 8, 32),
                                    .n = chance(d, 88) ? 1 : between(d, 2, 4),
                                    .seed = roll(d)};
    if (chance(d, 1))
        r->n = between(d, 5, 128);
    if (chance(d, 2))
        r->prompt += between(d, 1, 2 * ctx);
    if (chance(d, 25))
        r->salt[0] = (char)('a' + between(d, 0, 2));
    if (index > 0 && chance(d, 40)) {
        r->prefix_of = between(d, index > 6 ? index - 6 : 1, index);
        r->prefix = between(d, 1, r->prompt);
        if (chance(d, 70))
            memcpy(r->salt, w->requests[r->prefix_of - 1].salt, sizeof(r->salt));
        // A prefix is a part of what the other has.
        if (r->prefix > w->requests[r->prefix_of - 1].prompt)
            r->prefix = w->requests[r->prefix_of - 1].prompt;
    }
    if (chance(d, 8))
        r->leave_after = between(d, 1, r->max);
    else if (chance(d, 6))
        r->leave_step = step + between(d, 0, 20);
}

static void draw_requests(struct dice *d, struct plm_world *w, uint32_t ctx)
{
    const uint32_t n = between(d, 26, 40);
    uint64_t step = between(d, 0, 3);
    for (uint32_t i = 0; i < n; i++) {
        draw_request(d, w, ctx, step);
        step += chance(d, 45) ? 0 : chance(d, 92) ? between(d, 1, 3) : between(d, 5, 20);
    }
}

// ---- what happens ----

static struct plm_sim_event *event(struct dice *d, struct plm_world *w, struct random_world *ret,
                                   enum plm_sim_what what, int64_t value)
{
    struct plm_sim_event *e = &ret->events[w->device.n_events++];
    *e = (struct plm_sim_event){.what = what, .value = value};
    const uint32_t kind = between(d, 1, 100);
    e->when = kind <= 60 ? PLM_SIM_AT_STEP : kind <= 75 ? PLM_SIM_AT_QUERY : PLM_SIM_AT_PHASE;
    e->at = e->when == PLM_SIM_AT_STEP    ? between(d, 1, 120)
            : e->when == PLM_SIM_AT_QUERY ? between(d, 1, 60)
                                          : between(d, PLM_PHASE_PROBE, PLM_PHASE_SERVE);
    return e;
}

static void draw_neighbour(struct dice *d, struct plm_world *w, struct random_world *ret)
{
    const int64_t bytes = (int64_t)(between(d, 1, 24) * MIB);
    const struct plm_sim_event *came = event(d, w, ret, PLM_SIM_FOREIGN_BY, bytes);
    if (came->when != PLM_SIM_AT_STEP || chance(d, 40))
        return;
    const uint64_t at = came->at;
    struct plm_sim_event *went = event(d, w, ret, PLM_SIM_FOREIGN_BY, -bytes);
    went->when = PLM_SIM_AT_STEP;
    went->at = at + between(d, 1, 60);
}

static void draw_fault(struct dice *d, struct plm_world *w, struct random_world *ret)
{
    struct plm_sim_event *e;
    switch (between(d, 0, 9)) {
    case 0:
    case 1: draw_neighbour(d, w, ret); return;
    case 2:
        e = event(d, w, ret, PLM_SIM_LIE, between(d, 1, 20));
        e->when = PLM_SIM_AT_QUERY;
        e->at = between(d, 2, 80);
        e->lie = (enum plm_sim_lie)between(d, PLM_SIM_STALE, PLM_SIM_OSCILLATE);
        return;
    case 3:
        e = event(d, w, ret, PLM_SIM_FAIL_ALLOCS, between(d, 1, 2));
        e->when = PLM_SIM_AT_ALLOC;
        e->at = chance(d, 30) ? between(d, 1, 24) : between(d, 24, 90);
        return;
    case 4:
        e = event(d, w, ret, PLM_SIM_FAIL_SUBMITS, between(d, 1, 2));
        e->when = PLM_SIM_AT_SUBMIT; // a start has 13 at least
        e->at = chance(d, 20) ? between(d, 1, 13) : between(d, 14, 150);
        return;
    case 5:
        e = event(d, w, ret, PLM_SIM_SLOW, between(d, 2, 20));
        e->when = PLM_SIM_AT_STEP;
        return;
    case 6:
        e = event(d, w, ret, PLM_SIM_OVERRUN, between(d, 1, 64));
        e->when = PLM_SIM_AT_STEP;
        return;
    case 7: // the rule for several in a row is met, too
        for (uint32_t n = chance(d, 30) ? between(d, 2, 3) : 1; n > 0; n--) {
            e = event(d, w, ret, PLM_SIM_LOST, 0);
            e->when = PLM_SIM_AT_SUBMIT;
            e->at = chance(d, 10) ? between(d, 1, 13) : between(d, 14, 150);
        }
        return;
    case 8:
        e = event(d, w, ret, PLM_SIM_HANG, (int64_t)between(d, 1, 20) * 1000 * MS);
        e->when = PLM_SIM_AT_SUBMIT;
        e->at = between(d, 14, 150);
        return;
    default: e = event(d, w, ret, PLM_SIM_TAKE, (int64_t)(between(d, 1, 16) * MIB)); return;
    }
}

// A token at which a step fails, and who sends it.
static void draw_poison(struct dice *d, struct plm_world *w, struct random_world *ret)
{
    w->device.poison = (enum plm_sim_poison)between(d, PLM_SIM_POISON_NAN, PLM_SIM_POISON_LOST);
    // Beyond the tokens of the steps that a start or a reopening runs: one a row, of 128.
    w->model.n_vocab = 256;
    w->device.poison_token = (int32_t)between(d, 128, 255);
    for (uint32_t n = between(d, 1, 2); n > 0 && w->n_requests > 0; n--)
        ret->requests[between(d, 0, w->n_requests - 1)].poison = true;
}

static void draw_nights(struct dice *d, struct plm_world *w)
{
    uint64_t step = between(d, 5, 100);
    for (uint32_t i = between(d, 1, 2); i > 0; i--) {
        w->actions[w->n_actions++] = (struct plm_world_action){step, PLM_WORLD_SLEEP};
        step += between(d, 1, 40);
        w->actions[w->n_actions++] = (struct plm_world_action){step, PLM_WORLD_WAKE};
        step += between(d, 1, 40);
    }
}

void random_world(uint64_t seed, struct random_world *ret)
{
    struct dice d = {.seed = seed};
    uint32_t ctx;
    memset(ret, 0, sizeof(*ret));
    struct plm_world *w = &ret->world;
    *w = (struct plm_world){
        .seed = seed, .options = ret->options, .requests = ret->requests, .actions = ret->actions};
    draw_model(&d, &w->model);
    draw_device(&d, &w->model, &w->device);
    draw_engine(&d, w, &ctx);
    draw_requests(&d, w, ctx);
    w->device.events = ret->events;
    for (uint32_t i = between(&d, 0, 3); i > 0; i--)
        draw_fault(&d, w, ret);
    if (chance(&d, 10))
        draw_poison(&d, w, ret);
    if (chance(&d, 40))
        option(w, "watchdog_ms", 1000);
    if (chance(&d, 40))
        option(w, "neighbours", between(&d, PLIM_NEIGHBOURS_HOLD, PLIM_NEIGHBOURS_YIELD));
    if (chance(&d, 15))
        draw_nights(&d, w);
}

uint64_t random_seed(uint64_t base, uint64_t i)
{
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 1, 0};
    const uint32_t key[2] = {(uint32_t)base, (uint32_t)(base >> 32)};
    uint32_t out[4];
    plm_philox4x32(counter, key, out);
    return (uint64_t)out[0] << 32 | out[1] | 1; // never 0, which would mean a random one
}
