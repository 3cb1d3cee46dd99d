// SPDX-License-Identifier: Apache-2.0
// Several prompts at once from a program that has its own poll() loop: the engine's descriptor is
// one more entry in it, and no call here blocks but poll.
//   cc poll_loop.c $(pkg-config --cflags --libs plimsoll) -o poll_loop
//   ./poll_loop model.gguf "First prompt" "Second prompt"
#include <errno.h>
#include <plimsoll.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

// One prompt and the text it has got so far.
struct answer {
    const char *prompt;
    char text[4096];
    size_t len;
};

static void append(struct answer *answer, const plim_event *event)
{
    size_t room = sizeof(answer->text) - answer->len;
    size_t n = event->text_len < room ? event->text_len : room;
    memcpy(answer->text + answer->len, event->text, n);
    answer->len += n;
}

// Takes all events that are there. Returns true when the request is done and freed.
static bool drain(plim_request *request)
{
    struct answer *answer = plim_request_user(request);
    plim_event event = PLIM_INIT(plim_event);
    while (plim_request_next(request, 0, &event) == PLIM_OK) {
        if (event.type != PLIM_EVENT_DONE) {
            append(answer, &event);
            continue;
        }
        if (event.status == PLIM_OK)
            printf("%s%.*s\n---\n", answer->prompt, (int)answer->len, answer->text);
        else
            printf("%s: %s\n---\n", answer->prompt, event.error->message);
        plim_request_free(request);
        return true;
    }
    return false;
}

static bool submit(plim_engine *engine, struct answer *answer)
{
    plim_error err = PLIM_INIT(plim_error);
    plim_request_opts ask;
    plim_request_opts_init(&ask);
    ask.prompt = answer->prompt;
    ask.prompt_len = strlen(answer->prompt);
    ask.max_tokens = 48;
    ask.temperature = 0;
    ask.user = answer;
    plim_request *request;
    if (plim_request_submit(engine, &ask, &request, &err) == PLIM_OK)
        return true;
    printf("%s: refused: %s\n", answer->prompt, err.message);
    return false;
}

int main(int argc, char **argv)
{
    static struct answer answers[16];
    if (argc < 3 || argc > 18) {
        fprintf(stderr, "usage: %s MODEL PROMPT...\n", argv[0]);
        return 2;
    }
    plim_error err = PLIM_INIT(plim_error);
    plim_engine_opts opts;
    plim_engine_opts_init(&opts);
    opts.model_path = argv[1];
    plim_engine *engine;
    if (plim_engine_create(&opts, &engine, &err) != PLIM_OK) {
        fprintf(stderr, "cannot start: %s\n", err.message);
        return 1;
    }
    int open = 0;
    for (int i = 2; i < argc; i++) {
        answers[i - 2].prompt = argv[i];
        open += submit(engine, &answers[i - 2]);
    }
    struct pollfd fds[1] = {{.fd = plim_engine_poll_fd(engine), .events = POLLIN}};
    while (open > 0) {
        if (poll(fds, 1, -1) < 0 && errno != EINTR)
            break;
        for (plim_request *r; (r = plim_engine_next_ready(engine)) != NULL;)
            open -= drain(r);
    }
    plim_engine_free(engine);
    return open > 0;
}
