// SPDX-License-Identifier: Apache-2.0
// Bodies of /v1/chat/completions and /v1/completions, judged field by field and turned into
// options of the engine. What a field means stands in fields.def; one with a wrong type or value,
// or one that cannot be honoured, is refused by name.
#ifndef PLM_SERVE_OPENAI_REQUEST_H
#define PLM_SERVE_OPENAI_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/plimsoll.h"
#include "tools/json.h"
#include "tools/out.h"
#include "tools/serve/errors.h"

#define PLM_LOGIT_BIAS_MAX 1024 // OpenAI allows 300
#define PLM_SALT_BYTES     192  // of cache_salt with the key's prefix

// What the server knows and requests refer to.
struct plm_openai_rules {
    plim_engine *engine;
    const char *const *model_names; // what `model` may say; the first is the served name
    size_t n_model_names;
    uint32_t n_vocab;
    uint32_t default_max_tokens;       // 0: to the end of the context
    const plim_request_opts *defaults; // what holds where a request does not say
    int key_index;                     // prefix caches are never shared between API keys
    bool many_keys;
};

struct plm_openai_request {
    plim_request_opts opts; // points into this struct
    bool chat;
    size_t echo_bytes; // of the prompt that is put before each choice
    bool stream;
    bool include_usage;
    bool echo;
    int64_t n_logprobs; // completions: alternatives asked for, -1: none
    // Storage.
    struct plm_out text; // chat JSON, or the prompt
    struct plm_out stop_text;
    plim_text stop[PLIM_STOP_MAX];
    struct plm_out bad_text;
    plim_text bad_words[PLIM_BAD_WORDS_MAX];
    int32_t stop_tokens[PLIM_STOP_TOKENS_MAX];
    int32_t *tokens;
    size_t charged; // for tokens and bias
    plim_logit_bias *bias;
    char salt[PLM_SALT_BYTES];
};

// Fills ret from a scanned body. False: error says why, and ret holds nothing. The body may be
// freed afterwards.
bool plm_openai_parse(struct plm_openai_request *ret, const struct plm_json_doc *doc, bool chat,
                      const struct plm_openai_rules *rules, struct plm_api_error *error);
void plm_openai_finish(struct plm_openai_request *request);
// Host bytes that the engine was charged for it.
uint64_t plm_openai_charged(const struct plm_openai_request *request);

// The body of plim_chat_render() from messages, tools and the template's options; also for
// /apply-template.
bool plm_chat_json(const struct plm_json_doc *doc, struct plm_out *out,
                   struct plm_api_error *error);

#endif
