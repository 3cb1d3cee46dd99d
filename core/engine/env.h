// SPDX-License-Identifier: Apache-2.0
// What an engine stands on, from its creator: a program that embeds it gets the system's; tests and
// simulations bring their own.
#ifndef PLM_ENGINE_ENV_H
#define PLM_ENGINE_ENV_H

#include <stdint.h>

struct plm_backend;
struct plm_clock;
struct plm_host;

// Everything in it outlives the engine.
struct plm_engine_env {
    struct plm_host *host;
    const struct plm_clock *clock;     // NULL: the system's
    const struct plm_backend *backend; // NULL: the one that opts->device names
    const void *backend_opts;          // of that backend (plm_device_opts.backend_opts)
    uint64_t seed; // of what must not be guessed (prefix keys, default seeds); 0: a random one
};

#endif
