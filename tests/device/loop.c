// SPDX-License-Identifier: Apache-2.0
// loop DEVICE MODEL [CONTEXT [SEQUENCES]]: an engine that yields to its neighbours, driven by lines
// on standard input, so that a script can make room and take it while the engine serves. Each line
// is answered by one of JSON: "serve N" runs N greedy requests at once and tells how they ended and
// a digest of their tokens, "state" tells of memory, "end" ends. The first line out is the state at
// READY.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plimsoll.h"

#define PROMPT       48
#define ANSWER       24
#define REQUESTS_MAX 64
#define MONITOR_MS   50 // neighbours are looked for so often: the script need not wait

static plim_engine *engine;
static plim_model_info model = PLIM_INIT(plim_model_info);

static void say(const char *line)
{
    puts(line);
    fflush(stdout);
}

static void tell_state(void)
{
    char line[512];
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &m);
    snprintf(
        line, sizeof(line),
        "{\"ready\": %s, \"blocks\": %llu, \"limit_bytes\": %lld, \"used_bytes\": %lld, "
        "\"foreign_bytes\": %lld, \"margin_bytes\": %lld, \"shrinks\": %llu, \"grows\": %llu, "
        "\"losses\": %llu, \"resubmits\": %llu, \"allocations_in_step\": %llu, \"stalls\": %llu}",
        m.ready ? "true" : "false", (unsigned long long)m.blocks_total, (long long)m.limit_bytes,
        (long long)m.used_bytes, (long long)m.foreign_bytes, (long long)m.margin_bytes,
        (unsigned long long)m.shrinks, (unsigned long long)m.grows, (unsigned long long)m.losses,
        (unsigned long long)m.resubmits, (unsigned long long)m.allocations_in_step,
        (unsigned long long)m.stalls);
    say(line);
}

static plim_request *ask(uint32_t which)
{
    int32_t prompt[PROMPT];
    plim_request_opts q;
    plim_request *request = NULL;
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = (int32_t)((which * 7919u + i * 104729u + 3) % (uint32_t)model.n_vocab);
    plim_request_opts_init(&q);
    q.tokens = prompt;
    q.n_tokens = PROMPT;
    q.max_tokens = ANSWER;
    q.ignore_eos = 1;
    q.temperature = 0;
    return plim_request_submit(engine, &q, &request, NULL) == PLIM_OK ? request : NULL;
}

// Folds the tokens of an answer into *digest (FNV-1a); returns whether it ended well.
static bool drain(plim_request *request, uint64_t *digest)
{
    plim_event e = PLIM_INIT(plim_event);
    while (plim_request_next(request, -1, &e) == PLIM_OK && e.type != PLIM_EVENT_DONE) {
        if (e.type == PLIM_EVENT_TOKEN)
            *digest = (*digest ^ (uint64_t)(uint32_t)e.token) * UINT64_C(1099511628211);
    }
    return e.type == PLIM_EVENT_DONE && e.status == PLIM_OK;
}

static void serve(uint32_t n)
{
    char line[128];
    plim_request *requests[REQUESTS_MAX];
    uint64_t digest = UINT64_C(14695981039346656037);
    uint32_t well = 0;
    if (n > REQUESTS_MAX)
        n = REQUESTS_MAX;
    for (uint32_t i = 0; i < n; i++)
        requests[i] = ask(i);
    for (uint32_t i = 0; i < n; i++) {
        well += requests[i] != NULL && drain(requests[i], &digest);
        plim_request_free(requests[i]);
    }
    snprintf(line, sizeof(line), "{\"asked\": %u, \"well\": %u, \"digest\": \"%016llx\"}", n, well,
             (unsigned long long)digest);
    say(line);
}

int main(int argc, char **argv)
{
    plim_engine_opts o;
    plim_error err = PLIM_INIT(plim_error);
    char line[64];
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: loop DEVICE MODEL [CONTEXT [SEQUENCES]]\n");
        return 2;
    }
    plim_engine_opts_init(&o);
    o.device = argv[1];
    o.model_path = argv[2];
    o.ctx_size = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1024;
    o.max_sequences = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 8;
    o.prefix_cache = 0;
    o.neighbours = PLIM_NEIGHBOURS_YIELD;
    o.monitor_ms = MONITOR_MS;
    const int r = plim_engine_create(&o, &engine, &err);
    if (r != PLIM_OK) {
        fprintf(stderr, "loop: %s: %s\n", plim_strstatus(r), err.message);
        return 1;
    }
    plim_engine_model(engine, &model);
    tell_state();
    while (fgets(line, sizeof(line), stdin) != NULL && strcmp(line, "end\n") != 0) {
        if (strncmp(line, "serve ", 6) == 0)
            serve((uint32_t)strtoul(line + 6, NULL, 10));
        else
            tell_state();
    }
    plim_engine_free(engine);
    return 0;
}
