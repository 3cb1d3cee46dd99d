// SPDX-License-Identifier: Apache-2.0
// Completes one prompt and prints the text as it comes.
//   cc completion.c $(pkg-config --cflags --libs plimsoll) -o completion
//   ./completion model.gguf "Once upon a time"
#include <plimsoll.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what, const plim_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->message);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
        return 2;
    }
    plim_error err = PLIM_INIT(plim_error);
    plim_engine_opts opts;
    plim_engine_opts_init(&opts);
    opts.model_path = argv[1];
    opts.max_sequences = 1;

    // Loads, measures, sizes and proves the plan. When it returns, memory can not run out.
    plim_engine *engine;
    if (plim_engine_create(&opts, &engine, &err) != PLIM_OK)
        return fail("cannot start", &err);

    plim_request_opts ask;
    plim_request_opts_init(&ask);
    ask.prompt = argv[2];
    ask.prompt_len = strlen(argv[2]);
    ask.max_tokens = 100;
    ask.temperature = 0.7f;

    int status = 0;
    plim_request *request;
    if (plim_request_submit(engine, &ask, &request, &err) != PLIM_OK) {
        status = fail("refused", &err); // an ordinary result: too long, or too much for now
    } else {
        plim_event event = PLIM_INIT(plim_event);
        while (plim_request_next(request, -1, &event) == PLIM_OK && event.type != PLIM_EVENT_DONE) {
            fwrite(event.text, 1, event.text_len, stdout);
            fflush(stdout);
        }
        printf("\n[%u prompt tokens, %u generated]\n", event.prompt_tokens,
               event.completion_tokens);
        if (event.status != PLIM_OK)
            status = fail("failed", event.error);
        plim_request_free(request);
    }
    plim_engine_free(engine);
    return status;
}
