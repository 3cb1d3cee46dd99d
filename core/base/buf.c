// SPDX-License-Identifier: Apache-2.0
#include "core/base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/text.h"
#include "core/base/utf8.h"

bool plm_slice_eq(struct plm_slice a, struct plm_slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool plm_slice_eq_str(struct plm_slice a, const char *s)
{
    return plm_slice_eq(a, (struct plm_slice){s, strlen(s)});
}

void plm_buf_init(struct plm_buf *buf, struct plm_host *host, enum plm_host_owner owner)
{
    *buf = (struct plm_buf){.host = host, .owner = owner};
}

void plm_buf_finish(struct plm_buf *buf)
{
    plm_free(buf->host, buf->data);
    buf->data = NULL;
    buf->len = buf->cap = 0;
    buf->failed = false;
}

void plm_buf_clear(struct plm_buf *buf)
{
    buf->len = 0;
    buf->failed = false;
    if (buf->data != NULL)
        buf->data[0] = '\0';
}

static bool fail(struct plm_buf *buf)
{
    buf->failed = true;
    return false;
}

// Makes room for n more bytes and a NUL; with `exact` not a byte more, else with some to spare.
static bool grow(struct plm_buf *buf, size_t n, bool exact)
{
    uint64_t need;
    if (buf->failed)
        return false;
    if (!plm_add_u64(buf->len, n, &need) || !plm_add_u64(need, 1, &need) ||
        (buf->max != 0 && need - 1 > buf->max))
        return fail(buf);
    if (need <= buf->cap)
        return true;
    uint64_t cap = buf->cap < 64 ? 64 : (uint64_t)buf->cap + buf->cap / 2;
    if (cap < need || exact)
        cap = need;
    char *data = plm_realloc(buf->host, buf->owner, buf->data, cap);
    if (data == NULL)
        return fail(buf);
    buf->data = data;
    buf->cap = cap;
    return true;
}

static bool reserve(struct plm_buf *buf, size_t n)
{
    return grow(buf, n, false);
}

bool plm_buf_reserve(struct plm_buf *buf, size_t n)
{
    if (!grow(buf, n, true))
        return false;
    buf->data[buf->len] = '\0';
    return true;
}

bool plm_buf_append(struct plm_buf *buf, const void *bytes, size_t n)
{
    if (!reserve(buf, n))
        return false;
    if (n > 0)
        memcpy(buf->data + buf->len, bytes, n);
    buf->len += n;
    buf->data[buf->len] = '\0';
    return true;
}

bool plm_buf_append_str(struct plm_buf *buf, const char *s)
{
    return plm_buf_append(buf, s, strlen(s));
}

bool plm_buf_append_slice(struct plm_buf *buf, struct plm_slice s)
{
    return plm_buf_append(buf, s.ptr, s.len);
}

bool plm_buf_append_char(struct plm_buf *buf, char c)
{
    return plm_buf_append(buf, &c, 1);
}

// The character of n bytes at s as it stands in a JSON string; n is 0 where none starts.
static void append_json_char(struct plm_buf *buf, const char *s, size_t n)
{
    unsigned char c = (unsigned char)*s;
    if (n == 0)
        plm_buf_append_str(buf, "\xEF\xBF\xBD");
    else if (c == '"' || c == '\\')
        plm_buf_printf(buf, "\\%c", c);
    else if (c < 0x20 || c == 0x7f) // DEL is legal there, but not fit for a terminal
        plm_buf_printf(buf, "\\u%04x", c);
    else
        plm_buf_append(buf, s, n);
}

bool plm_buf_append_json(struct plm_buf *buf, struct plm_slice text)
{
    plm_buf_append_char(buf, '"');
    for (size_t at = 0; at < text.len;) {
        uint32_t cp;
        size_t n = plm_utf8_decode(text.ptr + at, text.len - at, &cp);
        append_json_char(buf, text.ptr + at, n);
        at += n > 0 ? n : 1;
    }
    return plm_buf_append_char(buf, '"');
}

bool plm_buf_printf(struct plm_buf *buf, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    va_list again;
    va_copy(again, ap);
    int n = plm_vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    bool ok = n >= 0 && reserve(buf, (size_t)n);
    if (ok) {
        plm_vsnprintf(buf->data + buf->len, (size_t)n + 1, fmt, again);
        buf->len += (size_t)n;
    } else {
        buf->failed = true;
    }
    va_end(again);
    return ok;
}
