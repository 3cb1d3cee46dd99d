// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/openai_response.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static void make_id(char *out, size_t cap, const char *prefix)
{
    unsigned char bytes[12] = {0};
    ssize_t n = getrandom(bytes, sizeof(bytes), 0);
    (void)n; // short reads do not occur below 256 bytes
    int at = snprintf(out, cap, "%s", prefix);
    for (size_t i = 0; i < sizeof(bytes); i++)
        at += snprintf(out + at, cap - (size_t)at, "%02x", bytes[i]);
}

// ---- what an answer needs ----

// Of text, for each token: it is collected in a buffer that grows by halves, and copied into the
// body with escapes. Texts have about four bytes a token, eight where letters have two or three.
#define TEXT_BYTES 16
// Of one token with its probability: text, number and list of bytes in the chat format, text and
// number in the other.
#define CHAT_LOGPROB_BYTES       96
#define COMPLETION_LOGPROB_BYTES 48
// What stands around it all, and around each choice or chunk; the first size of a buffer is less.
#define AROUND_BYTES 1024

void plm_answer_needs(struct plm_openai_request *request, size_t backlog_bytes)
{
    plim_request_opts *o = &request->opts;
    const bool logprobs = o->logprobs != 0 || o->top_logprobs > 0;
    const size_t each = request->chat ? CHAT_LOGPROB_BYTES : COMPLETION_LOGPROB_BYTES;
    // The token itself is named beside its alternatives.
    const size_t token = logprobs ? (2 + o->top_logprobs) * each : 0;
    o->host_answer_bytes =
        AROUND_BYTES + o->n * (sizeof(struct plm_choice) + AROUND_BYTES + request->echo_bytes);
    if (request->stream) {
        // One event beyond the backlog, in a buffer that grew by halves; and the lists it is made
        // of.
        o->host_answer_bytes += (backlog_bytes + AROUND_BYTES + token) * 3 / 2;
        o->host_answer_bytes += o->n * token * 3 / 2;
        o->host_token_bytes = 0;
    } else {
        // Lists that grew by halves, and the body of its exact size.
        o->host_token_bytes = TEXT_BYTES + token * 5 / 2;
    }
}

static void draw_on(struct plm_out *out, plim_engine *engine, struct plm_purse *purse)
{
    plm_out_init(out, engine);
    plm_out_draw_on(out, purse);
}

bool plm_answer_init(struct plm_answer *answer, const struct plm_openai_request *request,
                     plim_engine *engine, struct plm_purse *purse, const char *model)
{
    *answer = (struct plm_answer){
        .engine = engine,
        .purse = purse,
        .model = model,
        .chat = request->chat,
        .stream = request->stream,
        .include_usage = request->include_usage,
        .logprobs = request->opts.logprobs != 0,
        .top = request->opts.top_logprobs > 0,
        .created = (int64_t)time(NULL),
        .n = request->opts.n,
    };
    make_id(answer->id, sizeof(answer->id), request->chat ? "chatcmpl-" : "cmpl-");
    const int64_t bytes = (int64_t)(answer->n * sizeof(*answer->choices));
    if (!plm_purse_take(purse, bytes))
        return false;
    answer->choices = calloc(answer->n, sizeof(*answer->choices));
    if (answer->choices == NULL) {
        plm_purse_give(purse, bytes);
        return false;
    }
    for (uint32_t i = 0; i < answer->n; i++) {
        struct plm_choice *c = &answer->choices[i];
        draw_on(&c->text, engine, purse);
        for (int l = 0; l < PLM_LP_LISTS; l++)
            draw_on(&c->logprobs[l], engine, purse);
    }
    return true;
}

void plm_answer_finish(struct plm_answer *answer)
{
    for (uint32_t i = 0; answer->choices != NULL && i < answer->n; i++) {
        struct plm_choice *c = &answer->choices[i];
        plm_out_finish(&c->text);
        for (int l = 0; l < PLM_LP_LISTS; l++)
            plm_out_finish(&c->logprobs[l]);
    }
    if (answer->choices != NULL)
        plm_purse_give(answer->purse, (int64_t)(answer->n * sizeof(*answer->choices)));
    free(answer->choices);
    answer->choices = NULL;
}

bool plm_answer_ok(const struct plm_answer *answer)
{
    bool failed = false;
    for (uint32_t i = 0; i < answer->n; i++) {
        const struct plm_choice *c = &answer->choices[i];
        failed |= c->text.failed;
        for (int l = 0; l < PLM_LP_LISTS; l++)
            failed |= c->logprobs[l].failed;
    }
    return !failed;
}

static size_t count_chars(const char *s, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)s[i] & 0xC0) != 0x80;
    return chars;
}

static const char *finish_name(int finish)
{
    return finish == PLIM_FINISH_STOP ? "stop" : finish == PLIM_FINISH_LENGTH ? "length" : "error";
}

// ---- logprobs ----

#define TOKEN_BYTES 512 // the longest token text that is shown; vocabularies stay below 256

struct token_text {
    char bytes[TOKEN_BYTES];
    size_t len;
    bool utf8;
};

static void token_text(const struct plm_answer *answer, int32_t id, struct token_text *ret)
{
    ret->len = 0;
    plim_token_bytes(answer->engine, id, ret->bytes, sizeof(ret->bytes), &ret->len);
    if (ret->len > sizeof(ret->bytes))
        ret->len = sizeof(ret->bytes);
    ret->utf8 = true;
    for (size_t i = 0; i < ret->len && ret->utf8;) {
        size_t n = plm_utf8_len(ret->bytes + i, ret->len - i);
        ret->utf8 = n > 0;
        i += n;
    }
}

// The key of a token in the completions format: its text, or "bytes:\xe4\xb8" when it is a part of
// a character, since keys must tell such tokens apart.
static void token_key(const struct token_text *t, struct plm_out *out)
{
    if (t->utf8) {
        plm_out_json(out, t->bytes, t->len);
        return;
    }
    plm_out_str(out, "\"bytes:");
    for (size_t i = 0; i < t->len; i++)
        plm_out_printf(out, "\\\\x%02x", (unsigned char)t->bytes[i]);
    plm_out_str(out, "\"");
}

// {"token":..,"logprob":..,"bytes":[..] without the closing brace.
static void chat_logprob(const struct plm_answer *answer, int32_t id, double logprob,
                         struct plm_out *out)
{
    struct token_text t;
    token_text(answer, id, &t);
    plm_out_str(out, "{\"token\":");
    plm_out_json(out, t.bytes, t.len);
    plm_out_str(out, ",\"logprob\":");
    plm_out_number(out, logprob);
    plm_out_str(out, ",\"bytes\":[");
    for (size_t i = 0; i < t.len; i++)
        plm_out_printf(out, i > 0 ? ",%u" : "%u", (unsigned char)t.bytes[i]);
    plm_out_str(out, "]");
}

static void comma(struct plm_out *list)
{
    if (list->len > 0)
        plm_out_str(list, ",");
}

static void add_chat_logprob(const struct plm_answer *answer, const plim_event *event,
                             struct plm_out *list)
{
    comma(list);
    chat_logprob(answer, event->token, event->logprob, list);
    plm_out_str(list, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < event->n_top; i++) {
        if (i > 0)
            plm_out_str(list, ",");
        chat_logprob(answer, event->top[i].token, event->top[i].logprob, list);
        plm_out_str(list, "}");
    }
    plm_out_str(list, "]}");
}

static void add_completion_logprob(const struct plm_answer *answer, const plim_event *event,
                                   struct plm_choice *c)
{
    struct token_text t;
    token_text(answer, event->token, &t);
    for (int l = 0; l < PLM_LP_LISTS; l++)
        comma(&c->logprobs[l]);
    token_key(&t, &c->logprobs[PLM_LP_TOKENS]);
    plm_out_number(&c->logprobs[PLM_LP_LOGPROBS], event->logprob);
    plm_out_printf(&c->logprobs[PLM_LP_OFFSETS], "%zu", c->chars);
    struct plm_out *top = &c->logprobs[PLM_LP_TOP];
    plm_out_str(top, "{");
    for (uint32_t i = 0; i < event->n_top; i++) {
        if (i > 0)
            plm_out_str(top, ",");
        token_text(answer, event->top[i].token, &t);
        token_key(&t, top);
        plm_out_str(top, ":");
        plm_out_number(top, event->top[i].logprob);
    }
    plm_out_str(top, "}");
}

static void add_logprob(const struct plm_answer *answer, const plim_event *event,
                        struct plm_choice *c)
{
    if (answer->chat)
        add_chat_logprob(answer, event, &c->logprobs[PLM_LP_TOKENS]);
    else
        add_completion_logprob(answer, event, c);
}

static void list_json(struct plm_out *out, const char *name, const struct plm_out *list)
{
    plm_out_printf(out, "\"%s\":[", name);
    plm_out_bytes(out, list->data, list->len);
    plm_out_str(out, "]");
}

// The "logprobs" member of a choice or chunk.
static void logprobs_json(const struct plm_answer *answer, const struct plm_choice *c,
                          struct plm_out *out)
{
    if (!answer->logprobs) {
        plm_out_str(out, "\"logprobs\":null");
        return;
    }
    plm_out_str(out, "\"logprobs\":{");
    if (answer->chat) {
        list_json(out, "content", &c->logprobs[PLM_LP_TOKENS]);
        plm_out_str(out, ",\"refusal\":null}");
        return;
    }
    list_json(out, "tokens", &c->logprobs[PLM_LP_TOKENS]);
    plm_out_str(out, ",");
    list_json(out, "token_logprobs", &c->logprobs[PLM_LP_LOGPROBS]);
    plm_out_str(out, ",");
    if (answer->top)
        list_json(out, "top_logprobs", &c->logprobs[PLM_LP_TOP]);
    else
        plm_out_str(out, "\"top_logprobs\":null");
    plm_out_str(out, ",");
    list_json(out, "text_offset", &c->logprobs[PLM_LP_OFFSETS]);
    plm_out_str(out, "}");
}

static void clear_logprobs(struct plm_choice *c)
{
    for (int l = 0; l < PLM_LP_LISTS; l++)
        plm_out_clear(&c->logprobs[l]);
}

// ---- common parts ----

static void head_json(const struct plm_answer *answer, const char *object, struct plm_out *out)
{
    plm_out_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":",
                   answer->id, object, answer->created);
    plm_out_json_str(out, answer->model);
    plm_out_printf(out, ",\"system_fingerprint\":\"plimsoll-%s\"", plim_version());
}

static double per_second(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static void usage_json(const plim_event *e, struct plm_out *out)
{
    plm_out_printf(
        out,
        "\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%" PRIu64
        ",\"prompt_tokens_details\":{\"cached_tokens\":%u}},",
        e->prompt_tokens, e->completion_tokens, (uint64_t)e->prompt_tokens + e->completion_tokens,
        e->cached_tokens);
    uint32_t computed = e->prompt_tokens - e->cached_tokens;
    plm_out_printf(out,
                   "\"timings\":{\"cache_n\":%u,\"prompt_n\":%u,\"prompt_ms\":%.3f,"
                   "\"prompt_per_second\":%.3f,\"predicted_n\":%u,\"predicted_ms\":%.3f,"
                   "\"predicted_per_second\":%.3f,\"queue_ms\":%.3f}",
                   e->cached_tokens, computed, e->prefill_s * 1e3,
                   per_second(computed, e->prefill_s), e->completion_tokens, e->decode_s * 1e3,
                   per_second(e->completion_tokens, e->decode_s), e->queue_s * 1e3);
}

// ---- stream ----

static void chunk_begin(const struct plm_answer *answer, struct plm_out *out)
{
    plm_out_str(out, "data: ");
    head_json(answer, answer->chat ? "chat.completion.chunk" : "text_completion", out);
}

// One chunk of one choice. text may be NULL (no text member: the last delta); role says whether it
// is the first one.
static void chunk(struct plm_answer *answer, uint32_t index, bool role, const char *text,
                  size_t len, const char *finish, bool logprobs, struct plm_out *out)
{
    chunk_begin(answer, out);
    plm_out_printf(out, ",\"choices\":[{\"index\":%u,", index);
    if (answer->chat)
        plm_out_str(out, role ? "\"delta\":{\"role\":\"assistant\"" : "\"delta\":{");
    if (answer->chat && text != NULL)
        plm_out_str(out, role ? ",\"content\":" : "\"content\":");
    if (!answer->chat)
        plm_out_str(out, "\"text\":");
    if (text != NULL || !answer->chat)
        plm_out_json(out, text, len);
    plm_out_str(out, answer->chat ? "}," : ",");
    struct plm_choice *c = &answer->choices[index];
    if (logprobs)
        logprobs_json(answer, c, out);
    else
        plm_out_str(out, "\"logprobs\":null");
    clear_logprobs(c);
    plm_out_str(out, ",\"finish_reason\":");
    if (finish != NULL)
        plm_out_json_str(out, finish);
    else
        plm_out_str(out, "null");
    plm_out_str(out, answer->include_usage ? "}],\"usage\":null}\n\n" : "}]}\n\n");
}

void plm_answer_start(struct plm_answer *answer, const struct plm_out *echo, struct plm_out *out)
{
    for (uint32_t i = 0; i < answer->n; i++) {
        struct plm_choice *c = &answer->choices[i];
        if (echo != NULL)
            c->chars = count_chars(echo->data, echo->len);
        if (echo != NULL && !answer->stream)
            plm_out_bytes(&c->text, echo->data, echo->len);
        if (answer->stream && (answer->chat || echo != NULL))
            chunk(answer, i, answer->chat, echo != NULL ? echo->data : "",
                  echo != NULL ? echo->len : 0, NULL, false, out);
    }
}

static void stream_event(struct plm_answer *answer, const plim_event *event, struct plm_out *out)
{
    bool token = event->type == PLIM_EVENT_TOKEN;
    bool logprobs = token && answer->logprobs;
    if (event->text_len > 0 || logprobs)
        chunk(answer, event->choice, false, event->text, event->text_len, NULL, logprobs, out);
    if (!token)
        chunk(answer, event->choice, false, NULL, 0, finish_name(event->finish), false, out);
}

void plm_answer_event(struct plm_answer *answer, const plim_event *event, struct plm_out *out)
{
    if (event->choice >= answer->n)
        return;
    struct plm_choice *c = &answer->choices[event->choice];
    if (event->type == PLIM_EVENT_TOKEN && answer->logprobs)
        add_logprob(answer, event, c);
    if (event->type == PLIM_EVENT_FINISH)
        c->finish = event->finish;
    if (answer->stream)
        stream_event(answer, event, out);
    else
        plm_out_bytes(&c->text, event->text, event->text_len);
    c->chars += count_chars(event->text, event->text_len);
}

void plm_answer_failed(const struct plm_api_error *error, struct plm_out *out)
{
    plm_out_str(out, "data: ");
    plm_api_error_json(error, out);
    plm_out_str(out, "\n\n");
}

// ---- the end ----

// Bytes of the body, as long as its text has few escapes: so it need not grow, by copies, beside
// what it is made of.
static size_t body_bytes(const struct plm_answer *answer)
{
    size_t bytes = AROUND_BYTES + strlen(answer->model);
    for (uint32_t i = 0; i < answer->n; i++) {
        const struct plm_choice *c = &answer->choices[i];
        bytes += AROUND_BYTES / 2 + c->text.len + c->text.len / 8;
        for (int l = 0; l < PLM_LP_LISTS; l++)
            bytes += c->logprobs[l].len;
    }
    return bytes;
}

static void whole_body(struct plm_answer *answer, const plim_event *event, struct plm_out *out)
{
    plm_out_reserve(out, body_bytes(answer));
    head_json(answer, answer->chat ? "chat.completion" : "text_completion", out);
    plm_out_str(out, ",\"choices\":[");
    for (uint32_t i = 0; i < answer->n; i++) {
        struct plm_choice *c = &answer->choices[i];
        plm_out_printf(out, i > 0 ? ",{\"index\":%u," : "{\"index\":%u,", i);
        plm_out_str(out, answer->chat ? "\"message\":{\"role\":\"assistant\",\"content\":"
                                      : "\"text\":");
        plm_out_json(out, c->text.data, c->text.len);
        plm_out_str(out, answer->chat ? ",\"refusal\":null}," : ",");
        // What was written is given back at once: the body must not be held twice.
        plm_out_finish(&c->text);
        logprobs_json(answer, c, out);
        plm_out_printf(out, ",\"finish_reason\":\"%s\"}", finish_name(c->finish));
    }
    plm_out_str(out, "],");
    usage_json(event, out);
    plm_out_str(out, "}");
}

void plm_answer_done(struct plm_answer *answer, const plim_event *event, struct plm_out *out)
{
    if (!answer->stream) {
        whole_body(answer, event, out);
        return;
    }
    if (answer->include_usage) {
        chunk_begin(answer, out);
        plm_out_str(out, ",\"choices\":[],");
        usage_json(event, out);
        plm_out_str(out, "}\n\n");
    }
    plm_out_str(out, "data: [DONE]\n\n");
}
