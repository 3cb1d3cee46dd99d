// SPDX-License-Identifier: Apache-2.0
// Threads for what may take long: parsing large bodies, templates, tokenizing. Finished jobs come
// back to the I/O thread through a list and an eventfd.
#ifndef PLM_SERVE_WORKERS_H
#define PLM_SERVE_WORKERS_H

#include <stdbool.h>
#include <stddef.h>

struct plm_job {
    void (*run)(struct plm_job *job); // on a worker
    struct plm_job *next;
};

struct plm_workers;

// jobs_max: how many may wait.
// NULL: no memory, no descriptor, or, where *ret_no_thread says so, no thread.
struct plm_workers *plm_workers_create(unsigned threads, size_t jobs_max, bool *ret_no_thread);
// Finishes what is queued and ends the threads; the finished list may still be read before.
void plm_workers_destroy(struct plm_workers *workers);
int plm_workers_fd(const struct plm_workers *workers); // readable: jobs have finished
// False when too many wait.
bool plm_workers_push(struct plm_workers *workers, struct plm_job *job);
// Takes the list of finished jobs, oldest first, and clears the descriptor.
struct plm_job *plm_workers_finished(struct plm_workers *workers);
// Lets all queued jobs finish; none may be pushed after it.
void plm_workers_join(struct plm_workers *workers);

#endif
