// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/openai_request.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parse {
    const struct plm_json_doc *doc;
    const struct plm_openai_rules *rules;
    struct plm_openai_request *ret;
    struct plm_api_error *error;
};

static bool wrong_type(struct plm_api_error *error, const char *name, const char *wanted,
                       enum plm_json_type got)
{
    plm_api_error_invalid(error, name, "%s must be %s, not %s", name, wanted,
                          plm_json_type_name(got));
    return false;
}

// Absent and null leave *ret as it is.
static bool get_bool(const struct parse *p, const char *name, bool *ret)
{
    const struct plm_json_value *v = plm_json_get(p->doc, name);
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_BOOL)
        return wrong_type(p->error, name, "true or false", v->type);
    *ret = plm_json_is_true(v);
    return true;
}

static bool get_int(const struct parse *p, const char *name, int64_t min, int64_t max, int64_t *ret)
{
    const struct plm_json_value *v = plm_json_get(p->doc, name);
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_NUMBER)
        return wrong_type(p->error, name, "an integer", v->type);
    int64_t n;
    if (!plm_json_int(v, &n) || n < min || n > max) {
        plm_api_error_invalid(p->error, name, "%s must be an integer from %lld to %lld, not %.*s",
                              name, (long long)min, (long long)max,
                              (int)(v->len < 40 ? v->len : 40), v->ptr);
        return false;
    }
    *ret = n;
    return true;
}

// ---- numbers that go straight into the options ----

struct float_field {
    const char *name;
    size_t offset;
    double min, max;
    bool above_min;
};

// Ranges as OpenAI documents them; of the extras, what their definition allows.
static const struct float_field float_fields[] = {
    {"temperature", offsetof(plim_request_opts, temperature), 0, 2, false},
    {"top_p", offsetof(plim_request_opts, top_p), 0, 1, false},
    {"min_p", offsetof(plim_request_opts, min_p), 0, 1, false},
    {"repeat_penalty", offsetof(plim_request_opts, repeat_penalty), 0, 10, true},
    {"repetition_penalty", offsetof(plim_request_opts, repeat_penalty), 0, 10, true},
    {"frequency_penalty", offsetof(plim_request_opts, frequency_penalty), -2, 2, false},
    {"presence_penalty", offsetof(plim_request_opts, presence_penalty), -2, 2, false},
};

static bool parse_floats(const struct parse *p)
{
    for (size_t i = 0; i < sizeof(float_fields) / sizeof(float_fields[0]); i++) {
        const struct float_field *f = &float_fields[i];
        const struct plm_json_value *v = plm_json_get(p->doc, f->name);
        if (v == NULL)
            continue;
        if (v->type != PLM_JSON_NUMBER)
            return wrong_type(p->error, f->name, "a number", v->type);
        double d = plm_json_double(v);
        if (!isfinite(d) || d > f->max || (f->above_min ? d <= f->min : d < f->min)) {
            plm_api_error_invalid(p->error, f->name, "%s must be %s %g and at most %g, not %.*s",
                                  f->name, f->above_min ? "above" : "at least", f->min, f->max,
                                  (int)(v->len < 40 ? v->len : 40), v->ptr);
            return false;
        }
        memcpy((char *)&p->ret->opts + f->offset, &(float){(float)d}, sizeof(float));
    }
    return true;
}

static bool parse_counts(const struct parse *p)
{
    plim_request_opts *o = &p->ret->opts;
    int64_t n = 1, max_tokens = p->rules->default_max_tokens, min_tokens = 0, top_k = 0;
    if (!get_int(p, "n", 1, PLIM_N_MAX, &n) ||
        !get_int(p, "max_tokens", 1, INT32_MAX, &max_tokens) ||
        !get_int(p, "max_completion_tokens", 1, INT32_MAX, &max_tokens) ||
        !get_int(p, "min_tokens", 0, INT32_MAX, &min_tokens) ||
        !get_int(p, "top_k", -1, INT32_MAX, &top_k))
        return false;
    o->n = (uint32_t)n;
    o->max_tokens = (uint32_t)max_tokens;
    o->min_tokens = (uint32_t)min_tokens;
    o->top_k = top_k < 0 ? 0 : (uint32_t)top_k; // -1 is how vLLM says "all"
    if (max_tokens > 0 && min_tokens > max_tokens) {
        plm_api_error_invalid(p->error, "min_tokens", "min_tokens must not exceed max_tokens");
        return false;
    }
    return true;
}

static bool parse_seed(const struct parse *p)
{
    plim_request_opts *o = &p->ret->opts;
    const struct plm_json_value *v = plm_json_get(p->doc, "seed");
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_NUMBER)
        return wrong_type(p->error, "seed", "an integer", v->type);
    int64_t n = 0;
    o->has_seed = 1;
    if (plm_json_u64(v, &o->seed))
        return true;
    if (!plm_json_int(v, &n)) {
        plm_api_error_invalid(p->error, "seed", "seed must be an integer of at most 64 bits");
        return false;
    }
    o->seed = (uint64_t)n;
    o->has_seed = n != -1; // -1 is how llama-server says "random"
    return true;
}

static bool parse_switches(const struct parse *p)
{
    plim_request_opts *o = &p->ret->opts;
    bool ignore_eos = false, cache_prompt = true, ignored = false;
    if (!get_bool(p, "stream", &p->ret->stream) || !get_bool(p, "ignore_eos", &ignore_eos) ||
        !get_bool(p, "cache_prompt", &cache_prompt) || !get_bool(p, "echo", &p->ret->echo) ||
        !get_bool(p, "parallel_tool_calls", &ignored))
        return false;
    o->ignore_eos = ignore_eos;
    o->cache_prompt = cache_prompt;
    return true;
}

static bool parse_logprobs(const struct parse *p)
{
    plim_request_opts *o = &p->ret->opts;
    int64_t top = 0;
    p->ret->n_logprobs = -1;
    if (!p->ret->chat) {
        if (!get_int(p, "logprobs", 0, PLIM_TOP_LOGPROBS_MAX, &p->ret->n_logprobs))
            return false;
        o->logprobs = p->ret->n_logprobs >= 0;
        o->top_logprobs = p->ret->n_logprobs > 0 ? (uint32_t)p->ret->n_logprobs : 0;
        return true;
    }
    bool logprobs = false;
    if (!get_bool(p, "logprobs", &logprobs) ||
        !get_int(p, "top_logprobs", 0, PLIM_TOP_LOGPROBS_MAX, &top))
        return false;
    if (top > 0 && !logprobs) {
        plm_api_error_invalid(p->error, "top_logprobs", "top_logprobs needs logprobs to be true");
        return false;
    }
    o->logprobs = logprobs;
    o->top_logprobs = (uint32_t)top;
    return true;
}

// ---- compound fields ----

// A field as a tree; false when it is there and has another type, or memory is short. *ret is NULL
// when the field is absent.
static bool get_tree(const struct parse *p, const char *name, struct json_object **ret,
                     int64_t *ret_charged)
{
    *ret = NULL;
    const struct plm_json_value *v = plm_json_get(p->doc, name);
    if (v == NULL)
        return true;
    *ret = plm_json_tree(v, p->rules->engine, ret_charged);
    if (*ret != NULL)
        return true;
    plm_api_error_host(p->error);
    return false;
}

static bool add_stop(const struct parse *p, const char *text, size_t len)
{
    plim_request_opts *o = &p->ret->opts;
    if (len == 0 || o->n_stop == PLIM_STOP_MAX) {
        plm_api_error_invalid(p->error, "stop",
                              len == 0 ? "stop must not have an empty string"
                                       : "stop has more than %d strings",
                              PLIM_STOP_MAX);
        return false;
    }
    // Pointers are set at the end: the buffer may still move.
    p->ret->stop[o->n_stop++].len = len;
    plm_out_bytes(&p->ret->stop_text, text, len);
    return true;
}

static bool stop_from_tree(const struct parse *p, struct json_object *tree)
{
    if (json_object_is_type(tree, json_type_string))
        return add_stop(p, json_object_get_string(tree), (size_t)json_object_get_string_len(tree));
    if (!json_object_is_type(tree, json_type_array)) {
        plm_api_error_invalid(p->error, "stop", "stop must be a string or an array of strings");
        return false;
    }
    for (size_t i = 0; i < json_object_array_length(tree); i++) {
        struct json_object *item = json_object_array_get_idx(tree, i);
        if (!json_object_is_type(item, json_type_string)) {
            char param[32];
            snprintf(param, sizeof(param), "stop[%zu]", i);
            plm_api_error_invalid(p->error, param, "%s must be a string", param);
            return false;
        }
        if (!add_stop(p, json_object_get_string(item), (size_t)json_object_get_string_len(item)))
            return false;
    }
    return true;
}

static bool parse_stop(const struct parse *p)
{
    struct json_object *tree;
    int64_t charged = 0;
    if (!get_tree(p, "stop", &tree, &charged))
        return false;
    if (tree == NULL)
        return true;
    bool ok = stop_from_tree(p, tree);
    plm_json_release(tree, p->rules->engine, charged);
    if (!ok)
        return false;
    if (p->ret->stop_text.failed) {
        plm_api_error_host(p->error);
        return false;
    }
    const char *at = p->ret->stop_text.data;
    for (size_t i = 0; i < p->ret->opts.n_stop; i++) {
        p->ret->stop[i].ptr = at;
        at += p->ret->stop[i].len;
    }
    p->ret->opts.stop = p->ret->stop;
    return true;
}

static bool one_bias(const struct parse *p, const char *key, struct json_object *value)
{
    plim_request_opts *o = &p->ret->opts;
    char *end;
    long id = strtol(key, &end, 10);
    if (key[0] < '0' || key[0] > '9' || *end != '\0' || id < 0 || id >= (long)p->rules->n_vocab) {
        plm_api_error_invalid(p->error, "logit_bias",
                              "logit_bias: \"%.40s\" is not a token id below %u", key,
                              p->rules->n_vocab);
        return false;
    }
    double bias = json_object_get_double(value);
    bool number =
        json_object_is_type(value, json_type_double) || json_object_is_type(value, json_type_int);
    if (!number || !(bias >= -100 && bias <= 100)) {
        plm_api_error_invalid(p->error, "logit_bias",
                              "logit_bias: the bias of token %ld must be a number from -100 to 100",
                              id);
        return false;
    }
    p->ret->bias[o->n_logit_bias++] = (plim_logit_bias){(int32_t)id, (float)bias};
    return true;
}

static bool bias_from_tree(const struct parse *p, struct json_object *tree)
{
    if (!json_object_is_type(tree, json_type_object)) {
        plm_api_error_invalid(p->error, "logit_bias",
                              "logit_bias must be an object of token ids and numbers");
        return false;
    }
    int n = json_object_object_length(tree);
    if (n > PLM_LOGIT_BIAS_MAX) {
        plm_api_error_invalid(p->error, "logit_bias", "logit_bias has more than %d tokens",
                              PLM_LOGIT_BIAS_MAX);
        return false;
    }
    if (n == 0)
        return true;
    p->ret->bias = calloc((size_t)n, sizeof(*p->ret->bias));
    if (p->ret->bias == NULL) {
        plm_api_error_host(p->error);
        return false;
    }
    json_object_object_foreach(tree, key, value)
    {
        if (!one_bias(p, key, value))
            return false;
    }
    p->ret->opts.logit_bias = p->ret->bias;
    return true;
}

static bool parse_bias(const struct parse *p)
{
    struct json_object *tree;
    int64_t charged = 0;
    if (!get_tree(p, "logit_bias", &tree, &charged))
        return false;
    if (tree == NULL)
        return true;
    bool ok = bias_from_tree(p, tree);
    plm_json_release(tree, p->rules->engine, charged);
    return ok;
}

static bool parse_stream_options(const struct parse *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "stream_options");
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_OBJECT)
        return wrong_type(p->error, "stream_options", "an object", v->type);
    if (!p->ret->stream) {
        plm_api_error_invalid(p->error, "stream_options", "stream_options needs stream to be true");
        return false;
    }
    struct json_object *tree, *usage = NULL;
    int64_t charged = 0;
    if (!get_tree(p, "stream_options", &tree, &charged))
        return false;
    json_object_object_get_ex(tree, "include_usage", &usage);
    bool ok = usage == NULL || json_object_is_type(usage, json_type_boolean);
    p->ret->include_usage = ok && usage != NULL && json_object_get_boolean(usage);
    plm_json_release(tree, p->rules->engine, charged);
    if (!ok)
        plm_api_error_invalid(p->error, "stream_options.include_usage",
                              "stream_options.include_usage must be true or false");
    return ok;
}

// ---- what cannot be honoured ----

static bool cannot(const struct parse *p, const char *name, const char *what)
{
    plm_api_error_invalid(p->error, name, "%s: %s is not supported by this server", name, what);
    p->error->code = "unsupported";
    return false;
}

static bool parse_response_format(const struct parse *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "response_format");
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_OBJECT)
        return wrong_type(p->error, "response_format", "an object", v->type);
    struct json_object *tree, *type = NULL;
    int64_t charged = 0;
    if (!get_tree(p, "response_format", &tree, &charged))
        return false;
    json_object_object_get_ex(tree, "type", &type);
    const char *name =
        json_object_is_type(type, json_type_string) ? json_object_get_string(type) : "";
    bool text = strcmp(name, "text") == 0;
    bool known = strcmp(name, "json_object") == 0 || strcmp(name, "json_schema") == 0;
    plm_json_release(tree, p->rules->engine, charged);
    if (text)
        return true;
    if (known)
        return cannot(p, "response_format", "constrained output");
    plm_api_error_invalid(p->error, "response_format.type",
                          "response_format.type must be text, json_object or json_schema");
    return false;
}

static bool parse_tool_choice(const struct parse *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "tool_choice");
    if (v == NULL)
        return true;
    static const char *const free_words[] = {"\"none\"", "\"auto\""};
    for (size_t i = 0; i < 2; i++) {
        if (v->len == strlen(free_words[i]) && memcmp(v->ptr, free_words[i], v->len) == 0)
            return true;
    }
    if (v->type == PLM_JSON_OBJECT)
        return cannot(p, "tool_choice", "to force a named tool");
    if (v->len == 10 && memcmp(v->ptr, "\"required\"", 10) == 0)
        return cannot(p, "tool_choice", "to force a tool call");
    plm_api_error_invalid(p->error, "tool_choice",
                          "tool_choice must be none, auto, required or an object");
    return false;
}

// Fields that change the output and that nothing here implements: silence would be a lie.
static bool refuse_unsupported(const struct parse *p)
{
    static const char *const fields[] = {
        "audio",           "function_call",      "functions",   "grammar",
        "guided_choice",   "guided_grammar",     "guided_json", "guided_regex",
        "json_schema",     "prompt_logprobs",    "suffix",      "structured_outputs",
        "use_beam_search", "web_search_options",
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct plm_json_value *v = plm_json_get(p->doc, fields[i]);
        bool harmless =
            v == NULL || (v->type == PLM_JSON_BOOL && !plm_json_is_true(v)) ||
            (v->type == PLM_JSON_STRING && v->len == 2) ||
            (v->type == PLM_JSON_STRING && v->len == 6 && memcmp(v->ptr, "\"none\"", 6) == 0);
        if (!harmless)
            return cannot(p, fields[i], "this field");
    }
    const struct plm_json_value *modalities = plm_json_get(p->doc, "modalities");
    if (modalities != NULL && memmem(modalities->ptr, modalities->len, "audio", 5) != NULL)
        return cannot(p, "modalities", "audio output");
    int64_t best_of = p->ret->opts.n;
    if (!get_int(p, "best_of", 1, PLIM_N_MAX, &best_of))
        return false;
    return best_of == p->ret->opts.n || cannot(p, "best_of", "a value other than n");
}

// ---- prompts ----

static bool parse_model(const struct parse *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "model");
    if (v == NULL)
        return true; // there is only one
    if (v->type != PLM_JSON_STRING)
        return wrong_type(p->error, "model", "a string", v->type);
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
        return wrong_type(error, name, plm_json_type_name(type), v->type);
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
        return wrong_type(error, "messages", "an array", v->type);
    if (is_empty_array(v)) {
        plm_api_error_invalid(error, "messages", "messages must not be empty");
        return false;
    }
    plm_out_str(out, "{\"messages\":");
    plm_out_bytes(out, v->ptr, v->len);
    const struct plm_json_value *tools = plm_json_get(doc, "tools");
    if (tools != NULL && tools->type != PLM_JSON_ARRAY)
        return wrong_type(error, "tools", "an array", tools->type);
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
static bool check_tool(const struct parse *p, struct json_object *tool, size_t i)
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

static bool check_tools(const struct parse *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "tools");
    struct json_object *tree;
    int64_t charged = 0;
    if (v == NULL || v->type != PLM_JSON_ARRAY)
        return true; // plm_chat_json() judges the type
    if (!get_tree(p, "tools", &tree, &charged))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < json_object_array_length(tree); i++)
        ok = check_tool(p, json_object_array_get_idx(tree, i), i);
    plm_json_release(tree, p->rules->engine, charged);
    return ok;
}

static bool parse_chat(const struct parse *p)
{
    if (!check_tools(p) || !plm_chat_json(p->doc, &p->ret->text, p->error))
        return false;
    p->ret->opts.chat_json = p->ret->text.data;
    p->ret->opts.chat_json_len = p->ret->text.len;
    return true;
}

static bool tokens_from_tree(const struct parse *p, struct json_object *tree)
{
    size_t n = json_object_array_length(tree);
    p->ret->tokens_charged = n * sizeof(int32_t);
    if (plim_engine_host_charge(p->rules->engine, (int64_t)p->ret->tokens_charged) != PLIM_OK)
        p->ret->tokens_charged = 0;
    else
        p->ret->tokens = malloc(n * sizeof(int32_t));
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

static bool prompt_from_array(const struct parse *p, struct json_object *tree)
{
    struct json_object *first =
        json_object_array_length(tree) > 0 ? json_object_array_get_idx(tree, 0) : NULL;
    if (json_object_is_type(first, json_type_int))
        return tokens_from_tree(p, tree);
    bool nested =
        json_object_is_type(first, json_type_array) || json_object_is_type(first, json_type_string);
    if (nested && json_object_array_length(tree) > 1)
        return cannot(p, "prompt", "more than one prompt in a request");
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

static bool parse_prompt(const struct parse *p)
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
        if (!get_tree(p, "prompt", &tree, &charged))
            return false;
        bool ok = prompt_from_array(p, tree);
        plm_json_release(tree, p->rules->engine, charged);
        if (!ok)
            return false;
    } else {
        return wrong_type(p->error, "prompt", "a string or an array of token ids", v->type);
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

static bool parse_salt(const struct parse *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "cache_salt");
    if (v != NULL && v->type != PLM_JSON_STRING)
        return wrong_type(p->error, "cache_salt", "a string", v->type);
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

static bool parse_all(const struct parse *p)
{
    return parse_model(p) && parse_floats(p) && parse_counts(p) && parse_seed(p) &&
           parse_switches(p) && parse_logprobs(p) && parse_stream_options(p) &&
           parse_response_format(p) && parse_tool_choice(p) && refuse_unsupported(p) &&
           parse_stop(p) && parse_bias(p) && parse_salt(p) &&
           (p->ret->chat ? parse_chat(p) : parse_prompt(p));
}

bool plm_openai_parse(struct plm_openai_request *ret, const struct plm_json_doc *doc, bool chat,
                      const struct plm_openai_rules *rules, struct plm_api_error *error)
{
    memset(ret, 0, sizeof(*ret));
    plim_request_opts_init(&ret->opts);
    plm_out_init(&ret->text, rules->engine);
    plm_out_init(&ret->stop_text, rules->engine);
    ret->chat = chat;
    struct parse p = {doc, rules, ret, error};
    if (parse_all(&p)) {
        if (!ret->echo)
            return true;
        if (!chat && ret->opts.logprobs == 0)
            return true;
        plm_api_error_invalid(error, "echo",
                              chat ? "echo is a field of /v1/completions"
                                   : "echo together with logprobs is not supported");
    }
    plm_openai_finish(ret);
    return false;
}

void plm_openai_finish(struct plm_openai_request *request)
{
    plim_engine *engine = request->text.engine;
    plm_out_finish(&request->text);
    plm_out_finish(&request->stop_text);
    if (request->tokens_charged > 0)
        plim_engine_host_discharge(engine, (int64_t)request->tokens_charged);
    request->tokens_charged = 0;
    free(request->tokens);
    request->tokens = NULL;
    free(request->bias);
    request->bias = NULL;
}
