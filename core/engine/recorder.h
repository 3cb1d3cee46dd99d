// SPDX-License-Identifier: Apache-2.0
// The flight recorder: what the engine saw lately, in a ring of fixed size, and the writer that
// renders it as a world file (docs/worlds.md), so that an incident in the field can be played on a
// simulated device. Recording costs a lock and a store, and takes no memory after creation. Texts,
// tokens and salts are not kept: a request is its sizes and its seed.
#ifndef PLM_ENGINE_RECORDER_H
#define PLM_ENGINE_RECORDER_H

#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"

// A request is two or three records; this many are some hundred of them.
#define PLM_RECORDER_RECORDS 1024u

enum plm_record_kind {
    PLM_RECORD_SUBMIT,  // a prompt tokens, b output asked for, n choices, value: the seed
    PLM_RECORD_REFUSE,  // the same of a request that was refused; status
    PLM_RECORD_ADMIT,   // of the request `id`
    PLM_RECORD_END,     // of it; a tokens of the longest choice, status
    PLM_RECORD_OTHERS,  // value bytes are held by others now
    PLM_RECORD_RESIZE,  // the KV cache has a blocks now
    PLM_RECORD_NO_ROOM, // a submit was refused
    PLM_RECORD_LOST,    // the device
    PLM_RECORD_HANG,    // a step took value ns, which is too long
    PLM_RECORD_OVERRUN, // a step used value bytes beyond its plan
    PLM_RECORD_SLEEP,
    PLM_RECORD_WAKE,
    PLM_RECORD_DRAIN,
};

struct plm_record {
    uint64_t step; // of the engine when it happened: calls of plm_step so far
    uint64_t id;   // number of the record; a request is known by that of its SUBMIT
    int64_t value;
    uint32_t a, b;
    uint16_t n;
    int8_t status; // enum plm_status
    uint8_t kind;
};

struct plm_recorder;

int plm_recorder_create(struct plm_host *host, struct plm_recorder **ret); // PLM_ERR_NOMEM_HOST
void plm_recorder_destroy(struct plm_recorder *recorder);                  // NULL is allowed
// The engine enters a step at this time; records that follow belong to it. The stepping thread's.
void plm_recorder_step(struct plm_recorder *recorder, uint64_t step, int64_t now_ns);
// Any thread; step and id are set here. Returns the id, never 0.
uint64_t plm_recorder_put(struct plm_recorder *recorder, const struct plm_record *record);

struct plim_engine;
// Notes an incident, which is reported at the end of the step. reason: a constant word. The
// stepping thread's.
void plm_incident(struct plim_engine *engine, const char *reason);
// Reports a noted incident to the embedder, where it asked for incidents.
void plm_incident_tell(struct plim_engine *engine);

#endif
