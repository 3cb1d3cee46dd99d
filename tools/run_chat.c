// SPDX-License-Identifier: Apache-2.0
// The conversation of `plimsoll run`.
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/out.h"
#include "tools/run.h"

struct plm_run_chat {
    json_object *body;
    json_object *messages; // all of them; body gets those that are sent
    size_t n_fixed;        // the system prompt
};

static json_object *message_create(const char *role, const char *text, size_t len)
{
    json_object *message = json_object_new_object();
    json_object *content = json_object_new_string_len(text, (int)len);
    json_object *name = json_object_new_string(role);
    if (message == NULL || content == NULL || name == NULL) {
        json_object_put(message);
        json_object_put(content);
        json_object_put(name);
        return NULL;
    }
    json_object_object_add(message, "role", name);
    json_object_object_add(message, "content", content);
    return message;
}

// The engine would refuse it too, but as JSON, of which the user wrote none.
static bool is_utf8(const char *role, const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = plm_utf8_len(text + i, len - i);
        if (n == 0) {
            fprintf(stderr, "plimsoll run: the %s prompt is not valid UTF-8 at byte %zu\n", role,
                    i);
            return false;
        }
        i += n;
    }
    return true;
}

bool plm_run_chat_add(struct plm_run_chat *chat, const char *role, const char *text, size_t len)
{
    if (!is_utf8(role, text, len))
        return false;
    json_object *message = message_create(role, text, len);
    if (message == NULL || json_object_array_add(chat->messages, message) != 0) {
        json_object_put(message);
        fprintf(stderr, "plimsoll run: out of memory\n");
        return false;
    }
    return true;
}

static bool add_kwargs(struct plm_run_chat *chat, const char *text)
{
    json_object *kwargs = json_tokener_parse(text);
    if (kwargs == NULL || !json_object_is_type(kwargs, json_type_object)) {
        fprintf(stderr, "plimsoll run: --chat-template-kwargs: not a JSON object\n");
        json_object_put(kwargs);
        return false;
    }
    json_object_object_add(chat->body, "chat_template_kwargs", kwargs);
    return true;
}

struct plm_run_chat *plm_run_chat_create(const char *system, const char *template_kwargs)
{
    struct plm_run_chat *chat = calloc(1, sizeof(*chat));
    if (chat == NULL)
        return NULL;
    chat->body = json_object_new_object();
    chat->messages = json_object_new_array();
    bool ok = chat->body != NULL && chat->messages != NULL &&
              json_object_object_add(chat->body, "add_generation_prompt",
                                     json_object_new_boolean(true)) == 0;
    ok = ok && (template_kwargs == NULL || add_kwargs(chat, template_kwargs));
    if (ok && system != NULL && system[0] != '\0') {
        ok = plm_run_chat_add(chat, "system", system, strlen(system));
        chat->n_fixed = 1;
    }
    if (ok)
        return chat;
    plm_run_chat_destroy(chat);
    return NULL;
}

void plm_run_chat_destroy(struct plm_run_chat *chat)
{
    if (chat == NULL)
        return;
    json_object_put(chat->body);
    json_object_put(chat->messages);
    free(chat);
}

size_t plm_run_chat_length(const struct plm_run_chat *chat)
{
    return json_object_array_length(chat->messages) - chat->n_fixed;
}

void plm_run_chat_drop_last(struct plm_run_chat *chat)
{
    size_t n = json_object_array_length(chat->messages);
    if (n > chat->n_fixed)
        json_object_array_del_idx(chat->messages, n - 1, 1);
}

void plm_run_chat_reset(struct plm_run_chat *chat)
{
    size_t n = json_object_array_length(chat->messages);
    json_object_array_del_idx(chat->messages, chat->n_fixed, n - chat->n_fixed);
}

void plm_run_chat_drop_oldest(struct plm_run_chat *chat, size_t n)
{
    json_object_array_del_idx(chat->messages, chat->n_fixed, n);
}

const char *plm_run_chat_json(struct plm_run_chat *chat, size_t n_left_out, size_t *ret_len)
{
    json_object *sent = json_object_new_array();
    size_t n = json_object_array_length(chat->messages);
    bool ok = sent != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        if (i >= chat->n_fixed && i < chat->n_fixed + n_left_out)
            continue;
        json_object *message = json_object_get(json_object_array_get_idx(chat->messages, i));
        ok = json_object_array_add(sent, message) == 0;
        if (!ok)
            json_object_put(message);
    }
    if (!ok || json_object_object_add(chat->body, "messages", sent) != 0) {
        json_object_put(sent);
        return NULL;
    }
    return json_object_to_json_string_length(
        chat->body, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, ret_len);
}
