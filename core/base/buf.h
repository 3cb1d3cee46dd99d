// SPDX-License-Identifier: Apache-2.0
// A growable byte string with a host budget behind it, and read-only slices.
#ifndef PLM_BASE_BUF_H
#define PLM_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/alloc.h"

// Bytes that somebody else owns; not NUL-terminated.
struct plm_slice {
    const char *ptr;
    size_t len;
};

// Slice of a string literal.
#define PLM_SLICE(literal) ((struct plm_slice){(literal), sizeof(literal) - 1})

bool plm_slice_eq(struct plm_slice a, struct plm_slice b);
bool plm_slice_eq_str(struct plm_slice a, const char *s);

// data is always NUL-terminated once anything was appended. A failed append sets `failed` and all
// later appends do nothing, so that a run of appends needs one check at its end.
struct plm_buf {
    struct plm_host *host;
    enum plm_host_owner owner;
    char *data;
    size_t len;
    size_t cap;
    size_t max;  // 0: no limit of its own; else appends beyond it fail
    bool failed; // host budget, malloc, or max
};

void plm_buf_init(struct plm_buf *buf, struct plm_host *host, enum plm_host_owner owner);
void plm_buf_finish(struct plm_buf *buf); // frees; the buffer may be used again
void plm_buf_clear(struct plm_buf *buf);  // keeps the memory
// Room for n bytes more, and no more than that; appends within it can not fail.
bool plm_buf_reserve(struct plm_buf *buf, size_t n);
bool plm_buf_append(struct plm_buf *buf, const void *bytes, size_t n);
bool plm_buf_append_str(struct plm_buf *buf, const char *s);
bool plm_buf_append_slice(struct plm_buf *buf, struct plm_slice s);
bool plm_buf_append_char(struct plm_buf *buf, char c);
// Appends text as a JSON string, with its quotes. Each byte that is not UTF-8 becomes U+FFFD.
bool plm_buf_append_json(struct plm_buf *buf, struct plm_slice text);
bool plm_buf_printf(struct plm_buf *buf, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
