// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/split.h"

#include "backends/vulkan/kernels.h"
#include "core/base/checked.h"

// Command buffers of a list under a watchdog: each has held PART_DISPATCHES once, and a step may
// last SPARE_PARTS times the watchdog's limit. Beyond, parts become longer.
#define PART_DISPATCHES 64u
#define SPARE_PARTS     64u
// Before anything was measured: 1 GB/s, which any device reaches.
#define FIRST_RATE UINT64_C(1000000)
// Lists that are shorter, or whose dispatches are smaller on average, tell more of launches than of
// work.
#define LEARN_NS       INT64_C(1000000)
#define LEARN_DISPATCH (UINT64_C(1) << 20)

uint32_t plm_vk_parts(uint32_t limit_ms, uint32_t max_dispatches)
{
    return limit_ms == 0 ? 1
                         : (uint32_t)plm_div_ceil(max_dispatches, PART_DISPATCHES) + SPARE_PARTS;
}

uint32_t plm_vk_part_dispatches(uint32_t limit_ms, uint32_t max_dispatches)
{
    return limit_ms == 0 || max_dispatches < PART_DISPATCHES ? max_dispatches : PART_DISPATCHES;
}

// ---- pace ----

// Lists in a row that were at least twice as fast as the pace before it doubles: some seconds of
// steps.
#define FASTER_LISTS 64u

void plm_vk_pace_init(struct plm_vk_pace *pace, uint32_t limit_ms)
{
    *pace = (struct plm_vk_pace){.limit_ms = limit_ms, .rate = FIRST_RATE};
}

uint64_t plm_vk_pace_limit(const struct plm_vk_pace *pace)
{
    uint64_t limit;
    if (pace->limit_ms == 0 || !plm_mul_u64(pace->rate, pace->limit_ms, &limit))
        return UINT64_MAX;
    // Half of what the rate gives: dispatches differ in how well the estimate holds.
    return limit > 2 ? limit / 2 : 1;
}

void plm_vk_pace_learn(struct plm_vk_pace *pace, uint64_t work, uint32_t dispatches,
                       int64_t elapsed_ns)
{
    if (elapsed_ns < LEARN_NS || work / LEARN_DISPATCH < dispatches)
        return;
    // A power of two, so that recorded lists are not cut anew at every small change.
    const uint64_t rate = work / ((uint64_t)elapsed_ns / 1000000);
    const uint64_t rounded = UINT64_C(1) << (63 - __builtin_clzll(rate | 1));
    // At once down, slowly up: a list too long ends the device, one too short costs little, and a
    // process that was stopped for a while has not seen a slow device.
    pace->faster = rounded > pace->rate ? pace->faster + 1 : 0;
    if (!pace->measured || rounded < pace->rate)
        pace->rate = rounded;
    if (pace->faster == FASTER_LISTS) {
        pace->rate *= 2;
        pace->faster = 0;
    }
    pace->measured = true;
}

// ---- cutting ----

uint32_t plm_vk_cut_add(struct plm_vk_cut *cut, uint64_t work)
{
    const bool full =
        cut->n == PART_DISPATCHES || cut->work > cut->limit || work > cut->limit - cut->work;
    if (cut->n_parts == 0 || (full && cut->limit != UINT64_MAX)) {
        cut->n_parts++;
        cut->work = 0;
        cut->n = 0;
    }
    cut->work += work;
    cut->n++;
    return cut->n_parts - 1;
}

// A grid is cut along its highest axis: shaders find their place by the size of the lower ones.
uint32_t plm_vk_pieces(uint64_t limit, uint64_t work, struct plm_vk_grid grid)
{
    const uint32_t extent = grid.z > 1 ? grid.z : grid.y > 1 ? grid.y : grid.x;
    const uint64_t pieces = plm_div_ceil(work, limit);
    return pieces <= 1 ? 1 : pieces < extent ? (uint32_t)pieces : extent;
}

struct plm_vk_piece plm_vk_piece(struct plm_vk_grid grid, uint32_t pieces, uint32_t index)
{
    struct plm_vk_piece ret = {.index = index, .size = grid};
    uint32_t *base = grid.z > 1 ? &ret.base.z : grid.y > 1 ? &ret.base.y : &ret.base.x;
    uint32_t *size = grid.z > 1 ? &ret.size.z : grid.y > 1 ? &ret.size.y : &ret.size.x;
    const uint64_t extent = *size;
    *base = (uint32_t)(extent * index / pieces);
    *size = (uint32_t)(extent * (index + 1) / pieces) - *base;
    return ret;
}

// ---- estimates ----

// Multiply-adds that take as long as a byte of memory: an integrated GPU with 1 to 2 TFLOP/s beside
// 50 to 100 GB/s has 10, discrete ones more.
#define MACS_PER_BYTE 8u

static uint64_t product_work(uint64_t n_in, uint64_t n_out, uint32_t rows, uint32_t act)
{
    // A byte per weight at most for quantised types, four for floats: what their file has.
    const uint64_t weights = n_in * n_out;
    const uint64_t bytes = weights * (act == PLM_ACT_F32 ? 4 : 1);
    return bytes + weights / MACS_PER_BYTE * rows + rows * n_out * 4;
}

static uint64_t qkv_work(const struct plm_qkv_args *a)
{
    const uint64_t heads = PLM_LOW(a->heads) + 2 * PLM_HIGH(a->heads);
    return product_work(a->n_in, heads * PLM_LOW(a->head_dim), a->rows, PLM_KIND(a->kinds, 1));
}

// Every row is taken to see all that the table of its sequence could hold, or its window.
static uint64_t attention_work(uint32_t table_stride, uint32_t window, uint32_t rows,
                               uint64_t heads, uint64_t kv_heads, uint32_t head_dim)
{
    const uint64_t held = (uint64_t)table_stride * PLM_KV_BLOCK_TOKENS;
    const uint64_t tokens = window != 0 && window < held ? window : held;
    const uint64_t pairs = tokens * rows;
    return pairs * kv_heads * head_dim / 4 + pairs * heads * head_dim * 2 / MACS_PER_BYTE;
}

// Bytes that an op reads and writes where all that is optional is there, but for weights and what
// it reaches through memory.
static uint64_t direct_bytes(enum plm_op op, const void *args)
{
    enum { IN, OUT, INOUT, WEIGHT, CACHE };
    uint64_t n = 0;
#define PLM_SPAN_WEIGHT(type, n_in, n_out) 0
#define PLM_SPAN(NAME, name, mode, field, bytes, rows, stride)                                     \
    if (op == PLM_OP_##NAME && (mode) != WEIGHT) {                                                 \
        const struct plm_##name##_args *a = args;                                                  \
        (void)a;                                                                                   \
        n += (uint64_t)(bytes) * (rows) * ((mode) == INOUT ? 2 : 1);                               \
    }
#define PLM_SPANS(NAME, name, mode, n, m, address, bytes)
#include "kernels/spans.def"
    return n;
}

// What it costs to make an element of rope's table, in bytes of memory.
#define ANGLE_BYTES 60u

uint64_t plm_vk_work(enum plm_op op, const void *args)
{
    union {
        const void *any;
        const struct plm_matmul_args *matmul;
        const struct plm_rope_table_args *rope_table;
        const struct plm_attention_args *attention;
        const struct plm_glu_args *glu;
        const struct plm_attention_split_args *split;
    } a = {args};
    switch (op) {
    case PLM_OP_MATMUL:
        return product_work(a.matmul->n_in, a.matmul->n_out, a.matmul->rows, a.matmul->act);
    case PLM_OP_QKV: return qkv_work(args);
    case PLM_OP_GLU:
        return product_work(a.glu->n_in, 2 * (uint64_t)a.glu->n_out, a.glu->rows, a.glu->act);
    case PLM_OP_ATTENTION:
        return attention_work(a.attention->table_stride, a.attention->window, a.attention->rows,
                              a.attention->heads, a.attention->kv_heads, a.attention->head_dim);
    case PLM_OP_ATTENTION_SPLIT:
        return attention_work(a.split->table_stride, a.split->window, a.split->rows, a.split->heads,
                              a.split->kv_heads, a.split->head_dim);
    case PLM_OP_ROPE_TABLE:
        return (uint64_t)a.rope_table->rows * a.rope_table->dims * ANGLE_BYTES +
               direct_bytes(op, args);
    default: return direct_bytes(op, args);
    }
}
