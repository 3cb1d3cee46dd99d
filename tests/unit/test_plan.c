// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "core/plan/plan.h"
#include "tests/support/suite.h"
#include "tests/unit/plan_card.h"

// A model whose workspace is linear in each field of the shape.
static const struct plm_cost_table table = {
    .n_buffers = 3,
    .buffers = {{.name = "rows", .per_row = 64 << 10},
                {.name = "logits", .per_logits_row = 512 << 10, .per_seq = 4096},
                {.name = "tables", .per_seq_block = 8 << 10}},
};

// A CPU under a limit and in a cgroup; the limit binds.
static struct plm_plan_input host(void)
{
    struct plm_plan_input in = card();
    in.unified = true;
    in.g = 16 * MIB;
    in.operator_limit = 12 * GIB;
    in.n_cgroups = 2;
    in.cgroups[0] = (struct plm_plan_cgroup){14 * GIB, 10 * GIB, GIB};
    in.cgroups[1] = (struct plm_plan_cgroup){20 * GIB, 10 * GIB, 0};
    in.block_bytes = 16 * MIB;
    return in;
}

START_TEST(the_formula_line_by_line)
{
    struct plm_plan_input in = card();
    in.withheld = 4 * MIB;
    in.unheld = 2 * GIB;
    in.growth = 100 * MIB;
    struct plm_plan p = plan_of(&in);
    ck_assert_int_eq(p.foreign, GIB);
    ck_assert_int_eq(p.own_drv, 300 * MIB);
    ck_assert_int_eq(p.room, 21 * GIB);
    ck_assert_int_eq(p.room_binds, PLM_TERM_DEVICE);
    ck_assert_int_eq(p.resident, 8 * GIB - 512 * MIB);
    ck_assert_int_eq(p.U, 24 * GIB);
    ck_assert_int_eq(p.margin, 200 * MIB + 4 * MIB);
    ck_assert_int_eq(p.ballast, 200 * MIB);
    ck_assert_int_eq(p.host, 0);
    ck_assert_int_eq(p.budget, 21 * GIB - (8 * GIB - 512 * MIB) - 204 * MIB);
    ck_assert_int_eq(p.blocks_cap, 64 * 2048 + 64 * 2048 / 4);
    ck_assert_int_eq(p.blocks, p.budget / MIB);
    ck_assert_int_eq(p.blocks_bind, PLM_TERM_BUDGET);
    ck_assert_int_eq(p.kv_bytes, p.blocks * MIB);
    ck_assert_int_eq(p.line, p.resident + p.kv_bytes);
    ck_assert(plm_plan_enough(&p, NULL));
    ck_assert(plm_plan_one_finishes(&p));
}
END_TEST

START_TEST(unified_memory_and_cgroups)
{
    struct plm_plan_input in = host();
    struct plm_plan p = plan_of(&in);
    ck_assert_int_eq(p.own_drv, 304 * MIB);
    ck_assert_int_eq(p.room, 12 * GIB - 304 * MIB);
    ck_assert_int_eq(p.room_binds, PLM_TERM_OPERATOR);
    ck_assert_int_eq(p.host_limit, 256 * MIB);
    ck_assert_int_eq(p.host, 0 + p.room / 512); // own_drv is beyond the host limit already
    in.host_limit = GIB;
    p = plan_of(&in);
    ck_assert_int_eq(p.host, GIB - 304 * MIB + p.room / 512);
    // The program's connections come beside the host limit; what is there already is of both.
    in.host_caller = 40 * MIB;
    ck_assert_int_eq(plan_of(&in).host, p.host + 40 * MIB);
    in.host_limit = 290 * MIB;
    ck_assert_int_eq(plan_of(&in).host, 26 * MIB + p.room / 512);
    in.host_limit = GIB;
    in.host_caller = 0;
    in.cgroups[1].limit = 11 * GIB;
    p = plan_of(&in);
    ck_assert_int_eq(p.room_binds, PLM_TERM_CGROUP);
    ck_assert_uint_eq(p.room_cgroup, 1);
    ck_assert_int_eq(p.room, 11 * GIB - (10 * GIB - 8 * GIB));
    ck_assert_int_eq(p.U, 11 * GIB);
    // Reclaimable page cache is room.
    in.cgroups[1].reclaimable = 256 * MIB;
    ck_assert_int_eq(plan_of(&in).room, 9 * GIB + 256 * MIB);
    // Where process use is unknown, the driver calls say what it took.
    in = card();
    in.process_use = PLM_PLAN_UNKNOWN;
    in.context_bytes = 200 * MIB;
    in.driver_calls = 50 * MIB;
    ck_assert_int_eq(plan_of(&in).own_drv, 250 * MIB);
}
END_TEST

static void more_foreign(struct plm_plan_input *in, int64_t bytes)
{
    in->F -= bytes;
}

START_TEST(limits_bind_when_memory_does_not)
{
    struct plm_plan_input in = card();
    in.limits.max_context = 4096;
    in.prefix_cache_blocks = 100;
    struct plm_plan base = plan_of(&in);
    ck_assert_int_eq(base.blocks,
                     64 * 256 + 100 < base.budget / MIB ? 64 * 256 + 100 : base.budget / MIB);
    in.limits.max_sequences = 8;
    base = plan_of(&in);
    ck_assert_int_eq(base.blocks, 8 * 256 + 100);
    ck_assert_int_eq(base.blocks_bind, PLM_TERM_CAP);
    in.limits.max_blocks = (uint32_t)base.blocks - 1;
    ck_assert_int_eq(plan_of(&in).blocks, base.blocks - 1);
    ck_assert_int_eq(plan_of(&in).blocks_cap, base.blocks - 1);
    ck_assert_int_eq(plan_of(&in).blocks_bind, PLM_TERM_DEFAULT);
    in.limits.max_blocks = (uint32_t)base.blocks;
    ck_assert_int_eq(plan_of(&in).blocks_bind, PLM_TERM_CAP);
    in.limits.max_blocks = 0;
    more_foreign(&in, 3 * MIB);
    ck_assert_int_eq(plan_of(&in).blocks, base.blocks);
    in.memory_fraction = 0.5;
    ck_assert_int_eq(plan_of(&in).blocks, base.blocks);
    in.memory_fraction = 0.1;
    ck_assert_int_eq(plan_of(&in).budget, (plan_of(&in).room - base.resident - base.margin) / 10);
    in.prefix_cache_blocks = 101;
    in.memory_fraction = 1;
    ck_assert_int_eq(plan_of(&in).blocks, base.blocks + 1);
}
END_TEST

START_TEST(bad_inputs_are_named)
{
    struct plm_error err;
    struct plm_plan p;
    struct plm_plan_input in = card();
    const double bad[] = {0, -1, 1.5, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < 5; i++) {
        in.memory_fraction = bad[i];
        ck_assert_int_eq(plm_plan_compute(&in, &p, &err), PLM_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(err.msg, "fraction"));
    }
    in = card();
    in.limits.max_sequences = 0;
    ck_assert_int_eq(plm_plan_compute(&in, &p, &err), PLM_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "max_sequences"));
    in = card();
    in.g = 0;
    ck_assert_int_eq(plm_plan_compute(&in, &p, &err), PLM_ERR_INVALID);
    in = card();
    in.cgroups[0].limit = -1;
    ck_assert_int_eq(plm_plan_compute(&in, &p, &err), PLM_OK);
    in.n_cgroups = 1;
    ck_assert_int_eq(plm_plan_compute(&in, &p, &err), PLM_ERR_INVALID);
    in = card();
    in.K = in.O + 1;
    ck_assert_int_eq(plm_plan_compute(&in, &p, &err), PLM_ERR_INTERNAL);
}
END_TEST

START_TEST(readings_that_lie_do_not_wrap)
{
    struct plm_plan_input in = card();
    in.F = 40 * GIB; // free > total
    ck_assert_int_eq(plan_of(&in).foreign, 0);
    in.T = in.F = 0;
    struct plm_plan p = plan_of(&in);
    ck_assert_int_lt(p.budget, 0);
    ck_assert_int_eq(p.blocks, 0);
    int64_t missing;
    ck_assert(!plm_plan_enough(&p, &missing));
    ck_assert_int_gt(missing, 0);
    in = card();
    in.process_use = 0; // less than we hold
    ck_assert_int_eq(plan_of(&in).own_drv, 0);
}
END_TEST

START_TEST(a_pinned_size_is_kept_or_refused)
{
    struct plm_plan_input in = card();
    in.pinned_tokens = 16 * 1000 - 3;
    struct plm_plan p = plan_of(&in);
    ck_assert_int_eq(p.blocks, 1000);
    ck_assert_int_eq(p.blocks_bind, PLM_TERM_PIN);
    ck_assert(plm_plan_enough(&p, NULL));
    in.pinned_tokens = 16 * 100000;
    p = plan_of(&in);
    int64_t missing;
    ck_assert_int_eq(p.blocks, 100000);
    ck_assert(!plm_plan_enough(&p, &missing));
    ck_assert_int_eq(missing, p.kv_bytes - p.budget);
    in.pinned_tokens = 16; // less than one block per sequence
    p = plan_of(&in);
    ck_assert(!plm_plan_enough(&p, NULL));
}
END_TEST

START_TEST(shrinking_takes_what_was_missing_and_a_slab)
{
    struct plm_plan_input in = card();
    struct plm_plan p = plan_of(&in);
    int64_t slab = p.slabs.slab_blocks;
    ck_assert_int_gt(p.blocks / 20, slab); // 5 % is more here
    ck_assert_int_eq(plm_plan_shrink(&p, 0, 0), p.blocks * 95 / 100);
    ck_assert_int_eq(plm_plan_shrink(&p, 10 * MIB, 20 * MIB), p.blocks * 95 / 100);
    int64_t want = p.blocks - 5000 - slab;
    ck_assert_int_eq(plm_plan_shrink(&p, 5000 * MIB, 0), want);
    ck_assert_int_eq(plm_plan_shrink(&p, 5000 * MIB - 1, 0), want);
    ck_assert_int_eq(plm_plan_shrink(&p, 5000 * MIB + 1, 0), want - 1);
    plm_plan_set_blocks(&p, 10, PLM_TERM_SHRINK);
    ck_assert_int_eq(plm_plan_shrink(&p, 0, 0), 0);
}
END_TEST

static int64_t value(uint32_t x, int bits)
{
    // Log-uniform, so that all magnitudes are met.
    return (int64_t)((((uint64_t)x << 32 | x) >> 8) & ((UINT64_C(1) << (x % (uint32_t)bits)) - 1));
}

START_TEST(random_inputs_never_wrap)
{
    int enough = 0;
    for (uint32_t i = 0; i < 60000; i++) {
        uint32_t r[24], key[2] = {11, 12};
        for (uint32_t j = 0; j < 6; j++) {
            uint32_t counter[4] = {i, j, 0, 0};
            plm_philox4x32(counter, key, r + 4 * j);
        }
        struct plm_plan_input in = {
            .g = 1 + value(r[0], 25),
            .T = value(r[1], 57),
            .F = value(r[2], 57),
            .O = value(r[3], 50),
            .K = value(r[4], 45),
            .process_use = r[5] % 3 == 0 ? PLM_PLAN_UNKNOWN : value(r[5], 57),
            .context_bytes = value(r[6], 40),
            .driver_calls = value(r[7], 40),
            .unheld = value(r[8], 40),
            .operator_limit = r[9] % 2 == 0 ? 0 : value(r[9], 57),
            .n_cgroups = r[10] % 3,
            .cgroups = {{value(r[11], 57), value(r[12], 50), value(r[13], 40)},
                        {value(r[13], 57), value(r[14], 50), value(r[15], 40)}},
            .growth = value(r[16], 40),
            .withheld = value(r[17], 30),
            .unified = r[18] % 2 == 0,
            .host_limit = value(r[19], 40),
            .host_caller = value(r[20] ^ r[19], 36),
            .memory_fraction = (1 + r[20] % 1000) / 1000.0,
            .limits = {1 + r[21] % 100000, 1 + r[22] % 10000, 1 + (r[23] >> (r[22] % 20 + 1)), 0, 0,
                       0},
            .block_bytes = 1 + value(r[0] ^ r[5], 31),
            .prefix_cache_blocks = r[1] % 2 == 0 ? PLM_PLAN_UNKNOWN : value(r[2], 25),
            .max_slabs = r[3] % 4 == 0 ? r[4] % 3000 : 0,
            .max_slab_bytes = r[5] % 4 == 0 ? 1 + value(r[6], 32) : 0,
            .pinned_tokens = r[7] % 5 == 0 ? value(r[8], 30) : 0,
        };
        struct plm_plan p;
        int status = plm_plan_compute(&in, &p, NULL);
        if (in.K > in.O) {
            ck_assert_int_eq(status, PLM_ERR_INTERNAL);
            continue;
        }
        ck_assert_int_eq(status, PLM_OK);
        ck_assert_int_ge(p.foreign, 0);
        ck_assert_int_ge(p.own_drv, 0);
        ck_assert_int_ge(p.host, 0);
        ck_assert_int_ge(p.margin, 32 * MIB);
        ck_assert_int_ge(p.kv_bytes, 0);
        ck_assert_int_eq(p.line, p.resident + p.kv_bytes);
        ck_assert_int_le(p.room, in.T);
        if (in.pinned_tokens == 0) {
            ck_assert_int_le(p.kv_bytes, p.budget > 0 ? p.budget : 0);
            ck_assert_int_le(p.blocks, p.blocks_cap);
        }
        if (plm_plan_enough(&p, NULL)) {
            enough++;
            // The promise: what is committed, the margin and the host fit into the room.
            ck_assert_int_le(p.line + p.margin + p.host, p.room);
        }
        int64_t shrunk = plm_plan_shrink(&p, value(r[9], 40), value(r[10], 40));
        ck_assert(p.blocks == 0 ? shrunk == 0 : shrunk < p.blocks);
    }
    ck_assert_int_gt(enough, 1000);
}
END_TEST

START_TEST(replanning_moves_the_workspace)
{
    struct plm_plan_input in = host();
    struct plm_plan base = plan_of(&in), p;
    ck_assert_int_eq(plm_plan_replan(&in, &table, &in.limits, &p, NULL), PLM_OK);
    ck_assert_int_eq(p.blocks, base.blocks);
    struct plm_plan_limits limits = in.limits;
    limits.batch_max_tokens /= 2;
    ck_assert_int_eq(plm_plan_replan(&in, &table, &limits, &p, NULL), PLM_OK);
    ck_assert_int_eq(base.resident - p.resident, 1024 * 64 * 1024);
    ck_assert_int_eq(base.foreign, p.foreign);
    ck_assert_int_eq(base.own_drv, p.own_drv);
    ck_assert_int_eq(base.room, p.room);
    ck_assert_int_ge(p.blocks, base.blocks + 4);
    // More than there is: the budget says by how much.
    limits.batch_max_tokens = 10000000;
    ck_assert_int_eq(plm_plan_replan(&in, &table, &limits, &p, NULL), PLM_OK);
    ck_assert_int_eq(base.foreign, p.foreign);
    ck_assert_int_lt(p.budget, -500 * GIB);
}
END_TEST

START_TEST(the_longest_context_that_fits)
{
    struct plm_plan_input in = card();
    struct plm_plan p;
    ck_assert_uint_eq(plm_plan_fit_context(&in, &table), in.limits.max_context);
    in = (struct plm_plan_input){.g = MIB,
                                 .T = 24 * GIB,
                                 .F = 23 * GIB,
                                 .process_use = 0,
                                 .memory_fraction = 1,
                                 .limits = {2048, 64, 1000000, 0, 0, 0},
                                 .block_bytes = MIB};
    plm_plan_estimate(&in, &table, &(struct plm_plan_estimate){.weight_bytes = 4 * GIB});
    uint32_t fit = plm_plan_fit_context(&in, &table);
    ck_assert_uint_gt(fit, 16);
    ck_assert_uint_lt(fit, 1000000);
    struct plm_plan_limits limits = in.limits;
    limits.max_context = fit;
    ck_assert_int_eq(plm_plan_replan(&in, &table, &limits, &p, NULL), PLM_OK);
    ck_assert(plm_plan_one_finishes(&p) && plm_plan_enough(&p, NULL));
    limits.max_context = fit + 16;
    ck_assert_int_eq(plm_plan_replan(&in, &table, &limits, &p, NULL), PLM_OK);
    ck_assert(!(plm_plan_one_finishes(&p) && plm_plan_enough(&p, NULL)));
    in.T = in.F = 4 * GIB;
    ck_assert_uint_eq(plm_plan_fit_context(&in, &table), 0);
}
END_TEST

static bool works(const struct plm_plan_input *in)
{
    struct plm_plan p;
    return plm_plan_compute(in, &p, NULL) == PLM_OK && plm_plan_enough(&p, NULL);
}

static bool works_with(const struct plm_plan_input *in, struct plm_plan_limits limits)
{
    struct plm_plan p;
    return plm_plan_replan(in, &table, &limits, &p, NULL) == PLM_OK && plm_plan_enough(&p, NULL);
}

// An input of random limits, sizes and limits.
static struct plm_plan_input random_start(uint32_t i)
{
    uint32_t r[4], counter[4] = {i, 0, 0, 0}, key[2] = {21, 22};
    plm_philox4x32(counter, key, r);
    struct plm_plan_input in = {
        .g = MIB,
        .T = 16 * GIB,
        .F = 16 * GIB,
        .process_use = 100 * MIB,
        .operator_limit = 256 * MIB + (int64_t)(r[0] % 4096) * MIB,
        .unified = true,
        .host_limit = r[1] % 2 ? 256 * MIB : 0,
        .memory_fraction = r[1] % 3 ? 1 : 0.3,
        .limits = {16 + r[2] % 4096, 1 + r[2] / 4096 % 64, 16 + r[3] % 200000, 0, 0, 0},
        .block_bytes = 1 + r[3] / 16 % (8 << 20),
        .pinned_tokens = r[1] % 7 ? 0 : r[0] % 100000,
        .prefix_cache_blocks = PLM_PLAN_UNKNOWN};
    plm_plan_estimate(&in, &table, &(struct plm_plan_estimate){.weight_bytes = 128 * MIB});
    return in;
}

static void check_counts(const struct plm_plan_input *in, const struct plm_plan_knobs *k,
                         int seen[4])
{
    struct plm_plan_limits limits = in->limits;
    if (k->ctx_size > 0) {
        limits.max_context = k->ctx_size;
        ck_assert(k->ctx_size < in->limits.max_context && works_with(in, limits));
        seen[0]++;
    }
    limits = in->limits;
    if (k->max_sequences > 0) {
        limits.max_sequences = k->max_sequences;
        ck_assert(k->max_sequences < in->limits.max_sequences && works_with(in, limits));
        limits.max_sequences++;
        ck_assert(limits.max_sequences == in->limits.max_sequences || !works_with(in, limits));
        seen[1]++;
    }
    limits = in->limits;
    if (k->batch_max_tokens > 0) {
        limits.batch_max_tokens = k->batch_max_tokens;
        ck_assert(works_with(in, limits));
        seen[2]++;
    }
    if (k->together.max_sequences > 0) {
        ck_assert(works_with(in, k->together));
        seen[3]++;
    }
}

static void check_limits(const struct plm_plan_input *in, const struct plm_plan_knobs *k,
                         int seen[4])
{
    struct plm_plan_input other = *in;
    if (k->memory_limit > 0) {
        other.operator_limit = k->memory_limit;
        ck_assert(k->memory_limit > in->operator_limit && works(&other));
        seen[0]++;
    }
    other = *in;
    if (k->host_limit > 0) {
        other.host_limit = k->host_limit;
        ck_assert(works(&other));
        seen[1]++;
    }
    other = *in;
    if (k->memory_fraction > 0) {
        other.memory_fraction = k->memory_fraction;
        ck_assert(k->memory_fraction > in->memory_fraction && works(&other));
        seen[2]++;
    }
    other = *in;
    if (k->max_total_tokens > 0) {
        other.pinned_tokens = k->max_total_tokens;
        ck_assert(works(&other));
        seen[3]++;
    }
}

START_TEST(every_suggestion_starts)
{
    int seen[8] = {0};
    for (uint32_t i = 0; i < 3000; i++) {
        struct plm_plan_input in = random_start(i);
        struct plm_plan_knobs k;
        if (works(&in))
            continue;
        plm_plan_suggest(&in, &table, &k);
        ck_assert_int_gt(k.missing, 0);
        check_counts(&in, &k, seen);
        check_limits(&in, &k, seen + 4);
    }
    for (int i = 0; i < 8; i++)
        ck_assert_msg(seen[i] > 0, "knob %d was never suggested", i);
}
END_TEST

// A pinned size below one block for each sequence: nothing is missing but blocks.
START_TEST(a_size_below_the_sequences_says_so)
{
    struct plm_error err = {0};
    struct plm_plan_knobs k;
    struct plm_plan_input in = host();
    in.limits.max_sequences = 8;
    in.pinned_tokens = 1;
    plm_plan_suggest(&in, &table, &k);
    ck_assert_int_eq(k.max_total_tokens, 128);
    ck_assert_uint_eq(k.max_sequences, 1);
    check_limits(&in, &k, (int[4]){0});
    plm_plan_fail(&in, &table, "max_total_tokens does not fit", &err);
    ck_assert_ptr_nonnull(strstr(err.msg, "1 KV blocks of 16 tokens, but max_sequences 8 needs 8"));
    ck_assert_ptr_nonnull(strstr(err.msg, "max_sequences 1, max_total_tokens 128"));
    ck_assert_ptr_null(strstr(err.msg, "missing"));
    ck_assert_int_eq(err.needed_bytes, 0);
    // An absurd one gets a value whose tables leave half of the host budget, too.
    in.block_bytes = 4096;
    in.pinned_tokens = INT64_C(1) << 34;
    plm_plan_suggest(&in, &table, &k);
    ck_assert_int_gt(k.max_total_tokens, 0);
    check_limits(&in, &k, (int[4]){0});
    struct plm_plan plan;
    ck_assert_int_eq(plm_plan_compute(&in, &plan, NULL), PLM_OK);
    ck_assert_int_le(k.max_total_tokens / 16 * PLM_HOST_BLOCK_BYTES, plan.host_limit / 2);
}
END_TEST

START_TEST(one_message_names_the_knobs)
{
    struct plm_error err;
    struct plm_plan_input in = host();
    in.operator_limit = 8 * GIB;
    ck_assert_int_eq(plm_plan_fail(&in, &table, "the KV cache does not fit", &err),
                     PLM_ERR_OUT_OF_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.msg, "the KV cache does not fit: "));
    ck_assert_ptr_nonnull(strstr(err.msg, "memory_limit_bytes at least"));
    ck_assert_ptr_nonnull(strstr(err.msg, "max_sequences "));
    ck_assert_int_gt(err.needed_bytes, err.limit_bytes);
    in.T = in.F = 6 * GIB;
    plm_plan_fail(&in, &table, "no", &err);
    ck_assert_ptr_nonnull(strstr(err.msg, "smaller model"));
    in.memory_fraction = 7;
    ck_assert_int_eq(plm_plan_fail(&in, &table, "no", &err), PLM_ERR_INVALID);
}
END_TEST

START_TEST(an_arena_pays_for_its_holes)
{
    ck_assert_int_eq(plm_plan_arena_bytes(100 * MIB, 100 * MIB), 100 * MIB);
    ck_assert_int_eq(plm_plan_arena_bytes(100 * MIB, 130 * MIB), 160 * MIB);
    ck_assert_int_eq(plm_plan_arena_bytes(0, 5), 10);
    ck_assert_int_eq(plm_plan_arena_bytes(7, 3), 7); // no extent is below what lives
}
END_TEST

START_TEST(a_phase_needs_room_of_its_own)
{
    struct plm_plan_input in = card();
    struct plm_plan p = plan_of(&in);
    struct plm_error err;
    ck_assert_int_eq(plm_plan_check_peak(&p, "the load", p.room, &err), PLM_OK);
    ck_assert_int_eq(plm_plan_check_peak(&p, "the load", p.room + 1, &err), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(err.needed_bytes, p.room + 1);
    ck_assert_int_eq(err.limit_bytes, p.room);
    char both[64];
    snprintf(both, sizeof(both), "the load took %lld bytes", (long long)p.room + 1);
    ck_assert_ptr_nonnull(strstr(err.msg, both));
    snprintf(both, sizeof(both), "by device is %lld bytes", (long long)p.room);
    ck_assert_ptr_nonnull(strstr(err.msg, both));
}
END_TEST

// A hybrid model gives up checkpoints first, then sequences, then context, and each only as far as
// it must.
START_TEST(states_come_before_the_kv_cache)
{
    struct plm_plan_input in = card();
    struct plm_plan_limits limits;
    struct plm_plan p;
    in.limits.state_checkpoints = 100;
    in.state_bytes = 16 * MIB;
    plm_plan_estimate(&in, &table, &(struct plm_plan_estimate){0}); // 164 states, 2.6 GiB
    ck_assert(plm_plan_fit_limits(&in, &table, &limits));
    ck_assert_int_eq(memcmp(&limits, &in.limits, sizeof(limits)), 0);
    int stage = 0; // 1: fewer checkpoints, 2: and fewer sequences, 3: and less context
    for (int64_t less = 0; less < 16 * GIB; less += 64 * MIB) {
        struct plm_plan_input tight = in;
        tight.F -= less;
        if (!plm_plan_fit_limits(&tight, &table, &limits))
            break;
        ck_assert_int_eq(plm_plan_replan(&tight, &table, &limits, &p, NULL), PLM_OK);
        ck_assert(plm_plan_enough(&p, NULL) && plm_plan_one_finishes(&p));
        int now = limits.max_context < in.limits.max_context       ? 3
                  : limits.max_sequences < in.limits.max_sequences ? 2
                  : limits.state_checkpoints < 100                 ? 1
                                                                   : 0;
        ck_assert_int_ge(now, stage);
        ck_assert_int_le(now, stage + 1);
        stage = now;
        if (stage >= 2)
            ck_assert_uint_eq(limits.state_checkpoints, 0);
        if (stage >= 3)
            ck_assert_uint_eq(limits.max_sequences, 1);
        // It is the most: one more of what was lowered would not do.
        struct plm_plan_limits more = limits;
        more.state_checkpoints += stage == 1;
        more.max_sequences += stage == 2;
        more.max_context += stage == 3 ? 16 : 0;
        if (stage > 0) {
            ck_assert_int_eq(plm_plan_replan(&tight, &table, &more, &p, NULL), PLM_OK);
            ck_assert(!plm_plan_enough(&p, NULL) || !plm_plan_one_finishes(&p));
        }
    }
    ck_assert_int_eq(stage, 3);
    // Their pool is counted once: no margin of its own.
    in.limits.state_checkpoints = 0;
    ck_assert_int_eq(plm_plan_state_pool(&in, &in.limits), 64 * 16 * MIB);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60); // sanitizers on a busy machine
    tcase_add_test(tc, the_formula_line_by_line);
    tcase_add_test(tc, unified_memory_and_cgroups);
    tcase_add_test(tc, limits_bind_when_memory_does_not);
    tcase_add_test(tc, bad_inputs_are_named);
    tcase_add_test(tc, readings_that_lie_do_not_wrap);
    tcase_add_test(tc, a_pinned_size_is_kept_or_refused);
    tcase_add_test(tc, shrinking_takes_what_was_missing_and_a_slab);
    tcase_add_test(tc, random_inputs_never_wrap);
    tcase_add_test(tc, replanning_moves_the_workspace);
    tcase_add_test(tc, the_longest_context_that_fits);
    tcase_add_test(tc, every_suggestion_starts);
    tcase_add_test(tc, a_size_below_the_sequences_says_so);
    tcase_add_test(tc, one_message_names_the_knobs);
    tcase_add_test(tc, an_arena_pays_for_its_holes);
    tcase_add_test(tc, a_phase_needs_room_of_its_own);
    tcase_add_test(tc, states_come_before_the_kv_cache);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
