// SPDX-License-Identifier: Apache-2.0
// An older program, built against a header whose structs lack their last fields, run with today's
// library: nothing beyond its structs is written or read. Usage: older MODEL
#include PLIMSOLL_HEADER
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Behind each struct lie bytes that nobody may touch; under AddressSanitizer there is nothing.
#if defined(__SANITIZE_ADDRESS__)
static const size_t guard_bytes = 0;
#else
static const size_t guard_bytes = 256;
#endif
#define GUARD 0xA5

static int wrong;

static void *guarded(size_t bytes, size_t n)
{
    char *at = malloc(bytes * n + guard_bytes);
    if (at == NULL)
        exit(2);
    memset(at, GUARD, bytes * n + guard_bytes);
    memset(at, 0, bytes * n);
    return at;
}

static void release(void *at, size_t bytes, size_t n, const char *what)
{
    const unsigned char *guard = (const unsigned char *)at + bytes * n;
    for (size_t i = 0; i < guard_bytes; i++) {
        if (guard[i] == GUARD)
            continue;
        printf("%s: byte %zu behind it was written\n", what, i);
        wrong = 1;
        break;
    }
    free(at);
}

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    printf("not so: %s\n", what);
    wrong = 1;
}

#define NEW(type)          guarded(sizeof(type), 1)
#define NEW_SIZED(type, p) ((p) = NEW(type), (p)->struct_size = sizeof(type))
#define RELEASE(type, p)   release(p, sizeof(type), 1, #type)

static bool progress(void *ctx, const plim_progress *p)
{
    *(unsigned *)ctx += p->stage != NULL;
    return true;
}

static void use_devices(void)
{
    plim_device_info *devices = guarded(sizeof(plim_device_info), 4);
    size_t n = 0;
    expect(plim_device_list(devices, 4, &n) == PLIM_OK && n >= 1, "devices are listed");
    expect(strcmp(devices[0].id, "cpu") == 0, "the first one is the CPU");
    release(devices, sizeof(plim_device_info), 4, "plim_device_info");
}

static void use_facts(const plim_engine *engine)
{
    plim_model_info *info;
    plim_metrics *metrics;
    NEW_SIZED(plim_model_info, info);
    NEW_SIZED(plim_metrics, metrics);
    expect(plim_engine_model(engine, info) == PLIM_OK && info->n_vocab > 0, "the model is told");
    expect(plim_engine_metrics(engine, metrics) == PLIM_OK && metrics->blocks_total > 0,
           "metrics are told");
    RELEASE(plim_model_info, info);
    RELEASE(plim_metrics, metrics);
}

static void use_request(plim_engine *engine, plim_error *err)
{
    plim_request_opts *ask = NEW(plim_request_opts);
    plim_event *event;
    plim_request *request = NULL;
    unsigned tokens = 0;
    NEW_SIZED(plim_event, event);
    plim_request_opts_init(ask);
    ask->prompt = "hello";
    ask->prompt_len = 5;
    ask->max_tokens = 8;
    ask->ignore_eos = 1;
    expect(plim_request_submit(engine, ask, &request, err) == PLIM_OK, "a request is taken");
    while (plim_request_next(request, -1, event) == PLIM_OK && event->type != PLIM_EVENT_DONE)
        tokens += event->type == PLIM_EVENT_TOKEN;
    expect(tokens == 8 && event->status == PLIM_OK, "it has its tokens");
    plim_request_free(request);
    ask->max_tokens = 100000;
    expect(plim_request_submit(engine, ask, &request, err) == PLIM_ERR_CONTEXT && request == NULL,
           "one that is too long is refused");
    expect(err->status == PLIM_ERR_CONTEXT && err->message[0] != '\0', "and told why");
    RELEASE(plim_request_opts, ask);
    RELEASE(plim_event, event);
}

int main(int argc, char **argv)
{
    plim_engine_opts *opts = NEW(plim_engine_opts);
    plim_error *err;
    plim_engine *engine = NULL;
    unsigned told = 0;
    if (argc != 2)
        return 2;
    NEW_SIZED(plim_error, err);
    plim_engine_opts_init(opts);
    opts->model_path = argv[1];
    opts->threads = opts->max_sequences = 1;
    opts->ctx_size = 128;
    opts->progress = progress;
    opts->progress_ctx = &told;
    use_devices();
    if (plim_engine_create(opts, &engine, err) != PLIM_OK) {
        printf("no start: %s\n", err->message);
        return 1;
    }
    expect(told > 0, "progress was told");
    use_facts(engine);
    use_request(engine, err);
    expect(plim_engine_free(engine) == PLIM_OK, "the engine is freed");
    RELEASE(plim_engine_opts, opts);
    RELEASE(plim_error, err);
    printf("plimsoll %s with options of %zu bytes: %s\n", plim_version(), sizeof(plim_engine_opts),
           wrong ? "written past" : "ok");
    return wrong;
}
