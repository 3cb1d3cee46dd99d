// SPDX-License-Identifier: Apache-2.0
// Models from a hub or any other server. A hub's go into the cache that all programs of its world
// share (cache.h); other files where the user says.
#ifndef PLM_TOOLS_PULL_MODELS_H
#define PLM_TOOLS_PULL_MODELS_H

#include <stdbool.h>

#include "tools/opts.h"
#include "tools/pull/fetch.h"

struct plm_model_source {
    const char *command;        // for messages
    const char *what;           // [hf:]user/repo[:quant], or an address
    const char *file;           // of a repository; NULL: by the quantisation
    const char *revision;       // NULL: main
    const char *endpoint;       // the hub; NULL: $HF_ENDPOINT, else https://huggingface.co
    const char *output;         // of an address: a file or a folder; NULL: this folder
    struct plm_opt_list hashes; // SHA-256 of each part, where the user knows them
    double timeout_s;
    bool newest; // ask the hub also where the cache has such a model
};

// Finds a hub's model in the cache or fetches it. Returns the exit status of a command: 0, 1, 2 (a
// name that can be none) or 128 plus the number of the signal that stopped it; where it is not 0 a
// message was printed. *ret is the path of the file, or of the first part; freed by the caller.
int plm_model_of_hub(const struct plm_model_source *source, char **ret);
// The same for an address.
int plm_model_of_url(const struct plm_model_source *source, char **ret);

// ---- what both need (environment.c) ----

struct plm_hub_access {
    char endpoint[512]; // without a slash at its end
    char token[256];    // "": none
};
// By the source and the environment: HF_ENDPOINT; HF_TOKEN, HUGGING_FACE_HUB_TOKEN or the file that
// HF_TOKEN_PATH names, by default "token" in HF_HOME. False: a message was printed.
bool plm_hub_access_read(const struct plm_model_source *source, struct plm_hub_access *ret);
// The token, where it may go to that address: below the endpoint, by TLS or to this machine. Else
// NULL.
const char *plm_hub_token_for(const struct plm_hub_access *access, struct plm_client *client,
                              const char *url);
// HF_HUB_OFFLINE: nothing is asked of the hub.
bool plm_hub_is_offline(void);

// What a fetch's end is to the shell.
int plm_fetch_exit(enum plm_fetch_result result);

#endif
