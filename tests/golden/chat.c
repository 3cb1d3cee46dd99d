// SPDX-License-Identifier: Apache-2.0
// Whatever a template reads: a conversation gives one prompt in all its spellings, and either all
// of its texts and tools are there, or the refusal names what is not.
//
//     chat [DIR...]
//
// Runs each NAME.jinja of a folder through the conversations below.
#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/chat/chat.h"
#include "tests/golden/cases.h"

#define NOW_S 1768478400 // 2026-01-15 12:00:00 UTC

static struct plm_host *host;

#define USER(content)   "{\"role\": \"user\", \"content\": " content "}"
#define TEXT_PART(text) "{\"type\": \"text\", \"text\": \"" text "\"}"
#define CALL(arguments)                                                                            \
    "{\"id\": \"call00001\", \"type\": \"function\", \"function\": {\"name\": "                    \
    "\"look_up\"" arguments "}}"
#define CALLS_WITH(arguments) "\"tool_calls\": [" CALL(arguments) "]"
#define CALLS                 CALLS_WITH(", \"arguments\": \"{\\\"path\\\": \\\"/srv\\\"}\"")
#define RESULT                                                                                     \
    "{\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"name\": \"look_up\", \"content\": "   \
    "\"Zmap\"}"

static const char tools_json[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"look_up\", \"description\": \"Looks "
    "up\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\", "
    "\"description\": \"where\"}}, \"required\": [\"path\"]}}}]";

// @ in the conversation stands for each of the spellings, which all mean the same.
struct conversation {
    const char *name;
    const char *messages;
    const char *spellings[8];
    const char *words[4]; // that must be in the prompt
    bool tools;           // defines one
    bool may_drop;        // a template may know of no calls
    bool must_pass;       // no template has a reason to refuse
};

#define ONE_TEXT                                                                                   \
    {                                                                                              \
        "\"Zquokka lives\"", "[" TEXT_PART("Zquokka lives") "]",                                   \
            "[{\"type\": \"text\", \"text\": \"Zquokka lives\", \"cache_control\": {\"type\": "    \
            "\"ephemeral\"}}]",                                                                    \
            "[" TEXT_PART("") ", " TEXT_PART("Zquokka lives") "]",                                 \
            "[" TEXT_PART("Zquokka lives") ", " TEXT_PART("") "]"                                  \
    }
#define TWO_TEXTS                                                                                  \
    {                                                                                              \
        "[" TEXT_PART("Zquokka lives") ", " TEXT_PART("on Zislands") "]",                          \
            "[" TEXT_PART("Zquokka lives") ", " TEXT_PART("") ", " TEXT_PART("on Zislands") "]"    \
    }

static const struct conversation conversations[] = {
    {"user", "[{\"role\": \"user\", \"content\": @}]", ONE_TEXT, .words = {"Zquokka lives"},
     .must_pass = true},
    {"user, two parts", "[{\"role\": \"user\", \"content\": @}]", TWO_TEXTS,
     .words = {"Zquokka lives", "on Zislands"}, .must_pass = true},
    {"earlier user",
     "[{\"role\": \"user\", \"content\": @}, {\"role\": \"assistant\", \"content\": "
     "\"Yes.\"}, " USER("\"More.\"") "]",
     TWO_TEXTS, .words = {"Zquokka lives", "on Zislands", "More."}, .must_pass = true},
    {"system", "[{\"role\": \"system\", \"content\": @}, " USER("\"Hi.\"") "]", ONE_TEXT,
     .words = {"Zquokka lives"}},
    {"system, two parts", "[{\"role\": \"system\", \"content\": @}, " USER("\"Hi.\"") "]",
     TWO_TEXTS, .words = {"Zquokka lives", "on Zislands"}},
    {"two systems",
     "[{\"role\": \"system\", \"content\": \"Zfirst\"}, {\"role\": \"system\", \"content\": "
     "@}, " USER("\"Hi.\"") "]",
     ONE_TEXT, .words = {"Zfirst", "Zquokka lives"}},
    {"late system",
     "[" USER(
         "\"Hi.\"") ", {\"role\": \"assistant\", \"content\": \"Yes.\"}, {\"role\": \"system\", "
                    "\"content\": @}, " USER("\"Zgo on\"") "]",
     ONE_TEXT, .words = {"Zquokka lives", "Zgo on"}},
    {"developer", "[{\"role\": \"developer\", \"content\": @}, " USER("\"Hi.\"") "]", ONE_TEXT,
     .words = {"Zquokka lives"}},
    {"assistant",
     "[" USER("\"Hi.\"") ", {\"role\": \"assistant\", \"content\": @}, " USER("\"More.\"") "]",
     ONE_TEXT, .words = {"Zquokka lives"}, .must_pass = true},
    {"assistant, two parts",
     "[" USER("\"Hi.\"") ", {\"role\": \"assistant\", \"content\": @}, " USER("\"More.\"") "]",
     TWO_TEXTS, .words = {"Zquokka lives", "on Zislands"}, .must_pass = true},
    {"no calls",
     "[" USER("\"Hi.\"") ", {\"role\": \"assistant\", \"content\": \"Zquokka\"@}, " USER(
         "\"More.\"") "]",
     {"", ", \"tool_calls\": []", ", \"tool_calls\": null", ", \"refusal\": null"},
     .words = {"Zquokka"},
     .must_pass = true},
    {"only reasoning",
     "[" USER("\"Zhi\"") ", {\"role\": \"assistant\", \"content\": @}, " USER("\"More.\"") "]",
     {"\"<think>so</think>\"", "[" TEXT_PART("<think>so</think>") "]"},
     .words = {"Zhi"},
     .must_pass = true},
    {"tool",
     "[" USER("\"Zhi\"") ", {\"role\": \"assistant\", \"content\": null, " CALLS
                         "}, {\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"name\": "
                         "\"look_up\", \"content\": @}]",
     ONE_TEXT, .words = {"Zquokka lives", "Zhi"}},
    {"tool, two parts",
     "[" USER("\"Zhi\"") ", {\"role\": \"assistant\", \"content\": null, " CALLS
                         "}, {\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"name\": "
                         "\"look_up\", \"content\": @}]",
     TWO_TEXTS, .words = {"Zquokka lives", "on Zislands"}},
    {"function",
     "[" USER("\"Zhi\"") ", {\"role\": \"assistant\", \"content\": null, " CALLS
                         "}, {\"role\": \"function\", \"name\": \"look_up\", \"content\": @}]",
     ONE_TEXT, .words = {"Zquokka lives"}},
    {"call without text",
     "[" USER("\"Zhi\"") ", {\"role\": \"assistant\", @" CALLS "}, " RESULT "]",
     {"", "\"content\": null, ", "\"content\": \"\", ", "\"content\": [], ",
      "\"content\": [" TEXT_PART("") "], "},
     .words = {"Zhi", "Zmap"}},
    {"call without text, with tools",
     "[" USER("\"Zhi\"") ", {\"role\": \"assistant\", @" CALLS "}, " RESULT "]",
     {"", "\"content\": null, ", "\"content\": \"\", ", "\"content\": [], ",
      "\"content\": [" TEXT_PART("") "], "},
     .words = {"Zhi", "Zmap", "look_up"},
     .tools = true},
    {"text beside a call",
     "[" USER("\"Zhi\"") ", {\"role\": \"assistant\", \"content\": @, " CALLS "}, " RESULT "]",
     ONE_TEXT, .words = {"Zhi", "Zquokka lives", "Zmap"}},
    {"no arguments",
     "[" USER("\"Zhi\"") ", {\"role\": \"assistant\", \"content\": null, " CALLS_WITH(
         "@") "}, " RESULT "]",
     {"", ", \"arguments\": null", ", \"arguments\": \"\"", ", \"arguments\": \" \"",
      ", \"arguments\": \"{}\"", ", \"arguments\": {}"},
     .words = {"Zhi", "Zmap"}},
    {"sound arguments",
     "[" USER("\"Zhi\"") ", {\"role\": \"assistant\", \"content\": null, " CALLS_WITH(
         "@") "}, " RESULT "]",
     {", \"arguments\": \"{\\\"a\\\": \\\"Zquokka\\\"}\"", ", \"arguments\": {\"a\": \"Zquokka\"}"},
     .words = {"Zquokka", "Zmap"},
     .may_drop = true},
    {"cut off arguments",
     "[" USER("\"Zhi\"") ", {\"role\": \"assistant\", \"content\": @, " CALLS_WITH(
         ", \"arguments\": \"{\\\"a\\\": \\\"Zquok\"") "}, " RESULT "]",
     {"null", "\"\""},
     .words = {"Zquok", "Zmap"},
     .may_drop = true},
    {"tools", "[{\"role\": \"user\", \"content\": @}]", ONE_TEXT,
     .words = {"Zquokka lives", "look_up"}, .tools = true},
};

struct subject {
    const char *name;
    const struct plm_template *tmpl;
    const struct plm_chat_form *form;
};

// The prompt or the error, both the caller's to free.
struct answer {
    int status;
    char *text;
    char param[PLM_CHAT_PARAM_BYTES];
};

static struct answer ask(const struct subject *s, const char *messages, bool tools)
{
    struct answer answer = {0};
    struct plm_chat_opts opts;
    struct plm_render render;
    struct plm_error err = {0};
    plm_chat_opts_init(&opts);
    opts.messages = json_tokener_parse(messages);
    opts.tools = tools ? json_tokener_parse(tools_json) : NULL;
    opts.bos_token = PLM_SLICE("<s>");
    opts.eos_token = PLM_SLICE("</s>");
    opts.add_generation_prompt = true;
    opts.normalize = true;
    opts.form = s->form;
    opts.param = answer.param;
    opts.render.now_s = NOW_S;
    if (opts.messages == NULL) {
        printf("no JSON: %s\n", messages);
        abort();
    }
    answer.status = plm_chat_render(s->tmpl, &opts, &render, &err);
    answer.text = strdup(answer.status == PLM_OK ? render.text.data : err.msg);
    if (answer.status == PLM_OK)
        plm_render_finish(&render);
    json_object_put(opts.messages);
    json_object_put(opts.tools);
    return answer;
}

static void spell(const char *messages, const char *spelling, char *out, size_t cap)
{
    const char *at = strchr(messages, '@');
    snprintf(out, cap, "%.*s%s%s", (int)(at - messages), messages, spelling, at + 1);
}

static bool fail(const struct subject *s, const struct conversation *c, const char *what,
                 const char *text)
{
    printf("%s, %s: %s: %.600s\n", s->name, c->name, what, text);
    return false;
}

static bool judge(const struct subject *s, const struct conversation *c, const struct answer *a)
{
    if (a->status == PLM_ERR_INVALID)
        return a->text[0] == '\0'               ? fail(s, c, "an empty error", "")
               : c->must_pass && s->form->known ? fail(s, c, "refused", a->text)
                                                : true;
    if (a->status != PLM_OK)
        return fail(s, c, "failed", a->text);
    for (int i = 0; i < 4 && c->words[i] != NULL; i++)
        if (strstr(a->text, c->words[i]) == NULL &&
            !(c->may_drop && (!s->form->reads_calls || i > 0)))
            return fail(s, c, c->words[i], a->text);
    const char *none = strstr(a->text, "None");
    return none == NULL || strstr(s->name, "None") != NULL || fail(s, c, "prints None", none);
}

static bool run(const struct subject *s, const struct conversation *c)
{
    char messages[4096];
    spell(c->messages, c->spellings[0], messages, sizeof(messages));
    struct answer first = ask(s, messages, c->tools);
    bool ok = judge(s, c, &first);
    for (int i = 1; i < 8 && c->spellings[i] != NULL; i++) {
        spell(c->messages, c->spellings[i], messages, sizeof(messages));
        struct answer other = ask(s, messages, c->tools);
        // What is refused may be named by its place, which differs.
        const bool same = other.status == first.status &&
                          (first.status != PLM_OK || strcmp(other.text, first.text) == 0);
        if (!same) {
            ok = fail(s, c, c->spellings[i], other.text);
            fail(s, c, "instead of", first.text);
        }
        free(other.text);
    }
    free(first.text);
    return ok;
}

static char *read_file(const char *path, size_t *ret_len)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    *ret_len = fread(text, 1, sizeof(text), file);
    fclose(file);
    return text;
}

static void run_template(const char *dir, const char *file, struct counts *counts)
{
    char path[4096];
    size_t len = 0;
    struct plm_template *tmpl = NULL;
    struct plm_chat_form form;
    struct plm_chat_opts opts;
    struct plm_error err = {0};
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    plm_chat_opts_init(&opts);
    opts.render.now_s = NOW_S;
    opts.bos_token = PLM_SLICE("<s>");
    opts.eos_token = PLM_SLICE("</s>");
    const char *text = read_file(path, &len);
    if (text == NULL ||
        plm_template_create(host, (struct plm_slice){text, len}, &tmpl, &err) != PLM_OK ||
        plm_chat_probe(tmpl, &opts, &form, &err) != PLM_OK) {
        printf("%s: %s\n", path, err.msg);
        counts->failed++;
        plm_template_destroy(tmpl);
        return;
    }
    const struct subject subject = {file, tmpl, &form};
    for (size_t i = 0; i < sizeof(conversations) / sizeof(conversations[0]); i++) {
        if (run(&subject, &conversations[i]))
            counts->passed++;
        else
            counts->failed++;
    }
    plm_template_destroy(tmpl);
}

int main(int argc, char **argv)
{
    static const struct cases cases = {
        .suffix = ".jinja",
        // What is committed, and what may lie beside the repository.
        .folders = {"tests/data/chat", "../shared/data/templates"},
        .file = run_template,
    };
    host = plm_host_create(0);
    return cases_main(&cases, host, argc, argv);
}
