// SPDX-License-Identifier: Apache-2.0
// A request as the engine holds it (request.c).
#ifndef PLM_ENGINE_REQUEST_H
#define PLM_ENGINE_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/engine/event.h"
#include "core/plan/admit.h"
#include "core/plimsoll.h"
#include "core/sched/sample.h"
#include "core/sched/sched.h"
#include "core/tokenizer/tokenizer.h"

struct plm_choice {
    struct plm_seq seq; // first: the scheduler hands out pointers to it
    struct plim_request *request;
    uint32_t index;
    uint32_t max_output;  // tokens after the prompt
    uint32_t completions; // TOKEN events
    uint32_t goal;        // as a candidate: tokens whose computing clears it
    bool live;            // no FINISH yet
    struct plm_detok detok;
    struct plm_buf held;           // text that may be the start of a stop string
    uint16_t begun[PLIM_STOP_MAX]; // bytes of each stop string that the text ends with
};

enum plm_cancel {
    PLM_CANCEL_NONE,
    PLM_CANCEL_ASKED, // was put into the list of cancels
    PLM_CANCEL_LATE,  // the request is over: nothing to do
};

struct plim_request {
    struct plim_engine *engine;
    atomic_uint refs; // the caller's and the engine's
    void *user;
    struct plm_events events;
    // Ready list, under its lock.
    struct plim_request *ready_prev, *ready_next;
    bool is_ready;
    // Inbox and list of cancels, under engine.lock.
    struct plim_request *inbox_next, *cancel_next;
    enum plm_cancel cancel;

    // Fixed at submit.
    struct plm_sample_params params;
    struct plm_sample_bias *bias;
    struct plm_tokens bad; // plm_sample_params
    struct plm_slice *stops;
    uint16_t *borders; // of each byte of the stop strings, in their order (request.c)
    uint32_t n_stops;
    uint32_t min_tokens;
    bool ignore_eos;
    bool include_stop;
    int32_t *stop_tokens; // those asked for, and behind them the model's own
    uint32_t n_stop_tokens;
    uint32_t n_masked; // both: what min_tokens masks
    uint32_t n_prompt;
    int64_t reserved_bytes; // charged for the caller; what it took is its own. The reader's
    struct plm_admit_request admit;
    uint64_t expected_tokens; // of its output, when it was admitted
    uint64_t record_id;       // of its record
    int64_t submit_ns;

    // The stepping thread's.
    struct plim_request *prev, *next; // of all that the engine holds
    int64_t admitted_ns, first_ns, last_ns;
    uint32_t n_live;
    uint32_t n_cached;
    uint32_t completions;
    bool began;
    bool ended;
    bool candidate;        // of the bisection
    uint64_t counted_at;   // the number of the last forecast that counted it
    uint64_t lost_with;    // the number of the last loss at which it had rows; 0: none
    bool admit_event_lost; // no host memory for ADMITTED: the request ends at its first token

    // DONE, written before events.done.
    int32_t finish;
    int32_t status;
    plim_error error;
    double queue_s, prefill_s, decode_s;

    uint32_t n; // choices
    struct plm_choice choices[];
};

// Gives one reference back; the last one frees the request.
void plm_request_unref(struct plim_request *request);
// What a request takes of the host budget.
void plm_request_host_limits(struct plm_admit_limits *limits);

#endif
