// SPDX-License-Identifier: Apache-2.0
// Calls every function of the public API with NULL in every place of a pointer (null_calls.inc,
// made from the header by api.py). Nothing may crash: the result is INVALID and the error names the
// argument, or NULL is allowed there. Usage: null_calls MODEL
#include <plimsoll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    plim_engine_opts *opts;
    plim_request_opts *ask;
    plim_engine *engine, *made_engine;
    plim_request *request, *made_request;
    plim_plan *plan, *made_plan;
    plim_model_info info;
    plim_metrics metrics;
    plim_metric list[128];
    plim_device_info devices[8];
    plim_event event;
    plim_error err;
    const char *model, *chat;
    char plan_text[65536];
    size_t plan_bytes;
    char text[65536];
    int32_t ids[64];
    size_t n;
    bool worked;
} env;

static unsigned calls, wrong;

static void complain(const char *function, const char *arg, const char *what, int status)
{
    wrong++;
    printf("%s(%s: NULL): %s: %d \"%s\", param \"%s\"\n", function, arg, what, status,
           env.err.message, env.err.param);
}

static void before(void)
{
    calls++;
    env.err = (plim_error)PLIM_INIT(plim_error);
    env.event = (plim_event)PLIM_INIT(plim_event);
    env.info = (plim_model_info)PLIM_INIT(plim_model_info);
    env.metrics = (plim_metrics)PLIM_INIT(plim_metrics);
    env.made_engine = (void *)&env; // what fails leaves NULL in its place
    env.made_plan = (void *)&env;
    env.made_request = (void *)&env;
    env.n = sizeof(env.text);
}

// Frees what a call made.
static void after(void)
{
    if (env.made_request != NULL && (void *)env.made_request != (void *)&env)
        plim_request_free(env.made_request);
    if (env.made_plan != NULL && (void *)env.made_plan != (void *)&env)
        plim_plan_free(env.made_plan);
    if (env.made_engine != NULL && (void *)env.made_engine != (void *)&env)
        plim_engine_free(env.made_engine);
}

static void invalid(int status, const char *function, const char *arg, bool has_err)
{
    if (status != PLIM_ERR_INVALID)
        complain(function, arg, "not INVALID", status);
    else if (has_err && (env.err.status != status || strcmp(env.err.param, arg) != 0 ||
                         env.err.message[0] == '\0'))
        complain(function, arg, "the error does not name it", status);
    after();
}

static void allowed(int status, const char *function, const char *arg)
{
    if (status == PLIM_ERR_INVALID)
        complain(function, arg, "not allowed", status);
    after();
}

#define CHECK_INVALID(call, function, arg, has_err)                                                \
    before();                                                                                      \
    invalid(call, function, arg, has_err)
#define CHECK_ALLOWED(call, function, arg, has_err)                                                \
    before();                                                                                      \
    allowed(call, function, arg)
#define CHECK_NONE(says_none, function, arg)                                                       \
    before();                                                                                      \
    if (!(says_none))                                                                              \
    complain(function, arg, "something came of it", 0)
#define CHECK_VOID(call, function, arg)                                                            \
    before();                                                                                      \
    call

static void all_calls(void)
{
#include "null_calls.inc"
}

static int fail(const char *what)
{
    printf("%s: %s\n", what, env.err.message);
    return 1;
}

int main(int argc, char **argv)
{
    static plim_engine_opts opts;
    static plim_request_opts ask;
    if (argc != 2)
        return 2;
    plim_engine_opts_init(&opts);
    plim_request_opts_init(&ask);
    opts.model_path = env.model = argv[1];
    opts.threads = opts.max_sequences = 1;
    opts.ctx_size = 128;
    opts.batch_max_tokens = 16;
    opts.manual_step = 1;
    env.chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
    ask.prompt = "a";
    ask.prompt_len = 1;
    ask.max_tokens = 4;
    env.opts = &opts;
    env.ask = &ask;
    env.err = (plim_error)PLIM_INIT(plim_error);
    if (plim_engine_create(&opts, &env.engine, &env.err) != PLIM_OK ||
        plim_request_submit(env.engine, &ask, &env.request, &env.err) != PLIM_OK ||
        plim_plan_create(&opts, &env.plan, &env.err) != PLIM_OK ||
        plim_plan_json(env.plan, env.plan_text, sizeof(env.plan_text), &env.plan_bytes) != PLIM_OK)
        return fail("no engine");
    opts.device = "cpu";
    all_calls();
    plim_plan_free(env.plan);
    plim_request_free(env.request);
    if (plim_engine_free(env.engine) != PLIM_OK)
        return fail("the engine is busy");
    printf("%u calls with a NULL, %u wrong\n", calls, wrong);
    return wrong > 0 || calls < 80 ? 1 : 0;
}
