// SPDX-License-Identifier: Apache-2.0
// Brings a conversation into the form of an attempt. It works on the values of the render, in its
// arena: they are the render's own, charged to its limit, and the request stays as it is.
#include <string.h>

#include <json.h>

#include "core/chat/chat_impl.h"

enum {
    PART_SEPARATOR = '\n', // between text parts that become one text, as other servers do it
};

static const char *const role_names[PLM_CHAT_ROLES] = {"system",    "developer", "user",
                                                       "assistant", "tool",      "function"};

void plm_chat_form_init(struct plm_chat_form *form)
{
    *form = (struct plm_chat_form){.reads_tools = true, .reads_calls = true};
    for (uint8_t role = 0; role < PLM_CHAT_ROLES; role++) {
        form->role[role] = role;
        form->content[role] = PLM_CHAT_STRING | PLM_CHAT_PARTS;
    }
}

// ---- values ----

static struct plm_tval *member(const struct plm_tval *v, const char *name)
{
    if (v == NULL || v->kind != PLM_T_DICT)
        return NULL;
    return plm_tdict_find(v->dict, (struct plm_slice){name, strlen(name)});
}

static void drop(struct plm_tval *object, const char *name)
{
    struct plm_tval *value = member(object, name);
    if (value != NULL)
        plm_tdict_remove(object->dict, value);
}

static bool put_text(struct plm_trun *r, struct plm_tdict *dict, const char *name, const char *text)
{
    struct plm_tval value;
    return plm_tstr_val(plm_tstr_view(r, text, strlen(text), PLM_ORIGIN_USER), &value) &&
           plm_tpl_put(r, dict, name, value);
}

static bool copy_object(struct plm_trun *r, const struct plm_tval *from, struct plm_tval *ret)
{
    struct plm_tdict *dict = plm_tdict_new(r);
    if (dict == NULL || !plm_tpl_step(r, from->dict->n))
        return false;
    dict->user = from->dict->user;
    for (size_t i = 0; i < from->dict->n; i++) {
        const struct plm_tentry *e = &from->dict->entries[i];
        if (e->key.kind != PLM_T_UNSET && !plm_tdict_set(r, dict, e->key, e->value))
            return false;
    }
    *ret = (struct plm_tval){.kind = PLM_T_DICT, .dict = dict};
    return true;
}

static bool is_blank(const struct plm_tstr *s)
{
    const char *p = plm_tstr_ptr(s);
    const char *end = p + s->len;
    uint32_t cp;
    while (p < end) {
        p += plm_tstr_next(p, end, &cp);
        if (!plm_cp_is_space(cp))
            return false;
    }
    return true;
}

static bool is_text(const struct plm_tval *v)
{
    return v != NULL && v->kind == PLM_T_STR;
}

enum plm_chat_role plm_chat_role_of(struct json_object *message)
{
    struct json_object *name = NULL;
    json_object_object_get_ex(message, "role", &name);
    for (int i = 0; i < PLM_CHAT_ROLES && json_object_is_type(name, json_type_string); i++)
        if (strcmp(json_object_get_string(name), role_names[i]) == 0)
            return (enum plm_chat_role)i;
    return PLM_CHAT_ROLES;
}

static enum plm_chat_role role_of(const struct plm_tval *message)
{
    const struct plm_tval *name = member(message, "role");
    for (int i = 0; i < PLM_CHAT_ROLES && is_text(name); i++)
        if (plm_tstr_is(name->str, role_names[i]))
            return (enum plm_chat_role)i;
    return PLM_CHAT_ROLES;
}

// In what this message's texts are read; of an unknown role like a user's.
static unsigned reads(const struct plm_chat_attempt *a, enum plm_chat_role role)
{
    return a->form.content[role < PLM_CHAT_ROLES ? a->form.role[role] : PLM_CHAT_USER];
}

// ---- items ----

static bool add_item(struct plm_trun *r, struct plm_chat_attempt *a, struct plm_chat_item item,
                     uint32_t *ret_origin)
{
    if (a->n_items == a->cap_items) {
        size_t cap = a->cap_items < 16 ? 16 : a->cap_items * 2;
        void *items = plm_tarena_grow(&r->arena, a->items, a->cap_items * sizeof(*a->items),
                                      cap * sizeof(*a->items));
        if (items == NULL || cap > UINT32_MAX / 2)
            return plm_tpl_fail_memory(r);
        a->items = items;
        a->cap_items = cap;
    }
    a->items[a->n_items] = item;
    *ret_origin = PLM_ORIGIN_TEXT + (uint32_t)a->n_items++;
    return true;
}

// Gives all strings of a value an origin. They are views of single texts, each its own.
static bool number_all(struct plm_trun *r, struct plm_tval *v, uint32_t origin)
{
    if (!plm_tpl_enter(r) || !plm_tpl_step(r, 1))
        return false;
    bool ok = true;
    if (v->kind == PLM_T_STR && v->str->len > 0)
        v->str->buf->runs[0].origin = origin;
    for (size_t i = 0; ok && v->kind == PLM_T_LIST && i < v->list->n; i++)
        ok = number_all(r, &v->list->v[i], origin);
    for (size_t i = 0; ok && v->kind == PLM_T_DICT && i < v->dict->n; i++)
        ok = v->dict->entries[i].key.kind == PLM_T_UNSET ||
             number_all(r, &v->dict->entries[i].value, origin);
    r->depth--;
    return ok;
}

// Numbers one text of a message, if it is not blank. With marks, a word behind it takes the number.
static bool number_text(struct plm_trun *r, struct plm_chat_attempt *a, struct plm_tval *text,
                        struct plm_chat_item item)
{
    uint32_t origin = PLM_ORIGIN_USER;
    if (!plm_tpl_work(r, text->str->len))
        return false;
    if (is_blank(text->str))
        return true;
    a->has |= PLM_CHAT_HAS_TEXT;
    if (!add_item(r, a, item, &origin))
        return false;
    if (!a->mark_texts || item.role != PLM_CHAT_ASSISTANT) {
        text->str->buf->runs[0].origin = origin;
        return true;
    }
    struct plm_tbuf *buf = plm_tbuf_new(r);
    return buf != NULL && plm_tbuf_add_str(r, buf, text->str) &&
           plm_tbuf_addz(r, buf, "\n", PLM_ORIGIN_USER) && plm_tbuf_addz(r, buf, "read", origin) &&
           plm_tbuf_value(r, buf, text);
}

// ---- content ----

static bool is_text_part(const struct plm_tval *part)
{
    const struct plm_tval *type = member(part, "type");
    return is_text(type) && plm_tstr_is(type->str, "text") && is_text(member(part, "text"));
}

// Of a list of parts that are all text: those with a text. False through *ret: another list.
static bool text_parts(struct plm_trun *r, const struct plm_tlist *list, struct plm_tlist **ret)
{
    struct plm_tlist *parts = plm_tlist_new(r, list->n);
    if (parts == NULL || !plm_tpl_step(r, list->n))
        return false;
    parts->user = parts->parts = true;
    *ret = NULL;
    for (size_t i = 0; i < list->n; i++) {
        if (!is_text_part(&list->v[i]))
            return true;
        if (member(&list->v[i], "text")->str->len > 0 && !plm_tlist_add(r, parts, list->v[i]))
            return false;
    }
    *ret = parts;
    return true;
}

static bool join(struct plm_trun *r, const struct plm_tlist *parts, struct plm_tval *ret)
{
    static const char separator[] = {PART_SEPARATOR, '\0'};
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL)
        return false;
    for (size_t i = 0; i < parts->n; i++)
        if ((i > 0 && !plm_tbuf_addz(r, buf, separator, PLM_ORIGIN_USER)) ||
            !plm_tbuf_add_str(r, buf, member(&parts->v[i], "text")->str))
            return false;
    return plm_tbuf_value(r, buf, ret);
}

static bool wrap(struct plm_trun *r, struct plm_tval text, struct plm_tval *ret)
{
    struct plm_tlist *list = plm_tlist_new(r, 1);
    struct plm_tdict *part = plm_tdict_new(r);
    if (list == NULL || part == NULL)
        return false;
    list->user = list->parts = part->user = true;
    return put_text(r, part, "type", "text") && plm_tpl_put(r, part, "text", text) &&
           plm_tlist_add(r, list, (struct plm_tval){.kind = PLM_T_DICT, .dict = part}) &&
           plm_tlist_val(list, PLM_T_LIST, ret);
}

static bool put_empty(struct plm_trun *r, const struct plm_chat_attempt *a, bool open,
                      struct plm_tval *message)
{
    drop(message, "content"); // so that it stands at the same place, whatever there was
    if (open || a->form.empty == PLM_CHAT_EMPTY_STRING)
        return put_text(r, message->dict, "content", "");
    return a->form.empty == PLM_CHAT_EMPTY_ABSENT ||
           plm_tpl_put(r, message->dict, "content", plm_tval_none());
}

// Numbers the texts of a list, each by its place in the request.
static bool number_parts(struct plm_trun *r, struct plm_chat_attempt *a, struct plm_tlist *list,
                         struct plm_chat_item item)
{
    for (size_t i = 0; i < list->n; i++) {
        struct plm_tval *text = member(&list->v[i], "text");
        item.part = (uint32_t)i;
        if (is_text(text) && !number_text(r, a, text, item))
            return false;
    }
    return true;
}

static bool form_content(struct plm_trun *r, struct plm_chat_attempt *a, struct plm_tval *message,
                         bool open, struct plm_chat_item item)
{
    const unsigned form = reads(a, item.role);
    struct plm_tval *content = member(message, "content");
    struct plm_tlist *parts = NULL;
    if (is_text(content) && content->str->len > 0) {
        item.part = PLM_CHAT_WHOLE;
        if (!number_text(r, a, content, item))
            return false;
        return (form & PLM_CHAT_STRING) || wrap(r, *content, content);
    }
    if (content != NULL && content->kind == PLM_T_LIST) {
        content->list->parts = true;
        if (!number_parts(r, a, content->list, item) || !text_parts(r, content->list, &parts))
            return false;
        if (parts == NULL) // images, say: not ours to bring into a form
            return true;
    } else if (content != NULL && content->kind != PLM_T_NONE && !is_text(content)) {
        return true;
    }
    if (parts == NULL || parts->n == 0) {
        if (item.role == PLM_CHAT_ASSISTANT) {
            a->has |= PLM_CHAT_HAS_EMPTY;
            return put_empty(r, a, open, message);
        }
        return parts == NULL || put_text(r, message->dict, "content", "");
    }
    if (parts->n > 1)
        a->has |= PLM_CHAT_HAS_PARTS;
    // One part is what a string is; several stay apart for who reads them.
    if ((form & PLM_CHAT_STRING) && (parts->n == 1 || !(form & PLM_CHAT_PARTS)))
        return join(r, parts, content);
    return plm_tlist_val(parts, PLM_T_LIST, content);
}

// A refusal is a text of the assistant under another name: a part of it becomes a text part, and
// the message's own stands for a content that is not there. Beside a content it stays what it is,
// and is missed where the template does not read it.
static bool form_refusals(struct plm_trun *r, struct plm_chat_attempt *a, struct plm_tval *message,
                          struct plm_chat_item item)
{
    struct plm_tval *content = member(message, "content");
    struct plm_tval *refusal = member(message, "refusal");
    const size_t n = content != NULL && content->kind == PLM_T_LIST ? content->list->n : 0;
    for (size_t i = 0; i < n; i++) {
        const struct plm_tval *part = &content->list->v[i];
        const struct plm_tval *type = member(part, "type"), *text = member(part, "refusal");
        if (!is_text(type) || !plm_tstr_is(type->str, "refusal") || !is_text(text))
            continue;
        const struct plm_tval value = *text; // what is put in may move it
        if (!put_text(r, part->dict, "type", "text") || !plm_tpl_put(r, part->dict, "text", value))
            return false;
    }
    if (!is_text(refusal) || is_blank(refusal->str))
        return plm_tpl_step(r, n);
    item.part = PLM_CHAT_REFUSAL;
    if (content != NULL && plm_tval_truth(content))
        return number_text(r, a, refusal, item);
    const struct plm_tval value = *refusal;
    drop(message, "refusal");
    drop(message, "content"); // so that it stands at the same place, whatever there was
    return plm_tpl_put(r, message->dict, "content", value);
}

// ---- tool calls ----

static bool as_json(struct plm_trun *r, struct plm_tval *v)
{
    struct plm_tcall call = {.self = *v, .ret = v};
    return plm_tpl_tojson(r, &call);
}

// Arguments that are a text. What is no object stays the text that it is, and is noted.
static bool form_text(struct plm_trun *r, struct plm_chat_attempt *a, struct plm_tval *args,
                      struct plm_chat_item item, bool in_function)
{
    struct plm_error why;
    struct plm_tval value;
    if (!plm_tpl_parse_json(r, args->str, &value, &why))
        return false;
    if (why.status == PLM_OK && value.kind == PLM_T_DICT) {
        if (!a->form.text_args)
            *args = value;
        return true;
    }
    if (why.status == PLM_OK)
        plm_fail(&why, PLM_ERR_FORMAT, "it is JSON, but no object");
    if (!a->broken.any)
        a->broken = (struct plm_chat_broken){true, item.at, item.part, in_function, why};
    if (!a->mend_args)
        return true;
    struct plm_tdict *none = plm_tdict_new(r);
    *args = (struct plm_tval){.kind = PLM_T_DICT, .dict = none};
    return none != NULL;
}

static bool form_arguments(struct plm_trun *r, struct plm_chat_attempt *a, struct plm_tval *holder,
                           struct plm_chat_item item, bool in_function)
{
    struct plm_tval *args = member(holder, "arguments");
    uint32_t origin = PLM_ORIGIN_USER;
    a->has |= PLM_CHAT_HAS_ARGS;
    if (args == NULL || args->kind == PLM_T_NONE || (is_text(args) && is_blank(args->str))) {
        struct plm_tdict *none = plm_tdict_new(r);
        if (none == NULL)
            return false;
        none->user = true;
        drop(holder, "arguments");
        if (!plm_tpl_put(r, holder->dict, "arguments",
                         (struct plm_tval){.kind = PLM_T_DICT, .dict = none}))
            return false;
        args = member(holder, "arguments");
    } else {
        item.what = PLM_CHAT_ARGUMENTS;
        if (!add_item(r, a, item, &origin) || !number_all(r, args, origin))
            return false;
    }
    if (is_text(args) && !form_text(r, a, args, item, in_function))
        return false;
    if (args->kind != PLM_T_DICT)
        return true;
    args->dict->args = true;
    return !a->form.text_args || as_json(r, args);
}

static bool form_calls(struct plm_trun *r, struct plm_chat_attempt *a, struct plm_tval *message,
                       struct plm_chat_item item)
{
    struct plm_tval *calls = member(message, "tool_calls");
    if (calls == NULL || calls->kind != PLM_T_LIST)
        return true;
    if (calls->list->n == 0) {
        drop(message, "tool_calls");
        return true;
    }
    for (size_t i = 0; i < calls->list->n; i++) {
        struct plm_tval *call = &calls->list->v[i];
        struct plm_tval *function = member(call, "function");
        struct plm_tval *holder = function != NULL ? function : call;
        struct plm_tval *name = member(holder, "name");
        uint32_t origin = PLM_ORIGIN_USER;
        item.part = (uint32_t)i;
        item.what = PLM_CHAT_CALL;
        if (!is_text(name))
            continue;
        if (!add_item(r, a, item, &origin) || !number_all(r, name, origin) ||
            !form_arguments(r, a, holder, item, function != NULL))
            return false;
    }
    return true;
}

// ---- messages ----

// Members that are null are dropped, and reasoning gets all names that templates read.
static bool normalize(struct plm_trun *r, struct plm_tval *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    if (!plm_tpl_step(r, message->dict->n))
        return false;
    for (size_t i = 0; i < message->dict->n; i++) {
        struct plm_tentry *e = &message->dict->entries[i];
        if (e->key.kind != PLM_T_UNSET && e->value.kind == PLM_T_NONE)
            plm_tdict_remove(message->dict, &e->value);
    }
    for (int i = 0; i < 3; i++) {
        const struct plm_tval *v = member(message, names[i]);
        if (v == NULL)
            continue;
        struct plm_tval value = *v; // what is put in may move it
        return (i == 0 || plm_tpl_put(r, message->dict, names[0], value)) &&
               (member(message, names[1]) != NULL ||
                plm_tpl_put(r, message->dict, names[1], value));
    }
    return true;
}

// Puts the mark at the end of the message's text, if it has one.
static bool mark(struct plm_trun *r, struct plm_chat_attempt *a, const struct plm_tval *message)
{
    struct plm_tval *text = member(message, "content");
    if (text != NULL && text->kind == PLM_T_LIST) {
        const struct plm_tlist *parts = text->list;
        text = NULL;
        for (size_t i = parts->n; text == NULL && i > 0; i--)
            text = member(&parts->v[i - 1], "text");
    }
    if (!is_text(text))
        return true;
    a->continued = plm_tstr_slice(text->str);
    struct plm_tbuf *buf = plm_tbuf_new(r);
    return buf != NULL && plm_tbuf_add_str(r, buf, text->str) &&
           plm_tbuf_addz(r, buf, PLM_CHAT_MARK, PLM_ORIGIN_USER) && plm_tbuf_value(r, buf, text);
}

// Text and calls of a message, for templates that write one of them only.
static bool add_split(struct plm_trun *r, const struct plm_chat_attempt *a, struct plm_tlist *list,
                      struct plm_tval message)
{
    struct plm_tval text;
    if (!copy_object(r, &message, &text))
        return false;
    drop(&text, "tool_calls");
    return put_empty(r, a, false, &message) && plm_tlist_add(r, list, text) &&
           plm_tlist_add(r, list, message);
}

static bool form_message(struct plm_trun *r, struct plm_chat_attempt *a, uint32_t at, bool last,
                         struct plm_tval message, struct plm_tlist *list)
{
    const enum plm_chat_role role = role_of(&message);
    struct plm_tval *calls = member(&message, "tool_calls");
    const bool has_calls = calls != NULL && calls->kind == PLM_T_LIST && calls->list->n > 0;
    const bool open = last && a->opts->continue_final_message;
    const size_t before = a->n_items;
    struct plm_chat_item item = {.what = PLM_CHAT_TEXT,
                                 .at = at,
                                 .role = role,
                                 .may_vanish =
                                     has_calls && a->form.drops_call_text && at < a->last_user};
    if (!form_refusals(r, a, &message, item) || !form_content(r, a, &message, open, item))
        return false;
    const bool has_both = has_calls && a->n_items > before;
    if (has_both)
        a->has |= PLM_CHAT_HAS_CALL_TEXT;
    if (!form_calls(r, a, &message, item))
        return false;
    if (role < PLM_CHAT_ROLES && a->form.role[role] != role &&
        !put_text(r, message.dict, "role", role_names[a->form.role[role]]))
        return false;
    if (open && !mark(r, a, &message))
        return false;
    return has_both && a->form.split_calls && !open ? add_split(r, a, list, message)
                                                    : plm_tlist_add(r, list, message);
}

static bool form_messages(struct plm_trun *r, struct plm_chat_attempt *a)
{
    struct plm_tval given, formed;
    if (!plm_tpl_from_object(r, a->opts->messages, PLM_ORIGIN_USER, &given))
        return false;
    struct plm_tlist *from = given.list;
    struct plm_tlist *list = plm_tlist_new(r, from->n);
    if (list == NULL || !plm_tpl_step(r, from->n))
        return false;
    list->user = true;
    for (size_t i = 0; i < from->n; i++)
        if (role_of(&from->v[i]) == PLM_CHAT_USER)
            a->last_user = (uint32_t)i;
    for (size_t i = 0; i < from->n; i++) {
        const bool last = i + 1 == from->n;
        const bool object = from->v[i].kind == PLM_T_DICT;
        bool ok = !object || !a->opts->normalize || normalize(r, &from->v[i]);
        if (ok && object && !a->opts->strict) {
            ok = form_message(r, a, (uint32_t)i, last, from->v[i], list);
        } else if (ok) {
            ok =
                (!object || !last || !a->opts->continue_final_message || mark(r, a, &from->v[i])) &&
                plm_tlist_add(r, list, from->v[i]);
        }
        if (!ok)
            return false;
    }
    return plm_tlist_val(list, PLM_T_LIST, &formed) &&
           plm_tpl_put(r, r->context, "messages", formed);
}

// ---- the other variables ----

static bool put_tools(struct plm_trun *r, struct plm_chat_attempt *a)
{
    struct json_object *given = a->opts->tools;
    struct plm_tval tools = plm_tval_none();
    bool none = given == NULL || (!a->opts->strict && json_object_is_type(given, json_type_array) &&
                                  json_object_array_length(given) == 0);
    if (none && !a->opts->strict) {
        a->has |= PLM_CHAT_HAS_NO_TOOLS;
        if (a->form.no_tools_list && !plm_tlist_val(plm_tlist_new(r, 0), PLM_T_LIST, &tools))
            return plm_tpl_fail_memory(r);
    } else if (!none && !plm_tpl_from_object(r, given, PLM_ORIGIN_USER, &tools)) {
        return false;
    }
    for (size_t i = 0; !a->opts->strict && tools.kind == PLM_T_LIST && i < tools.list->n; i++) {
        struct plm_tval *tool = &tools.list->v[i];
        struct plm_tval *function = member(tool, "function");
        struct plm_tval *name = member(function != NULL ? function : tool, "name");
        const struct plm_chat_item item = {.what = PLM_CHAT_TOOL_DEF, .at = (uint32_t)i};
        uint32_t origin = PLM_ORIGIN_USER;
        // One without a name, of a type of its own, is there if anything of it is.
        if (!add_item(r, a, item, &origin) ||
            !number_all(r, is_text(name) && !is_blank(name->str) ? name : tool, origin))
            return false;
    }
    return plm_tpl_put(r, r->context, "tools", tools);
}

static bool put_kwargs(struct plm_trun *r, struct json_object *kwargs)
{
    static const char *const reserved[] = {"messages", "tools", "bos_token", "eos_token",
                                           "add_generation_prompt"};
    if (!json_object_is_type(kwargs, json_type_object))
        return true;
    struct json_object_iterator it = json_object_iter_begin(kwargs);
    struct json_object_iterator end = json_object_iter_end(kwargs);
    for (; !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *name = json_object_iter_peek_name(&it);
        struct plm_tval value;
        bool ours = false;
        for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
            ours = ours || strcmp(name, reserved[i]) == 0;
        if (!ours &&
            (!plm_tpl_from_object(r, json_object_iter_peek_value(&it), PLM_ORIGIN_USER, &value) ||
             !plm_tpl_put(r, r->context, name, value)))
            return false;
    }
    return true;
}

static bool put_token(struct plm_trun *r, const char *name, struct plm_slice token)
{
    struct plm_tval value;
    return token.ptr == NULL ||
           (plm_tstr_val(plm_tstr_view(r, token.ptr, token.len, PLM_ORIGIN_TEMPLATE), &value) &&
            plm_tpl_put(r, r->context, name, value));
}

bool plm_chat_prepare(struct plm_trun *r, void *attempt)
{
    struct plm_chat_attempt *a = attempt;
    const struct plm_chat_opts *opts = a->opts;
    if (!form_messages(r, a))
        return false;
    if (opts->continue_final_message && a->continued.ptr == NULL)
        return plm_tpl_fail_as(r, "the last message has no text that could be continued");
    return put_tools(r, a) && plm_tpl_put(r, r->context, "documents", plm_tval_none()) &&
           put_kwargs(r, opts->kwargs) &&
           plm_tpl_put(r, r->context, "add_generation_prompt",
                       plm_tval_bool(opts->add_generation_prompt)) &&
           put_token(r, "bos_token", opts->bos_token) && put_token(r, "eos_token", opts->eos_token);
}
