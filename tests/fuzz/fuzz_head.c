// SPDX-License-Identifier: Apache-2.0
// Heads of a server's answers, line by line. Whatever is taken of them is bounded and printable.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/pull/head.h"

static void demand(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

static bool is_line(const char *text, size_t cap)
{
    const size_t n = strnlen(text, cap);
    for (size_t i = 0; i < n; i++) {
        if (text[i] < ' ' || text[i] > '~')
            return false;
    }
    return n < cap;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct plm_head a;
    plm_head_init(&a);
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t n = end != NULL ? (size_t)(end + 1 - text) - at : size - at;
        // A copy of its own size, so that a sanitizer sees a step beyond it.
        char *line = malloc(n);
        if (line == NULL)
            return 0;
        memcpy(line, text + at, n);
        plm_head_line(&a, line, n);
        free(line);
        at += n;
        demand(is_line(a.validator, sizeof(a.validator)), "validator");
        demand(is_line(a.reason, sizeof(a.reason)), "reason");
        demand(a.linked_hash[0] == '\0' || plm_hub_is_hash(a.linked_hash), "hash");
        demand(a.from >= -1 && a.total >= -1 && a.retry_after_s >= -1 && a.linked_bytes >= -1,
               "a negative number");
    }
    return 0;
}
