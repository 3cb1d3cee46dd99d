// SPDX-License-Identifier: Apache-2.0
// What openai_request.c (fields) and openai_prompt.c (model, messages, prompts), which it calls,
// share.
#ifndef PLM_SERVE_OPENAI_PARSE_H
#define PLM_SERVE_OPENAI_PARSE_H

#include "tools/serve/openai_request.h"

struct plm_openai_parse_state {
    const struct plm_json_doc *doc;
    const struct plm_openai_rules *rules;
    struct plm_openai_request *ret;
    struct plm_api_error *error;
};

// Each returns false after it filled the error.
bool plm_openai_wrong_type(struct plm_api_error *error, const char *name, const char *wanted,
                           enum plm_json_type got);
// It is known, but not something that this server does.
bool plm_openai_cannot(const struct plm_openai_parse_state *p, const char *name, const char *what);
// A field as a tree. *ret is NULL when the field is absent; false when memory is short.
bool plm_openai_tree(const struct plm_openai_parse_state *p, const char *name,
                     struct json_object **ret, int64_t *ret_charged);

// A list of the request, charged to the host budget until plm_openai_finish(), and freed there by
// free(). NULL: no host memory.
void *plm_openai_alloc(const struct plm_openai_parse_state *p, size_t n, size_t size);

// openai_prompt.c
bool plm_openai_model(const struct plm_openai_parse_state *p);
bool plm_openai_chat(const struct plm_openai_parse_state *p);
bool plm_openai_prompt(const struct plm_openai_parse_state *p);
bool plm_openai_salt(const struct plm_openai_parse_state *p);

#endif
