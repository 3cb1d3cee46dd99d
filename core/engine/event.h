// SPDX-License-Identifier: Apache-2.0
// Events of one request, and the list of requests that have some (event.c).
#ifndef PLM_ENGINE_EVENT_H
#define PLM_ENGINE_EVENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/plimsoll.h"
#include "core/sched/sample.h"

struct plim_request;

// The requests that have something to read, for a reader of many; fd is readable while there is
// one.
struct plm_ready {
    pthread_mutex_t lock; // never held while another lock is taken
    struct plim_request *head, *tail;
    int fd; // -1: not open
};

// Events from the engine to one reader. The writer appends records to `in`; the reader takes the
// whole buffer and walks it without the lock.
struct plm_events {
    const struct plm_clock *clock;
    struct plm_ready *ready; // that a request with something to read is put on
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool waiting; // the reader sleeps on cond
    bool done;    // DONE is set below and nothing more comes
    struct plm_buf in;
    // The reader's:
    struct plm_buf out;
    size_t out_at;
    bool done_taken;
};

int plm_ready_init(struct plm_ready *ready); // PLM_ERR_NOMEM_HOST: no lock, and nothing to finish
int plm_ready_open(struct plm_ready *ready, struct plm_error *err);
void plm_ready_finish(struct plm_ready *ready);
// The request whose turn it is, and takes it off the list; NULL: none has anything to read.
struct plim_request *plm_ready_take(struct plm_ready *ready);
// Takes a request off the list for good: its reader is gone.
void plm_ready_remove(struct plm_ready *ready, struct plim_request *request);
int plm_events_init(struct plm_events *events, struct plm_host *host, const struct plm_clock *clock,
                    struct plm_ready *ready);
// Bytes of one event with n_top alternatives and so much text.
size_t plm_events_bytes(uint32_t n_top, size_t text_len);
// Room for so many unread bytes, which can not be refused later. False: no host memory.
bool plm_events_reserve(struct plm_events *events, size_t bytes);
void plm_events_finish(struct plm_events *events);
// One event. False: no host memory; nothing was added.
bool plm_events_admitted(struct plim_request *request);
bool plm_events_token(struct plim_request *request, uint32_t choice, struct plm_slice text,
                      const struct plm_sample_out *out);
bool plm_events_finish_choice(struct plim_request *request, uint32_t choice,
                              enum plim_finish finish, struct plm_slice text);
// The last event; the fields of DONE are set.
void plm_events_done(struct plim_request *request);

#endif
