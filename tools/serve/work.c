// SPDX-License-Identifier: Apache-2.0
// What workers do for the POST routes.
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/serve/fields.h"
#include "tools/serve/server.h"

static void engine_error(struct plm_call *call, int status, const plim_error *error)
{
    plm_api_error_from_engine(&call->error, status, error, plm_overload_status(call->srv));
}

// The same where the engine does not know of `held` bytes that this call was charged, beside its
// body: with them it may be that the request never fits.
static void engine_error_beside(struct plm_call *call, int status, const plim_error *error,
                                size_t held)
{
    plim_error e = *error;
    e.needed_bytes = error->alone_bytes + (int64_t)(call->body.cap + held);
    if (status == PLIM_ERR_NOMEM_HOST && error->alone_bytes > 0 && e.needed_bytes > e.limit_bytes) {
        snprintf(e.message, sizeof(e.message),
                 "with this request the server would need %" PRId64 " bytes of host memory, and "
                 "the limit is %" PRId64,
                 e.needed_bytes, e.limit_bytes);
        engine_error(call, PLIM_ERR_NOMEM_NEVER, &e);
        return;
    }
    engine_error(call, status, error);
}

// ---- generation ----

#define REPLACEMENT "\xEF\xBF\xBD" // U+FFFD

// Whether the bytes of the ids end inside a character. Three tokens with text hold what there may
// be of it; those without any are passed over.
static bool ends_inside_a_character(const plim_engine *engine, const int32_t *ids, size_t n)
{
    char tail[4];
    size_t used = 0; // of tail, from its end
    while (n-- > 0 && used < 3) {
        char bytes[512];
        size_t len = 0;
        plim_token_bytes(engine, ids[n], bytes, sizeof(bytes), &len);
        len = len < sizeof(bytes) ? len : sizeof(bytes);
        while (len > 0 && used < sizeof(tail))
            tail[sizeof(tail) - ++used] = bytes[--len];
    }
    return plm_utf8_is_cut(tail + sizeof(tail) - used, used);
}

// The text that echo puts before the answer. Where it ends inside a character, it ends before it.
static bool make_echo(struct plm_call *call)
{
    const plim_request_opts *o = &call->parsed.opts;
    plim_error error = PLIM_INIT(plim_error);
    size_t need = 0;
    call->has_echo = true;
    if (o->tokens == NULL) {
        plm_out_bytes(&call->echo, o->prompt, o->prompt_len);
    } else {
        plim_detokenize(call->srv->engine, o->tokens, o->n_tokens, NULL, 0, &need, NULL);
        if (plm_out_reserve(&call->echo, need + 1)) {
            int status = plim_detokenize(call->srv->engine, o->tokens, o->n_tokens, call->echo.data,
                                         call->echo.cap, &need, &error);
            if (status != PLIM_OK) {
                engine_error(call, status, &error);
                return false;
            }
            const size_t cut = strlen(REPLACEMENT);
            call->echo.len = need;
            if (ends_inside_a_character(call->srv->engine, o->tokens, o->n_tokens) && need >= cut &&
                memcmp(call->echo.data + need - cut, REPLACEMENT, cut) == 0)
                call->echo.len -= cut;
        }
    }
    if (call->echo.failed)
        plm_api_error_host(&call->error);
    return !call->echo.failed;
}

static void generate(struct plm_call *call, const struct plm_json_doc *doc, bool chat)
{
    struct plm_server *srv = call->srv;
    struct plm_openai_rules rules = {
        .engine = srv->engine,
        .model_names = srv->model_names,
        .n_model_names = srv->n_model_names,
        .n_vocab = srv->model.n_vocab,
        .default_max_tokens = srv->flags.predict > 0 ? (uint32_t)srv->flags.predict : 0,
        .defaults = &srv->defaults,
        .key_index = call->key_index,
        .many_keys = srv->access.auth.n > 1,
    };
    if (!plm_openai_parse(&call->parsed, doc, chat, &rules, &call->error))
        return;
    // Everything was copied: the body need not be held while the prompt is tokenized.
    plm_out_finish(&call->body);
    if (call->parsed.echo && !make_echo(call))
        return;
    plim_error error = PLIM_INIT(plim_error);
    call->parsed.opts.user = call;
    call->parsed.opts.tenant = (uint64_t)call->key_index;
    call->parsed.echo_bytes = call->echo.len;
    plm_answer_needs(&call->parsed, PLM_CALL_BACKLOG_BYTES);
    call->parsed.opts.host_charged_bytes = plm_openai_charged(&call->parsed);
    plim_request *request = NULL;
    int status = plim_request_submit(srv->engine, &call->parsed.opts, &request, &error);
    // The engine has its own copy of the prompt.
    plm_openai_finish(&call->parsed);
    if (status == PLIM_OK)
        call->request = request;
    else
        engine_error(call, status, &error);
}

void plm_work_chat(struct plm_call *call, const struct plm_json_doc *doc)
{
    generate(call, doc, true);
}

void plm_work_completion(struct plm_call *call, const struct plm_json_doc *doc)
{
    generate(call, doc, false);
}

// ---- text and tokens ----

static bool flag(struct plm_call *call, const struct plm_json_doc *doc, const char *name, bool *ret)
{
    const struct plm_json_value *v = plm_json_get(doc, name);
    if (v == NULL)
        return true;
    if (v->type != PLM_JSON_BOOL) {
        plm_api_error_invalid(&call->error, name, "%s must be true or false, not %s", name,
                              plm_json_type_name(v->type));
        return false;
    }
    *ret = plm_json_is_true(v);
    return true;
}

// Runs the tokenizer until the ids fit; they lie in ids->data.
static int tokenize(plim_engine *engine, const struct plm_out *text, bool add_special,
                    bool parse_special, struct plm_out *ids, size_t *n, plim_error *error)
{
    // English has about four bytes per token; when there are more tokens, the second round fits.
    size_t cap = text->len / 3 + 16;
    for (int round = 0; round < 2; round++) {
        if (!plm_out_reserve(ids, cap * sizeof(int32_t)))
            return PLIM_ERR_NOMEM_HOST;
        int status = plim_tokenize(engine, text->data != NULL ? text->data : "", text->len,
                                   add_special, parse_special, (int32_t *)(void *)ids->data,
                                   ids->cap / sizeof(int32_t), n, error);
        if (status != PLIM_ERR_LIMIT)
            return status;
        cap = *n;
    }
    return PLIM_ERR_INTERNAL;
}

// Whether these are whole characters of UTF-8.
static bool is_text(const char *bytes, size_t n)
{
    size_t len = 1;
    for (size_t i = 0; i < n && len > 0; i += len)
        len = (unsigned char)bytes[i] < 0x80 ? 1 : plm_utf8_len(bytes + i, n - i);
    return len > 0;
}

// JSON has no strings of bytes: half a character is a list of numbers, as llama-server has it.
static void bytes_json(const char *bytes, size_t n, struct plm_out *out)
{
    plm_out_str(out, "[");
    for (size_t i = 0; i < n && !out->failed; i++)
        plm_out_printf(out, "%s%d", i > 0 ? "," : "", (unsigned char)bytes[i]);
    plm_out_str(out, "]");
}

static void token_piece(struct plm_call *call, int32_t id, struct plm_out *out)
{
    char bytes[512];
    size_t n = 0;
    plim_token_bytes(call->srv->engine, id, bytes, sizeof(bytes), &n);
    n = n < sizeof(bytes) ? n : sizeof(bytes);
    plm_out_printf(out, "{\"id\":%d,\"piece\":", id);
    if (is_text(bytes, n))
        plm_out_json(out, bytes, n);
    else
        bytes_json(bytes, n, out);
    plm_out_str(out, "}");
}

static void tokens_json(struct plm_call *call, const int32_t *ids, size_t n, bool pieces)
{
    struct plm_out *out = &call->reply;
    plm_out_str(out, "{\"tokens\":[");
    for (size_t i = 0; i < n && !out->failed; i++) {
        if (i > 0)
            plm_out_str(out, ",");
        if (pieces)
            token_piece(call, ids[i], out);
        else
            plm_out_printf(out, "%d", ids[i]);
    }
    plm_out_printf(out, "],\"count\":%zu,\"max_model_len\":%u}", n, call->srv->model.n_ctx);
    if (out->failed)
        plm_api_error_host(&call->error);
}

void plm_work_tokenize(struct plm_call *call, const struct plm_json_doc *doc)
{
    if (!plm_fields_judge(doc, PLM_FIELDS_TOKENIZE, NULL, &call->error))
        return;
    // llama-server says content and adds nothing by default, vLLM says prompt and does.
    const struct plm_json_value *v = plm_json_get(doc, "content");
    const char *name = v != NULL || plm_json_get(doc, "prompt") == NULL ? "content" : "prompt";
    bool add_special = v == NULL, parse_special = true, pieces = false;
    v = plm_json_get(doc, name);
    if (v == NULL || v->type != PLM_JSON_STRING) {
        plm_api_error_invalid(&call->error, name, "%s must be a string", name);
        return;
    }
    if (!flag(call, doc, "add_special", &add_special) ||
        !flag(call, doc, "add_special_tokens", &add_special) ||
        !flag(call, doc, "parse_special", &parse_special) ||
        !flag(call, doc, "with_pieces", &pieces))
        return;
    struct plm_out text, ids;
    plm_out_init(&text, call->srv->engine);
    plm_out_init(&ids, call->srv->engine);
    plm_json_text(v, &text);
    plim_error error = PLIM_INIT(plim_error);
    size_t n = 0;
    int status = text.failed ? PLIM_ERR_NOMEM_HOST
                             : tokenize(call->srv->engine, &text, add_special, parse_special, &ids,
                                        &n, &error);
    const size_t wanted = sizeof(int32_t) * (n > text.len / 3 ? n : text.len / 3);
    if (status == PLIM_OK)
        tokens_json(call, (const int32_t *)(const void *)ids.data, n, pieces);
    else if (ids.failed)
        plm_api_error_host_for(&call->error, call->srv->engine,
                               (int64_t)(call->body.cap + text.cap + wanted));
    else
        engine_error_beside(call, status, &error, text.cap + ids.cap);
    plm_out_finish(&text);
    plm_out_finish(&ids);
}

// Both ask for text whose length only the engine knows.
static bool take_text(struct plm_call *call, int status, const plim_error *error, size_t need,
                      struct plm_out *text)
{
    if (status == PLIM_OK && need < text->cap) {
        text->len = need;
        return true;
    }
    if (text->failed)
        plm_api_error_host(&call->error);
    else
        engine_error(call, status, error);
    return false;
}

// The bytes of all tokens, one after the other.
static void exact_bytes(struct plm_call *call, const int32_t *ids, size_t n)
{
    struct plm_out bytes;
    plm_out_init(&bytes, call->srv->engine);
    for (size_t i = 0; i < n && !bytes.failed; i++) {
        char piece[512];
        size_t len = 0;
        plim_token_bytes(call->srv->engine, ids[i], piece, sizeof(piece), &len);
        plm_out_bytes(&bytes, piece, len < sizeof(piece) ? len : sizeof(piece));
    }
    bytes_json(bytes.data, bytes.len, &call->reply);
    if (bytes.failed || call->reply.failed)
        plm_api_error_host(&call->error);
    plm_out_finish(&bytes);
}

static void detokenize(struct plm_call *call, struct json_object *list)
{
    size_t n = json_object_array_length(list);
    struct plm_out ids, text;
    plm_out_init(&ids, call->srv->engine);
    plm_out_init(&text, call->srv->engine);
    for (size_t i = 0; i < n && call->error.http == 0; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        int64_t id = json_object_get_int64(item);
        if (!json_object_is_type(item, json_type_int) || id < 0 || id >= call->srv->model.n_vocab)
            plm_api_error_invalid(&call->error, "tokens", "tokens[%zu] is not a token id below %u",
                                  i, call->srv->model.n_vocab);
        plm_out_bytes(&ids, &(int32_t){(int32_t)id}, sizeof(int32_t));
    }
    if (ids.failed && call->error.http == 0)
        plm_api_error_host(&call->error);
    if (call->error.http == 0) {
        const int32_t *p = (const int32_t *)(const void *)ids.data;
        plim_error error = PLIM_INIT(plim_error);
        size_t need = 0;
        int status = plim_detokenize(call->srv->engine, p, n, NULL, 0, &need, &error);
        if ((status == PLIM_OK || status == PLIM_ERR_LIMIT) && plm_out_reserve(&text, need + 1))
            status = plim_detokenize(call->srv->engine, p, n, text.data, text.cap, &need, &error);
        if (take_text(call, status, &error, need, &text)) {
            plm_out_str(&call->reply, "{\"content\":");
            plm_out_json(&call->reply, text.data, text.len);
            plm_out_str(&call->reply, ",\"prompt\":");
            plm_out_json(&call->reply, text.data, text.len);
            // The text has U+FFFD for what is no character; so nothing is lost.
            if (memmem(text.data, text.len, "\xEF\xBF\xBD", 3) != NULL) {
                plm_out_str(&call->reply, ",\"bytes\":");
                exact_bytes(call, p, n);
            }
            plm_out_str(&call->reply, "}");
        }
    }
    plm_out_finish(&ids);
    plm_out_finish(&text);
}

void plm_work_detokenize(struct plm_call *call, const struct plm_json_doc *doc)
{
    if (!plm_fields_judge(doc, PLM_FIELDS_DETOKENIZE, NULL, &call->error))
        return;
    const struct plm_json_value *v = plm_json_get(doc, "tokens");
    if (v == NULL || v->type != PLM_JSON_ARRAY) {
        plm_api_error_invalid(&call->error, "tokens", "tokens must be an array of token ids");
        return;
    }
    int64_t charged = 0;
    struct json_object *list = plm_json_tree(v, call->srv->engine, &charged);
    if (list == NULL)
        plm_api_error_host_for(&call->error, call->srv->engine, charged + (int64_t)v->len);
    else
        detokenize(call, list);
    plm_json_release(list, call->srv->engine, charged);
}

void plm_work_apply_template(struct plm_call *call, const struct plm_json_doc *doc)
{
    struct plm_out chat, text;
    if (!plm_fields_judge(doc, PLM_FIELDS_TEMPLATE, NULL, &call->error))
        return;
    plm_out_init(&chat, call->srv->engine);
    plm_out_init(&text, call->srv->engine);
    if (plm_chat_json(doc, &chat, &call->error)) {
        plim_error error = PLIM_INIT(plim_error);
        size_t need = 0;
        // Most prompts are little longer than their JSON, so that one round is enough.
        int status = PLIM_ERR_NOMEM_HOST;
        if (plm_out_reserve(&text, chat.len + 1024))
            status = plim_chat_render(call->srv->engine, chat.data, chat.len, text.data, text.cap,
                                      &need, &error);
        if (status == PLIM_ERR_LIMIT && need >= text.cap && plm_out_reserve(&text, need + 1))
            status = plim_chat_render(call->srv->engine, chat.data, chat.len, text.data, text.cap,
                                      &need, &error);
        if (status == PLIM_ERR_NOMEM_HOST && !text.failed) {
            engine_error_beside(call, status, &error, chat.cap + text.cap);
        } else if (take_text(call, status, &error, need, &text)) {
            plm_out_str(&call->reply, "{\"prompt\":");
            plm_out_json(&call->reply, text.data, text.len);
            plm_out_str(&call->reply, "}");
        }
    }
    plm_out_finish(&chat);
    plm_out_finish(&text);
}
