// SPDX-License-Identifier: Apache-2.0
// Tests a program against a device that misbehaves: the same prompt on the CPU as it is, and on a
// simulated device whose troubles a world file describes (docs/worlds.md). Both must give the same
// text. bad_device.world is lost in the middle of the answer.
//   cc bad_device.c $(pkg-config --cflags --libs plimsoll) -o bad_device
//   ./bad_device model.gguf bad_device.world
#include <plimsoll.h>
#include <stdio.h>
#include <string.h>

struct answer {
    char text[4096];
    size_t len;
};

static int fail(const char *device, const plim_error *err)
{
    fprintf(stderr, "%s: %s\n", device, err->message);
    return 1;
}

// Reads all events of one request.
static int collect(plim_request *request, const char *device, struct answer *ret)
{
    plim_event event = PLIM_INIT(plim_event);
    while (plim_request_next(request, -1, &event) == PLIM_OK && event.type != PLIM_EVENT_DONE) {
        size_t room = sizeof(ret->text) - ret->len;
        size_t n = event.text_len < room ? event.text_len : room;
        memcpy(ret->text + ret->len, event.text, n);
        ret->len += n;
    }
    return event.status == PLIM_OK ? 0 : fail(device, event.error);
}

static int answer(const char *model, const char *device, struct answer *ret)
{
    plim_error err = PLIM_INIT(plim_error);
    plim_engine *engine;
    plim_engine_opts opts;
    plim_engine_opts_init(&opts);
    opts.model_path = model;
    opts.device = device;
    opts.max_sequences = 1;
    if (plim_engine_create(&opts, &engine, &err) != PLIM_OK)
        return fail(device, &err);

    static const char prompt[] = "Once upon a time";
    plim_request *request;
    plim_request_opts ask;
    plim_request_opts_init(&ask);
    ask.prompt = prompt;
    ask.prompt_len = strlen(prompt);
    ask.max_tokens = 24;
    ask.temperature = 0;
    int status;
    if (plim_request_submit(engine, &ask, &request, &err) != PLIM_OK) {
        status = fail(device, &err);
    } else {
        status = collect(request, device, ret);
        plim_request_free(request);
    }
    plim_metrics metrics = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &metrics);
    printf("%s: %zu bytes of text, device lost %llu times\n", device, ret->len,
           (unsigned long long)metrics.losses);
    plim_engine_free(engine);
    return status;
}

int main(int argc, char **argv)
{
    static struct answer good, bad;
    char device[1024];
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL WORLD\n", argv[0]);
        return 2;
    }
    snprintf(device, sizeof(device), "sim:%s", argv[2]);
    if (answer(argv[1], "cpu", &good) != 0 || answer(argv[1], device, &bad) != 0)
        return 1;
    if (good.len != bad.len || memcmp(good.text, bad.text, good.len) != 0) {
        fprintf(stderr, "the texts differ\n");
        return 1;
    }
    return 0;
}
