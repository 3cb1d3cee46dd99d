// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/sched_world.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"

// ---- a device with nothing but memory ----

struct plm_backend_device {
    struct plm_caps caps;
};

static int fake_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                     struct plm_error *err)
{
    (void)opts, (void)err;
    struct plm_backend_device *dev = calloc(1, sizeof(*dev));
    dev->caps = (struct plm_caps){.name = "fake",
                                  .granularity_bytes = 256,
                                  .max_slab_bytes = UINT64_C(1) << 40,
                                  .max_slabs = 4096,
                                  .align_bytes = 64};
    *ret = dev;
    return PLM_OK;
}

static void fake_close(struct plm_backend_device *dev)
{
    free(dev);
}

static const struct plm_caps *fake_caps(const struct plm_backend_device *dev)
{
    return &dev->caps;
}

static int fake_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                      void *import_ptr, struct plm_slab *ret)
{
    (void)dev, (void)import_ptr;
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(p, 0xEE, bytes);
    *ret = (struct plm_slab){.addr = (uint64_t)(uintptr_t)p,
                             .bytes = bytes,
                             .taken_bytes = (bytes + 255) / 256 * 256,
                             .host = p,
                             .kind = kind,
                             .impl = p};
    return PLM_OK;
}

static void fake_free(struct plm_backend_device *dev, struct plm_slab *slab)
{
    (void)dev;
    free(slab->impl);
}

static int fake_status(const struct plm_backend_device *dev)
{
    (void)dev;
    return PLM_OK;
}

static const struct plm_backend fake_backend = {.name = "fake",
                                                .open = fake_open,
                                                .close = fake_close,
                                                .caps = fake_caps,
                                                .alloc = fake_alloc,
                                                .free = fake_free,
                                                .status = fake_status};

// ---- the world ----

#define BLOCK_BYTES 64u // 16 tokens of 4 bytes
#define VOCAB       50u

uint32_t window_blocks(const struct plm_sched_opts *opts, uint32_t window, uint32_t cached)
{
    return opts->max_sequences * plm_kv_sequence_blocks(window, opts->max_context) +
           (opts->batch_max_tokens + 15) / 16 + cached;
}

uint32_t draw(struct world *w, uint32_t below)
{
    return (uint32_t)(plm_random_uniform(w->seed, 1, w->draws++, 0) * (float)below) % below;
}

static uint32_t mix(uint32_t h, uint32_t token)
{
    return (h ^ token) * 0x01000193u + 0x9E3779B9u;
}

static int32_t answer(uint32_t h)
{
    return (int32_t)((h >> 8) % VOCAB);
}

// What a group sees of tokens when position n - 1 is computed: from here on.
static uint32_t seen_from(const struct world *w, uint32_t g, uint32_t n)
{
    const uint32_t window = w->kv.windows[g];
    return window != 0 && n > window ? n - window : 0;
}

static int32_t oracle_next(const struct world *w, const int32_t *tokens, uint32_t n)
{
    uint32_t h = 7;
    for (uint32_t g = 0; g < w->kv.n_groups; g++) {
        for (uint32_t i = seen_from(w, g, n); i < n; i++)
            h = mix(h, (uint32_t)tokens[i]);
    }
    return answer(h);
}

// The main pool has `blocks`; those of further groups what the plan gives them, and a few.
static void create_pools(struct world *w, uint32_t blocks)
{
    for (uint32_t g = 0; g < w->kv.n_groups; g++) {
        struct plm_kv_pool **pool = &w->kv.pools[g];
        ck_assert_int_eq(
            plm_kv_pool_create(w->host, w->device, w->ledger, BLOCK_BYTES, g == 0, pool), PLM_OK);
        w->pool_blocks[g] =
            g == 0 ? blocks : window_blocks(&w->opts, w->kv.windows[g], (uint32_t)(w->seed % 7));
    }
    w->pool = w->kv.pools[0];
}

void world_create(struct world *w, uint64_t seed, const struct plm_sched_opts *opts,
                  uint32_t blocks, bool prefix)
{
    world_create_windows(w, seed, opts, blocks, prefix, (const uint32_t[]){0}, 1);
}

void world_create_windows(struct world *w, uint64_t seed, const struct plm_sched_opts *opts,
                          uint32_t blocks, bool prefix, const uint32_t *windows, uint32_t n_groups)
{
    memset(w, 0, sizeof(*w));
    w->seed = seed;
    w->opts = *opts;
    w->blocks = blocks;
    w->kv.n_groups = n_groups;
    memcpy(w->kv.windows, windows, n_groups * sizeof(*windows));
    w->host = plm_host_create(0);
    const struct plm_device_opts dev = {.host = w->host, .clock = plm_clock_system()};
    ck_assert_int_eq(plm_device_open_backend(&fake_backend, &dev, &w->device, NULL), PLM_OK);
    w->ledger = plm_ledger_create(w->host);
    create_pools(w, blocks);
    const uint32_t nodes = windows[0] != 0 ? opts->max_sequences * opts->max_context / 16 : 0;
    if (prefix)
        ck_assert_int_eq(plm_prefix_create(w->host, &w->kv, 3, nodes, &w->prefix), PLM_OK);
    for (uint32_t g = 0; g < n_groups; g++) {
        ck_assert_int_eq(plm_kv_pool_format(w->kv.pools[g], 8, w->pool_blocks[g]), PLM_OK);
        ck_assert_int_eq(plm_kv_pool_resize(w->kv.pools[g], w->pool_blocks[g], NULL), PLM_OK);
    }
    ck_assert_int_eq(plm_sched_create(w->host, &w->opts, &w->kv, w->prefix, &w->sched), PLM_OK);
    ck_assert_int_eq(plm_block_tables_init(&w->tables, w->host, &w->opts, n_groups), PLM_OK);
    w->seqs = calloc(SEQS_MAX, sizeof(*w->seqs));
}

void world_destroy(struct world *w)
{
    for (uint32_t i = 0; i < w->n_seqs; i++)
        free(w->seqs[i].seq.tokens);
    free(w->seqs);
    plm_sched_destroy(w->sched);
    plm_block_tables_finish(&w->tables);
    plm_prefix_destroy(w->prefix);
    for (uint32_t g = 0; g < w->kv.n_groups; g++)
        plm_kv_pool_destroy(w->kv.pools[g]);
    plm_ledger_destroy(w->ledger);
    ck_assert_uint_eq(plm_device_close(w->device), 0);
    ck_assert_int_eq(plm_host_destroy(w->host), 0);
}

void add_request(struct world *w, uint32_t request, uint32_t n_prompt, uint32_t max_output,
                 uint32_t n, uint32_t family, bool cache)
{
    struct plm_seq *parent = NULL;
    for (uint32_t c = 0; c < n; c++) {
        struct sim_seq *s = &w->seqs[w->n_seqs++];
        s->request = request;
        s->max_output = max_output;
        s->seq.tokens = calloc(n_prompt + max_output, sizeof(int32_t));
        for (uint32_t i = 0; i < n_prompt; i++)
            s->seq.tokens[i] = (int32_t)(i < n_prompt * 3 / 4 ? (family * 7 + i) % VOCAB
                                                              : (request * 31 + i) % VOCAB);
        s->seq.n_tokens = s->seq.n_prompt = n_prompt;
        s->seq.order = (uint64_t)request * 128 + c;
        s->salt = family;
        if (w->prefix != NULL) {
            const struct plm_prefix_extra salt = {PLM_PREFIX_SALT, &s->salt, sizeof(s->salt)};
            s->seq.root = plm_prefix_root(w->prefix, &salt, 1);
        }
        s->seq.use_cache = cache;
        s->seq.tenant = family;
        s->seq.parent = parent;
        plm_sched_add(w->sched, &s->seq);
        if (c == 0)
            parent = &s->seq;
    }
}

void end_seq(struct world *w, struct sim_seq *s, bool cancelled)
{
    plm_sched_remove(w->sched, &s->seq);
    s->done = true;
    s->cancelled = cancelled;
    s->ends++;
    w->n_done++;
}

static int32_t *place(uint64_t block, uint32_t pos)
{
    return (int32_t *)(uintptr_t)block + pos % PLM_KV_BLOCK_TOKENS;
}

// Whatever was resolved before, the tables then say what resolving all of it would.
void resolve(struct world *w, const struct plm_batch *b)
{
    const struct plm_block_tables *t = &w->tables;
    plm_block_tables_fill(&w->tables, &w->kv, b);
    for (uint32_t r = 0; r < b->shape.rows; r++) {
        for (uint32_t g = 0; g < w->kv.n_groups; g++) {
            const uint32_t at = (uint32_t)b->pos[r] / PLM_KV_BLOCK_TOKENS;
            const uint32_t *ids = b->ids[g] + (size_t)b->seq[r] * b->ids_stride;
            const uint64_t *row = t->tables[g] + (size_t)b->seq[r] * b->table_stride;
            ck_assert_uint_lt(at, b->blocks[b->seq[r]].n[g]);
            for (uint32_t i = seen_from(w, g, (uint32_t)b->pos[r] + 1) / 16; i <= at; i++)
                ck_assert_uint_eq(row[i], plm_kv_pool_addr(w->kv.pools[g], ids[i]));
            ck_assert_uint_eq(t->slots[g][r], row[at]);
        }
    }
}

void run(struct world *w, const struct plm_batch *b)
{
    resolve(w, b);
    ck_assert_uint_le(b->shape.rows, w->opts.batch_max_tokens);
    ck_assert_uint_le(b->shape.seqs, w->opts.max_sequences);
    ck_assert_uint_le(b->shape.ctx, w->opts.max_context);
    for (uint32_t r = 0; r < b->shape.rows; r++) {
        ck_assert_int_lt(b->seq[r], (int32_t)b->shape.seqs);
        ck_assert_int_lt(b->pos[r], (int32_t)b->shape.ctx);
        for (uint32_t g = 0; g < w->kv.n_groups; g++) {
            *place(w->tables.slots[g][r], (uint32_t)b->pos[r]) = b->tokens[r];
        }
    }
    w->rows += b->shape.rows;
    struct plm_seq *seqs[64];
    int32_t next[64];
    uint32_t n = b->shape.logits_rows;
    ck_assert_uint_le(n, 64);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = (uint32_t)b->logits_rows[i], h = 7;
        for (uint32_t g = 0; g < w->kv.n_groups; g++) {
            const uint64_t *table = w->tables.tables[g] + (size_t)b->seq[r] * b->table_stride;
            for (uint32_t p = seen_from(w, g, (uint32_t)b->pos[r] + 1); p <= (uint32_t)b->pos[r];
                 p++)
                h = mix(h, (uint32_t)*place(table[p / PLM_KV_BLOCK_TOKENS], p));
        }
        seqs[i] = b->logits_seqs[i];
        next[i] = answer(h);
        ck_assert_uint_eq((uint32_t)b->pos[r] + 1, seqs[i]->n_tokens);
        ck_assert(i == 0 || b->logits_rows[i] > b->logits_rows[i - 1]);
    }
    plm_sched_commit(w->sched);
    for (uint32_t i = 0; i < n; i++) {
        struct sim_seq *s = (struct sim_seq *)seqs[i];
        int32_t want = oracle_next(w, s->seq.tokens, s->seq.n_tokens);
        w->tokens++;
        if (next[i] != want)
            ck_abort_msg("seed %llu: request %u reads a history that is not its own",
                         (unsigned long long)w->seed, s->request);
        if (s->seq.n_tokens + 1 - s->seq.n_prompt == s->max_output)
            end_seq(w, s, false);
        else
            plm_sched_push(w->sched, &s->seq, next[i]);
    }
}

void check_blocks(const struct world *w)
{
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(w->pool, &pool);
    ck_assert_uint_eq(pool.total, w->blocks);
    for (uint32_t g = 0; g < w->kv.n_groups; g++) {
        plm_kv_pool_read(w->kv.pools[g], &pool);
        ck_assert_uint_eq(pool.used + pool.cached + pool.free, pool.total);
    }
}

static uint64_t progress_of(const struct world *w, const struct sim_seq **ret_oldest)
{
    const struct sim_seq *oldest = NULL;
    for (uint32_t i = 0; i < w->n_seqs; i++) {
        const struct sim_seq *s = &w->seqs[i];
        if (!s->done && s->seq.state == PLM_SEQ_RUNNING &&
            (oldest == NULL || s->seq.order < oldest->seq.order))
            oldest = s;
    }
    *ret_oldest = oldest;
    return oldest == NULL ? 0 : (uint64_t)oldest->seq.n_tokens * 2 + oldest->seq.n_computed;
}

uint32_t admitted_calls;

static void count_admitted(void *ctx, struct plm_seq *seq)
{
    (void)ctx;
    ck_assert_int_eq(seq->state, PLM_SEQ_RUNNING);
    admitted_calls++;
}

bool step(struct world *w)
{
    static const struct plm_sched_hook hook = {.admitted = count_admitted};
    struct plm_batch batch;
    const struct sim_seq *was_oldest;
    progress_of(w, &was_oldest);
    plm_sched_form(w->sched, 0, &hook, &batch);
    ck_assert_ptr_null(plm_sched_stuck(w->sched));
    if (was_oldest != NULL && was_oldest->seq.state != PLM_SEQ_RUNNING)
        ck_abort_msg("seed %llu: the oldest gave way", (unsigned long long)w->seed);
    if (draw(w, 8) == 0 && batch.prefill_rows > 0) // the gate wants fewer rows
        plm_sched_form(w->sched, batch.shape.rows - batch.prefill_rows / 2, &hook, &batch);
    check_blocks(w);
    if (batch.shape.rows == 0)
        return false;
    const struct sim_seq *oldest, *after;
    uint64_t before = progress_of(w, &oldest);
    run(w, &batch);
    w->steps++;
    // The oldest that runs moves in every step: it is never preempted and never without a row.
    if (!oldest->done) {
        uint64_t now = progress_of(w, &after);
        ck_assert_ptr_eq(after, oldest);
        if (now <= before)
            ck_abort_msg("seed %llu: the oldest did not move", (unsigned long long)w->seed);
    }
    check_blocks(w);
    return true;
}

// Moves what the highest slab holds to lower ones; true if it could then be given back. At least
// `least` blocks stay.
static bool give_back_slab(struct world *w, uint32_t least)
{
    struct plm_kv_move moves[3]; // a slab has 8 blocks: several rounds
    struct plm_kv_pool_stats pool;
    uint32_t n, first, blocks = 0;
    plm_kv_pool_read(w->pool, &pool);
    if (!plm_kv_pool_slab(w->pool, pool.slabs - 1, &first, &blocks) || pool.total - blocks < least)
        return false;
    while ((n = plm_kv_pool_plan_moves(w->pool, moves, 3)) > 0) {
        if (draw(w, 10) == 0) { // the copy failed: nothing has changed
            plm_kv_pool_drop_moves(w->pool, moves, n);
            return false;
        }
        for (uint32_t i = 0; i < n; i++)
            memcpy(place(plm_kv_pool_addr(w->pool, moves[i].to), 0),
                   place(plm_kv_pool_addr(w->pool, moves[i].from), 0), BLOCK_BYTES);
        plm_kv_pool_move(w->pool, moves, n);
        plm_sched_moved(w->sched, moves, n);
        for (uint32_t i = 0; i < n; i++) // who still looks there is found out
            memset(place(plm_kv_pool_addr(w->pool, moves[i].from), 0), 0xEE, BLOCK_BYTES);
        check_blocks(w);
    }
    ck_assert_int_eq(plm_kv_pool_resize(w->pool, pool.total - blocks, NULL), PLM_OK);
    plm_kv_pool_read(w->pool, &pool);
    w->blocks = pool.total;
    return true;
}

void resize_pool(struct world *w, uint32_t most, uint32_t least)
{
    if (draw(w, 2) == 0) {
        while (draw(w, 3) != 0 && give_back_slab(w, least))
            w->evacuated++;
        return;
    }
    struct plm_kv_pool_stats pool;
    ck_assert_int_eq(plm_kv_pool_resize(w->pool, most, NULL), PLM_OK);
    plm_kv_pool_read(w->pool, &pool);
    w->blocks = pool.total;
}

void check_hysteresis(const struct world *w)
{
    struct plm_sched_stats stats;
    uint32_t doublings = 0;
    while (w->blocks >> (doublings + 1) > 0)
        doublings++;
    for (uint32_t i = 0; i < w->n_seqs; i++)
        ck_assert_uint_le(w->seqs[i].seq.preemptions, doublings);
    plm_sched_read(w->sched, &stats);
    // Places are given up for requests that come, once for each.
    uint32_t parents = 0;
    for (uint32_t i = 0; i < w->n_seqs; i++)
        parents += w->seqs[i].seq.parent == NULL;
    ck_assert_uint_le(stats.yields, parents);
    if (stats.preemptions > w->n_seqs + w->tokens / PLM_KV_BLOCK_TOKENS)
        ck_abort_msg("seed %llu: %llu preemptions for %llu tokens", (unsigned long long)w->seed,
                     (unsigned long long)stats.preemptions, (unsigned long long)w->tokens);
}

// The device is gone and comes back empty.
static void lose_device(struct world *w)
{
    struct plm_sched_stats stats;
    struct plm_kv_pool_stats pool;
    plm_sched_park(w->sched);
    plm_sched_read(w->sched, &stats);
    ck_assert_uint_eq(stats.running, 0);
    for (uint32_t g = 0; g < w->kv.n_groups; g++) {
        plm_kv_pool_drop_cached(w->kv.pools[g], UINT32_MAX);
        plm_kv_pool_read(w->kv.pools[g], &pool);
        ck_assert_uint_eq(pool.free, pool.total);
        for (uint32_t b = 0; b < pool.total; b++)
            memset(place(plm_kv_pool_addr(w->kv.pools[g], b), 0), 0xEE, BLOCK_BYTES);
    }
}

// A step that is not to be used: what it wrote is written again.
static void abandon_step(struct world *w)
{
    struct plm_batch b;
    plm_sched_form(w->sched, 0, NULL, &b);
    resolve(w, &b);
    for (uint32_t r = 0; r < b.shape.rows; r++)
        for (uint32_t g = 0; g < w->kv.n_groups; g++)
            *place(w->tables.slots[g][r], (uint32_t)b.pos[r]) = 0x0BADF00D;
    plm_sched_abandon(w->sched);
}

// A few steps of some that ran before, alone.
static void restrict_steps(struct world *w)
{
    for (uint32_t i = 0; i < w->n_seqs; i++)
        w->seqs[i].seq.selected = w->seqs[i].seq.began && draw(w, 2) == 0;
    plm_sched_restrict(w->sched, true);
    for (uint32_t n = draw(w, 4); n > 0; n--) {
        struct plm_batch b;
        const struct plm_seq *seq;
        plm_sched_form(w->sched, 0, NULL, &b);
        for (uint32_t i = 0; (seq = plm_sched_running_at(w->sched, i)) != NULL; i++)
            ck_assert(seq->selected || plm_sched_rows(w->sched, seq) == 0);
        if (b.shape.rows > 0)
            run(w, &b);
        check_blocks(w);
    }
    plm_sched_restrict(w->sched, false);
}

static void forget_one(struct world *w)
{
    const struct plm_seq *seq = plm_sched_running_at(w->sched, draw(w, w->opts.max_sequences));
    if (seq != NULL)
        plm_sched_forget(w->sched, seq);
}

void disturb(struct world *w)
{
    switch (draw(w, 4)) {
    case 0: lose_device(w); break;
    case 1: abandon_step(w); break;
    case 2: restrict_steps(w); break;
    default: forget_one(w);
    }
}

void run_random(struct world *w, uint32_t requests, uint32_t blocks, uint32_t least, bool prefix,
                bool disturbed)
{
    const uint32_t ctx = w->opts.max_context;
    uint32_t request = 0, idle = 0;
    while (w->n_done < w->n_seqs || request < requests) {
        if (request < requests && draw(w, 3) == 0) {
            uint32_t n_prompt = 1 + draw(w, ctx - 1), n = draw(w, 4) == 0 ? 1 + draw(w, 4) : 1;
            add_request(w, request++, n_prompt, 1 + draw(w, ctx - n_prompt), n, draw(w, 3),
                        prefix && draw(w, 5) != 0);
        }
        if (w->n_seqs > 0 && draw(w, 25) == 0) { // cancel anything, in any state
            struct sim_seq *s = &w->seqs[draw(w, w->n_seqs)];
            if (!s->done)
                end_seq(w, s, true);
        }
        if (draw(w, 10) == 0)
            resize_pool(w, blocks, least);
        if (disturbed && draw(w, 12) == 0)
            disturb(w);
        const bool ran = step(w);
        idle = ran || request < requests ? 0 : idle + 1;
        if (idle > 1 && w->n_done < w->n_seqs)
            ck_abort_msg("seed %llu: %u of %u sequences wait for ever", (unsigned long long)w->seed,
                         w->n_seqs - w->n_done, w->n_seqs);
        ck_assert_uint_lt(w->steps, 200000);
    }
    for (uint32_t i = 0; i < w->n_seqs; i++)
        ck_assert_uint_eq(w->seqs[i].ends, 1);
}
