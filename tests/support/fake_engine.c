// SPDX-License-Identifier: Apache-2.0
// An engine that only pretends, behind the public API: the server's tests get refusals, slow tokens
// and failures from it on demand, in milliseconds and without a model.
//
// A token is a byte. The answer to anything is "abcdefgh"... Words in the prompt steer it:
//   @tokens=N    length of the answer (default 5; then it stops)
//   @delay=MS    between tokens          @wait=MS   before admission
//   @hold        no token ever           @big       every token is 1 KiB of text
//   @never @now @queue @host @closed     refused at submit
//   @late        refused while waiting (after @wait)
//   @nan @lost   fails after two tokens
//   @escape      every token is a terminal escape
//   @eat         from its admission to its end others hold all that is left of the host budget
//   @sampling    refused with what the request says of sampling
//   @submit=MS   submit itself takes so long
// Sleep waits for what runs, and takes at least 200 ms.
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <json-c/json.h>

#include "core/plimsoll.h"

#define N_VOCAB     300
#define N_CTX       4096
#define HOST_LIMIT  (64 << 20)
#define BIG_BYTES   1024
#define FAKE_BLOCKS 100

struct plim_request {
    plim_engine *engine;
    struct plim_request *prev, *next; // all of the engine
    struct plim_request *next_ready;
    void *user;
    bool in_ready, cancelled, ended;
    // Script.
    uint32_t n, max_tokens, answer_tokens, prompt_tokens, top;
    int64_t reserved; // host bytes, for the caller
    int64_t delay_ms, due_ms, submit_ms;
    bool logprobs, hold, late, nan, lost, big, escape, stopped, include_stop, eat;
    int64_t eaten; // of the host budget, by others
    int32_t stop_tokens[PLIM_STOP_TOKENS_MAX];
    size_t n_stop_tokens;
    // Progress.
    bool admitted;
    uint32_t produced; // tokens of every choice
    plim_event *events;
    size_t head, tail, cap;
    plim_logprob top_list[PLIM_TOP_LOGPROBS_MAX];
    plim_error error;
};

struct plim_engine {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    pthread_t thread;
    bool stop;
    atomic_bool draining, asleep, drowsy; // read by whoever submits
    int fd;
    uint32_t n_ctx, queue_max, running, most_running;
    struct plim_request *all;
    struct plim_request *ready_first, *ready_last;
    _Atomic int64_t host_used;
    _Atomic int64_t host_peak;
    int64_t host_limit;
    uint64_t finished[PLIM_FINISH_ERROR + 1];
};

static char letters[27] = "abcdefghijklmnopqrstuvwxyz";
static char big_text[BIG_BYTES];

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int fail(plim_error *err, int status, const char *message)
{
    if (err != NULL) {
        *err = (plim_error)PLIM_INIT(plim_error);
        err->status = status;
        snprintf(err->message, sizeof(err->message), "%s", message);
    }
    return status;
}

const char *plim_strstatus(int status)
{
    return status == PLIM_OK ? "ok" : "failed";
}

const char *plim_version(void)
{
    return "0.0.0";
}

const char *plim_build_info(void)
{
    return "fake";
}

void plim_engine_opts_init_sized(plim_engine_opts *o, size_t opts_bytes)
{
    (void)opts_bytes; // built with the same header
    memset(o, 0, sizeof(*o));
    o->struct_size = sizeof(*o);
    o->device = "cpu";
    o->memory_fraction = 1.0;
    o->queue_max = 256;
    o->queue_timeout_ms = 600000;
    o->prefix_cache = 1;
    o->log_level = PLIM_LOG_INFO;
}

void plim_request_opts_init_sized(plim_request_opts *o, size_t opts_bytes)
{
    (void)opts_bytes;
    memset(o, 0, sizeof(*o));
    o->struct_size = sizeof(*o);
    o->n = 1;
    o->prompt_parse_special = 1;
    o->temperature = 1;
    o->top_p = 1;
    o->repeat_penalty = 1;
    o->cache_prompt = 1;
}

// ---- events ----

static void push(struct plim_request *r, plim_event event)
{
    struct plim_engine *e = r->engine;
    if (r->tail == r->cap) {
        r->cap = r->cap > 0 ? 2 * r->cap : 16;
        r->events = realloc(r->events, r->cap * sizeof(*r->events));
    }
    r->events[r->tail++] = event;
    if (!r->in_ready) {
        r->in_ready = true;
        r->next_ready = NULL;
        if (e->ready_last != NULL)
            e->ready_last->next_ready = r;
        else
            e->ready_first = r;
        e->ready_last = r;
    }
    uint64_t one = 1;
    ssize_t w = write(e->fd, &one, sizeof(one));
    (void)w;
    pthread_cond_broadcast(&e->cond);
}

static void push_done(struct plim_request *r, int status, const char *message)
{
    plim_event event = {.type = PLIM_EVENT_DONE, .status = status};
    event.finish = status == PLIM_OK              ? PLIM_FINISH_STOP
                   : status == PLIM_ERR_CANCELLED ? PLIM_FINISH_CANCELLED
                                                  : PLIM_FINISH_ERROR;
    event.prompt_tokens = r->prompt_tokens;
    event.cached_tokens = r->prompt_tokens / 2;
    event.completion_tokens = r->produced * r->n;
    event.prefill_s = 0.01;
    event.decode_s = 0.02;
    if (status != PLIM_OK) {
        fail(&r->error, status, message);
        r->error.retry_after_s = status == PLIM_ERR_NOMEM_NOW ? 3 : 0;
        event.error = &r->error;
    }
    r->ended = true;
    r->engine->finished[event.finish]++;
    if (r->admitted)
        r->engine->running--;
    push(r, event);
}

static void push_tokens(struct plim_request *r)
{
    for (uint32_t c = 0; c < r->n; c++) {
        uint32_t letter = (r->produced + c) % 26;
        plim_event event = {.type = PLIM_EVENT_TOKEN, .choice = c};
        event.token = 'a' + (int32_t)letter;
        event.text = r->big ? big_text : r->escape ? "\033" : letters + letter;
        event.text_len = r->big ? BIG_BYTES : 1;
        event.logprob = -0.5f;
        event.n_top = r->top;
        event.top = r->top_list;
        push(r, event);
    }
    r->produced++;
}

// Whether the next token is one that ends the answer; all choices end with the first.
static bool stops_next(const struct plim_request *r)
{
    for (size_t i = 0; i < r->n_stop_tokens; i++) {
        if (r->stop_tokens[i] == 'a' + (int32_t)(r->produced % 26))
            return true;
    }
    return false;
}

static void eat(struct plim_request *r)
{
    for (int64_t bytes = HOST_LIMIT; bytes > 0;) {
        if (plim_engine_host_charge(r->engine, bytes) == PLIM_OK)
            r->eaten += bytes;
        else
            bytes /= 2;
    }
}

static void push_finish(struct plim_request *r)
{
    for (uint32_t c = 0; c < r->n; c++) {
        plim_event event = {.type = PLIM_EVENT_FINISH, .choice = c};
        event.finish =
            r->produced == r->max_tokens && !r->stopped ? PLIM_FINISH_LENGTH : PLIM_FINISH_STOP;
        push(r, event);
    }
    push_done(r, PLIM_OK, "");
}

static void advance(struct plim_request *r)
{
    if (r->cancelled) {
        push_done(r, PLIM_ERR_CANCELLED, "cancelled");
    } else if (!r->admitted && r->late) {
        push_done(r, PLIM_ERR_NOMEM_NOW, "waited too long for room");
    } else if (!r->admitted) {
        r->admitted = true;
        if (r->eat)
            eat(r);
        r->engine->running++;
        if (r->engine->running > r->engine->most_running)
            r->engine->most_running = r->engine->running;
        push(r, (plim_event){.type = PLIM_EVENT_ADMITTED});
    } else if (r->produced == 2 && (r->nan || r->lost)) {
        push_done(r, r->nan ? PLIM_ERR_NUMERIC : PLIM_ERR_LOST, "the model gave no numbers");
    } else if (r->stopped || (stops_next(r) && !r->include_stop)) {
        r->stopped = true;
        push_finish(r);
    } else if (r->produced == r->answer_tokens || r->produced == r->max_tokens) {
        push_finish(r);
    } else {
        r->stopped = stops_next(r);
        push_tokens(r);
    }
    r->due_ms = r->hold && r->admitted ? INT64_MAX : now_ms() + (r->admitted ? r->delay_ms : 0);
}

static void *drive(void *arg)
{
    struct plim_engine *e = arg;
    pthread_mutex_lock(&e->mutex);
    while (!e->stop) {
        int64_t now = now_ms(), due = INT64_MAX;
        for (struct plim_request *r = e->all; r != NULL; r = r->next) {
            if (!r->ended && (r->cancelled || r->due_ms <= now))
                advance(r);
            if (!r->ended && r->due_ms < due)
                due = r->due_ms;
        }
        if (due <= now)
            continue;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        int64_t ms = due == INT64_MAX ? 3600000 : due - now;
        until.tv_sec += ms / 1000;
        until.tv_nsec += ms % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&e->cond, &e->mutex, &until);
    }
    pthread_mutex_unlock(&e->mutex);
    return NULL;
}

// ---- engine ----

int plim_engine_create(const plim_engine_opts *o, plim_engine **ret, plim_error *err)
{
    if (strstr(o->model_path, "missing") != NULL)
        return fail(err, PLIM_ERR_NOT_FOUND, "no such model file");
    // "slow-1500.gguf" takes so many milliseconds to load.
    const char *slow = strstr(o->model_path, "slow-");
    if (slow != NULL)
        usleep((useconds_t)atoi(slow + 5) * 1000);
    if (o->progress != NULL)
        o->progress(o->progress_ctx, &(plim_progress){"load", 1, 2});
    plim_engine *e = calloc(1, sizeof(*e));
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->cond, NULL);
    memset(big_text, 'x', sizeof(big_text));
    e->n_ctx = o->ctx_size > 0 ? o->ctx_size : N_CTX;
    e->queue_max = o->queue_max;
    e->host_limit = o->host_limit_bytes > 0 ? (int64_t)o->host_limit_bytes : HOST_LIMIT;
    e->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_create(&e->thread, NULL, drive, e);
    *ret = e;
    return PLIM_OK;
}

int plim_engine_free(plim_engine *e)
{
    if (e == NULL)
        return PLIM_OK;
    pthread_mutex_lock(&e->mutex);
    e->stop = true;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mutex);
    pthread_join(e->thread, NULL);
    // The server must have given everything back.
    if (e->all != NULL || atomic_load(&e->host_used) != 0) {
        fprintf(stderr, "LEAK: requests %d, host bytes %lld\n", e->all != NULL,
                (long long)atomic_load(&e->host_used));
        abort();
    }
    close(e->fd);
    free(e);
    return PLIM_OK;
}

int plim_engine_drain(plim_engine *e, int64_t timeout_ms)
{
    (void)timeout_ms;
    pthread_mutex_lock(&e->mutex);
    e->draining = true;
    bool idle = e->running == 0;
    pthread_mutex_unlock(&e->mutex);
    return idle ? PLIM_OK : PLIM_ERR_TIMEOUT;
}

int plim_engine_poll_fd(plim_engine *e)
{
    return e->fd;
}

plim_request *plim_engine_next_ready(plim_engine *e)
{
    pthread_mutex_lock(&e->mutex);
    struct plim_request *r = e->ready_first;
    if (r != NULL) {
        e->ready_first = r->next_ready;
        if (e->ready_first == NULL)
            e->ready_last = NULL;
        r->in_ready = false;
    }
    if (e->ready_first == NULL) {
        uint64_t count;
        ssize_t n = read(e->fd, &count, sizeof(count));
        (void)n;
    }
    pthread_mutex_unlock(&e->mutex);
    return r;
}

int plim_engine_model(const plim_engine *e, plim_model_info *ret)
{
    *ret = (plim_model_info){
        .struct_size = sizeof(*ret), .n_vocab = N_VOCAB, .n_ctx = e->n_ctx, .n_ctx_train = N_CTX};
    strcpy(ret->name, "Fake model");
    strcpy(ret->arch, "fake");
    strcpy(ret->type, "F32");
    ret->has_chat_template = true;
    ret->temperature = 0.6F; // as a file that says so
    ret->top_p = ret->min_p = ret->repeat_penalty = NAN;
    ret->top_k = -1;
    return PLIM_OK;
}

static int give(const char *text, char *out, size_t cap, size_t *need)
{
    size_t n = strlen(text);
    *need = n;
    if (cap > 0)
        memcpy(out, text, n < cap ? n + 1 : cap);
    return n > cap ? PLIM_ERR_LIMIT : PLIM_OK;
}

int plim_engine_certificate(const plim_engine *e, char *out, size_t cap, size_t *need)
{
    (void)e, (void)out, (void)cap;
    *need = 0; // it has proved nothing
    return PLIM_OK;
}

int plim_engine_tuning(const plim_engine *e, char *out, size_t cap, size_t *need)
{
    (void)e, (void)out, (void)cap;
    *need = 0; // it has tuned nothing
    return PLIM_OK;
}

int plim_engine_plan_json(const plim_engine *e, char *out, size_t cap, size_t *need)
{
    (void)e;
    return give("{\"plan\":\"fake\"}", out, cap, need);
}

int plim_engine_plan_table(const plim_engine *e, char *out, size_t cap, size_t *need)
{
    (void)e;
    return give("plan  fake", out, cap, need);
}

int plim_engine_defaults(const plim_engine *e, char *out, size_t cap, size_t *need)
{
    (void)e, (void)out, (void)cap;
    *need = 0; // it has chosen nothing
    return PLIM_OK;
}

int plim_engine_memory_json(const plim_engine *engine, char *out, size_t cap, size_t *need)
{
    plim_engine *e = (plim_engine *)engine;
    char text[512];
    pthread_mutex_lock(&e->mutex);
    snprintf(
        text, sizeof(text),
        "{\"object\":\"memory\",\"ready\":true,\"host\":{\"used_bytes\":%lld,\"peak_bytes\":%lld,"
        "\"limit_bytes\":%lld},\"requests\":{\"running\":%u,\"most_running\":%u}}",
        (long long)atomic_load(&e->host_used), (long long)atomic_load(&e->host_peak),
        (long long)e->host_limit, e->running, e->most_running);
    pthread_mutex_unlock(&e->mutex);
    return give(text, out, cap, need);
}

int plim_engine_host_charge(plim_engine *e, int64_t bytes)
{
    int64_t used = atomic_fetch_add(&e->host_used, bytes) + bytes;
    if (used > e->host_limit) {
        atomic_fetch_sub(&e->host_used, bytes);
        return PLIM_ERR_NOMEM_HOST;
    }
    int64_t peak = atomic_load(&e->host_peak);
    while (used > peak && !atomic_compare_exchange_weak(&e->host_peak, &peak, used)) {
    }
    return PLIM_OK;
}

void plim_engine_host_discharge(plim_engine *e, int64_t bytes)
{
    atomic_fetch_sub(&e->host_used, bytes);
}

int plim_engine_metrics(const plim_engine *engine, plim_metrics *m)
{
    plim_engine *e = (plim_engine *)engine;
    pthread_mutex_lock(&e->mutex);
    m->running = e->running;
    m->draining = e->draining;
    m->ready = true;
    m->asleep = e->asleep;
    m->blocks_total = e->asleep ? 0 : FAKE_BLOCKS;
    m->kv_bytes = (int64_t)m->blocks_total * 1000;
    m->limit_bytes = FAKE_BLOCKS * 1000;
    m->used_bytes = m->kv_bytes;
    m->validated_blocks = FAKE_BLOCKS;
    m->last_step_time_ns = now_ms() * 1000000;
    m->host_limit_bytes = e->host_limit;
    m->host_used_bytes = atomic_load(&e->host_used);
    m->e2e.count[PLIM_HISTOGRAM_BUCKETS] = 2;
    m->e2e.count[0] = 1;
    m->finished_stop = e->finished[PLIM_FINISH_STOP];
    m->finished_length = e->finished[PLIM_FINISH_LENGTH];
    m->finished_cancelled = e->finished[PLIM_FINISH_CANCELLED];
    m->finished_error = e->finished[PLIM_FINISH_ERROR];
    pthread_mutex_unlock(&e->mutex);
    return PLIM_OK;
}

int plim_engine_sleep(plim_engine *e, int64_t timeout_ms, plim_error *err)
{
    const int64_t from = now_ms();
    int status = 1; // not known yet
    pthread_mutex_lock(&e->mutex);
    e->drowsy = true;
    while (status > 0) {
        const bool idle = e->running == 0;
        if (!e->drowsy)
            status = fail(err, PLIM_ERR_CANCELLED, "taken back");
        else if (idle && (e->asleep || now_ms() - from >= 200))
            status = PLIM_OK;
        else if (!idle && now_ms() - from >= timeout_ms)
            status = fail(err, PLIM_ERR_TIMEOUT, "requests run");
        pthread_mutex_unlock(&e->mutex);
        if (status > 0)
            usleep(5000);
        pthread_mutex_lock(&e->mutex);
    }
    e->drowsy = false;
    e->asleep = e->asleep || status == PLIM_OK;
    pthread_mutex_unlock(&e->mutex);
    return status;
}

int plim_engine_sleep_cancel(plim_engine *e)
{
    pthread_mutex_lock(&e->mutex);
    e->drowsy = false;
    pthread_mutex_unlock(&e->mutex);
    return PLIM_OK;
}

int plim_engine_wake(plim_engine *e, plim_error *err)
{
    (void)err;
    pthread_mutex_lock(&e->mutex);
    e->asleep = e->drowsy = false;
    pthread_mutex_unlock(&e->mutex);
    return PLIM_OK;
}

// ---- text ----

void plim_thread_cancellable(bool (*cancelled)(void *ctx), void *ctx)
{
    (void)cancelled; // nothing here takes long
    (void)ctx;
}

int plim_tokenize(const plim_engine *e, const char *text, size_t len, bool add_special,
                  bool parse_special, int32_t *ids, size_t cap, size_t *n, plim_error *err)
{
    (void)e;
    (void)parse_special;
    (void)err;
    *n = 0;
    if (add_special && (*n)++ < cap)
        ids[0] = 256;
    for (size_t i = 0; i < len; i++) {
        if (*n < cap)
            ids[*n] = (unsigned char)text[i];
        (*n)++;
    }
    return *n > cap ? PLIM_ERR_LIMIT : PLIM_OK;
}

int plim_detokenize(const plim_engine *e, const int32_t *ids, size_t n, char *out, size_t cap,
                    size_t *need, plim_error *err)
{
    (void)e;
    (void)err;
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        // A byte of a longer character is none by itself.
        const char *piece = ids[i] < 128 ? &(char){(char)ids[i]} : "\xEF\xBF\xBD";
        const size_t m = ids[i] < 128 ? 1 : 3;
        if (len + m <= cap)
            memcpy(out + len, piece, m);
        len += m;
    }
    if (len < cap)
        out[len] = '\0';
    *need = len;
    return len > cap ? PLIM_ERR_LIMIT : PLIM_OK;
}

int plim_token_bytes(const plim_engine *e, int32_t id, char *out, size_t cap, size_t *need)
{
    (void)e;
    if (cap > 0)
        out[0] = (char)id;
    *need = id < 256;
    return PLIM_OK;
}

// The texts of all messages, one after the other.
static void join(struct json_object *list, char *out, size_t cap)
{
    size_t used = 0;
    for (size_t i = 0; i < json_object_array_length(list) && used < cap; i++) {
        struct json_object *content = NULL;
        json_object_object_get_ex(json_object_array_get_idx(list, i), "content", &content);
        int n = snprintf(out + used, cap - used, "%s", json_object_get_string(content));
        used += n > 0 ? (size_t)n : 0;
    }
}

// The content of the last message, as the whole prompt; where the first one begins with "@all",
// those of all messages.
int plim_chat_render(const plim_engine *e, const char *chat_json, size_t len, char *out, size_t cap,
                     size_t *need, plim_error *err)
{
    (void)e;
    struct json_tokener *tok = json_tokener_new();
    struct json_object *body = json_tokener_parse_ex(tok, chat_json, (int)len), *list, *content;
    json_tokener_free(tok);
    int status = PLIM_ERR_INVALID;
    if (json_object_object_get_ex(body, "messages", &list)) {
        struct json_object *last =
            json_object_array_get_idx(list, json_object_array_length(list) - 1);
        if (json_object_is_type(last, json_type_object) &&
            json_object_object_get_ex(last, "content", &content) &&
            json_object_is_type(content, json_type_string)) {
            char all[4096] = "";
            join(list, all, sizeof(all));
            const bool joined = strncmp(all, "@all", 4) == 0;
            status = give(joined ? all : json_object_get_string(content), out, cap, need);
        }
    }
    if (status == PLIM_ERR_INVALID) {
        fail(err, status, "messages[0].content must be a string");
        if (err != NULL)
            strcpy(err->param, "messages[0].content");
    }
    json_object_put(body);
    return status;
}

// ---- requests ----

static int64_t number(const char *prompt, const char *word, int64_t fallback)
{
    const char *at = strstr(prompt, word);
    return at != NULL ? atoll(at + strlen(word)) : fallback;
}

static int refuse(const plim_engine *e, const char *prompt, const plim_request_opts *o, size_t n,
                  plim_error *err)
{
    static const struct {
        const char *word;
        int status;
    } words[] = {
        {"@never", PLIM_ERR_NOMEM_NEVER}, {"@now", PLIM_ERR_NOMEM_NOW},
        {"@queue", PLIM_ERR_QUEUE_FULL},  {"@host", PLIM_ERR_NOMEM_HOST},
        {"@closed", PLIM_ERR_CLOSED},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strstr(prompt, words[i].word) == NULL)
            continue;
        fail(err, words[i].status, "the request needs more memory than there is");
        err->needed_bytes = 2000;
        err->limit_bytes = 1000;
        err->offer_prompt_tokens = 10;
        err->offer_max_tokens = 20;
        err->offer_n = 1;
        err->retry_after_s = 7;
        strcpy(err->term, "kv");
        return words[i].status;
    }
    if (strstr(prompt, "@sampling") != NULL) {
        char text[160];
        snprintf(text, sizeof(text), "temp=%.3g top_k=%u top_p=%.3g min_p=%.3g seed=%llu",
                 (double)o->temperature, o->top_k, (double)o->top_p, (double)o->min_p,
                 o->has_seed ? (unsigned long long)o->seed : 0);
        return fail(err, PLIM_ERR_INVALID, text);
    }
    if (e->asleep || e->drowsy) {
        fail(err, PLIM_ERR_NOMEM_NOW, "the engine is asleep");
        strcpy(err->term, "asleep");
        return PLIM_ERR_NOMEM_NOW;
    }
    if (n + (o->max_tokens > 0 ? o->max_tokens : 1) <= e->n_ctx)
        return e->draining ? fail(err, PLIM_ERR_CLOSED, "draining") : PLIM_OK;
    fail(err, PLIM_ERR_CONTEXT, "the request is longer");
    err->n_prompt_tokens = (int64_t)n;
    err->n_ctx = e->n_ctx;
    return PLIM_ERR_CONTEXT;
}

static void script(struct plim_request *r, const char *prompt, const plim_request_opts *o)
{
    r->n = o->n;
    r->top = o->top_logprobs;
    for (uint32_t i = 0; i < r->top; i++)
        r->top_list[i] = (plim_logprob){'A' + (int32_t)i, -1.0f - (float)i};
    r->answer_tokens = (uint32_t)number(prompt, "@tokens=", 5);
    r->max_tokens = o->max_tokens > 0 ? o->max_tokens : r->engine->n_ctx - r->prompt_tokens;
    r->delay_ms = number(prompt, "@delay=", 0);
    r->due_ms = now_ms() + number(prompt, "@wait=", 0);
    r->hold = strstr(prompt, "@hold") != NULL;
    r->late = strstr(prompt, "@late") != NULL;
    r->nan = strstr(prompt, "@nan") != NULL;
    r->lost = strstr(prompt, "@lost") != NULL;
    r->big = strstr(prompt, "@big") != NULL;
    r->eat = strstr(prompt, "@eat") != NULL;
    r->escape = strstr(prompt, "@escape") != NULL;
    r->include_stop = o->include_stop;
    r->n_stop_tokens = o->n_stop_tokens;
    if (o->n_stop_tokens > 0)
        memcpy(r->stop_tokens, o->stop_tokens, o->n_stop_tokens * sizeof(*o->stop_tokens));
}

static int prompt_text(const plim_engine *e, const plim_request_opts *o, char **ret, size_t *ret_n,
                       plim_error *err)
{
    size_t cap = (o->chat_json != NULL ? o->chat_json_len : o->prompt_len) + o->n_tokens + 1;
    char *text = calloc(1, cap + 1);
    int status = PLIM_OK;
    *ret_n = o->n_tokens;
    if (o->chat_json != NULL) {
        status = plim_chat_render(e, o->chat_json, o->chat_json_len, text, cap, ret_n, err);
    } else if (o->tokens != NULL) {
        status = plim_detokenize(e, o->tokens, o->n_tokens, text, cap, ret_n, err);
    } else {
        memcpy(text, o->prompt, o->prompt_len);
        *ret_n = o->prompt_len;
    }
    *ret = text;
    return status;
}

static int no_room(plim_error *err)
{
    fail(err, PLIM_ERR_NOMEM_NOW, "no host memory for the answer");
    err->needed_bytes = 2;
    err->limit_bytes = 1;
    err->retry_after_s = 1;
    strcpy(err->term, "host");
    return PLIM_ERR_NOMEM_NOW;
}

int plim_request_submit(plim_engine *e, const plim_request_opts *o, plim_request **ret,
                        plim_error *err)
{
    char *prompt;
    size_t n;
    int status = prompt_text(e, o, &prompt, &n, err);
    if (status == PLIM_OK) {
        usleep((useconds_t)number(prompt, "@submit=", 0) * 1000);
        status = refuse(e, prompt, o, n, err);
    }
    if (status == PLIM_OK) {
        struct plim_request *r = calloc(1, sizeof(*r));
        r->engine = e;
        r->user = o->user;
        r->prompt_tokens = (uint32_t)n;
        script(r, prompt, o);
        // An open end is cut short where it would reserve much, as the engine does.
        const uint32_t most = o->max_tokens > 0 || r->max_tokens < 256 ? r->max_tokens : 256;
        r->reserved = (int64_t)(o->host_answer_bytes + o->host_token_bytes * (uint64_t)o->n * most);
        if (plim_engine_host_charge(e, r->reserved) != PLIM_OK) {
            free(r);
            free(prompt);
            return no_room(err);
        }
        pthread_mutex_lock(&e->mutex);
        r->next = e->all;
        if (r->next != NULL)
            r->next->prev = r;
        e->all = r;
        pthread_cond_broadcast(&e->cond);
        pthread_mutex_unlock(&e->mutex);
        *ret = r;
    }
    free(prompt);
    return status;
}

void *plim_request_user(const plim_request *r)
{
    return r->user;
}

void plim_request_cancel(plim_request *r)
{
    pthread_mutex_lock(&r->engine->mutex);
    r->cancelled = true;
    pthread_cond_broadcast(&r->engine->cond);
    pthread_mutex_unlock(&r->engine->mutex);
}

static void leave_ready(struct plim_request *r)
{
    struct plim_engine *e = r->engine;
    struct plim_request *before = NULL;
    for (struct plim_request *at = e->ready_first; at != NULL; at = at->next_ready) {
        if (at == r) {
            if (before != NULL)
                before->next_ready = r->next_ready;
            else
                e->ready_first = r->next_ready;
            if (e->ready_last == r)
                e->ready_last = before;
            return;
        }
        before = at;
    }
}

void plim_request_free(plim_request *r)
{
    if (r == NULL)
        return;
    struct plim_engine *e = r->engine;
    pthread_mutex_lock(&e->mutex);
    if (!r->ended) {
        e->finished[PLIM_FINISH_CANCELLED]++;
        e->running -= r->admitted;
    }
    leave_ready(r);
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        e->all = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    pthread_mutex_unlock(&e->mutex);
    plim_engine_host_discharge(e, r->reserved + r->eaten);
    free(r->events);
    free(r);
}

int64_t plim_request_take_reserved(plim_request *r)
{
    const int64_t bytes = r->reserved;
    r->reserved = 0;
    return bytes;
}

int plim_request_next(plim_request *r, int64_t timeout_ms, plim_event *event)
{
    (void)timeout_ms; // the server never waits
    struct plim_engine *e = r->engine;
    pthread_mutex_lock(&e->mutex);
    int status = PLIM_OK;
    if (event->struct_size != sizeof(*event)) {
        status = PLIM_ERR_INVALID;
    } else if (r->head < r->tail) {
        *event = r->events[r->head++];
        event->struct_size = sizeof(*event);
    } else
        status = r->ended ? PLIM_ERR_CLOSED : PLIM_ERR_TIMEOUT;
    pthread_mutex_unlock(&e->mutex);
    return status;
}
