// SPDX-License-Identifier: Apache-2.0
// A chat body to a prompt: check its shape, render it with the model's template, and keep apart
// what the template wrote and what a user wrote.
#include <stdio.h>
#include <string.h>

#include <json-c/json.h>

#include "core/base/json_tree.h"
#include "core/chat/chat.h"
#include "core/engine/core.h"
#include "core/engine/error.h"
#include "core/engine/text.h"

static int bad(plim_error *err, const char *param, const char *want)
{
    return plm_error_set(err, PLIM_ERR_INVALID, param, "%s must be %s", param, want);
}

static struct json_object *member(struct json_object *object, const char *name)
{
    struct json_object *value = NULL;
    json_object_object_get_ex(object, name, &value);
    return value; // NULL also for JSON null
}

// The text of a word; "" where it is none, or goes on behind a NUL.
static const char *word_of(struct json_object *value)
{
    if (!json_object_is_type(value, json_type_string))
        return "";
    const char *text = json_object_get_string(value);
    return strlen(text) == (size_t)json_object_get_string_len(value) ? text : "";
}

// Templates take any role in silence, and the model then answers something else.
static bool is_role(const char *name)
{
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        if (strcmp(name, roles[i]) == 0)
            return true;
    }
    return false;
}

static int check_calls(struct json_object *message, size_t i, plim_error *err)
{
    char param[96]; // of 64 at most: a body has no more than PLM_JSON_TREE_NODES_MAX calls
    struct json_object *calls = member(message, "tool_calls");
    snprintf(param, sizeof(param), "messages[%zu].tool_calls", i);
    if (calls != NULL && !json_object_is_type(calls, json_type_array))
        return bad(err, param, "an array");
    const size_t n = calls != NULL ? json_object_array_length(calls) : 0;
    for (size_t c = 0; c < n; c++) {
        struct json_object *call = json_object_array_get_idx(calls, c);
        struct json_object *function =
            json_object_is_type(call, json_type_object) ? member(call, "function") : NULL;
        snprintf(param, sizeof(param), "messages[%zu].tool_calls[%zu].function", i, c);
        if (!json_object_is_type(function, json_type_object) ||
            !json_object_is_type(member(function, "name"), json_type_string))
            return bad(err, param, "an object with a name");
        struct json_object *arguments = member(function, "arguments");
        snprintf(param, sizeof(param), "messages[%zu].tool_calls[%zu].function.arguments", i, c);
        if (arguments != NULL && !json_object_is_type(arguments, json_type_string) &&
            !json_object_is_type(arguments, json_type_object))
            return bad(err, param, "a string of JSON or an object");
    }
    return PLIM_OK;
}

static int check_message(struct json_object *message, size_t i, plim_error *err)
{
    char param[64];
    snprintf(param, sizeof(param), "messages[%zu]", i);
    if (!json_object_is_type(message, json_type_object))
        return bad(err, param, "an object");
    snprintf(param, sizeof(param), "messages[%zu].role", i);
    struct json_object *role = member(message, "role");
    if (!is_role(word_of(role)))
        return bad(err, param, "system, developer, user, assistant, tool or function");
    // An assistant's message may consist of tool calls alone.
    bool may_lack_content = strcmp(json_object_get_string(role), "assistant") == 0;
    snprintf(param, sizeof(param), "messages[%zu].content", i);
    struct json_object *content = member(message, "content");
    if (!(content == NULL && may_lack_content) && !json_object_is_type(content, json_type_string) &&
        !json_object_is_type(content, json_type_array))
        return bad(err, param, "a string or an array of parts");
    size_t parts =
        json_object_is_type(content, json_type_array) ? json_object_array_length(content) : 0;
    for (size_t p = 0; p < parts; p++) {
        snprintf(param, sizeof(param), "messages[%zu].content[%zu]", i, p);
        struct json_object *part = json_object_array_get_idx(content, p);
        struct json_object *type =
            json_object_is_type(part, json_type_object) ? member(part, "type") : NULL;
        if (!json_object_is_type(type, json_type_string))
            return bad(err, param, "an object with a type");
        const char *word = word_of(type);
        if (strcmp(word, "text") != 0 && strcmp(word, "refusal") != 0)
            return plm_error_set(err, PLIM_ERR_UNSUPPORTED, param,
                                 "%s is of type \"%.32s\"; this model takes text only", param,
                                 json_object_get_string(type));
        // The text of a part has the name of its type.
        if (!json_object_is_type(member(part, word), json_type_string))
            return bad(err, param, "a part with a string text");
    }
    snprintf(param, sizeof(param), "messages[%zu].refusal", i);
    if (member(message, "refusal") != NULL &&
        !json_object_is_type(member(message, "refusal"), json_type_string))
        return bad(err, param, "a string");
    return check_calls(message, i, err);
}

static int read_flag(struct json_object *body, const char *name, bool *ret, plim_error *err)
{
    struct json_object *value = member(body, name);
    if (value == NULL)
        return PLIM_OK;
    if (!json_object_is_type(value, json_type_boolean))
        return bad(err, name, "true or false");
    *ret = json_object_get_boolean(value);
    return PLIM_OK;
}

// Fills opts with what the body says; the objects stay the body's.
static int read_body(struct json_object *body, struct plm_chat_opts *opts, plim_error *err)
{
    if (!json_object_is_type(body, json_type_object))
        return bad(err, "chat", "an object");
    opts->messages = member(body, "messages");
    if (!json_object_is_type(opts->messages, json_type_array) ||
        json_object_array_length(opts->messages) == 0)
        return bad(err, "messages", "an array of at least one message");
    for (size_t i = 0; i < json_object_array_length(opts->messages); i++) {
        int r = check_message(json_object_array_get_idx(opts->messages, i), i, err);
        if (r != PLIM_OK)
            return r;
    }
    opts->tools = member(body, "tools");
    if (opts->tools != NULL && !json_object_is_type(opts->tools, json_type_array))
        return bad(err, "tools", "an array");
    const size_t n_tools = opts->tools != NULL ? json_object_array_length(opts->tools) : 0;
    for (size_t i = 0; i < n_tools; i++) {
        char param[32];
        snprintf(param, sizeof(param), "tools[%zu]", i);
        if (!json_object_is_type(json_object_array_get_idx(opts->tools, i), json_type_object))
            return bad(err, param, "an object");
    }
    opts->kwargs = member(body, "chat_template_kwargs");
    if (opts->kwargs != NULL && !json_object_is_type(opts->kwargs, json_type_object))
        return bad(err, "chat_template_kwargs", "an object");
    opts->add_generation_prompt = true;
    int r = read_flag(body, "continue_final_message", &opts->continue_final_message, err);
    if (opts->continue_final_message)
        opts->add_generation_prompt = false;
    return r == PLIM_OK
               ? read_flag(body, "add_generation_prompt", &opts->add_generation_prompt, err)
               : r;
}

static struct plm_slice token_text(const struct plm_core *core, int32_t id)
{
    return id >= 0 ? plm_tokenizer_piece(core->tokenizer, id) : (struct plm_slice){NULL, 0};
}

// What every render of this model is given, whatever the conversation.
static void init_opts(const struct plm_core *core, struct plm_chat_opts *ret)
{
    plm_chat_opts_init(ret);
    ret->normalize = true;
    ret->bos_token = token_text(core, plm_tokenizer_bos(core->tokenizer));
    ret->eos_token = token_text(core, plm_tokenizer_eos(core->tokenizer));
    ret->render.now_s = core->clock->wall_ns(core->clock->ctx) / 1000000000;
}

static int render_body(const struct plm_core *core, struct json_object *body,
                       struct plm_render *ret, plim_error *err)
{
    struct plm_chat_opts opts;
    struct plm_error why = {0};
    char param[PLM_CHAT_PARAM_BYTES];
    init_opts(core, &opts);
    int r = read_body(body, &opts, err);
    if (r != PLIM_OK)
        return r;
    if (core->chat == NULL)
        return plm_error_set(err, PLIM_ERR_UNSUPPORTED, NULL,
                             "the model has no chat template that can be used");
    opts.form = &core->chat_form;
    opts.param = param;
    r = plm_chat_render(core->chat, &opts, ret, &why);
    if (r == PLM_OK)
        return PLIM_OK;
    plm_error_out(err, r, &why);
    if (err != NULL)
        snprintf(err->param, sizeof(err->param), "%.*s", (int)sizeof(err->param) - 1,
                 param[0] != '\0' ? param : "messages");
    return r;
}

static const char *content_name(uint8_t content)
{
    static const char *const names[] = {"neither", "strings", "parts", "both"};
    return names[content & 3];
}

int plm_text_probe(struct plm_core *core, struct plm_error *err)
{
    struct plm_chat_opts opts;
    struct plm_chat_form *form = &core->chat_form;
    init_opts(core, &opts);
    int r = plm_chat_probe(core->chat, &opts, form, err);
    if (r != PLM_OK)
        return r;
    if (!form->known)
        plm_logf(&core->log, PLM_LOG_DEBUG, "chat template: test renders failed, nothing is known");
    else
        plm_logf(&core->log, PLM_LOG_DEBUG,
                 "chat template: reads %s of users, %s of system, %s of tools; tools are %s, calls "
                 "%s, their arguments %s",
                 content_name(form->content[PLM_CHAT_USER]),
                 content_name(form->content[PLM_CHAT_SYSTEM]),
                 content_name(form->content[PLM_CHAT_TOOL]),
                 form->reads_tools ? "read" : "left out", form->reads_calls ? "read" : "left out",
                 form->text_args ? "text" : "objects");
    return PLM_OK;
}

int plm_text_render(const struct plm_core *core, const char *json, size_t len,
                    struct plm_render *ret, plim_error *err)
{
    struct plm_json_tree tree;
    struct plm_error why = {0};
    plm_json_tree_init(&tree, core->host, PLM_HOST_TEMPLATE);
    int r = plm_json_tree_parse(&tree, (struct plm_slice){json, len}, &tree.root, &why);
    if (r == PLM_OK)
        r = render_body(core, tree.root, ret, err);
    else if (r == PLM_ERR_NOMEM_HOST)
        plm_error_set(err, r, "messages", "no host memory for a chat of %zu bytes", len);
    else
        plm_error_set(err, r, "messages", "the chat is not valid JSON: %s", why.msg);
    plm_json_tree_finish(&tree);
    return r;
}
