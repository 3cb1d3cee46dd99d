// SPDX-License-Identifier: Apache-2.0
// What a template reads, found by rendering small conversations in each form and looking whether
// their texts come out. Nothing is asked of the template's source: macros, tests and loops may hide
// anything.
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <json.h>

#include "core/base/json_tree.h"
#include "core/chat/chat_impl.h"
#include "core/template/ast.h"

// Limits of the test renders: steps of all together, of which known templates take below 100,000,
// and bytes of each.
#define PROBE_STEPS        UINT64_C(5000000)
#define PROBE_OUTPUT_BYTES ((uint64_t)1 << 20)
#define PROBE_MEMORY_BYTES ((uint64_t)16 << 20)

enum { CONVERSATION_BYTES = 1024 }; // the longest has about 500

// The id has nine letters and digits: some templates raise at others.
#define CALL                                                                                       \
    "\"tool_calls\": [{\"id\": \"call00001\", \"type\": \"function\", \"function\": "              \
    "{\"name\": \"look_up\", \"arguments\": \"{\\\"path\\\": \\\"/srv\\\"}\"}}]"
#define ASK   "{\"role\": \"user\", \"content\": \"Where are the quokkas?\"}"
#define GO_ON "{\"role\": \"user\", \"content\": \"Go on.\"}"
#define REPLY "{\"role\": \"assistant\", \"content\": \"There.\"}"
#define TEXT  "\"On an island.\""
#define TEXTS                                                                                      \
    "[{\"type\": \"text\", \"text\": \"On an\"}, {\"type\": \"text\", \"text\": \"island.\"}]"
#define RESULT                                                                                     \
    "{\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"name\": \"look_up\", "                \
    "\"content\": \"a map\"}"
#define CALL_WITH_TEXT                                                                             \
    "[" ASK ", {\"role\": \"assistant\", \"content\": " TEXT ", " CALL "}, " RESULT

static const char tools_json[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"look_up\", \"description\": \"Looks "
    "up\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\", "
    "\"description\": \"where\"}}, \"required\": [\"path\"]}}}]";

struct probe {
    const struct plm_template *tmpl;
    struct plm_chat_opts opts;
    struct plm_chat_form form; // what is known so far
    struct json_object *tools;
    uint64_t steps; // that are left
    int status;     // PLM_OK, or NOMEM_HOST from then on
    struct plm_error *err;
};

// What came of one test render.
struct outcome {
    int score; // 0: everything was written; INT_MAX: the template failed
    struct plm_chat_attempt attempt;
};

static struct json_object *parse(struct probe *p, struct plm_json_tree *tree, const char *json)
{
    plm_json_tree_init(tree, p->tmpl->host, PLM_HOST_TEMPLATE);
    p->status =
        plm_json_tree_parse(tree, (struct plm_slice){json, strlen(json)}, &tree->root, p->err);
    return tree->root;
}

// Renders a conversation; its text goes to *ret_render unless that is NULL or the render failed.
static struct outcome try_with(struct probe *p, const char *messages, bool tools,
                               const struct plm_chat_form *form, struct plm_render *ret_render)
{
    struct outcome out = {.score = INT_MAX};
    if (p->status != PLM_OK)
        return out;
    struct plm_render render;
    struct plm_error err;
    struct plm_json_tree tree;
    out.attempt = (struct plm_chat_attempt){.opts = &p->opts, .form = *form};
    p->opts.messages = parse(p, &tree, messages);
    p->opts.tools = tools ? p->tools : NULL;
    int r = p->status == PLM_OK ? plm_chat_try(p->tmpl, &out.attempt, &p->steps, &render, &err)
                                : p->status;
    plm_json_tree_finish(&tree);
    if (p->status != PLM_OK)
        return out;
    if (r == PLM_OK) {
        const struct plm_chat_attempt *a = &out.attempt;
        out.score =
            8 * (int)a->n_missing + 4 * a->calls_missing + 2 * a->printed_parts + a->printed_args;
        if (ret_render != NULL)
            *ret_render = render;
        else
            plm_render_finish(&render);
    } else if (r == PLM_ERR_NOMEM_HOST) {
        p->status = plm_fail(p->err, r, "%s", err.msg);
    }
    return out;
}

static struct outcome try(struct probe *p, const char *messages, bool tools,
                          const struct plm_chat_form *form)
{
    return try_with(p, messages, tools, form, NULL);
}

// A conversation in which a role says something, in JSON.
static void conversation_of(enum plm_chat_role role, const char *name, const char *content,
                            char out[CONVERSATION_BYTES])
{
    switch (role) {
    case PLM_CHAT_USER:
        snprintf(out, CONVERSATION_BYTES, "[{\"role\": \"%s\", \"content\": %s}]", name, content);
        break;
    case PLM_CHAT_ASSISTANT:
        snprintf(out, CONVERSATION_BYTES,
                 "[" ASK ", {\"role\": \"%s\", \"content\": %s}, " GO_ON "]", name, content);
        break;
    case PLM_CHAT_TOOL:
    case PLM_CHAT_FUNCTION:
        snprintf(out, CONVERSATION_BYTES,
                 "[" ASK ", {\"role\": \"assistant\", \"content\": null, " CALL "}, {\"role\": "
                 "\"%s\", \"tool_call_id\": \"call00001\", \"name\": \"look_up\", \"content\": "
                 "%s}]",
                 name, content);
        break;
    default:
        snprintf(out, CONVERSATION_BYTES, "[{\"role\": \"%s\", \"content\": %s}, " ASK "]", name,
                 content);
    }
}

static bool is_written(const struct outcome *out)
{
    // What becomes of calls beside it is another question.
    return out->score != INT_MAX && out->attempt.n_missing == 0 && !out->attempt.printed_parts;
}

// In what a role's texts are read; 0: in none.
static uint8_t probe_content(struct probe *p, enum plm_chat_role role, const char *name)
{
    static const struct {
        uint8_t form;
        const char *content;
    } ways[] = {{PLM_CHAT_STRING, TEXT}, {PLM_CHAT_PARTS, TEXTS}};
    char json[CONVERSATION_BYTES];
    uint8_t found = 0;
    for (int i = 0; i < 2; i++) {
        struct plm_chat_form form = p->form;
        form.content[role] = ways[i].form;
        conversation_of(role, name, ways[i].content, json);
        // Where a template writes no tools, they are not what is asked for here.
        struct outcome out = try(p, json, p->form.reads_tools && role >= PLM_CHAT_TOOL, &form);
        if (is_written(&out))
            found |= ways[i].form;
    }
    return found;
}

// Whether a template does more with a role than to write its name, as it would any.
static bool knows_role(struct probe *p, enum plm_chat_role role, const char *name)
{
    static const char stranger[] = "zzzzzzzzz"; // cut to the length of the name
    char json[CONVERSATION_BYTES], other[16];
    struct plm_render known = {0}, strange = {0};
    const size_t n = strlen(name);
    snprintf(other, sizeof(other), "%.*s", (int)n, stranger);
    conversation_of(role, name, TEXT, json);
    const bool tools = p->form.reads_tools && role >= PLM_CHAT_TOOL;
    struct outcome a = try_with(p, json, tools, &p->form, &known);
    conversation_of(role, other, TEXT, json);
    struct outcome b = try_with(p, json, tools, &p->form, &strange);
    bool differs = !is_written(&b) || known.text.len != strange.text.len;
    for (size_t i = 0; is_written(&a) && !differs && i < known.text.len; i++) {
        if (known.text.data[i] == strange.text.data[i])
            continue;
        differs = known.text.len - i < n || memcmp(strange.text.data + i, other, n) != 0 ||
                  memcmp(known.text.data + i, name, n) != 0;
        i += n - 1;
    }
    plm_render_finish(&known);
    plm_render_finish(&strange);
    return is_written(&a) && differs;
}

// Texts of users, and what stands for no tools. False: nothing comes out.
static bool probe_user(struct probe *p)
{
    for (int list = 0; list < 2; list++) {
        p->form.no_tools_list = list == 1;
        uint8_t content = probe_content(p, PLM_CHAT_USER, "user");
        if (content == 0)
            continue;
        for (int role = 0; role < PLM_CHAT_ROLES; role++)
            p->form.content[role] = content;
        return true;
    }
    return false;
}

// How calls of tools are read: beside which empty content, with which arguments.
static void probe_calls(struct probe *p)
{
    char json[CONVERSATION_BYTES];
    struct outcome best = {.score = INT_MAX};
    conversation_of(PLM_CHAT_TOOL, "tool", TEXT, json);
    for (int tools = 1; tools >= 0 && best.score == INT_MAX; tools--)
        for (uint8_t way = 0; way < 2 * PLM_CHAT_EMPTIES && best.score > 0; way++) {
            struct plm_chat_form form = p->form;
            form.empty = way / 2;
            form.text_args = way % 2 == 1;
            struct outcome out = try(p, json, tools == 1, &form);
            if (out.score < best.score)
                best = out;
        }
    if (best.score == INT_MAX) {
        best = try(p, "[" ASK "]", true, &p->form);
        p->form.reads_calls = false;
    } else {
        p->form.empty = best.attempt.form.empty;
        p->form.text_args = best.attempt.form.text_args;
        p->form.reads_calls = best.attempt.some_call;
    }
    if (!best.attempt.some_tool)
        best = try(p, "[" ASK "]", true, &p->form);
    p->form.reads_tools = best.score != INT_MAX && best.attempt.some_tool;
}

static void probe_roles(struct probe *p)
{
    static const struct {
        enum plm_chat_role role;
        const char *name;
    } roles[] = {{PLM_CHAT_SYSTEM, "system"},
                 {PLM_CHAT_ASSISTANT, "assistant"},
                 {PLM_CHAT_TOOL, "tool"},
                 {PLM_CHAT_DEVELOPER, "developer"},
                 {PLM_CHAT_FUNCTION, "function"}};
    uint8_t found[PLM_CHAT_ROLES] = {0};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        const enum plm_chat_role role = roles[i].role;
        found[role] = probe_content(p, role, roles[i].name);
        if (found[role] != 0)
            p->form.content[role] = found[role];
        else
            p->form.lacks_roles |= 1u << role;
    }
    // Where neither is written, the template's error is about the system's.
    if ((found[PLM_CHAT_SYSTEM] != 0 || found[PLM_CHAT_DEVELOPER] == 0) &&
        !knows_role(p, PLM_CHAT_DEVELOPER, "developer"))
        p->form.role[PLM_CHAT_DEVELOPER] = PLM_CHAT_SYSTEM;
    if (found[PLM_CHAT_TOOL] != 0 && !knows_role(p, PLM_CHAT_FUNCTION, "function") &&
        (found[PLM_CHAT_FUNCTION] == 0 || knows_role(p, PLM_CHAT_TOOL, "tool")))
        p->form.role[PLM_CHAT_FUNCTION] = PLM_CHAT_TOOL;
}

// What becomes of a text that stands beside calls.
static void probe_call_text(struct probe *p)
{
    struct plm_chat_form split = p->form;
    struct outcome earlier =
        try(p, CALL_WITH_TEXT ", " REPLY ", " GO_ON "]", p->form.reads_tools, &p->form);
    if (!p->form.reads_calls || (earlier.score != INT_MAX && earlier.attempt.n_missing == 0 &&
                                 !earlier.attempt.calls_missing))
        return;
    struct outcome now = try(p, CALL_WITH_TEXT "]", p->form.reads_tools, &p->form);
    if (earlier.score != INT_MAX && now.score != INT_MAX && now.attempt.n_missing == 0 &&
        !now.attempt.calls_missing) {
        p->form.drops_call_text = true;
        return;
    }
    split.split_calls = true;
    struct outcome apart =
        try(p, CALL_WITH_TEXT ", " REPLY ", " GO_ON "]", p->form.reads_tools, &split);
    p->form.split_calls = apart.score < earlier.score;
}

int plm_chat_probe(const struct plm_template *tmpl, const struct plm_chat_opts *opts,
                   struct plm_chat_form *ret, struct plm_error *err)
{
    struct probe p = {.tmpl = tmpl, .steps = PROBE_STEPS, .status = PLM_OK, .err = err};
    plm_chat_opts_init(&p.opts);
    p.opts.bos_token = opts->bos_token;
    p.opts.eos_token = opts->eos_token;
    p.opts.render.now_s = opts->render.now_s;
    p.opts.render.limits.output_bytes = PROBE_OUTPUT_BYTES;
    p.opts.render.limits.memory_bytes = PROBE_MEMORY_BYTES;
    p.opts.normalize = true;
    p.opts.add_generation_prompt = true;
    plm_chat_form_init(&p.form);
    struct plm_json_tree tools;
    p.tools = parse(&p, &tools, tools_json);
    if (probe_user(&p)) {
        probe_calls(&p);
        probe_roles(&p);
        probe_call_text(&p);
        p.form.known = true;
    } else {
        plm_chat_form_init(&p.form);
    }
    plm_json_tree_finish(&tools);
    if (p.status == PLM_OK)
        *ret = p.form;
    return p.status;
}
