// SPDX-License-Identifier: Apache-2.0
// The parts of a request that name the model and hold the prompt.
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/serve/openai_parse.h"

bool plm_openai_model(const struct plm_openai_parse_state *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "model");
    if (v == NULL)
        return true; // there is only one
    if (v->type != PLM_JSON_STRING)
        return plm_openai_wrong_type(p->error, "model", "a string", v->type);
    struct plm_out name;
    plm_out_init(&name, p->rules->engine);
    plm_json_text(v, &name);
    bool known = false;
    for (size_t i = 0; i < p->rules->n_model_names && !known; i++)
        known = name.len == strlen(p->rules->model_names[i]) &&
                memcmp(name.data, p->rules->model_names[i], name.len) == 0;
    if (!known) {
        plm_api_error_set(p->error, 404, "invalid_request_error", "model_not_found",
                          "the model \"%.*s\" does not exist; this server has \"%s\"",
                          (int)(name.len < 80 ? name.len : 80), name.data != NULL ? name.data : "",
                          p->rules->model_names[0]);
        snprintf(p->error->param, sizeof(p->error->param), "model");
    }
    plm_out_finish(&name);
    return known;
}

// Copies a member's JSON text under its own name.
static bool copy_member(const struct plm_json_doc *doc, const char *name, enum plm_json_type type,
                        struct plm_out *out, struct plm_api_error *error)
{
    const struct plm_json_value *v = plm_json_get(doc, name);
    if (v == NULL)
        return true;
    if (v->type != type)
        return plm_openai_wrong_type(error, name, plm_json_type_name(type), v->type);
    plm_out_printf(out, ",\"%s\":", name);
    plm_out_bytes(out, v->ptr, v->len);
    return true;
}

static bool tool_choice_is_none(const struct plm_json_doc *doc)
{
    const struct plm_json_value *v = plm_json_get(doc, "tool_choice");
    return v != NULL && v->len == 6 && memcmp(v->ptr, "\"none\"", 6) == 0;
}

static bool is_empty_array(const struct plm_json_value *v)
{
    return v->nodes == 1;
}

bool plm_chat_json(const struct plm_json_doc *doc, struct plm_out *out, struct plm_api_error *error)
{
    const struct plm_json_value *v = plm_json_get(doc, "messages");
    if (v == NULL) {
        plm_api_error_invalid(error, "messages", "messages is missing");
        return false;
    }
    if (v->type != PLM_JSON_ARRAY)
        return plm_openai_wrong_type(error, "messages", "an array", v->type);
    if (is_empty_array(v)) {
        plm_api_error_invalid(error, "messages", "messages must not be empty");
        return false;
    }
    plm_out_str(out, "{\"messages\":");
    plm_out_bytes(out, v->ptr, v->len);
    const struct plm_json_value *tools = plm_json_get(doc, "tools");
    if (tools != NULL && tools->type != PLM_JSON_ARRAY)
        return plm_openai_wrong_type(error, "tools", "an array", tools->type);
    const struct plm_json_value *choice = plm_json_get(doc, "tool_choice");
    if (choice != NULL && choice->type != PLM_JSON_STRING && choice->type != PLM_JSON_OBJECT)
        return plm_openai_wrong_type(error, "tool_choice", "a string or an object", choice->type);
    bool with_tools = tools != NULL && !is_empty_array(tools) && !tool_choice_is_none(doc);
    if ((with_tools && !copy_member(doc, "tools", PLM_JSON_ARRAY, out, error)) ||
        !copy_member(doc, "add_generation_prompt", PLM_JSON_BOOL, out, error) ||
        !copy_member(doc, "continue_final_message", PLM_JSON_BOOL, out, error) ||
        !copy_member(doc, "chat_template_kwargs", PLM_JSON_OBJECT, out, error))
        return false;
    plm_out_str(out, "}");
    if (out->failed)
        plm_api_error_host(error);
    return !out->failed;
}

// A tool as OpenAI defines it: {"type":"function","function":{"name":...}}.
static bool check_tool(const struct plm_openai_parse_state *p, struct json_object *tool, size_t i)
{
    struct json_object *type = NULL, *function = NULL, *name = NULL;
    const char *what = NULL;
    if (!json_object_is_type(tool, json_type_object))
        what = "";
    else if (!json_object_object_get_ex(tool, "type", &type) ||
             !json_object_is_type(type, json_type_string))
        what = ".type";
    else if (strcmp(json_object_get_string(type), "function") != 0)
        return true; // somebody else's kind of tool; the template may know it
    else if (!json_object_object_get_ex(tool, "function", &function) ||
             !json_object_is_type(function, json_type_object))
        what = ".function";
    else if (!json_object_object_get_ex(function, "name", &name) ||
             !json_object_is_type(name, json_type_string) || json_object_get_string_len(name) == 0)
        what = ".function.name";
    if (what == NULL)
        return true;
    char param[64];
    snprintf(param, sizeof(param), "tools[%zu]%s", i, what);
    plm_api_error_invalid(p->error, param, "%s is missing or has the wrong type", param);
    return false;
}

static bool check_tools(const struct plm_openai_parse_state *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "tools");
    struct json_object *tree;
    int64_t charged = 0;
    if (v == NULL || v->type != PLM_JSON_ARRAY)
        return true; // plm_chat_json() judges the type
    if (!plm_openai_tree(p, "tools", &tree, &charged))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < json_object_array_length(tree); i++)
        ok = check_tool(p, json_object_array_get_idx(tree, i), i);
    plm_json_release(tree, p->rules->engine, charged);
    return ok;
}

bool plm_openai_chat(const struct plm_openai_parse_state *p)
{
    if (!check_tools(p) || !plm_chat_json(p->doc, &p->ret->text, p->error))
        return false;
    p->ret->opts.chat_json = p->ret->text.data;
    p->ret->opts.chat_json_len = p->ret->text.len;
    return true;
}

static bool tokens_from_tree(const struct plm_openai_parse_state *p, struct json_object *tree)
{
    size_t n = json_object_array_length(tree);
    p->ret->tokens = plm_openai_alloc(p, n, sizeof(int32_t));
    if (p->ret->tokens == NULL) {
        plm_api_error_host(p->error);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        struct json_object *item = json_object_array_get_idx(tree, i);
        int64_t id = json_object_get_int64(item);
        if (!json_object_is_type(item, json_type_int) || id < 0 || id >= p->rules->n_vocab) {
            char param[40];
            snprintf(param, sizeof(param), "prompt[%zu]", i);
            plm_api_error_invalid(p->error, param, "%s is not a token id below %u", param,
                                  p->rules->n_vocab);
            return false;
        }
        p->ret->tokens[i] = (int32_t)id;
    }
    p->ret->opts.tokens = p->ret->tokens;
    p->ret->opts.n_tokens = n;
    return true;
}

static bool prompt_from_array(const struct plm_openai_parse_state *p, struct json_object *tree)
{
    struct json_object *first =
        json_object_array_length(tree) > 0 ? json_object_array_get_idx(tree, 0) : NULL;
    if (json_object_is_type(first, json_type_int))
        return tokens_from_tree(p, tree);
    bool nested =
        json_object_is_type(first, json_type_array) || json_object_is_type(first, json_type_string);
    if (nested && json_object_array_length(tree) > 1)
        return plm_openai_cannot(p, "prompt", "more than one prompt in a request");
    if (json_object_is_type(first, json_type_array) && json_object_array_length(first) > 0)
        return tokens_from_tree(p, first);
    if (json_object_is_type(first, json_type_string)) {
        plm_out_bytes(&p->ret->text, json_object_get_string(first),
                      (size_t)json_object_get_string_len(first));
        return true;
    }
    plm_api_error_invalid(p->error, "prompt", "prompt must be a string or an array of token ids");
    return false;
}

bool plm_openai_prompt(const struct plm_openai_parse_state *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "prompt");
    if (v == NULL) {
        plm_api_error_invalid(p->error, "prompt", "prompt is missing");
        return false;
    }
    if (v->type == PLM_JSON_STRING) {
        plm_json_text(v, &p->ret->text);
    } else if (v->type == PLM_JSON_ARRAY) {
        struct json_object *tree;
        int64_t charged = 0;
        if (!plm_openai_tree(p, "prompt", &tree, &charged))
            return false;
        bool ok = prompt_from_array(p, tree);
        plm_json_release(tree, p->rules->engine, charged);
        if (!ok)
            return false;
    } else {
        return plm_openai_wrong_type(p->error, "prompt", "a string or an array of token ids",
                                     v->type);
    }
    if (p->ret->text.failed) {
        plm_api_error_host(p->error);
        return false;
    }
    if (p->ret->tokens == NULL) {
        p->ret->opts.prompt = p->ret->text.data != NULL ? p->ret->text.data : "";
        p->ret->opts.prompt_len = p->ret->text.len;
    }
    return true;
}

bool plm_openai_salt(const struct plm_openai_parse_state *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "cache_salt");
    if (v != NULL && v->type != PLM_JSON_STRING)
        return plm_openai_wrong_type(p->error, "cache_salt", "a string", v->type);
    if (v == NULL && !p->rules->many_keys)
        return true;
    struct plm_out salt;
    plm_out_init(&salt, NULL);
    plm_out_printf(&salt, "%d:", p->rules->many_keys ? p->rules->key_index : 0);
    if (v != NULL)
        plm_json_text(v, &salt);
    bool fits = !salt.failed && salt.len < sizeof(p->ret->salt) &&
                memchr(salt.data, '\0', salt.len) == NULL;
    if (fits)
        memcpy(p->ret->salt, salt.data, salt.len);
    plm_out_finish(&salt);
    if (!fits)
        plm_api_error_invalid(p->error, "cache_salt",
                              "cache_salt must be text of at most 128 bytes");
    p->ret->opts.cache_salt = p->ret->salt;
    return fits;
}
