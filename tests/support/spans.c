// SPDX-License-Identifier: Apache-2.0
#include "tests/support/spans.h"

#include "backends/panel/layout.h"

struct visit {
    span_visit *fn;
    void *ctx;
};

static bool show(const struct visit *v, const char *field, enum span_mode mode, uint64_t address,
                 uint64_t bytes, uint64_t rows, uint64_t stride)
{
    const struct span span = {field, address, bytes, rows, stride, mode};
    return address == 0 || bytes == 0 || rows == 0 || v->fn(v->ctx, &span);
}

static uint64_t weight_bytes(uint32_t type, uint32_t n_in, uint32_t n_out)
{
    const uint64_t panels = ((uint64_t)n_out + PLM_PANEL_ROWS - 1) / PLM_PANEL_ROWS;
    return panels * plm_panel_of(type, n_in).panel_bytes;
}

#define PLM_SPAN_WEIGHT(type, n_in, n_out) weight_bytes(type, n_in, n_out)
#define PLM_SPAN_POS(i)                    PLM_SPAN_I32(a->pos, i)
#define PLM_SPAN_SEQ(i)                    PLM_SPAN_I32(a->seq, i)
#define PLM_SPAN_I32(address, i)           (((const int32_t *)(uintptr_t)(address))[i])
#define PLM_SPAN_U64(address, i)           (((const uint64_t *)(uintptr_t)(address))[i])

// The lines of one op follow each other only in the file: each becomes a function, and a table says
// whose it is.
typedef bool span_line(const struct visit *v, const void *args);

#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)

#define PLM_SPAN(NAME, name, MODE, field, bytes, rows, stride)                                     \
    static bool JOIN(line_, __LINE__)(const struct visit *v, const void *args)                     \
    {                                                                                              \
        const struct plm_##name##_args *a = args;                                                  \
        return show(v, #field, SPAN_##MODE, a->field, (uint64_t)(bytes), (uint64_t)(rows),         \
                    (uint64_t)(stride));                                                           \
    }
#define PLM_SPANS(NAME, name, MODE, n, m, address, bytes)                                          \
    static bool JOIN(line_, __LINE__)(const struct visit *v, const void *args)                     \
    {                                                                                              \
        const struct plm_##name##_args *a = args;                                                  \
        for (uint64_t i = 0; i < (uint64_t)(n); i++) {                                             \
            for (uint64_t j = 0; j < (uint64_t)(m); j++) {                                         \
                if (!show(v, #address, SPAN_##MODE, address, (uint64_t)(bytes), 1, 0))             \
                    return false;                                                                  \
            }                                                                                      \
        }                                                                                          \
        return true;                                                                               \
    }
#include "kernels/spans.def"
#undef PLM_SPAN
#undef PLM_SPANS

static const struct {
    enum plm_op op;
    span_line *line;
    bool direct;
} LINES[] = {
#define PLM_SPAN(NAME, name, MODE, field, bytes, rows, stride)                                     \
    {PLM_OP_##NAME, JOIN(line_, __LINE__), true},
#define PLM_SPANS(NAME, name, MODE, n, m, address, bytes)                                          \
    {PLM_OP_##NAME, JOIN(line_, __LINE__), false},
#include "kernels/spans.def"
#undef PLM_SPAN
#undef PLM_SPANS
};

static bool visit_lines(enum plm_op op, const void *args, const struct visit *v, bool direct)
{
    for (size_t i = 0; i < sizeof(LINES) / sizeof(LINES[0]); i++) {
        if (LINES[i].op == op && (LINES[i].direct || !direct) && !LINES[i].line(v, args))
            return false;
    }
    return true;
}

bool spans_of(enum plm_op op, const void *args, span_visit *visit, void *ctx)
{
    return visit_lines(op, args, &(struct visit){visit, ctx}, false);
}

bool spans_direct(enum plm_op op, const void *args, span_visit *visit, void *ctx)
{
    return visit_lines(op, args, &(struct visit){visit, ctx}, true);
}

// Both repeat at the same stride: the pieces touch where they touch within one period, and some
// rows of both share it.
static bool same_stride(const struct span *a, const struct span *b)
{
    const uint64_t s = a->stride;
    for (uint64_t i = 0; i < b->rows; i++) {
        const uint64_t at = b->address + i * s; // against the rows of a around it
        const uint64_t first = at > a->address ? (at - a->address) / s : 0;
        for (uint64_t r = first > 0 ? first - 1 : 0; r <= first + 1 && r < a->rows; r++) {
            const uint64_t piece = a->address + r * s;
            if (piece < at + b->bytes && at < piece + a->bytes)
                return true;
        }
        if (at > a->address + span_extent(a))
            return false;
    }
    return false;
}

bool span_overlaps(const struct span *a, const struct span *b)
{
    if (a->address >= b->address + span_extent(b) || b->address >= a->address + span_extent(a))
        return false;
    if (a->rows > 1 && b->rows > 1 && a->stride == b->stride && a->bytes <= a->stride &&
        b->bytes <= b->stride)
        return same_stride(a, b);
    return true;
}
