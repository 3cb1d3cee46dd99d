// SPDX-License-Identifier: Apache-2.0
// Admission: what the callers' threads ask before a request exists (admission.c).
#ifndef PLM_ENGINE_ADMISSION_H
#define PLM_ENGINE_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/plan/admit.h"
#include "core/plan/report.h"
#include "core/plimsoll.h"

struct plim_engine;
struct plim_request;

#define PLM_REFUSALS 32 // kept for /v1/memory

// Under engine.lock: what admission decides by, and what it refused.
struct plm_admission {
    struct plm_admit_limits limits; // fixed at the start
    struct plm_admit_state state;
    uint32_t waiting; // submitted and not yet begun
    uint64_t waiting_tokens;
    uint64_t waiting_output; // that is expected of them
    uint64_t rejected_never, rejected_now, rejected_queue, rejected_context;
    struct plm_report_refusal refusals[PLM_REFUSALS];
    uint64_t n_refusals;
    uint64_t streak; // refusals for now since the last admission
    enum plm_admit_term streak_term;
    bool streak_asks; // for plm_admission_recheck()
};

// Checks a request, and reserves a place in the queue where the answer is yes; else the refusal is
// counted, remembered and described (err may be NULL).
int plm_admission_check(struct plim_engine *engine, const struct plm_admit_request *request,
                        struct plm_admit_result *result, plim_error *err);
// Gives a reserved place back.
void plm_admission_unreserve(struct plim_engine *engine, const struct plm_admit_request *request,
                             const struct plm_admit_result *result);
// A request no longer waits. Under engine->lock.
void plm_admission_leave_queue(struct plim_engine *engine, const struct plim_request *request);
// Counts a refusal for host memory that was found before or after admission.
void plm_admission_refused_host(struct plim_engine *engine, int status, const plim_error *err);
// Refusals of requests that are in already, from the stepping thread: one that waited too long, one
// whose step the gate refuses, and one that needs so many blocks where the pool has fewer.
void plm_admission_overdue(struct plim_engine *engine, const struct plim_request *request,
                           plim_error *err);
void plm_admission_refused_step(struct plim_engine *engine, const struct plim_request *request,
                                const struct plm_gate_result *gate, plim_error *err);
void plm_admission_outgrown(struct plim_engine *engine, const struct plim_request *request,
                            uint32_t blocks, plim_error *err);
// Between steps: after a streak of refusals, reclaims what their term can use and asks for a fresh
// reading of the device.
void plm_admission_recheck(struct plim_engine *engine);

#endif
