// SPDX-License-Identifier: Apache-2.0
// What must hold in every world, whatever happens in it. Each check compares two accounts of the
// same thing that were not made by the same code: what the engine says with what the observer saw
// below it, what the clients got, or what a definition says.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/random.h"
#include "core/sched/sched_impl.h"
#include "tests/worlds/play.h"

// Steps within which the oldest running sequence gets a row: it gets one in each, but for a step
// that is formed again.
#define LANE_STEPS 3
// Trouble on the device (a loss, a refused submit, a resize) may cost so many steps.
#define TROUBLE_STEPS 64
// Beyond what its tokens need, steps that a request may take: admission, a cut chunk, a resize.
#define PROGRESS_SLACK 64
// The text buffer of the engine, made at its first token, and the like.
#define HOST_WARM_BYTES (INT64_C(64) << 10)
// So many tokens come until the buffers of a choice have their sizes.
#define WARM_TOKENS 4
// A choice whose FINISH came.
#define FINISHED 0x80000000u

// Which sequence has a physical block, in the step that is stamped.
struct block_seen {
    uint64_t stamp;
    const struct plm_seq *seq;
    uint32_t index;
};

struct check_state {
    // Kept from world to world.
    struct block_seen *seen;
    uint32_t cap_seen;
    uint64_t stamp;
    // Of this world.
    struct plm_host_stats host_ready, host_before;
    struct plm_ledger_stats ledger_ready;
    uint32_t active_before, waiting_before;
    uint64_t waiting_tokens_before;
    uint64_t changed_step; // something arrived, was admitted, ended
    uint64_t trouble_step; // the device failed or the pool was resized; 0: never
    uint64_t ended_step;   // something ended, or there was nothing to do
    uint64_t losses, refused, resizes, replays, preemptions, allocs;
    uint32_t ended_before, incidents;
    // The oldest sequence.
    const struct plm_seq *oldest;
    uint64_t oldest_order, oldest_high, oldest_step;
    uint32_t oldest_preemptions;
};

// ---- begin ----

static bool computes(const struct run *run)
{
    return run->world->computes || run->world->model.file[0] != '\0';
}

static bool make_tables(struct run *run)
{
    struct check_state *c = run->check;
    const struct plm_kv_set *kv = &run->engine->core->kv;
    struct plm_kv_pool_stats pool;
    uint32_t most = 0;
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        plm_kv_pool_read(kv->pools[g], &pool);
        most = pool.max_blocks > most ? pool.max_blocks : most;
    }
    if (most > c->cap_seen) {
        free(c->seen);
        c->seen = calloc(most, sizeof(*c->seen));
        c->cap_seen = c->seen != NULL ? most : 0;
    }
    return c->cap_seen >= most;
}

// A device that said the truth, in time, while the plan was made.
static bool was_honest(const struct plm_sim_opts *d)
{
    for (size_t i = 0; i < d->n_events; i++) {
        if (d->events[i].when != PLM_SIM_AT_STEP)
            return false;
    }
    return d->query_lag_ns == 0 && d->free_lag_ns == 0 && d->keeps_bytes == 0 &&
           d->leaks_bytes == 0 && !d->overcommits && !d->spills && d->n_heaps == 0;
}

// At READY the margin is really there: what nobody has taken, seen from below.
static void check_margin(struct run *run, int64_t ballast)
{
    const struct plm_sim_world *w = &run->observer.world;
    const struct plm_sim_opts *d = &run->world->device;
    const int64_t left =
        (int64_t)d->capacity_bytes - (int64_t)(w->taken_bytes + w->driver_bytes + w->state.foreign);
    if (was_honest(d) && left + ballast < run->plan.margin)
        fault(run, FAULT_MARGIN, "%" PRId64 " bytes are left at READY, the margin is %" PRId64,
              left + ballast, run->plan.margin);
}

static void check_plan(struct run *run)
{
    const struct plm_plan *plan = &run->plan;
    struct plm_ledger_stats ledger;
    plm_ledger_read(run->engine->core->rank.ledger, &ledger);
    const int64_t held = ledger.held_bytes - ledger.by_class[PLM_MEM_BALLAST].held_bytes;
    if (plan->line + plan->margin + plan->host > plan->room)
        fault(run, FAULT_MARGIN,
              "the line %" PRId64 ", the margin %" PRId64 " and the host's %" PRId64
              " are more than the room of %" PRId64,
              plan->line, plan->margin, plan->host, plan->room);
    check_margin(run, ledger.by_class[PLM_MEM_BALLAST].held_bytes);
    if (held > plan->line)
        fault(run, FAULT_MARGIN, "%" PRId64 " bytes are held, the line is %" PRId64, held,
              plan->line);
    if (run->metrics.limit_bytes != plan->line || run->metrics.margin_bytes != plan->margin)
        fault(run, FAULT_METRICS,
              "line %" PRId64 " and margin %" PRId64 " are published as %" PRId64 " and %" PRId64,
              plan->line, plan->margin, run->metrics.limit_bytes, run->metrics.margin_bytes);
}

static void check_peaks(struct run *run)
{
    struct plm_ledger_stats ledger;
    const struct observer *o = &run->observer;
    plm_ledger_read(run->engine->core->rank.ledger, &ledger);
    if (ledger.held_bytes != o->held_bytes)
        fault(run, FAULT_BALANCE, "the ledger holds %" PRId64 " bytes, the device gave %" PRId64,
              ledger.held_bytes, o->held_bytes);
    if (ledger.peak_held_bytes != o->peak_held_bytes)
        fault(run, FAULT_PEAK, "the ledger's peak is %" PRId64 " bytes, %" PRId64 " were held",
              ledger.peak_held_bytes, o->peak_held_bytes);
    for (int p = 0; p < PLM_PHASES; p++) {
        if (ledger.phase_peak_bytes[p] != o->phase_peak_bytes[p])
            fault(run, FAULT_PEAK,
                  "the peak of phase %s is %" PRId64 " bytes, %" PRId64 " were held in it",
                  plm_phase_name((enum plm_phase)p), ledger.phase_peak_bytes[p],
                  o->phase_peak_bytes[p]);
    }
}

static void check_capacity(struct run *run)
{
    const struct plm_sim_opts *d = &run->world->device;
    uint64_t capacity = d->capacity_bytes;
    for (uint32_t i = 0; i < d->n_heaps; i++)
        capacity += d->heap_bytes[i];
    const uint64_t taken = run->observer.world.peak_taken_bytes;
    if (!d->overcommits && !d->spills && taken > capacity)
        fault(run, FAULT_CAPACITY, "%" PRIu64 " bytes were taken of %" PRIu64, taken, capacity);
}

void check_begin(struct run *run)
{
    if (run->check == NULL)
        run->check = calloc(1, sizeof(*run->check));
    if (run->check == NULL || !make_tables(run)) {
        fault(run, FAULT_WORLD, "no memory for the checks");
        return;
    }
    struct check_state *c = run->check, kept = *c;
    *c = (struct check_state){.seen = kept.seen,
                              .cap_seen = kept.cap_seen,
                              .stamp = kept.stamp,
                              .resizes = run->metrics.resizes,
                              .losses = run->observer.losses,
                              .refused = run->observer.refused};
    plm_host_read(run->host, &c->host_ready);
    plm_ledger_read(run->engine->core->rank.ledger, &c->ledger_ready);
    check_capacity(run);
    check_plan(run);
    check_peaks(run);
}

// ---- admission ----

void check_before_submit(struct run *run)
{
    struct check_state *c = run->check;
    plm_host_read(run->host, &c->host_before);
    c->active_before = run->engine->active;
    c->waiting_before = run->engine->admission.waiting;
    c->waiting_tokens_before = run->engine->admission.waiting_tokens;
    c->changed_step = run->step;
}

// Blocks that the request needs to its end, counted here by their definition.
static int64_t blocks_needed(const struct run *run, const plim_request_opts *o)
{
    const uint32_t window = run->engine->core->kv.windows[0];
    const uint32_t context = run->engine->admission.limits.max_context;
    // The full blocks of the prompt once, the rest n times.
    const int64_t shared = (int64_t)o->n_tokens / PLM_KV_BLOCK_TOKENS;
    const int64_t each =
        (int64_t)plm_div_ceil(o->n_tokens + o->max_tokens, PLM_KV_BLOCK_TOKENS) - shared;
    if (window == 0 || window >= context) // nothing ever leaves it
        return shared + (int64_t)o->n * each;
    // Of a window all that the best-placed row touches, a block ahead, and one of the chunk.
    const uint32_t whole = (uint32_t)plm_div_ceil(context, PLM_KV_BLOCK_TOKENS);
    uint32_t most = 0;
    for (uint32_t last = window - 1; last < window - 1 + PLM_KV_BLOCK_TOKENS; last++) {
        const uint32_t first = last - (window - 1);
        const uint32_t n = last / PLM_KV_BLOCK_TOKENS - first / PLM_KV_BLOCK_TOKENS + 1;
        most = n > most ? n : most;
    }
    return (most + 1 < whole ? most + 1 : whole) + 1;
}

static void check_numbers(struct run *run, const plim_request_opts *o, const plim_error *err)
{
    const struct plm_admit_limits *limits = &run->engine->admission.limits;
    if (err->needed_bytes <= err->limit_bytes)
        fault(run, FAULT_REFUSAL, "refused although %" PRId64 " are needed of %" PRId64 " (%s)",
              err->needed_bytes, err->limit_bytes, err->term);
    if (err->n_prompt_tokens != (int64_t)o->n_tokens && err->n_prompt_tokens != 0)
        fault(run, FAULT_REFUSAL, "the prompt has %zu tokens, the refusal says %" PRId64,
              o->n_tokens, err->n_prompt_tokens);
    if (err->status == PLIM_ERR_CONTEXT &&
        o->n_tokens + (o->max_tokens > 0 ? o->max_tokens : 1) <= limits->max_context)
        fault(run, FAULT_REFUSAL, "%zu and %u tokens are within the context of %u", o->n_tokens,
              o->max_tokens, limits->max_context);
    if (err->status == PLIM_ERR_NOMEM_NEVER && strcmp(err->term, "kv") == 0 && o->max_tokens > 0) {
        const int64_t needed = blocks_needed(run, o) * limits->block_bytes;
        if (err->needed_bytes != needed)
            fault(run, FAULT_REFUSAL, "the request needs %" PRId64 " bytes of KV, not %" PRId64,
                  needed, err->needed_bytes);
    }
}

void check_refused(struct run *run, const struct played *p, const plim_request_opts *o,
                   const plim_error *err)
{
    struct check_state *c = run->check;
    const struct plim_engine *e = run->engine;
    struct plm_host_stats host;
    (void)p;
    plm_host_read(run->host, &host);
    if (host.used_bytes != c->host_before.used_bytes || e->active != c->active_before ||
        e->admission.waiting != c->waiting_before ||
        e->admission.waiting_tokens != c->waiting_tokens_before)
        fault(run, FAULT_BALANCE,
              "a refusal keeps %" PRId64 " bytes, %d places and %" PRId64 " tokens of the queue",
              host.used_bytes - c->host_before.used_bytes,
              (int)(e->admission.waiting - c->waiting_before),
              (int64_t)(e->admission.waiting_tokens - c->waiting_tokens_before));
    const bool now = err->status == PLIM_ERR_NOMEM_NOW || err->status == PLIM_ERR_QUEUE_FULL;
    switch (err->status) {
    case PLIM_ERR_CLOSED:
        if (!run->drains && !run->metrics.lost)
            fault(run, FAULT_REFUSAL, "closed, but nobody drains the engine");
        return;
    case PLIM_ERR_NOMEM_HOST:
    case PLIM_ERR_INVALID:
    case PLIM_ERR_LOST: return;
    case PLIM_ERR_NOMEM_NOW:
        if (run->metrics.asleep || run->wants_sleep || run->wants_wake)
            break; // asleep: there are no bytes to name
        // fall through
    case PLIM_ERR_CONTEXT:
    case PLIM_ERR_QUEUE_FULL:
    case PLIM_ERR_NOMEM_NEVER: check_numbers(run, o, err); break;
    default:
        fault(run, FAULT_REFUSAL, "status %d is no refusal: %s", err->status, err->message);
        return;
    }
    if (now != (err->retry_after_s >= 1))
        fault(run, FAULT_REFUSAL, "status %d with a retry after %d s", err->status,
              err->retry_after_s);
    if (err->term[0] == '\0' || err->message[0] == '\0')
        fault(run, FAULT_REFUSAL, "status %d names no term or has no message", err->status);
}

// ---- events ----

// Without bytes behind the device all logits are zero, so that a stream is a pure function of seed,
// choice and position: each token is as likely as the others, but for the poison, which is banned.
static int32_t expected_token(const struct run *run, const struct played *p, uint32_t choice)
{
    const uint64_t position = p->n_prompt + p->choice_tokens[choice];
    const uint64_t u = plm_random_bits(p->ask->seed, choice, position);
    const bool banned = run->world->device.poison != PLM_SIM_POISON_NONE;
    const uint64_t n = run->n_vocab - (banned ? 1 : 0);
    // u * n / 2^64
    const int32_t token = (int32_t)(((u >> 32) * n + ((uint32_t)u * n >> 32)) >> 32);
    return token + (banned && token >= run->world->device.poison_token);
}

static void check_token(struct run *run, const struct played *p, const plim_event *e)
{
    const int32_t expected = expected_token(run, p, e->choice);
    if (e->token != expected)
        fault(run, FAULT_TOKENS, "request %td, choice %u: token %u is %d and must be %d",
              p - run->requests + 1, e->choice, p->choice_tokens[e->choice], e->token, expected);
}

static bool holds_poison(const struct run *run, const struct played *p)
{
    for (uint32_t i = 0; i < p->n_prompt; i++) {
        if (p->prompt[i] == run->world->device.poison_token)
            return true;
    }
    return false;
}

// A failed end that nothing in the world explains.
static void check_status(struct run *run, const struct played *p, const plim_event *e)
{
    const struct observer *o = &run->observer;
    const ptrdiff_t number = p - run->requests + 1;
    if (e->status != PLIM_OK && e->status != PLIM_ERR_CANCELLED &&
        (e->error == NULL || e->error->message[0] == '\0'))
        fault(run, FAULT_ONCE, "request %td ends with %d and no word", number, e->status);
    switch (e->status) {
    case PLIM_OK: return;
    case PLIM_ERR_CANCELLED:
        if (!p->left)
            fault(run, FAULT_ONCE, "request %td was cancelled by nobody", number);
        return;
    case PLIM_ERR_LOST:
        if (o->losses == 0 && run->engine->counts.losses == 0) // a hang counts as one, too
            fault(run, FAULT_ONCE, "request %td ends as lost, but the device was not", number);
        return;
    case PLIM_ERR_NUMERIC:
        if (run->world->device.poison == PLM_SIM_POISON_NAN && !holds_poison(run, p))
            fault(run, FAULT_TOKENS, "request %td ends by the poison of another", number);
        return;
    default: return;
    }
}

static void check_done(struct run *run, const struct played *p, const plim_event *e)
{
    const ptrdiff_t number = p - run->requests + 1;
    check_status(run, p, e);
    if (e->completion_tokens != p->tokens || e->prompt_tokens != p->n_prompt)
        fault(run, FAULT_ONCE, "request %td: %u + %u tokens are reported, %u + %u were seen",
              number, e->prompt_tokens, e->completion_tokens, p->n_prompt, p->tokens);
    if (e->status != PLIM_OK)
        return;
    if (!p->admitted || p->finishes != p->n)
        fault(run, FAULT_ONCE, "request %td is done with %u of %u choices finished", number,
              p->finishes, p->n);
    for (uint32_t i = 0; i < p->n && p->max > 0 && !computes(run); i++) {
        if (p->choice_tokens[i] != (p->max | FINISHED))
            fault(run, FAULT_ONCE, "request %td: choice %u has %u of %u tokens", number, i,
                  p->choice_tokens[i] & ~FINISHED, p->max);
    }
}

void check_event(struct run *run, struct played *p, const plim_event *e)
{
    const ptrdiff_t number = p - run->requests + 1;
    struct check_state *c = run->check;
    if (e->type != PLIM_EVENT_TOKEN)
        c->changed_step = run->step;
    if (p->events_step != run->step + 1) { // writer and reader swap their two buffers
        p->events_step = run->step + 1;
        p->turn = !p->turn;
        p->step_size = 0;
    }
    if (p->done)
        fault(run, FAULT_ONCE, "request %td goes on after its end", number);
    if (!p->admitted && e->type != PLIM_EVENT_ADMITTED && e->type != PLIM_EVENT_DONE)
        fault(run, FAULT_ONCE, "request %td has an event before it was admitted", number);
    if (e->choice >= p->n) {
        fault(run, FAULT_ONCE, "request %td has no choice %u", number, e->choice);
        return;
    }
    uint32_t *tokens = &p->choice_tokens[e->choice];
    switch (e->type) {
    case PLIM_EVENT_ADMITTED:
        if (p->admitted)
            fault(run, FAULT_ONCE, "request %td was admitted twice", number);
        p->admitted = true;
        return;
    case PLIM_EVENT_TOKEN:
    case PLIM_EVENT_FINISH:
        if (*tokens & FINISHED)
            fault(run, FAULT_ONCE, "request %td: choice %u goes on after its end", number,
                  e->choice);
        if (e->type == PLIM_EVENT_FINISH) {
            *tokens |= FINISHED;
            p->finishes++;
            return;
        }
        if (!computes(run))
            check_token(run, p, e);
        ++*tokens;
        // A control token has no text: what counts is bytes, and one for the record itself.
        p->step_size += 1 + (uint32_t)e->text_len;
        if (*tokens <= WARM_TOKENS || p->step_size > p->most_size[p->turn])
            c->changed_step = run->step;
        p->most_size[p->turn] =
            p->step_size > p->most_size[p->turn] ? p->step_size : p->most_size[p->turn];
        p->tokens++;
        run->n_tokens++;
        return;
    case PLIM_EVENT_DONE: check_done(run, p, e); return;
    default: fault(run, FAULT_ONCE, "request %td has an event of type %d", number, e->type);
    }
}

// ---- steps ----

static struct plm_seq *oldest_seq(const struct run *run)
{
    struct plm_seq *oldest = NULL;
    for (struct plim_request *r = run->engine->requests; r != NULL; r = r->next) {
        for (uint32_t i = 0; i < r->n; i++) {
            struct plm_seq *seq = &r->choices[i].seq;
            if (r->choices[i].live && (oldest == NULL || seq->order < oldest->order))
                oldest = seq;
        }
    }
    return oldest;
}

static bool in_trouble(const struct run *run)
{
    const struct check_state *c = run->check;
    // A bisection of a loss computes one request after the other anew; it is bounded
    // by their tokens.
    return run->metrics.asleep || run->engine->recover.down || run->engine->bisect.n > 0 ||
           (c->trouble_step > 0 && run->step - c->trouble_step < TROUBLE_STEPS);
}

// The oldest sequence owns its blocks to its end: it is never put aside while others run, and gets
// a row of every step.
static void check_lane(struct run *run)
{
    struct check_state *c = run->check;
    const struct plm_seq *seq = oldest_seq(run);
    if (seq == NULL || seq != c->oldest || seq->order != c->oldest_order || in_trouble(run)) {
        c->oldest = seq;
        c->oldest_order = seq != NULL ? seq->order : 0;
        c->oldest_high = 0;
        c->oldest_step = run->step;
        c->oldest_preemptions = seq != NULL ? seq->preemptions : 0;
        return;
    }
    const uint64_t high = (uint64_t)seq->n_tokens + seq->n_computed;
    if (seq->preemptions != c->oldest_preemptions && plm_sched_running_at(run->engine->sched, 0))
        fault(run, FAULT_LANE, "the oldest sequence was preempted while others run");
    if (seq->state != PLM_SEQ_RUNNING || high > c->oldest_high) {
        c->oldest_high = plm_max_i64((int64_t)high, (int64_t)c->oldest_high);
        c->oldest_step = run->step;
        return;
    }
    if (run->step - c->oldest_step > LANE_STEPS)
        fault(run, FAULT_LANE, "the oldest sequence runs, but got no row in %d steps", LANE_STEPS);
}

static bool same_history(const struct plm_seq *a, const struct plm_seq *b, uint32_t index)
{
    const uint32_t n = (index + 1) * PLM_KV_BLOCK_TOKENS;
    return a->root.lo == b->root.lo && a->root.hi == b->root.hi && n <= a->n_tokens &&
           n <= b->n_tokens && memcmp(a->tokens, b->tokens, n * sizeof(*a->tokens)) == 0;
}

// Every block in a table is used by that sequence alone, or holds what all that have it say; and
// the pool counts as many references as there are tables.
static void check_group(struct run *run, uint32_t g)
{
    struct check_state *c = run->check;
    const struct plm_sched *s = run->engine->sched;
    struct plm_kv_pool_stats pool;
    uint32_t distinct = 0;
    plm_kv_pool_read(s->kv.pools[g], &pool);
    c->stamp++;
    for (uint32_t slot = 0; slot < s->running; slot++) {
        const struct plm_seq *seq = s->slots[slot].seq;
        const uint32_t *ids = plm_sched_ids(s, g, slot);
        const uint32_t n = s->blocks[slot].n[g];
        for (uint32_t b = 0; b < n; b++) {
            if (ids[b] == PLM_KV_NO_BLOCK && s->kv.windows[g] != 0)
                continue; // its window left it behind
            if (ids[b] >= c->cap_seen) {
                fault(run, FAULT_BLOCKS, "a table names block %u of %u", ids[b], pool.max_blocks);
                return;
            }
            struct block_seen *seen = &c->seen[ids[b]];
            if (seen->stamp != c->stamp) {
                *seen = (struct block_seen){c->stamp, seq, b};
                distinct++;
            } else if (seen->index != b || !same_history(seen->seq, seq, b)) {
                fault(run, FAULT_TOKENS,
                      "block %u is in the tables of two sequences with different tokens", ids[b]);
            }
        }
    }
    if (distinct != pool.used)
        fault(run, FAULT_BLOCKS, "%u blocks are in tables, the pool counts %u as used", distinct,
              pool.used);
    if (pool.used + pool.cached + pool.free != pool.total)
        fault(run, FAULT_BLOCKS, "%u used, %u cached and %u free blocks are not %u", pool.used,
              pool.cached, pool.free, pool.total);
}

static void check_tables(struct run *run)
{
    struct plm_kv_pool_stats pool;
    for (uint32_t g = 0; g < run->engine->core->kv.n_groups; g++)
        check_group(run, g);
    plm_kv_pool_read(run->engine->core->pool, &pool);
    if (run->metrics.blocks_total != pool.total || run->metrics.blocks_used != pool.used ||
        run->metrics.blocks_cached != pool.cached || run->metrics.blocks_free != pool.free)
        fault(run, FAULT_METRICS, "the published blocks are not the pool's");
}

// Steps that the longest request in flight needs where it has a row in each.
static uint64_t steps_to_an_end(const struct run *run)
{
    uint64_t most = 0;
    for (uint32_t i = run->first_open; i < run->world->n_requests; i++) {
        const struct played *p = &run->requests[i];
        if (p->handle == NULL)
            continue;
        const uint64_t max = p->max > 0 ? p->max : run->plan.in.limits.max_context;
        const uint64_t steps = (p->n_prompt + max) * p->n;
        most = steps > most ? steps : most;
    }
    return most + PROGRESS_SLACK;
}

static void check_progress(struct run *run)
{
    struct check_state *c = run->check;
    // A device that does not come back is waited for, until the engine gives it up and says so.
    if (run->open == 0 || run->n_ended != c->ended_before || run->metrics.asleep ||
        run->engine->recover.down)
        c->ended_step = run->step;
    c->ended_before = run->n_ended;
    const uint64_t waits = run->step - c->ended_step;
    const uint64_t trouble = in_trouble(run) ? TROUBLE_STEPS : 0;
    if (waits > PROGRESS_SLACK && waits > steps_to_an_end(run) + trouble)
        fault(run, FAULT_PROGRESS, "%u requests, and none ended in %" PRIu64 " steps", run->open,
              waits);
}

static void note_trouble(struct run *run)
{
    struct check_state *c = run->check;
    const struct observer *o = &run->observer;
    if (o->losses != c->losses || o->refused != c->refused || run->metrics.resizes != c->resizes ||
        run->metrics.replays != c->replays)
        c->trouble_step = run->step;
    // A slab that is taken between steps has its tables on the host, too, and an incident is
    // written into memory of its own.
    if (c->allocs != o->world.allocs || c->incidents != run->incidents || in_trouble(run))
        c->changed_step = run->step;
    c->allocs = o->world.allocs;
    c->incidents = run->incidents;
    c->losses = o->losses;
    c->refused = o->refused;
    c->resizes = run->metrics.resizes;
    c->replays = run->metrics.replays;
    if (run->metrics.preemptions != c->preemptions)
        c->changed_step = run->step;
    c->preemptions = run->metrics.preemptions;
}

void check_before_step(struct run *run)
{
    plm_host_read(run->host, &run->check->host_before);
}

void check_after_step(struct run *run, bool worked)
{
    struct check_state *c = run->check;
    struct plm_host_stats host;
    const plim_metrics *m = &run->metrics;
    (void)worked;
    note_trouble(run);
    check_tables(run);
    check_lane(run);
    check_progress(run);
    check_capacity(run);
    if (m->allocations_in_step != 0 || run->observer.late_allocs != 0)
        fault(run, FAULT_ALLOC,
              "%" PRIu64 " device allocations are counted inside steps, %" PRIu64 " were seen",
              m->allocations_in_step, run->observer.late_allocs);
    // Where others can take what we do not hold, the ballast stays held: it is the margin, beyond
    // the line.
    const int64_t used = m->used_bytes - m->ballast_bytes;
    // While a lost device is built up again the plan's own line holds: what neighbours left of it
    // is found out by that.
    const int64_t line = run->engine->recover.down ? run->plan.line : m->limit_bytes;
    if (used > line)
        fault(run, FAULT_MARGIN, "%" PRId64 " bytes are used, the line is %" PRId64, used, line);
    // Two steps after the last change all buffers have met their sizes.
    plm_host_read(run->host, &host);
    if (run->step > c->changed_step + 2 && host.allocations != c->host_before.allocations)
        fault(run, FAULT_ALLOC, "%" PRIu64 " host allocations in a steady step",
              host.allocations - c->host_before.allocations);
}

// ---- the end ----

static void check_counts(struct run *run)
{
    const plim_metrics *m = &run->metrics;
    const uint64_t well = m->finished_stop + m->finished_length;
    const uint64_t ended = well + m->finished_cancelled + m->finished_error;
    if (ended != run->n_ended || well != run->n_finished)
        fault(run, FAULT_METRICS, "%" PRIu64 " ends are published, %u were seen, %u of them well",
              ended, run->n_ended, run->n_finished);
    if (m->generated_tokens != run->n_tokens && !computes(run))
        fault(run, FAULT_METRICS, "%" PRIu64 " tokens are published, %" PRIu64 " were seen",
              m->generated_tokens, run->n_tokens);
    // At admission, or later: too long in the queue, or a step that does not fit.
    static const int refusals[] = {PLIM_ERR_NOMEM_NEVER, PLIM_ERR_NOMEM_NOW, PLIM_ERR_QUEUE_FULL,
                                   PLIM_ERR_CONTEXT};
    uint64_t refused = 0;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        refused += run->refused_as[-refusals[i]] + run->ended_as[-refusals[i]];
    const uint64_t published =
        m->rejected_never + m->rejected_now + m->rejected_queue + m->rejected_context;
    if (refused != published)
        fault(run, FAULT_METRICS, "%" PRIu64 " refusals are published, %" PRIu64 " were seen",
              published, refused);
    if (m->running != 0 || m->waiting != 0 || m->blocks_used != 0)
        fault(run, FAULT_METRICS, "%u run, %u wait and %" PRIu64 " blocks are used at the end",
              m->running, m->waiting, m->blocks_used);
    if (m->incidents != run->incidents)
        fault(run, FAULT_METRICS, "%" PRIu64 " incidents are published, %u were told of",
              m->incidents, run->incidents);
}

// A step that took more than its cost was made so by the world.
static void check_audit(struct run *run)
{
    uint64_t overruns = 0;
    for (size_t i = 0; i < run->world->device.n_events; i++)
        overruns += run->world->device.events[i].what == PLM_SIM_OVERRUN;
    if (run->metrics.audit_excess > overruns)
        fault(run, FAULT_METRICS,
              "%" PRIu64 " steps took more than their cost, the world made %" PRIu64,
              run->metrics.audit_excess, overruns);
}

void check_end(struct run *run)
{
    const struct check_state *c = run->check;
    struct plm_host_stats host;
    struct plm_kv_pool_stats pool;
    struct plm_ledger_stats ledger;
    plm_host_read(run->host, &host);
    plm_kv_pool_read(run->engine->core->pool, &pool);
    plm_ledger_read(run->engine->core->rank.ledger, &ledger);
    for (uint32_t i = 0; i < run->world->n_requests; i++) {
        const struct played *p = &run->requests[i];
        if (p->came && p->status == PLIM_OK && !p->done)
            fault(run, FAULT_ONCE, "request %u never ended", i + 1);
    }
    if (pool.used != 0)
        fault(run, FAULT_BLOCKS, "%u blocks are used, but no request is left", pool.used);
    if (host.owner_bytes[PLM_HOST_REQUEST] != c->host_ready.owner_bytes[PLM_HOST_REQUEST] ||
        host.used_bytes > c->host_ready.used_bytes + HOST_WARM_BYTES)
        fault(run, FAULT_BALANCE,
              "%" PRId64 " bytes of requests and %" PRId64 " of host memory are left over",
              host.owner_bytes[PLM_HOST_REQUEST] - c->host_ready.owner_bytes[PLM_HOST_REQUEST],
              host.used_bytes - c->host_ready.used_bytes);
    for (int i = 0; i < PLM_MEM_CLASSES && !run->engine->recover.down; i++) {
        const int64_t before = c->ledger_ready.by_class[i].held_bytes;
        if (i != PLM_MEM_KV && i != PLM_MEM_BALLAST && ledger.by_class[i].held_bytes != before)
            fault(run, FAULT_BALANCE, "class %s holds %" PRId64 " bytes, at READY %" PRId64,
                  plm_mem_class_name((enum plm_mem_class)i), ledger.by_class[i].held_bytes, before);
    }
    check_peaks(run);
    check_counts(run);
    check_audit(run);
}

void check_freed(struct run *run)
{
    const struct plm_sim_world *w = &run->observer.world;
    if (run->observer.held_bytes != 0 || (w->taken_bytes | w->driver_bytes) != 0)
        fault(run, FAULT_BALANCE,
              "the engine is gone, and %" PRId64 " bytes of slabs and %" PRIu64
              " of the driver are held",
              run->observer.held_bytes, (uint64_t)w->driver_bytes);
}

void check_finish(struct run *run)
{
    if (run->check == NULL)
        return;
    free(run->check->seen);
    free(run->check);
}
