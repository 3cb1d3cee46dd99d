// SPDX-License-Identifier: Apache-2.0
// Bodies of the OpenAI API: the JSON scan and the judgement of fields. What the scan accepts,
// json-c must accept too; what is refused must say why; and the host budget must be where it was.
#include <json-c/json_tokener.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "tools/serve/openai_request.h"

static plim_engine *engine;

static void demand(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "broken: %s\n", what);
        abort();
    }
}

static int64_t host_used(void)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &m);
    return m.host_used_bytes;
}

static void second_opinion(const char *text, size_t n)
{
    // One level more, because it counts the scalars as a level.
    struct json_tokener *tok = json_tokener_new_ex(PLM_JSON_DEPTH_MAX + 1);
    demand(tok != NULL, "no memory");
    json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    struct json_object *tree = json_tokener_parse_ex(tok, text, (int)n);
    demand(tree != NULL, "json-c refuses what the scan took");
    json_object_put(tree);
    json_tokener_free(tok);
}

static void judge(const struct plm_json_doc *doc, bool chat)
{
    static const char *const names[] = {"m", "model"};
    plim_request_opts defaults;
    plim_request_opts_init(&defaults);
    const struct plm_openai_rules rules = {.defaults = &defaults,
                                           .engine = engine,
                                           .model_names = names,
                                           .n_model_names = 2,
                                           .n_vocab = 300};
    struct plm_openai_request request;
    struct plm_api_error error = {0};
    if (!plm_openai_parse(&request, doc, chat, &rules, &error)) {
        demand(error.http >= 400 && error.message[0] != '\0', "a refusal without a reason");
        return;
    }
    const plim_request_opts *o = &request.opts;
    demand(o->n >= 1 && o->n <= PLIM_N_MAX, "n");
    demand(o->temperature >= 0 && o->temperature <= 2, "temperature");
    demand(o->n_stop <= PLIM_STOP_MAX, "stop");
    demand((o->chat_json != NULL) + (o->prompt != NULL) + (o->tokens != NULL) == 1, "one prompt");
    for (size_t i = 0; i < o->n_tokens; i++)
        demand(o->tokens[i] >= 0 && o->tokens[i] < 300, "token id");
    for (size_t i = 0; i < o->n_stop; i++)
        demand(o->stop[i].len > 0 && o->stop[i].ptr != NULL, "stop string");
    if (o->chat_json != NULL)
        second_opinion(o->chat_json, o->chat_json_len);
    plm_openai_finish(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (engine == NULL) {
        plim_engine_opts opts;
        plim_engine_opts_init(&opts);
        opts.model_path = "fake";
        demand(plim_engine_create(&opts, &engine, NULL) == PLIM_OK, "no engine");
    }
    struct plm_json_doc doc;
    char message[256] = "";
    const char *text = (const char *)bytes;
    int status = plm_json_scan(text, n, engine, &doc, message, sizeof(message));
    if (status != PLIM_OK) {
        demand(message[0] != '\0', "a refusal without a message");
    } else {
        second_opinion(text, n);
        judge(&doc, true);
        judge(&doc, false);
    }
    demand(host_used() == 0, "host bytes are missing");
    return 0;
}
