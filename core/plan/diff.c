// SPDX-License-Identifier: Apache-2.0
#include "core/plan/diff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"

// A plan has some hundred fields; more leaves than this is no plan.
#define LEAVES_MAX 65536u

struct leaf {
    uint32_t path, text; // offsets into the names of its list, each NUL-terminated
    enum plm_json_kind kind;
    int64_t integer;
    bool matched;
};

// The leaves of one text in its order, and by path.
struct list {
    struct plm_host *host;
    struct plm_buf names;
    struct plm_buf leaves; // struct leaf
    const struct leaf **sorted;
    uint32_t n;
};

// ---- reading ----

static struct leaf *leaf_at(const struct list *l, uint32_t i)
{
    return (struct leaf *)(void *)l->leaves.data + i;
}

static const char *path_of(const struct list *l, const struct leaf *leaf)
{
    return l->names.data + leaf->path;
}

static const char *text_of(const struct list *l, const struct leaf *leaf)
{
    return l->names.data + leaf->text;
}

// Times, which differ between any two starts.
static bool is_time(const char *path)
{
    const size_t n = strlen(path);
    return n >= 3 && (strcmp(path + n - 3, "_ns") == 0 || strcmp(path + n - 3, ".ns") == 0);
}

static int add(void *ctx, const char *path, const struct plm_json_value *value)
{
    struct list *l = ctx;
    struct leaf leaf = {
        .path = (uint32_t)l->names.len, .kind = value->kind, .integer = value->integer};
    if (is_time(path))
        return PLM_OK;
    if (l->n == LEAVES_MAX)
        return PLM_ERR_LIMIT;
    plm_buf_append(&l->names, path, strlen(path) + 1);
    leaf.text = (uint32_t)l->names.len;
    // A NUL ends what is shown and compared: no field of ours holds one.
    plm_buf_append_slice(&l->names, value->text);
    plm_buf_append_char(&l->names, '\0');
    plm_buf_append(&l->leaves, &leaf, sizeof(leaf));
    l->n++;
    return l->names.failed || l->leaves.failed ? PLM_ERR_NOMEM_HOST : PLM_OK;
}

static int by_path(const void *a, const void *b, void *ctx)
{
    const struct list *l = ctx;
    const struct leaf *x = *(const struct leaf *const *)a, *y = *(const struct leaf *const *)b;
    const int order = strcmp(path_of(l, x), path_of(l, y));
    return order != 0 ? order : (x > y) - (x < y); // of equal paths the first one
}

static const struct leaf *find(const struct list *l, const char *path)
{
    uint32_t lo = 0, hi = l->n;
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (strcmp(path_of(l, l->sorted[mid]), path) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < l->n && strcmp(path_of(l, l->sorted[lo]), path) == 0 ? l->sorted[lo] : NULL;
}

static int read_list(struct list *l, struct plm_host *host, struct plm_slice text,
                     const char *which, struct plm_error *err)
{
    struct plm_error why = {0};
    l->host = host;
    plm_buf_init(&l->names, host, PLM_HOST_OTHER);
    plm_buf_init(&l->leaves, host, PLM_HOST_OTHER);
    int r = plm_json_walk(text.ptr, text.len, add, l, &why);
    if (r == PLM_OK) {
        l->sorted = plm_calloc(host, PLM_HOST_OTHER, l->n + 1, sizeof(*l->sorted));
        r = l->sorted != NULL ? PLM_OK : PLM_ERR_NOMEM_HOST;
    }
    if (r != PLM_OK)
        return plm_fail(err, r, "the %s text: %s", which,
                        why.msg[0] != '\0' ? why.msg : plm_strstatus(r));
    for (uint32_t i = 0; i < l->n; i++)
        l->sorted[i] = leaf_at(l, i);
    qsort_r(l->sorted, l->n, sizeof(*l->sorted), by_path, l);
    // As {"a.b": 1, "a": {"b": 2}}: no text of ours.
    for (uint32_t i = 1; i < l->n; i++) {
        if (strcmp(path_of(l, l->sorted[i - 1]), path_of(l, l->sorted[i])) == 0)
            return plm_fail(err, PLM_ERR_FORMAT, "the %s text has %s twice", which,
                            path_of(l, l->sorted[i]));
    }
    return PLM_OK;
}

static void finish_list(struct list *l)
{
    if (l->host == NULL)
        return;
    plm_free(l->host, l->sorted);
    plm_buf_finish(&l->names);
    plm_buf_finish(&l->leaves);
}

// "plan" or "certificate"; NULL where it is neither.
static const char *object_of(const struct list *l)
{
    const struct leaf *leaf = find(l, "object");
    const char *name = leaf != NULL && leaf->kind == PLM_JSON_STRING ? text_of(l, leaf) : "";
    return strcmp(name, "plan") == 0 || strcmp(name, "certificate") == 0 ? name : NULL;
}

static int check_objects(const struct list *a, const struct list *b, struct plm_error *err)
{
    const char *x = object_of(a), *y = object_of(b);
    if (x == NULL || y == NULL)
        return plm_fail(err, PLM_ERR_FORMAT,
                        "the %s text is no plan and no certificate: it has no such \"object\"",
                        x == NULL ? "first" : "second");
    if (strcmp(x, y) != 0)
        return plm_fail(
            err, PLM_ERR_FORMAT,
            "a %s can not be compared with a %s (a certificate is a proved plan that is kept for "
            "the next start)",
            x, y);
    return PLM_OK;
}

// ---- writing ----

// Whether a field counts bytes: the formula's names (plan.h), and what lies in tables of bytes.
static bool is_bytes(const char *path)
{
    static const char *const names[] = {"g",
                                        "T",
                                        "F",
                                        "O",
                                        "K",
                                        "process_use",
                                        "driver_calls",
                                        "unheld",
                                        "foreign",
                                        "own_drv",
                                        "room",
                                        "resident",
                                        "growth",
                                        "U",
                                        "withheld",
                                        "margin",
                                        "ballast",
                                        "host_limit",
                                        "host_caller",
                                        "host",
                                        "budget",
                                        "line",
                                        "operator_limit",
                                        "limit",
                                        "current",
                                        "reclaimable",
                                        "cost",
                                        "not_returned"};
    static const char *const tables[] = {"by_class.", "phase_peaks.", "weights."};
    const char *dot = strrchr(path, '.');
    const char *last = dot != NULL ? dot + 1 : path;
    const size_t n = strlen(last);
    if (n > 6 && strcmp(last + n - 6, "_bytes") == 0)
        return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(last, names[i]) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        if (strstr(path, tables[i]) != NULL)
            return true;
    }
    return false;
}

static void put_value(struct plm_buf *out, const struct list *l, const struct leaf *leaf,
                      bool bytes)
{
    if (leaf == NULL)
        plm_buf_append_str(out, "(not there)");
    else if (leaf->kind == PLM_JSON_INTEGER && bytes)
        plm_buf_printf(out, "%.1f MiB (%" PRId64 ")", (double)leaf->integer / 1048576.0,
                       leaf->integer);
    else if (leaf->kind == PLM_JSON_STRING)
        plm_buf_append_json(out, (struct plm_slice){text_of(l, leaf), strlen(text_of(l, leaf))});
    else
        plm_buf_append_str(out, text_of(l, leaf));
}

static void put_change(struct plm_buf *out, const struct leaf *x, const struct leaf *y, bool bytes)
{
    int64_t change;
    if (x == NULL || y == NULL || x->kind != PLM_JSON_INTEGER || y->kind != PLM_JSON_INTEGER ||
        __builtin_sub_overflow(y->integer, x->integer, &change))
        return;
    const double mib = (double)change / 1048576.0;
    // What rounds to nothing would be "-0.0 MiB".
    if (bytes && (mib >= 0.05 || mib <= -0.05))
        plm_buf_printf(out, "  %+.1f MiB (%+" PRId64 ")", mib, change);
    else if (bytes)
        plm_buf_printf(out, "  %+" PRId64 " bytes", change);
    else
        plm_buf_printf(out, "  %+" PRId64, change);
}

static void put_line(struct plm_buf *out, const char *path, const struct list *a,
                     const struct leaf *x, const struct list *b, const struct leaf *y)
{
    const bool bytes = is_bytes(path);
    plm_buf_printf(out, "%-32s ", path);
    put_value(out, a, x, bytes);
    plm_buf_append_str(out, " -> ");
    put_value(out, b, y, bytes);
    put_change(out, x, y, bytes);
    plm_buf_append_char(out, '\n');
}

// In the order of the first text; what only the second one has comes last.
static uint32_t put_all(struct plm_buf *out, const struct list *a, const struct list *b)
{
    uint32_t lines = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct leaf *x = leaf_at(a, i);
        const struct leaf *y = find(b, path_of(a, x));
        if (y != NULL)
            leaf_at(b, (uint32_t)(y - leaf_at(b, 0)))->matched = true;
        if (y != NULL && x->kind == y->kind && strcmp(text_of(a, x), text_of(b, y)) == 0)
            continue;
        put_line(out, path_of(a, x), a, x, b, y);
        lines++;
    }
    for (uint32_t i = 0; i < b->n; i++) {
        const struct leaf *y = leaf_at(b, i);
        if (y->matched)
            continue;
        put_line(out, path_of(b, y), a, NULL, b, y);
        lines++;
    }
    return lines;
}

int plm_plan_diff(struct plm_host *host, struct plm_slice a, struct plm_slice b,
                  struct plm_buf *out, struct plm_error *err)
{
    struct list x = {0}, y = {0};
    int r = read_list(&x, host, a, "first", err);
    if (r == PLM_OK)
        r = read_list(&y, host, b, "second", err);
    if (r == PLM_OK)
        r = check_objects(&x, &y, err);
    if (r == PLM_OK && put_all(out, &x, &y) == 0)
        plm_buf_append_str(out, "no difference\n");
    if (r == PLM_OK && out->failed)
        r = plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the differences");
    finish_list(&x);
    finish_list(&y);
    return r;
}
