// SPDX-License-Identifier: Apache-2.0
#include "tests/torture/life.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "core/engine/request.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

#define MODEL     TEST_MODELS "/llama-tied-q4_1.gguf"
#define CTX       320u
#define VOCAB     320
#define STEPS_MAX 3000u

// Exercises the template language: loops, filters, tests, macros, JSON.
static const char template[] =
    "{%- macro one(m) -%}<{{ m.role | upper }}>{{ m.content | trim }}\n{%- endmacro -%}"
    "{%- if tools is defined and tools %}{{ tools | tojson(indent=2) }}\n{% endif -%}"
    "{%- set ns = namespace(n=0) -%}"
    "{%- for m in messages -%}{%- set ns.n = ns.n + 1 -%}{{ one(m) }}{%- endfor -%}"
    "{{ messages | map(attribute='role') | join(',') }} {{ ns.n }}:";

static const char chat_plain[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"how far is the caf\\u00e9\"}]}";
static const char chat_tools[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"short\"},{\"role\":\"user\",\"content\":"
    "[{\"type\":\"text\",\"text\":\"\\u6d77\"}]}],\"tools\":[{\"type\":\"function\",\"function\":"
    "{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
    "\"integer\"}}}}}]}";
static const char chat_broken[] = "{\"messages\":[{\"role\":\"user\",\"con";
static const plim_text stops[] = {{"zzz", 3}, {"e", 1}};
static const plim_logit_bias biases[] = {{5, 2.0f}, {7, -3.0f}};

struct run {
    struct life *life;
    plim_engine *engine;
    plim_request *requests[ASKS + 1];
    uint32_t tokens_seen[ASKS + 1];
    uint32_t leave_after[ASKS + 1]; // tokens; 0: stays
    bool done[ASKS + 1];
};

// ---- the requests ----

static int32_t stem[CTX], longer[CTX];

static void text(plim_request_opts *o, const char *s)
{
    o->prompt = s;
    o->prompt_len = strlen(s);
}

static void chat(plim_request_opts *o, const char *s)
{
    o->chat_json = s;
    o->chat_json_len = strlen(s);
}

static void ids(plim_request_opts *o, const int32_t *tokens, size_t n)
{
    o->tokens = tokens;
    o->n_tokens = n;
}

static void fill_first_half(uint32_t i, plim_request_opts *o)
{
    switch (i) {
    case 0: chat(o, chat_plain); break;
    case 1:
        chat(o, chat_tools);
        o->logprobs = 1;
        break;
    case 2:
        text(o, "winter water");
        o->temperature = 0;
        break;
    case 3:
        text(o, "a text that ends at a stop");
        o->stop = stops;
        o->n_stop = 2;
        break;
    case 4:
        ids(o, stem + 3, 20);
        o->n = 3;
        break;
    case 5:
        ids(o, stem + 40, 9);
        o->top_logprobs = 5;
        break;
    case 6: ids(o, stem, 40); break;
    case 7:
        ids(o, stem, 40);
        o->cache_salt = "salt";
        break;
    case 8:
        ids(o, stem, 36);
        o->cache_prompt = 0;
        break;
    default: ids(o, stem, 50); break; // leaves
    }
}

static void fill_second_half(uint32_t i, plim_request_opts *o)
{
    switch (i) {
    case 10: ids(o, longer, 70); break; // leaves
    case 11:                            // too long for the context
        ids(o, longer, 100);
        o->max_tokens = 300;
        break;
    case 12: // more blocks than there are
        ids(o, longer, 90);
        o->n = 8;
        o->max_tokens = 30;
        break;
    case 13: // not a number
        ids(o, stem, 5);
        o->temperature = NAN;
        break;
    case 14:
        ids(o, stem + 7, 12);
        o->repeat_penalty = 1.3f;
        o->frequency_penalty = 0.4f;
        o->presence_penalty = 0.2f;
        o->logit_bias = biases;
        o->n_logit_bias = 2;
        break;
    case 15: // several chunks
        ids(o, longer, 100);
        break;
    case 16:
        ids(o, longer + 9, 10);
        o->max_tokens = 40;
        o->min_tokens = 30;
        o->top_k = 10;
        break;
    case 17: chat(o, chat_broken); break;
    case 18: text(o, "e\xCC\x81 \xE1\x84\x80\xE1\x85\xA1 12345 caf\xC3\xA9"); break;
    case 19:
        text(o, "two choices that may stop");
        o->n = 2;
        o->stop = stops;
        o->n_stop = 2;
        o->logprobs = 1;
        break;
    default: ids(o, stem, 30); break; // the one after the fault
    }
}

static void fill(uint32_t i, plim_request_opts *o)
{
    for (uint32_t k = 0; k < CTX; k++) {
        stem[k] = (int32_t)((k * 37 + k * k % 11) % 250);
        longer[k] = (int32_t)((k * 13 + k * k % 17 + 3) % 250);
    }
    plim_request_opts_init(o);
    o->max_tokens = 8;
    o->temperature = 0.8f;
    o->has_seed = 1;
    o->seed = 1000 + i;
    if (i < 10)
        fill_first_half(i, o);
    else
        fill_second_half(i, o);
}

// ---- events ----

static uint64_t hash(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++)
        h = (h ^ at[i]) * UINT64_C(0x100000001B3); // FNV-1a
    return h;
}

static void failed(struct outcome *o, int status, const plim_error *error)
{
    o->says = error != NULL && error->status == status && error->message[0] != '\0';
    if (error != NULL)
        snprintf(o->message, sizeof(o->message), "%.150s", error->message);
}

static void take_event(struct run *run, uint32_t i, const plim_event *e)
{
    struct outcome *o = &run->life->asks[i];
    const bool stays = run->leave_after[i] == 0;
    if (e->type == PLIM_EVENT_TOKEN)
        run->tokens_seen[i]++;
    // Choices of one request may come in another order; their sum does not.
    if ((e->type == PLIM_EVENT_TOKEN || e->type == PLIM_EVENT_FINISH) && stays) {
        uint64_t h = hash(UINT64_C(0xCBF29CE484222325), &e->choice, sizeof(e->choice));
        h = hash(h, e->text, e->text_len);
        if (e->type == PLIM_EVENT_TOKEN) {
            h = hash(h, &e->token, sizeof(e->token));
            h = hash(h, &e->logprob, sizeof(e->logprob));
            h = hash(h, e->top, e->n_top * sizeof(*e->top));
        }
        o->hash += h;
    }
    o->finishes += e->type == PLIM_EVENT_FINISH;
    if (e->type == PLIM_EVENT_DONE) {
        run->done[i] = true;
        o->done = e->status;
        if (e->status != PLIM_OK && e->status != PLIM_ERR_CANCELLED)
            failed(o, e->status, e->error);
    }
}

static void collect(struct run *run, uint32_t i)
{
    plim_event e = PLIM_INIT(plim_event);
    if (run->requests[i] == NULL)
        return;
    while (plim_request_next(run->requests[i], 0, &e) == PLIM_OK)
        take_event(run, i, &e);
    const uint32_t leave = run->leave_after[i];
    if (leave > 0 && run->tokens_seen[i] >= leave && !run->done[i] && i % 2 == 0) {
        plim_request_free(run->requests[i]); // without a word
        run->requests[i] = NULL;
        run->done[i] = true;
    } else if (leave > 0 && run->tokens_seen[i] >= leave) {
        plim_request_cancel(run->requests[i]);
    }
}

static void submit(struct run *run, uint32_t i)
{
    plim_request_opts o;
    plim_error err = PLIM_INIT(plim_error);
    fill(i, &o);
    struct outcome *out = &run->life->asks[i];
    out->submit = plim_request_submit(run->engine, &o, &run->requests[i], &err);
    if (out->submit != PLIM_OK) {
        run->done[i] = true;
        failed(out, out->submit, &err);
    }
}

// ---- calls beside requests ----

static void call_all(struct run *run)
{
    plim_engine *e = run->engine;
    plim_error err = PLIM_INIT(plim_error);
    static char out[1 << 16];
    int32_t got[64];
    size_t need;
    int *r = run->life->calls;
    r[0] = plim_engine_memory_json(e, out, sizeof(out), &need);
    r[1] = plim_engine_plan_json(e, out, sizeof(out), &need);
    r[2] = plim_engine_plan_table(e, out, sizeof(out), &need);
    r[3] = plim_chat_render(e, chat_tools, strlen(chat_tools), out, sizeof(out), &need, &err);
    r[4] = plim_tokenize(e, "caf\xC3\xA9 12", 8, true, true, got, 64, &need, &err);
    r[5] = plim_detokenize(e, stem, 12, out, sizeof(out), &need, &err);
    r[6] = plim_token_bytes(e, 7, out, sizeof(out), &need);
    r[7] = plim_inspect(MODEL, true, out, sizeof(out), &need, &err);
    r[8] = plim_engine_host_charge(e, 4096);
    if (r[8] == PLIM_OK)
        plim_engine_host_discharge(e, 4096);
    r[9] = plim_engine_certificate(e, out, sizeof(out), &need);
    r[10] = plim_engine_tuning(e, out, sizeof(out), &need);
}

// Nothing runs. What did not come back under the fault comes back after it (serve_last).
static void sleep_and_wake(struct run *run)
{
    plim_error err = PLIM_INIT(plim_error);
    run->life->calls[11] = plim_engine_sleep(run->engine, 0, &err);
    run->life->calls[12] = plim_engine_wake(run->engine, &err);
}

// ---- a life ----

static void serve(struct run *run)
{
    uint32_t next = 0;
    run->leave_after[9] = 2;
    run->leave_after[10] = 1;
    for (uint32_t step = 0;; step++) {
        uint32_t left = 0;
        for (uint32_t k = 0; k < 2 && next < ASKS; k++)
            submit(run, next++);
        if (step == 6)
            call_all(run);
        plim_engine_step(run->engine, NULL);
        for (uint32_t i = 0; i < next; i++) {
            collect(run, i);
            left += !run->done[i];
        }
        if (left == 0 && next == ASKS)
            return;
        if (step == STEPS_MAX) {
            run->life->hung = true;
            return;
        }
    }
}

static void serve_last(struct run *run)
{
    plim_error err = PLIM_INIT(plim_error);
    run->life->last_wake = plim_engine_wake(run->engine, &err); // OK where it is awake
    submit(run, ASKS);
    for (uint32_t step = 0; step < STEPS_MAX && !run->done[ASKS]; step++) {
        plim_engine_step(run->engine, NULL);
        collect(run, ASKS);
    }
    run->life->hung = run->life->hung || !run->done[ASKS];
    plim_engine_step(run->engine, NULL); // those that left are taken out
    run->life->end.struct_size = sizeof(run->life->end);
    plim_engine_metrics(run->engine, &run->life->end);
    for (uint32_t i = 0; i <= ASKS; i++)
        plim_request_free(run->requests[i]);
}

static void base_opts(const struct fault *fault, plim_engine_opts *o)
{
    plim_engine_opts_init(o);
    o->model_path = MODEL;
    o->threads = 2;
    o->ctx_size = CTX;
    o->batch_max_tokens = 32;
    o->max_sequences = 4;
    o->manual_step = 1;
    o->memory_limit_bytes = UINT64_C(256) << 20;
    o->chat_template = template;
    // A pinned size never shrinks. With it blocks run out and sequences are preempted; without it a
    // refused slab means fewer blocks.
    const bool device = fault->kind == FAULT_DEVICE || fault->kind == FAULT_DEVICE_FROM;
    o->max_total_tokens = device ? 0 : CTX;
}

static void inject(const struct fault *fault, struct plm_host *host, struct plm_sim_event *event)
{
    switch (fault->kind) {
    case FAULT_HOST:
    case FAULT_HOST_FROM: plm_host_fail_nth(host, fault->n, fault->kind == FAULT_HOST_FROM); break;
    case FAULT_DEVICE:
    case FAULT_DEVICE_FROM:
        *event =
            (struct plm_sim_event){.when = PLM_SIM_AT_ALLOC,
                                   .at = fault->n,
                                   .what = PLM_SIM_FAIL_ALLOCS,
                                   .value = fault->kind == FAULT_DEVICE_FROM ? INT64_MAX / 2 : 1};
        break;
    case FAULT_SUBMIT:
        *event = (struct plm_sim_event){PLM_SIM_AT_SUBMIT, fault->n, PLM_SIM_FAIL_SUBMITS, 1, 0};
        break;
    case FAULT_LOST:
        *event = (struct plm_sim_event){PLM_SIM_AT_SUBMIT, fault->n, PLM_SIM_LOST, 0, 0};
        break;
    default: break;
    }
}

static void live(struct run *run, const struct plm_engine_env *env, const struct fault *fault,
                 struct plm_sim_world *world)
{
    struct life *life = run->life;
    plim_engine_opts o;
    base_opts(fault, &o);
    if (fault->kind == FAULT_MALLOC)
        torture_malloc_arm(fault->n);
    plim_engine_opts read;
    life->start = plm_opts_read(&o, &read, &life->start_error);
    if (life->start == PLIM_OK)
        life->start = plm_engine_create_in(env, &read, &run->engine, &life->start_error);
    if (life->start == PLIM_OK)
        serve(run);
    if (life->start == PLIM_OK && !life->hung)
        sleep_and_wake(run);
    life->allocations[FAULT_MALLOC] = torture_malloc_disarm();
    plm_host_fail_nth(env->host, 0, 0);
    world->state.fail_allocs = 0;
    struct plm_host_stats stats;
    plm_host_read(env->host, &stats);
    life->allocations[FAULT_HOST] = life->allocations[FAULT_HOST_FROM] = stats.allocations;
    if (life->start == PLIM_OK)
        serve_last(run);
}

void life_run(const struct fault *fault, struct life *ret)
{
    struct plm_sim_world world = {0};
    struct plm_sim_clock clock;
    struct plm_sim_event event = {.at = UINT64_MAX}; // never
    struct plm_sim_opts sim = {.inner = &plm_cpu_backend,
                               .world = &world,
                               .events = &event,
                               .n_events = 1,
                               .capacity_bytes = UINT64_C(256) << 20,
                               .granularity_bytes = UINT64_C(64) << 10,
                               .submit_ns = 1000000};
    struct run run = {.life = ret};
    memset(ret, 0, sizeof(*ret));
    plm_sim_clock_init(&clock);
    const struct plm_clock source = plm_sim_clock_source(&clock);
    struct plm_host *host = plm_host_create(0);
    if (host == NULL)
        return;
    struct plm_engine_env env = {.host = host, .clock = &source, .seed = 7};
    if (fault->kind != FAULT_HOST) { // that one is for the CPU backend itself
        env.backend = &plm_sim_backend;
        env.backend_opts = &sim;
    }
    inject(fault, host, &event);
    live(&run, &env, fault, &world);
    ret->host_left = run.engine != NULL ? plm_engine_destroy(run.engine) : plm_host_destroy(host);
    ret->device_left = world.taken_bytes + world.driver_bytes;
    ret->allocations[FAULT_SUBMIT] = ret->allocations[FAULT_LOST] = world.submits;
    ret->allocations[FAULT_DEVICE] = ret->allocations[FAULT_DEVICE_FROM] = world.allocs;
}
