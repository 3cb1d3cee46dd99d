// SPDX-License-Identifier: Apache-2.0
// Worker threads that walk a list together. The caller's thread is worker 0; the others live from
// create to destroy.
//
// Work is handed out by claims: a worker takes the next few units of the current phase, and whoever
// finishes the last unit of a phase opens the next one. So a phase waits for units that somebody
// holds and never for a worker that holds none: one that the system has put aside, or that is still
// waking up, costs its share and stalls nobody. A worker without work spins at most 20 us and then
// sleeps, so that on a busy machine it does not burn the time slice that a worker with work needs.
#ifndef PLM_CPU_POOL_H
#define PLM_CPU_POOL_H

#include <stdint.h>

#include "backends/cpu/list.h"

#define PLM_CPU_WORKERS_MAX 256

struct plm_cpu_pool;

// workers >= 1, the caller included. PLM_ERR_NOMEM_HOST; PLM_ERR_IO where there are no threads.
int plm_cpu_pool_create(struct plm_host *host, uint32_t workers, struct plm_cpu_pool **ret);
void plm_cpu_pool_destroy(struct plm_cpu_pool *pool); // may be NULL
// Runs the list to its end. One caller at a time.
void plm_cpu_pool_run(struct plm_cpu_pool *pool, const struct plm_cpu_list *list);
// Writes to every worker's scratch, so that its pages are resident.
void plm_cpu_pool_touch(struct plm_cpu_pool *pool);

#endif
