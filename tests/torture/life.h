// SPDX-License-Identifier: Apache-2.0
// One whole life of an engine, in process and the same every time: start on a simulated device that
// computes on the CPU, ASKS mixed requests beside every call of the public API that allocates, one
// more request after them, shutdown. One fault is injected into it; what came of each request is
// recorded, so that a life with a fault can be compared with one without.
#ifndef TORTURE_LIFE_H
#define TORTURE_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/plimsoll.h"

enum fault_kind {
    FAULT_NONE,
    FAULT_HOST,      // the n-th allocation of host memory fails
    FAULT_HOST_FROM, // and all later ones, until the last request
    FAULT_DEVICE,    // the n-th slab is refused
    FAULT_DEVICE_FROM,
    FAULT_SUBMIT, // the n-th submit finds no room
    FAULT_LOST,   // the device is lost at the n-th submit
    FAULT_MALLOC, // the n-th call of malloc by anybody, third-party libraries included
    FAULT_KINDS,
};

struct fault {
    enum fault_kind kind;
    uint64_t n; // from 1
};

#define ASKS  20u
#define CALLS 13u // of the API beside requests

struct outcome {
    int submit;        // plim_request_submit()
    int done;          // DONE's status; 0 where it was not let in
    uint32_t finishes; // FINISH events
    uint64_t hash;     // of tokens, log-probabilities and text
    bool says;         // a failure came with its status and a message
    char message[160]; // of a failure
};

struct life {
    int start; // plm_engine_create_in()
    plim_error start_error;
    struct outcome asks[ASKS + 1]; // the last one comes when the fault is over
    int calls[CALLS];
    int last_wake;     // after the fault
    bool hung;         // a request did not end
    plim_metrics end;  // when all had ended
    int64_t host_left; // bytes, after the shutdown
    uint64_t device_left;
    uint64_t allocations[FAULT_KINDS]; // points at which a fault of this kind can be injected
};

void life_run(const struct fault *fault, struct life *ret);

// The program's own malloc (malloc.c), which counts calls and fails one of them.
void torture_malloc_arm(uint64_t fail_nth); // counts from here; 0: only counts
uint64_t torture_malloc_disarm(void);       // returns the calls since

#endif
