// SPDX-License-Identifier: Apache-2.0
// Any bytes as two plans to compare, which is the widest way through the reader of JSON texts: a
// walk must stay within its text, and a comparison of a text with itself finds nothing. As a
// charged tree it gives back all that it was charged.
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/json_tree.h"
#include "core/plan/diff.h"
#include "tests/fuzz/fuzz.h"

static int leaf(void *ctx, const char *path, const struct plm_json_value *value)
{
    size_t *leaves = ctx;
    if (strlen(path) >= PLM_JSON_PATH_MAX || value->text.len > PLM_JSON_BYTES_MAX)
        abort();
    ++*leaves;
    return PLM_OK;
}

static void compare(struct plm_host *host, struct plm_slice a, struct plm_slice b)
{
    struct plm_buf out;
    plm_buf_init(&out, host, PLM_HOST_OTHER);
    const int r = plm_plan_diff(host, a, b, &out, NULL);
    if (r == PLM_OK && a.ptr == b.ptr && strcmp(out.data, "no difference\n") != 0)
        abort();
    plm_buf_finish(&out);
}

static void grow(struct plm_host *host, struct plm_slice text)
{
    struct plm_json_tree tree;
    plm_json_tree_init(&tree, host, PLM_HOST_REQUEST);
    plm_json_tree_parse(&tree, text, &tree.root, NULL);
    plm_json_tree_finish(&tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct plm_host *host = plm_host_create(16 << 20);
    const char *text = (const char *)bytes;
    const char *cut = n > 0 ? memchr(text, 0, n) : NULL;
    const size_t first = cut != NULL ? (size_t)(cut - text) : n;
    const size_t rest = cut != NULL ? n - first - 1 : 0;
    size_t leaves = 0;
    if (plm_json_walk(text, first, leaf, &leaves, NULL) == PLM_OK && leaves == 0)
        abort(); // a value has at least one leaf
    grow(host, (struct plm_slice){text, first});
    compare(host, (struct plm_slice){text, first}, (struct plm_slice){text, first});
    compare(host, (struct plm_slice){text, first},
            cut != NULL ? (struct plm_slice){cut + 1, rest} : PLM_SLICE(""));
    if (plm_host_destroy(host) != 0)
        abort();
    return 0;
}
