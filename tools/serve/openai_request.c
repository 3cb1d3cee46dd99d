// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/openai_parse.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/serve/fields.h"

// Absent and null leave *ret as it is.
static bool get_bool(const struct plm_openai_parse_state *p, const char *name, bool *ret)
{
    const struct plm_json_value *v = plm_json_get(p->doc, name);
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_BOOL)
        return plm_openai_wrong_type(p->error, name, "true or false", v->type);
    *ret = plm_json_is_true(v);
    return true;
}

static bool get_int(const struct plm_openai_parse_state *p, const char *name, int64_t min,
                    int64_t max, int64_t *ret)
{
    const struct plm_json_value *v = plm_json_get(p->doc, name);
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_NUMBER)
        return plm_openai_wrong_type(p->error, name, "an integer", v->type);
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

// How long an answer may be; -1 is no limit, as of -n, and 0 for the engine.
static bool get_most(const struct plm_openai_parse_state *p, const char *name, int64_t *ret)
{
    int64_t n = *ret;
    if (!get_int(p, name, -1, INT32_MAX, &n))
        return false;
    if (n == 0 && plm_json_get(p->doc, name) != NULL) {
        plm_api_error_invalid(p->error, name,
                              "%s must be an integer from 1 to %d, or -1 for no limit, not 0", name,
                              INT32_MAX);
        return false;
    }
    *ret = n < 0 ? 0 : n;
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

static bool parse_floats(const struct plm_openai_parse_state *p)
{
    for (size_t i = 0; i < sizeof(float_fields) / sizeof(float_fields[0]); i++) {
        const struct float_field *f = &float_fields[i];
        const struct plm_json_value *v = plm_json_get(p->doc, f->name);
        if (v == NULL)
            continue;
        if (v->type != PLM_JSON_NUMBER)
            return plm_openai_wrong_type(p->error, f->name, "a number", v->type);
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

static bool parse_counts(const struct plm_openai_parse_state *p)
{
    plim_request_opts *o = &p->ret->opts;
    int64_t n = 1, max_tokens = p->rules->default_max_tokens, min_tokens = 0;
    int64_t top_k = o->top_k, truncate = 0;
    // OpenAI's newer name is the last and counts before the others.
    if (!get_int(p, "n", 1, PLIM_N_MAX, &n) || !get_most(p, "max_new_tokens", &max_tokens) ||
        !get_most(p, "n_predict", &max_tokens) || !get_most(p, "max_tokens", &max_tokens) ||
        !get_most(p, "max_completion_tokens", &max_tokens) ||
        !get_int(p, "min_new_tokens", 0, INT32_MAX, &min_tokens) ||
        !get_int(p, "min_tokens", 0, INT32_MAX, &min_tokens) ||
        !get_int(p, "top_k", -1, INT32_MAX, &top_k) ||
        !get_int(p, "truncate_prompt_tokens", 1, INT32_MAX, &truncate))
        return false;
    o->truncate_prompt = (uint32_t)truncate;
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

static bool parse_seed(const struct plm_openai_parse_state *p)
{
    plim_request_opts *o = &p->ret->opts;
    const struct plm_json_value *v = plm_json_get(p->doc, "seed");
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_NUMBER)
        return plm_openai_wrong_type(p->error, "seed", "an integer", v->type);
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

static bool parse_switches(const struct plm_openai_parse_state *p)
{
    plim_request_opts *o = &p->ret->opts;
    bool ignore_eos = false, cache_prompt = true, include_stop = false, ignored = false;
    if (!get_bool(p, "stream", &p->ret->stream) || !get_bool(p, "ignore_eos", &ignore_eos) ||
        !get_bool(p, "cache_prompt", &cache_prompt) ||
        !get_bool(p, "no_stop_trim", &include_stop) ||
        !get_bool(p, "include_stop_str_in_output", &include_stop) ||
        !get_bool(p, "echo", &p->ret->echo) || !get_bool(p, "parallel_tool_calls", &ignored))
        return false;
    o->ignore_eos = ignore_eos;
    o->cache_prompt = cache_prompt;
    o->include_stop = include_stop;
    return true;
}

static bool parse_logprobs(const struct plm_openai_parse_state *p)
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

// Hands the field's tree to `read`, if the field is there.
static bool read_tree(const struct plm_openai_parse_state *p, const char *name,
                      bool (*read)(const struct plm_openai_parse_state *p,
                                   struct json_object *tree))
{
    struct json_object *tree;
    int64_t charged = 0;
    if (!plm_openai_tree(p, name, &tree, &charged))
        return false;
    if (tree == NULL)
        return true;
    const bool ok = read(p, tree);
    plm_json_release(tree, p->rules->engine, charged);
    return ok;
}

// A field that holds a text or some.
struct texts {
    const char *name;
    size_t most;
    plim_text *at; // [most]
    size_t *n;
    struct plm_out *bytes;
};

static bool add_text(const struct plm_openai_parse_state *p, const struct texts *t,
                     struct json_object *item)
{
    const size_t len = (size_t)json_object_get_string_len(item);
    if (len == 0 || *t->n == t->most) {
        plm_api_error_invalid(p->error, t->name,
                              len == 0 ? "%s must not have an empty string"
                                       : "%s has more than %zu strings",
                              t->name, t->most);
        return false;
    }
    // Pointers are set at the end: the buffer may still move.
    t->at[(*t->n)++].len = len;
    plm_out_bytes(t->bytes, json_object_get_string(item), len);
    return true;
}

static bool texts_from_tree(const struct plm_openai_parse_state *p, const struct texts *t,
                            struct json_object *tree)
{
    if (json_object_is_type(tree, json_type_string))
        return add_text(p, t, tree);
    if (!json_object_is_type(tree, json_type_array)) {
        plm_api_error_invalid(p->error, t->name, "%s must be a string or an array of strings",
                              t->name);
        return false;
    }
    for (size_t i = 0; i < json_object_array_length(tree); i++) {
        struct json_object *item = json_object_array_get_idx(tree, i);
        if (!json_object_is_type(item, json_type_string)) {
            char param[32];
            snprintf(param, sizeof(param), "%s[%zu]", t->name, i);
            plm_api_error_invalid(p->error, param, "%s must be a string", param);
            return false;
        }
        if (!add_text(p, t, item))
            return false;
    }
    return true;
}

static bool parse_texts(const struct plm_openai_parse_state *p, const struct texts *t)
{
    struct json_object *tree;
    int64_t charged = 0;
    if (!plm_openai_tree(p, t->name, &tree, &charged))
        return false;
    const bool ok = tree == NULL || texts_from_tree(p, t, tree);
    if (tree != NULL)
        plm_json_release(tree, p->rules->engine, charged);
    if (ok && t->bytes->failed)
        plm_api_error_host(p->error);
    if (!ok || t->bytes->failed)
        return false;
    const char *at = t->bytes->data;
    for (size_t i = 0; i < *t->n; i++) {
        t->at[i].ptr = at;
        at += t->at[i].len;
    }
    return true;
}

static bool parse_stop(const struct plm_openai_parse_state *p)
{
    struct plm_openai_request *ret = p->ret;
    const struct texts stop = {"stop", PLIM_STOP_MAX, ret->stop, &ret->opts.n_stop,
                               &ret->stop_text};
    const struct texts bad = {"bad_words", PLIM_BAD_WORDS_MAX, ret->bad_words,
                              &ret->opts.n_bad_words, &ret->bad_text};
    ret->opts.stop = ret->stop;
    ret->opts.bad_words = ret->bad_words;
    return parse_texts(p, &stop) && parse_texts(p, &bad);
}

static bool stop_tokens_from_tree(const struct plm_openai_parse_state *p, struct json_object *tree)
{
    plim_request_opts *o = &p->ret->opts;
    if (!json_object_is_type(tree, json_type_array) ||
        json_object_array_length(tree) > PLIM_STOP_TOKENS_MAX) {
        plm_api_error_invalid(p->error, "stop_token_ids",
                              "stop_token_ids must be an array of at most %d token ids",
                              PLIM_STOP_TOKENS_MAX);
        return false;
    }
    for (size_t i = 0; i < json_object_array_length(tree); i++) {
        struct json_object *item = json_object_array_get_idx(tree, i);
        const int64_t id = json_object_get_int64(item);
        if (!json_object_is_type(item, json_type_int) || id < 0 || id >= p->rules->n_vocab) {
            char param[40];
            snprintf(param, sizeof(param), "stop_token_ids[%zu]", i);
            plm_api_error_invalid(p->error, param, "%s is not a token id below %u", param,
                                  p->rules->n_vocab);
            return false;
        }
        p->ret->stop_tokens[o->n_stop_tokens++] = (int32_t)id;
    }
    o->stop_tokens = p->ret->stop_tokens;
    return true;
}

static bool one_bias(const struct plm_openai_parse_state *p, const char *key,
                     struct json_object *value)
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

static bool bias_from_tree(const struct plm_openai_parse_state *p, struct json_object *tree)
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
    p->ret->bias = plm_openai_alloc(p, (size_t)n, sizeof(*p->ret->bias));
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

// The members of a field that is an object, by the table.
static bool judge_members(const struct plm_openai_parse_state *p, const char *name,
                          const struct plm_json_value *v)
{
    struct plm_json_doc members;
    char message[128];
    // It was scanned as a part of the body: only memory, or too many members, can be the reason.
    const int status =
        plm_json_scan(v->ptr, v->len, p->rules->engine, &members, message, sizeof(message));
    if (status == PLIM_ERR_NOMEM_HOST)
        plm_api_error_host(p->error);
    else if (status != PLIM_OK)
        plm_api_error_invalid(p->error, name, "%s: %s", name, message);
    if (status != PLIM_OK)
        return false;
    return plm_fields_judge(&members, p->ret->chat ? PLM_FIELDS_CHAT : PLM_FIELDS_TEXT, name,
                            p->error);
}

static bool parse_stream_options(const struct plm_openai_parse_state *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "stream_options");
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_OBJECT)
        return plm_openai_wrong_type(p->error, "stream_options", "an object", v->type);
    if (!p->ret->stream) {
        plm_api_error_invalid(p->error, "stream_options", "stream_options needs stream to be true");
        return false;
    }
    if (!judge_members(p, "stream_options", v))
        return false;
    struct json_object *tree, *usage = NULL;
    int64_t charged = 0;
    if (!plm_openai_tree(p, "stream_options", &tree, &charged))
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

static bool parse_response_format(const struct plm_openai_parse_state *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "response_format");
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_OBJECT)
        return plm_openai_wrong_type(p->error, "response_format", "an object", v->type);
    struct json_object *tree, *type = NULL;
    int64_t charged = 0;
    if (!plm_openai_tree(p, "response_format", &tree, &charged))
        return false;
    json_object_object_get_ex(tree, "type", &type);
    const char *name =
        json_object_is_type(type, json_type_string) ? json_object_get_string(type) : "";
    bool text = strcmp(name, "text") == 0;
    bool known = strcmp(name, "json_object") == 0 || strcmp(name, "json_schema") == 0;
    plm_json_release(tree, p->rules->engine, charged);
    if (text)
        return judge_members(p, "response_format", v);
    if (known)
        return plm_openai_cannot(p, "response_format", "constrained output");
    plm_api_error_invalid(p->error, "response_format.type",
                          "response_format.type must be text, json_object or json_schema");
    return false;
}

static bool parse_tool_choice(const struct plm_openai_parse_state *p)
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
        return plm_openai_cannot(p, "tool_choice", "to force a named tool");
    if (v->len == 10 && memcmp(v->ptr, "\"required\"", 10) == 0)
        return plm_openai_cannot(p, "tool_choice", "to force a tool call");
    plm_api_error_invalid(p->error, "tool_choice",
                          "tool_choice must be none, auto, required or an object");
    return false;
}

static bool parse_modalities(const struct plm_openai_parse_state *p)
{
    const struct plm_json_value *v = plm_json_get(p->doc, "modalities");
    if (v == NULL || !p->ret->chat)
        return true;
    if (v->type != PLM_JSON_ARRAY)
        return plm_openai_wrong_type(p->error, "modalities", "an array", v->type);
    struct json_object *tree;
    int64_t charged = 0;
    if (!plm_openai_tree(p, "modalities", &tree, &charged))
        return false;
    bool text = true;
    for (size_t i = 0; text && i < json_object_array_length(tree); i++) {
        struct json_object *item = json_object_array_get_idx(tree, i);
        text = json_object_is_type(item, json_type_string) &&
               strcmp(json_object_get_string(item), "text") == 0;
    }
    plm_json_release(tree, p->rules->engine, charged);
    return text || plm_openai_cannot(p, "modalities", "anything but text");
}

static bool parse_all(const struct plm_openai_parse_state *p)
{
    return plm_openai_model(p) &&
           plm_fields_judge(p->doc, p->ret->chat ? PLM_FIELDS_CHAT : PLM_FIELDS_TEXT, NULL,
                            p->error) &&
           parse_floats(p) && parse_counts(p) && parse_seed(p) && parse_switches(p) &&
           parse_logprobs(p) && parse_stream_options(p) && parse_response_format(p) &&
           parse_tool_choice(p) && parse_modalities(p) && parse_stop(p) &&
           read_tree(p, "stop_token_ids", stop_tokens_from_tree) &&
           read_tree(p, "logit_bias", bias_from_tree) && plm_openai_salt(p) &&
           (p->ret->chat ? plm_openai_chat(p) : plm_openai_prompt(p));
}

bool plm_openai_parse(struct plm_openai_request *ret, const struct plm_json_doc *doc, bool chat,
                      const struct plm_openai_rules *rules, struct plm_api_error *error)
{
    memset(ret, 0, sizeof(*ret));
    ret->opts = *rules->defaults;
    plm_out_init(&ret->text, rules->engine);
    plm_out_init(&ret->stop_text, rules->engine);
    plm_out_init(&ret->bad_text, rules->engine);
    ret->chat = chat;
    struct plm_openai_parse_state p = {doc, rules, ret, error};
    if (parse_all(&p)) {
        if (!ret->echo)
            return true;
        if (ret->opts.logprobs == 0 && ret->opts.truncate_prompt == 0)
            return true;
        plm_api_error_invalid(error, "echo", "echo together with %s is not supported",
                              ret->opts.logprobs != 0 ? "logprobs" : "truncate_prompt_tokens");
    }
    plm_openai_finish(ret);
    return false;
}

uint64_t plm_openai_charged(const struct plm_openai_request *request)
{
    return request->text.cap + request->stop_text.cap + request->bad_text.cap + request->charged;
}

void plm_openai_finish(struct plm_openai_request *request)
{
    plim_engine *engine = request->text.engine;
    plm_out_finish(&request->text);
    plm_out_finish(&request->stop_text);
    plm_out_finish(&request->bad_text);
    if (request->charged > 0)
        plim_engine_host_discharge(engine, (int64_t)request->charged);
    request->charged = 0;
    free(request->tokens);
    request->tokens = NULL;
    free(request->bias);
    request->bias = NULL;
}
