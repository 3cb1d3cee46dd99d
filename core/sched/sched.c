// SPDX-License-Identifier: Apache-2.0
#include "core/sched/sched.h"

#include <string.h>

#include "core/base/fault_seed.h"
#include "core/sched/sched_impl.h"

// The block lists of all groups.
static bool create_tables(struct plm_sched *s)
{
    const uint32_t seqs = s->opts.max_sequences;
    bool good = true;
    for (uint32_t g = 0; g < s->kv.n_groups; g++) {
        s->ids[g] =
            plm_calloc(s->host, PLM_HOST_KV, seqs, (size_t)s->max_blocks * sizeof(*s->ids[g]));
        good &= s->ids[g] != NULL;
        s->kv.windows[g] = plm_kv_window(s->kv.windows[g], s->opts.max_context);
        s->windowed |= s->kv.windows[g] != 0;
        s->sequence_blocks[g] = plm_kv_sequence_blocks(s->kv.windows[g], s->opts.max_context);
    }
    if (s->windowed)
        s->firsts = plm_calloc(s->host, PLM_HOST_KV, seqs, s->kv.n_groups * sizeof(*s->firsts));
    s->blocks = plm_calloc(s->host, PLM_HOST_SCHED, seqs, sizeof(*s->blocks));
    return good && s->blocks != NULL && (s->firsts != NULL || !s->windowed);
}

int plm_sched_create(struct plm_host *host, const struct plm_sched_opts *opts,
                     const struct plm_kv_set *kv, struct plm_prefix *prefix, struct plm_sched **ret)
{
    struct plm_sched *s = plm_calloc(host, PLM_HOST_SCHED, 1, sizeof(*s));
    if (s == NULL)
        return PLM_ERR_NOMEM_HOST;
    const uint32_t seqs = opts->max_sequences, rows = opts->batch_max_tokens;
    s->host = host;
    s->opts = *opts;
    s->kv = *kv;
    s->prefix = prefix;
    s->max_blocks = (uint32_t)plm_kv_blocks(opts->max_context);
    s->stride = s->max_blocks < 16 ? s->max_blocks : 16;
    s->slots = plm_calloc(host, PLM_HOST_SCHED, seqs, sizeof(*s->slots));
    s->due = plm_calloc(host, PLM_HOST_SCHED, seqs, sizeof(*s->due));
    s->needs_block = plm_calloc(host, PLM_HOST_SCHED, seqs, sizeof(*s->needs_block));
    s->tokens = plm_calloc(host, PLM_HOST_SCHED, rows, sizeof(*s->tokens));
    s->pos = plm_calloc(host, PLM_HOST_SCHED, rows, sizeof(*s->pos));
    s->seq = plm_calloc(host, PLM_HOST_SCHED, rows, sizeof(*s->seq));
    s->logits_rows = plm_calloc(host, PLM_HOST_SCHED, seqs, sizeof(*s->logits_rows));
    s->logits_seqs = plm_calloc(host, PLM_HOST_SCHED, seqs, sizeof(*s->logits_seqs));
    s->prefills = plm_calloc(host, PLM_HOST_SCHED, seqs, sizeof(*s->prefills));
    if (!create_tables(s) || s->slots == NULL || s->due == NULL || s->needs_block == NULL ||
        s->tokens == NULL || s->pos == NULL || s->seq == NULL || s->logits_rows == NULL ||
        s->logits_seqs == NULL || s->prefills == NULL) {
        plm_sched_destroy(s);
        return PLM_ERR_NOMEM_HOST;
    }
    *ret = s;
    return PLM_OK;
}

void plm_sched_destroy(struct plm_sched *s)
{
    if (s == NULL)
        return;
    for (uint32_t g = 0; g < s->kv.n_groups; g++)
        plm_free(s->host, s->ids[g]);
    plm_free(s->host, s->firsts);
    plm_free(s->host, s->blocks);
    plm_free(s->host, s->slots);
    plm_free(s->host, s->due);
    plm_free(s->host, s->needs_block);
    plm_free(s->host, s->tokens);
    plm_free(s->host, s->pos);
    plm_free(s->host, s->seq);
    plm_free(s->host, s->logits_rows);
    plm_free(s->host, s->logits_seqs);
    plm_free(s->host, s->prefills);
    plm_free(s->host, s);
}

// ---- adding and removing ----

static void put_aside(struct plm_sched *s, struct plm_seq *seq)
{
    seq->state = PLM_SEQ_PAUSED;
    plm_share_wait(s, seq);
}

static void release_forks(struct plm_sched *s, struct plm_seq *parent)
{
    while (parent->forks != NULL) {
        struct plm_seq *seq = parent->forks;
        parent->forks = seq->next;
        seq->next = NULL;
        s->forks -= parent->began;
        put_aside(s, seq);
    }
}

// A fork runs for the first time, or never will.
static void fork_left(struct plm_sched *s, struct plm_seq *parent)
{
    if (--parent->forks_to_enter == 0 && s->windowed)
        plm_windows_fork_left(s, parent);
}

// From here on its forks count as waiting: before, their request is one that waits.
static void begin(struct plm_sched *s, struct plm_seq *seq)
{
    seq->began = true;
    if (seq->parent != NULL)
        fork_left(s, seq->parent);
    for (const struct plm_seq *at = seq->forks; at != NULL; at = at->next)
        s->forks++;
}

void plm_sched_add(struct plm_sched *s, struct plm_seq *seq)
{
    struct plm_seq *parent = seq->parent;
    seq->began = false;
    seq->preemptions = seq->yields = seq->forks_to_enter = 0;
    if (parent != NULL)
        parent->forks_to_enter++;
    plm_share_join(seq);
    if (parent != NULL && parent->state != PLM_SEQ_IDLE && parent->n_computed < parent->n_prompt) {
        struct plm_seq **at = &parent->forks;
        while (*at != NULL && (*at)->order < seq->order)
            at = &(*at)->next;
        seq->next = *at;
        *at = seq;
        seq->state = PLM_SEQ_FORK;
        s->forks += parent->began;
        return;
    }
    if (parent != NULL) {
        put_aside(s, seq);
        return;
    }
    plm_seq_insert(&s->queue, NULL, seq);
    seq->state = PLM_SEQ_QUEUED;
    plm_share_wait(s, seq);
}

static void unlist_fork(struct plm_sched *s, struct plm_seq *seq)
{
    struct plm_seq **at = &seq->parent->forks;
    while (*at != seq)
        at = &(*at)->next;
    *at = seq->next;
    seq->next = NULL;
    s->forks -= seq->parent->began;
}

// The sequence is QUEUED or PAUSED, or was so until it entered.
static void stop_waiting(struct plm_sched *s, struct plm_seq *seq)
{
    const bool queued = seq->share->queued == seq;
    plm_share_unwait(s, seq);
    if (queued)
        plm_seq_unlink(&s->queue, seq);
}

void plm_sched_remove(struct plm_sched *s, struct plm_seq *seq)
{
    if (seq->state != PLM_SEQ_IDLE && seq->parent != NULL && !seq->began)
        fork_left(s, seq->parent);
    release_forks(s, seq);
    switch ((enum plm_seq_state)seq->state) {
    case PLM_SEQ_IDLE: break;
    case PLM_SEQ_FORK: unlist_fork(s, seq); break;
    case PLM_SEQ_QUEUED:
    case PLM_SEQ_PAUSED: stop_waiting(s, seq); break;
    case PLM_SEQ_RUNNING: plm_sched_leave(s, seq); break;
    }
    seq->state = PLM_SEQ_IDLE;
    if (s->stuck == seq)
        s->stuck = NULL;
}

void plm_sched_preempt(struct plm_sched *s, struct plm_seq *seq)
{
    plm_sched_leave(s, seq);
    seq->preemptions++;
    s->preemptions++;
    put_aside(s, seq);
}

void plm_sched_park(struct plm_sched *s)
{
    while (s->running > 0) {
        struct plm_seq *seq = s->slots[s->running - 1].seq;
        plm_sched_leave(s, seq);
        put_aside(s, seq);
    }
}

void plm_sched_restrict(struct plm_sched *s, bool on)
{
    s->restricted = on;
}

void plm_sched_set_entry(struct plm_sched *s, enum plm_sched_entry entry)
{
    s->entry = entry;
}

struct plm_seq *plm_sched_youngest(const struct plm_sched *s)
{
    struct plm_seq *youngest = NULL;
    for (uint32_t i = 0; i < s->running; i++) {
        if (youngest == NULL || (s->slots[i].seq->order > youngest->order) != PLM_FAULT_SEED(LANE))
            youngest = s->slots[i].seq;
    }
    return youngest;
}

struct plm_seq *plm_sched_running_at(const struct plm_sched *s, uint32_t i)
{
    return i < s->running ? s->slots[i].seq : NULL;
}

struct plm_seq *plm_sched_stuck(const struct plm_sched *s)
{
    return s->stuck;
}

struct plm_seq *plm_sched_queue_head(const struct plm_sched *s)
{
    return s->queue.head;
}

void plm_sched_read(const struct plm_sched *s, struct plm_sched_stats *ret)
{
    *ret = (struct plm_sched_stats){.running = s->running,
                                    .queued = s->queue.n,
                                    .paused = s->paused,
                                    .forks = s->forks,
                                    .preemptions = s->preemptions,
                                    .yields = s->yields};
}

// ---- a step ----

static void add_logits(struct plm_sched *s, struct plm_seq *seq, struct plm_shape *shape)
{
    s->logits_rows[shape->logits_rows] = (int32_t)(shape->rows - 1);
    s->logits_seqs[shape->logits_rows++] = seq;
}

// The next n rows of a prompt, or of what is computed again.
static void add_chunk(struct plm_sched *s, uint32_t slot, uint32_t n, struct plm_shape *shape)
{
    struct plm_running *r = &s->slots[slot];
    const uint32_t row = shape->rows, from = r->n_computed;
    if (s->windowed && n > 0) {
        const uint32_t until = plm_windows_extend(s, slot, from + n);
        n = until > from ? until - from : 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        s->tokens[row + i] = r->seq->tokens[from + i];
        s->pos[row + i] = (int32_t)(from + i);
        s->seq[row + i] = (int32_t)slot;
    }
    r->n_batch = n;
    s->chunk_rows += n;
    shape->rows += n;
    if (n == 0)
        return;
    if (from + n == r->n_tokens)
        add_logits(s, r->seq, shape);
}

// The one row of a sequence that decodes.
static inline void add_row(struct plm_sched *s, uint32_t slot, struct plm_shape *shape)
{
    struct plm_running *r = &s->slots[slot];
    const uint32_t row = shape->rows++;
    s->tokens[row] = r->token;
    s->pos[row] = (int32_t)r->n_computed;
    s->seq[row] = (int32_t)slot;
    r->n_batch = 1;
    add_logits(s, r->seq, shape);
}

static struct plm_seq *next_waiting(const struct plm_sched *s)
{
    if (s->entry == PLM_ENTRY_NONE)
        return NULL;
    return s->restricted ? plm_share_next_selected(s)
                         : plm_share_next(s, s->entry == PLM_ENTRY_BEGUN);
}

// Strictly who is next: a large request is not overtaken while it waits for blocks, so it can not
// starve.
static struct plm_seq *admit_next(struct plm_sched *s, const struct plm_sched_hook *hook)
{
    if (s->running == s->opts.max_sequences)
        return NULL;
    struct plm_seq *seq = next_waiting(s);
    if (seq == NULL)
        return NULL;
    if (!plm_sched_fits(s, seq, NULL) || !plm_sched_enter(s, seq)) {
        if (s->running == 0)
            s->stuck = seq;
        return NULL;
    }
    stop_waiting(s, seq);
    if (!seq->began) {
        begin(s, seq);
        if (hook != NULL && hook->admitted != NULL)
            hook->admitted(hook->ctx, seq);
    }
    return seq;
}

// Forms after which who gives way is asked again although nobody came, went or was put aside: a
// sequence may have run long enough since.
#define ASK_AGAIN 16

// Where who is next never ran and finds no place, one of those who have more gives way, if that is
// enough. Before any row is formed, since places move.
static void give_way(struct plm_sched *s)
{
    if (s->queue.n == 0 || s->restricted || s->entry != PLM_ENTRY_ALL ||
        (s->asked_at == s->changes && ++s->forms < ASK_AGAIN))
        return;
    s->asked_at = s->changes;
    s->forms = 0;
    struct plm_seq *seq = plm_share_next(s, false);
    if (seq->state != PLM_SEQ_QUEUED ||
        (s->running < s->opts.max_sequences && plm_sched_fits(s, seq, NULL)))
        return;
    struct plm_seq *victim = plm_share_victim(s, seq);
    if (victim == NULL || !plm_sched_fits(s, seq, victim))
        return;
    plm_sched_leave(s, victim);
    victim->yields++;
    s->yields++;
    put_aside(s, victim);
}

// Blocks for all that run; where there are too few the youngest give theirs up.
static void grow(struct plm_sched *s)
{
    while (s->windowed && s->running > 1 && !plm_windows_fit(s, s->running, 1))
        plm_sched_preempt(s, plm_sched_youngest(s));
    struct plm_seq *seq;
    while ((seq = plm_sched_grow(s)) != NULL) {
        if (s->running == 1) {
            s->stuck = seq;
            return;
        }
        plm_sched_preempt(s, plm_sched_youngest(s)); // maybe seq itself, which needs none then
    }
}

static uint32_t chunk(const struct plm_sched *s, uint32_t slot, uint32_t left)
{
    uint32_t n = s->slots[slot].n_tokens - s->slots[slot].n_computed;
    if (n > s->opts.prefill_chunk)
        n = s->opts.prefill_chunk;
    if (s->windowed && left > plm_windows_rows(s))
        left = plm_windows_rows(s);
    return n < left ? n : left;
}

// Blocks of windows for the one row of a sequence that decodes. Within a block the row before it
// made it.
static inline bool has_windows(struct plm_sched *s, uint32_t slot)
{
    const struct plm_running *r = &s->slots[slot];
    return !s->windowed || r->n_computed % PLM_KV_BLOCK_TOKENS != 0 ||
           plm_windows_extend(s, slot, r->n_tokens) == r->n_tokens;
}

// Rows of those that decode, and the others by age.
static uint32_t decode_rows(struct plm_sched *s, uint32_t budget, struct plm_shape *shape)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->running; i++) {
        struct plm_running *r = &s->slots[i];
        r->n_batch = 0;
        if (s->restricted && !r->seq->selected)
            continue;
        if (r->n_tokens - r->n_computed == 1) {
            if (shape->rows < budget && has_windows(s, i))
                add_row(s, i, shape);
            continue;
        }
        uint32_t at = n++;
        for (; at > 0 && s->prefills[at - 1]->order > r->seq->order; at--)
            s->prefills[at] = s->prefills[at - 1];
        s->prefills[at] = r->seq;
    }
    return n;
}

static void finish_shape(const struct plm_sched *s, struct plm_shape *shape)
{
    if (shape->rows == 0)
        return;
    shape->seqs = s->running;
    shape->ctx = s->stride * PLM_KV_BLOCK_TOKENS;
    if (shape->ctx > s->opts.max_context)
        shape->ctx = s->opts.max_context;
}

static void fill_batch(const struct plm_sched *s, const struct plm_shape *shape,
                       uint32_t prefill_rows, struct plm_batch *ret)
{
    *ret = (struct plm_batch){.shape = *shape,
                              .prefill_rows = prefill_rows,
                              .tokens = s->tokens,
                              .pos = s->pos,
                              .seq = s->seq,
                              .ids_stride = s->max_blocks,
                              .blocks = s->blocks,
                              .table_stride = s->stride,
                              .logits_rows = s->logits_rows,
                              .logits_seqs = s->logits_seqs};
    for (uint32_t g = 0; g < s->kv.n_groups; g++)
        ret->ids[g] = s->ids[g];
}

void plm_sched_form(struct plm_sched *s, uint32_t rows_max, const struct plm_sched_hook *hook,
                    struct plm_batch *ret)
{
    uint32_t budget = s->opts.batch_max_tokens;
    if (rows_max > 0 && rows_max < budget)
        budget = rows_max;
    struct plm_shape shape = {0};
    s->stuck = NULL;
    s->chunk_rows = 0;
    grow(s);
    give_way(s);
    uint32_t n = decode_rows(s, budget, &shape), decode = shape.rows;
    for (uint32_t i = 0; i < n && shape.rows < budget; i++)
        add_chunk(s, s->prefills[i]->slot, chunk(s, s->prefills[i]->slot, budget - shape.rows),
                  &shape);
    while (shape.rows < budget) {
        struct plm_seq *seq = admit_next(s, hook);
        if (seq == NULL)
            break;
        add_chunk(s, seq->slot, chunk(s, seq->slot, budget - shape.rows), &shape);
    }
    if (shape.rows == 0 && n > 0 && s->windowed && s->stuck == NULL)
        s->stuck = s->prefills[0];
    finish_shape(s, &shape);
    fill_batch(s, &shape, shape.rows - decode, ret);
}

// ---- a step ahead ----

// The row after the one that is being computed, whose token only the device knows.
static void add_row_ahead(struct plm_sched *s, const struct plm_seq *seq, uint32_t from,
                          struct plm_shape *shape)
{
    struct plm_running *r = &s->slots[seq->slot];
    const uint32_t row = shape->rows++, pos = r->n_computed + 1;
    s->tokens[row] = (int32_t)from;
    s->pos[row] = (int32_t)pos;
    s->seq[row] = (int32_t)seq->slot;
    r->n_ahead = 1;
    add_logits(s, r->seq, shape);
}

// Whether the step being run is one row of every sequence, after which each has one more to go.
static bool all_decode(const struct plm_sched *s)
{
    for (uint32_t i = 0; i < s->running; i++) {
        const struct plm_running *r = &s->slots[i];
        if (r->n_batch != 1 || r->n_tokens - r->n_computed != 1)
            return false;
    }
    return s->running > 0 && !s->restricted;
}

bool plm_sched_form_ahead(struct plm_sched *s, struct plm_seq *const *seqs, uint32_t n,
                          const struct plm_sched_ahead *ahead, struct plm_batch *ret)
{
    struct plm_shape shape = {0};
    uint32_t there = 0;
    bool room = all_decode(s);
    for (uint32_t i = 0; i < n && room; i++) {
        there += seqs[i] != NULL;
        if (seqs[i] != NULL && ahead->goes_on(ahead->ctx, seqs[i]))
            room = plm_sched_room_ahead(s, seqs[i]);
    }
    if (!room || there != s->running)
        return false;
    // The table is as wide as it gets: rows can be written.
    for (uint32_t i = 0; i < n; i++) {
        if (seqs[i] != NULL && ahead->goes_on(ahead->ctx, seqs[i]))
            add_row_ahead(s, seqs[i], i, &shape);
    }
    finish_shape(s, &shape);
    fill_batch(s, &shape, 0, ret);
    return shape.rows > 0;
}

void plm_sched_drop_ahead(struct plm_sched *s)
{
    for (uint32_t i = 0; i < s->running; i++)
        s->slots[i].n_ahead = 0;
}

// A walk over many waits for memory at each. So far ahead the first line of a sequence is asked
// for, nearer what it points to, and nearer still what that leads to.
#define AHEAD_FAR  16u
#define AHEAD_NEAR 10u
#define AHEAD_NEXT 4u

static inline const struct plm_seq *due_at(const struct plm_sched *s, uint32_t i)
{
    return s->slots[s->due[i]].seq;
}

static void look_ahead(const struct plm_sched *s, uint32_t i, uint32_t n)
{
    if (i + AHEAD_FAR < n) {
        const struct plm_seq *seq = due_at(s, i + AHEAD_FAR);
        __builtin_prefetch(seq, 1);
        __builtin_prefetch((const char *)seq + 64, 1);
        __builtin_prefetch(plm_sched_ids(s, 0, s->due[i + AHEAD_FAR]) +
                           s->slots[s->due[i + AHEAD_FAR]].n_computed / PLM_KV_BLOCK_TOKENS - 1);
    }
    if (s->prefix == NULL)
        return;
    if (i + AHEAD_NEAR < n && due_at(s, i + AHEAD_NEAR)->use_cache)
        plm_sched_prefetch_far(s, due_at(s, i + AHEAD_NEAR));
    if (i + AHEAD_NEXT < n && due_at(s, i + AHEAD_NEXT)->use_cache)
        plm_sched_prefetch_near(s, due_at(s, i + AHEAD_NEXT));
}

// A chunk was computed, a block is full, or a prompt is complete.
static void settle(struct plm_sched *s, uint32_t slot)
{
    struct plm_running *r = &s->slots[slot];
    struct plm_seq *seq = r->seq;
    seq->n_computed = r->n_computed;
    if (seq->use_cache && s->prefix != NULL && r->n_computed / PLM_KV_BLOCK_TOKENS > seq->n_put)
        plm_sched_put(s, seq);
    if (seq->forks != NULL && r->n_computed >= seq->n_prompt)
        release_forks(s, seq);
    if (s->windowed)
        plm_windows_advance(s, slot);
    plm_sched_refresh(s, slot);
}

void plm_sched_commit(struct plm_sched *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->running; i++) {
        struct plm_running *r = &s->slots[i];
        r->n_computed += r->n_batch;
        // A row of one that decodes leaves it with all its tokens computed, in the same block.
        if (r->n_batch > 1 || r->n_computed >= r->due ||
            (r->n_batch == 1 && r->n_computed != r->n_tokens))
            s->due[n++] = i;
        r->n_batch = r->n_ahead;
        r->n_ahead = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        look_ahead(s, i, n);
        settle(s, s->due[i]);
    }
}

uint32_t plm_sched_rows(const struct plm_sched *s, const struct plm_seq *seq)
{
    return seq->state == PLM_SEQ_RUNNING ? s->slots[seq->slot].n_batch : 0;
}

void plm_sched_abandon(struct plm_sched *s)
{
    for (uint32_t i = 0; i < s->running; i++)
        s->slots[i].n_batch = s->slots[i].n_ahead = 0;
}

void plm_sched_push(struct plm_sched *s, struct plm_seq *seq, int32_t token)
{
    struct plm_running *r = &s->slots[seq->slot];
    // Callers walk the rows in the order of slots.
    if (seq->slot + AHEAD_FAR < s->running) {
        __builtin_prefetch(r[AHEAD_FAR].seq, 1);
        const struct plm_seq *near = r[AHEAD_NEAR].seq;
        __builtin_prefetch(near->tokens + near->n_tokens, 1);
    }
    seq->tokens[seq->n_tokens++] = token;
    seq->n_computed = r->n_computed;
    r->n_tokens = seq->n_tokens;
    r->token = token;
    if (r->n_tokens > r->room)
        plm_sched_need_block(s, seq);
}
