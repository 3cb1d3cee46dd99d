// SPDX-License-Identifier: Apache-2.0
// Whether what we hold lies on the device. A driver that lets others take memory may push ours out,
// or give slow memory in place of the device's, and nothing says so but time. So a validation looks
// how long a piece of each slab takes to read beside the others, and every step is held against
// what such steps took when the plan was proved.
#include "core/base/checked.h"
#include "core/engine/impl.h"

bool plm_core_may_lose_memory(const struct plm_caps *caps)
{
    return caps->commit == PLM_COMMIT_SOFT && !caps->unified;
}

// ---- slabs ----

// A driver moves whole allocations, so a piece tells of its slab. 64 MiB take 20 us at 3 TB/s, as
// long as a submit, and 1.3 ms over a bus of 50 GB/s; below 8 MiB the submit is all that is timed.
#define PIECE_MOST  (INT64_C(64) << 20)
#define PIECE_LEAST (INT64_C(8) << 20)
// The device's own memory differs by less than twice (caches, clocks that rise); the host's behind
// a bus is 8 to 60 times as slow (an H100: 3,100 and 50 GB/s).
#define SLOW_READ 4
// Times are counted by quarters of a power of two, from 4 ns to days: a median without a list.
#define TIMES   256
#define TIME_NS (INT64_C(1) << 50)

static uint32_t time_index(int64_t ns)
{
    const uint64_t n = (uint64_t)plm_clamp_i64(ns, 4, TIME_NS);
    const uint32_t log2 = 63 - (uint32_t)__builtin_clzll(n);
    return log2 * 4 + (uint32_t)(n >> (log2 - 2) & 3);
}

// The first time beyond those of an index.
static int64_t time_bound(uint32_t index)
{
    return (int64_t)(5 + index % 4) << (index / 4 - 2);
}

// Slabs of the KV cache, of the weights, of the ballast. False beyond the last one.
static bool find_slab(const struct plm_core *core, uint32_t i, uint64_t *ret_addr,
                      int64_t *ret_bytes)
{
    const struct plm_arena *arenas[] = {core->weights, core->ballast};
    struct plm_kv_pool_stats pool;
    uint32_t first, blocks;
    plm_kv_pool_read(core->pool, &pool);
    if (plm_kv_pool_slab(core->pool, i, &first, &blocks)) {
        *ret_addr = plm_kv_pool_addr(core->pool, first);
        *ret_bytes = (int64_t)(blocks * pool.block_bytes);
        return true;
    }
    i -= pool.slabs;
    for (size_t a = 0; a < sizeof(arenas) / sizeof(arenas[0]); a++) {
        struct plm_arena_stats stats;
        uint64_t bytes;
        if (arenas[a] == NULL)
            continue;
        if (plm_arena_slab(arenas[a], i, ret_addr, &bytes)) {
            *ret_bytes = (int64_t)bytes;
            return true;
        }
        plm_arena_read(arenas[a], &stats);
        i -= (uint32_t)stats.slabs;
    }
    return false;
}

static int read_slab(struct plm_core *core, uint64_t addr, int64_t bytes, int64_t *ret_ns)
{
    const struct plm_copy_args copy = {
        .src = addr, .dst = core->workspace_addr, .n_words = (uint64_t)bytes / 4};
    const int64_t start = plm_now(core->clock);
    const int r = plm_device_run(core->device, plm_launch_copy(core->device, &copy));
    *ret_ns = plm_now(core->clock) - start;
    return r;
}

int plm_core_slow_bytes(void *ctx, int64_t *ret_bytes)
{
    struct plm_core *core = ctx;
    struct plm_kv_pool_stats pool;
    uint32_t counts[TIMES] = {0}, n = 0, median = time_index(0);
    uint64_t addr;
    int64_t bytes, ns, slow = 0;
    int r = PLM_OK;
    plm_kv_pool_read(core->pool, &pool);
    int64_t piece = (int64_t)(pool.slab_blocks * pool.block_bytes);
    piece = plm_min_i64(plm_min_i64(piece, core->workspace_bytes), PIECE_MOST);
    *ret_bytes = 0;
    if (piece < PIECE_LEAST)
        return PLM_OK;
    for (uint32_t i = 0; r == PLM_OK && find_slab(core, i, &addr, &bytes); i++) {
        r = read_slab(core, addr, plm_min_i64(bytes, piece), &ns);
        counts[time_index(ns)]++;
        n++;
    }
    for (uint32_t seen = counts[median]; seen * 2 < n; seen += counts[median])
        median++;
    // A time that is believed is seen twice: a clock that has not risen yet is so only once. A
    // shorter slab than a piece takes less time, so that it is not slow for that.
    const int64_t most = SLOW_READ * time_bound(median);
    for (uint32_t i = 0; r == PLM_OK && find_slab(core, i, &addr, &bytes); i++) {
        r = read_slab(core, addr, plm_min_i64(bytes, piece), &ns);
        if (r == PLM_OK && ns > most)
            r = read_slab(core, addr, plm_min_i64(bytes, piece), &ns);
        slow += ns > most ? bytes : 0;
    }
    *ret_bytes = r == PLM_OK ? slow : 0;
    return r;
}

// ---- the step-time baseline ----

#define NEAR_CONTEXT 64 // tokens: next to nothing to attend to
// Rows x context of the longer ones: 32 GiB of KV for a model of 8 B parameters, 10 ms on an H100;
// but a few times the shorter context. Beyond it time grows as it did up to there, since attention
// is linear in it; so far that noise in both times does not grow to what is looked for.
#define FAR_WORK  (INT64_C(1) << 18)
#define FAR_TIMES 8

static uint64_t attended(const struct plm_shape *s)
{
    const uint64_t n = s->rows / s->seqs; // of each sequence; the last one ends its context
    return s->seqs * (n * s->ctx - n * (n - 1) / 2);
}

// One step of this width at this context: the faster of two.
static bool time_step(struct plm_core *core, uint32_t rows, uint32_t ctx, int64_t *ret_ns,
                      uint64_t *ret_attended)
{
    const uint32_t seqs = rows < core->worst.seqs ? rows : core->worst.seqs;
    const struct plm_stress_step step = {
        .flags = PLM_STRESS_EVEN,
        .shape = {.rows = rows, .seqs = seqs, .logits_rows = seqs, .ctx = ctx}};
    struct plm_forward_out out;
    *ret_ns = INT64_MAX;
    *ret_attended = attended(&step.shape);
    for (int i = 0; i < 2; i++) {
        if (plm_core_dummy_step(core, &step, 0, NULL, &out, NULL) != PLM_OK)
            return false;
        *ret_ns = plm_min_i64(*ret_ns, core->forward_ns);
    }
    return true;
}

// What can not be timed is not watched; what it means for the start, others say.
void plm_core_take_baseline(struct plm_core *core)
{
    const struct plm_shape *worst = &core->worst;
    struct plm_baseline *baseline = &core->baseline;
    baseline->n = 0;
    for (uint32_t rows = 1; baseline->n < PLM_BASELINE_WIDTHS; rows *= 4) {
        struct plm_baseline_width *w = &baseline->widths[baseline->n];
        w->rows = rows < worst->rows ? rows : worst->rows;
        const uint32_t seqs = w->rows < worst->seqs ? w->rows : worst->seqs;
        const uint32_t least = (uint32_t)plm_div_ceil(w->rows, seqs);
        if (least > worst->ctx)
            return;
        const uint32_t near = (uint32_t)plm_clamp_i64(NEAR_CONTEXT, least, worst->ctx);
        const int64_t wish = plm_max_i64(FAR_WORK / w->rows, FAR_TIMES * (int64_t)near);
        const uint32_t far = (uint32_t)plm_min_i64(wish, worst->ctx);
        if (!time_step(core, w->rows, near, &w->near_ns, &w->near_attended) ||
            !time_step(core, w->rows, far, &w->far_ns, &w->far_attended))
            return;
        baseline->n++;
        if (w->rows == worst->rows)
            return;
    }
}

// 0: nothing so wide or so long was timed, or nothing takes time here.
static int64_t usual_ns(const struct plm_baseline *baseline, uint32_t rows, uint64_t attends)
{
    uint32_t i = 0;
    while (i < baseline->n && baseline->widths[i].rows < rows)
        i++;
    if (i == baseline->n)
        return 0;
    const struct plm_baseline_width *w = &baseline->widths[i];
    if (attends > FAR_TIMES * w->far_attended)
        return 0;
    if (attends <= w->near_attended || w->far_attended == w->near_attended ||
        w->far_ns <= w->near_ns)
        return w->near_ns;
    return w->near_ns +
           (int64_t)((double)(w->far_ns - w->near_ns) * (double)(attends - w->near_attended) /
                     (double)(w->far_attended - w->near_attended));
}

// ---- while serving ----

// A step may take four times the usual: a card that another process computes on is shared by
// halves, and clocks fall by less; a tenth of the memory behind a bus makes it seven times. And 2
// ms for the host's own pauses, which short steps feel.
#define SLOW_STEP     4
#define SLOW_SLACK_NS INT64_C(2000000)
// So many in a row are no frame of a desktop and no page of the host; and it is over after more of
// them, since a driver brings memory back piece by piece.
#define SLOW_STEPS 8
#define CALM_STEPS 32

static void begin(struct plim_engine *engine, uint32_t rows, int64_t ns, int64_t usual)
{
    struct plm_slow *s = &engine->slow;
    s->on = true;
    s->since_ns = plm_now(engine->core->clock);
    engine->counts.slow = true;
    engine->counts.slowdowns++;
    plm_logf(
        &engine->core->log, PLM_LOG_WARN,
        "%u steps in a row took far longer than when the plan was proved, the last one of %u "
        "rows %.1f ms in place of %.1f: memory of this process may have been pushed out of the "
        "device%s",
        SLOW_STEPS, rows, (double)ns / 1e6, (double)usual / 1e6,
        engine->line.yields ? "; what the KV cache does not use is given back" : "");
    plm_monitor_hurry(engine); // the driver may say more
}

static void end(struct plim_engine *engine)
{
    struct plm_slow *s = &engine->slow;
    s->on = s->gives = false;
    engine->counts.slow = false;
    plm_logf(&engine->core->log, PLM_LOG_INFO, "steps take what they took, after %.1f s",
             plm_seconds(s->since_ns, plm_now(engine->core->clock)));
}

void plm_residency_step(struct plim_engine *engine, uint32_t rows, uint64_t attended)
{
    const struct plm_core *core = engine->core;
    struct plm_slow *s = &engine->slow;
    const int64_t ns = core->forward_ns;
    const int64_t usual = usual_ns(&core->baseline, rows, attended);
    if (usual == 0)
        return;
    const bool over = ns > SLOW_STEP * usual + SLOW_SLACK_NS;
    s->over = over ? s->over + 1 : 0;
    s->calm = over ? 0 : s->calm + 1;
    engine->counts.slow_steps += over;
    if (s->over == SLOW_STEPS) {
        if (!s->on)
            begin(engine, rows, ns, usual);
        // Without readings nothing would bring back what was given.
        s->gives = core->opts.monitor_ms > 0;
        s->over = 0;
    } else if (s->on && s->calm == CALM_STEPS) {
        end(engine);
    }
}
