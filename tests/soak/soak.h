// SPDX-License-Identifier: Apache-2.0
// What the soak's table (soak.c) and its clients (client.c) share. Clients stand for callers of the
// public API: each draws requests from its own seed, reads them to their end or leaves, and counts
// what came back, so that what went in can be compared with what the engine says came out.
#ifndef SOAK_H
#define SOAK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/plimsoll.h"

#define SOAK_FINISHES (PLIM_FINISH_ERROR + 1)
#define SOAK_STATUSES 22 // -status of plim_status, PLIM_OK at 0
#define SOAK_PROBES   6  // requests that must give the same tokens all the time
#define SOAK_CLIENTS  6

// What the clients saw. Sums of all clients, under the lock of struct soak.
struct soak_tally {
    uint64_t in;                     // calls of plim_request_submit()
    uint64_t refused[SOAK_STATUSES]; // of which did not return PLIM_OK
    uint64_t ended[SOAK_FINISHES];   // read to their end
    uint64_t failed[SOAK_STATUSES];  // of which with this status (OK is not counted)
    uint64_t left;                   // freed by their client before DONE was read
    uint64_t tokens;                 // read
    uint64_t probes;                 // probes that ended well
    uint64_t wrong;                  // what no request of its kind may get
    char first_wrong[256];
};

struct soak {
    plim_engine *engine;
    plim_model_info model;
    uint64_t seed;
    bool chat;                        // the model renders chats
    uint64_t probe_hash[SOAK_PROBES]; // of the tokens that each gave first; 0: none yet

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    bool park; // clients end what they have and wait, so that a quiet engine can be read
    uint32_t parked;
    struct soak_tally tally;
};

struct soak_client {
    struct soak *soak;
    uint32_t index;
    uint64_t draws;
    pthread_t thread;
};

// The thread of a client; ends when soak.stop is set. arg is a struct soak_client.
void *soak_client_run(void *arg);

#endif
