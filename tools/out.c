// SPDX-License-Identifier: Apache-2.0
#include "tools/out.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Below this a buffer is not worth giving back between two events of a stream.
#define KEEP_BYTES 4096

void plm_out_init(struct plm_out *out, plim_engine *engine)
{
    *out = (struct plm_out){.engine = engine};
}

struct plm_purse *plm_purse_create(plim_engine *engine, int64_t bytes)
{
    struct plm_purse *purse = malloc(sizeof(*purse));
    if (purse == NULL)
        plim_engine_host_discharge(engine, bytes);
    else
        *purse = (struct plm_purse){.engine = engine, .left_bytes = bytes, .refs = 1};
    return purse;
}

void plm_purse_unref(struct plm_purse *purse)
{
    if (purse == NULL || --purse->refs > 0)
        return;
    plim_engine_host_discharge(purse->engine, purse->left_bytes);
    free(purse);
}

bool plm_purse_take(struct plm_purse *purse, int64_t bytes)
{
    const int64_t own = bytes < purse->left_bytes ? bytes : purse->left_bytes;
    if (own < bytes && plim_engine_host_charge(purse->engine, bytes - own) != PLIM_OK)
        return false;
    purse->left_bytes -= own;
    return true;
}

void plm_purse_give(struct plm_purse *purse, int64_t bytes)
{
    purse->left_bytes += bytes;
}

void plm_out_draw_on(struct plm_out *out, struct plm_purse *purse)
{
    plm_out_finish(out);
    out->purse = purse;
    if (purse != NULL)
        purse->refs++;
}

static bool charge_budget(const struct plm_out *out, int64_t bytes)
{
    if (out->purse != NULL)
        return plm_purse_take(out->purse, bytes);
    return out->engine == NULL || plim_engine_host_charge(out->engine, bytes) == PLIM_OK;
}

static bool charge(const struct plm_out *out, int64_t bytes)
{
    struct plm_share *share = out->share;
    if (share != NULL && atomic_fetch_add(&share->used_bytes, bytes) + bytes > share->limit_bytes &&
        share->limit_bytes > 0) {
        atomic_fetch_sub(&share->used_bytes, bytes);
        return false;
    }
    if (charge_budget(out, bytes))
        return true;
    if (share != NULL)
        atomic_fetch_sub(&share->used_bytes, bytes);
    return false;
}

static void discharge(const struct plm_out *out, int64_t bytes)
{
    if (out->purse != NULL)
        plm_purse_give(out->purse, bytes);
    else if (out->engine != NULL)
        plim_engine_host_discharge(out->engine, bytes);
    if (out->share != NULL)
        atomic_fetch_sub(&out->share->used_bytes, bytes);
}

static void give_back(struct plm_out *out)
{
    free(out->data);
    if (out->cap > 0)
        discharge(out, (int64_t)out->cap);
    out->data = NULL;
    out->len = out->cap = 0;
    out->failed = false;
}

void plm_out_finish(struct plm_out *out)
{
    give_back(out);
    plm_purse_unref(out->purse);
    out->purse = NULL;
}

void plm_out_clear(struct plm_out *out)
{
    out->len = 0;
    out->failed = false;
}

void plm_out_shrink(struct plm_out *out)
{
    if (out->len == 0 && out->cap > KEEP_BYTES)
        give_back(out);
}

// The growth is charged before it is made.
static bool resize(struct plm_out *out, size_t cap)
{
    int64_t more = (int64_t)(cap - out->cap);
    if (!charge(out, more))
        return false;
    char *data = realloc(out->data, cap);
    if (data == NULL) {
        discharge(out, more);
        return false;
    }
    out->data = data;
    out->cap = cap;
    return true;
}

bool plm_out_reserve(struct plm_out *out, size_t more)
{
    if (out->failed)
        return false;
    if (more <= out->cap - out->len)
        return true;
    if (more > SIZE_MAX / 4 || out->len > SIZE_MAX / 4) {
        out->failed = true;
        return false;
    }
    size_t need = out->len + more;
    size_t cap = out->cap + out->cap / 2;
    if (cap < need)
        cap = need < 256 ? 256 : need;
    // When half as much again is refused, exactly enough may still fit.
    out->failed = !resize(out, cap) && (cap == need || !resize(out, need));
    return !out->failed;
}

void plm_out_bytes(struct plm_out *out, const void *bytes, size_t n)
{
    if (n == 0 || !plm_out_reserve(out, n))
        return;
    memcpy(out->data + out->len, bytes, n);
    out->len += n;
}

void plm_out_str(struct plm_out *out, const char *s)
{
    plm_out_bytes(out, s, strlen(s));
}

void plm_out_printf(struct plm_out *out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    // One more for the NUL that vsnprintf insists on.
    if (n < 0 || !plm_out_reserve(out, (size_t)n + 1))
        return;
    va_start(ap, fmt);
    vsnprintf(out->data + out->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    out->len += (size_t)n;
}

size_t plm_utf8_len(const char *s, size_t n)
{
    const unsigned char *b = (const unsigned char *)s;
    if (b[0] < 0x80)
        return 1;
    size_t len = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    if (b[0] < 0xC2 || b[0] > 0xF4 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((b[i] & 0xC0) != 0x80)
            return 0;
    }
    // Overlong forms, surrogates, and beyond U+10FFFF.
    if ((b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xED && b[1] > 0x9F) ||
        (b[0] == 0xF0 && b[1] < 0x90) || (b[0] == 0xF4 && b[1] > 0x8F))
        return 0;
    return len;
}

bool plm_utf8_is_cut(const char *s, size_t n)
{
    // The lead byte stands at most three bytes before the end; whatever completes a character will
    // do.
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char lead = (unsigned char)s[n - back];
        if ((lead & 0xC0) == 0x80)
            continue;
        static const char fill[] = {'\x80', '\x90', '\xA0'};
        for (size_t i = 0; i < sizeof(fill); i++) {
            char whole[4];
            memset(whole, fill[i], sizeof(whole));
            memcpy(whole, s + n - back, back);
            if (plm_utf8_len(whole, sizeof(whole)) > back)
                return true;
        }
        return false;
    }
    return false;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c != '"' && c != '\\' && c < 0x7F;
}

static void escape(struct plm_out *out, unsigned char c)
{
    static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (size_t i = 0; i + 1 < sizeof(letters); i += 2) {
        if ((unsigned char)letters[i] == c) {
            plm_out_bytes(out, (char[2]){'\\', letters[i + 1]}, 2);
            return;
        }
    }
    plm_out_printf(out, "\\u%04x", c);
}

void plm_out_json(struct plm_out *out, const char *s, size_t n)
{
    plm_out_bytes(out, "\"", 1);
    for (size_t i = 0; i < n && !out->failed;) {
        size_t run = 0;
        while (i + run < n && is_plain((unsigned char)s[i + run]))
            run++;
        plm_out_bytes(out, s + i, run);
        i += run;
        if (i == n)
            break;
        unsigned char c = (unsigned char)s[i];
        size_t len = c < 0x80 ? 1 : plm_utf8_len(s + i, n - i);
        if (len == 0)
            plm_out_bytes(out, "\xEF\xBF\xBD", 3);
        else if (len > 1)
            plm_out_bytes(out, s + i, len);
        else
            escape(out, c);
        i += len == 0 ? 1 : len;
    }
    plm_out_bytes(out, "\"", 1);
}

void plm_out_json_str(struct plm_out *out, const char *s)
{
    plm_out_json(out, s, strlen(s));
}

void plm_out_number(struct plm_out *out, double value)
{
    if (!isfinite(value))
        value = -9999.0;
    plm_out_printf(out, "%.9g", value);
}
