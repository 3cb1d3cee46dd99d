// SPDX-License-Identifier: Apache-2.0
// API keys. Compared in constant time and never logged.
#ifndef PLM_SERVE_AUTH_H
#define PLM_SERVE_AUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/opts.h"

struct plm_auth {
    char **keys;
    size_t n;
};

// Takes the keys of --api-key (each may be a comma-separated list) and of the file (one per line, #
// comments), NULL for none. False with a sentence on stderr.
bool plm_auth_init(struct plm_auth *auth, const struct plm_opt_list *keys, const char *file);
void plm_auth_finish(struct plm_auth *auth);
// The index of the key that the request carries, 0 when no keys are set, -1 when it may not pass.
// authorization and x_api_key are header values or NULL.
int plm_auth_check(const struct plm_auth *auth, const char *authorization, const char *x_api_key);

#endif
