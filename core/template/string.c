// SPDX-License-Identifier: Apache-2.0
#include "core/template/value.h"

#include <string.h>

#include <utf8proc.h>

#include "core/base/utf8.h"

enum {
    NEAR_CHARS = 64,           // of an end of a string, from where they are counted
    SLACK_BYTES_MAX = 4 << 20, // that a growing buffer takes ahead; large blocks move cheaply
};

void *plm_tpl_alloc(struct plm_trun *r, size_t bytes)
{
    void *p = plm_tarena_alloc(&r->arena, bytes);
    if (p == NULL)
        plm_tpl_fail_memory(r);
    return p;
}

void *plm_tpl_array(struct plm_trun *r, size_t n, size_t size)
{
    void *p = plm_tarena_array(&r->arena, n, size);
    if (p == NULL)
        plm_tpl_fail_memory(r);
    return p;
}

struct plm_tbuf *plm_tbuf_new(struct plm_trun *r)
{
    struct plm_tbuf *buf = plm_tpl_alloc(r, sizeof(*buf));
    if (buf == NULL)
        return NULL;
    buf->data = (char *)""; // never NULL, and never written while cap is 0
    buf->runs = &buf->one;
    buf->cap_runs = 1;
    return buf;
}

bool plm_tbuf_reserve(struct plm_trun *r, struct plm_tbuf *buf, size_t n)
{
    if (n > r->limits.output_bytes || buf->len > r->limits.output_bytes - n)
        return plm_tpl_fail_limit(r, "output bytes");
    size_t need = buf->len + n;
    if (need <= buf->cap)
        return true;
    size_t slack = need / 2 < SLACK_BYTES_MAX ? need / 2 : SLACK_BYTES_MAX;
    size_t cap = need < 48 ? 64 : need + slack;
    char *data = plm_tarena_grow(&r->arena, buf->data, buf->cap, cap);
    if (data == NULL)
        return plm_tpl_fail_memory(r);
    buf->data = data;
    buf->cap = cap;
    return true;
}

// Room for one more run.
static bool reserve_run(struct plm_trun *r, struct plm_tbuf *buf)
{
    if (buf->n_runs < buf->cap_runs)
        return true;
    size_t cap = buf->cap_runs * 2 < 8 ? 8 : buf->cap_runs * 2;
    struct plm_torigin *runs;
    if (buf->runs == &buf->one) {
        runs = plm_tpl_array(r, cap, sizeof(*runs));
        if (runs == NULL)
            return false;
        runs[0] = buf->one;
    } else {
        runs = plm_tarena_grow(&r->arena, buf->runs, buf->cap_runs * sizeof(*runs),
                               cap * sizeof(*runs));
        if (runs == NULL)
            return plm_tpl_fail_memory(r);
    }
    buf->runs = runs;
    buf->cap_runs = cap;
    return true;
}

bool plm_tbuf_add(struct plm_trun *r, struct plm_tbuf *buf, const char *p, size_t n,
                  uint32_t origin)
{
    if (n == 0)
        return true;
    if (!plm_tpl_work(r, n) || !plm_tbuf_reserve(r, buf, n))
        return false;
    bool merge = buf->n_runs > 0 && buf->runs[buf->n_runs - 1].origin == origin;
    if (!merge && !reserve_run(r, buf))
        return false;
    memcpy(buf->data + buf->len, p, n);
    buf->len += n;
    if (merge)
        buf->runs[buf->n_runs - 1].end = buf->len;
    else
        buf->runs[buf->n_runs++] = (struct plm_torigin){buf->len, origin};
    return true;
}

bool plm_tbuf_addz(struct plm_trun *r, struct plm_tbuf *buf, const char *s, uint32_t origin)
{
    return plm_tbuf_add(r, buf, s, strlen(s), origin);
}

// Number of the run that holds byte `at` of the buffer.
static size_t run_of(const struct plm_tbuf *buf, size_t at)
{
    size_t lo = 0;
    size_t hi = buf->n_runs;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (buf->runs[mid].end <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool plm_tbuf_add_part(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tstr *s,
                       size_t off, size_t len)
{
    if (len == 0)
        return true;
    // Reserved at once, so that the bytes of s stay where they are even if s views buf itself.
    if (!plm_tbuf_reserve(r, buf, len))
        return false;
    size_t at = s->off + off;
    size_t end = at + len;
    for (size_t i = run_of(s->buf, at); at < end; i++) {
        size_t stop = s->buf->runs[i].end < end ? s->buf->runs[i].end : end;
        if (!plm_tbuf_add(r, buf, s->buf->data + at, stop - at, s->buf->runs[i].origin))
            return false;
        at = stop;
    }
    return true;
}

bool plm_tbuf_add_str(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tstr *s)
{
    return plm_tbuf_add_part(r, buf, s, 0, s->len);
}

bool plm_tstr_val(struct plm_tstr *s, struct plm_tval *ret)
{
    if (s == NULL)
        return false;
    *ret = (struct plm_tval){.kind = PLM_T_STR, .str = s};
    return true;
}

static struct plm_tstr *new_str(struct plm_trun *r, struct plm_tbuf *buf, size_t off, size_t len)
{
    struct plm_tstr *s = plm_tpl_alloc(r, sizeof(*s));
    if (s != NULL)
        *s = (struct plm_tstr){.buf = buf, .off = off, .len = len, .n_chars = SIZE_MAX};
    return s;
}

bool plm_tbuf_value(struct plm_trun *r, struct plm_tbuf *buf, struct plm_tval *ret)
{
    return plm_tstr_val(new_str(r, buf, 0, buf->len), ret);
}

struct plm_tstr *plm_tstr_view(struct plm_trun *r, const char *p, size_t n, uint32_t origin)
{
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL)
        return NULL;
    buf->data = (char *)p; // never written, since cap is 0
    buf->len = n;
    buf->one = (struct plm_torigin){n, origin};
    buf->n_runs = 1;
    return new_str(r, buf, 0, n);
}

struct plm_tstr *plm_tstr_copyz(struct plm_trun *r, const char *s, bool user)
{
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL || !plm_tbuf_addz(r, buf, s, user))
        return NULL;
    return new_str(r, buf, 0, buf->len);
}

bool plm_tstr_valz(struct plm_trun *r, const char *s, struct plm_tval *ret)
{
    return plm_tstr_val(plm_tstr_copyz(r, s, false), ret);
}

struct plm_tstr *plm_tstr_sub(struct plm_trun *r, const struct plm_tstr *s, size_t off, size_t len)
{
    struct plm_tstr *sub = new_str(r, s->buf, s->off + off, len);
    if (sub != NULL) {
        sub->markup = s->markup;
        if (s->n_chars == s->len) // all ASCII
            sub->n_chars = len;
    }
    return sub;
}

bool plm_tbuf_add_escaped(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tstr *s)
{
    size_t from = 0;
    for (size_t i = 0; i < s->len; i++) {
        char c = plm_tstr_ptr(s)[i];
        const char *to = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '"'  ? "&#34;"
                         : c == '\'' ? "&#39;"
                                     : NULL;
        if (to == NULL)
            continue;
        if (!plm_tbuf_add_part(r, buf, s, from, i - from) ||
            !plm_tbuf_addz(r, buf, to, plm_tstr_origin_at(s, i)))
            return false;
        from = i + 1;
    }
    return plm_tbuf_add_part(r, buf, s, from, s->len - from);
}

bool plm_tstr_concat(struct plm_trun *r, const struct plm_tstr *a, const struct plm_tstr *b,
                     struct plm_tval *ret)
{
    bool markup = a->markup || b->markup;
    if (markup && !b->markup) {
        struct plm_tbuf *buf = plm_tbuf_new(r);
        if (buf == NULL || !plm_tbuf_add_escaped(r, buf, b))
            return false;
        b = new_str(r, buf, 0, buf->len);
        if (b == NULL)
            return false;
    }
    struct plm_tbuf *buf = a->buf;
    bool at_end = buf->cap > 0 && a->off + a->len == buf->len && buf != r->out;
    size_t off = a->off;
    if (!at_end || (markup && !a->markup)) {
        buf = plm_tbuf_new(r);
        off = 0;
        if (buf == NULL || !plm_tbuf_reserve(r, buf, a->len + b->len))
            return false;
        bool ok =
            markup && !a->markup ? plm_tbuf_add_escaped(r, buf, a) : plm_tbuf_add_str(r, buf, a);
        if (!ok)
            return false;
    }
    if (!plm_tbuf_add_str(r, buf, b))
        return false;
    struct plm_tstr *s = new_str(r, buf, off, buf->len - off);
    if (s == NULL)
        return false;
    s->markup = markup;
    return plm_tstr_val(s, ret);
}

bool plm_tstr_is(const struct plm_tstr *s, const char *z)
{
    return plm_slice_eq_str(plm_tstr_slice(s), z);
}

uint32_t plm_tstr_origin_at(const struct plm_tstr *s, size_t off)
{
    size_t i = run_of(s->buf, s->off + off);
    return i < s->buf->n_runs ? s->buf->runs[i].origin : PLM_ORIGIN_TEMPLATE;
}

uint32_t plm_tstr_origin(const struct plm_tstr *s)
{
    if (s->len == 0)
        return PLM_ORIGIN_TEMPLATE;
    for (size_t i = run_of(s->buf, s->off); i < s->buf->n_runs; i++) {
        if (s->buf->runs[i].origin != PLM_ORIGIN_TEMPLATE)
            return s->buf->runs[i].origin;
        if (s->buf->runs[i].end >= s->off + s->len)
            break;
    }
    return PLM_ORIGIN_TEMPLATE;
}

bool plm_tstr_any_user(const struct plm_tstr *s)
{
    return plm_tstr_origin(s) != PLM_ORIGIN_TEMPLATE;
}

size_t plm_tstr_next(const char *p, const char *end, uint32_t *ret_cp)
{
    size_t n = plm_utf8_decode(p, (size_t)(end - p), ret_cp);
    if (n > 0)
        return n;
    *ret_cp = 0xFFFD;
    return 1;
}

size_t plm_tstr_prev(const char *begin, const char *p, uint32_t *ret_cp)
{
    size_t max = (size_t)(p - begin) < 4 ? (size_t)(p - begin) : 4;
    for (size_t n = 1; n <= max; n++)
        if (plm_utf8_decode(p - n, n, ret_cp) == n)
            return n;
    *ret_cp = 0xFFFD;
    return 1;
}

size_t plm_tstr_chars(struct plm_tstr *s)
{
    if (s->n_chars != SIZE_MAX)
        return s->n_chars;
    const char *p = plm_tstr_ptr(s);
    const char *end = p + s->len;
    size_t n = 0;
    while (p < end) {
        uint32_t cp;
        p += (unsigned char)*p < 0x80 ? 1 : plm_tstr_next(p, end, &cp);
        n++;
    }
    s->n_chars = n;
    return n;
}

// Moves a place in a string to character i.
static void seek_to(const struct plm_tstr *s, struct plm_tseek *at, size_t i)
{
    const char *begin = plm_tstr_ptr(s);
    uint32_t cp;
    for (; at->chars < i; at->chars++)
        at->bytes += plm_tstr_next(begin + at->bytes, begin + s->len, &cp);
    for (; at->chars > i; at->chars--)
        at->bytes -= plm_tstr_prev(begin, begin + at->bytes, &cp);
}

bool plm_tstr_offset(struct plm_trun *r, struct plm_tstr *s, size_t i, size_t *ret)
{
    const size_t n = plm_tstr_chars(s);
    if (n == s->len) {
        *ret = i;
        return true;
    }
    struct plm_tseek *last = &r->seek;
    struct plm_tseek from_end = {.str = s, .chars = n, .bytes = s->len}, from_start = {.str = s};
    const bool near_start = i <= NEAR_CHARS, near_end = n - i <= NEAR_CHARS;
    // From where the last search in this string ended, so that a loop over its characters takes
    // steps by their number; looks at either end in between do not disturb it.
    if (last->str != s)
        *last = n - i < i ? from_end : from_start;
    struct plm_tseek *at = near_start ? &from_start : near_end ? &from_end : last;
    const size_t from = at->chars;
    seek_to(s, at, i);
    *ret = at->bytes;
    return plm_tpl_work(r, from < i ? i - from : from - i);
}

int plm_tstr_cmp(const struct plm_tstr *a, const struct plm_tstr *b)
{
    // The order of UTF-8 bytes is the order of code points.
    size_t n = a->len < b->len ? a->len : b->len;
    int c = n == 0 ? 0 : memcmp(plm_tstr_ptr(a), plm_tstr_ptr(b), n);
    if (c != 0)
        return c < 0 ? -1 : 1;
    return a->len < b->len ? -1 : a->len > b->len;
}

bool plm_cp_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32) || cp == 0x85 || cp == 0xA0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool plm_cp_is_printable(uint32_t cp)
{
    if (cp < 0x7F)
        return cp >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

size_t plm_tstr_find(const struct plm_tstr *s, struct plm_slice needle, size_t from)
{
    if (from > s->len || needle.len > s->len - from)
        return SIZE_MAX;
    if (needle.len == 0)
        return from;
    const char *begin = plm_tstr_ptr(s);
    const char *hit = memmem(begin + from, s->len - from, needle.ptr, needle.len);
    return hit == NULL ? SIZE_MAX : (size_t)(hit - begin);
}

bool plm_tstr_rfind(struct plm_trun *r, const struct plm_tstr *s, struct plm_slice needle,
                    size_t to, size_t *ret)
{
    const char *p = plm_tstr_ptr(s);
    size_t cost = 0;
    *ret = SIZE_MAX;
    for (size_t i = needle.len > to ? 0 : to - needle.len + 1; i-- > 0;) {
        if (needle.len == 0 || memcmp(p + i, needle.ptr, needle.len) == 0) {
            *ret = i;
            break;
        }
        cost += needle.len;
        if (cost > 65536) { // often enough for the limit, rarely enough for the speed
            if (!plm_tpl_work(r, cost))
                return false;
            cost = 0;
        }
    }
    return true;
}
