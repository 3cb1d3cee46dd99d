// SPDX-License-Identifier: Apache-2.0
// Text and tokens of the public API, and what needs no engine: the list of devices.
#include "core/engine/text.h"

#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/base/work.h"
#include "core/engine/engine.h"
#include "core/engine/error.h"
#include "core/engine/structs.h"
#include "core/engine/text_out.h"
#include "core/gguf/types.h"

#define DEVICES_MAX 16 // of one backend that are listed: more than any one machine has

// ---- devices ----

// The element_bytes of the caller's elements are what it knows of them.
static void put_device(void *out, size_t element_bytes, size_t i,
                       const struct plm_device_desc *desc)
{
    plim_device_info info = {.total_bytes = desc->total_bytes};
    snprintf(info.id, sizeof(info.id), "%.31s", desc->id);
    snprintf(info.name, sizeof(info.name), "%.63s", desc->name);
    char *at = (char *)out + i * element_bytes;
    memset(at, 0, element_bytes);
    memcpy(at, &info, element_bytes < sizeof(info) ? element_bytes : sizeof(info));
}

int plim_device_list_sized(plim_device_info *out, size_t element_bytes, size_t cap, size_t *n)
{
    size_t total = 0;
    if ((out == NULL && cap > 0) || element_bytes < sizeof(out->id) ||
        element_bytes > PLIM_STRUCT_MAX)
        return PLIM_ERR_INVALID;
    struct plm_host *host = plm_host_create(0);
    if (host == NULL)
        return PLIM_ERR_NOMEM_HOST;
    for (size_t b = 0; plm_backends[b] != NULL; b++) {
        struct plm_device_desc descs[DEVICES_MAX];
        size_t found = 0;
        if (plm_backends[b]->enumerate(host, descs, DEVICES_MAX, &found, NULL) != PLM_OK)
            continue; // a driver that is not there is no device
        for (size_t i = 0; i < found && i < DEVICES_MAX; i++, total++) {
            if (total < cap)
                put_device(out, element_bytes, total, &descs[i]);
        }
    }
    plm_host_destroy(host);
    if (n != NULL)
        *n = total;
    return PLIM_OK;
}

int plim_device_missing(char *out, size_t cap, size_t *need)
{
    struct plm_buf buf;
    struct plm_host *host = plm_host_create(0);
    if (host == NULL)
        return PLIM_ERR_NOMEM_HOST;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    for (size_t b = 0; plm_backends[b] != NULL; b++) {
        struct plm_device_desc descs[DEVICES_MAX];
        struct plm_error why = {0};
        size_t found = 0;
        const int r = plm_backends[b]->enumerate(host, descs, DEVICES_MAX, &found, &why);
        if (why.msg[0] != '\0')
            plm_buf_printf(&buf, "%s\n", why.msg);
        else if (r != PLM_OK)
            plm_buf_printf(&buf, "%s: %s\n", plm_backends[b]->name, plm_strstatus(r));
    }
    const int r = plm_buf_out(&buf, out, cap, need);
    plm_host_destroy(host);
    return r;
}

// ---- model ----

int plim_engine_model(const plim_engine *engine, plim_model_info *ret)
{
    if (engine == NULL || ret == NULL)
        return PLIM_ERR_INVALID;
    const struct plm_core *core = engine->core;
    const struct plm_model_facts *f = plm_model_facts(core->model);
    plim_model_info info = {.n_params = f->n_params,
                            .file_bytes = f->file_bytes,
                            .n_vocab = f->n_vocab,
                            .n_embd = f->n_embd,
                            .n_layer = f->n_layer,
                            .n_ctx_train = f->n_ctx_train,
                            .n_ctx = engine->admission.limits.max_context,
                            .has_chat_template = core->chat != NULL,
                            .adds_bos = plm_tokenizer_adds_bos(core->tokenizer),
                            .bos = plm_tokenizer_bos(core->tokenizer),
                            .eos = plm_tokenizer_eos(core->tokenizer),
                            .temperature = f->sampling.temperature,
                            .top_p = f->sampling.top_p,
                            .min_p = f->sampling.min_p,
                            .repeat_penalty = f->sampling.repeat_penalty,
                            .top_k = f->sampling.top_k};
    snprintf(info.name, sizeof(info.name), "%.127s",
             f->name[0] != '\0' ? f->name : core->file_name);
    snprintf(info.arch, sizeof(info.arch), "%.31s", f->arch);
    snprintf(info.type, sizeof(info.type), "%.31s", plm_type_name(f->main_type));
    return plm_struct_out(ret, &info, sizeof(info));
}

// ---- tokens ----

void plim_thread_cancellable(bool (*cancelled)(void *ctx), void *ctx)
{
    plm_work_ask(cancelled, ctx);
}

static unsigned encode_flags(bool add_special, bool parse_special)
{
    return (add_special ? PLM_ENCODE_ADD_SPECIAL : 0u) |
           (parse_special ? PLM_ENCODE_PARSE_SPECIAL : 0u);
}

static int encode(const struct plm_core *core, struct plm_slice text, unsigned flags,
                  const char *param, struct plm_tokens *ret, plim_error *err)
{
    struct plm_error why = {0};
    int r = plm_tokenizer_encode(core->tokenizer, text, flags, ret, &why);
    if (r == PLM_OK)
        return PLIM_OK;
    plm_error_out(err, r, &why);
    if (err != NULL)
        snprintf(err->param, sizeof(err->param), "%s", param);
    return r;
}

static int check_ids(const struct plm_core *core, const int32_t *ids, size_t n, const char *param,
                     plim_error *err)
{
    // Ids without a text are allowed where the matrix has a row for them.
    uint32_t n_vocab = plm_model_facts(core->model)->n_vocab;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return plm_error_set(err, PLIM_ERR_INVALID, param,
                                 "token %zu is %d; the vocabulary has %u", i, ids[i], n_vocab);
    }
    return PLIM_OK;
}

static int tokenize(const plim_engine *engine, struct plm_slice text, unsigned flags, int32_t *ids,
                    size_t cap, size_t *n, plim_error *err)
{
    if (engine == NULL || (text.ptr == NULL && text.len > 0) || (ids == NULL && cap > 0))
        return plm_error_null(err, engine == NULL                     ? "engine"
                                   : text.ptr == NULL && text.len > 0 ? "text"
                                                                      : "ids");
    struct plm_tokens tokens;
    struct plm_host_meter meter;
    plm_host_meter_start(engine->core->host, &meter);
    plm_tokens_init(&tokens, engine->core->host);
    struct plm_work work;
    plm_work_start(&work, PLM_WORK_STEPS_MAX);
    int r = encode(engine->core, text, flags, "text", &tokens, err);
    plm_work_stop();
    r = plm_error_host(&engine->admission.limits, r, &meter, 0, err);
    if (r == PLIM_OK) {
        if (n != NULL)
            *n = tokens.n;
        size_t stored = tokens.n < cap ? tokens.n : cap;
        if (stored > 0)
            memcpy(ids, tokens.ids, stored * sizeof(*ids));
        if (tokens.n > cap)
            r = plm_error_set(err, PLIM_ERR_LIMIT, NULL, "the text has %zu tokens, room is for %zu",
                              tokens.n, cap);
    }
    plm_tokens_finish(&tokens);
    return r;
}

int plim_tokenize(const plim_engine *engine, const char *text, size_t len, bool add_special,
                  bool parse_special, int32_t *ids, size_t cap, size_t *n, plim_error *err)
{
    plim_error error = PLIM_INIT(plim_error);
    const int r = tokenize(engine, (struct plm_slice){text, len},
                           encode_flags(add_special, parse_special), ids, cap, n, &error);
    return plm_error_give(err, r, &error);
}

static int detokenize(const plim_engine *engine, const int32_t *ids, size_t n, char *out,
                      size_t cap, size_t *need, plim_error *err)
{
    if (engine == NULL || (ids == NULL && n > 0))
        return plm_error_null(err, engine == NULL ? "engine" : "ids");
    int r = plm_error_place(out, cap, err);
    if (r == PLIM_OK)
        r = check_ids(engine->core, ids, n, "ids", err);
    if (r != PLIM_OK)
        return r;
    struct plm_detok detok;
    struct plm_buf text;
    plm_buf_init(&text, engine->core->host, PLM_HOST_REQUEST);
    plm_detok_init(&detok, engine->core->tokenizer, false, true);
    for (size_t i = 0; i < n; i++)
        plm_detok_push(&detok, ids[i], &text);
    plm_detok_flush(&detok, &text);
    if (text.failed)
        r = plm_error_set(err, PLIM_ERR_NOMEM_HOST, NULL, "no host memory for the text");
    else
        r = plm_text_out(text.data, text.len, out, cap, need);
    plm_buf_finish(&text);
    return r;
}

int plim_detokenize(const plim_engine *engine, const int32_t *ids, size_t n, char *out, size_t cap,
                    size_t *need, plim_error *err)
{
    plim_error error = PLIM_INIT(plim_error);
    return plm_error_give(err, detokenize(engine, ids, n, out, cap, need, &error), &error);
}

int plim_token_bytes(const plim_engine *engine, int32_t id, char *out, size_t cap, size_t *need)
{
    if (engine == NULL || check_ids(engine->core, &id, 1, NULL, NULL) != PLIM_OK)
        return PLIM_ERR_INVALID;
    struct plm_slice piece = plm_tokenizer_piece(engine->core->tokenizer, id);
    return plm_text_out(piece.ptr, piece.len, out, cap, need);
}

// ---- chats ----

static int chat_render(const plim_engine *engine, const char *chat_json, size_t len, char *out,
                       size_t cap, size_t *need, plim_error *err)
{
    struct plm_render render;
    if (engine == NULL || chat_json == NULL)
        return plm_error_null(err, engine == NULL ? "engine" : "chat_json");
    if (plm_error_place(out, cap, err) != PLIM_OK)
        return PLIM_ERR_INVALID;
    struct plm_host_meter meter;
    plm_host_meter_start(engine->core->host, &meter);
    struct plm_work work;
    plm_work_start(&work, PLM_WORK_STEPS_MAX);
    int r = plm_text_render(engine->core, chat_json, len, &render, err);
    plm_work_stop();
    r = plm_error_host(&engine->admission.limits, r, &meter, 0, err);
    if (r != PLIM_OK)
        return r;
    r = plm_text_out(render.text.data, render.text.len, out, cap, need);
    if (r != PLIM_OK)
        plm_error_set(err, r, NULL, "the prompt has %zu bytes, room is for %zu", render.text.len,
                      cap);
    plm_render_finish(&render);
    return r;
}

int plim_chat_render(const plim_engine *engine, const char *chat_json, size_t len, char *out,
                     size_t cap, size_t *need, plim_error *err)
{
    plim_error error = PLIM_INIT(plim_error);
    return plm_error_give(err, chat_render(engine, chat_json, len, out, cap, need, &error), &error);
}

// ---- prompts ----

// The tokens that `text_bytes` come to at least, where that is beyond the context: nobody need hold
// a million tokens to say no to them.
static int check_length(const struct plm_core *core, uint64_t text_bytes, uint64_t *ret_least,
                        plim_error *err)
{
    const uint64_t least = plm_tokenizer_least(core->tokenizer, text_bytes);
    if (least < core->profile.plan.in.limits.max_context)
        return PLIM_OK;
    *ret_least = least;
    return plm_error_set(err, PLIM_ERR_CONTEXT, NULL, "the prompt has %llu tokens or more",
                         (unsigned long long)least);
}

// Leaves the last tokens that the caller wants of a prompt, and BOS where the tokenizer put it.
static void truncate_prompt(const struct plm_core *core, const plim_request_opts *o,
                            struct plm_tokens *tokens)
{
    const size_t most = o->truncate_prompt;
    if (most == 0 || tokens->n <= most)
        return;
    const size_t kept = o->prompt != NULL && plm_tokenizer_adds_bos(core->tokenizer) ? 1 : 0;
    memmove(tokens->ids + kept, tokens->ids + tokens->n - (most - kept),
            (most - kept) * sizeof(*tokens->ids));
    tokens->n = most;
}

// Text that a user wrote never becomes a control token; the template brings BOS itself.
static int encode_chat(const struct plm_core *core, const plim_request_opts *o,
                       struct plm_tokens *ret, uint64_t *ret_least, plim_error *err)
{
    struct plm_render render;
    struct plm_error why = {0};
    int r = plm_text_render(core, o->chat_json, o->chat_json_len, &render, err);
    if (r != PLIM_OK)
        return r;
    if (o->truncate_prompt == 0)
        r = check_length(core, render.text.len, ret_least, err);
    if (r != PLIM_OK) {
        plm_render_finish(&render);
        return r;
    }
    r = plm_tokenizer_encode_spans(
        core->tokenizer, (struct plm_slice){render.text.data, render.text.len}, render.spans,
        render.n_spans, PLM_ENCODE_PARSE_SPECIAL, ret, &why);
    plm_render_finish(&render);
    return r == PLM_OK ? PLIM_OK : plm_error_out(err, r, &why);
}

static int take_ids(const struct plm_core *core, const plim_request_opts *o, struct plm_tokens *ret,
                    uint64_t *ret_least, plim_error *err)
{
    int r = check_ids(core, o->tokens, o->n_tokens, "prompt", err);
    if (r != PLIM_OK)
        return r;
    const size_t n = o->truncate_prompt > 0 && o->n_tokens > o->truncate_prompt ? o->truncate_prompt
                                                                                : o->n_tokens;
    if (n >= core->profile.plan.in.limits.max_context) {
        *ret_least = n; // not copied: it is the exact number
        return PLIM_ERR_CONTEXT;
    }
    if (plm_tokens_append(ret, o->tokens + (o->n_tokens - n), n) != PLM_OK)
        return plm_error_set(err, PLIM_ERR_NOMEM_HOST, "prompt", "no host memory for the prompt");
    return PLIM_OK;
}

int plm_text_prompt(const struct plm_core *core, const plim_request_opts *o, struct plm_tokens *ret,
                    uint64_t *ret_least, plim_error *err)
{
    int r = PLIM_OK;
    if (o->tokens != NULL)
        return take_ids(core, o, ret, ret_least, err);
    if (o->chat_json != NULL) {
        r = encode_chat(core, o, ret, ret_least, err);
    } else {
        if (o->truncate_prompt == 0)
            r = check_length(core, o->prompt_len, ret_least, err);
        if (r == PLIM_OK)
            r = encode(core, (struct plm_slice){o->prompt, o->prompt_len},
                       encode_flags(true, o->prompt_parse_special != 0), "prompt", ret, err);
    }
    if (r == PLIM_OK)
        truncate_prompt(core, o, ret);
    return r;
}
