// SPDX-License-Identifier: Apache-2.0
#include "core/model/chat.h"

#include <json.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/utf8.h"
#include "core/model/template/ast.h"

enum {
    PART_SEPARATOR = '\n', // between text parts that become one text, as other servers do it
};

// Ends in a space, so that it shows whether the template trims what it is given.
#define MARK "CONTINUE_FINAL_MESSAGE_TAG "

enum form {
    FORM_JOINED = 1,    // text parts as one text
    FORM_NO_TOOLS = 2,  // [] instead of none
    FORM_TEXT_ARGS = 4, // arguments of tool calls as text
    FORM_ALL = 7,
};

// A conversation being prepared. All json objects in it are owned by it.
struct chat {
    const struct plm_chat_opts *opts;
    struct plm_host *host;
    unsigned forms;             // that would make a difference
    unsigned form;              // of this attempt
    struct plm_buf tmp;         // text being joined
    struct json_object *marked; // text of the last message without the mark
};

void plm_chat_opts_init(struct plm_chat_opts *opts)
{
    *opts = (struct plm_chat_opts){0};
    plm_render_opts_init(&opts->render);
}

static struct json_object *member(struct json_object *obj, const char *name)
{
    struct json_object *v = NULL;
    if (json_object_is_type(obj, json_type_object))
        json_object_object_get_ex(obj, name, &v);
    return v;
}

// Takes the reference to value. False when memory ran out, or value is NULL and null is not meant.
static bool put(struct json_object *obj, const char *name, struct json_object *value)
{
    if (value != NULL && json_object_object_add(obj, name, value) == 0)
        return true;
    json_object_put(value);
    return false;
}

static bool put_ref(struct json_object *obj, const char *name, struct json_object *value)
{
    if (json_object_object_add(obj, name, json_object_get(value)) == 0)
        return true;
    json_object_put(value);
    return false;
}

// A new object with the same members, or with those that are not null (the members themselves are
// shared), or NULL. Built rather than pruned: members go away one by one only in quadratic time.
static struct json_object *shallow(struct json_object *obj, bool with_nulls)
{
    struct json_object *copy = json_object_new_object();
    struct json_object_iterator it = json_object_iter_begin(obj);
    struct json_object_iterator end = json_object_iter_end(obj);
    for (; copy != NULL && !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        struct json_object *value = json_object_iter_peek_value(&it);
        if (value == NULL && !with_nulls)
            continue;
        if (!put_ref(copy, json_object_iter_peek_name(&it), value)) {
            json_object_put(copy);
            return NULL;
        }
    }
    return copy;
}

static struct json_object *string_of(const char *p, size_t n)
{
    return n > INT32_MAX ? NULL : json_object_new_string_len(p, (int)n);
}

// The first name of reasoning that a message has gives the others that templates read.
static bool name_reasoning(struct json_object *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (int i = 0; i < 3; i++) {
        struct json_object *v = member(message, names[i]);
        if (v == NULL)
            continue;
        return (i == 0 || put_ref(message, names[0], v)) &&
               (member(message, names[1]) != NULL || put_ref(message, names[1], v));
    }
    return true;
}

static bool is_text_part(struct json_object *part)
{
    struct json_object *type = member(part, "type");
    return json_object_is_type(member(part, "text"), json_type_string) &&
           json_object_is_type(type, json_type_string) &&
           strcmp(json_object_get_string(type), "text") == 0;
}

// Content that is a list of text parts: notes that, and joins it if this attempt does so.
static bool prepare_content(struct chat *chat, struct json_object *message)
{
    struct json_object *content = member(message, "content");
    if (!json_object_is_type(content, json_type_array))
        return true;
    size_t n = json_object_array_length(content);
    for (size_t i = 0; i < n; i++)
        if (!is_text_part(json_object_array_get_idx(content, i)))
            return true;
    chat->forms |= FORM_JOINED;
    if (!(chat->form & FORM_JOINED))
        return true;
    plm_buf_clear(&chat->tmp);
    for (size_t i = 0; i < n; i++) {
        struct json_object *text = member(json_object_array_get_idx(content, i), "text");
        if (i > 0)
            plm_buf_append_char(&chat->tmp, PART_SEPARATOR);
        plm_buf_append(&chat->tmp, json_object_get_string(text),
                       (size_t)json_object_get_string_len(text));
    }
    return !chat->tmp.failed &&
           put(message, "content",
               string_of(chat->tmp.len > 0 ? chat->tmp.data : "", chat->tmp.len));
}

// JSON text of a value, as templates' own `tojson` writes it.
static struct json_object *as_json_text(struct chat *chat, struct json_object *value)
{
    struct json_object *context = json_object_new_object();
    struct json_object *text = NULL;
    struct plm_template *writer = NULL;
    struct plm_render render;
    if (context != NULL && put_ref(context, "x", value) &&
        plm_template_create(chat->host, PLM_SLICE("{{ x | tojson }}"), &writer, NULL) == PLM_OK &&
        plm_template_render(writer, context, &chat->opts->render, &render, NULL) == PLM_OK) {
        text = string_of(render.text.data, render.text.len);
        plm_render_finish(&render);
    }
    plm_template_destroy(writer);
    json_object_put(context);
    return text;
}

// What a text says as JSON, or NULL where it says nothing. False: no host memory.
static bool parse_text(struct chat *chat, struct json_object *text, struct json_object **ret)
{
    const char *json = json_object_get_string(text);
    const size_t len = (size_t)json_object_get_string_len(text);
    char *joined = NULL;
    if (plm_json_has_pairs(json, len)) {
        joined = plm_strndup(chat->host, PLM_HOST_TEMPLATE, json, len);
        if (joined == NULL)
            return false;
        joined[plm_json_join_pairs(joined, len)] = '\0';
        json = joined;
    }
    *ret = json_tokener_parse(json);
    plm_free(chat->host, joined);
    return true;
}

// The other form of one call's arguments, as a new reference: *ret is NULL where there is none.
static bool convert_arguments(struct chat *chat, struct json_object *args, struct json_object **ret)
{
    bool as_text = chat->form & FORM_TEXT_ARGS;
    *ret = NULL;
    if (json_object_is_type(args, json_type_string)) {
        // What is no JSON object stays text: then it is not for us to judge.
        struct json_object *parsed;
        if (!parse_text(chat, args, &parsed))
            return false;
        bool is_object = json_object_is_type(parsed, json_type_object);
        if (is_object)
            chat->forms |= FORM_TEXT_ARGS;
        if (is_object && !as_text)
            *ret = parsed;
        else
            json_object_put(parsed);
        return true;
    }
    if (!json_object_is_type(args, json_type_object))
        return true;
    chat->forms |= FORM_TEXT_ARGS;
    if (!as_text)
        return true;
    *ret = as_json_text(chat, args);
    return *ret != NULL;
}

// A copy of one tool call with its arguments in this attempt's form.
static struct json_object *convert_call(struct chat *chat, struct json_object *call)
{
    struct json_object *function = member(call, "function");
    struct json_object *inner = function != NULL ? function : call;
    struct json_object *args;
    if (!json_object_is_type(call, json_type_object) ||
        !json_object_is_type(inner, json_type_object))
        return json_object_get(call);
    if (!convert_arguments(chat, member(inner, "arguments"), &args))
        return NULL;
    if (args == NULL)
        return json_object_get(call);
    struct json_object *copy = shallow(call, true);
    struct json_object *holder = copy;
    if (copy != NULL && function != NULL) {
        holder = shallow(function, true);
        if (!put(copy, "function", holder)) {
            json_object_put(copy);
            copy = NULL;
        }
    }
    if (copy == NULL) {
        json_object_put(args);
        return NULL;
    }
    if (!put(holder, "arguments", args)) {
        json_object_put(copy);
        return NULL;
    }
    return copy;
}

static bool prepare_calls(struct chat *chat, struct json_object *message)
{
    struct json_object *calls = member(message, "tool_calls");
    if (!json_object_is_type(calls, json_type_array))
        return true;
    size_t n = json_object_array_length(calls);
    struct json_object *copy = json_object_new_array();
    for (size_t i = 0; copy != NULL && i < n; i++) {
        struct json_object *call = convert_call(chat, json_object_array_get_idx(calls, i));
        if (call == NULL || json_object_array_add(copy, call) != 0) {
            json_object_put(call);
            json_object_put(copy);
            return false;
        }
    }
    return put(message, "tool_calls", copy);
}

// Puts the mark at the end of the last message's text. *ret_text: that text without the mark,
// valid as long as the conversation; ptr NULL when there is nothing to continue.
static bool mark_last(struct chat *chat, struct json_object *message, struct plm_slice *ret_text)
{
    struct json_object *content = member(message, "content");
    struct json_object *text = content;
    struct json_object *parts = NULL;
    size_t at = 0;
    if (json_object_is_type(content, json_type_array)) {
        size_t n = json_object_array_length(content);
        for (at = n; at > 0; at--) {
            text = member(json_object_array_get_idx(content, at - 1), "text");
            if (text != NULL)
                break;
        }
        if (at == 0)
            return true;
        parts = json_object_new_array();
        for (size_t i = 0; parts != NULL && i < n; i++) {
            struct json_object *part = json_object_array_get_idx(content, i);
            part = i + 1 == at ? shallow(part, true) : json_object_get(part);
            if (json_object_array_add(parts, part) != 0) {
                json_object_put(part);
                json_object_put(parts);
                return false;
            }
        }
        if (!put(message, "content", parts))
            return false;
    }
    if (!json_object_is_type(text, json_type_string))
        return true;
    *ret_text =
        (struct plm_slice){json_object_get_string(text), (size_t)json_object_get_string_len(text)};
    plm_buf_clear(&chat->tmp);
    plm_buf_append_slice(&chat->tmp, *ret_text);
    plm_buf_append_str(&chat->tmp, MARK);
    if (chat->tmp.failed)
        return false;
    struct json_object *marked = string_of(chat->tmp.data, chat->tmp.len);
    struct json_object *holder = parts == NULL ? message : json_object_array_get_idx(parts, at - 1);
    const char *name = parts == NULL ? "content" : "text";
    chat->marked = json_object_get(text); // the slice views it
    return put(holder, name, marked);
}

static bool prepare_messages(struct chat *chat, struct json_object *context,
                             struct plm_slice *ret_text)
{
    struct json_object *messages = chat->opts->messages;
    struct json_object *copy = json_object_new_array();
    size_t n = json_object_array_length(messages);
    if (copy == NULL || !put(context, "messages", copy))
        return false;
    for (size_t i = 0; i < n; i++) {
        struct json_object *message = json_object_array_get_idx(messages, i);
        bool object = json_object_is_type(message, json_type_object);
        message = object ? shallow(message, !chat->opts->normalize) : json_object_get(message);
        if (json_object_array_add(copy, message) != 0) {
            json_object_put(message);
            return false;
        }
        if (!object)
            continue;
        if (message == NULL || (chat->opts->normalize && !name_reasoning(message)))
            return false;
        if (!chat->opts->strict &&
            (!prepare_content(chat, message) || !prepare_calls(chat, message)))
            return false;
        if (i + 1 == n && chat->opts->continue_final_message && !mark_last(chat, message, ret_text))
            return false;
    }
    return true;
}

static bool put_kwargs(struct json_object *context, struct json_object *kwargs)
{
    static const char *const reserved[] = {"messages", "tools", "bos_token", "eos_token",
                                           "add_generation_prompt"};
    if (!json_object_is_type(kwargs, json_type_object))
        return true;
    struct json_object_iterator it = json_object_iter_begin(kwargs);
    struct json_object_iterator end = json_object_iter_end(kwargs);
    for (; !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *name = json_object_iter_peek_name(&it);
        bool ours = false;
        for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
            ours = ours || strcmp(name, reserved[i]) == 0;
        if (!ours && !put_ref(context, name, json_object_iter_peek_value(&it)))
            return false;
    }
    return true;
}

static bool put_token(struct json_object *context, const char *name, struct plm_slice token)
{
    return token.ptr == NULL || put(context, name, string_of(token.ptr, token.len));
}

static bool build(struct chat *chat, struct json_object *context, struct plm_slice *ret_text)
{
    const struct plm_chat_opts *opts = chat->opts;
    if (!prepare_messages(chat, context, ret_text))
        return false;
    if (opts->tools == NULL && !opts->strict)
        chat->forms |= FORM_NO_TOOLS;
    bool tools = opts->tools == NULL && (chat->form & FORM_NO_TOOLS)
                     ? put(context, "tools", json_object_new_array())
                     : put_ref(context, "tools", opts->tools);
    return tools && put_ref(context, "documents", NULL) && put_kwargs(context, opts->kwargs) &&
           put(context, "add_generation_prompt",
               json_object_new_boolean(opts->add_generation_prompt)) &&
           put_token(context, "bos_token", opts->bos_token) &&
           put_token(context, "eos_token", opts->eos_token);
}

// Without the white space at both ends (sides: 1 left, 2 right).
static struct plm_slice stripped(struct plm_slice s, int sides)
{
    uint32_t cp;
    while ((sides & 1) && s.len > 0) {
        size_t n = plm_tstr_next(s.ptr, s.ptr + s.len, &cp);
        if (!plm_cp_is_space(cp))
            break;
        s.ptr += n;
        s.len -= n;
    }
    while ((sides & 2) && s.len > 0) {
        size_t n = plm_tstr_prev(s.ptr, s.ptr + s.len, &cp);
        if (!plm_cp_is_space(cp))
            break;
        s.len -= n;
    }
    return s;
}

static void cut(struct plm_render *render, size_t len)
{
    render->text.len = len;
    if (render->text.data != NULL)
        render->text.data[len] = '\0';
    while (render->n_spans > 0 && render->spans[render->n_spans - 1].begin >= len)
        render->n_spans--;
    if (render->n_spans > 0 && render->spans[render->n_spans - 1].end > len)
        render->spans[render->n_spans - 1].end = len;
}

// Cuts the rendered text where the last mark begins.
static int cut_at_mark(struct plm_render *render, struct plm_slice text, struct plm_error *err)
{
    const size_t bare = sizeof(MARK) - 2; // without its space
    struct plm_slice all = {render->text.data, render->text.len};
    struct plm_slice core = stripped(text, 3);
    size_t at = SIZE_MAX;
    for (const char *p = all.ptr; p != NULL;) {
        p = memmem(p, all.len - (size_t)(p - all.ptr), MARK, bare);
        if (p != NULL)
            at = (size_t)(p++ - all.ptr);
    }
    if (at == SIZE_MAX || memmem(all.ptr, all.len, core.ptr, core.len) == NULL)
        return plm_fail(err, PLM_ERR_INVALID,
                        "the last message can not be continued: the chat template changes it");
    bool trimmed = at + bare >= all.len || all.ptr[at + bare] != ' ';
    cut(render, trimmed ? stripped((struct plm_slice){all.ptr, at}, 2).len : at);
    return PLM_OK;
}

static int attempt(const struct plm_template *tmpl, struct chat *chat, struct plm_render *ret,
                   struct plm_error *err)
{
    struct json_object *context = json_object_new_object();
    struct plm_slice text = {NULL, 0};
    struct plm_render render;
    int status;
    if (context == NULL || !build(chat, context, &text))
        status = plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the conversation");
    else if (chat->opts->continue_final_message && text.ptr == NULL)
        status =
            plm_fail(err, PLM_ERR_INVALID, "the last message has no text that could be continued");
    else
        status = plm_template_render(tmpl, context, &chat->opts->render, &render, err);
    if (status == PLM_OK && chat->opts->continue_final_message) {
        status = cut_at_mark(&render, text, err);
        if (status != PLM_OK)
            plm_render_finish(&render);
    }
    json_object_put(context);
    json_object_put(chat->marked);
    chat->marked = NULL;
    if (status == PLM_OK)
        *ret = render;
    return status;
}

// Whether another form is worth a try after this result.
static bool unsatisfied(int status, const struct plm_render *render)
{
    return status == PLM_OK ? render->printed_parts : status == PLM_ERR_INVALID;
}

int plm_chat_render(const struct plm_template *tmpl, const struct plm_chat_opts *opts,
                    struct plm_render *ret, struct plm_error *err)
{
    if (!json_object_is_type(opts->messages, json_type_array))
        return plm_fail(err, PLM_ERR_INVALID, "messages must be an array");
    if (opts->continue_final_message && json_object_array_length(opts->messages) == 0)
        return plm_fail(err, PLM_ERR_INVALID, "there is no message to continue");
    struct chat chat = {.opts = opts, .host = tmpl->host};
    struct plm_render best = {0};
    struct plm_error why;
    plm_buf_init(&chat.tmp, tmpl->host, PLM_HOST_REQUEST);
    int status = attempt(tmpl, &chat, &best, err);
    unsigned tried = chat.forms;
    // Fewest changes first: single forms, then pairs, then all.
    for (int bits = 1; bits <= 3 && !opts->strict && unsatisfied(status, &best); bits++)
        for (unsigned form = 1; form <= FORM_ALL && unsatisfied(status, &best); form++) {
            struct plm_render render;
            if (__builtin_popcount(form) != bits || (form & ~tried) != 0)
                continue;
            chat.form = form;
            int r = attempt(tmpl, &chat, &render, &why);
            if (r == PLM_ERR_NOMEM_HOST) { // else the prompt would depend on what memory is free
                if (status == PLM_OK)
                    plm_render_finish(&best);
                status = r;
                if (err != NULL)
                    *err = why;
            }
            if (r != PLM_OK)
                continue;
            if (status == PLM_OK && render.printed_parts) {
                plm_render_finish(&render);
                continue;
            }
            plm_render_finish(&best);
            best = render;
            status = PLM_OK;
        }
    plm_buf_finish(&chat.tmp);
    if (status == PLM_OK)
        *ret = best;
    return status;
}
