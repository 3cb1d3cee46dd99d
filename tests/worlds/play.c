// SPDX-License-Identifier: Apache-2.0
#include "tests/worlds/play.h"

#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "core/engine/opts.h"
#include "core/model/model.h"
#include "tests/worlds/model.h"
#include "tests/worlds/scripted.h"

#define STEPS_MAX    20000      // of a run whose world names no end
#define IDLE_STEP_NS 1000000    // the clock goes on where nothing runs: deadlines must pass
#define ASK_AGAIN_NS 100000000  // between two wakes that are asked for
#define SETTLE_STEPS 3          // after the last request: cancels and closing readings
#define POOL_MAX     (1u << 26) // tokens of all prompts of a world

static const char *const event_names[] = {"admitted", "token", "finish", "done"};

// ---- notes and faults ----

const char *invariant_name(enum invariant invariant)
{
    static const char *const names[] = {"none",
#define X(NAME, name, text) name,
                                        INVARIANTS(X)
#undef X
    };
    return names[invariant];
}

const char *invariant_text(enum invariant invariant)
{
    static const char *const texts[] = {"",
#define X(NAME, name, text) text,
                                        INVARIANTS(X)
#undef X
    };
    return texts[invariant];
}

// One round of a 64-bit mix: what matters is that any change of any note shows.
static void mix(struct run *run, uint64_t value)
{
    run->hash = (run->hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    run->hash ^= run->hash >> 29;
}

void note_numbers(struct run *run, const char *what, int64_t a, int64_t b, int64_t c)
{
    for (const char *s = what; *s != '\0'; s++)
        mix(run, (unsigned char)*s);
    mix(run, (uint64_t)a);
    mix(run, (uint64_t)b);
    mix(run, (uint64_t)c);
    if (run->trace != NULL)
        fprintf(run->trace, "%8llu %12lld  %s %lld %lld %lld\n", (unsigned long long)run->step,
                (long long)plm_now(&run->clock), what, (long long)a, (long long)b, (long long)c);
}

void note(struct run *run, const char *fmt, ...)
{
    char text[768];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (const char *s = text; *s != '\0'; s++)
        mix(run, (unsigned char)*s);
    if (run->trace != NULL)
        fprintf(run->trace, "%8llu %12lld  %s\n", (unsigned long long)run->step,
                (long long)plm_now(&run->clock), text);
}

void fault(struct run *run, enum invariant invariant, const char *fmt, ...)
{
    if (run->fault != NO_FAULT)
        return;
    run->fault = invariant;
    int n = snprintf(run->fault_text, sizeof(run->fault_text),
                     "step %llu: ", (unsigned long long)run->step);
    va_list args;
    va_start(args, fmt);
    vsnprintf(run->fault_text + n, sizeof(run->fault_text) - (size_t)n, fmt, args);
    va_end(args);
    note(run, "FAULT %s: %s", invariant_name(invariant), run->fault_text);
}

// ---- tokens ----

static uint64_t scramble(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

void play_prompt(const struct plm_world *world, uint32_t index, uint32_t n_vocab, int32_t *ret,
                 uint32_t n)
{
    const struct plm_world_request *ask = &world->requests[index];
    uint32_t from = 0;
    if (ask->prefix_of > 0 && ask->prefix_of <= index) {
        from = ask->prefix < n ? ask->prefix : n;
        play_prompt(world, ask->prefix_of - 1, n_vocab, ret, from);
    }
    const bool poisoned = world->device.poison != PLM_SIM_POISON_NONE;
    for (uint32_t i = from; i < n; i++) {
        ret[i] = (int32_t)(scramble(ask->seed * UINT64_C(0x9E3779B97F4A7C15) + i) % n_vocab);
        if (poisoned && ret[i] == world->device.poison_token)
            ret[i] = (ret[i] + 1) % (int32_t)n_vocab;
    }
    if (ask->poison && poisoned && n == ask->prompt && n > 0)
        ret[n - 1] = world->device.poison_token;
}

// Room for the prompts and counters of all requests. Pointers into it must stay.
static bool reserve_pool(struct run *run)
{
    uint64_t need = 0;
    for (uint32_t i = 0; i < run->world->n_requests; i++)
        need += (uint64_t)run->world->requests[i].prompt + run->world->requests[i].n;
    if (need > POOL_MAX)
        return false;
    run->token_used = 0;
    if (need <= run->token_cap)
        return true;
    free(run->token_pool);
    run->token_pool = malloc(need * sizeof(*run->token_pool));
    run->token_cap = run->token_pool != NULL ? need : 0;
    return run->token_pool != NULL;
}

static int32_t *pool_take(struct run *run, size_t n)
{
    int32_t *tokens = run->token_pool + run->token_used;
    run->token_used += n;
    return tokens;
}

// ---- requests ----

static void fill_request(const struct run *run, const struct played *p, const int32_t *prompt,
                         uint32_t n_prompt, uint32_t max, uint32_t n, plim_request_opts *o)
{
    static plim_logit_bias never;
    plim_request_opts_init(o);
    o->tokens = prompt;
    o->n_tokens = n_prompt;
    o->max_tokens = max;
    o->n = n;
    o->has_seed = 1;
    o->seed = p->ask->seed;
    o->ignore_eos = 1;
    o->cache_salt = p->ask->salt[0] != '\0' ? p->ask->salt : NULL;
    o->tenant = (uint64_t)p->ask->salt[0]; // who shares no blocks is somebody else
    if (run->world->device.poison != PLM_SIM_POISON_NONE) {
        // Nobody generates the token that is meant for one request.
        never = (plim_logit_bias){run->world->device.poison_token, -100.0f};
        o->logit_bias = &never;
        o->n_logit_bias = 1;
    }
}

static void let_in(struct run *run, struct played *p, const plim_request_opts *o)
{
    p->prompt = o->tokens;
    p->n_prompt = (uint32_t)o->n_tokens;
    p->max = o->max_tokens;
    p->n = o->n;
    p->choice_tokens = (uint32_t *)(void *)pool_take(run, o->n);
    memset(p->choice_tokens, 0, o->n * sizeof(*p->choice_tokens));
    p->order = ++run->next_order;
    p->submit_step = run->step;
    run->open++;
}

// A refused client takes what it is offered, at once.
static void take_offer(struct run *run, struct played *p, const int32_t *prompt)
{
    plim_request_opts o;
    plim_error err = PLIM_INIT(plim_error);
    const plim_error *r = &p->refusal;
    if (r->offer_prompt_tokens <= 0)
        return;
    run->n_offers++;
    p->offer_made = true;
    if (!run->offers)
        return;
    fill_request(run, p, prompt, (uint32_t)r->offer_prompt_tokens, (uint32_t)r->offer_max_tokens,
                 (uint32_t)r->offer_n, &o);
    const int status = plim_request_submit(run->engine, &o, &p->handle, &err);
    note_numbers(run, "offer", p - run->requests + 1, status, r->offer_prompt_tokens);
    if (status != PLIM_OK) {
        fault(run, FAULT_OFFER,
              "request %zd was refused (%s) and offered %lld tokens, %lld of output, n %lld, which "
              "was refused, too: %s",
              p - run->requests + 1, r->term, (long long)r->offer_prompt_tokens,
              (long long)r->offer_max_tokens, (long long)r->offer_n, err.message);
        return;
    }
    run->n_offers_taken++;
    p->offer_taken = true;
    p->status = PLIM_OK;
    let_in(run, p, &o);
}

static void submit(struct run *run, struct played *p)
{
    plim_request_opts o;
    plim_error err = PLIM_INIT(plim_error);
    const uint32_t index = (uint32_t)(p - run->requests);
    int32_t *prompt = pool_take(run, p->ask->prompt);
    play_prompt(run->world, index, run->n_vocab, prompt, p->ask->prompt);
    fill_request(run, p, prompt, p->ask->prompt, p->ask->max, p->ask->n, &o);
    p->came = true;
    check_before_submit(run);
    p->status = plim_request_submit(run->engine, &o, &p->handle, &err);
    note_numbers(run, "submit", index + 1, p->status, err.needed_bytes);
    if (p->status == PLIM_OK) {
        let_in(run, p, &o);
        return;
    }
    p->refused = true;
    p->refusal = err;
    run->n_refused++;
    run->refused_as[-p->status]++;
    note(run, "refused %u: %s", index + 1, err.message);
    check_refused(run, p, &o, &err);
    if (run->fault == NO_FAULT)
        take_offer(run, p, prompt);
}

static void over(struct run *run, struct played *p, const plim_event *e)
{
    plim_event again = PLIM_INIT(plim_event);
    p->done = true;
    p->done_step = run->step;
    p->status = e->status;
    p->finish = e->finish;
    if (e->error != NULL)
        p->refusal = *e->error;
    if (e->error != NULL)
        note(run, "request %zd ends: %s", p - run->requests + 1, e->error->message);
    run->open--;
    run->n_ended++;
    run->n_finished += e->status == PLIM_OK;
    run->ended_as[-e->status]++;
    const int r = plim_request_next(p->handle, 0, &again);
    if (r != PLIM_ERR_CLOSED)
        fault(run, FAULT_ONCE, "request %zd gives %d (event %d) after its end",
              p - run->requests + 1, r, again.type);
    plim_request_free(p->handle);
    p->handle = NULL;
}

static void leave(struct run *run, struct played *p)
{
    if (p->left)
        return;
    p->left = true;
    note_numbers(run, "leaves", p - run->requests + 1, p->tokens, 0);
    plim_request_cancel(p->handle);
}

// Without a call for each of many requests that have nothing to say; one thread does it all here.
static bool has_events(const struct plim_request *request)
{
    const struct plm_events *e = &request->events;
    return e->in.len > 0 || e->out_at < e->out.len || e->done;
}

static void read_events(struct run *run, struct played *p)
{
    plim_event e = PLIM_INIT(plim_event);
    while (run->fault == NO_FAULT && has_events(p->handle) &&
           plim_request_next(p->handle, 0, &e) == PLIM_OK) {
        note_numbers(run, event_names[e.type], p - run->requests + 1, e.choice,
                     e.type == PLIM_EVENT_TOKEN ? e.token : e.status);
        check_event(run, p, &e);
        if (e.type == PLIM_EVENT_DONE) {
            over(run, p, &e);
            return;
        }
    }
    if (p->ask->leave_after > 0 && p->tokens >= p->ask->leave_after)
        leave(run, p);
}

// ---- a step ----

static void act(struct run *run, enum plm_world_act what)
{
    note_numbers(run, "action", what, 0, 0);
    switch (what) {
    case PLM_WORLD_SLEEP: run->wants_sleep = true; break;
    case PLM_WORLD_WAKE:
        run->wants_sleep = false;
        run->wants_wake = run->metrics.asleep;
        break;
    case PLM_WORLD_DRAIN:
        run->drains = true;
        note_numbers(run, "drain", plim_engine_drain(run->engine, 0), 0, 0);
        break;
    }
}

// Sleep and wake are asked for until they come true: an engine with work does not sleep, and one
// whose memory a neighbour has does not wake.
static void sleep_or_wake(struct run *run)
{
    if (run->wants_sleep) {
        const int r = plim_engine_sleep(run->engine, 0, NULL);
        run->wants_sleep = r == PLIM_ERR_TIMEOUT;
        note_numbers(run, "sleep", r, 0, 0);
    } else if (run->wants_wake) {
        const int r = plim_engine_wake(run->engine, NULL);
        run->wants_wake = r != PLIM_OK;
        if (run->wants_wake) // nobody asks again at once, and who waits in the queue has a deadline
            plm_sim_clock_advance(&run->virtual_clock, ASK_AGAIN_NS);
        note_numbers(run, "wake", r, 0, 0);
    }
}

// What comes at this step. Returns whether more is to come.
static bool arrive(struct run *run, uint32_t *next_request, uint32_t *next_action)
{
    const struct plm_world *w = run->world;
    while (*next_action < w->n_actions && w->actions[*next_action].at_step <= run->step)
        act(run, w->actions[(*next_action)++].act);
    if (run->wants_sleep || run->wants_wake)
        sleep_or_wake(run);
    while (*next_request < w->n_requests && run->fault == NO_FAULT &&
           w->requests[*next_request].at_step <= run->step)
        submit(run, &run->requests[(*next_request)++]);
    for (uint32_t i = run->first_open; i < *next_request; i++) {
        struct played *p = &run->requests[i];
        if (p->handle != NULL && p->ask->leave_step > 0 && p->ask->leave_step <= run->step)
            leave(run, p);
    }
    return *next_request < w->n_requests || *next_action < w->n_actions;
}

static void step(struct run *run, uint32_t n_came)
{
    bool worked = false, closed = true;
    check_before_step(run);
    plim_engine_step(run->engine, &worked);
    for (uint32_t i = run->first_open; i < n_came && run->fault == NO_FAULT; i++) {
        struct played *p = &run->requests[i];
        if (p->handle != NULL)
            read_events(run, p);
        closed = closed && p->handle == NULL;
        if (closed)
            run->first_open = i + 1;
    }
    run->metrics.struct_size = sizeof(run->metrics);
    plim_engine_metrics(run->engine, &run->metrics);
    if (run->fault == NO_FAULT)
        check_after_step(run, worked);
    if (!worked)
        plm_sim_clock_advance(&run->virtual_clock, IDLE_STEP_NS);
    run->step++;
}

static void serve(struct run *run)
{
    const uint64_t most = run->world->max_steps > 0 ? run->world->max_steps : STEPS_MAX;
    uint32_t next_request = 0, next_action = 0, settle = 0;
    while (run->fault == NO_FAULT && settle < SETTLE_STEPS) {
        const bool more = arrive(run, &next_request, &next_action);
        if (run->fault != NO_FAULT)
            return;
        step(run, next_request);
        settle = more || run->open > 0 ? 0 : settle + 1;
        if (run->step < most)
            continue;
        if (run->world->max_steps == 0)
            fault(run, FAULT_PROGRESS, "%u requests are left after %llu steps", run->open,
                  (unsigned long long)run->step);
        for (uint32_t i = 0; i < run->world->n_requests; i++) {
            if (run->requests[i].handle != NULL)
                leave(run, &run->requests[i]);
        }
        for (int i = 0; i < SETTLE_STEPS && run->fault == NO_FAULT; i++)
            step(run, next_request);
        return;
    }
}

// ---- life ----

static void on_log(void *ctx, int level, const char *line)
{
    note(ctx, "log %d: %s", level, line);
}

static void on_incident(void *ctx, const char *reason, const char *world, size_t len)
{
    struct run *run = ctx;
    run->incidents++;
    snprintf(run->reason, sizeof(run->reason), "%s", reason);
    note(run, "incident: %s", reason);
    if (run->incident == NULL)
        return;
    plm_buf_clear(run->incident);
    plm_buf_append(run->incident, world, len);
}

static bool begin(struct run *run, const struct plm_world *world, const struct play_opts *opts)
{
    struct run old = *run;
    *run = (struct run){.world = world,
                        .trace = opts->trace,
                        .backend = opts->backend,
                        .incident = opts->incident,
                        .requests = old.requests,
                        .cap_requests = old.cap_requests,
                        .token_pool = old.token_pool,
                        .token_cap = old.token_cap,
                        .check = old.check};
    plm_sim_clock_init(&run->virtual_clock);
    run->clock = plm_sim_clock_source(&run->virtual_clock);
    if (world->n_requests > run->cap_requests) {
        free(run->requests);
        run->requests = malloc(world->n_requests * sizeof(*run->requests));
        run->cap_requests = run->requests != NULL ? world->n_requests : 0;
    }
    if (world->n_requests > run->cap_requests || !reserve_pool(run)) {
        fault(run, FAULT_WORLD, "no memory for the world's requests");
        return false;
    }
    for (uint32_t i = 0; i < world->n_requests; i++)
        run->requests[i] = (struct played){.ask = &world->requests[i]};
    char why[256];
    if (!options_read(world, run, why)) {
        fault(run, FAULT_WORLD, "%s", why);
        return false;
    }
    return true;
}

static void set_opts(struct run *run)
{
    run->opts.manual_step = 1;
    run->opts.threads = 1;
    run->opts.log_level = run->trace != NULL ? PLIM_LOG_DEBUG : PLIM_LOG_ERROR;
    run->opts.log = run->trace != NULL ? on_log : NULL;
    run->opts.log_ctx = run;
    run->opts.incident = on_incident;
    run->opts.incident_ctx = run;
}

static void end_device(struct run *run)
{
    if (run->backend != NULL && !scripted_end())
        fault(run, FAULT_BALANCE, "the backend did not free all memory of its device");
}

bool play_start(struct run *run, const plim_engine_opts *asked)
{
    const struct plm_world *world = run->world;
    plim_engine_opts opts;
    run->device = world->device;
    run->device.world = &run->observer.world;
    run->device.inner = world->computes ? &plm_cpu_backend : NULL;
    run->observer = (struct observer){0};
    observe(&run->observer, run->backend != NULL
                                ? scripted_begin(&run->device, &run->clock, &run->observer)
                                : &plm_sim_backend);
    run->start_status = plm_opts_read(asked, &opts, &run->start_error);
    run->host = plm_host_create(0);
    if (run->start_status == PLIM_OK && run->host != NULL) {
        const struct plm_engine_env env = {.host = run->host,
                                           .clock = &run->clock,
                                           .backend = &observed_backend,
                                           .backend_opts =
                                               run->backend != NULL ? NULL : &run->device,
                                           .seed = world->seed != 0 ? world->seed : 1};
        run->start_status = plm_engine_create_in(&env, &opts, &run->engine, &run->start_error);
    }
    note_numbers(run, "start", run->start_status, (int64_t)run->observer.world.allocs,
                 (int64_t)run->observer.world.submits);
    if (run->start_status == PLIM_OK)
        return true;
    note(run, "no start: %s", run->start_error.message);
    run->engine = NULL;
    const int64_t left = run->host != NULL ? plm_host_destroy(run->host) : 0;
    run->host = NULL;
    end_device(run);
    if (left != 0)
        fault(run, FAULT_BALANCE, "a start that failed left %lld bytes of host memory",
              (long long)left);
    return false;
}

void play_stop(struct run *run)
{
    const int64_t left = plm_engine_destroy(run->engine);
    run->engine = NULL;
    run->host = NULL;
    end_device(run);
    if (left != 0)
        fault(run, FAULT_BALANCE, "the engine is gone and left %lld bytes of host memory",
              (long long)left);
    check_freed(run);
}

// A file beside the world's, or one in memory.
static bool find_model(struct run *run, const char *world_path)
{
    const char *path = model_path(&run->world->model);
    const char *slash = world_path != NULL ? strrchr(world_path, '/') : NULL;
    const bool beside = run->world->model.file[0] != '\0' && path[0] != '/' && slash != NULL;
    if (path == NULL)
        return false;
    const int n =
        snprintf(run->model_path, sizeof(run->model_path), "%.*s%s",
                 beside ? (int)(slash + 1 - world_path) : 0, beside ? world_path : "", path);
    run->opts.model_path = run->model_path;
    return n >= 0 && (size_t)n < sizeof(run->model_path);
}

void play(struct run *run, const struct plm_world *world, const struct play_opts *opts)
{
    if (!begin(run, world, opts))
        return;
    run->lacks = opts->backend != NULL ? scripted_lacks(world) : NULL;
    if (run->lacks != NULL)
        return;
    set_opts(run);
    if (!find_model(run, opts->path)) {
        fault(run, FAULT_WORLD, "no file for the model");
        return;
    }
    if (!play_start(run, &run->opts)) {
        if (run->fault == NO_FAULT)
            check_start(run);
        if (run->fault == NO_FAULT)
            want_check(run);
        return;
    }
    run->ready = true;
    run->observer.serving = true;
    run->plan = run->engine->core->profile.plan;
    run->n_vocab = plm_model_facts(run->engine->core->model)->n_vocab;
    run->metrics.struct_size = sizeof(run->metrics);
    plim_engine_metrics(run->engine, &run->metrics);
    run->committed = run->plan.resident + run->plan.host + run->plan.margin + run->plan.budget;
    const int64_t ballast = run->metrics.ballast_bytes;
    run->left_at_ready = observed_left(&run->observer, &run->device) + ballast;
    run->may_hold = run->plan.line + ballast;
    run->allocs_at_ready = run->observer.world.allocs;
    check_begin(run);
    serve(run);
    run->slabs_since = run->observer.world.allocs - run->allocs_at_ready;
    for (uint32_t i = 0; i < world->n_requests; i++) {
        plim_request_free(run->requests[i].handle); // left over after a fault
        run->requests[i].handle = NULL;
    }
    if (run->fault == NO_FAULT)
        check_end(run);
    play_stop(run);
    if (run->fault == NO_FAULT)
        want_check(run);
}

void run_finish(struct run *run)
{
    free(run->requests);
    free(run->token_pool);
    check_finish(run);
    *run = (struct run){0};
}
