// SPDX-License-Identifier: Apache-2.0
// The scheduler in random worlds. The "model" is a device that keeps, in every place of every
// block, the token that was written there, and answers with a hash of the history that it reads
// back through the block tables. So a wrong table, a block shared too early or a token computed
// twice at another place changes the text, which is compared with an oracle that has no scheduler.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "core/sched/sched.h"
#include "tests/support/suite.h"

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
#define SEQS_MAX    200u
#define VOCAB       50u

struct sim_seq {
    struct plm_seq seq; // first
    uint32_t request;
    uint32_t max_output;
    uint32_t salt;
    bool done, cancelled;
    uint32_t ends;
};

struct world {
    uint64_t seed;
    uint64_t draws;
    struct plm_host *host;
    struct plm_device *device;
    struct plm_ledger *ledger;
    struct plm_kv_pool *pool;
    struct plm_prefix *prefix;
    struct plm_sched *sched;
    struct plm_sched_opts opts;
    uint32_t blocks;
    struct sim_seq *seqs;
    uint32_t n_seqs, n_done;
    uint64_t steps, rows, tokens, evacuated;
};

static uint32_t draw(struct world *w, uint32_t below)
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

static int32_t oracle_next(const int32_t *tokens, uint32_t n)
{
    uint32_t h = 7;
    for (uint32_t i = 0; i < n; i++)
        h = mix(h, (uint32_t)tokens[i]);
    return answer(h);
}

static void world_create(struct world *w, uint64_t seed, const struct plm_sched_opts *opts,
                         uint32_t blocks, bool prefix)
{
    memset(w, 0, sizeof(*w));
    w->seed = seed;
    w->opts = *opts;
    w->blocks = blocks;
    w->host = plm_host_create(0);
    const struct plm_device_opts dev = {.host = w->host, .clock = plm_clock_system()};
    ck_assert_int_eq(plm_device_open_backend(&fake_backend, &dev, &w->device, NULL), PLM_OK);
    w->ledger = plm_ledger_create(w->host);
    ck_assert_int_eq(plm_kv_pool_create(w->host, w->device, w->ledger, BLOCK_BYTES, &w->pool),
                     PLM_OK);
    if (prefix)
        ck_assert_int_eq(plm_prefix_create(w->host, w->pool, 3, &w->prefix), PLM_OK);
    ck_assert_int_eq(plm_kv_pool_format(w->pool, 8, blocks), PLM_OK);
    ck_assert_int_eq(plm_kv_pool_resize(w->pool, blocks, NULL), PLM_OK);
    ck_assert_int_eq(plm_sched_create(w->host, &w->opts, w->pool, w->prefix, &w->sched), PLM_OK);
    w->seqs = calloc(SEQS_MAX, sizeof(*w->seqs));
}

static void world_destroy(struct world *w)
{
    for (uint32_t i = 0; i < w->n_seqs; i++)
        free(w->seqs[i].seq.tokens);
    free(w->seqs);
    plm_sched_destroy(w->sched);
    plm_prefix_destroy(w->prefix);
    plm_kv_pool_destroy(w->pool);
    plm_ledger_destroy(w->ledger);
    ck_assert_uint_eq(plm_device_close(w->device), 0);
    ck_assert_int_eq(plm_host_destroy(w->host), 0);
}

// A request of n choices whose prompt begins like many others.
static void add_request(struct world *w, uint32_t request, uint32_t n_prompt, uint32_t max_output,
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

static void end_seq(struct world *w, struct sim_seq *s, bool cancelled)
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

// Runs the batch: all writes, then for each logits row a read of the whole history.
static void run(struct world *w, const struct plm_batch *b)
{
    ck_assert_uint_le(b->shape.rows, w->opts.batch_max_tokens);
    ck_assert_uint_le(b->shape.seqs, w->opts.max_sequences);
    ck_assert_uint_le(b->shape.ctx, w->opts.max_context);
    for (uint32_t r = 0; r < b->shape.rows; r++) {
        ck_assert_int_lt(b->seq[r], (int32_t)b->shape.seqs);
        ck_assert_int_lt(b->pos[r], (int32_t)b->shape.ctx);
        const uint64_t *table = b->tables + (size_t)b->seq[r] * b->table_stride;
        ck_assert_uint_eq(b->slots[r], table[b->pos[r] / PLM_KV_BLOCK_TOKENS]);
        *place(b->slots[r], (uint32_t)b->pos[r]) = b->tokens[r];
    }
    plm_sched_commit(w->sched);
    w->rows += b->shape.rows;
    struct plm_seq *seqs[64];
    int32_t next[64];
    uint32_t n = b->shape.logits_rows;
    ck_assert_uint_le(n, 64);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = (uint32_t)b->logits_rows[i], h = 7;
        const uint64_t *table = b->tables + (size_t)b->seq[r] * b->table_stride;
        for (uint32_t p = 0; p <= (uint32_t)b->pos[r]; p++)
            h = mix(h, (uint32_t)*place(table[p / PLM_KV_BLOCK_TOKENS], p));
        seqs[i] = b->logits_seqs[i];
        next[i] = answer(h);
        ck_assert_uint_eq((uint32_t)b->pos[r] + 1, seqs[i]->n_tokens);
        ck_assert(i == 0 || b->logits_rows[i] > b->logits_rows[i - 1]);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct sim_seq *s = (struct sim_seq *)seqs[i];
        int32_t want = oracle_next(s->seq.tokens, s->seq.n_tokens);
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

static void check_blocks(const struct world *w)
{
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(w->pool, &pool);
    ck_assert_uint_eq(pool.total, w->blocks);
    ck_assert_uint_eq(pool.used + pool.cached + pool.free, pool.total);
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

static uint32_t admitted_calls;

static void count_admitted(void *ctx, struct plm_seq *seq)
{
    (void)ctx;
    ck_assert_int_eq(seq->state, PLM_SEQ_RUNNING);
    admitted_calls++;
}

// One step; false when there was nothing to run.
static bool step(struct world *w)
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

static void resize_pool(struct world *w, uint32_t most, uint32_t least)
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

// Whoever was preempted comes back only when it can stay: a sequence is preempted once per doubling
// of the pool at most, and beyond the first time of each not more than once per block of tokens
// that came out.
static void check_hysteresis(const struct world *w)
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
    plm_kv_pool_drop_cached(w->pool, UINT32_MAX);
    plm_kv_pool_read(w->pool, &pool);
    ck_assert_uint_eq(pool.free, pool.total);
    for (uint32_t b = 0; b < pool.total; b++)
        memset(place(plm_kv_pool_addr(w->pool, b), 0), 0xEE, BLOCK_BYTES);
}

// A step that is not to be used: what it wrote is written again.
static void abandon_step(struct world *w)
{
    struct plm_batch b;
    plm_sched_form(w->sched, 0, NULL, &b);
    for (uint32_t r = 0; r < b.shape.rows; r++)
        *place(b.slots[r], (uint32_t)b.pos[r]) = 0x0BADF00D;
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

static void disturb(struct world *w)
{
    switch (draw(w, 4)) {
    case 0: lose_device(w); break;
    case 1: abandon_step(w); break;
    case 2: restrict_steps(w); break;
    default: forget_one(w);
    }
}

START_TEST(random_worlds)
{
    struct world w;
    const uint64_t seed = 1000 + (uint64_t)_i;
    w.seed = seed;
    w.draws = 0;
    const uint32_t ctx = 16 * (2 + draw(&w, 10)), seqs = 1 + draw(&w, 10);
    const struct plm_sched_opts opts = {.max_sequences = seqs,
                                        .batch_max_tokens = seqs + draw(&w, 60),
                                        .prefill_chunk = 1 + draw(&w, 40),
                                        .max_context = ctx};
    const uint32_t blocks = ctx / 16 + draw(&w, 2 * ctx / 16 * seqs);
    const bool prefix = draw(&w, 4) != 0, disturbed = _i % 2 == 0;
    uint64_t draws = w.draws;
    world_create(&w, seed, &opts, blocks, prefix);
    w.draws = draws;
    admitted_calls = 0;
    uint32_t request = 0, idle = 0;
    const uint32_t requests = 10 + draw(&w, 40);
    while (w.n_done < w.n_seqs || request < requests) {
        if (request < requests && draw(&w, 3) == 0) {
            uint32_t n_prompt = 1 + draw(&w, ctx - 1), n = draw(&w, 4) == 0 ? 1 + draw(&w, 4) : 1;
            add_request(&w, request++, n_prompt, 1 + draw(&w, ctx - n_prompt), n, draw(&w, 3),
                        prefix && draw(&w, 5) != 0);
        }
        if (w.n_seqs > 0 && draw(&w, 25) == 0) { // cancel anything, in any state
            struct sim_seq *s = &w.seqs[draw(&w, w.n_seqs)];
            if (!s->done)
                end_seq(&w, s, true);
        }
        if (draw(&w, 10) == 0)
            resize_pool(&w, blocks, ctx / 16);
        if (disturbed && draw(&w, 12) == 0)
            disturb(&w);
        bool ran = step(&w);
        idle = ran || request < requests ? 0 : idle + 1;
        if (idle > 1 && w.n_done < w.n_seqs)
            ck_abort_msg("seed %llu: %u of %u sequences wait for ever", (unsigned long long)seed,
                         w.n_seqs - w.n_done, w.n_seqs);
        ck_assert_uint_lt(w.steps, 200000);
    }
    struct plm_kv_pool_stats pool;
    struct plm_sched_stats stats;
    plm_kv_pool_read(w.pool, &pool);
    plm_sched_read(w.sched, &stats);
    ck_assert_uint_eq(pool.used, 0);
    ck_assert_uint_eq(stats.running + stats.queued + stats.paused + stats.forks, 0);
    ck_assert_uint_le(admitted_calls, w.n_seqs);
    for (uint32_t i = 0; i < w.n_seqs; i++)
        ck_assert_uint_eq(w.seqs[i].ends, 1);
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

// Long prompts in small chunks beside others that decode, in a pool that holds one and a half of
// them: what is computed again is lost work, and others grow meanwhile.
START_TEST(long_prompts_do_not_thrash)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 8, .batch_max_tokens = 16, .prefill_chunk = 8, .max_context = 512};
    world_create(&w, 77 + (uint64_t)_i, &opts, 32 + 4 * (uint32_t)_i, false);
    uint64_t needed = 0;
    for (uint32_t i = 0; i < 12; i++) {
        add_request(&w, i, 150 + 20 * i, 60, 1, i, false);
        needed += 150 + 20 * i + 60;
    }
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    check_hysteresis(&w);
    ck_assert_uint_le(w.rows, 2 * needed);
    world_destroy(&w);
}
END_TEST

// When a sequence came back, and beside how many.
struct comeback {
    bool running;
    uint32_t preemptions, beside;
    uint64_t tokens; // that had come out
};

// Whoever comes back after k preemptions finds 2^k blocks for itself and each that runs. The first
// block of each may be wanted at once, every other one takes 16 tokens; those that enter later are
// thrown out before it.
static void check_comebacks(const struct world *w, struct comeback *was, uint64_t tokens)
{
    for (uint32_t i = 0; i < w->n_seqs; i++) {
        const struct plm_seq *seq = &w->seqs[i].seq;
        const bool running = seq->state == PLM_SEQ_RUNNING;
        const uint32_t k = was[i].preemptions;
        if (seq->preemptions > k && k > 0 &&
            tokens - was[i].tokens < (uint64_t)16 * (was[i].beside + 1) * ((1u << k) - 1))
            ck_abort_msg("preempted for the %uth time %llu tokens after it came back beside %u",
                         seq->preemptions, (unsigned long long)(tokens - was[i].tokens),
                         was[i].beside);
        if (running && (!was[i].running || seq->preemptions > k)) {
            was[i].beside = 0;
            for (uint32_t j = 0; j < i; j++)
                was[i].beside += w->seqs[j].seq.state == PLM_SEQ_RUNNING;
            was[i].tokens = tokens;
        }
        was[i].running = running;
        was[i].preemptions = seq->preemptions;
    }
}

// Many that end one by one: each end leaves room for the youngest to come back, and to be thrown
// out again by those that grow.
START_TEST(who_comes_back_stays)
{
    struct world w;
    struct comeback was[48] = {{0}};
    const struct plm_sched_opts opts = {
        .max_sequences = 32, .batch_max_tokens = 64, .prefill_chunk = 32, .max_context = 512};
    world_create(&w, 900 + (uint64_t)_i, &opts, 64, false);
    for (uint32_t i = 0; i < 48; i++)
        add_request(&w, i, 1 + draw(&w, 30), 30 + draw(&w, 300), 1, i, false);
    while (w.n_done < w.n_seqs) {
        const uint64_t tokens = w.tokens;
        ck_assert(step(&w));
        check_comebacks(&w, was, tokens);
    }
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

// ---- shares ----

static const struct plm_sched_opts eight = {
    .max_sequences = 8, .batch_max_tokens = 64, .prefill_chunk = 64, .max_context = 512};

static uint64_t yields_of(const struct world *w)
{
    struct plm_sched_stats stats;
    plm_sched_read(w->sched, &stats);
    return stats.yields;
}

// Steps until the request that was added last is over.
static uint32_t steps_to_end(struct world *w)
{
    const struct sim_seq *last = &w->seqs[w->n_seqs - 1];
    uint32_t n = 0;
    for (; !last->done; n++)
        ck_assert(step(w));
    return n;
}

// All sequences are choices of one request, with or without others of it that wait; and of one
// tenant, whose requests are many.
START_TEST(nobody_waits_for_all_choices_of_another)
{
    struct world w;
    world_create(&w, 11, &eight, 8 * 32, _i % 2 == 0);
    if (_i < 4)
        add_request(&w, 0, 40, 200, _i < 2 ? 8 : 20, 0, true);
    for (uint32_t i = 0; _i >= 4 && i < 20; i++)
        add_request(&w, i, 40, 200, 1, 0, true);
    for (uint32_t i = 0; i < 20; i++)
        ck_assert(step(&w));
    const struct sim_seq *first = &w.seqs[0];
    add_request(&w, 30, 20, 2, 1, 1, true);
    ck_assert_uint_le(steps_to_end(&w), 3); // its prompt, and its two tokens
    ck_assert_uint_eq(yields_of(&w), 1);
    if (_i < 4) { // the same for a request of the same tenant
        add_request(&w, 31, 20, 2, 1, 0, true);
        ck_assert_uint_le(steps_to_end(&w), 4);
    }
    ck_assert_uint_le(yields_of(&w), 2);
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    ck_assert_uint_eq(first->seq.yields, 0);
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

// Blocks are shared, too: the pool is full of one request's choices.
START_TEST(a_small_request_gets_blocks_of_a_large_one)
{
    struct world w;
    world_create(&w, 12, &eight, 40, false);
    add_request(&w, 0, 33, 100, 7, 0, false); // 2 blocks, and 7 times as many as fit
    while (w.n_seqs > 0 && w.seqs[0].seq.n_tokens < 95)
        ck_assert(step(&w));
    add_request(&w, 1, 10, 2, 1, 0, false);
    ck_assert_uint_le(steps_to_end(&w), 4);
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

// A short request comes in every second step and for ever, each of a tenant of its own or all of
// one, beside a request of 8 long choices: they all end, about as soon as their share says, and
// what is computed again for them is little.
START_TEST(a_stream_of_others_starves_nobody)
{
    struct world w;
    world_create(&w, 13, &eight, 8 * 32, false);
    add_request(&w, 0, 100, 60, 8, 0, false);
    uint32_t ended = 0, request = 1, steps = 0;
    uint64_t needed = 100 + 8 * 60, sixteen = 0;
    while (ended < 8) {
        if (steps % 2 == 0 && w.n_seqs < SEQS_MAX) {
            const uint32_t tenant = _i == 0 ? 0 : _i == 1 ? 1 : request;
            add_request(&w, request++, 10, 12, 1, tenant, false);
            needed += 22;
        }
        ck_assert(step(&w));
        steps++;
        ended = 0;
        for (uint32_t i = 0; i < 8; i++)
            ended += w.seqs[i].done;
        sixteen += w.seqs[0].seq.yields;
    }
    ck_assert_uint_eq(sixteen, 0); // the oldest never gave way
    ck_assert_uint_le(steps, 8 * 60 + 200);
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    ck_assert_uint_le(w.rows, 2 * needed);
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

// Two requests of many choices share the places evenly, whoever came first.
START_TEST(two_of_many_choices_share)
{
    struct world w;
    world_create(&w, 14, &eight, 8 * 32, false);
    add_request(&w, 0, 16, 60, 30, 0, false);
    for (uint32_t i = 0; i < 10; i++)
        ck_assert(step(&w));
    add_request(&w, 1, 16, 60, 30, _i, false);
    uint32_t n[2] = {0}, done[2] = {0};
    while (done[0] < 30 && done[1] < 30) {
        ck_assert(step(&w));
        memset(n, 0, sizeof(n));
        memset(done, 0, sizeof(done));
        for (uint32_t i = 0; i < w.n_seqs; i++) {
            n[i / 30] += w.seqs[i].seq.state == PLM_SEQ_RUNNING;
            done[i / 30] += w.seqs[i].done;
        }
        if (n[0] + n[1] == 8 && done[0] > 10 && done[0] < 25 && done[1] < 20)
            ck_assert_msg(n[0] >= 3 && n[1] >= 3, "%u and %u run", n[0], n[1]);
    }
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    check_hysteresis(&w);
    world_destroy(&w);
}
END_TEST

START_TEST(a_small_pool_preempts_the_youngest_and_all_finish)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 4, .batch_max_tokens = 64, .prefill_chunk = 64, .max_context = 128};
    world_create(&w, 5, &opts, 10, false);
    for (uint32_t i = 0; i < 4; i++)
        add_request(&w, i, 16, 100, 1, i, false);
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    ck_assert_uint_eq(w.seqs[0].seq.preemptions, 0);
    ck_assert_uint_gt(w.seqs[3].seq.preemptions, 0);
    struct plm_sched_stats stats;
    plm_sched_read(w.sched, &stats);
    ck_assert_uint_gt(stats.preemptions, 0);
    // Hysteresis: whoever comes back stays for a while.
    ck_assert_uint_le(stats.preemptions, 12);
    world_destroy(&w);
}
END_TEST

START_TEST(choices_share_the_prompt)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 8, .batch_max_tokens = 256, .prefill_chunk = 256, .max_context = 256};
    world_create(&w, 5, &opts, 128, false);
    add_request(&w, 0, 161, 4, 8, 0, false);
    ck_assert(step(&w)); // the parent's prompt
    ck_assert_uint_eq(w.rows, 161);
    ck_assert(step(&w)); // its next token, and the last token of the prompt for seven others
    ck_assert_uint_eq(w.rows, 161 + 1 + 7);
    struct plm_kv_pool_stats pool;
    plm_kv_pool_read(w.pool, &pool);
    ck_assert_uint_eq(pool.used, 10 + 8);
    while (w.n_done < w.n_seqs)
        ck_assert(step(&w));
    world_destroy(&w);
}
END_TEST

START_TEST(a_prefix_hit_skips_rows)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 2, .batch_max_tokens = 256, .prefill_chunk = 256, .max_context = 256};
    world_create(&w, 5, &opts, 64, true);
    add_request(&w, 0, 160, 2, 1, 0, true);
    while (w.n_done < 1)
        ck_assert(step(&w));
    uint64_t rows = w.rows;
    add_request(&w, 0, 160, 2, 1, 0, true);
    while (w.n_done < 2)
        ck_assert(step(&w));
    ck_assert_uint_eq(w.seqs[1].seq.n_cached, 144); // never the block of the last token
    ck_assert_uint_eq(w.rows - rows, 16 + 1);
    rows = w.rows;
    add_request(&w, 0, 160, 2, 1, 1, true); // another salt
    while (w.n_done < 3)
        ck_assert(step(&w));
    ck_assert_uint_eq(w.rows - rows, 160 + 1);
    rows = w.rows;
    add_request(&w, 0, 160, 2, 1, 0, false); // does not want the cache
    while (w.n_done < 4)
        ck_assert(step(&w));
    ck_assert_uint_eq(w.rows - rows, 160 + 1);
    world_destroy(&w);
}
END_TEST

START_TEST(a_request_larger_than_the_pool_is_told)
{
    struct world w;
    struct plm_batch batch;
    const struct plm_sched_opts opts = {
        .max_sequences = 2, .batch_max_tokens = 64, .prefill_chunk = 64, .max_context = 256};
    world_create(&w, 5, &opts, 4, false);
    add_request(&w, 0, 100, 2, 1, 0, false);
    plm_sched_form(w.sched, 0, NULL, &batch);
    ck_assert_ptr_eq(plm_sched_stuck(w.sched), &w.seqs[0].seq);
    end_seq(&w, &w.seqs[0], true);
    add_request(&w, 1, 60, 40, 1, 0, false); // fits at first
    for (;;) {
        plm_sched_form(w.sched, 0, NULL, &batch);
        if (plm_sched_stuck(w.sched) != NULL)
            break;
        run(&w, &batch);
    }
    ck_assert_uint_eq(w.seqs[1].seq.n_tokens, 65);
    end_seq(&w, &w.seqs[1], true);
    world_destroy(&w);
}
END_TEST

START_TEST(creation_survives_every_failed_allocation)
{
    struct world w;
    const struct plm_sched_opts opts = {
        .max_sequences = 2, .batch_max_tokens = 64, .prefill_chunk = 64, .max_context = 256};
    world_create(&w, 5, &opts, 4, false);
    for (uint64_t n = 1;; n++) {
        struct plm_sched *s = NULL;
        plm_host_fail_nth(w.host, n, 0);
        int r = plm_sched_create(w.host, &opts, w.pool, NULL, &s);
        plm_host_fail_nth(w.host, 0, 0);
        if (r == PLM_OK) {
            plm_sched_destroy(s);
            ck_assert_uint_gt(n, 5);
            break;
        }
        ck_assert_int_eq(r, PLM_ERR_NOMEM_HOST);
        ck_assert_ptr_null(s);
    }
    world_destroy(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched");
    TCase *tc = tcase_create("sched");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, random_worlds, 0, 200);
    tcase_add_test(tc, a_small_pool_preempts_the_youngest_and_all_finish);
    tcase_add_loop_test(tc, long_prompts_do_not_thrash, 0, 8);
    tcase_add_loop_test(tc, who_comes_back_stays, 0, 16);
    tcase_add_loop_test(tc, nobody_waits_for_all_choices_of_another, 0, 6);
    tcase_add_test(tc, a_small_request_gets_blocks_of_a_large_one);
    tcase_add_loop_test(tc, a_stream_of_others_starves_nobody, 0, 3);
    tcase_add_loop_test(tc, two_of_many_choices_share, 0, 2);
    tcase_add_test(tc, choices_share_the_prompt);
    tcase_add_test(tc, a_prefix_hit_skips_rows);
    tcase_add_test(tc, a_request_larger_than_the_pool_is_told);
    tcase_add_test(tc, creation_survives_every_failed_allocation);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
