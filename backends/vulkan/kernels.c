// SPDX-License-Identifier: Apache-2.0
// Which kernel runs which op when: one table. Several rows may fit the same arguments; those that a
// device runs are alternatives of the same bits, the preferred one first. Grids and constants are
// those of shaders/README.md.
#include "backends/vulkan/kernels.h"

#include <stdio.h>
#include <string.h>

#include "backends/panel/layout.h"
#include "backends/vulkan/shaders.h"
#include "core/base/checked.h"

// Workgroups are counted in one dimension and folded into two.
#define FOLD 32768u
// Elements, elements and words per workgroup.
#define PIECE 1024u
#define GROUP 256u
#define WORDS 16384u
#define HEADS 8u // of a workgroup of rope_kv
// Output rows of a panel.
#define PANEL 16u
// Rows of activations that a product by lanes takes at once on a CPU: LLVM is busy for seconds with
// the kernel for 8.
#define FAST_COMPILE_ROWS 2u
// Rows times panels that an invocation of a product by lanes may have sums for, and the rows of qkv
// that takes heads whole.
#define LANES_SUMS     16u
#define QKV_WHOLE_ROWS 4u
// Heads times rows that a workgroup of attention takes.
#define ATTENTION_LANES 8u

// Of which type a module is built.
enum typed { UNTYPED, BY_WEIGHT, BY_KV };
// Where a module's constants come from.
enum spec { FIXED, ROWS_FIRST, ROWS_AND_UNIT, HEADS_AND_ROWS };
// The activations that a product reads.
enum acts { ANY_ACT, Q8_ACT, F32_ACT };
// How it multiplies. Dot product instructions take the place of plain ones where there are any;
// half precision, a numerics class of its own, that of single where it is asked for.
enum math { ANY_MATH, Q8_MATH, DOT_MATH, F32_MATH, F16_MATH };

struct row {
    enum plm_op op;
    const char *shader; // its name in the registry, less the type
    enum typed typed;
    struct plm_vk_grid (*grid)(const void *args, const uint32_t *spec);
    enum spec spec;
    enum acts acts;
    enum math math;
    uint32_t min_rows, max_rows; // 0: any
    uint32_t n_spec;
    uint32_t constants[PLM_VK_SPEC_MAX]; // those that do not follow from the arguments
    uint32_t subgroup;                   // the size that it needs; 0: any
    bool fast_compile;                   // for drivers on a CPU, and there instead of the others
};

// ---- grids ----

static struct plm_vk_grid fold(uint64_t groups)
{
    const uint64_t x = groups < FOLD ? groups : FOLD;
    return (struct plm_vk_grid){(uint32_t)x, (uint32_t)plm_div_ceil(groups, x), 1};
}

// Workgroups of rows that are cut into pieces.
static struct plm_vk_grid pieces(uint32_t rows, uint64_t n, uint32_t piece)
{
    return fold(rows * plm_div_ceil(n, piece));
}

// Defines grid_NAME as an expression over an op's arguments.
#define GRID(name, expression)                                                                     \
    static struct plm_vk_grid grid_##name(const void *args, const uint32_t *spec)                  \
    {                                                                                              \
        const struct plm_##name##_args *a = args;                                                  \
        (void)spec;                                                                                \
        return expression;                                                                         \
    }

GRID(get_rows, pieces(a->rows, a->n_in, PIECE))
GRID(rms_norm, fold(a->rows))
GRID(quantize, pieces(a->rows, a->n, PIECE))
GRID(rope_table, pieces(a->rows, a->dims / 2, GROUP))
GRID(rope_kv, fold(plm_div_ceil(a->rows *((uint64_t)a->heads + a->kv_heads), HEADS)))
GRID(gate_mul, pieces(a->rows, a->n, PIECE))
GRID(add, fold(plm_div_ceil((uint64_t)a->rows * a->n, PIECE)))
GRID(soft_cap, fold(plm_div_ceil((uint64_t)a->rows * a->n, PIECE)))
GRID(gather, pieces(a->rows, a->n, PIECE))
GRID(fill, fold(plm_div_ceil(a->n_words, WORDS)))
GRID(copy, fold(plm_div_ceil(a->n_words, WORDS)))
GRID(verify, fold(plm_div_ceil(a->n_words, WORDS)))

static struct plm_vk_grid attention(uint32_t rows, uint32_t heads, uint32_t kv_heads,
                                    uint32_t splits, const uint32_t *spec)
{
    return (struct plm_vk_grid){
        (uint32_t)plm_div_ceil(rows, spec[1]),
        kv_heads * (uint32_t)plm_div_ceil(heads / kv_heads, spec[0]),
        splits,
    };
}

GRID(attention, attention(a->rows, a->heads, a->kv_heads, 1, spec))
GRID(attention_split, attention(a->rows, a->heads, a->kv_heads, a->splits, spec))
GRID(attention_merge, pieces(a->rows, (uint64_t)a->heads * a->head_dim, PIECE))
GRID(argmax, fold(a->rows))

// Products by lanes: spec is rows, panels, blocks ahead. Units are what is done for each such group
// of rows.
#define LANES_GRID(name, units)                                                                    \
    static struct plm_vk_grid lanes_##name(const void *args, const uint32_t *spec)                 \
    {                                                                                              \
        const struct plm_##name##_args *a = args;                                                  \
        return fold(plm_div_ceil(a->rows, spec[0]) * (units));                                     \
    }

// Pairs of panels that a workgroup of glu makes 32 outputs of.
#define GLU_OUTPUTS 32u
// Outputs that a workgroup of qkv takes of a head, half of them half a head further, where it does
// not take it whole (0): a panel at each place, or what has one scale in the cache.
#define QKV_PANELS 32u
#define QKV_SCALES 64u

LANES_GRID(matmul, plm_div_ceil(plm_div_ceil(a->n_out, PANEL), spec[1]))
LANES_GRID(glu, plm_div_ceil(a->n_out, GLU_OUTPUTS))

static uint64_t qkv_units(const struct plm_qkv_args *a, const uint32_t *spec)
{
    const uint64_t heads = (a->weight_q != 0 ? PLM_LOW(a->heads) : 0) +
                           (a->weight_k != 0 ? PLM_HIGH(a->heads) : 0) +
                           (uint64_t)(a->weight_v != 0 ? PLM_HIGH(a->heads) : 0);
    return spec[3] == 0 ? heads : heads * (PLM_LOW(a->head_dim) / spec[3]);
}

LANES_GRID(qkv, qkv_units(a, spec))

// Products by tiles: spec is rows, panels, groups of rows, invocations (a quarter panel each).
static struct plm_vk_grid tile_matmul(const void *args, const uint32_t *spec)
{
    const struct plm_matmul_args *a = args;
    const uint64_t tile_panels = (uint64_t)spec[3] / spec[2] / 4 * spec[1];
    return fold(plm_div_ceil(a->rows, spec[2] * spec[0]) *
                plm_div_ceil(plm_div_ceil(a->n_out, PANEL), tile_panels));
}

static struct plm_vk_grid coopmat_matmul(const void *args, const uint32_t *spec)
{
    const struct plm_matmul_args *a = args;
    (void)spec;
    return fold(plm_div_ceil(a->rows, 32) * plm_div_ceil(a->n_out, 4 * PANEL));
}

// ---- the table ----

// An op with a module of its name.
#define PLAIN(NAME, name) .op = PLM_OP_##NAME, .shader = #name, .grid = grid_##name
// A product by lanes, P panels at once and A blocks ahead.
#define LANES(NAME, name, module, P, A)                                                            \
    .op = PLM_OP_##NAME, .shader = module, .typed = BY_WEIGHT, .grid = lanes_##name,               \
    .spec = ROWS_FIRST, .n_spec = 3, .constants = {0, P, A}
// The same for qkv, whose fourth constant is the outputs that a workgroup takes of a head.
#define QKV(module)                                                                                \
    .op = PLM_OP_QKV, .shader = module, .typed = BY_WEIGHT, .grid = lanes_qkv,                     \
    .spec = ROWS_AND_UNIT, .n_spec = 4, .constants = {0, 2, 1}

// A product by tiles of R rows and P panels, S groups of rows and W invocations.
#define TILE(math, R, P, S, W)                                                                     \
    .op = PLM_OP_MATMUL, .shader = "matmul-tile-" math, .typed = BY_WEIGHT, .grid = tile_matmul,   \
    .n_spec = 4, .constants = {R, P, S, W}
// On a CPU every component of a load costs alike and nothing is shared, so that tiles pay for one
// row already; on a GPU, from more rows on than lanes take at once.
#define CPU_ROW(math)  TILE(math, 1, 4, 1, 16), .max_rows = 1, .fast_compile = true
#define CPU_ROWS(math) TILE(math, 2, 2, 1, 16), .min_rows = 2, .fast_compile = true
#define MANY(math)     TILE(math, 4, 1, 8, 128), .min_rows = PLM_VULKAN_FEW_ROWS + 1

static const struct row table[] = {
    {PLAIN(GET_ROWS, get_rows), .typed = BY_WEIGHT},
    {PLAIN(RMS_NORM, rms_norm)},
    {PLAIN(QUANTIZE, quantize)},
    {PLAIN(ROPE_TABLE, rope_table)},
    {PLAIN(ROPE_KV, rope_kv), .typed = BY_KV},
    {PLAIN(ATTENTION, attention), .typed = BY_KV, .spec = HEADS_AND_ROWS, .n_spec = 2},
    {PLAIN(ATTENTION_SPLIT, attention_split), .typed = BY_KV, .spec = HEADS_AND_ROWS, .n_spec = 2},
    {PLAIN(ATTENTION_MERGE, attention_merge)},
    {PLAIN(GATE_MUL, gate_mul)},
    {PLAIN(ADD, add)},
    {PLAIN(SOFT_CAP, soft_cap)},
    {PLAIN(GATHER, gather)},
    {PLAIN(ARGMAX, argmax)},
    {PLAIN(FILL, fill)},
    {PLAIN(COPY, copy)},
    {PLAIN(VERIFY, verify)},

    {CPU_ROW("dot"), .acts = Q8_ACT, .math = DOT_MATH},
    {CPU_ROWS("dot"), .acts = Q8_ACT, .math = DOT_MATH},
    {MANY("dot"), .acts = Q8_ACT, .math = DOT_MATH},
    {CPU_ROW("q8"), .acts = Q8_ACT, .math = Q8_MATH},
    {CPU_ROWS("q8"), .acts = Q8_ACT, .math = Q8_MATH},
    {MANY("q8"), .acts = Q8_ACT, .math = Q8_MATH},
    {CPU_ROW("f16"), .acts = F32_ACT, .math = F16_MATH},
    {CPU_ROWS("f16"), .acts = F32_ACT, .math = F16_MATH},
    {MANY("f16"), .acts = F32_ACT, .math = F16_MATH},
    {CPU_ROW("f32"), .acts = F32_ACT, .math = F32_MATH},
    {CPU_ROWS("f32"), .acts = F32_ACT, .math = F32_MATH},
    {MANY("f32"), .acts = F32_ACT, .math = F32_MATH},
    {LANES(MATMUL, matmul, "matmul-lanes-dot", 1, 2), .acts = Q8_ACT, .math = DOT_MATH},
    {LANES(MATMUL, matmul, "matmul-lanes-dot", 2, 1), .acts = Q8_ACT, .math = DOT_MATH},
    {LANES(MATMUL, matmul, "matmul-lanes-q8", 1, 2), .acts = Q8_ACT, .math = Q8_MATH},
    {LANES(MATMUL, matmul, "matmul-lanes-q8", 2, 1), .acts = Q8_ACT, .math = Q8_MATH},
    {LANES(MATMUL, matmul, "matmul-lanes-f16", 1, 2), .acts = F32_ACT, .math = F16_MATH},
    {LANES(MATMUL, matmul, "matmul-lanes-f16", 2, 1), .acts = F32_ACT, .math = F16_MATH},
    {LANES(MATMUL, matmul, "matmul-lanes-f32", 1, 2), .acts = F32_ACT, .math = F32_MATH},
    {LANES(MATMUL, matmul, "matmul-lanes-f32", 2, 1), .acts = F32_ACT, .math = F32_MATH},
    {.op = PLM_OP_MATMUL,
     .shader = "matmul-coopmat",
     .typed = BY_WEIGHT,
     .grid = coopmat_matmul,
     .acts = Q8_ACT,
     .min_rows = PLM_VULKAN_FEW_ROWS + 1,
     .subgroup = 32},

    {LANES(GLU, glu, "glu-dot", 4, 1), .acts = Q8_ACT, .math = DOT_MATH},
    {LANES(GLU, glu, "glu-q8", 4, 1), .acts = Q8_ACT, .math = Q8_MATH},
    {LANES(GLU, glu, "glu-f16", 4, 1), .acts = F32_ACT, .math = F16_MATH},
    {LANES(GLU, glu, "glu-f32", 4, 1), .acts = F32_ACT, .math = F32_MATH},
    {QKV("qkv-dot"), .acts = Q8_ACT, .math = DOT_MATH},
    {QKV("qkv-q8"), .acts = Q8_ACT, .math = Q8_MATH},
    {QKV("qkv-f16"), .acts = F32_ACT, .math = F16_MATH},
    {QKV("qkv-f32"), .acts = F32_ACT, .math = F32_MATH},
};
#define ROWS (sizeof(table) / sizeof(table[0]))
_Static_assert(ROWS <= PLM_VK_KERNEL_ROWS_MAX, "every row has its place in struct plm_vk_kernels");

// ---- names ----

// As modules spell them; NULL: no type of a module.
static const char *type_name(uint32_t type)
{
    switch (type) {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    case PLM_TYPE_##NAME:                                                                          \
        return (PLM_BACKENDS_##BACKENDS & PLM_BACKENDS_VULKAN) != 0 ? #name : NULL;
#include "kernels/types.def"
    default: return NULL;
    }
}

void plm_vk_kernel_name(const struct plm_vk_kernel *kernel, char ret[PLM_VK_KERNEL_NAME_BYTES])
{
    if (kernel->type == PLM_VK_TYPES)
        snprintf(ret, PLM_VK_KERNEL_NAME_BYTES, "%s", table[kernel->row].shader);
    else
        snprintf(ret, PLM_VK_KERNEL_NAME_BYTES, "%s-%s", table[kernel->row].shader,
                 type_name(kernel->type));
}

// ---- what a device runs ----

static int16_t find_shader(const struct plm_vk_kernel *kernel, uint32_t needs_met)
{
    char name[PLM_VK_KERNEL_NAME_BYTES];
    plm_vk_kernel_name(kernel, name);
    for (size_t i = 0; i < plm_vk_n_shaders; i++)
        if (strcmp(plm_vk_shaders[i].name, name) == 0)
            return (plm_vk_shaders[i].needs & ~needs_met) == 0 ? (int16_t)i : -1;
    return -1;
}

static void drop(struct plm_vk_kernels *kernels, enum plm_op op, enum math math, uint16_t type)
{
    for (uint16_t i = 0; i < ROWS; i++)
        if (table[i].op == op && table[i].math == math)
            kernels->shader[i][type] = -1;
}

// Whether row i does the same as an earlier one that the device has.
static bool repeats(const struct plm_vk_kernels *kernels, uint16_t i, uint16_t type)
{
    for (uint16_t k = 0; k < i; k++)
        if (table[k].op == table[i].op && table[k].acts == table[i].acts &&
            (table[k].min_rows == table[i].min_rows ||
             (table[k].fast_compile && !table[i].fast_compile)) &&
            kernels->shader[k][type] >= 0)
            return true;
    return false;
}

void plm_vk_kernels_init(struct plm_vk_kernels *ret, uint32_t needs_met, bool f16_math,
                         bool fast_compile)
{
    ret->fast_compile = fast_compile;
    memset(ret->shader, -1, sizeof(ret->shader));
    for (uint16_t i = 0; i < ROWS; i++)
        for (uint16_t type = 0; type <= PLM_VK_TYPES; type++)
            if (table[i].typed == UNTYPED ? type == PLM_VK_TYPES : type_name(type) != NULL)
                ret->shader[i][type] =
                    find_shader(&(struct plm_vk_kernel){.row = i, .type = type}, needs_met);
    for (uint16_t i = 0; i < ROWS; i++)
        for (uint16_t type = 0; type <= PLM_VK_TYPES; type++) {
            if ((table[i].math == F16_MATH && !f16_math) ||
                (table[i].fast_compile && !fast_compile))
                ret->shader[i][type] = -1;
            if (ret->shader[i][type] < 0)
                continue;
            if (table[i].math == F16_MATH)
                drop(ret, table[i].op, F32_MATH, type);
            if (table[i].math == DOT_MATH)
                drop(ret, table[i].op, Q8_MATH, type);
            if (fast_compile && repeats(ret, i, type))
                ret->shader[i][type] = -1;
        }
}

bool plm_vk_multiplies(uint32_t needs_met, uint32_t type)
{
    const enum acts acts = plm_panel_type(type).block == 1 ? F32_ACT : Q8_ACT;
    for (uint16_t i = 0; i < ROWS && type_name(type) != NULL; i++)
        if (table[i].op == PLM_OP_MATMUL && table[i].acts == acts && table[i].math != F16_MATH &&
            find_shader(&(struct plm_vk_kernel){.row = i, .type = (uint16_t)type}, needs_met) >= 0)
            return true;
    return false;
}

uint64_t plm_vk_kernels_ops(const struct plm_vk_kernels *kernels)
{
    uint64_t ops = 0;
    for (uint16_t row = 0; row < ROWS; row++)
        for (uint16_t type = 0; type <= PLM_VK_TYPES; type++)
            if (kernels->shader[row][type] >= 0)
                ops |= UINT64_C(1) << table[row].op;
    return ops;
}

// ---- choosing ----

// What of an op's arguments decides which row runs it, and how it is specialised.
struct facts {
    uint32_t weight_type, kv_type;
    uint32_t act;
    uint32_t rows;
    uint32_t group; // query heads of a KV head
    uint32_t unit;  // qkv: outputs of a head that a workgroup takes
};

static uint32_t unit_for(uint32_t kv_type)
{
    return kv_type == PLM_TYPE_Q8_0 ? QKV_SCALES : QKV_PANELS;
}

// The unit, or 0: it would tear apart a pair that rope turns, or what a norm of heads sums.
static uint32_t unit_of(const struct plm_qkv_args *a)
{
    const uint32_t unit = unit_for(PLM_KIND(a->kinds, 3));
    const bool fits =
        a->norms == 0 && PLM_LOW(a->head_dim) % unit == 0 &&
        (PLM_KIND(a->kinds, 2) == PLM_ROPE_NORM || PLM_LOW(a->head_dim) == PLM_HIGH(a->head_dim));
    return fits ? unit : 0;
}

static struct facts facts_of(enum plm_op op, const void *args)
{
    if (op == PLM_OP_GET_ROWS) {
        const struct plm_get_rows_args *a = args;
        return (struct facts){.weight_type = a->type, .rows = a->rows};
    }
    if (op == PLM_OP_MATMUL) {
        const struct plm_matmul_args *a = args;
        return (struct facts){.weight_type = a->type, .act = a->act, .rows = a->rows};
    }
    if (op == PLM_OP_QKV) {
        const struct plm_qkv_args *a = args;
        return (struct facts){.weight_type = PLM_KIND(a->kinds, 0),
                              .kv_type = PLM_KIND(a->kinds, 3),
                              .act = PLM_KIND(a->kinds, 1),
                              .rows = a->rows,
                              .unit = unit_of(a)};
    }
    if (op == PLM_OP_GLU) {
        const struct plm_glu_args *a = args;
        return (struct facts){.weight_type = a->type, .act = a->act, .rows = a->rows};
    }
    if (op == PLM_OP_ROPE_KV) {
        const struct plm_rope_kv_args *a = args;
        return (struct facts){.kv_type = a->kv_type, .rows = a->rows};
    }
    if (op == PLM_OP_ATTENTION) {
        const struct plm_attention_args *a = args;
        return (struct facts){
            .kv_type = a->kv_type, .rows = a->rows, .group = a->heads / a->kv_heads};
    }
    if (op == PLM_OP_ATTENTION_SPLIT) {
        const struct plm_attention_split_args *a = args;
        return (struct facts){
            .kv_type = a->kv_type, .rows = a->rows, .group = a->heads / a->kv_heads};
    }
    return (struct facts){.rows = 1};
}

static uint16_t type_of(const struct row *row, const struct facts *f)
{
    const uint32_t type = row->typed == BY_WEIGHT ? f->weight_type
                          : row->typed == BY_KV   ? f->kv_type
                                                  : PLM_VK_TYPES;
    return (uint16_t)(type < PLM_VK_TYPES ? type : PLM_VK_TYPES);
}

static bool fits(const struct row *row, const struct facts *f)
{
    const enum acts acts = f->act == PLM_ACT_Q8 ? Q8_ACT : F32_ACT;
    return (row->acts == ANY_ACT || row->acts == acts) && f->rows >= row->min_rows &&
           (row->max_rows == 0 || f->rows <= row->max_rows);
}

// The power of two at or above n, at most `most`, which is one.
static uint32_t power_of_two(uint32_t n, uint32_t most)
{
    uint32_t p = 1;
    while (p < n && p < most)
        p *= 2;
    return p;
}

static void specialise(const struct plm_vk_kernels *kernels, const struct row *row,
                       const struct facts *f, uint32_t *spec)
{
    memcpy(spec, row->constants, sizeof(row->constants));
    if (row->spec == ROWS_FIRST || row->spec == ROWS_AND_UNIT)
        spec[0] =
            power_of_two(f->rows, kernels->fast_compile ? FAST_COMPILE_ROWS : PLM_VULKAN_FEW_ROWS);
    if (row->spec == ROWS_AND_UNIT) {
        spec[3] = f->unit;
        if (f->unit == 0 && spec[0] > QKV_WHOLE_ROWS)
            spec[0] = QKV_WHOLE_ROWS;
    }
    if (row->spec == ROWS_FIRST || row->spec == ROWS_AND_UNIT)
        spec[1] = spec[1] * spec[0] > LANES_SUMS ? LANES_SUMS / spec[0] : spec[1];
    if (row->spec == HEADS_AND_ROWS) {
        spec[0] = power_of_two(f->group, ATTENTION_LANES);
        spec[1] = f->rows <= PLM_VULKAN_FEW_ROWS ? 1 : ATTENTION_LANES / spec[0];
    }
}

int plm_vk_kernel_of(const struct plm_vk_kernels *kernels, enum plm_op op, const void *args,
                     uint32_t index, struct plm_vk_kernel *ret)
{
    const struct facts f = facts_of(op, args);
    for (uint16_t i = 0; i < ROWS; i++) {
        const struct row *row = &table[i];
        const uint16_t type = type_of(row, &f);
        if (row->op != op || kernels->shader[i][type] < 0 || !fits(row, &f) || index-- > 0)
            continue;
        *ret = (struct plm_vk_kernel){.row = i, .type = type};
        specialise(kernels, row, &f, ret->spec);
        return PLM_OK;
    }
    return PLM_ERR_UNSUPPORTED;
}

struct plm_vk_grid plm_vk_kernel_grid(const struct plm_vk_kernel *kernel, const void *args)
{
    return table[kernel->row].grid(args, kernel->spec);
}

// ---- all of a plan ----

typedef int visit_fn(void *ctx, const struct plm_vk_kernel *kernel);

// Whether a plan with these needs runs a row built for this type.
static bool needed(const struct row *row, uint32_t type, const struct plm_kernel_needs *needs)
{
    const bool floats = plm_panel_type(type).codes == PLM_CODES_ELEMENTS;
    if (row->acts == F32_ACT && !floats && !needs->float_acts)
        return false;
    return row->typed == UNTYPED ||
           ((row->typed == BY_WEIGHT ? needs->weight_types : needs->kv_types) >> type & 1) != 0;
}

// Calls visit for a row specialised for these facts, unless the specialisation before was the same.
static int visit_facts(const struct plm_vk_kernels *kernels, struct plm_vk_kernel *k,
                       const struct facts *f, visit_fn *visit, void *ctx)
{
    const struct plm_vk_kernel before = *k;
    specialise(kernels, &table[k->row], f, k->spec);
    return memcmp(&before, k, sizeof(before)) == 0 ? PLM_OK : visit(ctx, k);
}

// Those of qkv. The needs do not tell heads' shapes, which may want them whole.
static int each_unit(const struct plm_vk_kernels *kernels, struct plm_vk_kernel *k,
                     const struct plm_kernel_needs *needs, visit_fn *visit, void *ctx)
{
    const uint64_t scales = UINT64_C(1) << PLM_TYPE_Q8_0;
    const struct {
        uint32_t unit;
        bool needed;
    } units[] = {{0, true},
                 {QKV_PANELS, (needs->kv_types & ~scales) != 0},
                 {QKV_SCALES, (needs->kv_types & scales) != 0}};
    int r = PLM_OK;
    for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
        struct facts f = {.rows = 1, .unit = units[u].unit};
        for (; units[u].needed && f.rows <= PLM_VULKAN_FEW_ROWS && r == PLM_OK; f.rows *= 2)
            r = visit_facts(kernels, k, &f, visit, ctx);
    }
    return r;
}

// Every specialisation of a row, by what the arguments can be.
static int each_spec(const struct plm_vk_kernels *kernels, uint16_t i, uint16_t type,
                     const struct plm_kernel_needs *needs, visit_fn *visit, void *ctx)
{
    struct plm_vk_kernel k = {.row = i, .type = type, .spec = {UINT32_MAX}};
    struct facts f = {.rows = 1, .group = 1};
    uint32_t seen = 0; // numbers of heads, which are powers of two
    int r = PLM_OK;
    if (table[i].spec == ROWS_AND_UNIT)
        return each_unit(kernels, &k, needs, visit, ctx);
    if (table[i].spec != HEADS_AND_ROWS) {
        for (; f.rows <= PLM_VULKAN_FEW_ROWS && r == PLM_OK; f.rows *= 2)
            r = visit_facts(kernels, &k, &f, visit, ctx);
        return r;
    }
    for (f.group = 1; f.group < 64 && r == PLM_OK; f.group++) {
        const uint32_t heads = power_of_two(f.group, ATTENTION_LANES);
        if ((needs->head_groups >> f.group & 1) == 0 || (seen & heads) != 0)
            continue;
        seen |= heads;
        for (f.rows = 1; f.rows <= 2 * PLM_VULKAN_FEW_ROWS && r == PLM_OK; f.rows *= 2)
            r = visit_facts(kernels, &k, &f, visit, ctx);
    }
    return r;
}

int plm_vk_kernels_each(const struct plm_vk_kernels *kernels, const struct plm_kernel_needs *needs,
                        visit_fn *visit, void *ctx)
{
    int r = PLM_OK;
    for (uint16_t i = 0; i < ROWS; i++)
        for (uint16_t type = 0; type <= PLM_VK_TYPES && r == PLM_OK; type++)
            if (kernels->shader[i][type] >= 0 && needed(&table[i], type, needs))
                r = each_spec(kernels, i, type, needs, visit, ctx);
    return r;
}

// ---- a kernel's facts ----

enum plm_op plm_vk_kernel_op(const struct plm_vk_kernel *kernel)
{
    return table[kernel->row].op;
}

uint32_t plm_vk_kernel_specs(const struct plm_vk_kernel *kernel)
{
    return table[kernel->row].n_spec;
}

uint32_t plm_vk_kernel_subgroup(const struct plm_vk_kernel *kernel)
{
    return table[kernel->row].subgroup;
}

uint32_t plm_vk_kernel_rows(const struct plm_vk_kernel *kernel)
{
    const struct row *row = &table[kernel->row];
    const uint32_t rows = row->spec == FIXED            ? 1
                          : row->spec == HEADS_AND_ROWS ? kernel->spec[1]
                                                        : kernel->spec[0];
    return rows > row->min_rows ? rows : row->min_rows;
}

enum plm_act plm_vk_kernel_act(const struct plm_vk_kernel *kernel)
{
    return table[kernel->row].acts == Q8_ACT ? PLM_ACT_Q8 : PLM_ACT_F32;
}

uint32_t plm_vk_kernel_kv_type(const struct plm_vk_kernel *kernel)
{
    return table[kernel->row].typed == BY_KV ? kernel->type : PLM_TYPE_F16;
}
