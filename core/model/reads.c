// SPDX-License-Identifier: Apache-2.0
// The bytes that each op reads, from its arguments alone: the spans of kernels/spans.def, in which
// memory is what the count takes for granted: every row is a sequence of its own, at the last
// position of the context.
#include "core/base/checked.h"
#include "core/model/explain.h"

// What a count needs beside the arguments.
struct reading {
    uint32_t context;
    plm_layout_fn *layout;
    const void *layout_ctx;
    struct plm_reads reads;
    int result; // of the first layout that is not known
};

enum span_mode { IN, OUT, INOUT, WEIGHT, CACHE };

static uint64_t weight_bytes(struct reading *r, uint32_t type, uint32_t n_in, uint32_t n_out)
{
    struct plm_weight_layout lay = {0};
    const int result = r->layout(r->layout_ctx, (enum plm_type)type, n_in, n_out, &lay);
    if (r->result == PLM_OK)
        r->result = result;
    return lay.bytes;
}

static void add(struct reading *r, enum span_mode mode, uint64_t bytes)
{
    if (mode == WEIGHT)
        r->reads.weight_bytes += bytes;
    else if (mode == CACHE)
        r->reads.kv_bytes += bytes;
    else if (mode != OUT)
        r->reads.act_bytes += bytes;
}

#define PLM_SPAN_WEIGHT(type, n_in, n_out) weight_bytes(r, type, n_in, n_out)
#define PLM_SPAN_POS(i)                    (r->context - 1)
#define PLM_SPAN_SEQ(i)                    (i)
#define PLM_SPAN_I32(address, i)           0
#define PLM_SPAN_U64(address, i)           1 // some address

#define PLM_SPAN(NAME, name, mode, field, bytes, rows, stride)                                     \
    if (op == PLM_OP_##NAME) {                                                                     \
        const struct plm_##name##_args *a = args;                                                  \
        if (a->field != 0)                                                                         \
            add(r, mode, (uint64_t)(bytes) * (rows));                                              \
    }
// The pieces of one i are alike.
#define PLM_SPANS(NAME, name, mode, n, m, address, bytes)                                          \
    if (op == PLM_OP_##NAME) {                                                                     \
        const struct plm_##name##_args *a = args;                                                  \
        const uint64_t j = 0;                                                                      \
        for (uint64_t i = 0; i < (uint64_t)(n); i++)                                               \
            if ((address) + j != 0)                                                                \
                add(r, mode, (uint64_t)(m) * (bytes));                                             \
    }
static void add_spans(struct reading *r, enum plm_op op, const void *args)
{
#include "kernels/spans.def"
}

// Of a table of rows those that are looked up, not all that could be.
static void reduce_rows(struct reading *r, const struct plm_get_rows_args *a)
{
    if (a->n_out > 0)
        r->reads.weight_bytes = plm_div_ceil(r->reads.weight_bytes, a->n_out) * a->rows;
}

int plm_op_reads(enum plm_op op, const void *args, uint32_t context, plm_layout_fn *layout,
                 const void *layout_ctx, struct plm_reads *ret)
{
    struct reading r = {.context = context, .layout = layout, .layout_ctx = layout_ctx};
    if ((unsigned)op >= PLM_OPS)
        return PLM_ERR_INVALID;
    add_spans(&r, op, args);
    if (op == PLM_OP_GET_ROWS)
        reduce_rows(&r, args);
    if (r.result == PLM_OK)
        *ret = r.reads;
    return r.result;
}

uint64_t plm_reads_bytes(const struct plm_reads *reads)
{
    return reads->weight_bytes + reads->kv_bytes + reads->act_bytes;
}

const char *plm_op_name(enum plm_op op)
{
    static const char *const names[PLM_OPS] = {
#define PLM_OP(NAME, name, units, tolerance) [PLM_OP_##NAME] = #name,
#include "kernels/ops.def"
#undef PLM_OP
    };
    return (unsigned)op < PLM_OPS ? names[op] : "?";
}
