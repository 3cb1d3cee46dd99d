// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "tests/soak/soak.h"

#define TEXT_MAX   4096
#define TOKENS_MAX 4096
#define BURST      12 // requests of one client at once: more than the queue holds beside others
#define STEMS      2  // prompts that requests share as their beginning
#define HUGE_CHAT                                                                                  \
    52000 // messages of five values: what a chat may have, and beyond any budget of 64 MiB

enum kind {
    KIND_TEXT,
    KIND_TOKENS,
    KIND_STEM, // begins like others, some with a salt
    KIND_CHAT,
    KIND_PROBE,    // a fixed request: its tokens never change
    KIND_TOO_LONG, // beyond the context
    KIND_BAD,      // out of range or malformed
    KIND_HUGE,     // more host memory than there is
};

// One request with the room that its options point into.
struct ask {
    enum kind kind;
    uint32_t probe;
    uint32_t leave_after; // events; UINT32_MAX: stays
    bool drops;           // leaves by freeing, without cancel
    plim_request_opts opts;
    plim_request *request;
    char text[TEXT_MAX];
    int32_t tokens[TOKENS_MAX];
    plim_text stop;
    plim_logit_bias bias;
    char *huge;
};

static uint64_t draw(struct soak_client *c, uint64_t below)
{
    const uint64_t at = c->draws++;
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), c->index, 0};
    const uint32_t key[2] = {(uint32_t)c->soak->seed, (uint32_t)(c->soak->seed >> 32)};
    uint32_t out[4];
    plm_philox4x32(counter, key, out);
    return (((uint64_t)out[0] << 32) | out[1]) % below;
}

static const char *word(uint64_t i)
{
    static const char *const words[] = {
        "the",  "ship",  "winter", "load",  "line",  "caf\xC3\xA9", "\xE6\xB5\xB7",     "salt",
        "mark", "3.141", "scale",  "hull,", "fresh", "0x2A",        "\xF0\x9F\x9A\xA2", "\n",
    };
    return words[i % (sizeof(words) / sizeof(words[0]))];
}

// n words into text, from `at`; returns the new length.
static size_t words(struct soak_client *c, struct ask *a, size_t at, uint64_t n)
{
    for (uint64_t i = 0; i < n && at + 16 < sizeof(a->text); i++)
        at += (size_t)snprintf(a->text + at, sizeof(a->text) - at, "%s%s", i == 0 ? "" : " ",
                               word(draw(c, 16)));
    return at;
}

static uint32_t size_draw(struct soak_client *c, uint32_t max)
{
    // Half of them small, some to the full size.
    const uint64_t top = draw(c, 2) == 0 ? 1 + max / 8 : max;
    return 1 + (uint32_t)draw(c, top);
}

// ---- kinds ----

static void fill_tokens(struct soak_client *c, struct ask *a, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < n; i++)
        a->tokens[i] = (int32_t)draw(c, c->soak->model.n_vocab);
    a->opts.tokens = a->tokens;
    a->opts.n_tokens = n;
}

static uint32_t room(const struct soak_client *c)
{
    const uint32_t ctx = c->soak->model.n_ctx;
    return (ctx < TOKENS_MAX ? ctx : TOKENS_MAX) / 2;
}

static void fill_stem(struct soak_client *c, struct ask *a)
{
    const uint32_t stem = (uint32_t)draw(c, STEMS), shared = room(c) * 2 / 3;
    const uint32_t n = shared + (uint32_t)draw(c, room(c) / 3) + 1;
    for (uint32_t i = 0; i < shared; i++)
        a->tokens[i] = (int32_t)((i * 37 + i * i % 11 + stem * 7) % c->soak->model.n_vocab);
    fill_tokens(c, a, shared, n);
    a->opts.cache_salt = draw(c, 4) == 0 ? "a" : NULL;
}

static void fill_chat(struct soak_client *c, struct ask *a)
{
    const uint32_t turns = 1 + (uint32_t)draw(c, 5);
    size_t at = (size_t)snprintf(a->text, sizeof(a->text), "{\"messages\":[");
    for (uint32_t i = 0; i < turns; i++)
        at += (size_t)snprintf(a->text + at, sizeof(a->text) - at,
                               "%s{\"role\":\"%s\",\"content\":\"word %u of \\u6d77 %u\"}",
                               i > 0 ? "," : "", i % 2 == 0 ? "user" : "assistant",
                               (uint32_t)draw(c, 100), i);
    at += (size_t)snprintf(a->text + at, sizeof(a->text) - at, "]}");
    a->opts.chat_json = a->text;
    a->opts.chat_json_len = at;
}

static void fill_huge(struct ask *a)
{
    static const char one[] = "{\"role\":\"user\",\"content\":\"a\"},";
    const size_t size = HUGE_CHAT * (sizeof(one) - 1) + 64;
    a->huge = malloc(size);
    if (a->huge == NULL)
        abort();
    char *at = a->huge + sprintf(a->huge, "{\"messages\":[");
    for (uint32_t i = 0; i + 1 < HUGE_CHAT; i++) {
        memcpy(at, one, sizeof(one) - 1);
        at += sizeof(one) - 1;
    }
    at += sprintf(at, "{\"role\":\"user\",\"content\":\"a\"}]}");
    a->opts.chat_json = a->huge;
    a->opts.chat_json_len = (size_t)(at - a->huge);
}

static void fill_bad(struct soak_client *c, struct ask *a)
{
    fill_tokens(c, a, 0, 5);
    switch (draw(c, 8)) {
    case 0: a->opts.temperature = NAN; break;
    case 1: a->opts.n = 129; break;
    case 2: a->tokens[3] = (int32_t)c->soak->model.n_vocab; break;
    case 3: a->opts.top_logprobs = 21; break;
    case 4:
        a->stop = (plim_text){"\xFF", 1};
        a->opts.stop = &a->stop;
        a->opts.n_stop = 1;
        break;
    case 5: a->opts.n_tokens = 0; break;
    case 6:
        a->opts.prompt = "beside tokens";
        a->opts.prompt_len = 13;
        break;
    default: // a chat that ends too early
        a->opts.tokens = NULL;
        a->opts.n_tokens = 0;
        a->opts.chat_json = "{\"messages\":[{\"role\":";
        a->opts.chat_json_len = strlen(a->opts.chat_json);
    }
}

static void fill_probe(struct soak_client *c, struct ask *a)
{
    a->probe = (uint32_t)draw(c, SOAK_PROBES);
    const uint32_t n = 5 + a->probe * room(c) / SOAK_PROBES;
    for (uint32_t i = 0; i < n; i++)
        a->tokens[i] = (int32_t)((i * 31 + i * i % 13 + a->probe) % c->soak->model.n_vocab);
    a->opts.tokens = a->tokens;
    a->opts.n_tokens = n;
    a->opts.max_tokens = 12;
    a->opts.ignore_eos = 1;
    a->opts.temperature = a->probe % 2 == 0 ? 0.0f : 0.8f;
    a->opts.has_seed = 1;
    a->opts.seed = 4711 + a->probe;
}

// Sampling and length of a request that is meant to run.
static void fill_options(struct soak_client *c, struct ask *a)
{
    plim_request_opts *o = &a->opts;
    o->max_tokens = size_draw(c, room(c) / 2);
    o->n = draw(c, 6) == 0 ? 2 + (uint32_t)draw(c, 4) : 1;
    o->temperature = draw(c, 3) == 0 ? 0.0f : 0.9f;
    o->top_p = draw(c, 2) == 0 ? 1.0f : 0.8f;
    o->top_k = draw(c, 2) == 0 ? 0 : 20;
    o->repeat_penalty = draw(c, 4) == 0 ? 1.2f : 1.0f;
    o->has_seed = draw(c, 4) != 0;
    o->seed = draw(c, 1000);
    o->top_logprobs = draw(c, 5) == 0 ? 5 : 0;
    o->cache_prompt = draw(c, 8) != 0;
    if (draw(c, 5) == 0) {
        a->stop = (plim_text){"e", 1};
        o->stop = &a->stop;
        o->n_stop = 1;
    }
    if (draw(c, 6) == 0) {
        a->bias = (plim_logit_bias){(int32_t)draw(c, c->soak->model.n_vocab), 5};
        o->logit_bias = &a->bias;
        o->n_logit_bias = 1;
    }
    if (draw(c, 8) == 0) {
        a->leave_after = (uint32_t)draw(c, 6);
        a->drops = draw(c, 2) == 0;
    }
}

static enum kind kind_draw(struct soak_client *c)
{
    const uint64_t r = draw(c, 1000);
    if (r < 1)
        return c->soak->chat ? KIND_HUGE : KIND_BAD;
    if (r < 40)
        return KIND_BAD;
    if (r < 80)
        return KIND_TOO_LONG;
    if (r < 180)
        return KIND_PROBE;
    if (r < 300 && c->soak->chat)
        return KIND_CHAT;
    return r < 550 ? KIND_STEM : r < 800 ? KIND_TOKENS : KIND_TEXT;
}

static void fill(struct soak_client *c, struct ask *a)
{
    a->kind = kind_draw(c);
    a->leave_after = UINT32_MAX;
    a->drops = false;
    a->huge = NULL;
    a->request = NULL;
    plim_request_opts_init(&a->opts);
    if (a->kind <= KIND_CHAT)
        fill_options(c, a);
    switch (a->kind) {
    case KIND_TEXT:
        a->opts.prompt = a->text;
        a->opts.prompt_len = words(c, a, 0, 1 + draw(c, 30));
        break;
    case KIND_TOKENS: fill_tokens(c, a, 0, size_draw(c, room(c))); break;
    case KIND_STEM: fill_stem(c, a); break;
    case KIND_CHAT: fill_chat(c, a); break;
    case KIND_PROBE: fill_probe(c, a); break;
    case KIND_TOO_LONG:
        fill_tokens(c, a, 0, room(c));
        a->opts.max_tokens = c->soak->model.n_ctx;
        break;
    case KIND_BAD: fill_bad(c, a); break;
    case KIND_HUGE: fill_huge(a); break;
    }
}

// ---- what may come back ----

static bool refusal_fits(const struct ask *a, int status, const plim_error *err)
{
    switch (status) {
    case PLIM_ERR_QUEUE_FULL:
    case PLIM_ERR_NOMEM_NOW:
    case PLIM_ERR_NOMEM_HOST: return a->kind != KIND_BAD && err->retry_after_s >= 1;
    case PLIM_ERR_CONTEXT: return a->kind == KIND_TOO_LONG && err->n_ctx > 0;
    case PLIM_ERR_NOMEM_NEVER: // several long choices need more blocks than there are
        return (a->kind == KIND_HUGE || a->opts.n > 1) && err->needed_bytes > err->limit_bytes;
    case PLIM_ERR_INVALID:
    case PLIM_ERR_FORMAT: return a->kind == KIND_BAD;
    default: return false;
    }
}

// A request that was let in may end well, by its client, or wait too long in the queue.
static bool end_fits(const struct ask *a, const plim_event *e)
{
    if (e->status == PLIM_OK)
        return true;
    if (e->status == PLIM_ERR_CANCELLED)
        return a->leave_after != UINT32_MAX;
    return e->status == PLIM_ERR_NOMEM_NOW || e->status == PLIM_ERR_NOMEM_HOST;
}

// Under the lock.
static void wrong(struct soak *s, const struct ask *a, const char *what, int status,
                  const plim_error *err)
{
    if (s->tally.wrong++ == 0)
        snprintf(s->tally.first_wrong, sizeof(s->tally.first_wrong), "%s (kind %d): %d %.180s",
                 what, (int)a->kind, status, err != NULL ? err->message : "");
}

static uint64_t hash(uint64_t h, int32_t token)
{
    return (h ^ (uint32_t)token) * UINT64_C(0x100000001B3); // FNV-1a
}

static void count_end(struct soak *s, const struct ask *a, const plim_event *e, uint64_t tokens,
                      uint64_t h)
{
    pthread_mutex_lock(&s->lock);
    s->tally.tokens += tokens;
    s->tally.ended[e->finish]++;
    if (e->status != PLIM_OK)
        s->tally.failed[-e->status]++;
    if (!end_fits(a, e))
        wrong(s, a, "an end", e->status, e->error);
    if (a->kind == KIND_PROBE && e->status == PLIM_OK) {
        s->tally.probes++;
        if (s->probe_hash[a->probe] == 0)
            s->probe_hash[a->probe] = h;
        else if (s->probe_hash[a->probe] != h)
            wrong(s, a, "a probe gave other tokens", 0, NULL);
    }
    pthread_mutex_unlock(&s->lock);
}

static void count_left(struct soak *s, uint64_t tokens)
{
    pthread_mutex_lock(&s->lock);
    s->tally.tokens += tokens;
    s->tally.left++;
    pthread_mutex_unlock(&s->lock);
}

// ---- a request's life ----

static void submit(struct soak_client *c, struct ask *a)
{
    plim_error err = PLIM_INIT(plim_error);
    const int r = plim_request_submit(c->soak->engine, &a->opts, &a->request, &err);
    pthread_mutex_lock(&c->soak->lock);
    c->soak->tally.in++;
    if (r != PLIM_OK) {
        c->soak->tally.refused[-r]++;
        if (!refusal_fits(a, r, &err))
            wrong(c->soak, a, "a refusal", r, &err);
    } else if (a->kind >= KIND_TOO_LONG) {
        wrong(c->soak, a, "was let in", r, NULL);
    }
    pthread_mutex_unlock(&c->soak->lock);
}

static void read_to_end(struct soak_client *c, struct ask *a)
{
    plim_event e = PLIM_INIT(plim_event);
    uint64_t tokens = 0, h = UINT64_C(0xCBF29CE484222325);
    for (uint32_t events = 0;; events++) {
        if (events == a->leave_after) {
            if (a->drops) {
                count_left(c->soak, tokens);
                return;
            }
            plim_request_cancel(a->request);
        }
        if (plim_request_next(a->request, -1, &e) != PLIM_OK)
            break;
        if (e.type == PLIM_EVENT_TOKEN) {
            tokens++;
            h = hash(h, e.token);
        }
        if (e.type == PLIM_EVENT_DONE) {
            count_end(c->soak, a, &e, tokens, h);
            return;
        }
    }
    pthread_mutex_lock(&c->soak->lock);
    wrong(c->soak, a, "no DONE", 0, NULL);
    pthread_mutex_unlock(&c->soak->lock);
}

// Returns whether to go on.
static bool may_go_on(struct soak *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->park && !s->stop) {
        s->parked++;
        pthread_cond_broadcast(&s->changed);
        while (s->park && !s->stop)
            pthread_cond_wait(&s->changed, &s->lock);
        s->parked--;
    }
    const bool on = !s->stop;
    pthread_mutex_unlock(&s->lock);
    return on;
}

void *soak_client_run(void *arg)
{
    struct soak_client *c = arg;
    struct ask *asks = calloc(BURST, sizeof(*asks));
    if (asks == NULL)
        abort();
    while (may_go_on(c->soak)) {
        const uint32_t n = draw(c, 10) == 0 ? BURST : 1;
        for (uint32_t i = 0; i < n; i++) {
            fill(c, &asks[i]);
            submit(c, &asks[i]);
            free(asks[i].huge);
        }
        for (uint32_t i = 0; i < n; i++) {
            if (asks[i].request == NULL)
                continue;
            read_to_end(c, &asks[i]);
            plim_request_free(asks[i].request);
        }
    }
    free(asks);
    return NULL;
}
