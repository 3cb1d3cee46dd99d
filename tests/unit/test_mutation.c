// SPDX-License-Identifier: Apache-2.0
// Each term of the formula alone. Where it binds, n x block bytes more of it give exactly n blocks
// fewer; where something else binds, none. The last test reads plan.h: a field of the plan's input
// without a case fails it.
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/plan/plan.h"
#include "tests/support/suite.h"

#define MIB   (INT64_C(1) << 20)
#define GIB   (INT64_C(1) << 30)
#define BLOCK MIB // also g, so that no rounding hides a block
#define N_MAX 7

typedef struct plm_plan_input input;

// One row is 64 KiB, a block of a sequence's table 1 MiB, a sequence 1 MiB.
static const struct plm_cost_table table = {
    .n_buffers = 2,
    .buffers = {{.name = "rows", .per_row = 64 << 10},
                {.name = "seqs", .per_seq = MIB, .per_seq_block = MIB}},
};

// ---- base cases ----

// A discrete card: the device's room binds, growth decides the margin, the budget the blocks.
static input card(void)
{
    return (input){.g = MIB,
                   .T = 24 * GIB,
                   .F = 15 * GIB,
                   .O = 8 * GIB,
                   .K = 512 * MIB,
                   .process_use = 8 * GIB + 300 * MIB,
                   .growth = 256 * MIB,
                   .memory_fraction = 1,
                   .limits = {.batch_max_tokens = 2048, .max_sequences = 64, .max_context = 32768},
                   .block_bytes = BLOCK,
                   .prefix_cache_blocks = PLM_PLAN_UNKNOWN};
}

// The operator's limit binds.
static input limited(void)
{
    input in = card();
    in.operator_limit = 12 * GIB;
    return in;
}

// The same where the driver does not say what the process uses.
static input limited_blind(void)
{
    input in = limited();
    in.process_use = PLM_PLAN_UNKNOWN;
    in.context_bytes = 200 * MIB;
    in.driver_calls = 100 * MIB;
    return in;
}

// Two cgroups above the process; the outer one binds.
static input caged(void)
{
    input in = card();
    in.n_cgroups = 2;
    in.cgroups[0] = (struct plm_plan_cgroup){20 * GIB, 10 * GIB, GIB};
    in.cgroups[1] = (struct plm_plan_cgroup){12 * GIB, 9 * GIB, GIB};
    return in;
}

// Unified memory: the host term counts. The driver uses less than the host limit, which binds.
static input unified(void)
{
    input in = card();
    in.unified = true;
    in.host_limit = GIB;
    return in;
}

// Few short requests: the limits bind, whatever memory there is.
static input ample(void)
{
    input in = card();
    in.limits.max_sequences = 8;
    in.limits.max_context = 4096;
    in.prefix_cache_blocks = 100;
    return in;
}

static input five_hundred_by_default(void)
{
    input in = ample();
    in.limits.max_blocks = 500;
    return in;
}

static input ample_unified(void)
{
    input in = ample();
    in.unified = true;
    in.host_limit = GIB;
    return in;
}

static input ample_hybrid(void)
{
    input in = ample();
    in.state_bytes = MIB;
    in.limits.state_checkpoints = 64;
    return in;
}

static input hybrid(void)
{
    input in = card();
    in.state_bytes = MIB;
    in.limits.state_checkpoints = 64;
    return in;
}

// Beside the main group one with windows of one token: two blocks of half a MiB for each.
static input with_windows(input in)
{
    in.n_windows = 1;
    in.windows[0] = (struct plm_plan_window){.window = 1, .block_bytes = BLOCK / 2};
    in.limits.cached_windows = 64;
    return in;
}
static input windows(void)
{
    return with_windows(card());
}
static input ample_windows(void)
{
    return with_windows(ample());
}

// One block per sequence, and as many in the prefix cache.
static input one_block_each(void)
{
    input in = card();
    in.limits.max_context = 16;
    in.prefix_cache_blocks = 64;
    return in;
}

static input one_sequence(void)
{
    input in = card();
    in.limits.max_sequences = 1;
    in.prefix_cache_blocks = 0;
    in.limits.max_context = 4096;
    return in;
}

// The only group has a window, of a thousand blocks.
static input one_window(void)
{
    input in = one_sequence();
    in.limits.max_context = 32768;
    in.window = 16000;
    return in;
}
static input pinned_window(void)
{
    input in = one_window();
    in.pinned_tokens = 2000 * 16;
    return in;
}

static input pinned(void)
{
    input in = card();
    in.pinned_tokens = 1000 * 16;
    return in;
}

// Memory for more than the slabs that the driver gives: ten of one block.
static input few_slabs(void)
{
    input in = card();
    in.max_slab_bytes = BLOCK;
    in.max_slabs = 10;
    return in;
}

// The share of U decides the margin: U / 256 is 96 MiB.
static input no_growth(void)
{
    input in = card();
    in.growth = 0;
    return in;
}

// Its floor and its ceiling do.
static input small_device(void)
{
    input in = no_growth();
    in.T = 6 * GIB;
    in.F = 4 * GIB;
    in.O = in.process_use = GIB;
    in.K = 0;
    return in;
}

static input large_device(void)
{
    input in = no_growth();
    in.T += 56 * GIB;
    in.F += 56 * GIB;
    return in;
}

// A budget of exactly 1000 blocks.
static input thousand(void)
{
    input in = card();
    struct plm_plan p;
    ck_assert_int_eq(plm_plan_compute(&in, &p, NULL), PLM_OK);
    in.withheld = p.budget - 1000 * BLOCK;
    return in;
}

// One block is foreign, and the budget is one block short of a multiple of 840, which 2 .. 8
// divide.
static input rounded(void)
{
    input in = card();
    struct plm_plan p;
    in.F = in.T - in.O - BLOCK;
    ck_assert_int_eq(plm_plan_compute(&in, &p, NULL), PLM_OK);
    in.withheld = (p.budget / BLOCK - 839) % 840 * BLOCK;
    return in;
}

// ---- mutations: n blocks more of one term ----

static void less_total(input *in, int64_t n) // foreign stays
{
    in->T -= n * BLOCK;
    in->F -= n * BLOCK;
}
static void more_foreign(input *in, int64_t n)
{
    in->F -= n * BLOCK;
}
static void more_unheld(input *in, int64_t n)
{
    in->unheld += n * BLOCK;
}
// Weights, workspace, states, encoders and what else we hold are one term: ours, so that it is
// neither foreign nor the driver's.
static void more_resident(input *in, int64_t n)
{
    in->O += n * BLOCK;
    in->F -= n * BLOCK;
    in->process_use += n * BLOCK;
    for (uint32_t i = 0; i < in->n_cgroups; i++)
        in->cgroups[i].current += n * BLOCK;
}
static void less_probe(input *in, int64_t n) // what is not the probe's stays
{
    in->K -= n * BLOCK;
}
static void more_own_drv(input *in, int64_t n)
{
    in->process_use += n * BLOCK;
}
static void more_context(input *in, int64_t n)
{
    in->context_bytes += n * BLOCK;
}
static void more_driver_calls(input *in, int64_t n)
{
    in->driver_calls += n * BLOCK;
}
static void less_limit(input *in, int64_t n)
{
    if (in->operator_limit > 0)
        in->operator_limit -= n * BLOCK;
    else
        in->operator_limit = 60 * GIB - n * BLOCK; // far above the device
}
static void less_cgroup(input *in, int64_t n)
{
    in->cgroups[1].limit -= n * BLOCK;
}
static void less_other_cgroup(input *in, int64_t n)
{
    in->cgroups[0].limit -= n * BLOCK;
}
static void more_current(input *in, int64_t n)
{
    in->cgroups[1].current += n * BLOCK;
}
static void more_other_current(input *in, int64_t n)
{
    in->cgroups[0].current += n * BLOCK;
}
static void less_reclaimable(input *in, int64_t n)
{
    in->cgroups[1].reclaimable -= n * BLOCK;
}
static void less_other_reclaimable(input *in, int64_t n)
{
    in->cgroups[0].reclaimable -= n * BLOCK;
}
static void one_level_more(input *in, int64_t n)
{
    in->cgroups[2] = in->cgroups[1];
    in->cgroups[2].limit -= n * BLOCK;
    in->n_cgroups = 3;
}
static void one_wide_level_more(input *in, int64_t n)
{
    in->cgroups[2] = in->cgroups[1];
    in->cgroups[2].limit += n * BLOCK;
    in->n_cgroups = 3;
}
static void more_growth(input *in, int64_t n)
{
    in->growth += n * BLOCK / 2;
}
static void more_withheld(input *in, int64_t n)
{
    in->withheld += n * BLOCK;
}
// 256 x as much total and foreign: the room stays, its margin grows.
static void more_share(input *in, int64_t n)
{
    in->T += PLM_MARGIN_SHARE * n * BLOCK;
}
static void more_host_limit(input *in, int64_t n)
{
    in->host_limit += n * BLOCK;
}
static void more_host_caller(input *in, int64_t n)
{
    in->host_caller += n * BLOCK;
}
static void fewer_by_default(input *in, int64_t n)
{
    in->limits.max_blocks -= (uint32_t)n;
}
static void a_higher_default(input *in, int64_t n)
{
    in->limits.max_blocks = (uint32_t)(1000000 + n);
}
// 512 x as much room and resident: what is left of the room stays, its page tables grow.
static void more_page_tables(input *in, int64_t n)
{
    in->T += PLM_PAGE_TABLE_UNIT * n * BLOCK;
    in->O += PLM_PAGE_TABLE_UNIT * n * BLOCK;
    in->process_use += PLM_PAGE_TABLE_UNIT * n * BLOCK;
}
static void become_unified(input *in, int64_t n)
{
    struct plm_plan p;
    ck_assert_int_eq(plm_plan_compute(in, &p, NULL), PLM_OK);
    in->unified = true;
    in->host_limit = p.own_drv + n * BLOCK;
}
static void less_fraction(input *in, int64_t n)
{
    in->memory_fraction = 1 - (double)n / 1000;
}
static void fewer_sequences(input *in, int64_t n)
{
    in->limits.max_sequences -= (uint32_t)n;
}
static void fewer_sequences_and_a_quarter(input *in, int64_t n)
{
    in->prefix_cache_blocks = PLM_PLAN_UNKNOWN;
    in->limits.max_sequences -= 4 * (uint32_t)n;
}
static void less_context(input *in, int64_t n)
{
    in->limits.max_context -= (uint32_t)n * 16;
}
static void fewer_prefix_blocks(input *in, int64_t n)
{
    in->prefix_cache_blocks -= n;
}
static void more_prefix_blocks(input *in, int64_t n)
{
    in->prefix_cache_blocks = 1000000 - n;
}
static void fewer_tokens(input *in, int64_t n)
{
    in->pinned_tokens -= n * 16;
}
static void tokens_of_the_same_block(input *in, int64_t n)
{
    in->pinned_tokens -= n;
}
static void fewer_slabs(input *in, int64_t n)
{
    in->max_slabs -= (uint32_t)n;
}
static void smaller_slabs(input *in, int64_t n) // ten slabs of ten blocks, then of fewer
{
    in->max_slabs = 1;
    in->max_slab_bytes = (10 - n) * BLOCK;
}
static void larger_slab_limit(input *in, int64_t n)
{
    in->max_slab_bytes = GIB + n * BLOCK;
}
static void many_slabs(input *in, int64_t n)
{
    in->max_slabs = 4000 - (uint32_t)n;
}
static input one_slab(void)
{
    input in = few_slabs();
    in.max_slabs = 1;
    in.max_slab_bytes = 10 * BLOCK;
    return in;
}
static void more_granularity(input *in, int64_t n)
{
    in->g = (n + 1) * BLOCK;
}
static void finer_granularity(input *in, int64_t n)
{
    in->g = BLOCK >> (n % 4);
}
// A block of n + 1 times the bytes: 840 of the small ones make 840 / (n + 1) of the large ones.
static void larger_blocks(input *in, int64_t n)
{
    in->block_bytes = (n + 1) * BLOCK;
}
static input eight_forty(void)
{
    input in = thousand();
    in.withheld += 160 * BLOCK;
    return in;
}
// Through the workspace and the states, by a plan for other limits.
static void more_batch(input *in, int64_t n)
{
    in->limits.batch_max_tokens += 16 * (uint32_t)n;
}
static void more_context_in_workspace(input *in, int64_t n)
{
    in->limits.max_context += 16 * (uint32_t)n;
}
static void more_checkpoints(input *in, int64_t n)
{
    in->limits.state_checkpoints += (uint32_t)n;
}
static void more_cached_windows(input *in, int64_t n)
{
    in->limits.cached_windows += (uint32_t)n;
}
static void another_group(input *in, int64_t n)
{
    in->n_windows = 1;
    in->windows[0] = (struct plm_plan_window){.window = 1, .block_bytes = n * BLOCK};
}
static void shorter_window(input *in, int64_t n)
{
    in->window -= 16 * (uint32_t)n;
}
static void more_state_sequences(input *in, int64_t n)
{
    in->limits.max_sequences += (uint32_t)n;
}
static void more_state_bytes(input *in, int64_t n)
{
    in->state_bytes += n * BLOCK;
}

static input short_requests(void)
{
    input in = hybrid();
    in.limits.max_context = 32; // two blocks of tables per sequence
    in.prefix_cache_blocks = 1000000;
    return in;
}
// A start that is planned before anything is held: the states are estimated.
static input before_load(void)
{
    input in = short_requests();
    in.O = in.K = 0;
    in.F = 23 * GIB;
    in.process_use = 300 * MIB;
    return in;
}
static input one_long_sequence(void)
{
    input in = one_sequence();
    in.prefix_cache_blocks = 1000000;
    return in;
}
static input sixty_four_and_a_quarter(void)
{
    input in = one_block_each();
    in.prefix_cache_blocks = PLM_PLAN_UNKNOWN;
    return in;
}

// ---- the table ----

// How the plan of a case is made.
enum by {
    COMPUTE,  // from the snapshot
    REPLAN,   // for other limits, which move workspace and states
    ESTIMATE, // from a header
};

struct mutation {
    const char *term;
    const char *fields; // of the plan's input that the case is about
    enum by by;
    input (*binds)(void);
    void (*apply)(input *in, int64_t n);
    input (*idle)(void);                      // something else binds
    void (*apply_idle)(input *in, int64_t n); // NULL: as apply
    int64_t (*fewer)(int64_t n);              // NULL: n
};

static int64_t of_840(int64_t n)
{
    return 840 - 840 / (n + 1);
}
static int64_t and_page_tables(int64_t n) // of 23 GiB of room
{
    return n + 46;
}
static int64_t and_a_quarter(int64_t n)
{
    return 5 * n;
}
static int64_t per_sequence(int64_t n) // its MiB, two of its table, and its state
{
    return 4 * n;
}
static int64_t of_windows(int64_t n) // two blocks for each of 64 sequences, and 2,048 rows
{
    return 256 * n;
}
static int64_t times_states(int64_t n) // 64 sequences and 64 checkpoints
{
    return 128 * n;
}

static const struct mutation mutations[] = {
    {"T", "T", COMPUTE, card, less_total, limited, NULL, NULL},
    {"foreign", "F", COMPUTE, card, more_foreign, limited, NULL, NULL},
    {"unheld", "unheld", COMPUTE, card, more_unheld, limited, NULL, NULL},
    {"resident", "O", COMPUTE, card, more_resident, ample, NULL, NULL},
    {"resident, limited", "O", COMPUTE, limited, more_resident, ample, NULL, NULL},
    {"resident, caged", "O", COMPUTE, caged, more_resident, ample, NULL, NULL},
    {"probe KV", "K", COMPUTE, card, less_probe, ample, NULL, NULL},
    {"own_drv", "process_use", COMPUTE, limited, more_own_drv, card, NULL, NULL},
    {"context", "context_bytes", COMPUTE, limited_blind, more_context, limited, NULL, NULL},
    {"calls", "driver_calls", COMPUTE, limited_blind, more_driver_calls, limited, NULL, NULL},
    {"operator_limit", "operator_limit", COMPUTE, limited, less_limit, card, NULL, NULL},
    {"cgroup limit", "cgroups limit", COMPUTE, caged, less_cgroup, caged, less_other_cgroup, NULL},
    {"cgroup current", "current", COMPUTE, caged, more_current, caged, more_other_current, NULL},
    {"cgroup reclaimable", "reclaimable", COMPUTE, caged, less_reclaimable, caged,
     less_other_reclaimable, NULL},
    {"cgroup levels", "n_cgroups", COMPUTE, caged, one_level_more, caged, one_wide_level_more,
     NULL},
    {"growth", "growth", COMPUTE, card, more_growth, ample, NULL, NULL},
    {"growth under the floor", "growth", COMPUTE, card, more_growth, small_device, NULL, NULL},
    {"withheld", "withheld", COMPUTE, card, more_withheld, ample, NULL, NULL},
    {"margin by share", "T", COMPUTE, no_growth, more_share, card, NULL, NULL},
    {"margin under its floor", "T", COMPUTE, no_growth, more_share, small_device, NULL, NULL},
    {"margin at its ceiling", "T", COMPUTE, no_growth, more_share, large_device, NULL, NULL},
    {"host_limit", "host_limit", COMPUTE, unified, more_host_limit, card, NULL, NULL},
    {"host_caller", "host_caller", COMPUTE, unified, more_host_caller, card, NULL, NULL},
    {"page tables", "T O", COMPUTE, unified, more_page_tables, ample_unified, NULL, NULL},
    {"unified", "unified", COMPUTE, card, become_unified, ample, NULL, and_page_tables},
    {"fraction", "memory_fraction", COMPUTE, thousand, less_fraction, ample, NULL, NULL},
    {"block bytes", "block_bytes", COMPUTE, eight_forty, larger_blocks, one_block_each, NULL,
     of_840},
    {"granularity", "g", COMPUTE, rounded, more_granularity, card, finer_granularity, NULL},
    {"cap by sequences", "limits max_sequences", COMPUTE, one_block_each, fewer_sequences, card,
     NULL, NULL},
    {"cap by context", "max_context", COMPUTE, one_sequence, less_context, card, NULL, NULL},
    {"cap by prefix blocks", "prefix_cache_blocks", COMPUTE, one_block_each, fewer_prefix_blocks,
     card, more_prefix_blocks, NULL},
    {"default prefix blocks", "prefix_cache_blocks", COMPUTE, sixty_four_and_a_quarter,
     fewer_sequences_and_a_quarter, card, NULL, and_a_quarter},
    {"default size", "max_blocks", COMPUTE, five_hundred_by_default, fewer_by_default, card,
     a_higher_default, NULL},
    {"pinned size", "pinned_tokens", COMPUTE, pinned, fewer_tokens, pinned,
     tokens_of_the_same_block, NULL},
    {"number of slabs", "max_slabs", COMPUTE, few_slabs, fewer_slabs, card, many_slabs, NULL},
    {"largest slab", "max_slab_bytes", COMPUTE, one_slab, smaller_slabs, card, larger_slab_limit,
     NULL},
    {"workspace rows", "batch_max_tokens", REPLAN, card, more_batch, ample, NULL, NULL},
    {"workspace context", "max_context", REPLAN, one_long_sequence, more_context_in_workspace,
     pinned, NULL, NULL},
    {"a sequence more", "max_sequences", REPLAN, short_requests, more_state_sequences, pinned, NULL,
     per_sequence},
    {"checkpoints", "state_checkpoints", REPLAN, hybrid, more_checkpoints, ample_hybrid, NULL,
     NULL},
    {"cached windows", "cached_windows", REPLAN, windows, more_cached_windows, ample_windows, NULL,
     NULL},
    {"another group", "n_windows windows", ESTIMATE, before_load, another_group, ample_hybrid, NULL,
     of_windows},
    {"window", "window", COMPUTE, one_window, shorter_window, pinned_window, NULL, NULL},
    {"state bytes", "state_bytes", ESTIMATE, before_load, more_state_bytes, ample_hybrid, NULL,
     times_states},
};
#define N_MUTATIONS (sizeof(mutations) / sizeof(*mutations))

// ---- tests ----

static int64_t blocks_of(const struct mutation *m, input (*base)(void),
                         void (*apply)(input *in, int64_t n), int64_t n)
{
    input in = base(), other = in;
    struct plm_plan p;
    struct plm_error err = {.msg = ""};
    int r;
    if (n > 0)
        apply(&other, n);
    if (m->by == ESTIMATE)
        plm_plan_estimate(&other, &table, &(struct plm_plan_estimate){.weight_bytes = GIB});
    if (m->by == REPLAN)
        r = plm_plan_replan(&in, &table, &other.limits, &p, &err);
    else
        r = plm_plan_compute(&other, &p, &err);
    ck_assert_msg(r == PLM_OK, "%s: %s", m->term, err.msg);
    ck_assert_msg(p.blocks > 0, "%s: no blocks in its base case", m->term);
    return p.blocks;
}

START_TEST(each_term_costs_its_blocks_where_it_binds_and_none_where_not)
{
    for (size_t i = 0; i < N_MUTATIONS; i++) {
        const struct mutation *m = &mutations[i];
        const int64_t base = blocks_of(m, m->binds, NULL, 0);
        const int64_t idle = blocks_of(m, m->idle, NULL, 0);
        for (int64_t n = 1; n <= N_MAX; n++) {
            const int64_t want = m->fewer != NULL ? m->fewer(n) : n;
            int64_t lost = base - blocks_of(m, m->binds, m->apply, n);
            ck_assert_msg(lost == want, "%s: %lld blocks more cost %lld instead of %lld", m->term,
                          (long long)n, (long long)lost, (long long)want);
            lost =
                idle - blocks_of(m, m->idle, m->apply_idle != NULL ? m->apply_idle : m->apply, n);
            ck_assert_msg(lost == 0, "%s, where it does not bind: %lld blocks more cost %lld",
                          m->term, (long long)n, (long long)lost);
        }
    }
}
END_TEST

static bool names(const char *fields, const char *field)
{
    size_t len = strlen(field);
    for (const char *at = fields; (at = strstr(at, field)) != NULL; at++) {
        if ((at == fields || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    }
    return false;
}

static bool has_case(const char *field)
{
    for (size_t i = 0; i < N_MUTATIONS; i++) {
        if (names(mutations[i].fields, field))
            return true;
    }
    return false;
}

// Checks the members of one struct of the header; returns their number.
static int check_struct(const char *text, const char *head)
{
    const char *at = strstr(text, head);
    ck_assert_msg(at != NULL, "plan.h has no %s", head);
    const char *end = strstr(at, "\n};");
    int n = 0;
    for (at = strchr(at, '\n') + 1; at < end; at = strchr(at, '\n') + 1) {
        const char *stop = at + strcspn(at, ";\n");
        const char *comment = strstr(at, "//");
        if (*stop != ';' || (comment != NULL && comment < stop))
            continue; // a comment, or the end of one
        // "int64_t T, F;" would hide F from this reader.
        ck_assert_msg(memchr(at, ',', (size_t)(stop - at)) == NULL, "one member a line: %.60s", at);
        if (stop[-1] == ']')
            while (*stop != '[')
                stop--;
        const char *start = stop;
        while (isalnum((unsigned char)start[-1]) || start[-1] == '_')
            start--;
        char name[64];
        snprintf(name, sizeof(name), "%.*s", (int)(stop - start), start);
        ck_assert_msg(has_case(name), "%s of %s has no case", name, head);
        n++;
    }
    return n;
}

START_TEST(every_field_of_the_input_has_a_case)
{
    static char text[1 << 16];
    FILE *f = fopen(PLAN_H, "rb");
    ck_assert_ptr_nonnull(f);
    size_t len = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    ck_assert_uint_lt(len, sizeof(text) - 1);
    // The numbers say that the reader above has read them all.
    ck_assert_int_eq(check_struct(text, "struct plm_plan_input {"), 28);
    ck_assert_int_eq(check_struct(text, "struct plm_plan_limits {"), 6);
    ck_assert_int_eq(check_struct(text, "struct plm_plan_cgroup {"), 3);
    ck_assert_int_eq(check_struct(text, "struct plm_plan_window {"), 2);
    ck_assert(!has_case("no_such_field"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mutation");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, each_term_costs_its_blocks_where_it_binds_and_none_where_not);
    tcase_add_test(tc, every_field_of_the_input_has_a_case);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
