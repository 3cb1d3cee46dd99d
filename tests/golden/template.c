// SPDX-License-Identifier: Apache-2.0
// Runs chat template cases: in a folder, NAME.jinja with cases/NAME.jsonl, and lang.jsonl.
//
//     template [DIR...]
//
// Without a DIR it is to be run in the root of the sources. Each failing case is printed, and a
// tally per file; the last line counts. A failure counts as failed for the templates in `required`
// and for lines of lang.jsonl of level core; elsewhere the case counts as skipped. Exit: 0 nothing
// failed, 1 a case failed, 77 nothing ran.
#include <errno.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/chat/chat.h"
#include "core/template/template.h"
#include "tests/golden/cases.h"

#define NOW_S       1768478400 // 2026-01-15 12:00:00 UTC, the clock of the cases
#define SHOWN_BYTES 60         // of a text, around the first difference

static struct plm_host *host;

static const char *const required[] = {
    "SmolLM2-135M-Instruct",
    "meta-llama-Llama-3.1-8B-Instruct",
    "Qwen-Qwen2.5-7B-Instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
};

static struct json_object *member(struct json_object *obj, const char *name)
{
    struct json_object *v = NULL;
    json_object_object_get_ex(obj, name, &v);
    return v;
}

static struct plm_slice text_of(struct json_object *v)
{
    if (!json_object_is_type(v, json_type_string))
        return (struct plm_slice){NULL, 0};
    return (struct plm_slice){json_object_get_string(v), (size_t)json_object_get_string_len(v)};
}

static bool text_is(struct json_object *v, const char *s)
{
    struct plm_slice text = text_of(v);
    return text.ptr != NULL && plm_slice_eq_str(text, s);
}

static void print_text(const char *label, struct plm_slice s, size_t from)
{
    struct json_object *shown;
    size_t begin = from > 20 ? from - 20 : 0;
    size_t n = s.len > begin ? s.len - begin : 0;
    n = n < SHOWN_BYTES ? n : SHOWN_BYTES;
    shown = json_object_new_string_len(s.ptr + (n > 0 ? begin : 0), (int)n);
    printf("    %s (%zu bytes, from %zu): %s\n", label, s.len, begin,
           json_object_to_json_string_ext(shown, JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(shown);
}

// What a case wants: a text, an error, or either of two.
struct want {
    struct json_object *expect;
    struct json_object *error;
    struct json_object *kind;
    struct json_object *lenient;
};

static bool expected_error(const struct want *want, const struct plm_error *err)
{
    if (want->error == NULL)
        return false;
    // The message of raise_exception is the template's own; others are in our words.
    return !text_is(want->kind, "raise") || text_is(want->error, err->msg);
}

// Whether the spans cover the text in order.
static bool spans_cover(const struct plm_render *render)
{
    size_t at = 0;
    for (size_t i = 0; i < render->n_spans; i++) {
        if (render->spans[i].begin != at || render->spans[i].end <= at)
            return false;
        at = render->spans[i].end;
    }
    return at == render->text.len;
}

static bool judge(const char *name, const struct want *want, int status,
                  const struct plm_render *render, const struct plm_error *err)
{
    if (status != PLM_OK) {
        if (expected_error(want, err))
            return true;
        printf("%s: %s\n    wanted %s\n", name, err->msg,
               want->expect != NULL ? "a text" : json_object_get_string(want->error));
        return false;
    }
    struct plm_slice got = {render->text.len > 0 ? render->text.data : "", render->text.len};
    struct json_object *expect = want->expect != NULL ? want->expect : want->lenient;
    struct plm_slice wanted = text_of(expect);
    if (expect != NULL && plm_slice_eq(got, wanted) && spans_cover(render))
        return true;
    if (expect == NULL) {
        printf("%s: no error, wanted %s\n", name, json_object_get_string(want->error));
        print_text("got", got, 0);
        return false;
    }
    size_t at = 0;
    while (at < got.len && at < wanted.len && got.ptr[at] == wanted.ptr[at])
        at++;
    printf("%s: differs at byte %zu%s\n", name, at, spans_cover(render) ? "" : " (spans)");
    print_text("wanted", wanted, at);
    print_text("got   ", got, at);
    return false;
}

static void want_of(struct json_object *from, struct want *ret)
{
    *ret = (struct want){member(from, "expect"), member(from, "error"), member(from, "error_kind"),
                         member(from, "expect_lenient")};
}

static void count(bool ok, bool must, struct counts *counts)
{
    if (ok)
        counts->passed++;
    else if (must)
        counts->failed++;
    else
        counts->skipped++;
}

// One rendering of a conversation.
static bool run_chat(const struct plm_template *tmpl, struct json_object *line, const char *name,
                     const struct want *want, bool normalize)
{
    struct plm_chat_opts opts;
    struct plm_render render = {0};
    struct plm_error err = {0};
    struct json_object *kwargs = member(line, "kwargs");
    plm_chat_opts_init(&opts);
    opts.messages = member(line, "messages");
    opts.tools = member(line, "tools");
    opts.kwargs = kwargs;
    opts.bos_token = text_of(member(line, "bos_token"));
    opts.eos_token = text_of(member(line, "eos_token"));
    opts.add_generation_prompt = json_object_get_boolean(member(kwargs, "add_generation_prompt"));
    opts.continue_final_message = json_object_get_boolean(member(line, "continue_final_message"));
    opts.normalize = normalize;
    opts.strict = true;
    opts.render.now_s = NOW_S;
    int status = plm_chat_render(tmpl, &opts, &render, &err);
    bool ok = judge(name, want, status, &render, &err);
    plm_render_finish(&render);
    return ok;
}

static void run_case(const struct plm_template *tmpl, const char *stem, struct json_object *line,
                     bool must, struct counts *counts)
{
    char name[300];
    struct want want;
    struct json_object *normalized = member(line, "normalized");
    snprintf(name, sizeof(name), "%s %s", stem, json_object_get_string(member(line, "case")));
    want_of(line, &want);
    bool ok = run_chat(tmpl, line, name, &want, false);
    struct want after = want; // a normalized conversation mostly gives the same
    if (normalized != NULL)
        want_of(normalized, &after);
    strncat(name, " (normalized)", sizeof(name) - strlen(name) - 1);
    ok = run_chat(tmpl, line, name, &after, true) && ok;
    count(ok, must, counts);
}

static bool run_snippet(struct json_object *line)
{
    struct plm_template *tmpl = NULL;
    struct plm_render render = {0};
    struct plm_render_opts opts;
    struct plm_error err = {0};
    struct want want;
    want_of(line, &want);
    plm_render_opts_init(&opts);
    opts.now_s = NOW_S;
    bool syntax = text_is(want.kind, "syntax");
    int status = plm_template_create(host, text_of(member(line, "template")), &tmpl, &err);
    if (status == PLM_OK) {
        status = plm_template_render(tmpl, member(line, "context"), &opts, &render, &err);
        // A malformed template is to be refused when it is loaded.
        if (syntax && status != PLM_OK) {
            status = PLM_OK;
            want.lenient = NULL;
        }
    }
    bool ok = judge(json_object_get_string(member(line, "id")), &want, status, &render, &err);
    plm_render_finish(&render);
    plm_template_destroy(tmpl);
    return ok;
}

// Calls fn for each line of a file. False when the file can not be read.
static bool each_line(const char *path,
                      void (*fn)(void *ctx, struct json_object *line, struct counts *counts),
                      void *ctx, struct counts *counts)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t cap = 0;
    ssize_t n;
    if (file == NULL)
        return false;
    for (long number = 1; (n = getline(&text, &cap, file)) > 0; number++) {
        struct json_object *line = json_tokener_parse(text);
        if (line == NULL) {
            printf("%s:%ld: no JSON\n", path, number);
            counts->failed++;
            continue;
        }
        fn(ctx, line, counts);
        json_object_put(line);
    }
    free(text);
    fclose(file);
    return true;
}

static void on_snippet(void *ctx, struct json_object *line, struct counts *counts)
{
    (void)ctx;
    count(run_snippet(line), text_is(member(line, "level"), "core"), counts);
}

struct file_ctx {
    const struct plm_template *tmpl; // NULL: could not be loaded
    const char *stem;
    bool must;
};

static void on_case(void *ctx, struct json_object *line, struct counts *counts)
{
    const struct file_ctx *file = ctx;
    if (file->tmpl == NULL)
        count(false, file->must, counts);
    else
        run_case(file->tmpl, file->stem, line, file->must, counts);
}

static bool read_file(const char *path, struct plm_buf *ret)
{
    char block[8192];
    size_t n;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return false;
    while ((n = fread(block, 1, sizeof(block), file)) > 0)
        plm_buf_append(ret, block, n);
    fclose(file);
    return true;
}

static void tally(const char *name, const struct counts *before, const struct counts *after,
                  bool must)
{
    long passed = after->passed - before->passed;
    long all = passed + after->failed - before->failed + after->skipped - before->skipped;
    printf("%s: %ld of %ld%s\n", name, passed, all, must ? " (required)" : "");
}

static void run_template(const char *dir, const char *file, struct counts *counts)
{
    char path[4096];
    char stem[256];
    struct counts before = *counts;
    struct plm_template *tmpl = NULL;
    struct plm_error err = {0};
    struct plm_buf source;
    bool must = false;
    snprintf(stem, sizeof(stem), "%.*s", (int)(strlen(file) - 6), file);
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++)
        must = must || strcmp(stem, required[i]) == 0;
    plm_buf_init(&source, host, PLM_HOST_OTHER);
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    if (!read_file(path, &source) ||
        plm_template_create(host, (struct plm_slice){source.data, source.len}, &tmpl, &err) !=
            PLM_OK)
        printf("%s: %s\n", path, err.msg);
    plm_buf_finish(&source);
    struct file_ctx ctx = {tmpl, stem, must};
    snprintf(path, sizeof(path), "%s/cases/%s.jsonl", dir, stem);
    if (!each_line(path, on_case, &ctx, counts))
        printf("%s: %s\n", path, strerror(errno));
    plm_template_destroy(tmpl);
    tally(stem, &before, counts, must);
}

static void run_snippets(const char *dir, struct counts *counts)
{
    char path[4096];
    struct counts before = *counts;
    snprintf(path, sizeof(path), "%s/lang.jsonl", dir);
    if (each_line(path, on_snippet, NULL, counts))
        tally("lang.jsonl", &before, counts, false);
}

int main(int argc, char **argv)
{
    static const struct cases cases = {
        .suffix = ".jinja",
        // What is committed, and what may lie beside the repository.
        .folders = {"tests/data/template", "../shared/data/templates"},
        .file = run_template,
        .rest = run_snippets,
    };
    host = plm_host_create(0);
    return cases_main(&cases, host, argc, argv);
}
