// SPDX-License-Identifier: Apache-2.0
// Any bytes as what a client sends. The scanner must give the same verdict however they are cut,
// stay within its bounds, and accept only what means the same when it is written out in the one
// plain way: so no other reader can see other requests in it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/serve/wire.h"

#define INPUT_MAX (64 * 1024)

// What was understood: per request its head in the plain form, its body, a NUL.
struct account {
    size_t len;
    int status;
    char text[4 * INPUT_MAX];
};

static void put(struct account *a, const void *bytes, size_t n)
{
    if (n > sizeof(a->text) - a->len)
        abort();
    memcpy(a->text + a->len, bytes, n);
    a->len += n;
}

static void put_str(struct account *a, const char *s)
{
    put(a, s, strlen(s));
}

static void put_path(struct account *a, const char *path)
{
    char escape[4];
    for (const unsigned char *c = (const unsigned char *)path; *c != '\0'; c++) {
        if (*c <= ' ' || *c >= 0x7F || strchr("%?#", *c) != NULL)
            put(a, escape, (size_t)snprintf(escape, sizeof(escape), "%%%02X", *c));
        else
            put(a, c, 1);
    }
}

static void put_head(struct account *a, const struct plm_wire *w)
{
    char line[64];
    put_str(a, plm_wire_method(w));
    put_str(a, " ");
    put_path(a, plm_wire_path(w));
    put_str(a, plm_wire_is_http11(w) ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n");
    for (size_t i = 0; i < plm_wire_fields(w); i++) {
        const char *name = plm_wire_field_name(w, i);
        if (strchr(name, ':') != NULL || plm_wire_field(w, name) == NULL)
            abort();
        put_str(a, name);
        put_str(a, ": ");
        put_str(a, plm_wire_field_value(w, i));
        put_str(a, "\r\n");
    }
    put(a, line,
        (size_t)snprintf(line, sizeof(line), "\r\n%lld %d%d\n", (long long)plm_wire_length(w),
                         plm_wire_keeps_alive(w), plm_wire_expects_continue(w)));
}

static bool feed(struct plm_wire *w, struct account *a, const char *at, size_t n)
{
    const char *body, *why;
    size_t body_len;
    for (;;) {
        switch (plm_wire_feed(w, &at, &n, &body, &body_len)) {
        case PLM_WIRE_MORE:
            if (n != 0)
                abort();
            return true;
        case PLM_WIRE_HEAD: put_head(a, w); break;
        case PLM_WIRE_BODY: put(a, body, body_len); break;
        case PLM_WIRE_END: put(a, "", 1); break;
        case PLM_WIRE_BAD:
            a->status = plm_wire_violation(w, &why);
            if (a->status < 400 || why[0] == '\0')
                abort();
            return false;
        }
    }
}

static void check_same(const struct account *a, const struct account *b)
{
    if (a->len != b->len || a->status != b->status || memcmp(a->text, b->text, a->len) != 0)
        abort();
}

// In pieces whose sizes follow from a seed.
static void scan_in_pieces(const char *bytes, size_t n, unsigned seed, struct account *ret)
{
    static struct plm_wire w;
    ret->len = 0;
    ret->status = 0;
    plm_wire_init(&w);
    while (n > 0) {
        seed = seed * 1103515245 + 12345;
        size_t take = 1 + (seed >> 16) % 19;
        take = take < n ? take : n;
        if (!feed(&w, ret, bytes, take))
            return;
        bytes += take;
        n -= take;
    }
}

// A complete head in its plain form must be accepted and mean the same.
static void check_plain_form(const char *bytes, size_t n)
{
    static struct plm_wire w;
    static struct account first, again;
    const char *body;
    size_t body_len;
    plm_wire_init(&w);
    if (plm_wire_feed(&w, &bytes, &n, &body, &body_len) != PLM_WIRE_HEAD)
        return;
    first.len = again.len = 0;
    put_head(&first, &w);
    const char *end = memmem(first.text, first.len, "\r\n\r\n", 4);
    if (end == NULL)
        abort();
    const char *at = first.text;
    size_t left = (size_t)(end - first.text) + 4;
    // Escapes may make it longer than a head may be.
    if (left > PLM_WIRE_LINE_MAX)
        return;
    plm_wire_init(&w);
    if (plm_wire_feed(&w, &at, &left, &body, &body_len) != PLM_WIRE_HEAD || left != 0)
        abort();
    put_head(&again, &w);
    check_same(&first, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct account whole, pieces, bytewise;
    static struct plm_wire w;
    if (n < 1 || n > INPUT_MAX)
        return 0;
    const char *bytes = (const char *)data + 1;
    whole.len = 0;
    whole.status = 0;
    plm_wire_init(&w);
    feed(&w, &whole, bytes, n - 1);
    scan_in_pieces(bytes, n - 1, data[0] + 1u, &pieces);
    check_same(&whole, &pieces);
    bytewise.len = 0;
    bytewise.status = 0;
    plm_wire_init(&w);
    for (size_t i = 0; i + 1 < n && feed(&w, &bytewise, bytes + i, 1); i++) {
    }
    check_same(&whole, &bytewise);
    check_plain_form(bytes, n - 1);
    return 0;
}
