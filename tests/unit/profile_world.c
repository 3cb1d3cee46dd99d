// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/profile_world.h"

#include <check.h>
#include <string.h>

#include "core/base/checked.h"

const struct plm_cost_table world_table = {
    .n_buffers = 3,
    .buffers = {{.name = "rows", .per_row = 64 << 10},
                {.name = "logits", .per_logits_row = 512 << 10, .per_seq = 4096},
                {.name = "tables", .per_seq_block = 8 << 10}},
};

int64_t world_up(int64_t value, int64_t g)
{
    return (value + g - 1) / g * g;
}

int64_t world_held(const struct world *w)
{
    return w->weights + w->ws + w->kv + w->ballast + w->captured;
}

int64_t world_used(const struct world *w)
{
    return world_held(w) + w->context + w->lazy_taken + w->kept + w->foreign;
}

static bool give(struct world *w, int64_t bytes)
{
    if (world_used(w) + bytes > w->total)
        return false;
    if (world_used(w) + bytes > w->peak_used)
        w->peak_used = world_used(w) + bytes;
    return true;
}

static int called(struct world *w, enum call call)
{
    w->calls[call]++;
    if (w->fail_call_kind == (int)call && w->calls[call] == w->fail_nth)
        return w->fail_status;
    return PLM_OK;
}

static int64_t slow_bytes(const struct world *w)
{
    return w->slow_above > 0 ? plm_max_i64(0, world_held(w) - w->slow_above) : 0;
}

int world_read(void *ctx, struct plm_stress_reading *ret)
{
    struct world *w = ctx;
    int r = called(w, CALL_READ);
    int64_t noise = w->noise * (w->reads++ % 2);
    *ret = (struct plm_stress_reading){
        .T = w->total,
        .F = plm_max_i64(0, w->total - world_used(w) + slow_bytes(w) - noise),
        .O = world_held(w),
        .K = w->kv,
        .ballast = w->ballast,
        .process_use = w->process_use ? world_held(w) - slow_bytes(w) + w->context + w->lazy_taken
                                      : PLM_PLAN_UNKNOWN};
    return r;
}

static int on_run(void *ctx, const struct plm_stress_step *step, struct plm_error *err)
{
    struct world *w = ctx;
    int r = called(w, CALL_RUN);
    if (r != PLM_OK)
        return r;
    w->runs[step->kind]++;
    ck_assert_int_le(plm_cost(&world_table, &step->shape), w->ws);
    ck_assert_uint_ge(step->shape.rows, step->shape.seqs);
    ck_assert_uint_le(step->shape.ctx, w->limits.max_context);
    ck_assert_uint_ge(w->blocks, w->limits.max_sequences);
    if (!(step->flags & PLM_STRESS_EVEN))
        ck_assert_uint_le(step->shape.rows - (step->shape.seqs - 1), step->shape.ctx);
    if (w->validating) {
        w->repeats_in_validation |= step->flags & PLM_STRESS_REPEAT_BLOCKS;
        ck_assert_uint_ge(w->blocks, (step->shape.ctx + 15) / 16);
        if (step->shape.ctx > w->longest_validated)
            w->longest_validated = step->shape.ctx;
    }
    if (!w->warm[step->kind]) {
        if (!give(w, w->lazy))
            return plm_fail(err, PLM_ERR_OUT_OF_DEVICE, "a kernel could not be loaded");
        w->warm[step->kind] = true;
        w->lazy_taken += w->lazy;
    }
    if (!give(w, w->transient) || world_used(w) + w->transient > w->total - w->hidden)
        return plm_fail(err, PLM_ERR_OUT_OF_DEVICE, "submit failed");
    return PLM_OK;
}

static int on_format(void *ctx, uint32_t slab_blocks, uint32_t max_blocks)
{
    struct world *w = ctx;
    int r = called(w, CALL_FORMAT);
    ck_assert_uint_eq(w->blocks, 0);
    ck_assert_uint_gt(slab_blocks, 0);
    w->rule = (struct plm_slab_rule){.slab_blocks = slab_blocks,
                                     .slab_bytes = world_up(slab_blocks * MIB, w->g),
                                     .block_bytes = MIB,
                                     .g = w->g,
                                     .max_slabs = PLM_SLABS_MAX};
    w->max_blocks = max_blocks;
    w->validating = false; // a new pool: its validation comes later
    return r;
}

static int on_resize(void *ctx, uint32_t blocks, uint32_t *ret_blocks, int64_t *ret_failed)
{
    struct world *w = ctx;
    int r = called(w, CALL_RESIZE);
    ck_assert(!w->sealed);
    ck_assert_uint_le(blocks, w->max_blocks);
    int64_t before = w->kv;
    while (r == PLM_OK && w->blocks < blocks) {
        uint32_t next = w->blocks + w->rule.slab_blocks;
        int64_t bytes = plm_slab_pool_bytes(&w->rule, next < blocks ? next : blocks);
        if (!give(w, bytes - w->kv)) {
            *ret_failed = bytes - w->kv;
            r = PLM_ERR_OUT_OF_DEVICE;
            break;
        }
        w->kv = bytes;
        w->blocks = next < blocks ? next : blocks;
    }
    if (w->blocks > blocks) {
        w->blocks = blocks;
        w->kv = plm_slab_pool_bytes(&w->rule, blocks);
        if (w->keeps > 0 && w->validating) {
            w->kept += plm_min_i64(w->keeps, before - w->kv);
            w->keeps = 0;
        }
    }
    *ret_blocks = w->blocks;
    return r;
}

static int on_verify(void *ctx, struct plm_error *err)
{
    struct world *w = ctx;
    int r = called(w, CALL_VERIFY);
    (void)err;
    w->validating = true;
    w->validations++;
    if (r == PLM_OK && w->validations <= w->fail_validations)
        return PLM_ERR_OUT_OF_DEVICE;
    return r;
}

static int on_slow(void *ctx, int64_t *ret_bytes)
{
    *ret_bytes = slow_bytes(ctx);
    return PLM_OK;
}

static int on_ballast(void *ctx, int64_t bytes)
{
    struct world *w = ctx;
    int r = called(w, CALL_BALLAST);
    w->ballast = 0;
    if (w->late_foreign > 0 && bytes > 0) {
        w->foreign += w->late_foreign;
        w->late_foreign = 0;
    }
    if (r == PLM_OK && bytes > 0) {
        if (!give(w, world_up(bytes, w->g)))
            return PLM_ERR_OUT_OF_DEVICE;
        w->ballast = world_up(bytes, w->g);
    }
    return r;
}

static int on_empty(void *ctx)
{
    return called(ctx, CALL_EMPTY);
}

static int on_limits(void *ctx, const struct plm_plan_limits *limits)
{
    struct world *w = ctx;
    int r = called(w, CALL_CAPS);
    struct plm_shape shape = plm_limits_shape(limits);
    int64_t bytes = world_up(plm_cost(&world_table, &shape), w->g);
    bytes += plm_plan_window_bytes(&w->in, limits); // groups beside the main one
    w->ws = 0;
    if (r != PLM_OK)
        return r;
    if (!give(w, bytes))
        return PLM_ERR_OUT_OF_DEVICE;
    w->ws = bytes;
    w->limits = *limits;
    return PLM_OK;
}

static void on_seal(void *ctx)
{
    struct world *w = ctx;
    ck_assert(!w->sealed);
    w->sealed = true;
}

static int on_reopen(void *ctx, struct plm_error *err)
{
    struct world *w = ctx;
    (void)err;
    ck_assert_uint_eq(w->blocks, 0);
    ck_assert_int_eq(w->ballast, 0);
    w->ws = 0;
    return called(w, CALL_REOPEN);
}

static void on_watch(void *ctx, bool on, int64_t *ret_peak)
{
    struct world *w = ctx;
    if (!on)
        *ret_peak = (w->process_use ? 0 : w->foreign) + w->context + w->lazy_taken + w->transient;
}

static int on_encode(void *ctx, bool beside_decode, struct plm_error *err)
{
    struct world *w = ctx;
    int r = called(w, CALL_ENCODE);
    w->encodes[beside_decode]++;
    if (r == PLM_OK && !give(w, w->encoder_bytes))
        return plm_fail(err, PLM_ERR_OUT_OF_DEVICE, "an encode did not fit");
    return r;
}

static int on_capture(void *ctx, struct plm_error *err)
{
    struct world *w = ctx;
    int r = called(w, CALL_CAPTURE);
    w->captures++;
    if (r == PLM_OK && w->captured < w->graph_bytes) {
        if (!give(w, w->graph_bytes - w->captured))
            return plm_fail(err, PLM_ERR_OUT_OF_DEVICE, "a graph did not fit");
        w->captured = w->graph_bytes;
    }
    return r;
}

static void on_peaks(void *ctx, struct plm_stress_peaks *ret)
{
    *ret = ((struct world *)ctx)->peaks;
}

// ---- a clock that only counts ----

static int64_t fake_now(void *ctx)
{
    return *(int64_t *)ctx += 1000;
}
static void fake_sleep(void *ctx, int64_t ns)
{
    *(int64_t *)ctx += ns;
}
static _Thread_local int64_t ticks;

struct world world_plain(void)
{
    return (struct world){.total = 16 * GIB,
                          .g = MIB,
                          .weights = 4 * GIB,
                          .context = 300 * MIB,
                          .foreign = GIB,
                          .process_use = true,
                          .fail_call_kind = -1};
}

static const struct plm_log silent;

struct plm_profile_opts world_options(void)
{
    return (struct plm_profile_opts){
        .in = {.g = MIB,
               .memory_fraction = 1,
               .limits = {.batch_max_tokens = 2048, .max_sequences = 64, .max_context = 32768},
               .block_bytes = MIB,
               .prefix_cache_blocks = PLM_PLAN_UNKNOWN},
        .cost = &world_table,
        .log = &silent};
}

int world_start(struct world *w, struct plm_profile_opts opts, struct plm_profile *ret,
                struct plm_error *err)
{
    const struct plm_clock clock = {fake_now, fake_now, fake_sleep, &ticks};
    const struct plm_stress_ops ops = {.ctx = w,
                                       .read = world_read,
                                       .run = on_run,
                                       .kv_format = on_format,
                                       .kv_resize = on_resize,
                                       .kv_verify = on_verify,
                                       .ballast = on_ballast,
                                       .empty_cache = on_empty,
                                       .set_limits = on_limits,
                                       .seal = on_seal,
                                       .watch = on_watch,
                                       .reopen = on_reopen,
                                       .slow_bytes = w->slow_above > 0 ? on_slow : NULL,
                                       .min_of_ranks = w->min_of_ranks,
                                       .encode = w->encoders ? on_encode : NULL,
                                       .capture = w->graphs ? on_capture : NULL,
                                       .phase_peaks = on_peaks};
    opts.clock = &clock;
    w->in = opts.in;
    *err = (struct plm_error){.msg = ""};
    int r = plm_profile_run(&opts, &ops, ret, err);
    if (r == PLM_OK) {
        ck_assert(w->sealed);
        ck_assert_int_eq(w->ballast, 0);
        ck_assert_int_eq(w->blocks, ret->plan.blocks);
        ck_assert_int_eq(w->kv, ret->plan.kv_bytes);
        ck_assert_int_eq(world_held(w), ret->plan.line);
        ck_assert_uint_ge(w->blocks, w->limits.max_sequences);
        ck_assert_uint_ge(w->blocks, (w->limits.max_context + 15) / 16);
        ck_assert_int_eq(memcmp(&w->limits, &ret->plan.in.limits, sizeof(w->limits)), 0);
        ck_assert_uint_gt(w->validations, 0);
        ck_assert(!w->repeats_in_validation);
        ck_assert_uint_eq(w->longest_validated >= w->limits.max_context, 1);
        // What the margin is for: it is free now.
        ck_assert_int_ge(w->total - world_used(w), ret->plan.margin - w->late_foreign);
    } else {
        ck_assert(!w->sealed);
        ck_assert_int_eq(w->ballast, 0);
        ck_assert_uint_eq(w->blocks, 0);
        ck_assert_int_eq(err->status, r);
        ck_assert_uint_gt(strlen(err->msg), 0);
    }
    return r;
}
