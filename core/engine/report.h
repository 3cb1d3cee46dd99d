// SPDX-License-Identifier: Apache-2.0
// What others may know of a running engine (report.c, metrics.c).
#ifndef PLM_ENGINE_REPORT_H
#define PLM_ENGINE_REPORT_H

#include <stdint.h>

#include "core/plimsoll.h"

// What is expected of those that run.
struct plm_forecast {
    double tokens_per_s; // smoothed
    uint64_t tokens;     // until the first running request ends
    uint64_t all_tokens; // that are expected until all of them have ended
    uint32_t requests;   // that the running sequences belonged to then
    double mean_output;  // of choices that ended, smoothed; 0: none has
    uint64_t n;          // forecasts so far
};

// Copies the counters to where other threads read them.
void plm_step_publish(struct plim_engine *engine);
// All of them, and what is no counter; never waits for the engine's thread.
void plm_report_metrics(const struct plim_engine *engine, plim_metrics *ret);
// Counts a request that ended.
void plm_count_finish(plim_metrics *m, enum plim_finish finish);

#endif
