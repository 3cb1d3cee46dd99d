// SPDX-License-Identifier: Apache-2.0
// Keys of users and of operators. Compared in constant time and never logged.
#ifndef PLM_SERVE_AUTH_H
#define PLM_SERVE_AUTH_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/opts.h"

struct plm_auth {
    char **keys; // those of users, then those of operators
    size_t n, n_users;
};

// Where the keys of one kind come from.
struct plm_key_source {
    const char *flag;          // "--api-key"; its file is that of "--api-key-file"
    struct plm_opt_list *keys; // each may be a list with commas; wiped once it was read
    const char *file;          // one per line, # comments; or NULL
};

// Takes the keys of users and of operators. False with a sentence on stderr.
bool plm_auth_init(struct plm_auth *auth, const struct plm_key_source *users,
                   const struct plm_key_source *operators);
void plm_auth_finish(struct plm_auth *auth);
// The index of the key that the request carries, or -1: none, or one that is not known.
// authorization and x_api_key are header values or NULL.
int plm_auth_check(const struct plm_auth *auth, const char *authorization, const char *x_api_key);
// Whether the key of that index is an operator's.
bool plm_auth_operates(const struct plm_auth *auth, int index);

#endif
