// SPDX-License-Identifier: Apache-2.0
// What the Vulkan backend decides about kernels without a driver: which one runs what, grids,
// estimates, and how lists are cut.
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "backends/panel/layout.h"
#include "backends/vulkan/device.h"
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/shaders.h"
#include "backends/vulkan/split.h"
#include "tests/support/suite.h"

#define ALL_NEEDS UINT32_MAX
// No specification guarantees more workgroups on an axis.
#define AXIS_MAX 65535u

// As large as models and steps get.
#define ROWS_MAX    8192u
#define OUTPUTS_MAX 128256u
#define CONTEXT_MAX 131072u

static struct plm_vk_kernels kernels;

static void setup(void)
{
    plm_vk_kernels_init(&kernels, ALL_NEEDS, false, false);
}

// Arguments of every op with so many rows.
union args {
    unsigned char bytes[PLM_VK_PUSH_BYTES];
#define PLM_OP(NAME, name, units, tolerance) struct plm_##name##_args name;
#include "kernels/ops.def"
#undef PLM_OP
};

// Of the cache, so that loops over the types of weights meet all that it can have.
static uint32_t kv_type_of(uint32_t weight_type)
{
    return weight_type == PLM_TYPE_F32 || weight_type == PLM_TYPE_Q8_0 ? weight_type : PLM_TYPE_F16;
}

static void set_product(union args *a, enum plm_op op, uint32_t rows, uint32_t type)
{
    const bool plain = type == PLM_TYPE_F32 || type == PLM_TYPE_F16 || type == PLM_TYPE_BF16;
    const uint32_t act = plain ? PLM_ACT_F32 : PLM_ACT_Q8;
    switch (op) {
    case PLM_OP_GET_ROWS:
        a->get_rows = (struct plm_get_rows_args){
            .type = type, .rows = rows, .n_in = 16384, .n_out = OUTPUTS_MAX};
        break;
    case PLM_OP_MATMUL:
        a->matmul = (struct plm_matmul_args){.type = type,
                                             .act = act,
                                             .rows = rows,
                                             .n_in = 16384,
                                             .n_out = OUTPUTS_MAX,
                                             .ld_dst = OUTPUTS_MAX};
        break;
    case PLM_OP_QKV:
        a->qkv = (struct plm_qkv_args){.weight_q = 64,
                                       .weight_k = 64,
                                       .weight_v = 64,
                                       .rows = rows,
                                       .n_in = 16384,
                                       .heads = PLM_PAIR(128u, 128u),
                                       .head_dim = PLM_PAIR(256u, 256u),
                                       .kinds = PLM_KINDS(type, act, 0u, kv_type_of(type))};
        break;
    case PLM_OP_GLU:
        a->glu = (struct plm_glu_args){
            .type = type, .act = act, .rows = rows, .n_in = 16384, .n_out = 65536};
        break;
    default: break;
    }
}

static void set_attention(union args *a, enum plm_op op, uint32_t rows, uint32_t kv_type)
{
    switch (op) {
    case PLM_OP_ATTENTION:
        a->attention =
            (struct plm_attention_args){.table_stride = CONTEXT_MAX / PLM_KV_BLOCK_TOKENS,
                                        .rows = rows,
                                        .ld_q = 32768,
                                        .heads = 128,
                                        .kv_heads = 8,
                                        .head_dim = 256,
                                        .kv_type = kv_type};
        break;
    case PLM_OP_ATTENTION_SPLIT:
        a->attention_split =
            (struct plm_attention_split_args){.table_stride = CONTEXT_MAX / PLM_KV_BLOCK_TOKENS,
                                              .rows = rows,
                                              .ld_q = 32768,
                                              .heads = 128,
                                              .kv_heads = 8,
                                              .head_dim = 256,
                                              .kv_type = kv_type,
                                              .splits = CONTEXT_MAX / PLM_ATTN_SPLIT_TOKENS};
        break;
    case PLM_OP_ATTENTION_MERGE:
        a->attention_merge =
            (struct plm_attention_merge_args){.rows = rows,
                                              .heads = 128,
                                              .head_dim = 256,
                                              .splits = CONTEXT_MAX / PLM_ATTN_SPLIT_TOKENS};
        break;
    default: break;
    }
}

static union args args_of(enum plm_op op, uint32_t rows, uint32_t type)
{
    union args a;
    memset(&a, 0, sizeof(a));
    switch (op) {
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
                                              .kv_type = kv_type_of(type)};
        break;
    case PLM_OP_GATE_MUL:
        a.gate_mul = (struct plm_gate_mul_args){.rows = rows, .n = 65536, .ld = 65536};
        break;
    case PLM_OP_ADD: a.add = (struct plm_add_args){.rows = rows, .n = OUTPUTS_MAX}; break;
    case PLM_OP_GATHER: a.gather = (struct plm_gather_args){.rows = rows, .n = OUTPUTS_MAX}; break;
    case PLM_OP_FILL: a.fill = (struct plm_fill_args){.n_words = (uint64_t)rows << 21}; break;
    case PLM_OP_COPY: a.copy = (struct plm_copy_args){.n_words = (uint64_t)rows << 21}; break;
    case PLM_OP_VERIFY: a.verify = (struct plm_verify_args){.n_words = (uint64_t)rows << 21}; break;
    case PLM_OP_ARGMAX: a.argmax = (struct plm_argmax_args){.rows = rows, .n = OUTPUTS_MAX}; break;
    case PLM_OP_SOFT_CAP:
        a.soft_cap = (struct plm_soft_cap_args){.rows = rows, .n = OUTPUTS_MAX, .cap = 30.0f};
        break;
    default: set_product(&a, op, rows, type); set_attention(&a, op, rows, kv_type_of(type));
    }
    return a;
}

static uint32_t needs = ALL_NEEDS; // that the device of `kernels` meets

// Calls check for every op, every type that a weight can have there, and few and many rows.
static void each(void (*check)(enum plm_op op, const union args *a, uint32_t rows))
{
    static const uint32_t rows[] = {1, 2, 3, 4, 8, 9, 512, ROWS_MAX};
    for (enum plm_op op = 0; op < PLM_OP_SAMPLE; op++) // the last one, which no shader does
        for (uint32_t type = 0; type < PLM_VK_TYPES; type++)
            for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                if (plm_vk_multiplies(needs, type)) {
                    const union args a = args_of(op, rows[i], type);
                    check(op, &a, rows[i]);
                }
}

// ---- the table ----

static void has_kernel(enum plm_op op, const union args *a, uint32_t rows)
{
    struct plm_vk_kernel k;
    char name[PLM_VK_KERNEL_NAME_BYTES];
    ck_assert_msg(plm_vk_kernel_of(&kernels, op, a, 0, &k) == PLM_OK, "op %d, %u rows", (int)op,
                  rows);
    ck_assert_int_eq(plm_vk_kernel_op(&k), op);
    plm_vk_kernel_name(&k, name);
    const int16_t shader = kernels.shader[k.row][k.type];
    ck_assert_int_ge(shader, 0);
    ck_assert_str_eq(plm_vk_shaders[shader].name, name);
}

START_TEST(every_op_has_a_kernel)
{
    each(has_kernel);
}
END_TEST

START_TEST(what_a_device_lacks_is_not_chosen)
{
    // Without any optional feature every op still has one, for most types.
    plm_vk_kernels_init(&kernels, 0, false, true);
    needs = 0;
    each(has_kernel);
    needs = ALL_NEEDS;
    for (size_t row = 0; row < PLM_VK_KERNEL_ROWS_MAX; row++)
        for (size_t type = 0; type <= PLM_VK_TYPES; type++)
            if (kernels.shader[row][type] >= 0)
                ck_assert_uint_eq(plm_vk_shaders[kernels.shader[row][type]].needs, 0);
}
END_TEST

START_TEST(types_with_few_variants_need_dot_products)
{
    for (uint32_t type = 0; type < PLM_VK_TYPES; type++) {
        const bool some = (plm_panel_type(type).backends & PLM_BACKENDS_VULKAN) != 0;
        ck_assert_int_eq(plm_vk_multiplies(ALL_NEEDS, type), some);
    }
    ck_assert(plm_vk_multiplies(0, PLM_TYPE_Q4_K) && plm_vk_multiplies(0, PLM_TYPE_F16));
    ck_assert(!plm_vk_multiplies(0, PLM_TYPE_Q5_K) && !plm_vk_multiplies(0, PLM_TYPE_MXFP4));
}
END_TEST

START_TEST(types_that_no_module_has_are_refused)
{
    const union args a = args_of(PLM_OP_GET_ROWS, 1, PLM_TYPE_I32);
    const union args b = args_of(PLM_OP_GET_ROWS, 1, UINT32_MAX);
    struct plm_vk_kernel k;
    ck_assert_int_eq(plm_vk_kernel_of(&kernels, PLM_OP_GET_ROWS, &a, 0, &k), PLM_ERR_UNSUPPORTED);
    ck_assert_int_eq(plm_vk_kernel_of(&kernels, PLM_OP_GET_ROWS, &b, 0, &k), PLM_ERR_UNSUPPORTED);
}
END_TEST

static uint32_t unit_of(uint32_t head_dim, uint32_t dims, uint32_t mode, uint32_t kv_type)
{
    union args a = args_of(PLM_OP_QKV, 1, PLM_TYPE_F16);
    struct plm_vk_kernel k;
    a.qkv.head_dim = PLM_PAIR(head_dim, dims);
    a.qkv.kinds = PLM_KINDS(PLM_TYPE_F16, PLM_ACT_F32, mode, kv_type);
    ck_assert_int_eq(plm_vk_kernel_of(&kernels, PLM_OP_QKV, &a, 0, &k), PLM_OK);
    return k.spec[3];
}

// A workgroup of qkv holds the pairs that rope turns, and the 32 elements that a scale of the cache
// spans; where it can not, it takes a head whole.
START_TEST(units_of_heads_tear_nothing_apart)
{
    ck_assert_uint_eq(unit_of(128, 128, PLM_ROPE_NEOX, PLM_TYPE_F16), 32);
    ck_assert_uint_eq(unit_of(96, 96, PLM_ROPE_NORM, PLM_TYPE_F32), 32);
    ck_assert_uint_eq(unit_of(80, 80, PLM_ROPE_NORM, PLM_TYPE_F16), 0);
    ck_assert_uint_eq(unit_of(128, 64, PLM_ROPE_NEOX, PLM_TYPE_F16), 0);
    ck_assert_uint_eq(unit_of(128, 64, PLM_ROPE_NORM, PLM_TYPE_F16), 32);
    ck_assert_uint_eq(unit_of(128, 128, PLM_ROPE_NEOX, PLM_TYPE_Q8_0), 64);
    ck_assert_uint_eq(unit_of(96, 96, PLM_ROPE_NORM, PLM_TYPE_Q8_0), 0);
    ck_assert_uint_eq(unit_of(128, 64, PLM_ROPE_NEOX, PLM_TYPE_Q8_0), 0);
}
END_TEST

START_TEST(the_cache_chooses_the_module)
{
    static const enum plm_op ops[] = {PLM_OP_ROPE_KV, PLM_OP_ATTENTION, PLM_OP_ATTENTION_SPLIT};
    static const char *const names[][3] = {
        {"rope_kv-f32", "rope_kv-f16", "rope_kv-q8_0"},
        {"attention-f32", "attention-f16", "attention-q8_0"},
        {"attention_split-f32", "attention_split-f16", "attention_split-q8_0"}};
    static const uint32_t types[] = {PLM_TYPE_F32, PLM_TYPE_F16, PLM_TYPE_Q8_0};
    for (size_t i = 0; i < 9; i++) {
        const union args a = args_of(ops[i / 3], 1, types[i % 3]);
        struct plm_vk_kernel k;
        char name[PLM_VK_KERNEL_NAME_BYTES];
        ck_assert_int_eq(plm_vk_kernel_of(&kernels, ops[i / 3], &a, 0, &k), PLM_OK);
        plm_vk_kernel_name(&k, name);
        ck_assert_str_eq(name, names[i / 3][i % 3]);
        ck_assert_uint_eq(plm_vk_kernel_kv_type(&k), types[i % 3]);
    }
}
END_TEST

// ---- what a plan needs ----

struct seen {
    struct plm_vk_kernel kernels[4096];
    uint32_t n;
};

static int remember(void *ctx, const struct plm_vk_kernel *kernel)
{
    struct seen *s = ctx;
    for (uint32_t i = 0; i < s->n; i++)
        ck_assert_int_ne(memcmp(&s->kernels[i], kernel, sizeof(*kernel)), 0);
    s->kernels[s->n++] = *kernel;
    return PLM_OK;
}

static struct seen seen;

static void was_seen(enum plm_op op, const union args *a, uint32_t rows)
{
    struct plm_vk_kernel k;
    (void)rows;
    for (uint32_t v = 0; plm_vk_kernel_of(&kernels, op, a, v, &k) == PLM_OK; v++) {
        uint32_t i = 0;
        while (i < seen.n && memcmp(&seen.kernels[i], &k, sizeof(k)) != 0)
            i++;
        ck_assert_uint_lt(i, seen.n);
    }
}

START_TEST(a_plan_makes_all_that_it_launches_once)
{
    const struct plm_kernel_needs all = {.weight_types = UINT64_MAX,
                                         .kv_types = UINT64_MAX,
                                         .head_groups = UINT64_MAX,
                                         .float_acts = true};
    seen.n = 0;
    ck_assert_int_eq(plm_vk_kernels_each(&kernels, &all, remember, &seen), PLM_OK);
    each(was_seen);
}
END_TEST

START_TEST(a_plan_makes_nothing_else)
{
    const struct plm_kernel_needs one = {.weight_types = 1ull << PLM_TYPE_Q4_0,
                                         .kv_types = 1ull << PLM_TYPE_F16,
                                         .head_groups = 1ull << 3};
    seen.n = 0;
    ck_assert_int_eq(plm_vk_kernels_each(&kernels, &one, remember, &seen), PLM_OK);
    for (uint32_t i = 0; i < seen.n; i++) {
        const struct plm_vk_kernel *k = &seen.kernels[i];
        ck_assert(k->type == PLM_VK_TYPES || k->type == PLM_TYPE_Q4_0 || k->type == PLM_TYPE_F16);
        if (plm_vk_kernel_op(k) == PLM_OP_QKV) // of 64 are for scales
            ck_assert(k->spec[3] == 0 || k->spec[3] == 32);
        // Three heads of a group are four of the kernel's.
        if (plm_vk_kernel_op(k) == PLM_OP_ATTENTION)
            ck_assert_uint_eq(k->spec[0], 4);
    }
}
END_TEST

// ---- grids ----

static void fits_the_axes(enum plm_op op, const union args *a, uint32_t rows)
{
    struct plm_vk_kernel k;
    for (uint32_t v = 0; plm_vk_kernel_of(&kernels, op, a, v, &k) == PLM_OK; v++) {
        const struct plm_vk_grid g = plm_vk_kernel_grid(&k, a);
        ck_assert_msg(g.x >= 1 && g.x <= AXIS_MAX && g.y >= 1 && g.y <= AXIS_MAX && g.z >= 1 &&
                          g.z <= AXIS_MAX,
                      "op %d, %u rows: %u x %u x %u", (int)op, rows, g.x, g.y, g.z);
    }
}

START_TEST(grids_fit_the_axes)
{
    each(fits_the_axes);
}
END_TEST

START_TEST(grids_have_as_many_groups_as_the_op)
{
    struct plm_vk_kernel k;
    for (uint64_t groups = 1; groups < 1u << 20; groups = groups * 3 + 1) {
        const struct plm_fill_args a = {.n_words = groups * 16384};
        ck_assert_int_eq(plm_vk_kernel_of(&kernels, PLM_OP_FILL, &a, 0, &k), PLM_OK);
        const struct plm_vk_grid g = plm_vk_kernel_grid(&k, &a);
        ck_assert_uint_ge((uint64_t)g.x * g.y, groups);
        ck_assert_uint_lt((uint64_t)g.x * (g.y - 1), groups);
    }
}
END_TEST

// ---- estimates ----

static void grows_with_rows(enum plm_op op, const union args *a, uint32_t rows)
{
    const uint32_t type = op == PLM_OP_GET_ROWS ? a->get_rows.type
                          : op == PLM_OP_MATMUL ? a->matmul.type
                          : op == PLM_OP_QKV    ? PLM_KIND(a->qkv.kinds, 0)
                          : op == PLM_OP_GLU    ? a->glu.type
                                                : PLM_TYPE_F32;
    const union args more = args_of(op, rows + 1, type);
    const uint64_t work = plm_vk_work(op, a);
    ck_assert_uint_gt(work, 0);
    ck_assert_uint_gt(plm_vk_work(op, &more), work);
}

START_TEST(work_grows_with_rows)
{
    each(grows_with_rows);
}
END_TEST

START_TEST(the_pace_is_that_of_the_slowest_list)
{
    struct plm_vk_pace pace;
    const uint64_t gib = 1ull << 30;
    plm_vk_pace_init(&pace, 0);
    ck_assert_uint_eq(plm_vk_pace_limit(&pace), UINT64_MAX);
    plm_vk_pace_init(&pace, 1000);
    const uint64_t cautious = plm_vk_pace_limit(&pace);
    // Too short, and made of launches: neither tells anything.
    plm_vk_pace_learn(&pace, gib, 1, 999999);
    plm_vk_pace_learn(&pace, gib, 1025, 10000000);
    ck_assert_uint_eq(plm_vk_pace_limit(&pace), cautious);
    plm_vk_pace_learn(&pace, gib, 1024, 16000000); // 64 GiB/s
    ck_assert_uint_eq(plm_vk_pace_limit(&pace), (gib / 16) * 1000 / 2);
    plm_vk_pace_learn(&pace, gib, 1, 8000000);
    ck_assert_uint_eq(plm_vk_pace_limit(&pace), (gib / 16) * 1000 / 2);
    plm_vk_pace_learn(&pace, gib, 1, 30000000);
    ck_assert_uint_eq(plm_vk_pace_limit(&pace), (gib / 32) * 1000 / 2);
    // A slow list is forgotten after many that were not.
    for (uint32_t i = 0; i < 63; i++)
        plm_vk_pace_learn(&pace, gib, 1, 8000000);
    ck_assert_uint_eq(plm_vk_pace_limit(&pace), (gib / 32) * 1000 / 2);
    plm_vk_pace_learn(&pace, gib, 1, 8000000);
    ck_assert_uint_eq(plm_vk_pace_limit(&pace), (gib / 16) * 1000 / 2);
    // Whatever a clock says, a part holds something.
    plm_vk_pace_learn(&pace, gib, 1, INT64_MAX);
    ck_assert_uint_gt(plm_vk_pace_limit(&pace), 0);
}
END_TEST

// ---- cutting ----

START_TEST(parts_keep_the_limit)
{
    struct plm_vk_cut cut = {.limit = 100};
    ck_assert_uint_eq(plm_vk_cut_add(&cut, 60), 0);
    ck_assert_uint_eq(plm_vk_cut_add(&cut, 40), 0);
    ck_assert_uint_eq(plm_vk_cut_add(&cut, 1), 1);
    ck_assert_uint_eq(plm_vk_cut_add(&cut, 1000), 2); // alone
    ck_assert_uint_eq(plm_vk_cut_add(&cut, 0), 3);
    ck_assert_uint_eq(cut.n_parts, 4);
    // Of no work at all a part still has no more than its command buffer has held.
    const uint32_t most = plm_vk_part_dispatches(1, 1000);
    cut = (struct plm_vk_cut){.limit = 100};
    for (uint32_t i = 0; i < most; i++)
        ck_assert_uint_eq(plm_vk_cut_add(&cut, 0), 0);
    ck_assert_uint_eq(plm_vk_cut_add(&cut, 0), 1);
    // Without a watchdog there is one part.
    cut = (struct plm_vk_cut){.limit = UINT64_MAX};
    for (uint32_t i = 0; i < 10 * most; i++)
        ck_assert_uint_eq(plm_vk_cut_add(&cut, UINT64_MAX / 2), 0);
    ck_assert_uint_eq(plm_vk_parts(0, 1000), 1);
    ck_assert_uint_ge(plm_vk_parts(1, 1000) * (uint64_t)most, 1000);
}
END_TEST

static void tiles(struct plm_vk_grid g, uint32_t pieces)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < pieces; i++) {
        const struct plm_vk_piece p = plm_vk_piece(g, pieces, i);
        const bool z = g.z > 1, y = !z && g.y > 1, x = !z && !y;
        ck_assert_uint_eq(p.base.x, x ? next : 0);
        ck_assert_uint_eq(p.base.y, y ? next : 0);
        ck_assert_uint_eq(p.base.z, z ? next : 0);
        ck_assert_uint_eq(p.size.x, x ? p.size.x : g.x);
        ck_assert_uint_eq(p.size.y, y ? p.size.y : g.y);
        ck_assert_uint_eq(p.size.z, z ? p.size.z : g.z);
        const uint32_t size = z ? p.size.z : y ? p.size.y : p.size.x;
        ck_assert_uint_ge(size, 1);
        next += size;
    }
    ck_assert_uint_eq(next, g.z > 1 ? g.z : g.y > 1 ? g.y : g.x);
}

START_TEST(pieces_tile_the_grid)
{
    static const struct plm_vk_grid grids[] = {{1, 1, 1},     {7, 1, 1},  {32768, 1, 1},
                                               {32768, 5, 1}, {3, 40, 1}, {3, 40, 512}};
    for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); i++)
        for (uint64_t work = 1; work < 1u << 20; work = work * 5 + 1) {
            const uint32_t n = plm_vk_pieces(64, work, grids[i]);
            ck_assert_uint_ge(n, 1);
            ck_assert(n == 1 ? work <= 64 || grids[i].x * grids[i].y * grids[i].z == 1 : work > 64);
            tiles(grids[i], n);
        }
    ck_assert_uint_eq(plm_vk_pieces(UINT64_MAX, UINT64_MAX, grids[2]), 1);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("all");
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, every_op_has_a_kernel);
    tcase_add_test(tc, what_a_device_lacks_is_not_chosen);
    tcase_add_test(tc, types_with_few_variants_need_dot_products);
    tcase_add_test(tc, types_that_no_module_has_are_refused);
    tcase_add_test(tc, units_of_heads_tear_nothing_apart);
    tcase_add_test(tc, the_cache_chooses_the_module);
    tcase_add_test(tc, a_plan_makes_all_that_it_launches_once);
    tcase_add_test(tc, a_plan_makes_nothing_else);
    tcase_add_test(tc, grids_fit_the_axes);
    tcase_add_test(tc, grids_have_as_many_groups_as_the_op);
    tcase_add_test(tc, work_grows_with_rows);
    tcase_add_test(tc, the_pace_is_that_of_the_slowest_list);
    tcase_add_test(tc, parts_keep_the_limit);
    tcase_add_test(tc, pieces_tile_the_grid);
    Suite *suite = suite_create("vulkan_kernels");
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
