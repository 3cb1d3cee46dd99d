// SPDX-License-Identifier: Apache-2.0
// Runs token cases (NAME.jsonl) against their vocabularies (NAME.gguf):
//
//     tokenizer [DIR...]
//
// Without a DIR it is to be run in the root of the sources. The vocabulary of smollm2 lies in a
// model, which is looked for under $PLIMSOLL_TEST_MODELS. Each failing case is printed; the last
// line counts. Exit: 0 all passed, 1 a case failed, 77 nothing ran.
#include <dirent.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/golden/cases.h"

#define SHOWN_IDS 24 // of a failing case

static struct plm_host *host;

static void print_ids(const char *label, const int32_t *ids, size_t n, size_t from)
{
    printf("    %s (%zu ids, from %zu):", label, n, from);
    for (size_t i = from; i < n && i < from + SHOWN_IDS; i++)
        printf(" %d", ids[i]);
    printf("%s\n", n > from + SHOWN_IDS ? " ..." : "");
}

static bool flag(struct json_object *line, const char *key)
{
    struct json_object *value;
    return json_object_object_get_ex(line, key, &value) && json_object_get_boolean(value);
}

static struct plm_slice string_of(struct json_object *line, const char *key)
{
    struct json_object *value;
    if (!json_object_object_get_ex(line, key, &value) ||
        !json_object_is_type(value, json_type_string))
        return (struct plm_slice){NULL, 0};
    return (struct plm_slice){json_object_get_string(value),
                              (size_t)json_object_get_string_len(value)};
}

static bool from_hex(struct plm_slice hex, struct plm_buf *out)
{
    for (size_t i = 0; i + 1 < hex.len; i += 2) {
        char digits[3] = {hex.ptr[i], hex.ptr[i + 1], '\0'};
        char *end;
        char byte = (char)strtoul(digits, &end, 16);
        if (end != digits + 2 || !plm_buf_append_char(out, byte))
            return false;
    }
    return hex.len % 2 == 0;
}

static bool check_ids(struct json_object *line, const struct plm_tokens *got, const char *where)
{
    struct json_object *list;
    if (!json_object_object_get_ex(line, "ids", &list) ||
        !json_object_is_type(list, json_type_array)) {
        printf("%s: the case has no ids\n", where);
        return false;
    }
    size_t n = json_object_array_length(list);
    int32_t *want = calloc(n + 1, sizeof(*want));
    if (want == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        want[i] = json_object_get_int(json_object_array_get_idx(list, i));
    size_t same = 0;
    while (same < n && same < got->n && want[same] == got->ids[same])
        same++;
    bool ok = same == n && same == got->n;
    if (!ok) {
        size_t from = same > 2 ? same - 2 : 0;
        printf("%s: other ids, the first at %zu\n", where, same);
        print_ids("got ", got->ids, got->n, from);
        print_ids("want", want, n, from);
    }
    free(want);
    return ok;
}

// What the ids decode to, without those that add_special has added.
static bool check_decoded(struct json_object *line, const struct plm_tokenizer *tokenizer,
                          const struct plm_tokens *got, struct plm_slice text, const char *where)
{
    struct json_object *roundtrip;
    if (!json_object_object_get_ex(line, "roundtrip", &roundtrip))
        return true;
    struct plm_buf want, bytes;
    plm_buf_init(&want, host, PLM_HOST_OTHER);
    plm_buf_init(&bytes, host, PLM_HOST_OTHER);
    struct plm_slice decoded = string_of(line, "decoded");
    struct plm_slice hex = string_of(line, "decoded_hex");
    bool known = true;
    if (json_object_get_boolean(roundtrip))
        plm_buf_append_slice(&want, text);
    else if (decoded.ptr != NULL)
        plm_buf_append_slice(&want, decoded);
    else
        known = hex.ptr != NULL && from_hex(hex, &want);

    bool added = flag(line, "add_special");
    size_t from = added && plm_tokenizer_adds_bos(tokenizer) && got->n > 0;
    bool ok =
        plm_tokenizer_decode(tokenizer, got->ids + from, got->n - from, false, &bytes) == PLM_OK;
    ok = ok && known && bytes.len == want.len &&
         (want.len == 0 || memcmp(bytes.data, want.data, want.len) == 0);
    if (!ok)
        printf("%s: decodes to %zu bytes, expected %zu\n    got  %.*s\n    want %.*s\n", where,
               bytes.len, want.len, (int)(bytes.len < 200 ? bytes.len : 200),
               bytes.len > 0 ? bytes.data : "", (int)(want.len < 200 ? want.len : 200),
               want.len > 0 ? want.data : "");
    plm_buf_finish(&want);
    plm_buf_finish(&bytes);
    return ok;
}

static bool run_case(const struct plm_tokenizer *tokenizer, struct json_object *line,
                     const char *where)
{
    struct plm_slice text = string_of(line, "text");
    if (text.ptr == NULL) {
        printf("%s: the case has no text\n", where);
        return false;
    }
    unsigned flags = (flag(line, "add_special") ? PLM_ENCODE_ADD_SPECIAL : 0u) |
                     (flag(line, "parse_special") ? PLM_ENCODE_PARSE_SPECIAL : 0u);
    struct plm_tokens got;
    plm_tokens_init(&got, host);
    struct plm_error err = {0};
    int status = plm_tokenizer_encode(tokenizer, text, flags, &got, &err);
    bool ok = status == PLM_OK;
    if (!ok)
        printf("%s: %s\n", where, err.msg);
    if (ok && plm_tokenizer_least(tokenizer, text.len) > got.n) {
        printf("%s: %zu tokens, fewer than the least\n", where, got.n);
        ok = false;
    }
    ok = ok && check_ids(line, &got, where);
    ok = ok && check_decoded(line, tokenizer, &got, text, where);
    plm_tokens_finish(&got);
    return ok;
}

// Lines end at LF only: other line ends of Unicode stand inside them.
static void run_lines(const struct plm_tokenizer *tokenizer, const char *path,
                      struct counts *counts)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        printf("%s: %s\n", path, strerror(errno));
        counts->failed++;
        return;
    }
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    struct plm_buf where;
    plm_buf_init(&where, host, PLM_HOST_OTHER);
    struct json_tokener *parser = json_tokener_new();
    for (long number = 1; (n = getline(&line, &cap, file)) >= 0; number++) {
        if (n == 0 || (n == 1 && line[0] == '\n'))
            continue;
        json_tokener_reset(parser);
        struct json_object *object = json_tokener_parse_ex(parser, line, (int)n);
        struct plm_slice name = object != NULL ? string_of(object, "case") : PLM_SLICE("?");
        plm_buf_clear(&where);
        plm_buf_printf(&where, "%s:%ld ", path, number);
        plm_buf_append_slice(&where, name);
        bool ok = object != NULL && run_case(tokenizer, object, where.data);
        if (object == NULL)
            printf("%s: not JSON\n", where.data);
        if (ok)
            counts->passed++;
        else
            counts->failed++;
        json_object_put(object);
    }
    json_tokener_free(parser);
    plm_buf_finish(&where);
    free(line);
    fclose(file);
}

static long count_lines(const char *path)
{
    FILE *file = fopen(path, "rb");
    long n = 0;
    for (int c; file != NULL && (c = getc(file)) != EOF;)
        n += c == '\n';
    if (file != NULL)
        fclose(file);
    return n;
}

// A file in dir whose name is stem, or with !whole starts with it, whatever the case, and ends in
// .gguf.
static bool find_vocabulary(const char *dir, const char *stem, bool whole, char path[4096])
{
    DIR *entries = dir != NULL ? opendir(dir) : NULL;
    bool found = false;
    size_t n = strlen(stem);
    for (struct dirent *entry; entries != NULL && !found && (entry = readdir(entries)) != NULL;) {
        size_t len = strlen(entry->d_name);
        found = len >= n + 5 && (!whole || len == n + 5) &&
                strncasecmp(entry->d_name, stem, n) == 0 &&
                strcmp(entry->d_name + len - 5, ".gguf") == 0;
        if (found)
            snprintf(path, 4096, "%s/%s", dir, entry->d_name);
    }
    if (entries != NULL)
        closedir(entries);
    return found;
}

// Only smollm2 may lie in a model of a longer name: others of the same family have more tokens.
static void run_file(const char *dir, const char *name, struct counts *counts)
{
    char stem[256], cases[4096], path[4096];
    snprintf(stem, sizeof(stem), "%.*s", (int)(strlen(name) - 6), name);
    snprintf(cases, sizeof(cases), "%s/%s", dir, name);
    if (!find_vocabulary(dir, stem, true, path) &&
        !find_vocabulary(getenv("PLIMSOLL_TEST_MODELS"), stem, strcmp(stem, "smollm2") != 0,
                         path)) {
        printf("%s: skipped, no vocabulary beside it or under $PLIMSOLL_TEST_MODELS\n", cases);
        counts->skipped += count_lines(cases);
        return;
    }
    struct plm_gguf *gguf = NULL;
    struct plm_tokenizer *tokenizer = NULL;
    struct plm_error err = {0};
    int status = plm_gguf_open(host, path, &gguf, &err);
    if (status == PLM_OK)
        status = plm_tokenizer_create(host, gguf, &tokenizer, &err);
    plm_gguf_close(gguf);
    if (status == PLM_ERR_UNSUPPORTED) {
        printf("%s: skipped, %s\n", cases, err.msg);
        counts->skipped += count_lines(cases);
    } else if (status != PLM_OK) {
        printf("%s: %s\n", path, err.msg);
        counts->failed += count_lines(cases);
    } else {
        struct counts before = *counts;
        run_lines(tokenizer, cases, counts);
        printf("%s: %ld passed, %ld failed\n", cases, counts->passed - before.passed,
               counts->failed - before.failed);
    }
    plm_tokenizer_destroy(tokenizer);
}

int main(int argc, char **argv)
{
    static const struct cases cases = {
        .suffix = ".jsonl",
        // What is committed, and what may lie beside the repository.
        .folders = {"tests/data/tokenizer", "../shared/data/tokenizer"},
        .file = run_file,
    };
    host = plm_host_create(0);
    return cases_main(&cases, host, argc, argv);
}
