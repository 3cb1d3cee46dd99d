// SPDX-License-Identifier: Apache-2.0
// The table of CUDA's and HIP's kernels: whole, unambiguous, and within what drivers launch.
#include <check.h>
#include <string.h>

#include "backends/gpudrv/kernels.h"
#include "backends/panel/layout.h"
#include "tests/support/suite.h"

// ---- arguments ----

union args {
#define PLM_OP(NAME, name, units, tolerance) struct plm_##name##_args name;
#include "kernels/ops.def"
#undef PLM_OP
};

// The largest that a model or a step has: outputs of a vocabulary, rows of a step, tokens of a
// context.
enum { OUTPUTS_MAX = 1 << 20, ROWS_MAX = 65536, CONTEXT_MAX = 1 << 20 };

// What an op is asked for.
struct want {
    enum plm_op op;
    uint32_t rows;
    uint32_t type; // of the weight
    uint32_t kv_type;
    uint32_t act;
};

static bool plain(uint32_t type)
{
    return plm_panel_type(type).block == 1;
}

static void set_attention(union args *a, const struct want *w)
{
    if (w->op == PLM_OP_ATTENTION)
        a->attention =
            (struct plm_attention_args){.table_stride = CONTEXT_MAX / PLM_KV_BLOCK_TOKENS,
                                        .rows = w->rows,
                                        .ld_q = 32768,
                                        .heads = 128,
                                        .kv_heads = 8,
                                        .head_dim = 256,
                                        .kv_type = w->kv_type};
    if (w->op == PLM_OP_ATTENTION_SPLIT)
        a->attention_split =
            (struct plm_attention_split_args){.table_stride = CONTEXT_MAX / PLM_KV_BLOCK_TOKENS,
                                              .rows = w->rows,
                                              .ld_q = 32768,
                                              .heads = 128,
                                              .kv_heads = 8,
                                              .head_dim = 256,
                                              .kv_type = w->kv_type,
                                              .splits = CONTEXT_MAX / PLM_ATTN_SPLIT_TOKENS};
    if (w->op == PLM_OP_ATTENTION_MERGE)
        a->attention_merge =
            (struct plm_attention_merge_args){.rows = w->rows,
                                              .heads = 128,
                                              .head_dim = 256,
                                              .splits = CONTEXT_MAX / PLM_ATTN_SPLIT_TOKENS};
}

static void set_product(union args *a, const struct want *w)
{
    if (w->op == PLM_OP_GET_ROWS)
        a->get_rows = (struct plm_get_rows_args){
            .type = w->type, .rows = w->rows, .n_in = 16384, .n_out = OUTPUTS_MAX};
    if (w->op == PLM_OP_MATMUL)
        a->matmul = (struct plm_matmul_args){.type = w->type,
                                             .act = w->act,
                                             .rows = w->rows,
                                             .n_in = 65536,
                                             .n_out = OUTPUTS_MAX,
                                             .ld_dst = OUTPUTS_MAX};
    if (w->op == PLM_OP_QKV)
        a->qkv = (struct plm_qkv_args){.weight_q = 64,
                                       .weight_k = 64,
                                       .weight_v = 64,
                                       .rows = w->rows,
                                       .n_in = 16384,
                                       .ld_q = 32768,
                                       .heads = PLM_PAIR(128u, 128u),
                                       .head_dim = PLM_PAIR(256u, 256u),
                                       .kinds = PLM_KINDS(w->type, w->act, 0u, w->kv_type)};
    if (w->op == PLM_OP_GLU)
        a->glu = (struct plm_glu_args){
            .type = w->type, .act = w->act, .rows = w->rows, .n_in = 16384, .n_out = 65536};
}

static union args args_of(const struct want *w)
{
    const uint32_t rows = w->rows;
    union args a;
    memset(&a, 0, sizeof(a));
    switch (w->op) {
    case PLM_OP_RMS_NORM: a.rms_norm = (struct plm_rms_norm_args){.rows = rows, .n = 16384}; break;
    case PLM_OP_QUANTIZE: a.quantize = (struct plm_quantize_args){.rows = rows, .n = 65536}; break;
    case PLM_OP_ROPE_TABLE:
        a.rope_table = (struct plm_rope_table_args){.rows = rows, .dims = 256};
        break;
    case PLM_OP_ROPE_KV:
        a.rope_kv = (struct plm_rope_kv_args){.rows = rows,
                                              .ld = 98304,
                                              .heads = 128,
                                              .kv_heads = 128,
                                              .head_dim = 256,
                                              .dims = 256,
                                              .kv_type = w->kv_type};
        break;
    case PLM_OP_GATE_MUL:
        a.gate_mul = (struct plm_gate_mul_args){.rows = rows, .n = 65536, .ld = 65536};
        break;
    case PLM_OP_SOFT_CAP:
        a.soft_cap = (struct plm_soft_cap_args){.rows = rows, .n = OUTPUTS_MAX};
        break;
    case PLM_OP_ADD: a.add = (struct plm_add_args){.rows = rows, .n = OUTPUTS_MAX}; break;
    case PLM_OP_GATHER: a.gather = (struct plm_gather_args){.rows = rows, .n = OUTPUTS_MAX}; break;
    case PLM_OP_FILL: a.fill = (struct plm_fill_args){.n_words = (uint64_t)rows << 21}; break;
    case PLM_OP_COPY: a.copy = (struct plm_copy_args){.n_words = (uint64_t)rows << 21}; break;
    case PLM_OP_VERIFY: a.verify = (struct plm_verify_args){.n_words = (uint64_t)rows << 21}; break;
    case PLM_OP_ARGMAX: a.argmax = (struct plm_argmax_args){.rows = rows, .n = OUTPUTS_MAX}; break;
    case PLM_OP_SAMPLE: a.sample = (struct plm_sample_args){.rows = rows, .n = OUTPUTS_MAX}; break;
    default: set_product(&a, w); set_attention(&a, w);
    }
    return a;
}

// Calls check for every op of the table, every type of weight and cache, activations that go with
// it, and few and many rows.
static void each(void (*check)(const struct want *w, const union args *a))
{
    static const uint32_t rows[] = {1, 2, 3, 8, 9, 64, 65, 512, ROWS_MAX};
    static const uint32_t kv[] = {PLM_TYPE_F16, PLM_TYPE_F32, PLM_TYPE_Q8_0};
    for (uint32_t i = 0; i < PLM_OPS * 64u * 9u * 3u * 2u; i++) {
        const struct want w = {.op = (enum plm_op)(i % PLM_OPS),
                               .type = i / PLM_OPS % 64,
                               .rows = rows[i / PLM_OPS / 64 % 9],
                               .kv_type = kv[i / PLM_OPS / 64 / 9 % 3],
                               .act = i / PLM_OPS / 64 / 9 / 3};
        if ((plm_panel_type(w.type).backends & PLM_BACKENDS_GPU) == 0 ||
            (w.act == PLM_ACT_Q8 && plain(w.type)))
            continue;
        const union args a = args_of(&w);
        check(&w, &a);
    }
}

// ---- the table ----

// A forward takes these for steps of few rows alone.
static bool for_few_rows(enum plm_op op)
{
    return op == PLM_OP_QKV || op == PLM_OP_GLU || op == PLM_OP_ATTENTION_SPLIT;
}

static void has_a_kernel(const struct want *w, const union args *a)
{
    if (w->rows > PLM_CUDA_FEW_ROWS && for_few_rows(w->op))
        return;
    ck_assert_msg(plm_gpu_kernel_of(w->op, a, 0) != NULL,
                  "no kernel for op %d, type %u, cache %u, act %u, %u rows", (int)w->op, w->type,
                  w->kv_type, w->act, w->rows);
}

START_TEST(every_op_has_a_kernel_for_every_type)
{
    each(has_a_kernel);
}
END_TEST

static void fits_its_arguments(const struct want *w, const union args *a)
{
    const struct plm_gpu_kernel *k;
    for (uint32_t i = 0; (k = plm_gpu_kernel_of(w->op, a, i)) != NULL; i++) {
        ck_assert_uint_eq(k->op, w->op);
        ck_assert(k->type == PLM_ANY_TYPE || k->type == w->type || k->type == w->kv_type);
        ck_assert(k->act == PLM_ANY_ACT || k->act == w->act);
        ck_assert(k->when(a));
        ck_assert_uint_lt(i, PLM_GPU_KERNELS);
    }
}

START_TEST(kernels_fit_their_arguments)
{
    each(fits_its_arguments);
}
END_TEST

static void has_a_grid(const struct want *w, const union args *a)
{
    const struct plm_gpu_kernel *k;
    for (uint32_t i = 0; (k = plm_gpu_kernel_of(w->op, a, i)) != NULL; i++) {
        struct plm_gpu_grid grid;
        ck_assert_msg(plm_gpu_kernel_grid(k, a, &grid) == PLM_OK, "%s: %u rows", k->symbol,
                      w->rows);
        ck_assert_msg(grid.x > 0 && grid.y > 0 && grid.z > 0, "%s: %u rows", k->symbol, w->rows);
    }
}

START_TEST(grids_are_within_what_drivers_take)
{
    each(has_a_grid);
}
END_TEST

START_TEST(symbols_are_unique_and_lead_back)
{
    for (size_t i = 0; i < PLM_GPU_KERNELS; i++) {
        const struct plm_gpu_kernel *k = &plm_gpu_kernels[i];
        ck_assert_ptr_eq(plm_gpu_kernel_named(k->symbol), k);
        ck_assert_int_eq(strncmp(k->symbol, "plm_", 4), 0);
        ck_assert(k->threads == 128 || k->threads == 256);
        ck_assert_uint_le(k->args_bytes, 128);
        ck_assert_uint_eq(k->args_bytes % 8, 0);
    }
    ck_assert_ptr_null(plm_gpu_kernel_named("plm_no_such_kernel"));
}
END_TEST

// Two panels of a head hold a group of 32 elements of k and its pairs, but not where pairs lie
// apart.
START_TEST(a_group_of_k_is_of_one_block)
{
    static const struct {
        uint32_t mode, kv_type;
        uint64_t weight_k;
        uint32_t dims;
        const char *symbol;
    } cases[] = {{PLM_ROPE_NORM, PLM_TYPE_Q8_0, 64, 128, "plm_qkv_gemv_q4_k"},
                 {PLM_ROPE_NEOX, PLM_TYPE_F16, 64, 128, "plm_qkv_gemv_q4_k"},
                 {PLM_ROPE_NEOX, PLM_TYPE_Q8_0, 64, 128, "plm_qkv_full_heads_q4_k"},
                 {PLM_ROPE_NEOX, PLM_TYPE_Q8_0, 64, 0, "plm_qkv_gemv_q4_k"},
                 {PLM_ROPE_NEOX, PLM_TYPE_Q8_0, 0, 128, "plm_qkv_gemv_q4_k"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct plm_qkv_args a = {.weight_q = 64,
                                       .weight_k = cases[i].weight_k,
                                       .weight_v = 64,
                                       .rows = 1,
                                       .n_in = 256,
                                       .heads = PLM_PAIR(4u, 2u),
                                       .head_dim = PLM_PAIR(128u, cases[i].dims),
                                       .kinds =
                                           PLM_KINDS((uint32_t)PLM_TYPE_Q4_K, (uint32_t)PLM_ACT_Q8,
                                                     cases[i].mode, cases[i].kv_type)};
        ck_assert_str_eq(plm_gpu_kernel_of(PLM_OP_QKV, &a, 0)->symbol, cases[i].symbol);
    }
}
END_TEST

// ---- limits ----

static struct plm_gpu_grid wanted_grid;

static struct plm_gpu_grid grid_as_wanted(const void *args)
{
    (void)args;
    return wanted_grid;
}

START_TEST(a_larger_grid_is_refused)
{
    static const struct plm_gpu_kernel k = {.grid = grid_as_wanted};
    struct plm_gpu_grid grid;
    wanted_grid =
        (struct plm_gpu_grid){PLM_GPU_GRID_X_MAX, PLM_GPU_GRID_YZ_MAX, PLM_GPU_GRID_YZ_MAX};
    ck_assert_int_eq(plm_gpu_kernel_grid(&k, NULL, &grid), PLM_OK);
    uint64_t *const sides[] = {&wanted_grid.x, &wanted_grid.y, &wanted_grid.z};
    for (int i = 0; i < 3; i++) {
        ++*sides[i];
        ck_assert_int_eq(plm_gpu_kernel_grid(&k, NULL, &grid), PLM_ERR_LIMIT);
        --*sides[i];
    }
}
END_TEST

// ---- a plan's kernels ----

struct seen {
    const struct plm_kernel_needs *needs;
    bool kernels[PLM_GPU_KERNELS];
    uint32_t n;
};

static int note(void *ctx, const struct plm_gpu_kernel *k)
{
    struct seen *s = ctx;
    ck_assert(!s->kernels[k - plm_gpu_kernels]);
    s->kernels[k - plm_gpu_kernels] = true;
    s->n++;
    return PLM_OK;
}

static struct seen seen;

static void is_among_the_needed(const struct want *w, const union args *a)
{
    const struct plm_kernel_needs *n = seen.needs;
    const bool asked = (n->weight_types >> w->type & 1) != 0 &&
                       (n->kv_types >> w->kv_type & 1) != 0 &&
                       (w->act == PLM_ACT_Q8 || plain(w->type) || n->float_acts);
    const struct plm_gpu_kernel *k;
    for (uint32_t i = 0; asked && (k = plm_gpu_kernel_of(w->op, a, i)) != NULL; i++)
        ck_assert_msg(seen.kernels[k - plm_gpu_kernels], "%s is not loaded", k->symbol);
}

START_TEST(a_plan_names_all_that_it_may_launch)
{
    static const uint64_t weights[] = {1u << PLM_TYPE_F32, 1u << PLM_TYPE_Q8_0 | 1u << PLM_TYPE_F32,
                                       1u << PLM_TYPE_Q4_K | 1u << PLM_TYPE_Q6_K, ~UINT64_C(0)};
    static const uint64_t caches[] = {1u << PLM_TYPE_F16, 1u << PLM_TYPE_F32, 1u << PLM_TYPE_Q8_0,
                                      1u << PLM_TYPE_F16 | 1u << PLM_TYPE_F32};
    for (uint32_t i = 0; i < 4 * 4 * 2; i++) {
        const struct plm_kernel_needs needs = {.weight_types = weights[i % 4],
                                               .kv_types = caches[i / 4 % 4],
                                               .head_groups = ~UINT64_C(0),
                                               .float_acts = i / 16 == 1};
        seen = (struct seen){.needs = &needs};
        ck_assert_int_eq(plm_gpu_kernels_each(&needs, note, &seen), PLM_OK);
        each(is_among_the_needed);
        for (size_t k = 0; k < PLM_GPU_KERNELS; k++)
            ck_assert_msg(
                !seen.kernels[k] || plm_gpu_kernels[k].type == PLM_ANY_TYPE ||
                    ((needs.weight_types | needs.kv_types) >> plm_gpu_kernels[k].type & 1),
                "%s is loaded, and nothing needs it", plm_gpu_kernels[k].symbol);
    }
}
END_TEST

static int refuse(void *ctx, const struct plm_gpu_kernel *k)
{
    (void)k;
    ++*(uint32_t *)ctx;
    return PLM_ERR_NOMEM_HOST;
}

START_TEST(a_visit_that_fails_ends_it)
{
    const struct plm_kernel_needs all = {~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), true};
    uint32_t n = 0;
    ck_assert_int_eq(plm_gpu_kernels_each(&all, refuse, &n), PLM_ERR_NOMEM_HOST);
    ck_assert_uint_eq(n, 1);
    seen = (struct seen){.needs = &all};
    ck_assert_int_eq(plm_gpu_kernels_each(&all, note, &seen), PLM_OK);
    ck_assert_uint_eq(seen.n, PLM_GPU_KERNELS);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gpu_kernels");
    TCase *tc = tcase_create("table");
    tcase_add_test(tc, every_op_has_a_kernel_for_every_type);
    tcase_add_test(tc, kernels_fit_their_arguments);
    tcase_add_test(tc, grids_are_within_what_drivers_take);
    tcase_add_test(tc, symbols_are_unique_and_lead_back);
    tcase_add_test(tc, a_group_of_k_is_of_one_block);
    tcase_add_test(tc, a_larger_grid_is_refused);
    tcase_add_test(tc, a_plan_names_all_that_it_may_launch);
    tcase_add_test(tc, a_visit_that_fails_ends_it);
    suite_add_tcase(s, tc);
    return suite_run(s);
}
