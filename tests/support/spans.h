// SPDX-License-Identifier: Apache-2.0
// What a dispatch reads and writes (kernels/spans.def), and whether two spans touch.
#ifndef PLM_TESTS_SPANS_H
#define PLM_TESTS_SPANS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/backend.h"

enum span_mode { SPAN_IN, SPAN_OUT, SPAN_INOUT, SPAN_WEIGHT, SPAN_CACHE };

// `rows` pieces of `bytes` bytes, `stride` apart.
struct span {
    const char *field; // static text: of the arguments, or through what it was reached
    uint64_t address;
    uint64_t bytes; // at least 1
    uint64_t rows;  // at least 1
    uint64_t stride;
    enum span_mode mode;
};

// Is shown each span. False ends the visit: what is reached through a bad span is not looked at.
typedef bool span_visit(void *ctx, const struct span *span);
// False: the visit was ended. Addresses are host pointers: arrays of slots and tables are read.
bool spans_of(enum plm_op op, const void *args, span_visit *visit, void *ctx);
// Those that the arguments name themselves: no memory is read.
bool spans_direct(enum plm_op op, const void *args, span_visit *visit, void *ctx);

static inline bool span_writes(const struct span *s)
{
    return s->mode == SPAN_OUT || s->mode == SPAN_INOUT;
}

// From the first byte to behind the last one.
static inline uint64_t span_extent(const struct span *s)
{
    return (s->rows - 1) * s->stride + s->bytes;
}

// Whether some byte is in both.
bool span_overlaps(const struct span *a, const struct span *b);

#endif
