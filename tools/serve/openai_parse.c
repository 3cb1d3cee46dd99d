// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/openai_parse.h"

#include <stdio.h>
#include <stdlib.h>

bool plm_openai_wrong_type(struct plm_api_error *error, const char *name, const char *wanted,
                           enum plm_json_type got)
{
    plm_api_error_invalid(error, name, "%s must be %s, not %s", name, wanted,
                          plm_json_type_name(got));
    return false;
}

bool plm_openai_cannot(const struct plm_openai_parse_state *p, const char *name, const char *what)
{
    plm_api_error_invalid(p->error, name, "%s: %s is not supported by this server", name, what);
    p->error->code = "unsupported";
    return false;
}

void *plm_openai_alloc(const struct plm_openai_parse_state *p, size_t n, size_t size)
{
    const size_t bytes = n * size; // both are limited by the body's length
    if (plim_engine_host_charge(p->rules->engine, (int64_t)bytes) != PLIM_OK)
        return NULL;
    p->ret->charged += bytes;
    return calloc(n, size);
}

bool plm_openai_tree(const struct plm_openai_parse_state *p, const char *name,
                     struct json_object **ret, int64_t *ret_charged)
{
    *ret = NULL;
    const struct plm_json_value *v = plm_json_get(p->doc, name);
    if (v == NULL)
        return true;
    *ret = plm_json_tree(v, p->rules->engine, ret_charged);
    if (*ret != NULL)
        return true;
    // Beside the tree there is the text that it is made of.
    plm_api_error_host_for(p->error, p->rules->engine, *ret_charged + (int64_t)v->len);
    snprintf(p->error->param, sizeof(p->error->param), "%s", name);
    return false;
}
