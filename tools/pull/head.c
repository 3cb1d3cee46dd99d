// SPDX-License-Identifier: Apache-2.0
#include "tools/pull/head.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

static bool is_printable(char c)
{
    return c >= ' ' && c <= '~';
}

void plm_copy_printable(char *out, size_t cap, const char *text, size_t len)
{
    const size_t n = len < cap ? len : cap - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = is_printable(text[i]) ? text[i] : '?';
    out[n] = '\0';
}

// A whole number of at most 18 digits; -1: something else.
static int64_t number_of(const char *text, size_t len)
{
    int64_t n = 0;
    if (len == 0 || len > 18) // what 64 bits hold in any case
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        n = 10 * n + (text[i] - '0');
    }
    return n;
}

// "bytes 100-199/200"
static void read_range(struct plm_head *head, const char *value, size_t len)
{
    const char *dash = memchr(value, '-', len), *slash = memchr(value, '/', len);
    if (len < 6 || strncasecmp(value, "bytes ", 6) != 0 || slash == NULL)
        return;
    if (dash != NULL && dash < slash)
        head->from = number_of(value + 6, (size_t)(dash - value) - 6);
    head->total = number_of(slash + 1, len - (size_t)(slash + 1 - value));
}

// W/"x" is weak: the same meaning, maybe other bytes.
static void read_etag(struct plm_head *head, const char *value, size_t len)
{
    if (len > 2 && len < sizeof(head->validator) && value[0] == '"')
        plm_copy_printable(head->validator, sizeof(head->validator), value, len);
}

// "x", W/"x" or x, where x is a SHA-256.
static void read_linked_hash(struct plm_head *head, const char *value, size_t len)
{
    char text[PLM_HUB_HASH_DIGITS + 1] = "";
    const char *quote = memchr(value, '"', len);
    if (quote != NULL) {
        len -= (size_t)(quote + 1 - value);
        value = quote + 1;
    }
    if (len >= PLM_HUB_HASH_DIGITS)
        memcpy(text, value, PLM_HUB_HASH_DIGITS);
    if (plm_hub_is_hash(text) && (len == PLM_HUB_HASH_DIGITS || value[PLM_HUB_HASH_DIGITS] == '"'))
        memcpy(head->linked_hash, text, sizeof(text));
}

// A new head: what an earlier answer of the same request said of itself is past, but the first one
// knows what lies behind its redirect.
static void begin_head(struct plm_head *head)
{
    head->heads++;
    head->from = head->total = head->retry_after_s = -1;
    head->validator[0] = head->reason[0] = '\0';
}

static void read_field(struct plm_head *a, const char *name, size_t name_len, const char *value,
                       size_t len)
{
#define IS(text) (name_len == sizeof(text) - 1 && strncasecmp(name, text, name_len) == 0)
    if (IS("content-range"))
        read_range(a, value, len);
    else if (IS("etag"))
        read_etag(a, value, len);
    else if (IS("last-modified") && a->validator[0] == '\0')
        plm_copy_printable(a->validator, sizeof(a->validator), value, len);
    else if (IS("retry-after"))
        a->retry_after_s = number_of(value, len);
    else if (IS("x-error-message"))
        plm_copy_printable(a->reason, sizeof(a->reason), value, len);
    else if (IS("x-linked-etag") && a->heads == 1)
        read_linked_hash(a, value, len);
    else if (IS("x-linked-size") && a->heads == 1)
        a->linked_bytes = number_of(value, len);
#undef IS
}

void plm_head_init(struct plm_head *head)
{
    *head = (struct plm_head){.bytes = -1, .linked_bytes = -1};
    begin_head(head);
    head->heads = 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

void plm_head_line(struct plm_head *head, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        begin_head(head);
    } else if (colon != NULL) {
        const char *value = colon + 1, *end = line + len;
        while (value < end && is_blank(*value))
            value++;
        while (end > value && is_blank(end[-1]))
            end--;
        read_field(head, line, (size_t)(colon - line), value, (size_t)(end - value));
    }
}
